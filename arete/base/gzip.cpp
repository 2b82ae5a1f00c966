#include "arete/base/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "arete/base/error.h"
#include "arete/base/file.h"

namespace arete::io {
namespace {

constexpr int kGzipOnly = MAX_WBITS + 16;

std::vector<uint8_t> unpack(std::span<const std::byte> bytes, uint64_t max_bytes, bool prefix_only,
                            std::string_view file_name) {
  const std::string prefix = std::string(file_name) + ": ";
  auto damaged = [&](const std::string& what) {
    return IoError("", prefix + "its gzip data " + what)
        .hint("the file is damaged or its download was interrupted: get it again");
  };
  z_stream stream{};
  ARETE_CHECK(inflateInit2(&stream, kGzipOnly) == Z_OK,
              OutOfMemoryError("", prefix + "no memory to unpack it"));
  struct End {
    z_stream* s;
    ~End() { inflateEnd(s); }
  } const end{&stream};

  std::vector<uint8_t> out;
  uint64_t consumed = 0, produced = 0;
  for (;;) {
    if (produced == out.size() && produced < max_bytes)
      out.resize(std::min<uint64_t>(max_bytes, std::max<uint64_t>(produced * 2, 1 << 16)));
    uint8_t surplus;
    const bool full = produced == max_bytes;
    if (full && prefix_only) break;
    const uint64_t room = full ? 1 : std::min<uint64_t>(out.size() - produced, 1u << 30);
    const uint64_t piece = std::min<uint64_t>(bytes.size() - consumed, 1u << 30);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data() + consumed));
    stream.avail_in = static_cast<uInt>(piece);
    stream.next_out = full ? &surplus : out.data() + produced;
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    consumed += piece - stream.avail_in;
    const uint64_t got = room - stream.avail_out;
    if (full && got > 0)
      throw damaged("unpacks to more than " + std::to_string(max_bytes) + " bytes");
    produced += full ? 0 : got;
    if (status == Z_STREAM_END) {
      if (consumed == bytes.size()) break;
      // gzip allows several members one after another; each starts anew.
      if (!is_gzip(bytes.subspan(consumed))) {
        if (prefix_only) break;
        throw damaged("is followed by " + std::to_string(bytes.size() - consumed) +
                      " bytes that do not belong to it");
      }
      ARETE_CHECK(inflateReset2(&stream, kGzipOnly) == Z_OK,
                  OutOfMemoryError("", prefix + "no memory to unpack it"));
      continue;
    }
    if (status == Z_MEM_ERROR) throw OutOfMemoryError("", prefix + "no memory to unpack it");
    if (status == Z_BUF_ERROR) throw damaged("ends too early");
    if (status != Z_OK)
      throw damaged(std::string("is damaged (") + (stream.msg ? stream.msg : "unknown format") +
                    ")");
  }
  out.resize(produced);
  return out;
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<uint8_t> gunzip(std::span<const std::byte> bytes, uint64_t max_bytes,
                            std::string_view file_name) {
  return unpack(bytes, max_bytes, false, file_name);
}

std::vector<uint8_t> gunzip_prefix(std::span<const std::byte> bytes, uint64_t count,
                                   std::string_view file_name) {
  return unpack(bytes, count, true, file_name);
}

std::vector<std::byte> gzip(std::string_view text) {
  z_stream stream{};
  ARETE_CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipOnly, 8,
                           Z_DEFAULT_STRATEGY) == Z_OK,
              OutOfMemoryError("", "no memory to pack gzip data"));
  struct End {
    z_stream* s;
    ~End() { deflateEnd(s); }
  } const end{&stream};
  std::vector<std::byte> out;
  std::vector<std::byte> piece(1 << 16);
  size_t consumed = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    const size_t given = std::min<size_t>(text.size() - consumed, 1u << 30);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(text.data() + consumed));
    stream.avail_in = static_cast<uInt>(given);
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    status = deflate(&stream, consumed + given == text.size() ? Z_FINISH : Z_NO_FLUSH);
    ARETE_ASSERT(status != Z_STREAM_ERROR);
    consumed += given - stream.avail_in;
    out.insert(out.end(), piece.begin(),
               piece.begin() + std::ptrdiff_t(piece.size() - stream.avail_out));
  }
  return out;
}

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  if (path.ends_with(".gz"))
    file.write(gzip(text));
  else
    file.write(text);
  file.commit();
}

}  // namespace arete::io
