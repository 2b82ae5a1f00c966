"""How much programs for many processes are to check of themselves: what the variable TORCH_DISTRIBUTED_DEBUG says."""
from __future__ import annotations

import enum
import os

__all__ = ["DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]


class DebugLevel(enum.Enum):
    """OFF, INFO or DETAIL. Arete's own checks do not depend on it: flight_record() and last_report() tell of calls that did not meet.

    >>> list(arete.distributed.DebugLevel.__members__)
    ['OFF', 'INFO', 'DETAIL']
    """

    OFF = 0
    INFO = 1
    DETAIL = 2


def _of_environment() -> DebugLevel:
    name = os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if name not in DebugLevel.__members__:
        raise ValueError(f"TORCH_DISTRIBUTED_DEBUG is OFF, INFO or DETAIL, not {name}")
    return DebugLevel[name]


_level = _of_environment() if os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() in DebugLevel.__members__ else DebugLevel.OFF


def get_debug_level() -> DebugLevel:
    """The level for programs that check more where it is not OFF.

    >>> arete.distributed.get_debug_level()
    <DebugLevel.OFF: 0>
    """
    return _level


def set_debug_level(level: DebugLevel) -> None:
    """Another level, for programs that ask for it.

    >>> arete.distributed.set_debug_level(arete.distributed.DebugLevel.OFF)
    """
    global _level
    _level = DebugLevel(level)


def set_debug_level_from_env() -> None:
    """The level of TORCH_DISTRIBUTED_DEBUG as it is now; ValueError for other words than OFF, INFO and DETAIL.

    >>> arete.distributed.set_debug_level_from_env()
    """
    set_debug_level(_of_environment())
