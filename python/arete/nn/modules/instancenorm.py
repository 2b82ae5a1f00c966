"""Instance normalization."""

from __future__ import annotations

import warnings
from typing import Any

from ..._C import Tensor
from .. import functional as F
from .batchnorm import _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]


class _InstanceNorm(_NormBase):
    _spatial = 0

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        low, high = self._spatial + 1, self._spatial + 2
        if input.dim() not in (low, high):
            raise ValueError(f"expected {low}D or {high}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        batched = input.dim() == self._spatial + 2
        channels = input.size(1 if batched else 0)
        if channels != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={1 if batched else 0} to match num_features "
                    f"({self.num_features}), but got: {channels}."
                )
            warnings.warn(
                f"input's size at dim={1 if batched else 0} does not match num_features. You can "
                "silence this warning by not passing in num_features, which is not used because "
                "affine=False",
                stacklevel=3,
            )
        x = input if batched else input.unsqueeze(0)
        y = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )
        return y if batched else y.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, L) or (C, L).

    >>> nn.InstanceNorm1d(3)(arete.randn(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    """

    _spatial = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, H, W) or (C, H, W).

    >>> nn.InstanceNorm2d(3)(arete.randn(2, 3, 4, 4)).shape
    arete.Size([2, 3, 4, 4])
    """

    _spatial = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each sample of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.InstanceNorm3d(3)(arete.randn(2, 3, 4, 4, 4)).shape
    arete.Size([2, 3, 4, 4, 4])
    """

    _spatial = 3


class _LazyInstanceNorm(_LazyNormBase):
    # As in torch, weights and statistics are on by default here.
    def initialize_parameters(self, input: Tensor) -> None:
        """Gives the parameters the shapes that the first input asks for."""
        batched = input.dim() == self._spatial + 2
        super().initialize_parameters(input if batched else input.unsqueeze(0))


class LazyInstanceNorm1d(_LazyInstanceNorm, _InstanceNorm):
    """An InstanceNorm1d that takes num_features from its first input.

    >>> layer = nn.LazyInstanceNorm1d()
    >>> _ = layer(arete.randn(2, 3, 4))
    >>> layer.num_features
    3
    """

    _spatial = 1
    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, _InstanceNorm):
    """An InstanceNorm2d that takes num_features from its first input.

    >>> layer = nn.LazyInstanceNorm2d()
    >>> _ = layer(arete.randn(2, 3, 4, 4))
    >>> layer.num_features
    3
    """

    _spatial = 2
    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, _InstanceNorm):
    """An InstanceNorm3d that takes num_features from its first input.

    >>> layer = nn.LazyInstanceNorm3d()
    >>> _ = layer(arete.randn(2, 3, 4, 4, 4))
    >>> layer.num_features
    3
    """

    _spatial = 3
    cls_to_become = InstanceNorm3d
