// The IDX format of the MNIST family of data sets, plain or packed with gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arete::io {

/// The element types of IDX files.
enum : uint8_t {
  kIdxUint8 = 0x08,
  kIdxInt8 = 0x09,
  kIdxInt16 = 0x0B,
  kIdxInt32 = 0x0C,
  kIdxFloat32 = 0x0D,
  kIdxFloat64 = 0x0E,
};

struct IdxArray {
  uint8_t type = 0;  ///< one of the kIdx constants
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;  ///< the elements, row-major, in this machine's byte order
};

/// What the caller knows about the file, to notice one that has the wrong name.
struct IdxExpectation {
  uint8_t type = 0;            ///< the element type, 0 for any
  std::vector<int64_t> shape;  ///< one number per dimension, -1 for any size; empty for any shape
  std::string what;            ///< for the message, such as "images of 28 x 28"
};

/// An IDX file may unpack to this many bytes at most.
constexpr uint64_t kMaxIdxBytes = uint64_t{1} << 32;

/// Parses IDX data (gzip is recognised by its first bytes, not by a file name) that may be hostile.
/// IoError when it is damaged, truncated, followed by other bytes, too large, or not what was
/// expected; `file_name` is used in these texts only.
IdxArray parse_idx(std::span<const std::byte> bytes, const IdxExpectation& expectation = {},
                   std::string_view file_name = "IDX data", uint64_t max_bytes = kMaxIdxBytes);

/// Reads the file at `path` and parses it.
IdxArray read_idx(const std::string& path, const IdxExpectation& expectation = {},
                  uint64_t max_bytes = kMaxIdxBytes);

}  // namespace arete::io
