"""Graphs run as plans."""
from __future__ import annotations

from typing import Any, Callable

from ..compiler import compile as _compile

__all__ = ["compile_fx"]


def compile_fx(model_: Any, example_inputs_: Any) -> Callable:
    """What backends of programs give a graph to in the end: arete.compile() of it.

    >>> from arete._inductor.compile_fx import compile_fx
    >>> arete.compile(lambda x: x + 1, backend=compile_fx)(arete.ones(1))
    tensor([2.])
    """
    return _compile(model_.forward)
