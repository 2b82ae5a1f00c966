"""Kernels of source."""
from __future__ import annotations

from .._kernels import SourceModule

__all__ = ["SourceModule"]
