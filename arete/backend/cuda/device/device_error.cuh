// Errors found by kernels. The first one is recorded in memory that the host reads at its next
// synchronization; the kernel goes on with a harmless value. Mirrors runtime/device_error.h.
#pragma once
#include "dtype.cuh"

struct DeviceErrorRecord {
  u32 claimed;  // 0 -> 1 by the first thread to fail
  u32 kind;     // 0: none yet; 1: index out of range; 2: assertion; 3: NaN
  u64 op;       // const char* of the host
  i64 index, size;
  i64 dim;
};

static __device__ __noinline__ void record_device_error(DeviceErrorRecord* record, u32 kind, u64 op,
                                                        i64 index, i64 size, int dim = 0) {
  // A record is one device's: its threads agree among themselves. Atomics of the whole system on
  // memory of the host are not for every machine, and errors under compute-sanitizer there.
  if (atomicCAS(&record->claimed, 0u, 1u) != 0u) return;
  record->op = op;
  record->index = index;
  record->size = size;
  record->dim = dim;
  __threadfence_system();
  *reinterpret_cast<volatile u32*>(&record->kind) = kind;
}

/// `index` in [-size, size) as [0, size); anything else is recorded and becomes 0. `size` may be 0
/// only where no thread gets here. `dim`: which dimension it indexes.
DEVICE i64 checked_index(i64 index, i64 size, DeviceErrorRecord* record, u64 op, int dim = 0) {
  const i64 wrapped = index < 0 ? index + size : index;
  if (wrapped < 0 || wrapped >= size) {
    record_device_error(record, 1u, op, index, size, dim);
    return 0;
  }
  return wrapped;
}
