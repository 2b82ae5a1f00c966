#include <algorithm>
#include <array>

#include "arete/nn/layer_internal.h"
#include "arete/nn/layer_record_internal.h"
#include "arete/ops/call.h"

namespace arete::nn {

using ops::Arg;

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};

void spread(size_t count, Option& v) {
  const auto fill = [count](auto* list) {
    if (list && count > 0 && list->size() == 1) list->assign(count, list->front());
  };
  fill(std::get_if<std::vector<int64_t>>(&v));
  fill(std::get_if<std::vector<double>>(&v));
}

// As Python prints it; `alone`: one number of a list stands for itself.
std::string text_of(const Option& v, bool quoted, bool alone) {
  return std::visit(Overloaded{
                        [](std::monostate) -> std::string { return "None"; },
                        [](bool b) -> std::string { return nn::text_of(b); },
                        [](int64_t i) { return nn::text_of(i); },
                        [](double d) { return nn::text_of(d); },
                        [&](const std::string& s) { return quoted ? "'" + s + "'" : s; },
                        [&](const std::vector<int64_t>& l) {
                          return alone && l.size() == 1 ? nn::text_of(l[0]) : tuple_text(l);
                        },
                        [](const std::vector<double>& l) {
                          std::string text;
                          for (double d : l) text += (text.empty() ? "" : ", ") + nn::text_of(d);
                          return l.size() == 1 ? text : "(" + text + ")";
                        },
                        [](const Tensor& t) { return nn::text_of(t.sizes()); },
                    },
                    v);
}

Arg borrowed(const Option& v) {
  return std::visit(Overloaded{
                        [](std::monostate) { return Arg(); },
                        [](const std::string& s) { return Arg(std::string_view(s)); },
                        [](const std::vector<int64_t>& l) { return Arg(IntList(l)); },
                        [](const auto& other) { return Arg(other); },
                    },
                    v);
}

// Options whose default is another one, and one number for several.
std::vector<Option> completed(const LayerRecord& r, std::vector<Option> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t k = 0; values[i].index() == 0 && k < i; ++k)
      if (r.options[k].name == r.options[i].default_text) values[i] = values[k];
    spread(r.numbers(i), values[i]);
  }
  return values;
}

std::vector<Option> with_defaults(const LayerRecord& r, const OptionList& given) {
  std::vector<Option> values = r.defaults;
  for (const auto& [name, value] : given) values[r.option(name)] = value;
  return completed(r, std::move(values));
}

}  // namespace

LayerOptions::LayerOptions(const LayerRecord& layer, const OptionList& given)
    : layer_(&layer), values_(with_defaults(layer, given)) {}
LayerOptions::LayerOptions(const LayerRecord& layer, std::vector<Option> all)
    : layer_(&layer), values_(completed(layer, std::move(all))) {}
const Option& LayerOptions::operator[](std::string_view name) const {
  return values_[layer_->option(name)];
}

size_t LayerRecord::option(std::string_view wanted) const {
  for (size_t i = 0; i < options.size(); ++i)
    if (options[i].name == wanted) return i;
  ARETE_BUG((name + " has no option " + std::string(wanted)).c_str());
}

size_t LayerRecord::numbers(size_t i) const {
  const std::string& type = options[i].type;
  const size_t open = type.find('[');
  return open == std::string::npos || type[open + 1] == ']' ? 0 : std::stoul(type.substr(open + 1));
}

std::string LayerRecord::repr(const std::vector<Option>& values) const {
  std::string result;
  for (const Shown& s : text) {
    const bool alone = numbers(s.option) == 0;
    const std::string value = text_of(values[s.option], s.quoted, alone);
    if (s.unless_default) {
      Option usual = defaults[s.option];
      spread(numbers(s.option), usual);
      if (value == text_of(usual, s.quoted, alone)) continue;
    }
    result += (result.empty() ? "" : ", ") + (s.named ? options[s.option].name + "=" : "") + value;
  }
  return result;
}

std::string numbered(const char* base, int n) { return base + std::to_string(n) + "d"; }

DescribedLayer::DescribedLayer(std::string_view layer, const OptionList& options)
    : record_(&layer_record(layer)), options_(with_defaults(*record_, options)) {
  if (record_->check) record_->check(this->options());
}

LayerOptions DescribedLayer::options() const { return LayerOptions(*record_, options_); }
std::string DescribedLayer::name() const { return record_->name; }
std::string DescribedLayer::extra_repr() const { return record_->repr(options_); }

Tensor OperatorLayer::run(std::initializer_list<Tensor> inputs) const {
  std::array<Arg, 16> args;
  for (size_t i = 0; i < record_->sources.size(); ++i) {
    const LayerRecord::Source& s = record_->sources[i];
    switch (s.kind) {
      case LayerRecord::Source::input:
        if (s.index < inputs.size()) args[i] = Arg(inputs.begin()[s.index]);
        break;
      case LayerRecord::Source::option:
        args[i] = borrowed(options_[s.index]);
        break;
      case LayerRecord::Source::literal:
        args[i] = borrowed(s.value);
        break;
      case LayerRecord::Source::training:
        args[i] = Arg(is_training());
    }
  }
  const std::span<const Arg> all(args.data(), record_->sources.size());
  const ops::OpRecord& op = *record_->op;
  // Dropout out of training writes nothing.
  const bool idle = op.random && !is_training() && op.name.find("dropout") != std::string::npos;
  if (idle || record_->inplace < 0 || !std::get<bool>(options_[size_t(record_->inplace)]))
    return ops::call(op, all);
  Tensor x = *inputs.begin();
  ops::call_in_place(x, op, all);
  return x;
}

}  // namespace arete::nn
