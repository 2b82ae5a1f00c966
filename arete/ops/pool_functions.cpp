// max_pool1d ... adaptive_max_pool3d: what users call, in terms of the pools in pool.cpp.
#include <algorithm>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/pool_internal.h"
#include "arete/ops/vmap.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {

PoolParams pool_params(const Call& c, int spatial, bool has_dilation) {
  const char* op = c.name();
  PoolParams p;
  p.kernel = spread(c.ints(1), spatial, op, "kernel_size");
  p.stride = c.has(2) && !c.ints(2).empty() ? spread(c.ints(2), spatial, op, "stride") : p.kernel;
  p.padding = spread(c.ints(3), spatial, op, "padding");
  p.dilation =
      has_dilation ? spread(c.ints(4), spatial, op, "dilation") : Shape(size_t(spatial), 1);
  p.ceil_mode = c.boolean(has_dilation ? 5 : 4);
  return p;
}

namespace {

Tensor batched(const Tensor& x, int spatial, const char* op) {
  ARETE_CHECK(x.dim() == spatial + 2 || x.dim() == spatial + 1,
              ValueError(op, std::string("Expected ") + std::to_string(spatial + 1) + "D or " +
                                 std::to_string(spatial + 2) + "D input to " + op + ", but got " +
                                 to_string(x.sizes())));
  return x.dim() == spatial + 1 ? x.unsqueeze(0) : x;
}
Tensor unbatched_like(const Tensor& y, const Tensor& x) {
  return y.dim() == x.dim() ? y : y.squeeze(0);
}

// Of the averages and adaptive pools PyTorch shows those of one dimension beside its tensor
// functions and the others in nn.functional only.
constexpr Surface surface_of(int spatial) {
  return spatial == 1 ? Surface::function : Surface::functional;
}

// ---- max ----

// Of `x`, argument 0 as a batch.
Results max_of(const Call& c, const Tensor& x, const PoolParams& p, bool indices) {
  if (!indices && !will_record(x)) return {unbatched_like(max_pool_values(x, p), c.tensor(0))};
  auto [values, places] = max_pool(x, p);
  Results out{unbatched_like(values, c.tensor(0))};
  if (indices) out.push_back(unbatched_like(places, c.tensor(0)));
  return out;
}

Results max_pool_any(const Call& c, int spatial, bool indices) {
  return max_of(c, batched(c.tensor(0), spatial, c.name()), pool_params(c, spatial, true), indices);
}

template <int spatial, bool indices>
const OpRecord& define_max(const char* schema) {
  return define(schema)
      .functional()
      .autocast(autocast_on_cpu(spatial == 3 && !indices ? Autocast::f32 : Autocast::none))
      .doc("Maximum of each window.")
      .surface(Surface::function)
      .compose([](const Call& c) { return max_pool_any(c, spatial, indices); })
      .no_grad_outputs(0b10);
}

// ---- average ----

template <int spatial>
const OpRecord& define_avg(const char* schema) {
  return define(schema)
      .functional()
      .autocast(autocast_on_cpu(spatial == 3 ? Autocast::f32 : Autocast::none))
      .doc("Mean of each window.")
      .surface(surface_of(spatial))
      .compose([](const Call& c) -> Results {
        const Tensor x = batched(c.tensor(0), spatial, c.name());
        int64_t divisor = 0;
        if (spatial > 1 && c.has(6)) {
          divisor = c.integer(6);
          ARETE_CHECK(
              divisor != 0,
              ValueError(c.name(), "divisor must be not zero").argument("divisor_override"));
        }
        return {unbatched_like(avg_pool(x, pool_params(c, spatial, false), c.boolean(5), divisor),
                               c.tensor(0))};
      });
}

// ---- adaptive ----

// The output sizes, -1 resolved; `even`: all windows have one size.
Shape adaptive_sizes(const Call& c, const Tensor& x, int spatial, bool* even) {
  Shape out = spread(c.ints(1), spatial, c.name(), "output_size");
  *even = true;
  for (int d = 0; d < spatial; ++d) {
    int64_t& o = out[size_t(d)];
    const int64_t n = x.size(d + 2);
    if (o == -1) o = n;
    ARETE_CHECK(
        o >= 0,
        ValueError(c.name(),
                   "elements of output_size must be greater than or equal to 0 but received " +
                       to_string(c.ints(1))));
    ARETE_CHECK(
        n > 0,
        ValueError(c.name(),
                   std::string(c.name()) +
                       "(): Expected input to have non-zero size for non-batch dimensions, but "
                       "input has sizes " +
                       to_string(x.sizes())));
    *even = *even && o > 0 && n % o == 0;
  }
  return out;
}
PoolParams even_params(const Tensor& x, const Shape& out) {
  PoolParams p;
  for (size_t d = 0; d < out.size(); ++d) p.kernel.push_back(x.size(int64_t(d) + 2) / out[d]);
  p.stride = p.kernel;
  p.padding = Shape(out.size(), 0);
  p.dilation = Shape(out.size(), 1);
  return p;
}

PoolParams adaptive_params(const Shape& out) { return placed_params(Shape(out.size(), 0), out); }

Tensor adaptive_avg(const Call& c, int spatial) {
  const Tensor x = batched(c.tensor(0), spatial, c.name());
  bool even = false;
  const Shape out = adaptive_sizes(c, x, spatial, &even);
  Tensor y = x;
  if (even && std::all_of(out.begin(), out.end(), [](int64_t o) { return o == 1; })) {
    Shape dims;
    for (int d = 0; d < spatial; ++d) dims.push_back(d + 2);
    y = x.mean(dims, true);
  } else {
    y = avg_pool(x, even ? even_params(x, out) : adaptive_params(out), true, 0);
  }
  return unbatched_like(ordered_like(x, y), c.tensor(0));
}

Results adaptive_max(const Call& c, int spatial, bool indices) {
  const Tensor x = batched(c.tensor(0), spatial, c.name());
  bool even = false;
  const Shape out = adaptive_sizes(c, x, spatial, &even);
  return max_of(c, x, even ? even_params(x, out) : adaptive_params(out), indices);
}

template <int spatial>
const OpRecord& define_adaptive_avg(const char* schema) {
  return define(schema)
      .autocast(autocast_by_device(spatial == 3 ? Autocast::f32 : Autocast::as_is, Autocast::as_is))
      .doc("Means of windows that give the wanted output size.")
      .surface(surface_of(spatial))
      .compose([](const Call& c) -> Results { return {adaptive_avg(c, spatial)}; });
}
template <int spatial, bool indices>
const OpRecord& define_adaptive_max(const char* schema) {
  return define(schema)
      .autocast(autocast_on_cpu(spatial == 3 ? Autocast::f32 : Autocast::none))
      .doc("Maxima of windows that give the wanted output size.")
      .surface(surface_of(spatial))
      .compose([](const Call& c) { return adaptive_max(c, spatial, indices); })
      .no_grad_outputs(0b10);
}

#define ARETE_MAX_ARGS                                                                            \
  "(Tensor self, int[] kernel_size, int[]? stride=None, int[] padding=0, int[] dilation=1, bool " \
  "ceil_mode=False) -> "
#define ARETE_AVG_ARGS                                                                           \
  "(Tensor self, int[] kernel_size, int[]? stride=None, int[] padding=0, bool ceil_mode=False, " \
  "bool "                                                                                        \
  "count_include_pad=True"
#define ARETE_POOL_RECORDS(n, avg_rest)                                                      \
  const OpRecord& max_pool##n##d_op =                                                        \
      define_max<n, false>("max_pool" #n "d" ARETE_MAX_ARGS "Tensor");                       \
  const OpRecord& max_pool##n##d_with_indices_op =                                           \
      define_max<n, true>("max_pool" #n "d_with_indices" ARETE_MAX_ARGS "(Tensor, Tensor)"); \
  const OpRecord& avg_pool##n##d_op =                                                        \
      define_avg<n>("avg_pool" #n "d" ARETE_AVG_ARGS avg_rest ") -> Tensor");                \
  const OpRecord& adaptive_avg_pool##n##d_op = define_adaptive_avg<n>(                       \
      "adaptive_avg_pool" #n "d(Tensor self, int[] output_size) -> Tensor");                 \
  const OpRecord& adaptive_max_pool##n##d_op = define_adaptive_max<n, false>(                \
      "adaptive_max_pool" #n "d(Tensor self, int[] output_size) -> Tensor");                 \
  const OpRecord& adaptive_max_pool##n##d_with_indices_op = define_adaptive_max<n, true>(    \
      "adaptive_max_pool" #n                                                                 \
      "d_with_indices(Tensor self, int[] output_size) -> (Tensor, Tensor)");
ARETE_POOL_RECORDS(1, "")
ARETE_POOL_RECORDS(2, ", int? divisor_override=None")
ARETE_POOL_RECORDS(3, ", int? divisor_override=None")
#undef ARETE_POOL_RECORDS
#undef ARETE_MAX_ARGS
#undef ARETE_AVG_ARGS

std::tuple<Tensor, Tensor> pair_of(Results r) { return {r[0], r[1]}; }

// A stride left out is an empty list.
IntList stride_of(const std::optional<Extent>& stride) {
  return stride ? IntList(*stride) : IntList();
}

}  // namespace
}  // namespace ops

#define ARETE_POOLS(n)                                                                            \
  Tensor max_pool##n##d(const Tensor& self, const Extent& kernel_size,                            \
                        std::optional<Extent> stride, const Extent& padding,                      \
                        const Extent& dilation, bool ceil_mode) {                                 \
    return ops::call(ops::max_pool##n##d_op, {self, IntList(kernel_size), ops::stride_of(stride), \
                                              IntList(padding), IntList(dilation), ceil_mode});   \
  }                                                                                               \
  std::tuple<Tensor, Tensor> max_pool##n##d_with_indices(                                         \
      const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride,                \
      const Extent& padding, const Extent& dilation, bool ceil_mode) {                            \
    return ops::pair_of(ops::call_all(ops::max_pool##n##d_with_indices_op,                        \
                                      {self, IntList(kernel_size), ops::stride_of(stride),        \
                                       IntList(padding), IntList(dilation), ceil_mode}));         \
  }                                                                                               \
  Tensor adaptive_avg_pool##n##d(const Tensor& self, const Extent& output_size) {                 \
    return ops::call(ops::adaptive_avg_pool##n##d_op, {self, IntList(output_size)});              \
  }                                                                                               \
  Tensor adaptive_max_pool##n##d(const Tensor& self, const Extent& output_size) {                 \
    return ops::call(ops::adaptive_max_pool##n##d_op, {self, IntList(output_size)});              \
  }                                                                                               \
  std::tuple<Tensor, Tensor> adaptive_max_pool##n##d_with_indices(const Tensor& self,             \
                                                                  const Extent& output_size) {    \
    return ops::pair_of(ops::call_all(ops::adaptive_max_pool##n##d_with_indices_op,               \
                                      {self, IntList(output_size)}));                             \
  }
ARETE_POOLS(1)
ARETE_POOLS(2)
ARETE_POOLS(3)
#undef ARETE_POOLS

Tensor avg_pool1d(const Tensor& self, const Extent& kernel_size, std::optional<Extent> stride,
                  const Extent& padding, bool ceil_mode, bool count_include_pad) {
  return ops::call(ops::avg_pool1d_op, {self, IntList(kernel_size), ops::stride_of(stride),
                                        IntList(padding), ceil_mode, count_include_pad});
}
#define ARETE_AVG_POOL(n)                                                                    \
  Tensor avg_pool##n##d(const Tensor& self, const Extent& kernel_size,                       \
                        std::optional<Extent> stride, const Extent& padding, bool ceil_mode, \
                        bool count_include_pad, std::optional<int64_t> divisor_override) {   \
    return ops::call(ops::avg_pool##n##d_op,                                                 \
                     {self, IntList(kernel_size), ops::stride_of(stride), IntList(padding),  \
                      ceil_mode, count_include_pad, divisor_override});                      \
  }
ARETE_AVG_POOL(2)
ARETE_AVG_POOL(3)
#undef ARETE_AVG_POOL

}  // namespace arete

ARETE_FAMILY(pool_functions)
