"""What NCCL is used, by which processes exchange tensors of GPUs (arete.distributed)."""
from __future__ import annotations

from .. import _C

__all__ = ["version"]


def version() -> tuple[int, int, int]:
    """Major, minor and patch; RuntimeError if there is none."""
    from ..distributed import distributed_c10d

    distributed_c10d._name_nccl()
    number = _C._distributed.nccl_version()
    return number // 10000, number // 100 % 100, number % 100
