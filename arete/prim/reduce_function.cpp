#include <complex>
#include <type_traits>

#include "arete/base/error.h"
#include "arete/core/complex.h"
#include "arete/prim/communicator.h"

namespace arete::prim {
namespace {

template <class T>
constexpr bool is_half = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
constexpr bool is_complex_type = false;
template <class T>
constexpr bool is_complex_type<std::complex<T>> = true;

// The value of an element to compute with. Sums of signed integers wrap around, as operators' do.
template <class T>
auto value_of(T x) {
  if constexpr (is_half<T>)
    return float(x);
  else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return std::make_unsigned_t<T>(x);
  else
    return x;
}

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else
      return T(value_of(a) + value_of(b));
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_same_v<T, bool>)
      return a && b;
    else if constexpr (std::is_integral_v<T>)  // not as int, which might overflow
      return T(uint64_t(value_of(a)) * uint64_t(value_of(b)));
    else
      return T(value_of(a) * value_of(b));
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return T(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return T(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return T(a ^ b);
  }
};

template <class Op, class T>
void combine(void* out, const void* a, const void* b, size_t n) {
  T* const to = static_cast<T*>(out);
  const T *const x = static_cast<const T*>(a), *const y = static_cast<const T*>(b);
  // Each element is read before it is written, and no other one: vectors may be used even where
  // `out` is one of the others.
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) to[i] = Op::apply(x[i], y[i]);
}

template <class T>
ReduceFunction function_for(ReduceKind kind) {
  constexpr bool kFloat8 = std::is_same_v<T, Float8E4M3> || std::is_same_v<T, Float8E5M2>;
  if constexpr (!kFloat8) {
    switch (kind) {
      case ReduceKind::sum:
      case ReduceKind::avg:
      case ReduceKind::premul_sum:
        return combine<Sum, T>;
      case ReduceKind::product:
        return combine<Product, T>;
      default:
        break;
    }
    if constexpr (!is_complex_type<T>) {
      if (kind == ReduceKind::min) return combine<Min, T>;
      if (kind == ReduceKind::max) return combine<Max, T>;
    }
    if constexpr (std::is_integral_v<T>) {
      if (kind == ReduceKind::band) return combine<And, T>;
      if (kind == ReduceKind::bor) return combine<Or, T>;
      if (kind == ReduceKind::bxor) return combine<Xor, T>;
    }
  }
  return nullptr;
}

}  // namespace

const char* name_of(ReduceKind kind) {
  constexpr const char* kNames[] = {"SUM", "PRODUCT", "MIN", "MAX",       "BAND",
                                    "BOR", "BXOR",    "AVG", "PREMUL_SUM"};
  return kNames[int(kind)];
}

ReduceFunction reduce_function(ReduceKind kind, DType dtype) {
  const bool averages = kind == ReduceKind::avg || kind == ReduceKind::premul_sum;
  const ReduceFunction f = visit_dtype(
      dtype, [&](auto tag) { return function_for<typename decltype(tag)::type>(kind); });
  ARETE_CHECK(f && (!averages || is_differentiable(dtype)),
              TypeError("", std::string("Cannot use ReduceOp.") + name_of(kind) +
                                " with tensors of " + std::string(name_of(dtype))));
  return f;
}

}  // namespace arete::prim
