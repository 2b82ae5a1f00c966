"""The types of results with several tensors, by the names of the operators.

    >>> isinstance(arete.ones(2).max(0), arete.return_types.max)
    True
"""
from __future__ import annotations

from typing import Any

from . import _C
from ._operators import _ops


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name not in _C._return_types:
        getattr(_ops, name, None)  # an operator that nobody has called
    if name not in _C._return_types:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: no operator of this name has several results")
    return _C._return_types[name]
