"""Layers that resize images."""

from __future__ import annotations

from typing import Any, Optional

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = ["Upsample", "UpsamplingNearest2d", "UpsamplingBilinear2d"]


@layer
class Upsample(Module):
    """Resizes (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size` or by scale_factor.

    mode: "nearest", "linear", "bilinear", "bicubic" or "trilinear".

    >>> nn.Upsample(scale_factor=2, mode="bilinear")(arete.zeros(1, 3, 4, 4)).shape
    arete.Size([1, 3, 8, 8])
    """

    __constants__ = [
        "size",
        "scale_factor",
        "mode",
        "align_corners",
        "name",
        "recompute_scale_factor",
    ]

    def __init__(
        self,
        size: Any = None,
        scale_factor: Any = None,
        mode: str = "nearest",
        align_corners: Optional[bool] = None,
        recompute_scale_factor: Optional[bool] = None,
    ) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        if isinstance(scale_factor, tuple):
            self.scale_factor = tuple(float(f) for f in scale_factor)
        else:
            self.scale_factor = float(scale_factor) if scale_factor else None
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor


class UpsamplingNearest2d(Upsample):
    """Upsample of images with mode "nearest".

    >>> nn.UpsamplingNearest2d(scale_factor=2)(arete.zeros(1, 3, 4, 4)).shape
    arete.Size([1, 3, 8, 8])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample of images with mode "bilinear" and align_corners.

    >>> nn.UpsamplingBilinear2d(size=(1, 3))(arete.tensor([[[[1.0, 3.0]]]]))
    tensor([[[[1., 2., 3.]]]])
    """

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, mode="bilinear", align_corners=True)
