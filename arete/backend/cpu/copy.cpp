#include <algorithm>
#include <cstring>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/interpreter.h"
#include "arete/backend/cpu/tiling.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"
#include "arete/expr/value.h"
#include "arete/prim/complex_parts.h"
#include "arete/prim/loop_nest.h"

namespace arete::cpu {
namespace {

using prim::LoopNest;
using prim::View;

/// Moves elements as they are. (Of a copy within the caches, two bytes take as long as an
/// addition.)
void move_elements(const View& out, const View& in) {
  const int64_t size = int64_t(size_of(out.dtype));
  const auto move_row = [&](int64_t n, std::byte* to, int64_t to_stride, const std::byte* from,
                            int64_t from_stride) {
    parallel_for(0, n, grain_for(double(size) / 2), [&](int64_t first, int64_t last) {
      copy_run(to + first * to_stride, to_stride, from + first * from_stride, from_stride,
               last - first, size_t(size));
    });
  };
  if (out.is_contiguous() && in.is_contiguous() && std::ranges::equal(out.sizes, in.sizes))
    return move_row(out.numel(), out.data, size, in.data, size);
  const View views[] = {out, in};
  const LoopNest nest = LoopNest::plan(out.sizes, views);
  const LoopNest::Operand &to = nest.operands[0], &from = nest.operands[1];
  if (nest.rank == 1)
    return move_row(nest.sizes[0], to.data, to.strides[0], from.data, from.strides[0]);
  Extents extents{};
  choose_extents(nest, 0, nest.rank, kMaxBlock, extents);
  const Tiling tiling(nest, extents);
  parallel_for(0, tiling.tiles(), grain_for(double(size * tiling.tile_numel()) / 2),
               [&](int64_t first, int64_t last) {
                 TileCursor cursor(tiling, first);
                 for (int64_t t = first;;) {
                   cursor.copy(0, 1);
                   if (++t == last) break;
                   cursor.next();
                 }
               });
}

/// Real numbers as the real parts of complex ones, in row-major order.
template <class R>
void widen_to_complex(const View& out, const View& in, DType part) {
  const Code& code = code_for(*expr::conversion(in.dtype, part), CodeKey{});
  const int64_t block = std::min<int64_t>(code.block, 512), n = out.numel();
  parallel_for(
      0, (n + block - 1) / block, grain_for(4 * double(block)), [&](int64_t first, int64_t last) {
        ArenaScope arena;
        Frame frame(code, {}, arena.take(code.register_bytes));
        std::byte* const buffer = arena.take(size_t(block) * sizeof(R));
        std::byte* const zeros = arena.take(size_t(block) * sizeof(R));
        std::memset(zeros, 0, size_t(block) * sizeof(R));
        for (int64_t b = first; b < last; ++b) {
          const int64_t at = b * block, here = std::min(block, n - at);
          std::byte* const from = in.data + at * int64_t(size_of(in.dtype));
          if (in.dtype != part) {
            frame.set_input(0, from);
            frame.set_output(0, buffer);
            frame.run(here);
          }
          const R* x = reinterpret_cast<const R*>(in.dtype == part ? from : buffer);
          kernels::table().interleave[sizeof(R)](out.as<R>() + 2 * at, x, zeros, nullptr, here);
        }
      });
}

}  // namespace

void CpuBackend::copy(const prim::CopyArgs& args) {
  const View &out = args.out, &in = args.in;
  if (out.numel() == 0) return;
  if (out.dtype == in.dtype) return move_elements(out, in);
  if (is_complex(out.dtype) && !is_complex(in.dtype) && out.is_contiguous() && in.is_contiguous() &&
      in.numel() == out.numel()) {
    if (out.dtype == DType::c64) return widen_to_complex<float>(out, in, kFloat32);
    return widen_to_complex<double>(out, in, kFloat64);
  }
  if (prim::copy_by_parts(*this, args)) return;
  const expr::ProgramPtr& program = expr::conversion(in.dtype, out.dtype);
  pointwise({program.get(), std::span<const View>(&in, 1), std::span<const View>(&out, 1), {}});
}

}  // namespace arete::cpu
