// One step of each recurrence, as one elementwise program: the gates' shares of input and state,
// (N, gates * hidden) each, to the new state.
#pragma once

#include "arete/nn/rnn.h"

namespace arete::nn {

Tensor rnn_step(const Tensor& from_input, const Tensor& from_state, bool relu);
Tensor gru_step(const Tensor& from_input, const Tensor& from_state, const Tensor& h);
LSTMState lstm_step(const Tensor& from_input, const Tensor& from_state, const Tensor& c);

}  // namespace arete::nn
