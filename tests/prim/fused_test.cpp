// fused of the CPU against the same stages computed one element at a time.
#include <algorithm>

#include "arete/base/thread_pool.h"
#include "arete/prim/backend.h"
#include "tests/prim/program_reference.h"
#include "tests/support/test_device.h"

namespace arete::test {
namespace {

using expr::Literal;
using expr::Type;
using expr::Value;
using prim::FusedSpec;
using prim::FusedStage;
using prim::Monoid;
using prim::View;
using Kind = FusedStage::Kind;

using Definition = std::function<std::vector<Value>(std::span<const Value>)>;

FusedStage stage(Kind kind, std::vector<int> inputs, std::vector<DType> in, std::vector<DType> out,
                 Definition f, Monoid monoid = Monoid::sum, int first_output = 0,
                 std::vector<Type> params = {}) {
  FusedStage s;
  s.kind = kind;
  s.program = expr::trace(f, in, params, out);
  s.inputs = std::move(inputs);
  s.monoid = monoid;
  s.first_output = first_output;
  return s;
}

/// Softmax: maximum, sum of exponentials, quotient; its logarithmic sum per row
/// too.
FusedSpec softmax(DType dtype) {
  const DType f = kFloat32;
  FusedSpec spec;
  spec.n_inputs = 1;
  spec.n_outputs = 2;
  spec.stages.push_back(stage(
      Kind::reduce, {0}, {dtype}, {f},
      [](auto v) { return std::vector<Value>{expr::to_float(v[0])}; }, Monoid::max));
  spec.stages.push_back(stage(Kind::reduce, {0, ~0}, {dtype, f}, {f},
                              [](auto v) { return std::vector<Value>{expr::exp(v[0] - v[1])}; }));
  spec.stages.push_back(stage(Kind::row, {~1}, {f}, {f},
                              [](auto v) { return std::vector<Value>{expr::reciprocal(v[0])}; }));
  spec.stages.push_back(stage(Kind::store, {0, ~0, ~2}, {dtype, f, f}, {dtype}, [](auto v) {
    return std::vector<Value>{expr::exp(v[0] - v[1]) * v[2]};
  }));
  spec.stages.push_back(stage(
      Kind::store_row, {~0, ~1}, {f, f}, {f},
      [](auto v) { return std::vector<Value>{v[0] + expr::log(v[1])}; }, Monoid::sum, 1));
  return spec;
}

/// Layer normalization with weight and bias, a parameter, and two sums in one
/// stage.
FusedSpec layer_norm(DType dtype, int64_t length) {
  const DType f = kFloat32;
  const double n = double(length);
  FusedSpec spec;
  spec.n_inputs = 3;
  spec.n_outputs = 3;
  spec.stages.push_back(stage(Kind::reduce, {0}, {dtype}, {f, f}, [](auto v) {
    return std::vector<Value>{expr::to_float(v[0]), v[0] * v[0]};
  }));
  spec.stages.push_back(
      stage(Kind::row, {~0, ~1}, {f, f}, {f, f},
            [n](auto v) {
              const Value mean = v[0] * (1 / n);
              return std::vector<Value>{mean, expr::rsqrt(v[1] * (1 / n) - mean * mean + v[2])};
            },
            Monoid::sum, 0, {Type::f32}));
  spec.stages.push_back(
      stage(Kind::store, {0, ~2, ~3, 1, 2}, {dtype, f, f, f, f}, {dtype},
            [](auto v) { return std::vector<Value>{(v[0] - v[1]) * v[2] * v[3] + v[4]}; }));
  spec.stages.push_back(stage(
      Kind::store_row, {~2, ~3}, {f, f}, {f, f},
      [](auto v) {
        return std::vector<Value>{v[0], v[1]};
      },
      Monoid::sum, 1));
  return spec;
}

/// Gradients of layer normalization with respect to its input,
/// weight and bias: the last two are sums over rows.
FusedSpec layer_norm_gradient(DType dtype, int64_t length) {
  const DType f = kFloat32;
  const double n = double(length);
  FusedSpec spec;
  spec.n_inputs = 4;  // gradient, input, mean, 1 / deviation
  spec.n_outputs = 4;
  spec.stages.push_back(stage(Kind::reduce, {0, 1, 2, 3}, {dtype, dtype, f, f}, {f, f}, [](auto v) {
    return std::vector<Value>{expr::to_float(v[0]), v[0] * ((v[1] - v[2]) * v[3])};
  }));
  spec.stages.push_back(stage(
      Kind::reduce_columns, {0, 1, 2, 3}, {dtype, dtype, f, f}, {f, f},
      [](auto v) {
        return std::vector<Value>{v[0] * ((v[1] - v[2]) * v[3]), expr::to_float(v[0])};
      },
      Monoid::sum, 1));
  spec.stages.push_back(
      stage(Kind::store, {0, 1, 2, 3, ~0, ~1}, {dtype, dtype, f, f, f, f}, {dtype}, [n](auto v) {
        return std::vector<Value>{
            (v[0] - v[4] * (1 / n) - (v[1] - v[2]) * v[3] * (v[5] * (1 / n))) * v[3]};
      }));
  spec.stages.push_back(stage(
      Kind::reduce_columns, {1}, {dtype}, {f},
      [](auto v) { return std::vector<Value>{expr::to_float(v[0])}; }, Monoid::max, 3));
  return spec;
}

/// Mean and variance in one pass by a pivot, which a stage over rows makes from two inputs.
FusedSpec pivoted_norm(DType dtype, int64_t length) {
  const DType f = kFloat32;
  const double n = double(length);
  FusedSpec spec;
  spec.n_inputs = 3;
  spec.n_outputs = 3;
  spec.stages.push_back(stage(Kind::row, {1, 2}, {dtype, dtype}, {f},
                              [](auto v) { return std::vector<Value>{(v[0] + v[1]) * 0.5}; }));
  spec.stages.push_back(stage(Kind::reduce, {0, ~0}, {dtype, f}, {f, f}, [](auto v) {
    const Value d = v[0] - v[1];
    return std::vector<Value>{d, d * d};
  }));
  spec.stages.push_back(stage(Kind::row, {~0, ~1, ~2}, {f, f, f}, {f, f}, [n](auto v) {
    const Value d = v[1] * (1 / n);
    return std::vector<Value>{v[0] + d, expr::rsqrt(v[2] * (1 / n) - d * d + 0.1)};
  }));
  spec.stages.push_back(stage(Kind::store, {0, ~3, ~4}, {dtype, f, f}, {dtype},
                              [](auto v) { return std::vector<Value>{(v[0] - v[1]) * v[2]}; }));
  spec.stages.push_back(stage(
      Kind::store_row, {~3, ~4}, {f, f}, {f, f},
      [](auto v) {
        return std::vector<Value>{v[0], v[1]};
      },
      Monoid::sum, 1));
  return spec;
}

/// Mean, then the mean square of the differences from it, and a weight that all rows share.
FusedSpec two_pass_norm(DType dtype, int64_t length, bool turned) {
  const DType f = dtype == kFloat64 ? kFloat64 : kFloat32;
  const double n = double(length);
  FusedSpec spec;
  spec.n_inputs = 2;
  spec.n_outputs = 2;
  spec.stages.push_back(stage(Kind::reduce, {0}, {dtype}, {f},
                              [](auto v) { return std::vector<Value>{v[0] * 1.0}; }));
  spec.stages.push_back(
      stage(Kind::row, {~0}, {f}, {f}, [n](auto v) { return std::vector<Value>{v[0] * (1 / n)}; }));
  spec.stages.push_back(stage(Kind::reduce, {0, ~1}, {dtype, f}, {f}, [turned](auto v) {
    const Value d = turned ? v[1] - v[0] : v[0] - v[1];
    return std::vector<Value>{d * d};
  }));
  spec.stages.push_back(stage(Kind::row, {~2}, {f}, {f}, [n](auto v) {
    return std::vector<Value>{expr::rsqrt(v[0] * (1 / n) + 0.25)};
  }));
  spec.stages.push_back(stage(
      Kind::store, {0, ~1, ~3, 1}, {dtype, f, f, dtype}, {dtype},
      [](auto v) { return std::vector<Value>{(v[0] - v[1]) * v[2] * expr::exp(v[3] * 0.25)}; }));
  spec.stages.push_back(stage(
      Kind::store_row, {~3}, {f}, {kFloat32}, [](auto v) { return std::vector<Value>{v[0]}; },
      Monoid::sum, 1));
  return spec;
}

double combine(Monoid m, double a, double b) {
  if (m == Monoid::sum) return a + b;
  if (m == Monoid::max) return std::max(a, b);
  return std::min(a, b);
}

double identity(Monoid m) {
  return m == Monoid::sum ? 0.0 : m == Monoid::max ? -INFINITY : INFINITY;
}

/// Expected outputs, row by row in double precision between the programs' own
/// roundings.
std::vector<std::vector<double>> expected(const FusedSpec& spec, const Shape& space, int outer_rank,
                                          std::vector<GuardedBuffer>& inputs,
                                          std::span<const Literal> params) {
  const Shape outer(space.begin(), space.begin() + outer_rank);
  const Shape inner(space.begin() + outer_rank, space.end());
  std::vector<std::vector<double>> out(size_t(spec.n_outputs));
  for (const FusedStage& s : spec.stages)
    if (s.kind == Kind::reduce_columns)
      for (size_t k = 0; k < s.program->outputs().size(); ++k)
        out[size_t(s.first_output) + k].assign(size_t(numel_of(inner)), identity(s.monoid));
  for (IndexWalk row(outer); row; ++row) {
    std::vector<Literal> values;
    auto run = [&](const FusedStage& s, const Shape& index) {
      std::vector<Literal> in;
      for (int i : s.inputs) {
        if (i < 0) {
          in.push_back(values[size_t(~i)]);
        } else if (const GuardedBuffer& t = inputs[size_t(i)]; s.program->is_table(in.size())) {
          in.push_back({.i = int64_t(reinterpret_cast<intptr_t>(t.view().data))});
        } else {
          in.push_back(literal_of(t, broadcast_index(t.layout(), index)));
        }
      }
      return expr::evaluate(*s.program, in, params.first(s.program->params().size()));
    };
    auto full = [&](const Shape& element) {
      Shape index = *row;
      index.append(element.begin(), element.end());
      return index;
    };
    for (const FusedStage& s : spec.stages) {
      const size_t n = s.program->outputs().size();
      if (s.kind == Kind::row || s.kind == Kind::store_row) {
        const std::vector<Literal> r = run(s, full(Shape(inner.size(), 0)));
        for (size_t k = 0; k < n; ++k) {
          if (s.kind == Kind::row)
            values.push_back(r[k]);
          else
            out[size_t(s.first_output) + k].push_back(r[k].f);
        }
        continue;
      }
      std::vector<double> acc(n, identity(s.monoid));
      std::vector<double>* const sums = &out[size_t(s.first_output)];
      size_t column = 0;
      for (IndexWalk e(inner); e; ++e, ++column) {
        const std::vector<Literal> r = run(s, full(*e));
        for (size_t k = 0; k < n; ++k) {
          if (s.kind == Kind::reduce)
            acc[k] = combine(s.monoid, acc[k], r[k].f);
          else if (s.kind == Kind::reduce_columns)
            sums[k][column] = combine(s.monoid, sums[k][column], r[k].f);
          else
            out[size_t(s.first_output) + k].push_back(r[k].f);
        }
      }
      if (s.kind == Kind::reduce)
        for (size_t k = 0; k < n; ++k) {
          Literal l;
          l.f = s.program->outputs()[k].dtype == kFloat64 ? acc[k] : double(float(acc[k]));
          values.push_back(l);
        }
    }
  }
  return out;
}

void check(const FusedSpec& spec, const Shape& space, int outer_rank,
           std::vector<GuardedBuffer>& inputs, std::vector<GuardedBuffer>& outputs,
           std::span<const Literal> params = {}) {
  std::vector<View> in, out;
  for (GuardedBuffer& t : inputs) in.push_back(t.view());
  for (GuardedBuffer& t : outputs) out.push_back(t.view());
  const auto want = expected(spec, space, outer_rank, inputs, params);
  backend_under_test().fused({&spec, space, outer_rank, in, out, params});
  for (size_t k = 0; k < outputs.size(); ++k) {
    EXPECT_TRUE(outputs[k].guards_intact());
    size_t at = 0;
    for (IndexWalk w(outputs[k].layout().sizes); w; ++w, ++at)
      ASSERT_EQ(mismatch(outputs[k].get(*w), want[k][at], outputs[k].dtype(), 64, 8), "")
          << "output " << k << " at " << to_string(*w) << " of " << to_string(space);
  }
}

Shape row_sizes(const Shape& space, int outer_rank) {
  Shape out = space;
  for (size_t d = size_t(outer_rank); d < out.size(); ++d) out[d] = 1;
  return out;
}

void check_softmax(std::mt19937_64& rng, const Shape& space, int outer_rank, DType dtype,
                   const Layout& in_layout, const Layout& out_layout) {
  std::vector<GuardedBuffer> in, out;
  fill_values(in.emplace_back(dtype, in_layout), rng);
  out.emplace_back(dtype, out_layout);
  out.emplace_back(kFloat32, random_layout(rng, row_sizes(space, outer_rank)));
  check(softmax(dtype), space, outer_rank, in, out);
}

TEST(Fused, softmax_of_many_shapes) {
  std::mt19937_64 rng(1);
  const std::vector<std::pair<Shape, int>> cases{
      {{1, 1}, 1},        {{7, 10}, 1},    {{1000, 10}, 1}, {{5, 3000}, 1},
      {{3, 257}, 1},      {{2, 20000}, 1}, {{4, 6, 5}, 2},  {{4, 6, 50}, 1},
      {{600, 3, 100}, 1}, {{2000, 1}, 1},  {{33}, 0},       {{1, 5000}, 1}};
  for (const auto& [space, outer] : cases)
    for (DType dtype : {kFloat32, kBFloat16})
      for (int threads : {1, 3}) {
        SCOPED_TRACE(to_string(space));
        set_num_threads(threads);
        check_softmax(rng, space, outer, dtype, Layout(space), Layout(space));
      }
}

// Longer than registers hold, and whole rounds of all threads: a GPU then streams without a look
// at where a row ends.
TEST(Fused, softmax_of_long_rows_of_whole_rounds) {
  std::mt19937_64 rng(10);
  for (const Shape& space : {Shape{140, 40960}, Shape{140, 40964}}) {
    if (too_large_for_reference(numel_of(space))) continue;
    check_softmax(rng, space, 1, kFloat32, Layout(space), Layout(space));
  }
}

TEST(Fused, softmax_of_random_layouts) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    Shape space = random_shape(rng, 4, 8000);
    if (space.empty()) continue;
    bool empty = false;
    for (int64_t s : space) empty |= s == 0;
    if (empty) continue;
    const int outer = int(rng() % space.size());
    const DType dtype = rng() % 2 ? kFloat32 : kFloat16;
    check_softmax(rng, space, outer, dtype, random_input_layout(rng, space),
                  random_layout(rng, space));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Fused, rows_across_the_fast_dimension) {
  std::mt19937_64 rng(3);
  for (const Shape& space : {Shape{300, 70}, Shape{9, 1000}, Shape{1000, 4}, Shape{20, 30, 17}}) {
    Layout turned(space);  // the last dimensions are the slowest
    int64_t step = 1;
    for (size_t d = 0; d < space.size(); ++d) {
      turned.strides[d] = step;
      step *= space[d];
    }
    check_softmax(rng, space, int(space.size()) - 1, kFloat32, turned, turned);
    check_softmax(rng, space, int(space.size()) - 1, kFloat32, turned, Layout(space));
    check_softmax(rng, space, 1, kFloat32, turned, turned);
  }
}

// Groups of rows of two dimensions, whose tiles have the same number of elements in other forms:
// what is packed for one is not what the next needs.
TEST(Fused, rows_of_two_dimensions) {
  const auto product = [](std::span<const Value> v) { return std::vector{v[0] * v[1]}; };
  const auto quotient = [](std::span<const Value> v) { return std::vector{v[0] * v[1] / v[2]}; };
  FusedSpec spec;
  spec.n_inputs = 2, spec.n_outputs = 1;
  spec.stages.push_back({Kind::reduce,
                         expr::trace(product, {{kFloat32, kFloat32}}, {}, {{kFloat32}}),
                         {0, 1},
                         Monoid::sum});
  spec.stages.push_back({Kind::store,
                         expr::trace(quotient, {{kFloat32, kFloat32, kFloat32}}, {}, {{kFloat32}}),
                         {0, 1, ~0}});
  std::mt19937_64 rng(8);
  for (const int64_t n : {96, 40, 7})
    for (const int64_t inner : {2, 3})
      for (int threads : {1, 3}) {
        set_num_threads(threads);
        // In memory [n, 3, inner, 4]; rows are the first and the last dimension.
        const Shape space{n, 4, 3, inner};
        const Layout x(space, {12 * inner, 1, 4 * inner, 4}), w({1, 1, 1, inner});
        std::vector<GuardedBuffer> in, out;
        in.emplace_back(kFloat32, x).fill([&](IntList) { return 1 + double(rng() % 100) / 50; });
        in.emplace_back(kFloat32, w).fill([&](IntList) { return 1 + double(rng() % 100) / 50; });
        out.emplace_back(kFloat32, x);
        check(spec, space, 2, in, out);
      }
}

TEST(Fused, layer_norm) {
  std::mt19937_64 rng(4);
  Literal eps;
  eps.f = 1e-3;
  for (const auto& [space, outer] : std::vector<std::pair<Shape, int>>{
           {{50, 10}, 1}, {{20, 1024}, 1}, {{4, 5000}, 1}, {{6, 5, 40}, 1}, {{300, 64}, 1}})
    for (DType dtype : {kFloat32, kFloat16}) {
      const Shape inner(space.begin() + outer, space.end());
      std::vector<GuardedBuffer> in, out;
      fill_values(in.emplace_back(dtype, random_layout(rng, space)), rng);
      fill_values(in.emplace_back(kFloat32, inner), rng);
      fill_values(in.emplace_back(kFloat32, inner), rng);
      out.emplace_back(dtype, random_layout(rng, space));
      out.emplace_back(kFloat32, row_sizes(space, outer));
      out.emplace_back(kFloat32, row_sizes(space, outer));
      check(layer_norm(dtype, numel_of(inner)), space, outer, in, out,
            std::span<const Literal>(&eps, 1));
    }
}

// Short rows, some that have a group together, and those of several tiles; the last group is not
// whole. One after the other, apart, and across.
TEST(Fused, deviations) {
  std::mt19937_64 rng(11);
  for (const int64_t length : {5, 300, 768, 1024, 3000, 9000})
    for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
      for (int layout = 0; layout < 3; ++layout) {
        // What is expected is summed up one by one, in f64.
        if (dtype == kFloat64 && length > 3000) continue;
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length) + " " +
                     std::to_string(layout));
        set_num_threads(1 + layout);
        const Shape space{3, 13, length};
        const Layout x = layout == 0   ? Layout(space)
                         : layout == 1 ? Layout(space, {14 * (length + 3), length + 3, 1})
                                       : Layout(space, {1, 3, 39});
        std::vector<GuardedBuffer> in, out;
        in.emplace_back(dtype, x).fill([&](IntList) { return 3 + double(rng() % 1000) / 500; });
        fill_values(in.emplace_back(dtype, Shape{length}), rng);
        out.emplace_back(dtype, x);
        out.emplace_back(kFloat32, row_sizes(space, 2));
        check(two_pass_norm(dtype, length, layout == 1), space, 2, in, out);
        if (testing::Test::HasFatalFailure()) return;
      }
}

// Exponentials that a sum and two stores are made of, one of which stores nothing else, and a
// weight that some rows share.
TEST(Fused, values_for_several_stages) {
  std::mt19937_64 rng(12);
  const DType f = kFloat32;
  const auto power = [](Value x, Value m) { return expr::exp(x - m); };
  for (const int64_t length : {5, 300, 1500, 5000, 70000})
    for (DType dtype : {kFloat32, kBFloat16})
      for (int layout = 0; layout < 2; ++layout) {
        if (length > 5000 && (layout == 1 || dtype != kFloat32)) continue;
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length) + " " +
                     std::to_string(layout));
        set_num_threads(1 + layout);
        FusedSpec spec;
        spec.n_inputs = 2, spec.n_outputs = 3;
        spec.stages.push_back(stage(
            Kind::reduce, {0}, {dtype}, {f},
            [](auto v) { return std::vector<Value>{expr::to_float(v[0])}; }, Monoid::max));
        spec.stages.push_back(stage(Kind::reduce, {0, ~0}, {dtype, f}, {f},
                                    [&](auto v) { return std::vector<Value>{power(v[0], v[1])}; }));
        spec.stages.push_back(
            stage(Kind::store, {0, ~0, ~1, 1}, {dtype, f, f, dtype}, {dtype}, [&](auto v) {
              return std::vector<Value>{power(v[0], v[1]) / v[2] * expr::exp(v[3])};
            }));
        spec.stages.push_back(stage(
            Kind::store, {0, ~0}, {dtype, f}, {f},
            [&](auto v) { return std::vector<Value>{power(v[0], v[1])}; }, Monoid::sum, 1));
        spec.stages.push_back(stage(
            Kind::store, {1, 0, ~0}, {dtype, dtype, f}, {f},
            [&](auto v) { return std::vector<Value>{power(v[1], v[2]) - v[0]}; }, Monoid::sum, 2));
        const Shape space{3, 7, length};
        const Layout x = layout == 0 ? Layout(space) : Layout(space, {1, 3, 21});
        std::vector<GuardedBuffer> in, out;
        fill_values(in.emplace_back(dtype, x), rng);
        fill_values(in.emplace_back(dtype, Shape{3, 1, length}), rng);
        out.emplace_back(dtype, x);
        out.emplace_back(f, space);
        out.emplace_back(f, x);
        check(spec, space, 2, in, out);
        if (testing::Test::HasFatalFailure()) return;
      }
}

// Of which each value is read twice: whoever follows both ways has 2^40 of them.
TEST(Fused, long_programs_of_values_that_are_read_twice) {
  const DType f = kFloat32;
  const auto chain = [](Value x) {
    for (int k = 0; k < 40; ++k) x = x + expr::abs(x) * 0.125;
    return x;
  };
  FusedSpec spec;
  spec.n_inputs = 1, spec.n_outputs = 1;
  spec.stages.push_back(stage(Kind::reduce, {0}, {f}, {f},
                              [&](auto v) { return std::vector<Value>{expr::exp(chain(v[0]))}; }));
  spec.stages.push_back(stage(Kind::store, {0, ~0}, {f, f}, {f}, [&](auto v) {
    return std::vector<Value>{expr::exp(chain(v[0])) / v[1]};
  }));
  for (const int64_t length : {20, 700}) {
    const Shape space{9, length};
    std::vector<GuardedBuffer> in, out;
    in.emplace_back(f, space).fill([](IntList i) { return -0.5 - double(i[1] % 7) / 8; });
    out.emplace_back(f, space);
    check(spec, space, 1, in, out);
  }
}

// Of odd lengths and distances, in all operands alike or not, with a weight that all rows share.
TEST(Fused, rows_that_begin_anywhere) {
  std::mt19937_64 rng(9);
  Literal eps;
  eps.f = 1e-3;
  for (const int64_t length : {16, 17, 31, 63, 127, 195, 285, 511, 1025, 4097, 9001})
    for (DType dtype : {kFloat32, kBFloat16})
      for (const auto& [gap, out_gap] : {std::pair{0, 0}, {3, 3}, {1, 2}, {0, 16}}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length) + " " +
                     std::to_string(gap));
        const Shape space{std::max<int64_t>(3, 200 / length), length};
        std::vector<GuardedBuffer> in, out;
        fill_values(in.emplace_back(dtype, Layout(space, {length + gap, 1})), rng);
        for (int k = 0; k < 2; ++k) fill_values(in.emplace_back(kFloat32, Shape{length}), rng);
        out.emplace_back(dtype, Layout(space, {length + out_gap, 1}));
        for (int k = 0; k < 2; ++k) out.emplace_back(kFloat32, row_sizes(space, 1));
        check(layer_norm(dtype, length), space, 1, in, out, std::span<const Literal>(&eps, 1));
        if (testing::Test::HasFatalFailure()) return;
      }
}

// With a mask that some of the rows share, read by every stage.
TEST(Fused, rows_that_begin_anywhere_and_share_by_groups) {
  std::mt19937_64 rng(10);
  const DType f = kFloat32;
  for (const int64_t length : {17, 31, 63, 285, 511, 1025, 9001, 70001})
    for (DType dtype : {kFloat32, kBFloat16})
      for (const bool plain : {true, false}) {
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + std::to_string(length));
        FusedSpec spec;
        spec.n_inputs = 2, spec.n_outputs = 1;
        spec.stages.push_back(stage(
            Kind::reduce, {0, 1}, {dtype, f}, {f},
            [](auto v) { return std::vector<Value>{v[0] + v[1]}; }, Monoid::max));
        spec.stages.push_back(stage(Kind::reduce, {0, 1, ~0}, {dtype, f, f}, {f}, [](auto v) {
          return std::vector<Value>{expr::exp(v[0] + v[1] - v[2])};
        }));
        spec.stages.push_back(
            stage(Kind::store, {0, 1, ~0, ~1}, {dtype, f, f, f}, {dtype},
                  [](auto v) { return std::vector<Value>{expr::exp(v[0] + v[1] - v[2]) / v[3]}; }));
        const Shape space{2, 3, length};
        std::vector<GuardedBuffer> in, out;
        fill_values(in.emplace_back(dtype, space), rng);
        // Of each of the first dimension, or of each of the second.
        fill_values(in.emplace_back(f, plain ? Shape{2, 1, length} : Shape{1, 3, length}), rng);
        out.emplace_back(dtype, space);
        check(spec, space, 2, in, out, {});
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Fused, reductions_over_rows) {
  std::mt19937_64 rng(7);
  for (const auto& [space, outer] : std::vector<std::pair<Shape, int>>{{{50, 10}, 1},
                                                                       {{300, 8}, 1},
                                                                       {{700, 64}, 1},
                                                                       {{333, 100}, 1},
                                                                       {{70, 1024}, 1},
                                                                       {{3, 5000}, 1},
                                                                       {{6, 5, 40}, 1},
                                                                       {{6, 5, 40}, 2},
                                                                       {{1, 7}, 1},
                                                                       {{9}, 0},
                                                                       {{40, 1}, 1},
                                                                       {{0, 5}, 1}})
    for (DType dtype : {kFloat32, kBFloat16})
      for (bool plain : {true, false}) {
        SCOPED_TRACE(to_string(space));
        const auto layout = [&](const Shape& sizes) {
          return plain ? Layout(sizes) : random_layout(rng, sizes);
        };
        Shape columns = space;
        for (int d = 0; d < outer; ++d) columns[size_t(d)] = 1;
        std::vector<GuardedBuffer> in, out;
        fill_values(in.emplace_back(dtype, layout(space)), rng);
        fill_values(in.emplace_back(dtype, layout(space)), rng);
        fill_values(in.emplace_back(kFloat32, row_sizes(space, outer)), rng);
        fill_values(in.emplace_back(kFloat32, row_sizes(space, outer)), rng);
        out.emplace_back(dtype, layout(space));
        out.emplace_back(dtype, layout(columns));
        out.emplace_back(kFloat32, layout(columns));
        out.emplace_back(kFloat32, layout(columns));
        const Shape inner(space.begin() + outer, space.end());
        check(layer_norm_gradient(dtype, numel_of(inner)), space, outer, in, out);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Fused, row_values_from_inputs) {
  std::mt19937_64 rng(8);
  for (const Shape& space : {Shape{50, 10}, Shape{6, 20000}, Shape{40, 3000}})
    for (DType dtype : {kFloat32, kFloat16})
      for (bool turned : {false, true}) {
        SCOPED_TRACE(to_string(space));
        const Layout layout = turned ? Layout(space, IntList{1, space[0]}) : Layout(space);
        std::vector<GuardedBuffer> in, out;
        fill_values(in.emplace_back(dtype, layout), rng);
        fill_values(in.emplace_back(dtype, row_sizes(space, 1)), rng);
        fill_values(in.emplace_back(dtype, row_sizes(space, 1)), rng);
        out.emplace_back(dtype, layout);
        out.emplace_back(kFloat32, row_sizes(space, 1));
        out.emplace_back(kFloat32, row_sizes(space, 1));
        check(pivoted_norm(dtype, space[1]), space, 1, in, out);
        if (testing::Test::HasFatalFailure()) return;
      }
}

// Many rows read the same elements, as forces between bodies do.
TEST(Fused, rows_of_pairs) {
  std::mt19937_64 rng(9);
  const DType f = kFloat32;
  FusedSpec spec{{}, 2, 2};
  spec.stages.push_back(stage(Kind::reduce, {0, 1}, {f, f}, {f, f}, [](auto v) {
    const Value d = v[0] - v[1], weight = expr::rsqrt(d * d + 0.1);
    return std::vector<Value>{d * weight, weight};
  }));
  spec.stages.push_back(stage(Kind::store_row, {~0, ~1}, {f, f}, {f, f}, [](auto v) {
    return std::vector<Value>{v[0], v[1]};
  }));
  for (const auto& [rows, length] :
       {std::pair<int64_t, int64_t>{4500, 33}, {4301, 5}, {4224, 70}, {4352, 512}}) {
    std::vector<GuardedBuffer> in, out;
    fill_values(in.emplace_back(f, Layout(Shape{1, length}, IntList{3 * length, 3})), rng);
    fill_values(in.emplace_back(f, Layout(Shape{rows, 1}, IntList{3, 1})), rng);
    out.emplace_back(f, Layout(Shape{rows, 1}, IntList{3, 1}));
    out.emplace_back(f, Shape{rows, 1});
    check(spec, {rows, length}, 1, in, out);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Fused, in_place) {
  std::mt19937_64 rng(5);
  for (const Shape& space : {Shape{100, 7}, Shape{9, 2000}, Shape{100, 63}, Shape{9, 1999}}) {
    const FusedSpec spec = softmax(kFloat32);
    std::vector<GuardedBuffer> t;
    fill_values(t.emplace_back(kFloat32, space), rng);
    const auto want = expected(spec, space, 1, t, {});
    GuardedBuffer rows(kFloat32, row_sizes(space, 1));
    const View in[] = {t[0].view()};
    const View out[] = {t[0].view(), rows.view()};
    backend_under_test().fused({&spec, space, 1, in, out, {}});
    size_t at = 0;
    for (IndexWalk w(space); w; ++w, ++at)
      ASSERT_EQ(mismatch(t[0].get(*w), want[0][at], kFloat32, 64, 1), "");
  }
}

// A normalization of what indices name in a table, with a bias that a table has for each row.
FusedSpec norm_of_looked_up(DType dtype) {
  const DType f = kFloat32;
  FusedSpec spec;
  spec.n_inputs = 4;  // position of each element, the table, position of each row, its table
  spec.n_outputs = 2;
  const auto with_tables = [](FusedStage s, std::vector<DType> in, std::vector<DType> out,
                              uint32_t tables, Definition f) {
    s.program = expr::trace(f, in, {}, out, tables);
    return s;
  };
  spec.stages.push_back(
      with_tables({Kind::reduce, nullptr, {0, 1}}, {kInt64, dtype}, {f, f}, 2, [](auto v) {
        const Value x = expr::to_float(expr::load(v[1], v[0]));
        return std::vector<Value>{x, x * x};
      }));
  spec.stages.push_back(with_tables(
      {Kind::row, nullptr, {2, 3, ~1}}, {kInt32, f, f}, {f}, 2,
      [](auto v) { return std::vector<Value>{expr::load(v[1], v[0]) + expr::rsqrt(v[2] + 1.0)}; }));
  spec.stages.push_back(
      with_tables({Kind::store, nullptr, {1, ~2, 0}}, {dtype, f, kInt64}, {dtype}, 1,
                  [](auto v) { return std::vector<Value>{expr::load(v[0], v[2]) * v[1]}; }));
  spec.stages.push_back(
      with_tables({Kind::store_row, nullptr, {~0, 3, 2}, Monoid::sum, 1}, {f, f, kInt32}, {f}, 2,
                  [](auto v) { return std::vector<Value>{v[0] - expr::load(v[1], v[2])}; }));
  return spec;
}

TEST(Fused, tables) {
  std::mt19937_64 rng(9);
  const int64_t n = 37;
  for (const Shape& space :
       {Shape{50, 10}, Shape{6, 20000}, Shape{300, 257}, Shape{1, 400000}, Shape{40, 3000}})
    for (DType dtype : {kFloat32, kFloat16})
      for (bool turned : {false, true}) {
        SCOPED_TRACE(to_string(space));
        const Layout layout = turned ? Layout(space, IntList{1, space[0]}) : Layout(space);
        const auto position = [&](IntList) { return double(rng() % n); };
        std::vector<GuardedBuffer> in, out;
        in.emplace_back(kInt64, layout).fill(position);
        fill_values(in.emplace_back(dtype, Shape{n}), rng);
        in.emplace_back(kInt32, row_sizes(space, 1)).fill(position);
        fill_values(in.emplace_back(kFloat32, Shape{n}), rng);
        out.emplace_back(dtype, layout);
        out.emplace_back(kFloat32, row_sizes(space, 1));
        check(norm_of_looked_up(dtype), space, 1, in, out);
        if (testing::Test::HasFatalFailure()) return;
      }
}

// Specs of one stage, which are reduce and pointwise, with tables.
TEST(Fused, one_stage_with_a_table) {
  std::mt19937_64 rng(10);
  const int64_t n = 37;
  for (const bool stores : {false, true})
    for (const Shape& space : {Shape{50, 10}, Shape{6, 20000}, Shape{3000, 40}, Shape{1, 400000}})
      for (const bool turned : {false, true}) {
        SCOPED_TRACE(to_string(space));
        FusedSpec spec;
        spec.n_inputs = 2;
        spec.n_outputs = 1;
        FusedStage s{stores ? Kind::store : Kind::reduce, nullptr, {0, 1}};
        const DType in[] = {kInt32, kFloat16}, out_dtype[] = {kFloat32};
        s.program =
            expr::trace([](auto v) { return std::vector<Value>{expr::load(v[1], v[0]) * 0.5}; }, in,
                        {}, out_dtype, 2);
        spec.stages.push_back(std::move(s));
        if (!stores)
          spec.stages.push_back(stage(Kind::store_row, {~0}, {kFloat32}, {kFloat32},
                                      [](auto v) { return std::vector<Value>{v[0] + 1.0}; }));
        const Layout layout = turned ? Layout(space, IntList{1, space[0]}) : Layout(space);
        std::vector<GuardedBuffer> inputs, outputs;
        inputs.emplace_back(kInt32, layout).fill([&](IntList) { return double(rng() % n); });
        fill_values(inputs.emplace_back(kFloat16, Shape{n}), rng);
        outputs.emplace_back(kFloat32, stores ? space : row_sizes(space, 1));
        check(spec, space, 1, inputs, outputs);
        if (testing::Test::HasFatalFailure()) return;
      }
}

TEST(Fused, one_huge_row_and_empty_ones) {
  std::mt19937_64 rng(6);
  check_softmax(rng, Shape{2, 200000}, 1, kFloat32, Layout(Shape{2, 200000}),
                Layout(Shape{2, 200000}));
  check_softmax(rng, Shape{0, 5}, 1, kFloat32, Layout(Shape{0, 5}), Layout(Shape{0, 5}));
}

/// Both extremes of each row in one stage, and the elements between them as parts of that range.
FusedSpec range_of_rows(DType dtype) {
  const DType f = kFloat32;
  FusedSpec spec;
  spec.n_inputs = 1;
  spec.n_outputs = 3;
  spec.stages.push_back(stage(
      Kind::reduce, {0}, {dtype}, {f, f},
      [](auto v) {
        return std::vector<Value>{expr::to_float(v[0]), -expr::to_float(v[0])};
      },
      Monoid::min));
  spec.stages.push_back(stage(Kind::store, {0, ~0, ~1}, {dtype, f, f}, {dtype}, [](auto v) {
    return std::vector<Value>{(v[0] - v[1]) / (-v[2] - v[1])};
  }));
  spec.stages.push_back(stage(
      Kind::store_row, {~0, ~1}, {f, f}, {f, f},
      [](auto v) {
        return std::vector<Value>{v[0], -v[1]};
      },
      Monoid::sum, 1));
  return spec;
}

TEST(Fused, extremes_of_huge_rows) {
  std::mt19937_64 rng(8);
  for (const auto& [space, outer] :
       std::vector<std::pair<Shape, int>>{{{200001}, 0}, {{2, 140000}, 1}, {{2, 3, 50000}, 1}})
    for (DType dtype : {kFloat32, kBFloat16}) {
      SCOPED_TRACE(to_string(space));
      std::vector<GuardedBuffer> in, out;
      fill_values(in.emplace_back(dtype, random_layout(rng, space)), rng);
      out.emplace_back(dtype, Layout(space));
      for (int k = 0; k < 2; ++k) out.emplace_back(kFloat32, Layout(row_sizes(space, outer)));
      check(range_of_rows(dtype), space, outer, in, out);
      if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace arete::test
