"""Questions that libraries ask."""
from __future__ import annotations

from typing import Any

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether arete.compile() works on a kind of device.

    >>> arete._dynamo.utils.is_compile_supported("cpu")
    True
    """
    return str(device_type) in ("cpu", "cuda")
