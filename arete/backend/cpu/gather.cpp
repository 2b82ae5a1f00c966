// Reading elements at computed positions.
#include <cstring>

#include "arete/backend/cpu/cpu_backend.h"
#include "arete/backend/cpu/indexing.h"
#include "arete/backend/cpu/walk.h"
#include "arete/base/error.h"
#include "arete/base/thread_pool.h"

namespace arete::cpu {
namespace {

// memcpy, short ones without the call.
void copy_bytes(void* out, const void* in, size_t bytes) {
  constexpr size_t kStep = 16;
  if (bytes < kStep || bytes > 16 * kStep) return void(std::memcpy(out, in, bytes));
  auto* to = static_cast<std::byte*>(out);
  auto* from = static_cast<const std::byte*>(in);
  for (size_t i = 0; i + kStep <= bytes; i += kStep) std::memcpy(to + i, from + i, kStep);
  std::memcpy(to + bytes - kStep, from + bytes - kStep, kStep);
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
  parallel_for(0, walk.count(), 16384, [&](int64_t begin, int64_t end) {
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
  IndexCheck check(args.in.rank() == 0 ? 1 : args.in.sizes[args.dim]);
  visit_size(size_of(args.in.dtype),
             [&](auto tag) { gather_as<typename decltype(tag)::type>(args, check); });
  check.raise(args.op, args.dim);
}

}  // namespace arete::cpu
