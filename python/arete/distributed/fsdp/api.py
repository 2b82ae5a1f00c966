"""What FullyShardedDataParallel is told, under torch's names."""
from __future__ import annotations

import dataclasses
import enum
from typing import Any, Optional

from ...nn.modules.batchnorm import _BatchNorm

__all__ = ["BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
           "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig",
           "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType"]


class ShardingStrategy(enum.Enum):
    """FULL_SHARD: parameters are whole only while they are used. SHARD_GRAD_OP: from the forward to the end of the backward pass.
    NO_SHARD: always, as in data parallelism. HYBRID_SHARD and _HYBRID_SHARD_ZERO2: the first two within groups of processes that have
    the same."""

    FULL_SHARD = enum.auto()
    SHARD_GRAD_OP = enum.auto()
    NO_SHARD = enum.auto()
    HYBRID_SHARD = enum.auto()
    _HYBRID_SHARD_ZERO2 = enum.auto()


class BackwardPrefetch(enum.Enum):
    """When parameters are gathered ahead in the backward pass: before those that are used now, or not ahead (None)."""

    BACKWARD_PRE = enum.auto()
    BACKWARD_POST = enum.auto()


@dataclasses.dataclass
class MixedPrecision:
    """`param_dtype`, `reduce_dtype`: as MixedPrecisionPolicy. `buffer_dtype`: what floating buffers become. `cast_forward_inputs`: whether
    inputs of every wrapped module become `param_dtype`; `cast_root_forward_inputs`: those of the outermost one. With an `auto_wrap_policy`
    modules of `_module_classes_to_ignore` are wrapped alone, compute in float32, and give results of their inputs' dtype."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Any = (_BatchNorm,)


@dataclasses.dataclass
class CPUOffload:
    """Whether shards, their gradients and the optimizer's state are in host memory."""

    offload_params: bool = False


class StateDictType(enum.Enum):
    """FULL_STATE_DICT: whole tensors; LOCAL_STATE_DICT: this process' shards; SHARDED_STATE_DICT: DTensors."""

    FULL_STATE_DICT = enum.auto()
    LOCAL_STATE_DICT = enum.auto()
    SHARDED_STATE_DICT = enum.auto()


@dataclasses.dataclass
class StateDictConfig:
    """`offload_to_cpu`: whether tensors are in host memory."""

    offload_to_cpu: bool = False


@dataclasses.dataclass
class FullStateDictConfig(StateDictConfig):
    """`rank0_only`: other processes get an empty dictionary."""

    rank0_only: bool = False


@dataclasses.dataclass
class LocalStateDictConfig(StateDictConfig):
    """Of shards."""


@dataclasses.dataclass
class ShardedStateDictConfig(StateDictConfig):
    """Of DTensors."""

    _use_dtensor: bool = True


@dataclasses.dataclass
class OptimStateDictConfig:
    """`offload_to_cpu`: whether tensors are in host memory."""

    offload_to_cpu: bool = True


@dataclasses.dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """`rank0_only`: other processes get an empty dictionary."""

    rank0_only: bool = False


@dataclasses.dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """Of shards."""

    offload_to_cpu: bool = False


@dataclasses.dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """Of DTensors."""

    _use_dtensor: bool = True


@dataclasses.dataclass
class StateDictSettings:
    """What a network's state dictionaries are."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: Optional[OptimStateDictConfig] = None
