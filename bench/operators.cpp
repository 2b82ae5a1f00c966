// Rows of single operators. Where the peer writes into an output that it made before (add, exp),
// ours makes a new one each time: the CPU backend hands the previous one's memory out again, so
// that both write to pages that are there, and the bytes moved are the same.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>

#include "arete/compile/plan.h"
#include "arete/expr/value.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/matmul.h"
#include "arete/ops/norm.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/sort.h"
#include "bench/row.h"

namespace arete::bench {
namespace {

constexpr int64_t kMany = int64_t(1) << 24;
constexpr double kFloat = 4, kManyBytes = kFloat * double(kMany);

/// A row of bandwidth or of time over kMany floats.
Row over_many(std::string name, Unit unit, double bytes, Goal goal,
              std::function<std::function<void()>()> prepare) {
  Row row{.name = std::move(name), .unit = unit, .prepare = std::move(prepare)};
  row.bytes = row.amount = bytes;
  row.goal = goal;
  return row;
}

Row matmul_row(int64_t n) {
  Row row{.name = "mm_f32_" + std::to_string(n), .unit = Unit::gflop_per_s};
  row.amount = row.flops = 2.0 * double(n) * double(n) * double(n);
  row.goal = times_the_peer(0.95);
  row.prepare = [n] {
    return dropping([x = randn({n, n}), y = randn({n, n})] { return mm(x, y); });
  };
  return row;
}

Tensor chain_eager(const Tensor& p, const Tensor& q) {
  return gelu(p * 1.5 + q) * sigmoid(q) - tanh(p);
}

/// The same chain as one program, as a user writes an elementwise kernel.
expr::ProgramPtr chain_program() {
  const std::array<DType, 2> inputs{kFloat32, kFloat32};
  return expr::trace(
      [](std::span<const expr::Value> v) -> std::vector<expr::Value> {
        const expr::Value p = v[0], q = v[1], x = p * 1.5 + q;
        const expr::Value gelu = 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
        return {gelu * sigmoid(q) - tanh(p)};
      },
      inputs, {}, {});
}

}  // namespace

std::vector<Row> operator_rows() {
  std::vector<Row> rows;
  rows.push_back(matmul_row(512));
  rows.push_back(matmul_row(2048));

  rows.push_back(over_many("copy_16M", Unit::gb_per_s, 2 * kManyBytes, {}, [] {
    return [x = randn({kMany}), out = empty({kMany})]() mutable { out.copy_(x); };
  }));
  rows.push_back(over_many("add_16M", Unit::gb_per_s, 3 * kManyBytes, {}, [] {
    return dropping([x = randn({kMany}), y = randn({kMany})] { return x + y; });
  }));
  rows.push_back(over_many("exp_16M", Unit::ms, 2 * kManyBytes, times_the_peer(1),
                           [] { return dropping([x = randn({kMany})] { return exp(x); }); }));
  rows.push_back(over_many("gelu_16M", Unit::ms, 2 * kManyBytes, times_the_peer(1 / 0.4),
                           [] { return dropping([x = randn({kMany})] { return gelu(x); }); }));
  rows.push_back(over_many("sum_16M", Unit::gb_per_s, kManyBytes, {},
                           [] { return dropping([x = randn({kMany})] { return x.sum(); }); }));
  rows.push_back(over_many("chain6_eager_16M", Unit::ms, 3 * kManyBytes, at_most(100), [] {
    return dropping([p = randn({kMany}), q = randn({kMany})] { return chain_eager(p, q); });
  }));
  rows.push_back(over_many("chain6_compile_16M", Unit::ms, 3 * kManyBytes, at_most(25), [] {
    return dropping(
        [inputs = std::array<Tensor, 2>{randn({kMany}), randn({kMany})},
         program = chain_program()] { return ops::apply_program(program, inputs, {}, "chain6"); });
  }));
  rows.push_back(over_many("chain6_plan_16M", Unit::ms, 3 * kManyBytes, at_most(25), [] {
    const Tensor p = randn({kMany}), q = randn({kMany});
    Tensor result;
    // By value: what the plan reads and writes is alive as long as it.
    return [plan = std::shared_ptr(compile::plan([&] { result = chain_eager(p, q); })), p, q,
            result] { plan->run(); };
  }));

  Row softmax_row{.name = "softmax_512x32000", .unit = Unit::ms};
  softmax_row.bytes = 2 * kFloat * 512 * 32000;
  softmax_row.goal = times_the_peer(1 / 0.4);
  softmax_row.prepare = [] {
    return dropping([x = randn({512, 32000})] { return softmax(x, -1); });
  };
  rows.push_back(std::move(softmax_row));

  Row norm_row{.name = "layer_norm_4096x1024", .unit = Unit::ms};
  norm_row.bytes = 2 * kFloat * 4096 * 1024;
  norm_row.goal = times_the_peer(1);
  norm_row.prepare = [] {
    return dropping([x = randn({4096, 1024})] { return layer_norm(x, {1024}); });
  };
  rows.push_back(std::move(norm_row));

  rows.push_back(over_many("sum_dim0_4096x4096", Unit::ms, kManyBytes, times_the_peer(1), [] {
    return dropping([x = randn({kMany})] { return x.view({4096, 4096}).sum(0); });
  }));
  rows.push_back(
      over_many("transpose_4096", Unit::ms, 2 * kManyBytes, times_the_peer(1 / 0.35), [] {
        return dropping([x = randn({kMany})] { return x.view({4096, 4096}).t().contiguous(); });
      }));
  // Four bytes in, four and an index of eight out.
  rows.push_back(over_many("sort_4M", Unit::ms, 4 * kManyBytes / 4, times_the_peer(1 / 0.3), [] {
    return dropping([x = randn({kMany}).slice(0, 0, kMany / 4)] { return x.sort(); });
  }));
  rows.push_back(over_many("cumsum_16M", Unit::ms, 2 * kManyBytes, times_the_peer(1 / 0.5),
                           [] { return dropping([x = randn({kMany})] { return cumsum(x, 0); }); }));
  return rows;
}

std::vector<Row> overhead_rows() {
  const auto row = [](std::string name, Unit unit, bool has_peer, Goal goal,
                      std::function<std::function<void()>()> prepare) {
    Row r{.name = std::move(name), .unit = unit, .prepare = std::move(prepare)};
    r.calls = 1000;
    r.has_peer = has_peer;
    r.goal = goal;
    return r;
  };
  std::vector<Row> rows;
  rows.push_back(row("overhead_add", Unit::us, true, at_most(0.35), [] {
    return dropping([a = randn({16}), b = randn({16})] { return a + b; });
  }));
  rows.push_back(row("overhead_add_", Unit::us, true, at_most(0.35),
                     [] { return [a = randn({16}), b = randn({16})]() mutable { a.add_(b); }; }));
  rows.push_back(row("overhead_view", Unit::ns, false, {}, [] {
    return dropping([m = randn({16, 16})] { return m.view({256}); });
  }));
  rows.push_back(row("overhead_empty", Unit::ns, false, {},
                     [] { return dropping([] { return empty({1024}); }); }));
  rows.push_back(row("overhead_fwd_bwd_4ops", Unit::us, false, {}, [] {
    return [a = randn({16}).requires_grad_(), b = randn({16}), c = randn({16})] {
      relu(a * b + c).sum().backward();
      a.set_grad({});
    };
  }));
  return rows;
}

}  // namespace arete::bench
