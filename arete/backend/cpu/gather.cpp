// Reading elements at computed positions.
#include <algorithm>
#include <limits>
#include <vector>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/indexing.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {

// How many elements the slices behind dimension `dim` have, if they are picked as a whole and lie
// side by side in `in` and `out`; else 0.
int64_t slice_of(const prim::GatherArgs& a) {
  int64_t n = 1;
  for (int d = a.out.rank() - 1; d >= 0; --d) {
    if (d == a.dim) continue;
    if (a.index.sizes[d] != 1 && a.index.strides[d] != 0) return 0;
    if (d < a.dim || a.out.sizes[d] == 1) continue;
    if (a.out.strides[d] != n || a.in.strides[d] != n) return 0;
    n *= a.out.sizes[d];
  }
  return n;
}
void gather_slices(const prim::GatherArgs& a, int64_t slice, IndexCheck& check) {
  const int64_t size = int64_t(size_of(a.out.dtype)), n = a.out.sizes[a.dim],
                so = a.out.strides[a.dim] * size, sb = a.in.strides[a.dim] * size;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::min();
  std::vector<int64_t> from;  // offsets
  from.reserve(size_t(n));
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = check.resolve(a.index.as<int64_t>()[i * a.index.strides[a.dim]]);
    from.push_back(k < 0 ? kNone : k * sb);
  }
  const Walk<2> outer(a.out.sizes.first(size_t(a.dim)), -1, {&a.out, &a.in});
  parallel_for(0, outer.count() * n, grain_for(8 * double(slice)), [&](int64_t begin, int64_t end) {
    Walk<2> w = outer;
    w.seek(begin / n);
    for (int64_t k = begin;;) {
      const int64_t first = k % n, last = std::min(n, first + end - k);
      const std::byte* const in = a.in.data + w.offset(1);
      std::byte* out = a.out.data + w.offset(0) + first * so;
      for (int64_t i = first; i < last; ++i, out += so)
        if (from[size_t(i)] != kNone) copy_bytes(out, in + from[size_t(i)], size_t(slice * size));
      k += last - first;
      if (k == end) break;
      w.advance(1);
    }
  });
}

// Element by element in row-major order of the output; `in` walks with stride 0 along the dimension
// and the index supplies that part.
template <class T>
void gather_as(const prim::GatherArgs& a, IndexCheck& check) {
  prim::View base = a.in;
  Shape strides(a.in.strides);
  const bool scalar = a.in.rank() == 0;
  const int64_t step = scalar ? 0 : a.in.strides[a.dim];
  if (!scalar) strides[a.dim] = 0;
  base.strides = strides;
  const Walk<3> walk(a.out.sizes, -1, {&a.out, &a.index, &base});
  const int64_t lanes = scalar || walk.count() == 0 ? 1 : walk.count() / a.out.sizes[a.dim];
  const Positions positions(a.index, a.dim, lanes, check);
  parallel_for(0, walk.count(), grain_for(8), [&](int64_t begin, int64_t end) {
    for_each_run(walk, begin, end, [&](const Walk<3>& w, int64_t n) {
      T* out = reinterpret_cast<T*>(a.out.data + w.offset(0));
      const int64_t* index = reinterpret_cast<const int64_t*>(a.index.data + w.offset(1));
      const T* in = reinterpret_cast<const T*>(base.data + w.offset(2));
      const int64_t so = w.stride(0) / int64_t(sizeof(T)), si = w.stride(1) / 8,
                    sb = w.stride(2) / int64_t(sizeof(T));
      if (si == 0 && n > 1) {  // a row or slice is picked as a whole
        const int64_t k = check.resolve(*index);
        if (k < 0) return;
        in += k * step;
        if (so == 1 && sb == 1)
          copy_bytes(out, in, size_t(n) * sizeof(T));
        else
          for (int64_t i = 0; i < n; ++i) out[i * so] = in[i * sb];
        return;
      }
      positions.visit(index, si, [&](auto position) {
        if (so == 1 && sb == 0 && step == 1) {
          for (int64_t i = 0; i < n; ++i)
            if (const int64_t k = position(i); k >= 0) out[i] = in[k];
        } else {
          for (int64_t i = 0; i < n; ++i)
            if (const int64_t k = position(i); k >= 0) out[i * so] = in[i * sb + k * step];
        }
      });
    });
  });
}

}  // namespace

void CpuBackend::gather(const prim::GatherArgs& args) {
  ARETE_ASSERT(args.index.dtype == kInt64 && args.out.dtype == args.in.dtype);
  ARETE_ASSERT(args.out.rank() == args.in.rank() && args.index.rank() == args.in.rank());
  const int64_t size = args.in.rank() == 0 ? 1 : args.in.sizes[args.dim];
  IndexCheck check = args.leaves_out ? IndexCheck(size, args.left_out) : IndexCheck(size);
  if (args.leaves_out) fill({.out = args.out, .value = {}});
  const int64_t slice = args.out.numel() > 0 && args.out.rank() > 0 ? slice_of(args) : 0;
  if (slice > 1)
    gather_slices(args, slice, check);
  else
    visit_size(size_of(args.in.dtype),
               [&](auto tag) { gather_as<typename decltype(tag)::type>(args, check); });
  check.raise(args.op, args.dim);
}

}  // namespace arete::cpu
