// Expression programs: building, simplification, text, interning, evaluation.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "arete/base/error.h"
#include "arete/expr/program.h"
#include "arete/expr/value.h"
#include "tests/unit/expr_test_support.h"

namespace arete::expr {
namespace {

using test::integer;
using test::real;
using Values = std::span<const Value>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ProgramPtr make_program(std::initializer_list<DType> inputs, const Definition& f,
                        std::initializer_list<DType> outputs = {},
                        std::initializer_list<Type> params = {}) {
  return trace(f, std::span(inputs.begin(), inputs.size()),
               std::span(params.begin(), params.size()),
               std::span(outputs.begin(), outputs.size()));
}

std::string text1(DType t, const std::function<Value(Value)>& f) {
  return make_program({t}, [&](Values v) { return std::vector{f(v[0])}; })->text();
}
std::string text2(DType t, const std::function<Value(Value, Value)>& f) {
  return make_program({t, t}, [&](Values v) { return std::vector{f(v[0], v[1])}; })->text();
}

double run(const ProgramPtr& p, std::initializer_list<double> inputs,
           std::initializer_list<double> params = {}) {
  return test::run(*p, std::vector(inputs), std::vector(params))[0];
}
int64_t run_int(DType t, Op op, int64_t a, int64_t b) {
  const ProgramPtr p = make_program(
      {t, t}, [op](Values v) { return std::vector{v[0].builder()->emit(op, v[0], v[1])}; }, {t});
  return evaluate(*p, std::vector{integer(a), integer(b)}, {})[0].i;
}
double run_float(DType t, Op op, double a, double b) {
  const ProgramPtr p = make_program(
      {t, t}, [op](Values v) { return std::vector{v[0].builder()->emit(op, v[0], v[1])}; });
  return evaluate(*p, std::vector{real(a), real(b)}, {})[0].f;
}

TEST(Program, TextOfSilu) {
  EXPECT_EQ(text1(kBFloat16, [](Value x) { return x * sigmoid(x); }),
            "%0:f32 = input 0 bfloat16\n"
            "%1:f32 = sigmoid %0\n"
            "%2:f32 = mul %0 %1\n"
            "return %2:float32\n");
}

TEST(Program, TextOfMixedTypesAndParameters) {
  const ProgramPtr p = make_program({kInt8, kFloat16},
                                    [](Values v) {
                                      return std::vector{v[0] + v[2] * v[1], v[0] > 2.5};
                                    },
                                    {kFloat16, kBool}, {Type::f32});
  EXPECT_EQ(p->text(),
            "%0:i32 = input 0 int8\n"
            "%1:f32 = input 1 float16\n"
            "%2:f32 = param 0\n"
            "%3:f32 = cast %0\n"
            "%4:f32 = mul_add %1 %2 %3\n"
            "%5:f32 = constant 2.5\n"
            "%6:bool = gt %3 %5\n"
            "return %4:float16 %6:bool\n");
  EXPECT_EQ(p->flops(), 3);
}

TEST(Program, SharesEqualSubexpressions) {
  const ProgramPtr p = make_program({kFloat32, kFloat32}, [](Values v) {
    return std::vector{exp(v[0] + v[1]) * 2 + exp(v[1] + v[0])};
  });
  EXPECT_EQ(p->flops(), 4);  // add, exp, mul_add
}

TEST(Program, DropsDeadCodeButKeepsInputsAndParameters) {
  const ProgramPtr p = make_program({kFloat32, kFloat64},
                                    [](Values v) {
                                      exp(v[1]);
                                      return std::vector{v[0] * v[0]};
                                    },
                                    {}, {Type::f32, Type::i64});
  EXPECT_EQ(p->text(), "%0:f32 = input 0 float32\n%1:f32 = mul %0 %0\nreturn %1:float32\n");
  EXPECT_EQ(p->inputs().size(), 2u);
  EXPECT_EQ(p->params().size(), 2u);
  EXPECT_EQ(run(p, {3, 0}, {0, 0}), 9);
}

// Numbers of u64 are held in an i64, whose sign means nothing.
TEST(Program, ComputesWithoutSigns) {
  const auto value = [](auto f, uint64_t x, uint64_t y) {
    const ProgramPtr p = make_program(
        {kUInt64, kUInt64}, [&](Values v) { return std::vector{cast(f(v[0], v[1]), Type::u64)}; });
    const Literal in[] = {{.i = int64_t(x)}, {.i = int64_t(y)}};
    return uint64_t(evaluate(*p, in, {})[0].i);
  };
  constexpr uint64_t kTop = ~uint64_t(0), kHalf = uint64_t(1) << 63;
  EXPECT_EQ(value([](Value a, Value b) { return a < b; }, 1, kTop), 1u);
  EXPECT_EQ(value([](Value a, Value b) { return max(a, b); }, kTop, 1), kTop);
  EXPECT_EQ(value([](Value a, Value b) { return floor_div(a, b); }, kTop, kTop), 1u);
  EXPECT_EQ(value([](Value a, Value b) { return floor_div(a, b); }, kTop, 2), kHalf - 1);
  EXPECT_EQ(value([](Value a, Value b) { return remainder(a, b); }, kTop, 10), 5u);
  EXPECT_EQ(value([](Value a, Value b) { return a >> b; }, kTop, 63), 1u);
  EXPECT_EQ(value([](Value a, Value b) { return a >> b; }, kTop, 64), 0u);
  EXPECT_EQ(value([](Value a, Value) { return abs(-a); }, 1, 0), kTop);
  EXPECT_EQ(
      value([](Value a, Value b) { return cast(a, Type::f64) - cast(b, Type::f64); }, kTop, kHalf),
      kHalf);
  EXPECT_EQ(value([](Value a, Value b) { return pow(a, b); }, 3, 40), 12157665459056928801u);
}

TEST(Program, PromotesBetweenTypes) {
  const DType order[] = {kBool, kInt32, kInt64, kUInt64, kFloat32, kFloat64};
  for (int i = 0; i < kNumTypes; ++i)
    for (int j = 0; j < kNumTypes; ++j) {
      Builder b;
      EXPECT_EQ((b.input(order[i]) + b.input(order[j])).type(), Type(std::max(i, j)));
    }
  Builder b;
  EXPECT_EQ((b.input(kUInt8) + 1).type(), Type::i32);
  EXPECT_EQ((b.input(kUInt16) + 1).type(), Type::i32);
  EXPECT_EQ((b.input(kUInt32) + 1).type(), Type::i64);
  EXPECT_EQ((b.input(kUInt64) + 1).type(), Type::u64);
  EXPECT_EQ((b.input(kInt32) + 0.5).type(), Type::f32);
  EXPECT_EQ((b.input(kInt32) + 1e10).type(), Type::i64);
  EXPECT_EQ((b.input(kFloat16) * 2).type(), Type::f32);
  EXPECT_EQ((b.input(kFloat64) * 0.1).type(), Type::f64);
  EXPECT_EQ((b.input(kInt64) / b.input(kInt64)).type(), Type::f32);
  EXPECT_EQ(exp(b.input(kInt64)).type(), Type::f32);
  EXPECT_EQ(floor(b.input(kInt64)).type(), Type::i64);
  EXPECT_EQ((b.input(kBool) + 1).type(), Type::i32);
  EXPECT_EQ((b.input(kBool) < b.input(kInt32)).type(), Type::boolean);
  EXPECT_THROW(compute_type(kComplex64), TypeError);
  EXPECT_THROW(~b.input(kFloat32), TypeError);
  EXPECT_THROW(b.input(kFloat32) << b.input(kInt32), TypeError);
  EXPECT_THROW(-b.input(kBool), TypeError);
}

TEST(Program, MistakesOfDefinitionsAreErrors) {
  Builder a, b;
  const Value x = a.input(kFloat32), y = b.input(kFloat32);
  EXPECT_THROW(x + y, ValueError);
  EXPECT_THROW(Value() + x, ValueError);
  EXPECT_THROW(exp(Value()), ValueError);
  EXPECT_THROW(a.emit(Op::add, x), ValueError);
  EXPECT_THROW(a.emit(Op::cast, x), ValueError);
  EXPECT_THROW(
      make_program({kFloat32}, [](Values v) { return std::vector{v[0]}; }, {kFloat32, kFloat32}),
      ValueError);
  const ProgramPtr p = make_program({kFloat32}, [](Values v) { return std::vector{exp(v[0])}; });
  EXPECT_THROW(evaluate(*p, {}, {}), ValueError);
  EXPECT_THROW(p->derivative(2), IndexError);
}

const char* const kIdentity = "%0:f32 = input 0 float32\nreturn %0:float32\n";

TEST(Simplify, RemovesWhatChangesNothing) {
  for (const auto& f : std::initializer_list<std::function<Value(Value)>>{
           [](Value x) { return x * 1; }, [](Value x) { return 1 * x; },
           [](Value x) { return x / 1; }, [](Value x) { return x - 0; },
           [](Value x) { return x + -0.0; }, [](Value x) { return -(-x); },
           [](Value x) { return pow(x, 1); }, [](Value x) { return max(x, x); },
           [](Value x) { return cast(cast(x, Type::f64), Type::f32); },
           [](Value x) { return where(x > 0, x, x); },
           [](Value x) { return where(constant_like(x, 1) > 0, x, exp(x)); }})
    EXPECT_EQ(text1(kFloat32, f), kIdentity);
}

TEST(Simplify, KeepsWhatWouldChangeSpecialValues) {
  // (expression, number of arithmetic instructions that must stay)
  const std::pair<std::function<Value(Value)>, int> kept[] = {
      {[](Value x) { return x + 0; }, 1},
      {[](Value x) { return x * 0; }, 1},
      {[](Value x) { return x - x; }, 1},
      {[](Value x) { return x / x; }, 1},
      {[](Value x) { return x == x; }, 1},
      {[](Value x) { return 0 - x; }, 1},
      {[](Value x) { return pow(x, 0.5); }, 1},
      {[](Value x) { return x / 3; }, 1},
      {[](Value x) { return !(x < 1); }, 2},
      {[](Value x) { return log(exp(x)); }, 2},
      {[](Value x) { return cast(cast(x, Type::i32), Type::f32) + 1; }, 1},
  };
  int index = 0;
  for (const auto& [f, count] : kept) {
    const ProgramPtr p =
        make_program({kFloat32}, [&f = f](Values v) { return std::vector{f(v[0])}; });
    EXPECT_EQ(p->flops(), count) << index << "\n" << p->text();
    ++index;
  }
}

TEST(Simplify, RewritesToCheaperForms) {
  EXPECT_EQ(text1(kFloat32, [](Value x) { return pow(x, 2); }),
            text1(kFloat32, [](Value x) { return x * x; }));
  EXPECT_EQ(text1(kFloat32, [](Value x) { return pow(x, 3); }),
            text1(kFloat32, [](Value x) { return x * x * x; }));
  EXPECT_EQ(text1(kFloat32, [](Value x) { return pow(x, -1); }),
            text1(kFloat32, [](Value x) { return reciprocal(x); }));
  EXPECT_EQ(text1(kFloat32, [](Value x) { return x / 4; }),
            text1(kFloat32, [](Value x) { return x * 0.25; }));
  EXPECT_EQ(text2(kFloat32, [](Value x, Value y) { return x + -y; }),
            text2(kFloat32, [](Value x, Value y) { return x - y; }));
  EXPECT_EQ(text1(kInt32, [](Value x) { return x - x; }), "%0:i32 = constant 0\nreturn %0:int32\n");
  EXPECT_EQ(text1(kInt64, [](Value x) { return x == x; }),
            "%0:bool = constant true\nreturn %0:bool\n");
  EXPECT_EQ(text1(kFloat32, [](Value x) { return pow(x, 0); }),
            "%0:f32 = constant 1\nreturn %0:float32\n");
}

// Note [Contraction]: what the definition says decides, and nothing else.
TEST(Contraction, OfProductsWithSums) {
  const auto operation = [](const std::function<Value(Values)>& f) {
    const ProgramPtr p =
        make_program({kFloat32, kFloat32, kFloat32}, [&](Values v) { return std::vector{f(v)}; });
    const Instruction& last = p->code()[size_t(p->outputs()[0].value)];
    std::string s = name_of(last.op);
    for (int32_t o : last.operand)
      if (o >= 0)
        s += std::string(" ") + (p->code()[size_t(o)].op == Op::input
                                     ? std::string(1, char('x' + p->code()[size_t(o)].index))
                                     : name_of(p->code()[size_t(o)].op));
    return s;
  };
  EXPECT_EQ(operation([](Values v) { return v[0] * v[1] + v[2]; }), "mul_add x y z");
  EXPECT_EQ(operation([](Values v) { return v[2] + v[1] * v[0]; }), "mul_add x y z");
  EXPECT_EQ(operation([](Values v) { return v[0] * v[1] - v[2]; }), "mul_sub x y z");
  EXPECT_EQ(operation([](Values v) { return v[2] - v[0] * v[1]; }), "sub_mul x y z");
  EXPECT_EQ(operation([](Values v) { return -(v[0] * v[1]) + v[2]; }), "sub_mul x y z");
  EXPECT_EQ(operation([](Values v) { return v[2] - -(v[0] * v[1]); }), "mul_add x y z");
  EXPECT_EQ(operation([](Values v) { return -(v[0] * v[1]) - v[2]; }), "sub neg z");
  EXPECT_EQ(operation([](Values v) { return v[0] * -v[1] + v[2]; }), "sub_mul x y z");
  EXPECT_EQ(operation([](Values v) { return v[0] * v[1] + -v[2]; }), "mul_sub x y z");
  // Of two products the first, and in a sum the older one.
  EXPECT_EQ(operation([](Values v) { return v[0] * v[1] - v[1] * v[2]; }), "mul_sub x y mul");
  EXPECT_EQ(operation([](Values v) {
              const Value a = v[0] * v[1], b = v[1] * v[2];
              return b + a;
            }),
            "mul_add x y mul");
  // Not what is no product of floats of the sum's type.
  EXPECT_EQ(
      operation([](Values v) { return cast(v[0] * v[1], Type::f64) + cast(v[2], Type::f64); }),
      "add cast cast");
  EXPECT_EQ(text2(kInt32, [](Value x, Value y) { return x * y + x; }),
            "%0:i32 = input 0 int32\n%1:i32 = input 1 int32\n%2:i32 = mul %0 %1\n"
            "%3:i32 = add %0 %2\nreturn %3:int32\n");
  // What is subtracted from itself is zero.
  for (const auto& f : {+[](Value m) { return m - m; }, +[](Value m) { return -m + m; }}) {
    const ProgramPtr p =
        make_program({kFloat32, kFloat32}, [&](Values v) { return std::vector{f(v[0] * v[1])}; });
    EXPECT_EQ(run(p, {1.1, 1.3}), 0);
  }
}

TEST(Contraction, RoundsOnce) {
  const double e = std::ldexp(1, -12), x = 1 + e, y = 1 - e;
  const auto of = [&](const std::function<Value(Values)>& f) {
    return run(make_program({kFloat32, kFloat32}, [&](Values v) { return std::vector{f(v)}; }),
               {x, y});
  };
  EXPECT_EQ(of([](Values v) { return v[0] * v[1] - 1; }), -e * e);
  EXPECT_EQ(of([](Values v) { return 1 - v[0] * v[1]; }), e * e);
  EXPECT_EQ(of([](Values v) { return v[0] * v[1] + -1.0; }), -e * e);
}

// However programs are put together, each has the instructions that it had.
TEST(Contraction, StopsAtTheBordersOfPrograms) {
  const ProgramPtr product =
      make_program({kFloat32, kFloat32}, [](Values v) { return std::vector{v[0] * v[1]}; });
  const ProgramPtr sum =
      make_program({kFloat32, kFloat32}, [](Values v) { return std::vector{v[0] + v[1]}; });
  Builder b;
  const Value x = b.input(kFloat32), y = b.input(kFloat32), z = b.input(kFloat32);
  const Value xy = b.inline_program(*product, std::vector{x, y}, {})[0];
  const Value r = b.inline_program(*sum, std::vector{xy, z}, {})[0];
  const ProgramPtr joined = b.build(std::vector{r}, std::vector{kFloat32});
  EXPECT_EQ(joined->text(),
            "%0:f32 = input 0 float32\n%1:f32 = input 1 float32\n%2:f32 = input 2 float32\n"
            "%3:f32 = mul %0 %1\n%4:f32 = add %2 %3\nreturn %4:float32\n");
  Builder again;
  const std::vector<Value> inputs = again.inputs_of(*joined);
  const Value same = again.inline_program(*joined, inputs, {})[0];
  EXPECT_EQ(again.build(std::vector{same}, std::vector{kFloat32}), joined);
  // A sum with a function that was stored is not computed in one with it, however often inlined.
  const ProgramPtr plus = make_program({kFloat32}, [](Values v) { return std::vector{v[0] + 1}; });
  for (int level = 0; level < 2; ++level) {
    Builder c;
    const Value stored = c.stored(tanh(c.input(kFloat32)), kFloat32);
    const Value one = c.inline_program(*plus, std::vector{stored}, {})[0];
    ProgramPtr p = c.build(std::vector{one}, std::vector{kFloat32});
    if (level) {
      Builder d;
      const Value v = d.inline_program(*p, d.inputs_of(*p), {})[0];
      p = d.build(std::vector{v}, std::vector{kFloat32});
    }
    EXPECT_EQ(p->text(),
              "%0:f32 = input 0 float32\n%1:f32 = tanh %0\n%2:f32 = round_to %1 float32\n"
              "%3:f32 = constant 1\n%4:f32 = add %2 %3\nreturn %4:float32\n");
  }
}

// Rewrites of the operations: the same bits, for all numbers.
TEST(Contraction, IsSimplifiedExactly) {
  const double points[] = {0.0, -0.0, 1, -1, 1.1, -0.3, 1e-30, 3e38, kInfinity, -kInfinity, kNan};
  for (Op op : {Op::mul_add, Op::mul_sub, Op::sub_mul})
    for (int form = 0; form < 9; ++form)
      for (double x : points)
        for (double y : points) {
          Builder b;
          const Value u = b.input(kFloat32), v = b.input(kFloat32);
          const auto numbers = [&](int k) -> std::array<Value, 3> {
            const auto number = [&](double n) { return b.constant(Type::f32, n); };
            switch (k) {
              case 0:
                return {-u, v, u};
              case 1:
                return {u, -v, v};
              case 2:
                return {u, v, -u};
              case 3:
                return {u, number(1), v};
              case 4:
                return {number(-1), u, v};
              case 5:
                return {u, v, number(0.0)};
              case 6:
                return {u, v, number(-0.0)};
              case 7:
                return {-u, -v, -v};
              default:
                return {number(1.1), number(1.3), u};
            }
          };
          const std::array<Value, 3> o = numbers(form);
          const Value r = b.emit(op, o[0], o[1], o[2]);
          const ProgramPtr p = b.build(std::vector{r, o[0], o[1], o[2]},
                                       std::vector{kFloat32, kFloat32, kFloat32, kFloat32});
          const auto got = evaluate(*p, std::vector{real(x), real(y)}, {});
          const float a = float(got[1].f), c = float(got[3].f);
          const float want =
              std::fma(op == Op::sub_mul ? -a : a, float(got[2].f), op == Op::mul_sub ? -c : c);
          EXPECT_TRUE(std::isnan(want) ? std::isnan(got[0].f) : got[0].i == real(want).i)
              << name_of(op) << " " << form << " " << x << " " << y << "\n"
              << p->text();
        }
}

// Constants fold through the code that evaluates, so both give the same bits.
TEST(Simplify, FoldsConstantsAsEvaluated) {
  for (Type t : {Type::f32, Type::f64})
    for (int op = int(Op::neg); op <= int(Op::ge); ++op) {
      if (Op(op) == Op::bit_not || (Op(op) >= Op::bit_and && Op(op) <= Op::shr)) continue;
      for (double x : {0.3, -0.7, 2.0, 0.0, kInfinity}) {
        Builder b;
        const bool two = arity_of(Op(op)) == 2;
        const Value folded = two ? b.emit(Op(op), b.constant(t, x), b.constant(t, 0.45))
                                 : b.emit(Op(op), b.constant(t, x));
        const Value in = b.input(storage_type(t)), in2 = b.constant(t, 0.45);
        const Value computed = two ? b.emit(Op(op), in, in2) : b.emit(Op(op), in);
        const DType out = storage_type(folded.type());
        const ProgramPtr p = b.build(std::vector{folded, computed}, std::vector{out, out});
        EXPECT_EQ(p->code()[size_t(p->outputs()[0].value)].op, Op::constant);
        const auto r = evaluate(*p, std::vector{real(x)}, {});
        if (is_floating(out) && std::isnan(r[0].f))
          EXPECT_TRUE(std::isnan(r[1].f));
        else
          EXPECT_EQ(r[0].i, r[1].i) << name_of(Op(op)) << " " << x;
      }
    }
}

TEST(Program, BooleansUseBitOperationsOnly) {
  const Op ops[] = {Op::add, Op::sub, Op::mul, Op::min, Op::max,     Op::eq,     Op::ne,
                    Op::lt,  Op::le,  Op::gt,  Op::ge,  Op::bit_and, Op::bit_or, Op::bit_xor};
  const auto expected = [](Op op, bool a, bool b) -> bool {
    switch (op) {
      case Op::add:
      case Op::max:
      case Op::bit_or:
        return a || b;
      case Op::mul:
      case Op::min:
      case Op::bit_and:
        return a && b;
      case Op::eq:
        return a == b;
      case Op::lt:
        return a < b;
      case Op::le:
        return a <= b;
      case Op::gt:
        return a > b;
      case Op::ge:
        return a >= b;
      default:
        return a != b;
    }
  };
  for (Op op : ops) {
    const ProgramPtr p = make_program({kBool, kBool}, [op](Values v) {
      return std::vector{v[0].builder()->emit(op, v[0], v[1])};
    });
    for (const Instruction& in : p->code())
      EXPECT_TRUE(in.op == Op::input || (in.op >= Op::bit_and && in.op <= Op::bit_xor) ||
                  in.op == Op::bit_not)
          << p->text();
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 2; ++b) EXPECT_EQ(run(p, {double(a), double(b)}), expected(op, a, b));
  }
}

TEST(Program, EqualProgramsAreOneObject) {
  const auto silu = [](Values v) { return std::vector{v[0] * sigmoid(v[0])}; };
  const ProgramPtr a = make_program({kFloat32}, silu), b = make_program({kFloat32}, silu);
  EXPECT_EQ(a, b);
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_NE(a, make_program({kFloat64}, silu));
  EXPECT_NE(a, make_program({kFloat32}, silu, {kFloat16}));
  EXPECT_NE(a, make_program({kFloat32}, silu, {}, {Type::f32}));
  EXPECT_NE(make_program({kFloat32}, [](Values v) { return std::vector{v[0] + 0.0}; }),
            make_program({kFloat32}, [](Values v) { return std::vector{v[0] * 0.0}; }));
}

class Counted : public Compiled {
 public:
  explicit Counted(std::atomic<int>& alive) : alive_(alive) { ++alive_; }
  ~Counted() override { --alive_; }

 private:
  std::atomic<int>& alive_;
};

TEST(Program, InterningAndSlotsAreThreadSafe) {
  std::atomic<int> alive{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const ProgramPtr p = make_program(
            {kFloat32}, [i](Values v) { return std::vector{exp(v[0]) * double(i % 7 + 2)}; });
        Compiled* mine = p->install(0, std::make_unique<Counted>(alive));
        EXPECT_EQ(p->compiled(0), mine);
        EXPECT_EQ(p->derivative(1).program->outputs().size(), 1u);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(alive, 0);  // programs died with their last handle and took their forms along
}

TEST(Builder, InlinesProgramsWithTheirRounding) {
  const ProgramPtr half =
      make_program({kFloat16}, [](Values v) { return std::vector{v[0] / 3}; }, {kFloat16});
  Builder b;
  const Value x = b.input(kFloat16);
  const Value y = b.inline_program(*half, std::vector{x}, {})[0];
  const ProgramPtr p = b.build(std::vector{y * 3}, std::vector{kFloat32});
  EXPECT_EQ(p->text(),
            "%0:f32 = input 0 float16\n"
            "%1:f32 = constant 3\n"
            "%2:f32 = div %0 %1\n"
            "%3:f32 = round_to %2 float16\n"
            "%4:f32 = mul %3 %1\n"
            "return %4:float32\n");
  EXPECT_EQ(run(p, {1}), float(Half(1.0f / 3)) * 3.0f);
}

TEST(Evaluate, OutputsRoundAndWrap) {
  const auto as = [](DType in, DType out, double x) {
    return run(make_program({in}, [](Values v) { return std::vector{v[0]}; }, {out}), {x});
  };
  EXPECT_EQ(as(kFloat32, kFloat16, 2049), 2048);
  EXPECT_EQ(as(kFloat32, kFloat16, 2051), 2052);
  EXPECT_EQ(as(kFloat32, kFloat16, 1e6), kInfinity);
  EXPECT_EQ(as(kFloat32, kBFloat16, 257), 256);
  EXPECT_EQ(as(kFloat32, kFloat8E4M3, 19), 20);
  EXPECT_TRUE(std::isnan(as(kFloat32, kFloat8E4M3, 500)));
  EXPECT_EQ(as(kInt32, kUInt8, 257), 1);
  EXPECT_EQ(as(kInt32, kUInt8, -1), 255);
  EXPECT_EQ(as(kInt32, kInt8, 200), -56);
  EXPECT_EQ(as(kInt64, kInt32, 4294967297.0), 1);
  EXPECT_EQ(as(kFloat32, kInt32, -2.9), -2);
  EXPECT_EQ(as(kFloat32, kInt32, 3e9), 2147483647);
  EXPECT_EQ(as(kFloat64, kInt64, -1e300), double(std::numeric_limits<int64_t>::min()));
  EXPECT_EQ(as(kFloat32, kInt32, kNan), 0);
  EXPECT_EQ(as(kFloat32, kBool, 0.5), 1);
  EXPECT_EQ(as(kFloat32, kBool, -0.0), 0);
  EXPECT_EQ(as(kFloat32, kBool, kNan), 1);
  EXPECT_EQ(as(kFloat64, kFloat32, 0.1), double(0.1f));
  const ProgramPtr wrap = make_program({kInt32}, [](Values v) {
    return std::vector{v[0].builder()->round_to(v[0] * 100, kInt8) + 1};
  });
  EXPECT_EQ(run(wrap, {3}), 45);
}

TEST(Evaluate, SingleComputesInSingle) {
  const ProgramPtr p =
      make_program({kFloat32}, [](Values v) { return std::vector{(v[0] + 1) - 1}; });
  EXPECT_EQ(run(p, {1e-9}), 0);
  EXPECT_EQ(run(make_program({kFloat32}, [](Values v) { return std::vector{exp(v[0])}; }), {1.0}),
            double(float(std::exp(1.0))));
}

TEST(Evaluate, IntegerDivisionFamily) {
  for (DType t : {kInt32, kInt64}) {
    EXPECT_EQ(run_int(t, Op::div, -7, 2), -3);
    EXPECT_EQ(run_int(t, Op::floor_div, -7, 2), -4);
    EXPECT_EQ(run_int(t, Op::floor_div, 7, -2), -4);
    EXPECT_EQ(run_int(t, Op::floor_div, -8, 2), -4);
    EXPECT_EQ(run_int(t, Op::fmod, -7, 3), -1);
    EXPECT_EQ(run_int(t, Op::remainder, -7, 3), 2);
    EXPECT_EQ(run_int(t, Op::remainder, 7, -3), -2);
    EXPECT_EQ(run_int(t, Op::remainder, -6, 3), 0);
    for (Op op : {Op::div, Op::floor_div, Op::fmod, Op::remainder})
      EXPECT_EQ(run_int(t, op, 5, 0), 0) << name_of(op);
  }
  constexpr int64_t kMin32 = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMin64 = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(run_int(kInt32, Op::div, kMin32, -1), kMin32);
  EXPECT_EQ(run_int(kInt64, Op::floor_div, kMin64, -1), kMin64);
  EXPECT_EQ(run_int(kInt64, Op::remainder, kMin64, -1), 0);
}

TEST(Evaluate, IntegerPowersAndShifts) {
  EXPECT_EQ(run_int(kInt32, Op::pow, 3, 4), 81);
  EXPECT_EQ(run_int(kInt64, Op::pow, -3, 3), -27);
  EXPECT_EQ(run_int(kInt32, Op::pow, 0, 0), 1);
  EXPECT_EQ(run_int(kInt32, Op::pow, 2, -1), 0);
  EXPECT_EQ(run_int(kInt32, Op::pow, 1, -5), 1);
  EXPECT_EQ(run_int(kInt32, Op::pow, -1, -5), -1);
  EXPECT_EQ(run_int(kInt32, Op::pow, -1, -4), 1);
  EXPECT_EQ(run_int(kInt32, Op::pow, 2, 31), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(run_int(kInt32, Op::shl, 1, 4), 16);
  EXPECT_EQ(run_int(kInt32, Op::shl, 1, 32), 0);
  EXPECT_EQ(run_int(kInt64, Op::shl, 1, 40), int64_t{1} << 40);
  EXPECT_EQ(run_int(kInt32, Op::shl, 1, -1), 0);
  EXPECT_EQ(run_int(kInt32, Op::shr, -8, 1), -4);
  EXPECT_EQ(run_int(kInt32, Op::shr, -8, 100), -1);
  EXPECT_EQ(run_int(kInt32, Op::shr, 8, 100), 0);
  EXPECT_EQ(run_int(kUInt8, Op::shl, 200, 1), 144);
  EXPECT_EQ(run_int(kInt32, Op::add, std::numeric_limits<int32_t>::max(), 1),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(run_int(kInt64, Op::mul, std::numeric_limits<int64_t>::max(), 2), -2);
}

TEST(Evaluate, FloatingDivisionFamily) {
  EXPECT_EQ(run_float(kFloat64, Op::floor_div, -7, 2), -4);
  EXPECT_EQ(run_float(kFloat64, Op::floor_div, 1, 0.1), 9);  // 0.1 is a little more than a tenth
  EXPECT_EQ(run_float(kFloat64, Op::floor_div, 1, 0), kInfinity);
  EXPECT_TRUE(std::isnan(run_float(kFloat64, Op::floor_div, 0, 0)));
  EXPECT_EQ(run_float(kFloat64, Op::remainder, -7, 3), 2);
  EXPECT_EQ(run_float(kFloat64, Op::fmod, -7, 3), -1);
  EXPECT_EQ(run_float(kFloat64, Op::remainder, 5.5, -2), -0.5);
  EXPECT_TRUE(std::isnan(run_float(kFloat32, Op::remainder, 1, 0)));
}

TEST(Evaluate, SpecialValues) {
  EXPECT_TRUE(std::isnan(run_float(kFloat32, Op::max, kNan, 1)));
  EXPECT_TRUE(std::isnan(run_float(kFloat32, Op::max, 1, kNan)));
  EXPECT_TRUE(std::isnan(run_float(kFloat32, Op::min, 1, kNan)));
  const auto one = [](const std::function<Value(Value)>& f, double x) {
    return run(make_program({kFloat64}, [&](Values v) { return std::vector{f(v[0])}; }), {x});
  };
  EXPECT_EQ(one([](Value x) { return round(x); }, 2.5), 2);
  EXPECT_EQ(one([](Value x) { return round(x); }, 3.5), 4);
  EXPECT_EQ(one([](Value x) { return sign(x); }, -3), -1);
  EXPECT_EQ(one([](Value x) { return sigmoid(x); }, -1000), 0);
  EXPECT_EQ(one([](Value x) { return sigmoid(x); }, 1000), 1);
  EXPECT_EQ(one([](Value x) { return erfinv(x); }, 1), kInfinity);
  EXPECT_TRUE(std::isnan(one([](Value x) { return erfinv(x); }, 1.5)));
  EXPECT_TRUE(std::isnan(one([](Value x) { return digamma(x); }, -2)));
  EXPECT_EQ(one([](Value x) { return digamma(x); }, 0), -kInfinity);
  EXPECT_EQ(one([](Value x) { return is_nan(x); }, kNan), 1);
  EXPECT_EQ(one([](Value x) { return is_inf(x); }, -kInfinity), 1);
}

// Functions without a counterpart in the C library, against identities.
TEST(Evaluate, InverseErrorFunctionAndDigamma) {
  const ProgramPtr inverse =
      make_program({kFloat64}, [](Values v) { return std::vector{erfinv(v[0])}; });
  for (double y = -5.5; y < 5.6; y += 0.0625) {
    const double x = std::erf(y);
    if (std::fabs(x) == 1) continue;
    // The spacing of x near 1 limits what can be recovered: its error over the slope of erf.
    const double spacing = std::nextafter(std::fabs(x), 2) - std::fabs(x);
    const double slope = 2 / std::sqrt(M_PI) * std::exp(-y * y);
    const double tolerance = spacing / slope + test::tolerance(kFloat64, std::fabs(y));
    EXPECT_NEAR(run(inverse, {x}), y, tolerance) << y;
  }
  const double tiny = 1e-300;
  EXPECT_NEAR(run(inverse, {tiny}) / tiny, std::sqrt(M_PI) / 2, test::tolerance(kFloat64, 1));
  const ProgramPtr psi =
      make_program({kFloat64}, [](Values v) { return std::vector{digamma(v[0])}; });
  const double euler = 0.57721566490153286;
  EXPECT_NEAR(run(psi, {1}), -euler, test::tolerance(kFloat64, 1));
  EXPECT_NEAR(run(psi, {0.5}), -euler - 2 * std::log(2.0), test::tolerance(kFloat64, 2));
  EXPECT_NEAR(run(psi, {10}), 2.2517525890667211, test::tolerance(kFloat64, 2));
  for (double x : {-3.7, -0.2, 0.01, 0.9, 4.2, 33.0, 1e6})
    EXPECT_NEAR(run(psi, {x + 1}) - run(psi, {x}), 1 / x,
                test::tolerance(kFloat64, std::fabs(1 / x) + std::fabs(run(psi, {x})) + 10));
}

}  // namespace
}  // namespace arete::expr
