"""The array: NumPy's ndarray over the storage of a tensor, and how anything becomes one."""
from __future__ import annotations

import builtins as _b
import operator as _operator
import os as _os
import struct as _struct
import sys as _sys

from .. import _C, _operators as _t
from .._C import Tensor
from .._kernels._raw import MemoryPointer
from ._types import _KNOWN, COMPLEX128, FLOAT64, OF_TENSOR, PROMOTED_NATIVE, as_dtype, castable, generic, native

__all__ = ["ndarray", "set_device", "get_device", "newaxis"]

newaxis = None
_new = _C._ArrayBase.__new__
_FLOAT16, _FLOAT64, _INT64, _BOOL = _C.float16, _C.float64, _C.int64, _C.bool
_device = _C.device("cpu")
_C._set_array_dtypes(OF_TENSOR, PROMOTED_NATIVE, _KNOWN)


class AxisError(ValueError, IndexError):
    """An axis that the array does not have."""

    def __init__(self, axis, ndim=None, msg_prefix=None):
        prefix = "" if msg_prefix is None else f"{msg_prefix}: "
        super().__init__(axis if ndim is None else f"{prefix}axis {axis} is out of bounds for array of dimension {ndim}")
        self.axis, self.ndim = (axis, ndim) if ndim is not None else (None, None)


class MaskedOperand(TypeError):
    """A masked array where an array is wanted, which would lose its mask silently."""


def for_masked(name):
    """numpy.ma's function of a name, for functions that were given a masked array."""
    return getattr(_sys.modules[__package__].ma, name)


def set_device(device) -> None:
    """Where arrays are made from now on."""
    global _device
    _device = _C.device(device)
    _C._set_array_device(_device)


def get_device():
    """Where arrays are made."""
    return _device


class Flags:
    """How an array lies in memory: `a.flags.c_contiguous`, `a.flags["F_CONTIGUOUS"]`."""

    __slots__ = ("_array",)

    def __init__(self, array):
        self._array = array

    c_contiguous = contiguous = property(lambda self: self._array._tensor.is_contiguous() and type(self._array) is not Reversed)
    f_contiguous = property(lambda self: self._array._tensor.permute(_backwards(self._array._tensor)).is_contiguous())
    fnc = property(lambda self: self.f_contiguous and not self.c_contiguous)
    forc = property(lambda self: self.f_contiguous or self.c_contiguous)
    owndata = property(lambda self: self._array.base is None)
    aligned = property(lambda self: True)
    writebackifcopy = property(lambda self: False)

    @property
    def writeable(self):
        return type(self._array) is not ReadOnly

    @writeable.setter
    def writeable(self, value):
        self._array.setflags(write=value)

    def __getitem__(self, name):
        short = {"C": "c_contiguous", "F": "f_contiguous", "O": "owndata", "W": "writeable", "A": "aligned", "X": "writebackifcopy"}
        try:
            return getattr(self, short.get(name, name.lower()))
        except AttributeError:
            raise KeyError("Unknown flag") from None

    def __setitem__(self, name, value):
        if name not in ("W", "WRITEABLE"):
            raise KeyError(f"{name}: only WRITEABLE can be set")
        self.writeable = value

    def __repr__(self):
        return "\n".join(f"  {n.upper()} : {getattr(self, n)}" for n in (
            "c_contiguous", "f_contiguous", "owndata", "writeable", "aligned", "writebackifcopy"))


# What numbers have besides, by the types of Python's numbers.
_OF_NUMBERS = {"is_integer": (int, float), "as_integer_ratio": (int, float), "hex": (float,), "bit_count": (int,), "numerator": (int,),
               "denominator": (int,)}


def _backwards(t):
    return tuple(range(t.dim() - 1, -1, -1))


def short_way(function):
    """The function with its short way in C++ (Note [Arrays and their short ways] in python/src/array_object.cpp)."""
    return _C._ShortFunction(function, function.__name__)


class ndarray(_C._ArrayBase):
    """An array of NumPy's kind over the storage of a tensor.

    `ndarray(tensor)` is the array of a tensor, with no copy; `ndarray(shape, dtype)` one whose elements are not set, and
    `a._tensor` the tensor of an array. Functions that NumPy has scalars for give arrays without dimensions, as CuPy's do:
    they are numbers to Python (`float(a)`, `range(a)`, `f"{a:.2f}"`), and in host memory values that nothing changes."""

    __slots__ = ()
    __array_priority__ = 100.0

    def __new__(cls, shape, dtype=float, buffer=None, offset=0, strides=None, order=None, *, memptr=None):
        if isinstance(shape, Tensor):
            return wrap(shape)
        buffer = buffer if memptr is None else memptr
        if isinstance(buffer, MemoryPointer) and strides is None and not offset:
            return wrap(ordered(buffer.tensor(new_sizes(shape), native(dtype)), order))
        if buffer is not None or strides is not None or offset:
            raise NotImplementedError("ndarray(): memory of others is for frombuffer() and asarray()")
        return wrap(ordered(_t.empty(new_sizes(shape), dtype=native(dtype), device=_device), order))

    # --- what it is ---

    @property
    def strides(self):
        n = self._tensor.element_size()
        return tuple(s * n for s in self._tensor.stride())

    @property
    def flags(self):
        return Flags(self)

    @property
    def device(self):
        return self._tensor.device

    @property
    def data(self):
        """The memory: a buffer on the CPU, CuPy's MemoryPointer (whose `ptr` is the address) on a GPU."""
        t = self._tensor
        if t.device.type == "cpu":
            return memoryview(self._host())
        memory = _t.empty(0, dtype=_C.uint8, device=t.device).set_(t.untyped_storage())
        return MemoryPointer(memory, t.storage_offset() * t.element_size())

    @property
    def mT(self):
        if self._tensor.dim() < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return moved(self, lambda t: t.transpose(-1, -2))

    @property
    def real(self):
        return moved(self, lambda t: _t.view_as_real(t).select(-1, 0)) if self._tensor.is_complex() else self

    @real.setter
    def real(self, value):
        self.real[...] = value

    @property
    def imag(self):
        t = self._tensor
        return moved(self, lambda t: _t.view_as_real(t).select(-1, 1)) if t.is_complex() else wrap(_t.zeros_like(t))

    @imag.setter
    def imag(self, value):
        if not self._tensor.is_complex():
            raise TypeError("array does not have imaginary part to set")
        self.imag[...] = value

    @property
    def flat(self):
        return flatiter(self)

    @flat.setter
    def flat(self, value):
        self.flat[:] = value

    # --- elements ---

    def __contains__(self, value):
        return _b.bool((self == value)._tensor.any())

    @short_way
    def item(self, *args):
        """The element as one of Python's numbers; of several the one at an index."""
        if not args:
            if self._tensor.numel() != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            return self._tensor.item()
        key = args[0] if len(args) == 1 else args
        if isinstance(key, int):
            return self._tensor.reshape(-1)[key].item()
        if len(key) != self.ndim:
            raise ValueError("incorrect number of indices for array")
        return self._tensor[tuple(key)].item()

    def tolist(self):
        return self._tensor.tolist()

    def tobytes(self, order="C"):
        return self._host().tobytes(order)

    def tofile(self, fid, sep="", format="%s"):
        self._host().tofile(fid, sep, format)

    def dump(self, file):
        import pickle

        with (open(_os.fspath(file), "wb") if not hasattr(file, "write") else _Open(file)) as f:
            pickle.dump(self, f)

    def dumps(self):
        import pickle

        return pickle.dumps(self)

    def get(self, stream=None, order="C", out=None, blocking=True):
        """A NumPy array, a copy; `numpy.asarray` gives one over the same memory where the array is on the CPU."""
        import numpy

        a = self._host()
        if out is not None:
            out[...] = a
            return out
        return numpy.array(a, order=order, copy=True if self._tensor.device.type == "cpu" else None)

    def copy_to_host(self, ary=None, stream=None):
        """Numba's name of `get`."""
        return self.get(stream, out=ary)

    def copy_to_device(self, ary, stream=None):
        """Numba's name of `set`."""
        self.set(ary, stream)

    def _host(self):
        """A NumPy array: over the same memory where the array is on the CPU, else a copy."""
        if type(self) is not Reversed:
            a = self._tensor.detach().cpu().numpy()
            if type(self) is ReadOnly:
                a.flags.writeable = False
            return a
        a = self._view.detach().cpu().numpy()
        return a[tuple(slice(None, None, -1) if d in self._axes else slice(None) for d in range(a.ndim))]

    def set(self, arr, stream=None):
        """Takes the values of a NumPy array."""
        self[...] = arr

    def view(self, dtype=None, type=None):
        """The same memory, of another dtype."""
        type, dtype = (dtype, None) if isinstance(dtype, _b.type) and issubclass(dtype, ndarray) else (type, dtype)
        if type not in (None, ndarray):
            raise NotImplementedError(f"view({type.__name__}): results keep no subclasses of ndarray")
        d, backwards = native(dtype), isinstance(self, Reversed)
        t = self._view if backwards else self._tensor
        if d is None:
            return Reversed(t, self._axes) if backwards else moved(self, lambda t: t.view(t.shape))
        last = t.stride(-1) != 1 or (backwards and t.dim() - 1 in self._axes) if t.dim() else False
        if last and t.element_size() != as_dtype(dtype).itemsize:
            raise ValueError("To change to a dtype of a different size, the last axis must be contiguous")
        return Reversed(t.view(d), self._axes) if backwards else moved(self, lambda t: t.view(d))

    @short_way
    def astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True, device=None):
        """The array in another dtype; the array itself where that changes nothing and `copy` is False."""
        d = as_dtype(FLOAT64 if dtype is None else dtype)
        check_cast(self.dtype, d, casting)
        there = self._tensor.device if device is None else _C.device(device)
        if not copy and d is self.dtype and order in ("K", "A") and there == self._tensor.device:
            return self
        return wrap(ordered(_cast(self._tensor.to(there), d._tensor_dtype, copy=True), order))

    @short_way
    def copy(self, order="C"):
        return wrap(ordered(self._tensor.clone() if order in ("K", "A") else self._tensor.clone().contiguous(), order))

    __copy__ = copy

    def __deepcopy__(self, memo):
        return self.copy("K")

    def fill(self, value):
        self[...] = value

    def setflags(self, write=None, align=None, uic=None):
        """`write=False` makes an array read-only."""
        if uic:
            raise ValueError("cannot set WRITEBACKIFCOPY flag to True")
        if write is not None:
            if type(self) not in (ndarray, ReadOnly):
                raise ValueError("a reversed view cannot be made read-only")
            self.__class__ = ndarray if write else ReadOnly

    def byteswap(self, inplace=False):
        n = self._tensor.element_size()
        words = self._tensor.contiguous().view(_C.uint8).reshape(-1, n // (2 if self._tensor.is_complex() else 1)).flip(-1)
        r = words.reshape(-1).view(self._tensor.dtype).reshape(self._tensor.shape)
        if not inplace:
            return wrap(r)
        self._write(r)
        return self

    def resize(self, *new_shape, refcheck=True):
        """Another size in place: elements go, or zeros come. A number stays what it is, as NumPy's do."""
        if self._is_number:
            return
        shape = sizes_of(new_shape[0] if len(new_shape) == 1 else new_shape)
        flat, n = self._tensor.reshape(-1), 1
        for s in shape:
            n *= s
        r = _t.zeros(n, dtype=flat.dtype, device=flat.device)
        r[: flat.numel()] = flat[:n]
        self._tensor = r.reshape(shape)

    def to_device(self, device, /, *, stream=None):
        """The array on another device."""
        t = self._tensor.to(_C.device(device) if isinstance(device, str) else device)
        return self if t is self._tensor else wrap(t)

    def _write(self, value):
        """Takes the values of a tensor: all writes that are no plain assignment to an index come here."""
        if self._is_number:
            raise TypeError(f"a number of {self.dtype} does not support assignment")
        self._tensor.copy_(value)

    # --- a number, to Python ---

    def _number(self):
        if self._tensor.dim():
            raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
        return self._tensor.item()

    def __complex__(self):
        return complex(self._number())

    def __round__(self, ndigits=None):
        return round(self._number(), ndigits) if not self.ndim else self.round(ndigits or 0)

    def __trunc__(self):
        return int(self._number())

    def __format__(self, spec):
        if not self._tensor.dim():
            return format(self._tensor.item(), spec)  # that of Python's number: float32 has the digits of float64
        if spec:
            raise TypeError("unsupported format string passed to numpy.ndarray.__format__")
        return str(self)

    # --- others ---

    @property
    def ctypes(self):
        """NumPy's ctypes of an array of the CPU: `data`, `shape`, `strides`, `data_as(type)`. Needs NumPy."""
        if self._tensor.device.type != "cpu":
            raise TypeError("an array of a GPU has no ctypes: its address is x.data.ptr")
        return self._host().ctypes

    def __array__(self, dtype=None, copy=None):
        import numpy

        a = self._host()
        if copy is False and self._tensor.device.type != "cpu":
            raise ValueError("an array of a GPU becomes one of NumPy's by a copy only")
        return numpy.array(a, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        own = getattr(_sys.modules[__package__], ufunc.__name__, None)
        if own is None or not hasattr(own, "nin"):
            return NotImplemented
        if "out" in options:
            options["out"] = options["out"][0] if len(options["out"]) == 1 else options["out"]
            if not isinstance(options["out"], (ndarray, tuple)):  # an array of NumPy's, which is written as `x += a` wants it
                out = options.pop("out")
                import numpy

                numpy.copyto(out, (own if method == "__call__" else getattr(own, method))(*inputs, **options).get(), casting="same_kind")
                return out
        return (own if method == "__call__" else getattr(own, method))(*inputs, **options)

    def __array_function__(self, function, types, args, options):
        at = _sys.modules[__package__]
        for part in function.__module__.split(".")[1:]:
            at = getattr(at, part, None)
        own = getattr(at, function.__name__, None)
        return NotImplemented if own is None or getattr(own, "__module__", "").startswith("numpy") else own(*args, **options)

    def __array_namespace__(self, /, *, api_version=None):
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"the array API's version {api_version!r} is not there; 2024.12 is")
        return _sys.modules[__package__]

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return self._tensor.detach().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()

    @property
    def __cuda_array_interface__(self):
        return self._tensor.__cuda_array_interface__

    def __reduce__(self):
        return _load, (self._tensor.detach(),)


def _load(tensor):
    return wrap(tensor)


class _Open:
    """A file that others opened and close."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self.file

    def __exit__(self, *error):
        pass


class ReadOnly(ndarray):
    """An array that refuses to be written (`a.flags.writeable = False`)."""

    __slots__ = ()
    _plain = ndarray  # the type of what kernels make of it

    def _write(self, value):
        raise ValueError("assignment destination is read-only")

    def __setitem__(self, key, value):
        self._write(value)


def _of_numbers(name, kinds):
    """An attribute that only numbers have. (A `__getattr__` would make all attributes of arrays slow.)"""

    def get(self):
        number = self.item() if self._is_number else None
        if type(number) not in kinds:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")
        return (lambda: True) if name == "is_integer" and type(number) is int else getattr(number, name)

    return property(get)


for _name, _kinds in _OF_NUMBERS.items():
    setattr(ndarray, _name, _of_numbers(_name, _kinds))


class Reversed(ndarray):
    """What a slice with a negative step gives: tensors have no negative strides, so it is read by copies, and written through."""

    __slots__ = ()
    _plain = ndarray
    _axes = _C._ArrayBase._reversed_axes
    _view = _C._ArrayBase._tensor  # of the same sizes

    def __new__(cls, view, axes):
        r = _new(cls)
        r._view, r._axes = view, axes
        return r

    _tensor = property(lambda self: self._view.flip(self._axes))  # type: ignore[assignment]

    def _write(self, value):
        self._view.copy_(value.expand(self._view.shape).flip(self._axes))


class flatiter:
    """The elements of an array one after another: an iterator that can be indexed and assigned to."""

    def __init__(self, array):
        self.base, self.index = array, 0
        self.__array = array

    coords = property(lambda self: _coordinates(self.index, self.base.shape))

    def __len__(self):
        return self.base.size

    def __iter__(self):
        return self

    def __next__(self):
        if self.index >= self.base.size:
            raise StopIteration
        self.index += 1
        return self[self.index - 1]

    def __getitem__(self, key):
        r = wrap(self.base._tensor.reshape(-1))[key]
        return r.copy() if isinstance(key, slice) else r

    def __setitem__(self, key, value):
        flat = wrap(self.base._tensor.reshape(-1).clone())
        if isinstance(key, slice) and not hasattr(value, "shape") or getattr(value, "ndim", 0):
            n, value = flat[key].size, wrap(tensor_of(value, flat.dtype)).reshape(-1)
            if value.size and value.size != n:  # over and over, as NumPy does
                value = wrap(value._tensor.repeat(-(-n // value.size))[:n])
        flat[key] = value
        self.base._write(flat._tensor.reshape(self.base.shape))

    def copy(self):
        return self.base.flatten()

    def __array__(self, dtype=None, copy=None):
        return self.copy().__array__(dtype)


def _coordinates(index, shape):
    r = []
    for n in reversed(shape):
        index, i = divmod(index, n or 1)
        r.append(i)
    return tuple(reversed(r))


# --- making ------------------------------------------------------------------------------------------------------------------


wrap = _C._array_of      # the array of a tensor
result = _C._result_of   # the same for what functions give: a number, as NumPy's scalars are, where it has no axes


def _set_shape(self, sizes):
    self._tensor = self._tensor.view(sizes_of(sizes))


def _iterate(self):
    t = self._tensor
    if not t.dim():
        raise TypeError("iteration over a 0-d array")
    if t.dim() == 1 and t.device.type == "cpu":  # whose elements are numbers, and no views
        return (self[i] for i in range(t.shape[0]))
    if type(self) is not ndarray:
        return iter([self[i] for i in range(t.shape[0])])
    rows = t.clone().unbind(0) if t.dim() == 1 else t.unbind(0)
    return iter([wrap(row) for row in rows])


def _truth(self):
    n = self._tensor.numel()
    if n == 1:
        return _b.bool(self._tensor.item())
    if n:
        raise ValueError("The truth value of an array with more than one element is ambiguous. Use a.any() or a.all()")
    raise ValueError("The truth value of an empty array is ambiguous. Use `array.size > 0` to check that an array is not empty.")


def _as_index(self):
    t = self._tensor
    if t.dim() or t.is_floating_point() or t.is_complex() or t.dtype is _BOOL:
        raise TypeError("only integer scalar arrays can be converted to a scalar index")
    return t.item()


for _name, _long_way in [("bool", _truth), ("int", lambda self: int(self._number())), ("float", lambda self: float(self._number())),
                         ("index", _as_index)]:
    _C._set_array_operator(_name, None, _long_way)


def shares(a, b):
    """Whether two tensors have memory in common."""
    return a.numel() and b.numel() and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def shared(a, t):
    """The array of a tensor that may be a view of `a`: read-only where `a` is."""
    r = wrap(t)
    if type(a) is ReadOnly and shares(t, a._tensor):
        r.__class__ = ReadOnly
    return r


def backwards(view, axes):
    """A view with these axes in the opposite order, as far as they have one."""
    axes = tuple(d for d in axes if view.shape[d] > 1)
    return Reversed(view, axes) if axes and view.numel() else wrap(view)


def moved(a, f):
    """The array that `f` makes of a's tensor by putting its axes elsewhere: a view, reversed or read-only where `a` is."""
    if type(a) is Reversed:
        t = a._view
        # Which axes these are afterwards: those that have a stride in a tensor of this shape where no others have.
        mark = _t.empty(_b.sum(t.shape) + 1, dtype=t.dtype).as_strided(t.shape, [_b.int(d in a._axes) for d in range(t.dim())])
        return backwards(f(t), [d for d, s in enumerate(f(mark).stride()) if s])
    _C._note_view(a)
    r = wrap(f(tensor_of(a)))
    if type(a) is ReadOnly:
        r.__class__ = ReadOnly
    return r


def ordered(t, order):
    """A tensor as `order` says that it lies; K and A leave it."""
    if order in (None, "K", "A", "k", "a"):
        return t
    if order in ("C", "c"):
        return t.contiguous()
    if order in ("F", "f"):
        back = _backwards(t)
        return t.permute(back).contiguous().permute(back)
    raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")


def sizes_of(shape):
    """A shape as a tuple of sizes that are not negative, but for the -1 of reshape."""
    try:
        return (_operator.index(shape),)
    except TypeError:
        return tuple(_operator.index(s) for s in shape)


def new_sizes(shape):
    """The sizes of an array to be made."""
    sizes = sizes_of(shape)
    if _b.any(s < 0 for s in sizes):
        raise ValueError("negative dimensions are not allowed")
    return sizes


def in_words(shape):
    """A shape as NumPy's errors have it."""
    shown = [str(s) if s >= 0 else "newaxis" for i, s in enumerate(shape) if s >= 0 or _b.any(v >= 0 for v in shape[:i])]
    return "(" + ",".join(shown) + (",)" if len(shape) == 1 else ")")


def not_together(*shapes):
    """The error of shapes that do not meet."""
    return ValueError("operands could not be broadcast together with shapes " + "".join(in_words(s) + " " for s in shapes))


def check_cast(a, b, casting):
    if not castable(a, b, casting):
        raise TypeError(f"Cannot cast array data from {a!r} to {b!r} according to the rule '{casting}'")


def _cast(t, dtype, copy=False):
    if t.dtype is dtype:
        return t.clone() if copy else t
    if t.is_complex() and not dtype.is_complex:
        t = _t.view_as_real(t).select(-1, 0)
        if dtype is _BOOL:
            raise TypeError("complex numbers become bool by x != 0")
    return t.to(dtype)


cast = _cast
_ARRAYS: tuple = (ndarray, Tensor)


def _is_array(x):
    return isinstance(x, _ARRAYS) or hasattr(x, "__array__") or hasattr(x, "__dlpack__")


def tensor_of(x, dtype=None, device=None):
    """The tensor of an array, of lists of numbers and of arrays, of anything that others' protocols know, in NumPy's default dtypes.
    Arrays share their memory where dtype and device stay."""
    d = native(dtype)
    if isinstance(x, ndarray):
        t = x._tensor
    elif isinstance(x, Tensor):
        t = x
    elif isinstance(x, flatiter):
        t = x.base._tensor.reshape(-1)
    elif type(x) in (int, float, _b.bool, complex):
        if d is None:
            d = (_FLOAT64 if type(x) is float else _whole_dtype(x) if type(x) is int else _BOOL if type(x) is _b.bool
                 else COMPLEX128._tensor_dtype)
        return _t.full((), _in_kind(x, d), dtype=d, device=device or _device)
    elif hasattr(x, "__array_interface__") or type(x).__module__ == "numpy":
        return _from_numpy(x, d, device)
    elif hasattr(x, "__dlpack__") or hasattr(x, "__cuda_array_interface__"):
        t = _t.from_dlpack(x) if hasattr(x, "__dlpack__") else _t._from_cuda_array_interface(x)
    elif hasattr(x, "__array__"):
        return _from_numpy(x.__array__(), d, device)
    elif isinstance(x, (str, bytes, dict, set)) or x is None:
        raise TypeError(f"arrays hold numbers, and not {type(x).__name__}")
    elif isinstance(x, (bytearray, memoryview)):
        t = _t.frombuffer(x, dtype=_C.uint8)
    else:
        t = _of_sequence(x, d, device)
    if d is not None and t.dtype is not d:
        t = _cast(t, d)
    if device is not None and t.device != device:
        t = t.to(device)
    return t


def _whole_dtype(x):
    return _INT64 if x < 2**63 else _C.uint64


def rounded(x, kind):
    """A number as struct's format "e" or "f" rounds it."""
    x = _b.float(x)  # OverflowError for what no float holds, as NumPy's
    try:
        return _struct.unpack(kind, _struct.pack(kind, x))[0]
    except OverflowError:
        return _b.float("inf") if x > 0 else -_b.float("inf")


def _in_kind(x, d):
    """A number as its dtype takes it; OverflowError for whole numbers outside."""
    if d is _BOOL:
        return _b.bool(x)
    if not d.is_floating_point and not d.is_complex:
        if type(x) is complex:
            raise TypeError("a complex number does not become a whole one")
        x = int(x)  # ValueError for NaN, OverflowError for infinities, as NumPy's
        low, high = _limits(d)
        if not low <= x <= high:
            raise OverflowError(f"Python integer {x} out of bounds for {OF_TENSOR[d].name}")
    elif type(x) is complex and not d.is_complex:
        raise TypeError("float() argument must be a real number, not 'complex'")
    elif d is _FLOAT16:  # before it meets elements, which are computed with in float32
        return rounded(x, "e")
    elif type(x) is int and not -2**53 <= x <= 2**53:
        return _b.float(x)
    return x


def _limits(d):
    from ._types import LIMITS

    return LIMITS[d]


def _from_numpy(x, d, device):
    import numpy

    a = numpy.asarray(x)
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    if a.dtype.kind in "OSUVMm" and a.dtype.name != "bfloat16":
        raise TypeError(f"arrays hold numbers, and not {a.dtype}")
    if a.dtype.name not in ("bfloat16",):
        as_dtype(a.dtype)
    try:
        t = _t.from_numpy(a)
    except (ValueError, TypeError):
        t = _t.from_numpy(numpy.ascontiguousarray(a).reshape(a.shape).copy())
    if d is not None:
        t = _cast(t, d)
    return t.to(device or _device)


_NUMBERS = frozenset((int, float, _b.bool, complex))


def _holds_arrays(x, depth=2):
    return not _NUMBERS.issuperset(map(type, x)) and _b.any(
        _is_array(v) or (depth and isinstance(v, (list, tuple)) and _holds_arrays(v, depth - 1)) for v in x)


def _probe(x):
    """Numbers in the dtype that torch finds for them. Where one has none but uint64 they are that, or float64 beside smaller ones."""
    try:
        return _t.tensor(x)
    except ValueError as e:
        if "without overflow" not in str(e):
            raise
    try:
        large = _t.tensor(x, dtype=_C.uint64)
        return large if (large >= 2**63).all() else large.to(_FLOAT64)
    except OverflowError:
        return _t.tensor(x, dtype=_FLOAT64)


def _whole_numbers(x, d):
    """Numbers as the whole ones that they become; ValueError for NaN, OverflowError for others outside."""
    try:
        t = _t.tensor(x, dtype=d if d is _C.uint64 else _INT64)
    except ValueError as e:
        if "without overflow" not in str(e):
            raise
        if str(e).endswith("nan"):
            raise ValueError("cannot convert float NaN to integer") from None
    except OverflowError:
        pass
    else:
        low, high = _limits(d)
        if d is _C.uint64 or not t.numel() or low <= int(t.min()) and int(t.max()) <= high:
            return t.to(d)
    raise OverflowError(f"Python integer out of bounds for {OF_TENSOR[d].name}")


def _truths(x):
    try:
        return _probe(x).to(_BOOL)
    except OverflowError:
        return _t.tensor(x, dtype=_FLOAT64).to(_BOOL)


def _uneven(x):
    """The error of nested sequences that are no array."""
    shape, level = [], [x]
    while _b.all(hasattr(v, "__len__") and getattr(v, "ndim", 1) and not isinstance(v, str) and len(v) == len(level[0]) for v in level):
        shape.append(len(level[0]))
        level = [v for each in level for v in each]
    return ValueError(
        "setting an array element with a sequence. The requested array has an inhomogeneous shape after "
        f"{len(shape)} dimensions. The detected shape was {tuple(shape)} + inhomogeneous part."
    )


def _of_sequence(x, d, device):
    if isinstance(x, range):
        return _t.arange(x.start, x.stop, x.step, dtype=d or _INT64, device=device or _device)
    if not isinstance(x, (list, tuple)):
        if not hasattr(x, "__len__") or not hasattr(x, "__getitem__"):
            raise TypeError(f"arrays hold numbers, and not {type(x).__name__}")
        x = list(x)
    if not _holds_arrays(x):
        try:
            if d is None:
                probe = _probe(x)
                d = _FLOAT64 if probe.is_floating_point() else COMPLEX128._tensor_dtype if probe.is_complex() else probe.dtype
                if d is probe.dtype:
                    return probe.to(device or _device)
            elif not d.is_floating_point and not d.is_complex:
                return (_truths(x) if d is _BOOL else _whole_numbers(x, d)).to(device or _device)
            return _t.tensor(x, dtype=d, device=device or _device)
        except (OverflowError, TypeError, ValueError) as e:
            if d is not None and d.is_complex and (type(e) is OverflowError or "without overflow" in str(e)):  # whole ones beyond 64 bits
                return _t.tensor(x, dtype=_FLOAT64, device=device or _device).to(d)
            if type(e) is OverflowError:
                raise
            if "cannot convert float" in str(e) or "can't convert complex" in str(e):
                raise
            sequences = _b.any(isinstance(v, (list, tuple)) for v in x)
            if not sequences and (isinstance(e, TypeError) or "infer dtype" in str(e)):
                raise TypeError(f"arrays hold numbers: {e}") from None
            raise _uneven(x) from None
    parts = [tensor_of(v, None, device) for v in x]
    if d is None:
        d = parts[0].dtype
        for p in parts[1:]:
            d = PROMOTED_NATIVE[d, p.dtype]
    if _b.any(p.shape != parts[0].shape for p in parts):
        raise _uneven(x)
    device = next((p.device for p in parts if p.device.type != "cpu"), parts[0].device)
    return _t.stack([_cast(p, d).to(device) for p in parts])


def axis_of(axis, ndim, name=None):
    """An axis from 0 on; AxisError, with the argument's name, for one that is not there."""
    axis = _operator.index(axis)
    if not -ndim <= axis < ndim:
        raise AxisError(axis, ndim, name)
    return axis % ndim


def axes_of(axis, ndim, name=None):
    """Axes as a tuple from 0 on: all of them for None; ValueError for one that is named twice."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, (tuple, list)):
        r = tuple(axis_of(a, ndim, name) for a in axis)
        if len({*r}) != len(r):
            raise ValueError("duplicate value in 'axis'")
        return r
    return (axis_of(axis, ndim, name),)


def result_into(t, out, casting="same_kind"):
    """The array of a tensor, or `out` with its values."""
    if out is None:
        return result(t)
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
    if not isinstance(out, ndarray):
        raise TypeError("return arrays must be of ArrayType")
    if tuple(out._tensor.shape) != tuple(t.shape):
        raise ValueError(f"output array has shape {out.shape}, and the result {tuple(t.shape)}")
    check_cast(OF_TENSOR[t.dtype], out.dtype, casting)
    out._write(_cast(t, out._tensor.dtype))
    return out


@short_way
def array(object, dtype=None, copy=True, order="K", subok=False, ndmin=0):
    """A new array of numbers, lists or arrays; `copy=None` shares memory where it can, and `copy=False` refuses where it cannot."""
    return _array(object, dtype, copy, order, ndmin)


def _array(object, dtype=None, copy=None, order="K", ndmin=0, device=None):
    if isinstance(object, (ReadOnly, Reversed)) and not copy and device in (None, object.device):
        if order in (None, "K", "A") and native(dtype) in (None, object._tensor.dtype):
            return object if object.ndim >= ndmin else moved(object, lambda t: t.reshape((1,) * (ndmin - t.dim()) + tuple(t.shape)))
    t = tensor_of(object, dtype, device)
    others = _is_array(object)
    if copy is False and not (isinstance(object, (ndarray, Tensor)) and t is (object._tensor if isinstance(object, ndarray) else object)
                              or others and not isinstance(object, (ndarray, Tensor))):
        raise ValueError("Unable to avoid copy while creating an array as requested.")
    if copy and others and (not isinstance(object, (ndarray, Tensor)) or t is getattr(object, "_tensor", object)):
        t = t.clone()
    t = ordered(t, order)
    while t.dim() < ndmin:
        t = t.unsqueeze(0)
    return object if isinstance(object, ndarray) and t is object._tensor else shared(object, t)


generic.make = staticmethod(array)
__all__ += ["array"]
