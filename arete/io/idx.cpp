#include "arete/io/idx.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "arete/base/error.h"
#include "arete/base/file.h"
#include "arete/base/gzip.h"
#include "arete/base/text.h"
#include "arete/io/dtype_code.h"

namespace arete::io {
namespace {

// NumPy had at most 32 dimensions for long, and no IDX file has more than 4.
constexpr size_t kMaxIdxDims = 32;

uint64_t element_size(uint8_t type) {
  switch (type) {
    case kIdxUint8:
    case kIdxInt8:
      return 1;
    case kIdxInt16:
      return 2;
    case kIdxInt32:
    case kIdxFloat32:
      return 4;
    case kIdxFloat64:
      return 8;
    default:
      return 0;
  }
}

std::string pattern_text(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i) out += ", ";
    out += shape[i] < 0 ? "any" : std::to_string(shape[i]);
  }
  return out + "]";
}

std::string hex_byte(uint8_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  return {'0', 'x', kDigits[value >> 4], kDigits[value & 15]};
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, const IdxExpectation& expectation,
                   std::string_view file_name, uint64_t max_bytes) {
  const std::string prefix = std::string(file_name) + ": ";
  const bool packed = is_gzip(bytes);
  constexpr size_t kMaxHead = 4 + 4 * kMaxIdxDims;
  std::vector<uint8_t> head;
  if (packed) {
    head = gunzip_prefix(bytes, kMaxHead, file_name);
  } else {
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    head.assign(data, data + std::min<size_t>(bytes.size(), kMaxHead));
  }
  ARETE_CHECK(head.size() >= 4, IoError("", prefix + "too short for an IDX file")
                                    .expected("at least 4 bytes")
                                    .got(std::to_string(head.size()) + " bytes")
                                    .hint("the file is truncated: get it again"));
  ARETE_CHECK(head[0] == 0 && head[1] == 0 && element_size(head[2]) != 0,
              IoError("", prefix + "not an IDX file")
                  .expected("0x00 0x00, an element type and the number of dimensions")
                  .got(hex_byte(head[0]) + " " + hex_byte(head[1]) + " " + hex_byte(head[2]) + " " +
                       hex_byte(head[3]))
                  .hint("IDX files have names such as train-images-idx3-ubyte.gz"));
  const uint8_t type = head[2];
  const size_t dims = head[3];
  ARETE_CHECK(dims >= 1 && dims <= kMaxIdxDims,
              IoError("", prefix + "its number of dimensions is " + std::to_string(dims))
                  .expected("1 to " + std::to_string(kMaxIdxDims)));
  const size_t header_size = 4 + 4 * dims;
  ARETE_CHECK(head.size() >= header_size, IoError("", prefix + "it is truncated within its header")
                                              .hint("the download was interrupted: get it again"));
  IdxArray array;
  array.type = type;
  for (size_t i = 0; i < dims; ++i) {
    const uint8_t* p = head.data() + 4 + 4 * i;
    array.shape.push_back(int64_t{p[0]} << 24 | int64_t{p[1]} << 16 | int64_t{p[2]} << 8 | p[3]);
  }

  auto mislabelled = [&](const std::string& expected, const std::string& got) {
    return IoError("", prefix + "this is not the expected IDX file" +
                           (expectation.what.empty() ? "" : " (" + expectation.what + ")"))
        .expected(expected)
        .got(got)
        .hint("check whether images and labels, or two data sets, were swapped");
  };
  ARETE_CHECK(expectation.type == 0 || expectation.type == type,
              mislabelled("element type " + hex_byte(expectation.type), hex_byte(type)));
  if (!expectation.shape.empty()) {
    bool fits = expectation.shape.size() == dims;
    for (size_t i = 0; fits && i < dims; ++i)
      fits = expectation.shape[i] < 0 || expectation.shape[i] == array.shape[i];
    ARETE_CHECK(fits, mislabelled("shape " + pattern_text(expectation.shape),
                                  "shape " + shape_text(array.shape)));
  }

  const uint64_t item = element_size(type);
  bool ok = false;
  const uint64_t data_bytes = dense_bytes(array.shape, item, &ok);
  ARETE_CHECK(ok && data_bytes <= max_bytes,
              IoError("", prefix + "it is too large: shape " + shape_text(array.shape))
                  .expected("at most " + std::to_string(max_bytes) + " bytes of data"));
  const uint64_t whole = header_size + data_bytes;
  auto check_size = [&](uint64_t size) {
    ARETE_CHECK(size >= whole,
                IoError("", prefix + "it is truncated")
                    .expected(std::to_string(whole) + " bytes for shape " + shape_text(array.shape))
                    .got(std::to_string(size) + " bytes")
                    .hint("the download was interrupted: get it again"));
    ARETE_CHECK(size == whole,
                IoError("", prefix + "there are bytes after the array")
                    .expected(std::to_string(whole) + " bytes for shape " + shape_text(array.shape))
                    .got(std::to_string(size) + " bytes or more")
                    .hint("the file is damaged or not what it is called"));
  };
  if (packed) {
    array.bytes = gunzip(bytes, whole, file_name);
    check_size(array.bytes.size());
    array.bytes.erase(array.bytes.begin(), array.bytes.begin() + static_cast<long>(header_size));
  } else {
    check_size(bytes.size());
    const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
    array.bytes.assign(data + header_size, data + bytes.size());
  }
  if (item > 1 && std::endian::native == std::endian::little) {
    for (size_t i = 0; i < array.bytes.size(); i += item)
      std::reverse(array.bytes.begin() + static_cast<long>(i),
                   array.bytes.begin() + static_cast<long>(i + item));
  }
  return array;
}

IdxArray read_idx(const std::string& path, const IdxExpectation& expectation, uint64_t max_bytes) {
  // A packed file can be a little larger than its content, never by much. The file is read, not
  // mapped: a mapping ends the process if somebody truncates the file meanwhile.
  const auto bytes = read_file(path, max_bytes + max_bytes / 1000 + 4096);
  return parse_idx(bytes, expectation, path, max_bytes);
}

}  // namespace arete::io
