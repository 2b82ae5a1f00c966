"""Peaks of signals."""
from __future__ import annotations

import math
import operator

from .... import _C, _operators as _t
from ...._kernels._python import INTRINSICS, PythonKernel
from .._arrays import floating, like, tensor

__all__ = ["argrelextrema", "argrelmax", "argrelmin", "find_peaks", "peak_prominences", "peak_widths"]

_grid = INTRINSICS["grid"]


def _prominences(x, peaks, wlen, prominence, left, right):
    # A thread a peak: how far it stands out above the higher of the lowest points on the ways to what is higher, or to the ends.
    k = _grid(1)
    if k < peaks.shape[0]:
        p = peaks[k]
        first, last = 0, x.shape[0] - 1
        if wlen >= 2:
            first = max(p - wlen // 2, 0)
            last = min(p + wlen // 2, last)
        i = p
        low = x[p]
        left[k] = p
        while i >= first and x[i] <= x[p]:
            if x[i] < low:
                low = x[i]
                left[k] = i
            i -= 1
        i = p
        other = x[p]
        right[k] = p
        while i <= last and x[i] <= x[p]:
            if x[i] < other:
                other = x[i]
                right[k] = i
            i += 1
        prominence[k] = x[p] - max(low, other)


def _widths(x, peaks, share, prominence, left_base, right_base, width, height, left, right):
    k = _grid(1)
    if k < peaks.shape[0]:
        p = peaks[k]
        h = x[p] - prominence[k] * share
        height[k] = h
        i = p
        while left_base[k] < i and h < x[i]:
            i -= 1
        a = float(i)
        if x[i] < h:
            a += (h - x[i]) / (x[i + 1] - x[i])
        i = p
        while i < right_base[k] and h < x[i]:
            i += 1
        b = float(i)
        if x[i] < h:
            b -= (h - x[i]) / (x[i - 1] - x[i])
        width[k] = b - a
        left[k] = a
        right[k] = b


_prominences_kernel, _widths_kernel = PythonKernel(_prominences, mode="numpy"), PythonKernel(_widths, mode="numpy")


def _signal(x):
    t = floating(tensor(x)).to(_C.float64).contiguous()
    if t.dim() != 1:
        raise ValueError("`x` must be a 1-D array")
    return t


def _places(peaks, t):
    at = tensor(peaks)
    if at.numel() and (at.dtype.is_floating_point or at.dtype.is_complex or at.dtype is _C.uint64):
        raise TypeError("cannot safely cast `peaks` to dtype('intp')")
    if at.dim() != 1:
        raise ValueError("`peaks` must be a 1-D array")
    return at.to(t.device, _C.int64).contiguous()


def _prominent(t, peaks, wlen):
    if wlen is not None and wlen <= 1:
        raise ValueError(f"`wlen` must be larger than 1, was {wlen}")
    wlen = -1 if wlen is None else math.ceil(wlen) | 1
    if peaks.numel() and (int(peaks.min()) < 0 or int(peaks.max()) >= t.numel()):
        raise ValueError("a peak is not a valid index for `x`")
    prominence = _t.empty(peaks.shape, dtype=t.dtype, device=t.device)
    left, right = _t.empty_like(peaks), _t.empty_like(peaks)
    if peaks.numel():
        _prominences_kernel.forall(peaks.numel(), 64)(t, peaks, wlen, prominence, left, right)
    return prominence, left, right


def _wide(t, peaks, rel_height, prominence, left, right):
    if rel_height < 0:
        raise ValueError("`rel_height` must be greater or equal to 0.0")
    results = [_t.empty(peaks.shape, dtype=t.dtype, device=t.device) for _ in range(4)]
    if peaks.numel():
        _widths_kernel.forall(peaks.numel(), 64)(t, peaks, float(rel_height), prominence, left, right, *results)
    return results


def peak_prominences(x, peaks, wlen=None):
    """How far peaks stand out of what is around them, and where the lowest points on both sides are."""
    t = _signal(x)
    return tuple(like(x, r) for r in _prominent(t, _places(peaks, t), wlen))


def peak_widths(x, peaks, rel_height=0.5, prominence_data=None, wlen=None):
    """Widths of peaks, `rel_height` of their prominence below them, the heights there, and where they begin and end."""
    t = _signal(x)
    at = _places(peaks, t)
    data = _prominent(t, at, wlen) if prominence_data is None else [tensor(v).contiguous() for v in prominence_data]
    return tuple(like(x, r) for r in _wide(t, at, rel_height, *data))


def _maxima(t):
    """The middles of what is higher than its neighbours, and the ends of these flat parts."""
    n = t.numel()
    change = _t.cat([(t[1:] != t[:-1]).nonzero().reshape(-1), _t.tensor([n - 1], device=t.device)]) if n else t.to(_C.int64)
    last = change  # of each run of equal elements
    first = _t.cat([last[:1] * 0, last[:-1] + 1])
    inner = ((first > 0) & (last < n - 1)).nonzero().reshape(-1)
    first, last = first[inner], last[inner]
    higher = ((t[first - 1] < t[first]) & (t[last + 1] < t[last])).nonzero().reshape(-1)
    first, last = first[higher], last[higher]
    return (first + last) // 2, first, last


def _limits(interval, x, peaks):
    """The least and greatest of a condition: a number, a pair, or one for each element of x."""
    try:
        low, high = interval
    except (TypeError, ValueError):  # a number, or more than two
        low, high = interval, None
    limits = []
    for v in (low, high):
        if v is not None and not isinstance(v, (int, float)):
            is_array, v = hasattr(v, "shape"), tensor(v).to(x.device)
            if is_array and v.dim():
                if v.numel() != x.numel():
                    raise ValueError("array size of border must match x")
                v = v.reshape(-1)[peaks]
        limits.append(v)
    return limits


def _within(values, limits):
    keep = _t.ones(values.shape, dtype=_C.bool, device=values.device)
    if limits[0] is not None:
        keep = keep & (values >= limits[0])
    return keep if limits[1] is None else keep & (values <= limits[1])


def _apart(peaks, heights, distance):
    """The highest ones, and of the others those that are as far as `distance` from all higher ones that stay."""
    at, order = peaks.tolist(), heights.argsort(stable=True).tolist()
    keep = [True] * len(at)
    for k in reversed(order):
        if not keep[k]:
            continue
        for step in (-1, 1):
            other = k + step
            while 0 <= other < len(at) and abs(at[other] - at[k]) < distance:
                keep[other] = False
                other += step
    return _t.tensor(keep, device=peaks.device, dtype=_C.bool)


def find_peaks(x, height=None, threshold=None, distance=None, prominence=None, width=None, wlen=None, rel_height=0.5, plateau_size=None):
    """The peaks of a signal that meet all conditions, and what was measured of them. A condition is the least value, or a pair of the
    least and greatest one."""
    t = _signal(x)
    if distance is not None and distance < 1:
        raise ValueError("`distance` must be greater or equal to 1")
    peaks, first, last = _maxima(t)
    found = {}

    def choose(keep):
        nonlocal peaks
        peaks = peaks[keep]
        for name in found:
            found[name] = found[name][keep]

    if plateau_size is not None:
        found |= {"plateau_sizes": last - first + 1, "left_edges": first, "right_edges": last}
        choose(_within(found["plateau_sizes"], _limits(plateau_size, t, peaks)))
    if height is not None:
        found["peak_heights"] = t[peaks]
        choose(_within(found["peak_heights"], _limits(height, t, peaks)))
    if threshold is not None:
        left, right = t[peaks] - t[peaks - 1], t[peaks] - t[peaks + 1]
        found |= {"left_thresholds": left, "right_thresholds": right}
        low, high = _limits(threshold, t, peaks)
        choose(_within(_t._ops.minimum(left, right), (low, None)) & _within(_t._ops.maximum(left, right), (None, high)))
    if distance is not None:
        choose(_apart(peaks, t[peaks], math.ceil(distance)))
    if prominence is not None or width is not None:
        found |= zip(("prominences", "left_bases", "right_bases"), _prominent(t, peaks.contiguous(), wlen))
    if prominence is not None:
        choose(_within(found["prominences"], _limits(prominence, t, peaks)))
    if width is not None:
        data = [found[n].contiguous() for n in ("prominences", "left_bases", "right_bases")]
        found |= zip(("widths", "width_heights", "left_ips", "right_ips"), _wide(t, peaks.contiguous(), rel_height, *data))
        choose(_within(found["widths"], _limits(width, t, peaks)))
    return like(x, peaks), {name: like(x, v) for name, v in found.items()}


def argrelextrema(data, comparator, axis=0, order=1, mode="clip"):
    """Where elements compare so with all their `order` neighbours on both sides, as the tuple of indices that nonzero gives."""
    if int(order) != order or order < 1:
        raise ValueError("Order must be an int >= 1")
    if mode not in ("clip", "wrap"):
        raise NotImplementedError("argrelextrema(): beyond the ends are their elements ('clip') or the other end ('wrap')")
    t = tensor(data)
    keep, n = _t.ones(t.shape, dtype=_C.bool, device=t.device), t.shape[axis]
    for shift in range(1, order + 1):
        for sign in (shift, -shift):
            at = _t.arange(n, device=t.device) + sign
            other = t.index_select(axis, at % n if mode == "wrap" else at.clamp(0, n - 1))
            keep = keep & tensor(comparator(like(data, t), like(data, other)))
    return tuple(like(data, v) for v in keep.nonzero().unbind(1))


def argrelmax(data, axis=0, order=1, mode="clip"):
    """Where elements are greater than their neighbours."""
    return argrelextrema(data, operator.gt, axis, order, mode)


def argrelmin(data, axis=0, order=1, mode="clip"):
    """Where elements are less than their neighbours."""
    return argrelextrema(data, operator.lt, axis, order, mode)
