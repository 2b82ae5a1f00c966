"""Sizes that are not known: there are none, so what programs do with them is done with numbers."""
from __future__ import annotations

import builtins
import math
from typing import Any

from ._refused import refused as _refused

_WHY = "sizes are always numbers here"
globals().update(_refused("arete", _WHY, "SymBool", "SymFloat", "SymInt"))


def sym_int(a: Any) -> builtins.int:
    """The number without its fraction.

    >>> arete.sym_int(2.7), arete.sym_float(2), arete.sym_max(2, 3), arete.sym_not(True)
    (2, 2.0, 3, False)
    """
    return math.floor(a) if a > 0 else math.ceil(a)


def sym_float(a: Any) -> builtins.float:
    """The number as a float.

    >>> arete.sym_float(2)
    2.0
    """
    return builtins.float(a)


def sym_max(a: Any, b: Any) -> Any:
    """The larger one, a float if one of them is.

    >>> arete.sym_max(3, 2.0)
    3.0
    """
    return _joined(max, a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller one, a float if one of them is.

    >>> arete.sym_min(3, 2)
    2
    """
    return _joined(min, a, b)


def _joined(choose: Any, a: Any, b: Any) -> Any:
    chosen = choose(a, b)
    return builtins.float(chosen) if isinstance(a, builtins.float) or isinstance(b, builtins.float) else chosen


def sym_not(a: Any) -> builtins.bool:
    """Not the condition.

    >>> arete.sym_not(True)
    False
    """
    return not a


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f.

    >>> arete.sym_ite(False, 1, 2)
    2
    """
    return t if b else f


def sym_sum(args: Any) -> Any:
    """The sum of some numbers.

    >>> arete.sym_sum([1, 2, 3])
    6
    """
    return sum(args)


def sym_sqrt(a: Any) -> builtins.float:
    """The root of a number.

    >>> arete.sym_sqrt(4)
    2.0
    """
    return math.sqrt(a)


NAMES = ("SymBool", "SymFloat", "SymInt", "sym_float", "sym_int", "sym_ite", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum")
