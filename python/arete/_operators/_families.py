"""Modules made of the records with a prefix: arete.linalg, arete.fft, arete.special."""
from __future__ import annotations

from .. import _C
from ._signatures import SIGNATURES


def install(prefix: str, namespace: dict) -> list[str]:
    """Puts every record `prefix_name` into a module, and the second names with it, as `name`."""
    names = []
    for record, surface in _C._record_surfaces().items():
        if record.startswith(prefix + "_") and surface != "internal":
            name = record[len(prefix) + 1 :]
            if name not in namespace:
                namespace[name] = _C.Operator(record, SIGNATURES.get(record, [(record, None)]))
            names.append(name)
    for alias, record in _C._aliases().items():
        name = alias[len(prefix) + 1 :]
        if alias.startswith(prefix + "_") and name not in namespace:
            namespace[name] = _C.Operator(alias, SIGNATURES.get(record, [(record, None)]))
            names.append(name)
    return names
