// What a training run keeps in its folder: checkpoint, metrics, event files, report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "arete/core/generator.h"
#include "arete/data/loader.h"
#include "arete/nn/module.h"
#include "arete/optim/optimizer.h"

namespace arete::cli {

/// The figures of one finished epoch.
struct EpochFigures {
  int64_t epoch = 0, step = 0;
  double train_loss = 0, train_accuracy = 0, test_loss = 0, test_accuracy = 0, seconds = 0;
};

/// Everything besides weights and optimizer that a resumed run needs to end bit-equal to one that
/// was never interrupted.
struct RunState {
  std::string dataset, model, schedule;
  int64_t batch_size = 0;
  uint64_t seed = 0;
  double lr = 0;
  int64_t step = 0;
  data::LoaderState loader;
  Generator::State generator;
  // The epoch under way.
  double loss_sum = 0;
  int64_t correct = 0, seen = 0;
  double seconds = 0;
  std::vector<EpochFigures> history;
};

std::string checkpoint_path(const std::string& folder);
/// Writes weights, optimizer and state as one safetensors file, all or nothing.
void save_checkpoint(const std::string& path, const nn::Module& model,
                     const optim::Optimizer& optimizer, const RunState& state);
/// Only the state (to know which model to make). IoError if the file is not a checkpoint.
RunState load_run_state(const std::string& path);
void load_weights(const std::string& path, nn::Module& model);
void load_optimizer(const std::string& path, optim::Optimizer& optimizer);

/// The report of a run so far.
void write_report(const std::string& folder, const RunState& state, const std::string& device,
                  int64_t parameters, int64_t epochs);

/// "97.31 %"
std::string percent(double fraction);

/// The device that --device asks for; DeviceError with the reason if there is none.
Device resolve_device(const std::string& name);

}  // namespace arete::cli
