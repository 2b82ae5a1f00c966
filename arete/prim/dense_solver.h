// Factorizations by a device's own library.
#pragma once

#include <cstdint>

#include "arete/core/dtype.h"

namespace arete::prim {

/// What a backend with a library of dense linear algebra is besides. `a` is `count` column-major
/// f32 or f64 matrices without gaps on the device, `info` one LAPACK code for each; everything is
/// on the current stream, and the functions are LAPACK's of that name.
class DenseSolver {
 public:
  virtual void potrf(DType dtype, bool upper, int64_t n, int64_t count, void* a, int32_t* info) = 0;
  virtual void getrf(DType dtype, int64_t m, int64_t n, int64_t count, void* a, int32_t* pivots,
                     int32_t* info) = 0;
  virtual void syevd(DType dtype, bool vectors, bool upper, int64_t n, int64_t count, void* a,
                     void* w, int32_t* info) = 0;

 protected:
  ~DenseSolver() = default;
};

}  // namespace arete::prim
