#include "arete/ops/nn.h"

#include "arete/expr/program_cache.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/vmap.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

const OpRecord& one_hot_op =
    define("one_hot(Tensor input, int num_classes=-1) -> Tensor")
        .doc("int64 rows with a 1 at the class.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          int64_t classes = c.integer(1);
          ARETE_CHECK(
              is_integer(x.dtype()),
              TypeError(c.name(), "one_hot is only applicable to index tensor of type LongTensor.")
                  .got(describe(x)));
          ARETE_CHECK(classes > 0 || (classes == -1 && x.numel() > 0) || x.numel() == 0,
                      ValueError(c.name(), "num_classes should be positive")
                          .argument("num_classes")
                          .got(std::to_string(classes)));
          if (x.numel() > 0 && (classes == -1 || x.device().is_cpu())) {
            ARETE_CHECK(all_values(x).min().item<int64_t>() >= 0,
                        ValueError(c.name(), "Class values must be non-negative."));
            // How many there are must not depend on which element of a batch is looked at.
            const int64_t largest = (classes == -1 ? x : all_values(x)).max().item<int64_t>();
            if (classes == -1) classes = largest + 1;
            ARETE_CHECK(
                largest < classes,
                ValueError(c.name(), "Class values must be smaller than num_classes.")
                    .got("class " + std::to_string(largest) + " of " + std::to_string(classes)));
          }
          ARETE_CHECK(
              classes > 0,
              ValueError(c.name(), "Can not infer total number of classes from empty tensor."));
          const Tensor index = x.unsqueeze(-1);
          if (x.device().is_cpu() || x.is_meta()) {
            const Tensor columns = arange(Scalar(classes), TensorOptions(kInt64, x.device()));
            return {eq(index, columns).to(kInt64)};
          }
          // Elsewhere nobody has looked at the values yet: writing with them finds those that are
          // out of range (negative ones are moved there).
          Shape sizes(x.sizes());
          sizes.push_back(classes);
          static auto& cache = *new expr::ProgramCache;
          const expr::Program& moved =
              cache.get(pack_key({int(x.dtype())}), {x.dtype()}, {expr::Type::i64}, {kInt64},
                        [](std::span<const expr::Value> v) {
                          const expr::Value k = cast(v[0], expr::Type::i64);
                          return std::vector{where(k < 0.0, k - v[1], k)};
                        });
          const Scalar params[] = {Scalar(classes)};
          const Tensor place =
              apply_program(moved.shared_from_this(), {&index, 1}, params, c.name())[0];
          return {zeros(sizes, TensorOptions(kInt64, x.device())).scatter_(-1, place, Scalar(1))};
        })
        .dtypes({kInt64});

// ---- rearrangements ----

Shape shuffled(const Call& c, bool up, Shape* parts) {
  const Tensor& x = c.tensor(0);
  const int64_t r = c.integer(1);
  const char* op = c.name();
  ARETE_CHECK(
      x.dim() >= 3,
      ValueError(op, std::string(op) +
                         " expects input to have at least 3 dimensions, but got input with " +
                         std::to_string(x.dim()) + " dimension(s)"));
  ARETE_CHECK(r > 0, ValueError(op, std::string(op) + " expects a positive " +
                                        (up ? "upscale_factor" : "downscale_factor") +
                                        ", but got " + std::to_string(r)));
  const int64_t ch = x.size(-3), h = x.size(-2), w = x.size(-1);
  Shape out(x.sizes().first(x.sizes().size() - 3));
  *parts = out;
  if (up) {
    ARETE_CHECK(ch % (r * r) == 0, ValueError(op,
                                              "pixel_shuffle expects its input's 'channel' "
                                              "dimension to be divisible by the square of "
                                              "upscale_factor, but input.size(-3)=" +
                                                  std::to_string(ch) + " is not divisible by " +
                                                  std::to_string(r * r)));
    for (int64_t v : {ch / (r * r), r, r, h, w}) parts->push_back(v);
    for (int64_t v : {ch / (r * r), h * r, w * r}) out.push_back(v);
  } else {
    ARETE_CHECK(h % r == 0 && w % r == 0,
                ValueError(op,
                           "pixel_unshuffle expects height and width to be divisible by "
                           "downscale_factor, but got " +
                               to_string(x.sizes()) + " and " + std::to_string(r)));
    for (int64_t v : {ch, h / r, r, w / r, r}) parts->push_back(v);
    for (int64_t v : {ch * r * r, h / r, w / r}) out.push_back(v);
  }
  return out;
}
Results rearrange(const Call& c, bool up) {
  Shape parts;
  const Shape out = shuffled(c, up, &parts);
  Shape order;
  const int64_t lead = int64_t(parts.size()) - 5;
  for (int64_t d = 0; d < lead; ++d) order.push_back(d);
  // up: (C, r, r, H, W) -> (C, H, r, W, r); down: (C, H, r, W, r) -> (C, r, r, H, W)
  if (up)
    for (int64_t d : {0, 3, 1, 4, 2}) order.push_back(lead + d);
  else
    for (int64_t d : {0, 2, 4, 1, 3}) order.push_back(lead + d);
  const Tensor y = c.tensor(0).reshape(parts).permute(order);
  if (lead != 1 || !prefers_channels_last(c.tensor(0))) return {y.reshape(out)};
  // What becomes the channels last, so that the copy has that order.
  const Shape at_end = up ? Shape{0, 2, 3, 4, 5, 1} : Shape{0, 4, 5, 1, 2, 3};
  return {y.permute(at_end).reshape({out[0], out[2], out[3], out[1]}).permute({0, 3, 1, 2})};
}

const OpRecord& pixel_shuffle_op =
    define("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")
        .functional()
        .doc("(*, C r^2, H, W) to (*, C, H r, W r).")
        .surface(Surface::function)
        .compose([](const Call& c) { return rearrange(c, true); });

const OpRecord& pixel_unshuffle_op =
    define("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor")
        .functional()
        .doc("(*, C, H r, W r) to (*, C r^2, H, W).")
        .surface(Surface::function)
        .compose([](const Call& c) { return rearrange(c, false); });

const OpRecord& normalize_op =
    define("normalize(Tensor input, float p=2.0, int[]? dim=1, float eps=1e-12) -> Tensor")
        .functional({"normalize(Tensor input, float p=2.0, int[]? dim=1, float eps=1e-12, Tensor? "
                     "out=None)"})
        .doc("x / max(|x|_p, eps) along a dimension, or several of them together.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const IntList dims = c.has(2) ? c.ints(2) : IntList();  // none: all of them
          return {x.div(x.norm(c.real(1), dims, true).clamp(Scalar(c.real(3))))};
        });

}  // namespace
}  // namespace ops

Tensor one_hot(const Tensor& input, int64_t num_classes) {
  return ops::call(ops::one_hot_op, {input, num_classes});
}
Tensor pixel_shuffle(const Tensor& self, int64_t upscale_factor) {
  return ops::call(ops::pixel_shuffle_op, {self, upscale_factor});
}
Tensor pixel_unshuffle(const Tensor& self, int64_t downscale_factor) {
  return ops::call(ops::pixel_unshuffle_op, {self, downscale_factor});
}
Tensor normalize(const Tensor& input, double p, const Extent& dim, double eps) {
  return ops::call(ops::normalize_op, {input, p, IntList(dim), eps});
}

}  // namespace arete

ARETE_FAMILY(nn)
