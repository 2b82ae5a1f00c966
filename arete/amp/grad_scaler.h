// Loss scaling: keeps gradients in the range of f16.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arete/core/tensor.h"

namespace arete::amp {

/// What a scaler must know of an optimizer; optim::Optimizer is one.
class Scalable {
 public:
  virtual ~Scalable();
  /// All parameters, in order.
  virtual std::vector<Tensor> scaled_parameters() const = 0;
  /// One update from gradients that are still multiplied by 1 / inverse_scale (undefined: they are
  /// not), which it unscales in place; none where found_inf is not 0. Both are f32, 0-d. Does not
  /// wait for a device to say so.
  virtual void step_scaled(const Tensor& found_inf, const Tensor& inverse_scale) = 0;
  /// Whether gradients in f16 may be unscaled in place: where small ones are lost by it.
  virtual bool may_unscale_half() const { return false; }
  /// The same of step() without unscale_(): where the update reads them before they are rounded.
  virtual bool may_step_half() const { return may_unscale_half(); }
};

struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  ///< steps without overflow after which the scale grows
  double min_scale = 0x1p-24;      ///< the scale does not fall below it
  bool enabled = true;             ///< false: every call passes through
};

/// Numbers that say all about a scaler, as PyTorch's state_dict() has them.
struct GradScalerState {
  double scale, growth_factor, backoff_factor;
  int64_t growth_interval, growth_tracker;
};

/// Multiplies losses so that small gradients do not vanish in f16, divides gradients before they
/// are used, leaves out updates from gradients that overflowed, and looks for the largest scale at
/// which they do not. Scale and counters live on the device of the first loss; nothing is read on
/// the host but in get_scale() and the like.
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);                      // only if gradients are looked at
///   nn::utils::clip_grad_norm_(parameters, 1.0);
///   scaler.step(optimizer);
///   scaler.update();
class GradScaler {
 public:
  /// ValueError for a growth factor that is not > 1 or a back-off that is not < 1.
  explicit GradScaler(const GradScalerOptions& options = {});
  ~GradScaler();
  GradScaler(GradScaler&&) noexcept;
  GradScaler& operator=(GradScaler&&) noexcept;

  /// outputs * scale, with history.
  Tensor scale(const Tensor& outputs);
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs);
  /// Divides the optimizer's gradients by the scale, in place. Once between two updates.
  void unscale_(Scalable& optimizer);
  /// Looks for infinities and NaNs unless unscale_() did, and has the optimizer step. The gradients
  /// are unscaled after it in any case.
  void step(Scalable& optimizer);
  /// Moves the scale by what the steps since the last call found, or sets it.
  void update(std::optional<double> new_scale = {});
  void update(const Tensor& new_scale);

  bool is_enabled() const;
  /// Waits for the device.
  double get_scale() const;
  /// The same where the device has it, 0-d; undefined before the first use.
  Tensor scale_tensor() const;
  int64_t get_growth_tracker() const;
  const GradScalerOptions& options() const;
  void set_growth_factor(double factor);
  void set_backoff_factor(double factor);
  void set_growth_interval(int64_t interval);

  GradScalerState state() const;
  void load_state(const GradScalerState& state);

  /// 0-d: whether this optimizer's gradients overflowed since the last update; undefined if that
  /// was not looked at.
  Tensor found_inf(const Scalable& optimizer) const;
  /// Steps taken, steps left out. Wait for the device.
  int64_t num_steps() const;
  int64_t num_skipped() const;
  /// For people: the scale, how many steps were left out, which gradients overflowed when it last
  /// happened and which of them backward met first. `names` gives parameters their names. Waits for
  /// the device; until it is called the knowledge stays there.
  std::string report(const std::vector<std::pair<std::string, Tensor>>& names = {}) const;
  /// The same with what nn::Module::named_parameters() gives, or any other range of such pairs.
  template <std::ranges::input_range Names>
  std::string report(const Names& names) const {
    return report(std::vector<std::pair<std::string, Tensor>>(names.begin(), names.end()));
  }

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace arete::amp
