"""Dropout layers."""

from __future__ import annotations

from ._records import layer
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
    """What the dropout layers are."""

    p: float
    inplace: bool


@layer
class Dropout(_DropoutNd):
    """In training, elements become 0 with probability p; the others are divided by 1 - p.

    >>> layer = nn.Dropout(p=0.5)
    >>> layer(arete.ones(2, 3)).shape, layer.eval()(arete.ones(3))
    (arete.Size([2, 3]), tensor([1., 1., 1.]))
    >>> nn.Dropout(p=1.5)
    Traceback (most recent call last):
    arete.ArgumentError: dropout probability has to be between 0 and 1, but got 1.5...
    """


@layer
class Dropout1d(_DropoutNd):
    """Dropout of whole channels of (N, C, L) or (C, L).

    >>> nn.Dropout1d()(arete.ones(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    """


@layer
class Dropout2d(_DropoutNd):
    """Dropout of whole channels of (N, C, H, W).

    >>> nn.Dropout2d()(arete.ones(2, 3, 4, 4)).shape
    arete.Size([2, 3, 4, 4])
    """


@layer
class Dropout3d(_DropoutNd):
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.Dropout3d()(arete.ones(2, 3, 4, 4, 4)).shape
    arete.Size([2, 3, 4, 4, 4])
    """


@layer
class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean 0 and variance 1 (for SELU).

    >>> nn.AlphaDropout(p=0.2)(arete.ones(2, 3)).shape
    arete.Size([2, 3])
    """


@layer
class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels.

    >>> nn.FeatureAlphaDropout()(arete.ones(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    """

