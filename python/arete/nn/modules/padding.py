"""Padding layers: a number for every side, or (before, after) from the last dimension on."""

from __future__ import annotations

from typing import Any

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = [
    *(f"CircularPad{n}d" for n in (1, 2, 3)),
    *(f"ConstantPad{n}d" for n in (1, 2, 3)),
    *(f"ReflectionPad{n}d" for n in (1, 2, 3)),
    *(f"ReplicationPad{n}d" for n in (1, 2, 3)),
    *(f"ZeroPad{n}d" for n in (1, 2, 3)),
]


class _ConstantPadNd(Module):
    """What the constant paddings are."""


class _CircularPadNd(Module):
    padding: tuple

    def forward(self, input: Tensor) -> Tensor:
        low = len(self.padding) // 2 + 1
        if input.dim() not in (low, low + 1):
            raise ValueError(f"expected {low}D or {low + 1}D input (got {input.dim()}D input)")
        return F.pad(input, self.padding, "circular")


class _ReflectionPadNd(Module):
    """What the reflection paddings are."""


class _ReplicationPadNd(Module):
    """What the replication paddings are."""


@layer
class CircularPad1d(_CircularPadNd):
    """Pads (N, C, L) as if it repeated.

    >>> nn.CircularPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 1., 2., 3., 1., 2.]])
    """


@layer
class CircularPad2d(_CircularPadNd):
    """Pads (N, C, H, W) as if it repeated.

    >>> nn.CircularPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """


@layer
class CircularPad3d(_CircularPadNd):
    """Pads (N, C, D, H, W) as if it repeated.

    >>> nn.CircularPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """


@layer
class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`.

    >>> nn.ConstantPad1d((1, 2), 9.0)(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[9., 1., 2., 3., 9., 9.]])
    """


@layer
class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`.

    >>> nn.ConstantPad2d(1, 9.0)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """


@layer
class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`.

    >>> nn.ConstantPad3d(1, 9.0)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """


@layer
class ReflectionPad1d(_ReflectionPadNd):
    """Pads (N, C, L) with its reflection.

    >>> nn.ReflectionPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 1., 2., 3., 2., 1.]])
    """


@layer
class ReflectionPad2d(_ReflectionPadNd):
    """Pads (N, C, H, W) with its reflection.

    >>> nn.ReflectionPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """


@layer
class ReflectionPad3d(_ReflectionPadNd):
    """Pads (N, C, D, H, W) with its reflection.

    >>> nn.ReflectionPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """


@layer
class ReplicationPad1d(_ReplicationPadNd):
    """Pads (N, C, L) with its border.

    >>> nn.ReplicationPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 1., 2., 3., 3., 3.]])
    """


@layer
class ReplicationPad2d(_ReplicationPadNd):
    """Pads (N, C, H, W) with its border.

    >>> nn.ReplicationPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """


@layer
class ReplicationPad3d(_ReplicationPadNd):
    """Pads (N, C, D, H, W) with its border.

    >>> nn.ReplicationPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """


@layer
class ZeroPad1d(ConstantPad1d):
    """Pads the last dimension with zeros.

    >>> nn.ZeroPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0., 1., 2., 3., 0., 0.]])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


@layer
class ZeroPad2d(ConstantPad2d):
    """Pads the last two dimensions with zeros.

    >>> nn.ZeroPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


@layer
class ZeroPad3d(ConstantPad3d):
    """Pads the last three dimensions with zeros.

    >>> nn.ZeroPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

