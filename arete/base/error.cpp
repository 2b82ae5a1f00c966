#include "arete/base/error.h"

namespace arete {

Error::Error(ErrorKind kind, std::string_view op, std::string_view message)
    : kind_(kind), op_(op), message_(message) {
  rebuild();
}
Error::Error(const Error&) = default;
Error::Error(Error&&) noexcept = default;
Error& Error::operator=(const Error&) = default;
Error& Error::operator=(Error&&) noexcept = default;
Error::~Error() = default;

void Error::set(std::string& field, std::string_view text) {
  field.assign(text);
  rebuild();
}

void Error::rebuild() {
  // The well-known text comes first, so that people who search for it find it.
  what_ = message_;
  auto add = [this](std::string_view label, const std::string& value) {
    if (value.empty()) return;
    what_ += what_.empty() || what_.back() == '.' ? " " : ". ";
    what_ += label;
    what_ += value;
  };
  if (!op_.empty()) add("Operator: ", op_);
  add("Argument: ", argument_);
  add("Expected: ", expected_);
  add("Got: ", got_);
  add("Hint: ", hint_);
}

namespace detail {
void throw_bug(const char* file, int line, const char* condition, const char* text) {
  std::string message = "internal error in Arete at ";
  const std::string_view path = file;
  const auto slash = path.rfind("arete/");
  message += slash == std::string_view::npos ? path : path.substr(slash);
  message += ":" + std::to_string(line);
  if (condition) message += std::string(", expected ") + condition;
  if (text && *text) message += std::string(": ") + text;
  throw BugError("", message).hint("please report this with the program that caused it");
}
}  // namespace detail

}  // namespace arete
