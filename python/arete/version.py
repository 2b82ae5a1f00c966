"""Which Arete this is, and for which CUDA: `__version__` and `cuda` (None where no GPU can be used).

>>> arete.version.__version__ == arete.__version__
True
"""
from __future__ import annotations

from . import _C

__all__ = ["__version__", "debug", "cuda", "hip", "xpu", "git_version"]

__version__ = "0.1.0"
debug: bool = False
hip: str | None = None
xpu: str | None = None
git_version: str = "Unknown"


def __getattr__(name: str) -> str | None:
    if name == "cuda":  # asked for when it is wanted, since that loads the driver
        return dict(_C._cuda.versions()).get("built with", "").removeprefix("CUDA ") or None
    raise AttributeError(f"module 'arete.version' has no attribute '{name}'")
