"""Quantised models: there are none here, and no module is one. What makes them refuses."""
from __future__ import annotations

from . import nn as nn, quantization as quantization
