// Plans of recorded calls: every record's samples, forward and backward, and small programs; the
// same bits as eager code, in fewer steps.
#include "arete/compile/plan.h"

#include <algorithm>
#include <functional>
#include <random>

#include "arete/core/generator.h"
#include "arete/ops/activation.h"
#include "arete/ops/linalg.h"
#include "arete/ops/matmul.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "arete/ops/target.h"
#include "tests/op/recording.h"

namespace arete::test {
namespace {

using ops::OpRecord;

// Tensors of samples are large ones to such plans.
constexpr size_t kSmallBand = 64;

// Plans of all samples, forward and backward. `expect_same(results, eager ones, sample, text)`.
template <class F>
void run_planned(const OpRecord& op, const compile::PlanOptions& options, const F& expect_same) {
  if (op.random) return;
  for_each_recorded(
      op, [&](const ops::Sample& s, prim::Recorder& recorder, std::vector<Tensor>& results) {
        const bool by_value = has_sizes_by_value(recorder);
        std::vector<Tensor> eager;
        for (Tensor& t : results) {
          eager.push_back(t.detach().clone());
          t = t.detach();  // what the graph saved is not kept
        }
        poison(recorder);
        const compile::Plan plan(recorder, options);
        if (options.band > kSmallBand) {
          EXPECT_LE(plan.stats().steps - plan.stats().recomputed, plan.stats().recorded);
        }
        const auto run = [&] {
          plan.run();
          prim::backend_for(test_device()).synchronize();
          ASSERT_EQ(results.size(), eager.size());
          for (size_t k = 0; k < results.size(); ++k)
            expect_same(results[k], eager[k], s,
                        "result " + std::to_string(k) + "\n" + plan.to_string());
        };
        run();
        if (by_value) return;
        change(s.args);
        eager = forward_and_backward(op, s.args);
        run();
      });
}

class Planned : public testing::TestWithParam<const OpRecord*> {};

TEST_P(Planned, RunsBitForBit) {
  run_planned(*GetParam(), {.memory_budget = 0},
              [](const Tensor& got, const Tensor& want, const ops::Sample&,
                 const std::string& text) { EXPECT_EQ(bits(got), bits(want)) << text; });
}

TEST_P(Planned, RoundsLessOften) {
  run_planned(
      *GetParam(), {.exact = false, .band = kSmallBand, .memory_budget = 0},
      [](const Tensor& got, const Tensor& want, const ops::Sample& s, const std::string& text) {
        EXPECT_EQ(difference(got, to_reference(want), longest_reduction(s.args)), "") << text;
      });
}

INSTANTIATE_TEST_SUITE_P(All, Planned, testing::ValuesIn(ops::all_records()), record_name);

// ---- programs

TensorOptions floats() { return TensorOptions(kFloat32, test_device()); }

// What `f` leaves in the tensors it gives, as eager code computes it from the inputs as they are,
// and as a plan does that was made when they held other values.
void expect_eager_bits(const std::vector<Tensor>& inputs,
                       const std::function<std::vector<Tensor>()>& f,
                       const std::function<void(const compile::PlanStats&)>& look = {}) {
  std::vector<Tensor> kept;
  for (const Tensor& t : inputs) kept.push_back(t.clone());
  std::vector<Tensor> results;
  const auto plan = compile::plan([&] { results = f(); });
  if (look) look(plan->stats());
  for (int round = 0; round < 3; ++round) {
    const NoGradGuard guard;
    const auto put_back = [&] {
      for (size_t k = 0; k < inputs.size(); ++k)
        Tensor(inputs[k]).copy_(kept[k].mul(Scalar(1 + round)));
    };
    put_back();
    std::vector<Tensor> eager = f();
    eager.insert(eager.end(), inputs.begin(), inputs.end());
    const auto want = bits_of(eager);
    put_back();
    plan->run();
    std::vector<Tensor> planned = results;
    planned.insert(planned.end(), inputs.begin(), inputs.end());
    for (size_t k = 0; k < planned.size(); ++k)
      ASSERT_EQ(bits(planned[k]), want[k]) << "tensor " << k << "\n" << plan->to_string();
  }
}

std::function<void(const compile::PlanStats&)> expect_steps(int steps) {
  return [steps](const compile::PlanStats& s) { EXPECT_EQ(s.steps, steps); };
}

TEST(Plan, ChainsAreOneKernel) {
  const Tensor x = rand({64, 1000}, floats()), y = rand({64, 1000}, floats());
  expect_eager_bits(
      {x, y}, [&] { return std::vector{((x * y + x).tanh() * Scalar(3) - y).exp()}; },
      [](const compile::PlanStats& s) {
        EXPECT_EQ(s.recorded, 6);
        EXPECT_EQ(s.steps, 1);
        EXPECT_EQ(s.arena, 0u);
      });
}

// Calls that multiply and add in one, and products and sums of different calls, which stay two
// roundings.
TEST(Plan, ContractsWhatTheCallsContract) {
  for (DType t : {kFloat32, kFloat64, kBFloat16}) {
    const Tensor x = randn({64, 100}, floats()).to(t), y = randn({64, 100}, floats()).to(t),
                 z = randn({64, 100}, floats()).to(t);
    expect_eager_bits(
        {x, y, z},
        [&] {
          const Tensor l = lerp(x, y, z), a = addcmul(z, x, y, Scalar(0.3));
          return std::vector{l * x + a,     l * y - a,
                             a - x * y,     add(l * z, x * y, Scalar(-1.7)),
                             x * y + y * z, gelu(l * a + z) * x + l};
        },
        expect_steps(1));
  }
}

// A sum of one and a function may have a form of its own, but not with one that was stored.
TEST(Plan, OnePlusAFunction) {
  const Tensor x = randn({1000}, floats()), y = randn({1000}, floats());
  const auto gradient_of = [](const std::function<Tensor(const Tensor&)>& f, const Tensor& at) {
    const EnableGradGuard guard;
    const Tensor leaf = at.detach().requires_grad_();
    return autograd::grad(f(leaf).sum(), leaf)[0];
  };
  for (const char* approximate : {"none", "tanh"})
    expect_eager_bits({x, y}, [&] {
      const auto f = [&](const Tensor& v) { return gelu(v, approximate); };
      return std::vector{f(x), gradient_of(f, x), f(x) * y, x.erf() + f(y), x.tanh().expm1()};
    });
  expect_eager_bits({x, y}, [&] {
    const Tensor t = x.tanh(), e = y.erf();
    return std::vector{gradient_of([](const Tensor& v) { return v.log1p(); }, t),
                       gradient_of([](const Tensor& v) { return v.log1p(); }, e)};
  });
}

TEST(Plan, ReductionsTakeWhatTheyReduce) {
  const Tensor x = rand({64, 100}, floats()), y = rand({64, 100}, floats());
  expect_eager_bits(
      {x, y}, [&] { return std::vector{x.lt(y).sum({1})}; }, expect_steps(1));
  expect_eager_bits({x, y}, [&] { return std::vector{x.lt(y).sum(), x.lt(y).all()}; });
  // What is read elsewhere, too, has to be stored, and reductions of floats have an order.
  const auto stored = [&] {
    const Tensor d = x - y;
    return std::vector{amax(d, {0}), d};
  };
  expect_eager_bits({x, y}, stored, expect_steps(2));
  expect_eager_bits(
      {x, y}, [&] { return std::vector{(x - y).mul(x - y).sum()}; }, expect_steps(2));
  expect_eager_bits({x, y}, [&] {
    const Tensor d = x - y;
    const Tensor s = d.sum({0}, true);
    return std::vector{s, d * s};
  });
}

TEST(Plan, OneRoundingOnRequest) {
  const Tensor x = rand({64, 100}, floats()), y = rand({64, 100}, floats());
  const auto steps = [&](const std::function<Tensor()>& f, double tolerance) {
    Tensor result;
    const auto plan = compile::plan([&] { result = f(); }, {.exact = false});
    plan->run();
    EXPECT_TRUE(allclose(result, f(), tolerance, tolerance)) << plan->to_string();
    return plan->stats().steps;
  };
  EXPECT_EQ(steps([&] { return (x - y).mul(x - y).sum(); }, 1e-5), 1);
  EXPECT_EQ(steps([&] { return (x.to(kBFloat16) * y).exp().to(kBFloat16).mean({1}); }, 1e-2), 1);
  // Whole numbers wrap and are cut where they were.
  const Tensor i = randint(0, 255, {100}, TensorOptions(kUInt8, test_device()));
  EXPECT_EQ(steps([&] { return (i + i).to(kInt32) + (x[0] * Scalar(100)).to(kInt32); }, 0), 1);
}

TEST(Plan, ShapesThatHoldTheSameElements) {
  const Tensor x = rand({4, 6, 10}, floats()), bias = rand({10}, floats());
  expect_eager_bits(
      {x, bias},
      [&] {
        const Tensor flat = x.view({24, 10}) + bias;
        return std::vector{flat.view({4, 6, 10}).tanh() + x};
      },
      expect_steps(1));
  expect_eager_bits({x}, [&] {
    const Tensor t = x.transpose(0, 2) * Scalar(2);
    return std::vector{t.transpose(0, 2).contiguous().exp()};
  });
}

TEST(Plan, MemoryThatIsUsedTwice) {
  const Tensor x = rand({8, 8}, floats()), y = rand({8, 8}, floats());
  // Written in place, read before and after.
  expect_eager_bits({x, y}, [&] {
    const Tensor before = x.exp();
    Tensor(x).mul_(y).add_(Scalar(1));
    return std::vector{before + x};
  });
  // Elements of other positions.
  expect_eager_bits({x, y}, [&] {
    Tensor(x).add_(y);
    Tensor(y).copy_(x.transpose(0, 1));
    Tensor(x).add_(y.flip({0}));
    return std::vector{x + y};
  });
  expect_eager_bits({x, y}, [&] {
    Tensor row = x.select(0, 3);
    const Tensor z = x * Scalar(2);
    row.fill_(Scalar(1));
    Tensor(y).add_(row);
    return std::vector{z + x};
  });
}

TEST(Plan, WhatTheHostFilled) {
  const Tensor x = rand({4}, floats());
  const float values[] = {1, 2, 3, 4};
  expect_eager_bits({x}, [&] {
    Tensor t = tensor_from_host(values, kFloat32, {4}, floats());
    t.select(0, 0).fill_(Scalar(7));
    return std::vector{x + t};
  });
}

TEST(Plan, StoragesOverOneMemory) {
  if (!test_device().is_cpu()) GTEST_SKIP() << "of the host's memory";
  std::vector<float> memory(16, 2.0f);
  const Tensor x = from_blob(memory.data(), {16}, floats()),
               y = from_blob(memory.data() + 4, {12}, floats());
  expect_eager_bits({x}, [&] {
    const Tensor before = x * Scalar(2);
    Tensor(y).fill_(Scalar(0));
    return std::vector{before + x};
  });
}

TEST(Plan, NumbersThatCallsWrite) {
  const Tensor x = rand({100}, floats());
  Tensor s = full({}, Scalar(0.5), floats().dtype(kFloat64)), p = full({}, Scalar(3), s.options());
  prim::Recorder recorder;
  Tensor result;
  {
    const Recording recording(recorder);
    s.mul_(p);
    result = p * Scalar(0.5);
  }
  for (size_t c = 0; c < recorder.calls().size(); ++c)
    if (recorder.calls()[c]->numbers().size() == 1) recorder.put_in_memory(c, 0, ops::view_of(s));
  const compile::Plan plan(recorder);
  plan.run();
  EXPECT_EQ(s.item<double>(), 4.5);
  EXPECT_EQ(result.item<double>(), 13.5) << plan.to_string();
}

TEST(Plan, TablesThatNobodyNeeds) {
  const Tensor z = rand({2, 3, 8}, floats()), x = rand({2, 3, 6}, floats());
  expect_eager_bits({x, z}, [&] {
    const Tensor w = z * Scalar(2);
    (void)(pad(x, {1, 1}, "reflect") + z);
    return std::vector{w, pad(x, {1, 1}, "reflect") * z};
  });
}

// Programs of different derivatives share products, some of which are contracted with sums.
TEST(Plan, GradientsOfSeveralCalls) {
  const auto gradient_of = [](const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
    const EnableGradGuard guard;
    const Tensor leaf = x.detach().requires_grad_();
    return autograd::grad(f(leaf).sum(), leaf)[0];
  };
  const Tensor x = rand({1000}, floats()), y = rand({1000}, floats());
  expect_eager_bits({x, y}, [&] {
    const Tensor t = x.tanh();
    return std::vector{t * t, gradient_of([](const Tensor& v) { return v.tanh(); }, x),
                       y + gradient_of([](const Tensor& v) { return v.cos().mul(v); }, x),
                       x * x + gradient_of([](const Tensor& v) { return v.atan(); }, x),
                       gradient_of([](const Tensor& v) { return v.asinh().mul(v).sigmoid(); }, x)};
  });
}

TEST(Plan, ManyNumbers) {
  const Tensor x = rand({100}, floats());
  expect_eager_bits({x}, [&] {
    Tensor y = x;
    for (int k = 0; k < 200; ++k) y = y * Scalar(1 + 1.0 / (k + 1));
    return std::vector{y};
  });
}

TEST(Plan, IsNotMadeWhileCallsAreRecorded) {
  const Tensor x = rand({4}, floats());
  Tensor y;
  const auto plan = compile::plan([&] { y = x + x; });
  prim::Recorder recorder;
  const Recording recording(recorder);
  EXPECT_THROW(plan->run(), ValueError);
  EXPECT_THROW((void)compile::plan([] {}), ValueError);
}

TEST(Plan, WhatNobodyReads) {
  const Tensor x = rand({8, 8}, floats());
  expect_eager_bits(
      {x},
      [&] {
        (void)x.exp().sum();
        (void)matmul(x, x);
        return std::vector{x + Scalar(1)};
      },
      [](const compile::PlanStats& s) { EXPECT_EQ(s.steps, 1); });
}

TEST(Plan, TemporariesShareAnArena) {
  const Tensor x = rand({32, 32}, floats());
  expect_eager_bits(
      {x},
      [&] {
        Tensor y = x;
        for (int k = 0; k < 8; ++k) y = matmul(y, x);
        return std::vector{y.clone()};
      },
      [](const compile::PlanStats& s) {
        EXPECT_EQ(s.temporaries, 8u * 32 * 32 * 4);
        EXPECT_LE(s.arena, 2u * 32 * 32 * 4);
      });
}

TEST(Plan, WhatIsMadeOfATemporaryThatEndsIsInItsPlace) {
  const Tensor x = rand({32, 32}, floats());
  const auto arena_is = [](unsigned matrices) {
    return [=](const compile::PlanStats& s) { EXPECT_EQ(s.arena, matrices * 32 * 32 * 4); };
  };
  // By one kernel for elements, one for rows, and dropout.
  expect_eager_bits(
      {x}, [&] { return std::vector{matmul(matmul(x, x).sin(), x)}; }, arena_is(1));
  expect_eager_bits(
      {x}, [&] { return std::vector{matmul(matmul(x, x).softmax(1), x)}; }, arena_is(1));
  manual_seed(3);
  {
    const auto plan =
        compile::plan([&] { Tensor(x).copy_(matmul(dropout(matmul(x, x), 0.5, true), x)); });
    EXPECT_EQ(plan->stats().arena, 32u * 32 * 4 * 2) << plan->to_string();  // and x's successor
  }
  // Not if it does not end there, has another type, or is read in another order.
  expect_eager_bits(
      {x},
      [&] {
        const Tensor y = matmul(x, x);
        return std::vector{matmul(y.sin(), x), matmul(y, x)};
      },
      arena_is(2));
  expect_eager_bits(
      {x}, [&] { return std::vector{matmul(matmul(x, x).to(kFloat64), x.to(kFloat64))}; },
      arena_is(5));
  expect_eager_bits(
      {x}, [&] { return std::vector{matmul(matmul(x, x).t().contiguous().sin(), x)}; },
      arena_is(2));
}

TEST(Plan, OneResultIsInThePlaceOfATemporaryThatEnds) {
  // One kernel for so few rows stays as it is: one of its results has no readers, and is written
  // after the other.
  prim::FusedSpec spec{.stages = {}, .n_inputs = 1, .n_outputs = 2};
  const auto add = [&](prim::FusedStage::Kind kind, int from, int output, double factor) {
    const DType types[] = {kFloat32};
    spec.stages.push_back(
        {kind,
         expr::trace([=](auto v) { return std::vector{v[0] * factor}; }, types, {}, types),
         {from},
         prim::Monoid::sum,
         output});
  };
  add(prim::FusedStage::Kind::reduce, 0, 0, 1);
  add(prim::FusedStage::Kind::store, 0, 1, 2);
  add(prim::FusedStage::Kind::store, ~0, 0, 3);
  const Tensor x = rand({4, 32}, floats()), w = rand({32, 32}, floats());
  for (const auto& [is_first_read, is_second_read] :
       {std::pair{true, true}, std::pair{false, true}, std::pair{true, false}}) {
    const auto f = [&, is_first_read, is_second_read] {
      const Tensor y = matmul(x, w), first = empty(y.sizes(), floats()),
                   second = empty(y.sizes(), floats());
      const prim::View in = ops::view_of(y), out[] = {ops::view_of(first), ops::view_of(second)};
      ops::target(y.device()).fused({&spec, y.sizes(), 1, {&in, 1}, out, {}});
      std::vector<Tensor> all;
      if (is_first_read) all.push_back(matmul(first, w));
      if (is_second_read) all.push_back(matmul(second, w));
      return all;
    };
    expect_eager_bits({x, w}, f, [](const compile::PlanStats& s) {
      EXPECT_EQ(s.arena, 2u * 4 * 32 * 4);  // of the product one is in the place
    });
  }
}

TEST(Plan, CopiesOfTemporariesAreLeftOut) {
  const Tensor x = rand({32, 32}, floats());
  Tensor kept = zeros({32, 32}, floats());
  expect_eager_bits(
      {x},
      [&] {
        Tensor(kept).copy_(matmul(x, x));
        return std::vector{kept};
      },
      [](const compile::PlanStats& s) {
        EXPECT_EQ(s.steps, 1);
        EXPECT_EQ(s.arena, 0u);
      });
  // Not where the place is read until then.
  expect_eager_bits(
      {x},
      [&] {
        Tensor(x).copy_(matmul(x, x));
        return std::vector{x};
      },
      [](const compile::PlanStats& s) { EXPECT_EQ(s.steps, 2); });
}

TEST(Plan, BranchesOfOneProgramMeet) {
  const Tensor p = rand({500}, floats()), q = rand({500}, floats());
  expect_eager_bits(
      {p, q},
      [&] {
        const Tensor a = p.tanh(), b = q.sigmoid(), c = p * Scalar(1.5);
        return std::vector{(c + q) * b - a};
      },
      expect_steps(1));
  // More operands than a kernel may have.
  expect_eager_bits({p, q}, [&] {
    std::vector<Tensor> all;
    for (int k = 0; k < 60; ++k) all.push_back(p * Scalar(k) + q);
    return all;
  });
}

TEST(Plan, IsEmptyWithoutCalls) {
  const auto plan = compile::plan([] {});
  plan->run();
  EXPECT_EQ(plan->stats().steps, 0);
  EXPECT_EQ(plan->to_string(), "");
}

TEST(Plan, NumbersInMemory) {
  const Tensor x = rand({100}, floats());
  const auto f = [&](double v) { return (x * Scalar(v) + Scalar(1)).exp() * Scalar(v); };
  const double half = 0.5;
  Tensor value = tensor_from_host(&half, kFloat64, {}, TensorOptions(test_device()));
  prim::Recorder recorder;
  Tensor result;
  {
    const Recording recording(recorder);
    result = f(half);
  }
  for (size_t c = 0; c < recorder.calls().size(); ++c) {
    const auto numbers = recorder.calls()[c]->numbers();
    for (size_t k = 0; k < numbers.size(); ++k)
      if (numbers[k].dtype == kFloat64 && numbers[k].value.f == half)
        recorder.put_in_memory(c, k, ops::view_of(value));
  }
  const compile::Plan plan(recorder);
  for (const double v : {0.5, 0.25, 3.0}) {
    value.fill_(Scalar(v));
    plan.run();
    EXPECT_EQ(bits(result), bits(f(v))) << v << "\n" << plan.to_string();
  }
}

TEST(Plan, RefusesToReadValues) {
  const Tensor x = rand({4}, floats());
  EXPECT_THROW((void)compile::plan([&] { (void)x.sum().item<double>(); }), ValueError);
  // Nothing of it stays.
  EXPECT_EQ((x + x).sum().item<float>(), (x * Scalar(2)).sum().item<float>());
}

// Programs of random calls on a few tensors and views of them.
TEST(Plan, RandomPrograms) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    manual_seed(seed);
    const std::vector<Tensor> inputs{rand({4, 6}, floats()), rand({6}, floats()),
                                     rand({4, 6}, TensorOptions(kFloat64, test_device())),
                                     rand({6, 4}, floats())};
    const auto program = [&] {
      std::mt19937 choose(seed);
      std::vector<Tensor> pool = inputs;
      const auto any = [&] { return pool[choose() % pool.size()]; };
      // One that has another's shape, or broadcasts to it.
      const auto fitting = [&](const Tensor& t) {
        for (int tries = 0; tries < 8; ++tries) {
          const Tensor u = any();
          if (std::ranges::equal(u.sizes(), t.sizes()) || u.dim() == 0) return u;
        }
        return t;
      };
      for (int step = 0; step < 24; ++step) {
        const Tensor a = any(), b = fitting(a);
        try {
          switch (choose() % 14) {
            case 0:
              pool.push_back(a + b);
              break;
            case 1:
              pool.push_back(a * b);
              break;
            case 2:
              pool.push_back((a - b).tanh());
              break;
            case 3:
              pool.push_back(add(a * b, b, Scalar(0.5)));
              break;
            case 4:
              Tensor(a).add_(b.to(a.dtype()));
              break;
            case 5:
              Tensor(a).mul_(Scalar(0.5));
              break;
            case 6:
              Tensor(a).copy_(b);
              break;
            case 7:
              if (a.dim() == 2) pool.push_back(a.transpose(0, 1));
              break;
            case 8:
              if (a.dim() > 0) pool.push_back(a.select(0, int64_t(choose() % uint64_t(a.size(0)))));
              break;
            case 9:
              if (a.dim() > 0)
                pool.push_back(a.sum({int64_t(choose()) % a.dim()}, true).expand(a.sizes()) * b);
              break;
            case 10:
              pool.push_back(a.to(a.dtype() == kFloat32 ? kBFloat16 : kFloat32));
              break;
            case 11:
              pool.push_back(a.mean());
              break;
            case 12:
              if (a.dim() == 2) pool.push_back(softmax(a, 1));
              break;
            default:
              Tensor(a).fill_(Scalar(double(step)));
              break;
          }
        } catch (const Error&) {
          // Written memory that overlaps, or is there once for several elements.
        }
        if (pool.size() > 8) pool.erase(pool.begin() + 4 + std::ptrdiff_t(choose() % 4));
      }
      return pool;
    };
    expect_eager_bits(inputs, program);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace arete::test
