// Positions of the true elements of a mask.
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {
constexpr int64_t kChunk = 1 << 15;

// Counts per chunk first, so that chunks know where to write.
template <class T>
int64_t compact_as(const prim::CompactArgs& a) {
  const Walk<1> walk(a.mask.sizes, -1, {&a.mask});
  const int64_t n = walk.count();
  int64_t* const out = a.out.as<int64_t>();
  std::vector<int64_t> start(size_t((n + kChunk - 1) / kChunk) + 1, 0);
  const int64_t chunks = int64_t(start.size()) - 1;
  const auto for_chunk = [&](int64_t c, auto&& f) {
    int64_t position = c * kChunk;
    for_each_run(walk, position, std::min(position + kChunk, n),
                 [&](const Walk<1>& w, int64_t run) {
                   const int64_t stride = w.stride(0) / int64_t(sizeof(T));
                   f(reinterpret_cast<const T*>(a.mask.data + w.offset(0)), stride, run, position);
                   position += run;
                 });
  };
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t count = 0;
      for_chunk(c, [&](const T* p, int64_t stride, int64_t run, int64_t) {
        if (stride == 1)
          for (int64_t i = 0; i < run; ++i) count += p[i] != T(0);
        else
          for (int64_t i = 0; i < run; ++i) count += p[i * stride] != T(0);
      });
      start[c + 1] = count;
    }
  });
  for (int64_t c = 0; c < chunks; ++c) start[c + 1] += start[c];
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      int64_t at = start[c];
      const int64_t last = start[c + 1];
      for_chunk(c, [&](const T* p, int64_t stride, int64_t run, int64_t position) {
        // Without branches, except where the place after the chunk's last one is not ours.
        for (int64_t i = 0; i < run && at < last; ++i) {
          out[at] = position + i;
          at += p[i * stride] != T(0);
        }
      });
    }
  });
  return start[chunks];
}

}  // namespace

int64_t CpuBackend::compact(const prim::CompactArgs& args) {
  ARETE_ASSERT(args.out.dtype == kInt64 && args.out.is_contiguous());
  ARETE_ASSERT(args.mask.dtype == kBool || args.mask.dtype == kUInt8);
  return compact_as<uint8_t>(args);  // any byte but 0 is true
}

}  // namespace arete::cpu
