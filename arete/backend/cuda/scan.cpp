// Running sums, products, extrema and logic along a dimension.
#include "arete/backend/cuda/codegen/scan.h"

#include <algorithm>

#include "arete/backend/cuda/kernel_memo.h"
#include "arete/backend/cuda/runtime/driver.h"
#include "arete/base/error.h"

namespace arete::cuda {

using prim::Monoid;
using prim::ScanArgs;

namespace {

uint64_t source_key(const ScanArgs& a, const ScanPlan& plan) {
  return uint64_t(a.logarithmic) << 50 | uint64_t(bool(a.factors)) << 49 |
         uint64_t(bool(a.indices)) << 48 | uint64_t(a.monoid) << 40 | uint64_t(a.in.dtype) << 32 |
         uint64_t(a.out.dtype) << 24 | uint64_t(plan.vector) << 16 | uint64_t(plan.rounds) << 12 |
         uint64_t(plan.lanes.rank) << 4 | uint64_t(plan.form) << 1 | uint64_t(plan.reverse);
}

}  // namespace

void CudaBackend::scan(const ScanArgs& args) {
  const bool logic = args.monoid == Monoid::all || args.monoid == Monoid::any;
  ARETE_ASSERT(!logic || args.out.dtype == kBool);
  if (is_complex(args.out.dtype) && (args.monoid == Monoid::min || args.monoid == Monoid::max))
    throw NotImplementedError("scan", "complex numbers have no order").got(name_of(args.out.dtype));
  if (args.in.dtype != args.out.dtype &&
      (is_complex(args.in.dtype) || is_complex(args.out.dtype))) {
    copy({args.out, args.in});  // convert first, then scan in place
    ScanArgs in_place = args;
    in_place.in = args.out;
    return scan(in_place);
  }
  if (args.in.numel() == 0) return;
  if (args.factors && !std::ranges::equal(args.factors.strides, args.in.strides)) {
    // The kernel finds factors where the elements are.
    const prim::ScratchView dense(*this, args.in.dtype, args.in.sizes),
        factors(*this, args.in.dtype, args.in.sizes);
    copy({dense, args.in, args.context});
    copy({factors, args.factors, args.context});
    ScanArgs alike = args;
    alike.in = dense;
    alike.factors = factors;
    return scan(alike);
  }
  const CUstream stream = enter(args);
  ScanPlan plan = plan_scan(args, limits().multiprocessors);
  static thread_local KernelMemo memo;
  const Hash128 key{source_key(args, plan), uint64_t(context_.ordinal())};
  const Kernel& kernel = memo.get(*this, key, [&] { return scan_source(args, plan); });
  const auto start = [&](unsigned grid) {
    std::vector<std::byte> arguments = scan_arguments(plan);
    void* pointers[] = {arguments.data()};
    launch_raw(context_, kernel, {grid}, {ScanPlan::kThreads}, 0, stream, pointers);
  };

  if (plan.carries_bytes > 0) {
    const prim::ScratchView carries(*this, kUInt8, Shape{plan.carries_bytes});
    plan.header.carries = carries.view().data;
    plan.header.phase = 1;
    start(plan.grid);
    plan.header.phase = 2;
    start(unsigned(std::min<int64_t>(INT32_MAX, (plan.header.lanes + 7) / 8)));
    plan.header.phase = 3;
    return start(plan.grid);
  }
  start(plan.grid);
}

}  // namespace arete::cuda
