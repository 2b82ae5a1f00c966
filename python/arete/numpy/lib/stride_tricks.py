"""numpy.lib.stride_tricks: views of the same memory with strides of one's own."""
from __future__ import annotations

from ..._C import Tensor
from .._array import Reversed, axes_of, moved, shared, sizes_of, tensor_of, wrap
from .._shapes import broadcast_arrays, broadcast_shapes, broadcast_to

__all__ = ["as_strided", "sliding_window_view", "broadcast_arrays", "broadcast_shapes", "broadcast_to"]


def as_strided(x, shape=None, strides=None, subok=False, writeable=True):
    """A view with these sizes and strides in bytes, which may not be negative or leave the memory."""
    if isinstance(x, Reversed):
        raise ValueError("as_strided(): an array with a negative step has no strides of its own; pass x.copy()")
    t: Tensor = tensor_of(x)
    size = t.element_size()
    strides = [s * size for s in t.stride()] if strides is None else list(strides)
    if any(s % size or s < 0 for s in strides):
        raise ValueError("strides must be multiples of the element's size from 0 on")
    r = shared(x, t.as_strided(t.shape if shape is None else sizes_of(shape), [s // size for s in strides], t.storage_offset()))
    if not writeable:
        r.flags.writeable = False
    return r


def sliding_window_view(x, window_shape, axis=None, *, subok=False, writeable=False):
    """All windows of a size, in new axes at the end, as a view that is not written unless `writeable` says so."""
    t: Tensor = tensor_of(x)
    window = sizes_of(window_shape)
    if any(w < 0 for w in window):
        raise ValueError("`window_shape` cannot contain negative values")
    if axis is None:
        if len(window) != t.dim():
            raise ValueError(f"Since axis is None, must provide window_shape for all dimensions of `x`; got {len(window)} window_shape "
                             f"elements and `x.ndim` is {t.dim()}.")
        axes = tuple(range(t.dim()))
    else:
        axes = tuple(axes_of(a, t.dim())[0] for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
        if len(axes) != len(window):
            raise ValueError("Must provide matching length window_shape and axis")

    def windows(t):
        for a, w in zip(axes, window):
            if w > t.shape[a]:
                raise ValueError("window shape cannot be larger than input array shape")
            t = t.unfold(a, w, 1)
        return t

    if writeable:
        return moved(x, windows)
    r = wrap(windows(t))
    r.flags.writeable = False
    return r
