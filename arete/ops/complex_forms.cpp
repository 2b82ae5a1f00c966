// The complex forms of pointwise operators (Note [Complex tensors] in complex_call.cpp).
#include <cmath>
#include <map>
#include <numbers>

#include "arete/ops/complex_internal.h"
#include "arete/ops/complex_value.h"

namespace arete::ops {

using expr::Value;

namespace {

using Values = std::span<const Value>;
using Out = std::vector<Value>;
using Forms = std::map<std::string, ComplexForm, std::less<>>;

Complex pair(Values v, size_t i) { return {v[2 * i], v[2 * i + 1]}; }
Out out(Complex a) { return {a.re, a.im}; }
Complex one_like(Complex z) { return constant_like(z.re, 1, 0); }

// ---- one input

// f, differentiated symbolically.
template <class F>
ComplexForm unary(F f) {
  return {[f](Values v) { return out(f(pair(v, 0))); }, {}};
}
// A holomorphic f with derivative df(z, f(z)).
template <class F, class D>
ComplexForm unary(F f, D df) {
  return {[f](Values v) { return out(f(pair(v, 0))); },
          [df](Values v) { return out(pair(v, 2) * conj(df(pair(v, 0), pair(v, 1)))); }};
}
// A real or boolean result.
template <class F>
ComplexForm measure(F f) {
  return {[f](Values v) { return Out{f(pair(v, 0))}; }, {}};
}

void add_exponentials(Forms& f) {
  f["exp"] = unary([](Complex z) { return exp(z); }, [](Complex, Complex y) { return y; });
  f["exp2"] = unary([](Complex z) { return exp(z * std::numbers::ln2); },
                    [](Complex, Complex y) { return y * std::numbers::ln2; });
  f["expm1"] =
      unary([](Complex z) { return expm1(z); }, [](Complex, Complex y) { return 1.0 + y; });
  f["log"] =
      unary([](Complex z) { return log(z); }, [](Complex z, Complex) { return reciprocal(z); });
  f["log2"] = unary([](Complex z) { return log(z) * std::numbers::log2e; },
                    [](Complex z, Complex) { return reciprocal(z) * std::numbers::log2e; });
  f["log10"] = unary([](Complex z) { return log(z) * std::numbers::log10e; },
                     [](Complex z, Complex) { return reciprocal(z) * std::numbers::log10e; });
  f["log1p"] = unary([](Complex z) { return log1p(z); },
                     [](Complex z, Complex) { return reciprocal(1.0 + z); });
  f["sqrt"] = unary([](Complex z) { return sqrt(z); },
                    [](Complex, Complex y) { return reciprocal(y) * 0.5; });
  f["rsqrt"] = unary([](Complex z) { return reciprocal(sqrt(z)); },
                     [](Complex, Complex y) { return y * y * y * -0.5; });
  f["sigmoid"] = unary([](Complex z) { return reciprocal(1.0 + exp(-z)); },
                       [](Complex, Complex y) { return y * (1.0 - y); });
}

void add_trigonometry(Forms& f) {
  f["sin"] = unary([](Complex z) { return sin(z); }, [](Complex z, Complex) { return cos(z); });
  f["cos"] = unary([](Complex z) { return cos(z); }, [](Complex z, Complex) { return -sin(z); });
  f["tan"] =
      unary([](Complex z) { return tan(z); }, [](Complex, Complex y) { return 1.0 + y * y; });
  f["sinh"] = unary([](Complex z) { return sinh(z); }, [](Complex z, Complex) { return cosh(z); });
  f["cosh"] = unary([](Complex z) { return cosh(z); }, [](Complex z, Complex) { return sinh(z); });
  f["tanh"] =
      unary([](Complex z) { return tanh(z); }, [](Complex, Complex y) { return 1.0 - y * y; });
  f["asin"] = unary([](Complex z) { return asin(z); },
                    [](Complex z, Complex) { return reciprocal(sqrt(1.0 - z * z)); });
  f["acos"] = unary([](Complex z) { return acos(z); },
                    [](Complex z, Complex) { return -reciprocal(sqrt(1.0 - z * z)); });
  f["atan"] = unary([](Complex z) { return atan(z); },
                    [](Complex z, Complex) { return reciprocal(1.0 + z * z); });
  f["asinh"] = unary([](Complex z) { return asinh(z); },
                     [](Complex z, Complex) { return reciprocal(sqrt(1.0 + z * z)); });
  f["acosh"] = unary([](Complex z) { return acosh(z); },
                     [](Complex z, Complex) { return reciprocal(sqrt(-1.0 + z) * sqrt(1.0 + z)); });
  f["atanh"] = unary([](Complex z) { return atanh(z); },
                     [](Complex z, Complex) { return reciprocal(1.0 - z * z); });
  // sin(pi z) / (pi z); its derivative (cos(pi z) - sinc(z)) / z, 0 at 0.
  f["sinc"] = unary(
      [](Complex z) {
        const Complex x = where(is_zero(z), one_like(z), z * std::numbers::pi);
        return where(is_zero(z), one_like(z), sin(x) / x);
      },
      [](Complex z, Complex y) {
        const Complex x = where(is_zero(z), one_like(z), z);
        return where(is_zero(z), constant_like(z.re, 0, 0), (cos(x * std::numbers::pi) - y) / x);
      });
}

void add_parts(Forms& f) {
  f["neg"] = unary([](Complex z) { return -z; });
  f["positive"] = unary([](Complex z) { return z; });
  f["conj_physical"] = unary([](Complex z) { return conj(z); });
  f["square"] = unary([](Complex z) { return z * z; });
  f["reciprocal"] =
      unary([](Complex z) { return reciprocal(z); }, [](Complex, Complex y) { return -(y * y); });
  f["abs"] = {[](Values v) { return Out{abs(pair(v, 0))}; },
              [](Values v) { return out(sgn(pair(v, 0)) * v[3]); }};
  f["angle"] = {[](Values v) { return Out{angle(pair(v, 0))}; },
                [](Values v) {  // i z / |z|^2, 0 at 0
                  const Complex z = pair(v, 0);
                  const Value size = abs(z), zero = size == 0.0;
                  const Value scale = v[3] / where(zero, 1.0, size);
                  return out(times_i(sgn(z)) * where(zero, 0.0, scale));
                }};
  f["sgn"] = {[](Values v) { return out(sgn(pair(v, 0))); },
              [](Values v) {  // (g - y Re(conj(y) g)) / |z|: what lies across the ray, 0 at 0
                const Complex z = pair(v, 0), y = pair(v, 1), g = pair(v, 2);
                const Value size = abs(z), zero = size == 0.0;
                const Value along = y.re * g.re + y.im * g.im;
                const Complex across = g - y * along;
                return out(across * where(zero, 0.0, 1.0 / where(zero, 1.0, size)));
              }};
  f["isnan"] = measure([](Complex z) { return is_nan(z.re) | is_nan(z.im); });
  f["isinf"] = measure([](Complex z) { return is_inf(z.re) | is_inf(z.im); });
  f["isfinite"] = measure(
      [](Complex z) { return !(is_nan(z.re) | is_nan(z.im) | is_inf(z.re) | is_inf(z.im)); });
  f["logical_not"] = measure([](Complex z) { return is_zero(z); });
}

// ---- several inputs

void add_arithmetic(Forms& f) {
  f["add"] = {[](Values v) { return out(pair(v, 0) + pair(v, 1) * pair(v, 2)); }, {}};
  f["sub"] = {[](Values v) { return out(pair(v, 0) - pair(v, 1) * pair(v, 2)); }, {}};
  f["rsub"] = {[](Values v) { return out(pair(v, 1) - pair(v, 0) * pair(v, 2)); }, {}};
  f["mul"] = {[](Values v) { return out(pair(v, 0) * pair(v, 1)); }, {}};
  f["div"] = {[](Values v) { return out(pair(v, 0) / pair(v, 1)); },
              [](Values v) {
                const Complex b = pair(v, 1), y = pair(v, 2);
                const Complex da = pair(v, 3) / conj(b), db = -(conj(y) * da);
                return Out{da.re, da.im, db.re, db.im};
              }};
  f["pow"] = {[](Values v) { return out(pow(pair(v, 0), pair(v, 1))); },
              [](Values v) {
                const Complex a = pair(v, 0), b = pair(v, 1), y = pair(v, 2), g = pair(v, 3);
                const Complex zero = constant_like(a.re, 0, 0);
                const Complex slope = b * pow(a, b - one_like(b));
                const Complex base = where(is_zero(a), one_like(a), a);
                const Complex da = g * conj(where(is_zero(b), zero, slope));
                const Complex db = g * conj(where(is_zero(a), zero, y * log(base)));
                return Out{da.re, da.im, db.re, db.im};
              }};
  f["addcmul"] = {[](Values v) { return out(pair(v, 0) + pair(v, 3) * pair(v, 1) * pair(v, 2)); },
                  {}};
  f["addcdiv"] = {[](Values v) { return out(pair(v, 0) + pair(v, 3) * (pair(v, 1) / pair(v, 2))); },
                  {}};
  f["lerp"] = {[](Values v) { return out(pair(v, 0) + pair(v, 2) * (pair(v, 1) - pair(v, 0))); },
               {}};
}

void add_choices(Forms& f) {
  f["eq"] = {[](Values v) { return Out{pair(v, 0) == pair(v, 1)}; }, {}};
  f["ne"] = {[](Values v) { return Out{!(pair(v, 0) == pair(v, 1))}; }, {}};
  f["logical_and"] = {[](Values v) { return Out{!(is_zero(pair(v, 0)) | is_zero(pair(v, 1)))}; },
                      {}};
  f["logical_or"] = {[](Values v) { return Out{!(is_zero(pair(v, 0)) & is_zero(pair(v, 1)))}; },
                     {}};
  f["logical_xor"] = {[](Values v) { return Out{is_zero(pair(v, 0)) ^ is_zero(pair(v, 1))}; }, {}};
  f["where"] = {[](Values v) {
                  return Out{where(v[0], v[1], v[3]), where(v[0], v[2], v[4])};
                },
                {},
                0b110};
  f["masked_fill"] = {[](Values v) {
                        return Out{where(v[2], v[3], v[0]), where(v[2], v[4], v[1])};
                      },
                      {},
                      0b01};
}

const Forms& forms() {
  static const Forms all = [] {
    Forms f;
    add_exponentials(f);
    add_trigonometry(f);
    add_parts(f);
    add_arithmetic(f);
    add_choices(f);
    return f;
  }();
  return all;
}

}  // namespace

const ComplexForm* complex_form(std::string_view name) {
  const auto it = forms().find(name);
  return it == forms().end() ? nullptr : &it->second;
}

std::vector<std::string> complex_names() {
  std::vector<std::string> names;
  for (const auto& [name, form] : forms()) names.push_back(name);
  return names;
}

}  // namespace arete::ops
