"""The names of old: arete.amp for CPUs."""
from __future__ import annotations

from typing import Any

from ... import _C, amp


class autocast(amp.autocast):
    """amp.autocast("cpu", ...)."""

    def __init__(self, enabled: bool = True, dtype: Any = _C.bfloat16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)


class GradScaler(amp.GradScaler):
    """amp.GradScaler("cpu", ...)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)
