#include "arete/nn/rnn.h"

#include "arete/nn/layer_internal.h"
#include "arete/nn/rnn_internal.h"
#include "arete/ops/autocast.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/shape.h"

namespace arete::nn {

namespace {
constexpr const char* kNames[] = {"RNN", "RNN", "LSTM", "GRU"};
constexpr int64_t kGates[] = {1, 1, 4, 3};
}  // namespace

Tensor run_direction(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                     Tensor& h, Tensor& c) {
  // A whole direction counts as one operator of the lower precision.
  if (const std::optional<DType> dtype = ops::autocast_lower_dtype(x)) {
    const auto cast = [&](const Tensor& t) {
      return t.defined() ? ops::autocast_cast(t, *dtype) : t;
    };
    const DirectionWeights lower{cast(w.ih), cast(w.hh), cast(w.bias_ih), cast(w.bias_hh),
                                 cast(w.hr)};
    const Tensor input = cast(x);
    h = cast(h);
    c = cast(c);
    const ops::WithoutAutocast guard;
    return run_direction(kind, lower, input, reverse, h, c);
  }
  if (kind == Recurrence::lstm && can_run_lstm(w, x, h, c)) return run_lstm(w, x, reverse, h, c);
  // The inputs' share of all steps is one product.
  const std::vector<Tensor> from_input = linear(x, w.ih, w.bias_ih).unbind(0);
  const size_t steps = from_input.size();
  std::vector<Tensor> outputs(steps);
  for (size_t i = 0; i < steps; ++i) {
    const size_t t = reverse ? steps - 1 - i : i;
    const Tensor from_state = linear(h, w.hh, w.bias_hh);
    switch (kind) {
      case Recurrence::tanh:
      case Recurrence::relu:
        h = rnn_step(from_input[t], from_state, kind == Recurrence::relu);
        break;
      case Recurrence::gru:
        h = gru_step(from_input[t], from_state, h);
        break;
      case Recurrence::lstm: {
        const auto next = lstm_step(from_input[t], from_state, c);
        c = next.c;
        h = w.hr.defined() ? linear(next.h, w.hr) : next.h;
      }
    }
    outputs[t] = h;
  }
  return stack(outputs, 0);
}

RNNBase::RNNBase(Kind kind, int64_t input_size, int64_t hidden_size, const RNNOptions& o)
    : kind_(kind),
      input_size_(input_size),
      hidden_size_(hidden_size),
      layers_(o.num_layers),
      directions_(o.bidirectional ? 2 : 1),
      proj_size_(o.proj_size),
      bias_(o.bias),
      batch_first_(o.batch_first),
      dropout_(o.dropout) {
  const char* layer_name = kNames[int(kind)];
  check_sizes(layer_name,
              {{"input_size", input_size}, {"hidden_size", hidden_size}, {"num_layers", layers_}});
  ARETE_CHECK(
      dropout_ >= 0 && dropout_ <= 1,
      ValueError(layer_name, "dropout should be a number in range [0, 1]").got(text_of(dropout_)));
  ARETE_CHECK(proj_size_ == 0 || kind == Kind::lstm,
              ValueError(layer_name, "proj_size argument is only supported for LSTM"));
  ARETE_CHECK(proj_size_ >= 0 && proj_size_ < hidden_size,
              ValueError(layer_name, "proj_size has to be smaller than hidden_size")
                  .got(text_of(proj_size_)));
  const int64_t rows = kGates[int(kind)] * hidden_size;
  const int64_t state_size = proj_size_ ? proj_size_ : hidden_size;
  for (int64_t layer = 0; layer < layers_; ++layer)
    for (int64_t direction = 0; direction < directions_; ++direction) {
      const int64_t in = layer ? state_size * directions_ : input_size;
      const std::string suffix = "_l" + std::to_string(layer) + (direction ? "_reverse" : "");
      Weights w;
      w.ih = register_parameter("weight_ih" + suffix, empty({rows, in}));
      w.hh = register_parameter("weight_hh" + suffix, empty({rows, state_size}));
      w.bias_ih = register_parameter("bias_ih" + suffix, bias_ ? empty({rows}) : Tensor());
      w.bias_hh = register_parameter("bias_hh" + suffix, bias_ ? empty({rows}) : Tensor());
      if (proj_size_)
        w.hr = register_parameter("weight_hr" + suffix, empty({proj_size_, hidden_size}));
      weights_.push_back(w);
    }
  reset_parameters();
}

void RNNBase::reset_parameters() {
  for (const Tensor& p : parameters()) init_uniform(p, hidden_size_);
}

std::string RNNBase::extra_repr() const {
  std::string text = text_of(input_size_) + ", " + text_of(hidden_size_);
  if (proj_size_) text += ", proj_size=" + text_of(proj_size_);
  if (layers_ != 1) text += ", num_layers=" + text_of(layers_);
  if (!bias_) text += ", bias=False";
  if (batch_first_) text += ", batch_first=True";
  if (dropout_ != 0) text += ", dropout=" + text_of(dropout_);
  if (directions_ == 2) text += ", bidirectional=True";
  return text;
}

RNNBase::Run RNNBase::run(const Tensor& input, const Tensor& h0, const Tensor& c0) const {
  const std::string layer_name = kNames[int(kind_)];
  const bool batched = input.dim() == 3;
  ARETE_CHECK(batched || input.dim() == 2,
              ValueError(layer_name, "Expected input to be 2D or 3D, got " +
                                         std::to_string(input.dim()) + "D instead"));
  ARETE_CHECK(
      input.size(-1) == input_size_,
      ValueError(layer_name, "input.size(-1) must be equal to input_size. Expected " +
                                 text_of(input_size_) + ", got " + text_of(input.size(-1))));
  Tensor x = !batched ? input.unsqueeze(1) : batch_first_ ? input.transpose(0, 1) : input;
  const int64_t batch = x.size(1), states = layers_ * directions_;
  const auto initial = [&](const Tensor& given, int64_t width, const char* what) {
    if (!given.defined()) return zeros({states, batch, width}, x.options());
    const Shape expected = batched ? Shape{states, batch, width} : Shape{states, width};
    ARETE_CHECK(std::ranges::equal(given.sizes(), expected),
                ValueError(layer_name, std::string("Expected ") + what + " size " +
                                           text_of(expected) + ", got " + text_of(given.sizes())));
    return batched ? given : given.unsqueeze(1);
  };
  const int64_t state_size = proj_size_ ? proj_size_ : hidden_size_;
  std::vector<Tensor> h = initial(h0, state_size, "hidden[0]").unbind(0);
  std::vector<Tensor> c(h.size());
  if (kind_ == Kind::lstm) c = initial(c0, hidden_size_, "hidden[1]").unbind(0);

  for (int64_t layer = 0; layer < layers_; ++layer) {
    if (layer > 0) x = dropout(x, dropout_, is_training());
    std::vector<Tensor> both;
    for (int64_t direction = 0; direction < directions_; ++direction) {
      const size_t i = size_t(layer * directions_ + direction);
      const Weights& w = weights_[i];
      both.push_back(run_direction(kind_, {w.ih, w.hh, w.bias_ih, w.bias_hh, w.hr}, x,
                                   direction == 1, h[i], c[i]));
    }
    x = directions_ == 2 ? cat(both, -1) : both[0];
  }
  Run result;
  result.output = !batched ? x.squeeze(1) : batch_first_ ? x.transpose(0, 1) : x;
  const auto together = [&](const std::vector<Tensor>& s) {
    return batched ? stack(s, 0) : stack(s, 0).squeeze(1);
  };
  result.h = together(h);
  if (kind_ == Kind::lstm) result.c = together(c);
  return result;
}

namespace {
bool is_relu(std::string_view nonlinearity, const char* layer) {
  ARETE_CHECK(nonlinearity == "tanh" || nonlinearity == "relu",
              ValueError(layer, "Unknown nonlinearity '" + std::string(nonlinearity) + "'")
                  .expected("tanh or relu"));
  return nonlinearity == "relu";
}
}  // namespace

RNN::RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : RNNBase(is_relu(options.nonlinearity, "RNN") ? Kind::relu : Kind::tanh, input_size,
              hidden_size, options) {}
RNNResult RNN::forward(const Tensor& input, const Tensor& h0) const {
  const Run r = run(input, h0, {});
  return {r.output, r.h};
}

GRU::GRU(int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : RNNBase(Kind::gru, input_size, hidden_size, options) {}
RNNResult GRU::forward(const Tensor& input, const Tensor& h0) const {
  const Run r = run(input, h0, {});
  return {r.output, r.h};
}

LSTM::LSTM(int64_t input_size, int64_t hidden_size, const RNNOptions& options)
    : RNNBase(Kind::lstm, input_size, hidden_size, options) {}
LSTMResult LSTM::forward(const Tensor& input, const LSTMState& state) const {
  const Run r = run(input, state.h, state.c);
  return {r.output, {r.h, r.c}};
}

// ---- cells

CellBase::CellBase(const char* name, int64_t gates, int64_t input_size, int64_t hidden_size,
                   bool bias) {
  check_sizes(name, {{"input_size", input_size}, {"hidden_size", hidden_size}});
  const int64_t rows = gates * hidden_size;
  weight_ih = register_parameter("weight_ih", empty({rows, input_size}));
  weight_hh = register_parameter("weight_hh", empty({rows, hidden_size}));
  bias_ih = register_parameter("bias_ih", bias ? empty({rows}) : Tensor());
  bias_hh = register_parameter("bias_hh", bias ? empty({rows}) : Tensor());
  reset_parameters();
}

void CellBase::reset_parameters() {
  for (const Tensor& p : parameters()) init_uniform(p, weight_hh.size(1));
}

std::string CellBase::extra_repr() const {
  return text_of(weight_ih.size(1)) + ", " + text_of(weight_hh.size(1)) +
         (bias_ih.defined() ? "" : ", bias=False");
}

Tensor CellBase::zero_state(const Tensor& x) const {
  Shape sizes(x.sizes());
  sizes.back() = weight_hh.size(1);
  return zeros(sizes, x.options());
}

RNNCell::RNNCell(int64_t input_size, int64_t hidden_size, const CellOptions& options)
    : CellBase("RNNCell", 1, input_size, hidden_size, options.bias),
      relu_(is_relu(options.nonlinearity, "RNNCell")) {}
Tensor RNNCell::forward(const Tensor& x, const Tensor& h) const {
  return rnn_step(linear(x, weight_ih, bias_ih),
                  linear(h.defined() ? h : zero_state(x), weight_hh, bias_hh), relu_);
}

GRUCell::GRUCell(int64_t input_size, int64_t hidden_size, const CellOptions& options)
    : CellBase("GRUCell", 3, input_size, hidden_size, options.bias) {}
Tensor GRUCell::forward(const Tensor& x, const Tensor& h) const {
  const Tensor old = h.defined() ? h : zero_state(x);
  return gru_step(linear(x, weight_ih, bias_ih), linear(old, weight_hh, bias_hh), old);
}

LSTMCell::LSTMCell(int64_t input_size, int64_t hidden_size, const CellOptions& options)
    : CellBase("LSTMCell", 4, input_size, hidden_size, options.bias) {}
LSTMState LSTMCell::forward(const Tensor& x, const LSTMState& state) const {
  const Tensor h = state.h.defined() ? state.h : zero_state(x);
  const Tensor c = state.c.defined() ? state.c : zero_state(x);
  return lstm_step(linear(x, weight_ih, bias_ih), linear(h, weight_hh, bias_hh), c);
}

}  // namespace arete::nn
