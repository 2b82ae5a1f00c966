"""Networks: modules, layers, losses, their functions and initial values."""

from . import attention, functional, init, modules, parameter, utils
from .modules import *
from .modules import __all__ as _layers
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    *_layers,
    "Buffer",
    "DataParallel",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "grad",
    "init",
    "modules",
    "parallel",
    "parameter",
    "utils",
]


def __getattr__(name: str):
    if name == "quantized":  # the older name
        from ..ao.nn import quantized

        return quantized
    if name not in ("grad", "parallel", "DataParallel"):
        raise AttributeError(f"module 'arete.nn' has no attribute '{name}'")
    # Few programs work on several devices, or have gradients of their own.
    import importlib

    module = importlib.import_module(f"{__name__}.{'grad' if name == 'grad' else 'parallel'}")
    return module.DataParallel if name == "DataParallel" else module
