// The header of NumPy's .npy files, versions 1 to 3. Nothing is ever executed or unpickled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace arete::io {

struct NpyHeader {
  std::string dtype;           ///< a dtype code, see dtype_code_size()
  bool fortran_order = false;  ///< the first dimension varies fastest in the data
  std::vector<int64_t> shape;
  uint64_t data_offset = 0;  ///< where the elements start in the file
  uint64_t data_bytes = 0;   ///< their size; the file holds exactly these
};

/// Parses and checks the header of a whole .npy file that may be hostile. Afterwards the data is
/// known to be in the file, no more and no less. IoError for anything else, also for valid files
/// with big-endian numbers, Python objects, strings, dates or records; `file_name` is used in these
/// texts only.
NpyHeader parse_npy_header(std::span<const std::byte> file_bytes,
                           std::string_view file_name = "npy data");

/// The first bytes of an .npy file (a multiple of 64, as NumPy writes them) for a little-endian
/// array. ValueError for dtypes that NumPy does not have (BF16, F8_*).
std::string write_npy_header(std::string_view dtype, std::span<const int64_t> shape,
                             bool fortran_order = false);

}  // namespace arete::io
