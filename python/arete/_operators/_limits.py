"""Limits of dtypes."""
from __future__ import annotations

from .. import _C


class finfo:
    """Limits of a floating dtype: eps, max, min, tiny, bits.

    >>> arete.finfo(arete.float32).max, arete.finfo().eps
    (3.4028234663852886e+38, 1.1920928955078125e-07)
    >>> arete.finfo(arete.int32)
    Traceback (most recent call last):
    TypeError: torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'arete.int32'
    """

    def __init__(self, type=None):  # noqa: A002
        type = _C.get_default_dtype() if type is None else type
        if not type.is_floating_point and not type.is_complex:
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type}'")
        type = type.to_real()
        self.dtype = type._name
        self.bits = 8 * type.itemsize
        self.eps, self.max, self.min = type._eps, type._max, type._min
        self.tiny = self.smallest_normal = {
            "float16": 2.0**-14, "float64": 2.0**-1022, "float8_e4m3fn": 2.0**-6, "float8_e5m2": 2.0**-14,
        }.get(type._name, 2.0**-126)
        self.resolution = {"float64": 1e-15, "float32": 1e-6, "float16": 1e-3, "bfloat16": 1e-2}.get(type._name, 1.0)

    def __repr__(self):
        return f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, " \
               f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})"


class iinfo:
    """Limits of an integer dtype: max, min, bits.

    >>> arete.iinfo(arete.int8).min, arete.iinfo(arete.int8).max
    (-128, 127)
    >>> arete.iinfo(arete.float32)
    Traceback (most recent call last):
    TypeError: torch.iinfo() requires an integer input type. Use torch.finfo to handle 'arete.float32'
    """

    def __init__(self, type):  # noqa: A002
        if type.is_floating_point or type.is_complex or type is _C.bool:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type}'")
        self.dtype = type._name
        self.bits = 8 * type.itemsize
        self.max = 2 ** (self.bits - (1 if type.is_signed else 0)) - 1
        self.min = -(2 ** (self.bits - 1)) if type.is_signed else 0

    def __repr__(self):
        return f"iinfo(min={self.min}, max={self.max}, dtype={self.dtype})"


finfo.__module__ = iinfo.__module__ = "arete"  # where they are found, by pickles too
