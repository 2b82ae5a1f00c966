// The parts of a matrix product beyond alpha * a @ b + beta * c + bias and its activation, as
// passes of their own.
#include <array>
#include <optional>
#include <vector>

#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/expr/program_cache.h"
#include "arete/prim/decompose/gemm_internal.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::prim {
namespace {

using expr::Value;

// Which program finishes a product.
struct Finish {
  DType from, to;
  Activation activation;
  bool differentiate, bias, aux, a_scale, b_scale;
  uint64_t key() const {
    return pack_key(
        {int(from), int(to), int(activation), differentiate, bias, aux, a_scale, b_scale});
  }
};

Value activated(Activation act, const Value& x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::relu:
      return where(x < 0.0, 0.0, x);  // NaN stays
    case Activation::gelu:
      return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
    case Activation::gelu_tanh:
      return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x))));
  }
  __builtin_unreachable();
}

// grad * activation'(x).
Value differentiated(Activation act, const Value& x, const Value& grad) {
  switch (act) {
    case Activation::none:
      return grad;
    case Activation::relu:
      return where(x <= 0.0, 0.0, grad);  // of NaN as of a positive number
    case Activation::gelu: {
      const Value cdf = 0.5 * (1.0 + erf(x * 0.70710678118654752440));
      const Value density = 0.39894228040143267794 * exp(-0.5 * (x * x));
      return grad * (cdf + x * density);
    }
    case Activation::gelu_tanh: {
      const Value t = tanh(0.79788456080286535588 * (x + 0.044715 * (x * x * x)));
      const Value slope = 0.79788456080286535588 * (1.0 + 3.0 * 0.044715 * (x * x));
      return grad * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope);
    }
  }
  __builtin_unreachable();
}

/// (product [, a_scale] [, b_scale] [, bias or aux]) -> [aux,] out.
const expr::Program& finish_program(const Finish& f) {
  static auto& cache = *new expr::ProgramCache;  // used until exit
  std::vector<DType> inputs{f.from}, outputs{f.to};
  for (bool scale : {f.a_scale, f.b_scale})
    if (scale) inputs.push_back(kFloat32);
  if (f.bias || f.differentiate) inputs.push_back(f.to);
  if (f.aux && !f.differentiate) outputs.push_back(f.to);
  return cache.get(f.key(), inputs, {}, outputs, [&](std::span<const Value> in) {
    size_t i = 1;
    Value x = in[0];
    for (bool scale : {f.a_scale, f.b_scale})
      if (scale) x = x * in[i++];
    if (f.differentiate) return std::vector{differentiated(f.activation, in[i], x)};
    if (f.bias) x = x + in[i];
    const Value y = activated(f.activation, x);
    return f.aux ? std::vector{x, y} : std::vector{y};
  });
}

}  // namespace

bool has_parts(const GemmArgs& g) {
  return g.differentiate || g.a_sum || g.a_scale || g.b_scale || g.has_programs() ||
         has_bias_of_each(g);
}

namespace {
/// A product of a batch, or a view of that one: of the first dimension, which may be broadcast.
class OneOf {
 public:
  OneOf(const View& v, int64_t number) : view_(v) {
    if (!v) return;
    if (v.sizes[0] != 1) view_.data += number * v.strides[0] * int64_t(size_of(v.dtype));
    view_.sizes = v.sizes.subspan(1), view_.strides = v.strides.subspan(1);
  }
  operator View() const { return view_; }

 private:
  View view_;
};

// One after the other, until there is one row of the bias for each.
void gemm_one_by_one(Primitives& p, const GemmArgs& g) {
  for (int64_t i = 0; i < g.out.sizes[0]; ++i) {
    GemmArgs one = g;
    one.a = OneOf(g.a, i), one.b = OneOf(g.b, i), one.out = OneOf(g.out, i);
    one.bias = OneOf(g.bias, i), one.aux = OneOf(g.aux, i);
    if (one.out.rank() == 2)  // (1, columns)
      one.bias.sizes = one.bias.sizes.subspan(1), one.bias.strides = one.bias.strides.subspan(1);
    p.gemm(one);
  }
}
}  // namespace

void sum_rows(Primitives& p, const View& in, const View& out) {
  const LayoutView column(out, Layout(Shape{in.sizes[0], 1}, Shape{out.strides[0], 0}));
  ReduceArgs r{};
  r.monoid = Monoid::sum;
  r.space = in.sizes;
  r.reduced = 2;
  r.inputs = {&in, 1};
  r.out = column;
  p.reduce(r);
}

void gemm_in_parts(Primitives& p, const GemmArgs& g) {
  if (g.has_programs()) return gemm_with_programs(p, g);
  if (has_bias_of_each(g)) return gemm_one_by_one(p, g);
  ARETE_ASSERT(!g.differentiate || (g.aux && !g.bias && g.beta == 0));
  ARETE_ASSERT(!g.a_sum || (g.out.rank() == 2 && g.a_sum.dtype == g.a.dtype));
  if (g.a_sum) sum_rows(p, g.a, g.a_sum);
  GemmArgs inner = g;
  inner.a_sum = inner.a_scale = inner.b_scale = View{};
  const bool scaled = g.a_scale || g.b_scale;
  if (!scaled && !g.differentiate) return p.gemm(inner);

  ARETE_ASSERT(g.beta == 0);
  inner.bias = inner.aux = View{};
  inner.activation = Activation::none;
  inner.differentiate = false;
  // Rounded once, at the end.
  std::optional<ScratchView> wide;
  if (is_reduced_float(g.out.dtype)) inner.out = wide.emplace(p, kFloat32, g.out.sizes);
  p.gemm(inner);
  finish_gemm(p, inner.out, g);
}

void finish_gemm(Primitives& p, const View& product, const GemmArgs& g) {
  if (const ElementProgram& last = g.result_program) {
    SmallVector<View, 8> inputs{product};
    inputs.append(last.inputs.begin(), last.inputs.end());
    return p.pointwise({.program = last.program,
                        .inputs = {inputs.data(), inputs.size()},
                        .outputs = {&g.out, 1},
                        .params = last.params,
                        .slots = last.slots});
  }
  const Finish finish{product.dtype, g.out.dtype, g.activation,    g.differentiate,
                      bool(g.bias),  bool(g.aux), bool(g.a_scale), bool(g.b_scale)};
  SmallVector<View, 5> inputs{product};
  SmallVector<View, 2> outputs;
  for (const View* scale : {&g.a_scale, &g.b_scale})
    if (*scale) inputs.push_back(*scale);
  if (g.differentiate)
    inputs.push_back(g.aux);
  else if (finish.bias)
    inputs.push_back(g.bias);
  if (finish.aux && !g.differentiate) outputs.push_back(g.aux);
  outputs.push_back(g.out);
  p.pointwise({&finish_program(finish),
               {inputs.data(), inputs.size()},
               {outputs.data(), outputs.size()},
               {}});
}

}  // namespace arete::prim
