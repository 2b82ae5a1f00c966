"""One of two functions, by a value."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import Tensor
from .._C import bool as _bool
from ..utils import _pytree

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


class Results:
    """The tensors of trees, which differ in nothing else."""

    def __init__(self, whose: str) -> None:
        self._whose, self._form = whose, None

    def tensors_of(self, tree: Any) -> list:
        leaves, spec = _pytree.tree_flatten(tree)
        form = spec, [None if isinstance(x, Tensor) else (type(x), x) for x in leaves]
        if self._form is None:
            self._form = form
        elif form != self._form:
            raise RuntimeError(f"{self._whose} trees of one structure while a program is recorded, which differ in tensors alone, not "
                               f"{self._form[0]} and {spec}")
        return [x for x in leaves if isinstance(x, Tensor)]

    def tree_of(self, tensors: list) -> Any:
        spec, rest = self._form
        left = iter(tensors)
        return _pytree.tree_unflatten([next(left) if x is None else x[1] for x in rest], spec)


def _recorded(pred: Tensor, true_fn: Callable, false_fn: Callable, operands: "tuple | list") -> Any:
    results = Results("cond(): both functions give")
    return results.tree_of(_C._cond(pred, lambda: results.tensors_of(true_fn(*operands)), lambda: results.tensors_of(false_fn(*operands))))


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: "tuple | list" = ()) -> Any:
    """true_fn(*operands) if `pred`, a bool or a tensor of one bool, else false_fn(*operands). The other function does not run; a tensor is
    looked at, which ends a plan of compiled functions. While a program is recorded (arete.export, arete.jit, arete.onnx) both run, and the
    program chooses: they give trees of tensors of the same dtypes and shapes.

    >>> arete.cond(arete.tensor(False), lambda x: x + 1, lambda x: x - 1, (arete.ones(2),))
    tensor([0., 0.])
    """
    if not callable(true_fn) or not callable(false_fn):
        raise RuntimeError("cond(): true_fn and false_fn are functions")
    if not isinstance(operands, (tuple, list)):
        raise RuntimeError(f"cond(): operands are a tuple or a list, not {type(operands).__name__}")
    if isinstance(pred, Tensor) and _C._is_recording_program():
        return _recorded(pred, true_fn, false_fn, operands)
    return (true_fn if truth_of(pred, "cond(): pred is") else false_fn)(*operands)
