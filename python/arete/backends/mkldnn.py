"""oneDNN, of which the products and convolutions of CPUs are."""
from __future__ import annotations


def is_available() -> bool:
    return True
