// What a training run keeps in its folder: checkpoint, metrics, event files, report.
#pragma once

#include <cstdint>
#include <string>

#include "arete/io/tensor_io.h"
#include "arete/nn/module.h"
#include "arete/training/trainer.h"
#include "cli/commands.h"

namespace arete::cli {

/// Names of texts in a run's checkpoints.
constexpr const char *kDataset = "data set", *kModel = "model";

/// What the checkpoint of a run says of it, without making the run again.
class SavedRun {
 public:
  /// IoError if the file is not such a checkpoint.
  explicit SavedRun(const std::string& path);
  /// A text that `arete train` gave along.
  const std::string& note(const std::string& name) const;
  /// "epoch" and "step": how many there were; others are in training/trainer.cpp.
  int64_t number(const std::string& name) const;
  const io::SafetensorsFile& file() const { return file_; }

 private:
  const std::string& entry(const std::string& name) const;
  std::string path_;
  io::SafetensorsFile file_;
};

/// Where the latest state of a run is.
std::string checkpoint_path(const std::string& folder);
void load_weights(const SavedRun& run, nn::Module& model);

/// The report of a run so far.
void write_report(const TrainOptions& options, training::Trainer& trainer);

/// "97.31 %"
std::string percent(double fraction);

/// The device that --device asks for; DeviceError with the reason if there is none.
Device resolve_device(const std::string& name);

}  // namespace arete::cli
