"""Filters of a picture: a Gaussian blur, edges by Sobel, and a bilateral filter, which smooths and keeps edges, as a kernel of its own."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402
from cupyx.scipy import ndimage  # noqa: E402

from picture import save, scene  # noqa: E402

bilateral = cp.ElementwiseKernel("raw float32 x, int32 reach, float32 near, float32 alike", "float32 y", """
    const int rows = (int)x.shape()[0], columns = (int)x.shape()[1];
    const int r = (int)i / columns, c = (int)i % columns;
    const float here = x[r * columns + c];
    float sum = 0, weights = 0;
    for (int a = max(r - reach, 0); a <= min(r + reach, rows - 1); ++a) {
      for (int b = max(c - reach, 0); b <= min(c + reach, columns - 1); ++b) {
        const float there = x[a * columns + b], d = there - here;
        const float w = expf(-((a - r) * (a - r) + (b - c) * (b - c)) * near - d * d * alike);
        sum += w * there;
        weights += w;
      }
    }
    y = sum / weights;""", "bilateral")


def compute(x, reach=2):
    blurred = ndimage.gaussian_filter(x, 2.0)
    edges = cp.hypot(ndimage.sobel(x, 0), ndimage.sobel(x, 1))
    smooth = bilateral(x, reach, 1 / 4.5, 12.5, size=x.size).reshape(x.shape)
    return blurred, edges, smooth


def by_numpy(x, reach=2):
    """The bilateral filter, by shifted copies."""
    total, weights = np.zeros_like(x), np.zeros_like(x)
    padded = np.pad(x, reach, constant_values=np.nan)
    for a in range(2 * reach + 1):
        for b in range(2 * reach + 1):
            v = padded[a:a + x.shape[0], b:b + x.shape[1]]
            w = np.exp(-((a - reach) ** 2 + (b - reach) ** 2) / 4.5 - (v - x) ** 2 * 12.5)
            total += np.where(np.isnan(v), 0, v * w)
            weights += np.where(np.isnan(v), 0, w)
    return total / weights


def main(size=512, folder="."):
    x = scene(size, size)
    results = [cp.asnumpy(r) for r in compute(cp.asarray(x))]
    save(f"{folder}/filters.png", np.hstack([x, results[0], results[1] / results[1].max(), results[2]]), 0, 1)
    return float(abs(results[2] - by_numpy(x)).max())


if __name__ == "__main__":
    print("largest difference from NumPy's:", main())
