"""The array with a mask over what is missing, its texts and what makes one. ma.py has its functions, _masks.py those of masks."""
from __future__ import annotations

import builtins as _b
import sys as _sys

from .. import _C, _operators as _t
from ._array import MaskedOperand, tensor_of, wrap
from ._printing import array2string as _array2string
from . import _reductions as _r
from ._types import BOOL, COMPLEX128, FLOAT64, INT64, as_dtype

nomask = wrap(_t.full((), False, dtype=_C.bool))
MaskType = BOOL.type
_MISSING = "--"


class MAError(Exception):
    """Mistakes about masked arrays."""


class MaskError(MAError):
    """A mask that does not fit, or a number of what is missing."""


def _own(name):
    return getattr(_sys.modules[__package__], name)


def _zeros(t):
    return _t.zeros(t.shape, dtype=_C.bool, device=t.device)


def _either(a, b):
    return b if a is None else a if b is None else a | b


def _mask_of(x):
    return x._mask if isinstance(x, MaskedArray) else None


def _listed(x):
    """Lists that hold masked arrays as lists of numbers, and of what is missing."""
    if isinstance(x, (list, tuple)):
        parts = [_listed(v) for v in x]
        return [d for d, _ in parts], [m for _, m in parts]
    return (x.data.tolist(), wrap(x._full).tolist()) if isinstance(x, MaskedArray) else (x, wrap(_zeros(tensor_of(x))).tolist())


def _holds_masked(x):
    return isinstance(x, MaskedArray) or isinstance(x, (list, tuple)) and _b.any(_holds_masked(v) for v in x)


class MaskedArray:
    """Data, and a mask that is True where they are missing; results of missing operands are missing."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None
    __array_priority__ = 200.0

    def __init__(self, data, mask=nomask, dtype=None, copy=False, fill_value=None, keep_mask=True, hard_mask=False, shrink=True, ndmin=0):
        if hard_mask:
            raise NotImplementedError("hard_mask: masks are soft")
        before = _mask_of(data)
        if isinstance(data, (list, tuple)) and _holds_masked(data):
            data, before = _listed(data)
            before = tensor_of(before)
        t = tensor_of(data.data if isinstance(data, MaskedArray) else data, dtype)
        t = t.clone() if copy else t
        m = None
        if mask is nomask and not (keep_mask or shrink):
            m = _zeros(t)
        elif mask is not nomask:
            m = tensor_of(mask.data if isinstance(mask, MaskedArray) else mask).to(device=t.device, dtype=_C.bool)
            if m.numel() not in (1, t.numel()):
                raise MaskError(f"Mask and data not compatible: data size is {t.numel()}, mask size is {m.numel()}.")
            m = (m.reshape(t.shape) if m.numel() == t.numel() else m.reshape(()).expand(t.shape)).clone()
        if before is not None and keep_mask:
            m = before.clone() if m is None and copy else _either(m, before)
        lead = (1,) * (ndmin - t.dim())
        self.data = wrap(t.reshape(lead + tuple(t.shape)) if lead else t)
        self._mask = m.reshape(self.data.shape) if m is not None and lead else m
        self._fill = data._fill if fill_value is None and isinstance(data, MaskedArray) else fill_value

    # --- what it is ---

    shape, ndim, size, dtype, nbytes, itemsize, device = (property(lambda self, n=n: getattr(self.data, n)) for n in (
        "shape", "ndim", "size", "dtype", "nbytes", "itemsize", "device"))
    _full = property(lambda self: _zeros(self.data._tensor) if self._mask is None else self._mask)

    @property
    def mask(self):
        """Where elements are missing; `nomask` where no mask was ever needed."""
        return nomask if self._mask is None else wrap(self._mask)

    @mask.setter
    def mask(self, value):
        self._mask = self._full
        wrap(self._mask)[...] = value

    @property
    def fill_value(self):
        """What `filled` puts where elements are missing."""
        return default_fill_value(self) if self._fill is None else self._fill

    @fill_value.setter
    def fill_value(self, value):
        self._fill = value

    T = property(lambda self: self.transpose())
    real = property(lambda self: _made(self.data.real, self._mask))
    imag = property(lambda self: _made(self.data.imag, self._mask))

    def filled(self, fill_value=None):
        """The data with a number where they are missing; the data themselves where nothing is."""
        if self._mask is None:
            return self.data
        r = self.data.copy()
        r[wrap(self._mask)] = self.fill_value if fill_value is None else fill_value
        return r

    def compressed(self):
        """What is not missing, flat."""
        t = self.data._tensor
        return wrap(t.reshape(-1) if self._mask is None else t[~self._mask])

    def count(self, axis=None, keepdims=False):
        """How many elements are not missing."""
        return _r.sum(wrap(~self._full), axis, keepdims=keepdims)

    def soften_mask(self):
        """Nothing: masks are soft."""
        return self

    def harden_mask(self):
        """Refused."""
        raise NotImplementedError("harden_mask(): masks are soft")

    # --- elements ---

    def __len__(self):
        return len(self.data)

    def __getitem__(self, key):
        key = _key(key)
        return _result(self.data[key], None if self._mask is None else wrap(self._mask)[key]._tensor, self._fill)

    def __setitem__(self, key, value):
        missing, chosen = _mask_of(value), isinstance(key, MaskedArray)
        key = _key(key)
        if value is not masked:
            self.data[key] = value.data if isinstance(value, MaskedArray) else value
        if chosen and not isinstance(value, MaskedArray):
            return  # NumPy leaves the mask alone where a masked array chooses
        if missing is not None or self._mask is not None:
            self._mask = self._full
            wrap(self._mask)[key] = False if missing is None else wrap(missing)

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __contains__(self, value):
        return _b.bool(_r.any((self == value).filled(False)))

    def item(self, *at):
        """One element as Python's number; None where it is missing."""
        return None if wrap(self._full).item(*at) else self.data.item(*at)

    def __bool__(self):
        return _b.bool(self.data) and not (self.size == 1 and _b.bool(self._full))

    def __float__(self):
        return float("nan") if self.size == 1 and _b.bool(self._full) else float(self.data)

    def __int__(self):
        if self.size == 1 and _b.bool(self._full):
            raise MaskError("Cannot convert masked element to a Python int.")
        return int(self.data)

    def __array__(self, dtype=None, copy=None):
        raise MaskedOperand("an array with a mask becomes one without by filled(), compressed() or .data; numpy.ma has functions of it")

    def put(self, indices, values):
        """Sets elements by their indices in C order."""
        self.data.put(indices, getdata(values))
        if self._mask is not None or _mask_of(values) is not None:
            self._mask = self._full
            wrap(self._mask).put(indices, getmaskarray(values))

    def copy(self):
        """A copy of data and mask."""
        return MaskedArray(self, copy=True)

    def astype(self, dtype):
        """The data in another dtype."""
        return _made(self.data.astype(dtype), self._mask, self._fill if as_dtype(dtype) == self.dtype else None)

    def tolist(self):
        """Lists with None for what is missing."""
        def walk(d, m):
            return [walk(a, b) for a, b in zip(d, m)] if isinstance(d, list) else None if m else d

        return walk(self.data.tolist(), self._full.tolist())

    # --- text ---

    def _text(self, separator, prefix, suffix=""):
        if self._mask is None or not self.size:
            return _array2string(self.data, separator=separator, prefix=prefix, suffix=suffix)
        data, missing = self.data._tensor.detach().reshape(-1), self._mask.reshape(-1)
        if not self.ndim:
            return _MISSING if _b.bool(missing) else str(data.item())
        places = wrap(_t.arange(data.numel()).reshape(self.shape))
        return _array2string(places, separator=separator, prefix=prefix, suffix=suffix, formatter={
            "all": lambda i: _MISSING if _b.bool(missing[i]) else repr(data[i].item())})

    def __str__(self):
        return self._text(" ", "")

    def __repr__(self):
        flat = _b.all(s == 1 for s in self.shape[:-1])
        heads = {k: (f"{k:>17}" if flat else f"  {k}") + "=" for k in ("data", "mask", "fill_value", "dtype")}
        if flat:
            heads["data"] = "masked_array(data="
        mask = "False" if self._mask is None else _array2string(self.mask, separator=", ", prefix=heads["mask"], suffix=",")
        lines = [heads["data"] + self._text(", ", heads["data"], ","), heads["mask"] + mask, f"{heads['fill_value']}{self.fill_value}"]
        if not self.size or self.dtype not in (BOOL, INT64, FLOAT64, COMPLEX128) or self._mask is not None and _b.bool(self._mask.all()):
            lines.append(f"{heads['dtype']}{self.dtype}")
        return ("" if flat else "masked_array(\n") + ",\n".join(lines) + ")"


class _Masked(MaskedArray):
    """The one element that is missing."""

    def __init__(self):
        super().__init__(0.0, True)

    def __repr__(self):
        return "masked"

    def __setitem__(self, key, value):
        raise AttributeError("masked is read-only")

    def __reduce__(self):
        return "masked"

    def copy(self):
        """Itself: there is one."""
        return self


def _made(array, mask, fill=None):
    """A masked array of an array and of a mask that is its own; None: nothing is missing."""
    r = MaskedArray(array)
    r._mask, r._fill = mask, fill
    return r


def _result(array, mask, fill=None):
    """Of results without dimensions, the number or `masked`."""
    if array.ndim:
        return _made(array, mask, fill)
    return masked if mask is not None and _b.bool(mask) else array


masked = masked_singleton = _Masked()
masked_array = MaskedArray


def _of(x):
    return x if isinstance(x, MaskedArray) else MaskedArray(x)


def _key(key):
    """Masked arrays as indices are their data."""
    if isinstance(key, tuple):
        return tuple(_key(k) for k in key)
    return key.data if isinstance(key, MaskedArray) else key


def _check_order(order):
    if order not in (None, "K", "A", "C"):
        raise NotImplementedError(f"ma: arrays are in C order, not {order!r}")


def array(data, dtype=None, copy=False, order=None, mask=nomask, fill_value=None, keep_mask=True, hard_mask=False, shrink=True, subok=True,
          ndmin=0):
    """An array with a mask, in C order; there are no subclasses that `subok` could keep."""
    _check_order(order)
    return MaskedArray(data, mask, dtype, copy, fill_value, keep_mask, hard_mask, shrink, ndmin)


def asarray(a, dtype=None, order=None):
    """A masked array of anything, itself where it is one."""
    _check_order(order)
    return a if isinstance(a, MaskedArray) and dtype is None else MaskedArray(a, dtype=dtype)


asanyarray = asarray


def _plain(x):
    return x.data if isinstance(x, MaskedArray) else x


def default_fill_value(obj):
    """What stands where elements of a dtype are missing."""
    kind = (obj.dtype if hasattr(obj, "dtype") else as_dtype(obj) if isinstance(obj, (type, str)) else wrap(tensor_of(obj)).dtype).kind
    return {"b": True, "i": 999999, "u": 63, "f": 1e20, "c": 1e20 + 0j}[kind]


def _dtype_of(x):
    return (x.dtype if hasattr(x, "dtype") else wrap(tensor_of(x)).dtype)._tensor_dtype


def getdata(a, subok=True):
    """The data."""
    return a.data if isinstance(a, MaskedArray) else wrap(tensor_of(a))


def getmask(a):
    """The mask, or `nomask` of other arrays."""
    return a.mask if isinstance(a, MaskedArray) else nomask


def getmaskarray(a):
    """The mask, all False where there is none."""
    return wrap(a._full if isinstance(a, MaskedArray) else _zeros(tensor_of(a)))
