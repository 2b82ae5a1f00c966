// Kernels that transpose, and that copy many pieces.
#pragma once

#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"

namespace arete::cuda {

/// Transposes elements of 1, 2, 4, 8 or 16 bytes by vectors of `vector` of them (1, except for 16
/// bytes: element by element); see Note [Transposes in registers] in device/copy.cuh. Blocks have
/// 256 threads. The argument is a TransposeArgs.
KernelSource transpose_source(int bytes, int vector);
/// Rows and columns of a block's tile.
int transpose_tile(int bytes, int vector);
/// The longest vector worth using: 16 bytes, for single bytes 8.
constexpr int transpose_vector(int bytes) { return bytes == 1 ? 8 : 16 / bytes; }
/// Copies up to kMostPieces pieces at once, in blocks of 256 threads. The argument is a CopyPieces.
/// `rows`: some have row_bytes.
KernelSource pieces_source(bool rows);
inline constexpr size_t kMostPieces = 36;

}  // namespace arete::cuda
