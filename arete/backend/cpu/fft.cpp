// Fourier transforms.
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/fft_kernels.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

// Note [FFT]
// Lengths whose prime factors are small are transformed by Stockham's method: one pass for each
// factor r splits every sequence of length n into r of length n / r, writing from one buffer to the
// other so that the results come out in order. Other lengths n go through Bluestein's identity
// jk = (j^2 + k^2 - (k - j)^2) / 2, which makes the transform a convolution with a chirp, done by
// transforms of a power of two >= 2n - 1, in f64 whatever the dtype because errors of three
// transforms add up. The inverse is the forward transform with real and imaginary parts swapped
// before and after. Where there are several lines of moderate length, each takes one element of the
// vectors (fft.simd.cpp).
namespace arete::cpu {
namespace {

template <class T>
using Complex = FftComplex<T>;

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

// The factors of n, fours first; empty if one is too large.
std::vector<int64_t> small_factors(int64_t n) {
  std::vector<int64_t> f;
  while (n % 4 == 0) f.push_back(4), n /= 4;
  for (int64_t p = 2; p <= kLargestFftFactor && n > 1; ++p)
    while (n % p == 0) f.push_back(p), n /= p;
  if (n > 1) f.clear();
  return f;
}

template <class T>
class Stockham {
 public:
  Stockham(int64_t n, const std::vector<int64_t>& factors) {
    int64_t length = n, s = 1;
    for (int64_t r : factors) {
      const int64_t m = length / r;
      std::vector<Complex<T>>& twiddles = numbers_.emplace_back();
      for (int64_t p = 0; p < m; ++p)
        for (int64_t j = 1; j < r; ++j) twiddles.push_back(root_as<T>(p * j, length));
      std::vector<Complex<T>>& roots = numbers_.emplace_back();
      if (r > 5)
        for (int64_t k = 0; k < r; ++k) roots.push_back(root_as<T>(k, r));
      passes_.push_back({r, m, s, twiddles.data(), roots.data()});
      length = m;
      s *= r;
    }
  }
  // The forward transform of `a`; the result is in the buffer returned, `a` or `b`.
  Complex<T>* run(Complex<T>* a, Complex<T>* b) const {
    return run_passes(passes_.data(), int64_t(passes_.size()), a, b);
  }
  const std::vector<FftPass<T>>& passes() const { return passes_; }

 private:
  std::deque<std::vector<Complex<T>>> numbers_;  // what the passes point to
  std::vector<FftPass<T>> passes_;
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

// Many lines at once.
void transform_side_by_side(const FftLines<float>& lines) {
  static const auto f = ARETE_SELECT(::arete::cpu, fft_f32);
  f(lines);
}
void transform_side_by_side(const FftLines<double>& lines) {
  static const auto f = ARETE_SELECT(::arete::cpu, fft_f64);
  f(lines);
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
  // Buffers of longer lines, times as many as a vector has elements, leave the caches.
  constexpr int64_t kLongest = 8192;
  if (plan->direct && lines >= 4 && n <= kLongest) {
    constexpr int64_t kBlock = 16;
    const auto& passes = plan->direct->passes();
    parallel_for(0, (lines + kBlock - 1) / kBlock, std::max<int64_t>(1, 16384 / (n * kBlock)),
                 [&](int64_t first, int64_t last) {
                   const int64_t line = first * kBlock, at = line * 2 * n;
                   transform_side_by_side(
                       FftLines<T>{passes.data(), int64_t(passes.size()), in + at, out + at,
                                   std::min(last * kBlock, lines) - line, n, forward, T(scale)});
                 });
    return;
  }
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
