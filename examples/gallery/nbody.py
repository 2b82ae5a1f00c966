"""Bodies that attract each other: each block reads the others into shared memory, tile by tile."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx import jit  # noqa: E402

from picture import save  # noqa: E402

TILE = 128


@jit.rawkernel()
def attract(x, force):
    tile = jit.shared_memory(np.float32, (3, TILE))
    n = x.shape[1]
    i = jit.grid(1)
    t = jit.threadIdx.x
    mine_x = x[0, i] if i < n else 0.0
    mine_y = x[1, i] if i < n else 0.0
    fx = 0.0
    fy = 0.0
    for start in range(0, n, TILE):
        for k in range(3):
            tile[k, t] = x[k, start + t] if start + t < n else 0.0
        jit.syncthreads()
        for j in range(TILE):
            dx = tile[0, j] - mine_x
            dy = tile[1, j] - mine_y
            d = dx * dx + dy * dy + 0.01
            w = tile[2, j] / (d * np.sqrt(d))
            fx += dx * w
            fy += dy * w
        jit.syncthreads()
    if i < n:
        force[0, i] = fx
        force[1, i] = fy


def compute(x, v, steps, h=0.01):
    """Places and masses (3, n), velocities (2, n); the places of each step."""
    force, path = cp.empty_like(v), []
    for _ in range(steps):
        attract[(x.shape[1] + TILE - 1) // TILE, TILE](x, force)
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
