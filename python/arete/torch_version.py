"""Versions that are texts and can be compared with versions, texts and tuples of numbers."""
from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]


def _key(version: Any) -> tuple:
    """What orders versions: the numbers without zeros at their end, and "before the release" below "the release"."""
    text = ".".join(map(str, version)) if isinstance(version, (tuple, list)) else str(version)
    found = re.fullmatch(r"v?(\d+(?:\.\d+)*)[-_.]?(?:(a|alpha|b|beta|c|rc|pre|preview|dev)[-_.]?(\d*))?"
                         r"(?:\.?post(\d+))?(?:\.dev\d+)?(?:\+.*)?", text.strip().lower())
    if found is None:
        raise ValueError(f"'{text}' is no version")
    numbers = [int(n) for n in found[1].split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    order = {None: 4, "dev": 0, "a": 1, "b": 2, "c": 3, "r": 3, "p": 3}[found[2] if found[2] in (None, "dev") else found[2][0]]
    return numbers, order, int(found[3] or 0), int(found[4] or 0)


class TorchVersion(str):
    """A version as a text.

    >>> version = arete.torch_version.TorchVersion("2.11.0")
    >>> version >= (2, 9), version > "2.11", version == "2.11.0", version.startswith("2.")
    (True, False, True, True)
    """

    def __lt__(self, other: Any) -> bool:
        return _key(self) < _key(other)

    def __le__(self, other: Any) -> bool:
        return _key(self) <= _key(other)

    def __gt__(self, other: Any) -> bool:
        return _key(self) > _key(other)

    def __ge__(self, other: Any) -> bool:
        return _key(self) >= _key(other)

    def __eq__(self, other: Any) -> bool:
        try:
            return _key(self) == _key(other)
        except ValueError:
            return str.__eq__(self, other) is True

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = str.__hash__
