"""Divides inputs among devices, and puts outputs together. Gradients flow through both."""
from __future__ import annotations

import warnings
from typing import Any, Callable, Sequence

from ... import _C, _operators
from ..._C import Tensor

__all__ = ["scatter", "scatter_kwargs", "gather"]


def device_of(target: Any) -> Any:
    """A device from its number, its name or itself."""
    return _C.device("cuda", target) if isinstance(target, int) else _C.device(target)


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _map(value: Any, f: Callable[[Tensor], Any]) -> Any:
    """The same containers with f(tensor) in the place of each tensor."""
    if isinstance(value, Tensor):
        return f(value)
    if _is_namedtuple(value):
        return type(value)(*(_map(v, f) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_map(v, f) for v in value)
    if isinstance(value, dict):
        return type(value)((k, _map(v, f)) for k, v in value.items())
    return value


def to_device(value: Any, device: Any) -> Any:
    """Containers of tensors, on a device."""
    return _map(value, lambda t: t.to(device, non_blocking=True))


def to_dtype(value: Any, dtype: Any) -> Any:
    """Containers of tensors, of which the floating ones have that dtype."""
    return _map(value, lambda t: t.to(dtype) if t.is_floating_point() else t)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """For each device its part of the tensors, cut along a dimension; what is no tensor goes to all of them.

    >>> nn.parallel.scatter_gather.scatter(arete.arange(3), ["cpu", "cpu"])
    (tensor([0, 1]), tensor([2]))
    """
    devices = [device_of(d) for d in target_gpus]

    def parts(value: Any) -> Any:
        if isinstance(value, Tensor):
            return tuple(part.to(d, non_blocking=True) for part, d in zip(value.chunk(len(devices), dim), devices))
        if _is_namedtuple(value):
            return [type(value)(*items) for items in zip(*map(parts, value))]
        if isinstance(value, tuple) and len(value) > 0:
            return list(zip(*map(parts, value)))
        if isinstance(value, list) and len(value) > 0:
            return [list(items) for items in zip(*map(parts, value))]
        if isinstance(value, dict) and len(value) > 0:
            return [type(value)(items) for items in zip(*map(parts, value.items()))]
        return [value for _ in devices]

    return parts(inputs)


def scatter_kwargs(inputs: tuple, kwargs: Any, target_gpus: Sequence[Any], dim: int = 0) -> tuple:
    """The same for positional arguments and those by name, for as many devices as all tensors have parts for."""
    scattered = list(scatter(inputs, target_gpus, dim)) if inputs else None
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else None
    if scattered is None:
        scattered = [()] * len(named or ())
    if named is None:
        named = [{} for _ in scattered]
    parts = min(len(scattered), len(named))
    return tuple(scattered[:parts]), tuple(named[:parts])


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The outputs of several devices as one, on one of them (-1 for the CPU): tensors one after the other, numbers as a vector.

    >>> nn.parallel.gather([arete.ones(1), arete.zeros(2)], "cpu")
    tensor([1., 0., 0.])
    """
    target = _C.device("cpu") if target_device == -1 else device_of(target_device)

    def together(values: Any) -> Any:
        first = values[0]
        if isinstance(first, Tensor):
            if dim == 0 and all(t.dim() == 0 for t in values):
                warnings.warn("Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze and "
                              "return a vector.", stacklevel=4)
                values = [t.reshape(1) for t in values]
            return _operators.cat([t.to(target, non_blocking=target.type != "cpu") for t in values], dim)
        if first is None:
            return None
        if isinstance(first, dict):
            if any(len(first) != len(v) for v in values):
                raise ValueError("All dicts must have the same number of keys")
            return type(first)((k, together([v[k] for v in values])) for k in first)
        if _is_namedtuple(first):
            return type(first)._make(map(together, zip(*values)))
        return type(first)(map(together, zip(*values)))

    return together(list(outputs))
