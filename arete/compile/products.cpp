// What products do on their way out, instead of calls of their own.
#include <algorithm>

#include "arete/compile/graph_internal.h"
#include "arete/compile/plan.h"
#include "arete/expr/value.h"
#include "arete/ops/activation_program_internal.h"
#include "arete/prim/backend.h"

namespace arete::compile {
namespace {

using prim::Access;
using prim::Activation;
using prim::GemmArgs;
using prim::PointwiseArgs;
using prim::Primitive;
using prim::View;

/// What a call does to each element of a product.
struct End {
  enum class Kind : uint8_t { widen, activate, differentiate } kind;
  Activation activation = Activation::none;
  const View* product;
  const View* input = nullptr;  // of the activation, where it is differentiated
  const View* out;
};

std::optional<End> end_of(const prim::RecordedCall& call) {
  if (call.primitive() == Primitive::copy) {
    const auto& c = *static_cast<const prim::CopyArgs*>(call.args());
    if (is_half(c.in.dtype) && c.out.dtype == kFloat32)
      return End{End::Kind::widen, Activation::none, &c.in, nullptr, &c.out};
  }
  if (call.primitive() != Primitive::pointwise) return std::nullopt;
  const auto& e = *static_cast<const PointwiseArgs*>(call.args());
  if (e.outputs.size() != 1 || e.program->tables() || !e.slots.empty()) return std::nullopt;
  const View& out = e.outputs[0];
  const expr::Instruction& last = e.program->code()[size_t(e.program->outputs()[0].value)];
  if (e.inputs.size() == 1 && is_half(e.inputs[0].dtype) && out.dtype == kFloat32 &&
      last.op == expr::Op::input)
    return End{End::Kind::widen, Activation::none, &e.inputs[0], nullptr, &out};
  const DType dtype = out.dtype;
  if (!(is_half(dtype) || dtype == kFloat32) || !e.params.empty() || e.inputs.size() > 2)
    return std::nullopt;
  if (e.program == &ops::activation_program(Activation::relu, dtype))
    return End{End::Kind::activate, Activation::relu, &e.inputs[0], nullptr, &out};
  const expr::Program& gelu = ops::activation_program(Activation::gelu_tanh, dtype);
  if (e.program == &gelu)
    return End{End::Kind::activate, Activation::gelu_tanh, &e.inputs[0], nullptr, &out};
  const expr::Derivative& d = gelu.derivative(1);
  if (e.program != d.program.get() || e.inputs.size() != 2) return std::nullopt;
  const bool first = d.inputs[0].from == expr::DerivativeInput::From::grad;
  return End{End::Kind::differentiate, Activation::gelu_tanh, &e.inputs[first ? 0 : 1],
             &e.inputs[first ? 1 : 0], &out};
}

bool is_plain(const GemmArgs& g) { return is_bare(g) && g.out.is_contiguous(); }

/// The elements of a contiguous view in the form of a product's result.
View in_form_of(const GemmArgs& g, const View& v) {
  return View(v.data, v.dtype, g.out.sizes, g.out.strides, v.storage);
}

}  // namespace

// A product in a half type that is only converted is made in f32, and one that is only activated
// is stored activated. (Rounded once instead of twice.)
void Plan::end_products(Buffers& buffers) {
  std::vector<std::vector<Use>> uses;
  for (const Step& step : steps_) uses.push_back(uses_of(*step.call, buffers));
  const auto use_of = [&](const View& v, Access access) {
    std::vector<Use> one;
    buffers.add_use(one, v, access);
    return one.empty() ? Use{-1, 0, 0, access} : one[0];
  };
  for (size_t k = 0; k < steps_.size(); ++k) {
    const std::optional<End> end = end_of(*steps_[k].call);
    if (!end || !end->product->is_contiguous() || !end->out->is_contiguous() ||
        (end->input && !end->input->is_contiguous()))
      continue;
    const Use from = use_of(*end->product, Access::read), to = use_of(*end->out, Access::write);
    if (from.buffer < 0 || to.buffer < 0 || from.buffer == to.buffer ||
        !buffers[from.buffer].storage)
      continue;
    // The step that makes the product, and whether others want it, too.
    size_t j = k;
    while (j-- > 0 && (!steps_[j].call || std::ranges::none_of(uses[j], [&](const Use& u) {
             return u.buffer == from.buffer && u.access != Access::read;
           }))) {
    }
    if (j >= k || steps_[j].call->primitive() != Primitive::gemm ||
        steps_[j].call->device() != steps_[k].call->device())
      continue;
    const auto& g = *static_cast<const GemmArgs*>(steps_[j].call->args());
    if (!is_plain(g) || g.out.data != end->product->data ||
        g.out.numel() != end->product->numel() || g.out.dtype != end->product->dtype)
      continue;
    bool is_wanted = !buffers[from.buffer].temporary, may = true;
    const Use input = end->input ? use_of(*end->input, Access::read) : Use{-1, 0, 0, Access::read};
    for (size_t i = 0; i < steps_.size() && may; ++i)
      for (const Use& u : uses[i]) {
        if (i != j && i != k && u.buffer == from.buffer) {
          is_wanted = true;
          may = may && u.access == Access::read;
        }
        // Nobody needs the place before, or changes what is read.
        if (i >= j && i < k) may = may && !overlap(u, to) && !(end->input && collide(u, input));
      }
    if (!may || (end->input && overlap(input, to))) continue;
    GemmArgs product = g;
    product.out = in_form_of(g, *end->out);
    const prim::Backend& backend = prim::backend_for(steps_[j].call->device());
    if (end->kind == End::Kind::widen) {
      if (is_wanted || g.bias || g.a.dtype != g.out.dtype) continue;
    } else {
      if (!backend.has_epilogue(end->activation, g.out.dtype)) continue;
      if (end->kind == End::Kind::differentiate && (is_wanted || g.bias)) continue;
      // What a product was before its negative elements went, the library does not store.
      if (end->activation == Activation::relu && is_wanted) continue;
      product.activation = end->activation;
      product.differentiate = end->kind == End::Kind::differentiate;
      if (product.differentiate)
        product.aux = in_form_of(g, *end->input);
      else if (is_wanted)
        product.aux = g.out;
    }
    steps_[j].call = prim::as_recorded(steps_[j].call->device(), product);
    steps_[j].calls += steps_[k].calls;
    std::ranges::copy(steps_[k].numbers, std::back_inserter(steps_[j].numbers));
    steps_[k].call.reset();
    uses[k].clear();
    uses[j] = uses_of(*steps_[j].call, buffers);
  }
  std::erase_if(steps_, [](const Step& s) { return !s.call; });
}

}  // namespace arete::compile
