"""A function again and again, as long as another says so."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cond import truth_of

__all__ = ["while_loop"]


def while_loop(cond_fn: Callable, body_fn: Callable, carried_inputs: "tuple | list") -> tuple:
    """carried_inputs = body_fn(*carried_inputs) as long as cond_fn(*carried_inputs), a tensor of one bool, is true: what is carried at the
    end. Gradients go through all rounds.

    >>> arete._higher_order_ops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (arete.tensor(0), arete.ones(2)))
    (tensor(3), tensor([8., 8.]))
    """
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop(): carried_inputs are a tuple or a list, not {type(carried_inputs).__name__}")
    carried = tuple(carried_inputs)
    while truth_of(cond_fn(*carried), "while_loop(): cond_fn gives"):
        found = body_fn(*carried)
        found = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(carried):
            raise RuntimeError(f"while_loop(): body_fn gives as many values as are carried, {len(carried)}, not {len(found)}")
        carried = found
    return carried
