// Convolutions through cuDNN, and thin ones through a kernel of ours.
#include <algorithm>
#include <limits>
#include <optional>

#include "arete/backend/cuda/direct_conv.h"
#include "arete/backend/cuda/lib/cudnn_convolution.h"
#include "arete/backend/cuda/lib/library_setup.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/backend/cuda/stand_in.h"
#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/checks.h"
#include "arete/prim/cudnn_switches.h"

namespace arete::cuda {
namespace {

using cudnn::ConvolutionKey;
using cudnn::ConvolutionPass;
using cudnn::ConvolutionPlan;
using cudnn::EngineChoice;
using cudnn::Order;
using prim::ConvArgs;
using prim::LayoutView;
using prim::View;
using Pass = ConvArgs::Pass;

// cuDNN's kernels read 16 bytes at a time.
constexpr uintptr_t kAlignment = 16;

bool is_dense(const View& v, Order order) {
  const Shape strides = cudnn::dense_strides(v.sizes, order);
  for (size_t d = 0; d < strides.size(); ++d)
    if (v.sizes[d] != 1 && v.strides[d] != strides[d]) return false;
  return true;
}

// All three tensors lie in one order, else cuDNN has only slow engines or none: that of most of
// them. Where they are even (some fit both orders, with one channel, say) the activation that is
// read decides.
Order choose_order(const ConvArgs& c) {
  const View &read = c.pass == Pass::dgrad ? c.y : c.x, &other = c.pass == Pass::dgrad ? c.x : c.y;
  int votes = 0;
  for (const View* v : {&read, &other, &c.w}) {
    const int weight = v == &read ? 3 : 2;  // any two outvote the third
    votes += weight *
             (int(is_dense(*v, Order::channels_last)) - int(is_dense(*v, Order::channels_first)));
  }
  return votes > 0 ? Order::channels_last : Order::channels_first;
}

bool fits(const View& v, Order order) {
  return is_dense(v, order) && reinterpret_cast<uintptr_t>(v.data) % kAlignment == 0;
}

ConvolutionPass pass_of(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return ConvolutionPass::forward;
    case Pass::dgrad:
      return ConvolutionPass::data_gradient;
    case Pass::wgrad:
      return ConvolutionPass::weight_gradient;
  }
  ARETE_BUG("unknown pass of a convolution");
}

// Several engines are compared when the work is met first if it takes some 20 us, well above what a
// launch costs: where users ask for it, and in plans where the heuristics are often wrong, as they
// are for the three channels of pictures. Not in deterministic mode: which one is fastest may
// differ from run to run, and so may their roundings.
EngineChoice choice_for(const ConvolutionKey& key, const prim::Context& context) {
  if (context.library_deterministic) return EngineChoice::deterministic;
  const bool on_tensor_cores = key.dtype == kFloat16 || key.dtype == kBFloat16 || key.allow_tf32;
  const bool worth_it = key.flops() >= (on_tensor_cores ? 1e10 : 1e9);
  const bool is_uneven = on_tensor_cores && (key.x[1] % 8 != 0 || key.y[1] % 8 != 0);
  if (worth_it && cudnn_benchmark()) return EngineChoice::fastest;
  return worth_it && context.repeated && is_uneven ? EngineChoice::fastest_of_small
                                                   : EngineChoice::first;
}

ConvolutionKey key_of(const ConvArgs& c, Order order, int device) {
  ConvolutionKey key;
  // One spatial dimension becomes the second of two.
  const size_t extra = c.window.spatial == 1 ? 1 : 0;
  key.spatial = uint8_t(size_t(c.window.spatial) + extra);
  const auto set_sizes = [&](std::array<int64_t, 5>& to, const View& v) {
    to[0] = v.sizes[0], to[1] = v.sizes[1], to[2] = 1;
    for (size_t d = 2; d < v.sizes.size(); ++d) to[d + extra] = v.sizes[d];
  };
  set_sizes(key.x, c.x);
  set_sizes(key.w, c.w);
  set_sizes(key.y, c.y);
  key.stride[0] = key.dilation[0] = 1;
  for (size_t d = 0; d < size_t(c.window.spatial); ++d) {
    key.stride[d + extra] = c.window.stride[d];
    key.padding[d + extra] = c.window.padding[d];
    key.dilation[d + extra] = c.window.dilation[d];
  }
  key.pass = pass_of(c.pass);
  key.dtype = c.x.dtype;
  key.order = order;
  key.has_bias = c.pass == Pass::forward && c.bias;
  key.allow_tf32 = c.x.dtype == kFloat32 && c.context.convolution_tf32;
  key.device = int8_t(device);
  key.choice = choice_for(key, c.context);
  return key;
}

// How many engines take part in the choice.
size_t rivals(const ConvolutionKey& key) {
  if (key.choice != EngineChoice::fastest && key.choice != EngineChoice::fastest_of_small) return 1;
  const int limit = cudnn_benchmark_limit();
  return limit > 0 ? size_t(limit) : std::numeric_limits<size_t>::max();
}

class Event {
 public:
  Event() { ARETE_CU(cuEventCreate, &event_, CU_EVENT_DEFAULT); }
  ~Event() { driver().cuEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(CUstream stream) { ARETE_CU(cuEventRecord, event_, stream); }
  float milliseconds_since(const Event& start) {
    ARETE_CU(cuEventSynchronize, event_);
    float ms = 0;
    ARETE_CU(cuEventElapsedTime, &ms, start.event_, event_);
    return ms;
  }

 private:
  CUevent event_ = nullptr;
};

// EngineChoice::fastest_of_small, for who has not asked: no engines that want more memory than the
// heuristics' choice does, but for so much.
constexpr size_t kLittleWorkspace = size_t{16} << 20;

// Runs every plan on the operands of this call and keeps the fastest. The output holds garbage
// of the last one afterwards.
void keep_fastest(CudaBackend& backend, ConvolutionPlan& p, const ConvolutionKey& key,
                  std::span<const cudnn::Binding> bindings, cudnnHandle_t handle, CUstream stream) {
  if (key.choice == EngineChoice::fastest_of_small) {
    const size_t most = std::max(p.plans[0].workspace_bytes(), kLittleWorkspace);
    std::erase_if(p.plans, [&](const cudnn::Plan& plan) { return plan.workspace_bytes() > most; });
    if (p.plans.size() == 1) return;
  }
  const int repeats = key.flops() > 1e12 ? 1 : 5;
  size_t best = 0;
  float best_time = std::numeric_limits<float>::infinity();
  Event start, stop;
  for (size_t i = 0; i < p.plans.size(); ++i) {
    const cudnn::Plan& plan = p.plans[i];
    try {
      const Scratch workspace(backend, plan.workspace_bytes());
      plan.execute(handle, bindings, workspace.data());  // loads the kernel
      const auto run = [&](int times) {
        start.record(stream);
        for (int k = 0; k < times; ++k) plan.execute(handle, bindings, workspace.data());
        stop.record(stream);
        return stop.milliseconds_since(start) / float(times);
      };
      float time = run(1);
      if (repeats > 1 && time < 1.5f * best_time) time = run(repeats);
      if (cudnn::logging())
        cudnn::log(key.to_string() + ": " + plan.to_string() + " takes " +
                   std::to_string(time * 1e3) + " us");
      // What the heuristics put first stays unless another one is clearly faster.
      if (time < best_time * 0.98f) best = i, best_time = time;
    } catch (const Error& e) {
      // Too little memory for this one; if that is so for all, the caller meets the error.
      cudnn::log(key.to_string() + ": " + plan.to_string() + ": " + e.what());
    }
  }
  if (best != 0) std::swap(p.plans[0], p.plans[best]);
  p.plans.erase(p.plans.begin() + 1, p.plans.end());
}

// y += bias, or the part of a batch's weight gradient to the sum of the others.
const expr::ProgramPtr& addition(DType a, DType sum) {
  const auto make = [](DType t, DType s) {
    const DType inputs[] = {t, s}, outputs[] = {s};
    return expr::trace(
        [](std::span<const expr::Value> v) { return std::vector{cast(v[0], v[1].type()) + v[1]}; },
        inputs, {}, outputs);
  };
  static const expr::ProgramPtr programs[] = {make(kFloat16, kFloat16),   make(kFloat16, kFloat32),
                                              make(kBFloat16, kBFloat16), make(kBFloat16, kFloat32),
                                              make(kFloat32, kFloat32),   make(kFloat64, kFloat64)};
  if (a == kFloat16) return programs[sum == kFloat16 ? 0 : 1];
  if (a == kBFloat16) return programs[sum == kBFloat16 ? 2 : 3];
  return programs[a == kFloat32 ? 4 : 5];
}

void add_to(CudaBackend& backend, const View& a, const View& sum) {
  const View inputs[] = {a, sum};
  backend.pointwise({.program = addition(a.dtype, sum.dtype).get(),
                     .inputs = inputs,
                     .outputs = {&sum, 1},
                     .params = {}});
}

// Bias as (1, channels, 1...) without memory of its own.
Layout bias_layout(const View& bias, IntList like, bool expanded) {
  Shape sizes(like), strides(like.size(), 0);
  strides[1] = bias.strides[0];
  if (!expanded)
    for (size_t d = 0; d < sizes.size(); ++d) sizes[d] = d == 1 ? like[1] : 1;
  return Layout(sizes, strides);
}

// The convolution without the gradient of the bias. False, and nothing is done, where cuDNN
// refuses.
bool convolve(CudaBackend& backend, const ConvArgs& c, CUstream stream) {
  const int device = backend.context().ordinal();
  const cudnnHandle_t handle = cudnn::handle(device, stream);
  const Order order = choose_order(c);
  const ConvolutionKey key = key_of(c, order, device);
  const std::shared_ptr<ConvolutionPlan> plan = cudnn::convolution_plans().get(key, [&] {
    return cudnn::make_convolution_plan(key, {.handle = handle, .device_json = {}}, rivals(key));
  });
  const std::lock_guard lock(plan->mutex);
  if (plan->plans.empty()) return false;

  const auto operand = [&](const View& v, bool is_read) {
    return Operand(backend, v, fits(v, order), cudnn::dense_strides(v.sizes, order), is_read);
  };
  const Operand x = operand(c.x, c.pass != Pass::dgrad), w = operand(c.w, c.pass != Pass::wgrad),
                y = operand(c.y, c.pass != Pass::forward);
  cudnn::Binding bindings[4] = {
      {cudnn::kConvX, x.data()}, {cudnn::kConvW, w.data()}, {cudnn::kConvY, y.data()}, {}};
  size_t n_bindings = 3;
  std::optional<LayoutView> bias_view;
  std::optional<Operand> bias;
  if (key.has_bias && plan->adds_bias) {
    bias_view.emplace(c.bias, bias_layout(c.bias, c.y.sizes, false));
    const View& v = *bias_view;
    bias.emplace(backend, v, fits(v, order), cudnn::dense_strides(v.sizes, order), true);
    bindings[n_bindings++] = {cudnn::kConvBias, bias->data()};
  }
  const std::span<const cudnn::Binding> bound(bindings, n_bindings);
  // Captures of other threads do not allow to wait either. What a graph runs stays the first, since
  // it is unloaded when it is given up.
  if (plan->plans.size() > 1 && !plan->is_kept && !backend.context().has_captures())
    keep_fastest(backend, *plan, key, bound, handle, stream);
  {
    const cudnn::Plan& chosen = plan->plans.front();
    const Scratch workspace(backend, chosen.workspace_bytes());
    chosen.execute(handle, bound, workspace.data());
    if (chosen.notes().compiles && !plan->is_kept) plan->is_kept = keep_if_captured(plan, stream);
  }
  for (const Operand* o : {&x, &w, &y}) o->store();
  if (key.has_bias && !plan->adds_bias)
    add_to(backend, LayoutView(c.bias, bias_layout(c.bias, c.y.sizes, true)), c.y);
  return true;
}

// Some kernels count elements in 32 bits, so larger batches go in parts. 0: no part is small
// enough.
int64_t samples_per_call(const ConvArgs& c) {
  const int64_t batch = c.x.sizes[0];
  const int64_t elements = std::max(c.x.numel(), c.y.numel()) / batch;
  return std::min(batch, std::numeric_limits<int32_t>::max() / elements);
}

LayoutView samples(const View& v, int64_t first, int64_t n) {
  return LayoutView(v, narrow(prim::layout_of(v), 0, first, n));
}

bool convolve_in_parts(CudaBackend& backend, const ConvArgs& c, int64_t step, CUstream stream) {
  const int64_t batch = c.x.sizes[0];
  const bool is_sum = c.pass == Pass::wgrad;
  const DType wide = c.w.dtype == kFloat64 ? kFloat64 : kFloat32;
  std::optional<prim::ScratchView> part, sum;
  if (is_sum) {
    part.emplace(backend, c.w.dtype, c.w.sizes);
    sum.emplace(backend, wide, c.w.sizes);
  }
  for (int64_t first = 0; first < batch; first += step) {
    const int64_t n = std::min(step, batch - first);
    const LayoutView x = samples(c.x, first, n), y = samples(c.y, first, n);
    ConvArgs a = c;
    a.x = x, a.y = y;
    if (is_sum) a.w = *part;
    if (!convolve(backend, a, stream)) return false;
    if (!is_sum) continue;
    if (first == 0)
      backend.copy({.out = *sum, .in = *part});
    else
      add_to(backend, *part, *sum);
  }
  if (is_sum) backend.copy({.out = c.w, .in = *sum});
  return true;
}

void sum_bias_gradient(CudaBackend& backend, const ConvArgs& c) {
  const Shape space(c.y.sizes);
  const uint32_t all_but_channels = ((1u << space.size()) - 1) & ~2u;
  backend.reduce({.monoid = prim::Monoid::sum,
                  .space = space,
                  .reduced = all_but_channels,
                  .inputs = {&c.y, 1},
                  .out = LayoutView(c.bias, bias_layout(c.bias, c.y.sizes, false)),
                  .params = {},
                  .epilogue_params = {}});
}

// A dimension in which volumes and kernel have one element, or -1: there is more for images, in
// cuDNN and here.
int dimension_of_one(const ConvArgs& c) {
  const prim::Window& w = c.window;
  for (size_t d = 0; w.spatial == 3 && d < 3; ++d)
    if (c.x.sizes[2 + d] == 1 && c.w.sizes[2 + d] == 1 && c.y.sizes[2 + d] == 1 &&
        w.padding[d] == 0)
      return int(d);
  return -1;
}

void without_dimension(CudaBackend& backend, const ConvArgs& c, int d) {
  const int64_t squeezed = 2 + d;
  const auto without = [&](const View& v) {
    return LayoutView(v, squeeze(prim::layout_of(v), {&squeezed, 1}));
  };
  const LayoutView x = without(c.x), w = without(c.w), y = without(c.y);
  ConvArgs a = c;
  a.x = x, a.w = w, a.y = y;
  a.window.spatial = 2;
  for (auto* numbers :
       {&a.window.kernel, &a.window.stride, &a.window.padding, &a.window.dilation}) {
    std::copy(numbers->begin() + d + 1, numbers->end(), numbers->begin() + d);
    numbers->back() = numbers == &a.window.padding ? 0 : 1;
  }
  backend.conv(a);
}

}  // namespace

// cuDNN's kernels for tensor cores know no other order: it copies for them.
bool CudaBackend::wants_channels_last(const ConvArgs& c) const {
  const bool half = c.x.dtype == kFloat16 || c.x.dtype == kBFloat16;
  return c.groups == 1 && c.window.spatial > 1 &&
         (half || (c.x.dtype == kFloat32 && c.context.convolution_tf32));
}

void CudaBackend::conv(const ConvArgs& args) {
  prim::check(args);
  if (const int d = dimension_of_one(args); d >= 0) return without_dimension(*this, args, d);
  const auto finish = [&] {
    if (args.pass == Pass::wgrad && args.bias) sum_bias_gradient(*this, args);
  };
  if (direct_conv(*this, args)) return finish();
  if (!cudnn_enabled() || !cudnn::data_type(args.x.dtype) || args.x.numel() == 0 ||
      args.y.numel() == 0 || args.w.numel() == 0)
    return Primitives::conv(args);
  if (!cudnn::problem().empty()) {
    cudnn::note_refusal(cudnn::problem());
    return Primitives::conv(args);
  }
  const CUstream stream = enter(args);
  const int64_t step = samples_per_call(args);
  const bool done = step >= args.x.sizes[0] || step == 0
                        ? convolve(*this, args, stream)
                        : convolve_in_parts(*this, args, step, stream);
  if (!done) return Primitives::conv(args);
  finish();
}

}  // namespace arete::cuda
