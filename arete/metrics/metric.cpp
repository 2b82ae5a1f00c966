#include "arete/metrics/metric.h"

#include <algorithm>

#include "arete/core/modes.h"
#include "arete/distributed/distributed.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"

namespace arete::metrics {

namespace {
Shape rows_of(const Shape& row, int64_t n) {
  Shape sizes{n};
  for (const int64_t s : row) sizes.push_back(s);
  return sizes;
}
}  // namespace

void Metric::update(const Tensor&, const Tensor&) {
  throw TypeError("metrics", "this metric is not updated by two tensors");
}

size_t Metric::add_sum(std::string name, IntList sizes, DType dtype) {
  states_.push_back({std::move(name), Shape(sizes), dtype, false, {zeros(sizes, dtype)}});
  return states_.size() - 1;
}

size_t Metric::add_list(std::string name, IntList row_sizes, DType dtype) {
  states_.push_back({std::move(name), Shape(row_sizes), dtype, true, {}});
  return states_.size() - 1;
}

Tensor Metric::state(size_t i) const {
  const State& s = states_[i];
  if (!s.is_list) return s.parts[0];
  if (s.parts.empty()) return empty(rows_of(s.sizes, 0), TensorOptions(s.dtype, device_));
  return s.parts.size() == 1 ? s.parts[0] : cat(s.parts);
}

void Metric::add(size_t i, const Tensor& values) {
  const NoGradGuard no_grad;
  State& s = states_[i];
  const Tensor v = values.detach().to(s.dtype);
  if (s.is_list)
    // A copy: whoever gave the values may write over them.
    s.parts.push_back(v.is_same(values) || v.storage() == values.storage() ? v.clone() : v);
  else
    // Not in place: what state_dict() gave stays as it is.
    s.parts[0] = s.parts[0] + v;
}

void Metric::reset() {
  for (State& s : states_) {
    s.parts.clear();
    if (!s.is_list) s.parts.push_back(zeros(s.sizes, TensorOptions(s.dtype, device_)));
  }
}

void Metric::to(Device device) {
  device_ = device.resolved();
  for (State& s : states_)
    for (Tensor& t : s.parts) t = t.to(device_);
}

void Metric::check_same(size_t count, size_t i, const std::string& name,
                        const Tensor& value) const {
  ARETE_CHECK(count == states_.size() && states_[i].name == name,
              ValueError("metrics", "the states are those of another metric"));
  const State& s = states_[i];
  const IntList sizes = value.sizes();
  bool same = sizes.size() == s.sizes.size() + s.is_list;
  for (size_t d = 0; same && d < s.sizes.size(); ++d) same = sizes[d + s.is_list] == s.sizes[d];
  ARETE_CHECK(same, ValueError("metrics", "a state has other sizes than this metric's")
                        .argument(name)
                        .got(to_string(sizes)));
}

void Metric::merge(const Metric& other) {
  for (size_t i = 0; i < states_.size(); ++i)
    check_same(other.states_.size(), i, other.states_[i].name, other.state(i));
  for (size_t i = 0; i < states_.size(); ++i)
    if (const Tensor value = other.state(i).to(device_); value.numel()) add(i, value);
}

std::vector<std::pair<std::string, Tensor>> Metric::state_dict() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (size_t i = 0; i < states_.size(); ++i) all.emplace_back(states_[i].name, state(i));
  return all;
}

void Metric::load_state_dict(const std::vector<std::pair<std::string, Tensor>>& state) {
  for (size_t i = 0; i < states_.size(); ++i)
    check_same(state.size(), i, i < state.size() ? state[i].first : "",
               i < state.size() ? state[i].second : Tensor());
  for (size_t i = 0; i < states_.size(); ++i)
    states_[i].parts = {state[i].second.detach().to(device_, states_[i].dtype).clone()};
}

Tensor Metric::sync_and_compute(const distributed::ProcessGroupPtr& group) {
  const NoGradGuard no_grad;
  const int world = distributed::get_world_size(group);
  std::vector<std::vector<Tensor>> own;
  for (State& s : states_) own.push_back(s.parts);
  struct Restore {
    std::vector<State>& states;
    std::vector<std::vector<Tensor>>& own;
    ~Restore() {
      for (size_t i = 0; i < states.size(); ++i) states[i].parts = std::move(own[i]);
    }
  } const restore{states_, own};
  for (size_t i = 0; i < states_.size(); ++i) {
    State& s = states_[i];
    if (!s.is_list) {
      s.parts[0] = s.parts[0].clone();
      distributed::all_reduce(s.parts[0], {}, group);
      continue;
    }
    // Processes have seen different numbers of rows: all send as many as the one with the most.
    const Tensor mine = state(i).contiguous();
    const Tensor lengths = empty({world}, TensorOptions(kInt64, device_));
    distributed::all_gather_into_tensor(
        lengths, full({1}, mine.size(0), TensorOptions(kInt64, device_)), group);
    const std::vector<int64_t> counts = lengths.to_vector<int64_t>();
    const int64_t most = *std::ranges::max_element(counts);
    s.parts.clear();
    if (most == 0) continue;
    Tensor padded = zeros(rows_of(s.sizes, most), TensorOptions(s.dtype, device_));
    if (mine.numel()) padded.narrow(0, 0, mine.size(0)).copy_(mine);
    Tensor all = empty(rows_of(s.sizes, most * world), TensorOptions(s.dtype, device_));
    distributed::all_gather_into_tensor(all, padded, group);
    for (int r = 0; r < world; ++r) s.parts.push_back(all.narrow(0, r * most, counts[size_t(r)]));
  }
  return compute();
}

}  // namespace arete::metrics
