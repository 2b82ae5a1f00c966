"""A function of each part of a dimension."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .scan import scan

__all__ = ["map"]


def map(f: Callable, xs: Any, *args: Any) -> Any:
    """f(x, *args) for each part x of the trees of tensors `xs` along dimension 0, stacked.

    >>> arete._higher_order_ops.map(lambda x, k: (x * k).sum(), arete.ones(2, 3), 2)
    tensor([6., 6.])
    """
    return scan(lambda _, x: (None, f(x, *args)), None, xs)[1]
