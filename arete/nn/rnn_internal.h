// The recurrences: one step, and a direction of a layer.
#pragma once

#include "arete/nn/rnn.h"

namespace arete::nn {

// One step as one elementwise program: the gates' shares of input and state, (N, gates * hidden)
// each, to the new state.
Tensor rnn_step(const Tensor& from_input, const Tensor& from_state, bool relu);
Tensor gru_step(const Tensor& from_input, const Tensor& from_state, const Tensor& h);
LSTMState lstm_step(const Tensor& from_input, const Tensor& from_state, const Tensor& c);

/// Parameters of one direction of a layer; those that it does not have are undefined.
struct DirectionWeights {
  Tensor ih, hh, bias_ih, bias_hh, hr;
};
/// Steps through x (T, N, features) from the state h (and c), which ends as the last one. The
/// outputs (T, N, state) are in order of time.
Tensor run_direction(Recurrence kind, const DirectionWeights& w, const Tensor& x, bool reverse,
                     Tensor& h, Tensor& c);

}  // namespace arete::nn
