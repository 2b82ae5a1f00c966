"""Sums, extremes, statistics and running sums."""
from __future__ import annotations

from .. import _operators as _t
from .._operators import _ops
from ._types import as_dtype, axes_of, float64

__all__ = [
    "sum", "mean", "var", "std", "prod", "max", "min", "amax", "amin", "argmax", "argmin", "any", "all", "cumsum",
    "cumprod", "count_nonzero", "median",
]


def sum(a, axis=None, dtype=None, out=None, keepdims=False):  # noqa: A001
    r = _t.sum(a, None if axis is None else axes_of(a, axis), keepdims, dtype=as_dtype(dtype))
    return out.copy_(r) if out is not None else r


def mean(a, axis=None, dtype=None, out=None, keepdims=False):
    dtype = as_dtype(dtype) or (a.dtype if a.is_floating_point() else float64)
    r = _t.mean(a, None if axis is None else axes_of(a, axis), keepdims, dtype=dtype)
    return out.copy_(r) if out is not None else r


def floating(a):
    return a if a.is_floating_point() else a.to(float64)


def var(a, axis=None, ddof=0, keepdims=False):
    return _t.var(floating(a), None if axis is None else axes_of(a, axis), correction=ddof, keepdim=keepdims)


def std(a, axis=None, ddof=0, keepdims=False):
    return _t.std(floating(a), None if axis is None else axes_of(a, axis), correction=ddof, keepdim=keepdims)


def prod(a, axis=None, dtype=None, keepdims=False):
    a = a if dtype is None else a.to(as_dtype(dtype))
    return _ops.prod(a) if axis is None else _ops.prod(a, axis, keepdims)


def max(a, axis=None, out=None, keepdims=False):  # noqa: A001
    r = _ops.amax(a, None if axis is None else axes_of(a, axis), keepdims)
    return out.copy_(r) if out is not None else r


def min(a, axis=None, out=None, keepdims=False):  # noqa: A001
    r = _ops.amin(a, None if axis is None else axes_of(a, axis), keepdims)
    return out.copy_(r) if out is not None else r


amax, amin = max, min


def argmax(a, axis=None):
    return _ops.argmax(a, axis)


def argmin(a, axis=None):
    return _ops.argmin(a, axis)


def any(a, axis=None, keepdims=False):  # noqa: A001
    return _t.any(a, None if axis is None else axes_of(a, axis), keepdims)


def all(a, axis=None, keepdims=False):  # noqa: A001
    return _t.all(a, None if axis is None else axes_of(a, axis), keepdims)


def cumsum(a, axis=None):
    return _t.cumsum(a.reshape(-1) if axis is None else a, 0 if axis is None else axis)


def cumprod(a, axis=None):
    return _t.cumprod(a.reshape(-1) if axis is None else a, 0 if axis is None else axis)


def count_nonzero(a, axis=None):
    return _t.count_nonzero(a, None if axis is None else axes_of(a, axis))


def median(a, axis=None):
    """The middle value; of an even number the mean of the two in the middle."""
    a = floating(a)
    a, axis = (a.reshape(-1), 0) if axis is None else (a, axis)
    s, n = a.sort(axis).values, a.shape[axis]
    return (s.select(axis, (n - 1) // 2) + s.select(axis, n // 2)) / 2
