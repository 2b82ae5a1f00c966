// Drawing categories by weight.
#include <cmath>
#include <span>
#include <vector>

#include "arete/core/modes.h"
#include "arete/ops/call.h"
#include "arete/ops/random.h"
#include "arete/ops/random_internal.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap_rules_internal.h"

namespace arete {
namespace ops {

// ---- for batches (Note [Batching rules])

namespace vmaps {
namespace {
Results multinomial_rule(const Rewriting& r) {
  if (r.randomness == Randomness::same) return one_by_one(r);
  return rank_of(r.at(0)) == 1 ? leading_of_rows(r) : folded(r);
}
}  // namespace
}  // namespace vmaps
namespace {

// A race: category i finishes after an exponential time with rate weight[i]; the first k are a
// sample without replacement. Categories of weight 0 come last. Times are drawn in f64, so that
// many categories seldom draw the same; roots of what is compared lie in the range of f32.
void sample_without(const Call& c, const Tensor& out, prim::Primitives& p) {
  const Tensor& w = c.tensor(0);
  const DType kept = w.dtype() == kFloat64 ? kFloat64 : kFloat32;
  const prim::ScratchView key(p, kept, w.sizes()), best(p, kept, out.sizes());
  draw_through(p,
               [](std::span<const expr::Value> v) {
                 const expr::Value weight = expr::cast(v[1], expr::Type::f64);
                 const expr::Value time = expr::max(-expr::log(1.0 - v[0]), 0x1p-54);
                 return expr::where(weight > 0.0, expr::sqrt(weight / time), -1.0);
               },
               Distribution::uniform, 0, 1, c[3], key, {}, {view_of(w)});
  p.topk({key, best, view_of(out), int(w.dim()) - 1});
}

// The category of u is the number of running sums that are <= u times the whole sum.
void sample_with(const Call& c, const Tensor& out, prim::Primitives& p) {
  const Tensor& w = c.tensor(0);
  const int64_t n = w.size(-1), rows = w.dim() == 2 ? w.size(0) : 1, samples = c.integer(1);
  if (rows == 0 || samples == 0) return;
  const int64_t table[] = {rows, n}, draws[] = {rows, samples};
  const prim::ScratchView weight(p, kFloat64, table), sum(p, kFloat64, table),
      u(p, kFloat64, draws);
  prim::View flat = weight;
  flat.sizes = w.sizes();
  const Shape flat_strides = contiguous_strides(w.sizes());
  flat.strides = flat_strides;
  p.copy({flat, view_of(w)});
  p.scan({prim::Monoid::sum, weight, sum, 1, false});
  draw(p, Distribution::uniform, u, 0, 1, c[3]);

  // Space: (row, sample, category).
  const Shape space{rows, samples, n}, counted{rows, samples, 1};
  const Shape sum_strides{n, 0, 1}, u_strides{samples, 1, 0}, total_strides{n, 0, 0},
      out_strides{samples, 1, 1};
  prim::View sums = sum, draw_of = u, total = sum, result = view_of(out);
  sums.sizes = draw_of.sizes = total.sizes = space;
  sums.strides = sum_strides;
  draw_of.strides = u_strides;
  total.strides = total_strides;
  total.data += (n - 1) * int64_t(sizeof(double));
  result.sizes = counted;
  result.strides = out_strides;
  // The product may round up to the whole sum, which belongs to no category.
  static const expr::ProgramPtr& program = *new expr::ProgramPtr(expr::trace(
      [](std::span<const expr::Value> v) {
        const expr::Value below = expr::nextafter(v[2], expr::constant_like(v[2], 0));
        return std::vector{expr::cast(v[0] <= expr::min(v[1] * v[2], below), expr::Type::i64)};
      },
      std::vector{kFloat64, kFloat64, kFloat64}, {}, std::vector{kInt64}));
  const prim::View in[] = {sums, draw_of, total};
  p.reduce({prim::Monoid::sum, space, 1u << 2, in, result, program.get(), {}, nullptr, {}});
}

// Of the host's that are there: a device, or what a compiled function puts off, would have to be
// waited for.
void check_weights(const Tensor& w) {
  if (!w.device().is_cpu() || modes().word & (Modes::kCapture | Modes::kPutOff)) return;
  const std::vector<double> all = w.detach().to_vector<double>();
  const size_t n = size_t(w.size(-1));
  for (size_t begin = 0; begin < all.size(); begin += n) {
    double sum = 0;
    for (const double v : std::span(all).subspan(begin, n)) {
      ARETE_CHECK(std::isfinite(v) && v >= 0,
                  ValueError("multinomial",
                             "probability tensor contains either `inf`, `nan` or element < 0")
                      .argument("self")
                      .got(Scalar(v).to_string()));
      sum += v;
    }
    ARETE_CHECK(sum > 0, ValueError("multinomial",
                                    "invalid multinomial distribution (sum of "
                                    "probabilities <= 0)")
                             .argument("self"));
  }
}

const OpRecord& multinomial_op =
    define(
        "multinomial(Tensor self, int num_samples, bool replacement=False, *, Generator? "
        "generator=None) -> Tensor")
        .doc("Indices drawn with probabilities proportional to weights.")
        .random()
        .batched(vmaps::multinomial_rule)
        .infer([](const Call& c, OutputSpecs& out) {
          const Tensor& w = c.tensor(0);
          const int64_t k = c.integer(1);
          ARETE_CHECK(w.dim() == 1 || w.dim() == 2,
                      ValueError(c.name(), "prob_dist must be 1 or 2 dim").got(describe(w)));
          ARETE_CHECK(is_floating(w.dtype()),
                      TypeError(c.name(),
                                "multinomial only supports floating-point dtypes for input, "
                                "got: " +
                                    std::string(name_of(w.dtype()))));
          ARETE_CHECK(
              k > 0,
              ValueError(c.name(), "cannot sample n_sample <= 0 samples").argument("num_samples"));
          ARETE_CHECK(w.size(-1) > 0,
                      ValueError(c.name(), "there is no category to draw from").got(describe(w)));
          ARETE_CHECK(c.boolean(2) || k <= w.size(-1),
                      ValueError(c.name(),
                                 "cannot sample n_sample > prob_dist.size(-1) samples without "
                                 "replacement")
                          .got(std::to_string(k) + " samples from " + std::to_string(w.size(-1)) +
                               " categories"));
          out.push_back({w.dim() == 2 ? Shape{w.size(0), k} : Shape{k}, kInt64});
        })
        .lower([](const Call& c, std::span<const Tensor> out, prim::Primitives& p) {
          check_weights(c.tensor(0));
          if (c.boolean(2))
            sample_with(c, out[0], p);
          else
            sample_without(c, out[0], p);
        })
        .grad(no_random_gradient);

}  // namespace
}  // namespace ops

Tensor multinomial(const Tensor& self, int64_t num_samples, bool replacement, Generator* g) {
  return ops::call(ops::multinomial_op, {self, num_samples, replacement, g});
}

}  // namespace arete

ARETE_FAMILY(multinomial)
