// Random numbers; the mapping of bits to numbers is Note [Random numbers] in prim/philox.h.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/random_table.h"
#include "arete/backend/cpu/kernels/select_table.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"
#include "arete/prim/philox.h"

namespace arete::cpu {
namespace {

using prim::RandomArgs;
using prim::View;
using Distribution = RandomArgs::Distribution;

constexpr int64_t kChunkBlocks = 256;

const kernels::RandomTable& table() {
  static const kernels::RandomTable& t = ARETE_SELECT_TABLE(random_table);
  return t;
}

// Blocks rounded up to what the kernels take.
int64_t whole_groups(int64_t blocks) {
  return (blocks + kernels::kRandomGroup - 1) / kernels::kRandomGroup * kernels::kRandomGroup;
}

// Makes the elements of each chunk by generate(S* to, block, blocks), straight into `out` where it
// has S's type and is contiguous, else through a buffer and convert(S) to the stored type.
template <class S, class T, class Generate, class Convert>
void fill_chunks(const RandomArgs& a, Generate generate, Convert convert) {
  const int64_t per = prim::random_elements_per_block(a);
  const Walk<1> walk(a.out.sizes, -1, {&a.out});
  const int64_t n = walk.count(), blocks = (n + per - 1) / per;
  const int64_t chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
  parallel_for(0, chunks, grain_for(64 * kChunkBlocks), [&](int64_t begin, int64_t end) {
    alignas(64) S buffer[kChunkBlocks * 4];
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * kChunkBlocks * per, last = std::min(n, first + kChunkBlocks * per);
      const int64_t here = std::min(kChunkBlocks, blocks - c * kChunkBlocks);
      const uint64_t block = a.offset + uint64_t(c * kChunkBlocks);
      if constexpr (std::is_same_v<S, T> &&
                    !std::is_same_v<S, uint32_t>) {  // lanes are no elements
        if (walk.single_run() && walk.stride(0) == int64_t(sizeof(T)) &&
            last - first == kChunkBlocks * per) {
          generate(a.out.as<T>() + first, block, here);
          continue;
        }
      }
      generate(buffer, block, whole_groups(here));
      const S* from = buffer;
      for_each_run(walk, first, last, [&](const Walk<1>& w, int64_t run) {
        std::byte* to = a.out.data + w.offset(0);
        for (int64_t i = 0; i < run; ++i)
          *reinterpret_cast<T*>(to + i * w.stride(0)) = convert(*from++);
      });
    }
  });
}

template <class T>
void random_floating(const RandomArgs& a) {
  using S = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const auto convert = [](S v) { return T(v); };
  if (a.distribution == Distribution::uniform) {
    const prim::UniformLimits l = prim::uniform_limits(a.out.dtype, a.a, a.b);
    fill_chunks<S, T>(
        a,
        [&](S* to, uint64_t block, int64_t blocks) {
          if constexpr (std::is_same_v<S, double>)
            table().uniform_f64(to, a.seed, block, blocks, a.a, a.b - a.a, l.low, l.high);
          else
            table().uniform_f32(to, a.seed, block, blocks, S(a.a), S(a.b - a.a), S(l.low),
                                S(l.high));
        },
        convert);
  } else {
    fill_chunks<S, T>(
        a,
        [&](S* to, uint64_t block, int64_t blocks) {
          if constexpr (std::is_same_v<S, double>)
            table().normal_f64(to, a.seed, block, blocks, a.a, a.b);
          else
            table().normal_f32(to, a.seed, block, blocks, S(a.a), S(a.b));
        },
        convert);
  }
}

// Integers and booleans of any kind, as numbers of type T.
template <class T>
T from_integer(int64_t v) {
  if constexpr (is_reduced_float(dtype_of<T>))
    return T(float(v));
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return T(float(v));
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return T(double(v));
  else
    return T(v);
}

template <class T>
void random_integers(const RandomArgs& a) {
  const uint64_t range = uint64_t(a.ib) - uint64_t(a.ia), start = uint64_t(a.ia);
  const auto lanes = [&](uint32_t* to, uint64_t block, int64_t blocks) {
    table().lanes(to, a.seed, block, blocks);
  };
  if (prim::random_elements_per_block(a) == 4) {
    fill_chunks<uint32_t, T>(a, lanes, [&](uint32_t x) {
      return from_integer<T>(int64_t(start + (uint64_t(x) * range >> 32)));
    });
  } else {
    fill_chunks<int64_t, T>(
        a,
        [&](int64_t* to, uint64_t block, int64_t blocks) {
          table().wide_integers(to, a.seed, block, blocks, start, range);
        },
        [](int64_t v) { return from_integer<T>(v); });
  }
}

// The greatest lane for which a Bernoulli(p) number is 1, if there is one:
// L 2^-32 < p  <=>  L < ceil(p 2^32); NaN and negative p give 0.
std::optional<uint32_t> last_kept(double p) {
  const double bound = std::ceil(p * 0x1p32);
  if (!(bound >= 1)) return std::nullopt;
  return bound >= 0x1p32 ? ~0u : uint32_t(uint64_t(bound) - 1);
}

template <class T>
void random_bernoulli(const RandomArgs& a) {
  const std::optional<uint32_t> last = last_kept(a.a);
  using S = std::conditional_t<std::is_same_v<T, bool>, bool, float>;
  fill_chunks<S, T>(
      a,
      [&](S* to, uint64_t block, int64_t blocks) {
        if (!last)
          std::fill(to, to + blocks * 4, S(0));
        else if constexpr (std::is_same_v<S, bool>)
          table().bernoulli_bool(to, a.seed, block, blocks, *last);
        else
          table().bernoulli_f32(to, a.seed, block, blocks, *last);
      },
      [](S v) {
        if constexpr (std::is_same_v<S, T>)
          return v;
        else
          return from_integer<T>(int64_t(v));
      });
}

}  // namespace

void CpuBackend::random(const RandomArgs& args) {
  if (args.program) return prim::random_in_two(*this, args);
  if (args.state) {
    RandomArgs moved = args;
    moved.state = View{};
    prim::apply_random_state(args.state, moved.seed, moved.offset);
    return random(moved);
  }
  visit_dtype(args.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    switch (args.distribution) {
      case Distribution::uniform:
      case Distribution::normal:
        if constexpr (is_floating(dtype_of<T>)) return random_floating<T>(args);
        throw TypeError("random", "uniform and normal random numbers need a floating dtype")
            .got(name_of(args.out.dtype));
      case Distribution::integers:
        ARETE_ASSERT(args.ia < args.ib);
        return random_integers<T>(args);
      case Distribution::bernoulli:
        return random_bernoulli<T>(args);
    }
  });
}

// Numbers and products in one pass where memory lies side by side, as it mostly does.
void CpuBackend::dropout(const prim::DropoutArgs& args) {
  prim::DropoutArgs a = args;
  const std::optional<uint32_t> last = last_kept(a.keep);
  if (a.in.dtype != kFloat32 || !a.in.is_contiguous() || !a.out.is_contiguous() || !last)
    return Primitives::dropout(args);
  if (a.state) prim::apply_random_state(a.state, a.seed, a.offset);
  constexpr int64_t kChunk = 4 * kChunkBlocks;
  const int64_t n = a.in.numel(), chunks = (n + kChunk - 1) / kChunk;
  const float *const in = a.in.as<float>(), scale = float(a.scale);
  float* const out = a.out.as<float>();
  parallel_for(0, chunks, grain_for(48 * kChunkBlocks), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * kChunk, count = std::min(kChunk, n - first);
      const uint64_t block = a.offset + uint64_t(c * kChunkBlocks);
      if (count == kChunk) {
        table().dropout_f32(out + first, in + first, a.seed, block, kChunkBlocks, *last, scale);
      } else {
        alignas(64) float rest[kChunk] = {};
        std::copy_n(in + first, count, rest);
        table().dropout_f32(rest, rest, a.seed, block, whole_groups((count + 3) / 4), *last, scale);
        std::copy_n(rest, count, out + first);
      }
    }
  });
}

}  // namespace arete::cpu
