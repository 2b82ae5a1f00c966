// What arete/nn's recurrent layers do in C++: all layers of a call, and the steps of cells.
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

}  // namespace

void bind_rnn(nb::module_& m) {
  // The output and the last states, (h,) or (h, c). Weights of each layer and direction: w_ih,
  // w_hh, b_ih, b_hh, w_hr; None where there is none. No states: zeros. No batch_sizes: not packed.
  m.def("_rnn", [](const std::string& mode, const std::string& name, int64_t input_size,
                   int64_t hidden_size, int64_t layers, bool bidirectional, int64_t proj_size,
                   bool batch_first, double dropout, const std::vector<TensorsOrNone>& weights,
                   const Tensor& input, const std::vector<Tensor>& states,
                   const std::vector<int64_t>& batch_sizes) {
    std::vector<nn::DirectionWeights> all;
    for (const auto& w : weights) all.push_back({w.at(0), w.at(1), w.at(2), w.at(3), w.at(4)});
    const nn::Recurrent r{recurrence_of(mode),   name,      input_size,  hidden_size, layers,
                          bidirectional ? 2 : 1, proj_size, batch_first, dropout};
    nn::RecurrentResult result;
    {
      const WithoutGil free;
      result = nn::run_recurrent(r, all, input, states, batch_sizes);
    }
    return std::make_pair(result.output, result.states);
  });
  // The new state, (h,) or (h, c).
  m.def("_rnn_cell", [](const std::string& mode, const std::string& name, const TensorsOrNone& w,
                        const Tensor& input, const std::vector<Tensor>& states) {
    const WithoutGil free;
    return nn::run_cell(recurrence_of(mode), name, {w.at(0), w.at(1), w.at(2), w.at(3), {}}, input,
                        states);
  });
}

}  // namespace arete::python
