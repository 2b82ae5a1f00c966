"""What the modules of switches share."""
from __future__ import annotations

import sys
import types
from typing import Any


class Switches(types.ModuleType):
    """A module whose properties are switches. To assign to a name that is none would change nothing, so it is an error."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(self, name) and not isinstance(value, types.ModuleType):
            raise AttributeError(f"Unknown attribute {name}: module '{self.__name__}' has no such switch")
        super().__setattr__(name, value)


def become(name: str, kind: type) -> None:
    """Makes the module of this name one of this kind."""
    sys.modules[name].__class__ = kind


def is_tf32(precision: str):
    """What a name of a precision says of TF32; None: nothing."""
    if precision not in ("none", "ieee", "tf32"):
        raise ValueError(f"fp32_precision must be 'ieee', 'tf32' or 'none', not {precision!r}")
    return None if precision == "none" else precision == "tf32"
