// Fourier transforms of every small length and some large ones, against the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "arete/base/thread_pool.h"
#include "arete/core/layout.h"
#include "arete/prim/backend.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

std::vector<double> noise(int64_t n) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(std::sin(double(i * i % 9973) + 0.3));
  return v;
}

template <class T>
void run_fft(const std::vector<T>& in, std::vector<T>& out, int64_t lines, bool forward,
             double scale) {
  const Layout layout(Shape{lines, int64_t(in.size()) / (2 * lines), 2});
  const auto view = [&](const std::vector<T>& v) {
    return prim::View(reinterpret_cast<std::byte*>(const_cast<T*>(v.data())),
                      std::is_same_v<T, float> ? kFloat32 : kFloat64, layout.sizes, layout.strides);
  };
  const int64_t dims[] = {1}, points[] = {layout.sizes[1]};
  backend_under_test().fft(
      {prim::FftArgs::Kind::complex, view(in), view(out), dims, points, forward, scale});
}

// The largest error of any element, in units of the type's rounding error times log2(n) times the
// root mean square of the results.
template <class T>
double error_against_definition(int64_t n) {
  const std::vector<double> x = noise(2 * n);
  const std::vector<T> in(x.begin(), x.end());
  std::vector<T> out(in.size());
  run_fft(in, out, 1, true, 1.0);
  std::vector<std::complex<double>> roots;
  for (int64_t k = 0; k < n; ++k)
    roots.push_back(std::polar(1.0, -2 * std::numbers::pi * double(k) / double(n)));
  double worst = 0, squares = 0;
  for (int64_t k = 0; k < n; ++k) {
    std::complex<double> sum = 0;
    for (int64_t j = 0; j < n; ++j)
      sum += std::complex<double>(double(in[size_t(2 * j)]), double(in[size_t(2 * j + 1)])) *
             roots[size_t(j * k % n)];
    const std::complex<double> got{out[size_t(2 * k)], out[size_t(2 * k + 1)]};
    worst = std::max(worst, std::abs(got - sum));
    squares += std::norm(sum);
  }
  const double eps = std::is_same_v<T, float> ? std::ldexp(1.0, -23) : std::ldexp(1.0, -52);
  return worst / (eps * (std::log2(double(n)) + 1) * std::sqrt(squares / double(n)));
}

TEST(Fft, EveryLengthAgreesWithTheDefinition) {
  for (int64_t n = 1; n <= 260; ++n) {
    EXPECT_LT(error_against_definition<float>(n), 4) << "n " << n;
    // The sum of the definition has errors of its own, which grow with n.
    EXPECT_LT(error_against_definition<double>(n), 40) << "n " << n;
  }
  for (int64_t n : {1024, 1000, 1009, 961, 2187})
    EXPECT_LT(error_against_definition<float>(n), 4) << "n " << n;
}

TEST(Fft, InverseGivesLargeInputsBack) {
  for (int64_t n : {1 << 16, 100003, 3 * 5 * 7 * 11 * 13, 44100}) {
    const std::vector<double> in = noise(2 * 3 * n);
    std::vector<double> out(in.size());
    run_fft(in, out, 3, true, 1.0);
    run_fft(out, out, 3, false, 1.0 / double(n));
    double worst = 0;
    for (size_t i = 0; i < in.size(); ++i) worst = std::max(worst, std::fabs(out[i] - in[i]));
    EXPECT_LT(worst, 1e-13) << "n " << n;
  }
}

// So many that they take turns where a length needs as much memory again.
TEST(Fft, ManyRealLinesOfAnOddLengthComeBack) {
  const int64_t lines = 18000, n = 245, half = n / 2 + 1;
  if (too_large_for_reference(lines * n)) return;
  const std::vector<double> numbers = noise(lines * n);
  std::vector<float> in(numbers.begin(), numbers.end()), out(in.size()),
      spectra(size_t(2 * lines * half));
  const Layout of_reals(Shape{lines, n}), of_spectra(Shape{lines, half, 2});
  const auto view = [](std::vector<float>& v, const Layout& l) {
    return prim::View(reinterpret_cast<std::byte*>(v.data()), kFloat32, l.sizes, l.strides);
  };
  const int64_t dims[] = {1}, points[] = {n};
  using Kind = prim::FftArgs::Kind;
  backend_under_test().fft(
      {Kind::to_half, view(in, of_reals), view(spectra, of_spectra), dims, points, true, 1.0});
  for (int64_t line : {int64_t{0}, lines / 2 - 1, lines / 2, lines - 1}) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double x = in[size_t(line * n + i)];
      sum += x, squares += x * x;
    }
    EXPECT_NEAR(spectra[size_t(2 * line * half)], sum, 1e-6 * std::sqrt(squares * double(n)));
  }
  backend_under_test().fft({Kind::from_half, view(spectra, of_spectra), view(out, of_reals), dims,
                            points, false, 1.0 / double(n)});
  double worst = 0;
  for (size_t i = 0; i < in.size(); ++i)
    worst = std::max(worst, std::fabs(double(out[i]) - double(in[i])));
  EXPECT_LT(worst, 4e-6);
}

// A transform of several dimensions is one dimension after the other.
void expect_as_single_dimensions(prim::FftArgs::Kind kind, const Shape& numbers,
                                 const std::vector<int64_t>& dims) {
  using Kind = prim::FftArgs::Kind;
  Shape half = numbers;
  half[size_t(dims.back())] = numbers[size_t(dims.back())] / 2 + 1;
  const auto layout_of = [](Shape sizes, bool real) {
    if (!real) sizes.push_back(2);
    return Layout(sizes);
  };
  const Layout in = layout_of(kind == Kind::from_half ? half : numbers, kind == Kind::to_half),
               out = layout_of(kind == Kind::to_half ? half : numbers, kind == Kind::from_half);
  const std::vector<double> x = noise(numel_of(in.sizes));
  std::vector<double> got(size_t(numel_of(out.sizes))), want = got, between = x;
  const auto view = [&](const std::vector<double>& v, const Layout& l) {
    return prim::View(reinterpret_cast<std::byte*>(const_cast<double*>(v.data())), kFloat64,
                      l.sizes, l.strides);
  };
  std::vector<int64_t> points;
  for (int64_t d : dims) points.push_back(numbers[size_t(d)]);
  backend_under_test().fft({kind, view(x, in), view(got, out), dims, points, true, 0.5});
  const auto along = [&](Kind k, size_t i, std::vector<double>& from, const Layout& a,
                         std::vector<double>& to, const Layout& b) {
    backend_under_test().fft({k, view(from, a), view(to, b), IntList(dims).subspan(i, 1),
                              IntList(points).subspan(i, 1), true, 1.0});
  };
  const size_t last = dims.size() - 1;
  if (kind == Kind::from_half) {
    for (size_t i = 0; i < last; ++i) along(Kind::complex, i, between, in, between, in);
    along(kind, last, between, in, want, out);
  } else {
    along(kind, last, between, in, want, out);
    for (size_t i = 0; i < last; ++i) along(Kind::complex, i, want, out, want, out);
  }
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i)
    worst = std::max(worst, std::fabs(got[i] - 0.5 * want[i]));
  EXPECT_LT(worst, 1e-10) << int(kind) << " over " << dims.size() << " from " << dims[0];
}

// Arrays that fill several caches go through them in parts.
TEST(Fft, LargeArraysInPartsAreTransformedAsAWhole) {
  using Kind = prim::FftArgs::Kind;
  const std::vector<std::vector<int64_t>> all_dims{{1, 2}, {0, 1}, {0, 2}, {0, 1, 2}, {2, 0}};
  for (const Kind kind : {Kind::complex, Kind::to_half, Kind::from_half})
    for (const std::vector<int64_t>& dims : all_dims)
      expect_as_single_dimensions(kind, {70, 48, 64}, dims);
}

// Real numbers to all of their spectrum, and the real part of a transform, by half of the work:
// as if the numbers were complex.
void expect_as_complex(const Shape& numbers, const std::vector<int64_t>& dims, bool forward) {
  Shape of_pairs = numbers;
  of_pairs.push_back(2);
  const Layout real(numbers), complex(of_pairs);
  const std::vector<double> x = noise(2 * numel_of(numbers));
  std::vector<double> reals(x.size() / 2), padded(x.size(), 0.0), got(x.size()), want(x.size());
  for (size_t i = 0; i < reals.size(); ++i) reals[i] = padded[2 * i] = x[2 * i];
  std::vector<int64_t> points;
  for (int64_t d : dims) points.push_back(numbers[size_t(d)]);
  const auto run = [&](const std::vector<double>& from, const Layout& in, std::vector<double>& to,
                       const Layout& out) {
    const auto view = [](const std::vector<double>& v, const Layout& l) {
      return prim::View(reinterpret_cast<std::byte*>(const_cast<double*>(v.data())), kFloat64,
                        l.sizes, l.strides);
    };
    backend_under_test().fft(
        {prim::FftArgs::Kind::complex, view(from, in), view(to, out), dims, points, forward, 0.5});
  };
  const std::string what = to_string(numbers) + " over " + std::to_string(dims.size()) + " from " +
                           std::to_string(dims[0]);
  const double most = 1e-14 * std::sqrt(double(numel_of(points))) * 20;
  double worst = 0;
  run(reals, real, got, complex);
  run(padded, complex, want, complex);
  for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::fabs(got[i] - want[i]));
  EXPECT_LT(worst, most) << "from reals " << what;
  worst = 0;
  run(x, complex, got, real);
  run(x, complex, want, complex);
  for (size_t i = 0; i < reals.size(); ++i)
    worst = std::max(worst, std::fabs(got[i] - want[2 * i]));
  EXPECT_LT(worst, most) << "to reals " << what;
}
TEST(Fft, WholeSpectraOfRealNumbersAreThoseOfComplexNumbers) {
  const std::vector<std::vector<int64_t>> all_dims{{0},    {1},    {2},       {1, 2},   {0, 1},
                                                   {0, 2}, {2, 0}, {0, 1, 2}, {1, 2, 0}};
  for (const Shape& numbers :
       {Shape{70, 48, 64}, Shape{33, 35, 18}, Shape{21, 17, 15}, Shape{2, 1, 22}, Shape{3, 94, 2},
        Shape{40, 67, 3}, Shape{3, 2049, 2}, Shape{1, 2025, 1}, Shape{2, 1, 2}})
    for (const std::vector<int64_t>& dims : all_dims)
      expect_as_complex(numbers, dims, (dims[0] + numbers[0]) % 2 == 0);
}

// Sixteen neighbours in memory are a part, also where they are more than is wanted of one.
TEST(Fft, OneThreadDoesNotCutPartsForever) {
  ARETE_CPU_ONLY();
  using Kind = prim::FftArgs::Kind;
  const int threads = num_threads();
  for (const int n : {1, 2}) {
    set_num_threads(n);
    expect_as_single_dimensions(Kind::complex, {90, 90, 16}, {0, 1});
    for (const Kind kind : {Kind::complex, Kind::to_half, Kind::from_half})
      expect_as_single_dimensions(kind, {90, 120, 32}, {0, 1});
  }
  set_num_threads(threads);
}

// ---- kinds, dimensions, strides ----

using FftKind = prim::FftArgs::Kind;
using FftNumber = std::complex<double>;

// Numbers in memory in any order of dimensions and with gaps; strides in real numbers.
struct FftNumbers {
  bool real;
  Shape sizes, strides;
  std::vector<double> memory;

  FftNumbers(bool is_real, const Shape& of_numbers, const std::vector<size_t>& order, int64_t gap)
      : real(is_real), sizes(of_numbers), strides(of_numbers.size(), 0) {
    int64_t stride = (real ? 1 : 2) * gap;
    for (size_t d : order) {
      strides[d] = stride;
      stride *= sizes[d];
    }
    memory.assign(size_t(stride + 2), 0.125);
  }
  template <class F>
  void each(F&& f) {  // f(index, address of its real part)
    Shape i(sizes.size(), 0);
    for (int64_t k = 0, n = numel_of(sizes); k < n; ++k) {
      int64_t offset = 0, rest = k;
      for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
        i[d] = rest % sizes[d];
        offset += i[d] * strides[d];
      }
      f(i, memory.data() + offset);
    }
  }
  FftNumber read(const double* p) const { return {p[0], real ? 0.0 : p[1]}; }
};

struct FftCase {
  FftKind kind = FftKind::complex;
  bool real_in = false, real_out = false, forward = true, weighted = false;
  int window = 0;  // 1 in, 2 out
  Shape in, out, dims, points;
  std::vector<size_t> order_in, order_out;
  int64_t gap_in = 1, gap_out = 1;
};

// What the comment on the arguments says, number by number.
std::vector<FftNumber> fft_definition(const FftCase& c, FftNumbers& in, const Shape& out,
                                      const std::vector<double>& window, double scale) {
  const auto last = size_t(c.dims.back());
  Shape sizes = in.sizes;
  std::vector<FftNumber> now;
  in.each([&](const Shape& i, double* p) {
    now.push_back(in.read(p) * (c.window == 1 ? window[size_t(i[last])] : 1.0));
  });
  const size_t count = c.dims.size();
  const auto axis = [&](size_t which) {
    const auto d = size_t(c.dims[which]);
    const int64_t n = c.points[which], half = n / 2 + 1;
    const bool edge = which + 1 == count, from_half = edge && c.kind == FftKind::from_half,
               to_half = edge && c.kind == FftKind::to_half;
    const auto two = [&](int64_t k) { return k != 0 && 2 * k != n; };
    std::vector<FftNumber> roots;
    for (int64_t k = 0; k < n; ++k)
      roots.push_back(
          std::polar(1.0, (c.forward ? -2 : 2) * std::numbers::pi * double(k) / double(n)));
    int64_t inner = 1;
    for (size_t e = d + 1; e < sizes.size(); ++e) inner *= sizes[e];
    const int64_t have = sizes[d], wanted = out[d],
                  outer = int64_t(now.size()) / std::max<int64_t>(1, inner * have);
    std::vector<FftNumber> next(size_t(outer * wanted * inner));
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < std::min(wanted, to_half ? half : n); ++k)
        for (int64_t i = 0; i < inner; ++i) {
          FftNumber sum = 0;
          for (int64_t j = 0; j < std::min(have, from_half ? half : n); ++j) {
            const FftNumber term =
                now[size_t((o * have + j) * inner + i)] * roots[size_t(j * k % n)];
            if (from_half)
              sum += term.real() * (two(j) && !c.weighted ? 2.0 : 1.0);
            else
              sum += term;
          }
          next[size_t((o * wanted + k) * inner + i)] =
              to_half && c.weighted && two(k) ? 2.0 * sum : sum;
        }
    now = std::move(next);
    sizes[d] = wanted;
  };
  if (c.kind == FftKind::from_half)
    for (size_t i = 0; i < count; ++i) axis(i);
  else
    for (size_t i = count; i-- > 0;) axis(i);
  FftNumbers shape(true, out, c.order_out, 1);
  size_t at = 0;
  shape.each([&](const Shape& i, double*) {
    FftNumber& v = now[at++];
    v = (c.real_out ? FftNumber(v.real()) : v) * scale *
        (c.window == 2 ? window[size_t(i[last])] : 1.0);
  });
  return now;
}

template <class T>
void expect_definition(const FftCase& c, const std::string& what) {
  FftNumbers in(c.real_in, c.in, c.order_in, c.gap_in),
      out(c.real_out, c.out, c.order_out, c.gap_out);
  int64_t count = 0;
  in.each([&](const Shape&, double* p) {
    for (int part = 0; part < (c.real_in ? 1 : 2); ++part)
      p[part] = double(T(std::sin(double(count * count % 9973) + 0.3))), ++count;
  });
  const auto last = size_t(c.dims.back());
  std::vector<double> window;
  for (int64_t i = 0; i < (c.window == 2 ? c.out : c.in)[last]; ++i)
    window.push_back(double(T(0.5 + 0.01 * double(i % 7))));
  const double scale = 0.25;
  const std::vector<FftNumber> expected = fft_definition(c, in, c.out, window, scale);

  std::vector<T> in_memory(in.memory.begin(), in.memory.end()),
      out_memory(out.memory.begin(), out.memory.end()), factors(window.begin(), window.end());
  const DType dtype = std::is_same_v<T, float> ? kFloat32 : kFloat64;
  Shape in_sizes = in.sizes, in_strides = in.strides, out_sizes = out.sizes,
        out_strides = out.strides;
  if (!c.real_in) in_sizes.push_back(2), in_strides.push_back(1);
  if (!c.real_out) out_sizes.push_back(2), out_strides.push_back(1);
  prim::FftArgs a{
      c.kind,
      prim::View(reinterpret_cast<std::byte*>(in_memory.data()), dtype, in_sizes, in_strides),
      prim::View(reinterpret_cast<std::byte*>(out_memory.data()), dtype, out_sizes, out_strides),
      c.dims,
      c.points,
      c.forward,
      scale,
      c.weighted};
  const Shape window_size{int64_t(window.size())}, one{1};
  if (c.window) {
    a.window = prim::View(reinterpret_cast<std::byte*>(factors.data()), dtype, window_size, one);
    a.window_after = c.window == 2;
  }
  backend_under_test().fft(a);
  out.memory.assign(out_memory.begin(), out_memory.end());
  double worst = 0, squares = 0;
  size_t k = 0;
  out.each([&](const Shape&, double* p) {
    worst = std::max(worst, std::abs(out.read(p) - expected[k]));
    squares += std::norm(expected[k++]);
    for (int part = 0; part < (c.real_out ? 1 : 2); ++part) p[part] = 0.125;
  });
  const double points = double(numel_of(c.points));
  const double eps = std::is_same_v<T, float> ? std::ldexp(1.0, -23) : std::ldexp(1.0, -48);
  EXPECT_LE(worst, 8 * eps * (std::log2(points) + 2) *
                       std::max(std::sqrt(squares / double(std::max<size_t>(k, 1))),
                                0.25 * std::sqrt(points)))
      << what;
  for (double gap : out.memory) ASSERT_EQ(gap, 0.125) << "written beside the results: " << what;
}

struct Pick {
  std::mt19937& random;
  int64_t operator()(int64_t low, int64_t high) const {
    return low + int64_t(random() % uint32_t(high - low + 1));
  }
};

// The five kinds in turn.
FftCase kind_of_case(int round, const Pick& pick) {
  FftCase c;
  const int kind = round % 5;
  c.kind = kind == 1 ? FftKind::to_half : kind == 2 ? FftKind::from_half : FftKind::complex;
  c.real_in = kind == 1 || kind == 3;
  c.real_out = kind == 2 || kind == 4;
  c.forward = pick(0, 1);
  c.weighted = c.kind != FftKind::complex && pick(0, 1);
  return c;
}

// Transforms dimension d with n points; one time in `often` + 1 a side is cut or filled with zeros.
void transform(FftCase& c, size_t d, int64_t n, bool is_last, const Pick& pick, int often) {
  c.dims.push_back(int64_t(d));
  c.points.push_back(n);
  c.in[d] = is_last && c.kind == FftKind::from_half ? n / 2 + 1 : n;
  c.out[d] = is_last && c.kind == FftKind::to_half ? n / 2 + 1 : n;
  if (pick(0, often) == 0) c.in[d] = pick(1, n + 3);
  if (pick(0, often) == 0) c.out[d] = pick(1, n + 3);
}

std::string text_of(const FftCase& c, int round) {
  return "round " + std::to_string(round) + " kind " + std::to_string(round % 5) + " in " +
         to_string(c.in) + " out " + to_string(c.out) + " dims " + to_string(c.dims) + " points " +
         to_string(c.points);
}

TEST(Fft, EveryKindAgreesWithTheDefinition) {
  std::mt19937 random(1);
  const Pick pick{random};
  for (int round = 0; round < 400; ++round) {
    FftCase c = kind_of_case(round, pick);
    const auto rank = size_t(pick(1, 4));
    std::vector<size_t> all(rank);
    std::iota(all.begin(), all.end(), 0);
    c.order_in = c.order_out = all;
    std::shuffle(all.begin(), all.end(), random);
    std::shuffle(c.order_in.begin(), c.order_in.end(), random);
    c.order_out = pick(0, 1) ? c.order_in : c.order_out;
    if (pick(0, 3) == 0) c.gap_in = 3;
    if (pick(0, 3) == 0) c.gap_out = 2;
    const auto count = size_t(pick(1, int64_t(rank)));
    if (count == 1) c.window = int(pick(0, 2));
    for (size_t d = 0; d < rank; ++d) c.in.push_back(pick(1, rank < 3 ? 40 : 6));
    c.out = c.in;
    for (size_t i = 0; i < count; ++i) {
      const size_t d = all[i];
      const int64_t n = pick(1, count == 1 ? 70 : 9);
      transform(c, d, n, i + 1 == count, pick, 3);
    }
    const std::string what = text_of(c, round);
    expect_definition<float>(c, what);
    expect_definition<double>(c, what + " f64");
    if (HasFailure()) return;
  }
}

// Sides that are contiguous along different dimensions, both long.
TEST(Fft, OtherOrdersOfDimensionsAgreeWithTheDefinition) {
  std::mt19937 random(2);
  const Pick pick{random};
  for (int round = 0; round < 60; ++round) {
    FftCase c = kind_of_case(round, pick);
    std::vector<size_t> all{0, 1, 2};
    std::shuffle(all.begin(), all.end(), random);
    c.order_in = c.order_out = all;
    std::shuffle(c.order_in.begin(), c.order_in.end(), random);
    std::shuffle(c.order_out.begin(), c.order_out.end(), random);
    c.in = c.out = {pick(16, 50), pick(16, 50), pick(16, 50)};
    const auto count = size_t(pick(1, 2));
    if (count == 1) c.window = int(pick(0, 2));
    for (size_t i = 0; i < count; ++i) {
      const size_t d = all[i];
      const int64_t n = pick(16, 50);
      transform(c, d, n, i + 1 == count, pick, 4);
    }
    const std::string what = text_of(c, round);
    expect_definition<float>(c, what);
    if (round < 20) expect_definition<double>(c, what + " f64");
    if (HasFailure()) return;
  }
}

// Lines that are transformed one at a time, and in two ways.
TEST(Fft, LongLinesAgreeWithTheDefinition) {
  for (int64_t n : {512, 600, 1000, 1021, 1155, 2018, 2187})
    for (int kind = 0; kind < 5; ++kind)
      for (int64_t lines : {1, 2}) {
        FftCase c;
        c.kind = kind == 1 ? FftKind::to_half : kind == 2 ? FftKind::from_half : FftKind::complex;
        c.real_in = kind == 1 || kind == 3;
        c.real_out = kind == 2 || kind == 4;
        c.forward = n % 4 == 0;
        c.weighted = c.kind != FftKind::complex && lines == 2;
        c.window = lines == 2 ? 1 + int(n % 2) : 0;
        c.in = c.out = {lines, n};
        if (kind == 1) c.out[1] = n / 2 + 1;
        if (kind == 2) c.in[1] = n / 2 + 1;
        if (lines == 2) c.in[1] -= 3, c.out[1] += 2;
        c.dims = {1};
        c.points = {n};
        c.order_in = c.order_out = {1, 0};
        const std::string what = std::to_string(n) + " kind " + std::to_string(kind);
        expect_definition<float>(c, what);
        expect_definition<double>(c, what + " f64");
      }
}

}  // namespace
}  // namespace arete::test
