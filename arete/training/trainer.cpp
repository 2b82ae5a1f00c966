#include "arete/training/trainer.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "arete/amp/autocast.h"
#include "arete/base/file.h"
#include "arete/core/generator.h"
#include "arete/core/modes.h"
#include "arete/distributed/data_parallel.h"
#include "arete/distributed/distributed.h"
#include "arete/distributed/environment.h"
#include "arete/nn/utils.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete::training {

namespace {

constexpr const char* kNote = "note.";
constexpr const char* kFormat = "arete-trainer-1";

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A seed or an offset as numbers that doubles hold.
void put(std::map<std::string, double>& numbers, const std::string& key, uint64_t value) {
  numbers[key + ".low"] = double(value & 0xffffffff);
  numbers[key + ".high"] = double(value >> 32);
}
uint64_t get(const std::map<std::string, double>& numbers, const std::string& key) {
  return uint64_t(numbers.at(key + ".high")) << 32 | uint64_t(numbers.at(key + ".low"));
}

// Entries whose names begin with `prefix`, without it.
template <class Map>
Map part(const Map& all, const std::string& prefix) {
  Map found;
  for (const auto& [name, value] : all)
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = value;
  return found;
}
template <class From>
void put_all(std::map<std::string, double>& numbers, const std::string& prefix, const From& from) {
  for (const auto& [name, value] : from) numbers[prefix + name] = value;
}

// The mode of a network, for a while.
class ModeGuard {
 public:
  ModeGuard(nn::Module& network, bool training)
      : network_(network), before_(network.is_training()) {
    network_.train(training);
  }
  ~ModeGuard() { network_.train(before_); }

 private:
  nn::Module& network_;
  bool before_;
};

double worst(Mode mode) {
  return (mode == Mode::min ? 1 : -1) * std::numeric_limits<double>::infinity();
}

// How much a batch counts in the mean loss.
Tensor weight_of(const Tensor& target) {
  return full({}, double(target.dim() ? target.size(0) : 1), TensorOptions(kFloat64));
}

}  // namespace

EarlyStopping::EarlyStopping(std::string monitor, int64_t patience, double min_delta, Mode mode)
    : monitor_(std::move(monitor)),
      patience_(patience),
      min_delta_(min_delta),
      best_(worst(mode)),
      mode_(mode) {
  ARETE_CHECK(
      patience >= 0,
      ValueError("EarlyStopping", "patience must not be negative").got(std::to_string(patience)));
}

void EarlyStopping::on_epoch_end(Trainer& trainer) {
  const double value = trainer.figure(monitor_);
  const double gain = mode_ == Mode::min ? best_ - value : value - best_;
  if (gain > min_delta_)
    best_ = value, waited_ = 0;
  else
    ++waited_;
  if (!std::isfinite(value) || waited_ > patience_) trainer.stop();
}

std::map<std::string, double> EarlyStopping::state_dict() const {
  return {{"best", best_}, {"waited", double(waited_)}};
}
void EarlyStopping::load_state_dict(const std::map<std::string, double>& state) {
  best_ = state.at("best");
  waited_ = int64_t(state.at("waited"));
}

Trainer::Trainer(nn::Module& network, optim::Optimizer& optimizer, Loss loss,
                 TrainerOptions options)
    : network_(network),
      optimizer_(optimizer),
      loss_function_(std::move(loss)),
      options_(std::move(options)),
      scaler_(amp::GradScalerOptions{.enabled = options_.precision == kFloat16}),
      best_(worst(options_.mode)) {
  ARETE_CHECK(options_.accumulate >= 1, ValueError("Trainer", "accumulate must be at least 1")
                                            .got(std::to_string(options_.accumulate)));
  ARETE_CHECK(!options_.precision || *options_.precision == kFloat16 ||
                  *options_.precision == kBFloat16 || *options_.precision == kFloat32,
              ValueError("Trainer", "precision must be float32, bfloat16 or float16")
                  .got(std::string(name_of(*options_.precision))));
  ARETE_CHECK(
      options_.checkpoint_every >= 0 && (!options_.checkpoint_every || !options_.folder.empty()),
      ValueError("Trainer", "checkpoint_every is a number of updates, and needs a folder")
          .got(std::to_string(options_.checkpoint_every)));
  const std::vector<Tensor> parameters = network.parameters();
  ARETE_CHECK(!parameters.empty(), ValueError("Trainer", "the network has no parameters"));
  ARETE_CHECK(loss_function_, ValueError("Trainer", "there is no loss function"));
  device_ = options_.device.value_or(parameters[0].device()).resolved();
  network_.to(device_);
  if (distributed::environment_world_size().value_or(1) > 1 && !distributed::is_initialized())
    distributed::init_process_group();
  if (distributed::is_initialized()) {
    rank_ = distributed::get_rank();
    world_ = distributed::get_world_size();
  }
  if (world_ > 1)
    parallel_ =
        std::make_unique<distributed::DataParallel>(network_, distributed::DataParallelOptions{});
}

Trainer::~Trainer() = default;

Tensor Trainer::forward(const Tensor& input) {
  if (parallel_) parallel_->prepare(parallel_->first());
  return network_(input);
}

void Trainer::each(void (Callback::*f)(Trainer&)) {
  for (const auto& callback : options_.callbacks) ((*callback).*f)(*this);
}

double Trainer::figure(const std::string& name) const {
  ARETE_CHECK(!history_.empty(), ValueError("Trainer", "there is no epoch yet"));
  const Figures& figures = history_.back();
  const std::string wanted = !name.empty()               ? name
                             : figures.count("val_loss") ? "val_loss"
                                                         : "train_loss";
  const auto found = figures.find(wanted);
  ARETE_CHECK(found != figures.end(),
              ValueError("Trainer", "there is no figure '" + wanted + "' of this epoch"));
  return found->second;
}

const std::vector<Figures>& Trainer::fit(data::DataLoader& train, data::DataLoader* validation,
                                         int64_t epochs, bool resume) {
  if (resume) {
    ARETE_CHECK(!options_.folder.empty(), ValueError("Trainer", "resume needs a folder"));
    const std::string last = options_.folder + "/last.safetensors";
    if (std::filesystem::exists(last)) load_checkpoint(last, &train);
  }
  stop_ = interrupted_ = false;
  told_ = Tensor();
  each(&Callback::on_fit_begin);
  while (epoch_ < epochs && !stop_ && !ends(true)) one_epoch(train, validation, epochs);
  each(&Callback::on_fit_end);
  return history_;
}

void Trainer::one_epoch(data::DataLoader& train, data::DataLoader* validation, int64_t epochs) {
  if (!std::exchange(goes_on_, false)) {
    losses_.reset();
    for (auto& [name, metric] : options_.metrics) metric->reset();
    seen_ = 0;
    spent_ = 0;
  }
  within_ = true;
  epoch_start_ = now() - spent_;
  each(&Callback::on_epoch_begin);
  const bool talks = options_.progress && rank_ == 0, redraws = talks && isatty(STDERR_FILENO);
  {
    const ModeGuard mode(network_, true);
    std::vector<data::Batch> group;
    const auto is_over = [&] {
      const data::LoaderState next = train.state();
      return next.batch == 0 && next.later.empty();
    };
    double shown = epoch_start_;
    const auto flush = [&] {
      update(group);
      group.clear();
      each(&Callback::on_step_end);
      if (options_.checkpoint_every && step_ % options_.checkpoint_every == 0 && !is_over())
        save_last(train);
      if (redraws && now() - shown > 0.5) {
        shown = now();
        std::fprintf(stderr, "\repoch %lld/%lld  step %lld  loss %.4f ", (long long)(epoch_ + 1),
                     (long long)epochs, (long long)step_, running_loss());
      }
    };
    for (const data::Batch& batch : train) {
      group.push_back(batch);
      if (int64_t(group.size()) == options_.accumulate) {
        flush();
        if (ends(false) && !is_over()) {
          if (!options_.folder.empty()) save_last(train);
          within_ = false;
          return;
        }
      }
      if (stop_) break;
    }
    if (!group.empty()) flush();
  }
  Figures figures;
  figures["train_loss"] = total(losses_).item<double>();
  add_figures(figures, "train_");
  if (validation) figures.merge(validate(*validation));
  within_ = false;
  ++epoch_;
  figures["epoch"] = double(epoch_);
  figures["step"] = double(step_);
  figures["lr"] = optimizer_.lr();
  figures["seconds"] = now() - epoch_start_;
  history_.push_back(figures);
  if (options_.scheduler && !options_.scheduler_steps) {
    if (auto* plateau = dynamic_cast<optim::ReduceLROnPlateau*>(options_.scheduler))
      plateau->step(figure(options_.monitor));
    else
      options_.scheduler->step();
  }
  each(&Callback::on_epoch_end);
  if (talks) {
    std::string text;
    for (const auto& [name, value] : figures)
      if (name != "epoch" && name != "step" && name != "lr" && name != "seconds") {
        char number[64];
        std::snprintf(number, sizeof number, "  %s %.4f", name.c_str(), value);
        text += number;
      }
    std::fprintf(stderr, "%sepoch %lld/%lld%s  %.1f s\n", redraws ? "\r" : "", (long long)epoch_,
                 (long long)epochs, text.c_str(), figures["seconds"]);
  }
  keep(train);
}

// Whether a process was interrupted. Several are asked together, and answer as of the update
// before, so that no device idles until this one's answers are there, unless they are wanted now.
bool Trainer::ends(bool now) {
  if (world_ == 1) return interrupted_;
  const Tensor flag = full({}, int64_t(interrupted_), TensorOptions(kInt32, device_));
  distributed::all_reduce(flag, distributed::kMax);
  const Tensor before = std::exchange(told_, flag.to(kCPU, true));
  const Tensor& answer = now ? told_ : before;
  if (!answer.defined() || !answer.item<int64_t>()) return false;
  return interrupted_ = true;
}

void Trainer::update(std::vector<data::Batch>& group) {
  optimizer_.zero_grad();
  loss_ = Tensor();
  for (size_t i = 0; i < group.size(); ++i) {
    const Tensor x = group[i].input().to(device_, true), y = group[i].target().to(device_, true);
    std::optional<distributed::NoSync> alone;
    if (parallel_ && i + 1 < group.size()) alone.emplace(*parallel_);
    Tensor output, loss;
    {
      std::optional<amp::Autocast> casting;
      if (options_.precision && *options_.precision != kFloat32)
        casting.emplace(device_, options_.precision);
      output = forward(x);
      loss = loss_function_(output, y);
    }
    scaler_.scale(loss / int64_t(group.size())).backward();
    loss = loss.detach();
    losses_.update(loss, weight_of(y));
    seen_ += y.dim() ? y.size(0) : 1;
    const Tensor share = loss / int64_t(group.size());
    loss_ = loss_.defined() ? loss_ + share : share;
    for (auto& [name, metric] : options_.metrics) metric->update(output.detach(), y);
  }
  if (options_.clip_norm) {
    scaler_.unscale_(optimizer_);
    nn::utils::clip_grad_norm_(network_.parameters(), *options_.clip_norm);
  }
  scaler_.step(optimizer_);
  scaler_.update();
  ++step_;
  if (options_.scheduler && options_.scheduler_steps) options_.scheduler->step();
}

Tensor Trainer::total(metrics::Metric& metric) {
  if (world_ == 1) return metric.compute();
  metric.to(device_);
  return metric.sync_and_compute();
}

void Trainer::add_figures(Figures& figures, const std::string& prefix) {
  for (auto& [name, metric] : options_.metrics) {
    const std::vector<double> values = total(*metric).to_vector<double>();
    for (size_t i = 0; i < values.size(); ++i)
      figures[prefix + name + (values.size() == 1 ? "" : "." + std::to_string(i))] = values[i];
  }
}

Figures Trainer::validate(data::DataLoader& loader) {
  const NoGradGuard no_grad;
  const ModeGuard mode(network_, false);
  metrics::MeanMetric losses;
  for (auto& [name, metric] : options_.metrics) metric->reset();
  for (const data::Batch& batch : loader) {
    const Tensor x = batch.input().to(device_, true), y = batch.target().to(device_, true);
    std::optional<amp::Autocast> casting;
    if (options_.precision && *options_.precision != kFloat32)
      casting.emplace(device_, options_.precision);
    const Tensor output = network_(x);
    losses.update(loss_function_(output, y), weight_of(y));
    for (auto& [name, metric] : options_.metrics) metric->update(output, y);
  }
  Figures figures;
  figures["val_loss"] = total(losses).item<double>();
  add_figures(figures, "val_");
  return figures;
}

Tensor Trainer::predict(data::DataLoader& loader) {
  const NoGradGuard no_grad;
  const ModeGuard mode(network_, false);
  std::vector<Tensor> outputs;
  for (const data::Batch& batch : loader) {
    std::optional<amp::Autocast> casting;
    if (options_.precision && *options_.precision != kFloat32)
      casting.emplace(device_, options_.precision);
    outputs.push_back(network_(batch.input().to(device_, true)).cpu());
  }
  ARETE_CHECK(!outputs.empty(), ValueError("Trainer", "predict needs at least one batch"));
  return cat(outputs);
}

void Trainer::keep(const data::DataLoader& train) {
  const double value = figure(options_.monitor);
  const bool better = options_.mode == Mode::min ? value < best_ : value > best_;
  if (better) best_ = value;
  if (options_.folder.empty()) return;
  save_last(train);
  if (better) save_checkpoint(options_.folder + "/best.safetensors", &train);
}

void Trainer::save_last(const data::DataLoader& train) {
  io::make_directories(options_.folder);
  save_checkpoint(options_.folder + "/last.safetensors", &train);
}

io::NamedTensors Trainer::states_within() const {
  io::NamedTensors found;
  for (const auto& [name, t] : losses_.state_dict()) found.emplace_back("loss." + name, t);
  for (size_t i = 0; i < options_.metrics.size(); ++i)
    for (const auto& [name, t] : options_.metrics[i].second->state_dict())
      found.emplace_back(std::to_string(i) + "." + name, t);
  return found;
}

// What each process has of its own: where its data and its random numbers are, and within an epoch
// its sums.
std::vector<Trainer::Own> Trainer::own_of_all(const data::DataLoader* loader) {
  Own own;
  if (within_) {
    own.numbers["seen"] = double(seen_);
    own.numbers["seconds"] = now() - epoch_start_;
    own.tensors = states_within();
  }
  if (loader) {
    const data::LoaderState s = loader->state();
    own.numbers["loader.epoch"] = double(s.epoch);
    own.numbers["loader.batch"] = double(s.batch);
    for (size_t i = 0; i < s.later.size(); ++i)
      own.numbers["loader.later." + std::to_string(i)] = double(s.later[i]);
    if (s.generator) {
      put(own.numbers, "loader.seed", s.generator->seed);
      put(own.numbers, "loader.offset", s.generator->offset);
    }
  }
  const Generator::State random = default_generator().state();
  put(own.numbers, "random.seed", random.seed);
  put(own.numbers, "random.offset", random.offset);
  if (world_ == 1) return {own};
  // They are of different sizes: as files in memory, filled up to the longest.
  std::vector<uint8_t> bytes;
  const io::SafetensorsImage image(own.tensors, optim::numbers_to_text(own.numbers));
  for (const auto part : image.parts())
    for (const std::byte b : part) bytes.push_back(uint8_t(b));
  const Tensor lengths = empty({world_}, TensorOptions(kInt64, device_));
  distributed::all_gather_into_tensor(
      lengths, full({1}, int64_t(bytes.size()), TensorOptions(kInt64, device_)));
  const std::vector<int64_t> counts = lengths.to_vector<int64_t>();
  const int64_t most = *std::ranges::max_element(counts);
  bytes.resize(size_t(most));
  const Tensor all = empty({most * world_}, TensorOptions(kUInt8, device_));
  distributed::all_gather_into_tensor(all, tensor(bytes, TensorOptions(kUInt8, device_)));
  const std::vector<uint8_t> gathered = all.to_vector<uint8_t>();
  std::vector<Own> found;
  for (int r = 0; r < world_; ++r) {
    const std::span one(gathered.data() + r * most, size_t(counts[size_t(r)]));
    io::SafetensorsFile file =
        io::read_safetensors(std::as_bytes(one), "the state of rank " + std::to_string(r));
    found.push_back(
        {optim::numbers_from_text(file.metadata), {file.tensors.begin(), file.tensors.end()}});
  }
  return found;
}

void Trainer::save_checkpoint(const std::string& path, const data::DataLoader* loader) {
  ARETE_CHECK(!within_ || loader,
              ValueError("save_checkpoint", "within an epoch the loader is needed"));
  std::map<std::string, double> numbers;
  numbers["epoch"] = double(epoch_);
  numbers["step"] = double(step_);
  numbers["best"] = best_;
  numbers["callbacks"] = double(options_.callbacks.size());
  for (size_t i = 0; i < options_.callbacks.size(); ++i)
    put_all(numbers, "callback." + std::to_string(i) + ".", options_.callbacks[i]->state_dict());
  for (size_t i = 0; i < history_.size(); ++i)
    put_all(numbers, "history." + std::to_string(i) + ".", history_[i]);
  if (options_.scheduler) put_all(numbers, "scheduler.", options_.scheduler->state_dict());
  if (scaler_.is_enabled()) {
    const amp::GradScalerState s = scaler_.state();
    put_all(numbers, "scaler.",
            Figures{{"scale", s.scale},
                    {"growth_factor", s.growth_factor},
                    {"backoff_factor", s.backoff_factor},
                    {"growth_interval", double(s.growth_interval)},
                    {"growth_tracker", double(s.growth_tracker)}});
  }
  const std::vector<Own> own = own_of_all(loader);
  if (rank_ != 0) return;
  io::NamedTensors tensors;
  numbers["ranks"] = world_;
  for (size_t r = 0; r < own.size(); ++r) {
    const std::string prefix = "rank." + std::to_string(r) + ".";
    put_all(numbers, prefix, own[r].numbers);
    for (const auto& [name, t] : own[r].tensors) tensors.emplace_back(prefix + name, t);
  }
  for (const auto& [name, t] : network_.state_dict()) tensors.emplace_back("model." + name, t);
  const optim::State state = optimizer_.state_dict();
  for (const auto& [name, t] : state.tensors) tensors.emplace_back("optimizer." + name, t);
  put_all(numbers, "optimizer.", state.numbers);
  auto metadata = optim::numbers_to_text(numbers);
  for (const auto& [name, text] : options_.notes) metadata[kNote + name] = text;
  metadata["format"] = kFormat;
  io::save_safetensors(path, tensors, metadata);
}

void Trainer::load_checkpoint(const std::string& path, data::DataLoader* loader) {
  const io::SafetensorsFile file = io::load_safetensors(path);
  auto texts = file.metadata;
  const auto refused = [&](const char* why) {
    return IoError("Trainer", path + " is not the checkpoint of a trainer: " + why);
  };
  ARETE_CHECK(texts.count("format") && texts["format"] == kFormat,
              refused("it has no entry format=arete-trainer-1"));
  texts.erase("format");
  std::erase_if(texts, [](const auto& entry) { return entry.first.starts_with(kNote); });
  const std::map<std::string, double> numbers = optim::numbers_from_text(texts);
  for (const char* key : {"epoch", "step", "best", "callbacks", "ranks"})
    ARETE_CHECK(numbers.count(key), refused("it lacks numbers"));
  const auto scheduler = part(numbers, "scheduler."), scaler = part(numbers, "scaler.");
  ARETE_CHECK(size_t(numbers.at("callbacks")) == options_.callbacks.size() &&
                  scheduler.empty() == !options_.scheduler &&
                  scaler.empty() == !scaler_.is_enabled(),
              ValueError("Trainer",
                         "the saved run had other callbacks, or a scheduler or a scaler where this "
                         "one has none (or none where it has one)"));
  // With another number of processes nothing is as it was: the data are divided anew, and random
  // numbers go on from where they are.
  const bool same = numbers.at("ranks") == world_;
  const std::string prefix = "rank." + std::to_string(same ? rank_ : 0) + ".";
  const auto own = part(numbers, prefix);
  const bool within = own.count("seen");
  ARETE_CHECK(!within || same,
              ValueError("Trainer",
                         "within an epoch a run goes on with as many processes; between "
                         "epochs the number may change")
                  .argument(path)
                  .expected(Scalar(numbers.at("ranks")).to_string())
                  .got(std::to_string(world_)));
  try {
    network_.load_state_dict(part(file.tensors, "model."));
    optimizer_.load_state_dict({part(file.tensors, "optimizer."), part(numbers, "optimizer.")});
    if (options_.scheduler) options_.scheduler->load_state_dict(scheduler);
    if (scaler_.is_enabled())
      scaler_.load_state({scaler.at("scale"), scaler.at("growth_factor"),
                          scaler.at("backoff_factor"), int64_t(scaler.at("growth_interval")),
                          int64_t(scaler.at("growth_tracker"))});
    for (size_t i = 0; i < options_.callbacks.size(); ++i)
      options_.callbacks[i]->load_state_dict(part(numbers, "callback." + std::to_string(i) + "."));
    if (loader && own.count("loader.epoch")) {
      data::LoaderState s{int64_t(own.at("loader.epoch")), int64_t(own.at("loader.batch"))};
      if (own.count("loader.seed.low"))
        s.generator = Generator::State{get(own, "loader.seed"), get(own, "loader.offset")};
      for (const auto& [name, batch] : part(own, "loader.later."))
        s.later.push_back(int64_t(batch));
      std::ranges::sort(s.later);
      loader->load_state(s);
    }
    within_ = within;
    goes_on_ = within_ && loader;
    if (within_) {
      seen_ = int64_t(own.at("seen"));
      spent_ = own.at("seconds");
      const auto states = part(file.tensors, prefix);
      const auto load = [&](metrics::Metric& metric, const std::string& prefix) {
        const auto saved = part(states, prefix);
        io::NamedTensors all;
        for (const auto& [name, t] : metric.state_dict()) all.emplace_back(name, saved.at(name));
        metric.load_state_dict(all);
      };
      load(losses_, "loss.");
      for (size_t i = 0; i < options_.metrics.size(); ++i)
        load(*options_.metrics[i].second, std::to_string(i) + ".");
    }
    if (same) default_generator().set_state({get(own, "random.seed"), get(own, "random.offset")});
  } catch (const std::out_of_range&) {
    throw refused("it lacks numbers");
  }
  epoch_ = int64_t(numbers.at("epoch"));
  step_ = int64_t(numbers.at("step"));
  best_ = numbers.at("best");
  history_.clear();
  for (int64_t i = 0; i < epoch_; ++i) {
    history_.push_back(part(numbers, "history." + std::to_string(i) + "."));
    ARETE_CHECK(!history_.back().empty(), refused("it lacks figures"));
  }
}

}  // namespace arete::training
