// pointwise, multi_pointwise and fill of the CPU against the scalar evaluator.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "arete/backend/cpu/interpreter.h"
#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/program_reference.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Op;
using expr::Type;
using expr::Value;
using prim::View;

bool computes_in_f32(const expr::Program& program) {
  for (const expr::Instruction& in : program.code())
    if (in.type == Type::f32) return true;
  return false;
}

/// Runs the program on the buffers and compares every output element.
void check(const expr::Program& program, std::vector<GuardedBuffer>& inputs,
           std::vector<GuardedBuffer>& outputs, std::vector<expr::Literal> params = {},
           double magnitude = 0) {
  std::vector<View> in, out;
  for (GuardedBuffer& t : inputs) in.push_back(t.view());
  for (GuardedBuffer& t : outputs) out.push_back(t.view());
  backend_under_test().pointwise({&program, in, out, params});
  for (GuardedBuffer& t : outputs) EXPECT_TRUE(t.guards_intact());
  for (IndexWalk w(outputs[0].layout().sizes); w; ++w) {
    std::vector<expr::Literal> values;
    for (GuardedBuffer& t : inputs)
      values.push_back(program.is_table(values.size())
                           ? expr::Literal{.i = int64_t(reinterpret_cast<intptr_t>(t.view().data))}
                           : literal_of(t, broadcast_index(t.layout(), *w)));
    const std::vector<expr::Literal> want = expr::evaluate(program, values, params);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const DType dtype = outputs[k].dtype();
      std::string text =
          mismatch(outputs[k].get(*w), as_double(want[k], dtype), dtype, 1, magnitude);
      // An f64 output may have been computed in f32.
      if (dtype == kFloat64 && computes_in_f32(program))
        text = mismatch(outputs[k].get(*w), as_double(want[k], dtype), kFloat32, 1, magnitude);
      ASSERT_EQ(text, "") << "output " << k << " at " << to_string(*w) << "\n" << program.text();
    }
  }
}

expr::ProgramPtr unary_program(Op op, DType in, DType out) {
  expr::Builder b;
  const Value y = b.emit(op, b.input(in));
  return b.build(std::span<const Value>(&y, 1), std::span<const DType>(&out, 1));
}

TEST(Pointwise, every_floating_function) {
  for (DType dtype : {kFloat32, kFloat64}) {
    for (int k = int(Op::neg); k <= int(Op::is_inf); ++k) {
      const Op op = Op(k);
      if (op == Op::bit_not) continue;
      SCOPED_TRACE(std::string(expr::name_of(op)) + " " + std::string(name_of(dtype)));
      std::vector<double> points{0.0,  -0.0,  0.5,   -0.5, 1,     -1,  1.5,      2.5,       -2.5,
                                 3,    10,    -10,   40,   -40,   88,  -88,      100,       -100,
                                 1e-3, -1e-3, 1e-10, 0.99, -0.99, 1e5, INFINITY, -INFINITY, NAN};
      for (int i = -300; i <= 300; ++i) points.push_back(i * 0.0137);
      std::vector<GuardedBuffer> in, out;
      in.emplace_back(dtype, Shape{int64_t(points.size())});
      for (size_t i = 0; i < points.size(); ++i) in[0].set(Shape{int64_t(i)}, points[i]);
      const bool logical = op == Op::is_nan || op == Op::is_inf;
      out.emplace_back(logical ? kBool : dtype, Shape{int64_t(points.size())});
      // Zero crossings: the error is relative to the terms, which are about 1.
      const bool crosses =
          op == Op::lgamma || op == Op::digamma || op == Op::sin || op == Op::cos || op == Op::tan;
      check(*unary_program(op, dtype, logical ? kBool : dtype), in, out, {}, crosses ? 1 : 0);
    }
  }
}

// Of numbers of all magnitudes, those near 1, and small ones: in last places of the exact result.
template <class T, class Wide>
void check_last_places(DType dtype, Op op, Wide (*exact)(Wide), std::mt19937_64& rng) {
  SCOPED_TRACE(std::string(expr::name_of(op)) + " " + std::string(name_of(dtype)));
  constexpr int64_t n = 8009;
  GuardedBuffer in(dtype, Shape{n}), out(dtype, Shape{n});
  for (int64_t i = 0; i < n; ++i) {
    T x;
    const uint64_t bits = rng();
    std::memcpy(&x, &bits, sizeof(T));
    if (i % 4 == 1) x = T(std::ldexp(double(int64_t(bits)), -60));
    if (i % 4 == 2) x = T(std::ldexp(double(int64_t(bits)), -63));
    if (i % 4 == 3) x = T(1 + std::ldexp(double(int64_t(bits)), -64 - int(rng() % 30)));
    if (i < 8) x = std::array<T, 8>{0, -T(0), 1, -1, T(INFINITY), -T(INFINITY), T(NAN), T(0.5)}[i];
    in.set_at<T>(Shape{i}, x);
  }
  const View from = in.view(), to = out.view();
  backend_under_test().pointwise({unary_program(op, dtype, dtype).get(), {&from, 1}, {&to, 1}, {}});
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T x = T(literal_of(in, Shape{i}).f), got = T(literal_of(out, Shape{i}).f);
    const Wide want = exact(Wide(x));
    const T rounded = T(want);
    if (std::isnan(rounded) || std::isinf(rounded) || rounded == 0) {
      ASSERT_TRUE(std::isnan(rounded) ? std::isnan(got) : got == rounded) << x << ": " << got;
      ASSERT_EQ(std::signbit(got), std::isnan(rounded) ? std::signbit(got) : std::signbit(rounded))
          << x;
      continue;
    }
    int exponent;
    std::frexp(rounded, &exponent);
    exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
    const Wide place = std::ldexp(Wide(1), exponent - std::numeric_limits<T>::digits);
    const double off = double(std::abs(Wide(got) - want) / place);
    worst = std::max(worst, off);
    ASSERT_LE(off, 1.03) << x << ": " << got << " for " << rounded;
  }
  EXPECT_GT(worst, 0.49);  // something was compared
}

TEST(Pointwise, logarithms_and_circular_functions_are_within_a_last_place) {
  ARETE_CPU_ONLY();
  std::mt19937_64 rng(23);
#define ARETE_CHECK_LAST_PLACES(name)                                  \
  check_last_places<float, double>(                                    \
      kFloat32, Op::name, [](double x) { return std::name(x); }, rng); \
  check_last_places<double, long double>(                              \
      kFloat64, Op::name, [](long double x) { return std::name(x); }, rng)
  ARETE_CHECK_LAST_PLACES(log);
  ARETE_CHECK_LAST_PLACES(log2);
  ARETE_CHECK_LAST_PLACES(log10);
  ARETE_CHECK_LAST_PLACES(log1p);
  ARETE_CHECK_LAST_PLACES(sin);
  ARETE_CHECK_LAST_PLACES(cos);
  ARETE_CHECK_LAST_PLACES(tan);
  ARETE_CHECK_LAST_PLACES(asin);
  ARETE_CHECK_LAST_PLACES(acos);
  ARETE_CHECK_LAST_PLACES(atan);
}

TEST(Pointwise, circular_functions_of_an_element_do_not_depend_on_its_neighbours) {
  std::mt19937_64 rng(29);
  std::uniform_real_distribution<double> near(-100, 100);
  constexpr int64_t n = 1003;
  for (DType dtype : {kFloat32, kFloat64})
    for (Op op : {Op::sin, Op::cos, Op::tan}) {
      SCOPED_TRACE(std::string(expr::name_of(op)) + " " + std::string(name_of(dtype)));
      GuardedBuffer in(dtype, Shape{n}), alone(dtype, Shape{n}), beside(dtype, Shape{n});
      const auto put = [&](int64_t i, double x) {
        dtype == kFloat32 ? in.set_at<float>(Shape{i}, float(x)) : in.set_at<double>(Shape{i}, x);
      };
      const auto run = [&](GuardedBuffer& out) {
        const View from = in.view(), to = out.view();
        backend_under_test().pointwise(
            {unary_program(op, dtype, dtype).get(), {&from, 1}, {&to, 1}, {}});
      };
      for (int64_t i = 0; i < n; ++i) put(i, near(rng));
      run(alone);
      for (int64_t i = 0; i < n; i += 3) put(i, i % 2 ? 1e6 : -1e30);
      run(beside);
      for (int64_t i = 0; i < n; ++i)
        if (i % 3 != 0)
          ASSERT_EQ(literal_of(beside, Shape{i}).f, literal_of(alone, Shape{i}).f) << i;
        else
          ASSERT_LE(op == Op::tan ? 0 : std::abs(literal_of(beside, Shape{i}).f), 1) << i;
    }
}

TEST(Pointwise, every_binary_operation) {
  std::mt19937_64 rng(1);
  for (DType dtype : {kFloat32, kFloat64, kInt32, kInt64}) {
    for (int k = int(Op::add); k <= int(Op::ge); ++k) {
      const Op op = Op(k);
      const bool bits = op >= Op::bit_and && op <= Op::shr;
      const bool floating_only = op == Op::atan2 || op == Op::copysign || op == Op::nextafter;
      if (is_floating(dtype) ? bits : floating_only) continue;
      SCOPED_TRACE(std::string(expr::name_of(op)) + " " + std::string(name_of(dtype)));
      const DType result = op >= Op::eq ? kBool : dtype;
      // Vectors on both sides, and a single element on either.
      for (int scalar = 0; scalar < 3; ++scalar) {
        expr::Builder b;
        const Value x = b.input(dtype), y = b.input(dtype), z = b.emit(op, x, y);
        const auto program =
            b.build(std::span<const Value>(&z, 1), std::span<const DType>(&result, 1));
        std::vector<GuardedBuffer> in, out;
        in.emplace_back(dtype, scalar == 1 ? Shape{1} : Shape{531});
        in.emplace_back(dtype, scalar == 2 ? Shape{1} : Shape{531});
        fill_values(in[0], rng);
        fill_values(in[1], rng);
        if (scalar == 0 && is_floating(dtype)) {
          const double special[] = {0.0, -0.0, 1, INFINITY, -INFINITY, NAN, -2.5};
          for (int i = 0; i < 49; ++i) {
            in[0].set(Shape{i}, special[i / 7]);
            in[1].set(Shape{i}, special[i % 7]);
          }
        }
        out.emplace_back(result, Shape{531});
        check(*program, in, out);
      }
    }
  }
}

// Bits at random: numbers of all magnitudes, and quotients of any.
template <class T>
void check_exact(DType dtype, std::initializer_list<Op> ops, std::mt19937_64& rng) {
  constexpr int64_t n = 1031;
  for (const Op op : ops)
    for (int scalar = 0; scalar < 3; ++scalar) {
      SCOPED_TRACE(std::string(expr::name_of(op)) + " " + std::string(name_of(dtype)));
      expr::Builder b;
      const Value x = b.input(dtype), y = b.input(dtype), z = b.emit(op, x, y);
      const auto program =
          b.build(std::span<const Value>(&z, 1), std::span<const DType>(&dtype, 1));
      GuardedBuffer in[] = {{dtype, scalar == 1 ? Shape{1} : Shape{n}},
                            {dtype, scalar == 2 ? Shape{1} : Shape{n}}};
      for (GuardedBuffer& t : in)
        for (int64_t i = 0; i < t.layout().sizes[0]; ++i) {
          T v;
          if constexpr (std::is_integral_v<T>) {
            v = T(rng() >> rng() % 64);
            v = rng() % 2 ? v : T(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(v));
            if (rng() % 16 == 0)
              v = std::array<T, 3>{0, -1, std::numeric_limits<T>::min()}[rng() % 3];
          } else {
            // Half of them are near each other, and some are small multiples of one number.
            const uint64_t bits = rng();
            std::memcpy(&v, &bits, sizeof(T));
            if (rng() % 2) v = T(std::ldexp(double(rng() >> 11), -int(rng() % 80)));
            if (rng() % 4 == 0) v = T(rng() % 64) * T(0.1);
            if (rng() % 16 == 0) v = std::array<T, 4>{0, T(INFINITY), T(NAN), T(1e-310)}[rng() % 4];
            if (rng() % 2) v = -v;
          }
          t.set_at<T>(Shape{i}, v);
        }
      GuardedBuffer out(dtype, Shape{n});
      const View views[] = {in[0].view(), in[1].view()}, to = out.view();
      backend_under_test().pointwise({program.get(), views, {&to, 1}, {}});
      EXPECT_TRUE(out.guards_intact());
      for (int64_t i = 0; i < n; ++i) {
        const expr::Literal values[] = {literal_of(in[0], Shape{scalar == 1 ? 0 : i}),
                                        literal_of(in[1], Shape{scalar == 2 ? 0 : i})};
        const expr::Literal want = expr::evaluate(*program, values, {})[0],
                            got = literal_of(out, Shape{i});
        if constexpr (std::is_integral_v<T>) {
          ASSERT_EQ(got.i, want.i) << values[0].i << " " << values[1].i;
        } else {
          ASSERT_TRUE(got.i == want.i || (std::isnan(got.f) && std::isnan(want.f)))
              << values[0].f << " " << values[1].f << ": " << got.f << " for " << want.f;
        }
      }
    }
}

TEST(Pointwise, quotients_remainders_and_neighbours_are_exact) {
  std::mt19937_64 rng(7);
  check_exact<float>(kFloat32, {Op::fmod, Op::remainder, Op::floor_div, Op::nextafter}, rng);
  check_exact<double>(kFloat64, {Op::fmod, Op::remainder, Op::floor_div, Op::nextafter}, rng);
  check_exact<int32_t>(kInt32, {Op::fmod, Op::remainder, Op::floor_div, Op::div, Op::gcd}, rng);
  check_exact<int64_t>(kInt64, {Op::fmod, Op::remainder, Op::floor_div, Op::div, Op::gcd}, rng);
}

// Products that are contracted with sums, and those that are not: as the program says.
template <class T>
void check_contraction(DType dtype, const std::function<Value(Value, Value, Value)>& f, int scalars,
                       std::mt19937_64& rng) {
  constexpr int64_t n = 1031;
  const auto program =
      expr::trace([&](std::span<const Value> v) { return std::vector{f(v[0], v[1], v[2])}; },
                  std::vector<DType>(3, dtype), {}, {});
  std::vector<GuardedBuffer> in;
  std::vector<View> views;
  for (int k = 0; k < 3; ++k) {
    GuardedBuffer& t = in.emplace_back(dtype, Shape{scalars >> k & 1 ? 1 : n});
    for (int64_t i = 0; i < t.layout().sizes[0]; ++i) {
      const uint64_t bits = rng();
      T v;
      std::memcpy(&v, &bits, sizeof(T));
      // Most are near each other, so that roundings show, and some products are halfway.
      if (rng() % 4) v = T(std::ldexp(double(int64_t(rng() >> 11)), -int(rng() % 8) - 48));
      if (rng() % 4 == 0) v = T(1) + T(int64_t(rng() % 9) - 4) * std::numeric_limits<T>::epsilon();
      if (rng() % 16 == 0)
        v = std::array<T, 5>{0, T(INFINITY), T(NAN), std::numeric_limits<T>::denorm_min(),
                             std::numeric_limits<T>::min()}[rng() % 5];
      t.set_at<T>(Shape{i}, rng() % 2 ? v : -v);
    }
  }
  for (GuardedBuffer& t : in) views.push_back(t.view());
  GuardedBuffer out(dtype, Shape{n});
  const View to = out.view();
  backend_under_test().pointwise({program.get(), views, {&to, 1}, {}});
  EXPECT_TRUE(out.guards_intact());
  for (int64_t i = 0; i < n; ++i) {
    std::vector<expr::Literal> values;
    for (int k = 0; k < 3; ++k)
      values.push_back(literal_of(in[size_t(k)], Shape{scalars >> k & 1 ? 0 : i}));
    const expr::Literal want = expr::evaluate(*program, values, {})[0],
                        got = literal_of(out, Shape{i});
    ASSERT_TRUE(got.i == want.i || (std::isnan(got.f) && std::isnan(want.f)))
        << values[0].f << " " << values[1].f << " " << values[2].f << ": " << got.f << " for "
        << want.f << "\n"
        << program->text();
  }
  if (scalars == 7) return;
  // In the place of an operand.
  const View place = views[scalars & 1 ? scalars & 2 ? 2 : 1 : 0];
  backend_under_test().pointwise({program.get(), views, {&place, 1}, {}});
  for (int64_t i = 0; i < n; ++i) {
    T a, b;
    std::memcpy(&a, place.data + i * int64_t(sizeof(T)), sizeof(T));
    std::memcpy(&b, to.data + i * int64_t(sizeof(T)), sizeof(T));
    ASSERT_TRUE(std::memcmp(&a, &b, sizeof(T)) == 0 || (std::isnan(a) && std::isnan(b)))
        << a << " in place, " << b << "\n"
        << program->text();
  }
}

TEST(Pointwise, contraction_is_what_the_program_says) {
  std::mt19937_64 rng(11);
  const std::function<Value(Value, Value, Value)> forms[] = {
      [](Value a, Value b, Value c) { return a * b + c; },
      [](Value a, Value b, Value c) { return a * b - c; },
      [](Value a, Value b, Value c) { return c - a * b; },
      [](Value a, Value b, Value c) { return a * b + b * c; },
      [](Value a, Value b, Value c) { return a * a - b * c; },
      [](Value a, Value b, Value c) { return (a * b + c) * (a * b); },
      [](Value a, Value b, Value c) { return a + b * (c - a); },
      // Rounded in between.
      [](Value a, Value b, Value c) { return where(c == 0.0, c, a * b) + c; },
      [](Value a, Value b, Value c) { return c.builder()->cast(a * b, Type::f64) - c; }};
  for (int scalars = 0; scalars < 8; ++scalars)
    for (const auto& f : forms) {
      check_contraction<float>(
          kFloat32,
          [&](Value a, Value b, Value c) { return a.builder()->cast(f(a, b, c), Type::f32); },
          scalars, rng);
      check_contraction<double>(kFloat64, f, scalars, rng);
    }
}

/// Bits at random.
// What one step gives and the next one takes.
TEST(Pointwise, arithmetic_of_two_steps_is_rounded_twice) {
  std::mt19937_64 rng(12);
  using Two = std::function<Value(Value, Value)>;
  const Two first[] = {[](Value a, Value b) { return a + b; },
                       [](Value a, Value b) { return a - b; },
                       [](Value a, Value b) { return a * b; }, [](Value a, Value) { return a * a; },
                       [](Value a, Value b) { return a / b; }};
  const Two second[] = {
      [](Value r, Value c) { return r + c; }, [](Value r, Value c) { return r - c; },
      [](Value r, Value c) { return c - r; }, [](Value r, Value c) { return r * c; },
      [](Value r, Value c) { return r / c; }, [](Value r, Value c) { return c / r; },
      [](Value r, Value) { return r * r; },   [](Value r, Value) { return r + r; },
      [](Value r, Value) { return r - r; },   [](Value r, Value) { return abs(r); }};
  for (int scalars = 0; scalars < 8; ++scalars)
    for (const Two& f : first)
      for (const Two& g : second)
        for (DType dtype : {kFloat32, kFloat64}) {
          // Programs one after the other keep the roundings of each.
          const auto part = [&](const Two& two) {
            return expr::trace(
                [&](std::span<const Value> v) { return std::vector{two(v[0], v[1])}; },
                std::vector<DType>(2, dtype), {}, {{dtype}});
          };
          const auto form = [one = part(f), two = part(g)](Value a, Value b, Value c) {
            const Value in[] = {a, b};
            const Value middle[] = {a.builder()->inline_program(*one, in, {})[0], c};
            return a.builder()->inline_program(*two, middle, {})[0];
          };
          if (dtype == kFloat32)
            check_contraction<float>(dtype, form, scalars, rng);
          else
            check_contraction<double>(dtype, form, scalars, rng);
        }
}

// What the block code of programs is: one step where there were two, nothing for what is given, and
// first what depends on fixed inputs only.
TEST(Pointwise, steps_of_block_code) {
  const auto steps = [](const expr::ProgramPtr& program, const cpu::CodeKey& key = {}) {
    return cpu::code_for(*program, key).body.size();
  };
  const auto traced = [](auto&& f) {
    return expr::trace([&](std::span<const Value> v) { return std::vector{f(v[0], v[1], v[2])}; },
                       std::vector<DType>(3, kFloat32), {}, {});
  };
  EXPECT_EQ(steps(traced([](Value a, Value b, Value c) { return (a - b) * c; })), 1u);
  EXPECT_EQ(steps(traced([](Value a, Value b, Value) { return abs(a - b); })), 1u);
  EXPECT_EQ(steps(traced([](Value a, Value b, Value c) { return (a - b) * c + (a - b); })), 2u);
  const auto quotient = traced([](Value a, Value b, Value c) { return exp(a - b) / c; });
  EXPECT_EQ(steps(quotient), 3u);
  cpu::CodeKey key;
  for (size_t i = 0; i < quotient->code().size(); ++i)
    if (quotient->code()[i].op == Op::exp) key.given = int16_t(i);
  EXPECT_EQ(steps(quotient, key), 1u);
  cpu::CodeKey weighted;
  weighted.fixed = 4;
  const auto weight = traced([](Value a, Value b, Value c) { return (a - b) * exp(c); });
  EXPECT_EQ(cpu::code_for(*weight, weighted).n_fixed, 1u);
  EXPECT_EQ(steps(weight, weighted), 2u);
}

// Two results, of which one takes the place of what the other is computed from.
TEST(Pointwise, steps_before_an_output_in_place) {
  const auto program = expr::trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] + v[1], (v[0] - v[1]) / v[1], (v[0] + 1.0) / (v[0] - v[1])};
      },
      std::vector<DType>(2, kFloat32), {}, {});
  constexpr int64_t n = 300;
  for (int in_place = 0; in_place < 3; ++in_place) {
    GuardedBuffer a(kFloat32, Shape{n}), b(kFloat32, Shape{n});
    std::deque<GuardedBuffer> others;
    a.fill([](IntList i) { return double(i[0]) + 0.5; });
    b.fill([](IntList i) { return double(3 * i[0]) + 1; });
    View outputs[3];
    for (int k = 0; k < 3; ++k)
      outputs[k] = k == in_place ? a.view() : others.emplace_back(kFloat32, Shape{n}).view();
    const View inputs[] = {a.view(), b.view()};
    backend_under_test().pointwise({program.get(), inputs, outputs, {}});
    for (int64_t i = 0; i < n; ++i) {
      const float x = float(i) + 0.5f, y = float(3 * i + 1);
      const float want[] = {x + y, (x - y) / y, (x + 1) / (x - y)};
      for (int k = 0; k < 3; ++k) {
        float got;
        std::memcpy(&got, outputs[k].data + i * 4, 4);
        ASSERT_EQ(got, want[k]) << "output " << k << " at " << i << ", " << in_place;
      }
    }
  }
}

void fill_integers(GuardedBuffer& t, std::mt19937_64& rng) {
  for (IndexWalk w(t.layout().sizes); w; ++w) {
    const uint64_t bits = rng();
    if (t.dtype() == kUInt8) t.set_at<uint8_t>(*w, uint8_t(bits));
    if (t.dtype() == kInt8) t.set_at<int8_t>(*w, int8_t(bits));
    if (t.dtype() == kInt16) t.set_at<int16_t>(*w, int16_t(bits));
    if (t.dtype() == kFloat32) t.set_at<float>(*w, float(int32_t(bits)) / 1024);
    if (t.dtype() == kBool) t.set_at<bool>(*w, bits % 2 != 0);
  }
}

// Programs of 8 and 16 bits give what i32 gives, whatever type they are run on: of operands and
// parameters of any size, every operation alone and some together.
TEST(Pointwise, narrow_integers) {
  std::mt19937_64 rng(31);
  for (DType dtype : {kUInt8, kInt8, kInt16})
    for (int round = 0; round < 400; ++round) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(round));
      const int n_steps = round < 100 ? 1 : 1 + int(rng() % 5);
      expr::Builder b;
      std::vector<Value> values{b.input(dtype), b.input(dtype), b.param(Type::i32),
                                b.constant(Type::i32, int64_t(rng() % 16) - 4),
                                b.cast(b.input(kBool), Type::i32)};
      if (round % 8 == 7) values.push_back(b.cast(b.input(kFloat32), Type::i32));
      for (int k = 0; k < n_steps; ++k) {
        const auto any = [&] { return values[rng() % values.size()]; };
        Op op = Op(int(Op::neg) + round % (int(Op::select) - int(Op::neg)));
        while (k > 0 || (op > Op::bit_not && op < Op::add) || op == Op::atan2 || op == Op::pow ||
               op == Op::copysign || op == Op::nextafter) {
          op = Op(int(Op::neg) + int(rng() % uint64_t(int(Op::select) - int(Op::neg))));
          if (k > 0 && (op <= Op::bit_not || (op >= Op::add && op <= Op::mul) || op >= Op::min))
            break;
        }
        Value y = op <= Op::bit_not ? b.emit(op, any()) : b.emit(op, any(), any());
        if (y.type() == Type::boolean) y = b.emit(Op::select, y, any(), any());
        if (rng() % 8 == 0) y = b.round_to(y, dtype);
        values.push_back(y);
      }
      const Value last = values.back(),
                  results[] = {last, last < double(rng() % 200), expr::to_float(last)};
      const DType dtypes[] = {dtype, kBool, kFloat32};
      const size_t n_outputs = 1 + size_t(rng() % 3);
      const auto program = b.build({results, n_outputs}, {dtypes, n_outputs});
      const int64_t sizes[] = {1, 7, 531, 5003};
      const int64_t n = sizes[rng() % 4];
      std::vector<GuardedBuffer> in, out;
      for (DType d : program->inputs())
        fill_integers(in.emplace_back(d, rng() % 4 ? Shape{n} : Shape{1}), rng);
      for (size_t k = 0; k < n_outputs; ++k) out.emplace_back(dtypes[k], Shape{n});
      expr::Literal param;
      param.i = std::array<int64_t, 6>{3, -3, 255, -129, 70000, INT32_MIN}[rng() % 6];
      check(*program, in, out, {param});
      if (testing::Test::HasFatalFailure()) return;
    }
}

// Parts that lie side by side have kernels of their own: the same bits, in place too, for numbers
// and parameters as factors, and where some parts lie elsewhere.
TEST(Pointwise, products_of_complex_numbers) {
  std::mt19937_64 rng(37);
  const auto product = [](Value a, Value b, Value c, Value d) {
    return std::vector<Value>{a * c - b * d, a * d + b * c};
  };
  const double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-30, 3e30};
  for (DType dtype : {kFloat32, kFloat64})
    for (int form = 0; form < 4; ++form)  // of two, by a parameter, squares, conjugates
      for (int64_t n : {1, 2, 3, 8, 37, 531, 40000})
        for (int round = 0; round < 12; ++round) {
          SCOPED_TRACE(std::string(name_of(dtype)) + " form " + std::to_string(form) + " of " +
                       std::to_string(n) + ", round " + std::to_string(round));
          const Type type = expr::compute_type(dtype);
          const auto program = expr::trace(
              [&](std::span<const Value> v) {
                return form == 3   ? std::vector<Value>{v[0], -v[1]}
                       : form == 2 ? product(v[0], v[1], v[0], v[1])
                                   : product(v[0], v[1], v[2], v[3]);
              },
              std::vector<DType>(form == 0 ? 4 : 2, dtype),
              std::vector<Type>(form == 1 ? 2 : 0, type), std::vector<DType>{dtype, dtype});
          std::vector<GuardedBuffer> in;
          std::vector<View> views;
          std::vector<expr::Literal> params(program->params().size());
          for (expr::Literal& p : params) p.f = float(int64_t(rng() % 64) - 32) / 8;
          std::deque<Layout> layouts;
          const auto parts_of = [&](const GuardedBuffer& t, int64_t numbers, int64_t step) {
            const Layout& l = layouts.emplace_back(Shape{numbers}, Shape{step});
            std::byte* const data = t.view().data;
            return std::array<View, 2>{View(data, dtype, l.sizes, l.strides),
                                       View(data + size_of(dtype), dtype, l.sizes, l.strides)};
          };
          for (size_t k = 0; k < program->inputs().size(); k += 2) {
            const bool number = k == size_t(round % 6) && n > 1 && form == 0;
            const int64_t step = round == 8 ? 3 : 2;
            GuardedBuffer& t = in.emplace_back(dtype, Shape{n * step});
            t.fill([&](IntList) {
              return rng() % 16 ? double(float(int64_t(rng() >> 32) - (int64_t(1) << 31))) / 1e6
                                : special[rng() % 7];
            });
            for (const View& v : parts_of(t, number ? 1 : n, step)) views.push_back(v);
          }
          GuardedBuffer own(dtype, Shape{n * 3});
          std::vector<expr::Literal> want;
          for (int64_t i = 0; i < n; ++i) {
            std::vector<expr::Literal> values(views.size());
            for (size_t k = 0; k < views.size(); ++k)
              values[k] = literal_of(
                  in[k / 2],
                  Shape{(views[k].sizes[0] == 1 ? 0 : i) * views[k].strides[0] + int64_t(k % 2)});
            for (const expr::Literal& y : expr::evaluate(*program, values, params))
              want.push_back(y);
          }
          const bool in_place = round == 10 && views[0].sizes[0] == n && views[0].strides[0] == 2;
          const int64_t step = round == 9 ? 3 : 2;
          const GuardedBuffer& to = in_place ? in[0] : own;
          const auto out = parts_of(to, n, step);
          backend_under_test().pointwise({program.get(), views, out, params});
          EXPECT_TRUE(to.guards_intact());
          for (int64_t i = 0; i < n; ++i)
            for (int k : {0, 1}) {
              const expr::Literal got = literal_of(to, Shape{i * step + k}),
                                  y = want[size_t(2 * i + k)];
              ASSERT_TRUE(got.i == y.i || (std::isnan(got.f) && std::isnan(y.f)))
                  << i << ": " << got.f << " for " << y.f;
            }
        }
}

TEST(Pointwise, booleans) {
  std::mt19937_64 rng(2);
  const auto program = expr::trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[0] & v[1],
                                  v[0] | v[1],
                                  v[0] ^ v[1],
                                  !v[0],
                                  expr::where(v[0], v[2], 2.0),
                                  expr::where(v[1], 1.0, v[2])};
      },
      std::vector<DType>{kBool, kBool, kFloat32}, {}, {});
  std::vector<GuardedBuffer> in, out;
  for (DType d : {kBool, kBool, kFloat32}) fill_values(in.emplace_back(d, Shape{77}), rng);
  for (const auto& o : program->outputs()) out.emplace_back(o.dtype, Shape{77});
  check(*program, in, out);
}

TEST(Pointwise, every_pair_of_dtypes_converts) {
  std::mt19937_64 rng(3);
  for (DType from : real_dtypes())
    for (DType to : real_dtypes()) {
      SCOPED_TRACE(std::string(name_of(from)) + " to " + std::string(name_of(to)));
      expr::Builder b;
      const Value y = b.cast(b.input(from), expr::compute_type(to));
      const auto program = b.build(std::span<const Value>(&y, 1), std::span<const DType>(&to, 1));
      std::vector<GuardedBuffer> in, out;
      fill_values(in.emplace_back(from, Shape{1037}), rng);
      out.emplace_back(to, Shape{1037});
      check(*program, in, out);
    }
}

TEST(Pointwise, narrow_floats_round_to_nearest_even) {
  // Every pattern of the format, and points halfway between and just beside.
  for (DType dtype : {kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    const int64_t n = size_of(dtype) == 1 ? 256 : 65536;
    GuardedBuffer narrow(dtype, Shape{n}), wide(kFloat32, Shape{n});
    for (int64_t i = 0; i < n; ++i) {
      if (size_of(dtype) == 1)
        narrow.set_at<uint8_t>(Shape{i}, uint8_t(i));
      else
        narrow.set_at<uint16_t>(Shape{i}, uint16_t(i));
    }
    const auto widen =
        expr::trace([](std::span<const Value> v) { return std::vector<Value>{v[0]}; },
                    std::vector<DType>{dtype}, {}, std::vector<DType>{kFloat32});
    View a = narrow.view(), c = wide.view();
    backend_under_test().pointwise({widen.get(), {&a, 1}, {&c, 1}, {}});
    std::vector<float> points;
    for (int64_t i = 0; i < n; ++i) {
      const float v = wide.at<float>(Shape{i});
      const double want = narrow.get(Shape{i});
      ASSERT_TRUE(double(v) == want || (std::isnan(v) && std::isnan(want))) << i;
      points.push_back(v);
      if (i + 1 < n && std::isfinite(v)) {
        const float middle = float((double(v) + narrow.get(Shape{i + 1})) / 2);
        for (float p :
             {middle, std::nextafter(middle, INFINITY), std::nextafter(middle, -INFINITY)})
          points.push_back(p);
      }
    }
    points.insert(points.end(), {1e30f, -1e30f, 1e-40f, INFINITY, -INFINITY});
    const auto shrink =
        expr::trace([](std::span<const Value> v) { return std::vector<Value>{v[0]}; },
                    std::vector<DType>{kFloat32}, {}, std::vector<DType>{dtype});
    GuardedBuffer in(kFloat32, Shape{int64_t(points.size())}),
        out(dtype, Shape{int64_t(points.size())});
    for (size_t i = 0; i < points.size(); ++i) in.set_at<float>(Shape{int64_t(i)}, points[i]);
    View p = in.view(), q = out.view();
    backend_under_test().pointwise({shrink.get(), {&p, 1}, {&q, 1}, {}});
    for (size_t i = 0; i < points.size(); ++i) {
      expr::Literal l;
      l.f = points[i];
      const double want = expr::evaluate(*shrink, std::span<const expr::Literal>(&l, 1), {})[0].f;
      const double got = out.get(Shape{int64_t(i)});
      ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
          << points[i] << ": " << got << " instead of " << want;
    }
  }
}

TEST(Pointwise, arithmetic_of_halves) {
  // Every pattern beside another one and beside numbers, and lengths that leave some of a vector.
  using Binary = Value (*)(Value, Value);
  const Binary ops[] = {
      [](Value a, Value b) { return a + b; },
      [](Value a, Value b) { return a - b; },
      [](Value a, Value b) { return a * b; },
      [](Value a, Value b) { return a / b; },
      [](Value a, Value b) { return expr::min(a, b); },
      [](Value a, Value b) { return expr::max(a, b); },
  };
  for (DType dtype : {kFloat16, kBFloat16})
    for (int64_t n : {65536 + 3, 5}) {
      std::vector<GuardedBuffer> in, out;
      for (int k = 0; k < 2; ++k) in.emplace_back(dtype, Shape{n});
      out.emplace_back(dtype, Shape{n});
      for (int64_t i = 0; i < n; ++i) {
        in[0].set_at<uint16_t>(Shape{i}, uint16_t(i));
        in[1].set_at<uint16_t>(Shape{i}, uint16_t(i * 40503 + 77));
      }
      for (size_t op = 0; op < std::size(ops); ++op)
        for (int form = 0; form < 4; ++form) {
          SCOPED_TRACE(std::string(name_of(dtype)) + ", operation " + std::to_string(op) +
                       ", form " + std::to_string(form));
          const auto program = expr::trace(
              [&](std::span<const Value> v) {
                const Value x = expr::to_float(v[0]), y = expr::to_float(v[1]),
                            number = x.builder()->constant(expr::Type::f32, 0.3);
                return std::vector<Value>{form == 0   ? ops[op](x, y)
                                          : form == 1 ? ops[op](y, y)
                                          : form == 2 ? ops[op](x, number)
                                                      : ops[op](number, x)};
              },
              std::vector<DType>{dtype, dtype}, {}, std::vector<DType>{dtype});
          check(*program, in, out);
          if (testing::Test::HasFatalFailure()) return;
        }
    }
}

/// Several inputs of several dtypes, two outputs, parameters, a select.
expr::ProgramPtr mixed_program(std::span<const DType> in, std::span<const DType> out) {
  return expr::trace(
      [](std::span<const Value> v) {
        const Value a = expr::to_float(v[0]), b = expr::to_float(v[1]), c = expr::to_float(v[2]);
        const Value p = v[3];
        return std::vector<Value>{expr::where(a > b, a * p + c, b - c * 0.5),
                                  expr::tanh(a) * p - expr::max(b, c)};
      },
      in, std::vector<Type>{Type::f32}, out);
}

TEST(Pointwise, random_layouts) {
  std::mt19937_64 rng(4);
  const std::vector<DType> dtypes = real_dtypes();
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    const Shape space = random_shape(rng, 5, 6000);
    std::vector<DType> in_types, out_types;
    for (int k = 0; k < 3; ++k) in_types.push_back(dtypes[rng() % dtypes.size()]);
    for (int k = 0; k < 2; ++k)
      out_types.push_back(rng() % 2 ? kFloat32 : dtypes[rng() % dtypes.size()]);
    for (DType& d : out_types)
      if (is_integral_or_bool(d)) d = kFloat16;
    const auto program = mixed_program(in_types, out_types);
    std::vector<GuardedBuffer> in, out;
    for (DType d : in_types) fill_values(in.emplace_back(d, random_input_layout(rng, space)), rng);
    for (DType d : out_types) out.emplace_back(d, random_layout(rng, space));
    expr::Literal p;
    p.f = 0.75;
    check(*program, in, out, {p}, 8);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Pointwise, transposed_and_short_rows) {
  std::mt19937_64 rng(5);
  const std::vector<DType> types(3, kFloat32), outs(2, kFloat32);
  const auto program = mixed_program(types, outs);
  for (const Shape& sizes : {Shape{70, 90}, Shape{3000, 3}, Shape{4, 1500}, Shape{40, 5, 33}}) {
    std::vector<GuardedBuffer> in, out;
    Layout turned(sizes);
    int64_t step = 1;
    for (size_t d = 0; d < sizes.size(); ++d) {
      turned.strides[d] = step;
      step *= sizes[d];
    }
    Layout row(sizes);
    for (size_t d = 0; d + 1 < sizes.size(); ++d) row.strides[d] = 0;
    in.emplace_back(kFloat32, Layout(sizes));
    in.emplace_back(kFloat32, turned);
    in.emplace_back(kFloat32, row);
    for (auto& t : in) fill_values(t, rng);
    out.emplace_back(kFloat32, Layout(sizes));
    out.emplace_back(kFloat32, turned);
    expr::Literal p;
    p.f = -1.5;
    check(*program, in, out, {p}, 8);
  }
}

TEST(Pointwise, large_and_parallel) {
  std::mt19937_64 rng(6);
  const auto program =
      mixed_program(std::vector<DType>(3, kFloat32), std::vector<DType>(2, kFloat32));
  for (int threads : {1, 3}) {
    set_num_threads(threads);
    std::vector<GuardedBuffer> in, out;
    for (int k = 0; k < 3; ++k) fill_values(in.emplace_back(kFloat32, Shape{100003}), rng);
    for (int k = 0; k < 2; ++k) out.emplace_back(kFloat32, Shape{100003});
    expr::Literal p;
    p.f = 2;
    check(*program, in, out, {p}, 8);
  }
}

TEST(Pointwise, in_place) {
  // An optimizer's step: outputs take the places of inputs that later instructions still read.
  std::mt19937_64 rng(7);
  for (DType dtype : {kFloat32, kFloat64, kFloat16})
    for (int64_t n : {1, 17, 5000}) {
      const auto program = expr::trace(
          [](std::span<const Value> v) {
            const Value m = v[1] * 0.9 + v[2] * 0.1;
            const Value p = v[0] - m * v[3] - v[0] * 0.01;
            return std::vector<Value>{p, m, v[0]};
          },
          std::vector<DType>(3, dtype), std::vector<Type>{expr::compute_type(dtype)},
          std::vector<DType>(3, dtype));
      GuardedBuffer p(dtype, Shape{n}), m(dtype, Shape{n}), g(dtype, Shape{n}),
          old(dtype, Shape{n});
      for (auto* t : {&p, &m, &g}) fill_values(*t, rng);
      expr::Literal lr;
      lr.f = 0.25;
      std::vector<std::vector<expr::Literal>> want;
      for (int64_t i = 0; i < n; ++i) {
        const expr::Literal in[] = {literal_of(p, Shape{i}), literal_of(m, Shape{i}),
                                    literal_of(g, Shape{i})};
        want.push_back(expr::evaluate(*program, in, std::span<const expr::Literal>(&lr, 1)));
      }
      const View inputs[] = {p.view(), m.view(), g.view()};
      const View outputs[] = {p.view(), m.view(), old.view()};
      backend_under_test().pointwise(
          {program.get(), inputs, outputs, std::span<const expr::Literal>(&lr, 1)});
      for (int64_t i = 0; i < n; ++i) {
        ASSERT_EQ(mismatch(p.get(Shape{i}), want[size_t(i)][0].f, dtype, 1, 4), "") << i;
        ASSERT_EQ(mismatch(m.get(Shape{i}), want[size_t(i)][1].f, dtype, 1, 4), "") << i;
        ASSERT_EQ(mismatch(old.get(Shape{i}), want[size_t(i)][2].f, dtype), "") << i;
      }
    }
}

TEST(Pointwise, swapping_two_tensors_in_place) {
  const auto program = expr::trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{v[1], v[0]};
      },
      std::vector<DType>(2, kFloat32), {}, {});
  GuardedBuffer a(kFloat32, Shape{40}), b(kFloat32, Shape{40});
  a.fill([](IntList i) { return double(i[0]); });
  b.fill([](IntList i) { return double(-i[0]); });
  const View both[] = {a.view(), b.view()};
  backend_under_test().pointwise({program.get(), both, both, {}});
  for (int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(a.get(Shape{i}), double(-i));
    EXPECT_EQ(b.get(Shape{i}), double(i));
  }
}

// Numbers among which comparisons of every kind hold, with what is special in floating types.
void fill_comparable(GuardedBuffer& t, std::mt19937_64& rng) {
  const bool floating = is_floating(t.dtype());
  t.fill([&](IntList) {
    constexpr double kValues[] = {-2, -1, 0, 1, 2, 3, -0.0, NAN, INFINITY, -INFINITY};
    const double v = kValues[rng() % (floating ? 10 : 6)];
    return t.dtype() == kUInt8 ? v + 2 : v;
  });
}

TEST(Pointwise, selections_by_comparisons) {
  std::mt19937_64 rng(9);
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kInt32, kInt64, kUInt8})
    for (Op op : {Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge, Op::is_nan}) {
      if (op == Op::is_nan && !is_floating(dtype)) continue;
      SCOPED_TRACE(std::string(expr::name_of(op)) + " " + std::string(name_of(dtype)));
      expr::Builder b;
      std::vector<Value> v;
      for (int k = 0; k < 4; ++k) v.push_back(b.input(dtype));
      const Value test = op == Op::is_nan ? b.emit(op, v[0]) : b.emit(op, v[0], v[1]);
      const Value y = where(test, v[2], v[3]);
      const auto program =
          b.build(std::span<const Value>(&y, 1), std::span<const DType>(&dtype, 1));
      for (int64_t n : {1, 37, 2100})
        for (int scalars = 0; scalars < 16; ++scalars) {  // bit k: one value for all elements
          std::vector<GuardedBuffer> in, out;
          for (int k = 0; k < 4; ++k)
            fill_comparable(in.emplace_back(dtype, Shape{scalars >> k & 1 ? 1 : n}), rng);
          out.emplace_back(dtype, Shape{n});
          check(*program, in, out);
        }
    }
}

/// Random selections among functions that cost enough to be done for an arm's elements only.
/// Conditions are of inputs, so that roundings turn none.
class RandomSelections {
 public:
  RandomSelections(std::mt19937_64& rng, DType dtype) : rng_(rng) {
    for (int k = 0; k < 2; ++k) shared_.push_back(builder_.input(dtype));
    const Value x = shared_[0], y = shared_[1];
    conditions_ = {x<y, x> 0.0, y <= 0.25, is_nan(x), (x < 0.0) & (y < 0.0), x > 1e30};
    for (int k = 0; k < 3; ++k) shared_.push_back(value(1));
    std::vector<Value> outputs{value(4), where(conditions_[pick(6)], value(3), value(2))};
    if (pick(2)) std::swap(outputs[0], outputs[1]);
    if (pick(4) == 0) outputs.push_back(shared_[pick(shared_.size())]);
    program = builder_.build(outputs, std::vector<DType>(outputs.size(), dtype));
  }
  expr::ProgramPtr program;

 private:
  size_t pick(size_t n) { return size_t(rng_() % n); }
  Value value(int depth) {
    if (depth == 0)
      return pick(6) ? shared_[pick(shared_.size())] : constant_like(shared_[0], 0.75);
    switch (pick(7)) {
      case 0:
        return tanh(value(depth - 1));
      case 1:
        return sin(tanh(value(depth - 1)));
      case 2:
        return sigmoid(value(depth - 1)) - 0.25;
      case 3:
        return value(depth - 1) * 0.5 + value(depth - 1) * 0.25;
      default:
        return where(conditions_[pick(6)], value(depth - 1), value(depth - 1));
    }
  }
  std::mt19937_64& rng_;
  expr::Builder builder_;
  std::vector<Value> shared_, conditions_;
};

TEST(Pointwise, arms_of_selections) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 150; ++round) {
    const DType dtype = round % 3 == 0 ? kFloat64 : round % 3 == 1 ? kFloat32 : kBFloat16;
    const RandomSelections selections(rng, dtype);
    const int64_t n = round % 4 == 3 ? 2500 : 1 + int64_t(rng() % 130);
    const uint64_t one_in = uint64_t(1) << rng() % 8;  // how rare negative numbers are
    std::vector<GuardedBuffer> in, out;
    for (int k = 0; k < 2; ++k)
      in.emplace_back(dtype, Shape{k == 1 && round % 5 == 4 ? 1 : n}).fill([&](IntList) {
        const double v = double(rng() % 1000) / 400;
        return rng() % 50 == 0 ? double(NAN) : rng() % one_in == 0 ? -v : v;
      });
    for (size_t k = 0; k < selections.program->outputs().size(); ++k)
      out.emplace_back(dtype, Shape{n});
    check(*selections.program, in, out, {}, 4);
    // The same with the first output in the place of the first input.
    std::vector<GuardedBuffer> again;
    for (size_t k = 1; k < out.size(); ++k) again.emplace_back(dtype, Shape{n});
    std::vector<View> inputs, outputs{in[0].view()};
    for (GuardedBuffer& t : in) inputs.push_back(t.view());
    for (GuardedBuffer& t : again) outputs.push_back(t.view());
    backend_under_test().pointwise({selections.program.get(), inputs, outputs, {}});
    for (int64_t i = 0; i < n; ++i)
      for (size_t k = 0; k < out.size(); ++k) {
        const double got = (k ? again[k - 1] : in[0]).get(Shape{i}), want = out[k].get(Shape{i});
        ASSERT_TRUE(got == want || (got != got && want != want)) << selections.program->text();
      }
  }
}

TEST(Pointwise, limits_by_two_numbers) {
  std::mt19937_64 rng(10);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kInt32, kInt64})
    for (bool smaller_first : {false, true}) {
      const Type type = expr::compute_type(dtype);
      const auto program = expr::trace(
          [&](std::span<const Value> v) {
            return std::vector<Value>{smaller_first ? max(min(v[0], v[1]), v[2])
                                                    : min(max(v[0], v[1]), v[2])};
          },
          std::vector<DType>{dtype}, std::vector<Type>{type, type}, std::vector<DType>{dtype});
      for (int64_t n : {1, 15, 2100})
        for (double low : {-1.0, 2.0, double(NAN)}) {
          if (low != low && !is_floating(dtype)) continue;
          std::vector<GuardedBuffer> in, out;
          fill_comparable(in.emplace_back(dtype, Shape{n}), rng);
          out.emplace_back(dtype, Shape{n});
          expr::Literal p, q;
          if (is_floating(dtype))
            p.f = low, q.f = 1;
          else
            p.i = int64_t(low), q.i = 1;
          check(*program, in, out, {p, q});
        }
    }
}

TEST(Pointwise, powers_of_simple_exponents) {
  for (DType dtype : {kFloat32, kFloat64}) {
    const auto program =
        expr::trace([](std::span<const Value> v) { return std::vector<Value>{pow(v[0], v[1])}; },
                    std::vector<DType>{dtype}, std::vector<Type>{expr::compute_type(dtype)},
                    std::vector<DType>{dtype});
    const std::vector<double> points{0.0, -0.0,     1,         -1,  2.5, -2.5, 1e-3,
                                     1e4, INFINITY, -INFINITY, NAN, 7,   -0.3};
    for (double exponent : {2.0, 3.0, 1.0, 0.0, -1.0, -2.0, 0.5, -0.5, 1.5, 4.0}) {
      SCOPED_TRACE(exponent);
      std::vector<GuardedBuffer> in, out;
      in.emplace_back(dtype, Shape{int64_t(points.size())});
      for (size_t i = 0; i < points.size(); ++i) in[0].set(Shape{int64_t(i)}, points[i]);
      out.emplace_back(dtype, Shape{int64_t(points.size())});
      expr::Literal e;
      e.f = exponent;
      check(*program, in, out, {e});
    }
  }
}

TEST(Pointwise, constants_and_unused_inputs) {
  const auto program = expr::trace(
      [](std::span<const Value> v) {
        return std::vector<Value>{expr::constant_like(v[0], 2.5), v[1] * 2.0};
      },
      std::vector<DType>{kFloat32, kFloat32}, {}, std::vector<DType>{kBFloat16, kFloat32});
  std::vector<GuardedBuffer> in, out;
  std::mt19937_64 rng(8);
  for (int k = 0; k < 2; ++k) fill_values(in.emplace_back(kFloat32, Shape{33}), rng);
  out.emplace_back(kBFloat16, Shape{33});
  out.emplace_back(kFloat32, Shape{33});
  check(*program, in, out);
}

TEST(Pointwise, loads_at_computed_positions) {
  std::mt19937_64 rng(7);
  for (int t = 0; t < kNumDTypes; ++t) {
    const DType dtype = DType(t);
    if (is_complex(dtype)) continue;
    SCOPED_TRACE(name_of(dtype));
    expr::Builder b;
    const Value table = b.table(dtype), x = b.input(kInt32), other = b.table(kInt64);
    const Value offset = b.param(Type::i64);
    // A position that is computed, one that was loaded, and one that is the same for all.
    const std::vector<Value> results{
        expr::load(table, x * 3.0 + offset), expr::load(table, expr::load(other, x)),
        expr::load(other, offset) + expr::cast(expr::load(table, x), Type::i64)};
    const auto program = b.build(results, std::vector{dtype, kFloat32, kInt64});

    std::vector<GuardedBuffer> in;
    in.emplace_back(dtype, Shape{37});
    in.emplace_back(kInt32, Shape{1});
    in.emplace_back(kInt64, Shape{3, 4});
    fill_values(in[0], rng);
    for (IndexWalk w(in[2].layout().sizes); w; ++w)
      in[2].set(*w, double((*w)[0] * 11 + (*w)[1] * 3));
    const Layout layouts[] = {Layout(Shape{12}), Layout(Shape{3, 4}),
                              Layout(Shape{4, 3}, Shape{1, 4}), Layout(Shape{1}),
                              Layout(Shape{5, 1000})};
    for (const Layout& layout : layouts) {
      // Positions that broadcast where there are many.
      in[1] = GuardedBuffer(kInt32, layout.sizes.size() == 2 && layout.sizes[1] == 1000
                                        ? Layout(Shape{1, 1000})
                                        : layout);
      for (IndexWalk w(in[1].layout().sizes); w; ++w) in[1].set(*w, double(rng() % 12));
      std::vector<GuardedBuffer> out;
      for (DType o : {dtype, kFloat32, kInt64}) out.emplace_back(o, Layout(layout.sizes));
      check(*program, in, out, {{.i = 2}});
    }
  }
}

// What sampling does for each element around a position: an element of a table, or 0 where a sum of
// parts is negative. Each part may be one for all; several tables share positions.
TEST(Pointwise, loads_where_a_place_is_not_negative) {
  std::mt19937_64 rng(8);
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16})
    for (const size_t tables : {1, 3})
      for (const bool used_twice : {false, true}) {
        SCOPED_TRACE(name_of(dtype));
        expr::Builder b;
        std::vector<Value> table;
        for (size_t k = 0; k < tables; ++k) table.push_back(b.table(dtype));
        const Value begin = b.input(kInt32), x = b.input(kInt32), y = b.input(kInt32),
                    place = x + y;
        std::vector<Value> results;
        std::vector<DType> dtypes;
        for (size_t k = 0; k < tables; ++k) {
          const Value element = expr::load(
              table[k], (k < 2 ? begin : x) + expr::max(place, expr::constant_like(place, 0)));
          results.push_back(expr::where(place >= 0.0, element, expr::constant_like(element, 0)) *
                            2.0);
          dtypes.push_back(expr::storage_type(element.type()));
        }
        if (used_twice) {
          results.push_back(place);
          dtypes.push_back(kInt32);
        }
        const auto program = b.build(results, dtypes);
        // A look-up and a product for each table; the place only where it is a result.
        EXPECT_EQ(cpu::code_for(*program, {}).body.size(), 2 * tables + used_twice);
        for (int scalars = 0; scalars < 8; ++scalars)
          for (const int64_t n : {1, 63, 64, 200, 3000}) {
            std::vector<GuardedBuffer> in, out;
            for (size_t k = 0; k < tables; ++k) fill_values(in.emplace_back(dtype, Shape{50}), rng);
            for (int k = 0; k < 3; ++k)
              in.emplace_back(kInt32, Layout(Shape{1, scalars >> k & 1 ? 1 : n}));
            in[tables].fill([&](IntList) { return double(rng() % 20); });
            in[tables + 1].fill([&](IntList) { return double(1 + rng() % 9); });
            // Sums behind the largest number wrap: they are negative.
            in[tables + 2].fill([&](IntList) {
              const uint64_t kind = rng() % 4;
              return kind > 1    ? double(rng() % 10)
                     : kind == 1 ? double(std::numeric_limits<int32_t>::max())
                                 : -double(1 << 29);
            });
            for (DType o : dtypes) out.emplace_back(o, Shape{1, n});
            check(*program, in, out);
          }
      }
}

TEST(MultiPointwise, many_tensors) {
  std::mt19937_64 rng(9);
  const auto program =
      expr::trace([](std::span<const Value> v) { return std::vector<Value>{v[0] * 2.0 + v[1]}; },
                  std::vector<DType>(2, kFloat32), {}, {});
  std::vector<GuardedBuffer> in, out;
  const int64_t lengths[] = {1, 100, 0, 100000, 7, 1 << 17};
  for (int64_t n : lengths) {
    fill_values(in.emplace_back(kFloat32, Shape{n}), rng);
    fill_values(in.emplace_back(kFloat32, Shape{n}), rng);
    out.emplace_back(kFloat32, Shape{n});
  }
  std::vector<View> inputs, outputs;
  for (auto& t : in) inputs.push_back(t.view());
  for (auto& t : out) outputs.push_back(t.view());
  backend_under_test().multi_pointwise({program.get(), int64_t(out.size()), inputs, outputs, {}});
  for (size_t k = 0; k < out.size(); ++k) {
    EXPECT_TRUE(out[k].guards_intact());
    for (int64_t i = 0; i < lengths[k]; ++i)
      ASSERT_EQ(mismatch(out[k].get(Shape{i}),
                         in[2 * k].get(Shape{i}) * 2 + in[2 * k + 1].get(Shape{i}), kFloat32, 1, 8),
                "");
  }
}

TEST(Fill, every_dtype_and_layout) {
  for (int t = 0; t < kNumDTypes; ++t)
    for (const Shape& sizes : {Shape{}, Shape{0}, Shape{1000}, Shape{3, 5, 7}})
      for (const Layout& layout : dense_and_strided_layouts(sizes)) {
        GuardedBuffer out(DType(t), layout);
        expr::Literal v;
        v.f = 1.5;
        backend_under_test().fill({out.view(), v, false, -2.0});
        EXPECT_TRUE(out.guards_intact());
        const double want = is_integral_or_bool(DType(t)) ? 1 : 1.5;
        for (IndexWalk w(sizes); w; ++w) ASSERT_EQ(out.get(*w), want) << name_of(DType(t));
        v.i = 3;
        backend_under_test().fill({out.view(), v, true});
        for (IndexWalk w(sizes); w; ++w) ASSERT_EQ(out.get(*w), DType(t) == kBool ? 1 : 3);
      }
}

}  // namespace
}  // namespace arete::test
