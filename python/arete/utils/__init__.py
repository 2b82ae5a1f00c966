"""Helpers around training: data loading, checkpointing of activations, DLPack, TensorBoard files.

The submodules are loaded when they are first named (`arete.utils.data`, `arete.utils.checkpoint`, ...).
"""
from __future__ import annotations

import importlib
import weakref
from typing import Any

_SUBMODULES = ("_pytree", "benchmark", "checkpoint", "collect_env", "cpp_extension", "data", "dlpack", "flop_counter", "hooks",
               "mobile_optimizer", "model_zoo",
               "tensorboard", "weak")


def __getattr__(name: str) -> Any:
    if name == "GPUMemoryTracker":
        return importlib.import_module("arete.cuda.memory").GPUMemoryTracker
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchanges two tensors: each object has the other's memory, class, attributes, gradient and hooks from now on. RuntimeError where
    something else holds one of them (a weak reference, a view, a recorded operator), since that would keep what the object showed.

    >>> a, b = arete.zeros(2), arete.ones(3)
    >>> arete.utils.swap_tensors(a, b)
    >>> a, b
    (tensor([1., 1., 1.]), tensor([0., 0.]))
    """
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
        if (count := t._use_count()) > 1:
            raise RuntimeError(f"Expected use_count of {name} to be 1 but got {count}: make sure you are not holding references to the "
                               "tensor in other places, such as views of it and graphs that need it")
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1._swap(t2)


def __dir__() -> list:
    return sorted([*globals(), *_SUBMODULES, "GPUMemoryTracker"])
