#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <numbers>

#include "arete/base/file.h"
#include "arete/core/modes.h"
#include "arete/io/event_writer.h"
#include "arete/io/metrics_log.h"
#include "arete/models/classifier.h"
#include "arete/ops/creation.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/optim/adam.h"
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

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Sums over the batches of an epoch, kept on the device so that no step waits for it.
struct Sums {
  Tensor loss, correct;
  int64_t seen = 0;

  explicit Sums(Device device, double loss_sum = 0, int64_t correct_sum = 0, int64_t seen_in = 0)
      : loss(full({}, loss_sum, TensorOptions(kFloat64, device))),
        correct(full({}, correct_sum, TensorOptions(kInt64, device))),
        seen(seen_in) {}
  void add(const Tensor& batch_loss, const Tensor& logits, const Tensor& target) {
    const NoGradGuard no_grad;
    const int64_t n = target.numel();
    loss.add_(batch_loss.detach().to(kFloat64), n);
    correct.add_((logits.argmax(1) == target).sum());
    seen += n;
  }
  double mean_loss() const { return loss.item<double>() / double(std::max<int64_t>(seen, 1)); }
  double accuracy() const { return correct.item<double>() / double(std::max<int64_t>(seen, 1)); }
};

void check_finite(double loss, const RunState& s, const std::string& path) {
  ARETE_CHECK(std::isfinite(loss),
              ValueError("train", "the training loss is not finite (" + Scalar(loss).to_string() +
                                      ") in epoch " + std::to_string(s.loader.epoch + 1) +
                                      ", step " + std::to_string(s.step))
                  .hint("lower the learning rate (now " + Scalar(s.lr).to_string() +
                        "); the last good checkpoint, if one was written, is " + path));
}

std::string figure(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", v);
  return text;
}

Sums test(nn::Sequential& net, data::DataLoader& loader, Device device) {
  const InferenceModeGuard inference;
  net.eval();
  Sums sums(device);
  for (const data::Batch& batch : loader) {
    const Tensor x = batch.input().to(device), y = batch.target().to(device);
    const Tensor logits = net(x);
    sums.add(cross_entropy(logits, y), logits, y);
  }
  net.train();
  return sums;
}

RunState first_state(const TrainOptions& o) {
  RunState s;
  s.dataset = o.dataset;
  s.model = o.model;
  s.schedule = o.schedule;
  s.batch_size = o.batch_size;
  s.seed = o.seed;
  s.lr = o.lr;
  return s;
}

// The rate of a step: a function of its number alone, so that a resumed run goes on with it.
double learning_rate(const TrainOptions& o, int64_t step, int64_t total_steps) {
  if (o.schedule == "constant") return o.lr;
  return o.lr * 0.5 * (1 + std::cos(std::numbers::pi * double(step) / double(total_steps)));
}

// The saved run must be the one that is asked for; only the number of epochs may grow.
void check_same_run(const RunState& saved, const TrainOptions& o) {
  const auto check = [](const char* what, const std::string& was, const std::string& is) {
    ARETE_CHECK(was == is, ValueError("resume", std::string("the saved run has another ") + what)
                               .expected(was)
                               .got(is)
                               .hint("resume with the options the run began with"));
  };
  check("data set", saved.dataset, o.dataset);
  check("model", saved.model, o.model);
  check("schedule", saved.schedule, o.schedule);
  check("batch size", std::to_string(saved.batch_size), std::to_string(o.batch_size));
  check("seed", std::to_string(saved.seed), std::to_string(o.seed));
  check("learning rate", Scalar(saved.lr).to_string(), Scalar(o.lr).to_string());
}

}  // namespace

int train(const TrainOptions& o) {
  const Device device = resolve_device(o.device);
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
  manual_seed(o.seed);
  nn::Sequential net = models::classifier(o.model);
  net.to(device);
  optim::Adam optimizer(net.parameters(), {.lr = o.lr});
  RunState s = first_state(o);
  if (o.resume) {
    s = load_run_state(checkpoint);
    check_same_run(s, o);
    load_weights(checkpoint, net);
    load_optimizer(checkpoint, optimizer);
    default_generator().set_state(s.generator);
    if (int64_t(s.history.size()) >= o.epochs) {
      std::fprintf(stderr, "The run is complete: %zu epochs. Give a larger --epochs to go on.\n",
                   s.history.size());
      return 0;
    }
  }
  data::DataLoader loader(
      train_set,
      {.batch_size = o.batch_size, .shuffle = true, .num_workers = o.workers, .seed = o.seed});
  data::DataLoader test_loader(test_set, {.batch_size = 500});
  loader.load_state(s.loader);

  const std::optional<int64_t> resume_step = o.resume ? std::optional(s.step) : std::nullopt;
  if (!o.resume) fs::remove(o.out + "/metrics.jsonl");
  io::MetricsLog metrics(o.out + "/metrics.jsonl", resume_step);
  io::EventWriter events(o.out + "/events", o.resume ? std::optional(s.step + 1) : std::nullopt);

  if (!o.quiet)
    std::fprintf(stderr, "%s on %s: %s parameters, %s training images, device %s\n",
                 o.model.c_str(), o.dataset.c_str(),
                 format_integer(uint64_t(net.num_parameters())).c_str(),
                 format_integer(uint64_t(train_set->size())).c_str(), device.to_string().c_str());

  const int64_t total_steps = o.epochs * loader.size();
  const InterruptGuard interrupt;
  net.train();
  const auto save = [&] {
    s.loader = loader.state();
    s.generator = default_generator().state();
    save_checkpoint(checkpoint, net, optimizer, s);
  };
  while (int64_t(s.history.size()) < o.epochs) {
    const int64_t epoch = int64_t(s.history.size()) + 1;
    Sums sums(device, s.loss_sum, s.correct, s.seen);
    double start = now() - s.seconds;
    ProgressOptions bar_options;
    bar_options.label = "epoch " + std::to_string(epoch) + "/" + std::to_string(o.epochs);
    bar_options.total = uint64_t(train_set->size() - s.seen);
    bar_options.unit = "images";
    std::optional<Progress> bar;
    if (!o.quiet) bar.emplace(bar_options);
    const auto save_within_epoch = [&] {
      check_finite(sums.mean_loss(), s, checkpoint);
      s.loss_sum = sums.loss.item<double>();
      s.correct = sums.correct.item<int64_t>();
      s.seen = sums.seen;
      s.seconds = now() - start;
      save();
    };
    for (const data::Batch& batch : loader) {
      const Tensor x = batch.input().to(device), y = batch.target().to(device);
      optimizer.zero_grad();
      const Tensor logits = net(x);
      const Tensor loss = cross_entropy(logits, y);
      loss.backward();
      optimizer.set_lr(learning_rate(o, s.step, total_steps));
      optimizer.step();
      sums.add(loss, logits, y);
      ++s.step;
      if (bar)
        bar->advance(uint64_t(y.numel()), [&] {
          check_finite(sums.mean_loss(), s, checkpoint);
          return "loss " + figure(sums.mean_loss());
        });
      if (interrupted) break;
      if (o.checkpoint_every > 0 && s.step % o.checkpoint_every == 0 &&
          sums.seen < train_set->size())
        save_within_epoch();
      if (o.after_step) o.after_step(s.step);
    }
    if (interrupted && sums.seen < train_set->size()) {
      bar.reset();
      save_within_epoch();
      std::fprintf(stderr, "Interrupted; saved step %lld. Go on with --resume.\n",
                   static_cast<long long>(s.step));
      return 130;
    }
    if (bar) bar->finish();
    EpochFigures f;
    f.epoch = epoch;
    f.step = s.step;
    f.train_loss = sums.mean_loss();
    f.train_accuracy = sums.accuracy();
    check_finite(f.train_loss, s, checkpoint);
    f.seconds = now() - start;
    const Sums tested = test(net, test_loader, device);
    f.test_loss = tested.mean_loss();
    f.test_accuracy = tested.accuracy();
    s.history.push_back(f);
    s.loss_sum = s.seconds = 0;
    s.correct = s.seen = 0;

    metrics.write({{"epoch", f.epoch},
                   {"step", f.step},
                   {"train_loss", f.train_loss},
                   {"train_accuracy", f.train_accuracy},
                   {"test_loss", f.test_loss},
                   {"test_accuracy", f.test_accuracy},
                   {"seconds", f.seconds},
                   {"images_per_second", double(train_set->size()) / f.seconds}});
    events.scalar("loss/train", f.train_loss, f.step);
    events.scalar("loss/test", f.test_loss, f.step);
    events.scalar("accuracy/train", f.train_accuracy, f.step);
    events.scalar("accuracy/test", f.test_accuracy, f.step);
    events.flush();
    save();
    write_report(o.out, s, device.to_string(), net.num_parameters(), o.epochs);
    std::fprintf(stdout,
                 "epoch %lld/%lld  train loss %s  accuracy %s  test loss %s  accuracy %s  %s\n",
                 static_cast<long long>(epoch), static_cast<long long>(o.epochs),
                 figure(f.train_loss).c_str(), percent(f.train_accuracy).c_str(),
                 figure(f.test_loss).c_str(), percent(f.test_accuracy).c_str(),
                 format_duration(f.seconds).c_str());
    std::fflush(stdout);
    if (interrupted) return 130;
  }
  if (!o.quiet)
    std::fprintf(stderr,
                 "Wrote %s/report.html, metrics.jsonl, events/ and checkpoint.safetensors\n",
                 o.out.c_str());
  return 0;
}

}  // namespace arete::cli
