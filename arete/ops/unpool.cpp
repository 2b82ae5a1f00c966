// Pools made of others: power averages, the inverse of max pooling, and pools of random windows
// (declared in pool.h).
#include "arete/core/modes.h"
#include "arete/expr/program_cache.h"
#include "arete/ops/activation.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/pool_internal.h"
#include "arete/ops/random.h"
#include "arete/ops/shape.h"
#include "arete/ops/vmap.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
namespace {

Shape spatial_sizes(const Tensor& x, int spatial) {
  return Shape(x.sizes().subspan(x.sizes().size() - size_t(spatial)));
}
void check_rank(const Call& c, int spatial) {
  const int64_t rank = c.tensor(0).dim();
  ARETE_CHECK(
      rank == spatial + 1 || rank == spatial + 2,
      ValueError(c.name(), std::string(c.name()) + ": Expected " + std::to_string(spatial + 1) +
                               "D or " + std::to_string(spatial + 2) + "D input, but got " +
                               to_string(c.tensor(0).sizes())));
}

// ---- power averages ----

// (mean n)^(1 / p); at 0 without a slope: nothing goes back there.
Tensor root_of_sum(const Tensor& mean, double n, double p) {
  using expr::Value;
  static auto& cache = *new expr::ProgramCache;
  const bool square = p == 2, same = p == 1;
  const expr::Type t = expr::compute_type(mean.dtype());
  const expr::Program& program =
      cache.get(pack_key({int(mean.dtype()), square, same}), {mean.dtype()}, {t, t}, {mean.dtype()},
                [&](std::span<const Value> v) {
                  const Value sum = where(v[0] == 0.0, 0.0, v[0] * v[1]);
                  return std::vector{square ? sqrt(sum) : same ? sum : pow(sum, v[2])};
                });
  const Scalar params[] = {Scalar(n), Scalar(1 / p)};
  return apply_program(program.shared_from_this(), {&mean, 1}, params, "lp_pool")[0];
}

template <int spatial>
const OpRecord& define_lp_pool(const char* schema) {
  return define(schema)
      .doc("p-th root of the sum of p-th powers in each window.")
      .surface(Surface::functional)
      .compose([](const Call& c) -> Results {
        const double p = c.real(1);
        ARETE_CHECK(p != 0, ValueError(c.name(), "norm_type must not be 0").argument("norm_type"));
        const Shape kernel = spread(c.ints(2), spatial, c.name(), "kernel_size");
        std::optional<Extent> stride;
        if (c.has(3) && !c.ints(3).empty()) stride = Extent(c.ints(3));
        const Tensor& x = c.tensor(0);
        const Tensor powers =
            (is_integral_or_bool(x.dtype()) ? x.to(default_dtype()) : x).pow(Scalar(p));
        const Tensor mean = spatial == 1   ? avg_pool1d(powers, kernel, stride, 0, c.boolean(4))
                            : spatial == 2 ? avg_pool2d(powers, kernel, stride, 0, c.boolean(4))
                                           : avg_pool3d(powers, kernel, stride, 0, c.boolean(4));
        return {root_of_sum(mean, double(numel_of(kernel)), p)};
      });
}

// ---- the inverse of max pooling ----

Shape unpooled_sizes(const Call& c, int spatial) {
  const Tensor& x = c.tensor(0);
  const Shape kernel = spread(c.ints(2), spatial, c.name(), "kernel_size");
  const Shape stride =
      c.has(3) && !c.ints(3).empty() ? spread(c.ints(3), spatial, c.name(), "stride") : kernel;
  const Shape padding = spread(c.ints(4), spatial, c.name(), "padding");
  const Shape in = spatial_sizes(x, spatial);
  Shape out;
  for (size_t d = 0; d < size_t(spatial); ++d)
    out.push_back((in[d] - 1) * stride[d] + kernel[d] - 2 * padding[d]);
  if (!c.has(5)) return out;
  IntList wanted = c.ints(5);
  if (int(wanted.size()) == spatial + 2) wanted = wanted.subspan(2);
  ARETE_CHECK(
      int(wanted.size()) == spatial,
      ValueError(c.name(), "output_size should be a sequence containing " +
                               std::to_string(spatial) + " or " + std::to_string(spatial + 2) +
                               " elements, but it has a length of '" +
                               std::to_string(c.ints(5).size()) + "'"));
  for (size_t d = 0; d < size_t(spatial); ++d)
    ARETE_CHECK(wanted[d] > out[d] - stride[d] && wanted[d] < out[d] + stride[d],
                ValueError(c.name(), "invalid output_size \"" + to_string(wanted) + "\" (dim " +
                                         std::to_string(d) + " must be between " +
                                         std::to_string(out[d] - stride[d]) + " and " +
                                         std::to_string(out[d] + stride[d]) + ")"));
  return Shape(wanted);
}

template <int spatial>
const OpRecord& define_unpool(const char* schema) {
  return define(schema)
      .autocast(autocast_on_cpu(Autocast::f32))
      .doc("Puts the maxima of a max pool back where they were, among zeros.")
      .surface(Surface::functional)
      .compose([](const Call& c) -> Results {
        const Tensor &x = c.tensor(0), &indices = c.tensor(1);
        check_rank(c, spatial);
        ARETE_CHECK(indices.dtype() == kInt64,
                    TypeError(c.name(), "elements in indices should be type int64 but got: " +
                                            std::string(name_of(indices.dtype()))));
        ARETE_CHECK(indices.layout().sizes == x.layout().sizes,
                    ValueError(c.name(),
                               "Expected shape of indices to be same as that of the "
                               "input tensor (" +
                                   to_string(x.sizes()) + ") but got indices tensor with shape: " +
                                   to_string(indices.sizes())));
        const Shape lead(x.sizes().first(x.sizes().size() - size_t(spatial)));
        const Shape plane = unpooled_sizes(c, spatial);
        for (int64_t s : plane)
          ARETE_CHECK(s > 0,
                      ValueError(c.name(), "output_size must be positive").got(to_string(plane)));
        Shape flat = lead, flat_out = lead, out = lead;
        flat.push_back(numel_of(spatial_sizes(x, spatial)));
        flat_out.push_back(numel_of(plane));
        out.append(plane.begin(), plane.end());
        Tensor filled = zeros(flat_out, x.options());
        const Tensor y = filled.scatter_(-1, indices.reshape(flat), x.reshape(flat)).view(out);
        return {spatial == 2 ? ordered_like(x, y)
                             : y};  // in three dimensions PyTorch's is row-major
      });
}

// ---- pools of random windows ----

Shape fractional_sizes(const Call& c, int spatial, IntList kernel) {
  const std::string name = "fractional_max_pool" + std::to_string(spatial) + "d";
  ARETE_CHECK(c.has(2) || c.has(3),
              ValueError(c.name(), name + " requires specifying either an output_size or an "
                                          "output_ratio"));
  const Shape in = spatial_sizes(c.tensor(0), spatial);
  Shape out;
  if (c.has(2)) {
    out = spread(c.ints(2), spatial, c.name(), "output_size");
  } else {
    const std::span<const double> ratio = c.reals(3);
    ARETE_CHECK(ratio.size() == 1 || ratio.size() == size_t(spatial),
                ValueError(c.name(), name + " requires output_ratio to be one number or one for "
                                            "each dimension"));
    for (size_t d = 0; d < size_t(spatial); ++d) {
      const double r = ratio[ratio.size() == 1 ? 0 : d];
      ARETE_CHECK(r > 0 && r < 1, ValueError(c.name(), "output_ratio must be between 0 and 1"));
      out.push_back(int64_t(double(in[d]) * r));
    }
  }
  for (size_t d = 0; d < size_t(spatial); ++d)
    ARETE_CHECK(out[d] > 0 && out[d] + kernel[d] - 1 <= in[d],
                ValueError(c.name(), name + "(): pool size (" + std::to_string(kernel[d]) +
                                         ") too large relative to input size (" +
                                         std::to_string(in[d]) + ")")
                    .got("output size " + to_string(out)));
  return out;
}

Results fractional_pool(const Call& c, int spatial, bool indices) {
  check_rank(c, spatial);
  for (int64_t k : c.ints(1))
    ARETE_CHECK(k > 0, ValueError(c.name(), "kernel_size must greater than 0, but got " +
                                                (c.ints(1).size() == 1 ? std::to_string(k)
                                                                       : to_string(c.ints(1))))
                           .argument("kernel_size"));
  const bool batched = c.tensor(0).dim() == spatial + 2;
  const Tensor x = batched ? c.tensor(0) : c.tensor(0).unsqueeze(0);
  const Shape kernel = spread(c.ints(1), spatial, c.name(), "kernel_size");
  const Shape out = fractional_sizes(c, spatial, kernel);
  const int64_t batch = x.size(0), channels = x.size(1);
  Tensor samples;
  if (c.has(4)) {
    samples = c.tensor(4).detach();
    ARETE_CHECK(
        samples.dim() == 3 && samples.size(0) >= batch && samples.size(1) == channels &&
            samples.size(2) == spatial,
        ValueError(c.name(), "_random_samples must be (N, C, " + std::to_string(spatial) + ")")
            .got(describe(samples)));
    samples = samples.narrow(0, 0, batch);  // of more of them the first, as in PyTorch
  } else {
    samples = rand({batch, channels, spatial},
                   TensorOptions(x.dtype() == kFloat64 ? kFloat64 : kFloat32, x.device()));
  }
  const PoolParams p = placed_params(kernel, out);
  const auto unbatched = [&](const Tensor& t) { return batched ? t : t.squeeze(0); };
  if (!indices && !will_record(x)) return {unbatched(max_pool_values(x, p, samples))};
  const auto [values, places] = max_pool(x, p, samples);
  Results r{unbatched(values)};
  if (indices) r.push_back(unbatched(places));
  return r;
}

template <int spatial, bool indices>
const OpRecord& define_fractional(const char* schema) {
  return define(schema)
      .autocast(autocast_on_cpu(Autocast::f32))
      .doc("Maxima of windows at random distances that come to a given output size or ratio.")
      .surface(Surface::functional)
      .compose([](const Call& c) { return fractional_pool(c, spatial, indices); })
      .no_grad_outputs(0b10)
      .random();
}

#define ARETE_LP_ARGS                                                                             \
  "(Tensor input, float norm_type, int[] kernel_size, int[]? stride=None, bool ceil_mode=False) " \
  "-> Tensor"
#define ARETE_UNPOOL_ARGS                                                                   \
  "(Tensor input, Tensor indices, int[] kernel_size, int[]? stride=None, int[] padding=0, " \
  "int[]? output_size=None) -> Tensor"
#define ARETE_FRACTIONAL_ARGS                                                               \
  "(Tensor input, int[] kernel_size, int[]? output_size=None, float[]? output_ratio=None, " \
  "Tensor? _random_samples=None) -> "
const OpRecord* const lp_pool_ops[] = {&define_lp_pool<1>("lp_pool1d" ARETE_LP_ARGS),
                                       &define_lp_pool<2>("lp_pool2d" ARETE_LP_ARGS),
                                       &define_lp_pool<3>("lp_pool3d" ARETE_LP_ARGS)};
const OpRecord* const unpool_ops[] = {&define_unpool<1>("max_unpool1d" ARETE_UNPOOL_ARGS),
                                      &define_unpool<2>("max_unpool2d" ARETE_UNPOOL_ARGS),
                                      &define_unpool<3>("max_unpool3d" ARETE_UNPOOL_ARGS)};
const OpRecord* const fractional_ops[] = {
    &define_fractional<2, false>("fractional_max_pool2d" ARETE_FRACTIONAL_ARGS "Tensor"),
    &define_fractional<3, false>("fractional_max_pool3d" ARETE_FRACTIONAL_ARGS "Tensor"),
    &define_fractional<2, true>("fractional_max_pool2d_with_indices" ARETE_FRACTIONAL_ARGS
                                "(Tensor, Tensor)"),
    &define_fractional<3, true>("fractional_max_pool3d_with_indices" ARETE_FRACTIONAL_ARGS
                                "(Tensor, Tensor)")};
#undef ARETE_LP_ARGS
#undef ARETE_UNPOOL_ARGS
#undef ARETE_FRACTIONAL_ARGS

std::optional<IntList> list_of(const std::optional<Extent>& e) {
  return e ? std::optional<IntList>(IntList(*e)) : std::nullopt;
}

}  // namespace
}  // namespace ops

#define ARETE_POOLS(n)                                                                           \
  Tensor lp_pool##n##d(const Tensor& input, double norm_type, const Extent& kernel_size,         \
                       std::optional<Extent> stride, bool ceil_mode) {                           \
    return ops::call(*ops::lp_pool_ops[n - 1],                                                   \
                     {input, norm_type, IntList(kernel_size), ops::list_of(stride), ceil_mode}); \
  }                                                                                              \
  Tensor max_unpool##n##d(const Tensor& input, const Tensor& indices, const Extent& kernel_size, \
                          std::optional<Extent> stride, const Extent& padding,                   \
                          std::optional<Extent> output_size) {                                   \
    return ops::call(*ops::unpool_ops[n - 1],                                                    \
                     {input, indices, IntList(kernel_size), ops::list_of(stride),                \
                      IntList(padding), ops::list_of(output_size)});                             \
  }
ARETE_POOLS(1)
ARETE_POOLS(2)
ARETE_POOLS(3)
#undef ARETE_POOLS
#define ARETE_FRACTIONAL(n)                                                               \
  std::tuple<Tensor, Tensor> fractional_max_pool##n##d_with_indices(                      \
      const Tensor& input, const Extent& kernel_size, std::optional<Extent> output_size,  \
      const std::vector<double>& output_ratio, const Tensor& random_samples) {            \
    const auto ratio = output_ratio.empty() ? ops::Arg() : ops::Arg(output_ratio);        \
    const auto r = ops::call_all(                                                         \
        *ops::fractional_ops[n],                                                          \
        {input, IntList(kernel_size), ops::list_of(output_size), ratio, random_samples}); \
    return {r[0], r[1]};                                                                  \
  }                                                                                       \
  Tensor fractional_max_pool##n##d(                                                       \
      const Tensor& input, const Extent& kernel_size, std::optional<Extent> output_size,  \
      const std::vector<double>& output_ratio, const Tensor& random_samples) {            \
    const auto ratio = output_ratio.empty() ? ops::Arg() : ops::Arg(output_ratio);        \
    return ops::call(                                                                     \
        *ops::fractional_ops[n - 2],                                                      \
        {input, IntList(kernel_size), ops::list_of(output_size), ratio, random_samples}); \
  }
ARETE_FRACTIONAL(2)
ARETE_FRACTIONAL(3)
#undef ARETE_FRACTIONAL

}  // namespace arete

ARETE_FAMILY(unpool)
