// The recurrences: one step, and a direction of a layer.
#pragma once

#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "arete/expr/value.h"
#include "arete/nn/rnn.h"

namespace arete::nn {

// One step as one elementwise program: the gates' shares of input and state, (N, gates * hidden)
// each, to the new state.
Tensor rnn_step(const Tensor& from_input, const Tensor& from_state, bool relu);
Tensor gru_step(const Tensor& from_input, const Tensor& from_state, const Tensor& h);
LSTMState lstm_step(const Tensor& from_input, const Tensor& from_state, const Tensor& c);
/// The same from the sum of both shares.
LSTMState lstm_step(const Tensor& gates, const Tensor& c);

/// A program for each combination of dtypes, traced once.
class StepPrograms {
 public:
  explicit StepPrograms(std::vector<expr::Value> (*body)(std::span<const expr::Value>))
      : body_(body) {}
  expr::ProgramPtr get(const std::vector<Tensor>& inputs, const std::vector<DType>& outputs);

 private:
  std::vector<expr::Value> (*body_)(std::span<const expr::Value>);
  std::mutex mutex_;
  std::unordered_map<uint64_t, expr::ProgramPtr> programs_;
};

/// Parameters of one direction of a layer; those that it does not have are undefined.
struct DirectionWeights {
  Tensor ih, hh, bias_ih, bias_hh, hr;
};
/// Steps through x (T, N, features) from the state h (and c), which ends as the last one. The
/// outputs (T, N, state) are in order of time.
Tensor run_direction(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                     Tensor& h, Tensor& c);
/// The same for an LSTM without projection, as one function of differentiation.
Tensor run_lstm(const DirectionWeights& w, const Tensor& x, bool reverse, Tensor& h, Tensor& c);
bool can_run_lstm(const DirectionWeights& w, const Tensor& x, const Tensor& h, const Tensor& c);

}  // namespace arete::nn
