"""Rounding, limits, complex parts, comparisons within tolerances, differences, interpolation, and functions called along axes."""
from __future__ import annotations

import builtins as _b
import math as _math

from .. import _C, _operators as _t
from ._array import _in_kind, axes_of, axis_of, cast, ndarray, result, result_into, tensor_of
from ._products import pair
from ._joining import concatenate
from ._shapes import ndindex
from ._types import FLOAT64, OF_TENSOR, native, number_type
from ._ufuncs import _ALL

__all__ = [
    "clip",
    "round",
    "around",
    "fix",
    "real",
    "imag",
    "angle",
    "isreal",
    "iscomplex",
    "isrealobj",
    "iscomplexobj",
    "isscalar",
    "real_if_close",
    "isposinf",
    "isneginf",
    "nan_to_num",
    "isclose",
    "allclose",
    "array_equal",
    "array_equiv",
    "i0",
    "sinc",
    "diff",
    "ediff1d",
    "gradient",
    "trapezoid",
    "interp",
    "unwrap",
    "apply_along_axis",
    "apply_over_axes",
    "vectorize",
    "packbits",
    "unpackbits",
    "may_share_memory",
    "shares_memory",
    "iterable",
    "isfortran",
]


def clip(a, a_min=None, a_max=None, out=None, *, min=None, max=None, **options):
    """Elements below a limit become it, and those above the other."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    r = a if isinstance(a, ndarray) else result(tensor_of(a))
    t = r._tensor
    if t.is_floating_point():
        low, high = (_in_kind(v, t.dtype) if type(v) is _b.int else v for v in (low, high))
    if (
        out is None
        and not options
        and t.dtype in _ALL["fabs"]._direct
        and number_type(low) in (_b.int, _b.float, None)
        and number_type(high) in (_b.int, _b.float, None)
        and not hasattr(low, "dtype")
        and not hasattr(high, "dtype")
        and (low is not None or high is not None)
    ):
        if low is None or high is None or low <= high:
            if low == low and high == high and not isinstance(low, (list, tuple)) and not isinstance(high, (list, tuple)):
                return result(_t.clamp(t, low, high))
    if t.dtype is not _C.bool and not t.is_floating_point() and not t.is_complex():
        from ._types import LIMITS

        if type(low) is _b.int and low < LIMITS[t.dtype][0]:
            low = None
        if type(high) is _b.int and high > LIMITS[t.dtype][1]:
            high = None
    if low is not None:
        r = _ALL["maximum"](r, low, **options)
    if high is not None:
        r = _ALL["minimum"](r, high, **options)
    return result_into(r._tensor.clone() if r._tensor is t else r._tensor, out)


def round(a, decimals=0, out=None):  # noqa: A001
    """Rounded to decimals, halves to the even one."""
    t = tensor_of(a)
    if t.dtype is _C.bool:
        t = t.to(_C.float16)
    if t.is_floating_point() or t.is_complex():
        if decimals == 0:
            r = _ALL["rint"]._compute(result(t))
        elif decimals > 0:
            r = _ALL["rint"]._compute(result(t * 10.0**decimals)) / 10.0**decimals
        else:
            r = _ALL["rint"]._compute(result(t / 10.0**-decimals)) * 10.0**-decimals
    elif decimals >= 0:
        r = t.clone()
    else:
        r = cast((_t.round(t.to(_C.float64) / 10.0**-decimals) * 10.0**-decimals), t.dtype)
    return result_into(r, out)


around = round


def fix(x, out=None):
    """Rounded towards zero."""
    return _ALL["trunc"](x, out=out)


def real(val):
    """The real parts; a view of complex arrays."""
    return result(tensor_of(val)).real if not isinstance(val, ndarray) else val.real


def imag(val):
    """The imaginary parts; a view of complex arrays."""
    return result(tensor_of(val)).imag


def angle(z, deg=False):
    """The angle of complex numbers."""
    t = tensor_of(z)
    if t.is_complex():
        r = _t.atan2(t.imag, t.real)
    else:
        r = _ALL["arctan2"]._compute(0, result(t if t.dtype is not _C.bool else t.to(_C.float64)))
    return result(r * (180 / _math.pi) if deg else r)


def iscomplexobj(x):
    """Whether a complex dtype."""
    return tensor_of(x).is_complex()


def isrealobj(x):
    """Whether no complex dtype."""
    return not iscomplexobj(x)


def isreal(x):
    """Whether the imaginary part of each element is zero."""
    return result(tensor_of(x)).imag == 0


def iscomplex(x):
    """Whether the imaginary part of each element is other than zero."""
    return result(tensor_of(x)).imag != 0


def isscalar(element):
    """Whether a number or text of Python or NumPy."""
    return number_type(element) is not None or isinstance(element, (str, bytes)) or getattr(element, "_is_number", False) or (
        type(element).__module__ == "numpy" and hasattr(element, "dtype") and type(element).__name__ != "ndarray")


def real_if_close(a, tol=100):
    """The real parts, if all imaginary ones are next to zero."""
    t = tensor_of(a)
    if not t.is_complex():
        return result(t)
    from ._types import finfo

    tol = tol * float(finfo(OF_TENSOR[t.dtype]).eps) if tol > 1 else tol
    return result(t.real) if _b.bool((t.imag.abs() < tol).all()) else result(t)


def _infinite(name, sign):
    def function(x, out=None):
        t = tensor_of(x)
        if t.is_complex():
            raise TypeError(f"This operation is not supported for {OF_TENSOR[t.dtype]} values because it would be ambiguous.")
        return result_into(_t.isinf(t) & ((t < 0) if sign < 0 else (t > 0)), out)

    function.__name__ = name
    function.__doc__ = f"Whether {'negative' if sign < 0 else 'positive'} infinity."
    return function


isposinf, isneginf = _infinite("isposinf", 1), _infinite("isneginf", -1)


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """NaN becomes zero, and infinities the limits of the dtype, or what is given."""
    t = tensor_of(x)
    nan, posinf, neginf = (_b.float(v) if type(v) is _b.int else v for v in (nan, posinf, neginf))
    if t.is_complex():
        parts = _t.nan_to_num(_t.view_as_real(t).contiguous(), nan, posinf, neginf)
        r = _t.view_as_complex(parts)
    else:
        r = _t.nan_to_num(t, nan, posinf, neginf) if t.is_floating_point() else t.clone()
    if copy or not isinstance(x, ndarray):
        return result(r)
    x._write(r)
    return x


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |a - b| <= atol + rtol * |b|."""
    x, y = pair(a, b) if number_type(b) is None or number_type(a) is not None else (
        tensor_of(a), tensor_of(b, FLOAT64 if type(b) is _b.int else None))
    if not (y.is_floating_point() or y.is_complex()):
        y = y.to(_C.float64)
    x = x if x.is_floating_point() or x.is_complex() else x.to(_C.float64)
    x, y = _t.broadcast_tensors(x, y.to(x.device))
    tolerance = tensor_of(atol).to(x.device) + tensor_of(rtol).to(x.device) * y.abs()
    r = (((x - y).abs() <= tolerance) & _t.isfinite(y)) | (x == y)
    if equal_nan:
        r = r | (_t.isnan(x) & _t.isnan(y))
    return result(r)


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close."""
    return _b.bool(isclose(a, b, rtol, atol, equal_nan)._tensor.all())


def array_equal(a1, a2, equal_nan=False):
    """Whether shapes and all elements are equal."""
    try:
        a, b = tensor_of(a1), tensor_of(a2)
    except (TypeError, ValueError):
        return False
    if a.shape != b.shape:
        return False
    a, b = pair(result(a), result(b))
    same = a == b
    if equal_nan:
        same = same | (a.isnan() & b.isnan())
    return _b.bool(same.all())


def array_equiv(a1, a2):
    """Whether elements are equal after broadcasting."""
    a, b = pair(a1, a2)
    try:
        return _b.bool((a == b).all())
    except RuntimeError:
        return False


def _floating(t):
    return t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)


def i0(x):
    """The modified Bessel function of the first kind, of order 0."""
    t = tensor_of(x)
    if t.is_complex():
        raise TypeError("i0 not supported for complex values")
    return result(_t.i0(_floating(t)))


def sinc(x):
    """sin(pi x) / (pi x)."""
    return result(_t.sinc(_floating(tensor_of(x))))


def diff(a, n=1, axis=-1, prepend=None, append=None):
    """The differences of neighbours, n times."""
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    t = tensor_of(a)
    if not t.dim():
        raise ValueError("diff requires input that is at least one dimensional")
    axis = axis_of(axis, t.dim())
    parts = []
    for v in (prepend, a, append):
        if v is None:
            continue
        v = tensor_of(v)
        parts.append(result(v if v.dim() else v.expand([1 if i == axis else s for i, s in enumerate(t.shape)])))
    if len(parts) > 1:
        t = concatenate(parts, axis)._tensor
    for _ in range(n):
        m = t.shape[axis]
        if m < 1:
            return result(t)
        x, y = t.narrow(axis, 1, m - 1), t.narrow(axis, 0, m - 1)
        t = x != y if t.dtype is _C.bool else x - y
    return result(t)


def ediff1d(ary, to_end=None, to_begin=None):
    """The differences of neighbours in the flat array, with others at the ends."""
    t = tensor_of(ary).reshape(-1)
    parts = [t[1:] - t[:-1]]
    for v, front in ((to_begin, True), (to_end, False)):
        if v is not None:
            v = tensor_of(v)
            from ._types import castable

            if not castable(OF_TENSOR[v.dtype], OF_TENSOR[t.dtype], "same_kind"):
                raise TypeError(
                    f"dtype of `{'to_begin' if front else 'to_end'}` must be compatible with input `ary` under the `same_kind` rule."
                )
            parts = [cast(v, t.dtype).reshape(-1), *parts] if front else [*parts, cast(v, t.dtype).reshape(-1)]
    return result(_t.cat(parts))


def gradient(f, *varargs, axis=None, edge_order=1):
    """Slopes by central differences, for equal steps or coordinates; an array for each axis."""
    t = tensor_of(f)
    if t.dtype is _C.bool:
        raise TypeError("numpy boolean subtract, the `-` operator, is not supported, so bool has no gradient")
    t = _floating(t)
    axes = axes_of(axis, t.dim())
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    steps = list(varargs) or [1.0] * len(axes)
    if len(steps) == 1 and len(axes) > 1 and not tensor_of(steps[0]).dim():
        steps = steps * len(axes)
    if len(steps) != len(axes):
        raise TypeError("invalid number of arguments")
    r = []
    for x, step in zip(axes, steps):
        n = t.shape[x]
        if n < edge_order + 1:
            raise ValueError("Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required.")
        h = tensor_of(step).to(t.dtype if t.is_floating_point() else _C.float64)
        if h.dim() > 1:
            raise ValueError("distances must be either scalars or 1d")
        if h.dim() and h.shape[0] != n:
            raise ValueError("when 1d, distances must match the length of the corresponding dimension")
        v = t.movedim(x, -1)
        if not h.dim() and not h.is_complex():
            r.append(result(_even_gradient(v, h.item(), edge_order).movedim(-1, x)))
            continue
        h = h.expand(n - 1) if not h.dim() else h[1:] - h[:-1]
        h = h.to(t.device)
        d = v[..., 1:] - v[..., :-1]
        slope = d / h
        g = _t.empty_like(v)
        a, b = h[:-1], h[1:]
        if n > 2:
            g[..., 1:-1] = (b * slope[..., :-1] + a * slope[..., 1:]) / (a + b)
        if edge_order == 1:
            g[..., 0], g[..., -1] = slope[..., 0], slope[..., -1]
        else:
            g[..., 0] = slope[..., 0] + (slope[..., 0] - slope[..., 1]) * h[0] / (h[0] + h[1])
            g[..., -1] = slope[..., -1] + (slope[..., -1] - slope[..., -2]) * h[-1] / (h[-1] + h[-2])
        r.append(result(g.movedim(-1, x)))
    return r[0] if len(r) == 1 else tuple(r)


def _even_gradient(v, h, edge_order):
    """Along the last axis, for equal steps."""
    g = _t.empty_like(v)
    ahead, behind = v[..., 2:], v[..., :-2]
    if v.requires_grad:
        g[..., 1:-1] = (ahead - behind) / (2 * h)
    else:  # without memory beside the result
        _t.sub(ahead, behind, out=g[..., 1:-1]).div_(2 * h)
    if edge_order == 1:
        g[..., 0], g[..., -1] = (v[..., 1] - v[..., 0]) / h, (v[..., -1] - v[..., -2]) / h
    else:
        a, b, c = -1.5 / h, 2 / h, -0.5 / h
        g[..., 0] = a * v[..., 0] + b * v[..., 1] + c * v[..., 2]
        g[..., -1] = -c * v[..., -3] - b * v[..., -2] - a * v[..., -1]
    return g


def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral by the trapezoidal rule."""
    t = tensor_of(y)
    axis = axis_of(axis, t.dim())
    if x is None:
        d = dx
    else:
        p = tensor_of(x)
        d = p[1:] - p[:-1] if p.dim() == 1 else diff(result(p), axis=axis)._tensor
        d = d.reshape([-1 if i == axis else 1 for i in range(t.dim())]) if p.dim() == 1 else d
    n = t.shape[axis]
    r = _ALL["multiply"]._compute(d if x is None else result(d), result(t.narrow(axis, 1, n - 1) + t.narrow(axis, 0, n - 1)))
    r = r if r.is_floating_point() or r.is_complex() else r.to(_C.float64)
    return result((r / 2).sum(axis))


def interp(x, xp, fp, left=None, right=None, period=None):
    """The values at x of the line through the points (xp, fp)."""
    t, px, py = tensor_of(x).to(_C.float64), tensor_of(xp).to(_C.float64).reshape(-1), tensor_of(fp)
    py = py.to(_C.complex128 if py.is_complex() else _C.float64).reshape(-1)
    if not px.numel():
        raise ValueError("array of sample points is empty")
    if px.shape != py.shape:
        raise ValueError("fp and xp are not of the same length.")
    if period is not None:
        if period == 0:
            raise ValueError("period must be a non-zero value")
        period = _b.abs(period)
        t, px = t % period, px % period
        order = _t.argsort(px)
        px, py = px[order], py[order]
        px, py = _t.cat([px[-1:] - period, px, px[:1] + period]), _t.cat([py[-1:], py, py[:1]])
    n = px.shape[0]
    if n == 1:
        r = py[0].expand(t.shape).clone()
    else:
        at = (_t.searchsorted(px, t.contiguous(), right=True) - 1).clamp(0, n - 2)
        x0, y0 = px[at], py[at]
        slope = (py[at + 1] - y0) / (px[at + 1] - x0)
        r = slope * (t - x0) + y0
        back = slope * (t - px[at + 1]) + py[at + 1]
        r = _t.where(r.isnan(), back, r)
        r = _t.where(r.isnan() & (py[at + 1] == y0), y0, r)
        r = _t.where(t == x0, y0, r)
    r = _t.where(t < px[0], tensor_of(left).to(r.dtype) if left is not None else py[0], r)
    r = _t.where(t > px[-1], tensor_of(right).to(r.dtype) if right is not None else py[-1], r)
    return result(_t.where(t == px[-1], py[-1], _t.where(t.isnan(), t.to(r.dtype), r)))


def unwrap(p, discont=None, axis=-1, *, period=2 * _math.pi):
    """Angles without jumps by more than half a period."""
    t = tensor_of(p)
    whole = not t.is_floating_point() and isinstance(period, _b.int)
    t = t if whole else _floating(t)
    d = diff(result(t), axis=axis)._tensor
    discont = period / 2 if discont is None else discont
    if whole:
        high, rest = divmod(period, 2)
        ambiguous = rest == 0
    else:
        high, ambiguous = period / 2, True
    m = _t.remainder(d + high, period) - high
    if ambiguous:
        m = _t.where((m == -high) & (d > 0), high, m)
    correct = m - d
    correct = _t.where(d.abs() < discont, 0, correct).to(t.dtype)
    axis = axis_of(axis, t.dim())
    first = t.narrow(axis, 0, 1)
    return result(_t.cat([first, t.narrow(axis, 1, t.shape[axis] - 1) + _t.cumsum(correct, axis)], axis))


# --- functions of the user ------------------------------------------------------------------------------------------------------


def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    """What a function gives for each vector along an axis."""
    t = tensor_of(arr)
    axis = axis_of(axis, t.dim())
    rows = t.movedim(axis, -1)
    shape = tuple(rows.shape[:-1])
    if 0 in shape:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    r = [tensor_of(func1d(result(row), *args, **kwargs)) for row in rows.reshape(-1, rows.shape[-1]).unbind(0)]
    r = _t.stack(r).reshape(shape + tuple(r[0].shape))
    inner = r.dim() - len(shape)
    order = list(range(axis)) + list(range(len(shape), len(shape) + inner)) + list(range(axis, len(shape)))
    return result(r.permute(order))


def apply_over_axes(func, a, axes):
    """A function applied over one axis after another, which keep their places."""
    a = result(tensor_of(a))
    n = a.ndim
    for x in [axes] if isinstance(axes, _b.int) else axes:
        x = axis_of(x, n)
        r = func(a, x)
        if r.ndim != n:
            r = result(r._tensor.unsqueeze(x))
        if r.ndim != n:
            raise ValueError("function is not returning an array of the correct shape")
        a = r
    return a


class vectorize:
    """A function of numbers as one of arrays, called for each element; with a signature for each vector or matrix of it."""

    def __init__(self, pyfunc=None, otypes=None, doc=None, excluded=None, cache=False, signature=None):
        self.pyfunc, self.otypes, self.signature, self.excluded = pyfunc, otypes, signature, set(excluded or ())
        self.__doc__ = doc or getattr(pyfunc, "__doc__", None)
        self.__name__ = getattr(pyfunc, "__name__", "vectorize")
        self.cache = cache  # the function is called once for each element, and never once more for the dtype

    def __call__(self, *args, **kwargs):
        if self.pyfunc is None:
            return vectorize(args[0], self.otypes, None, self.excluded, self.cache, self.signature)
        if self.signature is not None:
            return self._with_signature(args, kwargs)
        # A text is one for all elements.
        names = [k for k in kwargs if k not in self.excluded and not isinstance(kwargs[k], (str, bytes))]
        places = [i for i in range(len(args)) if i not in self.excluded and not isinstance(args[i], (str, bytes))]
        ts = _t.broadcast_tensors(*[tensor_of(args[i]) for i in places], *[tensor_of(kwargs[k]) for k in names])
        shape = tuple(ts[0].shape) if ts else ()
        if not ts or not ts[0].numel():
            if self.otypes is None and ts:
                raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
        results = []
        for values in zip(*[t.reshape(-1).tolist() for t in ts]):
            a, k = list(args), dict(kwargs)
            for i, v in zip(places, values):
                a[i] = v
            k.update(zip(names, values[len(places):]))
            results.append(self.pyfunc(*a, **k))
        several = bool(results) and isinstance(results[0], tuple)
        columns = list(zip(*results)) if several else [results]
        types = [None] * len(columns) if self.otypes is None else list(self.otypes)
        r = tuple(
            result(tensor_of(list(c), d).reshape(shape) if c else _t.empty(shape, dtype=native(d or FLOAT64)))
            for c, d in zip(columns, types)
        )
        return r if several else r[0]

    def _with_signature(self, args, kwargs):
        import re

        try:
            left, right = self.signature.replace(" ", "").split("->")
        except ValueError:
            raise ValueError(f"not a valid gufunc signature: {self.signature!r}") from None
        cores = [len([n for n in g.split(",") if n]) for g in re.findall(r"\(([^)]*)\)", left)]
        if len(cores) != len(args):
            raise TypeError(f"wrong number of positional arguments: expected {len(cores)}, got {len(args)}")
        ts = [tensor_of(a) for a in args]
        from ._shapes import broadcast_shapes

        loop = broadcast_shapes(*[t.shape[: t.dim() - c] for t, c in zip(ts, cores)])
        ts = [t.expand(loop + tuple(t.shape[t.dim() - c:])) for t, c in zip(ts, cores)]
        results = [self.pyfunc(*[result(t[i]) for t in ts], **kwargs) for i in ndindex(*loop)]
        several = bool(results) and isinstance(results[0], tuple)
        columns = list(zip(*results)) if several else [results]
        types = [None] * len(columns) if self.otypes is None else list(self.otypes)
        r = tuple(result((s := _t.stack([tensor_of(v, d) for v in c])).reshape(loop + tuple(s.shape[1:]))) for c, d in zip(columns, types))
        return r if several else r[0]


def packbits(a, /, axis=None, bitorder="big"):
    """Eight elements as the bits of a byte."""
    t = tensor_of(a)
    if t.is_floating_point() or t.is_complex():
        raise TypeError("Expected an input array of integer or boolean data type")
    t, axis = (t.reshape(-1), 0) if axis is None else (t, axis_of(axis, t.dim()))
    rows = (t != 0).movedim(axis, -1).to(_C.int64)
    rows = _t.constant_pad_nd(rows, [0, -rows.shape[-1] % 8])
    bits = rows.reshape(tuple(rows.shape[:-1]) + (-1, 8))
    return result((bits * _weights(bitorder, t.device)).sum(-1).to(_C.uint8).movedim(-1, axis))


def unpackbits(a, /, axis=None, count=None, bitorder="big"):
    """The bits of bytes as elements."""
    t = tensor_of(a)
    if t.dtype is not _C.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    t, axis = (t.reshape(-1), 0) if axis is None else (t, axis_of(axis, t.dim()))
    rows = t.movedim(axis, -1).to(_C.int64)
    bits = ((rows.unsqueeze(-1) & _weights(bitorder, t.device)) != 0).reshape(tuple(rows.shape[:-1]) + (-1,)).to(_C.uint8)
    if count is not None:
        n = bits.shape[-1]
        bits = _t.constant_pad_nd(bits, [0, count - n]) if count > n else bits[..., : count if count >= 0 else n + count]
    return result(bits.movedim(-1, axis))


def _weights(bitorder, device):
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    places = _t.arange(8, device=device)
    return _t.bitwise_left_shift(_t.ones_like(places), 7 - places if bitorder == "big" else places)


def may_share_memory(a, b, /, max_work=None):
    """Whether the memory between the first and the last elements of both meets."""
    a, b = (_bounds(v) for v in (a, b))
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]


def _bounds(x):
    t = x._view if hasattr(x, "_view") else tensor_of(x)
    if not t.numel():
        return None
    start = t.data_ptr()
    return start, start + (_b.sum((s - 1) * k for s, k in zip(t.shape, t.stride())) + 1) * t.element_size()


def shares_memory(a, b, /, max_work=None):
    """Whether two arrays have an element in common."""
    if not may_share_memory(a, b):
        return False
    x, y = (v._view if hasattr(v, "_view") else tensor_of(v) for v in (a, b))
    start = _b.min(x.data_ptr(), y.data_ptr())

    def bytes_of(t):
        at = _t.full((1,), t.data_ptr() - start, dtype=_C.int64)
        for s, k in zip(t.shape, t.stride()):
            at = (at.unsqueeze(-1) + _t.arange(s) * k * t.element_size()).reshape(-1)
        return (at.unsqueeze(-1) + _t.arange(t.element_size())).reshape(-1)

    return _b.bool(_t.isin(bytes_of(x), bytes_of(y)).any())


def iterable(y):
    """Whether something can be iterated over."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


def isfortran(a):
    """Whether columns lie one after another in memory, and rows do not."""
    return a.flags.fnc
