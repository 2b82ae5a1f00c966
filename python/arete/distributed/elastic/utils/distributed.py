"""Ports and stores of launchers."""
from __future__ import annotations

import datetime
from typing import Any, Optional

from ...distributed_c10d import TCPStore
from .api import get_socket_with_port

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def get_free_port() -> int:
    """A port of this machine that nobody listened on just now.

    >>> 0 < arete.distributed.elastic.utils.distributed.get_free_port() < 65536
    True
    """
    with get_socket_with_port() as found:
        return found.getsockname()[1]


def create_c10d_store(is_server: bool, server_addr: str, server_port: int = -1, world_size: int = 1, timeout: float = 600,
                      wait_for_workers: bool = True, retries: int = 3, use_libuv: Optional[bool] = None) -> Any:
    """A TCPStore, on a free port where the server is given none. A port that is taken is tried `retries` times, where it was not asked
    for. `use_libuv` chooses nothing: there is one server."""
    if server_port == -1 and (world_size > 1 or not is_server):
        raise ValueError(f"create_c10d_store: server_port must be named where others are to find it, got -1 for world_size={world_size}")
    for attempt in range(max(1, retries)):
        port = get_free_port() if server_port == -1 else server_port
        try:
            return TCPStore(server_addr, port, world_size, is_server, timeout=datetime.timedelta(seconds=timeout),
                            wait_for_workers=wait_for_workers)
        except RuntimeError:
            if server_port != -1 or attempt + 1 == max(1, retries):
                raise
    raise AssertionError("not reached")
