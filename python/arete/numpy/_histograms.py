"""Histograms, and the edges of their bins."""
from __future__ import annotations

import builtins as _b
import math as _math
import operator as _operator

from .. import _C, _operators as _t
from ._array import cast, ndarray, tensor_of, wrap
from ._creation import linspace
from ._types import OF_TENSOR, PROMOTED_NATIVE, number_type

__all__ = ["histogram", "histogram_bin_edges", "histogram2d", "histogramdd"]


_interval_counts = _C.Operator("interval_counts")
_COUNTED = (_C.float32, _C.float64, _C.int8, _C.uint8, _C.int16, _C.int32, _C.int64)


def _are_computed(t, edges, low, high):
    """Whether the place of an element in equally wide bins is computed, and looked up only where rounding may have moved it, by one."""
    if t.dtype not in _COUNTED or edges.dtype not in (_C.float32, _C.float64):
        return False
    bins, wide = edges.numel() - 1, edges.dtype is _C.float64
    scale, large = bins / (high - low), 1e300 if wide else 1e37
    return high - low < large and 1 / large < scale < large and (2.0**-50 if wide else 2.0**-21) * (
        bins + max(abs(low), abs(high)) * scale) < 0.5


def _range(t, given):
    if given is not None:
        low, high = given
        if low > high:
            raise ValueError("max must be larger than min in range parameter.")
        if not (_math.isfinite(low) and _math.isfinite(high)):
            raise ValueError(f"supplied range of [{low}, {high}] is not finite")
    elif not t.numel():
        low, high = 0, 1
    else:
        low, high = _t.stack(_t.aminmax(t)).tolist()
        if not (_math.isfinite(low) and _math.isfinite(high)):
            raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _width(t, name):
    """The width of bins that a rule gives."""
    n = t.numel()
    x = t.to(_C.float64)
    ptp = float(x.max() - x.min())

    def fd():
        q = _t.quantile(x, x.new_tensor([0.75, 0.25]))
        return 2.0 * float(q[0] - q[1]) / n ** (1 / 3)

    def sturges():
        return ptp / (_math.log2(n) + 1)

    def doane():
        if n <= 2:
            return 0.0
        sg1 = _math.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
        sigma = float(x.std(correction=0))
        return ptp / (1.0 + _math.log2(n) + _math.log2(1.0 + abs(float((((x - x.mean()) / sigma)**3).mean())) / sg1)) if sigma > 0 else 0.0

    def auto():
        return _b.min(fd() or sturges(), sturges())

    rules = {"fd": fd, "sturges": sturges, "doane": doane, "auto": auto, "sqrt": lambda: ptp / _math.sqrt(n),
             "rice": lambda: ptp / (2.0 * n**(1 / 3)),
             "scott": lambda: (24.0 * _math.pi**0.5 / n)**(1 / 3) * float(x.std(correction=0))}
    if name not in rules:
        raise ValueError(f"{name!r} is not a valid estimator for `bins`")
    return rules[name]()


def histogram_bin_edges(a, bins=10, range=None, weights=None):  # noqa: A002
    """The edges of bins, by their number or by a rule (`'auto'`, `'fd'`, ...)."""
    t = tensor_of(a).reshape(-1)
    t = t if t.dtype is not _C.bool else t.to(_C.uint8)
    kind = OF_TENSOR[t.dtype] if t.is_floating_point() else None  # of edges that are made
    if isinstance(bins, str):
        if weights is not None:
            raise TypeError("Automated estimation of the number of bins is not supported for weighted data")
        low, high = _range(t, range)
        if range is not None:
            t = t[(t >= low) & (t <= high)]
        width = _width(t, bins) if t.numel() else 0
        if width and not t.is_floating_point() and width < 1:
            width = 1
        n = int(_math.ceil((high - low) / width)) if width else 1
        return linspace(low, high, n + 1, dtype=kind)
    if number_type(bins) is None and tensor_of(bins).dim() == 1:
        edges = tensor_of(bins)
        if _b.bool((edges[1:] < edges[:-1]).any()):
            raise ValueError("`bins` must increase monotonically, when an array")
        return wrap(edges)
    try:
        n = _operator.index(bins)
    except TypeError:
        raise TypeError("`bins` must be an integer, a string, or an array") from None
    if n < 1:
        raise ValueError("`bins` must be positive, when an integer")
    low, high = _range(t, range)
    return linspace(low, high, n + 1, dtype=kind)


def histogram(a, bins=10, range=None, density=None, weights=None):  # noqa: A002
    """Counts in bins, or sums of weights, or a density, and the edges of the bins."""
    t = tensor_of(a).reshape(-1)
    equal = weights is None and isinstance(bins, int) and t.dtype is not _C.bool
    if equal:
        range = _range(t, range)  # noqa: A001
    edges = histogram_bin_edges(wrap(t), bins, range, weights)
    d = PROMOTED_NATIVE[t.dtype, edges._tensor.dtype]
    e, n = cast(edges._tensor, d).to(t.device), edges.size - 1
    if equal and _are_computed(t, e, *range):
        counts = _interval_counts(t, e, n, *range)[:n]
        return wrap(counts / _t.diff(e).to(_C.float64) / counts.sum() if density else counts), edges
    x = cast(t, d)
    inside = (x >= e[0]) & (x <= e[-1])
    at = (_t.searchsorted(e.contiguous(), x[inside].contiguous(), right=True) - 1).clamp(max=n - 1)
    if weights is None:
        counts = _t.bincount(at, None, n)
    else:
        w = tensor_of(weights)
        if w.numel() != t.numel():
            raise ValueError("weights should have the same shape as a.")
        w = w.reshape(-1)[inside]
        counts = _t.zeros(n, dtype=w.dtype, device=w.device).index_add(0, at, w)
    if density:
        widths = _t.diff(edges._tensor).to(_C.float64)
        return wrap(counts / widths / counts.sum()), edges
    return wrap(counts), edges


def histogramdd(sample, bins=10, range=None, density=None, weights=None):  # noqa: A002
    """Counts in bins of several axes, and the edges along each."""
    if isinstance(sample, ndarray) or hasattr(sample, "shape"):
        t = tensor_of(sample)
        columns = list((t.unsqueeze(1) if t.dim() == 1 else t).unbind(1))
    else:
        columns = [tensor_of(c) for c in sample]
    k = len(columns)
    bins = [bins] * k if number_type(bins) is not None or isinstance(bins, str) else list(bins)
    if len(bins) != k:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = [None] * k if range is None else list(range)
    if len(ranges) != k:
        raise ValueError("range argument must have one entry per dimension")
    edges = [histogram_bin_edges(wrap(c), b, r) for c, b, r in zip(columns, bins, ranges)]
    at, inside = None, None
    for c, e in zip(columns, edges):
        x, e = c.to(_C.float64), e._tensor.to(_C.float64)
        place = (_t.searchsorted(e.contiguous(), x.contiguous(), right=True) - 1)
        place = _t.where(x == e[-1], e.numel() - 2, place)
        ok = (x >= e[0]) & (x <= e[-1])
        at = place if at is None else at * (e.numel() - 1) + place
        inside = ok if inside is None else inside & ok
    shape = [e.size - 1 for e in edges]
    w = None if weights is None else tensor_of(weights).to(_C.float64)[inside]
    counts = _t.bincount(at[inside], w, _math.prod(shape)).reshape(shape).to(_C.float64)
    if density:
        total = counts.sum()
        for i, e in enumerate(edges):
            counts = counts / _t.diff(e._tensor).reshape([-1 if j == i else 1 for j in _b.range(k)])
        counts = counts / total
    return wrap(counts), tuple(edges)


def histogram2d(x, y, bins=10, range=None, density=None, weights=None):  # noqa: A002
    """Counts in bins of two axes, and the edges along each."""
    if len(tensor_of(x)) != len(tensor_of(y)):
        raise ValueError("x and y must have the same length.")
    n = len(bins) if number_type(bins) is None else 1
    if n not in (1, 2):
        bins = [bins, bins]
    counts, edges = histogramdd([x, y], bins, range, density, weights)
    return counts, edges[0], edges[1]
