"""See `rpc`."""
from __future__ import annotations

import functools
from typing import Any, Callable

REASON = "there are no remote calls; groups of processes exchange tensors and objects (broadcast_object_list, send_object_list)"


def _is_current_rpc_agent_set() -> bool:
    return False


def _require_initialized(func: Callable) -> Callable:
    """A function that says that there are no remote calls."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{func.__name__}: {REASON}")

    return wrapped
