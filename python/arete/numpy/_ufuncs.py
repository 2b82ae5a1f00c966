"""Functions of elements: one table of NumPy's ufuncs, how their operands meet, and the operators of arrays that they are."""
from __future__ import annotations

import math as _math
from typing import Callable

from .. import _C, _operators as _t
from .._C import Tensor
from ._array import MaskedOperand, _in_kind, axis_of, cast, for_masked, ndarray, not_together, result, result_into, tensor_of, wrap
from ._types import (
    BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT64, LIMITS, OF_TENSOR, PROMOTED_NATIVE, as_dtype, castable, number_type, promote,
    with_number,
)

__all__ = ["ufunc", "frompyfunc"]


class UFuncTypeError(TypeError):
    """Operands or results of dtypes that a ufunc does not have, or may not cast to."""


def _python(function):
    """The mark of a row whose function takes tensors of one dtype, and no numbers."""
    function.tensors_only = True
    return function


def _is(operator, kinds):
    """The mark of a function that is one operator for dtypes of these kinds."""

    def mark(function):
        function.operator, function.operator_kinds = operator.__name__, kinds
        return function

    return mark


# --- functions that are several operators, of tensors of one dtype ---------------------------------------------------------------


@_python
def _cbrt(x):
    a = x.abs()
    y = a.pow(1 / 3)
    step = (y * y * y - a) / (3 * y * y)  # one of Newton's, for the last digits
    return _t.copysign(y - _t.where(step.isfinite(), step, 0), x)


@_python
def _nextafter(a, b):
    if a.dtype is not _C.float16:
        return _t.nextafter(a, b)
    a, b = _t.broadcast_tensors(a, b)
    bits = a.contiguous().view(_C.int16)  # a sign and a magnitude, which counts the numbers
    step = _t.where((a < b) == (a > 0), bits + 1, bits - 1).view(_C.float16)
    least = _t.copysign(_t.full_like(a, 2.0**-24), b)
    return _t.where(a.isnan() | b.isnan(), a + b, _t.where(a == b, b, _t.where(a == 0, least, step)))


@_python
def _spacing(x):
    if x.dtype is _C.float16:  # whose distance is that to the next greater number
        return _nextafter(x, _t.full_like(x, _math.inf)) - x
    a = x.abs()
    up = _t.nextafter(a, _t.full_like(a, _math.inf))
    last = _t.isinf(up) & a.isfinite()
    gap = _t.where(last, a - _t.nextafter(a, _t.zeros_like(a)), up - a)
    return _t.copysign(gap, x)


@_python
def _bitwise_count(x):
    x, bits = x.abs().to(_C.int64), x.element_size() * 8
    if bits == 64:  # -2**63 is its own absolute value
        low, high = x & 0x7FFFFFFF, (x >> 31) & 0x1FFFFFFFF
        return _count_bits(low) + _count_bits(high)
    return _count_bits(x & ((1 << bits) - 1))  # nor is the lowest of the others


def _count_bits(x):
    x = x - ((x >> 1) & 0x155555555)
    x = (x & 0x333333333) + ((x >> 2) & 0x333333333)
    x = (x + (x >> 4)) & 0xF0F0F0F0F
    return ((x + (x >> 8) + (x >> 16) + (x >> 24) + (x >> 32)) & 0x7F).to(_C.uint8)


@_is(_t.pow, "ifc")
def _power(a, b):
    t = a if isinstance(a, Tensor) else b
    if not t.is_floating_point() and not t.is_complex() and t.dtype.is_signed:
        looked_at = isinstance(b, Tensor) and b.device.type == "cpu" and b.numel()
        if looked_at and int(b.min()) < 0 or not isinstance(b, Tensor) and b < 0:
            raise ValueError("Integers to negative integer powers are not allowed.")
    return _t.pow(a, b)


@_python
def _float_power(a, b):
    return _t.pow(a, b)


@_is(_t.sign, "iu")
@_python
def _sign(x):
    if x.is_floating_point():
        return _t.where(x.isnan(), x, _t.sign(x))
    return _t.sgn(x) if x.is_complex() else _t.sign(x)


@_python
def _rint(x):
    return _t.complex(_t.round(x.real), _t.round(x.imag)) if x.is_complex() else _t.round(x)


def _scaled(x, factor):
    """A complex tensor times a real number, part by part: an infinite one makes no NaN of the other."""
    return _t.complex(x.real * factor, x.imag * factor)


@_python
def _log2(x):
    return _scaled(_t.log(x), 1 / _math.log(2)) if x.is_complex() else _t.log2(x)


@_python
def _exp2(x):
    return _t.exp(_scaled(x, _math.log(2))) if x.is_complex() else _t.exp2(x)


@_python
def _expm1(x):
    if not x.is_complex():
        return _t.expm1(x)
    re, im = x.real, x.imag
    half, low = _t.sin(im / 2), re == -_math.inf
    real = _t.expm1(re) * _t.cos(im) + (0.0 - 2 * half * half)  # never -0
    real = _t.where(low, -1, _t.where((re == _math.inf) & ~im.isfinite(), _math.inf, real))
    imag = _t.where(im == 0, im, _t.where(low & ~im.isfinite(), 0, _t.exp(re) * _t.sin(im)))
    return _t.complex(real.to(re.dtype), imag.to(re.dtype))


@_is(_t.remainder, "iuf")
def _remainder(a, b):
    """The remainder of the divisor's sign, zero as well."""
    r = _t.remainder(a, b)
    return _t.copysign(r, b) if r.is_floating_point() else r


@_python
def _modf(x):
    whole = _t.trunc(x)
    return _t.copysign(_t.where(_t.isinf(x), _t.zeros_like(x), x - whole), x), whole


@_python
def _frexp(x):
    mantissa, exponent = _t.frexp(x)
    return mantissa, exponent.to(_C.int32)


@_python
def _divmod(a, b):
    return _t.floor_divide(a, b), _remainder(a, b)


@_python
def _heaviside(a, b):
    return _t.where(_t.isnan(a), a, _t.heaviside(a, b))


def _lexical(operator, strict):
    """A comparison that takes complex numbers by their real, then their imaginary parts."""

    @_is(operator, "biuf")
    def function(a, b):
        if not (isinstance(a, Tensor) and a.is_complex() or isinstance(b, Tensor) and b.is_complex()):
            return operator(a, b)
        a, b = (x if isinstance(x, Tensor) else _t.tensor(x, dtype=_C.complex128) for x in (a, b))
        return strict(a.real, b.real) | ((a.real == b.real) & operator(a.imag, b.imag))

    return function


def _extreme(operator, compare):
    @_is(operator, "biuf")
    def function(a, b):
        if not (isinstance(a, Tensor) and a.is_complex()):
            return operator(a, b)
        return _t.where(_t.isnan(a) | (~_t.isnan(b) & compare(a, b)), a, b)

    return _python(function)


def _ignoring_nan(operator, compare):
    @_is(operator, "f")
    def function(a, b):
        if a.is_complex():
            return _t.where(_t.isnan(b) | (~_t.isnan(a) & compare(a, b)), a, b)
        return operator(a, b) if a.is_floating_point() else (_t.maximum if operator is _t.fmax else _t.minimum)(a, b)

    return _python(function)


def _of_bool(whole, of_bool):
    """The operator for numbers, and what it is for bool."""
    return _is(whole, "iufc")(_python(lambda *x: of_bool(*x) if x[0].dtype is _C.bool else whole(*x)))


def _identity(x):
    return x.clone()


_greater, _less = _lexical(_t.gt, _t.gt), _lexical(_t.lt, _t.lt)
_greater_equal, _less_equal = _lexical(_t.ge, _t.gt), _lexical(_t.le, _t.lt)

# NumPy's name: the function of tensors, operands, how dtypes go ("same", "float": whole numbers become floating ones of their size,
# "wide": they become float64, "bool": the result is bool, "wider": float64 at least), kinds of dtypes that it takes (bool, whole,
# unsigned, floating, complex numbers), and what a reduction of nothing is.
_ROWS: dict[str, tuple] = {
    "absolute": (_of_bool(_t.abs, _identity), 1, "same", "biufc", None), "fabs": (_t.abs, 1, "float", "f", None),
    "sign": (_sign, 1, "same", "iufc", None), "floor": (_of_bool(_t.floor, _identity), 1, "same", "biuf", None),
    "ceil": (_of_bool(_t.ceil, _identity), 1, "same", "biuf", None), "trunc": (_of_bool(_t.trunc, _identity), 1, "same", "biuf", None),
    "rint": (_rint, 1, "float", "fc", None), "sqrt": (_t.sqrt, 1, "float", "fc", None), "cbrt": (_cbrt, 1, "float", "f", None),
    "square": (_t.square, 1, "same", "iufc", None), "exp": (_t.exp, 1, "float", "fc", None), "exp2": (_exp2, 1, "float", "fc", None),
    "expm1": (_expm1, 1, "float", "fc", None), "log": (_t.log, 1, "float", "fc", None), "log2": (_log2, 1, "float", "fc", None),
    "log10": (_t.log10, 1, "float", "fc", None), "log1p": (_t.log1p, 1, "float", "fc", None),
    "sin": (_t.sin, 1, "float", "fc", None), "cos": (_t.cos, 1, "float", "fc", None), "tan": (_t.tan, 1, "float", "fc", None),
    "arcsin": (_t.asin, 1, "float", "fc", None), "arccos": (_t.acos, 1, "float", "fc", None), "arctan": (_t.atan, 1, "float", "fc", None),
    "sinh": (_t.sinh, 1, "float", "fc", None), "cosh": (_t.cosh, 1, "float", "fc", None), "tanh": (_t.tanh, 1, "float", "fc", None),
    "arcsinh": (_t.asinh, 1, "float", "fc", None), "arccosh": (_t.acosh, 1, "float", "fc", None),
    "arctanh": (_t.atanh, 1, "float", "fc", None), "deg2rad": (_t.deg2rad, 1, "float", "f", None),
    "rad2deg": (_t.rad2deg, 1, "float", "f", None), "negative": (_t.neg, 1, "same", "iufc", None),
    "positive": (_identity, 1, "same", "iufc", None), "conjugate": (_t.conj, 1, "same", "iufc", None),
    "reciprocal": (_python(lambda x: _t.reciprocal(x) if x.is_floating_point() or x.is_complex() else _t.div(
        _t.ones_like(x), x, rounding_mode="trunc")), 1, "same", "iufc", None),
    "spacing": (_spacing, 1, "float", "f", None), "bitwise_count": (_bitwise_count, 1, "same", "iu", None),
    "isnan": (_t.isnan, 1, "bool", "biufc", None), "isinf": (_t.isinf, 1, "bool", "biufc", None),
    "isfinite": (_t.isfinite, 1, "bool", "biufc", None), "signbit": (_t.signbit, 1, "float", "f", None),
    "logical_not": (_t.logical_not, 1, "bool", "biufc", None), "invert": (_t.bitwise_not, 1, "same", "biu", None),
    "modf": (_modf, 1, "float", "f", None), "frexp": (_frexp, 1, "float", "f", None),
    "add": (_t.add, 2, "same", "biufc", 0), "subtract": (_t.sub, 2, "same", "iufc", None),
    "multiply": (_t.mul, 2, "same", "biufc", 1), "divide": (_t.div, 2, "wide", "fc", None),
    "floor_divide": (_t.floor_divide, 2, "same", "iuf", None), "remainder": (_remainder, 2, "same", "iuf", None),
    "fmod": (_t.fmod, 2, "same", "iuf", None), "divmod": (_divmod, 2, "same", "iuf", None), "power": (_power, 2, "same", "iufc", None),
    "float_power": (_float_power, 2, "wider", "fc", None), "arctan2": (_t.atan2, 2, "float", "f", None),
    "hypot": (_t.hypot, 2, "float", "f", 0), "copysign": (_t.copysign, 2, "float", "f", None),
    "nextafter": (_nextafter, 2, "float", "f", None),
    "logaddexp": (_python(lambda a, b: _t.logaddexp(a, b)), 2, "float", "f", -_math.inf),
    "logaddexp2": (_python(lambda a, b: _t.logaddexp2(a, b)), 2, "float", "f", -_math.inf),
    "heaviside": (_heaviside, 2, "float", "f", None), "gcd": (_python(lambda a, b: _t.gcd(a, b)), 2, "same", "iu", 0),
    "lcm": (_python(lambda a, b: _t.lcm(a, b)), 2, "same", "iu", None),
    "maximum": (_extreme(_t.maximum, _greater_equal), 2, "same", "biufc", None),
    "minimum": (_extreme(_t.minimum, _less_equal), 2, "same", "biufc", None),
    "fmax": (_ignoring_nan(_t.fmax, _greater_equal), 2, "same", "biufc", None),
    "fmin": (_ignoring_nan(_t.fmin, _less_equal), 2, "same", "biufc", None),
    "equal": (_t.eq, 2, "bool", "biufc", None), "not_equal": (_t.ne, 2, "bool", "biufc", None), "less": (_less, 2, "bool", "biufc", None),
    "less_equal": (_less_equal, 2, "bool", "biufc", None), "greater": (_greater, 2, "bool", "biufc", None),
    "greater_equal": (_greater_equal, 2, "bool", "biufc", None),
    "logical_and": (_t.logical_and, 2, "bool", "biufc", True), "logical_or": (_t.logical_or, 2, "bool", "biufc", False),
    "logical_xor": (_t.logical_xor, 2, "bool", "biufc", False),
    "bitwise_and": (_t.bitwise_and, 2, "same", "biu", -1), "bitwise_or": (_t.bitwise_or, 2, "same", "biu", 0),
    "bitwise_xor": (_t.bitwise_xor, 2, "same", "biu", 0),
    "left_shift": (_t.bitwise_left_shift, 2, "same", "iu", None), "right_shift": (_t.bitwise_right_shift, 2, "same", "iu", None),
}
_NO_BOOL = {"subtract", "negative", "positive", "sign", "gcd", "lcm"}  # bool becomes int8 elsewhere
_COMPARISONS = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
REDUCERS: dict[str, Callable] = {}      # reductions by the ufunc's name, set where they are defined
ACCUMULATORS: dict[str, Callable] = {}


class ufunc(_C._UfuncBase):
    """A function of elements: broadcasts, promotes as NumPy does, and reduces, accumulates and combines.

    `out` is written, and elements where `where` is False keep their values (of `out`, else they are not set). `casting` and
    `dtype` are NumPy's; the options of generalised ufuncs (`axes`, `axis`, `signature`) are refused."""

    def __init__(self, name, function, nin, rule, kinds, identity):
        self.__name__ = self.__qualname__ = name
        self.nin, self.nout, self.identity = nin, 2 if name in ("modf", "frexp", "divmod") else 1, identity
        self.nargs, self.signature = self.nin + self.nout, None
        self._function, self._rule, self._kinds = function, rule, kinds
        self._numbers = not getattr(function, "tensors_only", False)
        # Dtypes that are computed in as they come.
        self._direct = {n for n, d in OF_TENSOR.items()
                        if d.kind in kinds and not (rule == "wider" and d.itemsize < 8) and (nin == 1 or name != "power" or d.kind in "fc")}
        kinds_of_one = getattr(function, "operator_kinds", kinds if type(function) is type(_t.add) else "")
        if kinds_of_one and self.nout == 1:
            dtypes = [n for n, d in OF_TENSOR.items() if d.kind in kinds_of_one and (n in self._direct or name == "power")]
            wide = rule == "wide" or (rule, nin) == ("float", 1)
            self._set_short_way(getattr(function, "operator", function.__name__), nin, dtypes, wide, rule == "bool")
        self.__doc__ = f"{name}({', '.join(['x', 'x1, x2'][nin - 1:nin])}), element by element; arrays of kinds {kinds!r}."

    def __repr__(self):
        return f"<ufunc '{self.__name__}'>"

    def __reduce__(self):
        return _by_name, (self.__name__,)

    @property
    def types(self):
        """What it takes and gives, in NumPy's letters."""
        r = []
        for d in OF_TENSOR.values():
            if d.kind in self._kinds:
                found = self._compute(*[wrap(_t.ones(1, dtype=d._tensor_dtype)) for _ in range(self.nin)])
                outs = found if self.nout > 1 else (found,)
                r.append(d.char * self.nin + "->" + "".join(OF_TENSOR[o.dtype].char for o in outs))
        return r

    ntypes = property(lambda self: len(self.types))

    def _call(self, *args, out=None, where=True, casting="same_kind", order="K", dtype=None, subok=True, **others):
        """A call, where there is no short way."""
        n = self.nin
        if len(args) != n:
            if not n < len(args) <= self.nargs or out is not None:
                raise TypeError(f"{self.__name__}() takes from {n} to {self.nargs} positional arguments but {len(args)} were given")
            args, out = args[:n], args[n] if self.nout == 1 else args[n:]
        if others:
            raise TypeError(f"{self.__name__}() got an unexpected keyword argument {next(iter(others))!r}")
        if self.nout > 1:
            return self._several(args, out, where, casting, dtype)
        if out is None and where is True:
            try:
                r = result(self._compute(*args, dtype=dtype, casting=casting))
            except MaskedOperand:
                if dtype is not None:
                    raise
                return for_masked(self.__name__)(*args)
            return r if order == "K" else r.copy(order) if order in ("C", "F") else r
        if isinstance(out, tuple):
            (out,) = out
        if out is not None and not isinstance(out, ndarray):
            raise TypeError("return arrays must be of ArrayType")
        return _into(self, self._compute(*args, dtype=dtype, casting=casting), out, where, casting)

    def _several(self, args, out, where, casting, dtype):
        outs = (None,) * self.nout if out is None else out if isinstance(out, tuple) else (out,)
        outs += (None,) * (self.nout - len(outs))
        return tuple(_into(self, t, o, where, casting) for t, o in zip(self._compute(*args, dtype=dtype, casting=casting), outs))

    def _compute(self, *args, dtype=None, casting="same_kind"):
        """The result as a tensor."""
        values, numbers, d, device = list(args), [], None, None
        for i, x in enumerate(args):
            if type(x) is ndarray:
                t = x._tensor
            elif number_type(x) is not None and len(args) > 1:
                numbers.append(i)
                continue
            else:
                t = tensor_of(x)
            values[i] = t
            own = t.dtype
            d = own if d is None or d is own else PROMOTED_NATIVE[d, own]
            device = t.device if device is None or t.dim() else device
        if d is None:  # numbers only
            whole = len(values) > 1 and self.__name__ not in _COMPARISONS and all(type(x) is int for x in values)
            values = [tensor_of(x, None if not whole else FLOAT64 if self._rule in ("float", "wide", "wider") else INT64) for x in values]
            d, numbers, device = PROMOTED_NATIVE[values[0].dtype, values[-1].dtype], [], values[0].device
        found = OF_TENSOR[d]
        for i in numbers:
            found = with_number(found, type(args[i]))
        name, rule, kinds = self.__name__, self._rule, self._kinds
        if dtype is not None and rule != "bool":
            asked = as_dtype(dtype)
            if not castable(found, asked, casting) and not (numbers and castable(as_dtype(d), asked, casting)):
                raise UFuncTypeError(f"Cannot cast ufunc '{name}' input from {found!r} to {asked!r} with casting rule '{casting}'")
            found = asked
        if found.kind in "biu" and rule in ("float", "wide", "wider"):
            size = 8 if d is _C.bool and found is not BOOL else max(v.element_size() for i, v in enumerate(values) if i not in numbers)
            found = FLOAT64 if rule != "float" or size > 2 else FLOAT16 if size == 1 else FLOAT32
        elif rule == "wider":
            found = promote(found, FLOAT64)
        if found.kind not in kinds:
            if found is BOOL and "i" in kinds and name not in _NO_BOOL:
                found = INT8
            elif name in ("subtract", "negative") and found is BOOL:
                what, use = (("numpy boolean subtract", "the bitwise_xor, the `^` operator, or the logical_xor function") if self.nin == 2
                             else ("The numpy boolean negative", "the `~` operator or the logical_not function"))
                raise TypeError(f"{what}, the `-` operator, is not supported, use {use} instead.")
            else:
                raise UFuncTypeError(f"ufunc '{name}' not supported for the input types: {found!r}")
        d = found._tensor_dtype
        if name in _COMPARISONS and found is FLOAT64 and not numbers and all(OF_TENSOR[v.dtype].kind in "iu" for v in values):
            return self._with_sign(*values)
        for i, v in enumerate(values):
            if i in numbers:
                if name in _COMPARISONS and type(v) is int and found.kind in "iu" and not LIMITS[d][0] <= v <= LIMITS[d][1]:
                    return self._far(values, i, v)
                v = _in_kind(bool(v) if name.startswith("logical") else v, d)
                values[i] = v if self._numbers else _t.full((), v, dtype=d, device=device)
            elif v.dtype is not d:
                values[i] = cast(v, d)
        try:
            return self._function(*values)
        except RuntimeError as e:
            shapes = [tuple(v.shape) for v in values if isinstance(v, Tensor)]
            if len(shapes) > 1 and shapes[0] != shapes[1] and "size" in str(e):
                raise not_together(*shapes) from None
            raise

    def _with_sign(self, a, b):
        """A comparison of uint64 with integers that have a sign, exact as in NumPy: what is negative is less."""
        left = a.dtype.is_signed
        negative, less = (a if left else b) < 0, left == (self.__name__ in ("less", "less_equal"))
        answer = self.__name__ == "not_equal" or self.__name__ != "equal" and less
        return _t.where(negative, answer, self._function(a.to(_C.uint64), b.to(_C.uint64)))

    def _far(self, values, i, v):
        """A comparison with a number that the dtype does not reach: all elements compare alike."""
        low = {"equal": False, "not_equal": True, "less": v > 0, "less_equal": v > 0, "greater": v < 0, "greater_equal": v < 0}
        answer = low[self.__name__]
        if i == 0 and self.__name__ not in ("equal", "not_equal"):
            answer = not answer
        return _t.full(values[1 - i].shape, answer, dtype=_C.bool, device=values[1 - i].device)

    # --- of one axis ---

    def _two(self, array):
        """The operand of a reduction, which gives what it takes."""
        if self.nin != 2 or self.nout != 1:
            raise ValueError("reduce only supported for binary functions")
        t = tensor_of(array)
        if self.__name__ in _COMPARISONS and t.dtype is not _C.bool or t.dtype is _C.bool and self.__name__ in _NO_BOOL:
            raise UFuncTypeError(f"ufunc '{self.__name__}' has no reduction of {OF_TENSOR[t.dtype]!r}")
        return wrap(t)

    def reduce(self, array, axis=0, dtype=None, out=None, keepdims=False, initial=None, where=True):
        """All elements along axes combined to one."""
        a = self._two(array)
        own = REDUCERS.get(self.__name__)
        if own is not None and (self.__name__ != "bitwise_and" or where is True):
            return own(a, axis=axis, dtype=dtype, out=out, keepdims=keepdims, initial=initial, where=where)
        if where is not True:
            raise NotImplementedError(f"{self.__name__}.reduce(): where")
        axes = range(a.ndim) if axis is None else [axis_of(x, a.ndim) for x in (axis if isinstance(axis, tuple) else (axis,))]
        t = a._tensor if dtype is None else cast(a._tensor, as_dtype(dtype)._tensor_dtype)
        for x in sorted(axes, reverse=True):
            t = self._fold(t, x)
            t = t.unsqueeze(x) if keepdims else t
        if initial is not None:
            t = self._compute(wrap(t), initial)
        return result_into(t, out)

    def _fold(self, t, axis):
        """Halves that meet, until one is left: as many calls as the length has bits. Where the order counts, one after another."""
        n = t.shape[axis]
        t = t != 0 if self.__name__.startswith("logical") else t
        if n == 0:
            if self.identity is None:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which has no identity")
            return _t.full([s for i, s in enumerate(t.shape) if i != axis], self.identity, dtype=t.dtype, device=t.device)
        if self.identity is None and self.__name__ not in ("lcm", "fmax", "fmin"):
            r = t.select(axis, 0)
            for i in range(1, n):
                r = self._compute(wrap(r), wrap(t.select(axis, i)))
            return r
        while n > 1:
            half = n // 2
            r = self._compute(wrap(t.narrow(axis, 0, half)), wrap(t.narrow(axis, half, half)))
            t = r if n % 2 == 0 else _t.cat([r, t.narrow(axis, n - 1, 1)], axis)
            n = t.shape[axis]
        return t.select(axis, 0)

    def accumulate(self, array, axis=0, dtype=None, out=None):
        """What all elements up to each one combine to."""
        a = self._two(array)
        a = a if dtype is None else a.astype(dtype)
        axis = axis_of(axis, a.ndim)
        own = ACCUMULATORS.get(self.__name__)
        if own is not None:
            return own(a, axis=axis, dtype=dtype, out=out)
        rows = [r for r in a._tensor.unbind(axis)]
        for i in range(1, len(rows)):
            rows[i] = self._compute(wrap(rows[i - 1]), wrap(rows[i]))
        return result_into(_t.stack([r.to(rows[-1].dtype) for r in rows], axis) if rows else a._tensor.clone(), out)

    def reduceat(self, array, indices, axis=0, dtype=None, out=None):
        """Reductions of the slices between indices."""
        a = self._two(array)
        axis, places = axis_of(axis, a.ndim), tensor_of(indices).tolist()
        n, rows = a.shape[axis], []
        for i, start in enumerate(places):
            if not 0 <= start < n:
                raise IndexError(f"index {start} out-of-bounds in {self.__name__}.reduceat [0, {n})")
            stop = places[i + 1] if i + 1 < len(places) else n
            part = a._tensor.narrow(axis, start, stop - start) if stop > start else a._tensor.narrow(axis, start, 1)
            rows.append(self.reduce(wrap(part), axis=axis, dtype=dtype)._tensor)
        return result_into(_t.stack(rows, axis), out)

    def outer(self, A, B, /, **options):
        """Each element of the one with each of the other."""
        a, b = tensor_of(A), tensor_of(B)
        return self(wrap(a.reshape(tuple(a.shape) + (1,) * b.dim())), wrap(b), **options)

    def at(self, a, indices, b=None, /):
        """In place at indices, as often as an index is named."""
        if not isinstance(a, ndarray):
            raise TypeError("first operand must be array")
        t = a._tensor
        if self.nin == 1:
            a[indices] = self(a[indices])
            return
        if self.__name__ in ("add", "subtract") and t.dtype is not _C.bool:
            places = wrap(_t.arange(t.numel(), device=t.device).reshape(t.shape))[indices]._tensor
            v = tensor_of(b, t.dtype).to(t.device).expand(places.shape).reshape(-1)
            flat = t.reshape(-1).index_add(0, places.reshape(-1), -v if self.__name__ == "subtract" else v)
            a._write(flat.reshape(t.shape))
            return
        places = wrap(_t.arange(t.numel(), device=t.device).reshape(t.shape))[indices]._tensor
        v, places, flat = tensor_of(b).expand(places.shape).reshape(-1), places.reshape(-1), t.reshape(-1).clone()
        for turn in _turns(places):  # each place once in a turn
            flat[places[turn]] = cast(self._compute(wrap(flat[places[turn]]), wrap(v[turn])), t.dtype)
        a._write(flat.reshape(t.shape))


def _turns(places):
    """Positions in turns, in each of which every place comes once."""
    values, order = places.sort(stable=True)
    n = len(values)
    if not n:
        return []
    at = _t.arange(n, device=values.device)
    first = _t.cat([_t.ones(1, dtype=_C.bool, device=values.device), values[1:] != values[:-1]])
    rank = at - _t.cummax(_t.where(first, at, 0), 0)[0]
    return [order[rank == k] for k in range(int(rank.max()) + 1)]


def _into(own, t, out, where, casting):
    if where is not True:
        mask = tensor_of(where)
        if mask.dtype is not _C.bool:
            raise TypeError("where must be bool")
        kept = out._tensor if out is not None else _t.zeros_like(t)
        t = _t.where(mask.to(t.device), t, cast(kept, t.dtype) if castable(OF_TENSOR[kept.dtype], OF_TENSOR[t.dtype], "unsafe") else kept)
    if out is None:
        return result(t)
    if not castable(OF_TENSOR[t.dtype], out.dtype, casting):
        raise UFuncTypeError(f"Cannot cast ufunc '{own.__name__}' output from {OF_TENSOR[t.dtype]!r} to {out.dtype!r} with casting rule "
                             f"'{casting}'")
    if tuple(out._tensor.shape) != tuple(t.shape):
        try:
            t = t.expand(out._tensor.shape)
        except RuntimeError:
            raise ValueError(f"non-broadcastable output operand with shape {out.shape} doesn't match the broadcast shape "
                             f"{tuple(t.shape)}") from None
    out._write(cast(t, out._tensor.dtype))
    return out


_ALL = {name: ufunc(name, *row) for name, row in _ROWS.items()}
_OTHER_NAMES = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan", "atanh": "arctanh",
    "atan2": "arctan2", "bitwise_not": "invert", "bitwise_invert": "invert", "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift", "conj": "conjugate", "degrees": "rad2deg", "radians": "deg2rad", "mod": "remainder",
    "pow": "power", "true_divide": "divide",
}
globals().update(_ALL)
globals().update({name: _ALL[target] for name, target in _OTHER_NAMES.items()})
__all__ += [*_ALL, *_OTHER_NAMES, "ldexp", "isnat"]


def _by_name(name):
    return _ALL[name]


def ldexp(x1, x2, out=None, where=True, **options):
    """x1 * 2**x2."""
    a, e = tensor_of(x1), tensor_of(x2)
    if e.is_floating_point() or e.is_complex() or a.is_complex():
        raise UFuncTypeError("ufunc 'ldexp' takes floating numbers and whole exponents")
    a = _ALL["positive"]._compute(wrap(cast(a, _C.int8) if a.dtype is _C.bool else a), dtype=None) if a.is_floating_point() else cast(
        a, (FLOAT16 if a.element_size() == 1 else FLOAT32 if a.element_size() == 2 else FLOAT64)._tensor_dtype)
    half = _t.div(e, 2, rounding_mode="floor")  # in two steps, so that no power of two is infinite before its time
    one = _t.ones((), dtype=a.dtype, device=a.device)
    t = a * _t.pow(one * 2, cast(half, a.dtype)) * _t.pow(one * 2, cast(e - half, a.dtype))
    return _into(ldexp, cast(t, a.dtype), out, where, "same_kind")


ldexp.nin = 2  # type: ignore[attr-defined]


def isnat(x, **options):
    """Refused: there are no dates, of which this asks."""
    raise TypeError("ufunc 'isnat' is only defined for np.datetime64 and np.timedelta64.")


def frompyfunc(func, nin, nout, *, identity=None):
    """NumPy's frompyfunc: a function of one element of each array, called for each. Results that are numbers become arrays."""

    def call(*args):
        if len(args) != nin:
            raise TypeError(f"takes {nin} arguments, not {len(args)}")
        arrays = _t.broadcast_tensors(*[tensor_of(a) for a in args])
        rows = [func(*v) for v in zip(*[a.reshape(-1).tolist() for a in arrays])]
        shape = arrays[0].shape
        columns = list(zip(*rows)) if nout > 1 else [rows]
        r = tuple(wrap(tensor_of(list(c)).reshape(shape)) for c in columns)
        return r if nout > 1 else r[0]

    call.__name__, call.nin, call.nout, call.identity = getattr(func, "__name__", "call"), nin, nout, identity
    return call


# --- the operators of arrays -------------------------------------------------------------------------------------------------------

def _operate(own, a, b):
    other = b if isinstance(a, ndarray) else a
    if other is None or isinstance(other, (str, bytes, dict, set)) or getattr(type(other), "__array_ufunc__", 0) is None:
        return NotImplemented
    try:
        return own(a, b)
    except TypeError:
        if isinstance(other, (ndarray, list, tuple)) or number_type(other) is not None or hasattr(other, "dtype"):
            raise
        return NotImplemented


def _change(own, self, other):
    r = _operate(own, self, other)
    # What NumPy has a number for becomes an array, as there; on a GPU it is not told from an array without axes.
    if r is NotImplemented or (r.ndim and not self.ndim and self._tensor.device.type != "cpu"):
        return r
    return _into(own, r._tensor, self, True, "same_kind")


def _question(own, answer):
    def operation(self, other):
        """Whether elements are equal; of what no array can hold, none is."""
        try:
            r = _operate(own, self, other)
        except TypeError:
            r = NotImplemented
        if r is NotImplemented and not isinstance(getattr(type(other), "__array_ufunc__", 0), type(None)):
            return wrap(_t.full(self._tensor.shape, answer, dtype=_C.bool, device=self._tensor.device))
        return r

    return operation


for _method, _name in [
        ("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide"), ("floordiv", "floor_divide"),
        ("mod", "remainder"), ("pow", "power"), ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor"),
        ("lshift", "left_shift"), ("rshift", "right_shift")]:
    _C._set_array_operator(_method, _ALL[_name], lambda a, b, own=_ALL[_name]: _operate(own, a, b),
                           lambda a, b, own=_ALL[_name]: _operate(own, b, a), lambda a, b, own=_ALL[_name]: _change(own, a, b))
for _method, _name in [("lt", "less"), ("le", "less_equal"), ("gt", "greater"), ("ge", "greater_equal")]:
    _C._set_array_operator(_method, _ALL[_name], lambda a, b, own=_ALL[_name]: _operate(own, a, b),
                           lambda a, b, own=_ALL[_name]: _operate(own, b, a))
for _method, _name, _answer in [("eq", "equal", False), ("ne", "not_equal", True)]:
    _C._set_array_operator(_method, _ALL[_name], _question(_ALL[_name], _answer))
for _method, _name in [("neg", "negative"), ("pos", "positive"), ("abs", "absolute"), ("invert", "invert")]:
    _C._set_array_operator(_method, _ALL[_name], _ALL[_name]._call)
ndarray.__divmod__ = lambda self, other: _ALL["divmod"](self, other)  # type: ignore[attr-defined]
ndarray.__rdivmod__ = lambda self, other: _ALL["divmod"](other, self)  # type: ignore[attr-defined]
