"""Functions that are more than one operator."""

from __future__ import annotations

from typing import Any, Optional

from ..._C import Tensor
from ..._operators import _ops
from ._common import IntOrInts


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of (T, N, Cin) with weight (k, Cin, Cout) -> (T', N, Cout).

    >>> F.conv_tbc(arete.zeros(5, 2, 3), arete.zeros(3, 3, 4), arete.zeros(4)).shape
    arete.Size([3, 2, 4])
    """
    out = _ops.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1)
    return out.permute(2, 0, 1)


def upsample(
    input: Tensor,
    size: Optional[IntOrInts] = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
) -> Tensor:
    """The older name of `interpolate`.

    >>> F.upsample(arete.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    return _ops.interpolate(input, size, scale_factor, mode, align_corners)
