#include "arete/nn/rnn.h"

#include <algorithm>

#include "arete/core/print.h"
#include "arete/nn/layer_internal.h"
#include "arete/nn/rnn_internal.h"
#include "arete/ops/autocast.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"

namespace arete::nn {

// ---- one direction

namespace {

int64_t gates_of(Recurrence kind) {
  return kind == Recurrence::lstm ? 4 : kind == Recurrence::gru ? 3 : 1;
}

// From the gates' shares of input and state.
std::vector<Tensor> step(Recurrence kind, const Tensor& from_input, const Tensor& from_state,
                         const std::vector<Tensor>& state) {
  if (kind == Recurrence::gru) return {gru_step(from_input, from_state, state[0])};
  if (kind != Recurrence::lstm) return {rnn_step(from_input, from_state, kind == Recurrence::relu)};
  const LSTMState next = lstm_step(from_input, from_state, state[1]);
  return {next.h, next.c};
}

// Of each tensor the rows from `first` on.
std::vector<Tensor> rows(const std::vector<Tensor>& all, int64_t first, int64_t count) {
  std::vector<Tensor> part;
  for (const Tensor& t : all) part.push_back(t.narrow(0, first, count));
  return part;
}
std::vector<Tensor> joined(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  std::vector<Tensor> both;
  for (size_t i = 0; i < a.size(); ++i) both.push_back(cat({a[i], b[i]}, 0));
  return both;
}

}  // namespace

Tensor run_direction(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                     std::vector<Tensor>& state, const std::vector<int64_t>& batch_sizes) {
  // A whole direction counts as one operator of the lower precision.
  if (const std::optional<DType> dtype = ops::autocast_lower_dtype(x)) {
    const auto cast = [&](const Tensor& t) {
      return t.defined() ? ops::autocast_cast(t, *dtype) : t;
    };
    const DirectionWeights lower{cast(w.ih), cast(w.hh), cast(w.bias_ih), cast(w.bias_hh),
                                 cast(w.hr)};
    const Tensor input = cast(x);
    for (Tensor& s : state) s = cast(s);
    const ops::WithoutAutocast guard;
    return run_direction(kind, lower, input, reverse, state, batch_sizes);
  }
  const RecurrentPrecision precision(x);
  const bool packed = !batch_sizes.empty();
  // Under vmap operators, which each have a rule.
  if (!packed && !VmapLevel::innermost() && can_run_at_once(w, x, state))
    return run_at_once(kind, w, x, reverse, state);
  // The inputs' share of all steps is one product.
  const Tensor gates = linear(x, w.ih, w.bias_ih);
  const std::vector<Tensor> from_input = packed ? gates.split(batch_sizes) : gates.unbind(0);
  const size_t steps = from_input.size();
  std::vector<Tensor> outputs(steps), ended;
  const std::vector<Tensor> start = state;
  if (packed && reverse) state = rows(start, 0, batch_sizes.back());
  for (size_t i = 0; i < steps; ++i) {
    const size_t t = reverse ? steps - 1 - i : i;
    const int64_t have = state[0].size(0), need = packed ? batch_sizes[t] : have;
    if (need < have) {  // the others have ended
      const std::vector<Tensor> others = rows(state, need, have - need);
      ended = ended.empty() ? others : joined(others, ended);
      state = rows(state, 0, need);
    } else if (need > have) {  // more start here
      state = joined(state, rows(start, have, need - have));
    }
    state = step(kind, from_input[t], linear(state[0], w.hh, w.bias_hh), state);
    if (w.hr.defined()) state[0] = linear(state[0], w.hr);
    outputs[t] = state[0];
  }
  if (!ended.empty()) state = joined(state, ended);
  return packed ? cat(outputs, 0) : stack(outputs, 0);
}

// ---- all layers

namespace {

void check_states(const Recurrent& r, const std::vector<Tensor>& states, int64_t batch) {
  for (size_t i = 0; i < states.size(); ++i) {
    const Shape expected{r.layers * r.directions, batch,
                         i == 0 && r.proj_size ? r.proj_size : r.hidden_size};
    ARETE_CHECK(
        std::ranges::equal(states[i].sizes(), expected),
        ValueError(r.name,
                   "Expected hidden" + (states.size() == 2 ? "[" + std::to_string(i) + "]" : "") +
                       " size " + tuple_text(expected) + ", got " + text_of(states[i].sizes())));
  }
}

void check_input(const Recurrent& r, const Tensor& input, const DirectionWeights& w) {
  const auto dtype = [](const Tensor& t) {
    return print_options().package + "." + std::string(name_of(t.dtype()));
  };
  ARETE_CHECK(
      input.dtype() == w.ih.dtype() || (modes().word & Modes::kAutocast),
      ValueError(r.name, "RNN input dtype (" + dtype(input) + ") does not match weight dtype (" +
                             dtype(w.ih) + "). Convert input: input.to(" + dtype(w.ih) +
                             "), or convert model: model.to(" + dtype(input) + ")"));
  ARETE_CHECK(input.size(-1) == r.input_size,
              ValueError(r.name, "input.size(-1) must be equal to input_size. Expected " +
                                     text_of(r.input_size) + ", got " + text_of(input.size(-1))));
}

// The input (T, N, features) and the states (layers * directions, N, features) of a call without
// packing.
Tensor time_first(const Recurrent& r, const Tensor& input, std::vector<Tensor>& states) {
  const std::string rank = std::to_string(input.dim());
  ARETE_CHECK(input.dim() == 2 || input.dim() == 3,
              ValueError(r.name, std::string(r.name) + ": Expected input to be 2D or 3D, got " +
                                     rank + "D instead"));
  const bool batched = input.dim() == 3;
  std::string ranks;
  for (const Tensor& s : states)
    ranks += (ranks.empty() ? "" : ", ") + std::to_string(s.dim()) + "-D";
  const bool two = states.size() == 2;
  for (const Tensor& s : states)
    ARETE_CHECK(s.dim() == input.dim(),
                ValueError(r.name, std::string("For ") + (batched ? "batched " : "unbatched ") +
                                       rank + "-D input, hx " + (two ? "and cx " : "") +
                                       "should also be " + rank + "-D but got " +
                                       (two ? "(" + ranks + ") tensors" : ranks + " tensor")));
  if (!batched)
    for (Tensor& s : states) s = s.unsqueeze(1);
  return !batched ? input.unsqueeze(1) : r.batch_first ? input.transpose(0, 1) : input;
}

}  // namespace

RecurrentResult run_recurrent(const Recurrent& r, std::span<const DirectionWeights> weights,
                              const Tensor& input, std::vector<Tensor> states,
                              const std::vector<int64_t>& batch_sizes) {
  const bool packed = !batch_sizes.empty();
  Tensor x = packed ? input : time_first(r, input, states);
  check_input(r, x, weights[0]);
  ARETE_CHECK(x.size(0) > 0,
              ValueError(r.name, "Expected sequence length to be larger than 0 in RNN"));
  const int64_t batch = packed ? batch_sizes[0] : x.size(1), count = r.layers * r.directions;
  if (states.empty()) {
    states.push_back(zeros({count, batch, r.proj_size ? r.proj_size : r.hidden_size}, x.options()));
    if (r.kind == Recurrence::lstm)
      states.push_back(zeros({count, batch, r.hidden_size}, x.options()));
  }
  check_states(r, states, batch);
  std::vector<std::vector<Tensor>> by_state;
  for (const Tensor& s : states) by_state.push_back(s.unbind(0));
  for (int64_t layer = 0; layer < r.layers; ++layer) {
    if (layer > 0 && r.dropout > 0) x = dropout(x, r.dropout);
    std::vector<Tensor> both;
    for (int64_t direction = 0; direction < r.directions; ++direction) {
      const size_t k = size_t(layer * r.directions + direction);
      std::vector<Tensor> state;
      for (const auto& s : by_state) state.push_back(s[k]);
      both.push_back(run_direction(r.kind, weights[k], x, direction == 1, state, batch_sizes));
      for (size_t i = 0; i < state.size(); ++i) by_state[i][k] = state[i];
    }
    x = r.directions == 2 ? cat(both, -1) : both[0];
  }
  const bool single = !packed && input.dim() == 2;
  RecurrentResult result;
  result.output = single ? x.squeeze(1) : !packed && r.batch_first ? x.transpose(0, 1) : x;
  for (const auto& s : by_state)
    result.states.push_back(single ? stack(s, 0).squeeze(1) : stack(s, 0));
  return result;
}

RNNBase::RNNBase(Kind kind, std::string_view layer, int64_t input_size, int64_t hidden_size,
                 const RNNOptions& o)
    : DescribedLayer(layer, options_of(layer, input_size, hidden_size, o)),
      kind_(kind),
      input_size_(input_size),
      hidden_size_(hidden_size),
      settings_(o) {
  const int64_t rows = gates_of(kind) * hidden_size, directions = o.bidirectional ? 2 : 1;
  const int64_t state_size = o.proj_size ? o.proj_size : hidden_size;
  for (int64_t l = 0; l < o.num_layers; ++l)
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t in = l ? state_size * directions : input_size;
      const std::string suffix = "_l" + std::to_string(l) + (direction ? "_reverse" : "");
      Weights w;
      w.ih = register_parameter("weight_ih" + suffix, empty({rows, in}));
      w.hh = register_parameter("weight_hh" + suffix, empty({rows, state_size}));
      w.bias_ih = register_parameter("bias_ih" + suffix, o.bias ? empty({rows}) : Tensor());
      w.bias_hh = register_parameter("bias_hh" + suffix, o.bias ? empty({rows}) : Tensor());
      if (o.proj_size)
        w.hr = register_parameter("weight_hr" + suffix, empty({o.proj_size, hidden_size}));
      weights_.push_back(w);
    }
  reset_parameters();
}

OptionList RNNBase::options_of(std::string_view layer, int64_t input_size, int64_t hidden_size,
                               const RNNOptions& o) {
  OptionList options{{"input_size", input_size},         {"hidden_size", hidden_size},
                     {"num_layers", o.num_layers},       {"bias", o.bias},
                     {"batch_first", o.batch_first},     {"dropout", o.dropout},
                     {"bidirectional", o.bidirectional}, {"proj_size", o.proj_size}};
  if (layer == "RNN") options.add("nonlinearity", o.nonlinearity);
  return options;
}

void RNNBase::reset_parameters() {
  for (const Tensor& p : parameters()) init_uniform(p, hidden_size_);
}

RNNBase::PackedRun RNNBase::run(const PackedSequence& input, const Tensor& h0,
                                const Tensor& c0) const {
  const auto ordered = [](const Tensor& t, const Tensor& order) {
    return t.defined() && order.defined() ? t.index_select(1, order) : t;
  };
  ARETE_CHECK(!input.batch_sizes.empty(), ValueError(name(), "a packed sequence has batch_sizes"));
  const Tensor &order = input.sorted_indices, &back = input.unsorted_indices;
  const Run r = run(input.data, ordered(h0, order), ordered(c0, order), input.batch_sizes);
  return {{r.output, input.batch_sizes, order, back}, ordered(r.h, back), ordered(r.c, back)};
}

RNNBase::Run RNNBase::run(const Tensor& input, const Tensor& h0, const Tensor& c0,
                          const std::vector<int64_t>& batch_sizes) const {
  const std::string layer = name();
  const RNNOptions& o = settings_;
  std::vector<DirectionWeights> weights;
  for (const Weights& w : weights_) weights.push_back({w.ih, w.hh, w.bias_ih, w.bias_hh, w.hr});
  std::vector<Tensor> states;
  ARETE_CHECK(h0.defined() == c0.defined() || kind_ != Kind::lstm,
              ValueError(layer, "hx and cx: a state has both"));
  if (h0.defined()) states.push_back(h0);
  if (c0.defined()) states.push_back(c0);
  const RecurrentResult r =
      run_recurrent({kind_, layer, input_size_, hidden_size_, o.num_layers, o.bidirectional ? 2 : 1,
                     o.proj_size, o.batch_first, is_training() ? o.dropout : 0},
                    weights, input, states, batch_sizes);
  return {r.output, r.states[0], r.states.size() > 1 ? r.states[1] : Tensor()};
}

RNN::RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : RNNBase(options.nonlinearity == "relu" ? Kind::relu : Kind::tanh, "RNN", input_size,
              hidden_size, options) {}
RNNResult RNN::forward(const Tensor& input, const Tensor& h0) const {
  const Run r = run(input, h0, {});
  return {r.output, r.h};
}
PackedRNNResult RNN::forward(const PackedSequence& input, const Tensor& h0) const {
  const PackedRun r = run(input, h0, {});
  return {r.output, r.h};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : RNNBase(Kind::gru, "GRU", input_size, hidden_size, options) {}
RNNResult GRU::forward(const Tensor& input, const Tensor& h0) const {
  const Run r = run(input, h0, {});
  return {r.output, r.h};
}
PackedRNNResult GRU::forward(const PackedSequence& input, const Tensor& h0) const {
  const PackedRun r = run(input, h0, {});
  return {r.output, r.h};
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : RNNBase(Kind::lstm, "LSTM", input_size, hidden_size, options) {}
LSTMResult LSTM::forward(const Tensor& input, const LSTMState& state) const {
  const Run r = run(input, state.h, state.c);
  return {r.output, {r.h, r.c}};
}
PackedLSTMResult LSTM::forward(const PackedSequence& input, const LSTMState& state) const {
  const PackedRun r = run(input, state.h, state.c);
  return {r.output, {r.h, r.c}};
}

// ---- cells

std::vector<Tensor> run_cell(Recurrence kind, const std::string& name, const DirectionWeights& w,
                             const Tensor& input, std::vector<Tensor> states) {
  const auto check_rank = [&](const Tensor& t, const std::string& what) {
    ARETE_CHECK(t.dim() == 1 || t.dim() == 2,
                ValueError(name, name + ": Expected " + what + " to be 1D or 2D, got " +
                                     std::to_string(t.dim()) + "D instead"));
  };
  check_rank(input, "input");
  for (size_t i = 0; i < states.size(); ++i)
    check_rank(states[i], states.size() == 2 ? "hx[" + std::to_string(i) + "]" : "hidden");
  const bool single = input.dim() == 1;
  const Tensor x = single ? input.unsqueeze(0) : input;
  if (single)
    for (Tensor& s : states) s = s.unsqueeze(0);
  const int64_t hidden = w.hh.size(1);
  ARETE_CHECK(x.size(1) == w.ih.size(1),
              ValueError(name, "input has inconsistent input_size: got " + text_of(x.size(1)) +
                                   " expected " + text_of(w.ih.size(1))));
  if (states.empty()) {
    states.push_back(zeros({x.size(0), hidden}, x.options()));
    if (kind == Recurrence::lstm) states.push_back(states[0]);
  }
  for (size_t i = 0; i < states.size(); ++i) {
    const std::string which = "hidden" + std::to_string(i);
    ARETE_CHECK(states[i].size(0) == x.size(0),
                ValueError(name, "Input batch size " + text_of(x.size(0)) + " doesn't match " +
                                     which + " batch size " + text_of(states[i].size(0))));
    ARETE_CHECK(
        states[i].dim() == 2 && states[i].size(1) == hidden,
        ValueError(name, which + " has inconsistent hidden_size: got " +
                             text_of(states[i].size(-1)) + ", expected " + text_of(hidden)));
  }
  ARETE_CHECK(kind != Recurrence::lstm || states.size() == 2,
              ValueError(name, "lstm_cell expects two hidden states"));
  std::vector<Tensor> next =
      step(kind, linear(x, w.ih, w.bias_ih), linear(states[0], w.hh, w.bias_hh), states);
  if (single)
    for (Tensor& s : next) s = s.squeeze(0);
  return next;
}

CellBase::CellBase(std::string_view layer, int64_t gates, int64_t input_size, int64_t hidden_size,
                   const CellOptions& o)
    : DescribedLayer(layer, layer == "RNNCell" ? OptionList{{"input_size", input_size},
                                                            {"hidden_size", hidden_size},
                                                            {"bias", o.bias},
                                                            {"nonlinearity", o.nonlinearity}}
                                               : OptionList{{"input_size", input_size},
                                                            {"hidden_size", hidden_size},
                                                            {"bias", o.bias}}) {
  const int64_t rows = gates * hidden_size;
  weight_ih = register_parameter("weight_ih", empty({rows, input_size}));
  weight_hh = register_parameter("weight_hh", empty({rows, hidden_size}));
  bias_ih = register_parameter("bias_ih", o.bias ? empty({rows}) : Tensor());
  bias_hh = register_parameter("bias_hh", o.bias ? empty({rows}) : Tensor());
  reset_parameters();
}

void CellBase::reset_parameters() {
  for (const Tensor& p : parameters()) init_uniform(p, weight_hh.size(1));
}

std::vector<Tensor> CellBase::run(Recurrence kind, const Tensor& input,
                                  std::vector<Tensor> states) const {
  std::erase_if(states, [](const Tensor& t) { return !t.defined(); });
  return run_cell(kind, name(), {weight_ih, weight_hh, bias_ih, bias_hh, {}}, input, states);
}

RNNCell::RNNCell(int64_t input_size, int64_t hidden_size, const CellOptions& options)
    : CellBase("RNNCell", 1, input_size, hidden_size, options),
      nonlinearity_(options.nonlinearity) {}
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) const {
  return run(recurrence_of(nonlinearity_), x, {h})[0];
}

GRUCell::GRUCell(int64_t input_size, int64_t hidden_size, const CellOptions& options)
    : CellBase("GRUCell", 3, input_size, hidden_size, options) {}
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) const {
  return run(Recurrence::gru, x, {h})[0];
}

LSTMCell::LSTMCell(int64_t input_size, int64_t hidden_size, const CellOptions& options)
    : CellBase("LSTMCell", 4, input_size, hidden_size, options) {}
LSTMState LSTMCell::forward(const Tensor& x, const LSTMState& state) const {
  const std::vector<Tensor> next = run(Recurrence::lstm, x, {state.h, state.c});
  return {next[0], next[1]};
}

Recurrence recurrence_of(std::string_view nonlinearity) {
  ARETE_CHECK(nonlinearity == "tanh" || nonlinearity == "relu",
              ValueError("RNNCell", "Unknown nonlinearity: " + std::string(nonlinearity)));
  return nonlinearity == "relu" ? Recurrence::relu : Recurrence::tanh;
}

}  // namespace arete::nn
