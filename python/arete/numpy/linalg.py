"""numpy.linalg: arete.linalg, and norm with NumPy's arguments."""
from __future__ import annotations

from .. import _operators as _t, linalg as _linalg
from ._types import axes_of as _axes_of


def norm(x, ord=None, axis=None, keepdims=False):
    return _t.norm(x, 2.0 if ord is None else ord, None if axis is None else _axes_of(x, axis), keepdims)


def __getattr__(name):
    return getattr(_linalg, name)
