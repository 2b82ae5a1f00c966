"""Numba's types, for memory of kernels (`cuda.shared.array(32, float32)`), conversions in them, and signatures."""
from __future__ import annotations

import re

__all__ = ["Type", "Signature", "boolean", "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "intc", "intp",
           "uint8", "uint16", "uint32", "uint64", "void", "f4", "f8", "i4", "i8", "u1", "u4", "u8"]


class Type:
    """A type of numbers; `float32[:, :]` is one of arrays, `void(float32[:], int32)` a signature."""

    def __init__(self, name, ndim=0):
        self.name, self.ndim = name, ndim

    def __repr__(self):
        return self.name + (f"[{', '.join(':' * self.ndim)}]" if self.ndim else "")

    def __eq__(self, other):
        return isinstance(other, Type) and (self.name, self.ndim) == (other.name, other.ndim)

    def __hash__(self):
        return hash((self.name, self.ndim))

    def __getitem__(self, slices):
        return Type(self.name, len(slices) if isinstance(slices, tuple) else 1)

    def __call__(self, *types):
        if all(isinstance(t, Type) for t in types):
            return Signature(self, types)
        raise TypeError(f"{self.name}(...) converts in kernels; outside of one NumPy's {self.name} does")


class Signature:
    """What a function takes and gives."""

    def __init__(self, result, arguments):
        self.result, self.arguments = result, tuple(arguments)

    @classmethod
    def of(cls, what):
        """A signature, a tuple of types, or the text of one of both."""
        if isinstance(what, Signature):
            return what
        if isinstance(what, tuple):
            return cls(void, what)
        found = re.fullmatch(r"\s*(?:(\w+)\s*)?\((.*)\)\s*", what)
        if found is None:
            raise ValueError(f"{what!r} is no signature")
        result, listed = found.groups()
        parts = re.findall(r"(\w+)\s*(?:\[([^\]]*)\])?\s*(?:,|$)", listed)
        return cls(_named(result or "void"), [_named(n)[(slice(None),) * (d.count(",") + 1)] if d else _named(n) for n, d in parts])


def _named(name):
    found = globals().get(name)
    if not isinstance(found, Type):
        raise TypeError(f"{name!r} is no type of kernels")
    return found


boolean = bool_ = Type("bool")
float16, float32, float64 = (Type(f"float{n}") for n in (16, 32, 64))
int8, int16, int32, int64 = (Type(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (Type(f"uint{n}") for n in (8, 16, 32, 64))
void, intc, intp = Type("void"), int32, int64
f4, f8, i4, i8, u1, u4, u8 = float32, float64, int32, int64, uint8, uint32, uint64
