"""Ways of exchanging gradients, for DistributedDataParallel.register_comm_hook()."""
from __future__ import annotations

from enum import Enum
from typing import Any

from . import ddp_zero_hook, debugging_hooks, default_hooks, post_localSGD_hook, powerSGD_hook, quantization_hooks  # noqa: F401
from . import default_hooks as default
from . import powerSGD_hook as powerSGD
from . import quantization_hooks as quantization

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(Enum):
    """The hooks that register_ddp_comm_hook() knows."""

    ALLREDUCE = "allreduce_hook"
    FP16_COMPRESS = "fp16_compress_hook"
    BF16_COMPRESS = "bf16_compress_hook"
    QUANTIZE_PER_TENSOR = "quantization_pertensor_hook"
    QUANTIZE_PER_CHANNEL = "quantization_perchannel_hook"
    POWER_SGD = "powerSGD_hook"
    POWER_SGD_RANK2 = "powerSGD_hook rank 2"
    BATCHED_POWER_SGD = "batched_powerSGD_hook"
    BATCHED_POWER_SGD_RANK2 = "batched_powerSGD_hook rank 2"


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Registers a hook; `state` is the group in which it works, None for the default one."""
    name, _, rank = comm_hook_type.value.partition(" rank ")
    for hooks in (default, quantization):
        if hasattr(hooks, name):
            return model.register_comm_hook(state, getattr(hooks, name))
    model.register_comm_hook(powerSGD.PowerSGDState(state, int(rank or 1)), getattr(powerSGD, name))
