// Data-parallel training, in which processes are threads here: what is reduced, when, and into
// what.
#include "arete/distributed/data_parallel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <set>

#include "arete/arete.h"
#include "arete/autograd/engine.h"
#include "arete/base/distributed_error.h"
#include "arete/compile/compile.h"
#include "arete/core/sparse.h"
#include "arete/distributed/distributed.h"
#include "arete/distributed/sync_batch_norm.h"
#include "arete/ops/sparse.h"
#include "tests/distributed/rank_threads.h"

namespace arete::distributed {
namespace {

using test::floats;
using test::with_ranks;
using Floats = std::vector<float>;
Tensor parameter(int64_t n, double value, DType dtype = kFloat32) {
  return full({n}, value, dtype).requires_grad_();
}
void forget(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors) t.set_grad(Tensor());
}

struct Net : nn::Module {
  nn::Linear first = child("first", nn::Linear(6, 16));
  nn::Linear second = child("second", nn::Linear(16, 3));
  Tensor forward(const Tensor& x) override { return second(tanh(first(x))); }
};
Tensor batch(int rank, int step) {
  return sin(arange(8 * 6, kFloat32) * (1 + rank) + step).reshape({8, 6});
}

// Note [Sums in one order]: four micro-batches a step, of which each rank has its part.
TEST(Reducers, DeterministicSumsAreTheSameOnAnyNumberOfRanks) {
  std::vector<Floats> trained;
  std::mutex mutex;
  for (const int size : {1, 2, 4})
    with_ranks(size, [&](const ProcessGroupPtr& g) {
      Tensor w = cos(arange(35, kFloat32) * 1.7).reshape({7, 5}).requires_grad_();
      Tensor b = sin(arange(7, kFloat32)).requires_grad_();
      const auto reducer = Reducer::make({w, b}, {"w", "b"}, g,
                                         {.bucket_bytes = {64, 25 << 20}, .deterministic = true});
      EXPECT_THROW(reducer->set_hook(allreduce_hook(g)), ValueError);
      const int own = 4 / size;
      for (int step = 0; step < 5; ++step) {
        forget({w, b});
        for (int m = 0; m < own; ++m) {
          const float k = float(step * 4 + g->rank() * own + m);
          const Tensor x = sin(arange(15, kFloat32) * 0.9 + 3.1 * k).reshape({3, 5});
          reducer->prepare(m == own - 1);
          ((tanh(matmul(x, w.t()) + b) * 0.3).square().sum() / own).backward();
        }
        const NoGradGuard no_grad;
        w.sub_(w.grad() * 0.37);
        b.sub_(b.grad() * 0.37);
      }
      Floats result = floats(w);
      for (const float v : floats(b)) result.push_back(v);
      const std::lock_guard lock(mutex);
      trained.push_back(std::move(result));
    });
  ASSERT_EQ(trained.size(), 7u);
  for (const Floats& t : trained) EXPECT_EQ(t, trained[0]);
}

TEST(Reducers, DeterministicOnesAccumulateAsOthersDo) {
  const auto accumulates = [](const ProcessGroupPtr& g) {
    Tensor a = parameter(2, 1), unused = parameter(1, 1);
    const auto reducer = Reducer::make({a, unused}, {"a", "unused"}, g, {.deterministic = true});
    const auto step = [&](double factor) { (a * factor * (g->rank() + 1)).sum().backward(); };
    reducer->prepare(false);
    for (const double factor : {1, 2, 4}) step(factor);
    EXPECT_EQ(floats(a.grad()), Floats(2, 7.0F * float(g->rank() + 1)));
    {
      const NoGradGuard no_grad;
      a.grad().mul_(2);  // what a program does with a sum stays done
    }
    step(1);
    EXPECT_EQ(floats(a.grad()), Floats(2, 15.0F * float(g->rank() + 1)));
    EXPECT_FALSE(unused.grad().defined());
    // A pass that fails leaves the sum.
    const Tensor y = a * 1;
    autograd::register_hook(*gradient_edge(y).node,
                            Node::PreHook([](TensorList&) { throw ValueError("", "no"); }));
    EXPECT_THROW((y + a).sum().backward(), ValueError);
    EXPECT_EQ(floats(a.grad()), Floats(2, 15.0F * float(g->rank() + 1)));
    reducer->prepare(true);
    step(1);
    const int n = g->size();
    EXPECT_EQ(floats(a.grad()), Floats(2, 8.0F * float(n + 1)));
    EXPECT_FALSE(unused.grad().defined());
  };
  for (const int size : {1, 3, 6}) with_ranks(size, accumulates);  // 6: of 5 numbers one has none
}

TEST(Reducers, MeansAreViewsThatStayWhereTheyAre) {
  with_ranks(3, [](const ProcessGroupPtr& g) {
    const float rank = float(g->rank());
    Tensor a = parameter(2, 1), b = parameter(3, 2), half = parameter(2, 1, kBFloat16);
    const auto reducer = Reducer::make({a, b, half}, {"a", "b", "half"}, g);
    EXPECT_EQ(reducer->buckets(), (std::vector<std::vector<size_t>>{{2}, {1, 0}}));
    const auto step = [&](double factor) {
      ((a * (rank + 1) * factor).sum() + (b * b * rank).sum() + (half * 4 * rank).sum()).backward();
    };
    step(1);
    EXPECT_EQ(floats(a.grad()), (Floats{2, 2}));
    EXPECT_EQ(floats(b.grad()), (Floats{4, 4, 4}));
    EXPECT_EQ(floats(half.grad()), (Floats{4, 4}));
    EXPECT_EQ(half.grad().dtype(), kBFloat16);
    EXPECT_EQ(a.grad().storage(), b.grad().storage());
    EXPECT_EQ(reducer->rebuilt(), 1);
    step(1);  // accumulates
    EXPECT_EQ(floats(a.grad()), (Floats{4, 4}));
    forget({a, b, half});
    step(1);
    const void* const at = a.grad().data_ptr();
    forget({a, b, half});
    step(3);
    EXPECT_EQ(floats(a.grad()), (Floats{6, 6}));
    EXPECT_EQ(a.grad().data_ptr(), at);
    // What somebody keeps stays as it is.
    const Tensor kept = a.grad(), part = b.grad().detach();
    forget({a, b, half});
    step(1);
    EXPECT_EQ(floats(kept), (Floats{6, 6}));
    EXPECT_EQ(floats(part), (Floats{4, 4, 4}));
    EXPECT_EQ(floats(a.grad()), (Floats{2, 2}));
    EXPECT_NE(a.grad().data_ptr(), at);
    // Gradients that were zeroed are added to.
    for (const Tensor& t : {a, b, half}) t.grad().zero_();
    step(1);
    EXPECT_EQ(floats(b.grad()), (Floats{4, 4, 4}));
    EXPECT_EQ(reducer->rebuilt(), 1);
  });
}

TEST(Reducers, ComplexGradients) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    Tensor z = ones({2}, kComplex64).requires_grad_(), a = parameter(1, 1);
    const auto reducer = Reducer::make({z, a}, {}, g);
    for (int pass = 1; pass < 3; ++pass) {
      (view_as_real(z).sum() * (g->rank() + 1)).backward();
      EXPECT_EQ(floats(view_as_real(z.grad())), Floats(4, 1.5f * pass));
    }
  });
}

TEST(Reducers, BucketsFollowTheOrderOfRankZero) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    std::vector<Tensor> p;
    for (int i = 0; i < 5; ++i) p.push_back(parameter(100, i + 1));
    const auto reducer = Reducer::make(p, {}, g, {.bucket_bytes = {400, 800}});
    EXPECT_EQ(reducer->buckets(), (std::vector<std::vector<size_t>>{{4}, {3, 2}, {1, 0}}));
    // Rank 0 uses them from the last to the first, so that its gradients come from the first on.
    const auto run = [&] {
      Tensor y = ones({100});
      for (int i = 0; i < 5; ++i) y = y * p[size_t(g->rank() == 0 ? 4 - i : i)];
      y.sum().backward();
    };
    for (int step = 0; step < 3; ++step) {
      run();
      for (int i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(p[i].grad()[99].item<float>(), 120.f / (i + 1));
      forget(p);
      EXPECT_EQ(reducer->buckets(), (std::vector<std::vector<size_t>>{{0}, {1, 2}, {3, 4}}));
    }
  });
}

// The list of sizes begins anew for each dtype.
TEST(Reducers, SizesOfBucketsCountForEachDtype) {
  with_ranks(1, [](const ProcessGroupPtr& g) {
    std::vector<Tensor> p;
    for (int i = 0; i < 8; ++i)
      p.push_back(zeros({16}, i % 2 ? kFloat32 : kFloat64).requires_grad_());
    const auto reducer = Reducer::make(p, {}, g, {.bucket_bytes = {64, 1000}});
    EXPECT_EQ(reducer->buckets(),
              (std::vector<std::vector<size_t>>{{7}, {6}, {5, 3, 1}, {4, 2, 0}}));
  });
}

TEST(Reducers, BucketsAreUnderWayDuringThePass) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    Tensor a = parameter(4, 1), b = parameter(4, 2);
    std::vector<std::string> log;
    const auto reducer = Reducer::make({a, b}, {}, g, {.bucket_bytes = {1}});
    reducer->set_hook([&](const GradBucket& bucket) {
      log.push_back("bucket " + std::to_string(bucket.index) + (bucket.is_last ? " last" : ""));
      return allreduce_hook(g)(bucket);
    });
    Tensor y = a * 1;
    y.register_hook([&](const Tensor&) {
      log.push_back("a");
      return Tensor();
    });
    (y * b).sum().backward();
    EXPECT_EQ(log, (std::vector<std::string>{"bucket 0", "a", "bucket 1 last"}));
    EXPECT_EQ(floats(a.grad()), (Floats{2, 2, 2, 2}));
    EXPECT_THROW(reducer->set_hook(allreduce_hook(g)), ValueError);
  });
}

TEST(Reducers, UnusedParameters) {
  for (const bool hook : {false, true})
    with_ranks(2, [&](const ProcessGroupPtr& g) {
      Tensor both = parameter(2, 1), one = parameter(2, 1), none = parameter(2, 1);
      const auto reducer = Reducer::make({both, one, none}, {}, g);
      if (hook) reducer->set_hook(allreduce_hook(g));
      const auto run = [&] {
        Tensor y = both.sum();
        if (g->rank() == 1) y = y + (one * 6).sum();
        y.backward();
      };
      for (int pass = 1; pass < 3; ++pass) {
        run();
        EXPECT_EQ(floats(both.grad()), (Floats{1.f * pass, 1.f * pass}));
        EXPECT_EQ(floats(one.grad()), (Floats{3.f * pass, 3.f * pass}));
        EXPECT_FALSE(none.grad().defined());
      }
      forget({both, one});
      none.set_grad(full({2}, float(g->rank())));  // nobody's affair
      run();
      EXPECT_EQ(floats(none.grad()), Floats(2, float(g->rank())));
      // A pass that was not reduced reached it.
      reducer->prepare(false);
      forget({both, one, none});
      none.sum().backward();
      EXPECT_EQ(floats(none.grad()), (Floats{1, 1}));
      reducer->prepare(true);
      if (g->rank() == 0) none.set_grad(Tensor());
      run();
      EXPECT_EQ(floats(none.grad()), (Floats{0.5, 0.5}));
    });
}

TEST(Reducers, AccumulateOverMicroBatches) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    Tensor a = parameter(2, 1);
    const auto reducer = Reducer::make({a}, {}, g);
    const auto run = [&](bool sync) {
      reducer->prepare(sync);
      (a * (g->rank() + 1)).sum().backward();
    };
    for (int step = 0; step < 3; ++step) {
      run(false);
      EXPECT_EQ(floats(a.grad()), Floats(2, float(g->rank() + 1)));
      run(false);
      run(true);
      EXPECT_EQ(floats(a.grad()), (Floats{4.5, 4.5}));
      forget({a});
    }
  });
}

TEST(Reducers, RefuseWhatTheyCannotDo) {
  with_ranks(1, [](const ProcessGroupPtr& g) {
    Tensor a = parameter(2, 1), b = parameter(2, 1);
    const auto reducer = Reducer::make({a, b}, {"a", "b"}, g, {.static_graph = true});
    const Tensor y = (a * b).sum();
    EXPECT_THROW(y.backward({}, false, true), AutogradError);
    EXPECT_FALSE(a.grad().defined());
    (a * b).sum().backward();
    EXPECT_THROW(a.sum().backward(), ValueError);  // b is missing
    EXPECT_EQ(floats(a.grad()), (Floats{1, 1}));
    // A pass within a pass.
    Tensor z = a * b;
    z.register_hook([&](const Tensor&) {
      (a * b).sum().backward();
      return Tensor();
    });
    EXPECT_THROW(z.sum().backward(), AutogradError);
    forget({a, b});
    (a * b * 2).sum().backward();  // that is over
    EXPECT_EQ(floats(b.grad()), (Floats{2, 2}));
    const auto other = Reducer::make({b}, {}, g);
    EXPECT_THROW(reducer->prepare(true), ValueError);
    EXPECT_THROW(Reducer::make({}, {}, g), ValueError);
    EXPECT_THROW(Reducer::make({ones({2})}, {}, g), AutogradError);
  });
}

TEST(Reducers, HooksAndShadows) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    for (const DType t : {kFloat16, kBFloat16}) {
      Tensor a = parameter(3, 1);
      const auto reducer = Reducer::make({a}, {}, g);
      reducer->set_hook(compress_hook(g, t));
      (a * (1 + 1e-4) * (g->rank() + 1)).sum().backward();
      EXPECT_EQ(floats(a.grad()), (Floats{1.5, 1.5, 1.5}));
      EXPECT_EQ(a.grad().dtype(), kFloat32);
    }
    EXPECT_THROW(compress_hook(g, kFloat32), TypeError);
    // Rank 1 has no more batches.
    Tensor a = parameter(2, 1), b = parameter(2, 1);
    const auto reducer = Reducer::make({a, b}, {}, g);
    for (int step = 0; step < 3; ++step) {
      if (g->rank() == 0)
        (a * b * 4).sum().backward();
      else
        reducer->shadow();
      EXPECT_EQ(a.grad().defined(), g->rank() == 0);
    }
    if (g->rank() == 0) {
      EXPECT_EQ(floats(a.grad()), (Floats{3.5, 3.5}));  // 4 / 2, (2 + 4) / 2, (3 + 4) / 2
    }
  });
}

// The same bits everywhere, and those of one process that accumulates halves of both batches.
TEST(DataParallel, TrainsAsOneProcessWithBothBatches) {
  const auto train = [](auto&& net, const std::vector<Tensor>& parameters, auto&& backward) {
    optim::AdamW optimizer(parameters, {.lr = 0.05});
    for (int step = 0; step < 5; ++step) {
      optimizer.zero_grad();
      backward(net, step);
      optimizer.step();
    }
    std::vector<Floats> values;
    for (const Tensor& p : parameters) values.push_back(floats(p));
    return values;
  };
  manual_seed(3);
  const Net start;
  const Net alone = nn::clone(start);
  const auto expected = train(alone, alone.parameters(), [](const Net& net, int step) {
    for (int rank = 0; rank < 2; ++rank) (net(batch(rank, step)).square().mean() / 2).backward();
  });
  std::mutex mutex;
  with_ranks(2, [&](const ProcessGroupPtr& g) {
    Net own;
    {
      const std::lock_guard lock(mutex);
      own = nn::clone(start);
    }
    if (g->rank() == 1)
      for (Tensor p : own.parameters()) {
        const NoGradGuard guard;
        p.add_(1);  // rank 0's values come over it
      }
    DistributedDataParallel<Net> net(own,
                                     {.group = g, .reducer = {.bucket_bytes = {80, 25 << 20}}});
    EXPECT_EQ(net.state_dict().begin()->first, "module.first.weight");
    std::set<const void*> addresses;
    const auto values = train(net, net.parameters(), [&](const auto& n, int step) {
      n(batch(g->rank(), step)).square().mean().backward();
      if (step > 0) addresses.insert(n.module.first.weight.grad().data_ptr());
    });
    EXPECT_EQ(values, expected);
    EXPECT_EQ(addresses.size(), 1u);
  });
}

TEST(DataParallel, NoSyncAndBuffers) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    nn::Sequential own(nn::Linear(4, 3), nn::BatchNorm1d(3));
    DistributedDataParallel<nn::Sequential> net(own, {.group = g});
    const Tensor x = sin(arange(20, kFloat32) + g->rank() * 3).reshape({5, 4});
    Tensor local;
    {
      const auto guard = net.no_sync();
      net(x).square().sum().backward();
      local = net.parameters()[0].grad().clone();
    }
    Tensor sum = local.clone();
    g->all_reduce(sum, kAvg);
    EXPECT_FALSE(allclose(local, sum));
    net.zero_grad();
    net(x).square().sum().backward();  // another batch norm state, the same gradient
    EXPECT_TRUE(allclose(net.parameters()[0].grad(), sum, 1e-4, 1e-5));
    const Tensor before = net.get_buffer("module.1.running_mean").clone();
    net(x);  // begins with rank 0's statistics
    Tensor of_zero = before.clone();
    g->broadcast(of_zero, 0);
    EXPECT_EQ(allclose(before, of_zero), g->rank() == 0);
    const auto parameters = net.parameters();
    const Tensor of_batch = (matmul(x, parameters[0].t()) + parameters[1]).mean({0});
    EXPECT_TRUE(allclose(net.get_buffer("module.1.running_mean"), of_zero * 0.9 + of_batch * 0.1,
                         1e-4, 1e-5));
  });
}

TEST(DataParallel, SparseGradientsStaySparse) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    const auto rows = [&](const DataParallelOptions& options) {
      manual_seed(1);
      DistributedDataParallel<nn::Embedding> net(nn::Embedding(9, 2, {.sparse = true}), options);
      const Tensor used = tensor(std::vector<int64_t>{1, 2 + 3 * g->rank()});
      net(used).sum().backward();
      const Tensor grad = net.parameters()[0].grad();
      EXPECT_EQ(is_sparse(grad), !options.reducer.deterministic);
      return floats(is_sparse(grad) ? ops::dense_of(grad) : grad);
    };
    Floats expected(18, 0);
    for (const size_t i : {2, 3}) expected[i] = 1;  // both processes' row
    for (const size_t i : {4, 5, 10, 11}) expected[i] = 0.5;
    EXPECT_EQ(rows({.group = g}), expected);
    EXPECT_EQ(rows({.group = g, .reducer = {.deterministic = true}}), expected);
  });
}

// Python's tests compare it with the batch norm of the joined batch in many forms.
TEST(DataParallel, SyncBatchNormIsThatOfTheJoinedBatch) {
  const Tensor all = sin(arange(24, kFloat64)).reshape({8, 3}) + 5;
  Tensor whole = all.clone().requires_grad_();
  nn::BatchNorm1d alone(3);
  alone.to(kFloat64);
  const Tensor expected = alone(whole);
  (expected * all).sum().backward();
  with_ranks(2, [&](const ProcessGroupPtr& g) {
    SyncBatchNorm layer(3, {}, g);
    layer.to(kFloat64);
    const int64_t from = g->rank() == 0 ? 0 : 5, n = g->rank() == 0 ? 5 : 3;
    Tensor x = all.narrow(0, from, n).clone().requires_grad_();
    const Tensor y = layer(x);
    (y * all.narrow(0, from, n)).sum().backward();
    EXPECT_TRUE(allclose(y, expected.narrow(0, from, n)));
    EXPECT_TRUE(allclose(x.grad(), whole.grad().narrow(0, from, n)));
    EXPECT_TRUE(allclose(layer.running_var, alone.running_var));
    layer.eval();
    EXPECT_FALSE(allclose(layer(x), y));
    EXPECT_EQ(layer.name(), "SyncBatchNorm");
    layer.train();
    EXPECT_THROW(layer(ones({3})), ValueError);
  });
}

// One program for the steps of both ranks, each of which has lists of calls of its own.
TEST(DataParallel, CompiledStepsHaveTheBitsOfOthers) {
  const auto step = [](DistributedDataParallel<Net>& net, const Tensor& x) {
    forget(net.module.parameters());
    const Tensor loss = net(x).square().mean();
    loss.backward();
    const NoGradGuard no_grad;
    for (Tensor& p : net.module.parameters()) p.sub_(p.grad() * 0.1);
    return loss.detach();
  };
  const auto compiled = compile::compile(step, {.exact = true, .fullgraph = true});
  with_ranks(2, [&](const ProcessGroupPtr& g) {
    auto mine = compiled;
    const DataParallelOptions options{.group = g, .reducer = {.bucket_bytes = {128, 25 << 20}}};
    DistributedDataParallel<Net> eager((Net()), options);
    DistributedDataParallel<Net> other(nn::clone(eager.module), options);
    for (int k = 0; k < 6; ++k) {
      const Tensor x = batch(g->rank(), k);
      ASSERT_EQ(floats(step(eager, x)), floats(mine(other, x))) << k;
      const auto a = eager.module.parameters(), b = other.module.parameters();
      for (size_t p = 0; p < a.size(); ++p) ASSERT_EQ(floats(a[p]), floats(b[p])) << k;
    }
  });
  const compile::CompileStats stats = compiled.stats();
  EXPECT_EQ(stats.breaks, 0);
  EXPECT_EQ(stats.calls, 12);
  EXPECT_LE(stats.plans, 8);
  EXPECT_NE(compiled.explain().find("all_reduce"), std::string::npos);
}

TEST(DataParallel, CallsOfAGroupThatHasEndedAreErrors) {
  with_ranks(1, [](const ProcessGroupPtr&) {
    const auto store = std::make_shared<HashStore>();
    std::shared_ptr<ProcessGroup> group;
    Tensor kept;
    auto f = compile::compile([&](bool ends) {
      kept = ones({2}) * 2;
      group->all_reduce(kept);
      if (ends) group = nullptr;
      return kept + 1;
    });
    group = std::make_shared<ProcessGroup>("short", "store", store, 0, std::vector{0},
                                           std::chrono::seconds(60));
    EXPECT_EQ(floats(f(false)), Floats(2, 3));
    EXPECT_THROW(f(true), ValueError);
    EXPECT_THROW(floats(kept), ValueError);
  });
}

TEST(DataParallel, RefusesOtherParameters) {
  const auto error = [](int64_t of_one, bool bias) {
    std::string text;
    with_ranks(2, [&](const ProcessGroupPtr& g) {
      nn::Linear net(4, g->rank() == 0 ? 3 : of_one, {.bias = g->rank() == 0 || bias});
      try {
        DistributedDataParallel<nn::Linear> wrapped(net, {.group = g});
        ADD_FAILURE();
      } catch (const ValueError& e) {
        if (g->rank() == 0) text = e.what();
      }
    });
    return text;
  };
  EXPECT_NE(error(5, true).find("[1]: params[0] in this process with sizes [5, 4] appears not to "
                                "match sizes of the same param in process 0."),
            std::string::npos);
  EXPECT_NE(error(3, false).find("Rank 0 has 2 params, while rank 1 has inconsistent 1 params."),
            std::string::npos);
  with_ranks(1, [](const ProcessGroupPtr& g) {
    nn::Linear net(2, 2);
    net.weight.requires_grad_(false);
    DistributedDataParallel<nn::Linear> wrapped(net, {.group = g});
    wrapped(ones({1, 2})).sum().backward();
    EXPECT_FALSE(net.weight.grad().defined());
    const auto copy = nn::clone(wrapped);
    EXPECT_THROW(copy(ones({1, 2})), ValueError);
    net.weight.requires_grad_(true);
    EXPECT_THROW(wrapped(ones({1, 2})), ValueError);
    net.requires_grad_(false);
    EXPECT_THROW((DistributedDataParallel<nn::Linear>(net, {.group = g})), ValueError);
  });
}

}  // namespace
}  // namespace arete::distributed
