// Copies from global to shared memory while the thread goes on, from Ampere on.
#pragma once
#include "dtype.cuh"

#ifndef ARETE_EMULATED  // a test that runs kernels on the host has its own
/// The first `bytes` of kBytes (4, 8 or 16), and zeros behind them. Both begin at a multiple of
/// kBytes.
template <int kBytes>
DEVICE void copy_async(void* to, const void* from, i32 bytes = kBytes) {
  const u32 address = u32(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from),
                 "n"(kBytes), "r"(bytes)
                 : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// All but the last kPending committed groups of copies of this thread have arrived.
template <int kPending>
DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#endif
