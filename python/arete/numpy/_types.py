"""Dtypes and constants, where arrays are made, and how arguments are read."""
from __future__ import annotations

import builtins as _b
import math as _math

from .. import _C
from .._C import Tensor as ndarray

__all__ = [
    "ndarray", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool_", "complex64",
    "complex128", "bfloat16", "float_", "int_", "intp", "pi", "e", "inf", "nan", "newaxis", "set_device", "get_device",
]

float16, float32, float64 = _C.float16, _C.float32, _C.float64
int8, int16, int32, int64, uint8 = _C.int8, _C.int16, _C.int32, _C.int64, _C.uint8
bool_, complex64, complex128, bfloat16 = _C.bool, _C.complex64, _C.complex128, _C.bfloat16
float_, int_, intp = float64, int64, int64
pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None

_device = _C.device("cpu")


def set_device(device) -> None:
    """Where arrays are made from now on."""
    global _device
    _device = _C.device(device)


def get_device():
    """Where arrays are made."""
    return _device


def as_dtype(dtype):
    """arete's dtype for a dtype, a Python type, a NumPy dtype or its name."""
    if dtype is None or isinstance(dtype, _C.dtype):
        return dtype
    known = {_b.float: float64, _b.int: int64, _b.bool: bool_, _b.complex: complex128}
    if dtype in known:
        return known[dtype]
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or getattr(dtype, "name", str(dtype))
    name = {"bool_": "bool", "f4": "float32", "f8": "float64", "i4": "int32", "i8": "int64", "f2": "float16",
            "float": "float64", "int": "int64", "f": "float32", "d": "float64", "i": "int32"}.get(name, name)
    found = getattr(_C, name, None)
    if not isinstance(found, _C.dtype):
        raise TypeError(f"data type {dtype!r} not understood")
    return found


def options(dtype, otherwise=None) -> dict:
    """The dtype (or `otherwise` where None is given) and the device of a new array, as keywords."""
    return {"dtype": as_dtype(dtype) or otherwise, "device": _device}


def as_shape(shape):
    """Sizes as a tuple."""
    return (shape,) if isinstance(shape, _b.int) else tuple(shape)


def axes_of(a, axis):
    """Axes as a tuple: all of them for None."""
    return tuple(range(a.dim())) if axis is None else (axis,) if isinstance(axis, _b.int) else tuple(axis)
