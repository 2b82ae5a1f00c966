// Orthogonal polynomials by their three-term recurrences.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include "arete/expr/program_cache.h"
#include "arete/ops/creation.h"
#include "arete/ops/rows.h"
#include "arete/ops/shape.h"
#include "arete/ops/special_family.h"

namespace arete {
namespace ops {

using expr::Value;
using Values = std::span<const Value>;

namespace {

// p_0 = 1, p_1 = first(x), p_(k+1) = next(x, k, p_k, p_(k-1)).
struct Family {
  Value (*first)(Value x);
  Value (*next)(Value x, Value k, Value p, Value before);
};

#define ARETE_FAMILY_OF(FIRST, NEXT)                                                               \
  Family {                                                                                         \
    [](Value x) -> Value { return FIRST; }, [](Value x, Value k, Value p, Value before) -> Value { \
      static_cast<void>(k);                                                                        \
      return NEXT;                                                                                 \
    }                                                                                              \
  }

// Note [Polynomials of a degree that is data]
// Up to degree kSteps one kernel does it all, as far as the degrees go that are nearby. Beyond, one
// kernel walks kSteps degrees and keeps, for every element, the polynomial of its own degree. The
// state (the last two polynomials and the result so far) is handed from kernel to kernel while
// some element's degree lies beyond; the degrees read from the data say how many that are. A number
// needs no reading. Everything is differentiable in x.
constexpr int kSteps = 16;

expr::ProgramPtr walk_program(const Family& family, DType t) {
  // (x, n, p_k, p_(k-1), result; k) -> (p_(k+kSteps), p_(k+kSteps-1), result)
  return expr::trace(
      [&](Values v) {
        const Value x = v[0], n = v[1];
        Value p = v[2], before = v[3], result = v[4];
        for (int i = 0; i < kSteps; ++i) {
          const Value k = v[5] + i, next = family.next(x, k, p, before);
          before = p;
          p = next;
          result = where(n == k + 1, p, result);
        }
        return std::vector{p, before, result};
      },
      std::vector{t, t, t, t, t}, std::vector{expr::compute_type(t)}, std::vector{t, t, t});
}
// (x, n) -> (p_1, p_0, result)
expr::ProgramPtr start_program(const Family& family, DType t) {
  return expr::trace(
      [&](Values v) {
        const Value one = constant_like(v[0], 1.0), p = family.first(v[0]), n = v[1];
        const Value result = where(n == 0, one, where(n == 1, p, 0.0));
        return std::vector{p, one, result};
      },
      std::vector{t, t}, {}, std::vector{t, t, t});
}

// (x, n) -> the result, for degrees up to `steps`, before they are rounded to whole numbers.
expr::ProgramPtr short_program(const Family& family, DType t, int steps) {
  return expr::trace(
      [&](Values v) {
        const Value x = v[0], n = trunc(v[1]), one = constant_like(x, 1.0);
        const std::function<Value(int, Value, Value, Value)> from =
            [&](int k, Value p, Value before, Value result) -> Value {
          const Value so_far = result, further = n > k;
          for (const int end = std::min(steps, k + 4); k < end; ++k) {
            const Value next = family.next(x, constant_like(x, k), p, before);
            before = p;
            p = next;
            result = where(n == k + 1, p, result);
          }
          if (k < steps) result = from(k, p, before, result);
          return where(further, result, so_far);
        };
        const Value p = family.first(x);
        return std::vector{from(1, p, one, where(n == 0, one, where(n == 1, p, 0.0)))};
      },
      std::vector{t, t}, {}, std::vector{t});
}

struct Programs {
  expr::ProgramPtr start, walk, brief[3];
};
const Programs& programs_of(const OpRecord& op, const Family& family, DType t) {
  static std::mutex mutex;
  static std::map<std::pair<const OpRecord*, DType>, Programs> made;
  const std::lock_guard lock(mutex);
  Programs& p = made[{&op, t}];
  if (!p.start)
    p = {start_program(family, t),
         walk_program(family, t),
         {short_program(family, t, 4), short_program(family, t, 8),
          short_program(family, t, kSteps)}};
  return p;
}

Tensor as_tensor(const Arg& a, Device device, DType number_type) {
  if (a.kind() == Arg::Kind::tensor) return a.tensor();
  return full({}, a.scalar(), TensorOptions(number_type, device));
}

template <Family (*kFamily)()>
Results polynomial(const Call& c) {
  static const Family family = kFamily();
  const Device device = c[0].kind() == Arg::Kind::tensor ? c.tensor(0).device() : common_device(c);
  // A number takes no part in the type but by its category.
  std::vector<Tensor> tensors;
  std::vector<Scalar> numbers;
  for (size_t i = 0; i < 2; ++i)
    if (c[i].kind() == Arg::Kind::tensor)
      tensors.push_back(c.tensor(i));
    else
      numbers.push_back(c.scalar(i));
  DType result = result_type(tensors, numbers);
  if (!is_floating(result)) result = default_dtype();
  const DType t = result == kFloat64 ? kFloat64 : kFloat32;
  const Tensor x = as_tensor(c[0], device, t).to(t);
  const Tensor degrees = as_tensor(c[1], device, t).detach().to(t);
  const Programs& programs = programs_of(c.op, family, t);
  // Of degrees that are not finite there is no polynomial, and none that can be reached of others.
  constexpr double kLargest = 0x1p53;
  double degree = 0;
  if (c[1].kind() != Arg::Kind::tensor)
    degree = c.scalar(1).to_double();
  else if (!degrees.is_meta() && degrees.numel() > 0)
    degree = degrees.max().item<double>();
  if (degree <= kSteps) {  // not if it is NaN
    const Tensor both[] = {x, degrees};
    const int brief = degree <= 4 ? 0 : degree <= 8 ? 1 : 2;
    return {apply_program(programs.brief[brief], both, {}, c.name())[0].to(result)};
  }
  const Tensor n = degrees.trunc(), reached = n < Scalar(kLargest);
  if (!(degree < kLargest)) degree = n.is_meta() ? 0 : where(reached, n, 0).max().item<double>();
  const Tensor start[] = {x, n};
  Results r = apply_program(programs.start, start, {}, c.name());
  for (double k = 1; k < degree; k += kSteps) {
    const Tensor state[] = {x, n, r[0], r[1], r[2]};
    const Scalar from[] = {Scalar(k)};
    r = apply_program(programs.walk, state, from, c.name());
    if (int64_t(k) % (32 * kSteps) == 1 && k > kSteps && !x.is_meta()) {
      // Where all that is still to come has overflowed, no further step changes anything.
      const Tensor to_come = (n > Scalar(k + kSteps)) & reached;
      if (!(to_come & r[0].detach().isfinite()).any().item<bool>()) {
        r[2] = where(to_come, NAN, r[2]);
        break;
      }
    }
  }
  return {r[2].to(result)};
}

#define ARETE_POLYNOMIAL(NAME, DOC, FIRST, NEXT)                                        \
  Family family_of_##NAME() { return ARETE_FAMILY_OF(FIRST, NEXT); }                    \
  const OpRecord& NAME##_op = define("special_" #NAME "(Tensor x, Tensor n) -> Tensor") \
                                  .doc(DOC)                                             \
                                  .takes_numbers()                                      \
                                  .compose(polynomial<family_of_##NAME>);

// clang-format off
ARETE_POLYNOMIAL(chebyshev_polynomial_t, "Chebyshev polynomial of the first kind, degree n.",
                 x, 2 * x * p - before)
ARETE_POLYNOMIAL(chebyshev_polynomial_u, "Chebyshev polynomial of the second kind, degree n.",
                 2 * x, 2 * x * p - before)
ARETE_POLYNOMIAL(chebyshev_polynomial_v, "Chebyshev polynomial of the third kind, degree n.",
                 2 * x - 1, 2 * x * p - before)
ARETE_POLYNOMIAL(chebyshev_polynomial_w, "Chebyshev polynomial of the fourth kind, degree n.",
                 2 * x + 1, 2 * x * p - before)
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_t,
                 "Chebyshev polynomial of the first kind in 2 x - 1.",
                 2 * x - 1, (4 * x - 2) * p - before)
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_u,
                 "Chebyshev polynomial of the second kind in 2 x - 1.",
                 4 * x - 2, (4 * x - 2) * p - before)
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_v,
                 "Chebyshev polynomial of the third kind in 2 x - 1.",
                 4 * x - 3, (4 * x - 2) * p - before)
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_w,
                 "Chebyshev polynomial of the fourth kind in 2 x - 1.",
                 4 * x - 1, (4 * x - 2) * p - before)
ARETE_POLYNOMIAL(hermite_polynomial_h, "The physicists' Hermite polynomial of degree n.",
                 2 * x, 2 * x * p - 2 * k * before)
ARETE_POLYNOMIAL(hermite_polynomial_he, "The statisticians' Hermite polynomial of degree n.",
                 x, x * p - k * before)
ARETE_POLYNOMIAL(laguerre_polynomial_l, "Laguerre polynomial of degree n.",
                 1 - x, ((2 * k + 1 - x) * p - k * before) / (k + 1))
ARETE_POLYNOMIAL(legendre_polynomial_p, "Legendre polynomial of degree n.",
                 x, ((2 * k + 1) * x * p - k * before) / (k + 1))
// clang-format on

}  // namespace
}  // namespace ops

#define ARETE_DEFINE_POLYNOMIAL(NAME)                       \
  Tensor special_##NAME(const Tensor& x, const Tensor& n) { \
    return ops::call(ops::NAME##_op, {x, n});               \
  }
ARETE_DEFINE_POLYNOMIAL(chebyshev_polynomial_t)
ARETE_DEFINE_POLYNOMIAL(chebyshev_polynomial_u)
ARETE_DEFINE_POLYNOMIAL(chebyshev_polynomial_v)
ARETE_DEFINE_POLYNOMIAL(chebyshev_polynomial_w)
ARETE_DEFINE_POLYNOMIAL(shifted_chebyshev_polynomial_t)
ARETE_DEFINE_POLYNOMIAL(shifted_chebyshev_polynomial_u)
ARETE_DEFINE_POLYNOMIAL(shifted_chebyshev_polynomial_v)
ARETE_DEFINE_POLYNOMIAL(shifted_chebyshev_polynomial_w)
ARETE_DEFINE_POLYNOMIAL(hermite_polynomial_h)
ARETE_DEFINE_POLYNOMIAL(hermite_polynomial_he)
ARETE_DEFINE_POLYNOMIAL(laguerre_polynomial_l)
ARETE_DEFINE_POLYNOMIAL(legendre_polynomial_p)
#undef ARETE_DEFINE_POLYNOMIAL

}  // namespace arete

ARETE_FAMILY(polynomial)
