"""numpy.ma: what is made missing, and masks by themselves."""
from __future__ import annotations

import builtins as _b

from .. import _C, _operators as _t
from ._array import tensor_of, wrap
from . import _reductions as _r
from ._masked import MaskedArray, _made, _of, _own, _plain, getdata, getmaskarray, nomask
from ._types import BOOL
from ._ufuncs import _ALL


def masked_where(condition, a, copy=True):
    """Missing where a condition holds."""
    c = tensor_of(filled(condition, True) if isinstance(condition, MaskedArray) else condition)
    shape = _of(a).shape
    if c.dim() and tuple(c.shape) != shape:
        raise IndexError(f"Inconsistent shape between the condition and the input (got {tuple(c.shape)} and {shape})")
    return MaskedArray(a, wrap(c), copy=copy)


def masked_invalid(a, copy=True):
    """Missing where NaN or infinite."""
    return MaskedArray(a, wrap(~_t.isfinite(tensor_of(_plain(a)))), copy=copy)


def fix_invalid(a, mask=nomask, copy=True, fill_value=None):
    """Missing where NaN or infinite; the data there become the fill value."""
    a = MaskedArray(a, mask, copy=copy)
    bad = wrap(~_t.isfinite(a.data._tensor))
    if _b.bool(bad._tensor.any()):
        a.data[bad] = a.fill_value if fill_value is None else fill_value
        a._mask = a._full | bad._tensor
    return a


def _by(name, own):
    def function(x, value, copy=True):
        return masked_where(_ALL[own](_plain(x), value), x, copy)

    function.__name__, function.__doc__ = name, f"Missing where `{own}` holds of the elements and a value."
    return function


masked_not_equal = _by("masked_not_equal", "not_equal")
masked_greater, masked_greater_equal = _by("masked_greater", "greater"), _by("masked_greater_equal", "greater_equal")
masked_less, masked_less_equal = _by("masked_less", "less"), _by("masked_less_equal", "less_equal")


def masked_equal(x, value, copy=True):
    """Missing where equal to a value, which becomes the fill value."""
    r = masked_where(_ALL["equal"](_plain(x), value), x, copy)
    r._fill = value
    return r


def masked_inside(x, v1, v2, copy=True):
    """Missing between two values."""
    t, (low, high) = tensor_of(_plain(x)), sorted((v1, v2))
    return MaskedArray(x, wrap((t >= low) & (t <= high)), copy=copy)


def masked_outside(x, v1, v2, copy=True):
    """Missing below and above two values."""
    t, (low, high) = tensor_of(_plain(x)), sorted((v1, v2))
    return MaskedArray(x, wrap((t < low) | (t > high)), copy=copy)


def masked_values(x, value, rtol=1e-5, atol=1e-8, copy=True, shrink=True):
    """Missing where close to a value, which becomes the fill value."""
    return MaskedArray(x, _own("isclose")(_plain(x), value, rtol, atol), copy=copy, fill_value=value)


def is_masked(x):
    """Whether any element is missing."""
    return isinstance(x, MaskedArray) and x._mask is not None and _b.bool(x._mask.any())


def is_mask(m):
    """Whether an array may be a mask."""
    return getattr(m, "dtype", None) == BOOL


def isMaskedArray(x):
    """Whether a masked array."""
    return isinstance(x, MaskedArray)


isMA = isarray = isMaskedArray


def make_mask(m, copy=False, shrink=True, dtype=None):
    """A mask of numbers; `nomask` where nothing is missing, unless `shrink` is False."""
    if m is nomask:
        return nomask
    t = tensor_of(filled(m, True)).to(_C.bool)
    if shrink and not _b.bool(t.any()):
        return nomask
    return wrap(t.clone() if copy else t)


def make_mask_none(newshape, dtype=None):
    """A mask under which nothing is missing."""
    return _own("zeros")(newshape, bool)


def mask_or(m1, m2, copy=False, shrink=True):
    """What is missing by either of two masks."""
    if m1 is nomask or m1 is False or m2 is nomask or m2 is False:
        return make_mask(m2 if m1 is nomask or m1 is False else m1, copy, shrink)
    return make_mask(wrap(tensor_of(m1).to(_C.bool) | tensor_of(m2).to(_C.bool)), False, shrink)


def _lines_missing(a, axis):
    """Of a matrix, the rows (0), columns (1) or both (None) in which something is missing."""
    m = _of(a)._full
    if m.dim() != 2:
        raise NotImplementedError("compress_rowcols works for 2D arrays only.")
    return [m.any(1) if axis in (None, 0) else m.new_zeros(m.shape[0]), m.any(0) if axis in (None, 1) else m.new_zeros(m.shape[1])]


def mask_rowcols(a, axis=None):
    """All of rows (axis 0), columns (1) or both is missing where something is."""
    rows, columns = _lines_missing(a, axis)
    a = _of(a)
    return _made(a.data, a._full | rows[:, None] | columns[None], a._fill)


def mask_rows(a):
    """mask_rowcols of rows."""
    return mask_rowcols(a, 0)


def mask_cols(a):
    """mask_rowcols of columns."""
    return mask_rowcols(a, 1)


def compress_rowcols(x, axis=None):
    """The rows (axis 0), columns (1) or both in which nothing is missing."""
    rows, columns = _lines_missing(x, axis)
    return wrap(getdata(x)._tensor[~rows][:, ~columns])


def compress_rows(a):
    """compress_rowcols of rows."""
    return compress_rowcols(a, 0)


def compress_cols(a):
    """compress_rowcols of columns."""
    return compress_rowcols(a, 1)


def filled(a, fill_value=None):
    """The data with a number where they are missing."""
    return a.filled(fill_value) if isinstance(a, MaskedArray) else wrap(tensor_of(a))


def compressed(x):
    """What is not missing, flat."""
    return _of(x).compressed()


def count(obj, axis=None, keepdims=False):
    """How many elements are not missing."""
    return _of(obj).count(axis, keepdims)


def count_masked(arr, axis=None):
    """How many elements are missing."""
    return _r.sum(getmaskarray(arr), axis)


def set_fill_value(a, fill_value):
    """Sets what stands where elements are missing."""
    if isinstance(a, MaskedArray):
        a.fill_value = fill_value


def common_fill_value(a, b):
    """The fill value of both, or None where they differ."""
    return a.fill_value if a.fill_value == b.fill_value else None


def ndim(obj):
    """How many dimensions."""
    return getdata(obj).ndim


def shape(obj):
    """The sizes of the dimensions."""
    return getdata(obj).shape


def size(obj, axis=None):
    """How many elements, of all or of one axis."""
    return getdata(obj).size if axis is None else getdata(obj).shape[axis]


def _runs(flags):
    """Where a flat list of flags is True, as slices."""
    runs, start = [], None
    for i, flag in enumerate([*flags, False]):
        if flag and start is None:
            start = i
        elif not flag and start is not None:
            runs.append(slice(start, i))
            start = None
    return runs


def clump_masked(a):
    """The stretches of a flat array of which all is missing, as slices."""
    return _runs(_of(a)._full.reshape(-1).tolist())


def clump_unmasked(a):
    """The stretches of a flat array of which nothing is missing, as slices."""
    return _runs((~_of(a)._full).reshape(-1).tolist())


flatnotmasked_contiguous = clump_unmasked


def flatnotmasked_edges(a):
    """The first and the last index of what is not missing; None where all is."""
    runs = clump_unmasked(a)
    return _own("array")([runs[0].start, runs[-1].stop - 1]) if runs else None
