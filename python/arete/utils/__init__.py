"""Helpers around training: data loading, checkpointing of activations, DLPack, TensorBoard files.

The submodules are loaded when they are first named (`arete.utils.data`, `arete.utils.checkpoint`, ...).
"""
from __future__ import annotations

import importlib
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


def __dir__() -> list:
    return sorted([*globals(), *_SUBMODULES, "GPUMemoryTracker"])
