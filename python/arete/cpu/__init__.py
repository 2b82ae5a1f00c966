"""The CPU under the names that arete.cuda has for GPUs, for programs that ask whichever device they run on."""
from __future__ import annotations

from . import amp  # noqa: F401


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device) -> None:
    """There is one only."""


def synchronize(device=None) -> None:
    """Nothing to wait for: operators on the CPU return when they are done."""
