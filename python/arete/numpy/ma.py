"""numpy.ma: arrays with a mask over what is missing. What arithmetic, sums and comparisons need is there; the rest of numpy.ma is not."""
from __future__ import annotations

import builtins as _b

from .. import _C, _operators as _t
from ._array import tensor_of, wrap
from ._mathematics import isclose as _isclose
from ._printing import array2string as _array2string
from . import _reductions as _r
from ._types import OF_TENSOR
from ._ufuncs import _ALL

__all__ = [
    "MaskedArray", "masked_array", "array", "masked", "nomask", "masked_where", "masked_invalid", "masked_equal", "masked_not_equal",
    "masked_greater", "masked_greater_equal", "masked_less", "masked_less_equal", "masked_inside", "masked_outside", "masked_values",
    "getmask", "getmaskarray", "getdata", "is_masked", "isMaskedArray", "isMA", "filled", "compressed", "count", "sum", "prod", "mean",
    "var", "std", "max", "min", "median",
]
nomask = False


class _Masked:
    """The one element that is missing."""

    def __repr__(self):
        return "masked"

    def __str__(self):
        return "--"

    def __bool__(self):
        return False


masked = _Masked()


def _default_fill(dtype):
    return {"b": True, "i": 999999, "u": 63, "f": 1e20, "c": 1e20 + 0j}[dtype.kind]


class MaskedArray:
    """Data, and a mask that is True where they are missing; results of missing operands are missing."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None

    def __init__(self, data, mask=nomask, dtype=None, copy=False, fill_value=None, keep_mask=True, hard_mask=False):
        if hard_mask:
            raise NotImplementedError("hard_mask: masks are soft")
        before = data._mask if isinstance(data, MaskedArray) else None
        t = tensor_of(data.data if isinstance(data, MaskedArray) else data, dtype)
        self.data = wrap(t.clone() if copy else t)
        m = tensor_of(mask).to(_C.bool).to(t.device)
        m = m.reshape(t.shape) if m.numel() == t.numel() else m.expand(t.shape)
        self._mask = (m | before) if before is not None and keep_mask else m.clone()
        self._fill = fill_value

    mask = property(lambda self: wrap(self._mask))
    shape, ndim, size, dtype = (property(lambda self, n=n: getattr(self.data, n)) for n in ("shape", "ndim", "size", "dtype"))

    @mask.setter
    def mask(self, value):
        self._mask = tensor_of(value).to(_C.bool).expand(self.data._tensor.shape).clone()

    @property
    def fill_value(self):
        return _default_fill(self.dtype) if self._fill is None else self._fill

    @fill_value.setter
    def fill_value(self, value):
        self._fill = value

    T = property(lambda self: MaskedArray(self.data.T, wrap(self._mask).T, fill_value=self._fill))

    def filled(self, fill_value=None):
        """The data with a number where they are missing."""
        r = self.data.copy()
        r[wrap(self._mask)] = self.fill_value if fill_value is None else fill_value
        return r

    def compressed(self):
        """What is not missing, flat."""
        return wrap(self.data._tensor[~self._mask])

    def count(self, axis=None, keepdims=False):
        """How many elements are not missing."""
        return _r.sum(wrap(~self._mask), axis, keepdims=keepdims)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, key):
        d, m = self.data[key], wrap(self._mask)[key]
        if not d.ndim:
            return masked if _b.bool(m) else d
        r = MaskedArray(d, fill_value=self._fill)
        r._mask = m._tensor
        return r

    def __setitem__(self, key, value):
        m = wrap(self._mask)
        if value is masked:
            m[key] = True
            return
        self.data[key] = value.data if isinstance(value, MaskedArray) else value
        m[key] = wrap(value._mask) if isinstance(value, MaskedArray) else False

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def copy(self):
        """A copy of data and mask."""
        return MaskedArray(self.data, wrap(self._mask), copy=True, fill_value=self._fill)

    def astype(self, dtype):
        """The data in another dtype."""
        return MaskedArray(self.data.astype(dtype), wrap(self._mask), fill_value=self._fill)

    def reshape(self, *shape):
        """Another shape of the same elements."""
        return MaskedArray(self.data.reshape(*shape), wrap(self._mask).reshape(*shape), fill_value=self._fill)

    def ravel(self):
        """All elements in one axis."""
        return self.reshape(-1)

    def tolist(self):
        """Lists with None for what is missing."""
        def walk(d, m):
            return [walk(a, b) for a, b in zip(d, m)] if isinstance(d, list) else None if m else d

        return walk(self.data.tolist(), self._mask.tolist())

    def _text(self, separator, prefix):
        flat = self.data._tensor.clone()
        kept = flat[~self._mask]
        if not kept.numel():
            text = _array2string(wrap(_t.zeros(flat.shape, dtype=_C.bool)), separator=separator, prefix=prefix)
            return text.replace("False", "--") if self.ndim else "--"
        from ._printing import _formatter, _options

        numbers = _formatter(kept.tolist(), OF_TENSOR[flat.dtype], _options)
        width = len(numbers(kept[0].item()))
        marks = iter(self._mask.reshape(-1).tolist())
        return _array2string(self.data, separator=separator, prefix=prefix, threshold=float("inf"), formatter={
            "all": lambda v: "--".rjust(width) if next(marks) else numbers(v)})

    def __str__(self):
        return self._text(" ", "")

    def __repr__(self):
        return (
            f"masked_array(\n  data={self._text(', ', '  data=')},\n  mask={_array2string(self.mask, separator=', ', prefix='  mask=')},\n"
            f"  fill_value={self.fill_value})"
        )


def _masked_data(x):
    return (x.data, x._mask) if isinstance(x, MaskedArray) else (x, None)


def _apply(own, *args):
    data, masks = zip(*[_masked_data(a) for a in args])
    r = own(*data)
    m = None
    for mask in masks:
        m = mask if m is None else m if mask is None else m | mask
    t = r._tensor
    m = _t.zeros(t.shape, dtype=_C.bool, device=t.device) if m is None else m.expand(t.shape)
    if own.__name__ in ("divide", "floor_divide", "remainder", "log", "sqrt") and (t.is_floating_point() or t.is_complex()):
        m = m | ~_t.isfinite(t)
    out = MaskedArray(wrap(t))
    out._mask = m
    return out


for _method, _name in [("add", "add"), ("sub", "subtract"), ("mul", "multiply"), ("truediv", "divide"), ("floordiv", "floor_divide"),
                       ("mod", "remainder"), ("pow", "power"), ("and", "bitwise_and"), ("or", "bitwise_or")]:
    setattr(MaskedArray, f"__{_method}__", lambda self, other, own=_ALL[_name]: _apply(own, self, other))
    setattr(MaskedArray, f"__r{_method}__", lambda self, other, own=_ALL[_name]: _apply(own, other, self))
for _method, _name in [
    ("lt", "less"),
    ("le", "less_equal"),
    ("gt", "greater"),
    ("ge", "greater_equal"),
    ("eq", "equal"),
    ("ne", "not_equal"),
]:
    setattr(MaskedArray, f"__{_method}__", lambda self, other, own=_ALL[_name]: _apply(own, self, other))
for _method, _name in [("neg", "negative"), ("abs", "absolute"), ("invert", "invert")]:
    setattr(MaskedArray, f"__{_method}__", lambda self, own=_ALL[_name]: _apply(own, self))
for _name in _ALL:
    globals()[_name] = lambda *args, own=_ALL[_name]: _apply(own, *args)
    __all__ += [_name]


def _reduced(name, text, start):
    whole = getattr(_r, name)

    def function(a, axis=None, dtype=None, out=None, keepdims=False, **options):
        if out is not None:
            raise NotImplementedError(f"ma.{name}(): out")
        a = a if isinstance(a, MaskedArray) else MaskedArray(a)
        if start is not None:
            options["initial"] = start(a.dtype)
        if dtype is not None:
            options["dtype"] = dtype
        r = whole(a.data, axis, keepdims=keepdims, where=wrap(~a._mask), **options)
        empty = _r.all(wrap(a._mask), axis, keepdims=keepdims)
        if not r.ndim:
            return masked if _b.bool(empty) else r
        out = MaskedArray(r)
        out._mask = empty._tensor
        return out

    function.__name__, function.__doc__ = name, text
    return function


sum = _reduced("sum", "The sum of what is not missing.", None)  # noqa: A001
prod = _reduced("prod", "The product of what is not missing.", None)
mean = _reduced("mean", "The mean of what is not missing.", None)
var = _reduced("var", "The variance of what is not missing.", None)
std = _reduced("std", "The standard deviation of what is not missing.", None)
max = _reduced("max", "The greatest element that is not missing.", lambda d: _r._lowest(d._tensor_dtype, True))  # noqa: A001
min = _reduced("min", "The least element that is not missing.", lambda d: _r._lowest(d._tensor_dtype, False))  # noqa: A001
for _name in ("sum", "prod", "mean", "var", "std", "max", "min"):
    setattr(MaskedArray, _name, globals()[_name])


def median(a, axis=None, keepdims=False):
    """The median of what is not missing."""
    a = a if isinstance(a, MaskedArray) else MaskedArray(a)
    t = a.data._tensor
    t = t if t.is_floating_point() else t.to(_C.float64)
    r = _r.nanmedian(wrap(_t.where(a._mask, float("nan"), t)), axis, keepdims=keepdims)
    return masked_invalid(r) if r.ndim else masked if _b.bool(a._mask.all()) else r


masked_array = MaskedArray


def array(data, dtype=None, copy=False, mask=nomask, fill_value=None):
    """A masked array."""
    return MaskedArray(data, mask, dtype, copy, fill_value)


def masked_where(condition, a, copy=True):
    """Missing where a condition holds."""
    return MaskedArray(a, condition, copy=copy)


def masked_invalid(a, copy=True):
    """Missing where NaN or infinite."""
    return MaskedArray(a, wrap(~_t.isfinite(tensor_of(a))), copy=copy)


def _by(name, own):
    def function(x, value, copy=True):
        return MaskedArray(x, _ALL[own](x.data if isinstance(x, MaskedArray) else x, value), copy=copy)

    function.__name__, function.__doc__ = name, f"Missing where `{own}` holds of the elements and a value."
    return function


masked_equal, masked_not_equal = _by("masked_equal", "equal"), _by("masked_not_equal", "not_equal")
masked_greater, masked_greater_equal = _by("masked_greater", "greater"), _by("masked_greater_equal", "greater_equal")
masked_less, masked_less_equal = _by("masked_less", "less"), _by("masked_less_equal", "less_equal")


def masked_inside(x, v1, v2, copy=True):
    """Missing between two values."""
    t, (low, high) = tensor_of(x), sorted((v1, v2))
    return MaskedArray(x, wrap((t >= low) & (t <= high)), copy=copy)


def masked_outside(x, v1, v2, copy=True):
    """Missing below and above two values."""
    t, (low, high) = tensor_of(x), sorted((v1, v2))
    return MaskedArray(x, wrap((t < low) | (t > high)), copy=copy)


def masked_values(x, value, rtol=1e-5, atol=1e-8, copy=True, shrink=True):
    """Missing where close to a value."""
    return MaskedArray(x, _isclose(x, value, rtol, atol), copy=copy, fill_value=value)


def getdata(a):
    """The data."""
    return a.data if isinstance(a, MaskedArray) else wrap(tensor_of(a))


def getmask(a):
    """The mask, or `nomask` of other arrays."""
    return a.mask if isinstance(a, MaskedArray) else nomask


def getmaskarray(a):
    """The mask, all False for other arrays."""
    return a.mask if isinstance(a, MaskedArray) else wrap(_t.zeros(tensor_of(a).shape, dtype=_C.bool))


def is_masked(x):
    """Whether any element is missing."""
    return isinstance(x, MaskedArray) and _b.bool(x._mask.any())


def isMaskedArray(x):
    """Whether a masked array."""
    return isinstance(x, MaskedArray)


isMA = isMaskedArray


def filled(a, fill_value=None):
    """The data with a number where they are missing."""
    return a.filled(fill_value) if isinstance(a, MaskedArray) else wrap(tensor_of(a))


def compressed(x):
    """What is not missing, flat."""
    return x.compressed() if isinstance(x, MaskedArray) else wrap(tensor_of(x).reshape(-1))


def count(obj, axis=None, keepdims=False):
    """How many elements are not missing."""
    return (obj if isinstance(obj, MaskedArray) else MaskedArray(obj)).count(axis, keepdims)


