#include "arete/backend/cpu/kernels/scalar_kernels.h"

#include <type_traits>

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

// Greatest common divisors by Euclid's way, a few pairs at once until all are done: their divisions
// do not wait for each other, and fewer ends of loops are guessed wrong. W: wide enough for all.
constexpr int kPairs = 4;
template <class W, class U>
void gcd_of(U (&xs)[kPairs], const U (&ys)[kPairs]) {
  W x[kPairs], y[kPairs], left;
  for (int k = 0; k < kPairs; ++k) x[k] = W(xs[k]), y[k] = W(ys[k]);
  do {
    left = 0;
    for (int k = 0; k < kPairs; ++k) {
      const W rest = x[k] % (y[k] | W(y[k] == 0));
      x[k] = y[k] ? y[k] : x[k];
      y[k] = rest;
      left |= rest;
    }
  } while (left);
  for (int k = 0; k < kPairs; ++k) xs[k] = x[k];
}
template <class T, int V>
void gcd(void* out, const void* a, const void* b, const void*, int64_t n) {
  using U = std::make_unsigned_t<T>;
  const auto size_of = [](T v) { return v < 0 ? U(0) - U(v) : U(v); };
  auto* o = static_cast<T*>(out);
  auto* x = static_cast<const T*>(a);
  auto* y = static_cast<const T*>(b);
  for (int64_t i = 0; i < n; i += kPairs) {
    const int here = int(n - i < kPairs ? n - i : kPairs);
    U p[kPairs] = {}, q[kPairs] = {}, all = 0;
    for (int k = 0; k < here; ++k) {
      p[k] = size_of(x[V == sv ? 0 : i + k]);
      q[k] = size_of(y[V == vs ? 0 : i + k]);
      all |= p[k] | q[k];
    }
    if (all == uint32_t(all))  // quotients of short numbers are fast
      gcd_of<uint32_t>(p, q);
    else
      gcd_of<U>(p, q);
    for (int k = 0; k < here; ++k) o[i + k] = T(p[k]);
  }
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
  t.binary[op_gcd][type][vv] = gcd<T, vv>;
  t.binary[op_gcd][type][vs] = gcd<T, vs>;
  t.binary[op_gcd][type][sv] = gcd<T, sv>;
}

}  // namespace

void fill_scalar(KernelTable& t) {
  put_float<float>(t, t_f32);
  put_float<double>(t, t_f64);
  put_int<int32_t>(t, t_i32);
  put_int<int64_t>(t, t_i64);
}

}  // namespace arete::cpu::kernels
