"""Parameters spread over processes, under torch.distributed.fsdp's names. docs/sharding.md has examples."""
from __future__ import annotations

from . import activation_wrappers as activation_wrappers
from . import wrap as wrap
from ._fully_shard import CPUOffloadPolicy as CPUOffloadPolicy
from ._fully_shard import FSDPModule as FSDPModule
from ._fully_shard import MixedPrecisionPolicy as MixedPrecisionPolicy
from ._fully_shard import OffloadPolicy as OffloadPolicy
from ._fully_shard import UnshardHandle as UnshardHandle
from ._fully_shard import fully_shard as fully_shard
from ._fully_shard import register_fsdp_forward_method as register_fsdp_forward_method
from .api import *  # noqa: F403
from .fully_sharded_data_parallel import FullyShardedDataParallel as FullyShardedDataParallel
from .fully_sharded_data_parallel import OptimStateKeyType as OptimStateKeyType
from .sharded_grad_scaler import ShardedGradScaler as ShardedGradScaler
