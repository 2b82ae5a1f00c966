"""GPUs of another maker, for programs that ask for them: there are none here.

>>> arete.xpu.is_available(), arete.xpu.device_count(), arete.xpu.memory_allocated()
(False, 0, 0)
"""
from __future__ import annotations

from ._absent_device import questions as _questions

globals().update(_questions(__name__, "xpu"))
