"""Classes that say what operators do with them, by torch's protocol __torch_function__.

Operators and the methods of tensors ask it; functions that are made of several operators do so in each of these.
"""
from __future__ import annotations

from ._C import Tensor
from ._operators import (
    _TorchFunctionMode as TorchFunctionMode, _get_default_nowrap_functions as get_default_nowrap_functions,
    _handle_torch_function as handle_torch_function,
    _overloaded_arguments as _overloaded,
)

__all__ = ["TorchFunctionMode", "get_default_nowrap_functions", "handle_torch_function", "has_torch_function", "is_tensor_like"]


def has_torch_function(relevant_args) -> bool:
    """Whether one of these wants to be asked.

    >>> arete.overrides.has_torch_function((arete.ones(1), arete.nn.Parameter(arete.ones(1))))
    False
    """
    return bool(_overloaded(relevant_args))


def is_tensor_like(inp) -> bool:
    """Whether it is a tensor or has __torch_function__.

    >>> arete.overrides.is_tensor_like(arete.ones(1)), arete.overrides.is_tensor_like(1.0)
    (True, False)
    """
    return isinstance(inp, Tensor) or hasattr(inp, "__torch_function__")
