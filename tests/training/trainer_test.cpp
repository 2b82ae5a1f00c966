#include "arete/training/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "arete/data/dataset.h"
#include "arete/metrics/classification.h"
#include "arete/nn/activation.h"
#include "arete/nn/container.h"
#include "arete/nn/dropout.h"
#include "arete/nn/linear.h"
#include "arete/ops/creation.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/reduce.h"
#include "arete/optim/adam.h"
#include "arete/optim/sgd.h"
#include "tests/support/errors.h"

namespace arete::training {
namespace {

namespace fs = std::filesystem;

data::DatasetPtr points() {
  manual_seed(0);
  const Tensor x = randn({48, 4});
  return std::make_shared<data::TensorDataset>(std::vector<Tensor>{x, (x.sum({1}) > 0).to(kInt64)});
}
Tensor loss_of(const Tensor& output, const Tensor& target) { return cross_entropy(output, target); }

struct Training {
  nn::Sequential net;
  optim::AdamW optimizer;
  optim::CosineAnnealingLR scheduler;
  std::shared_ptr<EarlyStopping> stop = std::make_shared<EarlyStopping>("val_loss", 3);
  std::optional<Trainer> trainer;
  static nn::Sequential network() {
    manual_seed(1);
    return nn::Sequential(nn::Linear(4, 16), nn::ReLU(), nn::Dropout(0.2), nn::Linear(16, 2));
  }
  explicit Training(const std::string& folder = "", std::shared_ptr<Callback> more = nullptr,
                    int64_t accumulate = 1)
      : net(network()), optimizer(net.parameters(), {.lr = 0.02}), scheduler(optimizer, 6) {
    TrainerOptions o;
    o.scheduler = &scheduler;
    o.metrics = {
        {"accuracy", std::make_shared<metrics::Accuracy>(metrics::ClassOptions{.num_classes = 2})}};
    o.callbacks = {stop};
    if (more) o.callbacks.push_back(more);
    o.accumulate = accumulate;
    o.folder = folder;
    o.progress = false;
    trainer.emplace(net, optimizer, loss_of, o);
  }
};

class Folder {
 public:
  Folder() : path_(fs::path(testing::TempDir()) / ("trainer_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

TEST(Trainer, FitsValidatesAndPredicts) {
  const auto set = points();
  Training run;
  data::DataLoader train(set, {.batch_size = 8, .shuffle = true}), test(set, {.batch_size = 7});
  const auto& history = run.trainer->fit(train, &test, 6);
  ASSERT_EQ(history.size(), 6u);
  EXPECT_EQ(history[5].at("step"), 36);
  EXPECT_LT(history[5].at("train_loss"), history[0].at("train_loss"));
  EXPECT_GT(history[5].at("val_accuracy"), 0.9);
  EXPECT_LT(history[5].at("lr"), history[0].at("lr"));
  EXPECT_TRUE(run.net.is_training());
  const Tensor out = run.trainer->predict(test);
  EXPECT_EQ(out.size(0), 48);
  EXPECT_FALSE(out.requires_grad());
  // A last batch that is not full counts by its size.
  std::vector<int64_t> all(48);
  for (int64_t i = 0; i < 48; ++i) all[size_t(i)] = i;
  const data::Batch whole = set->get_batch(all);
  run.net.eval();
  EXPECT_NEAR(run.trainer->validate(test).at("val_loss"),
              cross_entropy(run.net(whole.input()), whole.target()).item<double>(), 1e-5);
}

TEST(Trainer, AResumedRunHasTheSameBits) {
  const auto set = points();
  const Folder folder;
  std::vector<nn::StateDict> ends;
  std::vector<std::vector<Figures>> figures;
  std::vector<double> best;
  for (const auto& [name, parts] :
       std::map<std::string, std::vector<int64_t>>{{"parts", {2, 4}}, {"whole", {4}}})
    for (const int64_t epochs : parts) {
      Training run(folder / name);  // as a new process would
      data::DataLoader train(set, {.batch_size = 8, .shuffle = true}),
          test(set, {.batch_size = 16});
      auto history = run.trainer->fit(train, &test, epochs, true);
      if (epochs < 4) continue;
      for (Figures& f : history) f.erase("seconds");
      ends.push_back(run.net.state_dict());
      figures.push_back(history);
      best.push_back(run.stop->best());
    }
  ASSERT_EQ(figures[0].size(), 4u);
  EXPECT_EQ(figures[0], figures[1]);
  EXPECT_EQ(best[0], best[1]);
  for (const auto& [name, t] : ends[0]) EXPECT_TRUE(equal(t, ends[1].at(name))) << name;
  // What is no checkpoint, and one of another kind of run, are refused.
  Training run;
  run.trainer->load_checkpoint(folder / "parts/best.safetensors");
  EXPECT_EQ(run.trainer->best(), run.trainer->figure("val_loss"));
  nn::Linear other(4, 2);
  optim::SGD sgd(other.parameters(), {.lr = 0.1});
  Trainer plain(other, sgd, loss_of, {.progress = false});
  EXPECT_THROW(plain.load_checkpoint(folder / "parts/last.safetensors"), ValueError);
  std::ofstream(folder / "parts/last.safetensors") << "no file of this kind";
  EXPECT_THROW(run.trainer->load_checkpoint(folder / "parts/last.safetensors"), IoError);
}

// What an epoch that ended with an error has seen is not among the figures of the next one.
TEST(Trainer, AnEpochAfterAnErrorBeginsAnew) {
  struct Fails : Callback {
    void on_step_end(Trainer& t) override {
      if (t.step() == 3) throw std::runtime_error("fails");
    }
  };
  const auto set = points();
  nn::Linear net(4, 2);
  optim::SGD sgd(net.parameters(), {.lr = 0.1});
  Trainer trainer(net, sgd, loss_of, {.callbacks = {std::make_shared<Fails>()}, .progress = false});
  data::DataLoader first(set, {.batch_size = 8}), second(set, {.batch_size = 8});
  EXPECT_THROW(trainer.fit(first), std::runtime_error);
  EXPECT_EQ(trainer.seen(), 24);
  trainer.fit(second);
  EXPECT_EQ(trainer.seen(), 48);
}

// Dropout and the order of the examples draw from one generator, and the figures are sums over the
// whole epoch.
TEST(Trainer, AnInterruptedRunGoesOnWithinTheEpoch) {
  struct Interrupts : Callback {
    explicit Interrupts(std::vector<int64_t> steps) : steps(std::move(steps)) {}
    void on_step_end(Trainer& t) override {
      if (std::ranges::count(steps, t.step())) t.interrupt();
    }
    std::vector<int64_t> steps;
  };
  const auto set = points();
  const Folder folder;
  for (const int64_t accumulate : {1, 2}) {
    std::vector<nn::StateDict> ends;
    std::vector<std::vector<Figures>> figures;
    // Of 7 batches. Step 7 (of the first pass) ends an epoch, which then has its figures.
    for (const auto& steps : {std::vector<int64_t>{}, std::vector<int64_t>{2, 6, 7, 9}}) {
      const std::string name =
          folder / (std::to_string(accumulate) + (steps.empty() ? "whole" : "parts"));
      for (int fits = 0;; ++fits) {
        ASSERT_LT(fits, 10);
        Training run(name, std::make_shared<Interrupts>(steps), accumulate);
        data::DataLoader train(set, {.batch_size = 7, .shuffle = true}),
            test(set, {.batch_size = 16});
        auto history = run.trainer->fit(train, &test, 3, true);
        if (fits < int(steps.size()) && run.trainer->epoch() < 3) continue;
        EXPECT_EQ(run.trainer->epoch(), 3);
        for (Figures& f : history) f.erase("seconds");
        ends.push_back(run.net.state_dict());
        figures.push_back(history);
        break;
      }
    }
    EXPECT_EQ(figures[0], figures[1]);
    for (const auto& [name, t] : ends[0]) EXPECT_TRUE(equal(t, ends[1].at(name))) << name;
  }
  // Without a folder nothing is kept of an epoch that was left.
  Training run("", std::make_shared<Interrupts>(std::vector<int64_t>{2}));
  data::DataLoader train(set, {.batch_size = 8});
  EXPECT_TRUE(run.trainer->fit(train, nullptr, 1).empty());
  EXPECT_EQ(run.trainer->seen(), 16);
}

TEST(Trainer, StopsEarly) {
  nn::Linear net(4, 2);
  optim::SGD sgd(net.parameters(), {.lr = 0});
  const auto stop = std::make_shared<EarlyStopping>("val_loss", 1);
  Trainer trainer(net, sgd, loss_of, {.callbacks = {stop}, .progress = false});
  data::DataLoader loader(points(), {.batch_size = 16});
  EXPECT_EQ(trainer.fit(loader, &loader, 9).size(), 3u);
  EXPECT_EQ(stop->waited(), 2);
  EXPECT_THROW(trainer.figure("val_accuracy"), ValueError);
}

TEST(Trainer, AccumulatedBatchesAreOneLargerBatch) {
  std::vector<Tensor> ends;
  for (const auto& [batch, accumulate] : {std::pair{12, 1}, std::pair{4, 3}}) {
    manual_seed(2);
    nn::Linear net(4, 2);
    optim::SGD sgd(net.parameters(), {.lr = 0.1});
    const auto set = points();
    Trainer trainer(net, sgd, loss_of,
                    {.accumulate = accumulate, .clip_norm = 0.5, .progress = false});
    data::DataLoader loader(set, {.batch_size = batch});
    trainer.fit(loader, nullptr, 2);
    EXPECT_EQ(trainer.step(), 8);
    ends.push_back(net.weight);
  }
  EXPECT_LT((ends[0] - ends[1]).abs().max().item<double>(), 1e-6);
}

TEST(Trainer, TrainsInHalfPrecision) {
  for (const DType t : {kBFloat16, kFloat16}) {
    Training run;
    DType seen = kFloat32;
    run.net.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor& output) {
      seen = output.dtype();
      return Tensor();
    });
    Trainer trainer(run.net, run.optimizer, loss_of,
                    {.clip_norm = 1.0, .precision = t, .progress = false});
    data::DataLoader loader(points(), {.batch_size = 8});
    const auto& history = trainer.fit(loader, nullptr, 4);
    EXPECT_LT(history[3].at("train_loss"), history[0].at("train_loss"));
    EXPECT_EQ(seen, t);
  }
}

TEST(Trainer, CallsItsCallbacks) {
  struct Note : Callback {
    std::string calls;
    void on_fit_begin(Trainer&) override { calls += "("; }
    void on_epoch_begin(Trainer&) override { calls += "["; }
    void on_step_end(Trainer& t) override {
      calls += "s";
      if (t.step() == 3) t.stop();
    }
    void on_epoch_end(Trainer&) override { calls += "]"; }
    void on_fit_end(Trainer&) override { calls += ")"; }
  };
  const auto note = std::make_shared<Note>();
  nn::Linear net(4, 2);
  optim::SGD sgd(net.parameters(), {.lr = 1});
  optim::ExponentialLR scheduler(sgd, 0.5);
  TrainerOptions o{.scheduler = &scheduler, .scheduler_steps = true, .callbacks = {note}};
  o.progress = false;
  Trainer trainer(net, sgd, loss_of, o);
  data::DataLoader loader(points(), {.batch_size = 24});
  trainer.fit(loader, nullptr, 5);
  EXPECT_EQ(note->calls, "([ss][s])");
  EXPECT_EQ(sgd.lr(), 0.125);
}

TEST(Trainer, RefusesWhatMeansNothing) {
  nn::Linear net(4, 2);
  optim::SGD sgd(net.parameters(), {.lr = 1});
  EXPECT_THROW(Trainer(net, sgd, loss_of, {.accumulate = 0}), ValueError);
  EXPECT_THROW(Trainer(net, sgd, loss_of, {.precision = kInt8}), ValueError);
  EXPECT_THROW(Trainer(net, sgd, loss_of, {.checkpoint_every = 2}), ValueError);
  EXPECT_THROW(Trainer(net, sgd, nullptr), ValueError);
  nn::ReLU nothing;
  EXPECT_THROW(Trainer(nothing, sgd, loss_of), ValueError);
  Trainer trainer(net, sgd, loss_of, {.progress = false});
  data::DataLoader loader(points(), {.batch_size = 8});
  EXPECT_THROW(trainer.fit(loader, nullptr, 1, true), ValueError);
  EXPECT_THROW(EarlyStopping("x", -1), ValueError);
}

}  // namespace
}  // namespace arete::training
