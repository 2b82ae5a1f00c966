"""Arrays put together and taken apart."""
from __future__ import annotations

import builtins as _b
import operator as _operator

from .. import _C, _operators as _t
from ._array import axes_of, axis_of, cast, check_cast, ndarray, result_into, short_way, sizes_of, tensor_of, wrap
from ._creation import slice_of
from ._shapes import atleast_1d, atleast_2d, atleast_3d, moveaxis, ndim, ravel, shape
from ._types import OF_TENSOR, PROMOTED_NATIVE, as_dtype, native

__all__ = [
    "concatenate", "concat", "stack", "vstack", "row_stack", "hstack", "dstack", "column_stack", "block", "unstack", "split",
    "array_split", "hsplit", "vsplit", "dsplit", "tile", "repeat", "append", "insert", "delete", "resize", "trim_zeros", "r_", "c_",
]


def _together(arrays, dtype=None, casting="same_kind"):
    """The tensors of arrays in their common dtype."""
    if not isinstance(arrays, (list, tuple, ndarray)) and not hasattr(arrays, "__array__"):
        raise TypeError('arrays to stack must be passed as a "sequence" type such as list or tuple.')
    ts = [tensor_of(a) for a in arrays]
    if not ts:
        raise ValueError("need at least one array to concatenate")
    d = ts[0].dtype
    for t in ts[1:]:
        d = PROMOTED_NATIVE[d, t.dtype]
    if dtype is not None:
        check_cast(OF_TENSOR[d], as_dtype(dtype), casting)
        d = native(dtype)
    return [cast(t, d) for t in ts]


@short_way
def concatenate(arrays, /, axis=0, out=None, *, dtype=None, casting="same_kind"):
    """Arrays one after another along an axis; flat ones for None."""
    ts = _together(arrays, dtype, casting)
    if axis is None:
        return result_into(_t.cat([t.reshape(-1) for t in ts], 0), out, casting)
    n = ts[0].dim()
    if not n:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = axis_of(axis, n)
    for k, t in enumerate(ts):
        if t.dim() != n:
            raise ValueError("all the input arrays must have same number of dimensions, but the array at index 0 has "
                             f"{n} dimension(s) and the array at index {k} has {t.dim()} dimension(s)")
        for i in range(n):
            if i != axis and t.shape[i] != ts[0].shape[i]:
                raise ValueError("all the input array dimensions except for the concatenation axis must match exactly, but along "
                                 f"dimension {i}, the array at index 0 has size {ts[0].shape[i]} and the array at index {k} has size "
                                 f"{t.shape[i]}")
    return result_into(_t.cat(ts, axis), out, casting)


concat = concatenate


def stack(arrays, axis=0, out=None, *, dtype=None, casting="same_kind"):
    """Arrays of one shape along a new axis."""
    arrays = arrays if isinstance(arrays, ndarray) else list(arrays)
    if not len(arrays):
        raise ValueError("need at least one array to stack")
    ts = _together(arrays, dtype, casting)
    if _b.any(t.shape != ts[0].shape for t in ts):
        raise ValueError("all input arrays must have the same shape")
    return result_into(_t.stack(ts, axis_of(axis, ts[0].dim() + 1)), out, casting)


def _joined(name, raise_to, axis_for):
    def function(tup, *, dtype=None, casting="same_kind"):
        parts = [raise_to(a) for a in tup]
        if not parts:
            raise ValueError("need at least one array to concatenate")
        return concatenate(parts, axis_for(parts[0]), dtype=dtype, casting=casting)

    function.__name__ = name
    function.__doc__ = "Arrays one after another, as rows, columns or depth."
    return function


vstack = row_stack = _joined("vstack", atleast_2d, lambda a: 0)
hstack = _joined("hstack", atleast_1d, lambda a: 0 if a.ndim == 1 else 1)
dstack = _joined("dstack", atleast_3d, lambda a: 2)


def column_stack(tup):
    """Vectors as the columns of a matrix; matrices as they are."""
    return concatenate([wrap(t.reshape(-1, 1) if t.dim() < 2 else t) for t in map(tensor_of, tup)], 1)


def block(arrays):
    """An array of nested lists of blocks."""
    def depth(x):
        if not isinstance(x, list):
            return 0
        if not x:
            raise ValueError("List depths are mismatched: empty lists cannot be joined")
        found = {depth(v) for v in x}
        if len(found) != 1:
            raise ValueError("List depths are mismatched.")
        return found.pop() + 1

    def leaves(x):
        return [v for part in x for v in leaves(part)] if isinstance(x, list) else [x]

    levels = depth(arrays)
    dims = _b.max([levels, *(ndim(v) for v in leaves(arrays))])

    def join(x, level):
        if level == 0:
            t = tensor_of(x)
            return wrap(t.reshape((1,) * (dims - t.dim()) + tuple(t.shape)).clone())
        return concatenate([join(v, level - 1) for v in x], -level)

    return join(arrays, levels)


def unstack(x, /, *, axis=0):
    """The arrays along an axis, as a tuple."""
    t = tensor_of(x)
    if not t.dim():
        raise ValueError("Input array must be at least 1-d.")
    if type(x) is not ndarray and isinstance(x, ndarray):
        first = moveaxis(x, axis, 0)
        return tuple(first[i, ...] for i in range(len(first)))
    return tuple(wrap(r) for r in t.unbind(axis_of(axis, t.dim())))


def array_split(ary, indices_or_sections, axis=0):
    """Views of parts, of nearly equal size or between indices."""
    t = tensor_of(ary)
    axis = axis_of(axis, t.dim())
    n = t.shape[axis]
    try:
        sections = _operator.index(indices_or_sections)
    except TypeError:
        cuts = [0, *(slice(None, _operator.index(i)).indices(n)[1] for i in indices_or_sections), n]
    else:
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.")
        each, more = divmod(n, sections)
        cuts = [i * each + _b.min(i, more) for i in range(sections + 1)]
    ary = ary if isinstance(ary, ndarray) else wrap(t)
    return [ary[(slice(None),) * axis + (slice(a, _b.max(a, b)),)] for a, b in zip(cuts, cuts[1:])]


def split(ary, indices_or_sections, axis=0):
    """Views of parts, of equal size or between indices."""
    if isinstance(indices_or_sections, _b.int) and indices_or_sections > 0:
        if shape(ary)[axis_of(axis, ndim(ary))] % indices_or_sections:
            raise ValueError("array split does not result in an equal division")
    return array_split(ary, indices_or_sections, axis)


def _splitter(name, least, axis_for):
    def function(ary, indices_or_sections):
        if ndim(ary) < least:
            raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
        return split(ary, indices_or_sections, axis_for(ndim(ary)))

    function.__name__ = name
    function.__doc__ = "Views of parts along the columns, rows or depth."
    return function


hsplit = _splitter("hsplit", 1, lambda n: 0 if n == 1 else 1)
vsplit = _splitter("vsplit", 2, lambda n: 0)
dsplit = _splitter("dsplit", 3, lambda n: 2)


def tile(A, reps):
    """The array over and over along each axis."""
    t = tensor_of(A)
    reps = sizes_of(reps)
    return wrap(t.repeat((1,) * (t.dim() - len(reps)) + reps) if t.dim() or reps else t.clone())


def repeat(a, repeats, axis=None):
    """Each element several times."""
    t = tensor_of(a)
    t, axis = (t.reshape(-1), 0) if axis is None else (t, axis_of(axis, t.dim()))
    if type(repeats) is not int:  # a number needs no tensor
        r = tensor_of(repeats)
        if r.is_floating_point() or r.is_complex():
            raise TypeError("Cannot cast array data from repeats' dtype to dtype('int64') according to the rule 'safe'")
        if r.dim() > 1:
            raise ValueError("object too deep for desired array")
        if r.numel() not in (1, t.shape[axis]):
            raise ValueError(f"operands could not be broadcast together with shape ({t.shape[axis]},) ({r.numel()},)")
        repeats = int(r) if r.numel() == 1 else r.to(t.device, _C.int64)
    negative = repeats < 0
    if negative if isinstance(negative, bool) else negative.any():
        raise ValueError("repeats may not contain negative values.")
    return wrap(_t.repeat_interleave(t, repeats, axis))


def append(arr, values, axis=None):
    """Values after the array, flat for None."""
    return concatenate((ravel(arr), ravel(values)) if axis is None else (arr, values), 0 if axis is None else axis)


def _flat_axis(arr, axis):
    t = tensor_of(arr)
    return (t.reshape(-1), 0) if axis is None else (t, axis_of(axis, t.dim()))


def delete(arr, obj, axis=None):
    """Without the elements at some places of an axis."""
    t, axis = _flat_axis(arr, axis)
    n = t.shape[axis]
    keep = _t.ones(n, dtype=_C.bool)
    if isinstance(obj, slice):
        keep[list(range(n)[obj])] = False
    else:
        places = tensor_of(obj).cpu()
        if places.dtype is _C.bool:
            if places.numel() != n:
                raise ValueError(f"boolean array argument obj to delete must be one dimensional and match the axis length of {n}")
            keep = ~places.reshape(-1)
        else:
            if places.numel() and (places.is_floating_point() or places.is_complex()):
                raise IndexError("arrays used as indices must be of integer (or boolean) type")
            for i in places.reshape(-1).tolist():
                keep[int(axis_at(int(i), n, axis))] = False
    return wrap(_t.index_select(t, axis, _t.nonzero(keep).reshape(-1).to(t.device)))


def axis_at(i, n, axis):
    """A place on an axis from 0 on."""
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of bounds for axis {axis} with size {n}")
    return i % n if n else i


def insert(arr, obj, values, axis=None):
    """Values before some places of an axis."""
    t, axis = _flat_axis(arr, axis)
    n = t.shape[axis]
    if isinstance(obj, slice):
        obj = list(range(n)[obj])
    places = tensor_of(obj).cpu()
    if places.dtype is _C.bool:
        places = _t.nonzero(places).reshape(-1)
    v = tensor_of(values, t.dtype).to(t.device)
    scalar = places.dim() == 0
    where = [int(i) for i in places.reshape(-1).tolist()]
    for i in where:
        if not -n <= i <= n:
            raise IndexError(f"index {i} is out of bounds for axis {axis} with size {n}")
    where = [i + n if i < 0 else i for i in where]
    if scalar or len(where) == 1:
        if v.dim() < t.dim():
            v = v.reshape((1,) * (t.dim() - v.dim()) + tuple(v.shape))
        if scalar:
            v = v.movedim(0, axis)
        k = v.shape[axis]
        v = v.expand([k if i == axis else s for i, s in enumerate(t.shape)])
        i = where[0]
        return wrap(_t.cat([t.narrow(axis, 0, i), v, t.narrow(axis, i, n - i)], axis))
    order = sorted(range(len(where)), key=lambda j: where[j])
    new = [0] * len(where)
    for rank, j in enumerate(order):
        new[j] = where[j] + rank
    total = n + len(where)
    old = sorted(set(range(total)) - set(new))
    r = _t.empty([total if i == axis else s for i, s in enumerate(t.shape)], dtype=t.dtype, device=t.device)
    at = (slice(None),) * axis
    r[at + (old,)] = t
    r[at + (new,)] = v.expand([len(where) if i == axis else s for i, s in enumerate(t.shape)])
    return wrap(r)


def resize(a, new_shape):
    """Another size: the elements over and over, or as many of them as there is room for."""
    t, sizes, n = tensor_of(a).reshape(-1), sizes_of(new_shape), 1
    for s in sizes:
        if s < 0:
            raise ValueError("all elements of `new_shape` must be non-negative")
        n *= s
    if not t.numel() or not n:
        return wrap(_t.zeros(sizes, dtype=t.dtype, device=t.device))
    return wrap(t.repeat(-(-n // t.numel()))[:n].reshape(sizes))


def trim_zeros(filt, trim="fb", axis=None):
    """Without zeros at the front and back; of a list a list."""
    t = tensor_of(filt)
    if not set(trim.lower()) <= {"f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    found = _t.nonzero(t)
    key = [slice(None)] * t.dim()
    for x in axes_of(axis, t.dim()):
        if not found.shape[0]:
            key[x] = slice(0, 0)
        else:
            column = found.select(1, x)
            key[x] = slice(int(column.min()) if "f" in trim.lower() else 0, int(column.max()) + 1 if "b" in trim.lower() else None)
    return filt[key[0]] if isinstance(filt, (list, tuple)) and t.dim() == 1 else wrap(t[tuple(key)])


class _Joiner:
    """`r_[1:4, 0, x]`: numbers, ranges and arrays one after another; a text in front says along which axis and with how many."""

    def __init__(self, axis, ndmin, trans):
        self._axis, self._ndmin, self._trans = axis, ndmin, trans

    def __getitem__(self, key):
        parts = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, trans = self._axis, self._ndmin, self._trans
        if parts and isinstance(parts[0], str):
            text = parts.pop(0)
            if text in ("r", "c"):
                raise NotImplementedError("r_['r'] makes a matrix, of which there are none: reshape the array")
            try:
                numbers = [int(v) for v in text.split(",")]
            except ValueError:
                raise ValueError(f"unknown special directive {text!r}") from None
            axis, ndmin, trans = (numbers + [ndmin, trans][len(numbers) - 1:])[:3]
        ts, scalars = [], []
        for p in parts:
            if isinstance(p, slice):
                t = slice_of(p)._tensor
            else:
                t = tensor_of(p)
                if not t.dim() and not hasattr(p, "dtype"):
                    scalars.append(len(ts))
            had = t.dim()
            t = t.reshape(1) if not had else t
            while t.dim() < ndmin:
                t = t.unsqueeze(0)
            if had < ndmin and had and trans != -1:
                k = trans if trans >= 0 else trans + ndmin
                order = list(range(ndmin - had, ndmin))
                rest = list(range(ndmin - had))
                t = t.permute(rest[:k] + order + rest[k:])
            ts.append(wrap(t))
        if scalars and len(scalars) < len(ts):
            from ._types import result_type

            d = result_type(*[parts[i] if i in scalars else ts[i] for i in range(len(ts))])
            ts = [t.astype(d, copy=False) for t in ts]
        return concatenate(ts, axis)

    def __len__(self):
        return 0


r_, c_ = _Joiner(0, 1, -1), _Joiner(-1, 2, 0)
