"""What functions that run graphs look like."""
from __future__ import annotations

from typing import Any, Callable

__all__ = ["make_boxed_func"]


def make_boxed_func(f: Callable) -> Callable:
    """f as a function of the list of its arguments, which a compiled graph may be.

    >>> from arete._functorch.aot_autograd import make_boxed_func
    >>> make_boxed_func(max)([1, 2])
    2
    """

    def boxed(args: list) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed
