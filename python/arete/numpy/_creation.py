"""New arrays."""
from __future__ import annotations

import builtins as _b

from .. import _operators as _t
from ._types import as_dtype, as_shape, float64, int64, ndarray, options

__all__ = [
    "array", "asarray", "ascontiguousarray", "asanyarray", "copy", "empty", "zeros", "ones", "full", "empty_like",
    "zeros_like", "ones_like", "full_like", "arange", "linspace", "logspace", "eye", "identity", "meshgrid"
]


def array(object, dtype=None, copy=True, ndmin=0):
    """A new array of numbers, lists or arrays; floating numbers become float64."""
    dtype = as_dtype(dtype)
    if isinstance(object, ndarray):
        a = object.to(dtype or object.dtype, copy=copy)
    else:
        if dtype is None and not hasattr(object, "dtype"):
            probe = _t.tensor(object)
            dtype = float64 if probe.is_floating_point() else probe.dtype
            # Read again, so that no digit is lost on the way.
        a = _t.tensor(object, **options(dtype))
    while a.dim() < ndmin:
        a = a.unsqueeze(0)
    return a


def asarray(a, dtype=None):
    """`a` itself if it is an array of that dtype."""
    if isinstance(a, ndarray):
        return a if dtype is None else a.to(as_dtype(dtype))
    return array(a, dtype)


asanyarray = asarray


def ascontiguousarray(a, dtype=None):
    """`a` itself if it is row-major and of that dtype."""
    return asarray(a, dtype).contiguous()


def copy(a):
    return asarray(a).clone()


def empty(shape, dtype=float64):
    return _t.empty(as_shape(shape), **options(dtype))


def zeros(shape, dtype=float64):
    return _t.zeros(as_shape(shape), **options(dtype))


def ones(shape, dtype=float64):
    return _t.ones(as_shape(shape), **options(dtype))


def full(shape, fill_value, dtype=None):
    dtype = as_dtype(dtype) or (float64 if isinstance(fill_value, _b.float) else None)
    return _t.full(as_shape(shape), fill_value, **options(dtype))


def empty_like(a, dtype=None):
    return _t.empty_like(a, dtype=as_dtype(dtype))


def zeros_like(a, dtype=None):
    return _t.zeros_like(a, dtype=as_dtype(dtype))


def ones_like(a, dtype=None):
    return _t.ones_like(a, dtype=as_dtype(dtype))


def full_like(a, fill_value, dtype=None):
    return _t.full_like(a, fill_value, dtype=as_dtype(dtype))


def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, ... below stop; int64 for integers, else float64."""
    if stop is None:
        start, stop = 0, start
    dtype = as_dtype(dtype) or (int64 if _b.all(isinstance(v, _b.int) for v in (start, stop, step)) else float64)
    return _t.arange(start, stop, step, **options(dtype))


def linspace(start, stop, num=50, endpoint=True, dtype=None):
    if not endpoint:
        return _t.linspace(start, stop, num + 1, **options(dtype, float64))[:-1]
    return _t.linspace(start, stop, num, **options(dtype, float64))


def logspace(start, stop, num=50, base=10.0, dtype=None):
    return _t.logspace(start, stop, num, base, **options(dtype, float64))


def eye(N, M=None, dtype=float64):
    return _t.eye(N, M if M is not None else N, **options(dtype))


def identity(n, dtype=float64):
    return eye(n, dtype=dtype)


def meshgrid(*xi, indexing="xy"):
    return list(_t.meshgrid(*xi, indexing=indexing))


def array_of(x):
    """x itself if it is an array."""
    return x if isinstance(x, ndarray) else array(x)
