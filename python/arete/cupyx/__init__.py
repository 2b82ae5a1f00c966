"""What CuPy has under cupyx: scattered updates, kernels from Python functions, SciPy's functions."""
from __future__ import annotations

import math
import operator

from .. import _operators as _t, numpy as _np
from ..cupy.cuda import alloc_pinned_memory
from . import jit, profiler, scipy

__all__ = ["empty_like_pinned", "empty_pinned", "jit", "profiler", "rsqrt", "scatter_add", "scatter_max", "scatter_min", "scipy",
           "zeros_like_pinned", "zeros_pinned"]


def _scattered(name, reduce):
    def function(a, slices, value):
        target, values = a._tensor, _np.asarray(value)._tensor
        index = slices if isinstance(slices, tuple) else (slices,)
        # Where each element of a[slices] lies in a: an index of any kind is one of positions.
        positions = _t.arange(target.numel(), device=target.device).reshape(target.shape)[
            tuple(i._tensor if isinstance(i, _np.ndarray) else i for i in index)]
        values = _t.broadcast_to(values.to(target.dtype), positions.shape).reshape(-1)
        flat = target.reshape(-1)
        if reduce == "sum":
            result = flat.index_add(0, positions.reshape(-1), values)
        else:
            result = flat.scatter_reduce(0, positions.reshape(-1), values, reduce)
        a[...] = _np.ndarray(result.reshape(target.shape))

    function.__name__ = name
    function.__doc__ = f"a[slices] with `value` taken in by {name[8:]}, where a place may be named several times."
    return function


scatter_add, scatter_max = _scattered("scatter_add", "sum"), _scattered("scatter_max", "amax")
scatter_min = _scattered("scatter_min", "amin")


def rsqrt(x):
    """1 / sqrt(x)."""
    return _np.ndarray(_t.rsqrt(_np.asarray(x)._tensor))


def empty_pinned(shape, dtype=float, order="C"):
    """An array of NumPy in page-locked memory, whose elements are not set."""
    import numpy

    shape, dtype = tuple(shape) if hasattr(shape, "__iter__") else (operator.index(shape),), numpy.dtype(dtype)
    count = math.prod(shape)
    return numpy.frombuffer(alloc_pinned_memory(max(count * dtype.itemsize, 1)), dtype, count).reshape(shape, order=order)


def zeros_pinned(shape, dtype=float, order="C"):
    """The same of zeros."""
    a = empty_pinned(shape, dtype, order)
    a[...] = 0
    return a


def empty_like_pinned(a, dtype=None, order="K", subok=None, shape=None):
    """One like `a`, in Fortran's order for "F", and for "K" and "A" if `a` lies so."""
    if subok is not None:
        raise TypeError("subok is not there")
    if order in ("K", "A"):
        order = "F" if a.flags.f_contiguous and not a.flags.c_contiguous else "C"
    return empty_pinned(a.shape if shape is None else shape, a.dtype if dtype is None else dtype, order)


def zeros_like_pinned(a, dtype=None, order="K", subok=None, shape=None):
    """The same of zeros."""
    made = empty_like_pinned(a, dtype, order, subok, shape)
    made[...] = 0
    return made
