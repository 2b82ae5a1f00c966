"""Functions of several operators, where torch has them."""
from __future__ import annotations

from . import _operators

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors", "cartesian_prod", "cdist",
           "chain_matmul",
           "einsum", "istft", "lu", "meshgrid", "norm", "pca_lowrank", "split", "stft", "svd_lowrank", "tensordot", "unique",
           "unique_consecutive",
           "unravel_index"]

globals().update({name: getattr(_operators, name) for name in __all__})
