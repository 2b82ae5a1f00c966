// Records of Bessel functions and the Airy function.
#include "arete/ops/special_family.h"

namespace arete {
namespace ops {

using expr::Value;

namespace {

// I1(x) / x and its like need their limit at 0.
Value over(Value y, Value x, double limit) {
  return where(x == 0, limit, y / where(x == 0, 1.0, x));
}

const OpRecord& i0_op = define("i0(Tensor self) -> Tensor")
                            .doc("Modified Bessel function of the first kind, order 0.")
                            .pointwise(special_unary(
                                expr::bessel_i0, [](Value x, Value) { return expr::bessel_i1(x); }))
                            .in_place();

const OpRecord& i0e_op = define("special_i0e(Tensor self) -> Tensor")
                             .doc("exp(-|x|) times the modified Bessel function i0.")
                             .pointwise(special_unary(expr::bessel_i0e, [](Value x, Value y) {
                               return expr::bessel_i1e(x) - sign(x) * y;
                             }));

const OpRecord& i1_op = define("special_i1(Tensor self) -> Tensor")
                            .doc("Modified Bessel function of the first kind, order 1.")
                            .pointwise(special_unary(expr::bessel_i1, [](Value x, Value y) {
                              return expr::bessel_i0(x) - over(y, x, 0.5);
                            }));

const OpRecord& i1e_op = define("special_i1e(Tensor self) -> Tensor")
                             .doc("exp(-|x|) times the modified Bessel function i1.")
                             .pointwise(special_unary(expr::bessel_i1e, [](Value x, Value y) {
                               return expr::bessel_i0e(x) - y * sign(x) - over(y, x, 0.5);
                             }));

const OpRecord& k0_op = define("special_modified_bessel_k0(Tensor self) -> Tensor")
                            .doc("Modified Bessel function of the second kind, order 0.")
                            .pointwise(special_unary(expr::bessel_k0, [](Value x, Value) {
                              return -expr::bessel_k1(x);
                            }));

const OpRecord& k1_op = define("special_modified_bessel_k1(Tensor self) -> Tensor")
                            .doc("Modified Bessel function of the second kind, order 1.")
                            .pointwise(special_unary(expr::bessel_k1, [](Value x, Value y) {
                              return -expr::bessel_k0(x) - y / x;
                            }));

const OpRecord& k0e_op = define("special_scaled_modified_bessel_k0(Tensor x) -> Tensor")
                             .doc("exp(x) times the modified Bessel function k0.")
                             .pointwise(special_unary(expr::bessel_k0e, [](Value x, Value y) {
                               return y - expr::bessel_k1e(x);
                             }));

const OpRecord& k1e_op = define("special_scaled_modified_bessel_k1(Tensor x) -> Tensor")
                             .doc("exp(x) times the modified Bessel function k1.")
                             .pointwise(special_unary(expr::bessel_k1e, [](Value x, Value y) {
                               return y - expr::bessel_k0e(x) - y / x;
                             }));

const OpRecord& j0_op = define("special_bessel_j0(Tensor self) -> Tensor")
                            .doc("Bessel function of the first kind, order 0.")
                            .pointwise(special_unary(expr::bessel_j0, [](Value x, Value) {
                              return -expr::bessel_j1(x);
                            }));

const OpRecord& j1_op = define("special_bessel_j1(Tensor self) -> Tensor")
                            .doc("Bessel function of the first kind, order 1.")
                            .pointwise(special_unary(expr::bessel_j1, [](Value x, Value y) {
                              return expr::bessel_j0(x) - over(y, x, 0.5);
                            }));

const OpRecord& y0_op = define("special_bessel_y0(Tensor self) -> Tensor")
                            .doc("Bessel function of the second kind, order 0; NaN for negative x.")
                            .pointwise(special_unary(expr::bessel_y0, [](Value x, Value) {
                              return -expr::bessel_y1(x);
                            }));

const OpRecord& y1_op = define("special_bessel_y1(Tensor self) -> Tensor")
                            .doc("Bessel function of the second kind, order 1; NaN for negative x.")
                            .pointwise(special_unary(expr::bessel_y1, [](Value x, Value y) {
                              return expr::bessel_y0(x) - y / x;
                            }));

const OpRecord& spherical_j0_op = define("special_spherical_bessel_j0(Tensor x) -> Tensor")
                                      .doc("sin(x) / x, 1 at 0.")
                                      .pointwise(special_unary(expr::spherical_bessel_j0));

PointwiseDef without_gradient(PointwiseDef d) {
  d.non_differentiable = 1;
  return d;
}

const OpRecord& airy_op =
    define("special_airy_ai(Tensor x) -> Tensor")
        .doc("Airy's function Ai; has no gradient.")
        .pointwise(without_gradient(special_unary(expr::airy_ai, nullptr, /*wide=*/true)));

}  // namespace
}  // namespace ops

#define ARETE_DEFINE_BESSEL(name, record) \
  Tensor name(const Tensor& self) { return ops::call(ops::record, {self}); }
ARETE_DEFINE_BESSEL(i0, i0_op)
ARETE_DEFINE_BESSEL(special_i0e, i0e_op)
ARETE_DEFINE_BESSEL(special_i1, i1_op)
ARETE_DEFINE_BESSEL(special_i1e, i1e_op)
ARETE_DEFINE_BESSEL(special_modified_bessel_k0, k0_op)
ARETE_DEFINE_BESSEL(special_modified_bessel_k1, k1_op)
ARETE_DEFINE_BESSEL(special_scaled_modified_bessel_k0, k0e_op)
ARETE_DEFINE_BESSEL(special_scaled_modified_bessel_k1, k1e_op)
ARETE_DEFINE_BESSEL(special_bessel_j0, j0_op)
ARETE_DEFINE_BESSEL(special_bessel_j1, j1_op)
ARETE_DEFINE_BESSEL(special_bessel_y0, y0_op)
ARETE_DEFINE_BESSEL(special_bessel_y1, y1_op)
ARETE_DEFINE_BESSEL(special_spherical_bessel_j0, spherical_j0_op)
ARETE_DEFINE_BESSEL(special_airy_ai, airy_op)
#undef ARETE_DEFINE_BESSEL

}  // namespace arete

ARETE_FAMILY(bessel)
