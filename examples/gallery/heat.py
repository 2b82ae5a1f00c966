"""Heat that spreads through a plate whose border is kept at given temperatures."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save  # noqa: E402

spread = cp.ElementwiseKernel("raw T u", "T v", """
    const int rows = (int)u.shape()[0], columns = (int)u.shape()[1], r = (int)i / columns, c = (int)i % columns;
    if (r == 0 || c == 0 || r == rows - 1 || c == columns - 1) {
      v = u[i];
    } else {
      v = u[i] + (T)0.2 * (u[i - columns] + u[i + columns] + u[i - 1] + u[i + 1] - 4 * u[i]);
    }""", "spread")


def compute(u, steps):
    for _ in range(steps):
        u = spread(u, size=u.size).reshape(u.shape)
    return u


def by_numpy(u, steps):
    u = u.copy()
    for _ in range(steps):
        inner = u[1:-1, 1:-1]
        u[1:-1, 1:-1] = inner + np.float32(0.2) * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)
    return u


def main(size=128, folder=".", steps=200):
    u = np.zeros((size, size), dtype=np.float32)
    u[0], u[:, 0] = 1, np.linspace(1, 0, size)
    found = cp.asnumpy(compute(cp.asarray(u), steps))
    save(f"{folder}/heat.png", found)
    return float(abs(found - by_numpy(u, steps)).max())


if __name__ == "__main__":
    print("largest difference from NumPy's:", main())
