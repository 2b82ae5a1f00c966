"""Conway's Game of Life: a Python function of threads."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx import jit  # noqa: E402

from picture import save  # noqa: E402


@jit.rawkernel()
def step(now, then):
    i, j = jit.grid(2)
    h, w = now.shape
    if i < h and j < w:
        alive = 0
        for a in range(-1, 2):
            for b in range(-1, 2):
                if a != 0 or b != 0:
                    alive += now[(i + a) % h, (j + b) % w]
        then[i, j] = 1 if alive == 3 or (alive == 2 and now[i, j] == 1) else 0


def compute(world, steps):
    now, then = world.copy(), cp.empty_like(world)
    blocks = tuple((s + 15) // 16 for s in world.shape)
    for _ in range(steps):
        step[blocks, (16, 16)](now, then)
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
