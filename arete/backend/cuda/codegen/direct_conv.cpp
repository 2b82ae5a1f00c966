#include "arete/backend/cuda/codegen/direct_conv.h"

#include "arete/backend/cuda/codegen/emit.h"
#include "arete/base/error.h"

namespace arete::cuda {

static_assert(sizeof(DirectConvArguments) == 16 * 8 + 18 * 4);
static_assert(sizeof(DirectConvWeightArguments) == 9 * 8 + 20 * 4);

namespace {
int round_up(int n, int step) { return (n + step - 1) / step * step; }
}  // namespace

int DirectConvKernel::most_rows() const {
  int n = 4;
  const auto fits = [&] {
    const int sums = out * strip() * n, weights = round_up(kernel_x, strip()) * out * n;
    return products() * n <= 1024 && sums * words() <= 32 && weights * words() <= 48;
  };
  while (n > 1 && !fits()) n /= 2;
  return n;
}

int DirectConvKernel::tile_row(int threads) const {
  const int window = phase + (strip() - 1) * stride_x + (kernel_x - 1) * dilation_x + 1;
  return (threads - 1) * strip() * stride_x + round_up(window, strip());
}

int DirectConvKernel::weight_words() const {
  if (is_weight_gradient) return 0;
  return kernel_y * out * round_up(kernel_x, strip());
}

bool DirectConvKernel::has_weight_gradient() const { return kernel_y * kernel_x * words() <= 64; }

uint64_t DirectConvKernel::number() const {
  uint64_t n = uint64_t(dtype);
  for (int v : {kernel_y, kernel_x, 4 * spread_y + stride_y, 4 * spread_x + stride_x, dilation_y,
                dilation_x, in, out - 1, rows, int(vector), phase, int(is_weight_gradient)})
    n = 16 * n + uint64_t(v);
  return n;
}

KernelSource direct_conv_source(const DirectConvKernel& k) {
  ARETE_ASSERT(k.dtype == kFloat64 || k.dtype == kFloat32 || is_reduced_float(k.dtype));
  ARETE_ASSERT(k.spread_x == 1 || !k.vector);
  ARETE_ASSERT(k.phase >= 0 && k.phase < (k.vector ? k.strip() : 1));
  std::string name = std::string(k.is_weight_gradient ? "direct_conv_weights_" : "direct_conv_") +
                     storage_name(k.dtype);
  std::string arguments = storage_name(k.dtype);
  const auto add = [&](std::initializer_list<int> values, const char* prefix) {
    for (int v : values) {
      name += prefix + std::to_string(v);
      arguments += ", " + std::to_string(v);
      prefix = "x";
    }
  };
  add({k.kernel_y, k.kernel_x}, "_");
  add({k.stride_y, k.stride_x}, "_stride");
  add({k.dilation_y, k.dilation_x}, "_dilation");
  if (!k.is_weight_gradient) {
    add({k.spread_y, k.spread_x}, "_spread");
    add({k.in, k.out}, "_channels");
  }
  add({k.rows}, "_rows");
  add({k.phase}, k.vector ? "_vector" : "_scalar");
  arguments += k.vector ? ", true" : ", false";
  return {name, "#include \"direct_conv.cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                    std::to_string(kDirectConvThreads) + (k.out > 4 ? ", 2) " : ") ") + name +
                    "(const __grid_constant__ " +
                    (k.is_weight_gradient ? "DirectConvWeightArguments p) {\n  DirectConvWeights<"
                                          : "DirectConvArguments p) {\n  DirectConv<") +
                    arguments + ">::run(p);\n}\n"};
}

std::vector<KernelSource> direct_conv_samples() {
  std::vector<KernelSource> sources;
  const auto add = [&](DirectConvKernel k, bool flat = false) {
    k.rows = flat ? 1 : k.most_rows();
    sources.push_back(direct_conv_source(k));
    k.is_weight_gradient = true;
    if (k.in == 1 && k.out == 1 && k.has_weight_gradient())
      sources.push_back(direct_conv_source(k));
  };
  for (DType t : {kFloat32, kFloat16, kBFloat16, kFloat64}) {
    const int last = t == kFloat64 ? 1 : 3;
    for (int size : {1, 3, 5, 7}) {
      add({.dtype = t, .kernel_y = size, .kernel_x = size});
      add({.dtype = t, .kernel_y = size, .kernel_x = size, .vector = true, .phase = last});
    }
    add({.dtype = t, .kernel_x = 5, .vector = true}, true);
    add({.dtype = t, .kernel_x = 11, .stride_x = 2, .dilation_x = 2}, true);
    add({.dtype = t, .kernel_y = 11, .kernel_x = 11, .out = 2});
    add({.dtype = t, .kernel_y = 4, .kernel_x = 4, .in = 4, .out = 4, .vector = true});
    add({.dtype = t, .kernel_y = 3, .kernel_x = 3, .stride_y = 2, .stride_x = 2, .out = 4});
    if (is_reduced_float(t)) continue;
    add({.dtype = t, .kernel_y = 3, .kernel_x = 3, .in = 0, .out = 16, .vector = true});
    add({.dtype = t, .kernel_y = 3, .kernel_x = 9, .in = 0, .out = 11});
  }
  // Reach, strides and phases do not depend on the type.
  for (int stride : {1, 2})
    for (int dilation : {1, 2})
      for (int phase = 0; phase < 4; ++phase)
        add({.kernel_y = 3,
             .kernel_x = 3,
             .stride_y = stride,
             .stride_x = stride,
             .dilation_y = dilation,
             .dilation_x = dilation,
             .in = 1 + phase,
             .vector = true,
             .phase = phase});
  for (int spread_x : {1, 2}) {
    add({.kernel_y = 5,
         .kernel_x = 5,
         .spread_y = 2,
         .spread_x = spread_x,
         .vector = spread_x == 1,
         .phase = 2 - spread_x});
    add({.dtype = kFloat64, .kernel_x = 3, .dilation_x = 2, .spread_x = spread_x, .in = 2}, true);
  }
  add({.kernel_y = 11,
       .kernel_x = 11,
       .stride_y = 2,
       .stride_x = 2,
       .dilation_y = 2,
       .dilation_x = 2,
       .vector = true,
       .phase = 2});
  return sources;
}

}  // namespace arete::cuda
