// The references are taken by hand, or by loops over elements.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <thread>

#include "arete/core/generator.h"
#include "arete/distributed/distributed.h"
#include "arete/metrics/classification.h"
#include "arete/metrics/detection.h"
#include "arete/metrics/regression.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/shape.h"
#include "arete/ops/softmax.h"
#include "tests/support/errors.h"

namespace arete::metrics {
namespace {

using testing::ElementsAre;
using testing::FloatNear;

Tensor labels(std::vector<int64_t> v) { return tensor(v); }

TEST(Metrics, AccuracyOverBatches) {
  Accuracy micro({.num_classes = 3});
  micro.update(labels({0, 1, 2, 2}), labels({0, 1, 1, 2}));
  micro.update(labels({0}), labels({1}));
  EXPECT_FLOAT_EQ(micro.compute().item<float>(), 3.0f / 5);
  micro.reset();
  micro.update(labels({1}), labels({1}));
  EXPECT_FLOAT_EQ(micro.compute().item<float>(), 1);

  Accuracy macro({.num_classes = 4, .average = Average::macro});
  macro.update(labels({0, 1, 2, 2}), labels({0, 1, 1, 2}));
  EXPECT_FLOAT_EQ(macro.compute().item<float>(), (1 + 0.5f + 1) / 3);  // class 3 never occurs

  Accuracy top2({.num_classes = 3, .top_k = 2});
  top2.update(tensor(std::vector<float>{0.1f, 0.2f, 0.7f, 0.5f, 0.3f, 0.2f}).view({2, 3}),
              labels({1, 2}));
  EXPECT_FLOAT_EQ(top2.compute().item<float>(), 0.5f);

  Accuracy some({.num_classes = 3, .ignore_index = -1});
  some.update(labels({0, 1, 2}), labels({0, -1, 1}));
  EXPECT_FLOAT_EQ(some.compute().item<float>(), 0.5f);
}

TEST(Metrics, PrecisionRecallAndF1OfEachClass) {
  const Tensor preds = labels({0, 0, 1, 2, 2, 2}), target = labels({0, 1, 1, 2, 2, 0});
  const ClassOptions each{.num_classes = 3, .average = Average::none};
  Precision precision(each);
  Recall recall(each);
  F1Score f1(each);
  for (Metric* m : std::initializer_list<Metric*>{&precision, &recall, &f1})
    m->update(preds, target);
  EXPECT_THAT(precision.compute().to_vector<float>(),
              ElementsAre(0.5f, 1, FloatNear(2.0f / 3, 1e-6f)));
  EXPECT_THAT(recall.compute().to_vector<float>(), ElementsAre(0.5f, 0.5f, 1));
  EXPECT_THAT(f1.compute().to_vector<float>(),
              ElementsAre(0.5f, FloatNear(2.0f / 3, 1e-6f), FloatNear(0.8f, 1e-6f)));
}

TEST(Metrics, BinaryAndMultilabelTakeProbabilitiesAndLogits) {
  Accuracy binary({.task = Task::binary});
  binary.update(tensor(std::vector<float>{-3, 2, 0.1f}), labels({0, 1, 0}));       // logits
  binary.update(tensor(std::vector<float>{0.4f, 0.9f, 0.2f}), labels({0, 1, 1}));  // probabilities
  EXPECT_FLOAT_EQ(binary.compute().item<float>(), 4.0f / 6);
  Precision many({.task = Task::multilabel, .num_classes = 2, .average = Average::none});
  many.update(tensor(std::vector<float>{0.9f, 0.1f, 0.8f, 0.7f}).view({2, 2}),
              labels({1, 0, 0, 1}).view({2, 2}));
  EXPECT_THAT(many.compute().to_vector<float>(), ElementsAre(0.5f, 1));
}

TEST(Metrics, ConfusionMatrixHasTargetsAsRows) {
  ConfusionMatrix m({.num_classes = 3, .ignore_index = 7});
  m.update(labels({0, 1, 1, 2, 0}), labels({0, 0, 1, 2, 7}));
  EXPECT_THAT(m.compute().to_vector<int64_t>(), ElementsAre(1, 1, 0, 0, 1, 0, 0, 0, 1));
  EXPECT_THROW(m.update(labels({3}), labels({0})), IndexError);
  EXPECT_THROW(m.update(labels({0}), labels({-1})), IndexError);
}

TEST(Metrics, AreaUnderTheCurveCountsTiesHalf) {
  AUROC area({.task = Task::binary, .average = Average::macro, .ignore_index = -1});
  manual_seed(3);
  const Tensor scores = (rand({200}) * 10).floor() / 10;
  const Tensor target = (rand({200}) < 0.4).to(kInt64);
  area.update(scores.narrow(0, 0, 120), target.narrow(0, 0, 120));
  area.update(scores.narrow(0, 120, 80), target.narrow(0, 120, 80));
  area.update(ones({3}), labels({-1, -1, -1}));
  const auto s = scores.to_vector<double>();
  const auto t = target.to_vector<int64_t>();
  double above = 0, pairs = 0;
  for (size_t i = 0; i < s.size(); ++i)
    for (size_t j = 0; j < s.size(); ++j)
      if (t[i] && !t[j]) pairs += 1, above += s[i] > s[j] ? 1 : s[i] == s[j] ? 0.5 : 0;
  EXPECT_NEAR(area.compute().item<double>(), above / pairs, 1e-6);

  AUROC each({.num_classes = 3, .average = Average::none});
  each.update(eye(3), labels({0, 1, 1}));
  EXPECT_THAT(each.compute().to_vector<float>(), ElementsAre(1, 0.75f, 0));
}

TEST(Metrics, PerplexityAndNumbers) {
  Perplexity p(-100);
  p.update(zeros({1, 3, 8}), labels({1, 7, -100}).view({1, 3}));
  EXPECT_FLOAT_EQ(p.compute().item<float>(), 8);
  MeanSquaredError mse, root(false);
  MeanAbsoluteError mae;
  R2Score r2;
  const Tensor a = tensor(std::vector<float>{1, 2, 3.5f}), b = tensor(std::vector<float>{1, 4, 3});
  for (Metric* m : std::initializer_list<Metric*>{&mse, &root, &mae, &r2}) m->update(a, b);
  EXPECT_FLOAT_EQ(mse.compute().item<float>(), 4.25f / 3);
  EXPECT_FLOAT_EQ(root.compute().item<float>(), std::sqrt(4.25f / 3));
  EXPECT_FLOAT_EQ(mae.compute().item<float>(), 2.5f / 3);
  const double mean = 8.0 / 3;
  EXPECT_NEAR(
      r2.compute().item<double>(),
      1 - 4.25 / ((1 - mean) * (1 - mean) + (4 - mean) * (4 - mean) + (3 - mean) * (3 - mean)),
      1e-6);
  MeanMetric m;
  m.update(tensor(std::vector<float>{1, 2}), tensor(std::vector<float>{1, 3}));
  m.update(tensor(std::vector<float>{7}));
  EXPECT_FLOAT_EQ(m.compute().item<float>(), 14.0f / 5);
}

// The example in torchmetrics' documentation, whose value COCO's own program gives.
TEST(Metrics, AveragePrecisionOfBoxes) {
  MeanAveragePrecision m;
  const auto box = [](std::vector<float> v) { return tensor(v).view({-1, 4}); };
  const Boxes found{box({258, 41, 606, 285}), labels({0}), tensor(std::vector<float>{0.536f})};
  const Boxes wanted{box({214, 41, 562, 285}), labels({0})};
  m.update({&found, 1}, {&wanted, 1});
  EXPECT_NEAR(m.details().at("map"), 0.6, 1e-6);
  EXPECT_NEAR(m.details().at("map_50"), 1, 1e-6);
  EXPECT_NEAR(m.details().at("map_75"), 1, 1e-6);
  EXPECT_NEAR(m.details().at("mar_1"), 0.6, 1e-6);
  // A second picture, with a better score on nothing and a target that nobody found.
  const Boxes wrong{box({0, 0, 5, 5}), labels({0}), tensor(std::vector<float>{0.9f})};
  const Boxes missed{box({100, 100, 200, 200}), labels({0})};
  m.update({&wrong, 1}, {&missed, 1});
  // Recall reaches a half, at precision a half: 51 of 101 points.
  EXPECT_NEAR(m.details().at("map_50"), 51 * 0.5 / 101, 1e-6);
  EXPECT_EQ(MeanAveragePrecision().details().at("map"), -1);
  EXPECT_THROW(m.update({&found, 1}, {}), ValueError);
}

TEST(Metrics, StatesAreMergedSavedAndLoaded) {
  const ClassOptions o{.task = Task::binary, .average = Average::macro};
  AUROC both(o), first(o), second(o);
  manual_seed(1);
  for (int i = 0; i < 4; ++i) {
    const Tensor s = rand({9}), t = (rand({9}) < 0.5).to(kInt64);
    both.update(s, t);
    (i % 2 ? first : second).update(s, t);
  }
  first.merge(second);
  EXPECT_FLOAT_EQ(first.compute().item<float>(), both.compute().item<float>());
  AUROC loaded(o);
  loaded.load_state_dict(both.state_dict());
  EXPECT_FLOAT_EQ(loaded.compute().item<float>(), both.compute().item<float>());
  loaded.update(tensor(std::vector<float>{0.5f}), labels({1}));
  EXPECT_EQ(both.state_dict()[0].second.size(0), 36);
  EXPECT_THROW(loaded.merge(MeanSquaredError()), ValueError);
  EXPECT_THROW(loaded.load_state_dict({}), ValueError);
}

TEST(Metrics, UpdatesKeepNoHistoryAndNoForeignMemory) {
  AUROC area({.task = Task::binary, .average = Average::macro});
  Tensor s = tensor(std::vector<float>{0.1f, 0.9f});
  Tensor wanting = s.clone().requires_grad_();
  area.update(wanting * 1, labels({0, 1}));
  EXPECT_FALSE(area.state_dict()[0].second.requires_grad());
  area.update(s, labels({0, 1}));
  s.zero_();
  EXPECT_FLOAT_EQ(area.compute().item<float>(), 1);
}

// Ranks have seen different numbers of rows, one of them none.
TEST(Metrics, ProcessesComputeWhatOneWould) {
  using namespace distributed;
  manual_seed(5);
  const Tensor s = rand({30}), t = (rand({30}) < 0.5).to(kInt64);
  const ClassOptions binary{.task = Task::binary, .average = Average::macro};
  AUROC whole(binary);
  Accuracy accuracy(binary);
  whole.update(s, t);
  accuracy.update(s, t);
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> threads;
  std::vector<std::vector<double>> found(3);
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      try {
        const auto group = std::make_shared<ProcessGroup>(
            "metrics", "store", store, r, std::vector<int>{0, 1, 2}, std::chrono::seconds(60));
        AUROC area(binary);
        Accuracy part(binary);
        if (r < 2) {
          const int64_t begin = r ? 20 : 0, n = r ? 10 : 20;
          area.update(s.narrow(0, begin, n), t.narrow(0, begin, n));
          part.update(s.narrow(0, begin, n), t.narrow(0, begin, n));
        }
        for (int again = 0; again < 2; ++again) {
          found[size_t(r)].push_back(area.sync_and_compute(group).item<double>());
          found[size_t(r)].push_back(part.sync_and_compute(group).item<double>());
        }
        found[size_t(r)].push_back(double(area.state_dict()[0].second.size(0)));
      } catch (const std::exception& e) {
        ADD_FAILURE() << e.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < 3; ++r) {
    const double a = whole.compute().item<double>(), b = accuracy.compute().item<double>();
    EXPECT_EQ(found[size_t(r)], (std::vector<double>{a, b, a, b, r == 0 ? 20.0 : r == 1 ? 10 : 0}));
  }
}

TEST(Metrics, WrongArgumentsAreRefused) {
  EXPECT_THROW(Accuracy({.num_classes = 1}), ValueError);
  EXPECT_THROW(Accuracy({.num_classes = 3, .top_k = 4}), ValueError);
  EXPECT_THROW(Precision({.num_classes = 3, .top_k = 2}), ValueError);
  EXPECT_THROW(AUROC({.num_classes = 3}), ValueError);  // micro
  EXPECT_THROW(ConfusionMatrix({.task = Task::multilabel, .num_classes = 3}), NotImplementedError);
  Accuracy a({.num_classes = 3});
  EXPECT_THROW(a.update(zeros({4, 5}), labels({0, 1, 2, 0})), ValueError);
  EXPECT_THROW(a.update(zeros({4, 3}), labels({0, 1})), ValueError);
  EXPECT_THROW(a.update(zeros({2}), labels({0, 1})), TypeError);
  EXPECT_THROW(a.update(zeros({2, 3}), zeros({2})), TypeError);
  EXPECT_THROW(a.update(zeros({1, 3}), labels({3})), IndexError);
  EXPECT_THROW(R2Score(2).update(zeros({4}), zeros({4})), ValueError);
  EXPECT_THROW(MeanSquaredError().update(zeros({4}), zeros({1, 4})), ValueError);
  EXPECT_THROW(task_of("ternary"), ValueError);
}

}  // namespace
}  // namespace arete::metrics
