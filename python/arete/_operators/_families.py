"""Modules made of the records with a prefix: arete.linalg, arete.fft, arete.special."""
from __future__ import annotations

from .. import _C


def install(prefix: str, namespace: dict) -> list[str]:
    """Puts every operator `prefix_name` into a module, and the second names with it, as `name`."""
    names = []
    for operator in [*(n for n, in_place, _, _ in _C._operators() if not in_place), *_C._aliases()]:
        if operator.startswith(prefix + "_"):
            name = operator[len(prefix) + 1 :]
            namespace.setdefault(name, _C.Operator(operator))
            names.append(name)
    return names
