#include "arete/backend/cuda/lib/cudnn_convolution.h"

#include <algorithm>
#include <utility>

#include "arete/base/error.h"

namespace arete::cuda::cudnn {
namespace {

// Engines for the other order of dimensions keep copies of all operands.
size_t most_workspace(const ConvolutionKey& key) {
  constexpr size_t kLeast = size_t{1} << 30;
  double elements = 0;
  for (const auto* sizes : {&key.x, &key.w, &key.y}) {
    double n = 1;
    for (size_t d = 0; d < key.spatial + size_t{2}; ++d) n *= double((*sizes)[d]);
    elements += n;
  }
  return std::max(kLeast, size_t(1.1 * elements * double(size_of(key.dtype))));
}

// An engine whose kernel is compiled when the plan is made costs up to a second then; below this
// many operations per call it is taken only if there is no other.
constexpr double kWorthCompiling = 5e10;

// Note [Precision of convolution engines]
// f32 means f32: engines that convert to half types or, unless asked for, to tf32 (those on tensor
// cores) are left out. Half types sum in f32. One exception was measured: where engines compete for
// a large convolution of pictures (at most 4 channels), those that say to add partial sums in half
// precision take part, which are twice as fast as all others. On an H200 the forward pass of
// 256 x 3 x 224 x 224 by 64 filters of 7 x 7 erred no more than rounding to f16 does; its weight
// gradient by 1.6e-3 of its largest element instead of 3e-4. Fourier transforms and Winograd's
// algorithm with tiles of 4 and more lose digits that the error bounds of a direct sum do not
// forgive.
constexpr int64_t kChannelsOfPictures = 4;
bool is_precise(const EngineNotes& n, const ConvolutionKey& key, bool compete) {
  if (n.fft || n.winograd_large) return false;
  switch (key.dtype) {
    case DType::f32:
      return !n.down_converts && (key.allow_tf32 || !n.tensor_core);
    case DType::f64:
      return !n.down_converts;
    default:
      return !n.winograd && (!n.reduced_precision_sum ||
                             (compete && n.tensor_core && key.x[1] <= kChannelsOfPictures));
  }
}

std::shared_ptr<const Graph> make_graph(const ConvolutionKey& key, const Target& target,
                                        bool add_bias) {
  auto graph = std::make_shared<Graph>();
  const cudnnDataType_t type = *data_type(key.dtype);
  const cudnnDataType_t compute = key.dtype == kFloat64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  const size_t rank = key.spatial + size_t{2}, spatial = key.spatial;
  const auto tensor = [&](int64_t id, const std::array<int64_t, 5>& all_sizes) {
    const IntList sizes(all_sizes.data(), rank);
    return graph->tensor(id, type, sizes, dense_strides(sizes, key.order));
  };
  const auto numbers = [&](const std::array<int64_t, 3>& a) {
    return Shape(a.begin(), a.begin() + spatial);
  };
  const ConvolutionWindow window{numbers(key.stride), numbers(key.padding), numbers(key.dilation)};
  const Tensor x = tensor(kConvX, key.x), w = tensor(kConvW, key.w), y = tensor(kConvY, key.y);
  if (!add_bias) {
    graph->convolution(key.pass, window, compute, x, w, y);
  } else {
    const IntList y_sizes(key.y.data(), rank);
    const Tensor sum = graph->intermediate(compute, y_sizes, dense_strides(y_sizes, key.order));
    Shape bias_sizes(rank, 1);
    bias_sizes[1] = key.y[1];
    const Tensor bias =
        graph->tensor(kConvBias, type, bias_sizes, dense_strides(bias_sizes, key.order));
    graph->convolution(key.pass, window, compute, x, w, sum);
    graph->pointwise(CUDNN_POINTWISE_ADD, compute, y, sum, bias);
  }
  graph->finish(target);
  return graph;
}

// Adds up to `limit` plans to `plans`; `why` says what was refused last.
void add_plans(std::vector<Plan>& plans, const ConvolutionKey& key, const Target& target,
               bool add_bias, size_t limit, std::string& why) {
  const std::shared_ptr<const Graph> graph = make_graph(key, target, add_bias);
  const bool worth_compiling = key.flops() >= kWorthCompiling;
  std::vector<Candidate> late;  // those that compile
  const auto take = [&](Candidate&& c) {
    std::optional<Plan> plan = Plan::make(graph, std::move(c), &why);
    if (!plan) return;
    if (plan->workspace_bytes() > most_workspace(key))
      why = plan->to_string() + " is too much";
    else
      plans.push_back(std::move(*plan));
  };
  for (cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (plans.size() >= limit) return;
    // Engines of last resort are slow: worth knowing only where there is little else.
    if (mode == CUDNN_HEUR_MODE_FALLBACK && plans.size() >= 2) break;
    for (Candidate& c : graph->candidates(mode, &why)) {
      if (plans.size() >= limit) return;
      if (!is_precise(c.notes, key, limit > 1) ||
          (key.choice == EngineChoice::deterministic && c.notes.nondeterministic)) {
        why = "engine " + std::to_string(c.engine) + " (" + c.notes.to_string() +
              ") does not keep to what is asked";
        continue;
      }
      if (c.notes.compiles && !worth_compiling)
        late.push_back(std::move(c));
      else
        take(std::move(c));
    }
  }
  for (Candidate& c : late)
    if (plans.empty()) take(std::move(c));
}

// Note [Data gradients that crash cuDNN]
// Before 9.19 cuDNN divides by zero while it lists engines for the data gradient of a convolution
// over three dimensions whose strides are all more than 1 and not all the same (seen with 9.14 in
// f32, bf16 and f16 on an H200). A signal cannot be caught as an error is: it is not asked.
bool is_safe_to_ask(const ConvolutionKey& key, size_t version) {
  if (key.pass != ConvolutionPass::data_gradient || key.spatial != 3 || version >= 91900)
    return true;
  const auto [least, most] = std::minmax_element(key.stride.begin(), key.stride.end());
  return *least == 1 || *least == *most;
}

std::string sizes_text(const std::array<int64_t, 5>& sizes, int spatial) {
  return arete::to_string(IntList(sizes.data(), size_t(spatial) + 2));
}

}  // namespace

Shape dense_strides(IntList sizes, Order order) {
  if (order == Order::channels_first) return contiguous_strides(sizes);
  Shape strides(sizes.size(), 1);
  int64_t step = sizes[1];
  for (size_t d = sizes.size(); d-- > 2;) strides[d] = step, step *= sizes[d];
  strides[0] = step;
  return strides;
}

double ConvolutionKey::flops() const {
  double n = 2;
  for (int d = 0; d < spatial + 2; ++d) n *= double(y[size_t(d)]);
  for (int d = 1; d < spatial + 2; ++d) n *= double(w[size_t(d)]);
  return n;
}

std::string ConvolutionKey::to_string() const {
  constexpr const char* kPasses[] = {"convolution", "data gradient of a convolution",
                                     "weight gradient of a convolution"};
  constexpr const char* kChoices[] = {"", ", measured", ", measured with little memory",
                                      ", deterministic"};
  const auto window = [&](const std::array<int64_t, 3>& a) {
    return arete::to_string(IntList(a.data(), spatial));
  };
  return std::string(kPasses[int(pass)]) + " of " + std::string(name_of(dtype)) + ", x " +
         sizes_text(x, spatial) + ", w " + sizes_text(w, spatial) + ", y " +
         sizes_text(y, spatial) + ", stride " + window(stride) + ", padding " + window(padding) +
         ", dilation " + window(dilation) +
         (order == Order::channels_last ? ", channels last" : ", channels first") +
         (has_bias ? ", with bias" : "") + (allow_tf32 ? ", tf32 allowed" : "") +
         kChoices[int(choice)] + ", cuda:" + std::to_string(device);
}

std::unique_ptr<ConvolutionPlan> make_convolution_plan(const ConvolutionKey& key,
                                                       const Target& target, size_t limit) {
  auto result = std::make_unique<ConvolutionPlan>();
  std::string why = "no engine";
  // A graph that cuDNN does not even take is as good as one without engines.
  const auto attempt = [&](bool add_bias) {
    try {
      add_plans(result->plans, key, target, add_bias, limit, why);
    } catch (const DeviceError& e) {
      why = e.message();
    }
    result->adds_bias = add_bias;
    return !result->plans.empty();
  };
  if (!is_safe_to_ask(key, library().cudnnGetVersion())) {
    note_refusal(key.to_string() + ": it would end the program before cuDNN 9.19");
    return result;
  }
  const bool found = (key.has_bias && attempt(true)) || attempt(false);
  if (!found) note_refusal(key.to_string() + ": " + why);
  if (logging())
    for (const Plan& p : result->plans) log(key.to_string() + ": " + p.to_string());
  return result;
}

prim::PlanCache<ConvolutionKey, ConvolutionPlan>& convolution_plans() {
  static auto* const cache = new prim::PlanCache<ConvolutionKey, ConvolutionPlan>(512);
  return *cache;
}

}  // namespace arete::cuda::cudnn
