"""The types of tensors that torch had before dtypes, FloatTensor and its kin, and Tensor.new()."""
from __future__ import annotations

import numbers

from .. import _C
from .._C import Size, Tensor
from . import _ops
from ._layouts import strided

_DTYPES = {
    "FloatTensor": _C.float32, "DoubleTensor": _C.float64, "HalfTensor": _C.float16, "BFloat16Tensor": _C.bfloat16,
    "ByteTensor": _C.uint8, "CharTensor": _C.int8, "ShortTensor": _C.int16, "IntTensor": _C.int32,
    "LongTensor": _C.int64, "BoolTensor": _C.bool,
}


def _is_whole(number):
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)


def _sizes(given):
    for place, size in enumerate(given, 1):
        if not _is_whole(size):
            raise TypeError(f"new(): argument 'size' failed to unpack the object at pos {place} with error \"type must "
                            f"be tuple of ints,but got {type(size).__name__}\"")
    return tuple(given)


def made(dtype, device, given, named):
    """The tensor of old arguments: sizes of uninitialized memory, a sequence, or a tensor of the same type."""
    named = dict(named)
    wanted = named.pop("device", None)
    if wanted is not None:
        wanted = _C.device(wanted)
        if wanted.type != device.type:
            raise RuntimeError(f"legacy constructor expects device type: {device.type} but device type: {wanted.type} "
                               "was passed")
        device = wanted
    if not given and "size" in named:
        given = _sizes(named.pop("size"))
        if not named:
            return _ops.empty(given, dtype=dtype, device=device)
    for name in ("data", "other"):
        if not given and name in named:
            given = (named.pop(name),)
    if named:
        raise TypeError(f"new() got an unexpected keyword argument '{next(iter(named))}'")
    if not given:
        return _ops.empty((0,), dtype=dtype, device=device)
    first = given[0]
    if len(given) > 1 or _is_whole(first):
        return _ops.empty(_sizes(given), dtype=dtype, device=device)
    if isinstance(first, Size):
        return _ops.empty(first, dtype=dtype, device=device)
    if isinstance(first, Tensor):
        if first.dtype is not dtype or first.device.type != device.type:
            raise TypeError(f"expected a tensor of {dtype} on {device.type} (got {first.dtype} on {first.device.type})")
        return first.view(first.shape)
    if isinstance(first, str):
        raise TypeError("new(): invalid data type 'str'")
    if not hasattr(first, "__len__") or not hasattr(first, "__getitem__"):
        raise TypeError(f"new(): data must be a sequence (got {type(first).__name__})")
    return _C.tensor(first, dtype=dtype, device=device)


class tensortype(type):
    """The type of such types."""

    __module__ = "arete"

    @property
    def place(cls):
        return "cuda" if cls.is_cuda else "cpu"

    def __call__(cls, *args, **kwargs):
        return made(cls.dtype, _C.device(cls.place), args, kwargs)

    def __instancecheck__(cls, value):
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.device.type == cls.place


def _no_subclass(cls, **kwargs):
    raise TypeError(f"type '{cls.__bases__[0].__module__}.{cls.__bases__[0].__name__}' is not an acceptable base type")


def _type(module, name):
    dtype, cuda = _DTYPES[name], module == "arete.cuda"
    shown = _C.tensor([1, 0], dtype=dtype)
    example = "" if cuda else f"""

    >>> {module}.{name}([1, 0])
    {shown!r}
    >>> {module}.{name}(2, 3).shape, isinstance(arete.zeros(2, dtype={dtype}), {module}.{name})
    (arete.Size([2, 3]), True)"""
    doc = f"""Makes tensors of {dtype}{' on a GPU' if cuda else ''}, as torch did before there were dtypes: of sizes
    uninitialized ones, of sequences copies, of such a tensor one that shares its memory. isinstance() says whether a
    tensor is one.{example}
    """
    return tensortype(name, (), {
        "__module__": module, "__doc__": doc, "__init_subclass__": classmethod(_no_subclass), "dtype": dtype,
        "is_cuda": cuda, "is_sparse": False, "layout": strided})


CPU = {name: _type("arete", name) for name in _DTYPES}
CUDA = {name: _type("arete.cuda", name) for name in _DTYPES}
_NAMED = {f"{library}.{place}{name}": kind for library in ("torch", "arete")
          for place, kinds in (("", CPU), ("cuda.", CUDA)) for name, kind in kinds.items()}


def named(kind):
    """The type that is meant by itself or its name ("torch.FloatTensor"), or None."""
    if isinstance(kind, str):
        if kind not in _NAMED:
            raise ValueError(f"invalid type: '{kind}'")
        return _NAMED[kind]
    return kind if type(kind) is tensortype else None


def new(self, *args, **kwargs):
    """A tensor of this one's dtype and device, as its old type makes it: of sizes an uninitialized one, of a sequence
    a copy.

    >>> arete.tensor([1, 2]).new([3, 4])
    tensor([3, 4])
    >>> arete.ones(1, dtype=arete.float64).new(2, 3).dtype
    arete.float64
    >>> arete.ones(1).new(1.5)
    Traceback (most recent call last):
    TypeError: new(): data must be a sequence (got float)
    """
    return made(self.dtype, self.device, args, kwargs)


new.__qualname__ = "Tensor.new"
new.__module__ = "arete._tensor"
Tensor.new = new
