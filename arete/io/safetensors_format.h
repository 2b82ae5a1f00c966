// The container format of .safetensors files: an 8-byte length, a JSON header, then raw data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arete::io {

/// One tensor of a file. Its bytes are [begin, end) counted from the header's data_offset. They
/// may be misaligned for the dtype in files of other writers: copy them, do not cast the pointer.
struct TensorEntry {
  std::string name;
  std::string dtype;  ///< a dtype code, see dtype_code_size()
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;             ///< in the order of their bytes
  std::map<std::string, std::string> metadata;  ///< the "__metadata__" entry
  uint64_t data_offset = 0;                     ///< where the data starts in the file
};

/// A header may have this many bytes at most.
constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

/// Parses and checks the header of a whole file that may be hostile. Afterwards every entry has a
/// known dtype, a shape whose byte size equals its range, and the ranges cover the data of the
/// file exactly once. IoError names the tensor and what is wrong with it; `file_name` is used in
/// these texts only.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file_bytes,
                                           std::string_view file_name = "safetensors data");

/// The first bytes of a file (length, JSON, padding to a multiple of 8) for `entries`, of which
/// name, dtype and shape are read. Sorts them (largest element size first, then by name, so that
/// all data is aligned and the same tensors always give the same file) and sets begin and end:
/// the caller then writes the data in this order. ValueError for duplicate names, unknown dtypes
/// and shapes that are too large.
std::string write_safetensors_header(std::vector<TensorEntry>& entries,
                                     const std::map<std::string, std::string>& metadata = {});

}  // namespace arete::io
