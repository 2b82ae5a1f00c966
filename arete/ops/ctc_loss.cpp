// Connectionist temporal classification (declared in loss.h).
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/shape.h"

namespace arete {
namespace ops {
namespace {

// Note [CTC]
// The labels of a target with blanks around each, b l1 b l2 b ... b, are the states of a chain:
// from a step to the next one stays, moves to the next state, or skips a blank between two
// different labels. alpha[t][s] is the log probability of having emitted the first t + 1 steps and
// being in state s. Steps after a sample's own end change nothing.
//
// Impossible is kNever, a finite number so that differences and gradients of two impossible ways
// are numbers: its exponential is 0 beside any possible way. Sums of kNever over all steps stay
// within f32.
constexpr double kNever = -1e30;

struct Lengths {
  Tensor input, target;  // int64 (N)
};

// Labels (N, S), blank where a target has ended.
Tensor padded_targets(const Call& c, const Tensor& lengths, int64_t batch, int64_t blank) {
  const Tensor targets = c.tensor(1).to(kInt64);
  const TensorOptions o(kInt64, targets.device());
  Tensor labels;
  int64_t longest = 0;
  if (targets.dim() == 2) {
    longest = targets.size(1);
    labels = targets;
  } else if (targets.numel() > 0) {
    // One after the other: without a look at the lengths (a meta tensor) none is longer than all.
    longest = targets.numel();
    if (batch > 1 && !targets.is_meta() && !(modes().word & Modes::kCapture))
      longest = lengths.max().item<int64_t>();
    const Tensor begin = lengths.cumsum(0).sub(lengths).unsqueeze(1);
    const Tensor place = begin.add(arange(Scalar(longest), o));
    labels = take(targets, place.clamp(Scalar(0), Scalar(targets.numel() - 1)));
  }
  if (longest == 0) return empty({batch, 0}, o);
  return where(lt(arange(Scalar(longest), o), lengths.unsqueeze(1)), labels, Scalar(blank));
}

// (N) integers on the device of the log probabilities.
Tensor lengths_of(const Call& c, size_t i, int64_t batch) {
  const Tensor& t = c.tensor(i);
  const char* name = i == 2 ? "input_lengths" : "target_lengths";
  ARETE_CHECK(is_integer(t.dtype()),
              TypeError(c.name(), std::string(name) + " must be integral").got(describe(t)));
  ARETE_CHECK(t.dim() <= 1 && t.numel() == batch,
              ValueError(c.name(), std::string(name) + " must be of size batch_size")
                  .argument(name)
                  .expected(std::to_string(batch) + " lengths")
                  .got(describe(t)));
  return t.to(c.tensor(0).device()).to(kInt64).reshape({batch});
}

// What can be looked at without waiting for a device.
void check_lengths(const Call& c, const Lengths& lengths, int64_t steps) {
  const Tensor& targets = c.tensor(1);
  if (!lengths.input.device().is_cpu() || (modes().word & Modes::kCapture)) return;
  int64_t sum = 0;
  for (int64_t n : lengths.input.to_vector<int64_t>())
    ARETE_CHECK(
        n >= 0 && n <= steps,
        ValueError(c.name(), "Expected input_lengths to have value at most " +
                                 std::to_string(steps) + ", but got value " + std::to_string(n)));
  for (int64_t n : lengths.target.to_vector<int64_t>()) {
    ARETE_CHECK(n >= 0 && (targets.dim() == 1 || n <= targets.size(1)),
                ValueError(c.name(), "Expected target_lengths to have value at most " +
                                         std::to_string(targets.size(-1)) + ", but got value " +
                                         std::to_string(n)));
    sum += n;
  }
  ARETE_CHECK(targets.dim() == 2 || sum == targets.numel(),
              ValueError(c.name(), "Expected targets of size " + std::to_string(sum) +
                                       ", the sum of target_lengths, but got " +
                                       to_string(targets.sizes())));
}

// The losses (N) of log_probs (T, N, C).
Tensor ctc_losses(const Call& c, const Tensor& log_probs, int64_t blank) {
  const int64_t steps = log_probs.size(0), batch = log_probs.size(1);
  const Lengths lengths{lengths_of(c, 2, batch), lengths_of(c, 3, batch)};
  check_lengths(c, lengths, steps);
  const Tensor labels = padded_targets(c, lengths.target, batch, blank);
  const int64_t n_labels = labels.size(1), states = 2 * n_labels + 1;
  const TensorOptions o(kInt64, log_probs.device());

  // States and where a blank may be skipped: at a label that differs from the one before.
  const Tensor blanks = full({batch, n_labels, 1}, Scalar(blank), o);
  const Tensor chain = cat({stack({blanks.squeeze(-1), labels}, 2).reshape({batch, 2 * n_labels}),
                            full({batch, 1}, Scalar(blank), o)},
                           1);
  const Tensor before = pad(chain, {2, 0}, "constant", double(blank)).narrow(1, 0, states);
  const Tensor may_skip = ne(chain, Scalar(blank)).logical_and(ne(chain, before));

  const Tensor emitted =
      log_probs.gather(2, chain.unsqueeze(0).expand({steps, batch, states})).clamp(Scalar(kNever));
  const Tensor state = arange(Scalar(states), o);
  Tensor alpha = where(lt(state, Scalar(2)), emitted.select(0, 0), Scalar(kNever));
  for (int64_t t = 1; t < steps; ++t) {
    const Tensor moved = pad(alpha, {1, -1}, "constant", kNever);
    Tensor ways = logaddexp(alpha, moved);
    if (states > 2) {
      const Tensor skipped = pad(alpha, {2, -2}, "constant", kNever);
      ways = logaddexp(ways, where(may_skip, skipped, Scalar(kNever)));
    }
    alpha = where(gt(lengths.input, Scalar(t)).unsqueeze(1), ways.add(emitted.select(0, t)), alpha);
  }

  // It ends in the last label or the blank after it.
  const Tensor end = lengths.target.mul(Scalar(2)).unsqueeze(1);
  const Tensor in_blank = alpha.gather(1, end).squeeze(1);
  const Tensor none = eq(lengths.target, Scalar(0));
  const Tensor in_label =
      where(none, Scalar(kNever), alpha.gather(1, end.sub(Scalar(1)).clamp(Scalar(0))).squeeze(1));
  const Tensor loss = logaddexp(in_blank, in_label).neg();
  // Note [Gradient of CTC]
  // PyTorch's gradient has the sum of the probabilities of each step as a second part, which
  // vanishes behind log_softmax; so that both agree everywhere, it is added here with the value 0.
  const Tensor counts =
      lt(arange(Scalar(steps), o).unsqueeze(1), lengths.input).unsqueeze(2);  // (T, N, 1)
  const Tensor mass = where(counts, log_probs.exp(), Scalar(0.0)).sum(IntList{0, 2});
  const Tensor with_mass = loss.add(mass.sub(mass.detach()));
  const Scalar infinite(c.boolean(6) ? 0.0 : double(INFINITY));
  const Tensor possible = where(gt(loss, Scalar(-kNever / 10)), infinite, with_mass);
  return where(gt(lengths.input, Scalar(0)), possible,
               where(none, zeros({batch}, loss.options()), infinite));
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
          Tensor losses = ctc_losses(c, x, blank);
          const std::string_view reduction = c[5].string();
          if (reduction == "mean")
            losses = losses.div(
                c.tensor(3).to(x.device()).reshape({x.size(1)}).clamp(Scalar(1)).to(x.dtype()));
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
