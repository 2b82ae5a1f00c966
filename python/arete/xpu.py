"""GPUs of another maker, for programs that ask for them: there are none here.

>>> arete.xpu.is_available(), arete.xpu.device_count()
(False, 0)
"""
from __future__ import annotations


def is_available() -> bool:
    return False


def device_count() -> int:
    return 0
