"""Makes `import arete` work in the tests.

The built package is used where it exists: this tree's `python/arete` with its extension, or the one that ARETE_PYTHON names. Without an
extension PyTorch stands in for it: `arete` is then a module which takes its names from torch, while the submodules that are
written in Python come from this tree.
"""
from __future__ import annotations

import importlib
import os
import sys
import types
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "arete"


def _has_extension(folder: Path) -> bool:
    return (folder / "__init__.py").exists() and any(folder.glob("_C*.so"))


def _use_built(folder: Path) -> None:
    sys.path.insert(0, str(folder.parent))
    arete = importlib.import_module("arete")
    if folder != SOURCE and str(SOURCE) not in arete.__path__:
        arete.__path__.append(str(SOURCE))


def _use_torch() -> None:
    import torch

    class StandIn(types.ModuleType):
        def __getattr__(self, name: str):
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(torch, name)

    arete = StandIn("arete")
    arete.__path__ = [str(SOURCE)]
    arete.STAND_IN = True
    sys.modules["arete"] = arete
    for name in ("nn", "autograd", "cuda", "distributed"):
        if not (SOURCE / name).exists():
            sys.modules["arete." + name] = getattr(torch, name)


_built = Path(os.environ.get("ARETE_PYTHON", SOURCE.parent)) / "arete"
if "arete" not in sys.modules:
    if _has_extension(_built):
        _use_built(_built)
    else:
        _use_torch()
