"""Modules whose calls run as plans."""
from __future__ import annotations

from typing import Any

from ... import compiler
from .module import Module


class OptimizedModule(Module):
    """What arete.compile(module) gives: calls the module `_orig_mod` as a compiled function. Parameters, buffers, hooks and attributes
    are those of the module; names in the state dict begin with "_orig_mod.", as torch's do.
    """

    def __init__(self, module: Module, own: Any) -> None:
        super().__init__()
        self._orig_mod = module
        self.__dict__["_own"] = own

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", {}):
            self._orig_mod.training = mode

    # Hooks of this object run around it, those of the module inside.
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._own.run(self._orig_mod, args, kwargs)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def explain(self, format: str = "text", file: Any = None) -> "str | None":
        """What became of the calls so far, as "text", "json" or "html"; `file` is a path to write it to (docs/compile.md)."""
        return self._own.explain(format, file)

    def stats(self) -> dict:
        """How many calls, breaks, lists of primitive calls, plans and runs of plans there were."""
        return self._own.stats()

    def train(self, mode: bool = True) -> "OptimizedModule":
        self._orig_mod.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if name == "_orig_mod" or name in self.__dict__.get("_parameters", {}):
            return super().__getattr__(name)
        if "_orig_mod" in modules:
            return getattr(modules["_orig_mod"], name)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_orig_mod" in self.__dict__.get("_modules", {}) and name != "_orig_mod":
            setattr(self._orig_mod, name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


compiler._wrappers.append((Module, OptimizedModule))
