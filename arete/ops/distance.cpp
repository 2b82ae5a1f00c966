// Distances of vectors and the losses made of them (declared in loss.h).
#include <algorithm>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"

namespace arete {
namespace ops {
namespace {

// max(|x|, eps) along dim; the root is taken of the limited square, so that 0 has a gradient.
Tensor limited_norm(const Tensor& x, int64_t dim, double eps) {
  return x.mul(x).sum(dim).clamp(Scalar(eps * eps)).sqrt();
}

Tensor cosine_of(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  return a.mul(b).sum(dim).div(limited_norm(a, dim, eps).mul(limited_norm(b, dim, eps)));
}

const OpRecord& cosine_similarity_op =
    define("cosine_similarity(Tensor x1, Tensor x2, int dim=1, float eps=1e-8) -> Tensor")
        .functional()
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Cosine of the angle between vectors along a dimension.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const int rank = int(std::max(c.tensor(0).dim(), c.tensor(1).dim()));
          const int dim = normalize_dim(c.integer(2), rank, c.name());
          const Shape full = broadcast_shapes(c.tensor(0).sizes(), c.tensor(1).sizes(), c.name());
          return {cosine_of(c.tensor(0).expand(full), c.tensor(1).expand(full), dim, c.real(3))};
        });

const OpRecord& pairwise_distance_op =
    define(
        "pairwise_distance(Tensor x1, Tensor x2, float p=2.0, float eps=1e-6, bool keepdim=False) "
        "-> Tensor")
        .functional()
        .doc("p-norm of x1 - x2 + eps along the last dimension.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor d = norm_of_difference(c.tensor(0), c.tensor(1), c.real(2), c.real(3));
          return {c.boolean(4) ? d.unsqueeze(-1) : d};
        });

const OpRecord& cosine_embedding_loss_op =
    define(
        "cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, "
        "str reduction=\"mean\") -> Tensor")
        .functional()
        .autocast(Autocast::f32)
        .doc("1 - cos for targets of 1, max(0, cos - margin) for targets of -1.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1), &target = c.tensor(2);
          ARETE_CHECK(
              a.dim() == target.dim() + 1 && b.dim() == a.dim(),
              ValueError(c.name(), "cosine_embedding_loss: input1, input2 and target do not fit")
                  .expected("(N, D), (N, D) and (N), or (D), (D) and ()")
                  .got(describe(a) + ", " + describe(b) + ", " + describe(target)));
          const Tensor cosines = cosine_of(a, b, -1, 1e-6);
          const Tensor far = cosines.sub(Scalar(c.real(3))).clamp(Scalar(0));
          const Tensor zero = cosines.mul(Scalar(0));
          const Tensor losses = where(eq(target, Scalar(1)), add(cosines.neg(), Scalar(1)),
                                      where(eq(target, Scalar(-1)), far, zero));
          return {apply_reduction(losses, c[4].string(), c.name())};
        });

const OpRecord& hinge_embedding_loss_op =
    define(
        "hinge_embedding_loss(Tensor input, Tensor target, float margin=1.0, str "
        "reduction=\"mean\") -> Tensor")
        .functional()
        .autocast(Autocast::f32)
        .doc("x for targets of 1, max(0, margin - x) for targets of -1, the sum for others.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), &target = c.tensor(1);
          const Tensor far = x.neg().add(Scalar(c.real(2))).clamp(Scalar(0));
          const Tensor losses = where(ne(target, Scalar(-1)), x, Scalar(0.0))
                                    .add(where(ne(target, Scalar(1)), far, Scalar(0.0)));
          return {apply_reduction(losses, c[3].string(), c.name())};
        });

const OpRecord& margin_ranking_loss_op =
    define(
        "margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, "
        "str reduction=\"mean\") -> Tensor")
        .functional()
        .autocast(Autocast::f32)
        .doc("max(0, -target * (input1 - input2) + margin).")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &b = c.tensor(1), &target = c.tensor(2);
          ARETE_CHECK(a.dim() == b.dim() && a.dim() == target.dim(),
                      ValueError(c.name(),
                                 "margin_ranking_loss : All input tensors should have same "
                                 "dimension but got sizes: input1: " +
                                     to_string(a.sizes()) + ", input2: " + to_string(b.sizes()) +
                                     ", target: " + to_string(target.sizes()) + " "));
          const Tensor t = b.sub(a).mul(target).add(Scalar(c.real(3))).clamp(Scalar(0));
          return {apply_reduction(t, c[4].string(), c.name())};
        });

const OpRecord& triplet_margin_loss_op =
    define(
        "triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, "
        "float p=2.0, "
        "float eps=1e-6, bool swap=False, str reduction=\"mean\") -> Tensor")
        .functional()
        .autocast(Autocast::f32)
        .doc("max(0, d(anchor, positive) - d(anchor, negative) + margin).")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &a = c.tensor(0), &pos = c.tensor(1), &neg = c.tensor(2);
          const double p = c.real(4), eps = c.real(5);
          ARETE_CHECK(c.real(3) > 0, ValueError(c.name(), "margin must be greater than 0, got " +
                                                              Scalar(c.real(3)).to_string())
                                         .argument("margin"));
          ARETE_CHECK(
              a.dim() == pos.dim() && a.dim() == neg.dim(),
              ValueError(c.name(),
                         "The anchor, positive, and negative tensors are expected to have "
                         "the same number of dimensions, but got: anchor " +
                             std::to_string(a.dim()) + "D, positive " + std::to_string(pos.dim()) +
                             "D, and negative " + std::to_string(neg.dim()) + "D inputs"));
          const Tensor near = pairwise_distance(a, pos, p, eps);
          Tensor far = pairwise_distance(a, neg, p, eps);
          if (c.boolean(6)) far = minimum(far, pairwise_distance(pos, neg, p, eps));
          return {apply_reduction(near.sub(far).add(Scalar(c.real(3))).clamp(Scalar(0)),
                                  c[7].string(), c.name())};
        });

}  // namespace
}  // namespace ops

Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim, double eps) {
  return ops::call(ops::cosine_similarity_op, {x1, x2, dim, eps});
}
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p, double eps, bool keepdim) {
  return ops::call(ops::pairwise_distance_op, {x1, x2, p, eps, keepdim});
}
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             double margin, std::string_view reduction) {
  return ops::call(ops::cosine_embedding_loss_op, {input1, input2, target, margin, reduction});
}
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin,
                            std::string_view reduction) {
  return ops::call(ops::hinge_embedding_loss_op, {input, target, margin, reduction});
}
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           double margin, std::string_view reduction) {
  return ops::call(ops::margin_ranking_loss_op, {input1, input2, target, margin, reduction});
}
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           double margin, double p, double eps, bool swap,
                           std::string_view reduction) {
  return ops::call(ops::triplet_margin_loss_op,
                   {anchor, positive, negative, margin, p, eps, swap, reduction});
}

}  // namespace arete

ARETE_FAMILY(distance)
