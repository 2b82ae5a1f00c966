// Recurrences as CUDA C++ text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "arete/backend/cuda/codegen/kernel_source.h"
#include "arete/prim/args.h"

namespace arete::cuda {

// Note [Recurrence kernels]
// `width` threads take a row through all steps; its states are in shared memory, twice, so that one
// barrier a step is enough. Where every thread has one state (`single`), it computes what does not
// depend on states one step ahead, so that memory is read while a step is computed and the threads
// wait for each other.
struct RecurrencePlan {
  unsigned width = 32, rows = 1;  ///< threads of a row, rows of a block
  size_t shared = 0;              ///< bytes
  unsigned grid = 1;

  // What the source depends on, besides the program.
  bool single = true;
  bool warp = false;  ///< the threads of a row belong to one warp
  bool wide = false;  ///< more than 256 threads
  bool initial = false, lengths = false, every = true, reverse = false;
  uint32_t fixed = 0;  ///< bit k: input k is the same at all steps
};
RecurrencePlan plan_recurrence(const prim::RecurrenceArgs& args, int multiprocessors);
KernelSource recurrence_source(const expr::Program& program, const RecurrencePlan& plan);
/// The bytes of a kernel's only argument.
std::vector<std::byte> recurrence_arguments(const prim::RecurrenceArgs& args);

}  // namespace arete::cuda
