"""Sorting, searching, counting, and elements by their indices."""
from __future__ import annotations

from .. import _operators as _t
from .._operators import _ops
from ._creation import array_of
from ._reductions import floating

__all__ = [
    "nonzero", "argwhere", "sort", "argsort", "unique", "searchsorted", "bincount", "take", "histogram",
]


def nonzero(a):
    return _t.nonzero(a, as_tuple=True)


def argwhere(a):
    return _ops.nonzero(a)


def sort(a, axis=-1):
    return a.sort(axis).values


def argsort(a, axis=-1):
    return _t.argsort(a, axis)


def unique(a):
    return _t.unique(a)


def searchsorted(a, v, side="left"):
    return _t.searchsorted(a, array_of(v), right=side == "right")


def bincount(x, weights=None, minlength=0):
    return _t.bincount(x, weights, minlength)


def take(a, indices, axis=None):
    indices = array_of(indices).long()
    if axis is None:
        return a.reshape(-1)[indices]
    r = _t.index_select(a, axis, indices.reshape(-1))
    return r.reshape(a.shape[:axis] + indices.shape + a.shape[axis + 1:]) if indices.dim() != 1 else r


def histogram(a, bins=10, range=None):  # noqa: A002
    """Counts in bins of equal width (int64) and the edges."""
    a = floating(a).reshape(-1)
    low, high = range if range is not None else ((a.min().item(), a.max().item()) if a.numel() else (0.0, 1.0))
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = _t.linspace(low, high, bins + 1, dtype=a.dtype, device=a.device)
    inside = a[(a >= low) & (a <= high)]
    place = _t.clamp(((inside - low) * (bins / (high - low))).floor().long(), 0, bins - 1)
    return _t.bincount(place, None, bins), edges
