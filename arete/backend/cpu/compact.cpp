// Positions of the true elements of a mask.
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
int64_t compact_bytes(const prim::CompactArgs& a) {
  const Walk<1> walk(a.mask.sizes, -1, {&a.mask});
  const int64_t n = walk.count();
  std::vector<int64_t> start(size_t((n + kChunk - 1) / kChunk) + 1, 0);
  const int64_t chunks = int64_t(start.size()) - 1;
  const auto for_chunk = [&](int64_t c, auto&& f) {
    int64_t position = c * kChunk;
    for_each_run(walk, position, std::min(position + kChunk, n),
                 [&](const Walk<1>& w, int64_t run) {
                   f(reinterpret_cast<const uint8_t*>(a.mask.data + w.offset(0)), w.stride(0), run,
                     position);
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
  if (!a.out) return start[chunks];
  int64_t* const out = a.out.as<int64_t>();
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

}  // namespace

int64_t CpuBackend::compact(const prim::CompactArgs& args) {
  ARETE_ASSERT(!args.out || (args.out.dtype == kInt64 && args.out.is_contiguous()));
  ARETE_ASSERT(args.mask.dtype == kBool || args.mask.dtype == kUInt8);
  return compact_bytes(args);  // any byte but 0 is true
}

}  // namespace arete::cpu
