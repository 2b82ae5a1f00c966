// Channels rearranged and normalized by their neighbours (declared in nn.h).
#include "arete/expr/value.h"
#include "arete/ops/call.h"
#include "arete/ops/nn.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/shape.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

const OpRecord& channel_shuffle_op =
    define("channel_shuffle(Tensor input, int groups) -> Tensor")
        .functional()
        .doc("Deals the channels of (N, C, ...) out one from each group in turn.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t groups = c.integer(1);
          ARETE_CHECK(x.dim() > 2,
                      ValueError(c.name(),
                                 "channel_shuffle expects input with > 2 dims, but got input with "
                                 "sizes " +
                                     to_string(x.sizes())));
          ARETE_CHECK(groups > 0, ValueError(c.name(),
                                             "Number of groups to divide channels in must be "
                                             "positive. Value of groups:" +
                                                 std::to_string(groups)));
          ARETE_CHECK(x.size(1) % groups == 0,
                      ValueError(c.name(), "Number of channels must be divisible by groups. Got " +
                                               std::to_string(x.size(1)) + " channels and " +
                                               std::to_string(groups) + " groups."));
          // In channels-last order the channels stay the last ones in memory.
          const bool last = prefers_channels_last(x);
          const size_t d = last ? x.sizes().size() - 1 : 1;
          const Tensor from = last ? x.movedim(1, -1) : x;
          Shape split(from.sizes());
          split[d] /= groups;
          split.insert(split.begin() + d, groups);
          const Tensor y =
              from.reshape(split).transpose(int64_t(d), int64_t(d) + 1).reshape(from.sizes());
          return {last ? y.movedim(-1, 1) : y};
        });

const OpRecord& response_norm_op = []() -> const OpRecord& {
  PointwiseDef d;
  d.n_inputs = 2;
  d.n_params = 3;
  d.definition = [](std::span<const expr::Value> v) {
    return std::vector{to_float(v[0]) / pow(to_float(v[1]) * v[2] + v[3], v[4])};
  };
  d.result = PointwiseDef::Result::floating;
  return define(
             "response_norm(Tensor self, Tensor mean, float alpha, float k, float beta) -> Tensor")
      .surface(Surface::internal)
      .doc("self / (mean * alpha + k)^beta.")
      .pointwise(std::move(d));
}();

const OpRecord& local_response_norm_op =
    define(
        "local_response_norm(Tensor input, int size, float alpha=0.0001, float beta=0.75, float "
        "k=1.0) -> Tensor")
        .doc("Divides by a power of the mean square over neighbouring channels.")
        .surface(Surface::functional)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t size = c.integer(1);
          ARETE_CHECK(x.dim() >= 3,
                      ValueError(c.name(), "Expected 3D or higher dimensionality input (got " +
                                               std::to_string(x.dim()) + " dimensions)"));
          ARETE_CHECK(size > 0, ValueError(c.name(), "size must be positive").argument("size"));
          if (x.numel() == 0) return {x};
          Tensor mean = avg_pool2d(x.square().reshape({x.size(0), 1, x.size(1), -1}), {size, 1},
                                   Extent(1), {size / 2, 0});
          if (size % 2 == 0) mean = mean.narrow(2, 0, x.size(1));  // padded by one less behind
          mean = mean.reshape(x.sizes());
          return {call(response_norm_op, {x, mean, c.real(2), c.real(4), c.real(3)})};
        });

}  // namespace
}  // namespace ops

Tensor channel_shuffle(const Tensor& input, int64_t groups) {
  return ops::call(ops::channel_shuffle_op, {input, groups});
}
Tensor local_response_norm(const Tensor& input, int64_t size, double alpha, double beta, double k) {
  return ops::call(ops::local_response_norm_op, {input, size, alpha, beta, k});
}

}  // namespace arete

ARETE_FAMILY(channel)
