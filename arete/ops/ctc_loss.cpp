// Connectionist temporal classification (declared in loss.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/filling.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/prim/positions.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
// The samples of all elements are samples of one call: dimension 1 of what has steps, else 0.
Results folded_samples(const Rewriting& r, std::initializer_list<size_t> with_steps,
                       std::initializer_list<size_t> results_with_steps) {
  if (r.batch == 0) return one_by_one(r);
  Changed call(r);
  for (size_t i = 0; i < r.call.size(); ++i)
    if (is_tensor_at(r, i)) call.set(i, fold(r.whole(i), std::ranges::count(with_steps, i)));
  Results results = call.run();
  for (size_t k = 0; k < results.size(); ++k)
    results[k] = unfold(results[k], r.batch, std::ranges::count(results_with_steps, k));
  return results;
}
Results ctc_losses_rule(const Rewriting& r) {
  constexpr size_t kTargets = 1, kStarts = 4;
  if (!r.call.has(kStarts)) return folded_samples(r, {0}, {1});
  // Targets that follow each other begin behind those of the elements before.
  const Tensor starts = r.whole(kStarts);
  const Scalar labels(r.call.tensor(kTargets).numel());
  Rewriting moved = r;
  moved.tensors[kStarts][0] = {
      starts + arange(Scalar(r.batch), starts.options()).mul(labels).unsqueeze(-1), true};
  return folded_samples(moved, {0}, {1});
}
Results ctc_losses_backward_rule(const Rewriting& r) { return folded_samples(r, {1, 5}, {0}); }
}  // namespace
}  // namespace vmaps
namespace {

// Note [CTC]
// The labels of a target with blanks around each, b l1 b l2 b ... b, are the states of a chain:
// from a step to the next one stays, moves to the next state, or skips a blank between two
// different labels. alpha[t][s] is the log probability of having emitted the first t + 1 steps and
// being in state s. Backwards, rest[t][s] is that of emitting what comes after step t from there:
// exp(alpha + rest + loss) is the share of state s at step t, and the gradient is minus the sum of
// the shares of a label. Both directions are recurrences.
//
// Impossible is kNever, a finite number so that differences of two impossible ways are numbers: its
// exponential is 0 beside any possible way. Sums of kNever over all steps stay within f32.
//
// The chain is one number for each state: its label * 4, + 1 where one may skip into the state, + 2
// where one may skip on from it. A target that is shorter than others goes on with blanks.
constexpr double kNever = -1e30;

using expr::Type;
using expr::Value;

// All of one device. Targets that follow each other have starts.
struct Lengths {
  Tensor input, target, starts;  // int64 (N)
  int64_t longest = 0;           // target
  int64_t steps = 0;             // longest input
};

void check_lengths(const Call& c, size_t i, int64_t batch) {
  const Tensor& t = c.tensor(i);
  const char* name = i == 2 ? "input_lengths" : "target_lengths";
  ARETE_CHECK(is_integer(t.dtype()),
              TypeError(c.name(), std::string(name) + " must be integral").got(describe(t)));
  ARETE_CHECK(t.dim() <= 1 && t.numel() == batch,
              ValueError(c.name(), std::string(name) + " must be of size batch_size")
                  .argument(name)
                  .expected(std::to_string(batch) + " lengths")
                  .got(describe(t)));
}

void check_value(const Call& c, const char* name, int64_t length, int64_t most) {
  ARETE_CHECK(
      length >= 0 && length <= most,
      ValueError(c.name(), std::string("Expected ") + name + " to have value at most " +
                               std::to_string(most) + ", but got value " + std::to_string(length)));
}

void check_sum(const Call& c, int64_t sum) {
  const Tensor& targets = c.tensor(1);
  ARETE_CHECK(targets.dim() == 2 || sum == targets.numel(),
              ValueError(c.name(), "Expected targets of size " + std::to_string(sum) +
                                       ", the sum of target_lengths, but got " +
                                       to_string(targets.sizes())));
}
int64_t longest_target(const Tensor& targets) {
  return targets.dim() == 2 ? targets.size(1) : std::numeric_limits<int64_t>::max();
}

// Lengths of batches, which each element has of its own.
void check_all_lengths(const Call& c, int64_t steps, int64_t batch) {
  for (const int64_t n : all_values(c.tensor(2)).to_vector<int64_t>())
    check_value(c, "input_lengths", n, steps);
  const Tensor target = all_values(c.tensor(3));
  for (const int64_t n : target.to_vector<int64_t>())
    check_value(c, "target_lengths", n, longest_target(c.tensor(1)));
  for (const int64_t sum : target.to(kInt64).reshape({-1, batch}).sum({1}).to_vector<int64_t>())
    check_sum(c, sum);
}

// Lengths that the host has: they are checked, and what no sample needs is left out.
Lengths known_lengths(const Call& c, int64_t steps, int64_t batch, int64_t classes,
                      const Device& device) {
  const Tensor& targets = c.tensor(1);
  std::vector<int64_t> all = c.tensor(2).to_vector<int64_t>();
  const std::vector<int64_t> target = c.tensor(3).to_vector<int64_t>();
  Lengths l;
  l.steps = 1;
  for (const int64_t n : all) {
    check_value(c, "input_lengths", n, steps);
    l.steps = std::max(l.steps, n);
  }
  all.insert(all.end(), target.begin(), target.end());
  int64_t sum = 0;
  for (const int64_t n : target) {
    check_value(c, "target_lengths", n, longest_target(targets));
    all.push_back(sum);
    sum += n;
    l.longest = std::max(l.longest, n);
  }
  check_sum(c, sum);
  if (targets.device().is_cpu()) {
    const bool padded = targets.dim() == 2;
    const Tensor used = padded ? targets.narrow(1, 0, l.longest) : targets;
    // Of a batch of targets, those of one element follow those of another.
    const std::vector<int64_t> labels = all_values(used).to_vector<int64_t>();
    for (size_t of = 0; of < labels.size(); of += size_t(used.numel()))
      for (size_t n = 0; n < target.size(); ++n)
        for (int64_t k = 0; k < target[n]; ++k) {
          const int64_t first = padded ? int64_t(n) * l.longest : all[2 * target.size() + n],
                        label = labels[of + size_t(first + k)];
          ARETE_CHECK(label >= 0 && label < classes,
                      IndexError(c.name(), "a target is out of bounds for log_probs with " +
                                               std::to_string(classes) + " classes")
                          .argument("targets")
                          .got(std::to_string(label)));
        }
  }
  const Tensor packed =
      tensor_from_host(all.data(), kInt64, Shape{3, batch}, TensorOptions(kInt64, device));
  l.input = packed.select(0, 0);
  l.target = packed.select(0, 1);
  if (targets.dim() == 1) l.starts = packed.select(0, 2);
  return l;
}

// Of lengths that are somewhere else nothing is known, and nothing checked.
Lengths lengths_of(const Call& c, const Tensor& x) {
  const Tensor& targets = c.tensor(1);
  const int64_t steps = x.size(0), batch = x.size(1);
  check_lengths(c, 2, batch);
  check_lengths(c, 3, batch);
  const bool may_look = !x.is_meta() && !(modes().word & Modes::kCapture);
  if (may_look && c.tensor(2).device().is_cpu() && c.tensor(3).device().is_cpu()) {
    if (!is_batched(c.tensor(2)) && !is_batched(c.tensor(3)))
      return known_lengths(c, steps, batch, x.size(2), x.device());
    check_all_lengths(c, steps, batch);
  }
  Lengths l;
  l.input = c.tensor(2).to(x.device()).to(kInt64).reshape({batch});
  l.target = c.tensor(3).to(x.device()).to(kInt64).reshape({batch});
  l.steps = steps;
  l.longest = targets.size(-1);
  if (targets.dim() == 1) {
    // All of them might be of one sample: with many that is far too much room.
    if (may_look && batch > 1) l.longest = all_values(l.target).max().item<int64_t>();
    l.starts = l.target.cumsum(0).sub(l.target);
  }
  return l;
}

// ---- programs

// (N) as an operand that is the same for all states of a row.
struct Column {
  explicit Column(const Tensor& t)
      : sizes{t.size(0), 1}, strides{t.stride(0), 0}, view(view_of(t)) {
    view.sizes = sizes;
    view.strides = strides;
  }
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;
  operator const prim::View&() const { return view; }

  const Shape sizes, strides;
  prim::View view;
};

// A tensor as a table: where it is if `fits`, else a copy.
class Table {
 public:
  Table(prim::Primitives& p, const Tensor& t, bool fits)
      : view_(view_of(t)), strides_(t.strides()) {
    if (fits) return;
    copy_.emplace(p, t.dtype(), t.sizes());
    p.copy({*copy_, view_});
    view_ = *copy_;
    strides_ = contiguous_strides(t.sizes());
  }
  operator const prim::View&() const { return view_; }
  int64_t stride(size_t d) const { return strides_[d]; }

 private:
  std::optional<prim::ScratchView> copy_;
  prim::View view_;
  Shape strides_;
};

Value within(Value x, Value size) { return expr::max(expr::min(x, size + -1.0), 0.0); }

const expr::Program& chain_program(DType targets, bool has_starts) {
  static auto& cache = *new expr::ProgramCache;
  std::vector<DType> inputs{kInt64, kInt64, kInt64, kInt64, targets, kInt64};
  if (has_starts) inputs.push_back(kInt64);
  return cache.get(
      pack_key({int(targets), has_starts}), inputs, {Type::i64, Type::i64, Type::i64}, {kInt64},
      [&](std::span<const Value> v) {
        const size_t p = inputs.size();
        const Value length = v[5], blank = v[p], numel = v[p + 1], width = v[p + 2];
        const Value first = has_starts ? v[6] : v[3] * width;
        const Value k = v[1] >> v[1].builder()->constant(Type::i64, 1);
        const Value is_label = (v[1] & v[1].builder()->constant(Type::i64, 1)) == 1.0;
        const auto label = [&](Value at) {
          return expr::cast(expr::load(v[4], within(first + at, numel)), Type::i64);
        };
        const auto number = [](Value b) { return expr::cast(b, Type::i64); };
        const Value own = label(k);
        const Value into = (k >= 1.0) & (label(k - 1.0) != own),
                    on = (k + 1.0 < length) & (label(k + 1.0) != own);
        return std::vector{expr::where(is_label & (k < length),
                                       own * 4.0 + number(on) * 2.0 + number(into), blank * 4.0)};
      },
      0b10001);
}

// What recurrences over the chain have in common: inputs of their programs.
enum : size_t { kStates, kState, kStep, kRow, kLogProbs, kChain, kOthers };

// The log probability that a state's label is emitted. Parameters from `p` on: the strides of
// log_probs and the number of its classes. A label that is none spoils the sample.
Value emitted(std::span<const Value> v, size_t p) {
  const Value label = v[kChain] >> v[kChain].builder()->constant(Type::i64, 2), classes = v[p + 3];
  const Value at = v[kStep] * v[p] + v[kRow] * v[p + 1] + within(label, classes) * v[p + 2];
  return expr::where((label >= 0.0) & (label < classes),
                     expr::max(expr::load(v[kLogProbs], at), kNever), double(NAN));
}
Value bit(Value code, int k) {
  expr::Builder& b = *code.builder();
  return (code & b.constant(Type::i64, int64_t{1} << k)) != 0.0;
}
Value log_sum(Value a, Value b, Value c) {
  const Value most = expr::max(a, expr::max(b, c));
  return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

const expr::Program& alpha_program(DType dtype) {
  static auto& cache = *new expr::ProgramCache;
  return cache.get(
      pack_key({int(dtype)}), {dtype, kInt64, kInt64, kInt64, dtype, kInt64},
      {Type::i64, Type::i64, Type::i64, Type::i64}, {dtype},
      [](std::span<const Value> v) {
        const Value s = v[kState];
        const auto before = [&](double steps, Value may) {
          return expr::where(may, expr::load(v[kStates], expr::max(s - steps, 0.0)), kNever);
        };
        const Value e = emitted(v, kOthers);
        const Value ways =
            log_sum(expr::load(v[kStates], s), before(1, s >= 1.0), before(2, bit(v[kChain], 0)));
        const Value first =
            expr::where(s < 2.0, expr::constant_like(e, 0), expr::constant_like(e, kNever));
        return std::vector{expr::where(v[kStep] == 0.0, first, ways) + e};
      },
      0b10001);
}

const expr::Program& loss_program(DType dtype) {
  static auto& cache = *new expr::ProgramCache;
  return cache.get(
      pack_key({int(dtype)}), {dtype, kInt64, kInt64, kInt64, dtype, kInt64, kInt64},
      {Type::i64, Type::i64}, {dtype},
      [](std::span<const Value> v) {
        // Where the row's last states are in alpha, and how many they are.
        const Value input = v[5], target = v[6], last = (v[7] + v[kRow]) * v[8], states = v[8];
        const auto at = [&](Value s) { return expr::load(v[4], last + within(s, states)); };
        const Value in_blank = at(target * 2.0),
                    in_label = expr::where(target > 0.0, at(target * 2.0 - 1.0), kNever);
        const Value loss = -log_sum(in_blank, in_label, expr::constant_like(in_blank, kNever));
        const Value infinite = expr::constant_like(loss, double(INFINITY));
        const Value none = expr::where(target == 0.0, expr::constant_like(loss, 0), infinite);
        return std::vector{
            expr::where(input > 0.0, expr::where(loss > -kNever / 10, infinite, loss), none)};
      },
      0b10001);
}

// States are rest + what is emitted; shown are the shares, as they count in the gradient.
const expr::Program& share_program(DType dtype) {
  static auto& cache = *new expr::ProgramCache;
  return cache.get(
      pack_key({int(dtype)}),
      {dtype, kInt64, kInt64, kInt64, dtype, kInt64, dtype, kInt64, kInt64, dtype, dtype},
      {Type::i64, Type::i64, Type::i64, Type::i64, Type::i64}, {dtype, dtype},
      [](std::span<const Value> v) {
        const Value s = v[kState], alpha = v[6], input = v[7], end = v[8] * 2.0, loss = v[9],
                    grad = v[10], states = v[15];
        const auto after = [&](double steps, Value may) {
          return expr::where(may, expr::load(v[kStates], within(s + steps, states)), kNever);
        };
        const Value ways = log_sum(expr::load(v[kStates], s), after(1, s + 1.0 < states),
                                   after(2, bit(v[kChain], 1)));
        const Value last = expr::where((s == end) | (s == end - 1.0), expr::constant_like(ways, 0),
                                       expr::constant_like(ways, kNever));
        const Value rest = expr::where(v[kStep] == input - 1.0, last, ways);
        const Value share = exp(alpha + rest + loss) * -grad;
        return std::vector{rest + emitted(v, 11),
                           expr::where(is_inf(loss), expr::constant_like(share, 0), share)};
      },
      0b10001);
}

// The part of the gradient that is the sum of all probabilities (Note [Gradient of CTC]), and what
// is there for blanks.
const expr::Program& mass_program(DType dtype) {
  static auto& cache = *new expr::ProgramCache;
  return cache.get(pack_key({int(dtype)}), {dtype, kInt64, kInt64, kInt64, dtype, dtype, dtype},
                   {Type::i64}, {dtype}, [](std::span<const Value> v) {
                     const Value step = v[1], label = v[2], input = v[3], loss = v[4], grad = v[5],
                                 of_blanks = v[6], blank = v[7];
                     const Value zero = expr::constant_like(grad, 0);
                     const Value counts = (step < input) & !is_inf(loss);
                     return std::vector{expr::where(counts, exp(v[0]) * grad, zero) +
                                        expr::where(label == blank, of_blanks, zero)};
                   });
}

// ---- records

using Numbers = SmallVector<expr::Literal, 8>;
Numbers numbers(std::initializer_list<int64_t> all) {
  Numbers n;
  for (const int64_t i : all) n.push_back({.i = i});
  return n;
}

const OpRecord& ctc_losses_backward_op =
    define(
        "ctc_losses_backward(Tensor grad, Tensor log_probs, Tensor input_lengths, Tensor "
        "target_lengths, Tensor losses, Tensor alpha, Tensor chain, int blank) -> Tensor")
        .doc("The gradient of ctc_losses with respect to log_probs.")
        .surface(Surface::internal)
        .batched(vmaps::ctc_losses_backward_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(1);
          out.push_back({Shape(x.sizes()), x.dtype()});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &x = c.tensor(1), &alpha = c.tensor(5), &chain = c.tensor(6);
          const int64_t steps = x.size(0), batch = x.size(1), classes = x.size(2),
                        states = chain.size(1), labels = states / 2;
          if (x.numel() == 0) return;
          const DType dtype = x.dtype();
          const Column input(c.tensor(2)), target(c.tensor(3)), loss(c.tensor(4)),
              grad(c.tensor(0));
          const prim::ScratchView shares(p, dtype, Shape{steps, batch, states});
          const Table table(p, x, x.layout().is_dense());
          {
            const prim::View inputs[] = {table, view_of(chain), view_of(alpha), input, target, loss,
                                         grad};
            p.recurrence({.program = &share_program(dtype),
                          .steps = steps,
                          .rows = batch,
                          .states = states,
                          .lengths = view_of(c.tensor(2)),
                          .inputs = inputs,
                          .out = shares,
                          .reverse = true,
                          .params = numbers({table.stride(0), table.stride(1), table.stride(2),
                                             classes, states})});
          }
          // Every other state is a blank.
          const auto every_other = [&](int64_t first, int64_t n, Shape& sizes, Shape& strides) {
            prim::View v = shares;
            v.data += first * int64_t(size_of(dtype));
            v.sizes = sizes = {steps, batch, n};
            v.strides = strides = {batch * states, states, 2};
            return v;
          };
          Shape sizes[2], strides[2];
          const prim::ScratchView of_blanks(p, dtype, Shape{steps, batch, 1});
          const prim::View blanks = every_other(0, labels + 1, sizes[0], strides[0]);
          p.reduce({.monoid = prim::Monoid::sum,
                    .space = blanks.sizes,
                    .reduced = 0b100,
                    .inputs = {&blanks, 1},
                    .out = of_blanks});
          const prim::Positions counted(p, kInt64, std::max(steps, classes));
          const Shape of_steps{steps, 1, 1}, along_steps{1, 0, 0}, of_classes{classes},
              along_classes{1};
          prim::View step = counted.all(), label = counted.all();
          step.sizes = of_steps, step.strides = along_steps;
          label.sizes = of_classes, label.strides = along_classes;
          const prim::View result = view_of(out[0]);
          {
            const prim::View inputs[] = {view_of(x), step, label, input, loss, grad, of_blanks};
            p.pointwise({.program = &mass_program(dtype),
                         .inputs = inputs,
                         .outputs = {&result, 1},
                         .params = numbers({c.integer(7)})});
          }
          if (labels == 0) return;
          const prim::ScratchView index(p, kInt64, Shape{batch, labels});
          const Shape of_labels{batch, labels}, along_labels{chain.stride(0), 2 * chain.stride(1)};
          prim::View codes = view_of(chain);
          codes.data += chain.stride(1) * int64_t(sizeof(int64_t));
          codes.sizes = of_labels, codes.strides = along_labels;
          static const expr::ProgramPtr& label_of = *new expr::ProgramPtr(expr::trace(
              [](std::span<const Value> v) {
                return std::vector{v[0] >> v[0].builder()->constant(Type::i64, 2)};
              },
              std::array{kInt64}, {}, std::array{kInt64}));
          const prim::View indices = index;
          p.pointwise({.program = label_of.get(), .inputs = {&codes, 1}, .outputs = {&indices, 1}});
          prim::View repeated = index;
          const prim::View added = every_other(1, labels, sizes[1], strides[1]);
          const Shape same_at_steps{0, labels, 1};
          repeated.sizes = sizes[1], repeated.strides = same_at_steps;
          p.scatter({.out = result,
                     .index = repeated,
                     .src = added,
                     .dim = 2,
                     .mode = prim::ScatterMode::add,
                     .op = "ctc_loss"});
        })
        .dtypes({kFloat32, kFloat64});

// The same in operators, step by step: for gradients of the gradient, which kernels do not have.
Tensor composed_gradient(const GradCall& g) {
  const Tensor grad = g.grad(), x = g.input(0), input = g.input(2), target = g.input(3),
               chain = g.output(2);
  const int64_t steps = x.size(0), batch = x.size(1), states = chain.size(1);
  const TensorOptions o(kInt64, x.device());
  const Tensor index =
      chain.bitwise_right_shift(Scalar(2)).unsqueeze(0).expand({steps, batch, states});
  const Tensor emitted = x.gather(2, index).clamp(Scalar(kNever)),
               state = arange(Scalar(states), o);
  const Tensor never = full({}, Scalar(kNever), x.options());
  const auto ways = [&](const Tensor& from, int64_t direction, int bit) {
    Tensor sum = logaddexp(from, pad(from, {direction, -direction}, "constant", kNever));
    if (states < 3) return sum;
    const Tensor skips = ne(chain.bitwise_and(Scalar(1 << bit)), Scalar(0));
    return logaddexp(
        sum, where(skips, pad(from, {2 * direction, -2 * direction}, "constant", kNever), never));
  };
  std::vector<Tensor> alpha, rest(static_cast<size_t>(steps));
  for (int64_t t = 0; t < steps; ++t)
    alpha.push_back(emitted.select(0, t) +
                    (t == 0 ? where(lt(state, Scalar(2)), zeros_like(never), never)
                            : ways(alpha.back(), 1, 0)));
  const Tensor end = target.mul(Scalar(2)).unsqueeze(1);
  const Tensor last =
      where(eq(state, end).logical_or(eq(state, end.sub(Scalar(1)))), zeros_like(never), never);
  for (int64_t t = steps - 1; t >= 0; --t)
    rest[size_t(t)] = t == steps - 1
                          ? last
                          : where(eq(input, Scalar(t + 1)).unsqueeze(1), last,
                                  ways(rest[size_t(t) + 1] + emitted.select(0, t + 1), -1, 1));
  const Tensor both = stack(alpha, 0) + stack(rest, 0);
  const Tensor total = both.select(0, 0).logsumexp({1}, true);
  const Tensor counts = lt(arange(Scalar(steps), o).unsqueeze(1), input)
                            .unsqueeze(2)
                            .logical_and(gt(total, Scalar(kNever / 10)));
  const Tensor shares = where(counts, (both - total).exp(), Scalar(0.0));
  const Tensor by_class = zeros_to_copy(x.sizes(), x.options()).scatter_add(2, index, shares);
  return where(counts, x.exp() - by_class, Scalar(0.0)) * grad.unsqueeze(1);
}

const OpRecord& ctc_losses_op =
    define(
        "ctc_losses(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
        "Tensor? starts, int blank, int longest) -> (Tensor losses, Tensor alpha, Tensor chain)")
        .doc(
            "The CTC loss of each sample of (T, N, C) log probabilities, no target being longer "
            "than `longest`, and what its gradient reads.")
        .surface(Surface::internal)
        .batched(vmaps::ctc_losses_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          const int64_t states = 2 * c.integer(6) + 1;
          out.push_back({{x.size(1)}, x.dtype()});
          out.push_back({{x.size(0), x.size(1), states}, x.dtype()});
          out.push_back({{x.size(1), states}, kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const Tensor &x = c.tensor(0), &targets = c.tensor(1), &alpha = out[1], &chain = out[2];
          const int64_t steps = x.size(0), batch = x.size(1), states = chain.size(1);
          if (batch == 0) return;
          const int64_t blank = c.integer(5);
          const Column input(c.tensor(2)), target(c.tensor(3));
          // (1, N, states) of a tensor of so many elements.
          const Shape row_sizes{1, batch, states}, row_strides{0, states, 1},
              one_sizes{1, batch, 1}, one_strides{0, 1, 0};
          prim::View codes = view_of(chain), losses = view_of(out[0]);
          codes.sizes = row_sizes, codes.strides = row_strides;
          losses.sizes = one_sizes, losses.strides = one_strides;
          if (states == 1 || targets.numel() == 0) {
            p.fill(filling(view_of(chain), Scalar(blank * 4), c.name()));
          } else {
            const Table labels(p, targets, targets.is_contiguous());
            SmallVector<prim::View, 3> inputs{labels, target};
            std::optional<Column> starts;
            if (c.has(4)) inputs.push_back(starts.emplace(c.tensor(4)));
            p.recurrence({.program = &chain_program(targets.dtype(), c.has(4)),
                          .steps = 1,
                          .rows = batch,
                          .states = states,
                          .inputs = inputs,
                          .out = codes,
                          .params = numbers({blank, targets.numel(), targets.size(-1)})});
          }
          const Table table(p, x, x.layout().is_dense());
          const prim::View of_alpha[] = {table, view_of(chain)};
          p.recurrence(
              {.program = &alpha_program(x.dtype()),
               .steps = steps,
               .rows = batch,
               .states = states,
               .lengths = view_of(c.tensor(2)),
               .inputs = of_alpha,
               .out = view_of(alpha),
               .params = numbers({table.stride(0), table.stride(1), table.stride(2), x.size(2)})});
          const prim::View of_losses[] = {view_of(alpha), input, target};
          p.recurrence({.program = &loss_program(x.dtype()),
                        .steps = 1,
                        .rows = batch,
                        .states = 1,
                        .inputs = of_losses,
                        .out = losses,
                        .params = numbers({(steps - 1) * batch, states})});
        })
        .grad(
            [](const GradCall& g) -> TensorList {
              // Note [Gradient of CTC]
              // PyTorch's gradient has the sum of the probabilities of each step as a second part,
              // which vanishes behind log_softmax; ours has it too, so that both agree everywhere.
              const Tensor dx = is_grad_enabled()
                                    ? composed_gradient(g)
                                    : call(ctc_losses_backward_op,
                                           {g.grad(), g.input(0), g.input(2), g.input(3),
                                            g.output(0), g.output(1), g.output(2), g.integer(5)});
              return {dx, {}, {}, {}, {}};
            },
            0b1101, 0b111)
        .no_grad_outputs(0b110)
        .dtypes({kFloat32, kFloat64});

// The losses (N) of log_probs (T, N, C), and the lengths of the targets.
std::pair<Tensor, Tensor> ctc_losses(const Call& c, Tensor x, int64_t blank) {
  const Lengths l = lengths_of(c, x);
  if (l.steps < x.size(0)) x = x.narrow(0, 0, l.steps);
  const Tensor targets = c.tensor(1).to(x.device());
  Tensor losses =
      call_all(ctc_losses_op, {x, targets, l.input, l.target, l.starts, blank, l.longest})[0];
  if (c.boolean(6)) losses = where(eq(losses, Scalar(double(INFINITY))), Scalar(0.0), losses);
  return {losses, l.target};
}

const OpRecord& ctc_loss_op =
    define(
        "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, "
        "int blank=0, str reduction=\"mean\", bool zero_infinity=False) -> Tensor")
        .face(
            "ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, int[] "
            "target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)")
        .functional({"ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor "
                     "target_lengths, int blank=0, str reduction='mean', bool zero_infinity=False)",
                     "ctc_loss.IntList(Tensor log_probs, Tensor targets, int[] input_lengths, "
                     "int[] target_lengths, int blank=0, str reduction='mean', bool "
                     "zero_infinity=False)"})
        .autocast(autocast_on_cpu(Autocast::f32))
        .doc(
            "Connectionist temporal classification: the negative log probability of emitting the "
            "targets in order. Its gradient is that behind log_softmax.")
        .compose([](const Call& c) -> Results {
          const Tensor &p = c.tensor(0), &targets = c.tensor(1);
          ARETE_CHECK(
              p.dim() == 3 || p.dim() == 2,
              ValueError(c.name(), "log_probs must be (T, N, C) or (T, C)").got(describe(p)));
          ARETE_CHECK(
              is_floating(p.dtype()),
              TypeError(c.name(), "log_probs must be of a floating dtype").got(describe(p)));
          ARETE_CHECK(is_integer(targets.dtype()) && (targets.dim() == 1 || targets.dim() == 2),
                      ValueError(c.name(), "targets must be integers, 1-d or (N, S)")
                          .got(describe(targets)));
          const int64_t blank = c.integer(4);
          ARETE_CHECK(blank >= 0 && blank < p.size(-1),
                      ValueError(c.name(), "blank must be in label range")
                          .argument("blank")
                          .got(std::to_string(blank)));
          const bool batched = p.dim() == 3;
          ARETE_CHECK(p.size(0) > 0, ValueError(c.name(), "log_probs tensor must not be empty"));
          ARETE_CHECK(targets.dim() == 1 || targets.size(0) == (batched ? p.size(1) : 1),
                      ValueError(c.name(), "targets must have one row for each sample")
                          .got(describe(targets)));
          const bool half = size_of(p.dtype()) < 4;
          Tensor x = batched ? p : p.unsqueeze(1);
          if (half) x = x.to(kFloat32);
          auto [losses, lengths] = ctc_losses(c, x, blank);
          const std::string_view reduction = c[5].string();
          if (reduction == "mean") losses = losses.div(lengths.clamp(Scalar(1)).to(x.dtype()));
          Tensor out = apply_reduction(losses, reduction, c.name());
          if (!batched && out.dim() == 1) out = out.squeeze(0);
          return {half ? out.to(p.dtype()) : out};
        });

}  // namespace
}  // namespace ops

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank, std::string_view reduction,
                bool zero_infinity) {
  return ops::call(ops::ctc_loss_op, {log_probs, targets, input_lengths, target_lengths, blank,
                                      reduction, zero_infinity});
}

}  // namespace arete

ARETE_FAMILY(ctc_loss)
