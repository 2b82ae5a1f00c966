#include <algorithm>

#include "arete/autograd/function.h"
#include "arete/core/modes.h"
#include "arete/core/tracing.h"
#include "arete/expr/value.h"
#include "arete/nn/rnn_internal.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/multi.h"
#include "arete/ops/nn.h"
#include "arete/ops/shape.h"

namespace arete::nn {

// Note [A direction as one function]
// With one node for each operator of each step, backward would make and add up a gradient of the
// whole weight_hh in every step. As one function of all steps only the recurrence itself remains in
// the loop, a product and a program in each step, which write where their results stay; each
// weight's gradient is one product over all steps. Beside the states h (and c) the function gives
// the gates' shares before their activation, those of the state by themselves for a GRU, whose
// state passes by a gate on its own. All are outputs, so that backward reads them with their
// history: where that is recorded it is written in operators, and can be differentiated again.

namespace {

using expr::Value;
using Values = std::vector<Value>;

enum Input : uint8_t { kX, kH, kC, kWeightIh, kWeightHh, kBiasIh, kBiasHh };

// ---- the steps

Values rnn_tanh(std::span<const Value> v) { return {tanh(v[0])}; }
Values rnn_relu(std::span<const Value> v) { return {max(v[0], 0.0)}; }

// The state, the gradients of h from outside and from the next step -> that of the gates.
Values rnn_tanh_backward(std::span<const Value> v) { return {(v[1] + v[2]) * (1.0 - v[0] * v[0])}; }
Values rnn_relu_backward(std::span<const Value> v) { return {where(v[0] > 0.0, v[1] + v[2], 0.0)}; }

// Gates i, f, g, o, the cell state before and after, the gradients of h (from outside and from the
// next step) and of c -> the gradients of the gates and of the cell state before.
Values lstm_backward(std::span<const Value> v) {
  const Value i = sigmoid(v[0]), f = sigmoid(v[1]), g = tanh(v[2]), o = sigmoid(v[3]);
  const Value shown = tanh(v[5]), h = v[6] + v[7];
  const Value c = v[8] + h * o * (1.0 - shown * shown);
  return {c * g * i * (1.0 - i), c * v[4] * f * (1.0 - f), c * i * (1.0 - g * g),
          h * shown * o * (1.0 - o), c * f};
}

// The same with the gradients of c from outside and from the next step apart: too many operands to
// be differentiated.
Values lstm_backward_in_place(std::span<const Value> v) {
  Values summed(v.begin(), v.begin() + 8);
  summed.push_back(v[8] + v[9]);
  return lstm_backward(summed);
}

// The shares of the input and of the state in the gates r, z, n, the state before, the gradients of
// h (from outside and from the next step) -> the gradients of the input's shares, of the state's
// share in n (those in r and z are the input's), and of the state by the gate z.
Values gru_backward(std::span<const Value> v) {
  const Value r = sigmoid(v[0] + v[3]), z = sigmoid(v[1] + v[4]), n = tanh(v[2] + r * v[5]);
  const Value h = v[7] + v[8], of_n = h * (1.0 - z) * (1.0 - n * n);
  return {of_n * v[5] * r * (1.0 - r), h * (v[6] - n) * z * (1.0 - z), of_n, of_n * r, h * z};
}
// The same with the gradients of all the state's shares, in their order.
Values gru_backward_in_place(std::span<const Value> v) {
  const Values g = gru_backward(v);
  return {g[0], g[1], g[2], g[0], g[1], g[3], g[4]};
}

struct Cell {
  const char* forward_name;
  StepPrograms forward;
  const char* backward_name;
  StepPrograms backward, backward_in_place;
};
Cell& cell_of(Recurrence kind) {
  static Cell rnn_of_tanh{"rnn_tanh_step", StepPrograms(rnn_tanh), "rnn_tanh_step_backward",
                          StepPrograms(rnn_tanh_backward), StepPrograms(rnn_tanh_backward)};
  static Cell rnn_of_relu{"rnn_relu_step", StepPrograms(rnn_relu), "rnn_relu_step_backward",
                          StepPrograms(rnn_relu_backward), StepPrograms(rnn_relu_backward)};
  static Cell gru{"gru_step", StepPrograms(gru_values), "gru_step_backward",
                  StepPrograms(gru_backward), StepPrograms(gru_backward_in_place)};
  static Cell lstm{"lstm_step", StepPrograms(lstm_values), "lstm_step_backward",
                   StepPrograms(lstm_backward), StepPrograms(lstm_backward_in_place)};
  return kind == Recurrence::lstm   ? lstm
         : kind == Recurrence::gru  ? gru
         : kind == Recurrence::relu ? rnn_of_relu
                                    : rnn_of_tanh;
}

using Views = SmallVector<prim::View, 16>;

// Without history: the results go to where they stay.
void run_step(const char* name, const expr::Program& program, Device device, const Views& inputs,
              const Views& places) {
  ops::run_program(name, program, device, {inputs.data(), inputs.size()},
                   {places.data(), places.size()});
}
void run_step(const char* name, StepPrograms& programs, const std::vector<Tensor>& inputs,
              const std::vector<Tensor>& places) {
  const std::vector<DType> dtypes(places.size(), places[0].dtype());
  Views in, out;
  for (const Tensor& t : inputs) in.push_back(ops::view_of(t));
  for (const Tensor& t : places) out.push_back(ops::view_of(t));
  run_step(name, *programs.get(inputs, dtypes), places[0].device(), in, out);
}

// The gates' parts of one step's (N, gates * hidden), as primitives see them: tensors made of them
// in each step would cost the host more than all the rest.
class Gates {
 public:
  Gates(int64_t batch, int64_t count, int64_t hidden) {
    for (int64_t k = 0; k < count; ++k)
      parts_.push_back(Layout(Shape{batch, hidden}, Shape{count * hidden, 1}, k * hidden));
  }
  Gates(const Gates&) = delete;
  // Of a dense tensor that begins with this step.
  void append_to(Views& views, const Tensor& of) const {
    for (const Layout& part : parts_) {
      prim::View v = ops::view_of(of, part);
      v.data += of.storage_offset() * int64_t(of.element_size());
      views.push_back(v);
    }
  }

 private:
  SmallVector<Layout, 4> parts_;
};

// to = beta * to + a @ b
void add_product(Tensor& to, const Tensor& a, const Tensor& b, int64_t beta) {
  static const ops::OpRecord& addmm = *ops::find_record("addmm");
  ops::call_in_place(to, addmm, {to, a, b, Scalar(beta), Scalar(1)});
}

void append(std::vector<Tensor>& to, const std::vector<Tensor>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// The state before each step.
std::vector<Tensor> before(const Tensor& states, const Tensor& first, bool reverse) {
  std::vector<Tensor> all = states.unbind(0);
  if (reverse) {
    all.erase(all.begin());
    all.push_back(first);
  } else {
    all.pop_back();
    all.insert(all.begin(), first);
  }
  return all;
}

// ---- all steps

// The states h of all steps and what backward reads beside them: nothing, the gates' shares and c
// of all steps, or the inputs' and the states' shares in the gates.
struct Steps {
  std::vector<Tensor> kept;
  Tensor c;  // after the last step
};

// Without `keep` nothing but h is there of all steps.
Steps run_steps(Recurrence kind, const std::vector<Tensor>& in, bool reverse, bool keep) {
  const bool is_gru = kind == Recurrence::gru, is_lstm = kind == Recurrence::lstm;
  const Tensor &weight = in[kWeightHh], &bias_hh = in[kBiasHh];
  Tensor bias = in[kBiasIh];
  if (bias.defined() && !is_gru) bias = bias.add(bias_hh);
  const Tensor gates = linear(in[kX], in[kWeightIh], bias);
  const int64_t steps = in[kX].size(0), batch = in[kX].size(1), hidden = weight.size(1);
  const TensorOptions options = in[kX].options();
  const Tensor states = empty({steps, batch, hidden}, options);
  Tensor shares, cells;
  if (is_gru && keep) {
    shares = empty(gates.sizes(), options);
    if (bias_hh.defined()) shares.copy_(bias_hh.expand(gates.sizes()));
  }
  if (is_lstm && keep) cells = empty({steps, batch, hidden}, options);
  Cell& cell = cell_of(kind);
  const Gates parts(batch, weight.size(0) / hidden, hidden);
  const std::vector<Tensor> like(is_gru ? 7 : is_lstm ? 5 : 1, states);  // all have one dtype
  const expr::ProgramPtr program =
      cell.forward.get(like, std::vector<DType>(is_lstm ? 2 : 1, states.dtype()));
  const Tensor transposed = weight.t();
  Tensor last_h = in[kH], last_c = is_lstm && !keep ? in[kC].clone() : in[kC], next_c = last_c;
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    Tensor now = gates.select(0, t);
    const Tensor next_h = states.select(0, t);
    Views inputs, places{ops::view_of(next_h)};
    if (is_gru) {
      Tensor share;
      if (keep) {
        share = shares.select(0, t);
        add_product(share, last_h, transposed, bias_hh.defined() ? 1 : 0);
      } else {
        share = linear(last_h, weight, bias_hh);
      }
      parts.append_to(inputs, now);
      parts.append_to(inputs, share);
      inputs.push_back(ops::view_of(last_h));
      run_step(cell.forward_name, *program, states.device(), inputs, places);
    } else {
      add_product(now, last_h, transposed, 1);
      parts.append_to(inputs, now);
      if (is_lstm) {
        if (keep) next_c = cells.select(0, t);
        inputs.push_back(ops::view_of(last_c));
        places.push_back(ops::view_of(next_c));
      }
      run_step(cell.forward_name, *program, states.device(), inputs, places);
      last_c = next_c;
    }
    last_h = next_h;
  }
  if (is_gru) return {{states, gates, shares}, {}};
  if (is_lstm) return {{states, gates, cells}, last_c};
  return {{states}, {}};
}

std::vector<Tensor> backward(autograd::Context& context, const std::vector<Tensor>& gradients,
                             Recurrence kind, bool reverse) {
  const bool is_gru = kind == Recurrence::gru, is_lstm = kind == Recurrence::lstm;
  const bool record = is_grad_enabled();
  const std::vector<Tensor> saved = context.saved_tensors();
  const RecurrentPrecision precision(saved[kX]);
  const Tensor &x = saved[kX], &weight_hh = saved[kWeightHh];
  const Tensor& h = saved[kBiasIh];  // the outputs follow the inputs but for the biases
  const int64_t steps = x.size(0), n_gates = weight_hh.size(0) / weight_hh.size(1);
  const auto parts = [](bool there, const std::vector<Tensor>& of, size_t i) {
    return there && of[i].defined() ? of[i].unbind(0) : std::vector<Tensor>();
  };
  const std::vector<Tensor> h_before = before(h, saved[kH], reverse), h_after = h.unbind(0),
                            at = parts(is_lstm || is_gru, saved, kBiasIh + 1),
                            state_at = parts(is_gru, saved, kBiasIh + 2),
                            c_after = parts(is_lstm, saved, kBiasIh + 2),
                            from_h = parts(true, gradients, 0),
                            from_gates = parts(is_lstm || is_gru, gradients, 1),
                            from_shares = parts(is_gru, gradients, 2),
                            from_c = parts(is_lstm, gradients, 2);
  std::vector<Tensor> c_before;
  if (is_lstm) c_before = before(saved[kBiasIh + 2], saved[kC], reverse);
  const Tensor nothing = zeros(saved[kH].sizes(), x.options());
  Tensor next_h = nothing, next_c = nothing;
  Cell& cell = cell_of(kind);
  const auto with = [](const Tensor& g, const std::vector<Tensor>& more, size_t t) {
    return more.empty() ? g : g + more[t];
  };
  // Of the inputs' shares, and of the states', which are the same but for a GRU.
  Tensor all, all_state;
  std::vector<Tensor> steps_of_all(static_cast<size_t>(steps)), steps_of_state = steps_of_all;
  if (!record) {
    all = empty({steps, x.size(1), weight_hh.size(0)}, x.options());
    if (is_gru) all_state = empty(all.sizes(), x.options());
  }
  for (int64_t i = steps; i-- > 0;) {
    const auto t = size_t(reverse ? steps - 1 - i : i);
    std::vector<Tensor> inputs;
    if (is_lstm || is_gru) inputs = at[t].chunk(n_gates, -1);
    if (is_gru) append(inputs, state_at[t].chunk(3, -1));
    if (is_lstm) append(inputs, {c_before[t], c_after[t]});
    if (is_gru) inputs.push_back(h_before[t]);
    if (inputs.empty()) inputs.push_back(h_after[t]);
    append(inputs, {from_h.empty() ? nothing : from_h[t], next_h});
    if (is_lstm && record) inputs.push_back(with(next_c, from_c, t));
    if (is_lstm && !record) append(inputs, {from_c.empty() ? nothing : from_c[t], next_c});

    Tensor of_gates, of_state, direct;
    if (record) {
      const DType dtype = x.dtype();
      const std::vector<DType> dtypes(is_gru || is_lstm ? 5 : 1, dtype);
      const auto r =
          ops::apply_program(cell.backward.get(inputs, dtypes), inputs, {}, cell.backward_name);
      of_gates = is_lstm  ? cat({r[0], r[1], r[2], r[3]}, -1)
                 : is_gru ? cat({r[0], r[1], r[2]}, -1)
                          : r[0];
      of_gates = with(of_gates, from_gates, t);
      of_state = is_gru ? with(cat({r[0], r[1], r[3]}, -1), from_shares, t) : of_gates;
      if (is_gru || is_lstm) direct = r[4];
      steps_of_all[t] = of_gates, steps_of_state[t] = of_state;
    } else {
      of_gates = all.select(0, int64_t(t));
      of_state = is_gru ? all_state.select(0, int64_t(t)) : of_gates;
      std::vector<Tensor> places =
          is_lstm || is_gru ? of_gates.chunk(n_gates, -1) : std::vector<Tensor>{of_gates};
      if (is_gru) append(places, of_state.chunk(3, -1));
      if (is_gru || is_lstm) places.push_back(direct = empty_like(nothing));
      run_step(cell.backward_name, cell.backward_in_place, inputs, places);
      if (!from_gates.empty()) of_gates.add_(from_gates[t]);
      if (!from_shares.empty()) of_state.add_(from_shares[t]);
    }
    next_h = is_gru ? direct.addmm(of_state, weight_hh) : of_state.mm(weight_hh);
    if (is_lstm) next_c = direct;
  }
  if (record) {
    all = stack(steps_of_all, 0);
    if (is_gru) all_state = stack(steps_of_state, 0);
  }
  if (!is_gru) all_state = all;

  const auto transposed_rows = [](const Tensor& t) { return t.flatten(0, 1).t(); };
  Tensor of_x, of_weight_ih, of_weight_hh, of_bias_ih, of_bias_hh;
  if (context.needs_input_grad(kX)) of_x = all.matmul(saved[kWeightIh]);
  if (context.needs_input_grad(kWeightIh))
    of_weight_ih = transposed_rows(all).matmul(x.flatten(0, 1));
  if (context.needs_input_grad(kWeightHh)) {
    // The states before all steps but the first lie side by side already.
    of_weight_hh = all_state.select(0, reverse ? steps - 1 : 0).t().mm(saved[kH]);
    if (steps > 1)
      of_weight_hh =
          of_weight_hh.addmm(transposed_rows(all_state.narrow(0, reverse ? 0 : 1, steps - 1)),
                             h.narrow(0, reverse ? 1 : 0, steps - 1).flatten(0, 1));
  }
  if (context.needs_input_grad(kBiasIh)) of_bias_ih = all.sum({0, 1});
  if (context.needs_input_grad(kBiasHh))
    of_bias_hh = !is_gru && of_bias_ih.defined() ? of_bias_ih : all_state.sum({0, 1});
  return {of_x,       next_h,    is_lstm ? next_c : Tensor(), of_weight_ih, of_weight_hh,
          of_bias_ih, of_bias_hh};
}

}  // namespace

bool can_run_at_once(const DirectionWeights& w, const Tensor& x, const std::vector<Tensor>& state) {
  const DType t = x.dtype();
  bool same = w.ih.dtype() == t && w.hh.dtype() == t;
  for (const Tensor& s : state) same = same && s.dtype() == t;
  return same && is_floating(t) && !(modes().word & Modes::kCapture) && !w.hr.defined() &&
         w.bias_ih.defined() == w.bias_hh.defined();
}

namespace {

constexpr std::pair<std::string_view, Recurrence> kKinds[] = {{"tanh", Recurrence::tanh},
                                                              {"relu", Recurrence::relu},
                                                              {"lstm", Recurrence::lstm},
                                                              {"gru", Recurrence::gru}};

Tensor run_function(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                    std::vector<Tensor>& state) {
  const std::vector<Tensor> in{
      x, state[0], state.size() > 1 ? state[1] : Tensor(), w.ih, w.hh, w.bias_ih, w.bias_hh};
  const int64_t last = reverse ? 0 : x.size(0) - 1;
  if (!is_grad_enabled()) {
    const Steps s = run_steps(kind, in, reverse, false);
    state[0] = s.kept[0].select(0, last);
    if (kind == Recurrence::lstm) state[1] = s.c;
    return s.kept[0];
  }
  autograd::FunctionDef def;
  def.name = kind == Recurrence::lstm ? "lstm" : kind == Recurrence::gru ? "gru" : "rnn";
  def.forward = [kind, reverse](autograd::Context& context, const std::vector<Tensor>& given) {
    const Steps s = run_steps(kind, given, reverse, true);
    std::vector<Tensor> saved{given.begin(), given.begin() + kBiasIh};
    if (!saved[kC].defined()) saved[kC] = saved[kH];  // a place that is not read
    append(saved, s.kept);
    context.save_for_backward(saved);
    return s.kept;
  };
  def.backward = [kind, reverse](autograd::Context& context, const std::vector<Tensor>& gradients) {
    return backward(context, gradients, kind, reverse);
  };
  def.materialize_grads = false;
  const std::vector<Tensor> r = autograd::apply(def, in);
  state[0] = r[0].select(0, last);
  if (kind == Recurrence::lstm) state[1] = r[2].select(0, last);
  return r[0];
}

// Of a call that a program makes, which may come from a file.
ops::Results compose_direction(const ops::Call& c) {
  const auto found =
      std::ranges::find(kKinds, c[7].string(), &std::pair<std::string_view, Recurrence>::first);
  ARETE_CHECK(found != std::end(kKinds),
              ValueError(c.name(), "unknown kind of recurrence").got(std::string(c[7].string())));
  const Recurrence kind = found->second;
  const DirectionWeights w{c.tensor(3), c.tensor(4), c.tensor(5), c.tensor(6), {}};
  const Tensor& x = c.tensor(0);
  std::vector<Tensor> state{c.tensor(1)};
  if (kind == Recurrence::lstm) state.push_back(c.tensor(2));
  const int64_t gates = kind == Recurrence::lstm ? 4 : kind == Recurrence::gru ? 3 : 1;
  bool fits = x.dim() == 3 && x.size(0) > 0 && w.hh.dim() == 2 && w.ih.dim() == 2;
  const int64_t hidden = fits ? w.hh.size(1) : 0;
  fits = fits && w.hh.size(0) == gates * hidden && w.ih.size(0) == gates * hidden &&
         w.ih.size(1) == x.size(2);
  const Shape of_state = fits ? Shape{x.size(1), hidden} : Shape{}, of_bias{gates * hidden};
  const auto has = [&](const Tensor& t, const Shape& sizes) {
    return t.defined() && Shape(t.sizes()) == sizes && t.dtype() == x.dtype() &&
           t.device() == x.device();
  };
  for (const Tensor& s : state) fits = fits && has(s, of_state);
  for (const Tensor& b : {w.bias_ih, w.bias_hh}) fits = fits && (!b.defined() || has(b, of_bias));
  ARETE_CHECK(fits && can_run_at_once(w, x, state),
              ValueError(c.name(), "input, state and weights do not fit").got(ops::describe(x)));
  const RecurrentPrecision precision(x);
  ops::Results results{run_function(kind, w, x, c.boolean(8), state)};
  for (const Tensor& s : state) results.push_back(s);
  return results;
}

}  // namespace

const ops::OpRecord& direction_record() {
  static const ops::OpRecord* const record = [] {
    auto* const r = new ops::OpRecord;
    r->name = "recurrent_direction";
    r->schema = r->name +
                "(Tensor x, Tensor h, Tensor? c, Tensor weight_ih, Tensor weight_hh, "
                "Tensor? bias_ih, Tensor? bias_hh, str kind, bool reverse) -> Tensor[]";
    r->surface = ops::Surface::internal;
    r->for_files = true;
    r->compose = compose_direction;
    return r;
  }();
  return *record;
}

Tensor run_at_once(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                   std::vector<Tensor>& state) {
  if (tracing::is_plain()) [[likely]]
    return run_function(kind, w, x, reverse, state);
  using ops::Arg;
  static const Tensor none;
  const ops::Results r = ops::call_all(
      direction_record(),
      {Arg(x), Arg(state[0]), Arg(state.size() > 1 ? state[1] : none), Arg(w.ih), Arg(w.hh),
       Arg(w.bias_ih), Arg(w.bias_hh),
       Arg(std::ranges::find(kKinds, kind, &std::pair<std::string_view, Recurrence>::second)
               ->first),
       Arg(reverse)});
  for (size_t i = 0; i < state.size(); ++i) state[i] = r[i + 1];
  return r[0];
}

}  // namespace arete::nn
