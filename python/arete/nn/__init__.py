"""Networks: modules, layers, losses, their functions and initial values."""

from . import attention, functional, init, modules, parameter, utils
from .modules import *
from .modules import __all__ as _layers
from .parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    *_layers,
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "attention",
    "functional",
    "init",
    "modules",
    "parameter",
    "utils",
]
