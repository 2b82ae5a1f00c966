"""numpy.random over arete's generator; float64 unless a dtype is given."""
from __future__ import annotations

import builtins as _b
import math as _math

from .. import _C, _operators as _t
from ._creation import arange
from ._types import as_shape, float64, get_device, int64, options


def seed(seed=None):
    _C.manual_seed(0 if seed is None else seed)


def _size(size):
    return () if size is None else as_shape(size)


def rand(*size, dtype=float64):
    return _t.rand(size, **options(dtype))


def randn(*size, dtype=float64):
    return _t.randn(size, **options(dtype))


def random(size=None, dtype=float64):
    return _t.rand(_size(size), **options(dtype))


random_sample = random


def uniform(low=0.0, high=1.0, size=None, dtype=float64):
    return random(size, dtype) * (high - low) + low


def normal(loc=0.0, scale=1.0, size=None, dtype=float64):
    return _t.randn(_size(size), **options(dtype)) * scale + loc


def standard_normal(size=None, dtype=float64):
    return normal(0.0, 1.0, size, dtype)


def randint(low, high=None, size=None, dtype=int64):
    low, high = (0, low) if high is None else (low, high)
    return _t.randint(low, high, _size(size), **options(dtype))


def permutation(x):
    if isinstance(x, _b.int):
        return _t.randperm(x, device=get_device())
    return x[_t.randperm(x.shape[0], device=x.device)]


def choice(a, size=None, replace=True, p=None):
    a = arange(a) if isinstance(a, _b.int) else a
    n, k = a.shape[0], _math.prod(_size(size))
    if p is not None:
        places = _t.multinomial(p, k, replace)
    elif replace:
        places = _t.randint(0, n, (k,), device=a.device)
    else:
        if k > n:
            raise ValueError("Cannot take a larger sample than population when replace is False")
        places = _t.randperm(n, device=a.device)[:k]
    return a[places].reshape(_size(size))
