// Recurrences in one launch.
#include "arete/backend/cuda/codegen/recurrence.h"

#include "arete/backend/cuda/kernel_memo.h"
#include "arete/prim/checks.h"
#include "arete/prim/slots.h"

namespace arete::cuda {

void CudaBackend::recurrence(const prim::RecurrenceArgs& args) {
  if (!args.slots.empty()) [[unlikely]] {
    enter(args);
    return recurrence(prim::Addressed(args).args());
  }
  prim::check(args);
  if (args.out.numel() == 0) return;
  const RecurrencePlan plan = plan_recurrence(args, limits().multiprocessors);
  std::vector<std::byte> arguments = recurrence_arguments(args);
  // What is too long for a multiprocessor, or for the arguments of a kernel, goes step by step.
  if (plan.shared > size_t(limits().shared_per_block) || arguments.size() > 4096 ||
      args.rows > INT32_MAX)
    return Primitives::recurrence(args);
  const CUstream stream = enter(args);
  static thread_local KernelMemo memo;
  const uint64_t flags = uint64_t(plan.single) | uint64_t(plan.warp) << 1 |
                         uint64_t(plan.wide) << 2 | uint64_t(plan.initial) << 3 |
                         uint64_t(plan.lengths) << 4 | uint64_t(plan.every) << 5 |
                         uint64_t(plan.reverse) << 6 | uint64_t(context_.ordinal()) << 7;
  const uint64_t words[] = {args.program->hash().low, args.program->hash().high, flags, plan.fixed};
  const Kernel& kernel = memo.get(*this, hash_bytes(words, sizeof words),
                                  [&] { return recurrence_source(*args.program, plan); });
  void* pointers[] = {arguments.data(), nullptr};
  launch_raw(context_, kernel, {plan.grid}, {plan.width, plan.rows}, plan.shared, stream, pointers);
}

}  // namespace arete::cuda
