// The error function's relatives and the gamma function's.
#include "arete/expr/special.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>
#include <vector>

#include "arete/expr/special_tables.h"

namespace arete::expr {

namespace {
using tables::kInf;
using tables::kPi;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kSqrt2 = std::numbers::sqrt2;

// B_2j / (2j)! for j = 1, 2, ...
constexpr double kBernoulli[] = {1.0 / 12,
                                 -1.0 / 720,
                                 1.0 / 30240,
                                 -1.0 / 1209600,
                                 1.0 / 47900160,
                                 -691.0 / 1307674368000.0,
                                 1.0 / 74724249600.0,
                                 -3617.0 / 10670622842880000.0,
                                 43867.0 / 5109094217170944000.0,
                                 -174611.0 / 802857662698291200000.0};

// exp(scale x^2) for a power of two: squaring rounds, which the exponential magnifies, so the
// leading bits go apart.
Value exp_square(Value x, double scale) {
  const Value lead = trunc(x * 16) * (1.0 / 16);
  return exp(lead * lead * scale) * exp((x - lead) * (x + lead) * scale);
}

}  // namespace

Value horner(Value x, std::span<const double> coefficients) {
  Value y = constant_like(x, coefficients[0]);
  for (double c : coefficients.subspan(1)) y = y * x + c;
  return y;
}

namespace {
thread_local bool single_precision = false;
}
SinglePrecision::SinglePrecision(bool on) : before_(single_precision) { single_precision = on; }
SinglePrecision::~SinglePrecision() { single_precision = before_; }
bool is_single_precision() { return single_precision; }

namespace {

// The same polynomial in powers, from the highest down.
std::vector<double> powers_of(std::span<const double> chebyshev) {
  std::vector<double> b{0.0}, b1{0.0};  // Clenshaw's recurrence, from the lowest power up
  const auto step = [&](double c, double factor) {
    std::vector<double> next(b.size() + 1, 0.0);
    for (size_t i = 0; i < b.size(); ++i) next[i + 1] += factor * b[i];
    for (size_t i = 0; i < b1.size(); ++i) next[i] -= b1[i];
    next[0] += c;
    b1 = std::exchange(b, std::move(next));
  };
  for (double c : chebyshev.first(chebyshev.size() - 1)) step(c, 2);
  step(chebyshev.back(), 1);
  b.resize(chebyshev.size());
  return {b.rbegin(), b.rend()};
}

}  // namespace

// Clenshaw's recurrence; for the digits of f32, which take few terms, powers of t are as exact with
// half the operations.
Value chebyshev(Value t, std::span<const double> coefficients) {
  if (single_precision) {
    // Derivatives of the series need some digits more than f32 has.
    double left = 0, largest = 0;
    for (double c : coefficients) largest = std::max(largest, std::fabs(c));
    while (coefficients.size() > 2 && (left += std::fabs(coefficients[0])) < largest * 0x1p-32)
      coefficients = coefficients.subspan(1);
    return horner(t, powers_of(coefficients));
  }
  const Value twice = t + t;
  Value b = constant_like(t, coefficients[0]), b1 = constant_like(t, 0.0);
  for (double c : coefficients.subspan(1, coefficients.size() - 2)) {
    const Value next = twice * b + (c - b1);
    b1 = b;
    b = next;
  }
  return t * b - b1 + coefficients.back();
}

namespace {

// erfcx(a) for a >= 0.
Value erfcx_of_size(Value a) {
  // (a - K) / (a + K), which is NaN at infinity, in another form.
  constexpr double kMiddle = 3.75;
  return chebyshev(1 - 2 * kMiddle / (a + kMiddle), tables::kErfcx) / (a * 2 + 1);
}

}  // namespace

Value erfcx(Value x) {
  const Value positive = erfcx_of_size(where(x < 0, -x, x));  // abs has the slope 0 at 0
  // Below -40 the square of infinity must not meet infinity; its exponential is infinite anyway.
  return where(x < 0, 2 * exp_square(max(x, -40), 1) - positive, positive);
}

Value ndtr(Value x) { return erfc(x * (-1 / kSqrt2)) * 0.5; }

// The tail beyond |x| is exp(-x^2 / 2) / 2 * erfcx(|x| / sqrt 2).
Value log_ndtr(Value x) {
  const Value a = abs(x), scaled = erfcx_of_size(a * (1 / kSqrt2)) * 0.5;
  return where(x < 0, log(scaled) - x * x * 0.5, log1p(-(scaled * exp_square(min(a, 40), -0.5))));
}

// Cephes' ndtri: a rational function in the middle, expansions in sqrt(-2 log p) in the tails.
Value ndtri(Value p) {
  constexpr double kTail = 0.13533528323661269189;  // exp(-2)
  const Value upper = p > 1 - kTail;
  const Value q = where(upper, 1 - p, p);
  const Value d = q - 0.5, d2 = d * d;
  const Value x = sqrt(log(q) * -2), z = 1 / x;
  // One division for all three, as it takes as long as many of their terms.
  const Value in_middle = q > kTail, is_near = x < 8;
  const auto chosen = [&](auto& middle, auto& near, auto& far) {
    return where(in_middle, horner(d2, middle), where(is_near, horner(z, near), horner(z, far)));
  };
  const Value ratio = chosen(tables::kNdtriP0, tables::kNdtriP1, tables::kNdtriP2) /
                      chosen(tables::kNdtriQ0, tables::kNdtriQ1, tables::kNdtriQ2);
  const Value middle = (d + d * (d2 * ratio)) * std::sqrt(2 * kPi);
  const Value tail = x - z * (log(x) + ratio);
  const Value y = where(in_middle, middle, where(upper, tail, -tail));
  return where(p == 0, -kInf, where(p == 1, kInf, where((p < 0) | (p > 1), kNaN, y)));
}

namespace {

// x^n for a whole n >= 0.
Value whole_power(Value x, int n) {
  Value y = constant_like(x, 1.0);
  for (Value square = x; n > 0; n >>= 1, square = square * square)
    if (n & 1) y = y * square;
  return y;
}

// Coefficients, from the highest power of cos(x)^2 / sin(x)^2 down, of what the n-th derivative of
// cot(x) is a polynomial of (times the cotangent itself for even n), without its sign (-1)^n: each
// is that of the one before, times 1 + cot(x)^2.
std::vector<double> cotangent_derivative(int n) {
  std::vector<double> all(size_t(n) + 2, 0.0);  // from the lowest power of cot(x) up
  all[1] = 1;
  for (int k = 0; k < n; ++k) {
    std::vector<double> next(all.size(), 0.0);
    for (size_t i = 1; i < all.size(); ++i) {
      next[i - 1] += double(i) * all[i];
      if (i + 1 < all.size()) next[i + 1] += double(i) * all[i];
    }
    all = std::move(next);
  }
  std::vector<double> coefficients;
  for (int i = n + 1; i >= 0; i -= 2) coefficients.push_back(all[size_t(i)]);
  return coefficients;
}

}  // namespace

// n! times the Hurwitz zeta function of s = n + 1: ten terms, and the others by Euler and Maclaurin
// (DLMF 25.11.5); reflection below 0.
Value polygamma(int n, Value x) {
  const int s = n + 1;
  const double factorial = std::tgamma(double(s));
  const Value negative = x < 0, y = where(negative, 1 - x, x);
  // Repeated squares lose some digits, powers many more cycles.
  const bool squares = s <= 16;
  Value sum = constant_like(y, 0.0);
  for (int k = 0; k < 10; ++k)
    sum = sum + (squares ? whole_power(1 / (y + k), s) : pow(y + k, double(-s)));
  const Value r = 1 / (y + 10), r2 = r * r;
  Value series = constant_like(y, 0.0);
  std::array<double, std::size(kBernoulli)> terms{};  // s (s + 1) ... (s + 2j - 2) B_2j / (2j)!
  double rising = s;
  for (size_t j = 0; j < terms.size(); ++j) {
    terms[j] = rising * kBernoulli[j];
    rising *= (s + 2 * double(j) + 1) * (s + 2 * double(j) + 2);
  }
  for (size_t j = terms.size(); j-- > 0;) series = (series + terms[j]) * r2;
  const Value lead = squares ? whole_power(r, n) : pow(y + 10, double(-n));
  const Value zeta = (sum + lead * (series + r * 0.5 + 1.0 / n)) * factorial;
  const Value turn = (x - round(x)) * kPi, cotangent = cos(turn) / sin(turn);
  Value slope = horner(cotangent * cotangent, cotangent_derivative(n)) * std::pow(kPi, s);
  if (n % 2 == 0) slope = slope * cotangent;
  return where(negative, (n % 2 ? slope : -slope) - zeta, n % 2 ? zeta : -zeta);
}

namespace {

// base^-s for base >= 0.
Value falling_power(Value base, Value s) {
  if (!single_precision) return pow(base, -s);
  // The logarithm needs more digits than the result, the exponential does not.
  const Value y = max(min(-(min(s, 1e30) * log2(base)), 2000), -2000), whole = floor(y);
  return cast(exp2(cast(y - whole, Type::f32)), s.type()) *
         cast(exp2(cast(whole, Type::f32)), s.type());
}

// Euler-Maclaurin (DLMF 25.11.5) from the tenth term, for positive q; for the digits of f32 (to
// 1e-10) from the fourth.
Value hurwitz_sum(Value s, Value q) {
  const int terms = single_precision ? 4 : 10, corrections = single_precision ? 6 : 10;
  static_assert(std::size(kBernoulli) == 10);
  Value sum = falling_power(q, s);
  for (int k = 1; k < terms; ++k) sum = sum + falling_power(q + k, s);
  // For huge s the first terms are all; a bounded t keeps the others from becoming 0 * inf.
  const Value t = min(s, 2000);
  const Value w = q + terms, power = falling_power(w, t), r = 1 / w, r2 = r * r;
  sum = sum + power * w / (t - 1) + power * 0.5;
  // s (s + 1) ... (s + 2j - 2) w^(-s - 2j + 1)
  Value factor = power * t * r;
  for (int j = 0; j < corrections; ++j) {
    sum = sum + factor * kBernoulli[j];
    factor = factor * ((t + double(2 * j + 1)) * (t + double(2 * j + 2)) * r2);
  }
  return sum;
}

}  // namespace

// Below 0 there may be too many terms, with negative bases, for which s must be whole. With f the
// distance of q to the next whole number above, their sum is that of (-1)^s (k + f)^-s up to k + f
// = -q, a difference of two series.
Value hurwitz_zeta(Value s, Value q) {
  const Value negative = q < 0, whole_part = floor(-q), distance = -q - whole_part;
  const Value odd = remainder(s, 2.0), sign = where(odd == 1, -1.0, constant_like(s, 1.0));
  const Value reflected =
      hurwitz_sum(s, 1 - distance) + sign * (hurwitz_sum(s, distance) - hurwitz_sum(s, 1 - q));
  const Value sum = where(negative, where(s == floor(s), reflected, kNaN), hurwitz_sum(s, q));
  // At a pole infinity stays, whatever else was added to it.
  const Value pole = (q <= 0) & (distance == 0);
  return where(s == 1, kInf, where(s < 1, kNaN, where(pole, kInf, sum)));
}

namespace {

// Gauss-Legendre nodes and weights on [0, 1], by Newton's method on the Legendre polynomial.
struct Quadrature {
  std::vector<double> node, weight;
  explicit Quadrature(int nodes) {
    for (int i = 0; i < nodes; ++i) {
      double x = std::cos(kPi * (i + 0.75) / (nodes + 0.5)), slope = 1;
      for (int step = 0; step < 20; ++step) {
        double p = 1, previous = 0;
        for (int k = 0; k < nodes; ++k) {
          const double next = ((2 * k + 1) * x * p - k * previous) / (k + 1);
          previous = p;
          p = next;
        }
        slope = nodes * (x * p - previous) / (x * x - 1);
        x -= p / slope;
      }
      node.push_back((1 - x) / 2);
      weight.push_back(1 / ((1 - x * x) * slope * slope));
    }
  }
};

// x^a exp(-x) / gamma(a). For large a the three factors would lose digits to each other: there
// Stirling's series (DLMF 5.11.1) divides out what is common.
Value gamma_density(Value a, Value x) {
  const Value direct = exp(a * log(x) - x - lgamma(a));
  const Value u = (x - a) / a, r = 1 / a, r2 = r * r;
  constexpr double kStirling[] = {1.0 / 156,  -691.0 / 360360, 1.0 / 1188, -1.0 / 1680,
                                  1.0 / 1260, -1.0 / 360,      1.0 / 12};
  const Value large =
      exp(a * (where(abs(u) < 0.5, log1p(u), log(x * r)) - u) - r * horner(r2, kStirling)) *
      sqrt(a * (0.5 / kPi));
  return where(a < 10, direct, large);
}

// exp(x) - 1 - x, in f32.
Value exp_beyond_linear(Value x) {
  constexpr double kTaylor[] = {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                                1.0 / 5040,     1.0 / 720,     1.0 / 120,    1.0 / 24,
                                1.0 / 6,        1.0 / 2};
  return where(abs(x) < 1, x * x * horner(x, kTaylor), exp(x) - (x + 1));
}

}  // namespace

// Note [Incomplete gamma functions]
// With t = x exp(s) the upper integral is Q = D int_0^inf exp(a s - x (exp(s) - 1)) ds, where D is
// x^a exp(-x) / gamma(a); with t = x exp(-s) the lower one is P = D int_0^inf exp(x (1 - exp(-s)) -
// a s) ds. For x >= a (Q) and x < a (P) the integrands fall from s = 0 on without a maximum, and 32
// Gauss-Legendre nodes up to where they are exp(-40) give all digits, for every a >= 8 in the lower
// case and every a in the upper; for those of f32 16 nodes up to exp(-19) are enough, and f32 for
// the integrand, whose exponent is then written as two terms of one sign. Small x and a are left to
// the power series of P (DLMF 8.7.1), which needs 44 (22) terms at most there; its divisions come
// together in one. The end of the interval for P follows from
// s - 1 + exp(-s) >= s^2 / (s + 2).
IncompleteGamma incomplete_gamma(Value a, Value x) {
  static const Quadrature all_digits(32), few_digits(16);
  const bool single = single_precision;
  const Quadrature& rule = single ? few_digits : all_digits;
  const double kEnd = single ? 19 : 40;
  constexpr double kSteep = 1e8;
  const int terms = single ? 22 : 44;
  const Value density = gamma_density(a, x);

  // Horner's form of the sum of x^k / ((a + 1) ... (a + k)), as over / under. Where a is bounded
  // here the density is 0.
  const Value bounded = min(a, 1e6);
  Value over = constant_like(a, 1.0), under = over;
  for (int k = terms; k >= 1; --k) {
    under = under * (bounded + k);
    over = over * x + under;
  }
  const Value series = density * over / (under * a);

  const Value below = x < a, gap = abs(x - a);
  const Value wide = kEnd - 2 * gap;
  const Value end_below = (wide + sqrt(wide * wide + 8 * kEnd * a)) / (2 * a);
  const Value first = 2 * kEnd / (gap + sqrt(gap * gap + 2 * kEnd * x));
  const Value end_above = min(first, log1p((kEnd + a * first) / x));
  const Value end = where(below, end_below, end_above);
  const Value side = where(below, -1.0, constant_like(a, 1.0));
  const Type type = single ? Type::f32 : a.type();
  const Value last = cast(end * side, type), fall = cast(gap * end, type), rise = cast(x, type);
  Value integral = constant_like(last, 0.0);
  for (size_t i = 0; i < rule.node.size(); ++i) {
    const Value s = last * rule.node[i];
    const Value exponent =
        single ? -(fall * rule.node[i]) - rise * exp_beyond_linear(s) : a * s - x * expm1(s);
    integral = integral + rule.weight[i] * exp(exponent);
  }
  integral = cast(integral, a.type());
  const Value quadrature = density * integral * end;

  const Value by_series = (below & (a < 8)) | (x < 0.5);
  // From here on the density loses digits, and the first terms of the uniform expansion (DLMF
  // 8.12.3, 8.12.4) have all of them: with x = a (1 + u), t^2 / 2 = u - log(1 + u).
  const Value u = max(min((x - a) / a, 0.01), -0.01);
  const Value half = u * u * (0.5 - u * (1.0 / 3 - u * (0.25 - u * 0.2)));
  const Value t = copysign(sqrt(half * 2), u);
  const Value rest =
      exp(-(a * half)) / sqrt(a * (2 * kPi)) * (t * (1.0 / 12 - t * (2.0 / 135)) - 1.0 / 3);
  const Value steep = 0.5 * erfc(-(t * sqrt(a * 0.5))) - rest;

  const Value is_lower = by_series | below;
  const Value part = where(by_series, series, quadrature), other = 1 - part;
  // The edges, where the formulas above meet 0 / 0 and the like.
  const auto at_edges = [&](Value inside, double at_zero, double at_infinity) {
    const Value zero =
        where((a == 0) & (x == 0), kNaN, where(a == 0, at_infinity, constant_like(a, at_zero)));
    const Value infinite = where(is_inf(a) & is_inf(x), kNaN,
                                 where(is_inf(a), at_zero, constant_like(a, at_infinity)));
    const Value edge = where((a == 0) | (x == 0), zero, infinite);
    const Value y = where((a == 0) | (x == 0) | is_inf(a) | is_inf(x), edge, inside);
    return where((a < 0) | (x < 0) | is_nan(a) | is_nan(x), kNaN, y);
  };
  const Value is_steep = a > kSteep;
  return {at_edges(where(is_steep, steep, where(is_lower, part, other)), 0, 1),
          at_edges(where(is_steep, 1 - steep, where(is_lower, other, part)), 1, 0), density};
}

}  // namespace arete::expr
