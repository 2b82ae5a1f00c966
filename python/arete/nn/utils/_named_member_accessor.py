"""Tensors of a module that take each other's place by name, whatever they are: parameters, buffers or other attributes."""
from __future__ import annotations

from typing import Any

from ..._C import Tensor

__all__: list[str] = []

_MISSING: Any = object()  # in place of a tensor: there is none


def _checked(module: Any, name: str, tensor: Any) -> None:
    from ..modules.module import Module

    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of arete.nn.Module")
    if tensor is not None and tensor is not _MISSING and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of arete.Tensor")
    if not name or "." in name:
        raise KeyError("tensor name can't be empty string \"\"" if not name else "tensor name can't contain \".\"")


def set_tensor(module: Any, name: str, tensor: Any) -> None:
    """Puts a tensor in the place of the module's own parameter, buffer or attribute of that name: no Parameter is made of it, and nothing
    is registered. TypeError and KeyError for what is no module, tensor or name of one of the module's own.

    >>> from arete.nn.utils._named_member_accessor import set_tensor
    >>> net = nn.Linear(2, 1, bias=False)
    >>> set_tensor(net, "weight", arete.ones(1, 2))
    >>> net(arete.ones(2))
    tensor([2.])
    """
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Any, name: str, tensor: Any, allow_missing: bool = False) -> Any:
    """set_tensor() that gives the tensor which was there; AttributeError where none was, unless `allow_missing`.

    >>> from arete.nn.utils._named_member_accessor import swap_tensor
    >>> net = nn.Linear(2, 1)
    >>> weight = swap_tensor(net, "weight", arete.ones(1, 2))
    >>> swap_tensor(net, "weight", weight)
    tensor([[1., 1.]])
    """
    _checked(module, name, tensor)
    for registry in (module._parameters, module._buffers):
        if name in registry:
            before = registry[name]
            if tensor is _MISSING:
                del registry[name]
            else:
                registry[name] = tensor
            return before
    before = getattr(module, name, _MISSING)
    if before is _MISSING and not allow_missing:
        raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
    if before is not _MISSING and before is not None and not isinstance(before, Tensor):
        raise TypeError(f"attribute `{name}`: {before} is not an instance of arete.Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif before is not _MISSING:
        delattr(module, name)
    return before
