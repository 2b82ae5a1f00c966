// Attention on the CPU: heads side by side, each in bands whose scores stay in the cache of a core.
#include <algorithm>
#include <cstdint>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/base/thread_pool.h"
#include "arete/prim/decompose/attention_internal.h"

namespace arete::cpu {

void CpuBackend::attention(const prim::AttentionArgs& a) {
  const int64_t heads = a.k.sizes[0] * a.k.sizes[1], of_head = a.q.sizes[2] * a.k.sizes[2];
  const int64_t threads = in_parallel_region() ? 1 : num_threads();
  const int64_t work = a.q.sizes[0] * a.q.sizes[1] * of_head * (a.q.sizes[3] + a.v.sizes[3]);
  if (threads == 1 || of_head == 0 || work < grain_for(1)) return Primitives::attention(a);
  // Bands are small: threads that change hands within them, the libraries' and ours, take longer
  // than they help. So each head, or all where heads add to one mask, is one thread's.
  if (!prim::has_independent_heads(a)) {
    const SerialRegion serial;
    return Primitives::attention(a);
  }
  const int64_t at_most = scores_at_a_time(*this, a);
  // The heads of one band are multiplied in one call; as many for each thread.
  const int64_t bands = (heads * of_head + at_most - 1) / at_most,
                parts = std::min(heads, (bands + threads - 1) / threads * threads);
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    const prim::ContextScope scope(a.context);
    const SerialRegion serial;  // also where there is one part
    for (int64_t i = first; i < last; ++i)
      prim::attention_of_heads(*this, a, i * heads / parts, (i + 1) * heads / parts);
  });
}

}  // namespace arete::cpu
