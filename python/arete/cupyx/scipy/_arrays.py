"""Arrays and tensors alike: what came in is given back."""
from __future__ import annotations

from ... import _C, numpy as _np
from ..._C import Tensor
from ...numpy._types import PROMOTED_NATIVE


def tensor(a, dtype=None):
    """The tensor of an array, a tensor, or what arete.numpy makes an array of."""
    t = a if isinstance(a, Tensor) else _np.asarray(a)._tensor
    return t if dtype is None or t.dtype is dtype else t.to(dtype)


def together(x, y):
    """Two tensors in their common dtype, on the first one's device."""
    dtype = PROMOTED_NATIVE[x.dtype, y.dtype]
    return x.to(dtype), y.to(x.device, dtype)


def like(a, t):
    """A tensor as `a` is: a tensor, else an array; where there is no `a`, one where arrays are made."""
    return t if isinstance(a, Tensor) else _np.ndarray(t if a is not None else t.to(_np.get_device()))


def floating(t):
    """In float64 where it is of integers."""
    return t if t.dtype.is_floating_point or t.dtype.is_complex else t.to(_C.float64)


def dtype_given(a, output):
    """The dtype of `a`, that which `output` names, or that of the array `output`."""
    if output is None or isinstance(output, (_np.ndarray, Tensor)):
        return tensor(a if output is None else output).dtype
    return output if isinstance(output, _C.dtype) else _np.empty(0, dtype=output)._tensor.dtype


def given(a, t, output):
    """The result in the dtype that `a` and `output` give, or in the array `output`; complex ones stay complex, as with SciPy."""
    if isinstance(output, (_np.ndarray, Tensor)):
        if t.dtype.is_complex and not tensor(output).dtype.is_complex:
            raise RuntimeError("output must have complex dtype")
        output[...] = like(output, t)
        return output
    dtype = dtype_given(a, output)
    if t.dtype.is_complex:
        dtype = PROMOTED_NATIVE[dtype, _C.complex64]
    return like(a, t if t.dtype is dtype else t.to(dtype))


def each(values, count, name):
    """One value for each dimension."""
    if not hasattr(values, "__len__"):
        return [values] * count
    if len(values) != count:
        raise RuntimeError(f"{name} must have one entry for each of {count} dimensions, not {len(values)}")
    return list(values)
