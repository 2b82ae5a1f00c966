#include <algorithm>
#include <cstring>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/complex.h"
#include "arete/ops/creation.h"
#include "arete/ops/in_place.h"
#include "arete/ops/multi.h"
#include "arete/ops/shape.h"
#include "arete/ops/target.h"
#include "arete/optim/state_internal.h"
#include "arete/optim/update_internal.h"
#include "arete/prim/recorder.h"

namespace arete::optim {

// Note [Steps on the device]
// Whether the counts of updates are on the host or on the device decides how a step gets its
// numbers (Note [Numbers of an update]). They are on the device where a graph is to replay the
// step, and where only the device knows whether an update takes place, because a scaler found an
// overflow there. Then a small program runs over all parameters of a batch before the update. From
// the count, the numbers of the state and the settings it computes the numbers of this step; it
// moves the count and the state's numbers on in place, or not, and writes one row for each
// parameter. The update of a parameter reads its row. So parameters need not have equal counts,
// nothing changes its address, and nothing waits. Under a scaler each row begins with what
// gradients are multiplied by, with a minus for "leave everything else as it is": after a step they
// are unscaled, whether it took place or not.

// Programs already traced, by what they depend on.
expr::ProgramPtr& Optimizer::Programs::find(std::span<const uint32_t> key) {
  return traced[std::vector<uint32_t>(key.begin(), key.end())];
}

namespace {

// Rows and pages have their numbers at multiples of this, which is how kernels over many tensors
// want their operands.
constexpr int64_t kPlace = 16;
enum Purpose : uint32_t { for_numbers, for_page, for_update, for_unscaling, for_history };
using Views = std::vector<prim::View>;

prim::View place_of(const Tensor& t) {
  std::byte* const data = ops::operand_data(*t.storage());
  return {
      data + t.layout().offset * int64_t(t.element_size()), t.dtype(), {}, {}, t.storage().get()};
}
prim::View place_in(const Tensor& t, size_t k) {
  std::byte* const data = ops::operand_data(*t.storage());
  return {data ? data + int64_t(k) * kPlace : nullptr, t.dtype(), {}, {}, t.storage().get()};
}
Tensor places(size_t n, DType dtype, Device device) {
  return ops::empty_tensor({int64_t(n), kPlace / int64_t(size_of(dtype))}, dtype, device);
}

}  // namespace

// ---- the settings where steps on a device read them

Optimizer::Page::Page(size_t n, Device device) : memory(places(n, kFloat64, device)) {}

prim::View Optimizer::Page::at(size_t k) const { return place_in(memory, k); }

void Optimizer::Page::write(const std::vector<double>& values, Programs& programs) {
  const bool same = values.size() == written.size() &&  // also where both are NaN
                    std::memcmp(values.data(), written.data(), values.size() * sizeof(double)) == 0;
  if (same || memory.is_meta()) return;
  const uint32_t key[] = {for_page, uint32_t(values.size())};
  expr::ProgramPtr& program = programs.find(key);
  if (!program) {
    const std::vector<expr::Type> params(values.size(), expr::Type::f64);
    const std::vector<DType> outputs(values.size(), kFloat64);
    program =
        expr::trace([](std::span<const Value> v) { return std::vector<Value>(v.begin(), v.end()); },
                    {}, params, outputs);
  }
  Views outputs;
  std::vector<expr::Literal> literals;
  for (size_t k = 0; k < values.size(); ++k) {
    outputs.push_back(at(k));
    literals.push_back({.f = values[k]});
  }
  ops::run_program("optimizer_settings", *program, memory.device(), {}, outputs, literals);
  written = values;
}

// ---- the numbers

DType Optimizer::Batch::number_dtype() const {
  const DType t = kind_.param;
  return t == kFloat64 || t == kComplex128 ? kFloat64 : kFloat32;
}

void Optimizer::Batch::compute(uint32_t variant, const NumbersRule& numbers,
                               std::initializer_list<double> constants) {
  const std::span<const double> c(constants.begin(), constants.size());
  if (history_)
    compute_with_history(variant, numbers, c);
  else if (kind_.on_device)
    compute_on_device(variant, numbers, c);
  else
    compute_on_host(numbers, c);
}

void Optimizer::Batch::compute_on_host(const NumbersRule& numbers,
                                       std::span<const double> constants) {
  std::vector<double> settings;
  settings.reserve(group_->options().size());
  for (const auto& [name, setting] : group_->options()) settings.push_back(setting.value());
  Computed<double> c =
      numbers.host({kind_.steps + 1, group_->options(), settings, values_, constants});
  literals_ = std::move(c.update);
  if (unscales_) literals_.insert(literals_.begin(), inverse_);
  values_ = std::move(c.state);
}

// The inputs of the program: count, numbers of the state, settings, found_inf, inverse_scale.
expr::ProgramPtr Optimizer::Batch::numbers_program(uint32_t variant, const NumbersRule& numbers,
                                                   std::span<const DType> inputs,
                                                   size_t n_constants) const {
  const DType dtype = number_dtype();
  std::vector<uint32_t> key{for_numbers,
                            variant,
                            uint32_t(dtype),
                            uint32_t(n_constants),
                            uint32_t(found_inf_.defined()),
                            uint32_t(unscales_)};
  for (DType t : inputs) key.push_back(uint32_t(t));
  expr::ProgramPtr& program = programs_->find(key);
  if (program) return program;

  const auto options = group_->options();
  const size_t moving = moving_.size();
  // How many there are, from any values.
  const std::vector<double> some(std::max({options.size(), moving, n_constants}), 0.5);
  const std::span<const double> any(some);
  const size_t n_numbers = numbers
                               .host({1, options, any.first(options.size()),
                                      any.first(moving - counts_), any.first(n_constants)})
                               .update.size();
  std::vector<DType> outputs(inputs.begin(), inputs.begin() + int64_t(moving));
  outputs.resize(moving + size_t(has_factor()) + n_numbers, dtype);

  const expr::Type f64 = expr::Type::f64;
  const std::vector<expr::Type> params(n_constants, f64);
  program = expr::trace(
      [&](std::span<const Value> v) {
        const Value* next = v.data();
        const auto take = [&] { return expr::cast(*next++, f64); };
        std::vector<Value> before(moving), settings(options.size());
        for (Value& b : before) b = take();
        for (size_t i = 0; i < options.size(); ++i)
          if (!options[i].second.is_fixed()) settings[i] = take();
        Value found, factor;
        if (found_inf_.defined()) found = take() != 0.0;
        if (unscales_) factor = take();

        const Value one = v.front().builder()->constant(f64, 1.0);
        const Value t = counts_ ? before[0] + 1.0 : one;
        const Computed<Value> c = numbers.device(
            {t, options, settings, std::span(before).subspan(counts_), v.last(n_constants)});
        std::vector<Value> after;
        if (counts_) after.push_back(t);
        after.insert(after.end(), c.state.begin(), c.state.end());
        ARETE_ASSERT(after.size() == moving);
        std::vector<Value> out;
        for (size_t i = 0; i < moving; ++i)
          out.push_back(found.builder() ? expr::where(found, before[i], after[i]) : after[i]);
        if (has_factor()) {
          if (!factor.builder()) factor = one;
          out.push_back(found.builder() ? expr::where(found, -factor, factor) : factor);
        }
        out.insert(out.end(), c.update.begin(), c.update.end());
        for (size_t i = 0; i < out.size(); ++i)
          out[i] = expr::cast(out[i], expr::compute_type(outputs[i]));
        return out;
      },
      inputs, params, outputs);
  return program;
}

void Optimizer::Batch::compute_on_device(uint32_t variant, const NumbersRule& numbers,
                                         std::span<const double> constants) {
  const Device device = kind_.device;
  // What all items read: settings, where they are, and what the scaler says.
  Views shared;
  size_t k = 0;
  for (const auto& [name, setting] : group_->options()) {
    if (setting.is_fixed()) continue;
    const Tensor& t = setting.tensor();
    const bool is_there = t.defined() && t.device() == device;
    shared.push_back(is_there ? place_of(t) : page_->at(k));
    ++k;
  }
  for (const Tensor& t : {found_inf_, inverse_scale_})
    if (t.defined()) shared.push_back(place_of(t));

  std::vector<DType> types;
  for (size_t key : moving_) types.push_back(items_.front().slot->state[key].dtype());
  for (const prim::View& v : shared) types.push_back(v.dtype);
  const expr::ProgramPtr program = numbers_program(variant, numbers, types, constants.size());
  n_row_ = program->outputs().size() - moving_.size();
  rows_ = places(items_.size() * n_row_, number_dtype(), device);

  Views inputs, outputs;
  inputs.reserve(items_.size() * program->inputs().size());
  outputs.reserve(items_.size() * program->outputs().size());
  for (size_t i = 0; i < items_.size(); ++i) {
    for (size_t key : moving_) {
      inputs.push_back(place_of(items_[i].slot->state[key]));
      outputs.push_back(inputs.back());
    }
    inputs.insert(inputs.end(), shared.begin(), shared.end());
    for (size_t n = 0; n < n_row_; ++n) outputs.push_back(place_in(rows_, i * n_row_ + n));
  }
  std::vector<expr::Literal> literals;
  for (double c : constants) literals.push_back({.f = c});
  ops::run_programs("optimizer_numbers", *program, device, int64_t(items_.size()), inputs, outputs,
                    literals);
}

// ---- the update

void Optimizer::Batch::pass(std::initializer_list<uint32_t> what, const Operate& operate,
                            const Body& body) {
  const expr::Type type = expr::compute_type(number_dtype());
  Views inputs, outputs;
  expr::ProgramPtr program;
  int64_t n_tensors = 0;
  const size_t n_beside = kind_.on_device ? n_row_ : literals_.size();
  ARETE_ASSERT(n_beside >= size_t(has_factor()));  // compute() comes first
  const auto launch = [&] {
    if (n_tensors == 0) return;
    std::vector<expr::Literal> literals;
    if (!kind_.on_device)
      for (double n : literals_) literals.push_back({.f = n});
    ops::run_programs("optimizer_update", *program, kind_.device, n_tensors, inputs, outputs,
                      literals);
    inputs.clear();
    outputs.clear();
    n_tensors = 0;
  };
  const Storage* const late = late_gradients();
  for (size_t k = 0; k < 2 * items_.size(); ++k) {
    const size_t i = k % items_.size();
    if (k == items_.size()) {
      if (!late) break;
      launch();
    }
    const Item& item = items_[i];
    const bool is_late = late && item.grad.storage().get() == late;
    if (item.param.numel() == 0 || is_late != (k >= items_.size())) continue;
    const size_t first_in = inputs.size(), first_out = outputs.size();
    operate(item, inputs, outputs);
    if (!program) {
      const size_t n_in = inputs.size(), n_out = outputs.size();
      std::vector<uint32_t> key(what);
      key.insert(key.end(),
                 {uint32_t(type), uint32_t(kind_.on_device), uint32_t(found_inf_.defined()),
                  uint32_t(unscales_), uint32_t(n_beside), uint32_t(n_in)});
      std::vector<DType> in, out;
      for (const prim::View& v : inputs) in.push_back(v.dtype);
      for (const prim::View& v : outputs) out.push_back(v.dtype);
      for (DType t : in) key.push_back(uint32_t(t));
      for (DType t : out) key.push_back(uint32_t(t));
      expr::ProgramPtr& known = programs_->find(key);
      if (!known) {
        if (kind_.on_device) in.resize(n_in + n_beside, number_dtype());
        const std::vector<expr::Type> params(kind_.on_device ? 0 : n_beside, type);
        known = expr::trace(
            [&](std::span<const Value> v) {
              Beside beside{v.subspan(n_in), {}, {}};
              if (has_factor()) {
                const Value factor = beside.numbers.front();
                beside.numbers = beside.numbers.subspan(1);
                if (unscales_) beside.factor = kind_.on_device ? abs(factor) : factor;
                if (found_inf_.defined()) beside.takes_place = factor > 0.0;
              }
              return body(v.first(n_in), beside);
            },
            in, params, out);
      }
      program = known;
      inputs.reserve(items_.size() * program->inputs().size());
      outputs.reserve(items_.size() * n_out);
    }
    if (kind_.on_device)
      for (size_t n = 0; n < n_row_; ++n) inputs.push_back(place_in(rows_, i * n_row_ + n));
    ARETE_ASSERT(inputs.size() - first_in == program->inputs().size() &&
                 outputs.size() - first_out == program->outputs().size());
    ++n_tensors;
  }
  launch();
}

// Where gradients may still be reduced, those of the first parameters are the last: the update of
// the others goes first and does not wait for them.
const Storage* Optimizer::Batch::late_gradients() const {
  if (!kind_.device.is_cuda() || modes().word & Modes::kCapture) return nullptr;
  const prim::Capture* const capture = prim::putting_off();
  const auto late = std::ranges::find_if(items_, [&](const Item& item) {
    const Storage& memory = *item.grad.storage();
    return capture ? capture->has_effect_on(memory) : memory.has_pending_copies();
  });
  return late == items_.end() ? nullptr : late->grad.storage().get();
}

void Optimizer::Batch::unscale() {
  if (!unscales_) return;
  pass(
      {for_unscaling},
      [&](const Item& item, Views& inputs, Views& outputs) {
        inputs.push_back(view(item.grad));
        outputs.push_back(inputs.back());
      },
      [](std::span<const Value> v, const Beside& beside) {
        return std::vector{expr::cast(v[0], beside.factor.type()) * beside.factor};
      });
}

prim::View Optimizer::Batch::view(const Tensor& t) {
  if (!is_complex(t.dtype())) return ops::view_of(t);
  parts_.push_back(view_as_real(t));
  return ops::view_of(parts_.back());
}

prim::View Optimizer::Batch::parameter(const Item& item) {
  ops::check_in_place(item.param, name_, false);
  return view(item.param);
}

// Operands: parameter, gradient, master, state. Results: parameter, master, state, and the gradient
// if it is unscaled.
std::vector<Value> Optimizer::Batch::in_place(const Rule& rule, std::span<const Value> operands,
                                              const Beside& beside) const {
  const Value* next = operands.data();
  Value param = *next++, grad = expr::cast(*next++, expr::compute_type(number_dtype()));
  const Value old_param = param;
  if (kind_.masters) param = *next++;
  if (kind_.compares)
    param =
        expr::where(old_param != param.builder()->round_to(param, kind_.param), old_param, param);
  const std::span<const Value> state(next, tensors_.size());
  if (beside.factor.builder()) grad = grad * beside.factor;
  std::vector<Value> fresh = rule({param, grad, state, beside.numbers});
  const Value new_param = fresh[0];
  // Gradients that overflowed have left their mark in all of the new values.
  fresh[0] = beside.kept(new_param, param);
  for (size_t i = 0; i < state.size(); ++i) fresh[i + 1] = beside.kept(fresh[i + 1], state[i]);
  if (kind_.masters) fresh.insert(fresh.begin(), beside.kept(new_param, old_param));
  if (beside.factor.builder()) fresh.push_back(grad);
  return fresh;
}

void Optimizer::Batch::update(uint32_t variant, const Rule& rule) {
  if (history_) return update_with_history(variant, rule);
  pass(
      {for_update, variant, uint32_t(kind_.masters), uint32_t(kind_.compares),
       uint32_t(tensors_.size())},
      [&](const Item& item, Views& inputs, Views& outputs) {
        inputs.push_back(parameter(item));
        outputs.push_back(inputs.back());
        inputs.push_back(view(item.grad));
        const prim::View grad = inputs.back();
        const auto rewrite = [&](size_t key) {
          inputs.push_back(view(item.slot->state[key]));
          outputs.push_back(inputs.back());
        };
        if (kind_.masters) rewrite(master_);
        for (size_t key : tensors_) rewrite(key);
        if (unscales_) outputs.push_back(grad);
      },
      [&](std::span<const Value> v, const Beside& beside) { return in_place(rule, v, beside); });
}

void Optimizer::Batch::finish() {
  if (kind_.on_device || history_ || moving_.empty()) return;
  for (const Item& item : items_) {
    size_t i = 0;
    if (counts_) write_number(item.slot->state[moving_[i++]], kind_.steps + 1);
    for (double value : values_) write_number(item.slot->state[moving_[i++]], value);
  }
}

// ---- with history

namespace {
Tensor as_real(const Tensor& t) { return is_complex(t.dtype()) ? view_as_real(t) : t; }
}  // namespace

void Optimizer::Batch::compute_with_history(uint32_t variant, const NumbersRule& numbers,
                                            std::span<const double> constants) {
  if (unscales_) {
    literals_ = {inverse_};
    unscale();
    unscales_ = false;
  }
  const Device device = kind_.device;
  std::vector<Tensor> settings;
  for (const auto& [name, setting] : group_->options()) {
    if (setting.is_fixed()) continue;
    const Tensor& t = setting.tensor();
    settings.push_back(t.defined() ? t.reshape({}).to(device)
                                   : full({}, setting.value(), {kFloat64, device}));
  }
  const std::vector<Scalar> scalars(constants.begin(), constants.end());
  for (const Item& item : items_) {
    std::vector<Tensor> inputs;
    // The history keeps what it reads, and they are moved on below.
    for (size_t key : moving_) inputs.push_back(item.slot->state[key].detach().clone().to(device));
    inputs.insert(inputs.end(), settings.begin(), settings.end());
    std::vector<DType> types;
    for (const Tensor& t : inputs) types.push_back(t.dtype());
    const ops::Results r = ops::apply_program(
        numbers_program(variant, numbers, types, constants.size()), inputs, scalars, name_);
    const NoGradGuard no_grad;
    for (size_t i = 0; i < moving_.size(); ++i) item.slot->state[moving_[i]].copy_(r[i]);
    with_history_.emplace_back(r.begin() + int64_t(moving_.size()), r.end());
  }
}

void Optimizer::Batch::update_with_history(uint32_t variant, const Rule& rule) {
  for (size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    Tensor param = as_real(item.param);
    std::vector<Tensor> state;
    for (size_t key : tensors_) state.push_back(as_real(item.slot->state[key]));
    // The history keeps what it reads, which is written below.
    std::vector<Tensor> inputs{param.clone(), as_real(item.grad)};
    for (const Tensor& s : state) inputs.push_back(s.clone());
    inputs.insert(inputs.end(), with_history_[i].begin(), with_history_[i].end());
    std::vector<DType> in, out{param.dtype()};
    for (const Tensor& t : inputs) in.push_back(t.dtype());
    for (const Tensor& s : state) out.push_back(s.dtype());
    std::vector<uint32_t> key{for_history, variant, uint32_t(state.size())};
    for (DType t : in) key.push_back(uint32_t(t));
    expr::ProgramPtr& program = programs_->find(key);
    if (!program)
      program = expr::trace(
          [&](std::span<const Value> v) {
            const size_t n_operands = 2 + state.size();
            return in_place(rule, v.first(n_operands), {v.subspan(n_operands), {}, {}});
          },
          in, {}, out);
    const ops::Results r = ops::apply_program(program, inputs, {}, name_);
    param.copy_(r[0]);
    for (size_t k = 0; k < state.size(); ++k) state[k].copy_(r[k + 1]);
  }
}

}  // namespace arete::optim
