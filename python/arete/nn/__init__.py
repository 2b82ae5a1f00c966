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
    if name not in ("parallel", "DataParallel"):
        raise AttributeError(f"module 'arete.nn' has no attribute '{name}'")
    # Few programs work on several devices.
    import importlib

    parallel = importlib.import_module(f"{__name__}.parallel")
    return parallel if name == "parallel" else parallel.DataParallel
