// Data sets, and how examples become batches.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data_test_support.h"

namespace arete::data {
namespace {

TEST(Dataset, TensorDatasetGivesRows) {
  const Tensor x = arange(12, kFloat32).view({4, 3}), y = arange(4);
  const TensorDataset d({x, y});
  EXPECT_EQ(d.size(), 4);
  const Example e = d.get(2);
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].to_vector<double>(), (std::vector<double>{6, 7, 8}));
  EXPECT_EQ(e[1].item<int64_t>(), 2);
  const Batch b = d.get_batch({3, 0, 3});
  EXPECT_EQ(b.input().to_vector<double>(), (std::vector<double>{9, 10, 11, 0, 1, 2, 9, 10, 11}));
  EXPECT_EQ(b.target().to_vector<int64_t>(), (std::vector<int64_t>{3, 0, 3}));
}

TEST(Dataset, RefusesWrongIndicesAndSizes) {
  const DatasetPtr d = counting(4);
  for (const int64_t i : {int64_t{4}, int64_t{-1}}) {
    expect_error(ErrorKind::index, {"is out of range for a data set of 4 examples"},
                 [&] { d->get(i); });
    expect_error(ErrorKind::index, {"is out of range"}, [&] { d->get_batch({0, i}); });
  }
  expect_error(ErrorKind::value, {"Size mismatch between tensors", "4 rows"}, [] {
    TensorDataset({arange(4), arange(5)});
  });
  expect_error(ErrorKind::value, {"Size mismatch"}, [] { TensorDataset({arange(4), Tensor()}); });
  expect_error(ErrorKind::value, {"at least one tensor"}, [] { TensorDataset({}); });
  expect_error(ErrorKind::index, {"is out of range"}, [&] { Subset(d, {0, 4}); });
  expect_error(ErrorKind::value, {"null"}, [] { Subset(nullptr, {}); });
  expect_error(ErrorKind::value, {"null"}, [] { ConcatDataset({nullptr}); });
}

TEST(Dataset, SubsetAndConcatMapIndices) {
  const auto part = std::make_shared<Subset>(counting(10), std::vector<int64_t>{7, 1, 7});
  EXPECT_EQ(part->size(), 3);
  EXPECT_EQ(part->get_batch({0, 1, 2}).input().to_vector<int64_t>(),
            (std::vector<int64_t>{7, 1, 7}));
  const ConcatDataset both({counting(2), counting(0), part});
  EXPECT_EQ(both.size(), 5);
  EXPECT_EQ(both.get_batch({0, 1, 2, 3, 4}).input().to_vector<int64_t>(),
            (std::vector<int64_t>{0, 1, 7, 1, 7}));
  EXPECT_THROW(both.get(5), IndexError);
  EXPECT_EQ(ConcatDataset({}).size(), 0);
}

TEST(Dataset, RandomSplitCoversAllOnce) {
  const DatasetPtr d = counting(20);
  const auto parts = random_split(d, {13, 7}, 5);
  ASSERT_EQ(parts.size(), 2u);
  std::vector<int64_t> all;
  for (const DatasetPtr& p : parts)
    for (int64_t i = 0; i < p->size(); ++i) all.push_back(p->get(i)[0].item<int64_t>());
  EXPECT_NE(all, iota_vector(20));
  EXPECT_EQ(sorted(all), iota_vector(20));
  const auto again = random_split(d, {13, 7}, 5);
  for (int64_t i = 0; i < 7; ++i)
    EXPECT_EQ(again[1]->get(i)[0].item<int64_t>(), parts[1]->get(i)[0].item<int64_t>());
  expect_error(ErrorKind::value, {"Sum of input lengths does not equal", "20", "19"}, [&] {
    random_split(d, {13, 6});
  });
  expect_error(ErrorKind::value, {"must not be negative"}, [&] { random_split(d, {-1, 21}); });
}

TEST(Dataset, CollateStacksAndChecks) {
  const Batch b = collate({{zeros({2}), tensor(1)}, {ones({2}), tensor(2)}});
  EXPECT_EQ(b.input().sizes()[0], 2);
  EXPECT_EQ(b.target().to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  expect_error(ErrorKind::value, {"stack expects each tensor to be equal size", "[2]", "[3]"}, [] {
    collate({{zeros({2})}, {zeros({3})}});
  });
  expect_error(ErrorKind::value, {"same number of tensors"}, [] {
    collate({{zeros({2})}, {zeros({2}), zeros({2})}});
  });
  expect_error(ErrorKind::value, {"no examples"}, [] { collate({}); });
  expect_error(ErrorKind::value, {"undefined"}, [] { collate({{Tensor()}}); });
}

TEST(Dataset, CollateOfMadeExamplesIsCollate) {
  const Tensor rows = arange(2 * 5 * 7 * 3, kUInt8).view({2, 5, 7, 3}).permute({0, 3, 1, 2});
  const std::vector<std::function<Example(int64_t)>> makers = {
      [&](int64_t i) {
        return Example{rows.select(0, i % 2), tensor(i)};
      },  // as decoded
      [&](int64_t i) { return Example{rows.select(0, i % 2).narrow(1, 1, 3).narrow(2, 2, 4)}; },
      [&](int64_t i) {
        return Example{rows.select(0, i % 2).flip({2}), rows.select(0, 0)};
      },
      [&](int64_t i) { return Example{rows.select(0, i % 2).transpose(1, 2)}; },
      [&](int64_t i) {
        return Example{rows.select(0, i % 2).contiguous().narrow(1, 1, 3).narrow(2, 2, 4)};
      },
      [&](int64_t i) { return Example{rows.select(0, i % 2).to(kFloat32)}; },
      [&](int64_t i) {
        return Example{i == 2 ? tensor(0.5) : tensor(i)};
      },  // another dtype later on
      [&](int64_t) {
        return Example{zeros({0, 3})};
      },
      [&](int64_t) { return Example{}; },
  };
  for (const auto& make : makers) {
    std::vector<Example> all;
    for (int64_t i = 0; i < 5; ++i) all.push_back(make(i));
    int64_t calls = 0;
    const Batch got = collate(5, [&](int64_t i) {
      EXPECT_EQ(i, calls++);
      return make(i);
    });
    const Batch want = collate(all);
    ASSERT_EQ(got.size(), want.size());
    for (size_t k = 0; k < want.size(); ++k) {
      EXPECT_EQ(got[k].dtype(), want[k].dtype());
      EXPECT_TRUE(got[k].is_contiguous());
      EXPECT_TRUE(equal(got[k], want[k]));
    }
  }
  const auto text = [](const auto& f) -> std::string {
    try {
      f();
    } catch (const ValueError& e) {
      return e.what();
    }
    return "no error";
  };
  const auto grown = [](int64_t i) { return Example{zeros({i / 2})}; };
  const std::string said = text([&] { collate(3, grown); });
  EXPECT_EQ(said, text([&] { collate({grown(0), grown(1), grown(2)}); }));
  EXPECT_NE(said.find("equal size"), std::string::npos) << said;
  EXPECT_EQ(text([&] { collate(0, grown); }), text([] { collate(std::vector<Example>{}); }));
  // What cannot be made comes before what does not fit.
  EXPECT_EQ(text([&] {
              collate(4, [&](int64_t i) -> Example {
                if (i == 3) throw ValueError("", "broken");
                return grown(i);
              });
            }),
            "broken");
}

TEST(Dataset, CollateOfMadeExamplesKeepsGradients) {
  const Tensor x = ones({2}).requires_grad_();
  Batch b = collate(3, [&](int64_t) { return Example{x * 2}; });
  b[0].sum().backward();
  EXPECT_TRUE(equal(x.grad(), full({2}, Scalar(6))));
}

}  // namespace
}  // namespace arete::data
