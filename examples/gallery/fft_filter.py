"""A picture without its fine detail: the middle of its spectrum."""
import arete.cupy

arete.cupy.install()

import cupy as cp  # noqa: E402
import numpy as np  # noqa: E402

from picture import save, scene  # noqa: E402


def compute(x, keep=0.1, xp=cp):
    spectrum = xp.fft.rfft2(x)
    rows, columns = xp.fft.fftfreq(x.shape[0]), xp.fft.rfftfreq(x.shape[1])
    return xp.fft.irfft2(spectrum * (rows[:, None] ** 2 + columns**2 < keep**2), x.shape)


def by_numpy(x, keep=0.1):
    return compute(x, keep, np)


def main(size=256, folder="."):
    x = scene(size, size)
    found = cp.asnumpy(compute(cp.asarray(x)))
    save(f"{folder}/fft_filter.png", np.hstack([x, found]), 0, 1)
    return float(abs(found - by_numpy(x)).max())


if __name__ == "__main__":
    print("largest difference from NumPy's:", main())
