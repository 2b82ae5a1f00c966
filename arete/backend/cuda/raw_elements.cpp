#include "arete/backend/cuda/raw_elements.h"

#include <bit>

#include "arete/base/error.h"

namespace arete::cuda {

using prim::LoopNest;

int widen_elements(LoopNest& nest) {
  const int64_t size = int64_t(size_of(nest.operands[0].dtype));
  int64_t bits = 16;  // of everything that must be a multiple of the width
  bool one_run = true;
  for (const LoopNest::Operand& o : nest.operands) {
    bits |= int64_t(reinterpret_cast<uintptr_t>(o.data));
    one_run = one_run && o.strides[0] == size;
    for (int d = 1; d < nest.rank; ++d) bits |= o.strides[size_t(d)];
  }
  if (one_run) {
    bits |= nest.sizes[0] * size;
  } else {
    bits |= size;
    for (const LoopNest::Operand& o : nest.operands) bits |= o.strides[0];
  }
  const int64_t width = bits & -bits;
  if (one_run) {
    nest.sizes[0] = nest.sizes[0] * size / width;
    for (LoopNest::Operand& o : nest.operands) o.strides[0] = width;
  } else if (width < size) {
    // Each element becomes a run of parts, a new dimension within the others.
    ARETE_ASSERT(nest.rank < kMaxRank);
    for (int d = nest.rank; d > 0; --d) {
      nest.sizes[size_t(d)] = nest.sizes[size_t(d - 1)];
      for (LoopNest::Operand& o : nest.operands) o.strides[size_t(d)] = o.strides[size_t(d - 1)];
    }
    nest.sizes[0] = size / width;
    for (LoopNest::Operand& o : nest.operands) o.strides[0] = width;
    ++nest.rank;
  }
  constexpr DType kOfWidth[] = {kUInt8, kInt16, kInt32, kInt64, kComplex128};
  for (LoopNest::Operand& o : nest.operands) o.dtype = kOfWidth[std::countr_zero(uint64_t(width))];
  return int(width);
}

namespace {

// One object for each width, for the rest of the process.
template <ElementCode (*make)(int)>
PointwiseKernels& kernels_of_width(int bytes) {
  static auto* const all = new std::array<PointwiseKernels, 5>{
      PointwiseKernels(make(1)), PointwiseKernels(make(2)), PointwiseKernels(make(4)),
      PointwiseKernels(make(8)), PointwiseKernels(make(16))};
  return (*all)[size_t(std::countr_zero(unsigned(bytes)))];
}

}  // namespace

PointwiseKernels& move_kernels(int bytes) { return kernels_of_width<move_code>(bytes); }
PointwiseKernels& fill_kernels(int bytes) { return kernels_of_width<fill_code>(bytes); }

bool RawPattern::is_one_byte() const {
  for (const std::byte b : bytes)
    if (b != bytes[0]) return false;
  return true;
}

std::span<const expr::Literal> RawPattern::params(int width) const {
  // Literals are 8 bytes of anything.
  return {reinterpret_cast<const expr::Literal*>(bytes), size_t(width == 16 ? 2 : 1)};
}

}  // namespace arete::cuda
