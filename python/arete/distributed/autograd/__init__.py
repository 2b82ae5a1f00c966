"""Passes backward through calls of functions in other processes are not there, as these are not: is_available() is False."""
from __future__ import annotations

from ..._refused import refused
from ..rpc import api, is_available

__all__ = ["backward", "context", "get_gradients", "is_available"]

globals().update(refused("arete.distributed.autograd", api.REASON, "backward", "context", "get_gradients"))
