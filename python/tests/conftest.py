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
        """A package whose submodules are this tree's, and whose other names are PyTorch's."""

        def __init__(self, name: str, behind: types.ModuleType, folder: Path) -> None:
            super().__init__(name)
            self.__dict__.update(_behind=behind, _folder=folder, __path__=[str(folder)])
            sys.modules[name] = self

        def __getattr__(self, name: str):
            if name.startswith("__"):
                raise AttributeError(name)
            if (self._folder / name / "__init__.py").exists() or (self._folder / f"{name}.py").exists():
                return importlib.import_module(f"{self.__name__}.{name}")
            return getattr(self._behind, name)

    arete = StandIn("arete", torch, SOURCE)
    arete.STAND_IN = True
    if not (SOURCE / "optim" / "__init__.py").exists():
        arete.optim = StandIn("arete.optim", torch.optim, SOURCE / "optim")
    for name in ("nn", "autograd", "cuda", "distributed"):
        if not (SOURCE / name).exists() and not (SOURCE / f"{name}.py").exists():
            sys.modules["arete." + name] = getattr(torch, name)


_built = Path(os.environ.get("ARETE_PYTHON", SOURCE.parent)) / "arete"
if "arete" not in sys.modules:
    if _has_extension(_built):
        _use_built(_built)
    else:
        _use_torch()
