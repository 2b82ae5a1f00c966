// Arithmetic of complex numbers inside expression programs: a number is a pair of real values.
// Branch cuts and signs of zeros are those of C99's Annex G.
#pragma once

#include "arete/expr/value.h"

namespace arete::ops {

/// A symbolic complex number.
struct Complex {
  expr::Value re, im;
};

Complex operator+(Complex a, Complex b);
Complex operator-(Complex a, Complex b);
Complex operator-(Complex a);
Complex operator*(Complex a, Complex b);
Complex operator*(Complex a, expr::Value b);
Complex operator*(Complex a, double b);
/// By Smith's method: intermediate values do not overflow where the quotient does not.
Complex operator/(Complex a, Complex b);
Complex conj(Complex a);
/// i * a and -i * a, exactly.
Complex times_i(Complex a);
Complex times_minus_i(Complex a);
/// Real numbers plus a: the imaginary part keeps its sign, also that of zero.
Complex operator+(double a, Complex b);
Complex operator-(double a, Complex b);

expr::Value operator==(Complex a, Complex b);
expr::Value is_zero(Complex a);
Complex where(expr::Value condition, Complex a, Complex b);
/// `re` + `im` i as a constant beside `like`.
Complex constant_like(expr::Value like, double re, double im);

/// |a| without overflow, and the angle of a in (-pi, pi].
expr::Value abs(Complex a);
expr::Value angle(Complex a);
/// a / |a|; 0 for 0.
Complex sgn(Complex a);
Complex reciprocal(Complex a);
Complex sqrt(Complex a);
Complex exp(Complex a);
Complex expm1(Complex a);
Complex log(Complex a);
Complex log1p(Complex a);
Complex sin(Complex a);
Complex cos(Complex a);
Complex tan(Complex a);
Complex sinh(Complex a);
Complex cosh(Complex a);
Complex tanh(Complex a);
Complex asin(Complex a);
Complex acos(Complex a);
Complex atan(Complex a);
Complex asinh(Complex a);
Complex acosh(Complex a);
Complex atanh(Complex a);
/// exp(b log(a)); 0 ** 0 is 1 and 0 ** b is 0 where b has a positive real part.
Complex pow(Complex a, Complex b);

}  // namespace arete::ops
