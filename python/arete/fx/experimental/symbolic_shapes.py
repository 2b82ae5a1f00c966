"""Conditions on sizes, which are always numbers here and so always known."""
from __future__ import annotations

from typing import Any

__all__ = ["GuardOnDataDependentSymNode", "free_symbols", "free_unbacked_symbols", "guard_or_false", "guard_or_true", "has_free_symbols",
           "is_concrete_bool", "is_concrete_int", "statically_known_true"]


class GuardOnDataDependentSymNode(RuntimeError):
    """The error of a condition on a size that is not known, which nothing raises."""


def guard_or_false(a: Any) -> bool:
    """The condition.

    >>> arete.fx.experimental.symbolic_shapes.guard_or_false(2 > 1)
    True
    """
    return bool(a)


guard_or_true = statically_known_true = guard_or_false


def free_symbols(val: Any) -> set:
    """No symbols: sizes are numbers."""
    return set()


free_unbacked_symbols = free_symbols


def has_free_symbols(val: Any) -> bool:
    return False


def is_concrete_int(a: Any) -> bool:
    return isinstance(a, int)


def is_concrete_bool(a: Any) -> bool:
    return isinstance(a, bool)
