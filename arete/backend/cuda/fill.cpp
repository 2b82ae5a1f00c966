// Constant tensors.
#include <complex>
#include <cstring>

#include "arete/backend/cuda/pointwise_launch.h"
#include "arete/backend/cuda/raw_elements.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"
#include "arete/core/complex.h"

namespace arete::cuda {

using prim::LoopNest;
using prim::View;

namespace {

// The bits of the value as the output stores it.
RawPattern pattern_of(const prim::FillArgs& args) {
  RawPattern pattern;
  visit_dtype(args.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto floating = [&] {
      return args.value_is_integer ? double(args.value.i) : args.value.f;
    };
    T value;
    if constexpr (is_complex(dtype_of<T>)) {
      using R = typename T::value_type;
      value = T(R(floating()), R(args.imag));
    } else if constexpr (std::is_same_v<T, bool>) {
      value = args.value_is_integer ? args.value.i != 0 : args.value.f != 0;
    } else if constexpr (std::is_integral_v<T>) {
      value = args.value_is_integer ? T(args.value.i) : T(int64_t(args.value.f));
    } else if constexpr (std::is_same_v<T, double>) {
      value = floating();
    } else {
      value = T(float(floating()));
    }
    for (size_t at = 0; at < sizeof pattern.bytes; at += sizeof(T))
      std::memcpy(pattern.bytes + at, &value, sizeof(T));
  });
  return pattern;
}

}  // namespace

void CudaBackend::fill(const prim::FillArgs& args) {
  const View& out = args.out;
  if (out.numel() == 0) return;
  const CUstream stream = enter(args);
  const RawPattern pattern = pattern_of(args);
  LoopNest nest = LoopNest::plan(out.sizes, {&out, 1});
  // In a graph what comes behind the driver's waits four microseconds.
  if (nest.is_linear() && pattern.is_one_byte() && !is_capturing()) {
    ARETE_CU(cuMemsetD8Async, CUdeviceptr(reinterpret_cast<uintptr_t>(out.data)),
             static_cast<unsigned char>(pattern.bytes[0]),
             size_t(nest.sizes[0]) * size_of(out.dtype), stream);
    return;
  }
  const int bytes = widen_elements(nest);
  if (bytes < int(size_of(out.dtype))) {
    // Complex numbers that lie at multiples of their parts only: each part by itself.
    ARETE_ASSERT(is_complex(out.dtype));
    Shape strides;
    for (const int64_t s : out.strides) strides.push_back(2 * s);
    View part = out;
    part.dtype = out.dtype == kComplex64 ? kFloat32 : kFloat64;
    part.strides = strides;
    const double re = args.value_is_integer ? double(args.value.i) : args.value.f;
    fill({part, expr::Literal{.f = re}});
    part.data += size_of(part.dtype);
    return fill({part, expr::Literal{.f = args.imag}});
  }
  launch_nest(*this, fill_kernels(bytes), nest, pattern.params(bytes), stream);
}

}  // namespace arete::cuda
