"""Conway's Game of Life: a Python function of threads."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx import jit  # noqa: E402

from picture import save  # noqa: E402


@jit.rawkernel()
def step(now, then):
    x, y = jit.grid(2)  # threads lie side by side along x, and so do columns
    i = np.int32(y)
    j = np.int32(x)
    h = np.int32(now.shape[0])
    w = np.int32(now.shape[1])
    if i < h and j < w:
        up = i - 1 if i > 0 else h - 1
        down = i + 1 if i < h - 1 else 0
        left = j - 1 if j > 0 else w - 1
        right = j + 1 if j < w - 1 else 0
        alive = now[up, left] + now[up, j] + now[up, right] + now[i, left] + now[i, right]
        alive += now[down, left] + now[down, j] + now[down, right]
        then[i, j] = 1 if alive == 3 or (alive == 2 and now[i, j] == 1) else 0


def compute(world, steps):
    now, then = world.copy(), cp.empty_like(world)
    blocks = (world.shape[1] + 31) // 32, (world.shape[0] + 7) // 8
    for _ in range(steps):
        step[blocks, (32, 8)](now, then)
        now, then = then, now
    return now


def by_numpy(world, steps):
    for _ in range(steps):
        alive = sum(np.roll(world, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)
        world = ((alive == 3) | (alive == 2) & (world == 1)).astype(world.dtype)
    return world


def main(size=256, folder=".", steps=50):
    world = (np.random.default_rng(1).random((size, size)) < 0.3).astype(np.int32)
    found = cp.asnumpy(compute(cp.asarray(world), steps))
    save(f"{folder}/life.png", found)
    return float((found != by_numpy(world, steps)).sum())


if __name__ == "__main__":
    print("cells that differ from NumPy's:", main())
