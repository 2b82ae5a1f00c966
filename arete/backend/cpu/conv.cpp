// Convolutions on the CPU through oneDNN.
#include <array>
#include <cstring>
#include <optional>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/onednn.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/prim/checks.h"

namespace arete::cpu {

using dnnl::memory;
using prim::ConvArgs;
using prim::ScratchView;
using prim::View;
using Pass = ConvArgs::Pass;

namespace {

enum class Order : uint8_t { channels_first, channels_last };

// Dense in either order, which is what oneDNN reads; nothing else is.
std::optional<Order> order_of(const View& v) {
  if (v.is_contiguous()) return Order::channels_first;
  const int r = v.rank();
  int64_t expected = 1;
  const auto fits = [&](int d) {
    const bool ok = v.sizes[d] == 1 || v.strides[d] == expected;
    expected *= v.sizes[d];
    return ok;
  };
  if (!fits(1)) return std::nullopt;
  for (int d = r - 1; d >= 2; --d)
    if (!fits(d)) return std::nullopt;
  return fits(0) ? std::optional(Order::channels_last) : std::nullopt;
}

memory::format_tag tag_of(Order order, int spatial) {
  using T = memory::format_tag;
  constexpr T first[] = {T::ncw, T::nchw, T::ncdhw}, last[] = {T::nwc, T::nhwc, T::ndhwc};
  return (order == Order::channels_first ? first : last)[spatial - 1];
}

// Note [Convolution layouts]
// What the primitive is asked to read and write, given how the caller's activations lie. `any` lets
// oneDNN choose (blocks of 16 channels) and costs reorders of both activations. Microseconds on 2
// threads of an Emerald Rapids machine, reorders included, f32, 3x3:
//                                  channels first               channels last
//                              plain   as nhwc     any        as nhwc     any
//   64x1x28x28 -> 32  forward    367      1010     370            221     352
//                     dgrad      321      1475    1397           1086    1417
//                     wgrad     1102       806     355            559     360
//   64x32x14x14 -> 64 forward   2248      1316    1185           1117    1209
//                     dgrad     2740      1712    1456           1226    1418
//                     wgrad     2545      1482    1214           2590    1356
//   64x32x28x28 -> 64 forward   8262      5027      -               -       -
//                     dgrad    10736      5470      -            4324       -
//                     wgrad    11812      5751      -            5161       -
// and on one thread of an AMD EPYC of family 26, in milliseconds, without reorders:
//                                  blocks of 16    nhwc
//   32x3x32x32 -> 64   forward         0.45        0.53
//                      wgrad           0.53        2.73
//   32x64x32x32 -> 128, stride 2
//                      forward         8.13        5.71
//                      dgrad           6.21        6.13
//                      wgrad           5.70        7.87
//   32x128x16x16 -> 128
//                      forward        10.21        9.06
//                      dgrad           9.76        9.87
//                      wgrad          10.20       11.94
// On one thread of an AMD EPYC of family 25, which has AVX2 only, the least processor time in
// milliseconds, reorders from channels first included:
//                                  blocks of 8     nhwc
//   32x3x32x32 -> 64   forward         2.95        1.99
//   32x64x32x32 -> 128, stride 2
//                      forward        22.0        32.1
//                      dgrad          47.7        61.6
//   32x128x16x16 -> 128
//                      forward        37.2        45.9
//                      dgrad          73.1        87.8
// Hence: channels last stay as they are with AVX-512 but for weight gradients, and without it for
// thin inputs; channels first go through `any`, but for data gradients of thin inputs. With one
// side fixed and the other `any` oneDNN may fall back to reference code (350 ms in the second
// case), so both are the same.
enum class Choice : uint8_t { as_given, any };

Choice choose(Pass pass, Order order, int64_t channels, int64_t groups) {
  // Depthwise ones (16x128x28x28, 3x3, one thread) take over 18 ms as given, 1.3 ms blocked.
  const bool thin = channels < 8 && groups == 1;
  if (order == Order::channels_last) {
    const bool stays = pass != Pass::wgrad && (thin || onednn::has_avx512());
    return stays ? Choice::as_given : Choice::any;
  }
  return pass == Pass::dgrad && thin ? Choice::as_given : Choice::any;
}

struct ConvPlan {
  bool usable = false;
  dnnl::primitive primitive;
  // The caller's memory and what the primitive works on; a reorder where they differ.
  struct Operand {
    memory::desc given, used;
    dnnl::reorder reorder;  // given to used for what is read, else used to given
    bool differs = false;
    size_t offset = 0;  // in scratch, if it differs
    double work = 0;    // of the reorder, as of grain_for(); none in a plan of one thread
  };
  Operand x, w, y, bias;
  memory::desc scratchpad;
  size_t scratchpad_offset = 0, scratch_bytes = 0;
};

memory::dims dims_of(const Shape& sizes) { return memory::dims(sizes.begin(), sizes.end()); }

memory::dims weight_dims(const ConvArgs& c) {
  memory::dims d = dims_of(c.w.sizes);
  if (c.groups == 1) return d;
  d[0] /= c.groups;
  d.insert(d.begin(), c.groups);
  return d;
}

memory::dims row_major(const memory::dims& dims) {
  memory::dims strides(dims.size());
  int64_t step = 1;
  for (size_t i = dims.size(); i-- > 0;) strides[i] = step, step *= dims[i];
  return strides;
}
// The weights as the caller has them: (Cout, Cin / groups, kernel) in row-major or channels-last
// order, which with groups only splits the first dimension.
memory::dims weight_strides(const ConvArgs& c, const memory::dims& dims, Order order) {
  if (order == Order::channels_first) return row_major(dims);
  memory::dims strides(dims.size());
  const size_t g = c.groups == 1 ? 0 : 1, channel = g + 1;
  int64_t step = 1;
  strides[channel] = step, step *= dims[channel];
  for (size_t d = dims.size() - 1; d > channel; --d) strides[d] = step, step *= dims[d];
  strides[g] = step, step *= dims[g];
  if (g == 1) strides[0] = step;
  return strides;
}

struct Orders {
  Order x, w, y;
};

// Of two orders that of the larger side, which costs more to turn around.
Order order_that_decides(const ConvArgs& c, Orders orders) {
  return c.x.numel() > c.y.numel() ? orders.x : orders.y;
}

template <class PrimitiveDesc>
void take_descriptors(ConvPlan& plan, const PrimitiveDesc& pd, const memory::desc& x,
                      const memory::desc& w, const memory::desc& y) {
  plan.x.used = x, plan.w.used = w, plan.y.used = y;
  plan.scratchpad = pd.scratchpad_desc();
}

void plan_for_choice(ConvPlan& plan, const ConvArgs& c, Orders orders, Choice choice) {
  const int s = c.window.spatial;
  const auto dt = onednn::to_dnnl(c.x.dtype);
  memory::dims stride, dilation, left, right;
  for (int d = 0; d < s; ++d) {
    const int64_t extent = c.window.dilation[d] * (c.window.kernel[d] - 1) + 1;
    stride.push_back(c.window.stride[d]);
    dilation.push_back(c.window.dilation[d] - 1);
    left.push_back(c.window.padding[d]);
    // What the last window needs on the right; less than nothing if it ends before the input does.
    right.push_back((c.y.sizes[d + 2] - 1) * c.window.stride[d] + extent - c.x.sizes[d + 2] -
                    c.window.padding[d]);
  }
  const memory::dims xd = dims_of(c.x.sizes), wd = weight_dims(c), yd = dims_of(c.y.sizes);
  plan.x.given = memory::desc(xd, dt, tag_of(orders.x, s));
  plan.y.given = memory::desc(yd, dt, tag_of(orders.y, s));
  plan.w.given = memory::desc(wd, dt, weight_strides(c, wd, orders.w));
  const Order order = order_that_decides(c, orders);
  const auto activation = [&](const memory::dims& d) {
    return memory::desc(d, dt, choice == Choice::any ? memory::format_tag::any : tag_of(order, s));
  };
  const memory::desc xm = activation(xd), ym = activation(yd), wm(wd, dt, memory::format_tag::any);
  const bool has_bias = c.bias && c.pass != Pass::dgrad;
  memory::desc bm;
  if (has_bias) {
    bm = memory::desc({c.w.sizes[0]}, dt, memory::format_tag::x);
    plan.bias.given = plan.bias.used = bm;
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto& e = onednn::engine();
  const auto direct = dnnl::algorithm::convolution_direct;
  using Forward = dnnl::convolution_forward;
  const auto kind = dnnl::prop_kind::forward_training;
  const Forward::primitive_desc forward(
      has_bias ? Forward::desc(kind, direct, xm, wm, bm, ym, stride, dilation, left, right)
               : Forward::desc(kind, direct, xm, wm, ym, stride, dilation, left, right),
      attr, e);
  const char* name = nullptr;
  switch (c.pass) {
    case Pass::forward:
      take_descriptors(plan, forward, forward.src_desc(), forward.weights_desc(),
                       forward.dst_desc());
      plan.primitive = Forward(forward);
      name = forward.impl_info_str();
      break;
    case Pass::dgrad: {
      using Backward = dnnl::convolution_backward_data;
      const Backward::primitive_desc pd(
          Backward::desc(direct, xm, wm, ym, stride, dilation, left, right), attr, e, forward);
      take_descriptors(plan, pd, pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc());
      plan.primitive = Backward(pd);
      name = pd.impl_info_str();
      break;
    }
    case Pass::wgrad: {
      using Backward = dnnl::convolution_backward_weights;
      const Backward::primitive_desc pd(
          has_bias ? Backward::desc(direct, xm, wm, bm, ym, stride, dilation, left, right)
                   : Backward::desc(direct, xm, wm, ym, stride, dilation, left, right),
          attr, e, forward);
      take_descriptors(plan, pd, pd.src_desc(), pd.diff_weights_desc(), pd.diff_dst_desc());
      plan.primitive = Backward(pd);
      name = pd.impl_info_str();
      break;
    }
  }
  plan.usable = std::strstr(name, "ref") == nullptr;
}

std::shared_ptr<const ConvPlan> make_plan(const ConvArgs& c, Orders orders, int threads) {
  const Order order = order_that_decides(c, orders);
  const Choice first = choose(c.pass, order, c.w.sizes[1], c.groups);
  const Choice second = first == Choice::any ? Choice::as_given : Choice::any;
  auto plan = std::make_shared<ConvPlan>();
  for (Choice choice : {first, second}) {
    *plan = ConvPlan();
    try {
      plan_for_choice(*plan, c, orders, choice);
    } catch (const dnnl::error& e) {
      if (e.status == dnnl_out_of_memory) throw OutOfMemoryError("conv", "out of memory in oneDNN");
      plan->usable = false;
    }
    if (plan->usable) break;
  }
  if (!plan->usable) return plan;
  size_t bytes = 0;
  const auto reserve = [&](size_t n) {
    const size_t at = bytes;
    bytes += (n + 63) / 64 * 64;
    return at;
  };
  const auto& e = onednn::engine();
  const auto fit = [&](ConvPlan::Operand& o, bool read) {
    o.differs = o.used != o.given;
    if (!o.differs) return;
    o.offset = reserve(o.used.get_size());
    o.work = threads > 1 ? double(o.used.get_size()) : 0;
    const onednn::ThreadScope scope(o.work);
    o.reorder = read ? dnnl::reorder(dnnl::reorder::primitive_desc(e, o.given, e, o.used))
                     : dnnl::reorder(dnnl::reorder::primitive_desc(e, o.used, e, o.given));
  };
  fit(plan->x, c.pass != Pass::dgrad);
  fit(plan->w, c.pass != Pass::wgrad);
  fit(plan->y, c.pass != Pass::forward);
  plan->scratchpad_offset = reserve(plan->scratchpad.get_size());
  plan->scratch_bytes = bytes;
  return plan;
}

prim::PlanCache<Hash128, const ConvPlan>& plan_cache() {
  static auto* const cache = new prim::PlanCache<Hash128, const ConvPlan>(512);
  return *cache;
}

Hash128 key_of(const ConvArgs& c, Orders orders, int threads) {
  onednn::PlanKey key{threads,           int64_t(c.pass),   int64_t(c.x.dtype),
                      c.groups,          c.window.spatial,  bool(c.bias),
                      int64_t(orders.x), int64_t(orders.w), int64_t(orders.y)};
  for (const View* v : {&c.x, &c.w, &c.y}) key.append(v->sizes.begin(), v->sizes.end());
  for (const auto* a : {&c.window.kernel, &c.window.stride, &c.window.padding, &c.window.dilation})
    key.append(a->begin(), a->begin() + c.window.spatial);
  return onednn::hash_of(key);
}

void run_plan(CpuBackend& backend, const ConvPlan& plan, const ConvArgs& c) {
  struct Scratch {
    CpuBackend& backend;
    size_t bytes;
    std::byte* data = bytes > 0 ? static_cast<std::byte*>(backend.scratch(bytes)) : nullptr;
    ~Scratch() {
      if (data != nullptr) backend.release_scratch(data, bytes);
    }
  } scratch{backend, plan.scratch_bytes};
  const auto memory_of = [&](const ConvPlan::Operand& o, const View& v) -> void* {
    return o.differs ? scratch.data + o.offset : v.data;
  };
  const auto before = [&](const ConvPlan::Operand& o, const View& v) {
    if (!o.differs) return;
    const onednn::ThreadScope threads(o.work);
    onednn::execute(o.reorder,
                    {{DNNL_ARG_FROM, &o.given, v.data}, {DNNL_ARG_TO, &o.used, memory_of(o, v)}});
  };
  const auto after = [&](const ConvPlan::Operand& o, const View& v) {
    if (!o.differs) return;
    const onednn::ThreadScope threads(o.work);
    onednn::execute(o.reorder,
                    {{DNNL_ARG_FROM, &o.used, memory_of(o, v)}, {DNNL_ARG_TO, &o.given, v.data}});
  };
  void *const x = memory_of(plan.x, c.x), *const w = memory_of(plan.w, c.w),
              *const y = memory_of(plan.y, c.y);
  void* const pad =
      plan.scratchpad.get_size() > 0 ? scratch.data + plan.scratchpad_offset : nullptr;
  switch (c.pass) {
    case Pass::forward:
      before(plan.x, c.x), before(plan.w, c.w);
      onednn::execute(plan.primitive, {{DNNL_ARG_SRC, &plan.x.used, x},
                                       {DNNL_ARG_WEIGHTS, &plan.w.used, w},
                                       {DNNL_ARG_BIAS, &plan.bias.used, c.bias.data},
                                       {DNNL_ARG_DST, &plan.y.used, y},
                                       {DNNL_ARG_SCRATCHPAD, &plan.scratchpad, pad}});
      after(plan.y, c.y);
      break;
    case Pass::dgrad:
      before(plan.y, c.y), before(plan.w, c.w);
      onednn::execute(plan.primitive, {{DNNL_ARG_DIFF_SRC, &plan.x.used, x},
                                       {DNNL_ARG_WEIGHTS, &plan.w.used, w},
                                       {DNNL_ARG_DIFF_DST, &plan.y.used, y},
                                       {DNNL_ARG_SCRATCHPAD, &plan.scratchpad, pad}});
      after(plan.x, c.x);
      break;
    case Pass::wgrad:
      before(plan.x, c.x), before(plan.y, c.y);
      onednn::execute(plan.primitive, {{DNNL_ARG_SRC, &plan.x.used, x},
                                       {DNNL_ARG_DIFF_WEIGHTS, &plan.w.used, w},
                                       {DNNL_ARG_DIFF_BIAS, &plan.bias.used, c.bias.data},
                                       {DNNL_ARG_DIFF_DST, &plan.y.used, y},
                                       {DNNL_ARG_SCRATCHPAD, &plan.scratchpad, pad}});
      after(plan.w, c.w);
      break;
  }
}

bool convolve(CpuBackend& backend, const ConvArgs& c) {
  const auto x = order_of(c.x), w = order_of(c.w), y = order_of(c.y);
  ARETE_ASSERT(x && w && y);
  // A fourth of the products: threads that sleep between loops, of which there are up to four, cost
  // more than they give to a million products.
  const onednn::ThreadScope threads(double(c.y.numel()) * double(c.w.numel()) /
                                    double(4 * c.w.sizes[0]));
  const Orders orders{*x, *w, *y};
  const auto plan = plan_cache().get(key_of(c, orders, threads.threads()),
                                     [&] { return make_plan(c, orders, threads.threads()); });
  if (plan->usable) run_plan(backend, *plan, c);
  return plan->usable;
}

// A dense stand-in for a view that oneDNN cannot read; `read`: holds the values now, else they are
// copied back by store().
class Dense {
 public:
  Dense(CpuBackend& backend, View& view, bool read)
      : backend_(backend), original_(view), read_(read) {
    scratch_.emplace(backend, view.dtype, view.sizes);
    view = scratch_->view();
    if (read) backend.copy({view, original_});
  }
  void store() const {
    if (!read_) backend_.copy({original_, *scratch_});
  }

 private:
  CpuBackend& backend_;
  View original_;
  bool read_;
  std::optional<ScratchView> scratch_;
};

}  // namespace

namespace onednn {
prim::PlanCacheStatistics conv_plan_statistics() { return plan_cache().statistics(); }
}  // namespace onednn

// Then neither the forward pass nor data gradients turn activations around (Note [Convolution
// layouts]).
bool CpuBackend::wants_channels_last(const ConvArgs& c) const {
  return c.groups == 1 && c.window.spatial > 1 && c.x.dtype == kFloat32 && onednn::has_avx512();
}

void CpuBackend::conv(const ConvArgs& args) {
  prim::check(args);
  const DType dtype = args.x.dtype;
  const bool supported = dtype == kFloat32 || (dtype == kBFloat16 && onednn::has_bf16());
  if (!supported || args.x.numel() == 0 || args.y.numel() == 0 || args.w.numel() == 0)
    return Primitives::conv(args);
  ConvArgs c = args;
  std::optional<Dense> x, w, y, bias;
  if (!order_of(c.x)) x.emplace(*this, c.x, c.pass != Pass::dgrad);
  if (!order_of(c.w)) w.emplace(*this, c.w, c.pass != Pass::wgrad);
  if (!order_of(c.y)) y.emplace(*this, c.y, c.pass != Pass::forward);
  if (c.bias && !c.bias.is_contiguous()) bias.emplace(*this, c.bias, c.pass == Pass::forward);
  if (!convolve(*this, c)) return Primitives::conv(args);
  for (const auto* d : {&x, &w, &y, &bias})
    if (*d) (*d)->store();
}

}  // namespace arete::cpu
