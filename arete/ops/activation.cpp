#include "arete/ops/activation.h"

#include <algorithm>
#include <cmath>

#include "arete/base/error.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/activation_program_internal.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/complex_form.h"
#include "arete/ops/pointwise_family.h"
#include "arete/ops/shape.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = std::span<const Value>;
using Result = PointwiseDef::Result;

PointwiseDef activation(int inputs, int params, Value (*f)(Values),
                        Result result = Result::floating) {
  PointwiseDef d;
  d.n_inputs = inputs;
  d.n_params = params;
  d.definition = [f](Values v) { return std::vector<Value>{f(v)}; };
  d.result = result;
  return d;
}

// `slope`: the gradient by the result, for calls in place.
PointwiseDef by_result(PointwiseDef d, Value (*slope)(Values)) {
  d.in_place_gradient = [slope](Values v) { return std::vector{slope(v)}; };
  return d;
}

Value negative_part(Value x) { return where(x > 0.0, 0.0, x); }

constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

const OpRecord& gelu_erf_op = define("gelu_erf(Tensor self) -> Tensor")
                                  .doc("gelu by its exact formula.")
                                  .surface(Surface::internal)
                                  .pointwise(activation(1, 0, [](Values v) {
                                    return 0.5 * v[0] * (1.0 + erf(v[0] * 0.70710678118654752440));
                                  }));

const OpRecord& gelu_tanh_op =
    define("gelu_tanh(Tensor self) -> Tensor")
        .doc("gelu by its tanh approximation.")
        .surface(Surface::internal)
        .pointwise(activation(1, 0, [](Values v) {
          const Value x = v[0];
          return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x))));
        }));

const OpRecord& gelu_op =
    define("gelu(Tensor self, *, str approximate=\"none\") -> Tensor")
        .doc("x times the normal distribution function of x.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const std::string_view a = c[1].string();
          ARETE_CHECK(a == "none" || a == "tanh",
                      ValueError(c.name(), "approximate argument must be either none or tanh.")
                          .argument("approximate")
                          .got(a));
          return {call(a == "none" ? gelu_erf_op : gelu_tanh_op, {c.tensor(0)})};
        });

const OpRecord& silu_op =
    define("silu(Tensor self) -> Tensor")
        .doc("x * sigmoid(x).")
        .surface(Surface::functional)
        .pointwise(activation(1, 0, [](Values v) { return v[0] * sigmoid(v[0]); }))
        .complex(holomorphic([](Complex z) { return z / (1.0 + exp(-z)); },
                             [](Complex z, Complex y) {
                               const Complex s = reciprocal(1.0 + exp(-z));
                               return s + y * (1.0 - s);
                             }))
        .in_place();

// tanh(log(1 + e)) with e = exp(x) is n / (n + 2) with n = e (e + 2), which is 1 beyond 20, in f64,
// too: there e stays what its squares do not overflow with.
PointwiseDef mish_def() {
  PointwiseDef d = activation(1, 0, [](Values v) {
    const Value e = exp(min(v[0], 20.0)), n = e * (e + 2.0);
    return v[0] * (n / (n + 2.0));
  });
  d.gradient = [](Values v) {
    const Value e = exp(min(v[0], 20.0)), n = e * (e + 2.0), r = 1.0 / (n + 2.0);
    const Value slope = n * r + v[0] * ((e * r) * ((e + 1.0) * r)) * 4.0;
    return std::vector{v[2] * where(v[0] > 20.0, 1.0, slope)};
  };
  return d;
}

const OpRecord& mish_op = define("mish(Tensor self) -> Tensor")
                              .doc("x * tanh(softplus(x)).")
                              .surface(Surface::functional)
                              .pointwise(mish_def())
                              .in_place();

const OpRecord& leaky_relu_op =
    define("leaky_relu(Tensor self, float negative_slope=0.01) -> Tensor")
        .functional({"", "leaky_relu_"})
        .doc("x where positive, else negative_slope * x.")
        .surface(Surface::functional)
        .pointwise(by_result(
            activation(1, 1, [](Values v) { return where(v[0] > 0.0, v[0], v[0] * v[1]); }),
            [](Values v) { return where(v[1] > 0.0, v[2], v[2] * v[3]); }))
        .in_place();

const OpRecord& elu_op =
    define("elu(Tensor self, float alpha=1.0) -> Tensor")
        .functional({"", "elu_"})
        .doc("x where positive, else alpha * (exp(x) - 1).")
        .surface(Surface::functional)
        .pointwise(by_result(
            activation(1, 1,
                       [](Values v) {
                         return where(v[0] > 0.0, v[0], v[1] * expm1(negative_part(v[0])));
                       }),
            [](Values v) { return where(v[1] > 0.0, v[2], v[2] * (v[1] + v[3])); }))
        .in_place();

const OpRecord& selu_op =
    define("selu(Tensor self) -> Tensor")
        .functional({"", "selu_"})
        .doc("Self-normalising elu.")
        .pointwise(by_result(
            activation(1, 0,
                       [](Values v) {
                         return kSeluScale *
                                where(v[0] > 0.0, v[0], kSeluAlpha * expm1(negative_part(v[0])));
                       }),
            [](Values v) {
              return v[2] * where(v[1] > 0.0, kSeluScale, v[1] + kSeluScale * kSeluAlpha);
            }))
        .in_place();

const OpRecord& celu_op =
    define("celu(Tensor self, float alpha=1.0) -> Tensor")
        .functional({"", "celu_"})
        .doc("max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).")
        .pointwise(by_result(
            activation(1, 1,
                       [](Values v) {
                         return where(v[0] > 0.0, v[0], v[1] * expm1(negative_part(v[0]) / v[1]));
                       }),
            [](Values v) { return where(v[1] > 0.0, v[2], v[2] * (v[1] / v[3] + 1.0)); }))
        .refuses([](const Call& c) {
          ARETE_CHECK(c.real(1) != 0,
                      ValueError(c.name(), "ZeroDivisionError: alpha cannot be 0 for CELU")
                          .argument("alpha"));
        })
        .in_place();

const OpRecord& softplus_op =
    define("softplus(Tensor self, float beta=1, float threshold=20) -> Tensor")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("log(1 + exp(beta * x)) / beta; x where beta * x > threshold.")
        .surface(Surface::functional)
        .pointwise(activation(1, 2, [](Values v) {
          const Value z = v[0] * v[1];
          return where(z > v[2], v[0], soft_plus(z) / v[1]);
        }));

const OpRecord& softsign_op =
    define("softsign(Tensor self) -> Tensor")
        .doc("x / (1 + |x|).")
        .surface(Surface::functional)
        .pointwise(activation(1, 0, [](Values v) { return v[0] / (1.0 + abs(v[0])); }))
        .complex(of_complex([](Complex z) { return z * (1.0 / (1.0 + abs(z))); }));

// Limited to [low, high]. At the limits the gradient is 0, as in PyTorch.
Value limit(Value x, Value low, Value high) { return min(max(x, low), high); }
PointwiseDef limited(PointwiseDef d, Value (*slope)(Values)) {
  d.gradient = [slope](Values v) { return std::vector{slope(v)}; };
  return d;
}
Value inside(Value x, Value low, Value high, Value g) {
  return where((x <= low) | (x >= high), 0.0, g);
}

const OpRecord& hardtanh_op =
    define("hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor")
        .functional({"", "hardtanh_"})
        .doc("x limited to [min_val, max_val]; integers stay integers.")
        .surface(Surface::functional)
        .pointwise(
            limited(activation(
                        1, 2, [](Values v) { return limit(v[0], v[1], v[2]); }, Result::promote),
                    [](Values v) { return inside(v[0], v[3], v[4], v[2]); }))
        .refuses([](const Call& c) {
          const DType dtype = c.tensor(0).dtype();
          const double low = c.scalar(1).to_double(), high = c.scalar(2).to_double();
          ARETE_CHECK(low <= high,
                      ValueError(c.name(), "min_val cannot be greater than max_val")
                          .got(c.scalar(1).to_string() + " and " + c.scalar(2).to_string()));
          ARETE_CHECK(dtype != kBool,
                      TypeError(c.name(), "Bool inputs not supported for hardtanh"));
          ARETE_CHECK(
              !is_unsigned(dtype) || (low >= 0 && high >= 0),
              ValueError(c.name(), "cannot do hardtanh on an unsigned type with negative limits"));
        })
        .truncates()
        .in_place();

const OpRecord& relu6_op =
    define("relu6(Tensor self) -> Tensor")
        .doc("x limited to [0, 6].")
        .surface(Surface::functional)
        .pointwise(limited(activation(
                               1, 0,
                               [](Values v) {
                                 return limit(v[0], constant_like(v[0], 0), constant_like(v[0], 6));
                               },
                               Result::promote),
                           [](Values v) {
                             return inside(v[0], constant_like(v[0], 0), constant_like(v[0], 6),
                                           v[2]);
                           }))
        .in_place();

const OpRecord& hardsigmoid_op =
    define("hardsigmoid(Tensor self) -> Tensor")
        .doc("x / 6 + 1/2 limited to [0, 1].")
        .surface(Surface::functional)
        .pointwise(limited(activation(1, 0,
                                      [](Values v) {
                                        return limit(v[0] * (1.0 / 6) + 0.5, constant_like(v[0], 0),
                                                     constant_like(v[0], 1));
                                      }),
                           [](Values v) {  // 0 at NaN
                             return where(abs(v[0]) < 3.0, v[2] * (1.0 / 6), 0.0);
                           }))
        .in_place();

const OpRecord& hardswish_op =
    define("hardswish(Tensor self) -> Tensor")
        .doc("x * hardsigmoid(x).")
        .surface(Surface::functional)
        .pointwise(
            limited(activation(1, 0,
                               [](Values v) {
                                 return v[0] * limit(v[0] * (1.0 / 6) + 0.5, constant_like(v[0], 0),
                                                     constant_like(v[0], 1));
                               }),
                    [](Values v) {
                      return where(v[0] <= -3.0, 0.0,
                                   where(v[0] >= 3.0, v[2], v[2] * (v[0] * (1.0 / 3) + 0.5)));
                    }))
        .in_place();

const OpRecord& logsigmoid_op =
    define("logsigmoid(Tensor self) -> Tensor")
        .doc("log(sigmoid(x)).")
        .surface(Surface::functional)
        .pointwise(activation(1, 0, [](Values v) { return -soft_plus(-v[0]); }));

const OpRecord& threshold_op =
    define("threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor")
        .functional({"", "threshold_"})
        .doc("x where x > threshold, else value.")
        .pointwise(activation(
            1, 2, [](Values v) { return where(v[0] <= v[1], v[2], v[0]); }, Result::promote))
        .truncates()
        .in_place();

const OpRecord& tanhshrink_op =
    define("tanhshrink(Tensor self) -> Tensor")
        .doc("x - tanh(x).")
        .surface(Surface::functional)
        .pointwise(activation(1, 0, [](Values v) { return v[0] - tanh(v[0]); }))
        .complex(holomorphic([](Complex z) { return z - tanh(z); },
                             [](Complex z, Complex y) { return (z - y) * (z - y); }));

const OpRecord& softshrink_op =
    define("softshrink(Tensor self, float lambd=0.5) -> Tensor")
        .doc("x moved towards 0 by lambd.")
        .surface(Surface::functional)
        .pointwise(
            limited(activation(1, 1, [](Values v) { return v[0] - limit(v[0], -v[1], v[1]); }),
                    [](Values v) { return where(abs(v[0]) <= v[3], 0.0, v[2]); }))
        .refuses([](const Call& c) {
          ARETE_CHECK(
              c.real(1) >= 0,
              ValueError(c.name(), "lambda must be greater or equal to 0, but found to be " +
                                       Scalar(c.real(1)).to_string() + "."));
        });

const OpRecord& hardshrink_op =
    define("hardshrink(Tensor self, float lambd=0.5) -> Tensor")
        .functional()
        .doc("x where |x| > lambd, else 0.")
        .pointwise(activation(1, 1, [](Values v) { return where(abs(v[0]) <= v[1], 0.0, v[0]); }))
        .rounded_numbers(0b10);

const OpRecord& prelu_kernel_op =
    define("prelu_kernel(Tensor self, Tensor weight) -> Tensor")
        .doc("x where positive, else weight * x; weight broadcasts.")
        .surface(Surface::internal)
        .pointwise(activation(2, 0, [](Values v) { return where(v[0] > 0.0, v[0], v[0] * v[1]); }));

const OpRecord& prelu_op =
    define("prelu(Tensor self, Tensor weight) -> Tensor")
        .functional()
        .autocast(Autocast::lower)
        .doc("x where positive, else weight * x, with one weight or one for each channel.")
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &w = c.tensor(1);
          ARETE_CHECK(
              w.dim() <= 1 && w.numel() > 0,
              ValueError(c.name(),
                         "prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = " +
                             std::to_string(w.dim())));
          if (w.numel() == 1 || x.dim() == 0)
            return {call(prelu_kernel_op, {x, w.dim() && x.dim() == 0 ? w.squeeze(0) : w})};
          const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
          ARETE_CHECK(w.numel() == channels,
                      ValueError(c.name(),
                                 "Mismatch of parameter numbers and input channel size. Found "
                                 "parameter numbers = " +
                                     std::to_string(w.numel()) +
                                     " and channel size = " + std::to_string(channels) + "."));
          Shape sizes(size_t(x.dim() - 1), 1);
          sizes[0] = channels;
          return {call(prelu_kernel_op, {x, w.view(sizes)})};
        });

// One half of a tensor along a dimension: the values, or what gates them.
class Half {
 public:
  Half(const Tensor& x, int dim, bool gate) : sizes_(x.sizes()), view_(view_of(x)) {
    sizes_[size_t(dim)] /= 2;
    view_.sizes = sizes_;
    if (gate)
      view_.data +=
          sizes_[size_t(dim)] * view_.strides[size_t(dim)] * int64_t(size_of(view_.dtype));
  }
  Half(const Half&) = delete;
  const prim::View& view() const { return view_; }

 private:
  Shape sizes_;
  prim::View view_;
};

// Dense strides for half of x in the order of its dimensions, if x is dense.
std::optional<Shape> strides_of_half(const Tensor& x, IntList sizes) {
  if (!x.layout().is_dense()) return strides_like(x, sizes);
  return strides_in_order(memory_order(x.strides()), sizes);
}

const OpRecord& glu_backward_op =
    define("glu_backward(Tensor grad, Tensor self, int dim) -> Tensor")
        .doc("glu's gradient; has none of its own.")
        .surface(Surface::internal)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(1);
          out.push_back({Shape(x.sizes()), x.dtype(), strides_like(x)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          static auto& programs = *new expr::ProgramCache;
          const DType t = out[0].dtype();
          const expr::Program& program =
              programs.get(pack_key({int(t)}), {t, t, t}, {}, {t, t}, [](Values v) {
                const Value s = sigmoid(v[1]);
                return std::vector{v[2] * s, v[2] * v[0] * (s * (1.0 - s))};
              });
          const int dim = int(c.integer(2));
          const Half values(c.tensor(1), dim, false), gate(c.tensor(1), dim, true);
          const Half first(out[0], dim, false), second(out[0], dim, true);
          const prim::View inputs[] = {values.view(), gate.view(), view_of(c.tensor(0))};
          const prim::View outputs[] = {first.view(), second.view()};
          p.pointwise({&program, inputs, outputs, {}});
        });

const OpRecord& glu_op =
    define("glu(Tensor self, int dim=-1) -> Tensor")
        .doc("The first half along dim times the sigmoid of the second.")
        .surface(Surface::functional)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(c.name(), "glu needs a floating dtype").got(describe(x)));
          ARETE_CHECK(x.dim() > 0,
                      ValueError(c.name(), "glu does not support 0-dimensional tensors"));
          const int dim = normalize_dim(c.integer(1), int(x.dim()), c.name());
          const int64_t size = x.size(dim);
          ARETE_CHECK(
              size % 2 == 0,
              ValueError(c.name(), "Halving dimension must be even, but dimension " +
                                       std::to_string(dim) + " is size " + std::to_string(size)));
          Shape sizes(x.sizes());
          sizes[size_t(dim)] /= 2;
          std::optional<Shape> strides = strides_of_half(x, sizes);
          out.push_back({std::move(sizes), x.dtype(), std::move(strides)});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          static auto& programs = *new expr::ProgramCache;
          const DType t = out[0].dtype();
          const expr::Program& program =
              programs.get(pack_key({int(t)}), {t, t}, {}, {t},
                           [](Values v) { return std::vector{v[0] * sigmoid(v[1])}; });
          const Tensor& x = c.tensor(0);
          const int dim = normalize_dim(c.integer(1), int(x.dim()), c.name());
          const Half values(x, dim, false), gate(x, dim, true);
          const prim::View inputs[] = {values.view(), gate.view()}, to = view_of(out[0]);
          p.pointwise({&program, inputs, {&to, 1}, {}});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              const Tensor x = g.input(0), y = g.grad();
              const int dim = normalize_dim(g.integer(1), int(x.dim()), "glu");
              if (!is_grad_enabled()) return {call(glu_backward_op, {y, x, dim})};
              const std::vector<Tensor> halves = split(x, x.size(dim) / 2, dim);
              const Tensor s = halves[1].sigmoid();
              return {cat({y * s, y * halves[0] * (s * (1 - s))}, dim)};
            },
            1);

}  // namespace

const expr::Program& activation_program(prim::Activation activation, DType dtype) {
  static auto& programs = *new expr::ProgramCache;
  ARETE_ASSERT(activation != prim::Activation::none);
  const OpRecord* const op = activation == prim::Activation::relu   ? find_record("relu")
                             : activation == prim::Activation::gelu ? &gelu_erf_op
                                                                    : &gelu_tanh_op;
  return programs.get(pack_key({int(activation), int(dtype)}), {dtype}, {}, {dtype},
                      op->pointwise->definition);
}

}  // namespace ops

Tensor gelu(const Tensor& self, std::string_view approximate) {
  if (approximate == "none") return ops::call(ops::gelu_erf_op, {self});
  if (approximate == "tanh") return ops::call(ops::gelu_tanh_op, {self});
  return ops::call(ops::gelu_op, {self, approximate});
}

#define ARETE_ACTIVATION(name) \
  Tensor name(const Tensor& self) { return ops::call(ops::name##_op, {self}); }
#define ARETE_ACTIVATION_IN_PLACE(name) \
  ARETE_ACTIVATION(name)                \
  Tensor& name##_(Tensor& self) { return ops::call_in_place(self, ops::name##_op, {self}); }
#define ARETE_ACTIVATION_FLOAT(name)                                                         \
  Tensor name(const Tensor& self, double a) { return ops::call(ops::name##_op, {self, a}); } \
  Tensor& name##_(Tensor& self, double a) {                                                  \
    return ops::call_in_place(self, ops::name##_op, {self, a});                              \
  }
#define ARETE_ACTIVATION_SCALARS(name)                             \
  Tensor name(const Tensor& self, Scalar a, Scalar b) {            \
    return ops::call(ops::name##_op, {self, a, b});                \
  }                                                                \
  Tensor& name##_(Tensor& self, Scalar a, Scalar b) {              \
    return ops::call_in_place(self, ops::name##_op, {self, a, b}); \
  }
ARETE_ACTIVATION_IN_PLACE(silu)
ARETE_ACTIVATION_IN_PLACE(mish)
ARETE_ACTIVATION_FLOAT(leaky_relu)
ARETE_ACTIVATION_FLOAT(elu)
ARETE_ACTIVATION_FLOAT(celu)
ARETE_ACTIVATION_IN_PLACE(selu)
ARETE_ACTIVATION(softsign)
ARETE_ACTIVATION_IN_PLACE(relu6)
ARETE_ACTIVATION_IN_PLACE(hardsigmoid)
ARETE_ACTIVATION_IN_PLACE(hardswish)
ARETE_ACTIVATION(logsigmoid)
ARETE_ACTIVATION_SCALARS(threshold)
ARETE_ACTIVATION_SCALARS(hardtanh)
ARETE_ACTIVATION(tanhshrink)
#undef ARETE_ACTIVATION
#undef ARETE_ACTIVATION_IN_PLACE
#undef ARETE_ACTIVATION_FLOAT
#undef ARETE_ACTIVATION_SCALARS

Tensor softplus(const Tensor& self, double beta, double threshold) {
  return ops::call(ops::softplus_op, {self, beta, threshold});
}
Tensor prelu(const Tensor& self, const Tensor& weight) {
  return ops::call(ops::prelu_op, {self, weight});
}
Tensor glu(const Tensor& self, int64_t dim) { return ops::call(ops::glu_op, {self, dim}); }
Tensor softshrink(const Tensor& self, double lambd) {
  return ops::call(ops::softshrink_op, {self, lambd});
}
Tensor hardshrink(const Tensor& self, double lambd) {
  return ops::call(ops::hardshrink_op, {self, lambd});
}

}  // namespace arete

ARETE_FAMILY(activation)
