#include "arete/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_set>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/text.h"
#include "arete/io/checked.h"

namespace arete::io {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint32_t kCentralSignature = 0x02014b50;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint64_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22;
constexpr uint64_t kEnd64Size = 56, kLocator64Size = 20;
constexpr uint32_t kMax32 = 0xFFFFFFFF;
constexpr uint16_t kMax16 = 0xFFFF;
constexpr uint16_t kUtf8Flag = 0x0800;
// 1 January 1980, the first day that the format can express.
constexpr uint16_t kNoDate = 0x0021;
// Deflate cannot shrink data further than about 1032 to 1, so a larger claim is a lie.
constexpr uint64_t kDeflateRatio = 1032;
constexpr uint64_t kDeflateSlack = 64;

// What is wrong with the name of an entry, or an empty text.
std::string name_fault(std::string_view name) {
  if (name.empty()) return "it has no name";
  if (name.size() > 4096) return "its name is too long";
  if (name.find('\0') != std::string_view::npos) return "its name holds a zero byte";
  if (name.find('\\') != std::string_view::npos) return "its name holds a backslash";
  if (name[0] == '/') return "its name is an absolute path";
  if (name.size() >= 2 && name[1] == ':') return "its name is an absolute path";
  for (size_t start = 0; start <= name.size();) {
    size_t end = name.find('/', start);
    if (end == std::string_view::npos) end = name.size();
    if (name.substr(start, end - start) == "..") return "its name leads out of the archive ('..')";
    start = end + 1;
  }
  return "";
}

uint32_t crc_of(std::span<const std::byte> bytes, uint32_t crc = 0) {
  if (bytes.empty()) return crc;  // zlib would start anew on a null pointer
  return static_cast<uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Reads numbers of the archive; every offset is checked against the file first.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string prefix)
      : bytes_(bytes), prefix_(std::move(prefix)) {}

  template <typename T>
  T at(uint64_t offset) const {
    need(offset, sizeof(T));
    return load_le<T>(bytes_.data() + offset);
  }

  std::span<const std::byte> slice(uint64_t offset, uint64_t size) const {
    need(offset, size);
    return bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(size));
  }

  uint64_t size() const { return bytes_.size(); }

  [[noreturn]] void fail(const std::string& what) const {
    throw IoError("", prefix_ + what).hint("the archive is damaged, truncated or hostile");
  }

 private:
  void need(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      fail("the archive refers to bytes beyond its end");
  }

  std::span<const std::byte> bytes_;
  std::string prefix_;
};

struct Directory {
  uint64_t entries = 0, offset = 0, size = 0;
};

Directory find_directory(const Cursor& file) {
  if (file.size() < kEndSize) file.fail("too short for a zip archive");
  // The end record is followed by a comment of at most 65535 bytes, which has to fill the file.
  const uint64_t last = file.size() - kEndSize;
  const uint64_t first = last > kMax16 ? last - kMax16 : 0;
  uint64_t end = file.size();
  for (uint64_t at = last + 1; at-- > first;) {
    if (file.at<uint32_t>(at) == kEndSignature &&
        at + kEndSize + file.at<uint16_t>(at + 20) == file.size()) {
      end = at;
      break;
    }
  }
  if (end == file.size()) file.fail("not a zip archive (it has no end record)");
  const auto disk = file.at<uint16_t>(end + 4), directory_disk = file.at<uint16_t>(end + 6);
  const auto here = file.at<uint16_t>(end + 8), total = file.at<uint16_t>(end + 10);
  Directory d{total, file.at<uint32_t>(end + 16), file.at<uint32_t>(end + 12)};
  uint64_t limit = end;
  if (end >= kLocator64Size && file.at<uint32_t>(end - kLocator64Size) == kLocator64Signature) {
    const uint64_t locator = end - kLocator64Size;
    const auto end64 = file.at<uint64_t>(locator + 8);
    if (end64 > locator || locator - end64 < kEnd64Size ||
        file.at<uint32_t>(end64) != kEnd64Signature)
      file.fail("the ZIP64 end record is not where the archive says");
    const Directory wide{file.at<uint64_t>(end64 + 32), file.at<uint64_t>(end64 + 48),
                         file.at<uint64_t>(end64 + 40)};
    // Two directories that differ are a way to show different files to different programs.
    if ((total != kMax16 && d.entries != wide.entries) ||
        (d.offset != kMax32 && d.offset != wide.offset) ||
        (d.size != kMax32 && d.size != wide.size))
      file.fail("its two end records contradict each other");
    if (file.at<uint32_t>(end64 + 16) != 0 || file.at<uint32_t>(end64 + 20) != 0 ||
        file.at<uint64_t>(end64 + 24) != wide.entries)
      file.fail("archives in several parts are not supported");
    d = wide;
    limit = end64;
  } else if (disk != 0 || directory_disk != 0 || here != total) {
    file.fail("archives in several parts are not supported");
  }
  uint64_t directory_end = 0;
  if (!checked_add(d.offset, d.size, &directory_end) || directory_end != limit)
    file.fail("its directory is not where the end record says");
  if (d.entries > d.size / kCentralSize)
    file.fail("it claims " + std::to_string(d.entries) + " entries, more than its directory holds");
  return d;
}

// Finds the ZIP64 extra field; an empty span when there is none.
std::span<const std::byte> zip64_extra(const Cursor& file, uint64_t offset, uint64_t size) {
  uint64_t at = offset;
  while (at + 4 <= offset + size) {
    const auto id = file.at<uint16_t>(at), length = file.at<uint16_t>(at + 2);
    if (length > offset + size - at - 4) break;
    if (id == 1) return file.slice(at + 4, length);
    at += 4 + uint64_t{length};
  }
  return {};
}

// Replaces each value that is all ones by the next one of the ZIP64 field.
void widen(const Cursor& file, std::span<const std::byte> extra,
           std::initializer_list<uint64_t*> values) {
  for (uint64_t* value : values) {
    if (*value != kMax32) continue;
    if (extra.size() < 8) file.fail("an entry lacks its ZIP64 sizes");
    *value = load_le<uint64_t>(extra.data());
    extra = extra.subspan(8);
  }
}

}  // namespace

ZipReader::ZipReader(std::span<const std::byte> file_bytes, std::string_view file_name,
                     const ZipLimits& limits)
    : file_(file_bytes), file_name_(file_name) {
  const Cursor file(file_bytes, file_name_ + ": ");
  const Directory directory = find_directory(file);
  if (directory.entries > limits.max_entries)
    file.fail("it has " + std::to_string(directory.entries) + " entries; the limit is " +
              std::to_string(limits.max_entries));

  struct Range {
    uint64_t begin, end;
    size_t entry;
  };
  std::vector<Range> ranges;
  std::unordered_set<std::string> names;
  uint64_t at = directory.offset;
  uint64_t total = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (file.at<uint32_t>(at) != kCentralSignature)
      file.fail("entry " + std::to_string(i) + " of its directory is damaged");
    const auto flags = file.at<uint16_t>(at + 8), method = file.at<uint16_t>(at + 10);
    const auto name_size = file.at<uint16_t>(at + 28), extra_size = file.at<uint16_t>(at + 30);
    const auto comment_size = file.at<uint16_t>(at + 32);
    ZipEntry e;
    const auto name = file.slice(at + kCentralSize, name_size);
    e.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    const std::string label = "the entry " + quote_text(e.name) + ": ";
    const std::string fault = name_fault(e.name);
    if (!fault.empty()) file.fail(label + fault);
    if (!names.insert(e.name).second) file.fail(label + "its name appears twice");
    if (flags & 0x2041) file.fail(label + "it is encrypted, which is not supported");
    if (method != 0 && method != 8)
      file.fail(label + "it is compressed by method " + std::to_string(method) +
                "; only stored (0) and deflate (8) are supported");
    e.deflated = method == 8;
    e.crc = file.at<uint32_t>(at + 16);
    e.compressed_size = file.at<uint32_t>(at + 20);
    e.size = file.at<uint32_t>(at + 24);
    uint64_t local = file.at<uint32_t>(at + 42);
    widen(file, zip64_extra(file, at + kCentralSize + name_size, extra_size),
          {&e.size, &e.compressed_size, &local});
    at += kCentralSize + name_size + extra_size + comment_size;
    if (at > directory.offset + directory.size) file.fail("its directory is longer than it says");

    // The local header repeats much of this; a second opinion is a way to smuggle things in.
    if (file.at<uint32_t>(local) != kLocalSignature)
      file.fail(label + "its data is not where the directory says");
    const auto local_flags = file.at<uint16_t>(local + 6);
    const auto local_name_size = file.at<uint16_t>(local + 26);
    const auto local_extra_size = file.at<uint16_t>(local + 28);
    const auto local_name = file.slice(local + kLocalSize, local_name_size);
    if (file.at<uint16_t>(local + 8) != method || local_name.size() != name.size() ||
        std::memcmp(local_name.data(), name.data(), name.size()) != 0)
      file.fail(label + "its local header contradicts the directory");
    // Bit 3: the writer did not know the sizes yet and put them behind the data.
    if (!(local_flags & 8)) {
      uint64_t compressed = file.at<uint32_t>(local + 18), size = file.at<uint32_t>(local + 22);
      widen(file, zip64_extra(file, local + kLocalSize + local_name_size, local_extra_size),
            {&size, &compressed});
      if (size != e.size || compressed != e.compressed_size ||
          file.at<uint32_t>(local + 14) != e.crc)
        file.fail(label + "its local header contradicts the directory");
    }
    e.data_offset = local + kLocalSize + local_name_size + local_extra_size;
    file.slice(e.data_offset, e.compressed_size);
    if (!e.deflated && e.size != e.compressed_size)
      file.fail(label + "it is stored, but its two sizes differ");
    if (e.deflated && (e.size > kDeflateSlack) &&
        (e.size - kDeflateSlack) / kDeflateRatio > e.compressed_size)
      file.fail(label + "it claims to unpack " + std::to_string(e.compressed_size) + " bytes to " +
                std::to_string(e.size) + ", which deflate cannot");
    if (!checked_add(total, e.size, &total) || total > limits.max_total_size)
      file.fail("its entries unpack to more than " + std::to_string(limits.max_total_size) +
                " bytes, the limit");
    ranges.push_back({local, e.data_offset + e.compressed_size, entries_.size()});
    entries_.push_back(std::move(e));
  }
  if (at != directory.offset + directory.size) file.fail("its directory is shorter than it says");
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.entry < b.entry;
  });
  for (size_t i = 0; i < ranges.size(); ++i) {
    const uint64_t next = i + 1 < ranges.size() ? ranges[i + 1].begin : directory.offset;
    if (ranges[i].end > next)
      file.fail("the entry " + quote_text(entries_[ranges[i].entry].name) +
                ": it overlaps another part of the archive");
  }
}

const ZipEntry* ZipReader::find(std::string_view name) const {
  for (const ZipEntry& e : entries_) {
    if (e.name == name) return &e;
  }
  return nullptr;
}

std::span<const std::byte> ZipReader::packed(const ZipEntry& entry) const {
  return Cursor(file_, file_name_ + ": ").slice(entry.data_offset, entry.compressed_size);
}

std::span<const std::byte> ZipReader::view(const ZipEntry& entry) const {
  const std::string label = file_name_ + ": the entry " + quote_text(entry.name) + ": ";
  ARETE_CHECK(!entry.deflated, IoError("", label + "it is compressed and cannot be mapped"));
  const auto bytes = packed(entry);
  ARETE_CHECK(crc_of(bytes) == entry.crc,
              IoError("", label + "its data is damaged (the CRC differs)")
                  .hint("get or write the file again"));
  return bytes;
}

std::vector<std::byte> ZipReader::read(const ZipEntry& entry) const {
  if (!entry.deflated) {
    const auto bytes = view(entry);
    return {bytes.begin(), bytes.end()};
  }
  const std::string label = file_name_ + ": the entry " + quote_text(entry.name) + ": ";
  auto damaged = [&](const std::string& what) {
    return IoError("", label + what).hint("get or write the file again");
  };
  const auto input = packed(entry);
  z_stream stream{};
  ARETE_CHECK(inflateInit2(&stream, -MAX_WBITS) == Z_OK,
              OutOfMemoryError("", label + "no memory to unpack it"));
  struct End {
    z_stream* s;
    ~End() { inflateEnd(s); }
  } const end{&stream};

  // Memory grows with what really comes out, so that a false size costs nothing.
  std::vector<std::byte> out;
  uint64_t consumed = 0, produced = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (produced == out.size() && produced < entry.size)
      out.resize(std::min<uint64_t>(entry.size, std::max<uint64_t>(produced * 2, 1 << 20)));
    // One byte more than promised shows that there is more.
    std::byte surplus;
    const bool full = produced == entry.size;
    const uint64_t room = full ? 1 : std::min<uint64_t>(out.size() - produced, 1u << 30);
    const uint64_t piece = std::min<uint64_t>(input.size() - consumed, 1u << 30);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(input.data() + consumed));
    stream.avail_in = static_cast<uInt>(piece);
    stream.next_out = reinterpret_cast<Bytef*>(full ? &surplus : out.data() + produced);
    stream.avail_out = static_cast<uInt>(room);
    status = inflate(&stream, Z_NO_FLUSH);
    consumed += piece - stream.avail_in;
    const uint64_t got = room - stream.avail_out;
    if (full && got > 0) throw damaged("it unpacks to more bytes than it says");
    produced += full ? 0 : got;
    if (status == Z_MEM_ERROR) throw OutOfMemoryError("", label + "no memory to unpack it");
    if (status != Z_OK && status != Z_STREAM_END)
      throw damaged(std::string("its compressed data is damaged (") +
                    (stream.msg ? stream.msg : "it ends too early") + ")");
  }
  if (produced != entry.size) throw damaged("it unpacks to fewer bytes than it says");
  if (consumed != input.size()) throw damaged("there are bytes after its compressed data");
  if (crc_of(out) != entry.crc) throw damaged("its data is damaged (the CRC differs)");
  return out;
}

namespace {

class Record {
 public:
  template <typename T>
  Record& put(T value) {
    char bytes[sizeof(T)];
    store_le<T>(value, bytes);
    text_.append(bytes, sizeof(T));
    return *this;
  }
  Record& put_text(std::string_view text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

uint32_t narrow(uint64_t value) { return value >= kMax32 ? kMax32 : static_cast<uint32_t>(value); }

}  // namespace

void ZipWriter::add(std::string_view name, std::span<const std::byte> bytes) {
  add(name, std::span<const std::span<const std::byte>>(&bytes, 1));
}

void ZipWriter::add(std::string_view name, std::span<const std::span<const std::byte>> parts) {
  ARETE_ASSERT(!finished_);
  const std::string fault = name_fault(name);
  ARETE_CHECK(fault.empty(),
              ValueError("", "cannot write the archive entry " + quote_text(name) + ": " + fault));
  ARETE_CHECK(names_.emplace(name).second,
              ValueError("", "cannot write the archive entry " + quote_text(name) + " twice"));
  ZipEntry e;
  e.name = name;
  e.data_offset = file_.size();
  for (const auto part : parts) {
    e.size += part.size();
    e.crc = crc_of(part, e.crc);
  }
  e.compressed_size = e.size;
  const bool wide = e.size >= kMax32;
  Record header;
  header.put(kLocalSignature).put<uint16_t>(wide ? 45 : 20).put(kUtf8Flag).put<uint16_t>(0);
  header.put<uint16_t>(0).put(kNoDate).put(e.crc).put(narrow(e.size)).put(narrow(e.size));
  header.put(static_cast<uint16_t>(name.size())).put<uint16_t>(wide ? 20 : 0).put_text(name);
  if (wide) header.put<uint16_t>(1).put<uint16_t>(16).put(e.size).put(e.size);
  file_.write(header.text());
  for (const auto part : parts) file_.write(part);
  entries_.push_back(std::move(e));
}

void ZipWriter::finish() {
  ARETE_ASSERT(!finished_);
  finished_ = true;
  const uint64_t start = file_.size();
  for (const ZipEntry& e : entries_) {
    Record extra;
    if (e.size >= kMax32) extra.put(e.size).put(e.size);
    if (e.data_offset >= kMax32) extra.put(e.data_offset);
    const auto extra_size = static_cast<uint16_t>(extra.text().size());
    Record record;
    // Made by: Unix (3), so that the permissions below are understood.
    record.put(kCentralSignature).put<uint16_t>(3 << 8 | 45).put<uint16_t>(extra_size ? 45 : 20);
    record.put(kUtf8Flag).put<uint16_t>(0).put<uint16_t>(0).put(kNoDate).put(e.crc);
    record.put(narrow(e.size)).put(narrow(e.size)).put(static_cast<uint16_t>(e.name.size()));
    record.put<uint16_t>(extra_size ? extra_size + 4 : 0).put<uint16_t>(0).put<uint16_t>(0);
    record.put<uint16_t>(0).put<uint32_t>(0100644u << 16).put(narrow(e.data_offset));
    record.put_text(e.name);
    if (extra_size) record.put<uint16_t>(1).put(extra_size).put_text(extra.text());
    file_.write(record.text());
  }
  const uint64_t size = file_.size() - start;
  const uint64_t count = entries_.size();
  Record end;
  if (count >= kMax16 || start >= kMax32 || size >= kMax32) {
    end.put(kEnd64Signature).put<uint64_t>(44).put<uint16_t>(3 << 8 | 45).put<uint16_t>(45);
    end.put<uint32_t>(0).put<uint32_t>(0).put(count).put(count).put(size).put(start);
    end.put(kLocator64Signature).put<uint32_t>(0).put(start + size).put<uint32_t>(1);
  }
  const auto count16 = static_cast<uint16_t>(std::min<uint64_t>(count, kMax16));
  end.put(kEndSignature).put<uint16_t>(0).put<uint16_t>(0).put(count16).put(count16);
  end.put(narrow(size)).put(narrow(start)).put<uint16_t>(0);
  file_.write(end.text());
}

}  // namespace arete::io
