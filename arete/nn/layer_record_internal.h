// The lines of layer_table.cpp, read.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "arete/nn/layer.h"
#include "arete/ops/record.h"

namespace arete::nn {

struct Option::Value : std::variant<std::monostate, bool, int64_t, double, std::string,
                                    std::vector<int64_t>, std::vector<double>, Tensor> {
  using variant::variant;
};

/// The options of a layer by name.
class LayerOptions {
 public:
  LayerOptions(const LayerRecord& layer, const OptionList& given);
  /// All of them, in the order of the schema.
  LayerOptions(const LayerRecord& layer, std::vector<Option> all);

  const LayerRecord& layer() const { return *layer_; }
  const Option& operator[](std::string_view name) const;
  bool has(std::string_view name) const { return (*this)[name].has_value(); }
  template <class T>
  const T& get(std::string_view name) const {
    return std::get<T>(*(*this)[name]);
  }
  int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  const std::string& text(std::string_view name) const { return get<std::string>(name); }
  const std::vector<int64_t>& ints(std::string_view name) const {
    return get<std::vector<int64_t>>(name);
  }
  Shape shape(std::string_view name) const { return Shape(IntList(ints(name))); }
  const std::vector<Option>& values() const { return values_; }

 private:
  const LayerRecord* layer_;
  std::vector<Option> values_;
};

struct LayerRecord {
  /// "MaxPool2d(int[] kernel_size, int[]? stride=kernel_size, ...)". A default may be the name of
  /// another option; one number for "int[2]" stands for two.
  std::string schema;
  /// "elu": an operator of tensors, and of the options by their names, of `training` by the mode,
  /// of `inplace` by the in-place form. "pad(pad=padding, mode='reflect')" says what is different.
  std::string call;
  /// "=size, alpha, 'mode', inplace?": options of the printed text, a value alone after "=", in
  /// quotes where they stand, and with "?" only where it is not the default.
  std::string shown;
  /// Throws what users can get wrong; or null.
  void (*check)(const LayerOptions&) = nullptr;

  // ---- what follows from these
  std::string name;
  std::vector<ops::SchemaArg> options;
  std::vector<Option> defaults;
  struct Shown {
    size_t option;
    bool named, quoted, unless_default;
  };
  std::vector<Shown> text;
  /// Where an argument of the operator comes from.
  struct Source {
    enum Kind : uint8_t { input, option, literal, training } kind;
    size_t index = 0;  // of the input or option
    Option value = {};
  };
  const ops::OpRecord* op = nullptr;
  std::vector<Source> sources;
  int inplace = -1;  // the option, or none

  /// Position of an option; BugError if there is none.
  size_t option(std::string_view name) const;
  /// How many numbers an option has, 2 for "int[2]"; 0: any.
  size_t numbers(size_t option) const;
  std::string repr(const std::vector<Option>& values) const;

  /// Makes the rest from schema, call and shown; BugError for what does not fit together.
  void read();

 private:
  void read_options();
  void read_text();
  void read_call();
};

/// Of all layers that there are in either language, in order of names.
std::span<const LayerRecord> all_layers();
/// Null if there is none.
const LayerRecord* find_layer(std::string_view name);
/// BugError if there is none.
const LayerRecord& layer_record(std::string_view name);

}  // namespace arete::nn
