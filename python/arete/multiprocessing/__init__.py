"""Python's multiprocessing, in which tensors are not copied: memory that is sent to another process is moved to where both share
it, and stays shared. (A module of that name whose queues and processes know tensors; Python's own know them, too.)

>>> import arete.multiprocessing as mp
>>> receive, send = mp.Pipe(duplex=False)
>>> x = arete.zeros(2)
>>> send.send(x)
>>> receive.recv().fill_(7)
tensor([7., 7.])
>>> x
tensor([7., 7.])

Memory of GPUs is shared, too, by the driver's handles (cuIpcGetMemHandle): it stays until no process uses it. Where it cannot be, tensors
are sent by their values, with a warning that says why.
"""
from __future__ import annotations

import importlib
import multiprocessing
from multiprocessing import *  # noqa: F403

from .spawn import ProcessContext, ProcessExitedException, ProcessRaisedException, spawn, start_processes

__all__ = [*multiprocessing.__all__, "spawn", "start_processes", "ProcessContext", "ProcessRaisedException", "ProcessExitedException",
           "get_sharing_strategy", "set_sharing_strategy", "get_all_sharing_strategies"]


def get_all_sharing_strategies() -> set[str]:
    """{"file_descriptor"}: another process gets a descriptor of the memory, which goes when nobody has it any more.

    >>> arete.multiprocessing.get_all_sharing_strategies()
    {'file_descriptor'}
    """
    return {"file_descriptor"}


def get_sharing_strategy() -> str:
    """See get_all_sharing_strategies().

    >>> arete.multiprocessing.get_sharing_strategy()
    'file_descriptor'
    """
    return "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """There is one strategy to choose. NotImplementedError for torch's other one.

    >>> arete.multiprocessing.set_sharing_strategy("file_descriptor")
    """
    if new_strategy == "file_system":
        raise NotImplementedError("the sharing strategy 'file_system' is not supported: its files outlive programs that crash. Where "
                                  "there are too few descriptors for 'file_descriptor', `ulimit -n` allows more")
    if new_strategy != "file_descriptor":
        raise ValueError(f"there is no sharing strategy {new_strategy!r}, only 'file_descriptor'")


def __getattr__(name: str):
    if name == "reductions":  # which knows tensors, and what is here does not
        return importlib.import_module(f"{__name__}.reductions")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
