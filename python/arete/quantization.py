"""The older name of arete.ao.quantization, which refuses."""
from __future__ import annotations

from .ao.quantization import *  # noqa: F403
