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


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes the channels of each sample in groups, as `arete.group_norm`. Groups of one value, of which zeros are left, are an error.

    >>> F.group_norm(arete.tensor([[1.0, 3.0, 5.0, 7.0]]), 2)
    tensor([[-1.0000,  1.0000, -1.0000,  1.0000]])
    >>> F.group_norm(arete.ones(1, 2), 2)
    Traceback (most recent call last):
    ValueError: Expected more than 1 value per channel when training, got input size [1, 2]
    """
    if input.dim() >= 2 and input.numel() == num_groups:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    return _ops.group_norm(input, num_groups, weight, bias, eps)
