#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <numbers>

#include "arete/base/file.h"
#include "arete/distributed/environment.h"
#include "arete/io/event_writer.h"
#include "arete/io/metrics_log.h"
#include "arete/metrics/classification.h"
#include "arete/models/classifier.h"
#include "arete/ops/loss.h"
#include "arete/optim/adam.h"
#include "arete/training/trainer.h"
#include "cli/commands.h"
#include "cli/data.h"
#include "cli/progress.h"
#include "cli/run_files.h"

namespace arete::cli {

namespace {

namespace fs = std::filesystem;

// Ctrl-C asks the loop to stop after the step under way, so that it can save first.
volatile std::sig_atomic_t interrupted = 0;

class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted = 0;
    previous_ = std::signal(SIGINT, [](int) {
      if (interrupted) std::_Exit(130);  // a second time: at once
      interrupted = 1;
    });
  }
  ~InterruptGuard() { std::signal(SIGINT, previous_); }

 private:
  void (*previous_)(int);
};

std::string figure(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", v);
  return text;
}

// The rate of a step: a function of its number alone, so that a resumed run goes on with it.
double learning_rate(const TrainOptions& o, int64_t step, int64_t total_steps) {
  if (o.schedule == "constant") return o.lr;
  return o.lr * 0.5 * (1 + std::cos(std::numbers::pi * double(step) / double(total_steps)));
}

// What must be the same in a run that goes on; only the number of epochs may grow.
std::map<std::string, std::string> notes_of(const TrainOptions& o) {
  return {{kDataset, o.dataset},
          {kModel, o.model},
          {"schedule", o.schedule},
          {"batch size", std::to_string(o.batch_size)},
          {"seed", std::to_string(o.seed)},
          {"learning rate", Scalar(o.lr).to_string()}};
}
void check_same_run(const SavedRun& saved, const TrainOptions& o) {
  for (const auto& [what, is] : notes_of(o)) {
    const std::string was = saved.note(what);
    ARETE_CHECK(was == is, ValueError("resume", "the saved run has another " + what)
                               .expected(was)
                               .got(is)
                               .hint("resume with the options the run began with"));
  }
}

// Which of how many processes this is.
struct Place {
  int rank, world;
};

// The examples that one of several processes tests: all of them are tested once.
class TestSampler final : public data::Sampler {
 public:
  TestSampler(int64_t n, Place place) : n_(n), place_(place) {}
  std::vector<int64_t> order(int64_t, Generator&) const override {
    std::vector<int64_t> own;
    for (int64_t i = place_.rank; i < n_; i += place_.world) own.push_back(i);
    return own;
  }
  int64_t size() const override { return (n_ - place_.rank + place_.world - 1) / place_.world; }

 private:
  int64_t n_;
  Place place_;
};

// What the program does beside training: the rate of each step, and of rank 0 the bar, files of
// figures.
class Reporter : public training::Callback {
 public:
  Reporter(const TrainOptions& o, Place place, int64_t examples, int64_t steps_per_epoch,
           int64_t first_step)
      : options_(o), place_(place), examples_(examples), total_steps_(o.epochs * steps_per_epoch) {
    if (place.rank != 0) return;
    metrics_.emplace(o.out + "/metrics.jsonl",
                     first_step ? std::optional(first_step) : std::nullopt);
    events_.emplace(o.out + "/events", first_step ? std::optional(first_step + 1) : std::nullopt);
  }

  void on_fit_begin(training::Trainer& t) override { set_rate(t); }

  void on_epoch_begin(training::Trainer& t) override {
    seen_ = t.seen();
    if (options_.quiet || place_.rank != 0) return;
    bar_.emplace(ProgressOptions{
        .label = "epoch " + std::to_string(t.epoch() + 1) + "/" + std::to_string(options_.epochs),
        .total = uint64_t(examples_ - seen_ * place_.world),
        .unit = "images"});
  }

  void on_step_end(training::Trainer& t) override {
    if (bar_)
      bar_->advance(uint64_t((t.seen() - seen_) * place_.world), [&] {
        check_finite(t, t.running_loss());
        return "loss " + figure(t.running_loss());
      });
    seen_ = t.seen();
    const int64_t every = options_.checkpoint_every;
    if (interrupted || (every > 0 && t.step() % every == 0)) check_finite(t, t.running_loss());
    if (interrupted) t.interrupt();
    if (options_.after_step) options_.after_step(t.step());
    set_rate(t);
  }

  void on_epoch_end(training::Trainer& t) override {
    const training::Figures& f = t.history().back();
    check_finite(t, f.at("train_loss"));
    if (place_.rank != 0) return;
    if (bar_) bar_->finish();
    const int64_t step = t.step();
    metrics_->write({{"epoch", t.epoch()},
                     {"step", step},
                     {"train_loss", f.at("train_loss")},
                     {"train_accuracy", f.at("train_accuracy")},
                     {"test_loss", f.at("val_loss")},
                     {"test_accuracy", f.at("val_accuracy")},
                     {"seconds", f.at("seconds")},
                     {"images_per_second", double(examples_) / f.at("seconds")}});
    events_->scalar("loss/train", f.at("train_loss"), step);
    events_->scalar("loss/test", f.at("val_loss"), step);
    events_->scalar("accuracy/train", f.at("train_accuracy"), step);
    events_->scalar("accuracy/test", f.at("val_accuracy"), step);
    events_->flush();
    write_report(options_, t);
    std::fprintf(stdout,
                 "epoch %lld/%lld  train loss %s  accuracy %s  test loss %s  accuracy %s  %s\n",
                 static_cast<long long>(t.epoch()), static_cast<long long>(options_.epochs),
                 figure(f.at("train_loss")).c_str(), percent(f.at("train_accuracy")).c_str(),
                 figure(f.at("val_loss")).c_str(), percent(f.at("val_accuracy")).c_str(),
                 format_duration(f.at("seconds")).c_str());
    std::fflush(stdout);
  }

  void on_fit_end(training::Trainer&) override { bar_.reset(); }

 private:
  void set_rate(training::Trainer& t) {
    t.optimizer().set_lr(learning_rate(options_, t.step(), total_steps_));
  }
  void check_finite(const training::Trainer& t, double loss) const {
    ARETE_CHECK(std::isfinite(loss),
                ValueError("train", "the training loss is not finite (" + Scalar(loss).to_string() +
                                        ") at step " + std::to_string(t.step()))
                    .hint("lower the learning rate (now " + Scalar(options_.lr).to_string() +
                          "); the last good checkpoint, if one was written, is " +
                          checkpoint_path(options_.out)));
  }

  const TrainOptions& options_;
  Place place_;
  int64_t examples_, total_steps_, seen_ = 0;
  std::optional<io::MetricsLog> metrics_;
  std::optional<io::EventWriter> events_;
  std::optional<Progress> bar_;
};

}  // namespace

int train(const TrainOptions& o) {
  const Place place{distributed::environment_rank().value_or(0),
                    distributed::environment_world_size().value_or(1)};
  const bool talks = place.rank == 0;
  Device device = resolve_device(o.device);
  if (place.world > 1 && device.is_cuda() && (o.device == "auto" || o.device == "cuda"))
    device =
        resolve_device("cuda:" + std::to_string(distributed::environment_local_rank().value_or(0)));
  ARETE_CHECK(!(o.resume && o.overwrite),
              ValueError("train", "--resume and --overwrite exclude each other"));
  const std::string checkpoint = checkpoint_path(o.out);
  const bool exists = fs::exists(checkpoint);
  ARETE_CHECK(!o.resume || exists,
              IoError("train", "there is no checkpoint to resume from: " + checkpoint)
                  .hint("leave out --resume to start a new run, or name its folder with --out"));
  ARETE_CHECK(o.resume || o.overwrite || !exists,
              IoError("train", "the folder " + o.out + " already holds a run")
                  .hint("--resume goes on with it, --overwrite starts anew, --out names another"));
  io::make_directories(o.out);

  const DataFolder folder = find_data(o.dataset, o.data);
  const auto train_set = open_data(folder, true), test_set = open_data(folder, false);
  int64_t step = 0;
  if (o.resume) {
    const SavedRun saved(checkpoint);
    check_same_run(saved, o);
    step = saved.number("step");
    if (saved.number("epoch") >= o.epochs) {
      if (talks)
        std::fprintf(stderr, "The run is complete: %lld epochs. Give a larger --epochs to go on.\n",
                     static_cast<long long>(saved.number("epoch")));
      return 0;
    }
  } else if (talks) {
    fs::remove(o.out + "/metrics.jsonl");
  }
  manual_seed(o.seed);
  nn::Sequential net = models::classifier(o.model);
  net.to(device);
  optim::Adam optimizer(net.parameters(), {.lr = o.lr});
  data::DataLoaderOptions batches{
      .batch_size = o.batch_size, .shuffle = true, .num_workers = o.workers, .seed = o.seed};
  data::DataLoaderOptions tests{.batch_size = 500};
  if (place.world > 1) {
    batches.shuffle = false;
    batches.sampler = std::make_shared<data::DistributedSampler>(train_set->size(), place.world,
                                                                 place.rank, true, o.seed);
    tests.sampler = std::make_shared<TestSampler>(test_set->size(), place);
    default_generator().manual_seed(o.seed + uint64_t(place.rank));  // each drops others
  }
  data::DataLoader loader(train_set, batches), test_loader(test_set, tests);
  training::TrainerOptions options;
  options.metrics = {{"accuracy", std::make_shared<metrics::Accuracy>(metrics::ClassOptions{
                                      .num_classes = int64_t(class_names(o.dataset).size())})}};
  options.callbacks = {
      std::make_shared<Reporter>(o, place, train_set->size(), loader.size(), step)};
  options.folder = o.out;
  options.checkpoint_every = o.checkpoint_every;
  options.notes = notes_of(o);
  options.progress = false;
  training::Trainer trainer(
      net, optimizer,
      [](const Tensor& y, const Tensor& target) { return cross_entropy(y, target); }, options);

  if (!o.quiet && talks)
    std::fprintf(stderr, "%s on %s: %s parameters, %s training images, device %s\n",
                 o.model.c_str(), o.dataset.c_str(),
                 format_integer(uint64_t(net.num_parameters())).c_str(),
                 format_integer(uint64_t(train_set->size())).c_str(), device.to_string().c_str());
  const InterruptGuard interrupt;
  trainer.fit(loader, &test_loader, o.epochs, o.resume);
  if (trainer.is_interrupted()) {
    if (talks)
      std::fprintf(stderr, "Interrupted; saved step %lld. Go on with --resume.\n",
                   static_cast<long long>(trainer.step()));
    return 130;
  }
  if (!o.quiet && talks)
    std::fprintf(stderr, "Wrote %s/report.html, metrics.jsonl, events/ and checkpoints\n",
                 o.out.c_str());
  return 0;
}

}  // namespace arete::cli
