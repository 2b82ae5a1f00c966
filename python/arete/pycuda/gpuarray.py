"""Arrays of a device: `arete.numpy`'s, under PyCUDA's names. Kernels take them, and `gpudata`, their memory."""
from __future__ import annotations

from .. import numpy as _np
from .._kernels._launch import on_stream as _on_stream
from . import driver as _driver

GPUArray = _np.ndarray


def _memory(a):
    """The memory of an array that is contiguous."""
    return _driver.DeviceAllocation(_driver._bytes_at(a, a.nbytes))


# Names that PyCUDA's arrays alone have; they are there for programs that use it.
GPUArray.gpudata = property(_memory)
GPUArray.mem_size = property(lambda a: a.size)


def to_gpu(ary, allocator=None):
    """A copy of an array on the device."""
    return _np.asarray(ary, device=_driver._device(), copy=True)


def empty(shape, dtype, allocator=None, order="C"):
    """A new array, not set."""
    return _np.empty(shape, dtype, order, device=_driver._device())


def zeros(shape, dtype=float, allocator=None, order="C"):
    """A new array of zeros."""
    return _np.zeros(shape, dtype, order, device=_driver._device())


def ones(shape, dtype=float, allocator=None, order="C"):
    """A new array of ones."""
    return _np.ones(shape, dtype, order, device=_driver._device())


def arange(*args, dtype=None, **options):
    """Numbers at equal steps; float32 for floating ones, unless a dtype is said."""
    r = _np.arange(*args, device=_driver._device())
    return r.astype(dtype if dtype is not None else "float32" if r.dtype.kind == "f" else r.dtype)


empty_like, zeros_like, ones_like, reshape, concatenate, stack = (
    _np.empty_like, _np.zeros_like, _np.ones_like, _np.reshape, _np.concatenate, _np.stack)
maximum, minimum, transpose = _np.maximum, _np.minimum, _np.transpose


def take(a, indices, out=None, stream=None):
    """The elements at places of the flat array."""
    with _on_stream(stream):
        return _np.take(a, indices, out=out)


def if_positive(criterion, then_, else_, out=None, stream=None):
    """Elements of then_ where the criterion is above zero, else of else_."""
    with _on_stream(stream):
        result = _np.where(criterion > 0, then_, else_)
        if out is None:
            return result
        out[...] = result
        return out


def sum(a, dtype=None, stream=None, allocator=None):  # noqa: A001
    """The sum of all elements."""
    with _on_stream(stream):
        return _np.sum(a, dtype=dtype)


def dot(a, b, dtype=None, stream=None, allocator=None):
    """The sum of all products."""
    with _on_stream(stream):
        a, b = (v.ravel() if dtype is None else v.ravel().astype(dtype) for v in (a, b))
        return _np.dot(a, b)


def subset_dot(subset, a, b, dtype=None, stream=None, allocator=None):
    """The sum of the products at these places."""
    with _on_stream(stream):
        return dot(take(a, subset), take(b, subset), dtype)


def max(a, stream=None, allocator=None):  # noqa: A001
    """The greatest element."""
    with _on_stream(stream):
        return _np.max(a)


def min(a, stream=None, allocator=None):  # noqa: A001
    """The least element."""
    with _on_stream(stream):
        return _np.min(a)
