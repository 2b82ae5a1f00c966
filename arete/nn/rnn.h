// Recurrent layers and cells, with PyTorch's parameter names, layouts and gate order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "arete/nn/layer.h"
#include "arete/nn/packed_sequence.h"

namespace arete::nn {

struct RNNOptions {
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  ///< (N, T, features) instead of (T, N, features)
  double dropout = 0;        ///< between layers, in training
  bool bidirectional = false;
  int64_t proj_size = 0;                   ///< LSTM only: h is projected to this size
  std::string_view nonlinearity = "tanh";  ///< RNN only; or "relu"
};

enum class Recurrence : uint8_t { tanh, relu, lstm, gru };

/// What the recurrent layers share. Parameters of layer k: weight_ih_l<k> (gates * hidden, input),
/// weight_hh_l<k> (gates * hidden, hidden), bias_ih_l<k>, bias_hh_l<k>, with a projection
/// weight_hr_l<k>; those of the backward direction end in "_reverse". All are uniform in
/// +-1 / sqrt(hidden) at first.
class RNNBase : public DescribedLayer {
 public:
  void reset_parameters();

 protected:
  using Kind = Recurrence;
  RNNBase(Kind kind, std::string_view layer, int64_t input_size, int64_t hidden_size,
          const RNNOptions& options);
  /// The output, h and for an LSTM c.
  struct Run {
    Tensor output, h, c;
  };
  /// h0 and c0 may be undefined (zeros).
  Run run(const Tensor& input, const Tensor& h0, const Tensor& c0) const {
    return run(input, h0, c0, {});
  }
  struct PackedRun {
    PackedSequence output;
    Tensor h, c;
  };
  /// States are in the order of the caller.
  PackedRun run(const PackedSequence& input, const Tensor& h0, const Tensor& c0) const;

 private:
  static OptionList options_of(std::string_view layer, int64_t input_size, int64_t hidden_size,
                               const RNNOptions& options);
  Run run(const Tensor& input, const Tensor& h0, const Tensor& c0,
          const std::vector<int64_t>& batch_sizes) const;
  struct Weights {
    Parameter ih, hh, bias_ih, bias_hh, hr;
  };
  Kind kind_;
  int64_t input_size_, hidden_size_;
  RNNOptions settings_;
  std::vector<Weights> weights_;  // [layer * directions + direction]
};

/// Output (T, N, directions * hidden) and the last state (layers * directions, N, hidden).
struct RNNResult {
  Tensor output, h;
};

struct PackedRNNResult {
  PackedSequence output;
  Tensor h;
};

/// h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or relu. Called with one tensor inside a Sequential
/// it gives the output alone.
class RNN : public RNNBase {
 public:
  RNN(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {});
  Tensor forward(const Tensor& input) override { return run(input, {}, {}).output; }
  RNNResult forward(const Tensor& input, const Tensor& h0) const;
  PackedRNNResult forward(const PackedSequence& input, const Tensor& h0) const;
  RNNResult operator()(const Tensor& input, const Tensor& h0 = {}) const {
    return forward(input, h0);
  }
  PackedRNNResult operator()(const PackedSequence& input, const Tensor& h0 = {}) const {
    return forward(input, h0);
  }
};

/// Gates r, z, n: n = tanh(x W_in + b_in + r (h W_hn + b_hn)), h = (1 - z) n + z h.
class GRU : public RNNBase {
 public:
  GRU(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {});
  Tensor forward(const Tensor& input) override { return run(input, {}, {}).output; }
  RNNResult forward(const Tensor& input, const Tensor& h0) const;
  PackedRNNResult forward(const PackedSequence& input, const Tensor& h0) const;
  RNNResult operator()(const Tensor& input, const Tensor& h0 = {}) const {
    return forward(input, h0);
  }
  PackedRNNResult operator()(const PackedSequence& input, const Tensor& h0 = {}) const {
    return forward(input, h0);
  }
};

/// Hidden state (layers * directions, N, hidden or proj_size) and cell state (..., hidden).
struct LSTMState {
  Tensor h = {}, c = {};
};
struct LSTMResult {
  Tensor output;
  LSTMState state;
};
struct PackedLSTMResult {
  PackedSequence output;
  LSTMState state;
};
/// Gates i, f, g, o: c = f c + i g, h = o tanh(c).
class LSTM : public RNNBase {
 public:
  LSTM(int64_t input_size, int64_t hidden_size, const RNNOptions& options = {});
  Tensor forward(const Tensor& input) override { return run(input, {}, {}).output; }
  LSTMResult forward(const Tensor& input, const LSTMState& state) const;
  PackedLSTMResult forward(const PackedSequence& input, const LSTMState& state) const;
  LSTMResult operator()(const Tensor& input, const LSTMState& state = {}) const {
    return forward(input, state);
  }
  PackedLSTMResult operator()(const PackedSequence& input, const LSTMState& state = {}) const {
    return forward(input, state);
  }
};

struct CellOptions {
  bool bias = true;
  std::string_view nonlinearity = "tanh";  ///< RNNCell only; or "relu"
};

/// What the cells share. Parameters: weight_ih, weight_hh, bias_ih, bias_hh.
class CellBase : public DescribedLayer {
 public:
  void reset_parameters();

  Parameter weight_ih, weight_hh, bias_ih, bias_hh;

 protected:
  CellBase(std::string_view layer, int64_t gates, int64_t input_size, int64_t hidden_size,
           const CellOptions& options);
  std::vector<Tensor> run(Recurrence kind, const Tensor& input, std::vector<Tensor> states) const;
};

/// One step: input (N, input) and h (N, hidden) or undefined -> the new h.
class RNNCell : public CellBase {
 public:
  RNNCell(int64_t input_size, int64_t hidden_size, const CellOptions& options = {});
  Tensor forward(const Tensor& input) override { return forward(input, Tensor()); }
  Tensor forward(const Tensor& input, const Tensor& h) const;
  Tensor operator()(const Tensor& input, const Tensor& h = {}) const { return forward(input, h); }

 private:
  std::string nonlinearity_;
};

class GRUCell : public CellBase {
 public:
  GRUCell(int64_t input_size, int64_t hidden_size, const CellOptions& options = {});
  Tensor forward(const Tensor& input) override { return forward(input, Tensor()); }
  Tensor forward(const Tensor& input, const Tensor& h) const;
  Tensor operator()(const Tensor& input, const Tensor& h = {}) const { return forward(input, h); }
};

/// One step: input (N, input), state of (N, hidden) each -> the new state.
class LSTMCell : public CellBase {
 public:
  LSTMCell(int64_t input_size, int64_t hidden_size, const CellOptions& options = {});
  using Module::forward;
  LSTMState forward(const Tensor& input, const LSTMState& state) const;
  LSTMState operator()(const Tensor& input, const LSTMState& state = {}) const {
    return forward(input, state);
  }
};

}  // namespace arete::nn
