"""Modules that keep no activations for the pass backward, by the name of torch's module."""
from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("arete.distributed.fsdp.activation_wrappers"), name)
