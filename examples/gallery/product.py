"""A product of matrices through tiles in shared memory, in CUDA C++."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save  # noqa: E402

tiled = cp.RawKernel(r"""
#define TILE 16
extern "C" __global__ void tiled(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float left[TILE][TILE], right[TILE][TILE];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
  float sum = 0;
  for (int t = 0; t < k; t += TILE) {
    left[ty][tx] = row < m && t + tx < k ? a[row * k + t + tx] : 0.0f;
    right[ty][tx] = t + ty < k && col < n ? b[(t + ty) * n + col] : 0.0f;
    __syncthreads();
    for (int j = 0; j < TILE; ++j) sum += left[ty][j] * right[j][tx];
    __syncthreads();
  }
  if (row < m && col < n) c[row * n + col] = sum;
}""", "tiled")


def compute(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = cp.empty((m, n), dtype=cp.float32)
    tiled(((n + 15) // 16, (m + 15) // 16), (16, 16), (a, b, c, np.int32(m), np.int32(n), np.int32(k)))
    return c


def by_numpy(a, b):
    return a @ b


def main(size=200, folder="."):
    a, b = np.random.default_rng(3).normal(size=(2, size, size)).astype(np.float32)
    found = cp.asnumpy(compute(cp.asarray(a), cp.asarray(b)))
    save(f"{folder}/product.png", found)
    return float(abs(found - by_numpy(a, b)).max())


if __name__ == "__main__":
    print("largest difference from NumPy's:", main())
