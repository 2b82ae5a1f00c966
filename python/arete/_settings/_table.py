"""What a setting may be."""
from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any


class Done:
    """A setting that something here does: its default, and what values it takes."""

    def __init__(self, default: Any, takes: Callable[[Any], bool], told: str) -> None:
        self.default, self.takes, self.told = default, takes, told


class Table:
    """The settings of one module by their names, with torch's defaults.

    met: what any of their values asks for holds anyway, or is `Done` here.
    only: (default, the values taken, why no other is).
    hints: to another compiler. A value that is not the default is answered by one warning that nothing follows from it.
    """

    def __init__(self, met: dict[str, Any], only: dict[str, tuple], hints: dict[str, Any]) -> None:
        self._done = {name: value for name, value in met.items() if isinstance(value, Done)}
        self._only, self._hints = only, hints
        self._warned: set[str] = set()
        self.defaults = {**met, **{name: value.default for name, value in self._done.items()},
                         **{name: value[0] for name, value in only.items()}, **hints}

    def check(self, whose: str, name: str, value: Any) -> None:
        """AttributeError for a name that does not exist, ValueError for a value that is not taken; warns of hints."""
        told = f"{whose}{name}"
        if name not in self.defaults:
            raise AttributeError(f"{told} does not exist")
        done = self._done.get(name)
        if done is not None and not done.takes(value):
            raise ValueError(f"{told} is {done.told}, not {value!r}")
        if name in self._only and value not in self._only[name][1]:
            raise ValueError(f"{told} = {value!r}: {self._only[name][2]}")
        if name in self._hints and value != self._hints[name] and name not in self._warned:
            self._warned.add(name)
            warnings.warn(f"{told} = {value!r} speaks of PyTorch's compiler and changes nothing here (docs/compile.md)", stacklevel=4)


def is_part(value: Any) -> bool:
    """Whether a number is from 0 to 1."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def is_truth(value: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(value, bool)
