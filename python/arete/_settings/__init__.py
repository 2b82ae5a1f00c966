"""The settings of PyTorch's compilers that programs switch (torch._dynamo.config, torch._inductor.config, torch._functorch.config): a
table of each, and modules that hold their values."""
from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Any

from ._table import Table


class Settings(types.ModuleType):
    """A module of settings: they are read and written as attributes. Those of a part (`triton.unique_kernel_names`) are attributes of that
    part."""

    _table: Table

    def __getattr__(self, name: str) -> Any:
        if any(key.startswith(name + ".") for key in self.__dict__):
            return _Part(self, name)
        raise AttributeError(f"{self.__name__}.{name} does not exist")

    def __setattr__(self, name: str, value: Any) -> None:
        self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        if not name.startswith("__"):  # what the import of a module sets
            self._table.check(f"{self.__name__}.", name, value)
        self.__dict__[name] = value

    def get_config_copy(self) -> dict[str, Any]:
        """All settings, by their names."""
        return {name: self.__dict__[name] for name in self._table.defaults}

    def load_config(self, settings: dict[str, Any]) -> None:
        """Sets what get_config_copy() gave."""
        for name, value in settings.items():
            self._set(name, value)

    def patch(self, name: "str | dict[str, Any] | None" = None, value: Any = None, **more: Any) -> Any:
        """Settings that differ in a `with` block or a function: `patch("max_autotune", True)`, `patch({"triton.cudagraphs": True})` or
        `patch(max_autotune=True)`.

        >>> with arete._functorch.config.patch(activation_memory_budget=0.5):
        ...     arete._functorch.config.activation_memory_budget
        0.5
        """
        changes = {**({name: value} if isinstance(name, str) else name or {}), **more}

        @contextlib.contextmanager
        def changed() -> Iterator[None]:
            before = {key: self.__dict__[key] for key in changes if key in self.__dict__}
            try:
                self.load_config(changes)
                yield
            finally:
                self.__dict__.update(before)

        return changed()


class _Part:
    """The settings of a module that begin with a name."""

    def __init__(self, whole: Settings, name: str) -> None:
        self.__dict__.update(_whole=whole, _name=name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._whole.__dict__[f"{self._name}.{name}"]
        except KeyError:
            raise AttributeError(f"{self._whole.__name__}.{self._name}.{name} does not exist") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._whole._set(f"{self._name}.{name}", value)


def make(name: str, table: Table) -> None:
    """Makes the module `name` one of settings, with their defaults."""
    module = sys.modules[name]
    module.__dict__.update(table.defaults, _table=table)
    module.__class__ = Settings
