"""One of two functions, by a value."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._C import Tensor
from .._C import bool as _bool

__all__ = ["cond"]


def truth_of(pred: Any, whose: str) -> bool:
    """The bool of a bool or of a tensor of one bool."""
    if isinstance(pred, Tensor):
        if pred.numel() != 1 or pred.dtype != _bool:
            raise RuntimeError(f"{whose} a bool or a tensor of one bool, not {pred.dtype} of {list(pred.shape)}")
        return bool(pred.item())
    if not isinstance(pred, bool):
        raise RuntimeError(f"{whose} a bool or a tensor of one bool, not {type(pred).__name__}")
    return pred


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: "tuple | list" = ()) -> Any:
    """true_fn(*operands) if `pred`, a bool or a tensor of one bool, else false_fn(*operands). The other function does not run; a tensor is
    looked at, which ends a plan of compiled functions.

    >>> arete.cond(arete.tensor(False), lambda x: x + 1, lambda x: x - 1, (arete.ones(2),))
    tensor([0., 0.])
    """
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("cond(): true_fn and false_fn are functions")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond(): operands are a tuple or a list, not {type(operands).__name__}")
    return (true_fn if truth_of(pred, "cond(): pred is") else false_fn)(*operands)
