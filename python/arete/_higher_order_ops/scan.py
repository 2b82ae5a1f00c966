"""A function along a dimension, with what it carries."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._operators import _ops
from ..utils import _pytree

__all__ = ["scan"]


def scan(combine_fn: Callable, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple:
    """carry, y = combine_fn(carry, x) for each part x of the trees of tensors `xs` along `dim`, from the last one with `reverse`: the last
    carry, and all y in the order of the x, stacked along a new dimension 0.

    >>> arete._higher_order_ops.scan(lambda s, x: (s + x, s * x), arete.tensor(0), arete.tensor([1, 2, 3]))
    (tensor(6), tensor([0, 2, 9]))
    """
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise RuntimeError("scan(): xs has no tensors")
    lengths = {x.shape[dim] for x in leaves}
    if len(lengths) != 1 or lengths == {0}:
        raise RuntimeError(f"scan(): all xs have the same size along dim={dim}, and at least 1, not {sorted(lengths)}")
    carry, found, places = init, [], range(lengths.pop())
    for i in reversed(places) if reverse else places:
        carry, y = combine_fn(carry, _pytree.tree_unflatten([x.select(dim, i) for x in leaves], spec))
        found.append(_pytree.tree_flatten(y))
    if reverse:
        found.reverse()
    stacked = [None if part[0] is None else _ops.stack(list(part), 0) for part in zip(*[y for y, _ in found])]
    return carry, _pytree.tree_unflatten(stacked, found[0][1])
