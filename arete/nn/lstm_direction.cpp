#include "arete/autograd/function.h"
#include "arete/core/modes.h"
#include "arete/expr/value.h"
#include "arete/nn/rnn_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete::nn {

// Note [An LSTM direction as one function]
// With one node for each operator of each step, backward would make and add up a gradient of the
// whole weight_hh in every step. As one function of all steps only the recurrence itself remains in
// the loop; each weight's gradient is one product over all steps. Beside the outputs h the function
// gives the cell states c and the gates before their activation. All three are outputs, so that
// backward, which is written in operators, reads them with their history: it can be differentiated
// again.

namespace {

using expr::Value;

enum Input : uint8_t { kX, kH, kC, kWeightIh, kWeightHh, kBiasIh, kBiasHh };

Tensor stacked_before(const Tensor& states, const Tensor& first, bool reverse) {
  const int64_t rest = states.size(0) - 1;
  const Tensor start = first.unsqueeze(0);
  return reverse ? cat({states.narrow(0, 1, rest), start}, 0)
                 : cat({start, states.narrow(0, 0, rest)}, 0);
}

std::vector<Tensor> forward(autograd::Context& context, const std::vector<Tensor>& in,
                            bool reverse) {
  const Tensor bias = in[kBiasIh].defined() ? in[kBiasIh].add(in[kBiasHh]) : Tensor();
  const Tensor gates = linear(in[kX], in[kWeightIh], bias);
  const int64_t steps = gates.size(0);
  std::vector<Tensor> h(static_cast<size_t>(steps)), c(static_cast<size_t>(steps));
  Tensor last_h = in[kH], last_c = in[kC];
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    Tensor now = gates.select(0, t);
    now.add_(linear(last_h, in[kWeightHh]));
    const LSTMState next = lstm_step(now, last_c);
    h[size_t(t)] = last_h = next.h;
    c[size_t(t)] = last_c = next.c;
  }
  const std::vector<Tensor> outputs{stack(h, 0), stack(c, 0), gates};
  context.save_for_backward(
      {in[kX], in[kH], in[kC], in[kWeightIh], in[kWeightHh], outputs[0], outputs[1], outputs[2]});
  return outputs;
}

// Gates i, f, g, o, the cell state before and after, the gradients of h (from outside and from the
// next step) and of c -> the gradients of the gates and of the cell state before.
std::vector<Value> step_backward(std::span<const Value> v) {
  const Value i = sigmoid(v[0]), f = sigmoid(v[1]), g = tanh(v[2]), o = sigmoid(v[3]);
  const Value shown = tanh(v[5]), h = v[6] + v[7], c = v[8] + h * o * (1.0 - shown * shown);
  return {c * g * i * (1.0 - i), c * v[4] * f * (1.0 - f), c * i * (1.0 - g * g),
          h * shown * o * (1.0 - o), c * f};
}

std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& gradients,
                             bool reverse) {
  const std::vector<Tensor> saved = context.saved_tensors();
  const Tensor &x = saved[kX], &weight_hh = saved[kWeightHh];
  const Tensor &h = saved[5], &c = saved[6], &gates = saved[7];
  const DType dtype = x.dtype();
  static StepPrograms programs(step_backward);
  const int64_t steps = x.size(0);
  const std::vector<Tensor> before = stacked_before(c, saved[kC], reverse).unbind(0),
                            after = c.unbind(0), at = gates.unbind(0);
  const auto parts = [&](const Tensor& g) {
    return g.defined() ? g.unbind(0) : std::vector<Tensor>();
  };
  const auto from_h = parts(gradients[0]), from_c = parts(gradients[1]),
             from_gates = parts(gradients[2]);
  const Tensor nothing = zeros(saved[kH].sizes(), x.options());
  Tensor next_h = nothing, next_c = nothing;
  std::vector<Tensor> all(static_cast<size_t>(steps));
  for (int64_t i = steps; i-- > 0;) {
    const auto t = size_t(reverse ? steps - 1 - i : i);
    std::vector<Tensor> inputs = at[t].chunk(4, -1);
    inputs.insert(inputs.end(), {before[t], after[t], from_h.empty() ? nothing : from_h[t], next_h,
                                 from_c.empty() ? next_c : next_c + from_c[t]});
    const auto r = ops::apply_program(programs.get(inputs, {dtype, dtype, dtype, dtype, dtype}),
                                      inputs, {}, "lstm_step_backward");
    Tensor g = cat({r[0], r[1], r[2], r[3]}, -1);
    if (!from_gates.empty()) g = g + from_gates[t];
    all[t] = g;
    next_h = g.matmul(weight_hh);
    next_c = r[4];
  }
  const Tensor g = stack(all, 0), rows = g.flatten(0, 1).t();
  const Tensor bias = context.needs_input_grad(kBiasIh) || context.needs_input_grad(kBiasHh)
                          ? g.sum({0, 1})
                          : Tensor();
  Tensor of_x, of_weight_ih, of_weight_hh;
  if (context.needs_input_grad(kX)) of_x = g.matmul(saved[kWeightIh]);
  if (context.needs_input_grad(kWeightIh)) of_weight_ih = rows.matmul(x.flatten(0, 1));
  if (context.needs_input_grad(kWeightHh))
    of_weight_hh = rows.matmul(stacked_before(h, saved[kH], reverse).flatten(0, 1));
  return {of_x, next_h, next_c, of_weight_ih, of_weight_hh, bias, bias};
}

}  // namespace

bool can_run_lstm(const DirectionWeights& w, const Tensor& x, const Tensor& h, const Tensor& c) {
  const DType t = x.dtype();
  return is_grad_enabled() && !(modes().word & Modes::kCapture) && !w.hr.defined() &&
         w.bias_ih.defined() == w.bias_hh.defined() && w.ih.dtype() == t && w.hh.dtype() == t &&
         h.dtype() == t && c.dtype() == t;
}

Tensor run_lstm(const DirectionWeights& w, const Tensor& x, bool reverse, Tensor& h, Tensor& c) {
  autograd::FunctionDef def;
  def.name = "lstm";
  def.forward = [reverse](autograd::Context& context, const std::vector<Tensor>& in) {
    return forward(context, in, reverse);
  };
  def.backward = [reverse](autograd::Context& context, const std::vector<Tensor>& gradients) {
    return backward(context, gradients, reverse);
  };
  def.materialize_grads = false;
  const std::vector<Tensor> r = autograd::apply(def, {x, h, c, w.ih, w.hh, w.bias_ih, w.bias_hh});
  const int64_t last = reverse ? 0 : x.size(0) - 1;
  h = r[0].select(0, last);
  c = r[1].select(0, last);
  return r[0];
}

}  // namespace arete::nn
