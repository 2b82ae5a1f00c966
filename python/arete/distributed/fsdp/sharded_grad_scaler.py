"""Scaling losses whose gradients are spread over processes."""
from __future__ import annotations

from typing import Any

from ...amp import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """As amp.GradScaler, in which processes that have parts of the same parameters agree in any case. `process_group` changes nothing: it
    is those processes.

    >>> arete.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler("cpu").get_scale()
    65536.0
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
                 growth_interval: int = 2000, enabled: bool = True, process_group: Any = None) -> None:
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
