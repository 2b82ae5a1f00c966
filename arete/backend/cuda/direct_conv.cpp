// Convolutions with few channels per group: the choice of a kernel. See device/direct_conv.cuh.
#include "arete/backend/cuda/direct_conv.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "arete/backend/cuda/codegen/direct_conv.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/prim/decompose/layout_view_internal.h"

namespace arete::cuda {
namespace {

using prim::ConvArgs;
using prim::View;
using Pass = ConvArgs::Pass;

// Below, a call takes about as long as its launch in either way.
constexpr int64_t kFewestResults = 64 << 10;
// Pairs of channels of one group, each of which reads both for the gradient of its weights.
constexpr int64_t kMostPairs = 4;
constexpr int64_t kMostChannels = 4, kMostTaps = 256, kLargestKernel = 11;
// Of groups in f32 and f64: sums of all channels of the result in registers, and the code for one
// channel of the input. What tensor cores do well, many products of whole eights of channels, is
// left to cuDNN; the rest it takes apart.
constexpr int64_t kMostGroupedOut = 16, kMostGroupedIn = 64, kMostGroupedProducts = 2048;
constexpr double kManyProducts = 8e8;
// Several blocks should fit on a multiprocessor, so that some load while others compute.
constexpr int64_t kSharedBytes = 40 << 10;
// Positions are 32 bits wide, with room for a tile beyond the edge and for strides.
constexpr int64_t kLargestExtent = 1 << 28;

// An activation as (sample, channel, row, column).
struct Planes {
  std::byte* data = nullptr;
  int64_t size[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 1};

  explicit Planes(const View& v) : data(v.data) {
    const size_t rank = v.sizes.size();
    for (size_t d = 0; d < rank; ++d) {
      const size_t to = d < 2 ? d : d + 4 - rank;
      size[to] = v.sizes[d];
      if (v.sizes[d] != 1) stride[to] = v.strides[d];
    }
  }
  int64_t numel() const { return size[0] * size[1] * size[2] * size[3]; }
  // Rows can be read or written `n` elements at a time.
  bool has_vectors(int64_t n, size_t element_size) const {
    for (int d : {0, 1, 2})
      if (stride[d] % n != 0) return false;
    return size[3] % n == 0 &&
           reinterpret_cast<uintptr_t>(data) % (uint64_t(n) * element_size) == 0;
  }
};

bool is_supported(DType t) {
  return t == kFloat32 || t == kFloat64 || t == kFloat16 || t == kBFloat16;
}

bool is_grouped(const ConvArgs& c) {
  return c.groups > 1 && c.pass != Pass::wgrad && !is_reduced_float(c.x.dtype);
}

bool has_few_channels(const ConvArgs& c, int64_t in, int64_t out, int64_t results, int64_t taps) {
  if (std::max(in, out) <= kMostChannels) return true;
  if (!is_grouped(c) || in > kMostGroupedIn || out > kMostGroupedOut) return false;
  const bool is_for_tensor_cores = in % 8 == 0 && out % 8 == 0 && std::max(in, out) > 8;
  return !is_for_tensor_cores || double(results) * double(in * taps) < kManyProducts;
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Threads along a row, along a column and over planes; powers of 2.
struct Block {
  int x = 4, y = 1, z = 1;
  int threads() const { return x * y * z; }
};

struct Tiling {
  Block block;
  int64_t tiles_x, tiles_y, blocks, plane_words;
};

// The tile that takes the fewest reads, then as many planes as give a full block. All is done
// `times` times.
Tiling choose_tiling(const DirectConvKernel& k, const Planes& out, int64_t planes, int64_t times,
                     int multiprocessors) {
  const int64_t height = out.size[2], width = out.size[3];
  const auto halves_until = [](int& n, auto&& done) {
    while (n > 1 && !done()) n /= 2;
  };
  Block b;
  int64_t fewest = std::numeric_limits<int64_t>::max();
  for (int x = 4; x <= (height == 1 ? kDirectConvThreads : 32); x *= 2) {
    const int64_t reads = divide_up(width, int64_t(x) * k.strip()) * k.tile_row(x);
    if (reads <= fewest) fewest = reads, b.x = x;
  }
  fewest = std::numeric_limits<int64_t>::max();
  for (int y = 1; b.x * y <= kDirectConvThreads; y *= 2) {
    const int64_t reads = divide_up(height, int64_t(y) * k.rows) * k.tile_rows(y);
    if (reads <= fewest) fewest = reads, b.y = y;
  }
  b.z = int(std::min<uint64_t>(uint64_t(kDirectConvThreads / (b.x * b.y)),
                               std::bit_ceil(uint64_t(planes))));

  const auto tiling = [&] {
    Tiling t{b, divide_up(width, int64_t(b.x) * k.strip()),
             divide_up(height, int64_t(b.y) * k.rows), 0,
             k.weight_words() + int64_t(k.tile_row(b.x)) * k.tile_rows(b.y)};
    t.blocks = t.tiles_x * t.tiles_y * divide_up(planes, b.z);
    return t;
  };
  const auto fits = [&] {
    return tiling().plane_words * b.z * int64_t(16 / k.strip()) <= kSharedBytes;
  };
  // Every multiprocessor should have work.
  const auto spreads = [&] {
    return b.threads() <= 64 || tiling().blocks * times >= 2 * int64_t(multiprocessors);
  };
  for (int* n : {&b.z, &b.y, &b.x}) halves_until(*n, fits);
  for (int* n : {&b.z, &b.y, &b.x}) halves_until(*n, spreads);
  return tiling();
}

const Kernel& find(CudaBackend& backend, const DirectConvKernel& k) {
  static auto* const mutex = new std::mutex;
  static auto* const kernels = new std::unordered_map<uint64_t, const Kernel*>;
  const uint64_t key = k.number() << 8 | uint64_t(backend.context().ordinal());
  {
    const std::lock_guard lock(*mutex);
    const auto found = kernels->find(key);
    if (found != kernels->end()) return *found->second;
  }
  const Kernel& kernel = backend.kernel(direct_conv_source(k));
  const std::lock_guard lock(*mutex);
  kernels->emplace(key, &kernel);
  return kernel;
}

// Sets what the window says; false where no kernel takes it. padding: of rows and columns.
bool set_window(DirectConvKernel& k, const ConvArgs& c, const Planes& in, const Planes& out,
                const Planes& w, int64_t (&padding)[2]) {
  const int64_t spatial = c.window.spatial;
  const bool is_gradient = c.pass == Pass::dgrad;
  for (size_t d = size_t(2 - spatial); d < 2; ++d) {
    const size_t from = d - size_t(2 - spatial);
    const int64_t size = w.size[d + 2], stride = c.window.stride[from];
    const int64_t dilation = size == 1 ? 1 : c.window.dilation[from];
    padding[d] = c.window.padding[from];
    if (size > kLargestKernel || stride > 2 || dilation > 2) return false;
    if (is_gradient) padding[d] = dilation * (size - 1) - padding[d];
    if (std::max({std::abs(padding[d]), in.size[d + 2], out.size[d + 2]}) > kLargestExtent)
      return false;
    (d == 0 ? k.kernel_y : k.kernel_x) = int(size);
    if (is_gradient)
      (d == 0 ? k.spread_y : k.spread_x) = int(stride);
    else
      (d == 0 ? k.stride_y : k.stride_x) = int(stride);
    (d == 0 ? k.dilation_y : k.dilation_x) = int(dilation);
  }
  if (is_grouped(c) ? k.products() > kMostGroupedProducts : k.taps() > kMostTaps) return false;
  k.rows = out.size[2] == 1 ? 1 : k.most_rows();
  k.vector = k.spread_x == 1 && in.has_vectors(k.strip(), size_of(k.dtype));
  const int64_t into = padding[1] % k.strip();
  if (k.vector && into != 0) k.phase = int(into < 0 ? -into : k.strip() - into);
  return true;
}

// What the arguments of all kernels have.
template <class Arguments>
void set_tiles(Arguments& a, const DirectConvKernel& k, const Tiling& tiling, const Planes& in,
               const Planes& out, const int64_t (&padding)[2]) {
  a.in = in.data;
  a.in_sample = in.stride[0], a.in_channel = in.stride[1], a.in_row = in.stride[2];
  a.in_height = int32_t(in.size[2]), a.in_width = int32_t(in.size[3]);
  a.out_height = int32_t(out.size[2]), a.out_width = int32_t(out.size[3]);
  a.top = int32_t(padding[0]), a.left = int32_t(padding[1]);
  a.tiles_x = uint32_t(tiling.tiles_x), a.tiles_y = uint32_t(tiling.tiles_y);
  a.log_x = std::countr_zero(unsigned(tiling.block.x));
  a.log_y = std::countr_zero(unsigned(tiling.block.y));
  a.tile_row = k.tile_row(tiling.block.x), a.tile_rows = k.tile_rows(tiling.block.y);
  a.plane_words = int32_t(tiling.plane_words);
}

size_t shared_bytes(const DirectConvKernel& k, const Tiling& tiling) {
  return size_t(tiling.plane_words * tiling.block.z) * size_t(16 / k.strip());
}

bool weight_gradient(CudaBackend& backend, const ConvArgs& c, DirectConvKernel k, const Planes& in,
                     const Planes& grad, const Planes& w) {
  const int64_t channels_in = in.size[1] / c.groups, channels_out = grad.size[1] / c.groups;
  int64_t padding[2] = {0, 0};
  k.is_weight_gradient = true;
  if (channels_in * channels_out > kMostPairs || !set_window(k, c, in, grad, w, padding) ||
      !k.has_weight_gradient())
    return false;
  const int64_t pairs = c.groups * channels_in * channels_out, samples = in.size[0];
  const int multiprocessors = backend.limits().multiprocessors;
  Tiling tiling = choose_tiling(k, grad, samples, pairs, multiprocessors);
  tiling.block.z = std::max(tiling.block.z, 32 / (tiling.block.x * tiling.block.y));  // whole warps
  const int64_t items = tiling.tiles_x * tiling.tiles_y * divide_up(samples, tiling.block.z);
  constexpr int64_t kBlocks = 8;  // for each multiprocessor
  const int64_t splits = std::clamp<int64_t>(divide_up(kBlocks * multiprocessors, pairs), 1, items);
  if (std::max(items, pairs * splits) > std::numeric_limits<int32_t>::max()) return false;

  const CUstream stream = backend.enter(c);
  const DType wide = k.dtype == kFloat64 ? kFloat64 : kFloat32;
  Shape sizes{splits};
  for (int64_t n : c.w.sizes) sizes.push_back(n);
  const prim::ScratchView parts(backend, wide, sizes);
  DirectConvWeightArguments a{};
  set_tiles(a, k, tiling, in, grad, padding);
  a.grad = grad.data, a.parts = parts.view().data;
  a.grad_sample = grad.stride[0], a.grad_channel = grad.stride[1], a.grad_row = grad.stride[2];
  a.samples = uint32_t(samples), a.pairs = uint32_t(pairs);
  a.channels_in = uint32_t(channels_in), a.channels_out = uint32_t(channels_out);
  a.items = uint32_t(items), a.splits = uint32_t(splits);
  a.vector_load = grad.has_vectors(k.strip(), size_of(k.dtype));
  const size_t sums = size_t(tiling.block.threads() / 32 * k.taps() * (16 / k.strip()));
  backend.launch(find(backend, k), {unsigned(pairs * splits), 1, 1},
                 {unsigned(tiling.block.threads()), 1, 1}, std::max(shared_bytes(k, tiling), sums),
                 stream, a);
  std::optional<prim::ScratchView> sum;
  if (c.w.dtype != wide) sum.emplace(backend, wide, c.w.sizes);
  const View& to = sum ? sum->view() : c.w;
  backend.reduce({.monoid = prim::Monoid::sum,
                  .space = sizes,
                  .reduced = 1,
                  .inputs = {&parts.view(), 1},
                  .out = prim::LayoutView(to, unsqueeze(prim::layout_of(to), 0)),
                  .params = {},
                  .epilogue_params = {}});
  if (sum) backend.copy({.out = c.w, .in = *sum});
  return true;
}

}  // namespace

bool direct_conv(CudaBackend& backend, const ConvArgs& c) {
  const bool is_gradient = c.pass == Pass::dgrad, is_forward = c.pass == Pass::forward;
  if (c.window.spatial > 2 || !is_supported(c.x.dtype)) return false;
  // The gradient of the input is the convolution of that of the output, zeros between whose
  // elements make up for strides, with the mirrored kernel, the channels of which change places.
  const Planes out(is_gradient ? c.x : c.y), w(c.w);
  Planes in(is_gradient ? c.y : c.x);
  const int64_t channels_in = in.size[1] / c.groups, channels_out = out.size[1] / c.groups;
  if (!has_few_channels(c, channels_in, channels_out, out.numel(), w.size[2] * w.size[3]) ||
      out.numel() < kFewestResults || in.numel() == 0 || w.numel() == 0)
    return false;
  if (in.stride[3] != 1 || out.stride[3] != 1) return false;

  DirectConvKernel k;
  k.dtype = c.x.dtype;
  if (c.pass == Pass::wgrad) return weight_gradient(backend, c, k, in, out, w);
  k.in = channels_in <= kMostChannels ? int(channels_in) : 0, k.out = int(channels_out);
  for (size_t d = 0; is_gradient && d < size_t(c.window.spatial); ++d) {
    const int64_t stride = c.window.stride[d];
    // Most products are with zeros then.
    if (stride > 1 && std::max(channels_in, channels_out) > kMostChannels) return false;
    int64_t& size = in.size[4 - size_t(c.window.spatial) + d];
    size = (size - 1) * stride + 1;
  }
  int64_t padding[2] = {0, 0};
  if (!set_window(k, c, in, out, w, padding)) return false;
  const int64_t planes = in.size[0] * c.groups;
  const Tiling tiling = choose_tiling(k, out, planes, 1, backend.limits().multiprocessors);
  if (planes > kLargestExtent || tiling.blocks > std::numeric_limits<int32_t>::max()) return false;

  DirectConvArguments a{};
  set_tiles(a, k, tiling, in, out, padding);
  a.out = out.data;
  a.out_sample = out.stride[0], a.out_channel = out.stride[1], a.out_row = out.stride[2];
  a.w_out = w.stride[0], a.w_in = w.stride[1], a.w_row = w.stride[2], a.w_column = w.stride[3];
  int64_t w_group = a.w_out * channels_out, w_start = 0;
  if (is_gradient) {
    w_group = a.w_out * channels_in;
    std::swap(a.w_out, a.w_in);
    w_start = (k.kernel_y - 1) * a.w_row + (k.kernel_x - 1) * a.w_column;
    a.w_row = -a.w_row, a.w_column = -a.w_column;
  }
  a.w_group = w_group;
  a.w = w.data + w_start * int64_t(size_of(k.dtype));
  if (is_forward && c.bias) a.bias = c.bias.data, a.bias_stride = c.bias.strides[0];
  a.groups = uint32_t(c.groups), a.planes = uint32_t(planes);
  a.channels = int32_t(channels_in);
  a.vector_store = out.has_vectors(k.strip(), size_of(k.dtype));

  const CUstream stream = backend.enter(c);
  backend.launch(find(backend, k), {unsigned(tiling.blocks), 1, 1},
                 {unsigned(tiling.block.threads()), 1, 1}, shared_bytes(k, tiling), stream, a);
  return true;
}

}  // namespace arete::cuda
