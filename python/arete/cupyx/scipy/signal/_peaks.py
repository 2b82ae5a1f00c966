"""Peaks of signals."""
from __future__ import annotations

import math
import operator

from .... import _C, _operators as _t
from ...._kernels._python import INTRINSICS, PythonKernel
from .._arrays import floating, like, tensor

__all__ = ["argrelextrema", "argrelmax", "argrelmin", "find_peaks", "peak_prominences", "peak_widths"]

_grid = INTRINSICS["grid"]



# Note [Trees of a signal]
# From a peak to something higher it may be as far as the signal is long. So there are trees of the greatest and the least of pairs, of
# pairs of pairs and so on: node 1 is the root, node k has the children 2 k and 2 k + 1, and the last nodes are the elements. What looks
# for an element steps over whole nodes without one, twice as large ones where they begin, and then half as large ones: some times the
# logarithm of the distance. A node with NaN has NaN, which no comparison is true of.
def _tree(t, choose):
    leaves = 1 << max(t.numel() - 1, 0).bit_length()
    levels = [_t.cat([t, t.new_full((leaves - t.numel(),), math.nan)])]
    while levels[0].numel() > 1:
        levels.insert(0, choose(levels[0][::2], levels[0][1::2]))
    return _t.cat([levels[0], *levels])


def _prominences(x, most, least, peaks, wlen, prominence, bases):
    # A thread a peak: how far it stands out above the higher of the lowest points on the ways to what is higher, or to the ends.
    k = _grid(1)
    if k < peaks.shape[0]:
        p, n, leaves = peaks[k], x.shape[0], most.shape[0] // 2
        top = higher = x[p]
        for side in range(2):  # to the right, where nodes begin at a place, and to the left, where they end
            place, step, end = leaves + p + 1 - side, 1 - 2 * side, leaves + n * (1 - side)
            if wlen >= 2:
                end = leaves + (max(p - wlen // 2, 0) if side else min(p + wlen // 2 + 1, n))
            best, low, level = leaves + p, top, 0
            while level >= 0:
                node = (place >> level) - side
                if (end - place) * step >> level > 0 and most[node] <= top:
                    least_here = least[node]
                    if least_here < low:
                        best, low = node, least_here
                    place += step << level
                    level += 1 - (place >> level & 1)
                else:
                    level -= 1
            while best < leaves:  # to the nearest of its lowest elements
                best = 2 * best + side
                if least[best + step] < least[best]:
                    best += step
            bases[side, k] = best - leaves
            higher = max(higher, low) if side else low
        prominence[k] = top - higher


def _widths(x, least, peaks, share, prominence, bases, width, height, ends):
    k = _grid(1)
    if k < peaks.shape[0]:
        p, leaves = peaks[k], least.shape[0] // 2
        h = x[p] - prominence[k] * share
        height[k] = h
        for side in range(2):
            base, step = bases[side, k], 1 - 2 * side
            place, end, level = leaves + p + side, leaves + base + side, 0
            while level >= 0:
                node = (place >> level) - side
                if (end - place) * step >> level > 0 and least[node] > h:
                    place += step << level
                    level += 1 - (place >> level & 1)
                else:
                    level -= 1
            i = place - leaves - side
            at = float(i)
            if x[i] < h and i - step >= 0 and i - step < x.shape[0]:
                at -= step * (h - x[i]) / (x[i - step] - x[i])
            ends[side, k] = at
        width[k] = ends[0, k] - ends[1, k]


_prominences_kernel, _widths_kernel = PythonKernel(_prominences, mode="numpy"), PythonKernel(_widths, mode="numpy")


def _signal(x):
    t = floating(tensor(x)).to(_C.float64).contiguous()
    if t.dim() != 1:
        raise ValueError("`x` must be a 1-D array")
    return t


def _places(peaks, t, name="peaks"):
    at = tensor(peaks)
    if at.numel() and (at.dtype.is_floating_point or at.dtype.is_complex or at.dtype is _C.uint64):
        raise TypeError(f"cannot safely cast `{name}` to dtype('intp')")
    if at.dim() != 1:
        raise ValueError(f"`{name}` must be a 1-D array")
    return at.to(t.device, _C.int64).contiguous()


def _prominent(t, peaks, wlen):
    if wlen is not None and wlen <= 1:
        raise ValueError(f"`wlen` must be larger than 1, was {wlen}")
    wlen = -1 if wlen is None else math.ceil(wlen) | 1
    if peaks.numel() and (int(peaks.min()) < 0 or int(peaks.max()) >= t.numel()):
        raise ValueError("a peak is not a valid index for `x`")
    prominence = _t.empty(peaks.shape, dtype=t.dtype, device=t.device)
    bases = _t.empty(2, peaks.numel(), dtype=_C.int64, device=t.device)
    if peaks.numel():
        trees = _tree(t, _t._ops.maximum), _tree(t, _t._ops.minimum)
        # On the CPU, threads of some blocks wait for each other: those of alike height have alike ways.
        order = t[peaks].argsort() if t.device.type == "cpu" else None
        some = peaks if order is None else peaks[order]
        _prominences_kernel.forall(peaks.numel(), 64)(t, *trees, some, wlen, prominence, bases)
        if order is not None:
            back = order.argsort()
            prominence, bases = prominence[back], bases[:, back]
    return prominence, bases[1], bases[0]


def _measured(t, peaks, prominence, left, right):
    """What peak_prominences gave, of a caller; ValueError unless the bases are around the peaks."""
    prominence = tensor(prominence).to(t.device, t.dtype).contiguous()
    left, right = _places(left, t, "left_bases"), _places(right, t, "right_bases")
    if not prominence.shape == left.shape == right.shape == peaks.shape:
        raise ValueError("arrays in `prominence_data` must have the same shape as `peaks`")
    wrong = peaks[(left < 0) | (left > peaks) | (peaks > right) | (right >= t.numel())]
    if wrong.numel():
        raise ValueError(f"prominence data is invalid for peak {int(wrong[0])}")
    return prominence, left, right


def _wide(t, peaks, rel_height, prominence, left, right):
    if rel_height < 0:
        raise ValueError("`rel_height` must be greater or equal to 0.0")
    width, height, ends = (_t.empty(*s, peaks.numel(), dtype=t.dtype, device=t.device) for s in ((), (), (2,)))
    if peaks.numel():
        bases = _t.stack([right, left])
        _widths_kernel.forall(peaks.numel(), 64)(t, _tree(t, _t._ops.minimum), peaks, float(rel_height), prominence, bases, width, height,
                                                 ends)
    return width, height, ends[1], ends[0]


def peak_prominences(x, peaks, wlen=None):
    """How far peaks stand out of what is around them, and where the lowest points on both sides are."""
    t = _signal(x)
    return tuple(like(x, r) for r in _prominent(t, _places(peaks, t), wlen))


def peak_widths(x, peaks, rel_height=0.5, prominence_data=None, wlen=None):
    """Widths of peaks, `rel_height` of their prominence below them, the heights there, and where they begin and end."""
    t = _signal(x)
    at = _places(peaks, t)
    data = _prominent(t, at, wlen) if prominence_data is None else _measured(t, at, *prominence_data)
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
