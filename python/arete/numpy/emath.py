"""numpy.emath: functions that go on into complex numbers where real ones end."""
from __future__ import annotations

from .. import _C, _operators as _t
from ._array import cast, tensor_of, wrap
from ._ufuncs import _ALL

__all__ = ["sqrt", "log", "log2", "log10", "logn", "power", "arccos", "arcsin", "arctanh"]


def _widened(x, outside):
    """The array, complex if an element is outside the real function's domain."""
    t = tensor_of(x)
    if t.is_complex() or not bool(outside(t).any()):
        return wrap(t)
    return wrap(cast(t, _C.complex64 if t.dtype in (_C.float32, _C.float16) else _C.complex128))


def _going_on(name, outside):
    def function(x):
        return _ALL[name](_widened(x, outside))

    function.__name__ = name
    function.__doc__ = f"As `{name}`, with complex results where there is no real one."
    return function


def _negative(t):
    return t < 0


def _beyond_one(t):
    return _t.abs(t) > 1


sqrt, log, log2, log10 = (_going_on(n, _negative) for n in ("sqrt", "log", "log2", "log10"))
arccos, arcsin, arctanh = (_going_on(n, _beyond_one) for n in ("arccos", "arcsin", "arctanh"))


def logn(n, x):
    """The logarithm in base n."""
    return log(x) / log(n)


def power(x, p):
    """x to the power of p; whole numbers to negative powers are floating ones."""
    x, p = _widened(x, _negative), wrap(tensor_of(p))
    if p._tensor.numel() and not p._tensor.is_complex() and bool((p._tensor < 0).any()) and x.dtype.kind in "iu":
        x = x.astype(float)
    return _ALL["power"](x, p)
