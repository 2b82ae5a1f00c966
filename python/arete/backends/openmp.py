"""OpenMP, which is not used: the library has threads of its own."""
from __future__ import annotations


def is_available() -> bool:
    return False
