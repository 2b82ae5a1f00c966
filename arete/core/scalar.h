// A number of any dtype's category, as users write it beside tensors.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>

#include "arete/core/dtype.h"

namespace arete {

/// A boolean, integer, floating or complex number. Its category takes part in promotion, its
/// width does not (as Python numbers beside tensors).
class Scalar {
 public:
  enum class Kind : uint8_t { boolean, integer, floating, complex };

  Scalar() : Scalar(0) {}
  Scalar(bool v) : kind_(Kind::boolean), i_(v) {}
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Scalar(T v)
      : kind_(Kind::integer), i_(int64_t(v)) {}
  Scalar(float v) : Scalar(double(v)) {}
  Scalar(double v) : kind_(Kind::floating), re_(v) {}
  Scalar(std::complex<double> v) : kind_(Kind::complex), re_(v.real()), im_(v.imag()) {}

  Kind kind() const { return kind_; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_integral() const { return kind_ <= Kind::integer; }
  bool is_floating() const { return kind_ == Kind::floating; }
  bool is_complex() const { return kind_ == Kind::complex; }
  /// Promotion category as in category_of(DType).
  int category() const { return int(kind_); }
  /// The dtype of a tensor made from this number alone: bool, int64, default_dtype(), complex64.
  DType dtype() const;

  double to_double() const { return is_integral() ? double(i_) : re_; }
  int64_t to_int64() const { return is_integral() ? i_ : int64_t(re_); }
  bool to_bool() const { return is_integral() ? i_ != 0 : (re_ != 0 || im_ != 0); }
  std::complex<double> to_complex() const { return {to_double(), is_complex() ? im_ : 0.0}; }

  std::string to_string() const;
  bool operator==(const Scalar& o) const {
    if (is_integral() && o.is_integral()) return i_ == o.i_;
    return to_complex() == o.to_complex();
  }

 private:
  Kind kind_;
  union {
    int64_t i_;
    double re_;
  };
  double im_ = 0;
};

}  // namespace arete
