"""Outputs of processes by their names, and the signal that ended a launcher."""
from __future__ import annotations

import enum
import signal
from typing import Any, Union

from ...._refused import refused

__all__ = ["DefaultLogsSpecs", "LogsDest", "LogsSpecs", "MultiprocessContext", "PContext", "RunProcsResult", "SignalException", "Std",
           "SubprocessContext", "start_processes", "to_map"]


class SignalException(Exception):
    """A launcher was ended by the signal `sigval`."""

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


class Std(enum.IntFlag):
    """Which outputs of a process go to files: none, the first, the second or both.

    >>> arete.distributed.elastic.multiprocessing.Std.from_str("0:1,1:3")[1] == arete.distributed.elastic.multiprocessing.Std.ALL
    True
    """

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Union["Std", dict[int, "Std"]]:
        """Of a number, for all processes, or of "rank:number,rank:number"."""
        def one(text: str) -> Std:
            if text.strip() not in ("0", "1", "2", "3"):
                raise ValueError(f"{vm} is no outputs: expected 0, 1, 2 or 3, or rank:number, rank:number")
            return cls(int(text))

        if ":" not in vm:
            return one(vm)
        found = {}
        for part in vm.split(","):
            rank, _, number = part.partition(":")
            if not rank.strip().isdigit():
                raise ValueError(f"{vm} is no outputs: '{part}' should be rank:number")
            found[int(rank)] = one(number)
        return found


def to_map(val_or_map: Union[Std, dict[int, Std]], local_world_size: int) -> dict[int, Std]:
    """One value for each process, NONE where a dict has none.

    >>> arete.distributed.elastic.multiprocessing.to_map({1: arete.distributed.elastic.multiprocessing.Std.OUT}, 2)
    {0: <Std.NONE: 0>, 1: <Std.OUT: 1>}
    """
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {i: val_or_map.get(i, Std.NONE) for i in range(local_world_size)}


globals().update(refused(
    "arete.distributed.elastic.multiprocessing.api",
    "distributed.launcher.elastic_launch starts functions, and `arete run`, which has --log-dir, --redirects and --tee, programs",
    "DefaultLogsSpecs", "LogsDest", "LogsSpecs", "MultiprocessContext", "PContext", "RunProcsResult", "SubprocessContext",
    "start_processes"))
