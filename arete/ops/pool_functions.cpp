// max_pool1d ... adaptive_max_pool3d: what users call, in terms of the pools in pool.cpp.
#include <algorithm>
#include <cmath>

#include "arete/core/modes.h"
#include "arete/ops/autocast.h"
#include "arete/ops/call.h"
#include "arete/ops/creation.h"
#include "arete/ops/index_util.h"
#include "arete/ops/pointwise.h"
#include "arete/ops/pool.h"
#include "arete/ops/pool_internal.h"
#include "arete/ops/reference_util.h"
#include "arete/ops/window_util.h"

namespace arete {
namespace ops {
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

// Geometry arguments from position 1 on: kernel_size, stride (empty: the kernel's), padding[,
// dilation].
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

using L = std::initializer_list<int64_t>;

// Sizes (lead..., 2, ..., 2, last).
Shape spatial_sizes(int spatial, L lead, int64_t first, int64_t last) {
  Shape s(lead.begin(), lead.end());
  for (int d = 0; d < spatial; ++d) s.push_back(d + 1 == spatial ? last : first);
  return s;
}

// The maximum and its place in the plane for windows [begin, end) chosen by `window(d, i)`.
template <class W>
std::vector<Tensor> windows_reference(const Tensor& x, int spatial, IntList out_spatial,
                                      bool maximum, W window) {
  const size_t lead = size_t(x.dim() - spatial);
  Shape out(x.sizes().first(lead));
  for (int64_t s : out_spatial) out.push_back(s);
  std::vector<double> values, places;
  for_each_index(out, [&](const Shape& i) {
    Shape counts;
    for (int d = 0; d < spatial; ++d) {
      const auto [begin, end] = window(d, i[lead + size_t(d)]);
      counts.push_back(end - begin);
    }
    double best = -INFINITY, place = -1, sum = 0, n = 0;
    for_each_index(counts, [&](const Shape& k) {
      Shape ix = i;
      int64_t plane = 0;
      for (int d = 0; d < spatial; ++d) {
        const int64_t v = window(d, i[lead + size_t(d)]).first + k[size_t(d)];
        ix[lead + size_t(d)] = v;
        plane = plane * x.sizes()[lead + size_t(d)] + v;
      }
      const double v = at(x, ix);
      sum += v;
      n += 1;
      if (place < 0 || v > best) best = v, place = double(plane);
    });
    values.push_back(maximum ? best : sum / n);
    places.push_back(place);
  });
  return {from_values(values, out), from_values(places, out, kInt64)};
}

// Of the averages and adaptive pools PyTorch shows those of one dimension beside its tensor
// functions and the others in nn.functional only.
constexpr Surface surface_of(int spatial) {
  return spatial == 1 ? Surface::function : Surface::functional;
}

// ---- max ----

Results max_pool_any(const Call& c, int spatial, bool indices) {
  const Tensor x = batched(c.tensor(0), spatial, c.name());
  const PoolParams p = pool_params(c, spatial, true);
  if (!indices && !(modes().grad_enabled && x.requires_grad()))
    return {unbatched_like(max_pool_values(x, p), c.tensor(0))};
  auto [values, places] = max_pool(x, p);
  Results out{unbatched_like(values, c.tensor(0))};
  if (indices) out.push_back(unbatched_like(places, c.tensor(0)));
  return out;
}

template <int spatial, bool indices>
const OpRecord& define_max(const char* schema) {
  return define(schema)
      .autocast(autocast_on_cpu(spatial == 3 && !indices ? Autocast::f32 : Autocast::none))
      .doc("Maximum of each window.")
      .surface(Surface::function)
      .compose([](const Call& c) { return max_pool_any(c, spatial, indices); })
      .no_grad_outputs(0b10)
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        return {
            {{m.make_distinct(spatial_sizes(spatial, {1, 2}, 2, 4)), L{2}, L{}, L{0}, L{1}, false}},
            {{m.make_distinct(spatial_sizes(spatial, {2}, 2, 5)), L{2}, L{1}, L{1}, L{1}, true},
             "no batch"}};
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        return {
            {{m.make({2}), L{2}, L{}, L{0}, L{1}, false},
             ErrorKind::value,
             "Expected " + std::to_string(spatial + 1) + "D or " + std::to_string(spatial + 2) +
                 "D input to"},
            {{m.make(spatial_sizes(spatial, {1, 2}, 4, 4)), L{2, 2, 2, 2}, L{}, L{0}, L{1}, false},
             ErrorKind::value,
             "expected kernel_size to be a single integer value or a list of"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        const PoolParams p = pool_params(c, spatial, true);  // the samples' dilation is 1
        const size_t lead = size_t(x.dim() - spatial);
        Shape out;
        for (size_t d = 0; d < size_t(spatial); ++d) {
          const int64_t n = x.sizes()[lead + d], k = p.kernel[d], s = p.stride[d],
                        pad = p.padding[d];
          int64_t o = (n + 2 * pad - k + (p.ceil_mode ? s - 1 : 0)) / s + 1;
          if (p.ceil_mode && (o - 1) * s >= n + pad) --o;
          out.push_back(o);
        }
        auto r = windows_reference(x, spatial, out, true, [&](int d, int64_t i) {
          const int64_t begin = i * p.stride[size_t(d)] - p.padding[size_t(d)];
          return std::pair{std::max<int64_t>(begin, 0),
                           std::min(begin + p.kernel[size_t(d)], x.sizes()[lead + size_t(d)])};
        });
        if (!indices) r.pop_back();
        return r;
      });
}

// ---- average ----

template <int spatial>
const OpRecord& define_avg(const char* schema) {
  return define(schema)
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
      })
      .samples([](SampleMaker& m) -> std::vector<Sample> {
        std::vector<Sample> out{
            {{m.make(spatial_sizes(spatial, {1, 2}, 2, 4)), L{2}, L{}, L{0}, false, true}},
            {{m.make(spatial_sizes(spatial, {2}, 2, 5)), L{2}, L{1}, L{1}, false, false},
             "no batch"}};
        if (spatial > 1)
          for (size_t i = 0; i < out.size(); ++i)
            out[i].args.push_back(i ? OwnedArg(3) : OwnedArg());
        return out;
      })
      .errors([](SampleMaker& m) -> std::vector<ErrorSample> {
        std::vector<OwnedArg> args{m.make({2}), L{2}, L{}, L{0}, false, true};
        if (spatial > 1) args.push_back(OwnedArg());
        return {{args, ErrorKind::value, "Expected " + std::to_string(spatial + 1) + "D or"}};
      })
      .reference([](const Call& c) -> std::vector<Tensor> {
        const Tensor& x = c.tensor(0);
        const PoolParams p = pool_params(c, spatial, false);
        const size_t lead = size_t(x.dim() - spatial);
        Shape out(x.sizes().first(lead));
        for (size_t d = 0; d < size_t(spatial); ++d)
          out.push_back((x.sizes()[lead + d] + 2 * p.padding[d] - p.kernel[d]) / p.stride[d] + 1);
        return {build_tensor(out, [&](const Shape& i) {
          double sum = 0, all = 0, inside = 0;
          for_each_index(p.kernel, [&](const Shape& k) {
            Shape ix = i;
            all += 1;
            for (size_t d = 0; d < size_t(spatial); ++d) {
              int64_t& v = ix[lead + d];
              v = v * p.stride[d] - p.padding[d] + k[d];
              if (v < 0 || v >= x.sizes()[lead + d]) return;
            }
            inside += 1;
            sum += at(x, ix);
          });
          return sum / (spatial > 1 && c.has(6) ? double(c.integer(6))
                        : c.boolean(5)          ? all
                                                : inside);
        })};
      });
}

// ---- adaptive ----

int64_t window_begin(int64_t i, int64_t n, int64_t out) { return i * n / out; }
int64_t window_end(int64_t i, int64_t n, int64_t out) { return ((i + 1) * n + out - 1) / out; }

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

Tensor adaptive_avg(const Call& c, int spatial) {
  const Tensor x = batched(c.tensor(0), spatial, c.name());
  bool even = false;
  const Shape out = adaptive_sizes(c, x, spatial, &even);
  Tensor y = x;
  if (even && std::all_of(out.begin(), out.end(), [](int64_t o) { return o == 1; })) {
    Shape dims;
    for (int d = 0; d < spatial; ++d) dims.push_back(d + 2);
    y = x.mean(dims, true);
  } else if (even) {
    y = avg_pool(x, even_params(x, out), true, 0);
  } else {
    // One small matrix of window weights for each dimension.
    for (int d = 0; d < spatial; ++d) {
      const int64_t n = x.size(d + 2), o = out[size_t(d)];
      std::vector<double> w(size_t(n * o), 0.0);
      for (int64_t i = 0; i < o; ++i) {
        const int64_t begin = window_begin(i, n, o), end = window_end(i, n, o);
        for (int64_t k = begin; k < end; ++k) w[size_t(k * o + i)] = 1.0 / double(end - begin);
      }
      const Tensor weights =
          tensor_from_host(w.data(), kFloat64, {n, o}, TensorOptions(x.dtype(), x.device()));
      y = d + 1 == spatial ? y.matmul(weights)
                           : y.transpose(d + 2, -1).matmul(weights).transpose(d + 2, -1);
    }
  }
  return unbatched_like(ordered_like(x, y), c.tensor(0));
}

Results adaptive_max(const Call& c, int spatial, bool indices) {
  const Tensor x = batched(c.tensor(0), spatial, c.name());
  bool even = false;
  const Shape out = adaptive_sizes(c, x, spatial, &even);
  Tensor values, places;
  if (even) {
    std::tie(values, places) = max_pool(x, even_params(x, out));
  } else {
    // Every window as a list of positions, short ones filled up with their last position (which
    // changes no maximum): pick them, then take the maximum of each list.
    Tensor y = x;
    Shape split{x.size(0), x.size(1)}, order{0, 1}, lists;
    std::vector<Tensor> tables;
    for (int d = 0; d < spatial; ++d) {
      const int64_t n = x.size(d + 2), o = out[size_t(d)];
      int64_t longest = 1;
      for (int64_t i = 0; i < o; ++i)
        longest = std::max(longest, window_end(i, n, o) - window_begin(i, n, o));
      std::vector<int64_t> table;
      for (int64_t i = 0; i < o; ++i)
        for (int64_t k = 0; k < longest; ++k)
          table.push_back(std::min(window_begin(i, n, o) + k, window_end(i, n, o) - 1));
      tables.push_back(
          tensor_from_host(table.data(), kInt64, {o * longest}, TensorOptions(kInt64, x.device())));
      y = ordered_select(y, d + 2, tables.back());
      split.push_back(o);
      split.push_back(longest);
      order.push_back(2 + 2 * d);
      lists.push_back(longest);
    }
    for (int d = 0; d < spatial; ++d) order.push_back(3 + 2 * d);
    Shape flat{x.size(0), x.size(1)};
    flat.append(out.begin(), out.end());
    flat.push_back(numel_of(lists));
    Tensor chosen;
    std::tie(values, chosen) = y.view(split).permute(order).reshape(flat).max(-1);
    if (indices) {
      int64_t rest = numel_of(lists);
      for (int d = 0; d < spatial; ++d) {
        const int64_t k = lists[size_t(d)];
        rest /= k;
        Shape along(size_t(spatial), 1);
        along[size_t(d)] = out[size_t(d)];
        const Tensor row = arange(Scalar(out[size_t(d)]), TensorOptions(kInt64, x.device()))
                               .mul(Scalar(k))
                               .view(along);
        const Tensor entry = chosen.floor_divide(Scalar(rest)).remainder(Scalar(k)).add(row);
        const Tensor position =
            tables[size_t(d)].index_select(0, entry.reshape({entry.numel()})).view(entry.sizes());
        places = d == 0 ? position : places.mul(Scalar(x.size(d + 2))).add(position);
      }
    }
  }
  Results r{unbatched_like(ordered_like(x, values), c.tensor(0))};
  if (indices) r.push_back(unbatched_like(ordered_like(x, places), c.tensor(0)));
  return r;
}

template <int spatial>
std::vector<Sample> adaptive_samples(SampleMaker& m) {
  return {{{m.make_distinct(spatial_sizes(spatial, {1, 2}, 2, 4)), L{2}}, "even"},
          {{m.make_distinct(spatial_sizes(spatial, {2}, 3, 5)), L{2}}, "uneven, no batch"},
          {{m.make_distinct(spatial_sizes(spatial, {1, 2}, 2, 3)), L{1}}, "global"},
          {{m.make_distinct(spatial_sizes(spatial, {1, 1}, 2, 3)), L{-1}}, "unchanged"}};
}
template <int spatial>
std::vector<ErrorSample> adaptive_errors(SampleMaker& m) {
  return {
      {{m.make({2}), L{2}}, ErrorKind::value, "Expected " + std::to_string(spatial + 1) + "D or"},
      {{m.make(spatial_sizes(spatial, {1, 2}, 2, 4)), L{-2}},
       ErrorKind::value,
       "elements of output_size must be greater than or equal to 0"}};
}
template <int spatial>
std::vector<Tensor> adaptive_reference(const Call& c, bool maximum) {
  const Tensor& x = c.tensor(0);
  const size_t lead = size_t(x.dim() - spatial);
  Shape out;
  for (size_t d = 0; d < size_t(spatial); ++d) {
    const int64_t o = c.ints(1).size() == 1 ? c.ints(1)[0] : c.ints(1)[d];
    out.push_back(o == -1 ? x.sizes()[lead + d] : o);
  }
  return windows_reference(x, spatial, out, maximum, [&](int d, int64_t i) {
    const int64_t n = x.sizes()[lead + size_t(d)], o = out[size_t(d)];
    return std::pair{int64_t(std::floor(double(i * n) / double(o))),
                     int64_t(std::ceil(double((i + 1) * n) / double(o)))};
  });
}

template <int spatial>
const OpRecord& define_adaptive_avg(const char* schema) {
  return define(schema)
      .autocast(autocast_by_device(spatial == 3 ? Autocast::f32 : kAutocastAsIs, kAutocastAsIs))
      .doc("Means of windows that give the wanted output size.")
      .surface(surface_of(spatial))
      .compose([](const Call& c) -> Results { return {adaptive_avg(c, spatial)}; })
      .samples(adaptive_samples<spatial>)
      .errors(adaptive_errors<spatial>)
      .reference([](const Call& c) -> std::vector<Tensor> {
        return {adaptive_reference<spatial>(c, false)[0]};
      });
}
template <int spatial, bool indices>
const OpRecord& define_adaptive_max(const char* schema) {
  return define(schema)
      .autocast(autocast_on_cpu(spatial == 3 ? Autocast::f32 : Autocast::none))
      .doc("Maxima of windows that give the wanted output size.")
      .surface(surface_of(spatial))
      .compose([](const Call& c) { return adaptive_max(c, spatial, indices); })
      .no_grad_outputs(0b10)
      .samples(adaptive_samples<spatial>)
      .errors(adaptive_errors<spatial>)
      .reference([](const Call& c) {
        auto r = adaptive_reference<spatial>(c, true);
        if (!indices) r.pop_back();
        return r;
      });
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
