// Arithmetic progressions.
#include <complex>
#include <cstring>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {

// Each element is start + i * step in f64, or in integers that wrap, whatever is done at a time.
template <class T>
T term(const prim::IotaArgs& args, int64_t i) {
  if constexpr (is_integral_or_bool(dtype_of<T>)) {
    return T(int64_t(uint64_t(args.istart) + uint64_t(i) * uint64_t(args.istep)));
  } else {
    using Wide = std::conditional_t<(sizeof(T) >= 8) && !std::is_same_v<T, std::complex<float>>,
                                    double, float>;
    return T(Wide(args.start + double(i) * args.step));
  }
}

constexpr int kLanes = 8;
template <class T>
using Lanes [[gnu::vector_size(kLanes * sizeof(T))]] = T;

/// Elements [begin, end) of whole vectors; returns where it stopped.
template <class T>
int64_t by_vectors(T* out, const prim::IotaArgs& args, int64_t begin, int64_t end) {
  // Whole numbers up to 2^53 are exact in f64, so that they may be counted there.
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  Wide start, step;
  if constexpr (std::is_integral_v<T>)
    start = uint64_t(args.istart), step = uint64_t(args.istep);
  else
    start = args.start, step = args.step;
  Lanes<Wide> at;
  for (int k = 0; k < kLanes; ++k)
    at[k] = std::is_integral_v<T> ? start + Wide(begin + k) * step : Wide(begin + k);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    Lanes<T> v;
    if constexpr (std::is_integral_v<T>) {
      v = __builtin_convertvector(at, Lanes<T>);
      at += kLanes * step;
    } else {
      v = __builtin_convertvector(start + at * step, Lanes<T>);
      at += double(kLanes);
    }
    std::memcpy(out + i, &v, sizeof(v));
  }
  return i;
}

}  // namespace

void CpuBackend::iota(const prim::IotaArgs& args) {
  const prim::View& out = args.out;
  ARETE_ASSERT(out.rank() == 1);
  visit_dtype(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const base = out.as<T>();
    const int64_t stride = out.strides[0];
    parallel_for(0, out.sizes[0], 65536, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>)
        if (stride == 1) begin = by_vectors(base, args, begin, end);
      for (int64_t i = begin; i < end; ++i) base[i * stride] = term<T>(args, i);
    });
  });
}

}  // namespace arete::cpu
