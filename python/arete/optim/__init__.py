"""Optimizers. Those here are the C++ ones: one pass over memory for all parameters of a group. Optimizer is the base for those
written in Python."""
from __future__ import annotations

from .optimizer import Optimizer  # noqa: F401
from .native import ASGD, SGD, Adadelta, Adafactor, Adagrad, Adam, Adamax, AdamW, Lion, Muon, NAdam, RAdam, RMSprop, Rprop  # noqa: F401
from .native import SparseAdam  # noqa: F401
from .lbfgs import LBFGS  # noqa: F401


def __getattr__(name: str):
    if name in ("lr_scheduler", "swa_utils"):
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module 'arete.optim' has no attribute '{name}'")
