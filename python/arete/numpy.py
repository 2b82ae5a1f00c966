"""NumPy's names over arete's tensors, as CuPy has them: `import arete.numpy as np`.

Functions make and take Tensors; `ndarray` is Tensor. Defaults are NumPy's: floating arrays are float64 unless a dtype is
given, `axis` and `keepdims` name what torch calls dim and keepdim. `set_device("cuda")` chooses where new arrays are
made."""
from __future__ import annotations

import builtins as _b
import math as _math
import sys as _sys

import arete as _t

from . import _C, _ops
from ._C import Tensor as ndarray
from ._kernels import ElementwiseKernel, RawKernel, RawModule, ReductionKernel  # noqa: F401
from .cuda import nvtx  # noqa: F401

float16, float32, float64 = _C.float16, _C.float32, _C.float64
int8, int16, int32, int64, uint8 = _C.int8, _C.int16, _C.int32, _C.int64, _C.uint8
bool_, complex64, complex128, bfloat16 = _C.bool, _C.complex64, _C.complex128, _C.bfloat16
float_, int_, intp = float64, int64, int64
pi, e, inf, nan, newaxis = _math.pi, _math.e, _math.inf, _math.nan, None

_device = _C.device("cpu")


def set_device(device) -> None:
    """Where arrays are made from now on."""
    global _device
    _device = _C.device(device)


def get_device():
    return _device


def _dtype(dtype):
    """arete's dtype for a dtype, a Python type, a NumPy dtype or its name."""
    if dtype is None or isinstance(dtype, _C.dtype):
        return dtype
    known = {_b.float: float64, _b.int: int64, _b.bool: bool_, _b.complex: complex128}
    if dtype in known:
        return known[dtype]
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or getattr(dtype, "name", str(dtype))
    name = {"bool_": "bool", "f4": "float32", "f8": "float64", "i4": "int32", "i8": "int64", "f2": "float16",
            "float": "float64", "int": "int64", "f": "float32", "d": "float64", "i": "int32"}.get(name, name)  # fmt: skip
    found = getattr(_C, name, None)
    if not isinstance(found, _C.dtype):
        raise TypeError(f"data type {dtype!r} not understood")
    return found


# ---- making arrays


def array(object, dtype=None, copy=True, ndmin=0):
    """A new array of numbers, lists or arrays; floating numbers become float64."""
    dtype = _dtype(dtype)
    if isinstance(object, ndarray):
        a = object.to(dtype or object.dtype, copy=copy)
    else:
        if dtype is None and not hasattr(object, "dtype"):
            probe = _t.tensor(object)
            dtype = float64 if probe.is_floating_point() else probe.dtype
            # Read again, so that no digit is lost on the way.
        a = _t.tensor(object, dtype=dtype, device=_device)
    while a.dim() < ndmin:
        a = a.unsqueeze(0)
    return a


def asarray(a, dtype=None):
    """`a` itself if it is an array of that dtype."""
    if isinstance(a, ndarray):
        return a if dtype is None else a.to(_dtype(dtype))
    return array(a, dtype)


ascontiguousarray = lambda a, dtype=None: asarray(a, dtype).contiguous()  # noqa: E731
asanyarray = asarray


def asnumpy(a, stream=None):
    """A NumPy array (a copy where `a` lives on a GPU)."""
    return a.detach().cpu().numpy() if isinstance(a, ndarray) else __import__("numpy").asarray(a)


def copy(a):
    return asarray(a).clone()


def _shape(shape):
    return (shape,) if isinstance(shape, _b.int) else tuple(shape)


def empty(shape, dtype=float64):
    return _t.empty(_shape(shape), dtype=_dtype(dtype), device=_device)


def zeros(shape, dtype=float64):
    return _t.zeros(_shape(shape), dtype=_dtype(dtype), device=_device)


def ones(shape, dtype=float64):
    return _t.ones(_shape(shape), dtype=_dtype(dtype), device=_device)


def full(shape, fill_value, dtype=None):
    dtype = _dtype(dtype) or (float64 if isinstance(fill_value, _b.float) else None)
    return _t.full(_shape(shape), fill_value, dtype=dtype, device=_device)


def empty_like(a, dtype=None):
    return _t.empty_like(a, dtype=_dtype(dtype))


def zeros_like(a, dtype=None):
    return _t.zeros_like(a, dtype=_dtype(dtype))


def ones_like(a, dtype=None):
    return _t.ones_like(a, dtype=_dtype(dtype))


def full_like(a, fill_value, dtype=None):
    return _t.full_like(a, fill_value, dtype=_dtype(dtype))


def arange(start, stop=None, step=1, dtype=None):
    """start, start + step, ... below stop; int64 for integers, else float64."""
    if stop is None:
        start, stop = 0, start
    dtype = _dtype(dtype) or (int64 if _b.all(isinstance(v, _b.int) for v in (start, stop, step)) else float64)
    return _t.arange(start, stop, step, dtype=dtype, device=_device)


def linspace(start, stop, num=50, endpoint=True, dtype=None):
    if not endpoint:
        return _t.linspace(start, stop, num + 1, dtype=_dtype(dtype) or float64, device=_device)[:-1]
    return _t.linspace(start, stop, num, dtype=_dtype(dtype) or float64, device=_device)


def logspace(start, stop, num=50, base=10.0, dtype=None):
    return _t.logspace(start, stop, num, base, dtype=_dtype(dtype) or float64, device=_device)


def eye(N, M=None, dtype=float64):
    return _t.eye(N, M if M is not None else N, dtype=_dtype(dtype), device=_device)


def identity(n, dtype=float64):
    return eye(n, dtype=dtype)


def meshgrid(*xi, indexing="xy"):
    return list(_t.meshgrid(*xi, indexing=indexing))


def tri(N, M=None, k=0, dtype=float64):
    return tril(ones((N, M or N), dtype), k)


# ---- elements: functions of one and of two arrays


def _array_of(x):
    return x if isinstance(x, ndarray) else array(x)


def _unary(name, target=None):
    operator = getattr(_t, target or name)

    def function(x, out=None):
        r = operator(_array_of(x))
        return out.copy_(r) if out is not None else r

    function.__name__ = name
    return function


for _name, _target in {
    "abs": "abs", "absolute": "abs", "fabs": "abs", "sign": "sign", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "round", "sqrt": "sqrt", "square": "square", "exp": "exp", "exp2": "exp2",
    "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh", "cosh": "cosh",
    "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "negative": "neg",
    "positive": "positive", "reciprocal": "reciprocal", "isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite",
    "signbit": "signbit", "logical_not": "logical_not", "bitwise_not": "bitwise_not", "invert": "bitwise_not",
    "deg2rad": "deg2rad", "radians": "deg2rad", "rad2deg": "rad2deg", "degrees": "rad2deg", "sinc": "sinc",
}.items():  # fmt: skip
    globals()[_name] = _unary(_name, _target)


def _binary(name, target):
    operator = getattr(_t, target)

    def function(x1, x2, out=None):
        if not isinstance(x1, ndarray) and not isinstance(x2, ndarray):
            x1 = array(x1)
        if not isinstance(x1, (ndarray, _b.int, _b.float)):
            x1 = array(x1)
        if not isinstance(x2, (ndarray, _b.int, _b.float)):
            x2 = array(x2)
        if not isinstance(x1, ndarray):
            x1 = _t.full((), x1, dtype=x2.dtype if isinstance(x1, _b.int) or x2.is_floating_point() else float64,
                         device=x2.device)  # fmt: skip
        r = operator(x1, x2)
        return out.copy_(r) if out is not None else r

    function.__name__ = name
    return function


for _name, _target in {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div",
    "floor_divide": "floor_divide", "mod": "remainder", "remainder": "remainder", "fmod": "fmod", "power": "pow",
    "arctan2": "atan2", "hypot": "hypot", "copysign": "copysign", "nextafter": "nextafter", "logaddexp": "logaddexp",
    "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge",
    "logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
    "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift",
}.items():  # fmt: skip
    globals()[_name] = _binary(_name, _target)


def maximum(x1, x2, out=None):
    r = _t.clamp(x1, min=x2) if not isinstance(x2, ndarray) else _t.maximum(_array_of(x1).to(x2.device), x2)
    return out.copy_(r) if out is not None else r


def minimum(x1, x2, out=None):
    r = _t.clamp(x1, max=x2) if not isinstance(x2, ndarray) else _t.minimum(_array_of(x1).to(x2.device), x2)
    return out.copy_(r) if out is not None else r


def clip(a, a_min=None, a_max=None, out=None):
    return _t.clamp(a, a_min, a_max, out=out)


def where(condition, x=None, y=None):
    if x is None and y is None:
        return nonzero(condition)
    return _t.where(condition, x, y)


def round(a, decimals=0):  # noqa: A001
    return _t.round(a) if decimals == 0 else _t.round(a * 10.0**decimals) / 10.0**decimals


around = round


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    a, b = _array_of(a), _array_of(b)
    return _t.isclose(a, b.to(a.dtype), rtol, atol, equal_nan)


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    return _b.bool(isclose(a, b, rtol, atol, equal_nan).all())


def array_equal(a, b):
    a, b = _array_of(a), _array_of(b)
    return a.shape == b.shape and _b.bool((a == b).all())


# ---- reductions


def _axes(a, axis):
    return tuple(range(a.dim())) if axis is None else (axis,) if isinstance(axis, _b.int) else tuple(axis)


def sum(a, axis=None, dtype=None, out=None, keepdims=False):  # noqa: A001
    r = _t.sum(a, None if axis is None else _axes(a, axis), keepdims, dtype=_dtype(dtype))
    return out.copy_(r) if out is not None else r


def mean(a, axis=None, dtype=None, out=None, keepdims=False):
    dtype = _dtype(dtype) or (a.dtype if a.is_floating_point() else float64)
    r = _t.mean(a, None if axis is None else _axes(a, axis), keepdims, dtype=dtype)
    return out.copy_(r) if out is not None else r


def _floating(a):
    return a if a.is_floating_point() else a.to(float64)


def var(a, axis=None, ddof=0, keepdims=False):
    return _t.var(_floating(a), None if axis is None else _axes(a, axis), correction=ddof, keepdim=keepdims)


def std(a, axis=None, ddof=0, keepdims=False):
    return _t.std(_floating(a), None if axis is None else _axes(a, axis), correction=ddof, keepdim=keepdims)


def prod(a, axis=None, dtype=None, keepdims=False):
    a = a if dtype is None else a.to(_dtype(dtype))
    return _ops.prod(a) if axis is None else _ops.prod(a, axis, keepdims)


def max(a, axis=None, out=None, keepdims=False):  # noqa: A001
    r = _ops.amax(a, None if axis is None else _axes(a, axis), keepdims)
    return out.copy_(r) if out is not None else r


def min(a, axis=None, out=None, keepdims=False):  # noqa: A001
    r = _ops.amin(a, None if axis is None else _axes(a, axis), keepdims)
    return out.copy_(r) if out is not None else r


amax, amin = max, min


def argmax(a, axis=None):
    return _ops.argmax(a, axis)


def argmin(a, axis=None):
    return _ops.argmin(a, axis)


def any(a, axis=None, keepdims=False):  # noqa: A001
    return _t.any(a, None if axis is None else _axes(a, axis), keepdims)


def all(a, axis=None, keepdims=False):  # noqa: A001
    return _t.all(a, None if axis is None else _axes(a, axis), keepdims)


def cumsum(a, axis=None):
    return _t.cumsum(a.reshape(-1) if axis is None else a, 0 if axis is None else axis)


def cumprod(a, axis=None):
    return _t.cumprod(a.reshape(-1) if axis is None else a, 0 if axis is None else axis)


def count_nonzero(a, axis=None):
    return _t.count_nonzero(a, None if axis is None else _axes(a, axis))


def median(a, axis=None):
    """The middle value; of an even number the mean of the two in the middle."""
    a = _floating(a)
    a, axis = (a.reshape(-1), 0) if axis is None else (a, axis)
    s, n = a.sort(axis).values, a.shape[axis]
    return (s.select(axis, (n - 1) // 2) + s.select(axis, n // 2)) / 2


def histogram(a, bins=10, range=None):  # noqa: A002
    """Counts in bins of equal width (int64) and the edges."""
    a = _floating(a).reshape(-1)
    low, high = range if range is not None else ((a.min().item(), a.max().item()) if a.numel() else (0.0, 1.0))
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = _t.linspace(low, high, bins + 1, dtype=a.dtype, device=a.device)
    inside = a[(a >= low) & (a <= high)]
    place = _t.clamp(((inside - low) * (bins / (high - low))).floor().long(), 0, bins - 1)
    return _t.bincount(place, None, bins), edges


# ---- shapes


def reshape(a, shape):
    return a.reshape(_shape(shape))


def ravel(a):
    return a.reshape(-1)


def transpose(a, axes=None):
    return a.permute(tuple(reversed(range(a.dim()))) if axes is None else tuple(axes))


def swapaxes(a, axis1, axis2):
    return a.transpose(axis1, axis2)


def moveaxis(a, source, destination):
    return _t.movedim(a, source, destination)


def expand_dims(a, axis):
    return a.unsqueeze(axis)


def squeeze(a, axis=None):
    return a.squeeze() if axis is None else a.squeeze(axis)


def broadcast_to(a, shape):
    return a.expand(_shape(shape))


def concatenate(arrays, axis=0):
    return _t.cat([x.reshape(-1) for x in arrays], 0) if axis is None else _t.cat(list(arrays), axis)


def stack(arrays, axis=0):
    return _t.stack(list(arrays), axis)


def vstack(arrays):
    return _t.vstack(list(arrays))


def hstack(arrays):
    return _t.hstack(list(arrays))


def split(a, indices_or_sections, axis=0):
    if isinstance(indices_or_sections, _b.int) and a.shape[axis] % indices_or_sections:
        raise ValueError("array split does not result in an equal division")
    return list(_t.tensor_split(a, indices_or_sections, axis))


def array_split(a, indices_or_sections, axis=0):
    return list(_t.tensor_split(a, indices_or_sections, axis))


def tile(a, reps):
    return a.tile(_shape(reps))


def repeat(a, repeats, axis=None):
    return _t.repeat_interleave(a, repeats, axis)


def flip(a, axis=None):
    return a.flip(tuple(range(a.dim())) if axis is None else _axes(a, axis))


def roll(a, shift, axis=None):
    if axis is None:
        return a.reshape(-1).roll((shift,), (0,)).reshape(a.shape)
    return a.roll(_shape(shift), _shape(axis))


def pad(a, pad_width, mode="constant", constant_values=0):
    """Adds a border; pad_width is a number, (before, after) or one pair for each axis."""
    if isinstance(pad_width, _b.int):
        pad_width = [(pad_width, pad_width)] * a.dim()
    elif isinstance(pad_width[0], _b.int):
        pad_width = [tuple(pad_width)] * a.dim()
    if mode != "constant":
        raise NotImplementedError(f"pad(): mode {mode!r}")
    flat = [v for pair in reversed(list(pad_width)) for v in pair]
    return _ops.constant_pad_nd(a, flat, constant_values)


def tril(m, k=0):
    return _t.tril(m, k)


def triu(m, k=0):
    return _t.triu(m, k)


def diag(v, k=0):
    return _t.diag(v, k) if hasattr(_t, "diag") else v.diagonal(k)


def take(a, indices, axis=None):
    indices = _array_of(indices).long()
    if axis is None:
        return a.reshape(-1)[indices]
    r = _t.index_select(a, axis, indices.reshape(-1))
    return r.reshape(a.shape[:axis] + indices.shape + a.shape[axis + 1:]) if indices.dim() != 1 else r


def nonzero(a):
    return _t.nonzero(a, as_tuple=True)


def argwhere(a):
    return _ops.nonzero(a)


def sort(a, axis=-1):
    return a.sort(axis).values


def argsort(a, axis=-1):
    return _t.argsort(a, axis)


def unique(a):
    return _t.unique(a)


def searchsorted(a, v, side="left"):
    return _t.searchsorted(a, _array_of(v), right=side == "right")


def bincount(x, weights=None, minlength=0):
    return _t.bincount(x, weights, minlength)


# ---- products


def dot(a, b):
    """Inner product over a's last axis and b's last but one."""
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    if b.dim() <= 2:
        return _t.matmul(a, b)
    return _t.tensordot(a, b, ([a.dim() - 1], [b.dim() - 2]))


def matmul(x1, x2):
    return _t.matmul(x1, x2)


def inner(a, b):
    return dot(a, b.transpose(-1, -2) if b.dim() > 1 else b)


def outer(a, b):
    return _t.outer(a.reshape(-1), b.reshape(-1))


def vdot(a, b):
    return _t.dot(a.reshape(-1), b.reshape(-1))


def tensordot(a, b, axes=2):
    return _t.tensordot(a, b, axes)


def einsum(subscripts, *operands):
    return _t.einsum(subscripts, *operands)


def convolve(a, v, mode="full"):
    """The discrete convolution of two vectors."""
    n, k = a.shape[0], v.shape[0]
    if k > n:
        a, v, n, k = v, a, k, n
    full_length = _t.conv1d(a.reshape(1, 1, -1), v.flip((0,)).reshape(1, 1, -1), padding=k - 1).reshape(-1)
    if mode == "full":
        return full_length
    if mode == "same":
        return full_length[(k - 1) // 2:(k - 1) // 2 + n]
    return full_length[k - 1:n]


# ---- modules


class random:
    """numpy.random over arete's generator; float64 unless a dtype is given."""

    @staticmethod
    def seed(seed=None):
        _t.manual_seed(0 if seed is None else seed)

    @staticmethod
    def _size(size):
        return () if size is None else _shape(size)

    @staticmethod
    def rand(*size, dtype=float64):
        return _t.rand(size, dtype=_dtype(dtype), device=_device)

    @staticmethod
    def randn(*size, dtype=float64):
        return _t.randn(size, dtype=_dtype(dtype), device=_device)

    @classmethod
    def random(cls, size=None, dtype=float64):
        return _t.rand(cls._size(size), dtype=_dtype(dtype), device=_device)

    random_sample = random

    @classmethod
    def uniform(cls, low=0.0, high=1.0, size=None, dtype=float64):
        return cls.random(size, dtype) * (high - low) + low

    @classmethod
    def normal(cls, loc=0.0, scale=1.0, size=None, dtype=float64):
        return _t.randn(cls._size(size), dtype=_dtype(dtype), device=_device) * scale + loc

    standard_normal = classmethod(lambda cls, size=None, dtype=float64: cls.normal(0.0, 1.0, size, dtype))

    @classmethod
    def randint(cls, low, high=None, size=None, dtype=int64):
        low, high = (0, low) if high is None else (low, high)
        return _t.randint(low, high, cls._size(size), dtype=_dtype(dtype), device=_device)

    @staticmethod
    def permutation(x):
        if isinstance(x, _b.int):
            return _t.randperm(x, device=_device)
        return x[_t.randperm(x.shape[0], device=x.device)]

    @classmethod
    def choice(cls, a, size=None, replace=True, p=None):
        a = arange(a) if isinstance(a, _b.int) else a
        n, k = a.shape[0], _math.prod(cls._size(size))
        if p is not None:
            places = _t.multinomial(p, k, replace)
        elif replace:
            places = _t.randint(0, n, (k,), device=a.device)
        else:
            if k > n:
                raise ValueError("Cannot take a larger sample than population when replace is False")
            places = _t.randperm(n, device=a.device)[:k]
        return a[places].reshape(cls._size(size))


class cuda:
    """What CuPy has under cupy.cuda: streams, events, synchronisation, memory."""

    class _Null:
        """The default stream; on a machine without a GPU there is nothing to wait for."""

        @staticmethod
        def synchronize():
            if _t.cuda.is_available():
                _t.cuda.synchronize()

        @property
        def ptr(self):
            return _t.cuda.default_stream().cuda_stream if _t.cuda.is_available() else 0

    class _StreamType(type):
        @property
        def null(cls):
            return cuda._Null()

    class Stream(metaclass=_StreamType):
        def __new__(cls, *args, **kwargs):
            return _t.cuda.Stream()

    Event = staticmethod(lambda **options: _t.cuda.Event(enable_timing=True))

    class Device:
        def __init__(self, device=0):
            self.id = device

        def __enter__(self):
            self._context = _t.cuda.device(self.id)
            self._context.__enter__()
            return self

        def __exit__(self, *error):
            self._context.__exit__(*error)

        def synchronize(self):
            _t.cuda.synchronize(self.id)

        def use(self):
            _t.cuda.set_device(self.id)

    @staticmethod
    def is_available():
        return _t.cuda.is_available()


class _LinalgNames:
    def __getattr__(self, name):
        return getattr(_t.linalg, name)

    @staticmethod
    def norm(x, ord=None, axis=None, keepdims=False):
        return _t.norm(x, 2.0 if ord is None else ord, None if axis is None else _axes(x, axis), keepdims)


class _FftNames:
    def __getattr__(self, name):
        return getattr(_t.fft, name)


linalg, fft = _LinalgNames(), _FftNames()


def save(file, arr):
    """An .npy file."""
    import numpy

    numpy.save(file, asnumpy(arr))


def load(file):
    """An array from an .npy file, a dict from an .npz file."""
    import numpy

    content = numpy.load(file, allow_pickle=False)
    if hasattr(content, "files"):
        return {k: array(content[k]) for k in content.files}
    return array(content)


def get_array_module(*args):
    """This module if any argument is a Tensor, else NumPy."""
    if _b.any(isinstance(a, ndarray) for a in args):
        return _sys.modules[__name__]
    return __import__("numpy")
