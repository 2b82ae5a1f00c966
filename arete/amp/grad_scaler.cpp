#include "arete/amp/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/multi.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"
#include "arete/ops/shape.h"
#include "arete/ops/sparse.h"
#include "arete/ops/target.h"

namespace arete::amp {

using expr::Value;
using Values = std::span<const Value>;

namespace {

enum class Stage { ready, unscaled, stepped };

// What is known of an optimizer since the last update.
struct Progress {
  Stage stage = Stage::ready;
  Tensor found_inf;  // 0-d, f32, where the scale is
};

// What is known of an optimizer for good: whose gradients overflowed when it last happened.
struct Overflow {
  struct Parameter {
    const TensorImpl* impl;
    size_t number;
    std::string text;
  };
  std::vector<Parameter> parameters;  // those that had gradients, in the order of the flags
  Tensor flags;                       // 1-d, f32: 1 for an overflow at that step
  Tensor step;                        // 0-d, f64: its number, 0 if there was none
};

// 1 for each tensor with an element that is infinite or NaN, else 0.
Tensor overflow_flags(const std::vector<Tensor>& tensors) {
  const DType dtype = tensors[0].dtype();
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const expr::Program& program =
      cache.get(pack_key({int(dtype)}), {dtype}, {}, {kFloat32}, [&](Values v) {
        const double largest = dtype == kFloat64 ? std::numeric_limits<double>::max()
                                                 : double(std::numeric_limits<float>::max());
        // The comparison is false for NaN, too.
        const Value fits = abs(v[0]) <= largest;
        return std::vector{1.0 - expr::cast(fits, expr::Type::f32)};
      });
  return ops::reduce_each("grad_scaler_overflow", prim::Monoid::max, program, tensors);
}

// t *= factor for all, by one program.
void multiply(const std::vector<Tensor>& tensors, const Tensor& factor) {
  const DType dtype = tensors[0].dtype();
  static auto& cache = *new expr::ProgramCache;  // used until exit
  const expr::Program& program =
      cache.get(pack_key({int(dtype)}), {dtype, kFloat32}, {}, {dtype},
                [](Values v) { return std::vector{v[0] * expr::cast(v[1], v[0].type())}; });
  std::vector<prim::View> inputs, outputs;
  for (const Tensor& t : tensors) {
    inputs.push_back(ops::view_of(t));
    inputs.push_back(ops::view_of(factor));
    outputs.push_back(ops::view_of(t));
  }
  ops::run_programs("grad_scaler_unscale", program, factor.device(), int64_t(tensors.size()),
                    inputs, outputs);
}

Tensor number(double value, Device device, DType dtype = kFloat32) {
  return full({}, Scalar(value), {dtype, device});
}

// A small program over 0-d tensors (or vectors of one length and 0-d tensors). Its results are
// written over what is in `results`: a graph that replays it finds them where they were.
void compute(expr::ProgramPtr& program, std::vector<Value> (*body)(Values),
             const std::vector<Tensor>& inputs, const std::vector<Tensor>& results) {
  if (results[0].is_meta()) return;
  if (!program) {
    std::vector<DType> types, outs;
    for (const Tensor& t : inputs) types.push_back(t.dtype());
    for (const Tensor& t : results) outs.push_back(t.dtype());
    program = expr::trace([&](Values v) { return body(v); }, types, {}, outs);
  }
  std::vector<Tensor> wide;
  std::vector<prim::View> in, out;
  for (const Tensor& t : inputs) wide.push_back(t.expand(results[0].sizes()));
  for (const Tensor& t : wide) in.push_back(ops::view_of(t));
  for (const Tensor& t : results) out.push_back(ops::view_of(t));
  ops::run_program("grad_scaler", *program, results[0].device(), in, out);
}

// The scaler's own arithmetic is f32 without history, wherever it is called.
class OwnArithmetic {
  NoGradGuard no_grad_;
  ops::WithoutAutocast exact_;
};

std::string shorter(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

}  // namespace

Scalable::~Scalable() = default;

// Note [A scaler inside graphs]
// Scale, counters and what is known of overflows keep their places in memory and are written in
// place, by programs that read everything that may change there, also the scaler's settings. So
// step() and update() can be recorded into a CUDA graph. Only what they need must be there before:
// made inside the capture it would be made anew by each replay.

struct GradScaler::Body {
  GradScalerOptions options;
  int64_t initial_tracker = 0;
  // 0-d: f32, and f64 for the counts of updates: those left out, and all. The last four are
  // settings.
  Tensor scale, tracker, skipped, steps, growth, backoff, interval, floor;
  std::map<const Scalable*, Progress> progress;
  std::map<const Scalable*, Overflow> overflows;
  expr::ProgramPtr inverse_program, update_program, flags_program, step_program;

  void prepare(Device device) {
    if (scale.defined()) return;
    check_not_recorded(device);
    const OwnArithmetic own;
    scale = number(options.init_scale, device);
    tracker = number(double(initial_tracker), device);
    skipped = number(0, device, kFloat64);
    steps = number(0, device, kFloat64);
    growth = number(options.growth_factor, device);
    backoff = number(options.backoff_factor, device);
    interval = number(double(options.growth_interval), device);
    floor = number(options.min_scale, device);
  }
  static void check_not_recorded(Device device) {
    ARETE_CHECK(!ops::is_capturing(device),
                DeviceError("GradScaler",
                            "CUDA graph capture would make the scaler's state inside the graph, "
                            "where each replay makes it anew")
                    .hint("run one step with the scaler before the capture"));
  }
  // Writes a number that may be on the device already.
  static void set(Tensor& t, double value) {
    if (!t.defined()) return;
    const OwnArithmetic own;
    t.fill_(value);
  }
  void check_prepared(const char* function) const {
    ARETE_CHECK(scale.defined(),
                AutogradError("GradScaler",
                              std::string("Attempted ") + function +
                                  " but _scale is None.  This may indicate your script did not use "
                                  "scaler.scale(loss or outputs) earlier in the iteration."));
  }
  // In f64: 1 / scale in f32 need not be the nearest number.
  Tensor inverse() {
    const Tensor result = empty_like(scale);
    compute(
        inverse_program,
        [](Values v) {
          return std::vector{expr::cast(1.0 / expr::cast(v[0], expr::Type::f64), expr::Type::f32)};
        },
        {scale}, {result});
    return result;
  }

  // Looks at all gradients; with `factor` multiplies them, too.
  Tensor check(const Scalable& optimizer, const Tensor& factor, bool allow_half) {
    const std::vector<Tensor> parameters = optimizer.scaled_parameters();
    std::vector<Tensor> all;
    std::vector<size_t> numbers;  // of their parameters
    for (size_t i = 0; i < parameters.size(); ++i)
      if (Tensor g = parameters[i].grad(); g.defined()) {
        // Elements of one place may overflow together in half precision.
        if (is_sparse(g) && g.dtype() == kFloat16) parameters[i].set_grad(g = ops::coalesce(g));
        all.push_back(ops::elements_of(g));
        numbers.push_back(i);
      }
    for (const Tensor& g : all)
      ARETE_CHECK(allow_half || g.dtype() != kFloat16,
                  ValueError("unscale_", "Attempting to unscale FP16 gradients.")
                      .hint("keep parameters in float32 and compute under autocast, or give the "
                            "optimizer master_weights"));
    Overflow seen;
    std::vector<Tensor> flags;
    for (const std::vector<size_t>& group : ops::by_device_and_dtype(all)) {
      std::vector<Tensor> grads;
      for (size_t i : group) {
        if (all[i].numel() == 0 || all[i].is_meta()) continue;
        grads.push_back(all[i]);
        seen.parameters.push_back({parameters[numbers[i]].impl(), numbers[i], {}});
      }
      if (grads.empty()) continue;
      flags.push_back(overflow_flags(grads).to(scale.device(), true));
      if (factor.defined()) multiply(grads, factor.to(grads[0].device(), true));
    }
    if (all.empty()) return {};
    if (flags.empty()) return number(0, scale.device());
    seen.flags = flags.size() == 1 ? flags[0] : cat(flags);
    const Tensor found = amax(seen.flags);
    remember(overflows[&optimizer], std::move(seen), found, parameters);
    return found;
  }

  // The flags of the last overflow stay on the device until somebody asks.
  void remember(Overflow& kept, Overflow seen, const Tensor& found,
                const std::vector<Tensor>& parameters) {
    const bool same =
        kept.flags.defined() && kept.parameters.size() == seen.parameters.size() &&
        std::equal(kept.parameters.begin(), kept.parameters.end(), seen.parameters.begin(),
                   [](const auto& a, const auto& b) { return a.impl == b.impl; });
    if (!same) {
      check_not_recorded(scale.device());
      for (Overflow::Parameter& p : seen.parameters) p.text = ops::describe(parameters[p.number]);
      kept = {std::move(seen.parameters), zeros_like(seen.flags),
              number(0, scale.device(), kFloat64)};
    }
    compute(flags_program, [](Values v) { return std::vector{where(v[1] != 0.0, v[0], v[2])}; },
            {seen.flags, found, kept.flags}, {kept.flags});
    compute(step_program,
            [](Values v) { return std::vector{where(v[0] != 0.0, v[2] + 1.0, v[1])}; },
            {found, kept.step, steps}, {kept.step});
  }
};

GradScaler::GradScaler(const GradScalerOptions& options) : body_(std::make_unique<Body>()) {
  body_->options = options;
  if (!options.enabled) return;
  ARETE_CHECK(options.init_scale > 0 && std::isfinite(options.init_scale),
              ValueError("GradScaler", "init_scale must be a positive number")
                  .got(shorter(options.init_scale)));
  set_growth_factor(options.growth_factor);
  set_backoff_factor(options.backoff_factor);
}
GradScaler::~GradScaler() = default;
GradScaler::GradScaler(GradScaler&&) noexcept = default;
GradScaler& GradScaler::operator=(GradScaler&&) noexcept = default;

Tensor GradScaler::scale(const Tensor& outputs) {
  if (!is_enabled()) return outputs;
  ARETE_CHECK(outputs.defined(),
              ValueError("GradScaler", "outputs must be a Tensor or an iterable of Tensors"));
  body_->prepare(outputs.device());
  return outputs * body_->scale.to(outputs.device(), true);
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs) {
  std::vector<Tensor> scaled;
  for (const Tensor& t : outputs) scaled.push_back(scale(t));
  return scaled;
}

void GradScaler::unscale_(Scalable& optimizer) {
  if (!is_enabled()) return;
  body_->check_prepared("unscale_");
  Progress& p = body_->progress[&optimizer];
  ARETE_CHECK(p.stage != Stage::unscaled,
              AutogradError("GradScaler",
                            "unscale_() has already been called on this optimizer since the last "
                            "update()."));
  ARETE_CHECK(p.stage != Stage::stepped,
              AutogradError("GradScaler", "unscale_() is being called after step()."));
  const OwnArithmetic own;
  p.found_inf = body_->check(optimizer, body_->inverse(), optimizer.may_unscale_half());
  p.stage = Stage::unscaled;
}

void GradScaler::step(Scalable& optimizer) {
  if (!is_enabled()) return optimizer.step_scaled({}, {});
  body_->check_prepared("step");
  Progress& p = body_->progress[&optimizer];
  ARETE_CHECK(
      p.stage != Stage::stepped,
      AutogradError("GradScaler", "step() has already been called since the last update()."));
  const OwnArithmetic own;
  Tensor inverse;
  if (p.stage == Stage::ready) {
    p.found_inf = body_->check(optimizer, {}, optimizer.may_step_half());
    inverse = body_->inverse();
  }
  ARETE_CHECK(p.found_inf.defined(),
              AutogradError("GradScaler", "No inf checks were recorded for this optimizer.")
                  .hint("none of its parameters has a gradient"));
  optimizer.step_scaled(p.found_inf, inverse);
  p.stage = Stage::stepped;
}

void GradScaler::update(std::optional<double> new_scale) {
  if (!is_enabled()) return;
  body_->check_prepared("update");
  const OwnArithmetic own;
  if (new_scale) {
    Body::set(body_->scale, *new_scale);
    body_->progress.clear();
    return;
  }
  Tensor found;
  for (const auto& [optimizer, p] : body_->progress)
    if (p.found_inf.defined()) found = found.defined() ? found + p.found_inf : p.found_inf;
  ARETE_CHECK(found.defined(),
              AutogradError("GradScaler", "No inf checks were recorded prior to update."));
  Body& b = *body_;
  compute(b.update_program,
          [](Values v) -> std::vector<Value> {
            const Value scale = v[0], tracker = v[1], skipped = v[2], steps = v[3], growth = v[5],
                        backoff = v[6], interval = v[7], floor = v[8];
            const Value overflow = v[4] != 0.0;
            const Value streak = tracker + 1.0, grows = streak >= interval;
            const Value larger = scale * growth;
            const Value fits = larger <= double(std::numeric_limits<float>::max());
            // A floor keeps the scale from becoming 0; it never raises one that is below already.
            const Value smaller = max(scale * backoff, min(floor, scale));
            const Value kept = where(grows, where(fits, larger, scale), scale);
            return {where(overflow, smaller, kept), where(overflow, 0.0, where(grows, 0.0, streak)),
                    where(overflow, skipped + 1.0, skipped), steps + 1.0};
          },
          {b.scale, b.tracker, b.skipped, b.steps, found, b.growth, b.backoff, b.interval, b.floor},
          {b.scale, b.tracker, b.skipped, b.steps});
  b.progress.clear();
}

void GradScaler::update(const Tensor& new_scale) {
  if (!is_enabled()) return;
  body_->check_prepared("update");
  ARETE_CHECK(new_scale.numel() == 1 && !new_scale.requires_grad() && new_scale.is_floating_point(),
              ValueError("GradScaler",
                         "new_scale should be a float or a 1-element torch.cuda.FloatTensor or "
                         "torch.FloatTensor with requires_grad=False.")
                  .got(ops::describe(new_scale)));
  const OwnArithmetic own;
  body_->scale.copy_(new_scale.reshape({}));
  body_->progress.clear();
}

bool GradScaler::is_enabled() const { return body_->options.enabled; }
double GradScaler::get_scale() const {
  if (!is_enabled()) return 1;
  return body_->scale.defined() ? body_->scale.item<double>() : body_->options.init_scale;
}
Tensor GradScaler::scale_tensor() const { return body_->scale; }
int64_t GradScaler::get_growth_tracker() const {
  if (!is_enabled()) return 0;
  return body_->tracker.defined() ? int64_t(body_->tracker.item<double>()) : body_->initial_tracker;
}
const GradScalerOptions& GradScaler::options() const { return body_->options; }
void GradScaler::set_growth_factor(double factor) {
  ARETE_CHECK(factor > 1,
              ValueError("GradScaler", "The growth factor must be > 1.0.").got(shorter(factor)));
  body_->options.growth_factor = factor;
  Body::set(body_->growth, factor);
}
void GradScaler::set_backoff_factor(double factor) {
  ARETE_CHECK(factor < 1,
              ValueError("GradScaler", "The backoff factor must be < 1.0.").got(shorter(factor)));
  body_->options.backoff_factor = factor;
  Body::set(body_->backoff, factor);
}
void GradScaler::set_growth_interval(int64_t interval) {
  body_->options.growth_interval = interval;
  Body::set(body_->interval, double(interval));
}

GradScalerState GradScaler::state() const {
  const GradScalerOptions& o = body_->options;
  return {get_scale(), o.growth_factor, o.backoff_factor, o.growth_interval, get_growth_tracker()};
}

void GradScaler::load_state(const GradScalerState& state) {
  set_growth_factor(state.growth_factor);
  set_backoff_factor(state.backoff_factor);
  set_growth_interval(state.growth_interval);
  body_->options.init_scale = state.scale;
  body_->initial_tracker = state.growth_tracker;
  Body::set(body_->scale, state.scale);
  Body::set(body_->tracker, double(state.growth_tracker));
}

Tensor GradScaler::found_inf(const Scalable& optimizer) const {
  const auto it = body_->progress.find(&optimizer);
  return it == body_->progress.end() ? Tensor() : it->second.found_inf;
}
int64_t GradScaler::num_skipped() const {
  return body_->skipped.defined() ? int64_t(body_->skipped.item<double>()) : 0;
}
int64_t GradScaler::num_steps() const {
  return body_->steps.defined() ? int64_t(body_->steps.item<double>()) - num_skipped() : 0;
}

std::string GradScaler::report(const std::vector<std::pair<std::string, Tensor>>& names) const {
  if (!is_enabled()) return "GradScaler: not enabled; losses and gradients pass through.\n";
  const int64_t skipped = num_skipped(), steps = num_steps() + skipped;
  std::string text = "GradScaler: scale " + shorter(get_scale()) + ", " + std::to_string(skipped) +
                     " of " + std::to_string(steps) + " steps skipped.\n";
  bool any = false;
  size_t number_of_optimizer = 0;
  for (const auto& [optimizer, o] : body_->overflows) {
    ++number_of_optimizer;
    const int64_t at = o.step.defined() ? int64_t(o.step.item<double>()) : 0;
    if (at == 0) continue;
    any = true;
    const std::vector<double> flags = o.flags.to_vector<double>();
    const Overflow::Parameter* first = nullptr;
    int64_t count = 0;
    for (size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] == 0) continue;
      ++count;
      if (!first || o.parameters[i].number > first->number) first = &o.parameters[i];
    }
    const auto named = std::find_if(names.begin(), names.end(),
                                    [&](const auto& n) { return n.second.impl() == first->impl; });
    const std::string name = named == names.end() ? "parameter " + std::to_string(first->number)
                                                  : "'" + named->first + "'";
    text += "Last overflow";
    if (body_->overflows.size() > 1)
      text += " (optimizer " + std::to_string(number_of_optimizer) + ")";
    text += ": step " + std::to_string(at) + ", in the gradients of " + std::to_string(count) +
            " of " + std::to_string(flags.size()) + " parameters. Nearest to the loss, so that " +
            "backward met it first: " + name + " (" + first->text + ").\n";
  }
  if (!any) return text + "No gradient has overflowed.\n";
  const bool many = steps >= 100 && skipped * 5 > steps;
  text +=
      many ? "That is more than scaling explains: look for NaNs in the data or the forward pass, "
             "a learning rate that is too high, or layers that need float32.\n"
           : "Skipped steps are normal at the start: the scale begins high on purpose and halves "
             "until gradients fit into float16.\n";
  return text;
}

}  // namespace arete::amp
