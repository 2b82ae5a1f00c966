// Functions of neural networks that draw random numbers: dropout in its forms, rrelu,
// gumbel_softmax (declared in nn.h and activation.h).
#include <cmath>

#include "arete/expr/program_cache.h"
#include "arete/ops/activation.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/random.h"
#include "arete/ops/random_internal.h"
#include "arete/ops/softmax.h"
#include "arete/ops/vmap_rules_internal.h"
#include "arete/prim/philox.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results random_dropout(const Rewriting& r) {
  if (r.randomness == Randomness::different) return elementwise(r);
  // One mask, which is what it makes of ones.
  Changed mask(r);
  const Tensor x = r.whole(0);
  mask.set(0, ones(x.sizes().subspan(1), x.options()));
  return {x * mask.run()[0]};
}
}  // namespace
}  // namespace vmaps
namespace {

using expr::Value;

// where(mask, x * scale, 0): the mask stays boolean.
PointwiseDef masked_scale_def() {
  PointwiseDef d;
  d.n_inputs = 2;
  d.n_params = 1;
  d.definition = [](std::span<const Value> v) {
    return std::vector{where(v[1], to_float(v[0]) * v[2], 0.0)};
  };
  d.result = PointwiseDef::Result::floating;
  d.compute_promoted = false;
  d.non_differentiable = 0b10;
  return d;
}

const OpRecord& masked_scale_op =
    define("masked_scale(Tensor self, Tensor mask, float scale) -> Tensor")
        .doc("self * scale where mask holds, else 0.")
        .surface(Surface::internal)
        .pointwise(masked_scale_def());

void check_probability(const char* op, double p) {
  ARETE_CHECK(p >= 0 && p <= 1,
              ValueError(op, "dropout probability has to be between 0 and 1, but got " +
                                 Scalar(p).to_string())
                  .argument("p"));
}

Generator* generator_of(const Call& c, size_t i) { return c.has(i) ? c[i].generator() : nullptr; }

Tensor draw_mask(const Tensor& like, double keep, Generator* generator) {
  Tensor mask = empty_like(like.detach(), kBool);
  bernoulli_(mask, keep, generator);
  return mask;
}

// The same numbers again are the mask: none is kept.
const OpRecord& seeded_dropout_op =
    define("seeded_dropout(Tensor input, float p, int seed, int offset) -> Tensor")
        .doc("dropout by the random numbers of a given seed and offset.")
        .surface(Surface::internal)
        .batched(vmaps::random_dropout)
        .seeded([](const Call&) { return true; })
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& x = c.tensor(0);
          ARETE_CHECK(is_floating(x.dtype()),
                      TypeError(c.name(), "dropout needs a floating dtype").got(describe(x)));
          out.push_back({Shape(x.sizes()), x.dtype()});
          if (x.layout().is_dense()) out[0].strides = Shape(x.strides());
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          const double keep = 1 - c.real(1);
          p.dropout({view_of(c.tensor(0)), view_of(out[0]), uint64_t(c.integer(2)),
                     uint64_t(c.integer(3)), keep, 1 / keep});
        })
        .grad([](const GradCall& g) -> TensorList {
          return {call(seeded_dropout_op, {g.grad(), g.real(1), g.integer(2), g.integer(3)})};
        });

const OpRecord& dropout_op =
    define(
        "dropout(Tensor input, float p=0.5, bool training=True, *, Generator? generator=None) -> "
        "Tensor")
        .functional()
        .doc("Sets elements to 0 with probability p and scales the others.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const double p = c.real(1);
          check_probability(c.name(), p);
          if (!c.boolean(2) || p == 0) return {x};
          if (p == 1) return {x.mul(Scalar(0.0))};
          Generator* g = generator_of(c, 3);
          const Generator::State s =
              (g ? *g : default_generator()).reserve(uint64_t(x.numel() + 3) / 4);
          return {seeded_dropout(x, p, int64_t(s.seed), int64_t(s.offset))};
        })
        .random()
        .in_place();

// ---- whole channels ----

// Keeps each channel of (N, C, ...) with probability 1 - p.
Tensor channel_mask(const Tensor& x, double p, Generator* generator) {
  Shape sizes(x.sizes());
  for (size_t d = 2; d < sizes.size(); ++d) sizes[d] = 1;
  return draw_mask(empty(sizes, TensorOptions(kBool, x.device())), 1 - p, generator);
}
void check_channels(const char* op, const Tensor& x) {
  ARETE_CHECK(x.dim() >= 2,
              ValueError(op, "Feature dropout requires at least 2 dimensions in the input"));
}

Tensor drop_channels(const Call& c, const Tensor& x) {
  const double p = c.real(1);
  check_probability(c.name(), p);
  if (!c.boolean(2) || p == 0) return x;
  check_channels(c.name(), x);
  if (p == 1) return x.mul(Scalar(0.0));
  return call(masked_scale_op, {x, channel_mask(x, p, generator_of(c, 3)), 1 / (1 - p)});
}

#define ARETE_DROPOUT_ARGS(training)                    \
  "(Tensor input, float p=0.5, bool training=" training \
  ", *, Generator? generator=None)"                     \
  " -> Tensor"

const OpRecord& feature_dropout_op =
    define("feature_dropout" ARETE_DROPOUT_ARGS("True"))
        .doc("Dropout of whole channels of (N, C, ...).")
        .surface(Surface::internal)
        .compose([](const Call& c) -> Results { return {drop_channels(c, c.tensor(0))}; })
        .random();

// dropout1d and dropout3d take inputs without a batch dimension; dropout2d reads 3 dimensions as
// (N, C, L).
template <int spatial>
const OpRecord& define_channel_dropout(const char* schema) {
  return define(schema)
      .doc("Dropout of whole channels of inputs with " +
           std::string(spatial == 1 ? "one spatial dimension."
                                    : std::to_string(spatial) + " spatial dimensions."))
      .surface(Surface::functional)
      .compose([](const Call& c) -> Results {
        const Tensor& x = c.tensor(0);
        constexpr bool kAnyRank = spatial == 2;
        ARETE_CHECK(
            kAnyRank || x.dim() == spatial + 1 || x.dim() == spatial + 2,
            ValueError(c.name(), std::string(c.name()) + ": Expected " +
                                     std::to_string(spatial + 1) + "D or " +
                                     std::to_string(spatial + 2) + "D input, but received a " +
                                     std::to_string(x.dim()) + "D input."));
        if (kAnyRank || x.dim() == spatial + 2) return {drop_channels(c, x)};
        return {drop_channels(c, x.unsqueeze(0)).squeeze(0)};
      })
      .random()
      .in_place();
}
const OpRecord* const channel_dropout_ops[] = {
    &define_channel_dropout<1>("dropout1d" ARETE_DROPOUT_ARGS("True")),
    &define_channel_dropout<2>("dropout2d" ARETE_DROPOUT_ARGS("True")),
    &define_channel_dropout<3>("dropout3d" ARETE_DROPOUT_ARGS("True"))};

// ---- for selu ----

Results drop_to_limit(const Call& c, bool channels) {
  const Tensor& x = c.tensor(0);
  const double p = c.real(1);
  check_probability(c.name(), p);
  if (!c.boolean(2) || p == 0) return {x};
  if (channels) check_channels(c.name(), x);
  if (p == 1) return {x.mul(Scalar(0.0))};
  constexpr double kLimit = -1.7580993408473766;  // selu(-inf)
  const double a = 1 / std::sqrt((1 - p) * (1 + p * kLimit * kLimit)), b = -a * kLimit * p;
  Generator* g = generator_of(c, 3);
  const Tensor mask = channels ? channel_mask(x, p, g) : draw_mask(x, 1 - p, g);
  static auto* const cache = new expr::ProgramCache;
  const DType t = x.dtype();
  const expr::Type work = expr::work_type(t);
  const expr::Program& program = cache->get(
      pack_key({int(t)}), {t, kBool}, {work, work}, {t}, [](std::span<const expr::Value> v) {
        return std::vector{where(v[1], v[0], kLimit) * v[2] + v[3]};
      });
  const Scalar numbers[] = {Scalar(a), Scalar(b)};
  return apply_program(program.shared_from_this(), {{x, mask}}, numbers, c.name());
}

const OpRecord& alpha_dropout_op =
    define("alpha_dropout" ARETE_DROPOUT_ARGS("False"))
        .functional()
        .doc("Dropout to selu's negative limit, rescaled to mean 0 and variance 1.")
        .surface(Surface::function)
        .compose([](const Call& c) { return drop_to_limit(c, false); })
        .random()
        .in_place();

const OpRecord& feature_alpha_dropout_op =
    define("feature_alpha_dropout" ARETE_DROPOUT_ARGS("False"))
        .functional()
        .doc("alpha_dropout of whole channels of (N, C, ...).")
        .surface(Surface::function)
        .compose([](const Call& c) { return drop_to_limit(c, true); })
        .random()
        .in_place();
#undef ARETE_DROPOUT_ARGS

// ---- activations that draw ----

PointwiseDef leak_def() {
  PointwiseDef d;
  d.n_inputs = 2;
  d.definition = [](std::span<const Value> v) {
    return std::vector{where(v[0] > 0.0, v[0], v[0] * v[1])};
  };
  d.result = PointwiseDef::Result::floating;
  d.non_differentiable = 0b10;
  return d;
}

const OpRecord& leak_op = define("leak(Tensor self, Tensor slope) -> Tensor")
                              .doc("leaky_relu with a slope for each element.")
                              .surface(Surface::internal)
                              .pointwise(leak_def())
                              .in_place();

void check_rrelu(const Call& c) {
  const Tensor& x = c.tensor(0);
  ARETE_CHECK(c.real(1) <= c.real(2),
              ValueError(c.name(), "Lower bound should be less than or equal to the upper bound")
                  .got(Scalar(c.real(1)).to_string() + ", " + Scalar(c.real(2)).to_string()));
  ARETE_CHECK(is_floating(x.dtype()),
              TypeError(c.name(), "rrelu needs a floating dtype").got(describe(x)));
}
Tensor draw_slopes(const Call& c) {
  Tensor slope = empty_like(c.tensor(0).detach());
  uniform_(slope, c.real(1), c.real(2), generator_of(c, 4));
  return slope;
}

const OpRecord& rrelu_op =
    define(
        "rrelu(Tensor input, float lower=0.125, float upper=0.3333333333333333, bool "
        "training=False, *, Generator? generator=None) -> Tensor")
        .functional({"", "rrelu_"})
        .doc(
            "leaky_relu with a slope drawn for each element from [lower, upper), or in evaluation "
            "the mean of the two.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          check_rrelu(c);
          const Tensor& x = c.tensor(0);
          if (!c.boolean(3)) return {leaky_relu(x, (c.real(1) + c.real(2)) / 2)};
          return {call(leak_op, {x, draw_slopes(c)})};
        })
        .random()
        .in_place([](Tensor& self, const Call& c) {
          check_rrelu(c);
          if (c.boolean(3))
            call_in_place(self, leak_op, {self, draw_slopes(c)});
          else
            leaky_relu_(self, (c.real(1) + c.real(2)) / 2);
        });

const OpRecord& gumbel_softmax_op =
    define(
        "gumbel_softmax(Tensor logits, float tau=1, bool hard=False, float eps=1e-10, int dim=-1, "
        "*, Generator? generator=None) -> Tensor")
        .doc(
            "softmax of logits with Gumbel noise; hard gives one-hot rows with the gradient of the "
            "soft ones. eps has no effect.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t dim = normalize_dim(c.integer(4), int(x.dim()), c.name());
          // No more than two arrays of their size at once.
          const auto disturbed = [&] {
            Tensor noise = empty_like(x.detach());
            exponential_(noise, 1, generator_of(c, 5));
            return x.sub(noise.log_());
          };
          const double tau = c.real(1);
          const Tensor soft = softmax(tau == 1 ? disturbed() : disturbed().div(Scalar(tau)), dim);
          if (!c.boolean(2)) return {soft};
          const Tensor fixed = soft.detach();
          const Tensor hard = zeros_like(fixed).scatter(dim, fixed.argmax(dim, true), Scalar(1));
          return {hard.sub(fixed).add(soft)};
        })
        .random();

}  // namespace

Tensor seeded_dropout(const Tensor& input, double p, int64_t seed, int64_t offset) {
  return call(seeded_dropout_op, {input, p, seed, offset});
}
}  // namespace ops

Tensor dropout(const Tensor& input, double p, bool training, Generator* generator) {
  if (!training && p >= 0 && p <= 1) return input;
  return ops::call(ops::dropout_op, {input, p, training, generator});
}
Tensor feature_dropout(const Tensor& input, double p, bool training, Generator* generator) {
  return ops::call(ops::feature_dropout_op, {input, p, training, generator});
}
Tensor alpha_dropout(const Tensor& input, double p, bool training, Generator* generator) {
  return ops::call(ops::alpha_dropout_op, {input, p, training, generator});
}
#define ARETE_CHANNEL_DROPOUT(n)                                                             \
  Tensor dropout##n##d(const Tensor& input, double p, bool training, Generator* generator) { \
    return ops::call(*ops::channel_dropout_ops[n - 1], {input, p, training, generator});     \
  }
ARETE_CHANNEL_DROPOUT(1)
ARETE_CHANNEL_DROPOUT(2)
ARETE_CHANNEL_DROPOUT(3)
#undef ARETE_CHANNEL_DROPOUT
Tensor feature_alpha_dropout(const Tensor& input, double p, bool training, Generator* generator) {
  return ops::call(ops::feature_alpha_dropout_op, {input, p, training, generator});
}
Tensor rrelu(const Tensor& input, double lower, double upper, bool training, Generator* generator) {
  return ops::call(ops::rrelu_op, {input, lower, upper, training, generator});
}
Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, int64_t dim,
                      Generator* generator) {
  return ops::call(ops::gumbel_softmax_op, {logits, tau, hard, 1e-10, dim, generator});
}

}  // namespace arete

ARETE_FAMILY(dropout)
