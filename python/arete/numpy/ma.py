"""numpy.ma: arrays with a mask over what is missing. A masked array is an array and a mask, which is not there (`nomask`) until something
is missing or a mask is given; functions take both along."""
from __future__ import annotations

import builtins as _b

from .. import _C, _operators as _t
from ._array import tensor_of, wrap
from . import _reductions as _r
from ._masked import (  # noqa: F401
    MAError, MaskedArray, MaskError, MaskType, _dtype_of, _either, _made, _mask_of, _of, _own, _plain, _result, _zeros, array,
    asanyarray, asarray, default_fill_value, getdata, getmask, getmaskarray, masked, masked_array, masked_singleton, nomask,
)
from ._masks import (  # noqa: F401
    clump_masked, clump_unmasked, common_fill_value, compress_cols, compress_rowcols, compress_rows, compressed, count, count_masked,
    filled, fix_invalid, flatnotmasked_contiguous, flatnotmasked_edges, is_mask, is_masked, isarray, isMA, isMaskedArray, make_mask,
    make_mask_none, mask_cols, mask_or, mask_rowcols, mask_rows, masked_equal, masked_greater, masked_greater_equal, masked_inside,
    masked_invalid, masked_less, masked_less_equal, masked_not_equal, masked_outside, masked_values, masked_where, ndim, set_fill_value,
    shape, size,
)
from ._types import FLOAT64, castable
from ._ufuncs import _ALL

__all__ = [
    "MaskedArray", "masked_array", "array", "asarray", "asanyarray", "masked", "masked_singleton", "nomask", "MaskType", "MAError",
    "MaskError", "masked_where", "masked_invalid", "masked_equal", "masked_not_equal", "masked_greater", "masked_greater_equal",
    "masked_less", "masked_less_equal", "masked_inside", "masked_outside", "masked_values", "fix_invalid", "masked_all",
    "masked_all_like", "getmask", "getmaskarray", "getdata", "is_masked", "is_mask", "isMaskedArray", "isMA", "isarray", "make_mask",
    "make_mask_none", "mask_or", "mask_rows", "mask_cols", "mask_rowcols", "compress_rows", "compress_cols", "compress_rowcols", "filled",
    "compressed", "count", "count_masked", "default_fill_value", "maximum_fill_value", "minimum_fill_value", "set_fill_value",
    "common_fill_value", "sum", "prod", "product", "mean", "var", "std", "max", "min", "amax", "amin", "all", "any", "alltrue",
    "sometrue", "ptp", "average", "anom", "anomalies", "median", "cumsum", "cumprod", "argmax", "argmin", "argsort", "sort", "where",
    "choose", "compress", "clip", "round", "around", "round_", "diff", "ediff1d", "dot", "inner", "innerproduct", "outer", "outerproduct",
    "trace", "cov", "corrcoef", "polyfit", "unique", "isin", "in1d", "union1d", "intersect1d", "setdiff1d", "setxor1d", "allequal",
    "allclose", "nonzero", "put", "ndim", "shape", "size", "clump_masked", "clump_unmasked", "flatnotmasked_contiguous",
    "flatnotmasked_edges", "copy",
]

# --- functions of elements --------------------------------------------------------------------------------------------------------

_DIVISIONS = {"divide", "floor_divide", "remainder", "fmod"}
# Functions that are not defined everywhere: results that are no numbers are missing.
_DOMAINS = _DIVISIONS | {"sqrt", "log", "log2", "log10", "tan", "arcsin", "arccos", "arccosh", "arctanh", "power"}


def _apply(own, *args):
    data, m = [a.data if isinstance(a, MaskedArray) else a for a in args], None
    for a in args:
        m = _either(m, _mask_of(a))
    r = own(*data)
    if isinstance(r, tuple):
        return tuple(_result(x, m) for x in r)
    t = r._tensor
    if own.__name__ in _DOMAINS:
        outside = ~_t.isfinite(t) if t.is_floating_point() or t.is_complex() else None
        if own.__name__ in _DIVISIONS:
            outside = _either(outside, (tensor_of(data[1]) == 0).to(t.device))
        m = _either(m, outside)
    if m is None:
        return _result(r, None)
    m = m.expand(t.shape)
    # The first operand stays where results are missing, as in NumPy.
    first = tensor_of(data[0])
    if own._rule != "bool" and castable(wrap(first).dtype, r.dtype, "same_kind"):
        t = _t.where(m, first.to(device=t.device, dtype=t.dtype), t)
    return _result(wrap(t), m.clone())


def _in_place(own):
    def function(self, other):
        r = _apply(own, self, other)
        data, m = (r.data, r._mask) if isinstance(r, MaskedArray) else (r, None)
        if not castable(data.dtype, self.dtype, "same_kind"):
            raise _ufunc_error(own, data.dtype, self.dtype)
        if r is not masked:
            self.data[...] = data
        if m is not None:
            self._mask = self._full
            self._mask |= m
        return self

    return function


def _ufunc_error(own, found, wanted):
    from ._ufuncs import UFuncTypeError

    return UFuncTypeError(f"Cannot cast ufunc '{own.__name__}' output from {found!r} to {wanted!r} with casting rule 'same_kind'")


for _method, _name in [("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide"), ("floordiv", "floor_divide"),
                       ("mod", "remainder"), ("pow", "power"), ("and", "bitwise_and"), ("or", "bitwise_or"), ("xor", "bitwise_xor")]:
    setattr(MaskedArray, f"__{_method}__", lambda self, other, own=_ALL[_name]: _apply(own, self, other))
    setattr(MaskedArray, f"__r{_method}__", lambda self, other, own=_ALL[_name]: _apply(own, other, self))
    setattr(MaskedArray, f"__i{_method}__", _in_place(_ALL[_name]))
for _method, _name in [
    ("lt", "less"),
    ("le", "less_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
    ("eq", "equal"),
    ("ne", "not_equal"),
]:
    setattr(MaskedArray, f"__{_method}__", lambda self, other, own=_ALL[_name]: _apply(own, self, other))
for _method, _name in [("neg", "negative"), ("abs", "absolute"), ("invert", "invert")]:
    setattr(MaskedArray, f"__{_method}__", lambda self, own=_ALL[_name]: _apply(own, self))
_UFUNCS = {**{n: n for n in _ALL}, "abs": "absolute", "mod": "remainder", "true_divide": "divide"}
globals().update({_name: lambda *args, own=_ALL[_of_name]: _apply(own, *args) for _name, _of_name in _UFUNCS.items()})
__all__ += list(_UFUNCS)


def _each(name, text):
    def function(a, *args, **options):
        a = _of(a)
        return _result(_own(name)(a.data, *args, **options), a._mask)

    function.__name__, function.__doc__ = name, text
    setattr(MaskedArray, name, function)
    return function


clip = _each("clip", "Elements within limits.")
round = around = round_ = _each("round", "Elements with so many decimals.")  # noqa: A001

# --- functions of places: of data and mask alike -----------------------------------------------------------------------------------


def _moved(name, text):
    def function(a, *args, **options):
        a, own = _of(a), _own(name)
        mask = None if a._mask is None else own(wrap(a._mask), *args, **options)._tensor
        return _result(own(a.data, *args, **options), mask, a._fill)

    function.__name__, function.__doc__ = name, text
    return function


def _moved_by_method(name):
    def function(self, *args, **options):
        """As the method of arrays, of data and mask."""
        mask = None if self._mask is None else getattr(wrap(self._mask), name)(*args, **options)._tensor
        return _result(getattr(self.data, name)(*args, **options), mask, self._fill)

    function.__name__ = name
    setattr(MaskedArray, name, function)


for _name in ("reshape", "ravel", "flatten", "transpose", "swapaxes", "squeeze", "repeat", "take", "diagonal"):
    _moved_by_method(_name)
_MOVES = ("reshape ravel transpose swapaxes squeeze repeat take diagonal expand_dims diag diagflat resize atleast_1d atleast_2d "
          "atleast_3d").split()
globals().update({_name: _moved(_name, f"NumPy's {_name}, of data and mask.") for _name in _MOVES})
__all__ += _MOVES


def _joined(name):
    def function(arrays, *args, **options):
        parts, own = [_of(a) for a in arrays], _own(name)
        mask = None
        if _b.any(p._mask is not None for p in parts):
            mask = own([wrap(p._full) for p in parts], *args, **options)._tensor
        return _made(own([p.data for p in parts], *args, **options), mask)

    function.__name__, function.__doc__ = name, f"NumPy's {name}, of data and masks."
    return function


_JOINS = ("concatenate", "stack", "hstack", "vstack", "dstack", "column_stack")
globals().update({_name: _joined(_name) for _name in _JOINS})
row_stack = globals()["vstack"]
__all__ += [*_JOINS, "row_stack", "append"]


def append(a, b, axis=None):
    """One array behind another."""
    parts = [_of(a), _of(b)]
    return globals()["concatenate"](parts if axis is not None else [p.ravel() for p in parts], axis or 0)


def _begun(name):
    def function(*args, **options):
        return MaskedArray(_own(name)(*[getdata(a) if isinstance(a, MaskedArray) else a for a in args], **options))

    function.__name__, function.__doc__ = name, f"NumPy's {name} as a masked array, of which nothing is missing."
    return function


_BEGINNINGS = "arange empty zeros ones identity indices frombuffer fromfunction".split()
globals().update({_name: _begun(_name) for _name in _BEGINNINGS})
_LIKE = "empty_like zeros_like ones_like".split()
__all__ += _BEGINNINGS + _LIKE


def _like(name):
    def function(a, **options):
        mask = _mask_of(a)
        return _made(_own(name)(getdata(a), **options), None if mask is None else mask.clone())

    function.__name__, function.__doc__ = name, f"NumPy's {name}, with the mask of the array."
    return function


globals().update({_name: _like(_name) for _name in _LIKE})


def masked_all(shape, dtype=float):
    """An array of which all is missing."""
    return MaskedArray(_own("empty")(shape, dtype), True)


def masked_all_like(arr):
    """An array of the shape and dtype of another, of which all is missing."""
    return masked_all(arr.shape, arr.dtype)


# --- reductions -------------------------------------------------------------------------------------------------------------------


def _reduced(name, text, start):
    whole = getattr(_r, name)

    def function(a, axis=None, dtype=None, out=None, keepdims=False, **options):
        if out is not None:
            raise NotImplementedError(f"ma.{name}(): out")
        a = _of(a)
        if dtype is not None:
            options["dtype"] = dtype
        if a._mask is None:
            return _result(whole(a.data, axis, keepdims=keepdims, **options), None)
        if start is not None:
            options["initial"] = start(a.dtype)
        r = whole(a.data, axis, keepdims=keepdims, where=wrap(~a._mask), **options)
        if name in ("var", "std"):
            empty = wrap(a.count(axis, keepdims)._tensor <= options.get("ddof", options.get("correction", 0)))
        else:
            empty = _r.all(wrap(a._mask), axis, keepdims=keepdims)
        return _result(r, empty._tensor)

    function.__name__, function.__doc__ = name, text
    setattr(MaskedArray, name, function)
    return function


sum = _reduced("sum", "The sum of what is not missing.", None)  # noqa: A001
prod = product = _reduced("prod", "The product of what is not missing.", None)
mean = _reduced("mean", "The mean of what is not missing.", None)
var = _reduced("var", "The variance of what is not missing.", None)
std = _reduced("std", "The standard deviation of what is not missing.", None)
all = alltrue = _reduced("all", "Whether all that is not missing is true.", None)  # noqa: A001
any = sometrue = _reduced("any", "Whether anything that is not missing is true.", None)  # noqa: A001
max = amax = _reduced("max", "The greatest element that is not missing.", lambda d: _r._lowest(d._tensor_dtype, True))  # noqa: A001
min = amin = _reduced("min", "The least element that is not missing.", lambda d: _r._lowest(d._tensor_dtype, False))  # noqa: A001


def copy(a):
    """A copy of data and mask."""
    return _of(a).copy()


def ptp(obj, axis=None, keepdims=False):
    """The greatest less the least element that is not missing."""
    return max(obj, axis, keepdims=keepdims) - min(obj, axis, keepdims=keepdims)


def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    """The mean of what is not missing, with weights."""
    a = _of(a)
    if weights is None:
        r = mean(a, axis, keepdims=keepdims)
        total = a.count(axis, keepdims)
    else:
        w = _of(weights)
        if w.shape != a.shape:
            if axis is None or w.ndim != 1:
                raise TypeError("Axis must be specified when shapes of a and weights differ.")
            if w.size != a.shape[axis]:
                raise ValueError("Length of weights not compatible with specified axis.")
            w = w.reshape([-1 if d == axis % a.ndim else 1 for d in range(a.ndim)])
        w = w.astype(FLOAT64) if w.dtype.kind in "biu" else w
        w = _made(_own("broadcast_to")(w.data, a.shape), _either(a._mask, None if w._mask is None else w._mask.expand(a.shape)))
        total = sum(w, axis, keepdims=keepdims)
        r = sum(a * w, axis, keepdims=keepdims) / total
    return (r, total) if returned else r


def anom(self, axis=None, dtype=None):
    """What elements differ by from their mean."""
    a = _of(self)
    return a - mean(a, axis, dtype, keepdims=axis is not None)


anomalies = anom


def median(a, axis=None, keepdims=False):
    """The median of what is not missing."""
    a = _of(a)
    t = a.data._tensor
    t = t if t.is_floating_point() else t.to(_C.float64)
    if a._mask is None:
        return _result(_r.median(wrap(t), axis, keepdims=keepdims), None)
    r = _r.nanmedian(wrap(_t.where(a._mask, float("nan"), t)), axis, keepdims=keepdims)
    return _result(r, _r.all(wrap(a._mask), axis, keepdims=keepdims)._tensor)


def _running(name, neutral):
    def function(a, axis=None, dtype=None, out=None):
        if out is not None:
            raise NotImplementedError(f"ma.{name}(): out")
        a = _of(a)
        m = a._mask
        return _made(getattr(_r, name)(a.filled(neutral), axis, dtype), None if m is None else m.reshape(-1) if axis is None else m)

    function.__name__, function.__doc__ = name, f"NumPy's {name}, past what is missing."
    setattr(MaskedArray, name, function)
    return function


cumsum, cumprod = _running("cumsum", 0), _running("cumprod", 1)


def _extreme_place(name, fill):
    def function(a, axis=None, fill_value=None, out=None, *, keepdims=False):
        a = _of(a)
        return _own(name)(a.filled(fill(a) if fill_value is None else fill_value), axis, out, keepdims=keepdims)

    function.__name__, function.__doc__ = name, f"NumPy's {name} of what is not missing."
    setattr(MaskedArray, name, function)
    return function


def maximum_fill_value(obj):
    """The least number of a dtype, which no maximum is."""
    return _r._lowest(_dtype_of(obj), True)


def minimum_fill_value(obj):
    """The greatest number of a dtype, which no minimum is."""
    return _r._lowest(_dtype_of(obj), False)


argmax, argmin = _extreme_place("argmax", maximum_fill_value), _extreme_place("argmin", minimum_fill_value)


def argsort(a, axis=-1, kind=None, order=None, endwith=True, fill_value=None, *, stable=False):
    """The indices that sort; what is missing comes last, or first without `endwith`."""
    a = _of(a)
    if fill_value is None:
        last = float("nan") if a.dtype.kind in "fc" else minimum_fill_value(a)
        fill_value = last if endwith else maximum_fill_value(a)
    return _own("argsort")(a.filled(fill_value), axis, kind="stable")


def sort(a, axis=-1, kind=None, order=None, endwith=True, fill_value=None, *, stable=False):
    """Sorted elements; what is missing comes last, or first without `endwith`."""
    a = _of(a)
    a, axis = (a.ravel(), 0) if axis is None else (a, axis)
    places = argsort(a, axis, endwith=endwith, fill_value=fill_value)
    along = _own("take_along_axis")
    return _made(along(a.data, places, axis), None if a._mask is None else along(wrap(a._mask), places, axis)._tensor, a._fill)


def _sort_in_place(self, axis=-1, kind=None, order=None, endwith=True, fill_value=None, *, stable=False):
    """Sorts in place."""
    self[...] = sort(self, axis, kind, order, endwith, fill_value)


MaskedArray.sort = _sort_in_place  # type: ignore[attr-defined]


def nonzero(a):
    """The indices of what is neither missing nor zero."""
    return _own("nonzero")(filled(a, 0))


def trace(a, offset=0, axis1=0, axis2=1):
    """The sum of a diagonal."""
    return _of(a).diagonal(offset, axis1, axis2).sum(-1)


for _function in (ptp, anom, argsort, nonzero, trace):
    setattr(MaskedArray, _function.__name__, _function)

# --- products ---------------------------------------------------------------------------------------------------------------------


def dot(a, b, strict=False):
    """The product; missing elements are zeros, and a result is missing where all its terms are (with `strict`, where any is)."""
    a, b = _of(a), _of(b)
    r = _own("dot")(a.filled(0), b.filled(0))
    if a._mask is None and b._mask is None:
        return _result(r, None)
    there = [x._full.to(_C.int64) if strict else (~x._full).to(_C.int64) for x in (a, b)]
    if strict:
        ones = [_t.ones_like(x) for x in there]
        missing = _own("dot")(wrap(there[0]), wrap(ones[1]))._tensor + _own("dot")(wrap(ones[0]), wrap(there[1]))._tensor > 0
    else:
        missing = _own("dot")(wrap(there[0]), wrap(there[1]))._tensor == 0
    return _result(r, missing)


def inner(a, b):
    """The inner product, in which missing elements are zeros."""
    return _result(_own("inner")(filled(a, 0), filled(b, 0)), None)


def outer(a, b):
    """The products of all pairs."""
    a, b = _of(a), _of(b)
    r = _own("outer")(a.filled(0), b.filled(0))
    if a._mask is None and b._mask is None:
        return _made(r, None)
    return _made(r, a._full.reshape(-1, 1) | b._full.reshape(1, -1))


innerproduct, outerproduct = inner, outer
MaskedArray.dot = dot  # type: ignore[attr-defined]
MaskedArray.__matmul__ = dot  # type: ignore[attr-defined]


def cov(x, y=None, rowvar=True, bias=False, allow_masked=True, ddof=None):
    """The covariances of rows, of what is missing in neither of two."""
    if y is not None:
        raise NotImplementedError("ma.cov(): y; concatenate the two")
    x = _of(x)
    if not allow_masked and is_masked(x):
        raise ValueError("Cannot process masked data.")
    x = x.reshape(1, -1) if x.ndim < 2 else x if rowvar else x.T
    ddof = (0 if bias else 1) if ddof is None else ddof
    apart = (x - x.mean(1, keepdims=True)).filled(0) if x._mask is not None else x.data - x.data.mean(1, keepdims=True)
    there = (~x._full).to(_C.float64)
    count = there @ there.T - ddof
    t = apart._tensor
    r = _t.where(count > 0, (t @ t.conj().T) / count, 0)
    return _squeezed(_made(wrap(r), count <= 0))


def _squeezed(a):
    return a[0, 0] if a.shape == (1, 1) else a


def corrcoef(x, y=None, rowvar=True, allow_masked=True):
    """The correlations of rows, of what is missing in neither of two."""
    c = _of(cov(x, y, rowvar, True, allow_masked))
    if not c.ndim:
        return c / c
    d = globals()["sqrt"](c.diagonal())
    return c / outer(d, d)


def polyfit(x, y, deg, rcond=None, full=False, w=None, cov=False):
    """The polynomial nearest to the points of which nothing is missing."""
    m = _either(_mask_of(x), _mask_of(y))
    kept = slice(None) if m is None else wrap(~m)
    return _own("polyfit")(getdata(x)[kept], getdata(y)[kept], deg, rcond, full, None if w is None else getdata(w)[kept], cov)


# --- choices and differences ----------------------------------------------------------------------------------------------------------


def where(condition, x=None, y=None):
    """Of x where a condition holds, else of y; of the condition alone its indices."""
    if (x is None) != (y is None):
        raise ValueError("Must provide both 'x' and 'y' or neither.")
    if x is None:
        return nonzero(condition)
    c, own = filled(condition, False), _own("where")
    x, y = (v if v is not masked else _made(wrap(_t.zeros((), dtype=_dtype_of(w))), _t.ones((), dtype=_C.bool)) if w is not masked else v
            for v, w in ((x, y), (y, x)))
    r, m = own(c, _plain(x), _plain(y)), _mask_of(condition)
    if _b.any(_mask_of(v) is not None for v in (x, y)):
        m = _either(m, own(c, getmaskarray(x), getmaskarray(y))._tensor)
    return _result(r, None if m is None else m.expand(r.shape).clone())


def choose(indices, choices, out=None, mode="raise"):
    """Of several arrays, the one that an index says."""
    i, own = filled(indices, 0), _own("choose")
    r, m = own(i, [_plain(c) for c in choices], out, mode), _mask_of(indices)
    if _b.any(_mask_of(c) is not None for c in choices):
        m = _either(m, own(i, [getmaskarray(c) for c in choices], None, mode)._tensor)
    return _result(r, m)


def compress(condition, a, axis=None):
    """The elements, or slices of an axis, of which a condition holds."""
    kept = wrap(tensor_of(filled(condition, False)).to(_C.bool))
    a = _of(a)
    cut = _own("compress")
    return _made(cut(kept, a.data, axis), None if a._mask is None else cut(kept, wrap(a._mask), axis)._tensor, a._fill)


MaskedArray.compress = lambda self, condition, axis=None: compress(condition, self, axis)  # type: ignore[attr-defined]


def diff(a, n=1, axis=-1):
    """Differences of neighbours."""
    a = _of(a)
    for _ in range(n):
        before = (slice(None),) * (axis % a.ndim)
        a = a[(*before, slice(1, None))] - a[(*before, slice(None, -1))]
    return a


def ediff1d(arr, to_end=None, to_begin=None):
    """Differences of neighbours in C order, with what is to stand before and behind."""
    parts = [to_begin, diff(_of(arr).ravel()), to_end]
    return globals()["concatenate"]([_of(p).ravel() for p in parts if p is not None])


def put(a, indices, values, mode="raise"):
    """Sets elements by their indices in C order."""
    if mode != "raise":
        raise NotImplementedError(f"ma.put(): mode={mode!r}")
    a.put(indices, values)


# --- sets -------------------------------------------------------------------------------------------------------------------------


def _set(values, missing):
    """Values, and what is missing as one more behind them."""
    t = values._tensor
    m = _zeros(t)
    if missing:
        t, m = _t.cat([t, t.new_zeros(1)]), _t.cat([m, m.new_ones(1)])
    return _made(wrap(t), m)


def unique(ar1, return_index=False, return_inverse=False):
    """Sorted values that differ; what is missing is one, the last."""
    if return_index or return_inverse:
        raise NotImplementedError("ma.unique(): indices are NumPy's unique of compressed()")
    a = _of(ar1)
    values = _own("unique")(a.compressed())
    return _made(values, None) if a._mask is None else _set(values, is_masked(a))


def _of_sets(name, whether):
    def function(ar1, ar2, assume_unique=False):
        a, b = _of(ar1), _of(ar2)
        return _set(_own(name)(a.compressed(), b.compressed()), whether(is_masked(a), is_masked(b)))

    function.__name__, function.__doc__ = name, f"NumPy's {name}, for which what is missing is one more value."
    return function


def union1d(ar1, ar2):
    """The values of both."""
    return unique(append(ar1, ar2))


intersect1d = _of_sets("intersect1d", lambda a, b: a and b)
setdiff1d = _of_sets("setdiff1d", lambda a, b: a and not b)
setxor1d = _of_sets("setxor1d", lambda a, b: a != b)


def isin(element, test_elements, assume_unique=False, invert=False):
    """Whether elements are among others; missing where they are."""
    a = _of(element)
    return _made(_own("isin")(a.data, compressed(test_elements), invert=invert), a._full.clone())


def in1d(ar1, ar2, assume_unique=False, invert=False):
    """isin of the flat array."""
    return isin(_of(ar1).ravel(), ar2, assume_unique, invert)


# --- comparisons ------------------------------------------------------------------------------------------------------------------


def allequal(a, b, fill_value=True):
    """Whether all elements are equal; what is missing counts as `fill_value`."""
    r = _of(_of(getdata(a)) == getdata(b))
    m = _either(_mask_of(a), _mask_of(b))
    equal = r.data._tensor if m is None else r.data._tensor | m
    return (m is None or fill_value or not _b.bool(m.any())) and _b.bool(equal.all())


def allclose(a, b, masked_equal=True, rtol=1e-5, atol=1e-8):
    """Whether all elements are close; what is missing counts as `masked_equal`."""
    r = _own("isclose")(getdata(a), getdata(b), rtol, atol)._tensor
    m = _either(_mask_of(a), _mask_of(b))
    return _b.bool((r if m is None else r | m if masked_equal else r & ~m).all())


_REFUSED = {
    **dict.fromkeys(("mvoid", "fromflex", "flatten_structured_array", "make_mask_descr", "flatten_mask"), "there are no records"),
    "masked_object": "arrays hold numbers",
    "harden_mask": "masks are soft",
    **dict.fromkeys(("apply_along_axis", "apply_over_axes", "ndenumerate", "vander", "convolve", "correlate", "putmask", "hsplit", "mr_",
                     "compress_nd", "notmasked_contiguous", "notmasked_edges"), "take NumPy's function of data and of getmaskarray"),
}


def __getattr__(name):
    reason = _REFUSED.get(name)
    raise AttributeError(f"module 'arete.numpy.ma' has no attribute {name!r}" + (f": {reason}" if reason else ""))
