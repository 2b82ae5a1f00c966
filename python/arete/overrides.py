"""Classes that say what operators do with them, by torch's protocol __torch_function__.

Operators and the methods of tensors ask it; functions that are made of several operators do so in each of these.
"""
from __future__ import annotations

import importlib
from collections import defaultdict
from typing import Any, Callable

from . import _C
from ._C import Tensor
from ._operators import (
    _TorchFunctionMode as TorchFunctionMode, _get_default_nowrap_functions as get_default_nowrap_functions,
    _handle_torch_function as handle_torch_function,
    _overloaded_arguments as _overloaded, _asking_members,
)

_TENSOR = f"{Tensor.__module__}.{Tensor.__qualname__}"

__all__ = ["TorchFunctionMode", "get_default_nowrap_functions", "get_overridable_functions", "handle_torch_function", "has_torch_function",
           "is_tensor_like", "is_tensor_method_or_property", "resolve_name"]


def _places() -> dict[str, Any]:
    """Where functions of tensors are: modules that lie above this one, too."""
    package = __name__.rpartition(".")[0]
    names = [package, *(f"{package}.{name}" for name in ("nn.functional", "linalg", "fft", "special"))]
    return {name: importlib.import_module(name) for name in names}


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """The functions that ask __torch_function__, by the module that they are in, and the methods and attributes of Tensor. Functions that
    are made of several operators ask in each of these and are not here.

    >>> arete.add in arete.overrides.get_overridable_functions()[arete]
    True
    >>> arete.Tensor.add in arete.overrides.get_overridable_functions()[arete.Tensor]
    True
    """
    found: dict[Any, list[Callable]] = defaultdict(list)
    for module in _places().values():
        found[module] = [f for name, f in vars(module).items() if isinstance(f, _C.Operator) and not name.startswith("_")]
    for name in _asking_members():
        member = vars(Tensor).get(name)
        if member is not None:
            found[Tensor].append(member if callable(member) else member.__get__)
    return found


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether a function that __torch_function__ is given is of Tensor.

    >>> arete.overrides.is_tensor_method_or_property(arete.Tensor.add), arete.overrides.is_tensor_method_or_property(arete.nn.Linear)
    (True, False)
    """
    return func in get_overridable_functions()[Tensor] or getattr(func, "__name__", None) == "__get__"


def resolve_name(f: Callable) -> str | None:
    """Where such a function is; None of what asks nobody.

    >>> arete.overrides.resolve_name(arete.Tensor.shape.__get__)
    'arete.Tensor.shape.__get__'
    """
    for place, module in _places().items():
        name = getattr(f, "__name__", None)
        if isinstance(f, _C.Operator) and vars(module).get(name) is f:
            return f"{place}.{name}"
    for name in _asking_members():
        member = vars(Tensor).get(name)
        if member is f:
            return f"{_TENSOR}.{name}"
        if member is not None and not callable(member) and member.__get__ == f:
            return f"{_TENSOR}.{name}.__get__"
    return None


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
