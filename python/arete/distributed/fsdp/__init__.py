"""Parameters spread over processes, under torch.distributed.fsdp's names. docs/sharding.md has examples."""
from __future__ import annotations

from ..._refused import refused as _refused
from ._fully_shard import CPUOffloadPolicy as CPUOffloadPolicy
from ._fully_shard import FSDPModule as FSDPModule
from ._fully_shard import MixedPrecisionPolicy as MixedPrecisionPolicy
from ._fully_shard import OffloadPolicy as OffloadPolicy
from ._fully_shard import UnshardHandle as UnshardHandle
from ._fully_shard import fully_shard as fully_shard
from ._fully_shard import register_fsdp_forward_method as register_fsdp_forward_method

globals().update(_refused(__name__, "parameters are spread by fully_shard()",
                          "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig",
                          "FullStateDictConfig", "FullyShardedDataParallel", "LocalStateDictConfig", "MixedPrecision",
                          "OptimStateKeyType", "ShardedOptimStateDictConfig",
                          "ShardedStateDictConfig", "ShardingStrategy", "StateDictSettings", "StateDictType"))
