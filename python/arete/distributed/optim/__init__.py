"""Optimizers that know of other processes, and those that step during backward()."""
from ..._refused import refused as _refused
from .apply_optimizer_in_backward import _apply_optimizer_in_backward as _apply_optimizer_in_backward
from .apply_optimizer_in_backward import _get_in_backward_optimizers as _get_in_backward_optimizers
from .post_localSGD_optimizer import PostLocalSGDOptimizer
from .zero_redundancy_optimizer import ZeroRedundancyOptimizer

__all__ = ["PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

globals().update(_refused(__name__, "there are no parameters of other processes by RPC to step", "DistributedOptimizer"))
