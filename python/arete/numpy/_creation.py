"""New arrays: filled, counted, from others' memory and text, coordinates and windows."""
from __future__ import annotations

import builtins as _b
import math as _math
import operator as _operator

from .. import _C, _operators as _t
from ._array import (
    _array, _in_kind, array, cast, flatiter, get_device, ndarray, new_sizes, ordered, result, short_way, sizes_of, tensor_of,
    wrap,
)
from ._types import FLOAT64, PROMOTED_NATIVE, as_dtype, native, number_type

__all__ = [
    "asarray",
    "asanyarray",
    "asarray_chkfinite",
    "ascontiguousarray",
    "asfortranarray",
    "require",
    "copy",
    "empty",
    "zeros",
    "ones",
    "full",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "arange",
    "linspace",
    "logspace",
    "geomspace",
    "eye",
    "identity",
    "tri",
    "meshgrid",
    "fromfunction",
    "fromiter",
    "frombuffer",
    "fromstring",
    "from_dlpack",
    "indices",
    "ix_",
    "mgrid",
    "ogrid",
    "vander",
    "bartlett",
    "blackman",
    "hamming",
    "hanning",
    "kaiser",
    "diag_indices",
    "diag_indices_from",
    "tril_indices",
    "tril_indices_from",
    "triu_indices",
    "triu_indices_from",
    "mask_indices",
    "astype",
    "flatiter",
]


def _place(device):
    return get_device() if device is None else _C.device(device) if isinstance(device, str) else device


@short_way
def asarray(a, dtype=None, order=None, *, device=None, copy=None):
    """`a` itself if it is an array of that dtype and order."""
    return _array(a, dtype, copy, order, device=None if device is None else _place(device))


def asanyarray(a, dtype=None, order=None, *, device=None, copy=None):
    """As `asarray`: there are no subclasses to keep."""
    return asarray(a, dtype, order, device=device, copy=copy)


def asarray_chkfinite(a, dtype=None, order=None):
    """As `asarray`; ValueError where an element is infinite or NaN."""
    r = asarray(a, dtype, order)
    if not _b.bool(_t.isfinite(r._tensor).all()):
        raise ValueError("array must not contain infs or NaNs")
    return r


def ascontiguousarray(a, dtype=None):
    """`a` itself if it is row-major and of that dtype; of one dimension at least."""
    return _array(a, dtype, None, "C", ndmin=1)


def asfortranarray(a, dtype=None):
    """The array with its columns one after another in memory."""
    return asarray(a, dtype, "F")


def require(a, dtype=None, requirements=None):
    """The array as `requirements` want it: C, F, A (aligned: all are), W (writeable), O (owns its memory)."""
    wanted = {r.upper()[0] for r in ([requirements] if isinstance(requirements, str) else requirements or [])}
    if {"C", "F"} <= wanted:
        raise ValueError("Cannot specify both \"C\" and \"F\" order")
    r = asarray(a, dtype, "C" if "C" in wanted else "F" if "F" in wanted else None)
    return r.copy() if ("O" in wanted and not r.flags.owndata) or ("W" in wanted and not r.flags.writeable) else r


def copy(a, order="K", subok=False):
    """A copy."""
    return wrap(tensor_of(a)).copy(order)


def astype(x, dtype, /, *, copy=True, device=None):
    """The array in another dtype."""
    if not isinstance(x, ndarray):
        raise TypeError(f"Input should be a NumPy array. It is a {type(x)} object.")
    r = x.astype(dtype, copy=copy)
    return r if device is None else r.to_device(device)


def from_dlpack(x, /, *, device=None, copy=None):
    """The array over the memory of an object with `__dlpack__`."""
    t = x._tensor if isinstance(x, ndarray) else _t.from_dlpack(x)
    if device is not None:
        moved = t.to(_place(device))
        if moved is not t and copy is False:
            raise ValueError("another device is reached by a copy only")
        return wrap(moved if moved is not t or not copy else t.clone())
    return wrap(t.clone() if copy else t)


def _filled(name, maker):
    def function(shape, dtype=None, order="C", *, device=None):
        t = maker(new_sizes(shape), dtype=_C.float64 if dtype is None else native(dtype), device=_place(device))
        return wrap(t if order == "C" else ordered(t, order))

    def function_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
        t = tensor_of(a)
        d = t.dtype if dtype is None else native(dtype)
        device = t.device if device is None else _place(device)
        if shape is None and order == "K":
            return wrap(globals()[f"_{name}_like"](t, dtype=d, device=device))
        return wrap(
            ordered(maker(t.shape if shape is None else new_sizes(shape), dtype=d, device=device), "C" if order in ("K", "A") else order)
        )

    function.__name__ = function.__qualname__ = name
    function_like.__name__ = function_like.__qualname__ = f"{name}_like"
    function.__doc__ = f"A new array, {'not set' if name == 'empty' else 'of ' + name}; float64 if no dtype is given."
    function_like.__doc__ = f"A new array of the shape, dtype and device of another, {'not set' if name == 'empty' else 'of ' + name}."
    return short_way(function), function_like


_empty_like, _zeros_like, _ones_like = _t.empty_like, _t.zeros_like, _t.ones_like
empty, empty_like = _filled("empty", _t.empty)
zeros, zeros_like = _filled("zeros", _t.zeros)
ones, ones_like = _filled("ones", _t.ones)


def full(shape, fill_value, dtype=None, order="C", *, device=None):
    """A new array of one value, or of values that are broadcast."""
    device = _place(device)
    if number_type(fill_value) is not None and dtype is not None:
        d = native(dtype)
        return wrap(ordered(_t.full(new_sizes(shape), _in_kind(fill_value, d), dtype=d, device=device), order))
    value = tensor_of(fill_value, dtype, device)
    return wrap(ordered(value.expand(new_sizes(shape)).clone(), order))


def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    """A new array of one value, with the shape, dtype and device of another."""
    r = empty_like(a, dtype, order, shape=shape, device=device)
    r[...] = fill_value
    return r


@short_way
def arange(start=None, stop=None, step=1, dtype=None, *, device=None):
    """start, start + step, ... below stop; int64 for whole numbers, else float64."""
    if start is None and stop is None:
        raise TypeError("arange() requires stop to be specified.")
    start, stop = (0, start) if stop is None else (0 if start is None else start, stop)
    start, stop, step = (v.item() if hasattr(v, "item") else v for v in (start, stop, 1 if step is None else step))
    if dtype is None:
        whole = _b.all(isinstance(v, _b.int) for v in (start, stop, step))
        dtype = "int64" if whole else FLOAT64
    if step == 0:
        raise ZeroDivisionError("Maximum allowed size exceeded: the step is 0")
    d, n = native(dtype), _b.max(0, _math.ceil((stop - start) / step)) if not isinstance(start, _b.int) or not isinstance(
        step, _b.int) or not isinstance(stop, _b.int) else len(range(start, stop, step))
    if d.is_floating_point or d.is_complex:
        t = _t.arange(n, dtype=_C.float64, device=_place(device)) * step + start
        return wrap(t.to(d))
    if d is _C.bool and n > 2:
        raise TypeError("no fill-function for data-type bool")
    if isinstance(start, _b.int) and isinstance(step, _b.int):
        return wrap(_t.arange(start, start + n * step, step, dtype=_C.int64, device=_place(device)).to(d) if n else _t.empty(
            0, dtype=d, device=_place(device)))
    return wrap((_t.arange(n, dtype=_C.int64, device=_place(device)) * _b.int(step) + _b.int(start)).to(d))


def linspace(start, stop, num=50, endpoint=True, retstep=False, dtype=None, axis=0, *, device=None):
    """num numbers from start to stop, at equal steps."""
    num = _count(num)
    if axis == 0 and num > 1 and _b.all(number_type(v) in (_b.int, _b.float) for v in (start, stop)) and start != stop:
        step = (stop - start) / (num - 1 if endpoint else num)
        t = _t.arange(num, dtype=_C.float64, device=_place(device)) * step + start
        if endpoint:
            t[-1] = stop
        target = native(FLOAT64 if dtype is None else dtype)
        t = t if target.is_floating_point or target.is_complex or target is _C.bool else t.floor()
        return (wrap(t.to(target)), result(t.new_full((), step))) if retstep else wrap(t.to(target))
    a, b = (tensor_of(v, None, None if device is None else _place(device)) for v in (start, stop))
    d = _C.complex128 if a.is_complex() or b.is_complex() else _C.float64
    target = native(dtype)
    if target is None:
        floats = [v.dtype for v in (a, b) if v.is_floating_point() or v.is_complex()]
        scalars = number_type(start) is not None and number_type(stop) is not None
        target = d if scalars or not floats else d if _C.float64 in floats or _C.complex128 in floats or len(floats) < 2 else floats[0]
    a, b = _t.broadcast_tensors(a.to(d), b.to(d))
    div = num - 1 if endpoint else num
    step = (b - a) / div if div > 0 else _t.full(a.shape, _math.nan, dtype=d, device=a.device)
    at = _t.arange(num, dtype=_C.float64, device=a.device).reshape((num,) + (1,) * a.dim())
    t = at * (b - a) + a if div <= 0 else _t.where(step == 0, at / div * (b - a), at * step) + a
    if endpoint and num > 1:
        t[-1] = b
    if not target.is_floating_point and not target.is_complex and target is not _C.bool:
        t = t.floor()
    t = cast(t, target)
    r = wrap(t if axis == 0 else _t.movedim(t, 0, axis))
    return (r, result(step) if div > 0 else _math.nan) if retstep else r


def _count(num):
    import operator

    num = operator.index(num)
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    return num


def logspace(start, stop, num=50, endpoint=True, base=10.0, dtype=None, axis=0):
    """base to the power of num numbers from start to stop."""
    y = linspace(start, stop, num, endpoint, axis=axis)
    r = wrap(_t.pow(tensor_of(base).to(y._tensor.dtype), y._tensor))
    return r if dtype is None else r.astype(dtype, copy=False)


def geomspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """num numbers from start to stop, each the same multiple of the one before."""
    a, b = tensor_of(start), tensor_of(stop)
    if _b.bool((a == 0).any()) or _b.bool((b == 0).any()):
        raise ValueError("Geometric sequence cannot include zero")
    complex_ = a.is_complex() or b.is_complex()
    d = _C.complex128 if complex_ else _C.float64
    a, b = _t.broadcast_tensors(a.to(d), b.to(d))
    if not complex_ and _b.bool((a * b < 0).any()):
        raise ValueError("Geometric sequence cannot go from one sign to the other")
    sign = _t.sgn(a)
    t = linspace(wrap(_t.log10(a / sign)), wrap(_t.log10(b / sign)), num, endpoint)._tensor
    t = _t.pow(_t.full((), 10.0, dtype=d, device=a.device), t) * sign
    if num > 0:
        t[0] = a
    if num > 1 and endpoint:
        t[-1] = b
    t = t if axis == 0 else _t.movedim(t, 0, axis)
    return wrap(t if dtype is None else cast(t, native(dtype)))


def eye(N, M=None, k=0, dtype=float, order="C", *, device=None):
    """Ones on a diagonal, zeros elsewhere."""
    rows, columns = sizes_of(N)[0], sizes_of(N if M is None else M)[0]
    i = _t.arange(rows, device=_place(device)).unsqueeze(1)
    k = _b.max(-rows, _b.min(_operator.index(k), columns))  # of any size
    return wrap(ordered((_t.arange(columns, device=_place(device)) - i == k).to(native(FLOAT64 if dtype is None else dtype)), order))


def identity(n, dtype=None):
    """The identity matrix."""
    return eye(n, dtype=FLOAT64 if dtype is None else dtype)


def tri(N, M=None, k=0, dtype=float):
    """Ones on and below a diagonal."""
    columns = _t.arange(N if M is None else M, device=get_device())
    return wrap((columns - k <= _t.arange(N, device=get_device()).unsqueeze(1)).to(native(dtype)))


def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Coordinates of a grid, an array for each axis."""
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    n, r = len(xi), []
    for i, x in enumerate(xi):
        axis = 1 - i if indexing == "xy" and i < 2 and n > 1 else i
        t = tensor_of(x).reshape(-1)
        r.append(t.reshape([-1 if j == axis else 1 for j in range(n)]))
    if not sparse:
        r = list(_t.broadcast_tensors(*r)) if r else []
    return tuple(wrap(t.clone() if copy else t) for t in r)


def indices(dimensions, dtype=int, sparse=False):
    """The indices of a grid, stacked, or one for each axis with `sparse`."""
    dimensions = sizes_of(dimensions)
    grid = [_t.arange(n, dtype=native(dtype), device=get_device()).reshape([-1 if j == i else 1 for j in range(len(dimensions))])
            for i, n in enumerate(dimensions)]
    if sparse:
        return tuple(wrap(g) for g in grid)
    if not grid:
        return wrap(_t.empty((0,), dtype=native(dtype), device=get_device()))
    return wrap(_t.stack(_t.broadcast_tensors(*grid)))


class _Grid:
    """`mgrid[0:3, 0:1:5j]`: coordinates of a grid; with a complex step that many, the end among them."""

    def __init__(self, sparse):
        self._sparse = sparse

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        axes = [slice_of(p) for p in parts]
        if not isinstance(key, tuple):
            return axes[0]
        d = axes[0].dtype
        for a in axes:
            d = FLOAT64 if a.dtype.kind == "f" else d
        axes = [a.astype(d, copy=False) for a in axes]
        grid = meshgrid(*axes, indexing="ij", sparse=self._sparse)
        return grid if self._sparse else wrap(_t.stack([g._tensor for g in grid]))


def slice_of(p):
    """The numbers of a slice: of a complex step that many, the end among them."""
    start, step = 0 if p.start is None else p.start, 1 if p.step is None else p.step
    if isinstance(step, _b.complex):
        return linspace(start, p.stop, _b.int(_b.abs(step)))
    return arange(start, p.stop, step)


mgrid, ogrid = _Grid(False), _Grid(True)


def ix_(*args):
    """Arrays of indices that together choose a grid of rows and columns."""
    r = []
    for i, x in enumerate(args):
        t = tensor_of(x)
        if t.dim() != 1:
            raise ValueError("Cross index must be 1 dimensional")
        t = _t.nonzero(t).reshape(-1) if t.dtype is _C.bool else t.to(_C.int64) if not t.numel() else t
        r.append(wrap(t.reshape([-1 if j == i else 1 for j in range(len(args))])))
    return tuple(r)


def fromfunction(function, shape, *, dtype=float, **kwargs):
    """What a function gives for the coordinates of all elements."""
    return function(*[wrap(t) for t in indices(shape, dtype)._tensor.unbind(0)], **kwargs)


def fromiter(iter, dtype, count=-1):
    """An array of what an iterator gives."""
    items = []
    for i, v in enumerate(iter):
        if i == count:
            break
        items.append(v.item() if hasattr(v, "item") else v)
    if count > len(items):
        raise ValueError(f"iterator too short: Expected {count} but iterator had only {len(items)} items.")
    return array(items, dtype) if items else empty((0,), dtype)


def frombuffer(buffer, dtype=float, count=-1, offset=0):
    """An array over the memory of a buffer; one that cannot be written gives a copy."""
    d, view = as_dtype(dtype), memoryview(buffer)
    n = view.nbytes - offset
    if n < 0 or (count < 0 and n % d.itemsize):
        raise ValueError("buffer size must be a multiple of element size")
    if count >= 0 and count * d.itemsize > n:
        raise ValueError("buffer is smaller than requested size")
    count = n // d.itemsize if count < 0 else count
    if count == 0:
        raise ValueError("buffer is empty") if not view.nbytes else None
    t = _t.frombuffer(bytearray(view) if view.readonly else view, dtype=d._tensor_dtype, count=count, offset=offset)
    return wrap(t.to(get_device()))


def fromstring(string, dtype=float, count=-1, *, sep):
    """Numbers of a text, between separators; that of bytes is `frombuffer`."""
    if sep == "":
        raise ValueError("The binary mode of fromstring is removed, use frombuffer instead")
    words = [w for w in (string.split() if not sep.strip() else string.split(sep.strip())) if w.strip()]
    d = as_dtype(dtype)
    read = _b.int if d.kind in "iu" else _b.complex if d.kind == "c" else _b.float
    return array([read(w) for w in words[: None if count < 0 else count]], d) if words else empty((0,), d)


def vander(x, N=None, increasing=False):
    """The powers of numbers in columns."""
    t = tensor_of(x)
    if t.dim() != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    n = t.shape[0] if N is None else N
    t = cast(t, PROMOTED_NATIVE[t.dtype, _C.int64])
    r = _t.stack([t**i for i in range(n)], 1) if n else t.new_empty((t.shape[0], 0))
    return wrap(r if increasing else r.flip(1))


# --- windows -----------------------------------------------------------------------------------------------------------------


def _window(M, shape_of):
    n = _b.int(M)
    if n < 1:
        return empty((0,))
    if n == 1:
        return ones((1,))
    return wrap(shape_of(_t.arange(1 - n, n, 2, dtype=_C.float64, device=get_device()), n))


def bartlett(M):
    """The triangular window."""
    return _window(M, lambda t, n: 1 - t.abs() / (n - 1))


def blackman(M):
    """Blackman's window."""
    return _window(M, lambda t, n: 0.42 + 0.5 * _t.cos(_math.pi * t / (n - 1)) + 0.08 * _t.cos(2 * _math.pi * t / (n - 1)))


def hamming(M):
    """Hamming's window."""
    return _window(M, lambda t, n: 0.54 + 0.46 * _t.cos(_math.pi * t / (n - 1)))


def hanning(M):
    """Hann's window."""
    return _window(M, lambda t, n: 0.5 + 0.5 * _t.cos(_math.pi * t / (n - 1)))


def kaiser(M, beta):
    """Kaiser's window."""
    top = _t.i0(_t.full((), _b.float(beta), dtype=_C.float64))
    return _window(M, lambda t, n: _t.i0(beta * _t.sqrt((1 - (t / (n - 1)) ** 2).clamp(min=0))) / top.to(t.device))


# --- indices of diagonals and triangles ------------------------------------------------------------------------------------


def diag_indices(n, ndim=2):
    """The indices of the main diagonal."""
    return (arange(n),) * ndim


def diag_indices_from(arr):
    """The indices of the main diagonal of an array whose sizes are equal."""
    if arr.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len({*arr.shape}) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(arr.shape[0], arr.ndim)


def tril_indices(n, k=0, m=None):
    """The indices of what is on and below a diagonal."""
    return tuple(wrap(t) for t in _t.nonzero(tri(n, m, k, bool)._tensor, as_tuple=True))


def triu_indices(n, k=0, m=None):
    """The indices of what is on and above a diagonal."""
    return tuple(wrap(t) for t in _t.nonzero(~tri(n, m, k - 1, bool)._tensor, as_tuple=True))


def _matrix(arr):
    if arr.ndim != 2:
        raise ValueError("input array must be 2-d")
    return arr.shape


def tril_indices_from(arr, k=0):
    """The indices of what is on and below a diagonal of a matrix."""
    n, m = _matrix(arr)
    return tril_indices(n, k, m)


def triu_indices_from(arr, k=0):
    """The indices of what is on and above a diagonal of a matrix."""
    n, m = _matrix(arr)
    return triu_indices(n, k, m)


def mask_indices(n, mask_func, k=0):
    """The indices that a function such as `triu` keeps of a matrix."""
    return tuple(wrap(t) for t in _t.nonzero(mask_func(ones((n, n), int), k)._tensor != 0, as_tuple=True))
