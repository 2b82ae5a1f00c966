#include "cli/run_files.h"

#include <algorithm>

#include "arete/base/thread_pool.h"
#include "arete/device/cuda.h"
#include "arete/io/html_report.h"
#include "arete/io/tensor_io.h"
#include "arete/prim/backend.h"
#include "cli/progress.h"

namespace arete::cli {

namespace {

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

std::string checkpoint_path(const std::string& folder) { return folder + "/last.safetensors"; }

SavedRun::SavedRun(const std::string& path) : path_(path), file_(io::load_safetensors(path)) {
  for (const char* name : {"note.data set", "note.model", "epoch", "step"}) entry(name);
}
const std::string& SavedRun::entry(const std::string& name) const {
  const auto found = file_.metadata.find(name);
  ARETE_CHECK(found != file_.metadata.end(),
              IoError("", path_ + " is not a checkpoint of a training run: it has no entry " + name)
                  .hint("name the folder that `arete train --out` wrote, or its last.safetensors"));
  return found->second;
}
const std::string& SavedRun::note(const std::string& name) const { return entry("note." + name); }
int64_t SavedRun::number(const std::string& name) const {
  return int64_t(optim::numbers_from_text({{name, entry(name)}}).at(name));
}

void load_weights(const SavedRun& run, nn::Module& model) {
  constexpr std::string_view kPrefix = "model.";
  std::map<std::string, Tensor> weights;
  for (const auto& [name, t] : run.file().tensors)
    if (name.starts_with(kPrefix)) weights[name.substr(kPrefix.size())] = t;
  model.load_state_dict(weights);
}

void write_report(const TrainOptions& o, training::Trainer& trainer) {
  io::Report report;
  const std::vector<training::Figures>& history = trainer.history();
  const std::vector<Tensor> parameters = trainer.network().parameters();
  const Device device = parameters[0].device();
  int64_t numbers = 0;
  for (const Tensor& p : parameters) numbers += p.numel();
  report.title = o.model + " on " + o.dataset;
  report.subtitle = std::to_string(history.size()) + " of " + std::to_string(o.epochs) +
                    " epochs, " + format_integer(uint64_t(numbers)) + " parameters";
  io::ReportChart loss{
      "Loss", "epoch", "cross entropy", {{"train", {}, {}}, {"test", {}, {}}}, false};
  io::ReportChart accuracy{"Accuracy", "epoch", "%", {{"train", {}, {}}, {"test", {}, {}}}, false};
  double seconds = 0, best = 0;
  for (const training::Figures& f : history) {
    const double x = f.at("epoch");
    for (auto& series : loss.series) series.x.push_back(x);
    for (auto& series : accuracy.series) series.x.push_back(x);
    loss.series[0].y.push_back(f.at("train_loss"));
    loss.series[1].y.push_back(f.at("val_loss"));
    accuracy.series[0].y.push_back(100 * f.at("train_accuracy"));
    accuracy.series[1].y.push_back(100 * f.at("val_accuracy"));
    seconds += f.at("seconds");
    best = std::max(best, f.at("val_accuracy"));
  }
  if (!history.empty()) {
    report.figures = {{"test accuracy", percent(history.back().at("val_accuracy"))},
                      {"best test accuracy", percent(best)},
                      {"test loss", fixed(history.back().at("val_loss"))},
                      {"time", format_duration(seconds)}};
  }
  report.charts = {loss, accuracy};
  report.tables = {{"Settings",
                    {{"data set", o.dataset},
                     {"model", o.model},
                     {"epochs", std::to_string(o.epochs)},
                     {"batch size", std::to_string(o.batch_size)},
                     {"learning rate", Scalar(o.lr).to_string() + ", " + o.schedule},
                     {"optimizer", "Adam"},
                     {"seed", std::to_string(o.seed)}}},
                   {"Environment",
                    {{"Arete", ARETE_VERSION},
                     {"device", device.to_string()},
                     {"threads", std::to_string(num_threads())},
                     {"backend", prim::backend_for(device).description()}}}};
  io::write_html_report(o.out + "/report.html", report);
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
