"""Modules made of the records with a prefix: arete.linalg, arete.fft, arete.special."""
from __future__ import annotations

from . import _C


def install(prefix: str, namespace: dict, aliases: dict[str, str] | None = None) -> list[str]:
    """Puts every record `prefix_name` into a module as `name`; aliases map names to other records."""
    names = []
    for record in _C._record_names():
        if record.startswith(prefix + "_"):
            name = record[len(prefix) + 1 :]
            if name not in namespace:
                namespace[name] = _C.Operator(f"{prefix}_{name}", [(record, None)])
            names.append(name)
    for name, record in (aliases or {}).items():
        if name not in namespace:
            try:
                namespace[name] = _C.Operator(name, [(record, None)])
            except KeyError:
                continue
            names.append(name)
    return names
