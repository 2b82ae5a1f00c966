// An ordered map from names to tensors: what modules save and load.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::nn {

/// Names and tensors in the order in which they were added (as PyTorch's state_dict). Copies share
/// the tensors.
class StateDict {
 public:
  using Entry = std::pair<std::string, Tensor>;
  StateDict() = default;
  StateDict(std::initializer_list<Entry> entries) : StateDict(entries.begin(), entries.end()) {}
  /// From any map or list of (name, tensor) pairs; of repeated names the last one counts.
  template <class Range>
  requires(!std::same_as<std::remove_cvref_t<Range>, StateDict>) && requires(const Range& r) {
    { r.begin()->first } -> std::convertible_to<std::string>;
    { r.begin()->second } -> std::convertible_to<Tensor>;
  }
  StateDict(const Range& entries) : StateDict(entries.begin(), entries.end()) {}

  /// Sets or adds.
  void insert(std::string_view name, const Tensor& value);
  /// Null if there is none.
  const Tensor* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// ValueError naming the key if there is none.
  const Tensor& at(std::string_view name) const;
  /// True if it was there.
  bool erase(std::string_view name);
  std::vector<std::string> keys() const;
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  template <class It>
  StateDict(It first, It last) {
    for (; first != last; ++first) insert(first->first, first->second);
  }
  size_t place(std::string_view name) const;
  std::vector<Entry> entries_;
  std::vector<uint32_t> sorted_;  // positions in entries_, by name
};

}  // namespace arete::nn
