"""Parameters of kernels as CuPy writes them: "float32 x, raw T y"."""
from __future__ import annotations

import re
from typing import NamedTuple

from .. import _C
from .._snippets import TYPES
from ._launch import device_of, tensor_of

C_NAMES = {_C.bool: "bool", _C.int8: "signed char", _C.uint8: "unsigned char", _C.int16: "short", _C.int32: "int", _C.int64: "long long",
           _C.uint16: "unsigned short", _C.uint32: "unsigned", _C.uint64: "unsigned long long", _C.float16: "float16",
           _C.bfloat16: "bfloat16", _C.float32: "float", _C.float64: "double"}
# How numbers of a dtype are passed: half types as floats.
KINDS = {_C.bool: "?", _C.int8: "b", _C.uint8: "B", _C.int16: "h", _C.int32: "i", _C.int64: "q", _C.float16: "f", _C.bfloat16: "f",
         _C.uint16: "H", _C.uint32: "I", _C.uint64: "Q", _C.float32: "f", _C.float64: "d"}


class Parameter(NamedTuple):
    type: str
    name: str
    raw: bool = False


def is_generic(name: str) -> bool:
    return len(name) == 1 and name.isupper()


def parameters(text: str, reserved) -> list[Parameter]:
    """Those that a text names."""
    result = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        words = part.split()
        is_raw = words[0] == "raw"
        words = words[is_raw:]
        if len(words) != 2 or not re.fullmatch(r"[A-Za-z_]\w*", words[1]):
            raise ValueError(f"a parameter must be 'type name' or 'raw type name', not {part!r}")
        if words[1] in reserved or words[1].startswith("_"):
            raise ValueError(f"the name {words[1]!r} is the kernel's own")
        result.append(Parameter(words[0], words[1], is_raw))
    return result


class Types:
    """The dtypes that type names stand for in one call."""

    def __init__(self, listed):
        self.generic = {}
        for p in listed:
            if not is_generic(p.type) and p.type not in TYPES:
                raise TypeError(f"unknown type {p.type!r}; known are {', '.join(sorted(TYPES))} and single capital letters")

    def bind(self, name, dtype):
        if not is_generic(name):
            return TYPES[name]
        known = self.generic.setdefault(name, dtype)
        if known is not dtype:
            raise TypeError(f"Type is mismatched: {name} is {known._name} and {dtype._name}")
        return known

    def known(self, p):
        dtype = self.generic.get(p.type) or TYPES.get(p.type)
        if dtype is None:
            raise TypeError(f"the type {p.type} of {p.name!r} follows from no input")
        return dtype


def bind_arguments(listed, args, kernel, outs=()):
    """The arguments as tensors of the parameters' dtypes on one device and numbers (as they are), and the types."""
    if len(args) != len(listed):
        raise TypeError(f"{kernel} takes {len(listed)} arguments ({len(args)} given)")
    types = Types(listed)
    tensors = [tensor_of(a) for a in args]
    device = device_of([t for t in (*tensors, *outs) if t is not None], kernel)
    for p, t in zip(listed, tensors):
        if t is not None:
            if t.dtype not in C_NAMES:
                raise TypeError(f"{kernel}: kernels have no arguments of {t.dtype}")
            types.bind(p.type, t.dtype)
    bound = []
    for p, a, t in zip(listed, args, tensors):
        if t is not None:
            dtype = types.bind(p.type, t.dtype)
            if p.raw and t.dtype is not dtype:
                raise TypeError(f"{kernel}: {p.name!r} is an array of {dtype._name}, not of {t.dtype._name}")
            bound.append(t if t.dtype is dtype else t.to(dtype))
            continue
        if p.raw:
            raise TypeError(f"{kernel}: {p.name!r} must be an array, not {type(a).__name__}")
        dtype = TYPES.get(p.type) or types.generic.get(p.type)
        if dtype is None:
            dtype = types.bind(p.type, _C.tensor(a).dtype)
        bound.append(a.item() if hasattr(a, "item") else a)
    return bound, types, device


class Inputs:
    """How bound arguments go into a program of scalars: tensors are its inputs, numbers its parameters. Where all are numbers, they are
    made tensors."""

    def __init__(self, listed, bound, types, device):
        self.types = [types.known(p) for p in listed]
        self.tensors = [k for k, b in enumerate(bound) if isinstance(b, _C.Tensor)]
        self.device = None if self.tensors else device
        self.tensors = self.tensors or list(range(len(bound)))
        self.numbers = [k for k in range(len(bound)) if k not in self.tensors]
        self.key = tuple(self.types), tuple(self.numbers), tuple(sorted((n, t._name) for n, t in types.generic.items()))

    def dtypes(self):
        """Those of inputs and of parameters."""
        return [self.types[k] for k in self.tensors], [self.types[k] for k in self.numbers]

    def in_order(self, values):
        """Values of inputs, then of parameters, as the kernel lists them."""
        by_place = dict(zip(self.tensors + self.numbers, values))
        return [by_place[k] for k in range(len(values))]

    def of(self, bound):
        """Tensors and numbers for the program."""
        if self.device is not None:
            return [_C.tensor(b, dtype=t, device=self.device) for b, t in zip(bound, self.types)], []
        return [bound[k] for k in self.tensors], [bound[k] for k in self.numbers]


def common_shape(shapes, kernel):
    """NumPy's rule of broadcasting."""
    result = []
    for d in range(-max(map(len, shapes), default=0), 0):
        sizes = {s[d] for s in shapes if len(s) >= -d} - {1}
        if len(sizes) > 1:
            raise ValueError(f"{kernel}: operands could not be broadcast together with shapes {' '.join(str(tuple(s)) for s in shapes)}")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)

