// Many tensors, each reduced to one number: gradient norms in two launches.
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "arete/backend/cuda/codegen/multi_reduce.h"
#include "arete/backend/cuda/cuda_backend.h"
#include "arete/core/layout.h"
#include "arete/prim/slots.h"

namespace arete::cuda {
namespace {

// Mirrors the struct in codegen/multi_reduce.cpp.
template <int kTensors>
struct Table {
  const void* data[kTensors];
  int64_t numel[kTensors];
  uint32_t first[kTensors + 1];
  uint32_t tensors;
};
struct Slots {
  expr::Literal s[kMultiReduceParams];
};
static_assert(sizeof(Table<kMultiReduceTensors>) + sizeof(Slots) + 16 <= 4096);
static_assert(sizeof(Table<kMultiReduceLong>) + sizeof(Slots) + 16 <= 32764);

struct Pair {
  const Kernel *chunks, *finish;
};

template <int kTensors>
void run(CudaBackend& backend, const prim::MultiReduceArgs& a, const Pair& kernels,
         const Slots& slots, CUstream stream) {
  const DType out = a.prologue->outputs()[0].dtype;
  Table<kTensors> table;
  for (size_t begin = 0; begin < a.inputs.size(); begin += kTensors) {
    const size_t n = std::min<size_t>(kTensors, a.inputs.size() - begin);
    uint32_t chunks = 0;
    for (size_t k = 0; k < n; ++k) {
      const prim::View& v = a.inputs[begin + k];
      table.data[k] = v.data;
      table.numel[k] = v.numel();
      table.first[k] = chunks;
      chunks += uint32_t((v.numel() + kMultiReduceChunk - 1) / kMultiReduceChunk);
    }
    table.first[n] = chunks;
    table.tensors = uint32_t(n);
    const size_t bytes = std::max<size_t>(chunks, 1) * size_of(out);
    std::byte* const partials = static_cast<std::byte*>(backend.scratch(bytes));
    std::byte* const results = a.out.data + begin * size_of(out);
    if (chunks > 0)
      backend.launch(*kernels.chunks, {chunks}, {kMultiReduceThreads}, 0, stream, table, slots,
                     partials);
    backend.launch(*kernels.finish, {unsigned(n)}, {kMultiReduceThreads}, 0, stream, table,
                   partials, results);
    backend.release_scratch(partials, bytes);
  }
}

}  // namespace

void CudaBackend::multi_reduce(const prim::MultiReduceArgs& a) {
  if (!a.slots.empty()) [[unlikely]] {
    enter(a);
    return multi_reduce(prim::Addressed(a).args());
  }
  const expr::Program& prologue = *a.prologue;
  const DType out = prologue.outputs()[0].dtype;
  bool simple = prologue.params().size() <= size_t(kMultiReduceParams) &&
                prologue.inputs().size() == 1 && a.out.is_contiguous();
  bool aligned = true;
  for (const prim::View& v : a.inputs) {
    simple = simple && Layout(v.sizes, v.strides).is_dense();  // in any order
    aligned = aligned && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
  }
  if (!simple) return prim::Primitives::multi_reduce(a);
  if (a.inputs.empty()) return;
  const CUstream stream = enter(a);

  // Programs are interned and their hashes tell them apart; the kernels of both launches together.
  static std::mutex mutex;
  static auto* const cache = new std::map<std::tuple<Hash128, int, bool, bool, int>, Pair>;
  const bool many = a.inputs.size() > size_t(kMultiReduceTensors) && has_long_arguments();
  const int tensors = many ? kMultiReduceLong : kMultiReduceTensors;
  const std::tuple key{prologue.hash(), int(a.monoid), aligned, many, context_.ordinal()};
  Pair kernels;
  {
    const std::lock_guard lock(mutex);
    auto found = cache->find(key);
    if (found == cache->end()) {
      const Pair made{
          &kernel(multi_reduce_chunks(a.monoid, prologue, aligned, tensors)),
          &kernel(multi_reduce_finish(a.monoid, expr::compute_type(out), out, tensors))};
      found = cache->emplace(key, made).first;
    }
    kernels = found->second;
  }

  Slots slots{};
  std::copy_n(a.params.begin(), std::min<size_t>(a.params.size(), prologue.params().size()),
              slots.s);
  many ? run<kMultiReduceLong>(*this, a, kernels, slots, stream)
       : run<kMultiReduceTensors>(*this, a, kernels, slots, stream);
}

}  // namespace arete::cuda
