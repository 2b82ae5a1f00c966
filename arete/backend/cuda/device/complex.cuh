// Complex numbers of users' kernels, under the names of C++ and of CuPy's <cupy/complex.cuh>. They
// lie in memory as those of tensors do.
#pragma once

template <class T>
struct alignas(2 * sizeof(T)) complex {
  typedef T value_type;

  complex() = default;
  constexpr complex(T real, T imag = T()) : re_(real), im_(imag) {}
  // Without a cast to the wider type only, so that sums of two types have one meaning.
  template <class U, char (*)[sizeof(U) <= sizeof(T) ? 1 : -1] = nullptr>
  constexpr complex(const complex<U>& z) : re_(z.real()), im_(z.imag()) {}
  template <class U, char (*)[sizeof(U) > sizeof(T) ? 1 : -1] = nullptr>
  constexpr explicit complex(const complex<U>& z) : re_(T(z.real())), im_(T(z.imag())) {}

  constexpr T real() const { return re_; }
  constexpr T imag() const { return im_; }
  void real(T v) { re_ = v; }
  void imag(T v) { im_ = v; }

  complex& operator+=(const complex& z) { return *this = *this + z; }
  complex& operator-=(const complex& z) { return *this = *this - z; }
  complex& operator*=(const complex& z) { return *this = *this * z; }
  complex& operator/=(const complex& z) { return *this = *this / z; }
  friend complex operator+(const complex& z) { return z; }
  friend complex operator-(const complex& z) { return {-z.re_, -z.im_}; }
  friend complex operator+(const complex& a, const complex& b) {
    return {a.re_ + b.re_, a.im_ + b.im_};
  }
  friend complex operator-(const complex& a, const complex& b) {
    return {a.re_ - b.re_, a.im_ - b.im_};
  }
  friend complex operator*(const complex& a, const complex& b) {
    return {a.re_ * b.re_ - a.im_ * b.im_, a.re_ * b.im_ + a.im_ * b.re_};
  }
  /// R. L. Smith's way (1962): squares of the divisor's parts may leave the range.
  friend complex operator/(const complex& a, const complex& b) {
    if (fabs(b.re_) >= fabs(b.im_)) {
      const T ratio = b.im_ / b.re_, divisor = b.re_ + b.im_ * ratio;
      return {(a.re_ + a.im_ * ratio) / divisor, (a.im_ - a.re_ * ratio) / divisor};
    }
    const T ratio = b.re_ / b.im_, divisor = b.re_ * ratio + b.im_;
    return {(a.re_ * ratio + a.im_) / divisor, (a.im_ * ratio - a.re_) / divisor};
  }
  friend bool operator==(const complex& a, const complex& b) {
    return a.re_ == b.re_ && a.im_ == b.im_;
  }
  friend bool operator!=(const complex& a, const complex& b) { return !(a == b); }

  friend T real(const complex& z) { return z.re_; }
  friend T imag(const complex& z) { return z.im_; }
  friend complex conj(const complex& z) { return {z.re_, -z.im_}; }
  friend T norm(const complex& z) { return z.re_ * z.re_ + z.im_ * z.im_; }
  friend T abs(const complex& z) { return hypot(z.re_, z.im_); }
  friend T arg(const complex& z) { return atan2(z.im_, z.re_); }
  friend complex exp(const complex& z) {
    const T half =
        exp(z.re_ / 2);  // twice, since exp(re) may leave the range where a part does not
    if (isinf(half * half))
      return {times(half, times(half, cos(z.im_))), times(half, times(half, sin(z.im_)))};
    const T e = exp(z.re_);
    return {e * cos(z.im_), e * sin(z.im_)};
  }
  friend complex log(const complex& z) { return {log(abs(z)), arg(z)}; }
  friend complex log10(const complex& z) { return {log10(abs(z)), arg(z) / log(T(10))}; }
  friend complex sqrt(const complex& z) {
    const T r = abs(z);
    if (isinf(r) && isfinite(z.re_) && isfinite(z.im_))
      return sqrt(complex(z.re_ / 4, z.im_ / 4)) * complex(T(2));
    const T m = sqrt(r / 2 + fabs(z.re_) / 2);
    if (m == 0) return {T(0), z.im_};
    const T other = fabs(z.im_) / (2 * m);
    return {z.re_ >= 0 ? m : other, copysign(z.re_ >= 0 ? other : m, z.im_)};
  }
  friend complex pow(const complex& z, const complex& e) {
    if (e == complex(T(0))) return T(1);
    if (z == complex(T(0)) && e.re_ > 0) return T(0);
    return exp(e * log(z));
  }
  friend complex sin(const complex& z) {
    return {times(cosh(z.im_), sin(z.re_)), times(sinh(z.im_), cos(z.re_))};
  }
  friend complex cos(const complex& z) {
    return {times(cosh(z.im_), cos(z.re_)), -times(sinh(z.im_), sin(z.re_))};
  }
  friend complex tan(const complex& z) {  // -i tanh(iz)
    const complex t = tanh(complex(-z.im_, z.re_));
    return {t.im_, -t.re_};
  }
  friend complex sinh(const complex& z) {
    return {times(sinh(z.re_), cos(z.im_)), times(cosh(z.re_), sin(z.im_))};
  }
  friend complex cosh(const complex& z) {
    return {times(cosh(z.re_), cos(z.im_)), times(sinh(z.re_), sin(z.im_))};
  }
  friend complex tanh(const complex& z) {
    // Beyond this the hyperbolic functions of the real part are its exponential, in f64, too.
    if (fabs(z.re_) > T(20))
      return {copysign(T(1), z.re_), 4 * sin(z.im_) * cos(z.im_) * exp(-2 * fabs(z.re_))};
    return sinh(z) / cosh(z);
  }

 private:
  /// A factor that may be infinite, of nothing where the other one is 0.
  static T times(T large, T small) { return small == 0 ? small : large * small; }

  T re_, im_;
};

template <class T>
complex<T> polar(T magnitude, T angle = T()) {
  return {magnitude * cos(angle), magnitude * sin(angle)};
}
