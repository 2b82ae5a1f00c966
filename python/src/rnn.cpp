// What arete/nn's recurrent layers do in C++: whole directions and single steps.
#include "arete/autograd/function.h"
#include "arete/nn/rnn_internal.h"
#include "bindings.h"
#include "caster.h"

namespace nb = nanobind;

namespace arete::python {

namespace {

nn::Recurrence recurrence_of(const std::string& mode) {
  return mode == "LSTM"       ? nn::Recurrence::lstm
         : mode == "GRU"      ? nn::Recurrence::gru
         : mode == "RNN_RELU" ? nn::Recurrence::relu
                              : nn::Recurrence::tanh;
}

using MaybeTensor = std::optional<Tensor>;

}  // namespace

void bind_rnn(nb::module_& m) {
  // The output and the last state, (h,) or (h, c).
  m.def("_rnn_direction",
        [](const std::string& mode, const Tensor& x, const std::vector<Tensor>& state,
           const Tensor& ih, const Tensor& hh, const MaybeTensor& bias_ih,
           const MaybeTensor& bias_hh, const MaybeTensor& hr, bool reverse) {
          const nn::DirectionWeights w{ih, hh, bias_ih.value_or(Tensor()),
                                       bias_hh.value_or(Tensor()), hr.value_or(Tensor())};
          std::vector<Tensor> s = state;
          Tensor out, none;
          {
            const WithoutGil free;
            autograd::note_uses(s);
            out = nn::run_direction(recurrence_of(mode), w, x, reverse, s.at(0),
                                    s.size() > 1 ? s[1] : none);
          }
          return std::make_pair(out, s);
        });
  // One step: the gates' shares of input and state to the new state.
  m.def("_rnn_step", [](const std::string& mode, const Tensor& from_input, const Tensor& from_state,
                        const std::vector<Tensor>& state) {
    const nn::Recurrence kind = recurrence_of(mode);
    std::vector<Tensor> next;
    const WithoutGil free;
    autograd::note_uses(state);
    if (kind == nn::Recurrence::lstm) {
      const nn::LSTMState s = nn::lstm_step(from_input, from_state, state.at(1));
      next = {s.h, s.c};
    } else if (kind == nn::Recurrence::gru) {
      next = {nn::gru_step(from_input, from_state, state.at(0))};
    } else {
      next = {nn::rnn_step(from_input, from_state, kind == nn::Recurrence::relu)};
    }
    return next;
  });
}

}  // namespace arete::python
