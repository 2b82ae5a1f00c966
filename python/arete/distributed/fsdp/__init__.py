"""Parameters spread over processes: no module has such, and what would make it refuses."""
from __future__ import annotations

from ..._refused import refused as _refused

globals().update(_refused(__name__, "parameters are not spread over processes",
                          "BackwardPrefetch", "CPUOffload", "CPUOffloadPolicy", "FSDPModule", "FullOptimStateDictConfig",
                          "FullStateDictConfig", "FullyShardedDataParallel", "LocalStateDictConfig", "MixedPrecision",
                          "MixedPrecisionPolicy", "OffloadPolicy", "OptimStateKeyType", "ShardedOptimStateDictConfig",
                          "ShardedStateDictConfig", "ShardingStrategy", "StateDictSettings", "StateDictType", "UnshardHandle",
                          "fully_shard", "register_fsdp_forward_method"))
