"""Calls of functions in other processes are not there: is_available() is False, and the names say so where they are used."""
from __future__ import annotations

from ..._refused import refused
from . import api as api

__all__ = ["BackendType", "PyRRef", "RRef", "RemoteException", "TensorPipeAgent", "TensorPipeRpcBackendOptions", "WorkerInfo",
           "get_worker_info", "init_rpc", "is_available", "remote", "rpc_async", "rpc_sync", "shutdown"]


def is_available() -> bool:
    """False.

    >>> arete.distributed.rpc.is_available()
    False
    """
    return False


globals().update(refused("arete.distributed.rpc", api.REASON, *(name for name in __all__ if name != "is_available")))
