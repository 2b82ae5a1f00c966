"""Every operator record of the C++ library under its own name, as a function with the arguments of its schema."""
from __future__ import annotations

from . import _C

__all__: list[str] = []


def __getattr__(name: str):
    try:
        operator = _C.Operator(name, [(name, None)])
    except KeyError:
        raise AttributeError(f"there is no operator record '{name}'") from None
    globals()[name] = operator
    return operator


def __dir__():
    return sorted(_C._record_names())
