"""Sums, products, extremes, statistics, quantiles and running sums; with names in nan* of what is not NaN."""
from __future__ import annotations

import builtins as _b
import math as _math
import warnings as _warnings

from .. import _C, _operators as _t
from .._operators import _ops
from ._array import (
    MaskedOperand, axes_of as _all_axes, axis_of as _one_axis, cast, for_masked, ndarray, result_into, short_way, tensor_of, wrap,
)
from ._types import FLOAT64, OF_TENSOR, PROMOTED_NATIVE, as_dtype, native, number_type
from ._ufuncs import ACCUMULATORS, REDUCERS, _ALL

__all__ = [
    "sum", "prod", "max", "min", "amax", "amin", "any", "all", "mean", "var", "std", "ptp", "average", "median", "argmax", "argmin",
    "cumsum", "cumprod", "cumulative_sum", "cumulative_prod", "count_nonzero", "percentile", "quantile", "nansum", "nanprod", "nanmax",
    "nanmin", "nanmean", "nanvar", "nanstd", "nanmedian", "nanargmax", "nanargmin", "nancumsum", "nancumprod", "nanpercentile",
    "nanquantile",
]


def axes_of(axis, n):
    """Axes from 0 on; an array without dimensions is taken along axis 0, too."""
    return () if not n and axis is not None and _all_axes(axis, 1) else _all_axes(axis, n)


def axis_of(axis, n):
    return _one_axis(axis, n or 1)


def _no(value):
    """Whether an option was left out, as None or as the ufuncs' True."""
    return value is None or value is True


def _mask(where, t):
    m = tensor_of(where)
    if m.dtype is not _C.bool:
        raise TypeError("where must be bool")
    return m.to(t.device)


def _of_masked(name, a, axis, dtype, out, keepdims, *others, **options):
    """numpy.ma's reduction, which has no `others`."""
    if not _b.all(map(_no, others)):
        raise NotImplementedError(f"{name}() of a masked array: where, initial and mean")
    return for_masked(name)(a, axis, dtype, out, keepdims, **options)


def _keep(r, t, axis, keepdims):
    """A result of all axes with these as axes of size 1."""
    if not keepdims:
        return r
    axes = axes_of(axis, t.dim())
    return r.reshape([1 if i in axes else s for i, s in enumerate(t.shape)])


def _whole(t):
    """The dtype of a sum or product."""
    if t.is_floating_point() or t.is_complex():
        return t.dtype
    return _C.int64 if t.dtype.is_signed or t.dtype is _C.bool else _C.uint64


def _sum(t, axes, keepdims, d):
    if not axes:
        return cast(t, d, copy=True)
    return _t.sum(cast(t, d) if t.is_complex() and not d.is_complex else t, axes, keepdims, dtype=d)


def _prod(t, axes, keepdims, d):
    t = cast(t, d)
    for x in sorted(axes, reverse=True):
        t = cast(_ops.prod(t, x, keepdims), d)
    return t.clone() if not axes else t


def _additive(name, run, combine, identity):
    def function(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
        try:
            t = a._tensor if type(a) is ndarray else tensor_of(a)
        except MaskedOperand:
            return _of_masked(name, a, axis, dtype, out, keepdims, where, initial)
        d = native(dtype) if dtype is not None else _whole(t)
        if not _no(where):
            t = _t.where(_mask(where, t), t, _t.full((), identity, dtype=t.dtype, device=t.device))
        r = run(t, axes_of(axis, t.dim()), keepdims, d)
        if initial is not None:
            r = combine(r, tensor_of(initial, r.dtype))
        return result_into(r, out)

    function.__name__ = name
    function.__doc__ = f"The {'sum' if name == 'sum' else 'product'} of elements, of all or along axes; of whole numbers int64 or uint64."
    return function


sum = short_way(_additive("sum", _sum, _t.add, 0))  # noqa: A001
prod = _additive("prod", _prod, _t.mul, 1)


def _lowest(d, low):
    """The least or greatest of a dtype."""
    if d is _C.bool:
        return not low
    if d.is_floating_point or d.is_complex:
        return -_math.inf if low else _math.inf
    from ._types import LIMITS

    return LIMITS[d][0 if low else 1]


def _extreme(name, operator, own, low):
    def function(a, axis=None, out=None, keepdims=False, initial=None, where=None, dtype=None):
        try:
            t = a._tensor if type(a) is ndarray else tensor_of(a)
        except MaskedOperand:
            return _of_masked(name, a, axis, dtype, out, keepdims, where, initial)
        if dtype is not None:
            t = cast(t, native(dtype))
        axes = axes_of(axis, t.dim())
        if not _no(where):
            if initial is None:
                raise ValueError(f"reduction operation '{own}' does not have an identity, so to use a where mask one has to specify "
                                 "'initial'")
            t = _t.where(_mask(where, t), t, _t.full((), _lowest(t.dtype, low), dtype=t.dtype, device=t.device))
        empty = _b.any(t.shape[x] == 0 for x in axes)
        if empty and initial is None:
            raise ValueError(f"zero-size array to reduction operation {own} which has no identity")
        if not axes:
            r = t.clone()
        elif empty:
            r = _t.full([1 if i in axes else s for i, s in enumerate(t.shape) if i not in axes or keepdims],
                        _lowest(t.dtype, low), dtype=t.dtype, device=t.device)
        elif t.is_complex():
            r = t
            for x in sorted(axes, reverse=True):
                r = _ALL[own]._fold(r, x)
                r = r.unsqueeze(x) if keepdims else r
        else:
            r = operator(t, axes, keepdims)
        if initial is not None:
            r = _ALL[own]._compute(wrap(r), wrap(tensor_of(initial, r.dtype)))
        return result_into(r, out)

    function.__name__ = name
    function.__doc__ = f"The {'greatest' if low else 'least'} element, of all or along axes; NaN where there is one."
    return function


max = amax = short_way(_extreme("max", _ops.amax, "maximum", True))  # noqa: A001
min = amin = short_way(_extreme("min", _ops.amin, "minimum", False))  # noqa: A001


def _logical(name, operator, identity):
    def function(a, axis=None, out=None, keepdims=False, *, where=None, dtype=None, initial=None):
        try:
            t = tensor_of(a)
        except MaskedOperand:
            return _of_masked(name, a, axis, dtype, out, keepdims, where, initial)
        if dtype is not None and as_dtype(dtype)._tensor_dtype is not _C.bool:
            raise TypeError(f"{name}: results are booleans, not {as_dtype(dtype)}")
        if not _no(where):
            t = _t.where(_mask(where, t), t != 0, _t.full((), identity, dtype=_C.bool, device=t.device))
        axes = axes_of(axis, t.dim())
        r = operator(t, axes, keepdims) if axes else (t != 0)
        if initial is not None:
            r = (r & _b.bool(initial)) if name == "all" else (r | _b.bool(initial))
        return result_into(r.to(_C.bool), out, "unsafe")

    function.__name__ = name
    function.__doc__ = f"Whether {name} elements are other than zero, of all or along axes."
    return function


any = short_way(_logical("any", _t.any, False))  # noqa: A001
all = short_way(_logical("all", _t.all, True))  # noqa: A001


def _floating(t, dtype=None):
    """A tensor to take means of."""
    if dtype is not None:
        return cast(t, native(dtype))
    return t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)


@short_way
def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """The mean, of all elements or along axes; of whole numbers float64."""
    try:
        t = _floating(tensor_of(a), dtype)
    except MaskedOperand:
        return _of_masked("mean", a, axis, dtype, out, keepdims, where)
    axes = _all_axes(axis, t.dim())
    if not _no(where):
        m = _mask(where, t).expand(t.shape)
        r = _sum(_t.where(m, t, 0), axes, keepdims, t.dtype) / _sum(m, axes, keepdims, _C.int64)
        return result_into(r.to(t.dtype), out)
    _warn_empty(t, axes, "Mean of empty slice")
    if not t.is_floating_point() and not t.is_complex():
        return result_into(_t.div(_sum(t, axes, keepdims, t.dtype), _count(t, axes), rounding_mode="trunc"), out)
    return result_into(_t.mean(t, axes, keepdims) if axes else t.clone(), out)


def _count(t, axes):
    n = 1
    for x in axes:
        n *= t.shape[x]
    return n


def _warn_empty(t, axes, text):
    if axes and _count(t, axes) == 0:
        _warnings.warn(text, RuntimeWarning, stacklevel=3)


def _spread(name, root):
    def function(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
        if correction is not None:
            if ddof:
                raise ValueError("ddof and correction can't be provided simultaneously.")
            ddof = correction
        try:
            t = tensor_of(a)
        except MaskedOperand:
            return _of_masked(name, a, axis, dtype, out, keepdims, where, mean, ddof=ddof)
        target = native(dtype)
        t = _floating(t, None if t.is_complex() and target is not None and not target.is_complex else dtype)
        axes = _all_axes(axis, t.dim())
        narrow = t.dtype if t.element_size() == 2 else None
        if _no(where) and mean is None and axes:
            n = _count(t, axes)
            if n <= ddof:
                _warnings.warn("Degrees of freedom <= 0 for slice", RuntimeWarning, stacklevel=2)
            r = _t.var(t, axes, correction=ddof if n > ddof else 0, keepdim=keepdims)
            if ddof and n <= ddof:
                r = r * (_math.nan if not n else _math.inf if n - ddof == 0 else n / (n - ddof))
                if n == ddof:  # 0 / 0 is no number
                    r = _t.where(r.isnan(), r, _t.where(_t.isinf(r), r, _math.nan))
                elif n < ddof:
                    r = _t.var(t, axes, correction=0, keepdim=keepdims) * n / 0.0
        else:
            t = t.float() if narrow is not None else t
            m = _t.ones((), dtype=_C.bool, device=t.device) if _no(where) else _mask(where, t)
            m = m.expand(t.shape)
            n = _sum(m, axes, True, _C.int64)
            centre = tensor_of(mean).to(t.dtype) if mean is not None else _sum(_t.where(m, t, 0), axes, True, t.dtype) / n
            d = _t.where(m, t - centre, 0)
            d = (d * d.conj()).real if d.is_complex() else d * d
            r = _sum(d, axes, True, d.dtype) / (n - ddof).clamp(min=0)
            r = _t.where((n - ddof) <= 0, _math.nan, r).to(d.dtype)
            r = r if keepdims else r.reshape([s for i, s in enumerate(t.shape) if i not in axes])
        r = r.sqrt() if root else r
        r = r if target is None else r.to(target)
        return result_into(r if narrow is None else r.to(narrow), out)

    function.__name__ = name
    function.__doc__ = f"The {'standard deviation' if root else 'variance'}, of all elements or along axes, divided by n - ddof; ddof is 0."
    return function


var, std = _spread("var", False), _spread("std", True)


def ptp(a, axis=None, out=None, keepdims=False):
    """The greatest element less the least."""
    a = wrap(tensor_of(a))
    return result_into((max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims))._tensor, out)


def average(a, axis=None, weights=None, returned=False, *, keepdims=False):
    """The mean, weighted; with `returned` also the sum of the weights."""
    t = tensor_of(a)
    axes = _all_axes(axis, t.dim())
    if weights is None:
        r = mean(wrap(t), axis, keepdims=keepdims)
        if not r.size:
            raise ZeroDivisionError("division by zero")
        total = _t.full(r._tensor.shape, float(_count(t, axes)), dtype=r._tensor.dtype, device=t.device)
        return (r, wrap(total)) if returned else r
    w = tensor_of(weights)
    if w.shape != t.shape:
        if axis is None:
            raise TypeError("Axis must be specified when shapes of a and weights differ.")
        if tuple(w.shape) != tuple(t.shape[x] for x in axes):
            raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        w = w.permute(order).reshape([s if i in axes else 1 for i, s in enumerate(t.shape)])
    from ._types import promote

    d = promote(OF_TENSOR[t.dtype], OF_TENSOR[w.dtype])
    d = promote(d, FLOAT64) if not (t.is_floating_point() or t.is_complex()) else d
    w = cast(w, d._tensor_dtype).expand(t.shape)
    total = _sum(w, axes, keepdims, w.dtype)
    if _b.bool((total == 0).any()):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    r = _sum(cast(t, d._tensor_dtype) * w, axes, keepdims, w.dtype) / total
    return (wrap(r), wrap(total)) if returned else wrap(r)


def _place(name, operator):
    def function(a, axis=None, out=None, *, keepdims=False):
        t = tensor_of(a)
        if not t.dim() and axis is not None:
            axis_of(axis, 0)
            return function(wrap(t), None, out, keepdims=keepdims)
        if not t.numel() and (axis is None or not t.shape[axis_of(axis, t.dim())]):
            raise ValueError(f"attempt to get {name} of an empty sequence")
        if t.is_complex():
            order = _ALL["maximum" if name == "argmax" else "minimum"]
            best = order._fold(t.reshape(-1) if axis is None else t, 0 if axis is None else axis_of(axis, t.dim()))
            t = (t == (best if axis is None else best.unsqueeze(axis_of(axis, t.dim())))) | _t.isnan(t)
            best_of = _ops.argmax
        else:
            best_of = operator
        if axis is None:
            r = best_of(t.reshape(-1) if not t.dtype is _C.bool else t.reshape(-1).to(_C.uint8))
            return result_into(_keep(r, t, None, keepdims), out)
        axis = axis_of(axis, t.dim())
        r = best_of(t if t.dtype is not _C.bool else t.to(_C.uint8), axis, keepdims) if t.dim() else _t.zeros(
            (), dtype=_C.int64, device=t.device)
        return result_into(r, out)

    function.__name__ = name
    function.__doc__ = f"The index of the first {'greatest' if name == 'argmax' else 'least'} element, among all or along an axis."
    return function


argmax, argmin = short_way(_place("argmax", _ops.argmax)), short_way(_place("argmin", _ops.argmin))


def _running(name, operator):
    def function(a, axis=None, dtype=None, out=None):
        t = tensor_of(a)
        t, axis = (t.reshape(-1), 0) if axis is None else (t if t.dim() else t.reshape(1), axis_of(axis, t.dim()))
        d = native(dtype) if dtype is not None else _whole(t)
        return result_into(cast(operator(cast(t, d), axis), d), out)

    function.__name__ = name
    function.__doc__ = f"The {'sums' if name == 'cumsum' else 'products'} of all elements up to each one."
    return function


cumsum, cumprod = _running("cumsum", _t.cumsum), _running("cumprod", _t.cumprod)


def _cumulative(name, running, start):
    def function(x, /, *, axis=None, dtype=None, out=None, include_initial=False):
        t = tensor_of(x)
        if axis is None:
            if t.dim() > 1:
                raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
            axis = 0
        t = t.reshape(1) if not t.dim() else t
        r = running(wrap(t), axis, dtype)._tensor
        if include_initial:
            axis = axis_of(axis, t.dim())
            first = _t.full([1 if i == axis else s for i, s in enumerate(t.shape)], start, dtype=r.dtype, device=r.device)
            r = _t.cat([first, r], axis)
        return result_into(r, out)

    function.__name__ = name
    function.__doc__ = f"As `{'cumsum' if start == 0 else 'cumprod'}`, in the array API's form."
    return function


cumulative_sum, cumulative_prod = _cumulative("cumulative_sum", cumsum, 0), _cumulative("cumulative_prod", cumprod, 1)


@short_way
def count_nonzero(a, axis=None, *, keepdims=False):
    """How many elements are not zero."""
    t = tensor_of(a)
    axes = axes_of(axis, t.dim())
    if not keepdims and t.dim():
        return wrap(_t.count_nonzero(t, None if axis is None else axes))
    return wrap(_sum(t != 0, axes, keepdims, _C.int64))


REDUCERS.update(add=sum, multiply=prod, maximum=max, minimum=min, logical_and=all, logical_or=any)


def _scan_extreme(operator):
    def function(a, axis=0, dtype=None, out=None):
        return result_into(operator(tensor_of(a, dtype), axis)[0], out)

    return function


ACCUMULATORS.update(
    add=lambda a, axis, dtype, out: cumsum(a, axis, dtype, out),
    multiply=lambda a, axis, dtype, out: cumprod(a, axis, dtype, out),
    maximum=_scan_extreme(_t.cummax),
    minimum=_scan_extreme(_t.cummin),
)


# --- quantiles ---------------------------------------------------------------------------------------------------------------

_METHODS = {  # where a quantile lies among n sorted elements: alpha and beta of the usual formula
    "linear": (1, 1), "weibull": (0, 0), "hazen": (0.5, 0.5), "median_unbiased": (1 / 3, 1 / 3), "normal_unbiased": (3 / 8, 3 / 8),
    "interpolated_inverted_cdf": (0, 1), "median": (1, 1),
}
_STEPS = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "lower", "higher", "midpoint", "nearest")


_CHOOSING = {"inverted_cdf", "closest_observation", "lower", "higher", "nearest"}  # an element, and nothing between two


def _positions(q, n, method):
    """The place before a quantile, the place after and how far it lies between, for q and n tensors of float64."""
    if method in ("linear", "median"):
        at = (n - 1) * q
    elif method in _METHODS:
        alpha, beta = _METHODS[method]
        at = n * q + (alpha + q * (1 - alpha - beta)) - 1
    elif method in ("lower", "higher", "midpoint", "nearest"):
        at = (n - 1) * q
        at = {"lower": lambda: at.floor(), "higher": lambda: at.ceil(), "nearest": lambda: _t.round(at),
              "midpoint": lambda: 0.5 * (at.floor() + at.ceil())}[method]()
    elif method == "inverted_cdf":
        at = (n * q).ceil() - 1
    elif method == "closest_observation":
        at = _t.round(n * q) - 1
    else:  # averaged_inverted_cdf
        at = n * q - 1
    low = at.floor()
    between = _t.where(at == low, 0.5, 1.0).to(at.dtype) if method == "averaged_inverted_cdf" else at - low
    return _t.minimum(low.clamp(min=0), n - 1), _t.minimum((low + 1).clamp(min=0), n - 1), between


def _quantile(t, q, axis, method, keepdims, out, ignore_nan, weights=None):
    if method not in _METHODS and method not in _STEPS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {', '.join([*_METHODS, *_STEPS])}")
    if t.is_complex() and t.numel():
        raise TypeError("a must be an array of real numbers")
    if not t.is_floating_point() and not t.is_complex():
        if t.dtype is _C.bool and method not in _CHOOSING:
            raise TypeError(
                "numpy boolean subtract, the `-` operator, is not supported: quantiles of bool are chosen, and not interpolated"
            )
        chosen = t.dtype if method in _CHOOSING else None
        t = t.to(_C.float64)
        if chosen is not None:
            return result_into(cast(_quantile(t, q, axis, method, keepdims, None, ignore_nan, weights)._tensor, chosen), out)
    qt = tensor_of(q)
    if method == "linear" and not qt.is_floating_point():
        method = "lower"  # the first and the last element, and nothing between
    if qt.is_floating_point() and number_type(q) is None and method not in _CHOOSING:
        t = cast(t, PROMOTED_NATIVE[t.dtype, qt.dtype])
    qt = qt.to(_C.float64).to(t.device)
    if _b.bool(((qt < 0) | (qt > 1) | qt.isnan()).any()):
        raise ValueError("Quantiles must be in the range [0, 1]")
    axes = _all_axes(axis, t.dim())
    kept = [1 if i in axes else s for i, s in enumerate(t.shape)]
    rest = [i for i in range(t.dim()) if i not in axes]
    rows = t.permute(rest + list(axes)).reshape(
        [t.shape[i] for i in rest] + [-1] if t.numel() or not axes else [t.shape[i] for i in rest] + [0]
    )
    if weights is not None:
        r = _weighted_quantile(rows, qt, weights, t, axes, rest, method)
    elif not rows.shape[-1]:
        r = _t.full(tuple(qt.shape) + tuple(rows.shape[:-1]), _math.nan, dtype=t.dtype, device=t.device)
    else:
        r = _selected_quantile(rows, qt, method, ignore_nan) if _is_for_selection(rows, qt) else None
        r = _sorted_quantile(rows.sort(-1)[0], qt, method, ignore_nan) if r is None else r
    if keepdims:
        r = r.reshape(tuple(qt.shape) + tuple(kept))
    return result_into(r, out)


def _between(a, b, gamma, method):
    """What lies between two elements. NumPy's formula is taken as it is, which makes NaN of infinite elements; medians are means."""
    if method == "median":
        both = a.float() + b.float() if a.element_size() == 2 else a + b
        return _t.where(gamma == 0, a, (both * 0.5).to(a.dtype))
    if method in _CHOOSING:
        return a
    gap = b - a
    return _t.where(gamma >= 0.5, b - gap * (1 - gamma), a + gap * gamma)


def _is_for_selection(rows, qt):
    """Whether a few elements of one long row are asked for, on the CPU."""
    return rows.dim() == 1 and rows.numel() >= 8192 and qt.numel() <= 4 and rows.device.type == "cpu" and not (
        _C.is_grad_enabled() and rows.requires_grad)


def _selected_quantile(row, qt, method, ignore_nan):
    """Without an order of all: a sample tells between which elements the wanted ones are, and only these are sorted. None where the
    sample misleads, or NaN are to be left out."""
    n = row.numel()
    low, high, gamma = _positions(qt.reshape(-1), _t.full((1,), float(n), dtype=_C.float64), method)
    sample = row[:: int(n ** (1 / 3))].sort()[0]
    m, found = sample.numel(), []
    for first, last in zip(low.to(_C.int64).tolist(), high.to(_C.int64).tolist()):
        spread = int(2.5 * m**0.5)
        begin, end = first * m // n - spread, last * m // n + 1 + spread
        least = sample[begin] if begin > 0 else -_math.inf
        most = sample[end] if end < m else _math.inf
        below, beyond = row < least, row > most
        inside = row[~(below | beyond)]  # NaN are among them, and sorted last
        if inside.numel() and not _b.bool(inside.min() == inside.max()):  # not of a value that is there many times
            inside = inside.sort()[0]
        if inside.numel() and _math.isnan(inside[-1]):
            return None if ignore_nan else _t.full(tuple(qt.shape), _math.nan, dtype=row.dtype)
        before = int(below.sum())
        if not before <= first <= last < before + inside.numel():
            return None
        found.append(inside[[first - before, last - before]])
    a, b = _t.stack(found, -1).unbind(0)
    return _between(a, b, gamma.to(row.dtype), method).reshape(tuple(qt.shape))


def _sorted_quantile(rows, qt, method, ignore_nan):
    n = rows.shape[-1]
    flat = qt.reshape(-1)
    bad = rows.isnan()
    if ignore_nan:
        count = (n - bad.sum(-1, True)).to(_C.float64)
    else:
        count = _t.full(tuple(rows.shape[:-1]) + (1,), float(n), dtype=_C.float64, device=rows.device)
    low, high, gamma = _positions(flat, count.clamp(min=1), method)
    r = _between(*(_t.gather(rows, -1, k.to(_C.int64)) for k in (low, high)), gamma.to(rows.dtype), method)
    lost = count == 0 if ignore_nan else bad.any(-1, True)
    r = _t.where(lost, _math.nan, r).to(rows.dtype)
    return r.movedim(-1, 0).reshape(tuple(qt.shape) + tuple(rows.shape[:-1]))


def _weighted_quantile(rows, qt, weights, t, axes, rest, method):
    if method != "inverted_cdf":
        raise ValueError("Only method 'inverted_cdf' supports weights.")
    w = tensor_of(weights).to(t.device, _C.float64)
    if w.shape != t.shape:
        w = w.reshape([s if i in axes else 1 for i, s in enumerate(t.shape)]).expand(t.shape)
    w = w.permute(rest + list(axes)).reshape(rows.shape)
    if _b.bool((w < 0).any()):
        raise ValueError("Weights must be non-negative.")
    values, order = rows.sort(-1, stable=True)
    total = _t.cumsum(_t.gather(w, -1, order), -1)
    total = total / total.narrow(-1, total.shape[-1] - 1, 1)
    flat = qt.reshape(-1)
    at = (total.unsqueeze(-1) < flat).sum(-2).clamp(max=rows.shape[-1] - 1)
    r = _t.gather(values, -1, at)
    return r.movedim(-1, 0).reshape(tuple(qt.shape) + tuple(rows.shape[:-1]))


def _without_nan(name, ignore_nan, scale):
    def function(a, q, axis=None, out=None, overwrite_input=False, method="linear", keepdims=False, *, weights=None, interpolation=None):
        if interpolation is not None:
            raise TypeError(f"{name}(): interpolation is called method")
        q = q if scale == 1 else wrap(tensor_of(q) / 100 if tensor_of(q).is_floating_point() else tensor_of(q).to(_C.float64) / 100)
        q = float(q) if scale != 1 and not q.ndim else q
        if scale != 1 and not (_b.all(0 <= v <= 1 for v in ([q] if isinstance(q, float) else q.ravel().tolist()))):
            raise ValueError("Percentiles must be in the range [0, 100]")
        return _quantile(tensor_of(a), q, axis, method, keepdims, out, ignore_nan, weights)

    function.__name__ = name
    function.__doc__ = ("Quantiles" if scale == 1 else "Percentiles") + ", of all elements or along axes, by any of NumPy's methods" + (
        "; NaN is left out." if ignore_nan else ".")
    return function


quantile, percentile = _without_nan("quantile", False, 1), _without_nan("percentile", False, 100)
nanquantile, nanpercentile = _without_nan("nanquantile", True, 1), _without_nan("nanpercentile", True, 100)


def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The element in the middle, or the mean of the two there."""
    return _median(tensor_of(a), axis, out, keepdims, False)


def nanmedian(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The median of what is not NaN."""
    return _median(tensor_of(a), axis, out, keepdims, True)


def _median(t, axis, out, keepdims, ignore_nan):
    axes = _all_axes(axis, t.dim())
    if t.is_complex() and t.numel():
        return _complex_median(t, axes, out, keepdims, ignore_nan)
    t = t.to(_C.float64) if t.dtype is _C.bool else t
    if _count(t, axes) == 0:
        _warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=3)
    return _quantile(t, 0.5, axis, "median", keepdims, out, ignore_nan)


def _complex_median(t, axes, out, keepdims, ignore_nan):
    from ._searching import _order

    rows = t.permute([i for i in range(t.dim()) if i not in axes] + list(axes)).reshape(
        [s for i, s in enumerate(t.shape) if i not in axes] + [-1]
    )
    rows = _t.gather(rows, -1, _order(rows, rows.dim() - 1))
    lost = rows.isnan()
    n = rows.shape[-1] - (lost.sum(-1, True) if ignore_nan else _t.zeros_like(lost[..., :1], dtype=_C.int64))
    middle = [_t.gather(rows, -1, p.clamp(min=0)) for p in (_t.div(n - 1, 2, rounding_mode="floor"), _t.div(n, 2, rounding_mode="floor"))]
    r = ((middle[0] + middle[1]) / 2).squeeze(-1)
    r = r if ignore_nan else _t.where(lost.any(-1), _math.nan, r).to(t.dtype)
    return result_into(r.reshape([1 if i in axes else s for i, s in enumerate(t.shape)]) if keepdims else r, out)


# --- without NaN -------------------------------------------------------------------------------------------------------------


def _filled(t, value):
    return _t.where(t.isnan(), _t.full((), value, dtype=t.dtype, device=t.device), t) if t.is_floating_point() or t.is_complex() else t


def _ignoring(name, whole, value):
    def function(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
        return whole(wrap(_filled(tensor_of(a), value)), axis, dtype, out, keepdims, initial, where)

    function.__name__ = name
    function.__doc__ = f"As `{name[3:]}`, without what is NaN."
    return function


nansum, nanprod = _ignoring("nansum", sum, 0), _ignoring("nanprod", prod, 1)


def _ignoring_running(name, whole, value):
    def function(a, axis=None, dtype=None, out=None):
        return whole(wrap(_filled(tensor_of(a), value)), axis, dtype, out)

    function.__name__ = name
    function.__doc__ = f"As `{name[3:]}`, without what is NaN."
    return function


nancumsum, nancumprod = _ignoring_running("nancumsum", cumsum, 0), _ignoring_running("nancumprod", cumprod, 1)


def _ignoring_extreme(name, whole, low):
    def function(a, axis=None, out=None, keepdims=False, initial=None, where=None):
        t = tensor_of(a)
        r = whole(wrap(_filled(t, _lowest(t.dtype, low))), axis, None, keepdims, initial, where)._tensor
        if t.is_floating_point() and initial is None:
            lost = all(wrap(t.isnan()), axis, keepdims=keepdims)._tensor
            if _b.bool(lost.any()):
                _warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
                r = _t.where(lost, _math.nan, r).to(t.dtype)
        return result_into(r, out)

    function.__name__ = name
    function.__doc__ = f"As `{name[3:]}`, without what is NaN."
    return function


nanmax, nanmin = _ignoring_extreme("nanmax", max, True), _ignoring_extreme("nanmin", min, False)


def _ignoring_place(name, whole, low):
    def function(a, axis=None, out=None, *, keepdims=False):
        t = tensor_of(a)
        if t.is_floating_point() and _b.bool(all(wrap(t.isnan()), axis)._tensor.any()):
            raise ValueError("All-NaN slice encountered")
        return whole(wrap(_filled(t, _lowest(t.dtype, low))), axis, out, keepdims=keepdims)

    function.__name__ = name
    function.__doc__ = f"As `{name[3:]}`, without what is NaN."
    return function


nanargmax, nanargmin = _ignoring_place("nanargmax", argmax, True), _ignoring_place("nanargmin", argmin, False)


def _both(where, t):
    m = ~t.isnan() if t.is_floating_point() or t.is_complex() else _t.ones(t.shape, dtype=_C.bool, device=t.device)
    return wrap(m if _no(where) else m & _mask(where, t))


def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """The mean of what is not NaN."""
    t = tensor_of(a)
    axis = None if not t.dim() and t.is_floating_point() | t.is_complex() and axis is not None and axes_of(axis, 0) == () else axis
    m = _both(where, t)
    if _b.bool((~any(m, axis))._tensor.any()):
        _warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
    return mean(wrap(t), axis, dtype, out, keepdims, where=m)


def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
    """The variance of what is not NaN."""
    t = tensor_of(a)
    return var(wrap(t), axis, dtype, out, ddof, keepdims, where=_both(where, t), mean=mean, correction=correction)


def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, *, where=None, mean=None, correction=None):
    """The standard deviation of what is not NaN."""
    t = tensor_of(a)
    return std(wrap(t), axis, dtype, out, ddof, keepdims, where=_both(where, t), mean=mean, correction=correction)
