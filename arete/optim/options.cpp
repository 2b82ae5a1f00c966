#include "arete/optim/options.h"

#include <limits>

#include "arete/core/modes.h"
#include "arete/ops/call.h"

namespace arete::optim {

Setting::Setting(Tensor value) : tensor_(std::move(value)) {
  ARETE_CHECK(tensor_.defined() && tensor_.numel() == 1,
              ValueError("optim", "Tensor lr must be 1-element")
                  .got(tensor_.defined() ? ops::describe(tensor_) : "an undefined tensor")
                  .hint("a setting that is a tensor has one element"));
  ARETE_CHECK(!is_complex(tensor_.dtype()),
              TypeError("optim", "a setting cannot be complex").got(ops::describe(tensor_)));
}

Setting Setting::fixed(Setting value) {
  value.fixed_ = true;
  return value;
}

void Setting::set(double value) {
  if (tensor_.defined()) {
    const NoGradGuard no_grad;
    tensor_.fill_(value);
  } else {
    value_ = value;
    whole_ = false;
  }
}

std::string Setting::text() const {
  return whole_ ? std::to_string(int64_t(value_)) : Scalar(value()).to_string();
}

bool Check::holds(double value) const {
  switch (range) {
    case anything:
      return true;
    case not_negative:
      return value >= 0;
    case fraction:
      return value >= 0 && value < 1;
    case up_to_one:
      return value >= 0 && value <= 1;
    case not_positive:
      return value <= 0;
    case at_least_one:
      return value >= 1;
  }
  ARETE_BUG("an unknown range");
}

double number_of(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

void SettingsWriter::add(const char* name, Setting value, Check check) {
  static constexpr const char* expected[] = {"",
                                             "a number that is not negative",
                                             "a number in [0, 1)",
                                             "a number in [0, 1]",
                                             "a number that is not positive",
                                             "a number that is at least 1"};
  ARETE_CHECK(!checks_ || check.range == Check::anything || check.holds(value.value()),
              ValueError(optimizer_, check.text + value.text()).expected(expected[check.range]));
  settings_.emplace_back(name, check.fixed ? Setting::fixed(std::move(value)) : std::move(value));
}

}  // namespace arete::optim
