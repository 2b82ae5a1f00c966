"""Other shapes and places of the same elements."""
from __future__ import annotations

import builtins as _b

from .. import _operators as _t
from .._operators import _ops
from ._creation import ones
from ._types import as_shape, axes_of, float64

__all__ = [
    "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "broadcast_to", "concatenate",
    "stack", "vstack", "hstack", "split", "array_split", "tile", "repeat", "flip", "roll", "pad", "tri", "tril", "triu",
    "diag",
]


def reshape(a, shape):
    return a.reshape(as_shape(shape))


def ravel(a):
    return a.reshape(-1)


def transpose(a, axes=None):
    return a.permute(tuple(reversed(range(a.dim()))) if axes is None else tuple(axes))


def swapaxes(a, axis1, axis2):
    return a.transpose(axis1, axis2)


def moveaxis(a, source, destination):
    return _t.movedim(a, source, destination)


def expand_dims(a, axis):
    return a.unsqueeze(axis)


def squeeze(a, axis=None):
    return a.squeeze() if axis is None else a.squeeze(axis)


def broadcast_to(a, shape):
    return a.expand(as_shape(shape))


def concatenate(arrays, axis=0):
    return _t.cat([x.reshape(-1) for x in arrays], 0) if axis is None else _t.cat(list(arrays), axis)


def stack(arrays, axis=0):
    return _t.stack(list(arrays), axis)


def vstack(arrays):
    return _t.vstack(list(arrays))


def hstack(arrays):
    return _t.hstack(list(arrays))


def split(a, indices_or_sections, axis=0):
    if isinstance(indices_or_sections, _b.int) and a.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return list(_t.tensor_split(a, indices_or_sections, axis))


def array_split(a, indices_or_sections, axis=0):
    return list(_t.tensor_split(a, indices_or_sections, axis))


def tile(a, reps):
    return a.tile(as_shape(reps))


def repeat(a, repeats, axis=None):
    return _t.repeat_interleave(a, repeats, axis)


def flip(a, axis=None):
    return a.flip(tuple(range(a.dim())) if axis is None else axes_of(a, axis))


def roll(a, shift, axis=None):
    if axis is None:
        return a.reshape(-1).roll((shift,), (0,)).reshape(a.shape)
    return a.roll(as_shape(shift), as_shape(axis))


def pad(a, pad_width, mode="constant", constant_values=0):
    """Adds a border; pad_width is a number, (before, after) or one pair for each axis."""
    if isinstance(pad_width, _b.int):
        pad_width = [(pad_width, pad_width)] * a.dim()
    elif isinstance(pad_width[0], _b.int):
        pad_width = [tuple(pad_width)] * a.dim()
    if mode != "constant":
        raise NotImplementedError(f"pad(): mode {mode!r}")
    flat = [v for pair in reversed(list(pad_width)) for v in pair]
    return _ops.constant_pad_nd(a, flat, constant_values)


def tri(N, M=None, k=0, dtype=float64):
    return tril(ones((N, M or N), dtype), k)


def tril(m, k=0):
    return _t.tril(m, k)


def triu(m, k=0):
    return _t.triu(m, k)


def diag(v, k=0):
    return _t.diag(v, k) if hasattr(_t, "diag") else v.diagonal(k)
