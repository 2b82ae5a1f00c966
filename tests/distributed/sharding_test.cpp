// Parameters of which each process keeps rows; processes are threads here.
#include "arete/distributed/sharding.h"

#include <gtest/gtest.h>

#include <functional>

#include "arete/arete.h"
#include "arete/autograd/engine.h"
#include "arete/distributed/reducer.h"
#include "tests/distributed/rank_threads.h"

namespace arete::distributed {
namespace {

using test::floats;
using test::with_ranks;

Tensor weight(int64_t rows, int64_t columns) {
  return sin(arange(rows * columns, kFloat32) * 1.3).reshape({rows, columns}).requires_grad_();
}

// A layer and a second one, each of which is a group.
struct Layers {
  Tensor first = weight(5, 4), second = weight(3, 5), bias = weight(1, 3).detach().reshape({3});
  std::vector<std::shared_ptr<ShardedParameters>> groups;
  Layers() { bias = bias.clone().requires_grad_(); }
  void shard(const ProcessGroupPtr& g, ShardingOptions options = {}, bool columns = false) {
    if (columns) options.dims = {1};
    groups = {ShardedParameters::make({first}, {"first"}, g, options)};
    if (columns) options.dims = {1, 0};
    groups.push_back(ShardedParameters::make({second, bias}, {"second", "bias"}, g, options));
    const auto network = std::make_shared<ShardedNetwork>();
    for (const auto& group : groups) group->join(network);
  }
  Tensor operator()(const Tensor& x) {
    const auto run = [&](size_t i, const Tensor& in, const std::function<Tensor()>& f) {
      if (groups.empty()) return f();
      groups[i]->before_forward({&in, 1});
      Tensor out = f();
      groups[i]->after_forward({&out, 1});
      return out;
    };
    const Tensor y = run(0, x, [&] { return tanh(matmul(x, first.t())); });
    return run(1, y, [&] { return matmul(y, second.t()) + bias; });
  }
  std::vector<Tensor> parameters() const { return {first, second, bias}; }
};
Tensor rows_of(int rank, int step) {
  return cos(arange(24, kFloat32) * (rank + 1) + step).reshape({6, 4});
}

void expect_the_rows_of_reduced_ones(bool columns) {
  for (const int size : {1, 2, 3})
    with_ranks(size, [&](const ProcessGroupPtr& g) {
      Layers whole, shards;
      const auto reducer = Reducer::make(whole.parameters(), {}, g);
      shards.shard(g, {}, columns);
      for (int step = 0; step < 3; ++step) {
        for (Layers* l : {&whole, &shards}) {
          for (const Tensor& p : l->parameters()) p.set_grad(Tensor());
          reducer->prepare(true);
          (*l)(rows_of(g->rank(), step)).square().mean().backward();
        }
        for (size_t i = 0; i < 2; ++i) {
          const auto& group = shards.groups[i];
          EXPECT_FALSE(group->is_unsharded());
          for (size_t k = 0; k < group->parameters().size(); ++k) {
            const Tensor grad = group->parameters()[k].grad();
            const Tensor want = whole.parameters()[i + k].grad();
            ASSERT_TRUE(grad.defined());
            EXPECT_EQ(grad.layout().sizes, group->parameters()[k].layout().sizes);
            const std::vector<float> got = floats(group->gathered(k, grad)),
                                     expected = floats(want);
            ASSERT_EQ(got.size(), expected.size());
            for (size_t e = 0; e < got.size(); ++e) {
              if (size < 3 && !columns)
                EXPECT_EQ(got[e], expected[e]) << "rank " << g->rank() << ", element " << e;
              else
                EXPECT_NEAR(got[e], expected[e], 1e-6);
            }
          }
        }
      }
    });
}

TEST(Sharding, GradientsAreTheRowsOfReducedOnes) { expect_the_rows_of_reduced_ones(false); }
TEST(Sharding, AndTheColumns) { expect_the_rows_of_reduced_ones(true); }

TEST(Sharding, RowsMemoryAndErrors) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    Layers l;
    const std::vector<float> before = floats(l.first);
    const TensorImpl* const leaf = l.first.impl();
    l.shard(g);
    auto& group = *l.groups[0];
    EXPECT_EQ(l.first.impl(), leaf);
    EXPECT_EQ(l.first.size(0), g->rank() == 0 ? 3 : 2);
    EXPECT_EQ(group.first_row(0), 3 * g->rank());
    EXPECT_EQ(floats(group.gathered(0)), before);
    group.unshard(true);
    EXPECT_EQ(floats(l.first), before);
    const Tensor kept = l.first.detach().narrow(0, 0, 1);
    group.reshard();
    EXPECT_THROW(kept.sum().item<float>(), ValueError);  // nobody looks at memory that is gone
    // A write to the shard between the passes is noticed.
    const Tensor loss = l(rows_of(0, 0)).sum();
    {
      const NoGradGuard no_grad;
      l.second.mul_(2);
    }
    EXPECT_THROW(loss.backward(), AutogradError);
    EXPECT_EQ(l.first.size(0), g->rank() == 0 ? 3 : 2);
    l(rows_of(0, 0)).sum().backward();
    EXPECT_TRUE(l.first.grad().defined());
    EXPECT_THROW(l(rows_of(0, 0)).sum().backward({}, false, true), AutogradError);
  });
  with_ranks(1, [](const ProcessGroupPtr& g) {
    EXPECT_THROW(ShardedParameters::make({full({}, 1.0, kFloat32)}, {"a"}, g), ValueError);
    EXPECT_THROW(ShardedParameters::make({weight(2, 3).detach().t()}, {"a"}, g),
                 NotImplementedError);
    EXPECT_THROW(ShardedParameters::make({weight(2, 3)}, {"a"}, g, {.dims = {2}}), ValueError);
    EXPECT_THROW(
        ShardedParameters::make({weight(2, 3), weight(2, 3).detach().to(kFloat64).requires_grad_()},
                                {"a", "b"}, g),
        NotImplementedError);
    EXPECT_THROW(ShardedParameters::make({}, {}, g), ValueError);
  });
}

// Some ranks keep all rows between the passes, a part each: the pass backward gathers among them,
// in fewer messages to others, and has the same bits.
TEST(Sharding, NeighboursKeepRowsForThePassBackward) {
  with_ranks(4, [](const ProcessGroupPtr& g) {
    const int first = g->rank() / 2 * 2;
    const auto store = std::make_shared<PrefixStore>("pair" + std::to_string(first), g->store());
    const auto pair = std::make_shared<ProcessGroup>(
        "pair" + std::to_string(first), g->backend(), store, g->rank() - first,
        std::vector{first, first + 1}, std::chrono::minutes(1));
    Layers all, pairs;
    all.shard(g);
    pairs.shard(g, {.kept_by = pair});
    for (int step = 0; step < 2; ++step) {
      pairs(rows_of(g->rank(), 7));  // of which nothing goes backward
      for (Layers* l : {&all, &pairs}) {
        for (const Tensor& p : l->parameters()) p.set_grad(Tensor());
        const Tensor loss = (*l)(rows_of(g->rank(), step)).square().mean();
        EXPECT_FALSE(l->groups[0]->is_unsharded());
        loss.backward();
        const NoGradGuard no_grad;
        for (const Tensor& p : l->parameters())
          if (p.numel() > 0) Tensor(p).add_(p.grad(), -0.1);
      }
    }
    for (size_t i = 0; i < 3; ++i)
      EXPECT_EQ(floats(all.parameters()[i]), floats(pairs.parameters()[i]));
    // Values that have changed meanwhile are those of all, and an error for who has saved others.
    const Tensor loss = pairs(rows_of(g->rank(), 0)).sum();
    {
      const NoGradGuard no_grad;
      for (Tensor p : pairs.parameters()) p.mul_(2);
    }
    EXPECT_THROW(loss.backward(), AutogradError);
    const auto other = std::make_shared<ProcessGroup>(
        "other", g->backend(), std::make_shared<PrefixStore>("o", g->store()), 3 - g->rank(),
        std::vector{3, 2, 1, 0}, std::chrono::minutes(1));
    EXPECT_THROW(ShardedParameters::make({weight(4, 3)}, {"a"}, g, {.kept_by = other}), ValueError);
  });
}

TEST(Sharding, SumsInAnotherDtypeAndMicroBatches) {
  with_ranks(2, [](const ProcessGroupPtr& g) {
    Layers l, whole;
    l.shard(g, {.param_dtype = kBFloat16, .reduce_dtype = kFloat32});
    for (const auto& group : l.groups) group->reduces = false;
    l(rows_of(g->rank(), 0).to(kBFloat16)).square().mean().backward();
    EXPECT_FALSE(l.first.grad().defined());
    for (const auto& group : l.groups) group->reduces = true;
    l(rows_of(g->rank(), 1).to(kBFloat16)).square().mean().backward();
    ASSERT_TRUE(l.first.grad().defined());
    EXPECT_EQ(l.first.grad().dtype(), kFloat32);
    // The same by hand.
    Tensor first = whole.first.detach().to(kBFloat16).requires_grad_();
    Tensor second = whole.second.detach().to(kBFloat16), bias = whole.bias.detach().to(kBFloat16);
    Tensor sum;
    for (int step = 0; step < 2; ++step) {
      first.set_grad(Tensor());
      const Tensor x = rows_of(g->rank(), step).to(kBFloat16);
      (matmul(tanh(matmul(x, first.t())), second.t()) + bias).square().mean().backward();
      const Tensor grad = first.grad().to(kFloat32);
      sum = sum.defined() ? sum + grad : grad;
    }
    g->all_reduce(sum);
    EXPECT_EQ(floats(l.groups[0]->gathered(0, l.first.grad())), floats(sum / 2));
  });
}

}  // namespace
}  // namespace arete::distributed
