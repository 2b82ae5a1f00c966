"""The Mandelbrot set, a loop for each pixel."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save  # noqa: E402

escape = cp.ElementwiseKernel("float32 re, float32 im, int32 most", "int32 steps", """
    float x = 0, y = 0;
    int k = 0;
    while (k < most && x * x + y * y < 4) {
      const float t = x * x - y * y + re;
      y = 2 * x * y + im;
      x = t;
      ++k;
    }
    steps = k;""", "escape")


def compute(re, im, most=100):
    return escape(re, im[:, None], most)


def by_numpy(re, im, most=100):
    c = re + 1j * im[:, None]
    z, steps = np.zeros_like(c), np.zeros(c.shape, dtype=np.int32)
    for _ in range(most):
        inside = abs(z) < 2
        z = np.where(inside, z * z + c, z)
        steps += inside
    return steps


def main(size=400, folder="."):
    re, im = np.linspace(-2.2, 0.8, size, dtype=np.float32), np.linspace(-1.5, 1.5, size, dtype=np.float32)
    steps = cp.asnumpy(compute(cp.asarray(re), cp.asarray(im)))
    save(f"{folder}/mandelbrot.png", np.log1p(steps))
    return float((steps != by_numpy(re, im)).mean())  # rounding moves pixels at the border


if __name__ == "__main__":
    print("share of pixels that differ from NumPy's:", main())
