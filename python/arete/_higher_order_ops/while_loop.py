"""A function again and again, as long as another says so."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import Tensor
from ..utils import _pytree
from .cond import Results, truth_of

__all__ = ["while_loop"]


def _recorded(cond_fn: Callable, body_fn: Callable, first: list, results: Results) -> tuple:
    def condition(tensors: list) -> Tensor:
        found = cond_fn(*results.tree_of(tensors))
        if not isinstance(found, Tensor):
            raise RuntimeError("while_loop(): cond_fn gives a tensor of one bool while a program is recorded, not "
                               f"{type(found).__name__}")
        return found

    def body(tensors: list) -> list:
        found = body_fn(*results.tree_of(tensors))
        return results.tensors_of(tuple(found) if isinstance(found, (tuple, list)) else (found,))

    return results.tree_of(_C._while_loop(condition, body, first))


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: "tuple | list", additional_inputs: "tuple | list" = ()) -> tuple:
    """carried_inputs = body_fn(*carried_inputs) as long as cond_fn(*carried_inputs), a tensor of one bool, is true: what is carried at the
    end. Gradients go through all rounds. While a program is recorded (arete.export, arete.jit, arete.onnx) both functions run once, and the
    program loops: what is carried are tensors that keep their dtypes and shapes; a loop that carries numbers is written round by round.
    Both functions get `additional_inputs`, the same ones in each round, behind what is carried.

    >>> arete._higher_order_ops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (arete.tensor(0), arete.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop(): carried_inputs are a tuple or a list, not {type(carried_inputs).__name__}")
    if additional_inputs:
        more = tuple(additional_inputs)
        return while_loop(lambda *carried: cond_fn(*carried, *more), lambda *carried: body_fn(*carried, *more), carried_inputs)
    carried = tuple(carried_inputs)
    if _C._is_recording_program():
        results = Results("while_loop(): body_fn gives as it gets")
        first = results.tensors_of(carried)
        if len(first) == len(_pytree.tree_leaves(carried)):
            return _recorded(cond_fn, body_fn, first, results)
    while truth_of(cond_fn(*carried), "while_loop(): cond_fn gives"):
        found = body_fn(*carried)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(carried):
            raise RuntimeError(f"while_loop(): body_fn gives as many values as are carried, {len(carried)}, not {len(found)}")
        carried = found
    return carried
