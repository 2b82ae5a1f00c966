"""Functions of elements: of one array, of two, and choices between them."""
from __future__ import annotations

import builtins as _b

from .. import _operators as _t
from ._creation import array, array_of
from ._searching import nonzero
from ._types import float64, ndarray

# NumPy's names and arete's operators of one array.
_UNARY = {
    "abs": "abs", "absolute": "abs", "fabs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "round", "sqrt": "sqrt", "square": "square", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "negative": "neg",
    "positive": "clone", "reciprocal": "reciprocal", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
    "signbit": "signbit", "logical_not": "logical_not", "bitwise_not": "bitwise_not", "invert": "bitwise_not",
    "deg2rad": "deg2rad", "radians": "deg2rad", "rad2deg": "rad2deg", "degrees": "rad2deg", "sinc": "sinc",
}

# Of two arrays.
_BINARY = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floor_divide", "mod": "remainder", "remainder": "remainder", "fmod": "fmod", "power": "pow",
    "arctan2": "atan2", "hypot": "hypot", "copysign": "copysign", "nextafter": "nextafter", "logaddexp": "logaddexp",
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
}

__all__ = [
    *_UNARY, *_BINARY,
    "maximum", "minimum", "clip", "where", "round", "around", "isclose", "allclose", "array_equal",
]


def _unary(name, target):
    operator = getattr(_t, target)

    def function(x, out=None):
        r = operator(array_of(x))
        return out.copy_(r) if out is not None else r

    function.__name__ = name
    return function


def _binary(name, target):
    operator = getattr(_t, target)

    def function(x1, x2, out=None):
        if not isinstance(x1, ndarray) and not isinstance(x2, ndarray):
            x1 = array(x1)
        if not isinstance(x1, (ndarray, _b.int, _b.float)):
            x1 = array(x1)
        if not isinstance(x2, (ndarray, _b.int, _b.float)):
            x2 = array(x2)
        if not isinstance(x1, ndarray):
            x1 = _t.full((), x1, dtype=x2.dtype if isinstance(x1, _b.int) or x2.is_floating_point() else float64,
                         device=x2.device)
        r = operator(x1, x2)
        return out.copy_(r) if out is not None else r

    function.__name__ = name
    return function


globals().update({name: _unary(name, target) for name, target in _UNARY.items()})
globals().update({name: _binary(name, target) for name, target in _BINARY.items()})


def maximum(x1, x2, out=None):
    r = _t.clamp(x1, min=x2) if not isinstance(x2, ndarray) else _t.maximum(array_of(x1).to(x2.device), x2)
    return out.copy_(r) if out is not None else r


def minimum(x1, x2, out=None):
    r = _t.clamp(x1, max=x2) if not isinstance(x2, ndarray) else _t.minimum(array_of(x1).to(x2.device), x2)
    return out.copy_(r) if out is not None else r


def clip(a, a_min=None, a_max=None, out=None):
    return _t.clamp(a, a_min, a_max, out=out)


def where(condition, x=None, y=None):
    if x is None and y is None:
        return nonzero(condition)
    return _t.where(condition, x, y)


def round(a, decimals=0):  # noqa: A001
    return _t.round(a) if decimals == 0 else _t.round(a * 10.0**decimals) / 10.0**decimals


around = round


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    a, b = array_of(a), array_of(b)
    return _t.isclose(a, b.to(a.dtype), rtol, atol, equal_nan)


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    return _b.bool(isclose(a, b, rtol, atol, equal_nan).all())


def array_equal(a, b):
    a, b = array_of(a), array_of(b)
    return a.shape == b.shape and _b.bool((a == b).all())
