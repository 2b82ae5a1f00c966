"""Kernels from Python functions, under the names of cupyx.jit; they run on GPUs and on the CPU.

    >>> import arete
    >>> from arete.cupyx import jit
    >>> @jit.rawkernel()
    ... def double(x, y, size):
    ...     start = jit.blockIdx.x * jit.blockDim.x + jit.threadIdx.x
    ...     for i in range(start, size, jit.gridDim.x * jit.blockDim.x):
    ...         y[i] = x[i] * 2
    >>> x, y = arete.arange(4.0), arete.zeros(4)
    >>> double[2, 32](x, y, 4)
    >>> y
    tensor([0., 2., 4., 6.])

A function is translated once for each kind of its arguments. It may have numbers, elements of arrays (`x[i]`, `x[i, j]`), parts of
arrays by their first indices (`row = x[i]`), `x.shape[d]`, `x.size`, `x.ndim`, `len(x)`, if, while, for over range
(`jit.range(n, unroll=4)`) or a tuple of numbers, break, continue, conversions (`int(x)`, `numpy.float32(x)`), math's and NumPy's
functions, other functions, and the names here. Numbers and small arrays that it takes from elsewhere are part of it, as they are when
it is translated. Variables have one type, that of all that is assigned to them; Python's ints and floats are int and float, or int64
and float64 with rawkernel(mode="numpy")."""
from __future__ import annotations

from .._kernels._python import AXES, INTRINSICS, PythonKernel, warpsize

__all__ = ["rawkernel", "warpsize", *AXES, *INTRINSICS]

globals().update(AXES)
globals().update(INTRINSICS)


def rawkernel(*, mode: str = "cuda", device: bool = False):
    """Makes a kernel of a function; with `device` one that kernels call."""
    def decorate(function):
        return PythonKernel(function, mode=mode, device=device)

    return decorate
