#include "arete/backend/cpu/kernels/scalar_kernels.h"

#include "arete/expr/scalar_math.h"

namespace arete::cpu::kernels {
namespace {

namespace scalar = expr::scalar;

template <auto F, class T, int V>
void binary(void* out, const void* a, const void* b, const void*, int64_t n) {
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  for (int64_t i = 0; i < n; ++i) o[i] = F(x[V == sv ? 0 : i], y[V == vs ? 0 : i]);
}
template <auto F, class T>
void put2(KernelTable& t, KOp op, KType type) {
  t.binary[op][type][vv] = binary<F, T, vv>;
  t.binary[op][type][vs] = binary<F, T, vs>;
  t.binary[op][type][sv] = binary<F, T, sv>;
}

// Where there are no fused multiply-adds for vectors (Note [Remainders by vectors]).
template <class T>
void put_float(KernelTable& t, KType type) {
  put2<scalar::floor_div<T>, T>(t, op_floor_div, type);
  put2<scalar::fmod<T>, T>(t, op_fmod, type);
  put2<scalar::remainder<T>, T>(t, op_remainder, type);
}
template <class T>
void put_int(KernelTable& t, KType type) {
  put2<scalar::pow_int<T>, T>(t, op_pow, type);
  put2<scalar::gcd<T>, T>(t, op_gcd, type);
}

}  // namespace

void fill_scalar(KernelTable& t) {
  put_float<float>(t, t_f32);
  put_float<double>(t, t_f64);
  put_int<int32_t>(t, t_i32);
  put_int<int64_t>(t, t_i64);
  put_int<uint64_t>(t, t_u64);
}

}  // namespace arete::cpu::kernels
