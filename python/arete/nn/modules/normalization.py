"""Layer, group, RMS and local response normalization."""

from __future__ import annotations

import numbers
from typing import Any, Optional, Sequence, Tuple, Union

from ... import _operators
from ..._C import Tensor
from ..._operators import _ops
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._records import check, layer
from .module import Module, weight_and_bias

__all__ = ["LocalResponseNorm", "CrossMapLRN2d", "LayerNorm", "GroupNorm", "RMSNorm"]


@layer
class LocalResponseNorm(Module):
    """x / (k + alpha * mean of x^2 over `size` neighbouring channels)^beta.

    >>> nn.LocalResponseNorm(2)(arete.ones(1, 4, 3)).shape
    arete.Size([1, 4, 3])
    """


@layer
class CrossMapLRN2d(LocalResponseNorm):
    """LocalResponseNorm under its older name.

    >>> nn.CrossMapLRN2d(2)(arete.ones(1, 4, 3, 3)).shape
    arete.Size([1, 4, 3, 3])
    """


def _shape_of(normalized_shape: Any) -> Tuple[int, ...]:
    if isinstance(normalized_shape, numbers.Integral):
        return (int(normalized_shape),)
    return tuple(normalized_shape)


@layer
class LayerNorm(Module):
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimensions (normalized_shape).

    >>> nn.LayerNorm(4)(arete.randn(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    >>> nn.LayerNorm(4)(arete.randn(2, 3))
    Traceback (most recent call last):
    arete.ArgumentError: Given normalized_shape=[4], expected input with shape [*, 4], but got input of ...
    """

    def __init__(
        self,
        normalized_shape: Union[int, Sequence[int]],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = shape = _shape_of(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.register_parameter("weight", None)
        self.register_parameter("bias", None)
        if elementwise_affine:
            self.weight = Parameter(_operators.empty(shape, device=device, dtype=dtype))
            if bias:
                self.bias = Parameter(_operators.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        if self.elementwise_affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = weight_and_bias(self)
        return _ops.layer_norm(input, self.normalized_shape, weight, bias, self.eps)


@layer
class GroupNorm(Module):
    """Normalizes the channels of each sample of (N, C, ...) in num_groups groups.

    >>> nn.GroupNorm(2, 4)(arete.randn(3, 4, 5)).shape
    arete.Size([3, 4, 5])
    >>> nn.GroupNorm(3, 4)
    Traceback (most recent call last):
    arete.ArgumentError: num_channels (4) must be divisible by num_groups (3)...
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check("GroupNorm", num_groups, num_channels, eps, affine)
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        if affine:
            self.weight = Parameter(_operators.empty(num_channels, device=device, dtype=dtype))
            self.bias = Parameter(_operators.empty(num_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        if self.affine:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = weight_and_bias(self)
        return F.group_norm(input, self.num_groups, weight, bias, self.eps)


@layer
class RMSNorm(Module):
    """x / sqrt(mean(x^2) + eps) * weight over the last dimensions; eps None: the dtype's.

    >>> nn.RMSNorm(4)(arete.randn(2, 4)).shape
    arete.Size([2, 4])
    """

    def __init__(
        self,
        normalized_shape: Union[int, Sequence[int]],
        eps: Optional[float] = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = shape = _shape_of(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = Parameter(_operators.empty(shape, device=device, dtype=dtype))
        else:
            self.register_parameter("weight", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        if self.elementwise_affine:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return _ops.rms_norm(x, self.normalized_shape, self.weight, self.eps)

