"""The methods of arrays that are functions of the module, with the array first."""
from __future__ import annotations

from . import _joining, _mathematics, _products, _reductions, _searching, _shapes
from ._array import moved, ndarray, short_way

__all__: list[str] = []


def _varargs(function):
    """A method that takes sizes or axes one by one as well."""

    def method(self, *given, **options):
        if len(given) == 1:
            given = given[0]
        return function(self, given if given is not None and given != () else None, **options)

    method.__name__, method.__doc__ = function.__name__, function.__doc__
    return method


@short_way
def reshape(self, *shape, order="C", copy=None):
    """Another shape of the same elements."""
    if not shape:
        raise TypeError("reshape() takes exactly 1 argument (0 given)")
    return _shapes.reshape(self, shape[0] if len(shape) == 1 else shape, order, copy=copy)


@short_way
def flatten(self, order="C"):
    """All elements in one axis, a copy."""
    r = _shapes.ravel(self, order)
    return r.copy() if r._tensor.data_ptr() == self._tensor.data_ptr() or not r.size else r


def _choose(self, choices, out=None, mode="raise"):
    """Of each element the one of the choice that the array names."""
    return _searching.choose(self, choices, out, mode)


def _compress(self, condition, axis=None, out=None):
    """What a condition for each place of an axis keeps."""
    return _searching.compress(condition, self, axis, out)


def _conj(self):
    """The complex conjugates."""
    from ._ufuncs import _ALL

    return _ALL["conjugate"](self) if self._tensor.is_complex() else self


def _searchsorted(self, v, side="left", sorter=None):
    """Where elements would be put in this sorted array."""
    return _searching.searchsorted(self, v, side, sorter)


def _fill(self, value):
    """Writes one value everywhere."""
    self[...] = value


for _module, _names in [
        (_reductions, "sum prod max min any all mean var std argmax argmin cumsum cumprod"),
        (_shapes, "ravel squeeze swapaxes diagonal trace"),
        (_joining, "repeat"),
        (_searching, "argsort argpartition nonzero put take"),
        (_products, "dot"), (_mathematics, "clip round")]:
    for _name in _names.split():
        setattr(ndarray, _name, getattr(_module, _name))
for _name, _function in [
        ("reshape", reshape), ("transpose", short_way(_varargs(_shapes.transpose))), ("flatten", flatten),
        ("sort", _searching._sort_in_place), ("partition", _searching._partition_in_place), ("choose", _choose),
        ("compress", _compress), ("conj", _conj), ("conjugate", _conj),
        ("searchsorted", _searchsorted)]:
    setattr(ndarray, _name, _function)


def transpose(self):
    return moved(self, lambda t: t.permute(tuple(range(t.dim() - 1, -1, -1))))


ndarray.T = property(short_way(transpose), doc="The axes in reverse order.")  # type: ignore[attr-defined]
