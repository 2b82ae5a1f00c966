"""Quantised layers: there are none."""
from __future__ import annotations

from . import quantized as quantized
