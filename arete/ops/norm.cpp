// layer_norm ... instance_norm in terms of fused_norm (see Note [One norm]).
#include "arete/ops/norm.h"

#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/fused_builder.h"
#include "arete/ops/fused_norm.h"
#include "arete/ops/pointwise.h"

namespace arete {
namespace ops {
namespace {

Tensor optional_tensor(const Call& c, size_t i) { return c.has(i) ? c.tensor(i) : Tensor(); }

// ---- over the last dimensions ----

// "[*, 3, 4]".
std::string trailing(IntList sizes) {
  std::string s = to_string(sizes);
  return s.size() > 2 ? "[*, " + s.substr(1) : "[*]";
}

NormSpec last_dims(const char* op, const Tensor& x, IntList normalized, const Tensor& weight,
                   const Tensor& bias) {
  ARETE_CHECK(!normalized.empty(),
              ValueError(op,
                         "Expected normalized_shape to be at least 1-dimensional, i.e., "
                         "containing at least one element, but got normalized_shape = []"));
  const bool fits = x.sizes().size() >= normalized.size() &&
                    Shape(x.sizes().last(normalized.size())) == Shape(normalized);
  ARETE_CHECK(fits, ValueError(op, "Given normalized_shape=" + to_string(normalized) +
                                       ", expected input with shape " + trailing(normalized) +
                                       ", but got input of size" + to_string(x.sizes())));
  for (const auto& [t, name] : {std::pair{&weight, "weight"}, {&bias, "bias"}})
    ARETE_CHECK(!t->defined() || Shape(t->sizes()) == Shape(normalized),
                ValueError(op, std::string("Expected ") + name +
                                   " to be of same shape as normalized_shape, but got " + name +
                                   " of shape " + to_string(t->sizes()) +
                                   " and normalized_shape = " + to_string(normalized)));
  NormSpec s;
  const int64_t n = numel_of(normalized);
  const int64_t rows = numel_of(x.sizes().first(x.sizes().size() - normalized.size()));
  s.shape = {rows, n};
  s.dims = {1};
  s.weight_shape = {n};
  return s;
}

// ---- over channels ----

int64_t rest_of(const Tensor& x) {
  int64_t n = 1;
  for (int64_t d = 2; d < x.dim(); ++d) n *= x.size(d);
  return n;
}

void check_channels(const char* op, int64_t channels, const Tensor& t, const char* name) {
  ARETE_CHECK(!t.defined() || t.numel() == channels,
              ValueError(op, std::string(name) + " should contain " + std::to_string(channels) +
                                 " elements not " + std::to_string(t.defined() ? t.numel() : 0))
                  .argument(name));
}

DType dtype_or_f32(const Tensor& t) { return t.defined() ? t.dtype() : kFloat32; }

Tensor variance_from(const Tensor& rstd, double eps) {
  return rstd.mul(rstd).reciprocal().sub(Scalar(eps)).clamp(Scalar(0));
}

// Moves running statistics, those that there are, towards those of `count` elements for each
// channel, by instance towards the mean over the instances.
void update_running(const RunningStatistics& running, const Tensor& mean, const Tensor& rstd,
                    bool by_instance, double eps, double count) {
  const NoGradGuard no_grad;
  const auto move = [&](Tensor t, const Tensor& values) {
    const Tensor towards = by_instance ? values.mean(IntList{0}, true) : values;
    t.lerp_(towards.view(t.sizes()).to(t.dtype()), Scalar(running.momentum));
  };
  if (running.mean.defined()) move(running.mean, mean);
  if (running.var.defined())
    move(running.var, variance_from(rstd, eps).mul(Scalar(count / (count - 1))));
}

// Whether a norm's kernel can move them.
bool moves_with_norm(const RunningStatistics& r, const Tensor& x) {
  return r.mean.defined() && r.var.defined() && r.mean.dim() == 1 && r.var.dim() == 1 &&
         r.mean.is_contiguous() && r.var.is_contiguous() && r.mean.dtype() == r.var.dtype() &&
         is_floating(r.mean.dtype()) && work_dtype(r.mean.dtype()) == work_dtype(x.dtype()) &&
         r.mean.device() == x.device() && r.var.device() == x.device();
}

// Of a channel's mean, variance[, weight][, bias] and eps: what its elements are multiplied by, and
// what is added then.
const expr::Program& scale_and_shift(DType mean, DType var, DType weight, DType bias, DType out,
                                     bool has_weight, bool has_bias) {
  static auto* const cache = new ProgramCache;
  std::vector<DType> inputs{mean, var};
  if (has_weight) inputs.push_back(weight);
  if (has_bias) inputs.push_back(bias);
  const expr::Type work = work_type(out);
  return cache->get(
      pack_key({int(mean), int(var), int(weight), int(bias), int(out), has_weight, has_bias}),
      inputs, {work}, {out, out}, [=](std::span<const expr::Value> v) {
        expr::Value scale = rsqrt(cast(v[1], work) + v.back());
        if (has_weight) scale = scale * cast(v[2], work);
        expr::Value shift = -cast(v[0], work) * scale;
        if (has_bias) shift = shift + cast(v[2 + has_weight], work);
        return std::vector{scale, shift};
      });
}

// x * scale + shift in x's dtype, whatever those of the others: a pass of its own that rounds would
// read and write more than this one does.
const expr::Program& scaled_and_shifted(DType x, DType numbers) {
  static auto* const cache = new ProgramCache;
  const expr::Type work = work_type(promote_types(x, numbers));
  return cache->get(pack_key({int(x), int(numbers)}), {x, numbers, numbers}, {}, {x},
                    [=](std::span<const expr::Value> v) {
                      return std::vector{cast(v[0], work) * cast(v[1], work) + cast(v[2], work)};
                    });
}

// x * (weight / deviation) + (bias - mean * weight / deviation): one multiplication and addition.
Tensor by_running(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps) {
  SmallVector<Tensor, 4> inputs{mean, var};
  for (const Tensor* t : {&weight, &bias})
    if (t->defined()) inputs.push_back(*t);
  // Not rounded to halves: of a mean far from 0 the product and what is added cancel.
  const DType out = work_dtype(result_type({inputs.data(), inputs.size()}));
  const Scalar numbers[] = {Scalar(eps)};
  const Results r =
      apply_program(scale_and_shift(mean.dtype(), var.dtype(), dtype_or_f32(weight),
                                    dtype_or_f32(bias), out, weight.defined(), bias.defined())
                        .shared_from_this(),
                    {inputs.data(), inputs.size()}, numbers, "batch_norm");
  Shape sizes(size_t(std::max<int64_t>(x.dim() - 1, 1)), 1);
  sizes[0] = r[0].numel();
  const Tensor operands[] = {x, r[0].view(sizes), r[1].view(sizes)};
  return apply_program(scaled_and_shifted(x.dtype(), out).shared_from_this(), operands, {},
                       "batch_norm")[0];
}

// Which element of a channel is which does not matter to norms: the order in which its dimensions
// lie in memory, and none where they are in it.
Shape spatial_order(const Tensor& x) {
  Shape order;
  for (int64_t d = 0; d < x.dim(); ++d) order.push_back(d);
  std::stable_sort(order.begin() + 2, order.end(),
                   [&](int64_t a, int64_t b) { return x.stride(a) > x.stride(b); });
  return std::ranges::is_sorted(order) ? Shape{} : order;
}
Tensor permuted(const Tensor& t, const Shape& order) {
  return order.empty() || !t.defined() ? t : t.permute(order);
}
Tensor permuted_back(const Tensor& t, const Shape& order) {
  Shape back(order);
  for (size_t k = 0; k < order.size(); ++k) back[size_t(order[k])] = int64_t(k);
  return permuted(t, back);
}

// input, running_mean, running_var, weight, bias, use_batch_stats, momentum, eps; `rectified`: then
// perhaps a residual is added, and the negative elements become 0.
Tensor channel_norm(const Call& c, bool by_instance, bool rectified = false) {
  const char* op = c.name();
  const Tensor& x = c.tensor(0);
  const Tensor running_mean = optional_tensor(c, 1), running_var = optional_tensor(c, 2);
  const Tensor weight = optional_tensor(c, 3), bias = optional_tensor(c, 4);
  const Tensor residual = rectified ? optional_tensor(c, 8) : Tensor();
  const RunningStatistics running{running_mean, running_var, c.real(6)};
  const double eps = c.real(7);
  ARETE_CHECK(eps > 0 || by_instance,
              ValueError(op, "batch_norm eps must be positive, but got " + Scalar(eps).to_string())
                  .argument("eps"));
  ARETE_CHECK(
      !residual.defined() ||
          (Shape(residual.sizes()) == Shape(x.sizes()) && residual.dtype() == x.dtype()),
      ValueError(op, "residual must be like input").expected(describe(x)).got(describe(residual)));
  if (x.dim() < 2 && !by_instance && x.numel() == 0) {  // there is no channel
    check_channels(op, 0, running_mean, "running_mean");
    check_channels(op, 0, running_var, "running_var");
    return x.clone();
  }
  ARETE_CHECK(x.dim() >= (by_instance ? 3 : 2),
              ValueError(op, std::string(op) + ": expected at least " + (by_instance ? "3" : "2") +
                                 " dimensions (N, C, ...)")
                  .argument("input")
                  .got(describe(x)));
  const int64_t n = x.size(0), channels = x.size(1), rest = rest_of(x);
  check_channels(op, channels, running_mean, "running_mean");
  check_channels(op, channels, running_var, "running_var");
  check_channels(op, channels, weight, "weight");
  check_channels(op, channels, bias, "bias");
  if (!c.boolean(5)) {
    ARETE_CHECK(running_mean.defined() && running_var.defined(),
                ValueError(op,
                           "Expected running_mean and running_var to be defined when "
                           "training=False or track_running_stats"));
    ARETE_CHECK(is_floating(x.dtype()), TypeError(op, "normalization is not implemented for '" +
                                                          std::string(name_of(x.dtype())) + "'"));
    const Tensor y = by_running(x, running_mean, running_var, weight, bias, eps);
    if (!rectified) return y;
    return relu(residual.defined() ? y.add(residual) : y);
  }
  const double count = by_instance ? double(rest) : double(n) * double(rest);
  ARETE_CHECK(
      count > 1 || x.numel() == 0,
      ValueError(
          op, std::string(
                  by_instance
                      ? "Expected more than 1 spatial element when training, got input size "
                      : "Expected more than 1 value per channel when training, got input size ") +
                  to_string(x.sizes())));
  NormSpec s;
  s.shape = {n, channels, rest};
  s.dims = by_instance ? Shape{2} : Shape{0, 2};
  s.weight_shape = {channels, 1};
  s.eps = eps;
  s.relu = rectified;
  const bool together = !by_instance && x.numel() > 0 && moves_with_norm(running, x);
  const Shape order = spatial_order(x);
  const auto [y, mean, rstd] =
      fused_norm(permuted(x, order), weight, bias, s, permuted(residual, order),
                 together ? running : RunningStatistics());
  if (!together && x.numel() > 0) update_running(running, mean, rstd, by_instance, eps, count);
  return permuted_back(y, order);
}

// ---- references ----

const OpRecord& layer_norm_op =
    define(
        "layer_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
        "float eps=1e-5) "
        "-> Tensor")
        .functional()
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Normalization over the last dimensions.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          NormSpec s = last_dims(c.name(), c.tensor(0), c.ints(1), optional_tensor(c, 2),
                                 optional_tensor(c, 3));
          s.eps = c.real(4);
          return {std::get<0>(
              fused_norm(c.tensor(0), optional_tensor(c, 2), optional_tensor(c, 3), s))};
        });

// As torch's: statistics of half precision are float32 on a GPU and beside float32 parameters.
const OpRecord& native_layer_norm_op =
    define(
        "native_layer_norm(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, "
        "float eps) -> (Tensor, Tensor, Tensor)")
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("layer_norm, and the mean and 1 / the deviation that it divides by.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor &x = c.tensor(0), weight = optional_tensor(c, 2);
          NormSpec s = last_dims(c.name(), x, c.ints(1), weight, optional_tensor(c, 3));
          s.eps = c.real(4);
          const auto [y, mean, rstd] = fused_norm(x, weight, optional_tensor(c, 3), s);
          Shape sizes(x.sizes());
          for (size_t d = sizes.size() - c.ints(1).size(); d < sizes.size(); ++d) sizes[d] = 1;
          const bool wide =
              x.device().is_cuda() || (weight.defined() && weight.dtype() == kFloat32);
          const DType dtype = wide ? mean.dtype() : x.dtype();
          return {y, mean.view(sizes).to(dtype), rstd.view(sizes).to(dtype)};
        })
        .no_grad_outputs(0b110);

const OpRecord& rms_norm_op =
    define(
        "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> "
        "Tensor")
        .functional()
        .doc("Division by the root of the mean square over the last dimensions.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          NormSpec s = last_dims(c.name(), c.tensor(0), c.ints(1), optional_tensor(c, 2), Tensor());
          s.center = false;
          s.eps = c.has(3) ? c.real(3) : epsilon_of(c.tensor(0).dtype());
          return {std::get<0>(fused_norm(c.tensor(0), optional_tensor(c, 2), Tensor(), s))};
        });

const OpRecord& group_norm_op =
    define(
        "group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float "
        "eps=1e-5) -> Tensor")
        .functional()
        .autocast(autocast_on_cuda(Autocast::f32))
        .doc("Normalization of each sample's channels in groups.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results {
          const Tensor& x = c.tensor(0);
          const int64_t groups = c.integer(1);
          ARETE_CHECK(
              x.dim() >= 2,
              ValueError(c.name(), "Expected at least 2 dimensions for input tensor but received " +
                                       std::to_string(x.dim())));
          const int64_t channels = x.size(1);
          ARETE_CHECK(
              groups > 0 && channels % groups == 0,
              ValueError(
                  c.name(),
                  "Expected number of channels in input to be divisible by num_groups, but got "
                  "input of shape " +
                      to_string(x.sizes()) + " and num_groups=" + std::to_string(groups)));
          check_channels(c.name(), channels, optional_tensor(c, 2), "weight");
          check_channels(c.name(), channels, optional_tensor(c, 3), "bias");
          NormSpec s;
          s.shape = {x.size(0), groups, channels / groups, rest_of(x)};
          s.dims = {2, 3};
          s.weight_shape = {groups, channels / groups, 1};
          s.eps = c.real(4);
          const Shape order = spatial_order(x);
          return {permuted_back(std::get<0>(fused_norm(permuted(x, order), optional_tensor(c, 2),
                                                       optional_tensor(c, 3), s)),
                                order)};
        });

const OpRecord& batch_norm_op =
    define(
        "batch_norm(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, "
        "Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5) -> Tensor")
        .functional()
        .autocast(Autocast::as_is)
        .doc("Normalization of each channel over all samples.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results { return {channel_norm(c, false)}; });

const OpRecord& batch_norm_relu_op =
    define(
        "batch_norm_relu(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? "
        "weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-5, "
        "Tensor? residual=None) -> Tensor")
        .autocast(Autocast::as_is)
        .doc("relu(batch_norm(input, ...) [+ residual]) in one pass.")
        .surface(Surface::internal)
        .for_files()
        .compose([](const Call& c) -> Results { return {channel_norm(c, false, true)}; });

const OpRecord& instance_norm_op =
    define(
        "instance_norm(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? "
        "weight=None, "
        "Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-5) -> "
        "Tensor")
        .functional()
        .autocast(Autocast::as_is)
        .doc("Normalization of each channel of each sample.")
        .surface(Surface::function)
        .compose([](const Call& c) -> Results { return {channel_norm(c, true)}; });

}  // namespace
}  // namespace ops

Tensor layer_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return ops::call(ops::layer_norm_op, {input, normalized_shape, weight, bias, eps});
}
Tensor rms_norm(const Tensor& input, IntList normalized_shape, const Tensor& weight,
                std::optional<double> eps) {
  return ops::call(ops::rms_norm_op, {input, normalized_shape, weight, eps});
}
Tensor group_norm(const Tensor& input, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return ops::call(ops::group_norm_op, {input, num_groups, weight, bias, eps});
}
Tensor batch_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, bool training, double momentum,
                  double eps) {
  return ops::call(ops::batch_norm_op,
                   {input, running_mean, running_var, weight, bias, training, momentum, eps});
}
Tensor batch_norm_relu(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight, const Tensor& bias, bool training, double momentum,
                       double eps, const Tensor& residual) {
  return ops::call(ops::batch_norm_relu_op, {input, running_mean, running_var, weight, bias,
                                             training, momentum, eps, residual});
}
Tensor instance_norm(const Tensor& input, const Tensor& running_mean, const Tensor& running_var,
                     const Tensor& weight, const Tensor& bias, bool use_input_stats,
                     double momentum, double eps) {
  return ops::call(ops::instance_norm_op, {input, running_mean, running_var, weight, bias,
                                           use_input_stats, momentum, eps});
}

}  // namespace arete

ARETE_FAMILY(norm)
