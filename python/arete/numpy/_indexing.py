"""Indexing: views by integers and slices of either sign, and arrays of indices and masks, as NumPy orders their axes."""
from __future__ import annotations

import builtins as _b
import operator as _operator
import re as _re

from .. import _C, _operators as _t
from .._C import Tensor
from ._array import (
    _in_kind, _iterate, _set_shape, backwards as _backwards, ReadOnly, Reversed, cast, ndarray, result, shares, tensor_of, wrap,
)

__all__: list[str] = []
_INT64, _BOOL = _C.int64, _C.bool
_NO_INDEX = "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"


def _part(p):
    """One part of an index as tensors take it."""
    if p is None or p is Ellipsis or type(p) in (slice, _b.bool):
        return p
    if type(p) is int:
        return _reachable(p)
    if isinstance(p, str):
        raise IndexError(_NO_INDEX)
    if not isinstance(p, (ndarray, Tensor, list, tuple, range)) and not hasattr(p, "__array__"):
        try:
            return _operator.index(p)
        except TypeError:
            raise IndexError(_NO_INDEX) from None
    if type(p) is ndarray and p._is_number and p.dtype.kind in "iu":  # which makes a view, as Python's do
        return _reachable(int(p))
    t = tensor_of(p)
    if not t.numel() and isinstance(p, (list, tuple, range)):
        t = t.to(_INT64)
    if t.dtype is _BOOL:
        return t
    if t.is_floating_point() or t.is_complex():
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if t.dtype is _C.uint64 and not t.dim():
        _reachable(int(t))
    return t if t.dtype is _INT64 else t.to(_INT64)


def _reachable(i):
    if not -(2**63) <= i < 2**63:
        raise OverflowError("Python int too large to convert to C long")
    return i


def in_words_of_arrays(e):
    """The error of an index that is out of bounds as NumPy has it; others as they are."""
    found = _re.match(r"(index -?\d+ is out of bounds for )dimension( \d+ with size \d+)", str(e))
    return IndexError(found[1] + "axis" + found[2]) if found else e


def _parts(key):
    parts = [_part(p) for p in (key if type(key) is tuple else (key,))]
    return (
        parts,
        _b.any(isinstance(p, Tensor) for p in parts),
        _b.any(type(p) is slice and p.step is not None and p.step < 0 for p in parts),
    )


def _spread(parts, t):
    """The parts with an Ellipsis, one for each axis that they take, and new axes; IndexError for too many."""
    takes = _b.sum(p.dim() if isinstance(p, Tensor) and p.dtype is _BOOL else 0 if p is None or p is Ellipsis or type(p) is _b.bool else 1
                   for p in parts)
    if takes > t.dim():
        raise IndexError(f"too many indices for array: array is {t.dim()}-dimensional, but {takes} were indexed")
    if _b.sum(p is Ellipsis for p in parts) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
    return parts[:at] + [slice(None)] * (t.dim() - takes) + parts[at + 1:]


def _basic(array, parts):
    """A view by integers, slices and new axes, of steps of either sign."""
    t, flips = (array._view, array._axes) if type(array) is Reversed else (array._tensor, ())
    key, out, axis, at = [], [], 0, 0
    for p in _spread(parts, t):
        if p is None or type(p) is _b.bool:
            key.append(p)
            at += 1
            continue
        n = t.shape[axis]
        places = range(n - 1, -1, -1) if axis in flips else range(n)
        if type(p) is int:
            try:
                key.append(places[p])
            except IndexError:
                raise IndexError(f"index {p} is out of bounds for axis {axis} with size {n}") from None
        else:
            found = places[p]
            if found.step < 0:
                found = found[::-1]
                out.append(at)
            key.append(slice(found.start, found.stop, found.step) if len(found) else slice(0, 0))
            at += 1
        axis += 1
    view = t[tuple(key)] if key else t
    return _backwards(view, out) if out else wrap(view)


def _advanced(parts, t):
    """Numbers beside arrays of indices are such arrays, too, as NumPy has it."""
    parts = _with_masks_that_fit(_spread(parts, t), t)
    if not _b.any(type(p) is int or (isinstance(p, Tensor) and not p.dim() and p.dtype is not _BOOL) for p in parts):
        return tuple(parts)
    r, axis = [], 0
    for p in parts:
        if type(p) is int and not -t.shape[axis] <= p < t.shape[axis]:
            raise IndexError(f"index {p} is out of bounds for axis {axis} with size {t.shape[axis]}")
        if isinstance(p, Tensor) and p.dtype is _BOOL and p.dim():
            r.extend(_t.nonzero(p, as_tuple=True))
            axis += p.dim()
        else:
            r.append(p)
            axis += p is not None and type(p) is not _b.bool
    try:
        shape = _t.broadcast_shapes(*[p.shape for p in r if isinstance(p, Tensor)])
    except RuntimeError:
        raise IndexError("shape mismatch: indexing arrays could not be broadcast together") from None
    if not shape:
        return tuple(r)
    return tuple(
        _t.full(shape, p, dtype=_INT64, device=t.device)
        if type(p) is int
        else p.expand(shape)
        if isinstance(p, Tensor) and not p.dim()
        else p
        for p in r
    )


def _forward(parts, array):
    """An array in which the slices with negative steps have been taken, and the rest of the parts."""
    spread = _spread(parts, array._tensor)
    first, rest = [], []
    for p in spread:
        if isinstance(p, Tensor) and p.dtype is _BOOL:
            first.extend([slice(None)] * p.dim())
            rest.append(p)
        elif p is None or type(p) is _b.bool:
            rest.append(p)
        else:
            backwards = type(p) is slice and p.step is not None and p.step < 0
            first.append(p if backwards else slice(None))
            rest.append(slice(None) if backwards else p)
    return _basic(array, first), rest


def _get(array, key):
    parts, arrays, backwards = _parts(key)
    if not arrays:
        if not backwards and type(array) is not Reversed and not _b.any(type(p) is _b.bool for p in parts):
            t = array._tensor
            _spread(parts, t)
            if not parts and not t.dim() and t.device.type == "cpu":  # a[()] of one element
                return result(t.clone())
            try:
                r = t[tuple(parts)]
            except IndexError as e:
                raise in_words_of_arrays(e) from None
        else:
            r = _basic(array, parts)
            if type(r) is Reversed or r.ndim:
                return r
            r = r._tensor
        return result(r.clone()) if not r.dim() and _b.all(type(p) is int for p in parts) and parts else wrap(r)
    if backwards:
        array, parts = _forward(parts, array)
    t = array._tensor
    parts = _advanced(parts, t)
    try:
        r = t[parts]
    except IndexError as e:
        raise in_words_of_arrays(e) from None
    return wrap(r) if not _b.all(isinstance(p, Tensor) and not p.dim() for p in parts) else result(r.clone())


def _with_masks_that_fit(parts, t):
    """The parts; a mask with an axis of no elements names none, whatever the size there is."""
    r, axis = [], 0
    for p in parts:
        if isinstance(p, Tensor) and p.dtype is _BOOL:
            fits = True
            for size in p.shape:
                if size not in (0, t.shape[axis]):
                    raise IndexError("boolean index did not match indexed array along axis "
                                     f"{axis}; size of axis is {t.shape[axis]} but size of corresponding boolean axis is {size}")
                fits &= size == t.shape[axis]
                axis += 1
            r.extend((p,) if fits else _t.nonzero(p, as_tuple=True))
        else:
            r.append(p)
            axis += p is not None and type(p) is not _b.bool
    return r


def _value(value, t):
    """What is assigned to a tensor, in its dtype."""
    if type(value) in (int, float, _b.bool, complex):
        return _in_kind(value, t.dtype)
    v = tensor_of(value)
    if v.dtype is not t.dtype:
        v = cast(v, t.dtype)
    return v if v.device == t.device or not v.dim() else v.to(t.device)


def _put(view, value):
    v = _value(value, view)
    if not isinstance(v, Tensor):
        view.fill_(v)
        return
    while v.dim() > view.dim() and v.shape[0] == 1:
        v = v.squeeze(0)
    try:
        expanded = v.expand(view.shape)
    except (ValueError, RuntimeError):
        raise ValueError(f"could not broadcast input array from shape {tuple(v.shape)} into shape {tuple(view.shape)}") from None
    if shares(v, view):
        expanded = expanded.clone()
    view.copy_(expanded)


def _set(array, key, value):
    if array._is_number:
        raise TypeError(f"a number of {array.dtype} does not support item assignment")
    parts, arrays, backwards = _parts(key)
    if not arrays:
        target = _basic(array, parts)
        if type(target) is Reversed:
            t = target._view.clone()
            _put(t, value)  # checks shapes and dtypes
            target._write(t if not hasattr(value, "shape") and not isinstance(value, (list, tuple)) else _value(value, t))
        else:
            _put(target._tensor, value)
        return
    if backwards or type(array) is Reversed:
        if backwards:
            array, parts = _forward(parts, array)
        t = array._tensor.clone()
        wrap(t)[tuple(p if not isinstance(p, Tensor) else wrap(p) for p in parts)] = value
        array._write(t)
        return
    t = array._tensor
    parts = _advanced(parts, t)
    v = _value(value, t)
    if isinstance(v, Tensor) and len(parts) == 1 and v.dim() == 1 and parts[0].dtype is _BOOL and v.numel() != 1:
        n = int(parts[0].sum())
        if v.numel() != n and t.dim() == parts[0].dim():
            raise ValueError(f"NumPy boolean array indexing assignment cannot assign {v.numel()} input values to the {n} output values "
                             "where the mask is true")
    try:
        t[parts] = v
    except RuntimeError as e:
        raise (in_words_of_arrays(e) if isinstance(e, (ValueError, IndexError)) else ValueError(str(e))) from None


def _get_read_only(array, key):
    r = _get(array, key)
    backwards = type(r) is Reversed
    r = wrap(r._tensor) if backwards else r
    if backwards or shares(r._tensor, array._tensor):
        r.__class__ = ReadOnly
    return r


ReadOnly.__getitem__ = _get_read_only  # type: ignore[attr-defined]
_C._set_array_classes(ndarray, ReadOnly, Reversed, _get, _set, _iterate, _set_shape)
