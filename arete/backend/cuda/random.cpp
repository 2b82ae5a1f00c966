// Random numbers, the same as on the CPU: Note [Random numbers] in prim/philox.h.
#include "arete/prim/philox.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "arete/backend/cuda/codegen/random.h"
#include "arete/backend/cuda/kernel_memo.h"
#include "arete/base/error.h"
#include "arete/base/small_vector.h"
#include "arete/prim/backend.h"
#include "arete/prim/slots.h"

namespace arete::cuda {

using prim::View;
using Distribution = prim::RandomArgs::Distribution;

namespace {

// Mirrors device/random.cuh.
struct RandomKernelArgs {
  std::byte* out;
  uint32_t elements_in_last, whole, groups, low, high, keys[20], last, never;
  uint64_t start, range;
  float f[4];
  double d[4];
  const uint64_t* state;
};

const Kernel& random_kernel(CudaBackend& backend, RandomKind kind, DType dtype, bool moved) {
  static KernelTable<2 * kNumRandomKinds * kNumDTypes> kernels;
  const size_t number = (size_t(kind) * 2 + moved) * kNumDTypes + size_t(dtype);
  return kernels.get(backend, number, [&] { return random_source(kind, dtype, moved); });
}

const Kernel& program_kernel(CudaBackend& backend, RandomKind kind, const expr::Program& program,
                             bool moved) {
  static thread_local KernelMemo memo;
  struct Key {
    Hash128 program;
    uint32_t device;
    uint16_t kind, moved;
  } const key{program.hash(), uint32_t(backend.context().ordinal()), uint16_t(kind), moved};
  return memo.get(backend, hash_bytes(&key, sizeof key),
                  [&] { return random_source(kind, program, moved); });
}

// Programs read what lies as the numbers are counted.
bool is_in_order(const prim::RandomArgs& args) {
  const auto fits = [&](const View& v) {
    return v.is_contiguous() && std::ranges::equal(v.sizes, args.out.sizes);
  };
  return fits(args.out) && std::ranges::all_of(args.inputs, fits) && args.program->tables() == 0;
}

RandomKind kind_of(const prim::RandomArgs& args) {
  switch (args.distribution) {
    case Distribution::uniform:
      return RandomKind::uniform;
    case Distribution::normal: {
      // z b + a rounds the same fused and in two steps if the product is exact, or if the sum is.
      const float mean = float(args.a), deviation = float(args.b);
      int exponent = 0;
      const bool power_of_two = std::fabs(std::frexp(deviation, &exponent)) == 0.5f;
      const bool in_range = std::fabs(deviation) > 1e-20f && std::fabs(deviation) < 1e20f;
      const bool fused = in_range && (power_of_two || (mean == 0 && !std::signbit(mean)));
      return fused && prim::random_dtype(args) != kFloat64 ? RandomKind::fused_normal
                                                           : RandomKind::normal;
    }
    case Distribution::integers:
      return prim::random_elements_per_block(args) == 2 ? RandomKind::wide_integers
                                                        : RandomKind::integers;
    case Distribution::bernoulli:
      break;
  }
  return RandomKind::bernoulli;
}

// The numbers that shape the distribution.
RandomKernelArgs distribution_args(const prim::RandomArgs& args) {
  RandomKernelArgs k{};
  philox_keys(args.seed, k.keys);
  switch (args.distribution) {
    case Distribution::uniform: {
      const prim::UniformLimits l = prim::uniform_limits(prim::random_dtype(args), args.a, args.b);
      const double d[] = {args.a, args.b - args.a, l.low, l.high};
      std::copy_n(d, 4, k.d);
      break;
    }
    case Distribution::normal:
      if (!is_floating(prim::random_dtype(args)))
        throw TypeError("random", "uniform and normal random numbers need a floating dtype")
            .got(name_of(args.out.dtype));
      k.d[0] = args.a;
      k.d[1] = args.b;
      break;
    case Distribution::integers:
      ARETE_ASSERT(args.ia < args.ib);
      k.start = uint64_t(args.ia);
      k.range = uint64_t(args.ib) - uint64_t(args.ia);
      break;
    case Distribution::bernoulli: {
      // L 2^-32 < p  <=>  L < ceil(p 2^32); NaN and negative p give 0.
      const double bound = std::ceil(args.a * 0x1p32);
      k.never = !(bound >= 1);
      k.last = bound >= 0x1p32 ? ~0u : k.never ? 0 : uint32_t(uint64_t(bound) - 1);
      break;
    }
  }
  for (int i = 0; i < 4; ++i) k.f[i] = float(k.d[i]);
  return k;
}

}  // namespace

void CudaBackend::random(const prim::RandomArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return random(prim::Addressed(args).args());
  }
  const View& out = args.out;
  const int64_t n = out.numel();
  RandomKernelArgs k = distribution_args(args);
  if (n == 0) return;
  if (args.program && !is_in_order(args)) return prim::random_in_two(*this, args);
  if (!out.is_contiguous()) {
    // Positions count in row-major order, whatever the strides.
    const prim::ScratchView dense(*this, out.dtype, out.sizes);
    prim::RandomArgs to_dense = args;
    to_dense.out = dense;
    random(to_dense);
    return copy({out, dense});
  }
  const CUstream stream = enter(args);
  const int64_t per = prim::random_elements_per_block(args), size = int64_t(size_of(out.dtype));
  k.state = random_state(args, stream);
  const RandomKind kind = kind_of(args);
  const bool moved = k.state != nullptr;
  const Kernel& kernel = args.program ? program_kernel(*this, kind, *args.program, moved)
                                      : random_kernel(*this, kind, out.dtype, moved);
  const int64_t group = args.program ? 1 : random_group(out.dtype, int(per));
  const int64_t group_elements = group * per;

  // The kernel's argument, and those of a program behind it.
  constexpr size_t kWords = sizeof(RandomKernelArgs) / sizeof(uint64_t);
  static_assert(sizeof(RandomKernelArgs) % sizeof(uint64_t) == 0);
  SmallVector<uint64_t, kWords + 8> words(kWords, 0);
  for (const View& v : args.inputs) words.push_back(uint64_t(reinterpret_cast<uintptr_t>(v.data)));
  for (const expr::Literal& p : args.params) words.push_back(uint64_t(p.i));
  void* arguments[] = {words.data(), nullptr};
  const auto is_aligned = [&](uintptr_t address, int64_t element) {
    return address % uintptr_t(std::min<int64_t>(16, group_elements * element)) == 0;
  };

  // Within one launch the high half of the block's number is one value for all threads.
  constexpr int64_t kMaxBlocks = int64_t(1) << 30;
  const int64_t blocks = (n + per - 1) / per;
  for (int64_t done = 0; done < blocks;) {
    const uint64_t first = args.offset + uint64_t(done);
    const int64_t until_carry = int64_t((uint64_t(1) << 32) - uint32_t(first));
    const int64_t here = std::min({blocks - done, until_carry, kMaxBlocks});
    const int64_t elements = std::min(n - done * per, here * per);
    k.out = out.data + done * per * size;
    bool aligned = is_aligned(reinterpret_cast<uintptr_t>(k.out), size);
    for (size_t i = 0; i < args.inputs.size(); ++i)
      aligned = aligned && is_aligned(words[kWords + i], int64_t(size_of(args.inputs[i].dtype)));
    k.low = uint32_t(first);
    k.high = uint32_t(first >> 32);
    const int64_t groups = (elements + group_elements - 1) / group_elements;
    k.groups = uint32_t(groups);
    k.whole = aligned ? uint32_t(elements / group_elements) : 0;
    k.elements_in_last = uint32_t(elements - (groups - 1) * group_elements);
    // A few rounds for each thread: they share the schedule of the keys.
    const int64_t most = int64_t(limits().multiprocessors) * 64;
    const int64_t grid = std::clamp<int64_t>((groups + 255) / 256, 1, most);
    std::memcpy(words.data(), &k, sizeof k);
    launch_raw(context(), kernel, Dim3{unsigned(grid)}, Dim3{256}, 0, stream, arguments);
    done += here;
    for (size_t i = 0; i < args.inputs.size(); ++i)
      words[kWords + i] += uint64_t(here * per) * size_of(args.inputs[i].dtype);
  }
}

}  // namespace arete::cuda
