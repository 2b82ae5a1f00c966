// Distances of vectors and the losses made of them (declared in loss.h).
#include <algorithm>
#include <cmath>

#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/element_loss.h"
#include "arete/ops/loss.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/reduce.h"

namespace arete {
namespace ops {
namespace {

using expr::Value;
using Values = std::span<const Value>;

// Limited from below; as in PyTorch NaN has no slope, and 0 has.
Value not_negative(const Value& x) {
  return where(x >= 0, x, where(x < 0, constant_like(x, 0.0), NAN));
}

// The norm of a row, which is not below eps. As in PyTorch the limit does not stop the gradient.
Value limited_norm(Rows& rows, const Value& x, const Value& eps) {
  const auto root = [](const Value& square) {  // without a slope at 0
    const Value zero = square == 0;
    return where(zero, 0.0, sqrt(where(zero, 1.0, square)));
  };
  const Value norm = root(rows.sum(x * x)),
              fixed = root(rows.reduce(prim::Monoid::sum, x * x, false));
  return where(fixed < eps, norm - fixed + eps, norm);
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
          const Tensor a = c.tensor(0).expand(full), b = c.tensor(1).expand(full);
          DType out = promote_types(a.dtype(), b.dtype());
          if (is_complex(out)) {
            const auto norm = [&](const Tensor& x) {
              return x.mul(x).sum(dim).clamp(Scalar(c.real(3) * c.real(3))).sqrt();
            };
            return {a.mul(b).sum(dim).div(norm(a).mul(norm(b)))};
          }
          if (!is_floating(out)) out = default_dtype();
          static auto* const cache = new RowProgramCache;
          const expr::Type work = expr::work_type(out);
          const RowProgramPtr& program = cache->get(
              pack_key({int(a.dtype()), int(b.dtype()), int(out)}), {a.dtype(), b.dtype()}, {work},
              {out}, [=](Rows& rows, Values v) {
                const Value x = cast(v[0], work), y = cast(v[1], work);
                return std::vector{rows.sum(x * y) /
                                   (limited_norm(rows, x, v[2]) * limited_norm(rows, y, v[2]))};
              });
          const int64_t dims[] = {dim};
          const Scalar eps[] = {Scalar(c.real(3))};
          return {apply_rows(program, {{a, b}}, eps, dims, c.name())[0].squeeze(dim)};
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
          static auto* const loss = new ElementLoss(2, 1, [](Values v) {
            const Value cosine = v[0], far = not_negative(cosine - v[2]);
            return where(v[1] == 1, 1.0 - cosine, where(v[1] == -1, far, cosine * 0.0));
          });
          return {(*loss)({cosine_similarity(a, b, -1, 1e-6), target.detach()}, {c.real(3)},
                          c[4].string(), c.name())};
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
          static auto* const loss = new ElementLoss(2, 1, [](Values v) {
            return where(v[1] != -1, v[0], 0.0) + where(v[1] != 1, not_negative(v[2] - v[0]), 0.0);
          });
          return {(*loss)({x, target.detach()}, {c.real(2)}, c[3].string(), c.name())};
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
          static auto* const loss = new ElementLoss(
              3, 1, [](Values v) { return not_negative((v[1] - v[0]) * v[2] + v[3]); });
          return {(*loss)({a, b, target}, {c.real(3)}, c[4].string(), c.name())};
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
          static auto* const loss =
              new ElementLoss(2, 1, [](Values v) { return not_negative(v[0] - v[1] + v[2]); });
          return {(*loss)({near, far}, {c.real(3)}, c[7].string(), c.name())};
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
