"""What memory gives in a second: copies that read neighbours, every second element, every fourth, ..."""
import arete.cupy

arete.cupy.install()

import time  # noqa: E402

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save  # noqa: E402

STEPS = 1, 2, 4, 8, 16, 32
taken = cp.ElementwiseKernel("raw T x, uint32 step", "T y", "y = x[(unsigned)i * step % (unsigned)n]", "taken")


def compute(x):
    """x itself, then its elements in the order 0, step, 2 step, ... modulo its size, which is below 2^27."""
    return [taken(x, step, size=x.size) for step in STEPS]


def by_numpy(x):
    return [x[np.arange(x.size) * step % x.size] for step in STEPS]


def rates(x):
    """Gigabytes a second of each copy."""
    found = []
    for step in STEPS:
        best = float("inf")
        for _ in range(5):
            cp.cuda.Device().synchronize()
            begin = time.perf_counter()
            taken(x, step, size=x.size)
            cp.cuda.Device().synchronize()
            best = min(best, time.perf_counter() - begin)
        found.append(2 * x.nbytes / best / 1e9)
    return found


def main(size=1 << 20, folder="."):
    x = np.random.default_rng(4).random(size).astype(np.float32)
    found = rates(cp.asarray(x))
    for step, rate in zip(STEPS, found):
        print(f"every {step}. element: {rate:.1f} GB/s")
    bars = np.arange(200)[:, None] >= 200 - 190 * np.array(found) / max(found)
    save(f"{folder}/bandwidth.png", np.repeat(bars.astype(float), 40, axis=1))
    return float(sum(abs(cp.asnumpy(a) - b).max() for a, b in zip(compute(cp.asarray(x)), by_numpy(x))))


if __name__ == "__main__":
    print("difference from NumPy's:", main())
