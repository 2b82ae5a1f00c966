"""A histogram: blocks count in shared memory, and add what they counted to the whole. Beside it, the values in order."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx import jit  # noqa: E402

from picture import save  # noqa: E402

BINS = 256


@jit.rawkernel(device=True)
def place(v):
    return min(max(int(v * BINS), 0), BINS - 1)


@jit.rawkernel()
def count(x, counts):
    mine = jit.shared_memory(np.int32, BINS)
    t = jit.threadIdx.x
    if t < BINS:
        mine[t] = 0
    jit.syncthreads()
    i = jit.grid(1)
    step = jit.gridsize(1)
    while i + 3 * step < x.size:  # four loads are under way before the first is counted
        a = x[i]
        b = x[i + step]
        c = x[i + 2 * step]
        d = x[i + 3 * step]
        jit.atomic_add(mine, place(a), 1)
        jit.atomic_add(mine, place(b), 1)
        jit.atomic_add(mine, place(c), 1)
        jit.atomic_add(mine, place(d), 1)
        i += 4 * step
    while i < x.size:
        jit.atomic_add(mine, place(x[i]), 1)
        i += step
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
    save(f"{folder}/histogram.png", (np.arange(200)[:, None] >= 200 - 190 * found / found.max()).astype(float))
    want, want_ordered = by_numpy(x)
    return float(abs(found - want).max() + abs(ordered - want_ordered).max())


if __name__ == "__main__":
    print("difference from NumPy's:", main())
