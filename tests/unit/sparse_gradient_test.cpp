// Gradients of tables that are sparse tensors (Note [Sparse tensors]): what they are, how they add
// up, which optimizers take them.
#include <cmath>

#include "arete/ops/sparse.h"
#include "tests/unit/nn_test_support.h"

namespace arete {
namespace {

using test::error_of;
using test::expect_values;
using test::has;

Tensor index_of(std::vector<int64_t> v) { return tensor(v); }

TEST(SparseGradient, RowsThatWereTaken) {
  nn::Embedding table(5, 2, {.padding_idx = 3, .sparse = true});
  table(index_of({1, 3, 4, 1})).sum().backward();
  const Tensor g = table.weight.grad();
  ASSERT_TRUE(is_sparse(g));
  expect_values(sparse_parts(g)->indices, {1, 4, 1});
  EXPECT_FALSE(sparse_parts(g)->coalesced);
  const Tensor once = ops::coalesce(g);
  expect_values(sparse_parts(once)->indices, {1, 4});
  expect_values(sparse_parts(once)->values, {2, 2, 1, 1});
  expect_values(ops::dense_of(g), {0, 0, 2, 2, 0, 0, 0, 0, 1, 1});
  EXPECT_EQ(device_of_elements(g), kCPU);
}

TEST(SparseGradient, OfSeveralDimensionsAndNone) {
  const Tensor x = sparse_tensor({tensor(std::vector<int64_t>{1, 0, 1, 2, 0, 2}).view({2, 3}),
                                  tensor({1.0f, 2.0f, 3.0f}), false},
                                 {2, 3});
  expect_values(ops::dense_of(x), {2, 0, 0, 0, 0, 4});
  expect_values(sparse_parts(ops::coalesce(x))->indices, {0, 1, 0, 2});
  const Tensor none = sparse_tensor({zeros({0, 3}, kInt64), tensor({1.0f, 2.0f, 3.0f}), false}, {});
  EXPECT_EQ(ops::dense_of(none).item<float>(), 6);
  EXPECT_EQ(ops::dense_of(ops::coalesce(none)).item<float>(), 6);
  EXPECT_TRUE(has(error_of([&] {
                    sparse_tensor({zeros({1, 2}, kInt64), ones({3}), false}, {4});
                  }),
                  "do not go together"));
}

TEST(SparseGradient, AddsToWhatIsThere) {
  nn::Embedding table(4, 1, {.sparse = true});
  const auto sparse = [&] { table(index_of({1, 1})).sum().backward(); };
  const auto dense = [&] { (table.weight * 3).sum().backward(); };
  sparse();
  sparse();
  ASSERT_TRUE(is_sparse(table.weight.grad()));
  expect_values(ops::dense_of(table.weight.grad()), {0, 4, 0, 0});
  dense();
  ASSERT_FALSE(is_sparse(table.weight.grad()));
  expect_values(table.weight.grad(), {3, 7, 3, 3});
  sparse();
  expect_values(table.weight.grad(), {3, 9, 3, 3});
}

TEST(SparseGradient, SumsOfManyPassesDoNotGrow) {
  nn::Embedding table(6, 1, {.sparse = true});
  for (int pass = 1; pass <= 40; ++pass) {
    table(index_of({1, 3, 1, 5})).sum().backward();
    const SparseParts* const parts = sparse_parts(table.weight.grad());
    ASSERT_TRUE(parts);
    ASSERT_LE(parts->indices.size(1), 6) << pass;
    ASSERT_EQ(parts->values.size(0), parts->indices.size(1)) << pass;
  }
  expect_values(ops::dense_of(table.weight.grad()), {0, 80, 0, 40, 0, 40});
  // Of two sparse dimensions there are as many places as their product.
  const auto x = [](bool more) {
    return sparse_tensor({tensor(std::vector<int64_t>{0, 1, 1, 0, 1, 1}).view({2, 3}),
                          tensor({1.0f, 2.0f, 3.0f}).view({3, 1}), !more},
                         {2, 2, 1});
  };
  const Tensor sum = ops::sum_of(x(true), x(true));
  expect_values(sparse_parts(sum)->indices, {0, 1, 0, 1});
  expect_values(sparse_parts(sum)->values, {2, 10});
}

TEST(SparseGradient, ZerosLetGoOfTheMemoryOfAllWhoHoldThem) {
  nn::Embedding table(6, 2, {.sparse = true});
  table(index_of({1, 3})).sum().backward();
  const Tensor held = table.weight.grad();
  optim::SGD({table.weight}, {}).zero_grad(false);
  EXPECT_EQ(table.weight.grad().impl(), held.impl());
  const SparseParts& parts = *sparse_parts(held);
  EXPECT_EQ(parts.indices.size(1), 0);
  EXPECT_EQ(Shape(parts.values.sizes()), (Shape{0, 2}));
  EXPECT_EQ(parts.indices.storage()->bytes() + parts.values.storage()->bytes(), 0u);
}

TEST(SparseGradient, StepsTouchTheirRows) {
  const auto run = [](auto make) {
    nn::Embedding table(4, 1, {.sparse = true});
    {
      const NoGradGuard no_grad;
      table.weight.fill_(1);
    }
    auto optimizer = make(table.parameters());
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      (table(index_of({1, 3, 1})) * 2).sum().backward();
      optimizer.step();
    }
    return Tensor(table.weight.detach().clone());
  };
  using Params = std::vector<Tensor>;
  expect_values(run([](Params p) { return optim::SGD(p, {.lr = 0.25}); }), {1, -1, 1, 0});
  expect_values(run([](Params p) { return optim::SGD(p, {.lr = 0.25, .momentum = 0.5}); }),
                {1, -1.5, 1, -0.25});
  const Tensor adam = run([](Params p) { return optim::SparseAdam(p, {.lr = 0.25}); });
  EXPECT_NEAR(adam[1].item<float>(), 0.5, 1e-5);
  EXPECT_EQ(adam[0].item<float>(), 1);
  const Tensor adagrad = run([](Params p) { return optim::Adagrad(p, {.lr = 0.25}); });
  EXPECT_NEAR(adagrad[3].item<float>(), 1 - 0.25 - 0.25 / std::sqrt(2.0), 1e-5);
}

TEST(SparseGradient, RefusedByTheOthers) {
  nn::Embedding table(4, 1, {.sparse = true});
  table(index_of({1})).sum().backward();
  const std::vector<Tensor> p = table.parameters();
  EXPECT_TRUE(has(error_of([&] { optim::Adam(p, {}).step(); }),
                  "Adam does not support sparse gradients, please consider SparseAdam instead"));
  EXPECT_TRUE(has(error_of([&] { optim::RMSprop(p, {}).step(); }),
                  "RMSprop does not support sparse gradients"));
  EXPECT_TRUE(has(error_of([&] { optim::Adagrad(p, {.weight_decay = 0.1}).step(); }),
                  "weight_decay option is not compatible with sparse gradients"));
  const Tensor g = table.weight.grad();
  for (const std::string& text :
       {error_of([&] { (void)g.sin(); }), error_of([&] { (void)g.t(); }),
        error_of([&] { Tensor(g).mul_(2); }), error_of([&] { (void)cumsum(g, 0); })})
    EXPECT_TRUE(has(text, "has no form for sparse tensors")) << text;
  table.weight.set_grad(ones({4, 1}));
  EXPECT_TRUE(has(error_of([&] { optim::SparseAdam(p, {}).step(); }),
                  "SparseAdam does not support dense gradients"));
}

}  // namespace
}  // namespace arete
