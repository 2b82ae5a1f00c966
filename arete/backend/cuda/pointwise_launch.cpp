#include "arete/backend/cuda/pointwise_launch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "arete/backend/cuda/index_common.h"
#include "arete/base/error.h"
#include "arete/base/small_vector.h"

namespace arete::cuda {

using prim::LoopNest;
using Kind = PointwiseShape::Kind;

PointwiseKernels::~PointwiseKernels() {
  for (const Variant* v = variants_.load(std::memory_order_acquire); v;) {
    const Variant* next = v->next;
    delete v;
    v = next;
  }
}

const PointwiseKernels::Variant& PointwiseKernels::find(CudaBackend& backend,
                                                        PointwiseShape shape) {
  const uint64_t key = uint64_t(shape.uniform) << 32 | uint64_t(backend.context().ordinal()) << 16 |
                       uint64_t(shape.long_table) << 15 | uint64_t(shape.paired) << 14 |
                       uint64_t(shape.rank) << 8 | uint64_t(shape.vector) << 3 |
                       uint64_t(shape.kind);
  const Variant* head = variants_.load(std::memory_order_acquire);
  for (const Variant* v = head; v; v = v->next)
    if (v->key == key) return *v;
  shape.unroll = unroll_for(code_, shape);
  // Two threads may both get here; the second entry is then never found, and harmless.
  auto* made =
      new Variant{key, &backend.kernel(pointwise_source(code_, shape)), shape.unroll, head};
  while (!variants_.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  return *made;
}

unsigned pointwise_block(const DeviceLimits& limits, int64_t vectors, int unroll) {
  unsigned threads = kPointwiseThreads;
  while (threads > 64 && vectors < int64_t(threads) * unroll * limits.multiprocessors * 2)
    threads /= 2;
  return threads;
}

namespace {

// Arguments of a kernel, in slots of 8 bytes.
using Slots = SmallVector<uint64_t, 64>;

void add_operand(Slots& slots, const std::byte* p) {
  slots.push_back(uint64_t(reinterpret_cast<uintptr_t>(p)));
}
void add_params(Slots& slots, std::span<const expr::Literal> params) {
  for (const expr::Literal& p : params) slots.push_back(uint64_t(p.i));
}

void launch_variant(CudaBackend& backend, const PointwiseKernels::Variant& v, int64_t vectors,
                    Slots& slots, CUstream stream) {
  const unsigned threads = pointwise_block(backend.limits(), vectors, v.unroll);
  const int64_t per_block = int64_t(threads) * v.unroll;
  const int64_t blocks = std::max<int64_t>(1, (vectors + per_block - 1) / per_block);
  void* arguments[] = {slots.data(), nullptr};
  launch_raw(backend.context(), *v.kernel, Dim3{unsigned(blocks)}, Dim3{threads}, 0, stream,
             arguments);
}

// Bits that addresses of vectors of `vector` elements must not have.
uintptr_t alignment_mask(int bytes, int vector) {
  return uintptr_t(std::min(16, bytes * vector) - 1);
}

}  // namespace

void launch_linear(CudaBackend& backend, PointwiseKernels& kernels,
                   std::span<std::byte* const> operands, int64_t n, uint32_t uniform,
                   std::span<const expr::Literal> params, CUstream stream) {
  const ElementCode& code = kernels.code();
  PointwiseShape shape;
  shape.uniform = uniform;
  shape.vector = kernels.vector();
  for (size_t k = 0; k < operands.size(); ++k) {
    if (int(k) >= code.n_outputs && uniform >> (int(k) - code.n_outputs) & 1) continue;
    const uintptr_t address = reinterpret_cast<uintptr_t>(operands[k]);
    while (address & alignment_mask(code.bytes[k], shape.vector)) shape.vector /= 2;
  }
  const PointwiseKernels::Variant& v = kernels.find(backend, shape);
  Slots slots;
  for (const std::byte* p : operands) add_operand(slots, p);
  slots.push_back(uint64_t(n / shape.vector));
  slots.push_back(uint64_t(n));
  add_params(slots, params);
  launch_variant(backend, v, n / shape.vector, slots, stream);
}

bool launch_counts(CudaBackend& backend, const prim::ScatterArgs& args, CUstream stream) {
  const int64_t n = args.src.numel(), size = args.out.sizes[0];
  if (args.out.dtype != kInt64 && args.out.dtype != kInt32) return false;
  if (size == 0 || size > kMostCounted || (n != 1 && args.src.strides[0] != 0)) return false;
  PointwiseKernels& kernels = kernels_of(*args.places);
  const ElementCode& code = kernels.code();
  if (code.operands() > 32) return false;
  PointwiseShape shape;
  shape.kind = Kind::counts;
  shape.vector = 16;
  Slots slots;
  add_operand(slots, nullptr);
  for (size_t k = 0; k < args.inputs.size(); ++k) {
    const prim::View& v = args.inputs[k];
    add_operand(slots, v.data);
    if (args.places->is_table(k)) continue;
    if (v.strides[0] == 0 && n > 1) {
      shape.uniform |= uint32_t(1) << k;
      continue;
    }
    if (v.strides[0] != 1 && n > 1) return false;
    const int bytes = code.bytes[k + 1];
    shape.vector = std::min(shape.vector, 16 / bytes);
    while (reinterpret_cast<uintptr_t>(v.data) & alignment_mask(bytes, shape.vector))
      shape.vector /= 2;
  }
  if (code.heavy) shape.vector = 1;
  const PointwiseKernels::Variant& v = kernels.find(backend, shape);
  const int64_t vectors = n / shape.vector, per_block = int64_t(kCountThreads) * v.unroll;
  const int64_t blocks = std::clamp<int64_t>((vectors + per_block - 1) / per_block, 1,
                                             2 * int64_t(backend.limits().multiprocessors));
  slots.push_back(uint64_t(vectors));
  slots.push_back(uint64_t(n));
  add_params(slots, args.params);
  const CountTarget target{address_of(args.out.data), address_of(args.src.data), size,
                           args.out.strides[0] * int64_t(size_of(args.out.dtype)),
                           args.out.dtype == kInt64};
  const size_t head = slots.size();
  slots.resize(head + sizeof target / sizeof(uint64_t));
  std::memcpy(slots.data() + head, &target, sizeof target);
  void* arguments[] = {slots.data(), nullptr};
  launch_raw(backend.context(), *v.kernel, Dim3{unsigned(blocks)}, Dim3{unsigned(kCountThreads)}, 0,
             stream, arguments);
  return true;
}

bool launch_taps(CudaBackend& backend, const prim::ScatterArgs& args, CUstream stream) {
  if (args.context.deterministic || args.places->tables() != 0) return false;
  PointwiseKernels& kernels = kernels_of(*args.places);
  const ElementCode& code = kernels.code();
  const int64_t taps = code.n_outputs / 2;
  indexing::TapTarget t{};
  t.src = address_of(args.src.data);
  t.out = address_of(args.out.data);
  t.images = args.src.sizes[0], t.channels = args.src.sizes[1], t.points = args.src.sizes[2];
  t.plane = args.out.sizes[2];
  const int64_t points = t.images * t.points;
  if (points == 0 || t.channels == 0 || t.plane == 0) return true;

  const int64_t processors = backend.limits().multiprocessors;
  const auto share_of = [&](int64_t parts) { return (t.channels + parts - 1) / parts; };
  const auto parts_of = [&](int64_t share) { return (t.channels + share - 1) / share; };
  // Blocks that have a plane each pay where several of them fit, there is one for every
  // multiprocessor, and elements mostly have taps. Channels go to several blocks, of eight or more,
  // if there would be too few. Where there are more than enough, images of few points share one:
  // most of the time of a block is that of its steps, however few threads have work in them.
  const int64_t list_parts = std::clamp<int64_t>(2 * processors / t.images, 1, parts_of(8));
  t.group = std::clamp<int64_t>(t.images / (16 * processors), 1,
                                std::max<int64_t>(indexing::kTapListPoints / t.points, 1));
  const int64_t listed = t.group * t.points;
  const int64_t bytes = indexing::tap_lists_bytes(t.group * t.plane, listed * taps, args.out.dtype);
  PointwiseShape shape;
  Dim3 grid, block;
  size_t shared = 0;
  if (points <= INT32_MAX)
    t.of_points = indexing::make_divisor(t.points);
  else
    t.of_points.value = 0;
  if (bytes <= backend.limits().shared_per_block &&
      2 * (bytes + 1024) <= backend.limits().shared_per_multiprocessor &&
      t.plane <= 4 * t.points * taps && points <= INT32_MAX &&
      t.channels <= INT32_MAX / (t.group * std::max(t.plane, t.points)) &&
      t.images * list_parts >= processors) {
    shape.kind = Kind::tap_lists;
    t.share = share_of(list_parts);
    t.of_plane = indexing::make_divisor(t.plane);
    t.of_channels = indexing::make_divisor(t.channels);
    const int64_t rounds = (listed + indexing::kTapListThreads - 1) / indexing::kTapListThreads,
                  each = (listed + rounds - 1) / rounds;
    grid = {blocks_for(t.images, t.group), unsigned(parts_of(t.share))};
    block = {unsigned(std::max<int64_t>(64, (each + 31) / 32 * 32))};
    shared = size_t(bytes);
  } else {
    shape.kind = Kind::taps;
    // Threads have all channels of a point, unless that leaves a GPU waiting for them.
    const int64_t wanted = 2 * processors * backend.limits().threads_per_multiprocessor / points;
    t.share = std::max(share_of(std::clamp<int64_t>(wanted, 1, parts_of(4))), share_of(65535));
    grid = {blocks_for(points, indexing::kTapThreads), unsigned(parts_of(t.share))};
    block = {unsigned(indexing::kTapThreads)};
  }
  Slots slots;
  for (int k = 0; k < code.n_outputs; ++k) add_operand(slots, nullptr);
  for (const prim::View& v : args.inputs) add_operand(slots, v.data);
  add_params(slots, args.params);
  for (size_t k = 0; k < args.inputs.size(); ++k)
    for (const int64_t stride : args.inputs[k].strides)
      slots.push_back(uint64_t(stride * code.bytes[size_t(code.n_outputs) + k]));
  const size_t head = slots.size();
  slots.resize(head + sizeof t / sizeof(uint64_t));
  std::memcpy(slots.data() + head, &t, sizeof t);
  void* arguments[] = {slots.data(), nullptr};
  launch_raw(backend.context(), *kernels.find(backend, shape).kernel, grid, block, shared, stream,
             arguments);
  return true;
}

namespace {

// Whether the elements of two outputs take turns in memory along dimension 0.
bool are_paired(const ElementCode& code, const LoopNest& nest) {
  if (code.n_outputs != 2 || code.storage[0] != code.storage[1]) return false;
  const LoopNest::Operand &first = nest.operands[0], &second = nest.operands[1];
  uintptr_t bits = reinterpret_cast<uintptr_t>(first.data);
  for (int d = 0; d < nest.rank; ++d) {
    if (first.strides[size_t(d)] != second.strides[size_t(d)]) return false;
    bits |= uintptr_t(first.strides[size_t(d)]);
  }
  return second.data == first.data + code.bytes[0] && first.strides[0] == 2 * code.bytes[0] &&
         (bits & alignment_mask(code.bytes[0], 2)) == 0;
}

// The widest vectors of which dimension 0 consists for every operand.
int nest_vector(const PointwiseKernels& kernels, const LoopNest& nest, bool paired,
                uint32_t& uniform) {
  const ElementCode& code = kernels.code();
  int vector = kernels.vector();
  uniform = 0;
  for (size_t k = 0; k < nest.operands.size(); ++k) {
    const LoopNest::Operand& o = nest.operands[k];
    if (o.strides[0] == 0 && int(k) >= code.n_outputs) {
      uniform |= uint32_t(1) << (int(k) - code.n_outputs);
      continue;
    }
    if (paired && k == 1) continue;  // lies behind the first
    const int bytes = code.bytes[k] * (paired && k == 0 ? 2 : 1);
    if (o.strides[0] != bytes) vector = 1;
    uintptr_t bits = reinterpret_cast<uintptr_t>(o.data);
    for (int d = 1; d < nest.rank; ++d) bits |= uintptr_t(o.strides[size_t(d)]);
    while (vector > 1 && bits & alignment_mask(bytes, vector)) vector /= 2;
  }
  while (nest.sizes[0] % vector != 0) vector /= 2;
  // Single elements may have any stride: no kernel of their own for a stride of 0.
  if (vector == 1) uniform = 0;
  return vector;
}

// Where an operand is contiguous along another dimension than the first, neighbouring threads read
// far apart, and the rest of what they fetched is used by later blocks only. This splits the two
// dimensions into tiles, so that one block's elements lie close together in every operand.
void tile_order(LoopNest& nest) {
  constexpr int64_t kFar = 64;  // bytes
  if (nest.rank < 2 || nest.rank + 2 > kMaxRank) return;
  int other = 0;
  for (const LoopNest::Operand& o : nest.operands) {
    if (std::abs(o.strides[0]) < kFar) continue;
    for (int d = 1; d < nest.rank && other == 0; ++d)
      if (o.strides[size_t(d)] != 0 && std::abs(o.strides[size_t(d)]) < kFar) other = d;
  }
  if (other == 0) return;
  const auto tile_of = [](int64_t size) {
    for (int64_t tile : {32, 16, 8})
      if (size % tile == 0) return tile;
    return int64_t(1);
  };
  const int64_t a = tile_of(nest.sizes[0]), b = tile_of(nest.sizes[size_t(other)]);
  if (a == 1 || b == 1) return;
  LoopNest tiled = nest;
  int rank = 0;
  const auto add = [&](int d, int64_t size, int64_t step) {
    if (size == 1) return;
    tiled.sizes[size_t(rank)] = size;
    for (size_t k = 0; k < nest.operands.size(); ++k)
      tiled.operands[k].strides[size_t(rank)] = nest.operands[k].strides[size_t(d)] * step;
    ++rank;
  };
  add(0, a, 1);
  add(other, b, 1);
  add(0, nest.sizes[0] / a, a);
  for (int d = 1; d < nest.rank; ++d) {
    const int64_t step = d == other ? b : 1;
    add(d, nest.sizes[size_t(d)] / step, step);
  }
  tiled.rank = rank;
  nest = tiled;
}

void launch_strided(CudaBackend& backend, PointwiseKernels& kernels, LoopNest nest,
                    std::span<const expr::Literal> params, CUstream stream) {
  PointwiseShape shape;
  shape.kind = Kind::strided;
  shape.paired = are_paired(kernels.code(), nest);
  shape.vector = nest_vector(kernels, nest, shape.paired, shape.uniform);
  if (shape.vector == 1) {
    tile_order(nest);  // keeps the pairs
  } else {
    nest.sizes[0] /= shape.vector;
    for (LoopNest::Operand& o : nest.operands) o.strides[0] *= shape.vector;
  }
  shape.rank = nest.rank;
  const PointwiseKernels::Variant& v = kernels.find(backend, shape);

  const size_t rank = size_t(nest.rank);
  Slots slots;
  for (const LoopNest::Operand& o : nest.operands) add_operand(slots, o.data);
  add_params(slots, params);
  SmallVector<uint32_t, 64> words;
  const int64_t total = nest.numel();
  words.push_back(uint32_t(total));
  for (size_t d = 0; d < rank; ++d) words.push_back(uint32_t(nest.sizes[d]));
  for (size_t d = 0; d < rank; ++d) words.push_back(fast_divisor(uint32_t(nest.sizes[d])).magic);
  for (size_t d = 0; d < rank; ++d) words.push_back(fast_divisor(uint32_t(nest.sizes[d])).shift);
  for (const LoopNest::Operand& o : nest.operands)
    for (size_t d = 0; d < rank; ++d) words.push_back(uint32_t(int32_t(o.strides[d])));
  const size_t head = slots.size();
  slots.resize(head + (words.size() + 1) / 2);
  std::memcpy(slots.data() + head, words.data(), words.size() * sizeof(uint32_t));
  launch_variant(backend, v, total, slots, stream);
}

// Halves a nest until each part's offsets have 32 bits: the kernels' index arithmetic stays cheap,
// and spaces that large pay for more launches.
void launch_parts(CudaBackend& backend, PointwiseKernels& kernels, const LoopNest& nest,
                  std::span<const expr::Literal> params, CUstream stream) {
  if (nest.fits_32bit()) return launch_strided(backend, kernels, nest, params, stream);
  int longest = 0;
  int64_t most = -1;
  for (int d = 0; d < nest.rank; ++d)
    for (const LoopNest::Operand& o : nest.operands) {
      const int64_t reach = (nest.sizes[size_t(d)] - 1) * std::abs(o.strides[size_t(d)]);
      if (reach > most) most = reach, longest = d;
    }
  LoopNest low = nest, high = nest;
  const size_t d = size_t(longest);
  int64_t half = nest.sizes[d] / 2;
  if (half >= 32) half = half / 16 * 16;  // whole vectors
  low.sizes[d] = half;
  high.sizes[d] = nest.sizes[d] - half;
  for (LoopNest::Operand& o : high.operands) o.data += half * o.strides[d];
  launch_parts(backend, kernels, low, params, stream);
  launch_parts(backend, kernels, high, params, stream);
}

}  // namespace

void launch_nest(CudaBackend& backend, PointwiseKernels& kernels, const LoopNest& nest,
                 std::span<const expr::Literal> params, CUstream stream) {
  const ElementCode& code = kernels.code();
  if (nest.numel() == 0) return;
  if (nest.is_linear()) {
    uint32_t uniform = 0;
    SmallVector<std::byte*, LoopNest::kMaxOperands> operands;
    for (size_t k = 0; k < nest.operands.size(); ++k) {
      operands.push_back(nest.operands[k].data);
      if (nest.operands[k].strides[0] != 0) continue;
      ARETE_ASSERT(int(k) >= code.n_outputs);
      uniform |= uint32_t(1) << (int(k) - code.n_outputs);
    }
    return launch_linear(backend, kernels, operands, nest.sizes[0], uniform, params, stream);
  }
  launch_parts(backend, kernels, nest, params, stream);
}

}  // namespace arete::cuda
