// Fourier transforms.
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

// Note [FFT]
// Lengths whose prime factors are small are transformed by Stockham's method: one pass for each
// factor r splits every sequence of length n into r of length n / r, writing from one buffer to the
// other so that the results come out in order. Other lengths n go through Bluestein's identity
// jk = (j^2 + k^2 - (k - j)^2) / 2, which makes the transform a convolution with a chirp, done by
// transforms of a power of two >= 2n - 1, in f64 whatever the dtype because errors of three
// transforms add up. The inverse is the forward transform with real and imaginary parts swapped
// before and after.
namespace arete::cpu {
namespace {

template <class T>
struct Complex {
  T re = 0, im = 0;
};
template <class T>
Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T>
Complex<T> scaled(Complex<T> a, T s) {
  return {a.re * s, a.im * s};
}
template <class T>
Complex<T> times_minus_i(Complex<T> a) {
  return {a.im, -a.re};
}

// exp(-2 pi i k / n), exact to the last digits: the angle is brought into the first octant by
// whole numbers.
Complex<double> root(int64_t k, int64_t n) {
  k %= n;
  if (8 * k > 4 * n) {  // the lower half mirrors the upper one
    const Complex<double> r = root(n - k, n);
    return {r.re, -r.im};
  }
  if (4 * k > n) {               // second quadrant
    const int64_t rest = 2 * k;  // the angle is pi - 2 pi (n / 2 - k) / n
    const double a = std::numbers::pi * double(n - rest) / double(n);
    return {-std::cos(a), -std::sin(a)};
  }
  if (8 * k > n) {  // second octant
    const double a = std::numbers::pi * double(n - 4 * k) / (2 * double(n));
    return {std::sin(a), -std::cos(a)};
  }
  const double a = 2 * std::numbers::pi * double(k) / double(n);
  return {std::cos(a), -std::sin(a)};
}
template <class T>
Complex<T> root_as(int64_t k, int64_t n) {
  const Complex<double> r = root(k, n);
  return {T(r.re), T(r.im)};
}

constexpr int64_t kLargestFactor = 31;

// The factors of n, fours first; empty if one is too large.
std::vector<int64_t> small_factors(int64_t n) {
  std::vector<int64_t> f;
  while (n % 4 == 0) f.push_back(4), n /= 4;
  for (int64_t p = 2; p <= kLargestFactor && n > 1; ++p)
    while (n % p == 0) f.push_back(p), n /= p;
  if (n > 1) f.clear();
  return f;
}

// One pass of Stockham's method: sequences of length r * m, s of them interleaved.
template <class T>
struct Pass {
  int64_t r, m, s;
  std::vector<Complex<T>> twiddles;  // (m, r - 1): exp(-2 pi i p j / (r m)), j from 1
  std::vector<Complex<T>> roots;     // exp(-2 pi i k / r), for r without code of its own
};

template <class T, int r>
std::array<Complex<T>, r> butterfly(const std::array<Complex<T>, r>& a) {
  if constexpr (r == 2) return {a[0] + a[1], a[0] - a[1]};
  if constexpr (r == 3) {
    const Complex<T> sum = a[1] + a[2];
    const Complex<T> mid = a[0] - scaled(sum, T(0.5));
    const Complex<T> turn =
        times_minus_i(scaled(a[1] - a[2], T(0.86602540378443864676372317075294)));
    return {a[0] + sum, mid + turn, mid - turn};
  }
  if constexpr (r == 4) {
    const Complex<T> e = a[0] + a[2], f = a[0] - a[2], g = a[1] + a[3],
                     h = times_minus_i(a[1] - a[3]);
    return {e + g, f + h, e - g, f - h};
  }
  if constexpr (r == 5) {
    constexpr T c1 = T(0.30901699437494742410229341718282),
                c2 = T(-0.80901699437494742410229341718282),
                s1 = T(0.95105651629515357211643933337938),
                s2 = T(0.58778525229247312916870595463907);
    const Complex<T> p = a[1] + a[4], q = a[2] + a[3], u = a[1] - a[4], v = a[2] - a[3];
    const Complex<T> x = a[0] + scaled(p, c1) + scaled(q, c2),
                     y = a[0] + scaled(p, c2) + scaled(q, c1);
    const Complex<T> z = times_minus_i(scaled(u, s1) + scaled(v, s2)),
                     w = times_minus_i(scaled(u, s2) - scaled(v, s1));
    return {a[0] + p + q, x + z, y + w, y - w, x - z};
  }
}

template <class T, int r>
void run_fixed(const Pass<T>& pass, const Complex<T>* __restrict x, Complex<T>* __restrict y) {
  const int64_t m = pass.m, s = pass.s;
  for (int64_t p = 0; p < m; ++p) {
    const Complex<T>* w = pass.twiddles.data() + p * (r - 1);
    const Complex<T>* from = x + s * p;
    Complex<T>* to = y + s * r * p;
    for (int64_t q = 0; q < s; ++q) {
      std::array<Complex<T>, r> a;
      for (int k = 0; k < r; ++k) a[size_t(k)] = from[q + s * m * k];
      const std::array<Complex<T>, r> b = butterfly<T, r>(a);
      to[q] = b[0];
      for (int j = 1; j < r; ++j) to[q + s * j] = b[size_t(j)] * w[j - 1];
    }
  }
}

template <class T>
void run_any(const Pass<T>& pass, const Complex<T>* __restrict x, Complex<T>* __restrict y) {
  const int64_t r = pass.r, m = pass.m, s = pass.s;
  std::array<Complex<T>, kLargestFactor> a;
  for (int64_t p = 0; p < m; ++p) {
    for (int64_t q = 0; q < s; ++q) {
      for (int64_t k = 0; k < r; ++k) a[size_t(k)] = x[q + s * (p + m * k)];
      for (int64_t j = 0; j < r; ++j) {
        Complex<T> sum = a[0];
        for (int64_t k = 1, at = j; k < r; ++k) {
          sum = sum + a[size_t(k)] * pass.roots[size_t(at)];
          at = at + j >= r ? at + j - r : at + j;
        }
        y[q + s * (r * p + j)] = j ? sum * pass.twiddles[size_t(p * (r - 1) + j - 1)] : sum;
      }
    }
  }
}

template <class T>
class Stockham {
 public:
  Stockham(int64_t n, const std::vector<int64_t>& factors) {
    int64_t length = n, s = 1;
    for (int64_t r : factors) {
      Pass<T> pass{r, length / r, s, {}, {}};
      for (int64_t p = 0; p < pass.m; ++p)
        for (int64_t j = 1; j < r; ++j) pass.twiddles.push_back(root_as<T>(p * j, length));
      if (r > 5)
        for (int64_t k = 0; k < r; ++k) pass.roots.push_back(root_as<T>(k, r));
      passes_.push_back(std::move(pass));
      length /= r;
      s *= r;
    }
  }
  // The forward transform of `a`; the result is in the buffer returned, `a` or `b`.
  Complex<T>* run(Complex<T>* a, Complex<T>* b) const {
    for (const Pass<T>& pass : passes_) {
      switch (pass.r) {
        case 2:
          run_fixed<T, 2>(pass, a, b);
          break;
        case 3:
          run_fixed<T, 3>(pass, a, b);
          break;
        case 4:
          run_fixed<T, 4>(pass, a, b);
          break;
        case 5:
          run_fixed<T, 5>(pass, a, b);
          break;
        default:
          run_any(pass, a, b);
      }
      std::swap(a, b);
    }
    return a;
  }

 private:
  std::vector<Pass<T>> passes_;
};

class Bluestein {
 public:
  explicit Bluestein(int64_t n) : n_(n) {
    while (m_ < 2 * n - 1) m_ *= 2;
    inner_ = std::make_unique<Stockham<double>>(m_, small_factors(m_));
    // chirp[j] = exp(-pi i j^2 / n); j^2 is kept modulo 2 n.
    for (int64_t j = 0, square = 0; j < n; ++j) {
      chirp_.push_back(root(square, 2 * n));
      square = (square + 2 * j + 1) % (2 * n);
    }
    std::vector<Complex<double>> a(static_cast<size_t>(m_)), b(a.size());
    for (int64_t j = 0; j < n; ++j) {
      const Complex<double> c{chirp_[size_t(j)].re, -chirp_[size_t(j)].im};
      a[size_t(j)] = c;
      if (j) a[size_t(m_ - j)] = c;
    }
    const Complex<double>* f = inner_->run(a.data(), b.data());
    for (int64_t k = 0; k < m_; ++k) filter_.push_back(scaled(f[k], 1 / double(m_)));
  }
  int64_t work() const { return m_; }
  // Transforms the first n numbers of `a` in place; both buffers hold work() numbers.
  Complex<double>* run(Complex<double>* a, Complex<double>* b) const {
    for (int64_t j = 0; j < n_; ++j) a[j] = a[j] * chirp_[size_t(j)];
    for (int64_t j = n_; j < m_; ++j) a[j] = {};
    Complex<double>* f = inner_->run(a, b);
    Complex<double>* other = f == a ? b : a;
    // The inverse by swapped parts.
    for (int64_t k = 0; k < m_; ++k) {
      const Complex<double> c = f[k] * filter_[size_t(k)];
      f[k] = {c.im, c.re};
    }
    Complex<double>* y = inner_->run(f, other);
    for (int64_t k = 0; k < n_; ++k) y[k] = Complex<double>{y[k].im, y[k].re} * chirp_[size_t(k)];
    return y;
  }

 private:
  int64_t n_, m_ = 1;
  std::unique_ptr<Stockham<double>> inner_;
  std::vector<Complex<double>> chirp_, filter_;
};

// How to transform lines of one length.
template <class T>
struct Plan {
  std::unique_ptr<Stockham<T>> direct;
  std::unique_ptr<Bluestein> chirp;
};

template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t n) {
  constexpr size_t kMostPlans = 64;
  static std::mutex mutex;
  static std::map<int64_t, std::shared_ptr<const Plan<T>>> plans;
  {
    const std::lock_guard lock(mutex);
    if (const auto it = plans.find(n); it != plans.end()) return it->second;
  }
  auto plan = std::make_shared<Plan<T>>();
  const std::vector<int64_t> factors = small_factors(n);
  if (n == 1 || !factors.empty())
    plan->direct = std::make_unique<Stockham<T>>(n, factors);
  else
    plan->chirp = std::make_unique<Bluestein>(n);
  const std::lock_guard lock(mutex);
  if (plans.size() >= kMostPlans) plans.clear();
  plans[n] = plan;
  return plan;
}

// Lines first to last through buffers of the computation's type C.
template <class T, class C, class Run>
void transform(const T* in, T* out, int64_t first, int64_t last, int64_t n, int64_t work,
               bool forward, double scale, Run&& run) {
  std::vector<Complex<C>> a(static_cast<size_t>(work)), b(a.size());
  for (int64_t line = first; line < last; ++line) {
    const T* from = in + line * 2 * n;
    T* to = out + line * 2 * n;
    const int re = forward ? 0 : 1, im = 1 - re;
    for (int64_t j = 0; j < n; ++j) a[size_t(j)] = {C(from[2 * j + re]), C(from[2 * j + im])};
    const Complex<C>* y = run(a.data(), b.data());
    for (int64_t k = 0; k < n; ++k) {
      to[2 * k + re] = T(y[k].re * C(scale));
      to[2 * k + im] = T(y[k].im * C(scale));
    }
  }
}

// out[l][k] = scale * sum_j in[l][j] exp(-+2 pi i j k / n) for `lines` rows of n pairs, minus if
// `forward`. O(n log n) for any n >= 1, in parallel over the lines; in and out may be the same.
template <class T>
void transform_lines(const T* in, T* out, int64_t lines, int64_t n, bool forward, double scale) {
  const std::shared_ptr<const Plan<T>> plan = plan_of<T>(n);
  const int64_t grain = std::max<int64_t>(1, 16384 / n);
  parallel_for(0, lines, grain, [&](int64_t first, int64_t last) {
    if (plan->direct)
      transform<T, T>(in, out, first, last, n, n, forward, scale,
                      [&](Complex<T>* a, Complex<T>* b) { return plan->direct->run(a, b); });
    else
      transform<T, double>(
          in, out, first, last, n, plan->chirp->work(), forward, scale,
          [&](Complex<double>* a, Complex<double>* b) { return plan->chirp->run(a, b); });
  });
}

template <class T>
void run(const prim::FftArgs& a) {
  const int64_t n = a.in.sizes[size_t(a.in.rank() - 2)];
  transform_lines(reinterpret_cast<const T*>(a.in.data), reinterpret_cast<T*>(a.out.data),
                  a.in.numel() / (2 * n), n, a.forward, a.scale);
}

}  // namespace

void CpuBackend::fft(const prim::FftArgs& a) {
  ARETE_ASSERT(a.in.is_contiguous() && a.out.is_contiguous() && a.in.dtype == a.out.dtype);
  if (a.in.numel() == 0) return;
  if (a.in.dtype == kFloat64)
    run<double>(a);
  else
    run<float>(a);
}

}  // namespace arete::cpu
