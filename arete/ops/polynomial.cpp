// Orthogonal polynomials by their three-term recurrences: a loop inside the kernel, which goes as
// far as the degree of each element (Op::polynomial).
#include "arete/expr/orthogonal.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/creation.h"
#include "arete/ops/rows.h"
#include "arete/ops/shape.h"
#include "arete/ops/special_family.h"

namespace arete {
namespace ops {
namespace {

Tensor as_tensor(const Arg& a, Device device, DType number_type) {
  if (a.kind() == Arg::Kind::tensor) return a.tensor();
  return full({}, a.scalar(), TensorOptions(number_type, device));
}

template <expr::Orthogonal kFamily>
Results polynomial(const Call& c) {
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
  const Tensor both[] = {as_tensor(c[0], device, t), as_tensor(c[1], device, t).detach()};
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const expr::Program& program = cache.get(
      pack_key({int(both[0].dtype()), int(both[1].dtype()), int(result)}),
      {both[0].dtype(), both[1].dtype()}, {}, {result}, [&](std::span<const expr::Value> v) {
        const expr::Type type = expr::compute_type(t);
        return std::vector{v[0].builder()->polynomial(cast(v[0], type), cast(v[1], type), kFamily)};
      });
  return {apply_program(program.shared_from_this(), both, {}, c.name())[0]};
}

#define ARETE_POLYNOMIAL(NAME, FAMILY, DOC)                                             \
  const OpRecord& NAME##_op = define("special_" #NAME "(Tensor x, Tensor n) -> Tensor") \
                                  .doc(DOC)                                             \
                                  .takes_numbers()                                      \
                                  .compose(polynomial<expr::Orthogonal::FAMILY>);

// clang-format off
ARETE_POLYNOMIAL(chebyshev_polynomial_t, chebyshev_t,
                 "Chebyshev polynomial of the first kind, degree n.")
ARETE_POLYNOMIAL(chebyshev_polynomial_u, chebyshev_u,
                 "Chebyshev polynomial of the second kind, degree n.")
ARETE_POLYNOMIAL(chebyshev_polynomial_v, chebyshev_v,
                 "Chebyshev polynomial of the third kind, degree n.")
ARETE_POLYNOMIAL(chebyshev_polynomial_w, chebyshev_w,
                 "Chebyshev polynomial of the fourth kind, degree n.")
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_t, shifted_chebyshev_t,
                 "Chebyshev polynomial of the first kind in 2 x - 1.")
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_u, shifted_chebyshev_u,
                 "Chebyshev polynomial of the second kind in 2 x - 1.")
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_v, shifted_chebyshev_v,
                 "Chebyshev polynomial of the third kind in 2 x - 1.")
ARETE_POLYNOMIAL(shifted_chebyshev_polynomial_w, shifted_chebyshev_w,
                 "Chebyshev polynomial of the fourth kind in 2 x - 1.")
ARETE_POLYNOMIAL(hermite_polynomial_h, hermite_h,
                 "The physicists' Hermite polynomial of degree n.")
ARETE_POLYNOMIAL(hermite_polynomial_he, hermite_he,
                 "The statisticians' Hermite polynomial of degree n.")
ARETE_POLYNOMIAL(laguerre_polynomial_l, laguerre_l,
                 "Laguerre polynomial of degree n.")
ARETE_POLYNOMIAL(legendre_polynomial_p, legendre_p,
                 "Legendre polynomial of degree n.")
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
