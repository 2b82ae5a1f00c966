// Pooling: the choice of a kernel. See device/pool.cuh.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "arete/backend/cuda/codegen/pointwise.h"
#include "arete/backend/cuda/codegen/pool.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/backend/cuda/index_common.h"
#include "arete/base/error.h"
#include "arete/prim/checks.h"

namespace arete::cuda {

using prim::PoolArgs;
using prim::View;

namespace {

// n, c, d, h, w: leading spatial dimensions that a tensor has not are 1 long.
struct Space {
  std::array<int64_t, 5> size{1, 1, 1, 1, 1}, stride{};

  explicit Space(const View& v) {
    if (v.sizes.empty()) return;  // absent; an empty tensor has no data either
    const size_t rank = v.sizes.size();
    for (size_t d = 0; d < rank; ++d) {
      const size_t to = d < 2 ? d : d + 5 - rank;
      size[to] = v.sizes[d];
      stride[to] = v.sizes[d] == 1 ? 0 : v.strides[d];
    }
  }
  int64_t numel() const { return size[0] * size[1] * size[2] * size[3] * size[4]; }
  // Farther than any element is from the first one.
  int64_t reach() const {
    int64_t r = 1;
    for (size_t d = 0; d < 5; ++d) r += (size[d] - 1) * std::abs(stride[d]);
    return r;
  }
  // The shortest way from one position in the plane to another one.
  int64_t spatial_step() const {
    int64_t step = INT64_MAX;
    for (size_t d = 2; d < 5; ++d)
      if (size[d] != 1) step = std::min(step, std::abs(stride[d]));
    return step;
  }
  // Vectors of `n` elements along `dim` can be read and written at once.
  bool has_vectors(const void* data, int64_t n, size_t element_size, size_t dim = 1) const {
    if (size[dim] % n != 0 || stride[dim] != 1) return false;
    for (size_t d = 0; d < 5; ++d)
      if (d != dim && stride[d] % n != 0) return false;
    const uint64_t bytes = std::min<uint64_t>(uint64_t(n) * element_size, 16);
    return reinterpret_cast<uintptr_t>(data) % bytes == 0;
  }
};

// What the sums of all windows are divided by, if that is one number, else 0.
int64_t divisor_of_all(const PoolArguments& k) {
  int64_t product = 1;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t beside = k.count_include_pad ? k.padding[d] : 0,
                  begin = (k.y_size[d] - 1) * k.stride[d] - k.padding[d];  // of the last window
    if (k.padding[d] > beside || begin + k.kernel[d] > k.x_size[d] + beside) return 0;
    product *= k.kernel[d];
  }
  return product;
}

// How many threads share a window. A thread for each window reads best what windows that lie close
// together share. A team spends some 350 instructions on a window, whatever its size: that pays
// where few threads would go through many elements, and for long rows side by side, of which
// threads are to read neighbours.
int team_of(const PoolArguments& k, const PoolArgs& p, const PoolKernel& kernel, int64_t outputs) {
  int64_t window[3];  // the largest
  double all = 1;     // its elements; as many as strides of 0 make of it
  for (size_t d = 0; d < 3; ++d) {
    const int64_t n = k.x_size[d], m = k.y_size[d];
    window[d] = p.placement != PoolArgs::Placement::adaptive ? std::min(n, k.kernel[d])
                : n % m == 0                                 ? n / m
                                                             : std::min(n, n / m + 2);
    all *= double(window[d]);
  }
  const bool apart = p.placement != PoolArgs::Placement::strided || k.stride[2] >= k.kernel[2];
  const bool few = all >= kPoolWarp && double(outputs) / 256 <= all;
  const bool rows = apart && !kernel.channels_last && window[2] >= kPoolWarp && all >= kPoolThreads;
  if (!few && !rows) return 1;
  constexpr int64_t kFull = 1 << 17;  // threads that a GPU has at once
  // Where rows are shorter than a warp, teams of few read them as well, and several windows share
  // what a warp spends.
  if (few && window[2] < kPoolWarp && outputs * kPoolFew >= kFull) return kPoolFew;
  const bool fills = outputs * kPoolWarp >= kFull;
  return fills || kernel.channels_last || all < 2 * kPoolThreads ? kPoolWarp : kPoolThreads;
}

}  // namespace

void CudaBackend::pool(const PoolArgs& p) {
  prim::check(p);
  const DType dtype = p.x.dtype;
  const bool max = p.kind == PoolArgs::Kind::max;
  if (dtype == kBool || is_complex(dtype) || (!max && !is_floating(dtype)) ||
      prim::is_dilated_average(p))
    return Primitives::pool(p);
  const CUstream stream = enter(p);
  const View indices = max ? p.indices : View{};
  const Space x(p.x), y(p.y), index(indices);
  const Space& computed = p.backward ? x : y;
  if (computed.numel() == 0) return;

  PoolArguments k{};
  k.x = p.x.data, k.y = p.y.data, k.indices = indices.as<int64_t>();
  k.divisor = p.divisor;
  k.count_include_pad = p.count_include_pad;
  int64_t reach = std::max({x.reach(), y.reach(), index.reach(), computed.numel()});
  for (size_t d = 0; d < 3; ++d) {
    k.kernel[d] = k.stride[d] = k.dilation[d] = 1;
    k.padding[d] = 0;
    const size_t missing = 3 - size_t(p.window.spatial);
    if (d >= missing) {
      k.kernel[d] = p.window.kernel[d - missing], k.stride[d] = p.window.stride[d - missing];
      k.padding[d] = p.window.padding[d - missing];
      k.dilation[d] = p.window.dilation[d - missing];
    }
    k.x_size[d] = x.size[2 + d], k.y_size[d] = y.size[2 + d];
    // Positions on and beyond the input.
    const int64_t span = k.kernel[d] * k.dilation[d] + k.stride[d] + k.padding[d];
    reach = std::max({reach, k.y_size[d] * k.stride[d] + span, k.x_size[d] + span});
  }
  if (k.divisor == 0 && !max && p.placement == PoolArgs::Placement::strided)
    k.divisor = divisor_of_all(k);
  // Positions in a plane and windows are counted too, where strides of 0 make them many.
  const double plane = double(x.size[2]) * double(x.size[3]) * double(x.size[4]);
  const double window = double(k.kernel[0]) * double(k.kernel[1]) * double(k.kernel[2]);
  PoolKernel kernel{dtype, max, p.backward};
  kernel.placement = int(p.placement);
  const bool adaptive = p.placement == PoolArgs::Placement::adaptive;
  for (size_t d = 0; adaptive && d < 3; ++d)
    reach = std::max(reach, (k.x_size[d] + 8) * (k.y_size[d] + 2));
  if (p.samples) {
    k.samples = p.samples.data;
    k.samples_f64 = p.samples.dtype == kFloat64;
    for (size_t d = 0; d < 2; ++d) k.sample_stride[d] = p.samples.strides[d];
    for (size_t d = 5 - size_t(p.window.spatial), i = 0; d < 5; ++d, ++i)
      k.sample_stride[d] = int64_t(i) * p.samples.strides[2];
  }
  for (size_t d = 0; p.placement == PoolArgs::Placement::random && d < 3; ++d) {
    const int64_t last = k.x_size[d] - k.kernel[d], m = k.y_size[d];
    if (p.backward)
      k.random_step[d] = last > 0 ? double(m - 1) / double(last) : 0;
    else if (m > 1)
      k.random_step[d] = k.samples_f64 ? double(last) / double(m - 1) : float(last) / float(m - 1);
    // Three roundings, each of at most 2^-24 of the place.
    k.random_slack = std::max(k.random_slack, 0x1p-7 + 0x1p-21 * double(k.x_size[d]));
  }

  kernel.wide = std::max({double(reach), plane, window}) > INT32_MAX - kPoolThreads;
  kernel.channels_last = x.size[1] > 1 && std::abs(x.stride[1]) < x.spatial_step();
  const int64_t vector = pool_vector(dtype);
  kernel.vector =
      kernel.channels_last && !kernel.wide && p.placement != PoolArgs::Placement::random &&
      x.has_vectors(k.x, vector, size_of(dtype)) && y.has_vectors(k.y, vector, size_of(dtype)) &&
      (k.indices == nullptr || index.has_vectors(k.indices, vector, 8));
  const int64_t run = size_of(dtype) < 8 ? 4 : 2;
  if (!p.backward)
    kernel.team = team_of(k, p, kernel, computed.numel() / (kernel.vector ? vector : 1));
  else if (!kernel.channels_last && !kernel.wide && x.stride[4] == 1)
    for (int64_t n = run; n > 1 && kernel.run == 1; n /= 2)
      if (x.size[4] >= n) {
        kernel.run = int(n);
        kernel.aligned = x.has_vectors(k.x, n, size_of(dtype), 4);
      }
  if (!p.backward && !kernel.wide && !adaptive && kernel.team == 1 && k.kernel[1] == k.kernel[2] &&
      (k.kernel[2] == 2 || k.kernel[2] == 3))
    kernel.window = int(k.kernel[2]);

  k.count = 1;
  for (size_t d = 0; d < 5; ++d) {
    const int64_t step = d == 1 && kernel.vector ? vector : d == 4 ? kernel.run : 1;
    k.size[d] = (computed.size[d] + step - 1) / step;
    k.count *= k.size[d];
    const int64_t channels = d == 1 ? step : 1;
    k.x_stride[d] = x.stride[d] * channels, k.y_stride[d] = y.stride[d] * channels;
    k.index_stride[d] = index.stride[d] * channels;
    if (kernel.wide) continue;
    const FastDivisor f = fast_divisor(uint32_t(k.size[d]));
    k.size_magic[d] = f.magic, k.size_shift[d] = f.shift;
    if (d >= 3) continue;
    const FastDivisor g =
        fast_divisor(uint32_t(adaptive ? std::max<int64_t>(k.y_size[d], 1) : k.stride[d]));
    k.stride_magic[d] = g.magic, k.stride_shift[d] = g.shift;
    const FastDivisor h = fast_divisor(uint32_t(std::max<int64_t>(k.x_size[d], 1)));
    k.x_magic[d] = h.magic, k.x_shift[d] = h.shift;
  }
  static KernelTable<PoolKernel::kNumbers> kernels;
  const Kernel& code = kernels.get(*this, kernel.number(), [&] { return pool_source(kernel); });
  launch(code, {blocks_for(k.count, kPoolThreads / kernel.team), 1, 1}, {kPoolThreads, 1, 1}, 0,
         stream, k);
}

}  // namespace arete::cuda
