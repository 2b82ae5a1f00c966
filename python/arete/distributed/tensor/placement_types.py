"""How a tensor is spread over processes."""
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

    def __str__(self) -> str:
        return f"S({self.dim})"

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

    def __str__(self) -> str:
        return "R"


@dataclasses.dataclass(frozen=True)
class Partial(Placement):
    """As terms that are to be reduced."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


globals().update(_refused(__name__, "DTensors have no such parts", "DTensorSpec", "TensorMeta", "_StridedShard"))
