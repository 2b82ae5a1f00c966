"""Pooling layers."""

from __future__ import annotations

from typing import Callable, List, Optional

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = [
    *(f"MaxPool{n}d" for n in (1, 2, 3)),
    *(f"MaxUnpool{n}d" for n in (1, 2, 3)),
    *(f"AvgPool{n}d" for n in (1, 2, 3)),
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    *(f"LPPool{n}d" for n in (1, 2, 3)),
    *(f"AdaptiveMaxPool{n}d" for n in (1, 2, 3)),
    *(f"AdaptiveAvgPool{n}d" for n in (1, 2, 3)),
]


class _MaxPoolNd(Module):
    """What the max pools are."""


@layer
class MaxPool1d(_MaxPoolNd):
    """The maximum of each window of (N, C, L) or (C, L), and with return_indices its place.

    >>> nn.MaxPool1d(2)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 4])
    """


@layer
class MaxPool2d(_MaxPoolNd):
    """The maximum of each window of (N, C, H, W) or (C, H, W).

    >>> nn.MaxPool2d(2)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 4, 4])
    """


@layer
class MaxPool3d(_MaxPoolNd):
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.MaxPool3d(2)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 4, 4, 4])
    """


class _MaxUnpoolNd(Module):
    _function: Callable
    kernel_size: tuple
    stride: tuple
    padding: tuple

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Optional[List[int]] = None
    ) -> Tensor:
        return self._function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


@layer
class MaxUnpool1d(_MaxUnpoolNd):
    """Zeros with the maxima of a MaxPool1d at their places.

    >>> pooled, places = nn.MaxPool1d(2, return_indices=True)(arete.zeros(1, 3, 8))
    >>> nn.MaxUnpool1d(2)(pooled, places).shape
    arete.Size([1, 3, 8])
    """

    _function = F.max_unpool1d


@layer
class MaxUnpool2d(_MaxUnpoolNd):
    """Zeros with the maxima of a MaxPool2d at their places.

    >>> pooled, places = nn.MaxPool2d(2, return_indices=True)(arete.zeros(1, 3, 8, 8))
    >>> nn.MaxUnpool2d(2)(pooled, places).shape
    arete.Size([1, 3, 8, 8])
    """

    _function = F.max_unpool2d


@layer
class MaxUnpool3d(_MaxUnpoolNd):
    """Zeros with the maxima of a MaxPool3d at their places.

    >>> pooled, places = nn.MaxPool3d(2, return_indices=True)(arete.zeros(1, 3, 8, 8, 8))
    >>> nn.MaxUnpool3d(2)(pooled, places).shape
    arete.Size([1, 3, 8, 8, 8])
    """

    _function = F.max_unpool3d


@layer
class AvgPool1d(Module):
    """The mean of each window of (N, C, L) or (C, L).

    >>> nn.AvgPool1d(2)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 4])
    """


class _AvgPoolNd(Module):
    """What the average pools are."""


@layer
class AvgPool2d(_AvgPoolNd):
    """The mean of each window of (N, C, H, W) or (C, H, W).

    >>> nn.AvgPool2d(2)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 4, 4])
    """


@layer
class AvgPool3d(_AvgPoolNd):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.AvgPool3d(2)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 4, 4, 4])
    """


class _FractionalNd(Module):
    """What the fractional max pools are."""


@layer
class FractionalMaxPool2d(_FractionalNd):
    """Maxima of windows at random places of (N, C, H, W), output_size or output_ratio of them.

    >>> nn.FractionalMaxPool2d(2, output_size=5)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 5, 5])
    """


@layer
class FractionalMaxPool3d(_FractionalNd):
    """Maxima of windows at random places of (N, C, D, H, W).

    >>> nn.FractionalMaxPool3d(2, output_size=5)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 5, 5, 5])
    """


class _LPPoolNd(Module):
    """What the power-average pools are."""


@layer
class LPPool1d(_LPPoolNd):
    """(The sum of x^p in each window of (N, C, L))^(1 / p).

    >>> nn.LPPool1d(2, 2)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 4])
    """


@layer
class LPPool2d(_LPPoolNd):
    """(The sum of x^p in each window of (N, C, H, W))^(1 / p).

    >>> nn.LPPool2d(2, 2)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 4, 4])
    """


@layer
class LPPool3d(_LPPoolNd):
    """(The sum of x^p in each window of (N, C, D, H, W))^(1 / p).

    >>> nn.LPPool3d(2, 2)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 4, 4, 4])
    """


class _AdaptiveMaxPoolNd(Module):
    """What the adaptive max pools are."""


@layer
class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of output_size windows of (N, C, L).

    >>> nn.AdaptiveMaxPool1d(3)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 3])
    """


@layer
class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of output_size windows of (N, C, H, W); None keeps a dimension.

    >>> nn.AdaptiveMaxPool2d(3)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 3, 3])
    """


@layer
class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of output_size windows of (N, C, D, H, W).

    >>> nn.AdaptiveMaxPool3d(3)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 3, 3, 3])
    """


class _AdaptiveAvgPoolNd(Module):
    """What the adaptive average pools are."""


@layer
class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of output_size windows of (N, C, L).

    >>> nn.AdaptiveAvgPool1d(3)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 3])
    """


@layer
class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of output_size windows of (N, C, H, W); None keeps a dimension.

    >>> nn.AdaptiveAvgPool2d((3, None))(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 3, 8])
    """


@layer
class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of output_size windows of (N, C, D, H, W).

    >>> nn.AdaptiveAvgPool3d((3, None, 3))(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 3, 8, 3])
    """

