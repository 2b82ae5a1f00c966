// Pointwise records of three inputs, and clamp.
#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/in_place.h"
#include "arete/ops/pointwise_family.h"

namespace arete::ops {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

namespace {

PointwiseDef ternary(expr::Definition f, int n_params = 0) {
  PointwiseDef d;
  d.n_inputs = 3;
  d.n_params = n_params;
  d.definition = std::move(f);
  return d;
}

const OpRecord& addcmul_op =
    define("addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor")
        .face("addcmul_(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)")
        .face("addcmul_.value(Tensor self, Scalar value, Tensor tensor1, Tensor tensor2)")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("self + value * tensor1 * tensor2.")
        .pointwise(ternary(
            [](std::span<const Value> v) { return std::vector{v[0] + v[3] * v[1] * v[2]}; }, 1))
        .complex(of_complex(
            [](Complex a, Complex b, Complex c, Complex value) { return a + value * b * c; }))
        .truncates()
        .in_place();

const OpRecord& addcdiv_op =
    define("addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor")
        .face("addcdiv_(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1)")
        .face("addcdiv_.value(Tensor self, Scalar value, Tensor tensor1, Tensor tensor2)")
        .autocast(autocast_on_cuda(Autocast::promote))
        .doc("self + value * tensor1 / tensor2.")
        .pointwise(ternary(
            [](std::span<const Value> v) { return std::vector{v[0] + v[3] * v[1] / v[2]}; }, 1))
        .complex(of_complex(
            [](Complex a, Complex b, Complex c, Complex value) { return a + value * (b / c); }))
        .refuses([](const Call& c) {
          const auto is_integer = [](const Arg& a) {
            return a.kind() == Arg::Kind::tensor && is_integral_or_bool(a.tensor().dtype());
          };
          ARETE_CHECK(!is_integer(c[1]) || !is_integer(c[2]),
                      TypeError(c.name(),
                                "Integer division with addcdiv is no longer supported: convert "
                                "tensor1 or tensor2 to a floating type, or use "
                                "self + value * torch.trunc(tensor1 / tensor2)"));
        })
        .truncates()
        .in_place();

const OpRecord& lerp_op =
    define("lerp(Tensor self, Tensor end, Tensor weight) -> Tensor")
        .doc("self + weight * (end - self).")
        .pointwise(
            ternary([](std::span<const Value> v) { return std::vector{lerp(v[0], v[1], v[2])}; }))
        .complex(of_complex([](Complex a, Complex b, Complex w) { return a + w * (b - a); }))
        .in_place();

// The condition takes no part in promotion: it is cast to boolean by the definition.
PointwiseDef where_definition() {
  PointwiseDef d = ternary([](std::span<const Value> v) {
    return std::vector{where(v[0].type() == expr::Type::boolean ? v[0] : v[0] != 0.0, v[1], v[2])};
  });
  d.non_differentiable = 1;
  return d;
}

const OpRecord& where_op =
    define("where(Tensor condition, Tensor input, Tensor other) -> Tensor")
        .doc("self where condition holds, else other.")
        .surface(Surface::function)
        .pointwise(where_definition())
        .exact_numbers(0b110)
        .complex({[](Values v) {
                    return std::vector{where(v[0], v[1], v[3]), where(v[0], v[2], v[4])};
                  },
                  {},
                  0b110});

PointwiseDef limit(int n_inputs, int n_params, expr::Definition f, expr::Definition gradient) {
  PointwiseDef d;
  d.n_inputs = n_inputs;
  d.n_params = n_params;
  d.definition = std::move(f);
  d.gradient = std::move(gradient);
  return d;
}

Value zero_like(Value v) { return constant_like(v, 0.0); }

// Limits that are numbers: the gradient passes at the limits themselves, as PyTorch has it.
const OpRecord& clamp_op =
    define("clamp_point(Tensor self, Scalar min, Scalar max) -> Tensor")
        .surface(Surface::internal)
        .doc("Limits to [min, max].")
        .pointwise(limit(
            1, 2, [](std::span<const Value> v) { return std::vector{min(max(v[0], v[1]), v[2])}; },
            [](std::span<const Value> v) {
              return std::vector{where((v[0] >= v[3]) & (v[0] <= v[4]), v[2], zero_like(v[2]))};
            }))
        .in_place();

const OpRecord& clamp_min_op =
    define("clamp_min_point(Tensor self, Scalar min) -> Tensor")
        .surface(Surface::internal)
        .doc("max(self, min).")
        .pointwise(limit(
            1, 1, [](std::span<const Value> v) { return std::vector{max(v[0], v[1])}; },
            [](std::span<const Value> v) {
              return std::vector{where(v[0] >= v[3], v[2], zero_like(v[2]))};
            }))
        .in_place();

const OpRecord& clamp_max_op =
    define("clamp_max_point(Tensor self, Scalar max) -> Tensor")
        .surface(Surface::internal)
        .doc("min(self, max).")
        .pointwise(limit(
            1, 1, [](std::span<const Value> v) { return std::vector{min(v[0], v[1])}; },
            [](std::span<const Value> v) {
              return std::vector{where(v[0] <= v[3], v[2], zero_like(v[2]))};
            }))
        .in_place();

// As in PyTorch an element that is equal to its limit keeps the gradient.
const OpRecord& raise_op =
    define("clamp_min_by(Tensor self, Tensor min) -> Tensor")
        .surface(Surface::internal)
        .doc("max(self, min).")
        .pointwise(limit(
            2, 0, [](std::span<const Value> v) { return std::vector{max(v[0], v[1])}; },
            [](std::span<const Value> v) {
              return std::vector{where(v[0] >= v[1], v[3], zero_like(v[3])),
                                 where(v[0] < v[1], v[3], zero_like(v[3]))};
            }))
        .in_place();

const OpRecord& lower_op =
    define("clamp_max_by(Tensor self, Tensor max) -> Tensor")
        .surface(Surface::internal)
        .doc("min(self, max).")
        .pointwise(limit(
            2, 0, [](std::span<const Value> v) { return std::vector{min(v[0], v[1])}; },
            [](std::span<const Value> v) {
              return std::vector{where(v[0] <= v[1], v[3], zero_like(v[3])),
                                 where(v[0] > v[1], v[3], zero_like(v[3]))};
            }))
        .in_place();

// Limits that cross give the upper one.
const OpRecord& limit_op =
    define("clamp_by(Tensor self, Tensor min, Tensor max) -> Tensor")
        .surface(Surface::internal)
        .doc("min(max(self, min), max).")
        .pointwise(limit(
            3, 0, [](std::span<const Value> v) { return std::vector{min(max(v[0], v[1]), v[2])}; },
            [](std::span<const Value> v) {
              const Value raised = max(v[0], v[1]), below = raised <= v[2];
              const Value g = where(below, v[4], zero_like(v[4]));
              return std::vector{where(v[0] >= v[1], g, zero_like(g)),
                                 where(v[0] < v[1], g, zero_like(g)),
                                 where(raised > v[2], v[4], zero_like(v[4]))};
            }))
        .in_place();

// Whole-number tensors with a fractional limit become floating, as promotion has it.
DType clamp_type(const Tensor& self, std::optional<Scalar> min, std::optional<Scalar> max) {
  ARETE_CHECK(min || max, ValueError("clamp", "At least one of 'min' or 'max' must not be None"));
  SmallVector<Scalar, 2> limits;
  if (min) limits.push_back(*min);
  if (max) limits.push_back(*max);
  const DType t = result_type({&self, 1}, {limits.data(), limits.size()});
  ARETE_CHECK(!is_complex(t),
              NotImplementedError("clamp", "clamp is not supported for complex types"));
  return t;
}

}  // namespace
}  // namespace arete::ops

namespace arete {

Tensor where(const Tensor& condition, const Tensor& self, const Tensor& other) {
  return ops::call(ops::where_op, {condition, self, other});
}
Tensor where(const Tensor& condition, const Tensor& self, Scalar other) {
  return ops::call(ops::where_op, {condition, self, other});
}
Tensor where(const Tensor& condition, Scalar self, const Tensor& other) {
  return ops::call(ops::where_op, {condition, self, other});
}
Tensor Tensor::where(const Tensor& condition, const Tensor& other) const {
  return arete::where(condition, *this, other);
}

Tensor clamp(const Tensor& self, std::optional<Scalar> min, std::optional<Scalar> max) {
  const DType t = ops::clamp_type(self, min, max);
  const Tensor x = t == self.dtype() ? self : self.to(t);
  if (!max) return ops::call(ops::clamp_min_op, {x, *min});
  if (!min) return ops::call(ops::clamp_max_op, {x, *max});
  return ops::call(ops::clamp_op, {x, *min, *max});
}
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return arete::clamp(*this, min, max);
}
Tensor& Tensor::clamp_(std::optional<Scalar> min, std::optional<Scalar> max) {
  ops::check_castable(ops::clamp_type(*this, min, max), dtype(), "clamp_");
  if (!max) return ops::call_in_place(*this, ops::clamp_min_op, {*this, *min});
  if (!min) return ops::call_in_place(*this, ops::clamp_max_op, {*this, *max});
  return ops::call_in_place(*this, ops::clamp_op, {*this, *min, *max});
}
Tensor clamp(const Tensor& self, const Tensor& min, const Tensor& max) {
  ARETE_CHECK(min.defined() || max.defined(),
              ValueError("clamp", "At least one of 'min' or 'max' must not be None"));
  if (!max.defined()) return ops::call(ops::raise_op, {self, min});
  if (!min.defined()) return ops::call(ops::lower_op, {self, max});
  return ops::call(ops::limit_op, {self, min, max});
}
Tensor Tensor::clamp(const Tensor& min, const Tensor& max) const {
  return arete::clamp(*this, min, max);
}

Tensor lerp(const Tensor& self, const Tensor& end, Scalar weight) {
  return ops::call(ops::lerp_op, {self, end, weight});
}
Tensor lerp(const Tensor& self, const Tensor& end, const Tensor& weight) {
  return ops::call(ops::lerp_op, {self, end, weight});
}
Tensor Tensor::lerp(const Tensor& end, Scalar weight) const {
  return arete::lerp(*this, end, weight);
}
Tensor Tensor::lerp(const Tensor& end, const Tensor& weight) const {
  return arete::lerp(*this, end, weight);
}
Tensor& Tensor::lerp_(const Tensor& end, Scalar weight) {
  return ops::call_in_place(*this, ops::lerp_op, {*this, end, weight});
}

#define ARETE_DEFINE_COMBINED(name)                                                 \
  Tensor name(const Tensor& self, const Tensor& a, const Tensor& b, Scalar value) { \
    return ops::call(ops::name##_op, {self, a, b, value});                          \
  }                                                                                 \
  Tensor Tensor::name(const Tensor& a, const Tensor& b, Scalar value) const {       \
    return ops::call(ops::name##_op, {*this, a, b, value});                         \
  }                                                                                 \
  Tensor& Tensor::name##_(const Tensor& a, const Tensor& b, Scalar value) {         \
    return ops::call_in_place(*this, ops::name##_op, {*this, a, b, value});         \
  }
ARETE_DEFINE_COMBINED(addcmul)
ARETE_DEFINE_COMBINED(addcdiv)
#undef ARETE_DEFINE_COMBINED

}  // namespace arete

ARETE_FAMILY(ternary)
