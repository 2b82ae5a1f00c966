"""skip_init: modules whose weights are not set."""

from __future__ import annotations

import inspect
from typing import Any, Type

from ..modules.module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: Type, *args: Any, **kwargs: Any) -> Any:
    """A module made without setting its weights, on the device `device` (cpu by default).

    >>> nn.utils.skip_init(nn.Linear, 3, 4)
    Linear(in_features=3, out_features=4, bias=True)
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    kwargs["device"] = "meta"
    return module_cls(*args, **kwargs).to_empty(device=device)
