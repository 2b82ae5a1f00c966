"""Sorting, searching, sets, counting, and elements by their indices or by conditions."""
from __future__ import annotations

import builtins as _b
import collections as _collections
import math as _math

from .. import _C, _operators as _t
from .._operators import _ops
from ._array import _in_kind, axis_of, cast, check_cast, ndarray, not_together, result, result_into, short_way, sizes_of, tensor_of, wrap
from ._indexing import in_words_of_arrays
from ._shapes import broadcast_shapes
from ._types import OF_TENSOR, PROMOTED_NATIVE, number_type, result_type

__all__ = [
    "sort", "argsort", "sort_complex", "lexsort", "partition", "argpartition", "searchsorted", "digitize", "nonzero", "flatnonzero",
    "argwhere", "where", "select", "choose", "piecewise", "extract", "compress", "place", "put", "putmask", "copyto", "take",
    "take_along_axis", "put_along_axis", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "isin", "intersect1d",
    "union1d", "setdiff1d", "setxor1d", "bincount", "ravel_multi_index", "unravel_index",
]
_KINDS = (None, "quicksort", "mergesort", "heapsort", "stable")


def _axis(t, axis):
    return (t.reshape(-1), 0) if axis is None else (t, axis_of(axis, t.dim()))


def _order(t, axis, descending=False, stable=True):
    """Indices that sort; complex numbers by their real, then their imaginary parts."""
    if t.is_complex():
        first = _t.argsort(t.imag, axis, descending, stable=True)
        return _t.gather(first, axis, _t.argsort(_t.gather(t.real, axis, first), axis, descending, stable=True))
    return _t.argsort(t, axis, descending, stable=stable)


def _check_kind(kind, order, stable):
    if kind not in _KINDS:
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")
    if kind is not None and stable is not None:
        raise ValueError("`kind` and `stable` parameters can't be provided at the same time. Use only one of them.")
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")


def _sorted(t, axis, descending, stable=False):
    if t.is_complex():
        return _t.gather(t, axis, _order(t, axis, descending))
    if stable:  # zeros of both signs stay as they are
        return t.sort(axis, descending, stable=True)[0]
    rows = t if axis == 0 else t.transpose(0, axis)
    rows = rows.msort()
    rows = rows.flip(0) if descending else rows
    return rows if axis == 0 else rows.transpose(0, axis)


@short_way
def sort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """A sorted copy; NaN comes last."""
    _check_kind(kind, order, stable)
    t, axis = _axis(tensor_of(a), axis)
    return wrap(_sorted(t, axis, descending, stable or kind in ("stable", "mergesort")))


@short_way
def argsort(a, axis=-1, kind=None, order=None, *, stable=None, descending=False):
    """The indices that sort; of equal elements the first comes first."""
    _check_kind(kind, order, stable)
    t = tensor_of(a)
    t, axis = _axis(t if t.dim() else t.reshape(1), axis)
    return wrap(_order(t, axis, descending))


def _sort_in_place(self, axis=-1, kind=None, order=None, *, stable=None):
    """Sorts in place."""
    _check_kind(kind, order, stable)
    self._write(_sorted(self._tensor, axis_of(axis, self.ndim), False, stable or kind in ("stable", "mergesort")))


def sort_complex(a):
    """Sorted, as complex numbers."""
    t = tensor_of(a)
    small = t.dtype in (_C.int8, _C.uint8, _C.int16)
    t = t if t.is_complex() else cast(t, _C.complex64 if small else _C.complex128)
    return wrap(_sorted(t, axis_of(-1, t.dim()), False))


def lexsort(keys, axis=-1):
    """Indices that sort by several keys, the last one first."""
    ts = list(tensor_of(keys).unbind(0)) if isinstance(keys, ndarray) else [tensor_of(k) for k in keys]
    if not ts:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if not ts[0].dim():
        return wrap(_t.zeros((), dtype=_C.int64, device=ts[0].device))
    axis, at = axis_of(axis, ts[0].dim()), None
    for t in ts:
        step = _order(t if at is None else _t.gather(t, axis, at), axis)
        at = step if at is None else _t.gather(at, axis, step)
    return wrap(at)


def _check_kth(kth, n):
    for k in sizes_of(tensor_of(kth).reshape(-1).tolist()):
        if not -n <= k < n:
            raise ValueError(f"kth(={k}) out of bounds ({n})")


def partition(a, kth, axis=-1, kind="introselect", order=None):
    """A copy with the smaller elements before place `kth` and the greater ones after it: a sorted one is."""
    t, axis = _axis(tensor_of(a), axis)
    _check_kth(kth, t.shape[axis])
    return sort(wrap(t), axis, order=order)


def argpartition(a, kth, axis=-1, kind="introselect", order=None):
    """The indices of `partition`."""
    t, axis = _axis(tensor_of(a), axis)
    _check_kth(kth, t.shape[axis])
    return argsort(wrap(t), axis, order=order)


def _partition_in_place(self, kth, axis=-1, kind="introselect", order=None):
    """Partitions in place."""
    self._write(partition(self, kth, axis, kind, order)._tensor)


def searchsorted(a, v, side="left", sorter=None):
    """Where elements would be put in a sorted array."""
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got {side!r})")
    t, x = tensor_of(a), tensor_of(v)
    if t.dim() != 1:
        raise ValueError("object of too small depth for desired array")
    if sorter is not None:
        t = t[tensor_of(sorter).to(_C.int64)]
    d = PROMOTED_NATIVE[t.dtype, x.dtype]
    d = d if d is not _C.bool else _C.uint8
    if d.is_complex:
        raise TypeError("searchsorted(): complex numbers are not searched")
    return result(_t.searchsorted(cast(t, d).contiguous(), cast(x, d).to(t.device).contiguous(), right=side == "right"))


def digitize(x, bins, right=False):
    """The bin of each element, of bins that rise or fall."""
    t, edges = tensor_of(x), tensor_of(bins)
    if t.is_complex():
        raise TypeError("x may not be complex")
    if edges.dim() != 1:
        raise ValueError("object of too small depth for desired array")
    steps = edges[1:] - edges[:-1]
    side = "left" if right else "right"
    if _b.bool((steps >= 0).all()):
        return searchsorted(wrap(edges), wrap(t), side)
    if not _b.bool((steps <= 0).all()):
        raise ValueError("bins must be monotonically increasing or decreasing")
    return len(edges) - searchsorted(wrap(edges.flip(0)), wrap(t), "right" if right else "left")


@short_way
def nonzero(a):
    """The indices of what is not zero, an array for each axis."""
    t = tensor_of(a)
    if not t.dim():
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return tuple(wrap(i) for i in _t.nonzero(t, as_tuple=True))


def flatnonzero(a):
    """The places of what is not zero in the flat array."""
    return wrap(_ops.nonzero(tensor_of(a).reshape(-1)).reshape(-1))


def argwhere(a):
    """The indices of what is not zero, as rows."""
    return wrap(_ops.nonzero(tensor_of(a)))


@short_way
def where(condition, x=None, y=None, /):
    """Elements of x where the condition holds, else of y; with neither, the indices of where it holds."""
    c = tensor_of(condition)
    if x is None and y is None:
        return nonzero(wrap(c))
    if x is None or y is None:
        raise ValueError("either both or neither of x and y should be given")
    a, b = _same(x, y)
    try:
        return wrap(_t.where(c if c.dtype is _C.bool else c != 0, a, b))
    except RuntimeError:
        raise not_together(c.shape, a.shape, b.shape) from None


def _same(x, y):
    """The tensors of two arrays in the dtype that they have together; numbers only say their kind."""
    d = result_type(*[v if number_type(v) is not None or isinstance(v, ndarray) else wrap(tensor_of(v)) for v in (x, y)])._tensor_dtype
    device = next((v._tensor.device for v in (x, y) if isinstance(v, ndarray)), None)
    return tuple(
        _t.full((), _in_kind(v, d), dtype=d, device=device) if number_type(v) is not None else cast(tensor_of(v), d) for v in (x, y)
    )


def select(condlist, choicelist, default=0):
    """Of each element the first choice whose condition holds."""
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if not len(condlist):
        raise ValueError("select with an empty condition list is not possible")
    d = result_type(*choicelist, default)._tensor_dtype
    r = tensor_of(default, d)
    for condition, choice in reversed(list(zip(condlist, choicelist))):
        c = tensor_of(condition)
        if c.dtype is not _C.bool:
            raise TypeError("invalid entry in condlist: should be boolean ndarray")
        r = _t.where(c, tensor_of(choice, d), r.to(c.device))
    return wrap(r.expand(broadcast_shapes(*[tensor_of(c).shape for c in condlist], *[tensor_of(c).shape for c in choicelist])).clone())


def choose(a, choices, out=None, mode="raise"):
    """Of each element the one of the choice that `a` names."""
    t = tensor_of(a).to(_C.int64)
    ts = [tensor_of(c) for c in choices]
    d = ts[0].dtype
    for c in ts:
        d = PROMOTED_NATIVE[d, c.dtype]
    t = _in_range(t, len(ts), mode, "invalid entry in choice array")
    shape = broadcast_shapes(t.shape, *[c.shape for c in ts])
    stacked = _t.stack([cast(c, d).expand(shape) for c in ts])
    return result_into(_t.gather(stacked, 0, t.expand(shape).unsqueeze(0))[0], out)


def _in_range(t, n, mode, text):
    if mode == "wrap":
        return t % n
    if mode == "clip":
        return t.clamp(0, n - 1)
    if mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if t.numel() and _b.bool(((t < 0) | (t >= n)).any()):
        raise ValueError(text)
    return t


def piecewise(x, condlist, funclist, *args, **kw):
    """Functions of the elements for which conditions hold."""
    a = wrap(tensor_of(x))
    if isinstance(condlist, (list, tuple)) and (isinstance(condlist[0], (_b.bool, int)) or (hasattr(condlist[0], "ndim") and not condlist[
            0].ndim and a.ndim)):
        condlist = [condlist]
    conditions = [tensor_of(c).to(_C.bool) for c in condlist]
    if len(funclist) == len(conditions) + 1:
        rest = _t.zeros_like(conditions[0])
        for c in conditions:
            rest = rest | c
        conditions.append(~rest)
    elif len(funclist) != len(conditions):
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected")
    r = wrap(_t.zeros_like(a._tensor))
    for c, f in zip(conditions, funclist):
        if not callable(f):
            r[wrap(c)] = f
        elif _b.bool(c.any()):
            r[wrap(c)] = f(a[wrap(c)], *args, **kw)
    return r


def extract(condition, arr):
    """The elements for which a condition holds, flat."""
    return wrap(tensor_of(arr).reshape(-1)[tensor_of(condition).reshape(-1) != 0])


def compress(condition, a, axis=None, out=None):
    """What a condition for each place of an axis keeps."""
    t, axis = _axis(tensor_of(a), axis)
    keep = tensor_of(condition)
    if keep.dim() != 1:
        raise ValueError("condition must be a 1-d array")
    return result_into(_t.index_select(t, axis, _ops.nonzero(keep).reshape(-1).to(t.device)), out)


def place(arr, mask, vals):
    """Writes values, over and over, where a mask holds."""
    m = tensor_of(mask) != 0
    n, v = int(m.sum()), tensor_of(vals, arr.dtype).reshape(-1)
    if m.numel() != arr.size:
        raise ValueError("place: mask and data must be the same size")
    if not n:
        return
    if not v.numel():
        raise ValueError("Cannot insert from an empty array!")
    arr[wrap(m.reshape(arr.shape))] = wrap(v.repeat(-(-n // v.numel()))[:n])


def putmask(a, mask, values):
    """Writes the values at the same places where a mask holds, over and over where they are fewer."""
    number = number_type(values) is not None
    m, v = tensor_of(mask) != 0, tensor_of(values, a.dtype if number else None)
    if m.numel() != a.size:
        raise ValueError("putmask: mask and data must be the same size")
    if not v.numel():
        return
    check_cast(OF_TENSOR[v.dtype], a.dtype, "unsafe" if number else "same_kind")
    v = v.reshape(-1).repeat(-(-a.size // v.numel()))[: a.size].reshape(a.shape) if v.numel() != a.size else v.reshape(a.shape)
    a._write(_t.where(m.reshape(a.shape), cast(v, a._tensor.dtype), a._tensor))


def _check_bounds(at, n, axis):
    wrong = at[(at < -n) | (at >= n)]
    if wrong.numel():
        raise IndexError(f"index {wrong[0].item()} is out of bounds for axis {axis} with size {n}")


def put(a, ind, v, mode="raise"):
    """Writes to places of the flat array."""
    if not isinstance(a, ndarray):
        raise TypeError(f"argument 1 must be numpy.ndarray, not {type(a).__name__}")
    at = tensor_of(ind).reshape(-1).to(_C.int64)
    n = a.size
    at = at.clamp(0, n - 1) if mode == "clip" else at % n if mode == "wrap" else at
    if mode == "raise":
        _check_bounds(at, n, 0)
    values = tensor_of(v, a.dtype).reshape(-1)
    if not values.numel() or not at.numel():
        return
    flat = a._tensor.reshape(-1).clone()
    flat[at % n] = values.repeat(-(-at.numel() // values.numel()))[: at.numel()]
    a._write(flat.reshape(a.shape))


def copyto(dst, src, casting="same_kind", where=True):
    """Copies values, with broadcasting, where a mask holds."""
    if not isinstance(dst, ndarray):
        raise TypeError(f"copyto() argument 1 must be numpy.ndarray, not {type(dst).__name__}")
    d = dst._tensor.dtype
    if number_type(src) is not None:
        v = _t.full((), _in_kind(src, d), dtype=d, device=dst._tensor.device)
        from ._types import with_number
        check_cast(with_number(dst.dtype, type(src)), dst.dtype, casting)
    else:
        v = tensor_of(src)
        check_cast(OF_TENSOR[v.dtype], dst.dtype, casting)
        v = cast(v, d)
    try:
        v = v.to(dst._tensor.device).expand(dst._tensor.shape)
    except RuntimeError:
        raise ValueError(f"could not broadcast input array from shape {tuple(v.shape)} into shape {dst.shape}") from None
    dst._write(v if where is True else _t.where(tensor_of(where).to(_C.bool), v, dst._tensor))


@short_way
def take(a, indices, axis=None, out=None, mode="raise"):
    """The elements at places of an axis; of the flat array for None."""
    t, axis = _axis(tensor_of(a), axis)
    at = tensor_of(indices)
    if at.numel() and (at.is_floating_point() or at.is_complex() or at.dtype is _C.bool):
        raise TypeError(f"Cannot cast array data from {OF_TENSOR[at.dtype]!r} to dtype('int64') according to the rule 'safe'")
    if at.dtype is _C.uint64 and _b.bool((at >= 2**63).any()):
        raise OverflowError("Python int too large to convert to C long")
    at, n = at.to(_C.int64).to(t.device), t.shape[axis] if t.dim() else 1
    t = t.reshape(1) if not t.dim() else t
    if mode == "clip":
        at = at.clamp(0, n - 1)
    elif mode == "wrap":
        at = at % n
    elif mode != "raise":
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")
    if at.numel() and not n:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    try:
        r = _t.index_select(t, axis, at.reshape(-1))
    except IndexError as e:
        raise in_words_of_arrays(e) from None
    return result_into(r.reshape(tuple(t.shape[:axis]) + tuple(at.shape) + tuple(t.shape[axis + 1:])), out)


def take_along_axis(arr, indices, axis=-1):
    """The elements at the places that an array of the same shape names."""
    t, at = tensor_of(arr), tensor_of(indices)
    if at.is_floating_point() or at.dtype is _C.bool:
        raise IndexError("`indices` must be an integer array")
    t, axis = _axis(t, axis)
    if at.dim() != t.dim():
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    try:
        return wrap(_t.take_along_dim(t, at.to(_C.int64), axis))
    except IndexError as e:
        raise in_words_of_arrays(e) from None


def put_along_axis(arr, indices, values, axis):
    """Writes to the places that an array of the same shape names."""
    at = tensor_of(indices).to(_C.int64)
    t, axis = _axis(arr._tensor, axis)
    shape = broadcast_shapes(at.shape, [1 if i == axis else s for i, s in enumerate(t.shape)])
    v = tensor_of(values, t.dtype).expand(shape)
    _check_bounds(at, t.shape[axis], axis)
    arr._write(_t.scatter(t.contiguous(), axis, at.expand(shape) % t.shape[axis], v).reshape(arr.shape))


# --- sets --------------------------------------------------------------------------------------------------------------------


@short_way
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True, sorted=True):
    """The different elements, sorted; with the first index, the place of each element among them, and how often they come."""
    t = tensor_of(ar)
    if axis is None and not (return_index or return_inverse or return_counts or t.is_complex()):
        values = t.reshape(-1).msort()
        fresh = values[1:] != values[:-1]
        if equal_nan and values.is_floating_point():
            fresh &= ~(values[1:].isnan() & values[:-1].isnan())
        return wrap(_t.cat([values[:1], values[1:][fresh]]))
    if axis is None:
        flat, shape = t.reshape(-1), tuple(t.shape)
        order = _order(flat, 0)
        values = flat[order]
        fresh = values[1:] != values[:-1]
        if equal_nan and (values.is_floating_point() or values.is_complex()):
            fresh = fresh & ~(values[1:].isnan() & values[:-1].isnan())
    else:
        axis = axis_of(axis, t.dim())
        rows, shape = t.movedim(axis, 0), (t.shape[axis],)
        flat = rows.reshape(rows.shape[0], -1) if rows.numel() else rows.reshape(rows.shape[0], 0)
        order = lexsort([wrap(c) for c in reversed(flat.unbind(1))])._tensor if flat.shape[1] else _t.arange(flat.shape[0], device=t.device)
        values = flat[order]
        fresh = (values[1:] != values[:-1]).any(1)
    n = order.shape[0]
    first = _t.cat([_t.ones(_b.min(n, 1), dtype=_C.bool, device=t.device), fresh])
    starts = _ops.nonzero(first).reshape(-1)
    found = values[starts]
    if axis is not None:
        found = found.reshape((found.shape[0],) + tuple(rows.shape[1:])).movedim(0, axis)
    r = [wrap(found)]
    if return_index:
        r.append(wrap(order[starts]))
    if return_inverse:
        inverse = _t.empty_like(order)
        inverse[order] = _t.cumsum(first, 0) - 1
        r.append(wrap(inverse.reshape(shape)))
    if return_counts:
        r.append(wrap(_t.diff(_t.cat([starts, _t.full((1,), n, dtype=_C.int64, device=t.device)]))))
    return r[0] if len(r) == 1 else tuple(r)


UniqueAllResult = _collections.namedtuple("UniqueAllResult", "values indices inverse_indices counts")
UniqueCountsResult = _collections.namedtuple("UniqueCountsResult", "values counts")
UniqueInverseResult = _collections.namedtuple("UniqueInverseResult", "values inverse_indices")


def unique_all(x):
    """The different elements with their first indices, the places of all among them and their counts; each NaN is different."""
    return UniqueAllResult(*unique(x, True, True, True, equal_nan=False))


def unique_counts(x):
    """The different elements and their counts."""
    return UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False))


def unique_inverse(x):
    """The different elements and the places of all among them."""
    return UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False))


def unique_values(x):
    """The different elements."""
    return unique(x, equal_nan=False)


def isin(element, test_elements, assume_unique=False, invert=False, *, kind=None):
    """Whether each element is among others."""
    a, b = (cast(t, d) for t, d in [(t, PROMOTED_NATIVE[tensor_of(element).dtype, tensor_of(test_elements).dtype]) for t in (
        tensor_of(element), tensor_of(test_elements))])
    if kind not in (None, "sort", "table"):
        raise ValueError(f"Invalid kind: {kind!r}. Please use None, 'sort' or 'table'.")
    if kind == "table" and (a.is_floating_point() or a.is_complex()):
        raise ValueError("The 'table' method is only supported for boolean or integer arrays. Please select 'sort' or None for kind.")
    if a.is_complex():
        r = (a.reshape(-1, 1) == b.reshape(1, -1)).any(1).reshape(a.shape)
    else:
        r = _t.isin(a if a.dtype is not _C.bool else a.to(_C.uint8), b if b.dtype is not _C.bool else b.to(_C.uint8))
    return wrap(~r if invert else r)


def _flat_pair(ar1, ar2):
    a, b = tensor_of(ar1).reshape(-1), tensor_of(ar2).reshape(-1)
    d = PROMOTED_NATIVE[a.dtype, b.dtype]
    return wrap(cast(a, d)), wrap(cast(b, d))


def intersect1d(ar1, ar2, assume_unique=False, return_indices=False):
    """The elements that both have, sorted; with `return_indices` where they come first."""
    a, b = _flat_pair(ar1, ar2)
    (a, i), (b, j) = unique(a, True), unique(b, True)
    in_b, in_a = isin(a, b), isin(b, a)
    return (a[in_b], i[in_b], j[in_a]) if return_indices else a[in_b]


def union1d(ar1, ar2):
    """The elements that either has, sorted."""
    a, b = _flat_pair(ar1, ar2)
    return unique(wrap(_t.cat([a._tensor, b._tensor])))


def setdiff1d(ar1, ar2, assume_unique=False):
    """The elements of the first that the second has not."""
    a, b = wrap(tensor_of(ar1).reshape(-1)), wrap(tensor_of(ar2))
    a = a if assume_unique else unique(a)
    return a[isin(a, b, invert=True)]


def setxor1d(ar1, ar2, assume_unique=False):
    """The elements that one of the two has, sorted."""
    a, b = (unique(v) for v in _flat_pair(ar1, ar2))
    return sort(wrap(_t.cat([a[isin(a, b, invert=True)]._tensor, b[isin(b, a, invert=True)]._tensor])))


# --- counting ----------------------------------------------------------------------------------------------------------------


def bincount(x, /, weights=None, minlength=0):
    """How often each whole number comes, or the sum of its weights."""
    t = tensor_of(x)
    if t.dim() != 1:
        raise ValueError("object too deep for desired array" if t.dim() else "object of too small depth for desired array")
    if not t.numel():
        t = t.to(_C.int64)
    if t.is_floating_point() or t.is_complex():
        raise TypeError(f"Cannot cast array data from {OF_TENSOR[t.dtype]!r} to dtype('int64') according to the rule 'safe'")
    if minlength < 0:
        raise ValueError("'minlength' must not be negative")
    if t.device.type == "cpu" and t.numel() and int(t.min()) < 0:
        raise ValueError("'list' argument must have no negative elements")
    w = None if weights is None else tensor_of(weights).to(_C.float64)
    if w is not None and w.shape != t.shape:
        raise ValueError("The weights and list don't have the same length.")
    return wrap(_t.bincount(t.to(_C.int64), w, minlength))


def ravel_multi_index(multi_index, dims, mode="raise", order="C"):
    """Places in the flat array, of indices."""
    dims = sizes_of(dims)
    modes = (mode,) * len(dims) if isinstance(mode, str) else mode
    ts = [tensor_of(i) for i in multi_index]
    if len(ts) != len(dims):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(dims)}")
    for t in ts:
        if t.numel() and (t.is_floating_point() or t.is_complex()):
            raise TypeError("only int indices permitted")
    ts = [_in_range(t.to(_C.int64), n, m, "invalid entry in coordinates array") for t, n, m in zip(ts, dims, modes)]
    r = _t.zeros((), dtype=_C.int64, device=ts[0].device)
    for t, n in (zip(ts, dims) if order == "C" else zip(reversed(ts), reversed(dims))):
        r = r * n + t
    return wrap(r)


def unravel_index(indices, shape, order="C"):
    """Indices, of places in the flat array."""
    t, sizes = tensor_of(indices), sizes_of(shape)
    if t.numel() and (t.is_floating_point() or t.is_complex()):
        raise TypeError("only int indices permitted")
    total = _math.prod(sizes)
    t = t.to(_C.int64)
    wrong = t[(t < 0) | (t >= total)]
    if wrong.numel():
        raise ValueError(f"index {wrong[0].item()} is out of bounds for array with size {total}")
    step = 1 if order == "C" else -1
    return tuple(map(result, _t.unravel_index(t, sizes[::step])[::step]))
