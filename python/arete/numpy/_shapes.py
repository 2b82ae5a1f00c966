"""Other shapes and places of the same elements."""
from __future__ import annotations

import builtins as _b
import functools as _functools

from .. import _C, _operators as _t
from .._C import Tensor
from ._array import (
    AxisError, Reversed, _backwards, axes_of, axis_of, backwards, in_words, moved, ndarray, shared, short_way, sizes_of,
    tensor_of, wrap,
)

__all__ = [
    "reshape", "ravel", "transpose", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis", "rollaxis", "expand_dims", "squeeze",
    "broadcast_to", "broadcast_arrays", "broadcast_shapes", "broadcast", "atleast_1d", "atleast_2d", "atleast_3d", "flip", "fliplr",
    "flipud", "roll", "rot90", "pad", "diagonal", "trace", "diag", "diagflat", "tril", "triu", "fill_diagonal", "s_", "index_exp",
    "shape", "ndim", "size", "ndenumerate", "ndindex",
]


def shape(a):
    """The sizes of an array."""
    return tuple(tensor_of(a).shape)


def ndim(a):
    """How many axes an array has."""
    return tensor_of(a).dim()


def size(a, axis=None):
    """How many elements an array has, in all or along axes."""
    t, n = tensor_of(a), 1
    for x in axes_of(axis, t.dim()):
        n *= t.shape[x]
    return n


def reshape(a, /, shape, order="C", *, copy=None):
    """Another shape of the same elements; a view where the memory allows it, and `copy=False` refuses where it does not."""
    t, sizes = tensor_of(a), sizes_of(shape)
    if type(a) is Reversed and not copy and order in ("C", "c", "F", "f", "A"):
        if order in ("F", "f"):
            return reshape(a.T, tuple(reversed(sizes)), copy=copy).T
        r = _reversed_as(a, _reshaped(t, sizes).shape)
        if r is not None:
            return r
    if order in ("F", "f") or (order == "A" and not t.is_contiguous() and t.permute(_backwards(t)).is_contiguous()):
        r = _reshaped(t.permute(_backwards(t)), tuple(reversed(sizes)))
        r = r.permute(_backwards(r))
    elif order in ("C", "c", "A"):
        r = _reshaped(t, sizes)
    else:
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    if copy is False and r.numel() and (r.data_ptr() != t.data_ptr() or type(a) is Reversed):
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return shared(a, r.clone() if copy and r.data_ptr() == t.data_ptr() else r)


def _reversed_as(a, sizes):
    """A view with negative steps in another shape; None where NumPy has to copy, too."""
    old, axes, i, j = a._view.shape, [], 0, 0
    try:
        view = a._view.view(sizes)
    except RuntimeError:
        return None
    while view.numel() and i < len(old) and j < len(sizes):  # axes that become axes: all of them are reversed, or none
        n, m, first, into = old[i], sizes[j], i, j
        i, j = i + 1, j + 1
        while n != m:
            if n < m:
                n, i = n * old[i], i + 1
            else:
                m, j = m * sizes[j], j + 1
        turned = {d in a._axes for d in range(first, i) if old[d] > 1}
        if len(turned) > 1:
            return None
        axes += range(into, j) if True in turned else ()
    return backwards(view, axes)


def _reshaped(t, sizes):
    if _b.sum(s < 0 for s in sizes) > 1:
        raise ValueError("can only specify one unknown dimension")
    try:
        return t.reshape(sizes)
    except RuntimeError:
        raise ValueError(f"cannot reshape array of size {t.numel()} into shape {in_words(sizes)}") from None


@short_way
def ravel(a, order="C"):
    """All elements in one axis; a view where they lie one after another already."""
    t = tensor_of(a)
    if order == "K" and not t.is_contiguous():
        places = sorted(range(t.dim()), key=lambda i: -t.stride(i))
        return shared(a, t.permute(places).reshape(-1))
    r = reshape(wrap(t) if type(a) is Reversed or not isinstance(a, ndarray) else a, -1, "C" if order == "K" else order)
    return r if order == "K" or r._tensor.is_contiguous() else r.copy()


def transpose(a, axes=None):
    """Axes in another order, else in the opposite one."""
    a = a if isinstance(a, ndarray) else wrap(tensor_of(a))
    if axes is None:
        return a.T
    axes = [axis_of(x, a.ndim) for x in ([axes] if isinstance(axes, int) else axes)]
    if len(axes) != a.ndim:
        raise ValueError("axes don't match array")
    if len({*axes}) < len(axes):
        raise ValueError("repeated axis in transpose")
    return moved(a, lambda t: t.permute(axes))


permute_dims = transpose


def matrix_transpose(x, /):
    """The last two axes exchanged."""
    return (x if isinstance(x, ndarray) else wrap(tensor_of(x))).mT


def swapaxes(a, axis1, axis2):
    """Two axes exchanged."""
    n = ndim(a)
    axis1, axis2 = axis_of(axis1, n, "axis1"), axis_of(axis2, n, "axis2")
    return moved(a, lambda t: t.transpose(axis1, axis2))


def moveaxis(a, source, destination):
    """Axes at other places; the others keep their order."""
    t = tensor_of(a)
    source, destination = axes_of(source, t.dim(), "source"), axes_of(destination, t.dim(), "destination")
    if len(source) != len(destination):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    return moved(a, lambda t: _t.movedim(t, source, destination))


def rollaxis(a, axis, start=0):
    """An axis moved before another."""
    t = tensor_of(a)
    axis = axis_of(axis, t.dim())
    if not -t.dim() <= start <= t.dim():
        raise AxisError(start, t.dim() + 1)
    start = start + t.dim() if start < 0 else start
    return moved(a, lambda t: _t.movedim(t, axis, start - (axis < start)))


def expand_dims(a, axis):
    """New axes of size 1."""
    new = sorted(axes_of(axis, ndim(a) + (len(axis) if isinstance(axis, (tuple, list)) else 1)))
    return moved(a, lambda t: _functools.reduce(Tensor.unsqueeze, new, t))


def squeeze(a, axis=None):
    """Without axes of size 1."""
    t = tensor_of(a)
    if axis is None:
        return moved(a, lambda t: t.squeeze())
    axes = axes_of(axis, t.dim()) if t.dim() or axis not in (0, -1) else ()
    if _b.any(t.shape[x] != 1 for x in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return moved(a, lambda t: t.reshape([s for i, s in enumerate(t.shape) if i not in axes]))


def _shapes_error(shapes):
    return ValueError("shape mismatch: objects cannot be broadcast to a single shape. Shapes are " + ", ".join(map(str, shapes)))


def broadcast_shapes(*args):
    """The shape that shapes have together."""
    args = [sizes_of(a) for a in args]
    try:
        return tuple(_t.broadcast_shapes(*args)) if args else ()
    except RuntimeError:
        raise _shapes_error(args) from None


def broadcast_to(array, shape, subok=False):
    """A view that repeats axes of size 1."""
    t = tensor_of(array)
    sizes = sizes_of(shape)
    if _b.any(s < 0 for s in sizes):
        raise ValueError("all elements of broadcast shape must be non-negative")
    try:
        r = wrap(t.expand(sizes))
        r.flags.writeable = False
        return r
    except RuntimeError:
        raise ValueError(f"operands could not be broadcast together with remapped shapes [original->remapped]: {in_words(t.shape)}  and "
                         f"requested shape {in_words(sizes)}") from None


def broadcast_arrays(*args, subok=False):
    """Views of one shape."""
    ts = [tensor_of(a) for a in args]
    to = broadcast_shapes(*[tuple(t.shape) for t in ts])
    return tuple(moved(a, lambda t: t.expand(to)) for a in args)


class broadcast:
    """Arrays as they meet: their shape, and their elements in tuples."""

    def __init__(self, *args):
        self._arrays = broadcast_arrays(*args)
        self.shape = self._arrays[0].shape if args else ()
        self.ndim = self.nd = len(self.shape)
        self.size = self._arrays[0].size if args else 1
        self.numiter, self.index = len(args), 0

    iters = property(lambda self: tuple(a.flat for a in self._arrays))

    def reset(self):
        self.index = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.index >= self.size:
            raise StopIteration
        self.index += 1
        return tuple(a.flat[self.index - 1] for a in self._arrays)


def _atleast(name, view):
    def function(*arys):
        r = tuple(moved(a, view) for a in arys)
        return r[0] if len(r) == 1 else r

    function.__name__ = name
    function.__doc__ = f"Arrays of {name[-2]} axes at least."
    return function


atleast_1d = _atleast("atleast_1d", lambda t: t if t.dim() else t.reshape(1))
atleast_2d = _atleast("atleast_2d", lambda t: t if t.dim() > 1 else t.reshape(1, -1))
atleast_3d = _atleast("atleast_3d", lambda t: t if t.dim() > 2 else t.reshape(1, -1, 1) if t.dim() < 2 else t.unsqueeze(2))


def flip(m, axis=None):
    """Elements in the opposite order, as a view that is read by copies."""
    if axis is None and type(m) is ndarray and m.ndim:
        return m[(slice(None, None, -1),) * m.ndim]
    t = tensor_of(m)
    a = wrap(t) if not isinstance(m, ndarray) else m
    axes = axes_of(axis, t.dim())
    return a[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(t.dim()))] if axes else a[...]


def fliplr(m):
    """Columns in the opposite order."""
    if ndim(m) < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


def flipud(m):
    """Rows in the opposite order."""
    if ndim(m) < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(m, 0)


def roll(a, shift, axis=None):
    """Elements moved along axes, those that leave coming in again."""
    t = tensor_of(a)
    if axis is None:
        return wrap(t.reshape(-1).roll((_b.sum(sizes_of(shift)),), (0,)).reshape(t.shape))
    axes = [axis_of(x, t.dim()) for x in sizes_of(axis)]
    shifts = sizes_of(shift)
    n = _b.max(len(axes), len(shifts))
    if _b.min(len(axes), len(shifts)) not in (1, n):
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    axes, shifts = (tuple(v) * (n // len(v)) for v in (axes, shifts))
    return wrap(t.roll(shifts, axes) if t.numel() else t.clone())


def rot90(m, k=1, axes=(0, 1)):
    """Turned by right angles in the plane of two axes."""
    t = tensor_of(m)
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    if axis_of(axes[0], t.dim()) == axis_of(axes[1], t.dim()):
        raise ValueError("Axes must be different.")
    a, b = axes
    m, k = m if isinstance(m, ndarray) else wrap(t), k % 4
    if k in (0, 2):
        return flip(m, axes) if k else m[...]
    return swapaxes(flip(m, b), a, b) if k == 1 else flip(swapaxes(m, a, b), b)


def _pairs(value, n, dtype=None):
    """(before, after) for each axis: numbers of a dtype, or counts."""
    if isinstance(value, dict):
        r = [(0, 0)] * n
        for axis, v in value.items():
            r[axis_of(axis, n)] = (v, v) if not isinstance(v, (tuple, list)) else tuple(v)
        return r
    t = tensor_of(value, dtype)
    if dtype is None and (t.is_floating_point() or t.is_complex()):
        raise TypeError("`pad_width` must be of integral type.")
    if t.dim() > 2 or (t.dim() == 2 and t.shape[1] not in (1, 2)):
        raise ValueError(f"operands could not be broadcast together with remapped shapes [original->remapped]: {in_words(t.shape)}  and "
                         f"requested shape ({n},2)")
    return [tuple(p) for p in broadcast_to(wrap(t), (n, 2)).tolist()]


def pad(array, pad_width, mode="constant", **kwargs):
    """The array with a border: constant, edge, linear_ramp, maximum, mean, median, minimum, reflect, symmetric, wrap, empty or what a
    function writes."""
    t = tensor_of(array)
    widths = _pairs(pad_width, t.dim())
    if _b.any(v < 0 for p in widths for v in p):
        raise ValueError("index can't contain negative values")
    known = {"constant": {"constant_values"}, "linear_ramp": {"end_values"}, "reflect": {"reflect_type"}, "symmetric": {"reflect_type"},
             **{m: {"stat_length"} for m in ("maximum", "mean", "median", "minimum")}, "edge": set(), "wrap": set(), "empty": set()}
    if callable(mode):
        r = pad(wrap(t), widths)
        for axis in range(t.dim()):
            rows = r._tensor.movedim(axis, -1)
            for index in ndindex(*rows.shape[:-1]):
                mode(wrap(rows[index]), widths[axis], axis, kwargs)
        return r
    if mode not in known:
        raise ValueError(f"mode {mode!r} is not supported")
    if set(kwargs) - known[mode]:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {set(kwargs) - known[mode]}")
    if kwargs.get("reflect_type", "even") not in ("even", "odd"):
        raise ValueError("reflect_type must be 'even' or 'odd'")
    if mode in ("constant", "empty"):
        values = _pairs(kwargs.get("constant_values", 0), t.dim(), t.dtype)
        if len({v for p in values for v in p}) == 1 and t.dtype is not _C.bool:
            return wrap(_t.constant_pad_nd(t, [w for p in reversed(widths) for w in p], values[0][0])) if t.dim() else wrap(t.clone())
    for axis, (before, after) in enumerate(widths):
        if before or after:
            t = _t.cat([_border(t, axis, before, mode, kwargs, 0), t, _border(t, axis, after, mode, kwargs, 1)], axis)
    return wrap(t)


def _border(t, axis, n, mode, options, side):
    size = t.shape[axis]
    shape = [n if i == axis else s for i, s in enumerate(t.shape)]
    if mode in ("constant", "empty", "linear_ramp"):
        if mode != "linear_ramp":
            value = _pairs(options.get("constant_values", 0), t.dim(), t.dtype)[axis][side]
            return _t.full(shape, value, dtype=t.dtype, device=t.device)
        value = _pairs(options.get("end_values", 0), t.dim(), _C.float64)[axis][side]
        edge = t.narrow(axis, size - 1 if side else 0, 1).to(_C.float64)
        at = _t.arange(n, dtype=_C.float64, device=t.device).reshape([-1 if i == axis else 1 for i in range(t.dim())])
        at = (n - 1 - at if side else at) / n
        r = value + (edge - value) * at
        return (r if t.is_floating_point() else r.floor()).to(t.dtype)
    if not size and n:
        raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    if mode in ("maximum", "minimum", "mean", "median"):
        lengths = options.get("stat_length")
        length = size if lengths is None else _b.min(size, _pairs(lengths, t.dim())[axis][side])
        if length < 1 and mode in ("maximum", "minimum"):
            raise ValueError("stat_length of 0 yields no value for padding")
        part = t.narrow(axis, size - length if side else 0, length)
        if mode in ("maximum", "minimum"):
            r = (_t.amax if mode == "maximum" else _t.amin)(part, axis, True)
        else:
            part = part if part.is_floating_point() or part.is_complex() else part.to(_C.float64)
            if mode == "mean":
                r = part.mean(axis, True)
            else:
                s = part.sort(axis)[0]
                r = (s.narrow(axis, (length - 1) // 2, 1) + s.narrow(axis, length // 2, 1)) / 2
            r = r if t.is_floating_point() or t.is_complex() else _t.round(r)
        return r.to(t.dtype).expand(shape)
    at = _t.arange(size, size + n, device=t.device) if side else _t.arange(-n, 0, device=t.device)
    if mode == "edge":
        places = at.clamp(0, size - 1)
    elif mode == "wrap":
        places = at % size
    else:
        period = 2 * size if mode == "symmetric" else _b.max(2 * size - 2, 1)
        places = at % period
        mirrored = period - 1 - places if mode == "symmetric" else period - places
        places = _t.where(places < size, places, mirrored)
        if options.get("reflect_type") == "odd" and size > 1:
            span = (size if mode == "symmetric" else size - 1)
            turns = _t.div(at, span, rounding_mode="floor")
            edge_gap = (t.narrow(axis, size - 1, 1) - t.narrow(axis, 0, 1))
            by = [-1 if i == axis else 1 for i in range(t.dim())]
            value = _t.index_select(t, axis, places)
            odd = (turns % 2 != 0).reshape(by)
            first, last = t.narrow(axis, 0, 1), t.narrow(axis, size - 1, 1)
            if mode == "reflect":  # the line through both ends goes on
                k = turns.reshape(by)
                return _t.where(odd, first + last - value + (k) * edge_gap, value + k * edge_gap).to(t.dtype)
            k = turns.reshape(by)
            return _t.where(odd, first + last - value + k * edge_gap, value + k * edge_gap).to(t.dtype)
    return _t.index_select(t, axis, places)


def diagonal(a, offset=0, axis1=0, axis2=1):
    """A view of a diagonal; of a view with a negative step a copy that cannot be written."""
    t = tensor_of(a)
    if t.dim() < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    axis1, axis2 = axis_of(axis1, t.dim()), axis_of(axis2, t.dim())
    if axis1 == axis2:
        raise ValueError("axis1 and axis2 cannot be the same")
    r = shared(a, t.diagonal(offset, axis1, axis2))
    if type(a) is Reversed:
        r.flags.writeable = False
    return r


def trace(a, offset=0, axis1=0, axis2=1, dtype=None, out=None):
    """The sum of a diagonal."""
    return diagonal(a, offset, axis1, axis2).sum(-1, dtype, out)


def diag(v, k=0):
    """The diagonal of a matrix, or the matrix of a diagonal."""
    t = tensor_of(v)
    if t.dim() == 1:
        return wrap(_t.diag_embed(t, k))
    if t.dim() != 2:
        raise ValueError("Input must be 1- or 2-d.")
    return wrap(t.diagonal(k))


def diagflat(v, k=0):
    """The matrix with these elements on its diagonal."""
    return wrap(_t.diag_embed(tensor_of(v).reshape(-1), k))


def _triangle(name, operator):
    def function(m, k=0):
        t = tensor_of(m)
        if not t.dim():
            raise TypeError(f"{name}() takes arrays of one dimension at least")
        return wrap(operator(t if t.dim() > 1 else t.expand(t.shape[0], t.shape[0]), k))

    function.__name__ = name
    function.__doc__ = f"What is on and {'below' if name == 'tril' else 'above'} a diagonal, and zeros."
    return function


tril, triu = _triangle("tril", _t.tril), _triangle("triu", _t.triu)


def fill_diagonal(a, val, wrap=False):
    """Writes the main diagonal, `wrap` in tall matrices again after a row."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and len({*a.shape}) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    if a.ndim == 2:
        step, end = a.shape[1] + 1, None if wrap else a.shape[1] * a.shape[1]
    else:
        step, end = 1 + _b.sum(a.shape[0]**i for i in range(1, a.ndim)), None
    a.flat[:end:step] = val


class _Index:
    """`s_[1:3, ::2]`: an index as an object."""

    def __init__(self, as_tuple):
        self._tuple = as_tuple

    def __getitem__(self, key):
        return (key,) if self._tuple and not isinstance(key, tuple) else key


s_, index_exp = _Index(False), _Index(True)


class ndindex:
    """All indices of a shape, one after another."""

    def __init__(self, *shape):
        import itertools

        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        self._indices = itertools.product(*[range(n) for n in shape])

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._indices)


class ndenumerate:
    """Indices with their elements."""

    def __init__(self, arr):
        self.iter = wrap(tensor_of(arr)).flat
        self._all = zip(ndindex(*self.iter.base.shape), self.iter)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._all)
