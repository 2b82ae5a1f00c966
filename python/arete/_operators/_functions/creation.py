"""Tensors from data, and copies."""
from __future__ import annotations

import math
import warnings

from ... import _C
from .. import _ops
from ..._C import Tensor
from .._tensor import from_cuda_array_interface, from_dlpack, from_numpy
from ._methods import METHODS, given, numpy_names


def as_tensor(data, dtype=None, device=None):
    """`data` itself if it is a fitting tensor, a tensor over its memory if it is a fitting array, else a copy.

    >>> x = arete.ones(2)
    >>> arete.as_tensor(x) is x
    True
    >>> arete.as_tensor([1, 2], dtype=arete.float32)
    tensor([1., 2.])
    """
    device = _C._default_device() if device is None else device
    if isinstance(data, Tensor):
        return data if device is None and dtype is None else data.to(device or data.device, dtype or data.dtype)
    if _C._is_numpy_array(data) and (dtype is None or data.dtype.name == dtype._name):
        return from_numpy(data).to(device or "cpu")
    if hasattr(data, "__cuda_array_interface__"):
        # DLPack says which GPU.
        t = from_dlpack(data) if hasattr(data, "__dlpack__") else from_cuda_array_interface(data)
        return t.to(device or t.device, dtype or t.dtype)
    return _C.tensor(data, dtype=dtype, device=device)


def asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False):
    """As as_tensor; also takes objects with DLPack. `copy` True asks for a copy.

    >>> arete.asarray([1.0, 2.0], requires_grad=True)
    tensor([1., 2.], requires_grad=True)
    """
    if isinstance(obj, Tensor) or not hasattr(obj, "__dlpack__") or type(obj).__module__ == "numpy":
        t = as_tensor(obj, dtype, device)
    else:
        t = from_dlpack(obj)
        t = t.to(device or t.device, dtype or t.dtype)
    t = t.clone() if copy else t
    if t.requires_grad == requires_grad:
        return t
    return t.requires_grad_() if requires_grad else t.detach()


def _new_tensor(self, data, *, dtype=None, device=None, requires_grad=False):
    """A tensor of `data` with this one's dtype and device.

    >>> arete.ones(1, dtype=arete.float64).new_tensor([1, 2])
    tensor([1., 2.], dtype=arete.float64)
    """
    return _C.tensor(data, dtype=dtype or self.dtype, device=device or self.device, requires_grad=requires_grad)


METHODS["new_tensor"] = _new_tensor


def zero_(input: Tensor):
    """Sets all elements to zero.

    >>> arete.zero_(arete.tensor([1, 2]))
    tensor([0, 0])
    """
    return input.zero_()


@numpy_names
def detach(input: Tensor):
    """The same memory without history.

    >>> arete.detach(arete.ones(2, requires_grad=True)).requires_grad
    False
    """
    return input.detach()


@numpy_names
def clone(input: Tensor, *, memory_format=None):
    """A copy, with history.

    >>> x = arete.tensor([1, 2])
    >>> y = arete.clone(x).add_(1)
    >>> x, y
    (tensor([1, 2]), tensor([2, 3]))
    """
    return input.clone(memory_format=memory_format)


def range(start, end, step=1, *, out=None, dtype=None, layout=None, device=None, pin_memory=None,  # noqa: A001
          requires_grad=False):
    """start, start + step, ... up to end, which is among them where a step meets it. arange() has taken its place.

    >>> arete.range(1, 2, 0.5)
    tensor([1.0000, 1.5000, 2.0000])
    >>> arete.range(2, 1)
    Traceback (most recent call last):
    arete.ArgumentError: upper bound and lower bound inconsistent with step sign
    """
    warnings.warn("torch.range is deprecated and will be removed in a future release because its behavior is "
                  "inconsistent with Python's range builtin. Instead, use torch.arange, which produces values in "
                  "[start, end).", UserWarning, stacklevel=2)
    if dtype is None:
        dtype = _C.get_default_dtype() if out is None else out.dtype
    if dtype.is_complex or dtype is _C.bool:
        raise _C.DTypeError(f"range() is not implemented for {dtype}")
    start, end, step = ((x.item() if isinstance(x, Tensor) else x) for x in (start, end, step))
    whole = not dtype.is_floating_point
    if not (math.isfinite(start) and math.isfinite(end)):
        raise _C.ArgumentError(f"unsupported range: {start} -> {end}")
    if whole:
        start, end, step = int(start), int(end), int(step)
    if not (step > 0 or step < 0):
        raise _C.ArgumentError("step must be nonzero")
    if end < start if step > 0 else end > start:
        raise _C.ArgumentError("upper bound and lower bound inconsistent with step sign")
    count = (end - start) // step + 1 if whole else int((end - start) / step + 1)
    if out is not None and device is None:
        device = out.device
    result = _ops.empty((count,), dtype=dtype, layout=layout, device=device, pin_memory=bool(pin_memory))
    steps = _ops.arange(count, dtype=_C.int64 if whole else _C.float64, device=result.device)
    result.copy_(steps * step + start)
    if out is not None:
        result = given(out, result.view(out.shape) if out.numel() == count else result)
    return result.requires_grad_() if requires_grad else result
