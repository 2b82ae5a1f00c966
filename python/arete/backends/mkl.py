"""Intel's MKL, which is not used: products are oneDNN's and OpenBLAS's."""
from __future__ import annotations


def is_available() -> bool:
    return False
