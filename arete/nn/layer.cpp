#include "arete/nn/layer.h"

#include <variant>

#include "arete/nn/layer_record_internal.h"
#include "arete/ops/call.h"

namespace arete::nn {

using ops::Arg;

std::string numbered(const char* base, int n) { return base + std::to_string(n) + "d"; }

Option::Option() = default;
Option::Option(const Value& v)
    : value_(v.index() == 0 ? nullptr : std::make_shared<const Value>(v)) {}
Option::Option(Boolean v) : Option(Value(v.value)) {}
Option::Option(int64_t v) : Option(Value(v)) {}
Option::Option(double v) : Option(Value(v)) {}
Option::Option(std::string_view v) : Option(Value(std::string(v))) {}
Option::Option(IntList v) : Option(Value(std::vector<int64_t>(v.begin(), v.end()))) {}
Option::Option(const std::vector<double>& v) : Option(Value(v)) {}
Option::Option(const Padding& v)
    : Option(v.mode().empty() ? Option(IntList(v.values())) : Option(v.mode())) {}
Option::Option(const Tensor& v) : Option(Value(v)) {}
const Option::Value& Option::operator*() const {
  static const Value none;
  return value_ ? *value_ : none;
}

OptionList::OptionList(std::initializer_list<Entry> entries) : entries_(entries) {}
OptionList::~OptionList() = default;
OptionList::OptionList(const OptionList& other) = default;
void OptionList::add(std::string_view name, Option value) {
  entries_.push_back({name, std::move(value)});
}

DescribedLayer::DescribedLayer(std::string_view layer, const OptionList& options)
    : record_(&layer_record(layer)), options_(LayerOptions(*record_, options).values()) {
  if (record_->check) record_->check(this->options());
}

DescribedLayer::~DescribedLayer() = default;
DescribedLayer::DescribedLayer(const DescribedLayer&) = default;
DescribedLayer& DescribedLayer::operator=(const DescribedLayer&) = default;

LayerOptions DescribedLayer::options() const { return LayerOptions(*record_, options_); }
std::string DescribedLayer::name() const { return record_->name; }
std::string DescribedLayer::extra_repr() const { return record_->repr(options_); }

namespace {
Arg borrowed(const Option& v) {
  return std::visit(
      []<class T>(const T& value) {
        if constexpr (std::is_same_v<T, std::monostate>)
          return Arg();
        else if constexpr (std::is_same_v<T, std::string>)
          return Arg(std::string_view(value));
        else if constexpr (std::is_same_v<T, std::vector<int64_t>>)
          return Arg(IntList(value));
        else
          return Arg(value);
      },
      *v);
}
}  // namespace

Tensor OperatorLayer::run(std::initializer_list<Tensor> inputs) const {
  SmallVector<Arg, 16> args(record_->sources.size());
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
  const std::span<const Arg> all(args.data(), args.size());
  const ops::OpRecord& op = *record_->op;
  // Dropout out of training writes nothing.
  const bool idle = op.random && !is_training() && op.name.find("dropout") != std::string::npos;
  if (idle || record_->inplace < 0 || !std::get<bool>(*options_[size_t(record_->inplace)]))
    return ops::call(op, all);
  Tensor x = *inputs.begin();
  ops::call_in_place(x, op, all);
  return x;
}

}  // namespace arete::nn
