// A number of any dtype's category, as users write it beside tensors.
#pragma once

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
      : kind_(Kind::integer), is_large_(std::is_unsigned_v<T> && int64_t(v) < 0), i_(int64_t(v)) {}
  Scalar(float v) : Scalar(double(v)) {}
  Scalar(double v) : kind_(Kind::floating), re_(v) {}
  template <ComplexNumber T>
  Scalar(const T& v) : kind_(Kind::complex), re_(v.real()), im_(v.imag()) {}

  Kind kind() const { return kind_; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  bool is_integral() const { return kind_ <= Kind::integer; }
  bool is_floating() const { return kind_ == Kind::floating; }
  bool is_complex() const { return kind_ == Kind::complex; }
  /// Whether this is an integer that only uint64 has.
  bool is_large() const { return is_large_; }
  /// Promotion category as in category_of(DType).
  int category() const { return int(kind_); }
  /// The dtype of a tensor made from this number alone: bool, int64, default_dtype(), complex64.
  DType dtype() const;

  double to_double() const {
    return !is_integral() ? re_ : is_large_ ? double(uint64_t(i_)) : double(i_);
  }
  /// ValueError for an integer that is_large().
  int64_t to_int64() const {
    if (is_large_) refuse_large();
    return is_integral() ? i_ : int64_t(re_);
  }
  /// The 64 bits of the integer, whether it is of int64 or uint64.
  uint64_t to_bits() const { return is_integral() ? uint64_t(i_) : uint64_t(int64_t(re_)); }
  bool to_bool() const { return is_integral() ? i_ != 0 : (re_ != 0 || im_ != 0); }
  /// std::complex<double>(v.real(), v.imag()) is any number as a complex one.
  double real() const { return to_double(); }
  double imag() const { return is_complex() ? im_ : 0.0; }

  std::string to_string() const;
  bool operator==(const Scalar& o) const {
    if (is_integral() && o.is_integral()) return i_ == o.i_ && is_large_ == o.is_large_;
    return real() == o.real() && imag() == o.imag();
  }

 private:
  [[noreturn]] void refuse_large() const;

  Kind kind_;
  bool is_large_ = false;
  union {
    int64_t i_;
    double re_;
  };
  double im_ = 0;
};

}  // namespace arete
