"""A histogram: blocks count in shared memory, and add what they counted to the whole. Beside it, the values in order."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx import jit  # noqa: E402

from picture import save  # noqa: E402

BINS = 64


@jit.rawkernel()
def count(x, counts):
    mine = jit.shared_memory(np.int32, BINS)
    t = jit.threadIdx.x
    if t < BINS:
        mine[t] = 0
    jit.syncthreads()
    for i in range(jit.grid(1), x.size, jit.gridsize(1)):
        jit.atomic_add(mine, min(max(int(x[i] * BINS), 0), BINS - 1), 1)
    jit.syncthreads()
    if t < BINS:
        jit.atomic_add(counts, t, mine[t])


def compute(x):
    counts = cp.zeros(BINS, dtype=cp.int32)
    count[min((x.size + 255) // 256, 1024), 256](x, counts)
    return counts, cp.sort(x)


def by_numpy(x):
    return np.bincount(np.clip((x * BINS).astype(int), 0, BINS - 1), minlength=BINS), np.sort(x)


def main(size=100000, folder="."):
    x = np.random.default_rng(5).beta(2, 5, size=size).astype(np.float32)
    found, ordered = (cp.asnumpy(r) for r in compute(cp.asarray(x)))
    save(f"{folder}/histogram.png", (np.arange(200)[:, None] >= 200 - 190 * np.repeat(found, 4) / found.max()).astype(float))
    want, want_ordered = by_numpy(x)
    return float(abs(found - want).max() + abs(ordered - want_ordered).max())


if __name__ == "__main__":
    print("difference from NumPy's:", main())
