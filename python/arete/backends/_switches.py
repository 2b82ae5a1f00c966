"""What the modules of switches share."""
from __future__ import annotations

import sys
import types
from typing import Any

from .. import _C


class Switches(types.ModuleType):
    """A module whose properties are switches. To assign to a name that is none would change nothing, so it is an error."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(self, name) and not isinstance(value, types.ModuleType):
            raise AttributeError(f"Unknown attribute {name}: module '{self.__name__}' has no such switch")
        super().__setattr__(name, value)


def become(name: str, kind: type) -> None:
    """Makes the module of this name one of this kind."""
    sys.modules[name].__class__ = kind


# What a precision of f32 is set for, by the numbers of the library, and what it can be. Products, convolutions and recurrent layers for
# which none is set have that of GPUs, and that is, where none is set, that of everything.
ALL, GPU, PRODUCTS, CONVOLUTIONS, RECURRENCES = range(5)
PRECISIONS = ("none", "ieee", "tf32")


def set_precision(scope: int, precision: str) -> None:
    if precision not in PRECISIONS:
        raise RuntimeError(f"Unknown precision: {precision!r}; it must be 'ieee', 'tf32' or 'none'")
    _C._set_float32_precision(scope, PRECISIONS.index(precision))


def precision_of(scope: int, doc: str) -> property:
    """The switch "fp32_precision" of a scope; it reads as what is in force there."""
    return property(lambda _: PRECISIONS[_C._float32_precision(scope)], lambda _, precision: set_precision(scope, precision), doc=doc)


def allows_tf32(scope: int, doc: str) -> property:
    """The same as a bool."""
    return property(lambda _: PRECISIONS[_C._float32_precision(scope)] == "tf32",
                    lambda _, allowed: set_precision(scope, "tf32" if allowed else "ieee"), doc=doc)
