// Kernels of random numbers.
#pragma once

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/prim/args.h"

namespace arete::cuda {

/// The kernels of a dtype. wide_integers: of a range above 2^32. fused_normal: normal numbers whose
/// last two operations may be one (not for f64).
enum class RandomKind : uint8_t {
  uniform,
  normal,
  integers,
  bernoulli,
  wide_integers,
  fused_normal,
};
inline constexpr int kNumRandomKinds = 6;
/// The argument is a RandomArgs of device/random.cuh. `moved`: it has a state.
KernelSource random_source(RandomKind kind, DType dtype, bool moved);
/// The same with a program of what is drawn, whose first input says in which dtype. The argument is
/// that RandomArgs, the addresses of the other inputs, and the parameters; a thread makes a block
/// at a time.
KernelSource random_source(RandomKind kind, const expr::Program& program, bool moved);
/// Philox blocks that a thread makes at a time: `random_elements` in device/random.cuh.
int random_group(DType dtype, int elements_per_block);

/// The words of the seed for each of the ten rounds, as `philox` in device/random.cuh takes them.
void philox_keys(uint64_t seed, uint32_t (&keys)[20]);

}  // namespace arete::cuda
