"""Calls of several networks at a time."""
from __future__ import annotations

import threading
from typing import Any, Optional, Sequence

from ... import _C
from ..._C import Tensor
from ..modules import Module
from .scatter_gather import device_of

__all__ = ["parallel_apply"]

_KINDS = ("cpu", "cuda")


def _first_tensor(value: Any) -> Optional[Tensor]:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (list, tuple, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            if (found := _first_tensor(one)) is not None:
                return found
    return None


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Optional[Sequence[dict]] = None,
                   devices: Optional[Sequence[Any]] = None) -> list:
    """What each module gives for its inputs (a tuple, or the only one), each in a thread of its own with the caller's modes: whether
    gradients are recorded, autocast. A module's device is current there, with the caller's stream. Raises the first error.

    >>> nn.parallel.parallel_apply([nn.ReLU(), nn.Tanh()], [arete.tensor([-1.0]), arete.zeros(1)])
    [tensor([0.]), tensor([0.])]
    """
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    named = kwargs_tup if kwargs_tup is not None else [{}] * len(modules)
    if len(named) != len(modules) or devices is not None and len(devices) != len(modules):
        raise AssertionError("there must be arguments by name and a device for each module")
    where = [None if d is None else device_of(d) for d in (devices if devices is not None else [None] * len(modules))]
    for i, (given, more) in enumerate(zip(inputs, named)):
        if where[i] is None and (tensor := _first_tensor((given, more))) is not None:
            where[i] = tensor.device
    streams = [_C._cuda.current_stream(d.index or 0) if d is not None and d.type == "cuda" else None for d in where]
    grad, cache = _C.is_grad_enabled(), _C._autocast_cache(None)
    autocast = [(kind, _C._is_autocast_enabled(kind), _C._autocast_dtype(kind)) for kind in _KINDS]
    results: list[Any] = [None] * len(modules)

    def run(i: int) -> Any:
        given = inputs[i] if isinstance(inputs[i], (list, tuple)) else (inputs[i],)
        return modules[i](*given, **named[i])

    def call(i: int) -> None:
        try:
            _C._set_grad_enabled(grad)
            for kind, enabled, dtype in autocast:
                _C._set_autocast(kind, enabled, dtype, cache)
            if streams[i] is not None:
                _C._cuda.set_device(where[i].index or 0)
                _C._cuda.set_stream(streams[i])
            results[i] = (run(i), None)
        except BaseException as error:
            results[i] = (None, error)

    if len(modules) == 1:
        return [run(0)]
    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(modules))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, (_, error) in enumerate(results):
        if error is not None:
            if hasattr(error, "add_note"):
                error.add_note(f"in replica {i} on device {where[i]}")
            raise error
    return [result for result, _ in results]
