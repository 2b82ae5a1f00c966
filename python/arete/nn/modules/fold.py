"""Fold and Unfold: images and their windows as columns."""

from __future__ import annotations

from typing import Any

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = ["Fold", "Unfold"]


@layer
class Fold(Module):
    """Sums columns (N, C kh kw, windows) into images (N, C, *output_size).

    >>> nn.Fold(output_size=(2, 3), kernel_size=2)(arete.ones(1, 4, 2))
    tensor([[[[1., 2., 1.],
              [1., 2., 1.]]]])
    """


@layer
class Unfold(Module):
    """The windows of images (N, C, H, W) as columns (N, C kh kw, windows).

    >>> nn.Unfold(kernel_size=2)(arete.zeros(1, 3, 4, 4)).shape
    arete.Size([1, 12, 9])
    """


