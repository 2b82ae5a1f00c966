// reduce of the CPU against plain loops over the scalar evaluator.
#include <algorithm>
#include <cmath>

#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/program_reference.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Type;
using expr::Value;
using prim::Monoid;
using prim::View;

struct Case {
  Monoid monoid;
  Shape space;
  uint32_t reduced;
  expr::ProgramPtr prologue, epilogue;
};

Shape output_sizes(const Case& c) {
  Shape out = c.space;
  for (size_t d = 0; d < out.size(); ++d)
    if ((c.reduced >> d) & 1) out[d] = 1;
  return out;
}

double combine(Monoid m, double a, double b) {
  switch (m) {
    case Monoid::sum:
      return a + b;
    case Monoid::prod:
      return a * b;
    case Monoid::min:
      return std::isnan(a) || a < b ? a : b;
    case Monoid::max:
      return std::isnan(a) || a > b ? a : b;
    case Monoid::all:
      return a != 0 && b != 0;
    case Monoid::any:
      return a != 0 || b != 0;
  }
  return 0;
}
double identity(Monoid m) {
  switch (m) {
    case Monoid::prod:
    case Monoid::all:
      return 1;
    case Monoid::min:
      return INFINITY;
    case Monoid::max:
      return -INFINITY;
    default:
      return 0;
  }
}

void run(const Case& c, std::vector<GuardedBuffer>& inputs, GuardedBuffer& out) {
  std::vector<View> views;
  for (GuardedBuffer& t : inputs) views.push_back(t.view());
  const View target = out.view();
  prim::ReduceArgs args{};
  args.monoid = c.monoid;
  args.space = c.space;
  args.reduced = c.reduced;
  args.inputs = views;
  args.out = target;
  args.prologue = c.prologue.get();
  args.epilogue = c.epilogue.get();
  backend_under_test().reduce(args);
  EXPECT_TRUE(out.guards_intact());
}

/// Runs and compares; sums are checked relative to the sum of magnitudes.
void check(const Case& c, std::vector<GuardedBuffer>& inputs, GuardedBuffer& out) {
  run(c, inputs, out);
  const Shape kept = output_sizes(c);
  std::vector<double> want(size_t(numel_of(kept)), identity(c.monoid)), size(want.size(), 0);
  auto flat = [&](IntList index) {
    int64_t at = 0;
    for (size_t d = 0; d < kept.size(); ++d) at = at * kept[d] + (kept[d] == 1 ? 0 : index[d]);
    return size_t(at);
  };
  const int64_t length = numel_of(c.space) / std::max<int64_t>(1, numel_of(kept));
  for (IndexWalk w(c.space); w; ++w) {
    std::vector<expr::Literal> values;
    for (GuardedBuffer& t : inputs)
      values.push_back(literal_of(t, broadcast_index(t.layout(), *w)));
    double v;
    if (c.prologue) {
      v = as_double(expr::evaluate(*c.prologue, values, {})[0], c.prologue->outputs()[0].dtype);
    } else {
      v = as_double(values[0], inputs[0].dtype());
    }
    double& acc = want[flat(*w)];
    acc = combine(c.monoid, acc, v);
    size[flat(*w)] += std::fabs(v);
  }
  const DType value_type = c.prologue ? c.prologue->outputs()[0].dtype : inputs[0].dtype();
  for (IndexWalk w(kept); w; ++w) {
    double expected = want[flat(*w)];
    double magnitude = c.monoid == Monoid::sum ? size[flat(*w)] : std::fabs(expected);
    if (c.epilogue) {
      expr::Literal l;
      if (expr::is_float(expr::compute_type(c.epilogue->inputs()[0])))
        l.f = expected;
      else
        l.i = int64_t(expected);
      expected = as_double(
          expr::evaluate(*c.epilogue, std::span<const expr::Literal>(&l, 1), {})[0], out.dtype());
    }
    const double got = out.get(*w);
    if (std::isnan(got) && std::isnan(expected)) continue;
    if (got == expected) continue;
    // A sum may not be worse than pairwise summation: the error grows with log2 of the length.
    const double steps = std::log2(double(std::max<int64_t>(length, 2)));
    const double bound = std::max(
        tolerance(out.dtype(), 1, std::max(magnitude, std::fabs(expected))),
        tolerance(value_type == kFloat64 ? kFloat64 : kFloat32, int64_t(steps * steps), magnitude));
    ASSERT_LE(std::fabs(got - expected), bound)
        << got << " instead of " << expected << " at " << to_string(*w) << " of "
        << to_string(c.space) << " reduced " << c.reduced << " monoid " << int(c.monoid) << " "
        << name_of(value_type) << " to " << name_of(out.dtype());
  }
}

DType default_output(Monoid m, DType in) {
  if (m == Monoid::all || m == Monoid::any) return kBool;
  if (m == Monoid::min || m == Monoid::max) return in;
  return is_integral_or_bool(in) ? kInt64 : in;
}

TEST(Reduce, every_monoid_and_dtype) {
  std::mt19937_64 rng(1);
  for (DType dtype : real_dtypes())
    for (Monoid m : {Monoid::sum, Monoid::prod, Monoid::min, Monoid::max, Monoid::all, Monoid::any})
      for (uint32_t reduced : {1u, 2u, 3u}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(int(m)));
        const int64_t n = m == Monoid::prod ? 3 : 37;
        Case c{m, Shape{n, n + 1}, reduced, nullptr, nullptr};
        std::vector<GuardedBuffer> in;
        in.emplace_back(dtype, c.space);
        fill_values(in[0], rng);
        if (is_float8(dtype)) in[0].fill([&](IntList) { return double(rng() % 2); });
        if (dtype == kUInt32 || dtype == kUInt64) in[0].fill_random(rng, 0, 3);  // sums are int64
        const bool wide = m == Monoid::sum && is_float8(dtype);  // 8 bits do not hold the sum
        GuardedBuffer out(wide ? kFloat32 : default_output(m, dtype), output_sizes(c));
        check(c, in, out);
      }
}

// Of all values that the types have, in rows and columns, exactly.
TEST(Reduce, narrow_integers) {
  std::mt19937_64 rng(17);
  for (DType dtype : {kUInt8, kInt8, kInt16})
    for (Monoid m : {Monoid::sum, Monoid::prod, Monoid::min, Monoid::max})
      for (const Shape& space : {Shape{1, 1}, Shape{3, 5}, Shape{67, 131}, Shape{2, 70001},
                                 Shape{70001, 2}, Shape{300, 300}})
        for (uint32_t reduced : {1u, 2u, 3u}) {
          SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(int(m)) + " " +
                       to_string(space) + " " + std::to_string(reduced));
          GuardedBuffer in(dtype, space);
          const uint64_t kind = rng() % 3;  // at random, or all of the largest magnitude
          const Shape kept{reduced & 1 ? 1 : space[0], reduced & 2 ? 1 : space[1]};
          const bool limits = m == Monoid::min || m == Monoid::max;
          GuardedBuffer out(limits ? dtype : kInt64, kept);
          std::vector<uint64_t> want(size_t(kept[0] * kept[1]), m == Monoid::prod ? 1 : 0);
          std::vector<bool> met(want.size());
          for (IndexWalk w(space); w; ++w) {
            const uint64_t bits = kind == 0   ? rng()
                                  : kind == 1 ? uint64_t(1) << 7
                                              : uint64_t(1) << 15;
            int64_t v = 0;
            if (dtype == kUInt8) in.set_at<uint8_t>(*w, uint8_t(v = uint8_t(bits)));
            if (dtype == kInt8) in.set_at<int8_t>(*w, int8_t(v = int8_t(bits)));
            if (dtype == kInt16) in.set_at<int16_t>(*w, int16_t(v = int16_t(bits)));
            const size_t at =
                size_t((reduced & 1 ? 0 : (*w)[0]) * kept[1] + (reduced & 2 ? 0 : (*w)[1]));
            uint64_t& acc = want[at];
            if (m == Monoid::sum) acc += uint64_t(v);
            if (m == Monoid::prod) acc *= uint64_t(v);
            if (m == Monoid::min) acc = met[at] ? uint64_t(std::min(int64_t(acc), v)) : uint64_t(v);
            if (m == Monoid::max) acc = met[at] ? uint64_t(std::max(int64_t(acc), v)) : uint64_t(v);
            met[at] = true;
          }
          const View from = in.view();
          prim::ReduceArgs args{};
          args.monoid = m;
          args.space = space;
          args.reduced = reduced;
          args.inputs = {&from, 1};
          args.out = out.view();
          backend_under_test().reduce(args);
          EXPECT_TRUE(out.guards_intact());
          for (IndexWalk w(kept); w; ++w) {
            const uint64_t expected = want[size_t((*w)[0] * kept[1] + (*w)[1])];
            if (limits)
              ASSERT_EQ(int64_t(out.get(*w)), int64_t(expected)) << to_string(*w);
            else
              ASSERT_EQ(uint64_t(out.at<int64_t>(*w)), expected) << to_string(*w);
          }
        }
}

TEST(Reduce, random_spaces) {
  std::mt19937_64 rng(2);
  const DType dtypes[] = {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64, kUInt8, kBool};
  for (int round = 0; round < 600; ++round) {
    SCOPED_TRACE(round);
    const DType dtype = dtypes[rng() % 8];
    const Monoid m = Monoid(rng() % 6 == 1 ? 0 : rng() % 6);
    Case c{m, random_shape(rng, 5, 20000), 0, nullptr, nullptr};
    c.reduced = uint32_t(rng() % (1u << c.space.size()));
    if (m == Monoid::min || m == Monoid::max) {
      bool empty = false;
      for (int64_t s : c.space) empty |= s == 0;
      if (empty) continue;
    }
    if (m == Monoid::prod) c.monoid = Monoid::sum;
    std::vector<GuardedBuffer> in;
    in.emplace_back(dtype, random_input_layout(rng, c.space));
    fill_values(in[0], rng);
    const bool wide = c.monoid == Monoid::sum && is_reduced_float(dtype);
    GuardedBuffer out(wide ? kFloat32 : default_output(c.monoid, dtype),
                      random_layout(rng, output_sizes(c)));
    check(c, in, out);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Numbers of columns of which many threads of a block of 32 side by side would have none, and odd
// ones, whose rows begin anywhere in a vector.
TEST(Reduce, columns_that_are_no_whole_block) {
  std::mt19937_64 rng(4);
  for (DType dtype : {kFloat32, kBFloat16, kFloat64})
    for (int64_t columns : {5, 17, 31, 40, 72, 131, 136, 195, 264, 280, 285, 544})
      for (int64_t rows : {9, 300}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(columns));
        if (test::too_large_for_reference(3 * rows * columns)) continue;
        Case c{Monoid::sum, Shape{3, rows, columns}, 2, nullptr, nullptr};
        std::vector<GuardedBuffer> in;
        in.emplace_back(dtype, c.space);
        fill_values(in[0], rng);
        GuardedBuffer out(dtype == kBFloat16 ? kFloat32 : dtype, output_sizes(c));
        check(c, in, out);
      }
}

// Few results of many elements are made of parts.
TEST(Reduce, few_columns_of_many_rows) {
  std::mt19937_64 rng(5);
  for (DType dtype : {kFloat32, kBFloat16, kInt16})
    for (const auto& [rows, columns] :
         {std::pair{30011, 31}, {30011, 16}, {9001, 195}, {70001, 31}}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(columns));
      if (test::too_large_for_reference(rows * columns)) continue;
      Case c{Monoid::sum, Shape{rows, columns}, 1, nullptr, nullptr};
      std::vector<GuardedBuffer> in;
      in.emplace_back(dtype, c.space);
      fill_values(in[0], rng);
      GuardedBuffer out(dtype == kBFloat16 ? kFloat32 : default_output(c.monoid, dtype),
                        output_sizes(c));
      check(c, in, out);
    }
}

TEST(Reduce, prologue_and_epilogue) {
  std::mt19937_64 rng(3);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const DType t = round % 3 ? kFloat32 : kFloat64;
    const auto prologue = expr::trace(
        [&](std::span<const Value> v) {
          const Value d = expr::cast(v[0], expr::compute_type(t)) - v[1];
          return std::vector<Value>{d * d};
        },
        std::vector<DType>{kBFloat16, t}, {}, std::vector<DType>{t});
    const auto epilogue = expr::trace(
        [](std::span<const Value> v) { return std::vector<Value>{expr::sqrt(v[0]) + 1.0}; },
        std::vector<DType>{t}, {}, std::vector<DType>{t});
    Case c{Monoid::sum, random_shape(rng, 4, 8000), 0, prologue, epilogue};
    c.reduced = uint32_t(rng() % (1u << c.space.size()));
    std::vector<GuardedBuffer> in;
    fill_values(in.emplace_back(kBFloat16, random_input_layout(rng, c.space)), rng);
    fill_values(in.emplace_back(t, random_input_layout(rng, c.space)), rng);
    GuardedBuffer out(t, random_layout(rng, output_sizes(c)));
    check(c, in, out);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Reduce, rows_of_one_with_all_rows_of_another) {
  // Each input lies along a dimension of its own, as in distances of all pairs: of whole and of
  // partly filled squares of results, of rows that end anywhere, one or several pairs of matrices.
  std::mt19937_64 rng(5);
  const auto difference = [](DType left, DType right, DType to) {
    return expr::trace(
        [=](std::span<const Value> v) {
          return std::vector{
              abs(cast(v[0], expr::compute_type(to)) - cast(v[1], expr::compute_type(to)))};
        },
        std::vector{left, right}, {}, std::vector{to});
  };
  struct Pair {
    int64_t batch, rows, others, width;
  };
  struct Types {
    DType left, right;
    Monoid monoid;
  };
  const auto root =
      expr::trace([](std::span<const Value> v) { return std::vector<Value>{sqrt(v[0])}; },
                  std::vector{kFloat32}, {}, std::vector{kFloat32});
  for (const Pair& n :
       {Pair{3, 130, 70, 19}, Pair{1, 192, 256, 32}, Pair{2, 65, 300, 47}, Pair{9, 64, 40, 16}})
    for (const Types& t :
         {Types{kFloat32, kFloat32, Monoid::sum}, Types{kFloat64, kFloat32, Monoid::max},
          Types{kBFloat16, kFloat32, Monoid::sum}, Types{kInt32, kInt32, Monoid::min}}) {
      // The last pair is what the reference device has time for.
      if (too_large_for_reference(n.batch * n.rows * n.others * n.width / 4)) continue;
      SCOPED_TRACE(std::to_string(n.width) + " " + std::string(name_of(t.left)));
      const DType to = t.right;
      Case c{t.monoid, Shape{n.batch, n.rows, n.others, n.width}, 8,
             difference(t.left, t.right, to), nullptr};
      if (to == kFloat32 && t.monoid == Monoid::sum) c.epilogue = root;
      std::vector<GuardedBuffer> in;
      fill_values(in.emplace_back(t.left, Shape{n.batch, n.rows, 1, n.width}), rng);
      fill_values(in.emplace_back(t.right, Shape{n.batch, 1, n.others, n.width}), rng);
      GuardedBuffer out(to, random_layout(rng, output_sizes(c)));
      check(c, in, out);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Reduce, nan_wins_in_min_and_max) {
  for (DType dtype : {kFloat32, kFloat64, kFloat16})
    for (Monoid m : {Monoid::min, Monoid::max})
      for (int64_t at : {0, 5, 63, 700, 999})
        for (uint32_t reduced : {1u, 2u}) {
          Case c{m, reduced == 1 ? Shape{1000, 3} : Shape{3, 1000}, reduced, nullptr, nullptr};
          std::vector<GuardedBuffer> in;
          in.emplace_back(dtype, c.space);
          in[0].fill([&](IntList i) {
            const int64_t along = reduced == 1 ? i[0] : i[1];
            return along == at && i[reduced == 1 ? 1 : 0] != 1 ? NAN : double(along % 50);
          });
          GuardedBuffer out(dtype, output_sizes(c));
          check(c, in, out);
          EXPECT_TRUE(std::isnan(out.get(Shape{0, 0})));
          EXPECT_FALSE(std::isnan(out.get(reduced == 1 ? Shape{0, 1} : Shape{1, 0})));
        }
}

TEST(Reduce, nothing_to_reduce_gives_the_identity) {
  for (Monoid m : {Monoid::sum, Monoid::prod, Monoid::all, Monoid::any}) {
    Case c{m, Shape{3, 0, 2}, 2, nullptr, nullptr};
    std::vector<GuardedBuffer> in;
    in.emplace_back(kFloat32, c.space);
    GuardedBuffer out(default_output(m, kFloat32), output_sizes(c));
    out.fill([](IntList) { return 7.0; });
    check(c, in, out);
  }
}

TEST(Reduce, long_ones_do_not_depend_on_threads) {
  std::mt19937_64 rng(4);
  struct Long {
    Shape space;
    uint32_t reduced;
  };
  for (const Long& l :
       {Long{Shape{1, 1000003}, 2}, Long{Shape{3, 300007}, 2}, Long{Shape{50000, 24}, 1},
        Long{Shape{700, 3000}, 1}, Long{Shape{40, 50, 700}, 5}, Long{Shape{300000, 2}, 1}}) {
    Case c{Monoid::sum, l.space, l.reduced, nullptr, nullptr};
    std::vector<GuardedBuffer> in;
    in.emplace_back(kFloat32, c.space);
    fill_values(in[0], rng);
    std::vector<std::vector<double>> results;
    for (int threads : {1, 2, 5}) {
      set_num_threads(threads);
      GuardedBuffer out(kFloat32, output_sizes(c));
      (threads == 1 ? check : run)(c, in, out);
      results.push_back(out.values());
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST(Reduce, sums_of_many_equal_numbers_keep_their_digits) {
  // Plain f32 accumulation would stop at 2^24, also by each of two threads of the CPU.
  const int64_t n = test_device().is_cpu() ? 40'000'000 : 17'000'000;
  std::vector<float> ones(static_cast<size_t>(n), 1.0f);
  View in{reinterpret_cast<std::byte*>(ones.data()), kFloat32, {}, {}, nullptr};
  const Shape sizes{n}, strides{1}, out_sizes{1}, out_strides{1};
  in.sizes = sizes;
  in.strides = strides;
  float sum = 0;
  View out{reinterpret_cast<std::byte*>(&sum), kFloat32, out_sizes, out_strides, nullptr};
  prim::ReduceArgs args{};
  args.monoid = Monoid::sum;
  args.space = sizes;
  args.reduced = 1;
  args.inputs = std::span<const View>(&in, 1);
  args.out = out;
  backend_under_test().reduce(args);
  EXPECT_EQ(sum, float(n));
}

}  // namespace
}  // namespace arete::test
