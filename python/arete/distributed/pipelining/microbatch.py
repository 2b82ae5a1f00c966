"""Batches taken apart into microbatches, and their results put together."""
from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

from ... import _C, _operators
from ...utils import _pytree as pytree

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


@dataclasses.dataclass
class TensorChunkSpec:
    """A tensor is cut along a dimension.

    >>> arete.distributed.pipelining.microbatch.TensorChunkSpec.from_tuple((0, 1))
    (TensorChunkSpec(split_dim=0), TensorChunkSpec(split_dim=1))
    """

    split_dim: int

    @staticmethod
    def from_tuple(chunk_dims: Sequence[int]) -> tuple:
        return pytree.tree_map(TensorChunkSpec, tuple(chunk_dims))

    @staticmethod
    def from_dict(chunk_dims: dict) -> dict:
        return pytree.tree_map(TensorChunkSpec, chunk_dims)


class _Replicate:
    """A value is the same for all microbatches."""


def _is_spec(x: Any) -> bool:
    return x is None or isinstance(x, TensorChunkSpec) or x is _Replicate or isinstance(x, _Replicate)


def _pieces(value: Any, spec: Any, chunks: int) -> list:
    if isinstance(value, _C.Tensor) and isinstance(spec, (TensorChunkSpec, type(None))):
        dim = spec.split_dim if spec is not None else 0
        if value.dim() == 0 or value.shape[dim] < chunks:
            raise ValueError(f"a tensor of shape {tuple(value.shape)} is not cut into {chunks} microbatches along dimension {dim}")
        return list(_operators.tensor_split(value, chunks, dim))
    if isinstance(spec, TensorChunkSpec):
        raise TypeError(f"{spec} is of tensors, got {type(value).__name__}")
    if type(value).__name__ == "BlockMask":
        raise NotImplementedError("a BlockMask is not cut into microbatches: make it in the stage")
    return [value] * chunks


def _chunked(tree: Any, specs: Any, chunks: int) -> list:
    leaves, structure = pytree.tree_flatten(tree)
    if specs is None:
        listed: list = [None] * len(leaves)
    else:
        listed, given = pytree.tree_flatten(specs, is_leaf=_is_spec)
        if len(listed) != len(leaves):
            raise ValueError(f"the values have {len(leaves)} parts, and what says how they are cut has {len(listed)}")
    columns = [_pieces(value, spec, chunks) for value, spec in zip(leaves, listed)]
    return [pytree.tree_unflatten([c[k] for c in columns], structure) for k in range(chunks)]


def split_args_kwargs_into_chunks(args: tuple, kwargs: Optional[dict], chunks: int, args_chunk_spec: Optional[tuple] = None,
                                  kwargs_chunk_spec: Optional[dict] = None) -> tuple[list, list]:
    """The arguments of each microbatch. Tensors are cut along their first dimension, or as a spec says; other values are the same for all.

    >>> P = arete.distributed.pipelining.microbatch
    >>> P.split_args_kwargs_into_chunks((arete.arange(4), 7), None, 2)
    ([(tensor([0, 1]), 7), (tensor([2, 3]), 7)], [{}, {}])
    """
    kwargs = kwargs or {}
    if kwargs_chunk_spec is not None:
        kwargs_chunk_spec = {name: kwargs_chunk_spec.get(name) for name in kwargs}
    return (_chunked(tuple(args), args_chunk_spec, chunks) if args else [()] * chunks,
            _chunked(kwargs, kwargs_chunk_spec, chunks) if kwargs else [{} for _ in range(chunks)])


def merge_chunks(chunks: list, chunk_spec: Any) -> Any:
    """The results of all microbatches as one: tensors are joined along their first dimension, or as a spec says; of other values the
    first is taken.

    >>> arete.distributed.pipelining.microbatch.merge_chunks([arete.zeros(1), arete.ones(1)], None)
    tensor([0., 1.])
    """
    leaves, structure = pytree.tree_flatten(chunks[0])
    specs = [None] * len(leaves) if chunk_spec is None else pytree.tree_flatten(chunk_spec, is_leaf=_is_spec)[0]
    if len(specs) != len(leaves):
        raise ValueError(f"the results have {len(leaves)} parts, and what says how they are put together has {len(specs)}")
    columns = zip(*(pytree.tree_flatten(c)[0] for c in chunks))
    merged = []
    for column, spec in zip(columns, specs):
        if isinstance(column[0], _C.Tensor) and isinstance(spec, (TensorChunkSpec, type(None))):
            merged.append(_operators.cat(list(column), 0 if spec is None else spec.split_dim))
        else:
            merged.append(column[0])
    return pytree.tree_unflatten(merged, structure)
