#include "arete/nn/state_dict.h"

#include <algorithm>

namespace arete::nn {

// The position in `sorted_` where `name` stands or belongs.
size_t StateDict::place(std::string_view name) const {
  const auto at = std::lower_bound(
      sorted_.begin(), sorted_.end(), name,
      [&](uint32_t i, std::string_view n) { return std::string_view(entries_[i].first) < n; });
  return size_t(at - sorted_.begin());
}

const Tensor* StateDict::find(std::string_view name) const {
  const size_t p = place(name);
  if (p == sorted_.size() || entries_[sorted_[p]].first != name) return nullptr;
  return &entries_[sorted_[p]].second;
}

void StateDict::insert(std::string_view name, const Tensor& value) {
  const size_t p = place(name);
  if (p < sorted_.size() && entries_[sorted_[p]].first == name) {
    entries_[sorted_[p]].second = value;
    return;
  }
  sorted_.insert(sorted_.begin() + int64_t(p), uint32_t(entries_.size()));
  entries_.emplace_back(name, value);
}

const Tensor& StateDict::at(std::string_view name) const {
  const Tensor* found = find(name);
  ARETE_CHECK(found, ValueError("state_dict", "there is no entry of this name").got(name));
  return *found;
}

bool StateDict::erase(std::string_view name) {
  const size_t p = place(name);
  if (p == sorted_.size() || entries_[sorted_[p]].first != name) return false;
  const uint32_t index = sorted_[p];
  entries_.erase(entries_.begin() + index);
  sorted_.erase(sorted_.begin() + int64_t(p));
  for (uint32_t& i : sorted_)
    if (i > index) --i;
  return true;
}

std::vector<std::string> StateDict::keys() const {
  std::vector<std::string> names;
  for (const Entry& e : entries_) names.push_back(e.first);
  return names;
}

}  // namespace arete::nn
