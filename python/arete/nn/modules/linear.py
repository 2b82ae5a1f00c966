"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

from ... import _operators
from ..._C import Tensor
from ..._operators import _ops
from .. import init
from ..parameter import Parameter, UninitializedParameter
from ._records import check, layer
from .lazy import LazyModuleMixin
from .module import Module, weight_and_bias

__all__ = ["Identity", "Linear", "NonDynamicallyQuantizableLinear", "Bilinear", "LazyLinear"]

_linear = _ops.linear


class Identity(Module):
    """Gives its input; takes any arguments.

    >>> nn.Identity()(arete.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


@layer
class Linear(Module):
    """x W^T + b: (*, in_features) -> (*, out_features), weight (out_features, in_features).

    Both start uniform in +-1 / sqrt(in_features).

    >>> layer = nn.Linear(20, 30)
    >>> layer(arete.randn(128, 20)).shape, layer.weight.shape
    (arete.Size([128, 30]), arete.Size([30, 20]))
    >>> layer(arete.randn(128, 10))
    Traceback (most recent call last):
    arete.ArgumentError: mat1 and mat2 shapes cannot be multiplied (128x10 and 20x30)...
    """

    in_features: int
    out_features: int
    weight: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(
            _operators.empty((out_features, in_features), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(_operators.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        weight, bias = weight_and_bias(self)
        return _linear(input, weight, bias)


class NonDynamicallyQuantizableLinear(Linear):
    """The output projection of attention."""


@layer
class Bilinear(Module):
    """x1^T A x2 + b with weight (out, in1, in2).

    (*, in1), (*, in2) -> (*, out).

    >>> nn.Bilinear(3, 4, 5)(arete.randn(2, 3), arete.randn(2, 4)).shape
    arete.Size([2, 5])
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        check("Bilinear", in1_features, in2_features, out_features, bias)
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        self.weight = Parameter(
            _operators.empty((out_features, in1_features, in2_features), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(_operators.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return _ops.bilinear(input1, input2, self.weight, self.bias)


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear that takes in_features from its first input.

    >>> layer = nn.LazyLinear(5)
    >>> layer(arete.randn(2, 3)).shape, layer
    (arete.Size([2, 5]), Linear(in_features=3, out_features=5, bias=True))
    """

    cls_to_become = Linear

    def __init__(
        self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Gives the parameters the shapes that the first input asks for."""
        if self.has_uninitialized_params():
            self.in_features = input.shape[-1]
            self.weight.materialize((self.out_features, self.in_features))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        if self.in_features == 0:
            self.in_features = input.shape[-1]
