"""Layers between channels and blocks of pixels."""

from __future__ import annotations

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = ["PixelShuffle", "PixelUnshuffle"]


@layer
class PixelShuffle(Module):
    """(*, C r^2, H, W) -> (*, C, H r, W r).

    >>> nn.PixelShuffle(2)(arete.zeros(1, 8, 3, 3)).shape
    arete.Size([1, 2, 6, 6])
    """


@layer
class PixelUnshuffle(Module):
    """(*, C, H r, W r) -> (*, C r^2, H, W).

    >>> nn.PixelUnshuffle(2)(arete.zeros(1, 2, 6, 6)).shape
    arete.Size([1, 8, 3, 3])
    """


