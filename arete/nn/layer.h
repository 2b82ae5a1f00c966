// Layers that are described by a line of layer_table.cpp: their options with defaults, what users
// can get wrong in them, the operator that they call, and the text that they print. Python's layers
// are made from the same lines.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "arete/nn/module.h"
#include "arete/ops/extent.h"

namespace arete::nn {

struct LayerRecord;
class LayerOptions;

/// The value of a layer's option; the first stands for None.
using Option = std::variant<std::monostate, bool, int64_t, double, std::string,
                            std::vector<int64_t>, std::vector<double>, Tensor>;
inline Option option(std::string_view v) { return std::string(v); }
inline Option option(IntList v) { return std::vector<int64_t>(v.begin(), v.end()); }
inline Option option(const Extent& v) { return option(IntList(v.values())); }
inline Option option(const Padding& v) {
  return v.mode().empty() ? option(IntList(v.values())) : option(v.mode());
}
template <class T>
Option option(const std::optional<T>& v) {
  if (!v) return {};
  if constexpr (std::is_same_v<T, Extent>)
    return option(*v);
  else
    return *v;
}
/// Options by name; those left out have their defaults. (A class, since programs that include this
/// would compile the vector's functions again.)
class OptionList {
 public:
  using Entry = std::pair<std::string_view, Option>;
  OptionList(std::initializer_list<Entry> entries);
  ~OptionList();
  OptionList(const OptionList& other);
  OptionList& operator=(const OptionList&) = delete;
  void add(std::string_view name, Option value);
  std::span<const Entry> entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// "MaxPool" and 2: "MaxPool2d".
std::string numbered(const char* base, int n);

/// A layer of a line of the table.
class DescribedLayer : public Module {
 public:
  std::string name() const override;
  std::string extra_repr() const override;

 protected:
  /// Throws what the user got wrong.
  DescribedLayer(std::string_view layer, const OptionList& options);
  LayerOptions options() const;

  const LayerRecord* record_;
  std::vector<Option> options_;
};

/// A layer that calls one operator with its options.
class OperatorLayer : public DescribedLayer {
 public:
  Tensor forward(const Tensor& input) override { return run({input}); }

 protected:
  using DescribedLayer::DescribedLayer;
  /// The operator's tensors in its order; undefined ones at the end may be left out.
  Tensor run(std::initializer_list<Tensor> inputs) const;
};

/// One of two tensors.
class PairLayer : public OperatorLayer {
 public:
  using OperatorLayer::forward;
  virtual Tensor forward(const Tensor& first, const Tensor& second) const {
    return run({first, second});
  }
  Tensor operator()(const Tensor& first, const Tensor& second) const {
    return forward(first, second);
  }

 protected:
  using OperatorLayer::OperatorLayer;
};

}  // namespace arete::nn
