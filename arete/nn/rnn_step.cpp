#include "arete/nn/rnn_internal.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/shape.h"

namespace arete::nn {

using expr::Value;

namespace {

std::vector<Tensor> gates_of(const Tensor& a, const Tensor& b, int64_t gates) {
  std::vector<Tensor> all = a.chunk(gates, -1);
  for (const Tensor& t : b.chunk(gates, -1)) all.push_back(t);
  return all;
}

// A state that comes from outside an autocast region has another dtype than the products in it.
Tensor state_in_region(const Tensor& t) {
  const std::optional<DType> dtype = ops::autocast_lower_dtype(t);
  return dtype ? ops::autocast_cast(t, *dtype) : t;
}

}  // namespace

expr::ProgramPtr StepPrograms::get(const std::vector<Tensor>& inputs,
                                   const std::vector<DType>& outputs) {
  static_assert(kNumDTypes <= 32, "a dtype has five bits in the key");
  ARETE_ASSERT(inputs.size() <= 16);
  uint64_t key = 0;
  for (const Tensor& t : inputs) key = key << 5 | uint64_t(t.dtype());
  const std::lock_guard lock(mutex_);
  expr::ProgramPtr& program = programs_[key];
  if (!program) {
    std::vector<DType> types;
    for (const Tensor& t : inputs) types.push_back(t.dtype());
    program =
        expr::trace([this](std::span<const Value> v) { return body_(v); }, types, {}, outputs);
  }
  return program;
}

std::vector<Value> gru_values(std::span<const Value> v) {
  const Value r = sigmoid(v[0] + v[3]), z = sigmoid(v[1] + v[4]);
  const Value n = tanh(v[2] + r * v[5]);
  return {(1.0 - z) * n + z * v[6]};
}
std::vector<Value> lstm_values(std::span<const Value> v) {
  const Value next = sigmoid(v[1]) * v[4] + sigmoid(v[0]) * tanh(v[2]);
  return {sigmoid(v[3]) * tanh(next), next};
}

Tensor rnn_step(const Tensor& from_input, const Tensor& from_state, bool relu) {
  static StepPrograms with_tanh(
      [](std::span<const Value> v) -> std::vector<Value> { return {tanh(v[0] + v[1])}; });
  static StepPrograms with_relu(
      [](std::span<const Value> v) -> std::vector<Value> { return {max(v[0] + v[1], 0.0)}; });
  const std::vector<Tensor> inputs{from_input, from_state};
  return ops::apply_program((relu ? with_relu : with_tanh).get(inputs, {from_state.dtype()}),
                            inputs, {}, relu ? "rnn_relu_step" : "rnn_tanh_step")[0];
}

Tensor gru_step(const Tensor& from_input, const Tensor& from_state, const Tensor& h) {
  static StepPrograms programs(gru_values);
  std::vector<Tensor> inputs = gates_of(from_input, from_state, 3);
  inputs.push_back(state_in_region(h));
  return ops::apply_program(programs.get(inputs, {inputs.back().dtype()}), inputs, {},
                            "gru_step")[0];
}

// Of the sum, for a program of all nine shares would have a second derivative of too many tensors.
LSTMState lstm_step(const Tensor& from_input, const Tensor& from_state, const Tensor& c) {
  return lstm_step(from_input.add(from_state), c);
}

LSTMState lstm_step(const Tensor& gates, const Tensor& c) {
  static StepPrograms programs(lstm_values);
  std::vector<Tensor> inputs = gates.chunk(4, -1);
  inputs.push_back(state_in_region(c));
  const auto out = ops::apply_program(programs.get(inputs, {gates.dtype(), inputs.back().dtype()}),
                                      inputs, {}, "lstm_step");
  return {out[0], out[1]};
}

}  // namespace arete::nn
