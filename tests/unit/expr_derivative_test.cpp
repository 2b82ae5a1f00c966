// Derivatives of expression programs against central differences and known special cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "arete/base/error.h"
#include "arete/expr/orthogonal.h"
#include "arete/expr/program.h"
#include "arete/expr/value.h"
#include "tests/unit/expr_test_support.h"

namespace arete::expr {
namespace {

using From = DerivativeInput::From;
using Values = std::span<const Value>;

constexpr double kInf = std::numeric_limits<double>::infinity();

ProgramPtr make(std::initializer_list<DType> inputs, const Definition& f,
                std::initializer_list<DType> outputs = {},
                std::initializer_list<Type> params = {}) {
  return trace(f, std::span(inputs.begin(), inputs.size()),
               std::span(params.begin(), params.size()),
               std::span(outputs.begin(), outputs.size()));
}
ProgramPtr make1(const std::function<Value(Value)>& f, DType t = kFloat64) {
  return make({t}, [&](Values v) { return std::vector{f(v[0])}; }, {t});
}
ProgramPtr make2(const std::function<Value(Value, Value)>& f) {
  return make({kFloat64, kFloat64}, [&](Values v) { return std::vector{f(v[0], v[1])}; });
}

// The inputs of the derivative program, from the inputs of the original and output gradients.
std::vector<double> derivative_inputs(const Program& p, const Derivative& d,
                                      const std::vector<double>& x,
                                      const std::vector<double>& params,
                                      const std::vector<double>& grads) {
  const std::vector<double> y = test::run(p, x, params);
  std::vector<double> in;
  for (const DerivativeInput& i : d.inputs)
    in.push_back(i.from == From::input    ? x[size_t(i.index)]
                 : i.from == From::output ? y[size_t(i.index)]
                                          : grads[size_t(i.index)]);
  return in;
}

std::vector<double> gradient(const ProgramPtr& p, uint32_t wanted, const std::vector<double>& x,
                             const std::vector<double>& grads,
                             const std::vector<double>& params = {}) {
  const Derivative& d = p->derivative(wanted);
  return test::run(*d.program, derivative_inputs(*p, d, x, params, grads), params);
}
double gradient1(const ProgramPtr& p, double x, double g = 1) {
  return gradient(p, 1, {x}, {g})[0];
}

std::string sources(const Derivative& d) {
  std::string s;
  for (const DerivativeInput& i : d.inputs)
    s += (i.from == From::input    ? "x"
          : i.from == From::output ? "y"
                                   : "g") +
         std::to_string(i.index);
  return s;
}

// Checks all first derivatives of a program of f64 at `x` against central differences.
void check_gradient(const ProgramPtr& p, const std::vector<double>& x,
                    const std::vector<double>& params = {}) {
  const size_t outputs = p->outputs().size();
  for (size_t k = 0; k < outputs; ++k) {
    if (!is_floating(p->outputs()[k].dtype)) continue;
    std::vector<double> g(outputs, 0.0);
    g[k] = 1.5;
    const auto got = gradient(p, (1u << x.size()) - 1, x, g, params);
    for (size_t i = 0; i < x.size(); ++i) {
      const double h = test::difference_step() * std::fmax(std::fabs(x[i]), 1.0);
      auto moved = [&](double by) {
        std::vector<double> at = x;
        at[i] += by;
        return test::run(*p, at, params)[k];
      };
      const double expected = 1.5 * (moved(h) - moved(-h)) / (2 * h);
      EXPECT_NEAR(got[i], expected, test::difference_tolerance(std::fabs(expected)))
          << "input " << i << " at " << x[i] << "\n"
          << p->text() << p->derivative(1).program->text();
    }
  }
}

// Where each differentiable operation of one operand is tried.
const std::map<Op, std::vector<double>> kUnaryPoints = {
    {Op::neg, {-2, 0, 3}},        {Op::abs, {-2, 0.5}},           {Op::sqrt, {0.3, 1, 7}},
    {Op::rsqrt, {0.3, 1, 7}},     {Op::reciprocal, {-3, 0.4, 2}}, {Op::exp, {-3, 0, 1.5}},
    {Op::exp2, {-3, 0, 1.5}},     {Op::expm1, {-1, 0.01, 1.5}},   {Op::log, {0.2, 1, 9}},
    {Op::log2, {0.2, 1, 9}},      {Op::log10, {0.2, 1, 9}},       {Op::log1p, {-0.5, 0.01, 4}},
    {Op::sin, {-2, 0, 1}},        {Op::cos, {-2, 0, 1}},          {Op::tan, {-1, 0, 1.2}},
    {Op::asin, {-0.9, 0, 0.5}},   {Op::acos, {-0.9, 0, 0.5}},     {Op::atan, {-3, 0, 0.5}},
    {Op::sinh, {-2, 0, 1}},       {Op::cosh, {-2, 0, 1}},         {Op::tanh, {-2, 0, 1}},
    {Op::asinh, {-2, 0, 5}},      {Op::acosh, {1.2, 3}},          {Op::atanh, {-0.8, 0, 0.5}},
    {Op::erf, {-1, 0, 2}},        {Op::erfc, {-1, 0, 2}},         {Op::erfinv, {-0.7, 0.01, 0.9}},
    {Op::lgamma, {-1.5, 0.3, 4}}, {Op::sigmoid, {-5, 0, 2}},      {Op::digamma, {-1.5, 0.3, 4}},
};
const std::map<Op, std::vector<std::pair<double, double>>> kBinaryPoints = {
    {Op::add, {{1, 2}, {-1, 0}}},
    {Op::sub, {{1, 2}, {-1, 0}}},
    {Op::mul, {{1, 2}, {-1, 0}}},
    {Op::div, {{1, 2}, {-1, 0.3}}},
    {Op::fmod, {{7.3, 2}, {-7.3, 2}, {7.3, -2}}},
    {Op::remainder, {{7.3, 2}, {-7.3, 2}, {7.3, -2}}},
    {Op::pow, {{2, 3.5}, {0.7, -1.2}}},
    {Op::atan2, {{1, 2}, {-1, -0.3}, {0.1, -4}}},
    {Op::copysign, {{1, -2}, {-3, 5}, {-3, -5}}},
    {Op::min, {{1, 2}, {2, -1}}},
    {Op::max, {{1, 2}, {2, -1}}},
};
const std::set<Op> kFlat = {Op::sign, Op::floor, Op::ceil, Op::trunc, Op::round, Op::floor_div};
const std::set<Op> kNotDifferentiable = {Op::nextafter};

TEST(Derivative, EveryOperationAgainstDifferences) {
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = Op(i);
    if (arity_of(op) == 0 || arity_of(op) == 3 || op == Op::cast || op == Op::round_to) continue;
    if (op == Op::bit_not || (op >= Op::bit_and && op <= Op::ge)) continue;
    if (op == Op::is_nan || op == Op::is_inf || op == Op::load || op == Op::polynomial) continue;
    SCOPED_TRACE(name_of(op));
    const bool one = arity_of(op) == 1;
    const ProgramPtr p =
        one ? make1([op](Value x) { return x.builder()->emit(op, x); })
            : make2([op](Value x, Value y) { return x.builder()->emit(op, x, y); });
    if (kNotDifferentiable.count(op)) {
      EXPECT_THROW(p->derivative(1), NotImplementedError);
    } else if (kFlat.count(op)) {
      const std::vector<double> x = one ? std::vector{2.3} : std::vector{2.3, 0.7};
      for (double g : gradient(p, one ? 1 : 3, x, {1})) EXPECT_EQ(g, 0);
    } else if (one) {
      ASSERT_TRUE(kUnaryPoints.count(op)) << "no points";
      for (double x : kUnaryPoints.at(op)) check_gradient(p, {x});
    } else {
      ASSERT_TRUE(kBinaryPoints.count(op)) << "no points";
      for (auto [x, y] : kBinaryPoints.at(op)) check_gradient(p, {x, y});
    }
  }
}

TEST(Derivative, OfContractedProducts) {
  for (Op op : {Op::mul_add, Op::mul_sub, Op::sub_mul}) {
    SCOPED_TRACE(name_of(op));
    const DType f64[] = {kFloat64, kFloat64, kFloat64};
    const auto of = [&](const std::function<Value(std::span<const Value>)>& f) {
      return trace([&](std::span<const Value> v) { return std::vector{f(v)}; }, f64, {}, {});
    };
    check_gradient(of([op](auto v) { return v[0].builder()->emit(op, v[0], v[1], v[2]); }),
                   {1.3, -0.7, 2.1});
    check_gradient(of([op](auto v) { return exp(v[0].builder()->emit(op, v[0], v[0], v[1])); }),
                   {0.6, -0.7, 0});
  }
}

TEST(Derivative, OfPolynomialsAgainstDifferences) {
  for (int family = 0; family <= int(Orthogonal::legendre_p); ++family)
    for (int order = 0; order + 1 < kOrthogonalOrders; ++order)
      for (double degree : {0, 1, 2, 5}) {
        SCOPED_TRACE(std::to_string(family) + " " + std::to_string(order));
        const ProgramPtr p = make1([&](Value x) {
          return x.builder()->polynomial(x, x.builder()->constant(x.type(), degree), family, order);
        });
        for (double x : {-0.7, 0.3, 1.2}) check_gradient(p, {x});
      }
  const ProgramPtr last = make1([](Value x) {
    return x.builder()->polynomial(x, x, Orthogonal::hermite_h, kOrthogonalOrders - 1);
  });
  EXPECT_THROW(last->derivative(1), NotImplementedError);
}

TEST(Derivative, OfTablesIsRefused) {
  Builder b;
  const Value table = b.table(kFloat32), x = b.input(kFloat32);
  const Value y = x * load(table, b.constant(Type::i64, 0));
  const DType f32 = kFloat32;
  const ProgramPtr p = b.build({&y, 1}, {&f32, 1});
  EXPECT_THROW(p->derivative(0b10), NotImplementedError);
  // And nothing but load() reads them, at whole positions.
  EXPECT_THROW(load(x, b.constant(Type::i64, 0)), ValueError);
  EXPECT_THROW(load(table, x), TypeError);
  const Value sum = table + x;
  EXPECT_THROW(b.build({&sum, 1}, {&f32, 1}), ValueError);
  EXPECT_THROW(b.build({&table, 1}, {&f32, 1}), ValueError);
}

TEST(Derivative, SecondDerivativesAgainstDifferences) {
  for (const auto& [op, points] : kUnaryPoints) {
    SCOPED_TRACE(name_of(op));
    const ProgramPtr p = make1([op = op](Value x) { return x.builder()->emit(op, x); });
    const Derivative& d = p->derivative(1);
    for (double x : points) {
      // The derivative's program is one of its own inputs: plain numbers, whatever they stand for.
      const auto in = derivative_inputs(*p, d, {x}, {}, {0.7});
      check_gradient(d.program, in);
    }
  }
}

TEST(Derivative, Compositions) {
  const ProgramPtr silu = make1([](Value x) { return x * sigmoid(x); });
  const ProgramPtr gelu = make1([](Value x) { return x * 0.5 * (erf(x * std::sqrt(0.5)) + 1); });
  const ProgramPtr softplus = make1([](Value x) { return max(x, 0) + log1p(exp(-abs(x))); });
  const ProgramPtr cubic = make1([](Value x) { return x * x * x - 2 * x; });
  for (const ProgramPtr& p : {silu, gelu, softplus, cubic})
    for (double x : {-3.0, -0.5, 0.2, 4.0}) {
      check_gradient(p, {x});
      const Derivative& d = p->derivative(1);
      check_gradient(d.program, derivative_inputs(*p, d, {x}, {}, {1.3}));
    }
  const ProgramPtr two = make(
      {kFloat64, kFloat64},
      [](Values v) {
        return std::vector{where(v[0] > v[1], v[0] * v[1], exp(v[0])) * v[2], v[1] / (v[0] + 10)};
      },
      {}, {Type::f64});
  check_gradient(two, {1, 2}, {3});
  check_gradient(two, {2, 1}, {3});
}

TEST(Derivative, ReadsSavedOutputsInsteadOfInputs) {
  EXPECT_EQ(sources(make1([](Value x) { return exp(x); }, kFloat32)->derivative(1)), "y0g0");
  EXPECT_EQ(sources(make1([](Value x) { return tanh(x); }, kFloat32)->derivative(1)), "y0g0");
  EXPECT_EQ(sources(make1([](Value x) { return sigmoid(x); }, kFloat32)->derivative(1)), "y0g0");
  EXPECT_EQ(sources(make1([](Value x) { return sqrt(x); }, kFloat64)->derivative(1)), "y0g0");
  EXPECT_EQ(sources(make1([](Value x) { return reciprocal(x); })->derivative(1)), "y0g0");
  // A rounded output is not the value that the gradient needs.
  EXPECT_EQ(sources(make1([](Value x) { return exp(x); }, kFloat16)->derivative(1)), "x0g0");
  // No input would become dead.
  EXPECT_EQ(sources(make1([](Value x) { return x * exp(x); })->derivative(1)), "x0g0");
  // Only what the wanted gradients need.
  EXPECT_EQ(sources(make2([](Value a, Value b) { return a * b; })->derivative(1)), "x1g0");
  EXPECT_EQ(sources(make2([](Value a, Value b) { return a * b; })->derivative(2)), "x0g0");
  EXPECT_EQ(sources(make2([](Value a, Value b) { return a * b; })->derivative(3)), "x0x1g0");
  EXPECT_EQ(sources(make2([](Value a, Value b) { return a - b; })->derivative(3)), "g0");
  EXPECT_EQ(sources(make2([](Value a, Value b) { return a / b; })->derivative(3)), "x1y0g0");
  const ProgramPtr softsign = make({kFloat32}, [](Values v) {
    const Value e = exp(v[0]);
    return std::vector{e, e * e};
  });
  EXPECT_EQ(sources(softsign->derivative(1)), "y0g0g1");
}

TEST(Derivative, PartsReadSomeOfWhatTheWholeReads) {
  const ProgramPtr product = make2([](Value a, Value b) { return a * b; });
  EXPECT_EQ(sources(product->derivative(3)), "x0x1g0");
  EXPECT_EQ(sources(product->derivative(3, 1)), "x1g0");
  EXPECT_EQ(sources(product->derivative(3, 2)), "x0g0");
  EXPECT_EQ(&product->derivative(3, 3), &product->derivative(3));
  // Alone, the first gradient would read the output: the whole, which reads both inputs, does not.
  const ProgramPtr grown = make2([](Value a, Value b) { return exp(a * b); });
  EXPECT_EQ(sources(grown->derivative(1)), "x1y0g0");
  EXPECT_EQ(sources(grown->derivative(3, 1)), "x0x1g0");
  const std::vector<double> x{0.7, 1.3};
  for (const auto& f : std::vector<Value (*)(Value, Value)>{
           [](Value a, Value b) { return sqrt(a * a + b * b); },
           [](Value a, Value b) { return exp(a) / b; }, [](Value a, Value b) { return pow(a, b); },
           [](Value a, Value b) { return atan2(a, b) + a; }}) {
    const ProgramPtr p = make2(f);
    const std::vector<double> whole = gradient(p, 3, x, {1.5});
    for (uint32_t i : {0u, 1u}) {
      const Derivative& part = p->derivative(3, 1u << i);
      for (const DerivativeInput& in : part.inputs)
        EXPECT_NE(std::ranges::find(p->derivative(3).inputs, in), p->derivative(3).inputs.end());
      EXPECT_EQ(test::run(*part.program, derivative_inputs(*p, part, x, {}, {1.5}), {}),
                std::vector{whole[i]})
          << p->text();
    }
  }
}

TEST(Derivative, TextOfProgramsPeopleRead) {
  EXPECT_EQ(make1([](Value x) { return sigmoid(x); }, kFloat32)->derivative(1).program->text(),
            "%0:f32 = input 0 float32\n"
            "%1:f32 = input 1 float32\n"
            "%2:f32 = constant 1\n"
            "%3:f32 = sub %2 %0\n"
            "%4:f32 = mul %0 %3\n"
            "%5:f32 = mul %1 %4\n"
            "return %5:float32\n");
  EXPECT_EQ(
      make1([](Value x) { return where(x > 0, x, 0); }, kBFloat16)->derivative(1).program->text(),
      "%0:f32 = input 0 bfloat16\n"
      "%1:f32 = input 1 bfloat16\n"
      "%2:f32 = constant 0\n"
      "%3:bool = gt %0 %2\n"
      "%4:f32 = select %3 %1 %2\n"
      "return %4:bfloat16\n");
}

TEST(Derivative, ExtremeValuesStayFinite) {
  const ProgramPtr sig = make1([](Value x) { return sigmoid(x); }, kFloat32);
  for (double x : {-1000.0, -100.0, 100.0, 1000.0}) EXPECT_NEAR(gradient1(sig, x), 0, 1e-30) << x;
  EXPECT_EQ(gradient1(make1([](Value x) { return tanh(x); }, kFloat32), 1000), 0);
  const ProgramPtr softplus =
      make1([](Value x) { return max(x, 0) + log1p(exp(-abs(x))); }, kFloat32);
  EXPECT_EQ(gradient1(softplus, 1000), 1);
  EXPECT_EQ(gradient1(softplus, -1000), 0);
  const ProgramPtr angle = make2([](Value a, Value b) { return atan2(a, b); });
  EXPECT_NEAR(gradient(angle, 3, {3e200, 4e200}, {1})[0] * 1e200, 0.16,
              test::tolerance(kFloat64, 1));
  EXPECT_NEAR(gradient(angle, 3, {3e-200, 4e-200}, {1})[1] * 1e-200, -0.12,
              test::tolerance(kFloat64, 1));
}

TEST(Derivative, BranchNotTakenIsNotSeen) {
  // The derivative of the logarithm is infinite where it is not used.
  const ProgramPtr p = make1([](Value x) { return where(x > 0, log(x), x * 3); });
  EXPECT_EQ(gradient1(p, 0), 3);
  EXPECT_EQ(gradient1(p, 2), 0.5);
  const ProgramPtr nested = make1(
      [](Value x) { return where(x > 0, where(x < 4, sqrt(x), x * 2), constant_like(x, 7)); });
  EXPECT_EQ(gradient1(nested, 0), 0);
  EXPECT_EQ(gradient1(nested, 1), 0.5);
  EXPECT_EQ(gradient1(nested, 5), 2);
  EXPECT_EQ(gradient1(nested, -1), 0);
}

TEST(Derivative, ConventionsOfPyTorch) {
  const ProgramPtr maximum = make2([](Value a, Value b) { return max(a, b); });
  const ProgramPtr minimum = make2([](Value a, Value b) { return min(a, b); });
  EXPECT_EQ(gradient(maximum, 3, {2, 2}, {1}), (std::vector{0.5, 0.5}));
  EXPECT_EQ(gradient(minimum, 3, {2, 2}, {1}), (std::vector{0.5, 0.5}));
  EXPECT_EQ(gradient(maximum, 3, {3, 2}, {1}), (std::vector{1.0, 0.0}));
  EXPECT_EQ(gradient(minimum, 3, {3, 2}, {1}), (std::vector{0.0, 1.0}));
  EXPECT_EQ(gradient1(make1([](Value x) { return abs(x); }), 0), 0);
  EXPECT_EQ(gradient1(make1([](Value x) { return sqrt(x); }), 0), kInf);
  const ProgramPtr power = make2([](Value a, Value b) { return pow(a, b); });
  EXPECT_EQ(gradient(power, 3, {0, 2}, {1}), (std::vector{0.0, 0.0}));
  EXPECT_EQ(gradient(power, 3, {0, 0}, {1}), (std::vector{0.0, 0.0}));
  EXPECT_EQ(gradient(power, 1, {0, 0.5}, {1})[0], kInf);
  EXPECT_EQ(gradient(power, 1, {-2, 2}, {1})[0], -4);
  EXPECT_TRUE(std::isnan(gradient(power, 2, {-2, 2}, {1})[0]));
  const ProgramPtr sign_of = make2([](Value a, Value b) { return copysign(a, b); });
  EXPECT_EQ(gradient(sign_of, 3, {0, -1}, {1}), (std::vector{0.0, 0.0}));
}

TEST(Derivative, IntegersAndComparisonsStopIt) {
  const ProgramPtr mixed = make({kInt32, kFloat32}, [](Values v) {
    return std::vector{v[0] * v[1], v[0] > v[1]};
  });
  const Derivative& d = mixed->derivative(3);
  EXPECT_EQ(sources(d), "x0g0");
  EXPECT_EQ(d.program->outputs()[0].dtype, kInt32);
  EXPECT_EQ(d.program->outputs()[1].dtype, kFloat32);
  EXPECT_EQ(gradient(mixed, 3, {4, 2}, {3, 0}), (std::vector{0.0, 12.0}));
  const ProgramPtr through_int =
      make1([](Value x) { return cast(cast(x, Type::i32), Type::f64) * x; });
  EXPECT_EQ(gradient1(through_int, 2.5), 2);
  const ProgramPtr unused =
      make({kFloat32, kFloat32}, [](Values v) { return std::vector{v[0] * 2}; });
  EXPECT_EQ(gradient(unused, 3, {1, 1}, {5}), (std::vector{10.0, 0.0}));
  EXPECT_EQ(sources(unused->derivative(2)), "");
}

TEST(Derivative, StorageTypesFollowTheInputs) {
  const ProgramPtr p =
      make({kFloat16, kFloat64}, [](Values v) { return std::vector{v[0] * v[1]}; }, {kFloat32});
  const Derivative& d = p->derivative(3);
  EXPECT_EQ(d.program->outputs()[0].dtype, kFloat16);
  EXPECT_EQ(d.program->outputs()[1].dtype, kFloat64);
  ASSERT_EQ(sources(d), "x0x1g0");
  EXPECT_EQ(d.program->inputs()[2], kFloat32);
  EXPECT_EQ(gradient(p, 3, {2, 3}, {1}), (std::vector{3.0, 2.0}));
  const ProgramPtr rounded =
      make1([](Value x) { return x.builder()->round_to(x * 3, kFloat16) * 2; }, kFloat32);
  EXPECT_EQ(gradient1(rounded, 0.1), 6);
}

TEST(Derivative, KeepsParametersAndIsCached) {
  const ProgramPtr p =
      make({kFloat64}, [](Values v) { return std::vector{v[0] * v[0] * v[2] + v[1]}; }, {},
           {Type::f64, Type::f64});
  const Derivative& d = p->derivative(1);
  EXPECT_EQ(&d, &p->derivative(1));
  EXPECT_EQ(d.program->params().size(), 2u);
  EXPECT_EQ(gradient(p, 1, {3}, {1}, {100, 5})[0], 30);
}

}  // namespace
}  // namespace arete::expr
