#include "arete/core/scalar.h"

#include <charconv>
#include <cmath>

#include "arete/base/error.h"

namespace arete {

namespace {

// As Python writes numbers: the shortest text that reads back, with a point or an exponent.
std::string real_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[40];
  const double magnitude = std::fabs(v);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, v, format).ptr;
  std::string text(buffer, end);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

}  // namespace

void Scalar::refuse_large() const {
  throw ValueError("", "value cannot be converted to type int64 without overflow").got(to_string());
}

DType Scalar::dtype() const {
  switch (kind_) {
    case Kind::boolean:
      return kBool;
    case Kind::integer:
      return is_large_ ? kUInt64 : kInt64;
    case Kind::floating:
      return default_dtype();
    case Kind::complex:
      return default_dtype() == kFloat64 ? kComplex128 : kComplex64;
  }
  __builtin_unreachable();
}

std::string Scalar::to_string() const {
  switch (kind_) {
    case Kind::boolean:
      return i_ ? "True" : "False";
    case Kind::integer:
      return is_large_ ? std::to_string(uint64_t(i_)) : std::to_string(i_);
    case Kind::floating:
      return real_text(re_);
    case Kind::complex: {
      const std::string imaginary = real_text(im_);
      return "(" + real_text(re_) + (imaginary[0] == '-' ? "" : "+") + imaginary + "j)";
    }
  }
  __builtin_unreachable();
}

}  // namespace arete
