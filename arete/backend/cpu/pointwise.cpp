#include <algorithm>
#include <cstring>

#include "arete/backend/cpu/complex_pairs.h"
#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/fetch.h"
#include "arete/backend/cpu/interpreter.h"
#include "arete/backend/cpu/tiling.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/core/complex.h"
#include "arete/prim/checks.h"
#include "arete/prim/loop_nest.h"
#include "arete/prim/slots.h"
#include "arete/prim/tables.h"

namespace arete::cpu {
namespace {

using prim::LoopNest;
using prim::View;

bool same_sizes(const View& a, const View& b) {
  return a.sizes.size() == b.sizes.size() &&
         std::equal(a.sizes.begin(), a.sizes.end(), b.sizes.begin());
}

/// What is known of the code for a call before its layout is.
CodeKey key_of(const prim::PointwiseArgs& args) {
  CodeKey key;
  key.narrow_params = has_narrow_params(*args.program, args.params);
  const size_t n = std::min(args.outputs.size(), size_t(CodeKey::kMaxAliased));
  for (size_t o = 0; o < n; ++o)
    for (size_t i = 0; i < args.inputs.size(); ++i)
      if (args.outputs[o].data == args.inputs[i].data) {
        key.set_alias(int(o), int(i));
        break;
      }
  return key;
}

/// From so many elements on operands are not in the second cache already. Few steps leave the
/// memory no time in which it has nothing to do.
constexpr int64_t kFromAhead = 1 << 17, kFewSteps = 3;

/// Asks for n elements that the next block has. Its first step reads them and its last one writes:
/// without this, each waits for memory while the other does not.
void fetch(const View& v, int64_t at, int64_t n) {
  const int64_t size = int64_t(size_of(v.dtype));
  fetch_lines<2>(v.data + at * size, n * size);
}

/// All operands are one run of elements, or one element.
bool run_linear(const prim::PointwiseArgs& args, int64_t numel) {
  const View& first = args.outputs[0];
  if (!first.is_contiguous()) return false;
  for (size_t o = 1; o < args.outputs.size(); ++o)
    if (!same_sizes(args.outputs[o], first) || !args.outputs[o].is_contiguous()) return false;
  CodeKey key = key_of(args);
  for (size_t i = 0; i < args.inputs.size(); ++i) {
    const View& in = args.inputs[i];
    if (same_sizes(in, first) && in.is_contiguous()) continue;
    if (in.numel() != 1) return false;
    if (numel > 1) key.uniform |= uint32_t(1) << i;
  }
  const Code& code = code_for(*args.program, key);
  const bool ahead = code.body.size() > kFewSteps && numel >= kFromAhead;
  const int64_t blocks = (numel + code.block - 1) / code.block;
  parallel_for(0, blocks, grain_for((2 + code.cost) * double(code.block)),
               [&](int64_t first_block, int64_t last_block) {
                 ArenaScope arena;
                 Frame frame(code, args.params,
                             code.register_bytes ? arena.take(code.register_bytes) : nullptr);
                 for (size_t i = 0; i < args.inputs.size(); ++i)
                   frame.set_input(int(i), args.inputs[i].data);
                 frame.run_once();
                 for (int64_t b = first_block; b < last_block; ++b) {
                   const int64_t at = b * code.block;
                   for (size_t i = 0; i < args.inputs.size(); ++i)
                     if (!((key.uniform >> i) & 1))
                       frame.set_input(int(i), args.inputs[i].data +
                                                   at * int64_t(size_of(args.inputs[i].dtype)));
                   for (size_t o = 0; o < args.outputs.size(); ++o)
                     frame.set_output(int(o), args.outputs[o].data +
                                                  at * int64_t(size_of(args.outputs[o].dtype)));
                   if (!ahead || b + 1 == last_block) {
                     frame.run(std::min(code.block, numel - at));
                     continue;
                   }
                   // A part before each step: all at once are more than can be under way.
                   const int64_t next = at + code.block, here = std::min(code.block, numel - next);
                   const auto steps = int64_t(code.body.size());
                   frame.run(code.block, [&](int64_t step) {
                     const int64_t from = here * step / steps, n = here * (step + 1) / steps - from;
                     for (size_t i = 0; i < args.inputs.size(); ++i)
                       if (!((key.uniform >> i) & 1)) fetch(args.inputs[i], next + from, n);
                     for (const View& out : args.outputs) fetch(out, next + from, n);
                   });
                 }
               });
  return true;
}

void run_nest(const prim::PointwiseArgs& args) {
  SmallVector<View, 8> views;
  views.append(args.outputs.begin(), args.outputs.end());
  views.append(args.inputs.begin(), args.inputs.end());
  const LoopNest nest = LoopNest::plan(args.outputs[0].sizes, views);
  const int n_outputs = int(args.outputs.size());
  CodeKey key = key_of(args);
  // The block's size hardly depends on which inputs turn out to be uniform.
  int64_t block = code_for(*args.program, key).block;
  Extents extents{};
  for (;;) {
    choose_extents(nest, 0, nest.rank, block, extents);
    const Tiling tiling(nest, extents);
    key.uniform = 0;
    SmallVector<int, 8> inputs, outputs;
    for (int o = 0; o < n_outputs; ++o) outputs.push_back(o);
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      inputs.push_back(n_outputs + int(i));
      if (tiling.access[size_t(n_outputs) + i] == Tiling::Access::uniform)
        key.uniform |= uint32_t(1) << i;
    }
    const Code& code = code_for(*args.program, key);
    if (tiling.tile_numel() > code.block) {
      block = code.block;
      continue;
    }
    double cost = code.cost;
    for (Tiling::Access a : tiling.access) cost += a == Tiling::Access::packed ? 4 : 0;
    parallel_for(0, tiling.tiles(), grain_for((2 + cost) * double(tiling.tile_numel())),
                 [&](int64_t first, int64_t last) {
                   ArenaScope arena;
                   TileRunner runner(tiling, code, args.params, inputs, outputs, arena);
                   TileCursor cursor(tiling, first);
                   for (int64_t t = first;;) {
                     runner.run(cursor);
                     if (++t == last) break;
                     cursor.next();
                   }
                 });
    return;
  }
}

void run(const prim::PointwiseArgs& args) {
  const int64_t numel = args.outputs[0].numel();
  if (numel == 0 || run_linear(args, numel) || run_on_pairs(args)) return;
  run_nest(args);
}

}  // namespace

void CpuBackend::pointwise(const prim::PointwiseArgs& args) {
  if (!args.slots.empty()) return pointwise(prim::Addressed(args).args());
  prim::check(args);
  if (args.outputs.empty()) return;
  if (args.program->tables() == 0) return run(args);
  const SmallVector<View, 8> inputs = prim::heads_of_tables(args.inputs, args.program->tables());
  run({args.program, inputs, args.outputs, args.params});
}

void CpuBackend::multi_pointwise(const prim::MultiPointwiseArgs& args) {
  if (!args.slots.empty()) return multi_pointwise(prim::Addressed(args).args());
  const size_t n_in = args.program->inputs().size(), n_out = args.program->outputs().size();
  int64_t total = 0;
  for (int64_t k = 0; k < args.n_tensors; ++k) total += args.outputs[size_t(k) * n_out].numel();
  auto tensor = [&](int64_t k) {
    return prim::PointwiseArgs{args.program, args.inputs.subspan(size_t(k) * n_in, n_in),
                               args.outputs.subspan(size_t(k) * n_out, n_out), args.params};
  };
  // Large tensors are parallel in themselves, small ones among each other.
  const int64_t large = std::max<int64_t>(65536, total / std::max<int64_t>(1, args.n_tensors));
  SmallVector<int64_t, 32> small;
  for (int64_t k = 0; k < args.n_tensors; ++k) {
    if (args.outputs[size_t(k) * n_out].numel() >= large) {
      pointwise(tensor(k));
    } else {
      small.push_back(k);
    }
  }
  const int64_t each = std::max<int64_t>(1, total / std::max<int64_t>(1, args.n_tensors));
  const double cost = code_for(*args.program, CodeKey{}).cost;
  parallel_for(0, int64_t(small.size()), grain_for((2 + cost) * double(each)),
               [&](int64_t first, int64_t last) {
                 for (int64_t k = first; k < last; ++k) pointwise(tensor(small[size_t(k)]));
               });
}

void CpuBackend::fill(const prim::FillArgs& args) {
  const View& out = args.out;
  const int64_t numel = out.numel();
  if (numel == 0) return;
  const size_t size = size_of(out.dtype);
  alignas(16) std::byte pattern[16] = {};
  visit_dtype(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T value;
    if constexpr (std::is_same_v<T, std::complex<float>> ||
                  std::is_same_v<T, std::complex<double>>) {
      using R = typename T::value_type;
      value = T(R(args.value_is_integer ? double(args.value.i) : args.value.f), R(args.imag));
    } else if constexpr (std::is_same_v<T, bool>) {
      value = args.value_is_integer ? args.value.i != 0 : args.value.f != 0;
    } else if constexpr (std::is_integral_v<T>) {
      value = args.value_is_integer ? T(args.value.i) : T(int64_t(args.value.f));
    } else if constexpr (std::is_same_v<T, double>) {
      value = args.value_is_integer ? double(args.value.i) : args.value.f;
    } else {
      value = T(float(args.value_is_integer ? double(args.value.i) : args.value.f));
    }
    std::memcpy(pattern, &value, sizeof(T));
  });
  bool one_byte = true;
  for (size_t k = 1; k < size; ++k) one_byte &= pattern[k] == pattern[0];

  // Dense memory is one run, whatever its dimensions' order.
  const LoopNest nest = LoopNest::plan(out.sizes, {&out, 1});
  if (nest.rank != 1 || (numel > 1 && nest.operands[0].strides[0] != int64_t(size))) {
    const Shape same(out.sizes.size(), 0);
    return copy({out, View(pattern, out.dtype, out.sizes, same)});
  }
  parallel_for(0, numel, grain_for(double(size)), [&](int64_t first, int64_t last) {
    std::byte* const to = nest.operands[0].data + first * int64_t(size);
    if (one_byte)
      std::memset(to, int(pattern[0]), size_t(last - first) * size);
    else
      copy_run(to, int64_t(size), pattern, 0, last - first, size);
  });
}

}  // namespace arete::cpu
