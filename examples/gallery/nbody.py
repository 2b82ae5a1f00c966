"""Bodies that attract each other: each block reads the others into shared memory, tile by tile."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx import jit, rsqrt  # noqa: E402

from picture import save  # noqa: E402

TILE = 128


@jit.rawkernel()
def attract(x, force):
    tile_x = jit.shared_memory(np.float32, TILE)
    tile_y = jit.shared_memory(np.float32, TILE)
    tile_m = jit.shared_memory(np.float32, TILE)
    n = x.shape[1]
    i = jit.grid(1)
    t = jit.threadIdx.x
    mine_x = x[0, i] if i < n else 0.0
    mine_y = x[1, i] if i < n else 0.0
    fx = np.float32(0)
    fy = np.float32(0)
    # Blocks along y share the tiles of the others.
    for start in range(jit.blockIdx.y * TILE, n, jit.gridDim.y * TILE):
        tile_x[t] = x[0, start + t] if start + t < n else 0.0
        tile_y[t] = x[1, start + t] if start + t < n else 0.0
        tile_m[t] = x[2, start + t] if start + t < n else 0.0
        jit.syncthreads()
        for j in range(TILE):
            dx = tile_x[j] - mine_x
            dy = tile_y[j] - mine_y
            r = rsqrt(dx * dx + dy * dy + 0.01)
            w = tile_m[j] * r * r * r
            fx += dx * w
            fy += dy * w
        jit.syncthreads()
    if i < n:
        jit.atomic_add(force, (0, i), fx)
        jit.atomic_add(force, (1, i), fy)


def compute(x, v, steps, h=0.01):
    """Places and masses (3, n), velocities (2, n); the places of each step."""
    path, tiles = [], (x.shape[1] + TILE - 1) // TILE
    for _ in range(steps):
        force = cp.zeros_like(v)
        attract[(tiles, min(tiles, 8)), TILE](x, force)
        v = v + h * force
        x[:2] += h * v
        path.append(x[:2].copy())
    return path


def by_numpy(x, v, steps, h=0.01):
    path = []
    for _ in range(steps):
        d = x[:2, None, :] - x[:2, :, None]
        r = (d * d).sum(0) + np.float32(0.01)
        v = v + h * (d * x[2] / (r * np.sqrt(r))).sum(-1)
        x[:2] += h * v
        path.append(x[:2].copy())
    return path


def main(size=300, folder=".", steps=40):
    random = np.random.default_rng(2)
    x = np.concatenate([random.normal(size=(2, size)), np.full((1, size), 1.0 / size)]).astype(np.float32)
    v = (np.stack([-x[1], x[0]]) * 0.5).astype(np.float32)
    path = np.stack([cp.asnumpy(p) for p in compute(cp.asarray(x), cp.asarray(v), steps)])
    seen, _, _ = np.histogram2d(path[:, 0].ravel(), path[:, 1].ravel(), 300, [[-3, 3], [-3, 3]])
    save(f"{folder}/nbody.png", np.log1p(seen))
    return float(abs(path - np.stack(by_numpy(x.copy(), v.copy(), steps))).max())


if __name__ == "__main__":
    print("largest difference from NumPy's places:", main())
