// Positions or coordinates of the true elements of a mask.
#include <algorithm>
#include <cstring>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/kernels/kernel_table.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {
constexpr int64_t kChunk = 1 << 15;

constexpr int64_t kBlock = 512;

// Positions of ones in n bytes, of which the first is at `position`, to out; there is room for a
// vector more than there are.
int64_t positions_of_block(const uint8_t* p, int64_t n, int64_t position, int64_t* out) {
  int64_t all[kBlock];
  constexpr int64_t one = 1;
  kernels::table().progression[kernels::t_i64](all, &position, &one, 0, n);
  kernels::table().compress[sizeof(int64_t)][1](out, all, p, nullptr, n);
  return kernels::table().count(p, n);
}

uint64_t eight(const uint8_t* p) {
  uint64_t w;
  std::memcpy(&w, p, sizeof w);
  return w;
}

// Counts per chunk first, so that chunks know where to write.
int64_t compact_bytes(const prim::View& mask, int64_t* out) {
  const Walk<1> walk(mask.sizes, -1, {&mask});
  const int64_t n = walk.count();
  std::vector<int64_t> start(size_t((n + kChunk - 1) / kChunk) + 1, 0);
  const int64_t chunks = int64_t(start.size()) - 1;
  const auto for_chunk = [&](int64_t c, auto&& f) {
    int64_t position = c * kChunk;
    for_each_run(
        walk, position, std::min(position + kChunk, n), [&](const Walk<1>& w, int64_t run) {
          f(reinterpret_cast<const uint8_t*>(mask.data + w.offset(0)), w.stride(0), run, position);
          position += run;
        });
  };
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t count = 0;
      for_chunk(c, [&](const uint8_t* p, int64_t stride, int64_t run, int64_t) {
        if (stride == 1)
          count += kernels::table().count(p, run);
        else
          for (int64_t i = 0; i < run; ++i) count += p[i * stride] != 0;
      });
      start[c + 1] = count;
    }
  });
  for (int64_t c = 0; c < chunks; ++c) start[c + 1] += start[c];
  if (!out) return start[chunks];
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t at = start[c];
      const int64_t last = start[c + 1];
      for_chunk(c, [&](const uint8_t* p, int64_t stride, int64_t run, int64_t position) {
        int64_t to = at;  // what is stored could change `at`
        for (int64_t i = 0; i < run && to < last;) {
          if (stride == 1) {
            while (i + 8 < run && eight(p + i) == 0) i += 8;
            if (last - to >= kBlock + 8) {
              const int64_t n = std::min(kBlock, run - i);
              to += positions_of_block(p + i, n, position + i, out + to);
              i += n;
              continue;
            }
          }
          // Without branches, except where the place after the chunk's last one is not ours.
          for (const int64_t end = std::min(i + 8, run); i < end && to < last; ++i) {
            out[to] = position + i;
            to += p[i * stride] != 0;
          }
        }
        at = to;
      });
    }
  });
  return start[chunks];
}

// The coordinates of n ascending row-major positions in `sizes`, to out (dimensions, n). Those in
// one row, along the last dimension, share all others. T holds all positions.
template <class T>
void write_coordinates(const int64_t* positions, int64_t n, IntList sizes, const prim::View& out) {
  const int64_t along = out.strides[0], step = out.strides[1];
  const size_t last = sizes.size() - 1;
  int64_t* const first = out.as<int64_t>();
  parallel_for(0, n, kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      T rest = T(T(positions[i]) / T(sizes[last]));
      const int64_t row = int64_t(rest) * sizes[last], behind = row + sizes[last];
      int64_t next = i;
      int64_t* to = first + i * step + int64_t(last) * along;
      for (; next < end && positions[next] < behind; ++next, to += step)
        *to = positions[next] - row;
      for (size_t d = last; d-- > 0;) {
        const T above = d > 0 ? T(rest / T(sizes[d])) : T(0);
        const int64_t here = int64_t(rest - above * T(sizes[d]));
        to = first + i * step + int64_t(d) * along;
        for (int64_t k = i; k < next; ++k, to += step) *to = here;
        rest = above;
      }
      i = next;
    }
  });
}

}  // namespace

int64_t CpuBackend::compact(const prim::CompactArgs& args) {
  ARETE_ASSERT(args.mask.dtype == kBool || args.mask.dtype == kUInt8);  // any byte but 0 is true
  if (!args.out) return compact_bytes(args.mask, nullptr);
  ARETE_ASSERT(args.out.dtype == kInt64);
  if (args.out.rank() == 1) {
    ARETE_ASSERT(args.out.is_contiguous());
    return compact_bytes(args.mask, args.out.as<int64_t>());
  }
  ARETE_ASSERT(args.out.rank() == 2 && args.out.sizes[0] == args.mask.rank());
  const prim::ScratchView positions(*this, kInt64, {args.out.sizes[1]});
  const int64_t *const flat = positions.view().as<int64_t>(),
                       n = compact_bytes(args.mask, positions.view().as<int64_t>());
  if (args.mask.numel() <= UINT32_MAX)
    write_coordinates<uint32_t>(flat, n, args.mask.sizes, args.out);
  else
    write_coordinates<uint64_t>(flat, n, args.mask.sizes, args.out);
  return n;
}

}  // namespace arete::cpu
