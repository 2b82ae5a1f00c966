// The recurrences: one step, and a direction of a layer.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "arete/expr/value.h"
#include "arete/nn/rnn.h"
#include "arete/ops/record.h"
#include "arete/prim/context.h"

namespace arete::nn {

// One step as one elementwise program: the gates' shares of input and state, (N, gates * hidden)
// each, to the new state.
Tensor rnn_step(const Tensor& from_input, const Tensor& from_state, bool relu);
Tensor gru_step(const Tensor& from_input, const Tensor& from_state, const Tensor& h);
LSTMState lstm_step(const Tensor& from_input, const Tensor& from_state, const Tensor& c);
/// The same from the sum of both shares.
LSTMState lstm_step(const Tensor& gates, const Tensor& c);

/// What their programs compute: of the shares r, z, n of input and state and of h, the new h; of
/// the sums i, f, g, o and of c, the new h and c.
std::vector<expr::Value> gru_values(std::span<const expr::Value> v);
std::vector<expr::Value> lstm_values(std::span<const expr::Value> v);

/// While it lives, products of f32 on a GPU are rounded as Float32Scope::recurrences says, as
/// PyTorch's recurrent layers there are, which are cuDNN's; on other devices it changes nothing.
class RecurrentPrecision {
 public:
  explicit RecurrentPrecision(const Tensor& x) {
    if (!x.device().is_cuda()) return;
    if (!float32_recurrence_tf32())
      context_.precision = MatmulPrecision::highest;
    else if (context_.precision == MatmulPrecision::highest)
      context_.precision = MatmulPrecision::high;
    scope_.emplace(context_);
  }

 private:
  prim::Context context_;
  std::optional<prim::ContextScope> scope_;
};

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
/// A recurrent layer but for its parameters.
struct Recurrent {
  Recurrence kind;
  std::string_view name;  ///< in messages
  int64_t input_size, hidden_size, layers, directions, proj_size;
  bool batch_first;
  double dropout;  ///< between layers; 0 out of training
};
struct RecurrentResult {
  Tensor output;
  std::vector<Tensor> states;  ///< h, or h and c
};
/// Weights by layer and direction. No states: zeros. With `batch_sizes` the input is packed, (sum
/// of them, features): step t has the first batch_sizes[t] sequences.
RecurrentResult run_recurrent(const Recurrent& r, std::span<const DirectionWeights> weights,
                              const Tensor& input, std::vector<Tensor> states,
                              const std::vector<int64_t>& batch_sizes = {});
/// Of "tanh" and "relu"; ValueError for others.
Recurrence recurrence_of(std::string_view nonlinearity);
/// One step of the cell called `name`: the new h, or h and c.
std::vector<Tensor> run_cell(Recurrence kind, const std::string& name, const DirectionWeights& w,
                             const Tensor& input, std::vector<Tensor> states);

/// All steps of x (T, N, features) or packed, from the state, which ends as the last one. The
/// outputs are in order of time.
Tensor run_direction(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                     std::vector<Tensor>& state, const std::vector<int64_t>& batch_sizes);
/// The same for (T, N, features) without projection, as one function of differentiation.
Tensor run_at_once(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                   std::vector<Tensor>& state);
bool can_run_at_once(const DirectionWeights& w, const Tensor& x, const std::vector<Tensor>& state);
/// The record under which listeners hear run_at_once(): h and, of an LSTM, c of the last step
/// follow the outputs. It is no operator: find_record() does not know it.
const ops::OpRecord& direction_record();

}  // namespace arete::nn
