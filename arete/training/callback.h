// What is called while a trainer runs.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

namespace arete::training {

class Trainer;

/// Base class: each method does nothing. What must survive a resumed run is in state_dict().
class Callback {
 public:
  virtual ~Callback() = default;
  /// Before the first epoch, after what was saved has been loaded.
  virtual void on_fit_begin(Trainer&) {}
  virtual void on_epoch_begin(Trainer&) {}
  /// After an update: Trainer::step() counts them, loss() is the mean loss of its batches.
  virtual void on_step_end(Trainer&) {}
  /// After validation, before the checkpoint: figures are in history().back().
  virtual void on_epoch_end(Trainer&) {}
  virtual void on_fit_end(Trainer&) {}
  virtual std::map<std::string, double> state_dict() const { return {}; }
  virtual void load_state_dict(const std::map<std::string, double>&) {}
};

/// Whether smaller or larger figures are better.
enum class Mode : uint8_t { min, max };

/// Ends training after an epoch when a figure has not become better by more than min_delta for
/// `patience` epochs, or is no longer finite.
class EarlyStopping : public Callback {
 public:
  explicit EarlyStopping(std::string monitor = "val_loss", int64_t patience = 3,
                         double min_delta = 0, Mode mode = Mode::min);
  void on_epoch_end(Trainer& trainer) override;
  std::map<std::string, double> state_dict() const override;
  void load_state_dict(const std::map<std::string, double>& state) override;
  double best() const { return best_; }
  int64_t waited() const { return waited_; }

 private:
  std::string monitor_;
  int64_t patience_, waited_ = 0;
  double min_delta_, best_;
  Mode mode_;
};

}  // namespace arete::training
