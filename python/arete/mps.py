"""GPUs of another maker: there are none here.

>>> arete.mps.is_available(), arete.mps.device_count(), arete.mps.current_allocated_memory()
(False, 0, 0)
"""
from __future__ import annotations

from ._absent_device import questions as _questions

globals().update(_questions(__name__, "mps"))
