"""Flatten and Unflatten."""

from __future__ import annotations

from typing import Any, Sequence, Union

from ..._C import Tensor
from ._records import layer
from .module import Module

__all__ = ["Flatten", "Unflatten"]


@layer
class Flatten(Module):
    """Makes one dimension of those from start_dim to end_dim (by default all but the batch).

    >>> nn.Flatten()(arete.zeros(2, 3, 4)).shape
    arete.Size([2, 12])
    """


@layer
class Unflatten(Module):
    """Makes dimension `dim` several ones of sizes unflattened_size.

    >>> nn.Unflatten(1, (3, 4))(arete.zeros(2, 12)).shape
    arete.Size([2, 3, 4])
    """

    def __init__(self, dim: Union[int, str], unflattened_size: Sequence[Any]) -> None:
        super().__init__()
        if isinstance(dim, str):
            raise NotImplementedError("Unflatten: named dimensions are not supported")
        if not isinstance(dim, int):
            raise TypeError("invalid argument type for dim parameter")
        if not isinstance(unflattened_size, (tuple, list)):
            raise TypeError(
                "unflattened_size must be a tuple of ints, but found type "
                + type(unflattened_size).__name__
            )
        for i, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                raise TypeError(
                    "unflattened_size must be tuple of ints, but found element of type "
                    f"{type(size).__name__} at pos {i}"
                )
        self.dim = dim
        self.unflattened_size = unflattened_size


