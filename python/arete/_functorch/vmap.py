"""Names of torch._functorch.vmap that libraries with containers of tensors use: arete.func.vmap does not ask for them."""
from __future__ import annotations

import functools
from typing import Any, Callable, Optional

from .. import _C
from .._C import Tensor
from ..utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = ["Tensor", "_broadcast_to_and_flatten", "tree_flatten", "tree_unflatten"]

_add_batch_dim: Callable = _C._functorch._add_batch_dim
_remove_batch_dim: Callable = _C._functorch._remove_batch_dim


def _get_name(func: Callable) -> str:
    """A function's name for errors."""
    if hasattr(func, "__name__"):
        return func.__name__
    return f"functools.partial({_get_name(func.func)}, ...)" if isinstance(func, functools.partial) else repr(func)


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: Optional[int]) -> Any:
    """What a function gave of a batch, as a whole; with `out_dim` None it must be the same for all elements."""
    if out_dim is None:
        if isinstance(batched_output, Tensor) and _C._is_batched(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean to set "
                         "out_dims= to None for output?")
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)
