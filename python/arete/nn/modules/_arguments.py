"""Arguments of modules: the names of types in messages, and what `to` is called with."""

from __future__ import annotations

from typing import Any

from ... import _C
from ..._C import Tensor

def type_name(value: Any) -> str:
    """The name of a value's type as PyTorch's messages give it."""
    if isinstance(value, Tensor):
        return value.type()
    cls = type(value)
    return cls.__name__ if cls.__module__ in ("builtins", None) else f"{cls.__module__}.{cls.__name__}"


def parse_to(args: tuple, kwargs: dict) -> tuple:
    """(device, dtype, non_blocking, memory_format) of a call `to(...)`."""
    names = ("device", "dtype", "non_blocking", "copy", "memory_format", "tensor", "other")
    for name in kwargs:
        if name not in names:
            raise TypeError(f"to() received an invalid keyword argument '{name}'")
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    rest = list(args)
    tensor = kwargs.get("tensor", kwargs.get("other"))
    if rest and isinstance(rest[0], Tensor):
        tensor = rest.pop(0)
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    else:
        if rest and not isinstance(rest[0], (bool, _C.dtype)):
            device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], _C.dtype)):
            dtype = rest.pop(0)
    non_blocking = kwargs.get("non_blocking", False)
    if rest:
        non_blocking = rest.pop(0)
    if len(rest) > 1 or not isinstance(non_blocking, bool):
        raise TypeError("to() expects a device, a dtype or a tensor, and non_blocking")
    if device is not None and not isinstance(device, _C.device):
        device = _C.device(device)
    return device, dtype, non_blocking, kwargs.get("memory_format")
