"""Changes of pictures without random choices."""
from __future__ import annotations

from ... import _C
from ..._C import Tensor

__all__ = ["adjust_hue"]


def adjust_hue(img: Tensor, hue_factor: float) -> Tensor:
    """The picture (C, H, W) with its hue moved by a part of the circle of colours, from -0.5 to 0.5; saturation and value stay.

    Pictures of one channel stay as they are.

    >>> red = arete.tensor([255, 0, 0], dtype=arete.uint8).view(3, 1, 1)
    >>> arete.vision.transforms.functional.adjust_hue(red, 1 / 3).flatten()
    tensor([  0, 255,   0], dtype=arete.uint8)
    """
    return _C._adjust_hue(img, hue_factor)
