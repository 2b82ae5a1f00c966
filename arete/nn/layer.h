// Layers that are described by a line of layer_table.cpp: their options with defaults, what users
// can get wrong in them, the operator that they call, and the text that they print. Python's layers
// are made from the same lines.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arete/nn/module.h"
#include "arete/ops/extent.h"

namespace arete::nn {

struct LayerRecord;
class LayerOptions;

/// The value of a layer's option, or None. What it may be stands in layer_record_internal.h:
/// programs that include this would compile the variant and the list's functions again.
class Option {
 public:
  struct Value;
  Option();
  Option(const Value& value);
  // Not what converts to bool, as texts in quotes do.
  template <std::same_as<bool> T>
  Option(T v) : Option(Boolean{v}) {}
  Option(int64_t v);
  Option(double v);
  Option(std::string_view v);
  Option(IntList v);
  Option(const std::vector<int64_t>& v) : Option(IntList(v)) {}
  Option(const std::vector<double>& v);
  Option(const Extent& v) : Option(IntList(v.values())) {}
  Option(const Padding& v);
  Option(const Tensor& v);
  template <class T>
  Option(const std::optional<T>& v) : Option(v ? Option(*v) : Option()) {}
  bool has_value() const { return value_ != nullptr; }
  const Value& operator*() const;

 private:
  struct Boolean {
    bool value;
  };
  Option(Boolean v);
  std::shared_ptr<const Value> value_;
};
/// Options by name; those left out have their defaults.
class OptionList {
 public:
  struct Entry {
    std::string_view name;
    Option value;
  };
  OptionList(std::initializer_list<Entry> entries);
  ~OptionList();
  OptionList(const OptionList& other);
  OptionList& operator=(const OptionList&) = delete;
  void add(std::string_view name, Option value);
  const std::vector<Entry>& entries() const { return entries_; }

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
  ~DescribedLayer() override;
  DescribedLayer(const DescribedLayer&);
  DescribedLayer& operator=(const DescribedLayer&);

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
