"""Which Arete this is, and for which CUDA: `__version__` and `cuda` (None where no GPU can be used).

>>> arete.version.__version__ == arete.__version__
True
"""
from __future__ import annotations

from typing import Any, Optional

from . import __version__  # noqa: F401

__all__ = ["__version__", "debug", "cuda", "hip", "xpu", "git_version"]

debug: bool = False
hip: Optional[str] = None
xpu: Optional[str] = None
git_version: str = "Unknown"


def __getattr__(name: str) -> Any:
    if name == "cuda":  # asked for when it is wanted, since that loads the driver
        from . import _C

        return dict(_C._cuda.versions()).get("built with", "").removeprefix("CUDA ") or None
    raise AttributeError(f"module 'arete.version' has no attribute '{name}'")
