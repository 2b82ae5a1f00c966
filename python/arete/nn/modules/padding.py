"""Padding layers: a number for every side, or (before, after) from the last dimension on."""

from __future__ import annotations

from typing import Any

from arete import Tensor

from .. import functional as F
from .module import Module
from .utils import _ntuple

__all__ = [
    *(f"CircularPad{n}d" for n in (1, 2, 3)),
    *(f"ConstantPad{n}d" for n in (1, 2, 3)),
    *(f"ReflectionPad{n}d" for n in (1, 2, 3)),
    *(f"ReplicationPad{n}d" for n in (1, 2, 3)),
    *(f"ZeroPad{n}d" for n in (1, 2, 3)),
]


class _PadNd(Module):
    __constants__ = ["padding"]
    _spatial = 0
    _mode = "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._spatial)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        low, high = self._spatial + 1, self._spatial + 2
        if input.dim() not in (low, high):
            raise ValueError(f"expected {low}D or {high}D input (got {input.dim()}D input)")
        return super().forward(input)


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class CircularPad1d(_CircularPadNd):
    """Pads (N, C, L) as if it repeated.

    >>> nn.CircularPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3., 1., 2., 3., 1., 2.]])
    """

    _spatial = 1


class CircularPad2d(_CircularPadNd):
    """Pads (N, C, H, W) as if it repeated.

    >>> nn.CircularPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """

    _spatial = 2


class CircularPad3d(_CircularPadNd):
    """Pads (N, C, D, H, W) as if it repeated.

    >>> nn.CircularPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """

    _spatial = 3


class ConstantPad1d(_ConstantPadNd):
    """Pads the last dimension with `value`.

    >>> nn.ConstantPad1d((1, 2), 9.0)(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[9., 1., 2., 3., 9., 9.]])
    """

    _spatial = 1


class ConstantPad2d(_ConstantPadNd):
    """Pads the last two dimensions with `value`.

    >>> nn.ConstantPad2d(1, 9.0)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """

    _spatial = 2


class ConstantPad3d(_ConstantPadNd):
    """Pads the last three dimensions with `value`.

    >>> nn.ConstantPad3d(1, 9.0)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """

    _spatial = 3


class ReflectionPad1d(_ReflectionPadNd):
    """Pads (N, C, L) with its reflection.

    >>> nn.ReflectionPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[2., 1., 2., 3., 2., 1.]])
    """

    _spatial = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Pads (N, C, H, W) with its reflection.

    >>> nn.ReflectionPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """

    _spatial = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Pads (N, C, D, H, W) with its reflection.

    >>> nn.ReflectionPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """

    _spatial = 3


class ReplicationPad1d(_ReplicationPadNd):
    """Pads (N, C, L) with its border.

    >>> nn.ReplicationPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 1., 2., 3., 3., 3.]])
    """

    _spatial = 1


class ReplicationPad2d(_ReplicationPadNd):
    """Pads (N, C, H, W) with its border.

    >>> nn.ReplicationPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """

    _spatial = 2


class ReplicationPad3d(_ReplicationPadNd):
    """Pads (N, C, D, H, W) with its border.

    >>> nn.ReplicationPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """

    _spatial = 3


class ZeroPad1d(_ZeroPadNd):
    """Pads the last dimension with zeros.

    >>> nn.ZeroPad1d((1, 2))(arete.tensor([[1.0, 2.0, 3.0]]))
    tensor([[0., 1., 2., 3., 0., 0.]])
    """

    _spatial = 1


class ZeroPad2d(_ZeroPadNd):
    """Pads the last two dimensions with zeros.

    >>> nn.ZeroPad2d(1)(arete.zeros(1, 2, 4, 4)).shape
    arete.Size([1, 2, 6, 6])
    """

    _spatial = 2


class ZeroPad3d(_ZeroPadNd):
    """Pads the last three dimensions with zeros.

    >>> nn.ZeroPad3d(1)(arete.zeros(1, 2, 4, 4, 4)).shape
    arete.Size([1, 2, 6, 6, 6])
    """

    _spatial = 3
