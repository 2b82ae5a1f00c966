"""All partial results of an associative function."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._operators import _ops
from ..utils import _pytree

__all__ = ["associative_scan"]


def associative_scan(combine_fn: Callable, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    """combine_fn(x[0], x[1], ..., x[i]) at each place i of dimension `dim`, for a function of two trees of tensors that is associative.

    It is called about 2 log2(n) times with parts of the dimension, so it must work element by element in it.

    >>> arete._higher_order_ops.associative_scan(lambda a, b: a * b, arete.tensor([1, 2, 3, 4]), 0)
    tensor([ 1,  2,  6, 24])
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"Combine_mode must either 'pointwise' or 'generic', but got {combine_mode}")
    leaves, spec = _pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if len({x.shape[dim] for x in leaves}) != 1 or leaves[0].shape[dim] == 0:
        raise ValueError("All xs leaves must have the same size in the scanned dimension, and at least 1")

    def combine(a: list, b: list) -> list:
        result = combine_fn(_pytree.tree_unflatten(a, spec), _pytree.tree_unflatten(b, spec))
        return _pytree.tree_flatten(result)[0]

    def part(x: Any, start: int, stop: int | None, step: int) -> Any:
        index = [slice(None)] * x.dim()
        index[dim] = slice(start, stop, step)
        return x[tuple(index)]

    def scan(given: list) -> list:
        n = given[0].shape[dim]
        if n < 2:
            return given
        # Of pairs, whose results are those of odd places; even ones take one element more.
        odd = scan(combine([part(x, 0, n - n % 2, 2) for x in given], [part(x, 1, None, 2) for x in given]))
        even = [part(x, 0, 1, 1) for x in given]
        if n > 2:
            later = combine([part(x, 0, (n - 1) // 2, 1) for x in odd], [part(x, 2, None, 2) for x in given])
            even = [_ops.cat([a, b], dim) for a, b in zip(even, later)]
        woven = []
        for a, b in zip(even, odd):
            both = _ops.stack([part(a, 0, n // 2, 1), b], dim % a.dim() + 1).flatten(dim % a.dim(), dim % a.dim() + 1)
            woven.append(_ops.cat([both, part(a, n // 2, None, 1)], dim) if n % 2 else both)
        return woven

    turned = [x.flip([dim]) for x in leaves] if reverse else leaves
    result = scan(turned)
    return _pytree.tree_unflatten([x.flip([dim]) for x in result] if reverse else result, spec)
