"""Dropout layers."""

from __future__ import annotations

from arete import Tensor

from .. import functional as F
from .module import Module

__all__ = [
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "AlphaDropout",
    "FeatureAlphaDropout",
]


class _DropoutNd(Module):
    __constants__ = ["p", "inplace"]
    p: float
    inplace: bool

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, elements become 0 with probability p; the others are divided by 1 - p.

    >>> layer = nn.Dropout(p=0.5)
    >>> layer(arete.ones(2, 3)).shape, layer.eval()(arete.ones(3))
    (arete.Size([2, 3]), tensor([1., 1., 1.]))
    >>> nn.Dropout(p=1.5)
    Traceback (most recent call last):
    ValueError: dropout probability has to be between 0 and 1, but got 1.5
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """Dropout of whole channels of (N, C, L) or (C, L).

    >>> nn.Dropout1d()(arete.ones(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """Dropout of whole channels of (N, C, H, W).

    >>> nn.Dropout2d()(arete.ones(2, 3, 4, 4)).shape
    arete.Size([2, 3, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.Dropout3d()(arete.ones(2, 3, 4, 4, 4)).shape
    arete.Size([2, 3, 4, 4, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean 0 and variance 1 (for SELU).

    >>> nn.AlphaDropout(p=0.2)(arete.ones(2, 3)).shape
    arete.Size([2, 3])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    >>> nn.FeatureAlphaDropout()(arete.ones(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
