// Elementwise programs over one tensor shape or over many.
#include "arete/backend/cuda/pointwise_launch.h"

#include <algorithm>
#include <cstring>

#include "arete/backend/cuda/codegen/copy.h"
#include "arete/base/error.h"
#include "arete/expr/value.h"
#include "arete/prim/checks.h"
#include "arete/prim/slots.h"
#include "arete/prim/tables.h"

namespace arete::cuda {

using prim::LoopNest;
using prim::View;

namespace {

class CompiledPointwise final : public expr::Compiled {
 public:
  explicit CompiledPointwise(const expr::Program& program) : kernels(element_code(program)) {}
  PointwiseKernels kernels;
};

}  // namespace

PointwiseKernels& kernels_of(const expr::Program& program) {
  constexpr int kSlot = int(DeviceType::cuda);
  expr::Compiled* form = program.compiled(kSlot);
  if (!form) [[unlikely]]
    form = program.install(kSlot, std::make_unique<CompiledPointwise>(program));
  return static_cast<CompiledPointwise*>(form)->kernels;
}

namespace {

bool same_sizes(const View& a, const View& b) {
  return a.sizes.size() == b.sizes.size() &&
         std::equal(a.sizes.begin(), a.sizes.end(), b.sizes.begin());
}

// The commonest calls, without a plan: every operand is contiguous and has the output's sizes, or
// is an input of one element.
bool launch_contiguous(CudaBackend& backend, PointwiseKernels& kernels,
                       const prim::PointwiseArgs& args, int64_t n, CUstream stream) {
  const View& first = args.outputs[0];
  if (args.inputs.size() > 32 || !first.is_contiguous()) return false;
  SmallVector<std::byte*, LoopNest::kMaxOperands> operands;
  for (const View& v : args.outputs) {
    if (&v != &first && !(same_sizes(v, first) && v.is_contiguous())) return false;
    operands.push_back(v.data);
  }
  uint32_t uniform = 0;
  for (size_t k = 0; k < args.inputs.size(); ++k) {
    const View& v = args.inputs[k];
    operands.push_back(v.data);
    if (same_sizes(v, first)) {
      if (!v.is_contiguous()) return false;
    } else {
      if (v.numel() != 1) return false;
      if (n > 1) uniform |= uint32_t(1) << k;
    }
  }
  launch_linear(backend, kernels, operands, n, uniform, args.params, stream);
  return true;
}

SmallVector<View, 8> operands_of(std::span<const View> outputs, std::span<const View> inputs) {
  SmallVector<View, 8> views;
  views.append(outputs.begin(), outputs.end());
  views.append(inputs.begin(), inputs.end());
  return views;
}

}  // namespace

void CudaBackend::pointwise(const prim::PointwiseArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return pointwise(prim::Addressed(args).args());
  }
  prim::check(args);
  if (args.outputs.empty()) return;
  const int64_t n = args.outputs[0].numel();
  if (n == 0) return;
  const CUstream stream = enter(args);
  PointwiseKernels& kernels = kernels_of(*args.program);
  const uint32_t tables = args.program->tables();
  if (tables == 0 && launch_contiguous(*this, kernels, args, n, stream)) return;
  const SmallVector<View, 8> operands =
      tables ? operands_of(args.outputs, prim::heads_of_tables(args.inputs, tables))
             : operands_of(args.outputs, args.inputs);
  launch_nest(*this, kernels, LoopNest::plan(args.outputs[0].sizes, operands), args.params, stream);
}

namespace {

// The arguments of one launch for many tensors, filled tensor by tensor; its layout is described in
// codegen/pointwise.h.
class TensorTable {
 public:
  TensorTable(int operands, size_t capacity, std::span<const expr::Literal> params, uint32_t chunk)
      : operands_(size_t(operands)), capacity_(capacity), chunk_(chunk) {
    slots_.resize((operands_ + 1) * capacity_ + params.size() + (capacity_ + 3) / 2);
    for (size_t k = 0; k < params.size(); ++k)
      slots_[(operands_ + 1) * capacity_ + k] = uint64_t(params[k].i);
    words_ =
        reinterpret_cast<uint32_t*>(slots_.data() + (operands_ + 1) * capacity_ + params.size());
  }
  bool full() const { return used_ == capacity_; }
  bool empty() const { return used_ == 0; }
  unsigned blocks() const { return blocks_; }
  void add(std::span<std::byte* const> operands, int64_t n) {
    for (size_t k = 0; k < operands_; ++k)
      slots_[used_ * operands_ + k] = uint64_t(reinterpret_cast<uintptr_t>(operands[k]));
    slots_[operands_ * capacity_ + used_] = uint64_t(n);
    words_[used_++] = blocks_;
    blocks_ += unsigned((n + chunk_ - 1) / chunk_);
  }
  void* finish() {
    words_[capacity_] = uint32_t(used_);
    words_[capacity_ + 1] = chunk_;
    return slots_.data();
  }
  void clear() { used_ = 0, blocks_ = 0; }

 private:
  size_t operands_, capacity_, used_ = 0;
  uint32_t chunk_;
  unsigned blocks_ = 0;
  SmallVector<uint64_t, 512> slots_;
  uint32_t* words_;
};

// The inputs that are one element for all elements of their tensor, whichever tensor it is.
uint32_t uniform_inputs(const prim::MultiPointwiseArgs& args) {
  const size_t n_in = args.program->inputs().size();
  uint32_t uniform = n_in < 32 ? (1u << n_in) - 1 : 0;
  for (size_t i = 0; i < args.inputs.size() && uniform; ++i) {
    bool one = true;
    for (size_t d = 0; d < args.inputs[i].sizes.size(); ++d)
      one = one && (args.inputs[i].strides[d] == 0 || args.inputs[i].sizes[d] == 1);
    if (!one) uniform &= ~(1u << i % n_in);
  }
  return uniform;
}

}  // namespace

void CudaBackend::multi_pointwise(const prim::MultiPointwiseArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return multi_pointwise(prim::Addressed(args).args());
  }
  const size_t n_in = args.program->inputs().size(), n_out = args.program->outputs().size();
  if (n_out == 0) return;
  const size_t n_tensors = size_t(args.n_tensors);
  if (n_tensors > 1 && n_tensors <= kMostPieces && n_in == 1 &&
      args.program == expr::conversion(args.inputs[0].dtype, args.inputs[0].dtype).get())
    return copy_pieces(args);
  PointwiseKernels& kernels = kernels_of(*args.program);
  const ElementCode& code = kernels.code();
  const int short_capacity = multi_capacity(code.operands(), code.n_params, false);
  if (n_tensors == 1 || short_capacity < 2) return prim::Primitives::multi_pointwise(args);
  const CUstream stream = enter(args);

  PointwiseShape shape;
  shape.kind = PointwiseShape::Kind::multi;
  shape.uniform = uniform_inputs(args);
  shape.vector = kernels.vector();
  shape.long_table = n_tensors > size_t(short_capacity) && has_long_arguments();
  const PointwiseKernels::Variant& variant = kernels.find(*this, shape);
  int64_t total = 0;
  for (size_t t = 0; t < n_tensors; ++t) total += args.outputs[t * n_out].numel();
  // A block's share: so many blocks that the last ones, which do not fill the device, hardly count,
  // each long enough to make finding its tensor cheap.
  const int64_t step = int64_t(kPointwiseThreads) * variant.unroll * shape.vector;
  const int64_t share = total / (int64_t(limits().multiprocessors) * 256);
  const uint32_t chunk = uint32_t(std::clamp<int64_t>(share / step, 1, 16) * step);
  const int capacity = multi_capacity(code.operands(), code.n_params, shape.long_table);
  TensorTable table(code.operands(), size_t(capacity), args.params, chunk);
  const auto flush = [&] {
    if (table.empty()) return;
    void* arguments[] = {table.finish(), nullptr};
    launch_raw(context_, *variant.kernel, Dim3{table.blocks()}, Dim3{unsigned(kPointwiseThreads)},
               0, stream, arguments);
    table.clear();
  };

  SmallVector<std::byte*, LoopNest::kMaxOperands> operands;
  for (size_t t = 0; t < n_tensors; ++t) {
    const auto outputs = args.outputs.subspan(t * n_out, n_out);
    const auto inputs = args.inputs.subspan(t * n_in, n_in);
    const int64_t n = outputs[0].numel();
    if (n == 0) continue;
    operands.clear();
    bool plain = true, aligned = true;
    const auto add = [&](const View& v, bool uniform) {
      operands.push_back(v.data);
      if (uniform) return;
      plain = plain && same_sizes(v, outputs[0]) && v.is_contiguous();
      aligned = aligned && reinterpret_cast<uintptr_t>(v.data) % 16 == 0;
    };
    for (const View& v : outputs) add(v, false);
    for (size_t k = 0; k < n_in; ++k) add(inputs[k], shape.uniform >> k & 1);
    if (aligned && !plain) {
      // Dense in some other order, the same for all: channels last, say.
      SmallVector<View, 8> whole;
      whole.append(outputs.begin(), outputs.end());
      for (size_t k = 0; k < n_in; ++k)
        if (!(shape.uniform >> k & 1)) whole.push_back(inputs[k]);
      const LoopNest nest = LoopNest::plan(outputs[0].sizes, whole);
      plain = nest.is_linear();
      for (const LoopNest::Operand& o : nest.operands) plain = plain && o.strides[0] != 0;
    }
    if (aligned && plain) {
      table.add(operands, n);
      if (table.full()) flush();
    } else {
      pointwise({args.program, inputs, outputs, args.params});
    }
  }
  flush();
}

}  // namespace arete::cuda
