"""OpenMP, whose threads the loops of CPUs run on unless the library was built with ARETE_THREADS_STD."""
from __future__ import annotations

from .. import _C


def is_available() -> bool:
    return _C._threads_are_openmp()
