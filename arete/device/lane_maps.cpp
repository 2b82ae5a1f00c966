// Functions of numbers over the lanes of a batch: see Note [Lanes].
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "arete/device/lane_tree_internal.h"
#include "arete/expr/scalar_math.h"

namespace arete::lanes {
namespace {

// A conversion with a value for every operand: what C leaves undefined is what GPUs do.
template <class To, class From>
To convert(From x) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (!(x == x)) return 0;
    if (x >= From(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (x <= From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  }
  return To(x);
}

template <class R, class T, R (*F)(T)>
void run1(void* d, const void* a, int n) {
  const T* x = static_cast<const T*>(a);
  R* r = static_cast<R*>(d);
  for (int i = 0; i < n; ++i) r[i] = F(x[i]);
}
template <class R, class T, R (*F)(T, T)>
void run2(void* d, const void* a, const void* b, int n) {
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  R* r = static_cast<R*>(d);
  for (int i = 0; i < n; ++i) r[i] = F(x[i], y[i]);
}
template <class T, T (*F)(T, T, T)>
void run3(void* d, const void* a, const void* b, const void* c, int n) {
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b),
          *z = static_cast<const T*>(c);
  T* r = static_cast<T*>(d);
  for (int i = 0; i < n; ++i) r[i] = F(x[i], y[i], z[i]);
}

// Integers wrap around: arithmetic of the unsigned type, which is defined.
template <class T, class F>
T wrapped(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return T(f(U(a), U(b)));
  } else {
    return f(a, b);
  }
}
template <class T>
T add(T a, T b) {
  return wrapped(a, b, [](auto x, auto y) { return x + y; });
}
template <class T>
T sub(T a, T b) {
  return wrapped(a, b, [](auto x, auto y) { return x - y; });
}
template <class T>
T mul(T a, T b) {
  return wrapped(a, b, [](auto x, auto y) { return x * y; });
}
// Lanes that a mask leaves out compute too: a division by zero must not stop the program.
template <class T>
T divide(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a / b;
  } else {
    if (b == 0) return T(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return sub(T(0), a);
    return a / b;
  }
}
template <class T>
T modulo(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return b == 0 ? a : a % b;
}
template <class T>
T shift_left(T a, T b) {
  using U = std::make_unsigned_t<T>;
  return U(b) >= sizeof(T) * 8 ? T(0) : T(U(a) << U(b));
}
template <class T>
T shift_right(T a, T b) {
  using U = std::make_unsigned_t<T>;
  return U(b) >= sizeof(T) * 8 ? T(a < 0 ? -1 : 0) : T(a >> b);
}
template <class T>
T bit_and(T a, T b) {
  return a & b;
}
template <class T>
T bit_or(T a, T b) {
  return a | b;
}
template <class T>
T bit_xor(T a, T b) {
  return a ^ b;
}
template <class T>
int32_t less(T a, T b) {
  return a < b;
}
template <class T>
int32_t less_equal(T a, T b) {
  return a <= b;
}
template <class T>
int32_t greater(T a, T b) {
  return a > b;
}
template <class T>
int32_t greater_equal(T a, T b) {
  return a >= b;
}
template <class T>
int32_t equal(T a, T b) {
  return a == b;
}
template <class T>
int32_t not_equal(T a, T b) {
  return a != b;
}

template <class T>
T minus(T a) {
  return sub(T(0), a);
}
template <>
float minus(float a) {
  return -a;
}
template <>
double minus(double a) {
  return -a;
}
template <class T>
T invert(T a) {
  return ~a;
}
template <class T>
int32_t is_zero(T a) {
  return a == 0;
}

// Of two numbers the one that is one, as fmin and CUDA's min have it.
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmin(a, b);
  return b < a ? b : a;
}
template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmax(a, b);
  return a < b ? b : a;
}
template <class T>
T absolute(T a) {
  if constexpr (std::is_floating_point_v<T>) return std::fabs(a);
  return a < T(0) ? sub(T(0), a) : a;
}

// erfc(x) = y: beyond the middle by Newton's steps, since 1 - y has lost what matters.
double erfc_inverse(double y) {
  if (!(y >= 0 && y <= 2)) return std::numeric_limits<double>::quiet_NaN();
  if (y == 0 || y == 2) return (1 - y) * std::numeric_limits<double>::infinity();
  if (y > 1) return -erfc_inverse(2 - y);
  if (y > 0.0625) return expr::scalar::erfinv(1 - y);
  constexpr double kHalfRootPi = 0.88622692545275801365;
  double x = std::sqrt(-std::log(y * 2 * kHalfRootPi * std::sqrt(-std::log(y))));
  for (int i = 0; i < 5; ++i) x += (std::erfc(x) / y - 1) * y * std::exp(x * x) * kHalfRootPi;
  return x;
}

// clang-format off
#define ARETE_LANES_MATH1(X)                                                                      \
  X(sqrt, std::sqrt(x)) X(rsqrt, T(1) / std::sqrt(x)) X(cbrt, std::cbrt(x))                       \
  X(exp, std::exp(x)) X(exp2, std::exp2(x)) X(exp10, std::pow(T(10), x)) X(expm1, std::expm1(x))  \
  X(log, std::log(x)) X(log2, std::log2(x)) X(log10, std::log10(x)) X(log1p, std::log1p(x))       \
  X(sin, std::sin(x)) X(cos, std::cos(x)) X(tan, std::tan(x)) X(asin, std::asin(x))               \
  X(acos, std::acos(x)) X(atan, std::atan(x)) X(sinh, std::sinh(x)) X(cosh, std::cosh(x))         \
  X(tanh, std::tanh(x)) X(asinh, std::asinh(x)) X(acosh, std::acosh(x)) X(atanh, std::atanh(x))   \
  X(erf, std::erf(x)) X(erfc, std::erfc(x)) X(tgamma, std::tgamma(x)) X(lgamma, std::lgamma(x))   \
  X(floor, std::floor(x)) X(ceil, std::ceil(x)) X(trunc, std::trunc(x)) X(round, std::round(x))   \
  X(rint, std::nearbyint(x)) X(nearbyint, std::nearbyint(x)) X(fabs, std::fabs(x))                \
  X(sinpi, std::sin(x * T(3.14159265358979323846)))                                               \
  X(cospi, std::cos(x * T(3.14159265358979323846)))                                               \
  X(normcdf, T(0.5) * std::erfc(-x * T(0.70710678118654752440)))                                  \
  X(erfinv, T(expr::scalar::erfinv(x))) X(erfcinv, T(erfc_inverse(x)))                                    \
  X(normcdfinv, T(-1.41421356237309504880 * erfc_inverse(2 * double(x))))                         \
  X(rcp, T(1) / x) X(saturate, x >= T(0) ? (x > T(1) ? T(1) : x) : T(0))
#define ARETE_LANES_MATH2(X)                                                                      \
  X(pow, std::pow(x, y)) X(atan2, std::atan2(x, y)) X(fmod, std::fmod(x, y))                      \
  X(hypot, std::hypot(x, y)) X(copysign, std::copysign(x, y)) X(fdim, std::fdim(x, y))            \
  X(remainder, std::remainder(x, y)) X(nextafter, std::nextafter(x, y))                           \
  X(fmin, std::fmin(x, y)) X(fmax, std::fmax(x, y)) X(fdividef, x / y)
// clang-format on
#define ARETE_DEFINE(name, ...) \
  template <class T>            \
  T math_##name(T x) {          \
    return __VA_ARGS__;         \
  }
ARETE_LANES_MATH1(ARETE_DEFINE)
#undef ARETE_DEFINE
#define ARETE_DEFINE(name, ...) \
  template <class T>            \
  T math_##name(T x, T y) {     \
    return __VA_ARGS__;         \
  }
ARETE_LANES_MATH2(ARETE_DEFINE)
#undef ARETE_DEFINE
template <class T>
T fused(T a, T b, T c) {
  return std::fma(a, b, c);
}

template <class T>
int32_t is_nan(T x) {
  return x != x;
}
template <class T>
int32_t is_inf(T x) {
  return std::isinf(x);
}
template <class T>
int32_t is_finite(T x) {
  return std::isfinite(x);
}
template <class T>
int32_t sign_bit(T x) {
  return std::signbit(x);
}

int32_t float_bits(float x) { return std::bit_cast<int32_t>(x); }
float bits_float(int32_t x) { return std::bit_cast<float>(x); }
int32_t count_bits(uint32_t x) { return std::popcount(x); }
int32_t count_bits_long(uint64_t x) { return std::popcount(x); }
int32_t leading(uint32_t x) { return std::countl_zero(x); }
int32_t leading_long(uint64_t x) { return std::countl_zero(x); }
int32_t first_bit(uint32_t x) { return x ? std::countr_zero(x) + 1 : 0; }
int32_t first_bit_long(uint64_t x) { return x ? std::countr_zero(x) + 1 : 0; }
uint32_t reversed(uint32_t x) {
  uint32_t r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1) << (31 - i);
  return r;
}

int32_t to_bool(int32_t x) { return x != 0; }
int32_t to_i8(int32_t x) { return int8_t(x); }
int32_t to_u8(int32_t x) { return uint8_t(x); }
int32_t to_i16(int32_t x) { return int16_t(x); }
int32_t to_u16(int32_t x) { return uint16_t(x); }
float to_half(float x) { return Half(x); }
float to_bfloat16(float x) { return BFloat16(x); }

}  // namespace

Map1 conversion(Reg from, Reg to) {
  return visit_reg(from, [&](auto f) {
    return visit_reg(to, [&](auto t) -> Map1 {
      return &run1<decltype(t), decltype(f), &convert<decltype(t), decltype(f)>>;
    });
  });
}

Map1 narrowing(Num to) {
  switch (to) {
    case Num::boolean:
      return &run1<int32_t, int32_t, &to_bool>;
    case Num::i8:
      return &run1<int32_t, int32_t, &to_i8>;
    case Num::u8:
      return &run1<int32_t, int32_t, &to_u8>;
    case Num::i16:
      return &run1<int32_t, int32_t, &to_i16>;
    case Num::u16:
      return &run1<int32_t, int32_t, &to_u16>;
    case Num::f16:
      return &run1<float, float, &to_half>;
    case Num::bf16:
      return &run1<float, float, &to_bfloat16>;
    default:
      return nullptr;
  }
}

Map2 operation(const std::string& op, Reg reg) {
  return visit_reg(reg, [&](auto t) -> Map2 {
    using T = decltype(t);
    if (op == "+") return &run2<T, T, &add<T>>;
    if (op == "-") return &run2<T, T, &sub<T>>;
    if (op == "*") return &run2<T, T, &mul<T>>;
    if (op == "/") return &run2<T, T, &divide<T>>;
    if (op == "<") return &run2<int32_t, T, &less<T>>;
    if (op == "<=") return &run2<int32_t, T, &less_equal<T>>;
    if (op == ">") return &run2<int32_t, T, &greater<T>>;
    if (op == ">=") return &run2<int32_t, T, &greater_equal<T>>;
    if (op == "==") return &run2<int32_t, T, &equal<T>>;
    if (op == "!=") return &run2<int32_t, T, &not_equal<T>>;
    if constexpr (std::is_integral_v<T>) {
      if (op == "%") return &run2<T, T, &modulo<T>>;
      if (op == "&") return &run2<T, T, &bit_and<T>>;
      if (op == "|") return &run2<T, T, &bit_or<T>>;
      if (op == "^") return &run2<T, T, &bit_xor<T>>;
      if (op == "<<") return &run2<T, T, &shift_left<T>>;
      if (op == ">>") return &run2<T, T, &shift_right<T>>;
    }
    return nullptr;
  });
}

Map1 negation(const std::string& op, Reg reg) {
  return visit_reg(reg, [&](auto t) -> Map1 {
    using T = decltype(t);
    if (op == "-") return &run1<T, T, &minus<T>>;
    if (op == "!") return &run1<int32_t, T, &is_zero<T>>;
    if constexpr (std::is_integral_v<T>)
      if (op == "~") return &run1<T, T, &invert<T>>;
    return nullptr;
  });
}

Map1 function1(const std::string& name, Reg reg) {
  if (name == "__float_as_int") return &run1<int32_t, float, &float_bits>;
  if (name == "__int_as_float") return &run1<float, int32_t, &bits_float>;
  if (name == "__popc") return &run1<int32_t, uint32_t, &count_bits>;
  if (name == "__popcll") return &run1<int32_t, uint64_t, &count_bits_long>;
  if (name == "__clz") return &run1<int32_t, uint32_t, &leading>;
  if (name == "__clzll") return &run1<int32_t, uint64_t, &leading_long>;
  if (name == "__ffs") return &run1<int32_t, uint32_t, &first_bit>;
  if (name == "__ffsll") return &run1<int32_t, uint64_t, &first_bit_long>;
  if (name == "__brev") return &run1<uint32_t, uint32_t, &reversed>;
  return visit_reg(reg, [&](auto t) -> Map1 {
    using T = decltype(t);
    if (name == "abs") return &run1<T, T, &absolute<T>>;
    if constexpr (std::is_floating_point_v<T>) {
      if (name == "isnan") return &run1<int32_t, T, &is_nan<T>>;
      if (name == "isinf") return &run1<int32_t, T, &is_inf<T>>;
      if (name == "isfinite") return &run1<int32_t, T, &is_finite<T>>;
      if (name == "signbit") return &run1<int32_t, T, &sign_bit<T>>;
      static const std::map<std::string, Map1> table = {
#define ARETE_ENTRY(name, ...) {#name, &run1<T, T, &math_##name<T>>},
          ARETE_LANES_MATH1(ARETE_ENTRY)
#undef ARETE_ENTRY
      };
      const auto found = table.find(name);
      if (found != table.end()) return found->second;
    }
    return nullptr;
  });
}

Map2 function2(const std::string& name, Reg reg) {
  return visit_reg(reg, [&](auto t) -> Map2 {
    using T = decltype(t);
    if (name == "min") return &run2<T, T, &smaller<T>>;
    if (name == "max") return &run2<T, T, &larger<T>>;
    if constexpr (std::is_floating_point_v<T>) {
      static const std::map<std::string, Map2> table = {
#define ARETE_ENTRY(name, ...) {#name, &run2<T, T, &math_##name<T>>},
          ARETE_LANES_MATH2(ARETE_ENTRY)
#undef ARETE_ENTRY
      };
      const auto found = table.find(name);
      if (found != table.end()) return found->second;
    }
    return nullptr;
  });
}

Map3 function3(const std::string& name, Reg reg) {
  if (name != "fma") return nullptr;
  return reg == Reg::f32   ? &run3<float, &fused<float>>
         : reg == Reg::f64 ? &run3<double, &fused<double>>
                           : static_cast<Map3>(nullptr);
}

}  // namespace arete::lanes
