// OpenBLAS and LAPACK, made ready for this machine.
#pragma once

#include <string>

namespace arete::cpu {

/// Call before the first use of CBLAS or LAPACKE in a function (cheap after the first time).
/// OpenBLAS picks its code by a list of CPU models and falls back to SSE3 on ones newer than
/// itself, several times slower; this tells it what the CPU can do, unless OPENBLAS_CORETYPE is
/// set.
void prepare_blas();

/// "OpenBLAS 0.3.21 (SkylakeX)": the library and the kernels it chose.
std::string blas_version();

}  // namespace arete::cpu
