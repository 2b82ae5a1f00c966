#include "cli/run_files.h"

#include <nlohmann/json.hpp>

#include "arete/base/thread_pool.h"
#include "arete/device/cuda.h"
#include "arete/io/html_report.h"
#include "arete/io/tensor_io.h"
#include "arete/prim/backend.h"
#include "cli/progress.h"

namespace arete::cli {

namespace {

using nlohmann::json;

constexpr const char* kFormat = "arete-run-2";
constexpr const char* kModelPrefix = "model.";
constexpr const char* kOptimizerPrefix = "optimizer.";

json to_json(const EpochFigures& f) {
  return {{"epoch", f.epoch},           {"step", f.step},
          {"train_loss", f.train_loss}, {"train_accuracy", f.train_accuracy},
          {"test_loss", f.test_loss},   {"test_accuracy", f.test_accuracy},
          {"seconds", f.seconds}};
}

EpochFigures figures_from(const json& j) {
  return {j.at("epoch"),     j.at("step"),          j.at("train_loss"), j.at("train_accuracy"),
          j.at("test_loss"), j.at("test_accuracy"), j.at("seconds")};
}

RunState parse_state(const std::map<std::string, std::string>& metadata, const std::string& path) {
  const auto damaged = [&](const std::string& why) {
    return IoError("resume", path + " is not a checkpoint of a training run: " + why)
        .hint("name the folder that `arete train --out` wrote, or its checkpoint.safetensors");
  };
  const auto format = metadata.find("format"), state = metadata.find("state");
  ARETE_CHECK(format != metadata.end() && format->second == kFormat && state != metadata.end(),
              damaged("it has no entry format=" + std::string(kFormat)));
  try {
    const json j = json::parse(state->second);
    RunState s;
    s.dataset = j.at("dataset");
    s.model = j.at("model");
    s.schedule = j.at("schedule");
    s.batch_size = j.at("batch_size");
    s.seed = j.at("seed");
    s.lr = j.at("lr");
    s.step = j.at("step");
    s.loader = {j.at("loader_epoch"),
                j.at("loader_batch"),
                Generator::State{j.at("loader_seed"), j.at("loader_offset")},
                {}};
    s.generator = {j.at("generator_seed"), j.at("generator_offset")};
    s.loss_sum = j.at("loss_sum");
    s.correct = j.at("correct");
    s.seen = j.at("seen");
    s.seconds = j.at("seconds");
    for (const json& e : j.at("history")) s.history.push_back(figures_from(e));
    return s;
  } catch (const json::exception& e) {
    throw damaged(e.what());
  }
}

// The part of a file's tensors whose names begin with `prefix`, without it.
std::map<std::string, Tensor> part(const io::SafetensorsFile& file, const std::string& prefix) {
  std::map<std::string, Tensor> result;
  for (const auto& [name, t] : file.tensors)
    if (name.starts_with(prefix)) result[name.substr(prefix.size())] = t;
  return result;
}

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

}  // namespace

std::string percent(double fraction) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", 100 * fraction);
  return text;
}

std::string checkpoint_path(const std::string& folder) {
  return folder + "/checkpoint.safetensors";
}

void save_checkpoint(const std::string& path, const nn::Module& model,
                     const optim::Optimizer& optimizer, const RunState& s) {
  const Generator::State loader = s.loader.generator.value_or(Generator::State{s.seed, 0});
  json j{{"dataset", s.dataset},
         {"model", s.model},
         {"schedule", s.schedule},
         {"batch_size", s.batch_size},
         {"seed", s.seed},
         {"lr", s.lr},
         {"step", s.step},
         {"loader_epoch", s.loader.epoch},
         {"loader_batch", s.loader.batch},
         {"loader_seed", loader.seed},
         {"loader_offset", loader.offset},
         {"generator_seed", s.generator.seed},
         {"generator_offset", s.generator.offset},
         {"loss_sum", s.loss_sum},
         {"correct", s.correct},
         {"seen", s.seen},
         {"seconds", s.seconds},
         {"history", json::array()}};
  for (const EpochFigures& f : s.history) j["history"].push_back(to_json(f));
  io::NamedTensors tensors;
  for (const auto& [name, t] : model.state_dict()) tensors.emplace_back(kModelPrefix + name, t);
  const optim::State optimizer_state = optimizer.state_dict();
  for (const auto& [name, t] : optimizer_state.tensors)
    tensors.emplace_back(kOptimizerPrefix + name, t);
  std::map<std::string, std::string> metadata{{"format", kFormat}, {"state", j.dump()}};
  for (const auto& [key, text] : optim::numbers_to_text(optimizer_state.numbers))
    metadata[kOptimizerPrefix + key] = text;
  io::save_safetensors(path, tensors, metadata);
}

RunState load_run_state(const std::string& path) {
  return parse_state(io::load_safetensors(path).metadata, path);
}

void load_weights(const std::string& path, nn::Module& model) {
  model.load_state_dict(part(io::load_safetensors(path), kModelPrefix));
}

void load_optimizer(const std::string& path, optim::Optimizer& optimizer) {
  const io::SafetensorsFile file = io::load_safetensors(path);
  optim::State state;
  state.tensors = part(file, kOptimizerPrefix);
  const std::string prefix = kOptimizerPrefix;
  std::map<std::string, std::string> numbers;
  for (const auto& [key, text] : file.metadata)
    if (key.starts_with(prefix)) numbers[key.substr(prefix.size())] = text;
  state.numbers = optim::numbers_from_text(numbers);
  optimizer.load_state_dict(state);
}

void write_report(const std::string& folder, const RunState& s, const std::string& device,
                  int64_t parameters, int64_t epochs) {
  io::Report report;
  report.title = s.model + " on " + s.dataset;
  report.subtitle = std::to_string(s.history.size()) + " of " + std::to_string(epochs) +
                    " epochs, " + format_integer(uint64_t(parameters)) + " parameters";
  io::ReportChart loss{
      "Loss", "epoch", "cross entropy", {{"train", {}, {}}, {"test", {}, {}}}, false};
  io::ReportChart accuracy{"Accuracy", "epoch", "%", {{"train", {}, {}}, {"test", {}, {}}}, false};
  double seconds = 0, best = 0;
  for (const EpochFigures& f : s.history) {
    const double x = double(f.epoch);
    for (auto& series : loss.series) series.x.push_back(x);
    for (auto& series : accuracy.series) series.x.push_back(x);
    loss.series[0].y.push_back(f.train_loss);
    loss.series[1].y.push_back(f.test_loss);
    accuracy.series[0].y.push_back(100 * f.train_accuracy);
    accuracy.series[1].y.push_back(100 * f.test_accuracy);
    seconds += f.seconds;
    best = std::max(best, f.test_accuracy);
  }
  if (!s.history.empty()) {
    report.figures = {{"test accuracy", percent(s.history.back().test_accuracy)},
                      {"best test accuracy", percent(best)},
                      {"test loss", fixed(s.history.back().test_loss)},
                      {"time", format_duration(seconds)}};
  }
  report.charts = {loss, accuracy};
  report.tables = {{"Settings",
                    {{"data set", s.dataset},
                     {"model", s.model},
                     {"epochs", std::to_string(epochs)},
                     {"batch size", std::to_string(s.batch_size)},
                     {"learning rate", json(s.lr).dump() + ", " + s.schedule},
                     {"optimizer", "Adam"},
                     {"seed", std::to_string(s.seed)}}},
                   {"Environment",
                    {{"Arete", ARETE_VERSION},
                     {"device", device},
                     {"threads", std::to_string(num_threads())},
                     {"backend", prim::backend_for(Device(device)).description()}}}};
  io::write_html_report(folder + "/report.html", report);
}

Device resolve_device(const std::string& name) {
  if (name == "cpu") return kCPU;
  if (name == "auto") return (cuda::is_available() ? kCUDA : kCPU).resolved();
  ARETE_CHECK(cuda::is_available(),
              DeviceError("", "there is no CUDA device: " + cuda::unavailable_reason())
                  .argument("--device " + name)
                  .hint("use --device cpu, or --device auto"));
  const Device device(name);
  prim::backend_for(device);  // an ordinal that is too high shows now
  return device.resolved();
}

}  // namespace arete::cli
