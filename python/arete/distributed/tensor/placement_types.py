"""How a tensor would be spread over processes. These only say so: nothing spreads tensors (distribute_tensor refuses)."""
from __future__ import annotations

import dataclasses

from ..._refused import refused as _refused

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """One of these."""

    def is_shard(self, dim: int | None = None) -> bool:
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


@dataclasses.dataclass(frozen=True)
class Shard(Placement):
    """In parts along a dimension.

    >>> arete.distributed.tensor.Shard(1).is_shard(1)
    True
    """

    dim: int

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """How many elements a process has of a dimension, and the first of them.

        >>> arete.distributed.tensor.Shard.local_shard_size_and_offset(5, 2, 1)
        (2, 3)
        """
        chunk = -(-curr_local_size // num_chunks)
        start = min(chunk * rank, curr_local_size)
        return min(chunk, curr_local_size - start), start

    _local_shard_size_and_offset = local_shard_size_and_offset


@dataclasses.dataclass(frozen=True)
class Replicate(Placement):
    """Whole on each process."""


@dataclasses.dataclass(frozen=True)
class Partial(Placement):
    """As terms that are to be reduced."""

    reduce_op: str = "sum"


globals().update(_refused(__name__, "there are no tensors that are spread over processes", "DTensorSpec", "TensorMeta", "_StridedShard"))
