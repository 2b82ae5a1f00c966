"""How processes are bound to processors, under torch's names. `arete run --numa-binding` does it; elastic_launch() refuses it."""
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, Enum):
    """The values of `arete run --numa-binding`."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """What LaunchConfig(numa_options=) takes.

    >>> from arete.numa.binding import AffinityMode, NumaOptions
    >>> NumaOptions(AffinityMode.NODE).affinity_mode.value
    'node'
    """

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
