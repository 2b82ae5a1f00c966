"""Parts of pictures that lie together, and what is in them.

Measurements are of the elements whose label is in `index`: of all labels above 0 together where it is None, and of all elements where there
are no labels. One index gives a number, several an array."""
from __future__ import annotations

import math

from .... import _C, _operators as _t
from ...._kernels import ElementwiseKernel
from .._arrays import floating, given, like, tensor
from ._filters import _padded

__all__ = ["center_of_mass", "extrema", "find_objects", "histogram", "label", "maximum", "maximum_position", "mean", "median", "minimum",
           "minimum_position", "standard_deviation", "sum", "sum_labels", "variance"]


# A thread a pair: the number of an element leads to one of its part that is not greater, and the least one to itself. Of two ends the
# greater one is led to the less, unless another thread was here before; then where it leads to now is one of the two.
_unite = ElementwiseKernel("T first, T second", "raw T number", """
  T a = first, b = second;
  while (true) {
    while (number[a] != a) a = number[a];
    while (number[b] != b) b = number[b];
    if (a == b) break;
    const T more = a < b ? b : a;
    b = a < b ? a : b;
    a = atomicMin(&number[more], b);
    if (a == more) break;
  }""", "unite")
_follow = ElementwiseKernel("T place", "raw T number", """
  T end = place;
  while (number[end] != end) end = number[end];
  number[place] = end;""", "follow")


def components(t, offsets):
    """For each element that is true the place, in C order, of the first one of those that it is connected with: neighbours at `offsets`,
    tuples of -1, 0 and 1, or at the other side; -1 for others. Runs along the last dimension are found at once, and pairs that are not
    beside another pair of the same two runs are united (union-find without locks; Jaiganesh and Burtscher 2018)."""
    offsets, n, size = {max(o, tuple(-v for v in o)) for o in offsets if any(o)}, t.dim(), t.numel()
    dtype = _C.int32 if size < 1 << 31 else _C.int64
    places = _t.arange(size, dtype=dtype, device=t.device).reshape(t.shape)
    ahead = (0,) * (n - 1) + (1,)
    runs = ahead in offsets
    before = _padded(t, [0] * (n - 1) + [1], [0] * n, "constant", False).narrow(-1, 0, t.shape[-1]) if runs else _t.zeros_like(t)
    number = _t.where(t & ~before, places, 0).reshape(-1).cummax(0)[0].to(dtype).reshape(t.shape)
    number = _t.where(t, number, -1).contiguous()
    pairs = []
    for o in sorted(offsets - {ahead}):
        here, there = (tuple(slice(max(-s * v, 0), d - max(s * v, 0)) for v, d in zip(o, t.shape)) for s in (1, -1))
        both = t[here] & t[there]
        if runs:
            both[..., 1:] &= ~(both[..., 1:] & both[..., :-1])
        pairs.append(_t.stack([number[here], number[there]])[:, both])
    ends = _t.cat(pairs, 1) if pairs else number.reshape(-1)[:0]
    if ends.numel():
        _unite(*ends, number)
        _follow(ends, number)
    return _t.where(t, number.reshape(-1)[number.clamp(min=0)], -1) if size else number


def label(input, structure=None, output=None):
    """The connected parts of what is not 0, numbered from 1 in the order of their first elements, and how many there are."""
    t = tensor(input) != 0
    n = t.dim()
    if structure is None:
        offsets = [tuple(int(k == d) for k in range(n)) for d in range(n)]
    else:
        s = tensor(structure)
        if list(s.shape) != [3] * n:
            raise ValueError("structure dimensions must be equal to 3")
        s = s != 0
        if not _t.equal(s, s.flip(list(range(n)))):  # neighbours are so on both sides
            raise ValueError("structuring element is not symmetric")
        offsets = [tuple(i - 1 for i in p) for p in s.nonzero().tolist()]
    if not t.numel():
        return given(like(input, t.to(_C.int32)), t.to(_C.int32), output), 0
    first = components(t, offsets).reshape(-1)
    numbers = (first == _t.arange(first.numel(), device=t.device)).cumsum(0, dtype=_C.int32)
    result = _t.where(first >= 0, numbers[first.clamp(min=0)], 0).reshape(t.shape)
    return given(like(input, result), result, output), int(numbers[-1])


def _exact(v):
    return v.to(_C.complex128 if v.dtype.is_complex else _C.float64)


class _Groups:
    """The elements that are measured, and to which index each of them belongs."""

    def __init__(self, input, labels, index):
        self.input, t = input, tensor(input)
        self.shape, self.several = t.shape, index is not None and tensor(index).dim() > 0
        if labels is None:
            if index is not None:
                raise ValueError("index without defined labels")
            labels = _t.ones(t.shape, dtype=_C.int64, device=t.device)
        labels = _t.broadcast_to(tensor(labels).to(t.device), t.shape)
        if index is None:
            keep, group = labels > 0, _t.zeros(t.shape, dtype=_C.int64, device=t.device)
            self.count, self.back = 1, _t.zeros(1, dtype=_C.int64, device=t.device)
        else:
            self.sizes = tensor(index).shape
            wanted, self.back = tensor(index).to(t.device, labels.dtype).reshape(-1).unique(return_inverse=True)
            self.count = wanted.numel()
            group = _t.searchsorted(wanted, labels.contiguous()).clamp(max=max(self.count - 1, 0))
            keep = wanted[group] == labels if self.count else _t.zeros(t.shape, dtype=_C.bool, device=t.device)
        self.places = keep.reshape(-1).nonzero().reshape(-1)
        self.group, self.values = group.reshape(-1)[self.places], t.reshape(-1)[self.places]

    def total(self, values):
        return _t.zeros(self.count, dtype=values.dtype, device=values.device).index_add(0, self.group, values)

    def members(self):
        return self.total(_t.ones(self.group.shape, dtype=_C.float64, device=self.group.device))

    def means(self, values):
        return self.total(values) / self.members()

    def reduced(self, values, how, none):
        """The least or the greatest of each group; `none` of one without members."""
        result = _t.full((self.count,), none, dtype=values.dtype, device=values.device)
        return result.scatter_reduce(0, self.group, values, how, include_self=False)

    def result(self, r):
        """One number for each index that was asked for."""
        r = r[self.back]
        return like(self.input, r.reshape(self.sizes) if self.several else r[0])

    def first_of(self, at):
        """Positions in the picture as tuples."""
        indices = [i.tolist() for i in _t.unravel_index(at[self.back], self.shape)]
        found = [tuple(i[k] for i in indices) for k in range(self.back.numel())]
        return found if self.several else found[0]


def sum_labels(input, labels=None, index=None):
    """The sum of the elements of each index; in float64, or for one of whole numbers in int64."""
    g = _Groups(input, labels, index)
    whole = not (g.several or g.values.dtype.is_floating_point)
    return g.result(g.total(g.values if g.values.dtype.is_complex else g.values.to(_C.int64 if whole else _C.float64)))


def sum(input, labels=None, index=None):  # noqa: A001
    """The same as sum_labels."""
    return sum_labels(input, labels, index)


def mean(input, labels=None, index=None):
    """The mean of the elements of each index; NaN where there are none."""
    g = _Groups(input, labels, index)
    return g.result(g.means(_exact(g.values)))


def variance(input, labels=None, index=None):
    """The mean square of the distances to the mean; real, of complex elements too."""
    g = _Groups(input, labels, index)
    v = _exact(g.values)
    return g.result(g.means((v - g.means(v)[g.group]).abs().square()))


def standard_deviation(input, labels=None, index=None):
    """The root of the variance."""
    return like(input, tensor(variance(input, labels, index)).sqrt())


def _end(g, how):
    """The numbers of the members that are least ("amin") or greatest ("amax") of each group, the first of equal ones. NaN is the greatest,
    and where there is one group also the least."""
    v, count = g.values, g.values.numel()
    nan = v != v
    passed = how == "amin" and g.several
    ends = g.reduced((_t.where(nan, math.inf, v) if v.dtype.is_floating_point else v) if passed else v, how, 0)
    same = v == ends[g.group]
    places = _t.arange(count, device=v.device)
    first = g.reduced(_t.where(same if passed else same | nan, places, count), "amin", count)
    if passed and v.dtype.is_floating_point:  # of groups of NaN alone
        first = _t.where(first == count, g.reduced(places, "amin", count), first)
    if _t._ops.any(first == count):
        raise ValueError("an index has no elements")
    return first


def minimum(input, labels=None, index=None):
    """The least element of each index."""
    g = _Groups(input, labels, index)
    return g.result(g.values[_end(g, "amin")])


def maximum(input, labels=None, index=None):
    """The greatest element of each index."""
    g = _Groups(input, labels, index)
    return g.result(g.values[_end(g, "amax")])


def minimum_position(input, labels=None, index=None):
    """Where the least element of each index is first, as a tuple."""
    g = _Groups(input, labels, index)
    return g.first_of(g.places[_end(g, "amin")])


def maximum_position(input, labels=None, index=None):
    """Where the greatest element of each index is first, as a tuple."""
    g = _Groups(input, labels, index)
    return g.first_of(g.places[_end(g, "amax")])


def extrema(input, labels=None, index=None):
    """The least and the greatest element of each index, and where they are."""
    g = _Groups(input, labels, index)
    low, high = _end(g, "amin"), _end(g, "amax")
    return g.result(g.values[low]), g.result(g.values[high]), g.first_of(g.places[low]), g.first_of(g.places[high])


def median(input, labels=None, index=None):
    """The middle of the elements of each index, or the mean of the two around it; NaN where there are none. NaN is the greatest, and where
    there is one group the median."""
    g = _Groups(input, labels, index)
    v = floating(g.values)
    order = v.argsort()
    order = order[g.group[order].argsort(stable=True)]
    last = g.members().to(_C.int64).cumsum(0)  # the ends of the groups, by index and value
    first = _t.cat([last[:1] * 0, last[:-1]])
    v = _t.cat([v[order], _t.full((1,), float("nan"), dtype=v.dtype, device=v.device)])
    none = v.numel() - 1
    low, high = (_t.where(first == last, none, at) for at in ((first + last - 1) // 2, (first + last) // 2))
    r = (v[low] + v[high]) / 2
    return g.result(r if g.several else r + 0 * v[_t.where(first == last, none, last - 1)])


def center_of_mass(input, labels=None, index=None):
    """The mean position, by the elements as weights, as a tuple of numbers for each index."""
    g = _Groups(input, labels, index)
    v = _exact(g.values)
    whole = g.total(v)
    centers = [(g.total(v * i) / whole)[g.back] for i in _t.unravel_index(g.places, g.shape)]
    rows = [tuple(like(input, c) for c in row) for row in _t.stack(centers, 1)]
    return rows if g.several else rows[0]


def histogram(input, min, max, bins, labels=None, index=None):  # noqa: A002
    """How many elements of each index are in each of `bins` equal parts of [min, max]."""
    g = _Groups(input, labels, index)
    if g.values.dtype.is_complex:
        raise TypeError("histogram(): elements are real")
    v = g.values.to(_C.float64)
    inside = (v >= min) & (v <= max)
    at = ((v - min) * (bins / (max - min))).floor().clamp(0, bins - 1).to(_C.int64)
    counts = _t.zeros(g.count * bins, dtype=_C.int64, device=v.device).index_add(0, g.group * bins + at, inside.to(_C.int64))
    rows = [like(input, r) for r in counts.reshape(g.count, bins)[g.back]]
    return rows if g.several else rows[0]


def find_objects(input, max_label=0):
    """Of each label from 1 on the slices that it fills, None where there is none."""
    t = tensor(input)
    if t.dtype.is_floating_point or t.dtype.is_complex:
        raise RuntimeError("data type not supported")
    at = t.nonzero()
    labels = t[tuple(at[:, d] for d in range(t.dim()))].to(_C.int64)
    count = max_label or (int(labels.max()) if labels.numel() else 0)
    keep = (labels > 0) & (labels <= count)
    at, labels = at[keep], labels[keep] - 1
    ends = []
    for d in range(t.dim()):
        low = _t.full((count,), t.shape[d], dtype=_C.int64, device=t.device).scatter_reduce(0, labels, at[:, d], "amin")
        high = _t.zeros(count, dtype=_C.int64, device=t.device).scatter_reduce(0, labels, at[:, d] + 1, "amax")
        ends.append(list(zip(low.tolist(), high.tolist())))
    return [tuple(slice(a, b) for a, b in place) if place[0][0] < place[0][1] else None for place in zip(*ends)]
