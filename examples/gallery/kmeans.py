"""Groups of points by k-means; the same text for NumPy."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save  # noqa: E402


def compute(points, centers, steps, xp=cp):
    for _ in range(steps):
        distance = ((points[:, None, :] - centers[None]) ** 2).sum(-1)
        group = distance.argmin(1)
        member = (group[:, None] == xp.arange(len(centers))).astype(points.dtype)
        centers = (member.T @ points) / xp.maximum(member.sum(0), 1)[:, None]
    return centers, group


def by_numpy(points, centers, steps):
    return compute(points, centers, steps, np)


def main(size=3000, folder=".", steps=10):
    random = np.random.default_rng(4)
    points = (random.normal(size=(size, 2)) * 0.5 + random.integers(-2, 3, size=(size, 2))).astype(np.float32)
    start = points[:8].copy()
    centers, group = (cp.asnumpy(r) for r in compute(cp.asarray(points), cp.asarray(start), steps))
    canvas = np.zeros((300, 300))
    at = np.clip(((points + 4) / 8 * 300).astype(int), 0, 299)
    canvas[at[:, 1], at[:, 0]] = group + 1
    save(f"{folder}/kmeans.png", canvas)
    return float(abs(centers - by_numpy(points, start, steps)[0]).max())


if __name__ == "__main__":
    print("largest difference from NumPy's centers:", main())
