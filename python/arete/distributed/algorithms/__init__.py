"""What processes do together beyond single calls: communication hooks and joins."""
from . import ddp_comm_hooks, join, model_averaging  # noqa: F401
from .join import Join, Joinable, JoinHook

__all__ = ["Join", "Joinable", "JoinHook", "ddp_comm_hooks", "join", "model_averaging"]
