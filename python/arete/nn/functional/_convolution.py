"""Functions that are more than one operator."""

from __future__ import annotations

from typing import Any, Optional

from ..._C import Tensor
from ..._operators import _ops
from ._common import IntOrInts


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
