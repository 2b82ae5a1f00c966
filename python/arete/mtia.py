"""Accelerators of another maker: there are none here.

>>> arete.mtia.is_available(), arete.mtia.device_count()
(False, 0)
"""
from __future__ import annotations

from ._absent_device import questions as _questions

globals().update(_questions(__name__, "mtia"))
