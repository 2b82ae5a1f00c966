"""What libraries ask about tensors without values while a program is traced: there are none, programs are recorded as they run."""
from __future__ import annotations

__all__ = ["active_fake_mode"]


def active_fake_mode() -> None:
    """None: no mode makes tensors without values; those of the device meta have none.

    >>> arete._guards.active_fake_mode() is None
    True
    """
