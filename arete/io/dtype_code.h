// The short dtype names that files use (those of safetensors), shared by all formats so that the
// tensor layer has one table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace arete::io {

/// Bytes per element of a dtype code (BOOL, U8, I8, F8_E4M3, F8_E5M2, I16, U16, F16, BF16, I32,
/// U32, F32, I64, U64, F64, C64, C128); 0 for a code that is not known.
uint64_t dtype_code_size(std::string_view code);

/// The number of bytes of a dense array, or false in *ok when a dimension is negative or the
/// product does not fit in 63 bits. `item_size` is in bytes.
uint64_t dense_bytes(std::span<const int64_t> shape, uint64_t item_size, bool* ok);

/// The largest number of dimensions that a file may have.
constexpr uint64_t kMaxFileDims = 64;

}  // namespace arete::io
