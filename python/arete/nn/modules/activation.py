"""Activation layers without weights, and PReLU."""

from __future__ import annotations

from typing import Any, Optional

from ... import _operators
from ..._C import Tensor
from .. import functional as F
from .. import init
from ..parameter import Parameter
from ._records import check, layer
from .attention import MultiheadAttention
from .module import Module

__all__ = [
    "Threshold",
    "ReLU",
    "RReLU",
    "Hardtanh",
    "ReLU6",
    "Sigmoid",
    "Hardsigmoid",
    "Tanh",
    "SiLU",
    "Mish",
    "Hardswish",
    "ELU",
    "CELU",
    "SELU",
    "GLU",
    "GELU",
    "Hardshrink",
    "LeakyReLU",
    "LogSigmoid",
    "Softplus",
    "Softshrink",
    "MultiheadAttention",
    "PReLU",
    "Softsign",
    "Tanhshrink",
    "Softmin",
    "Softmax",
    "Softmax2d",
    "LogSoftmax",
]


@layer
class Threshold(Module):
    """x where x > threshold, else value.

    >>> nn.Threshold(1.0, -7.0)(arete.tensor([0.5, 2.0]))
    tensor([-7.,  2.])
    """


@layer
class ReLU(Module):
    """max(x, 0).

    >>> nn.ReLU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """


@layer
class RReLU(Module):
    """Leaky ReLU whose slopes are random in [lower, upper] in training, else their mean.

    >>> nn.RReLU().eval()(arete.tensor([-48.0, 2.0]))
    tensor([-11.,   2.])
    """


@layer
class Hardtanh(Module):
    """x limited to [min_val, max_val].

    ValueError unless min_val < max_val.

    >>> nn.Hardtanh(-2.0, 2.0)(arete.tensor([-3.0, 0.5, 3.0]))
    tensor([-2.0000,  0.5000,  2.0000])
    """

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: Optional[float] = None,
        max_value: Optional[float] = None,
    ) -> None:
        super().__init__()
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        check("Hardtanh", self.min_val, self.max_val, inplace)


@layer
class ReLU6(Hardtanh):
    """x limited to [0, 6].

    >>> nn.ReLU6()(arete.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


@layer
class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> nn.Sigmoid()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0.2689, 0.5000, 0.8808])
    """


@layer
class Hardsigmoid(Module):
    """relu6(x + 3) / 6.

    >>> nn.Hardsigmoid()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3333, 0.5000, 0.8333])
    """


@layer
class Tanh(Module):
    """The hyperbolic tangent.

    >>> nn.Tanh()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.7616,  0.0000,  0.9640])
    """


@layer
class SiLU(Module):
    """x * sigmoid(x).

    >>> nn.SiLU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2689,  0.0000,  1.7616])
    """


@layer
class Mish(Module):
    """x * tanh(softplus(x)).

    >>> nn.Mish()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3034,  0.0000,  1.9440])
    """


@layer
class Hardswish(Module):
    """x * relu6(x + 3) / 6.

    >>> nn.Hardswish()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3333,  0.0000,  1.6667])
    """


@layer
class ELU(Module):
    """x where positive, else alpha * (exp(x) - 1).

    >>> nn.ELU(alpha=0.5)(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3161,  0.0000,  2.0000])
    """


@layer
class CELU(Module):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    >>> nn.CELU(alpha=2.0)(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.7869,  0.0000,  2.0000])
    """


@layer
class SELU(Module):
    """The self-normalizing ELU.

    >>> nn.SELU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.1113,  0.0000,  2.1014])
    """


@layer
class GLU(Module):
    """The first half along `dim` times the sigmoid of the second.

    (*, 2n, *) -> (*, n, *).

    >>> nn.GLU()(arete.tensor([2.0, 4.0, 0.0, 0.0]))
    tensor([1., 2.])
    """


@layer
class GELU(Module):
    """x * Phi(x) with the normal distribution's Phi; approximate "none" or "tanh".

    >>> nn.GELU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.0000,  1.9545])
    """


@layer
class Hardshrink(Module):
    """x where |x| > lambd, else 0.

    >>> nn.Hardshrink()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.,  0.,  2.])
    """


@layer
class LeakyReLU(Module):
    """x where positive, else negative_slope * x.

    >>> nn.LeakyReLU(0.1)(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1000,  0.0000,  2.0000])
    """


@layer
class LogSigmoid(Module):
    """log(sigmoid(x)).

    >>> nn.LogSigmoid()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.3133, -0.6931, -0.1269])
    """


@layer
class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.

    >>> nn.Softplus()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3133, 0.6931, 2.1269])
    """


@layer
class Softshrink(Module):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> nn.Softshrink()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.5000,  0.0000,  1.5000])
    """


@layer
class PReLU(Module):
    """x where positive, else weight * x; one weight or one for each channel, at first `init`.

    >>> nn.PReLU()(arete.tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(_operators.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)


@layer
class Softsign(Module):
    """x / (1 + |x|).

    >>> nn.Softsign()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.5000,  0.0000,  0.6667])
    """


@layer
class Tanhshrink(Module):
    """x - tanh(x).

    >>> nn.Tanhshrink()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2384,  0.0000,  1.0360])
    """


@layer
class Softmin(Module):
    """softmax(-x) along `dim`.

    >>> nn.Softmin(dim=0)(arete.tensor([0.0, 1.0]))
    tensor([0.7311, 0.2689])
    """


@layer
class Softmax(Module):
    """exp(x) / sum(exp(x)) along `dim`.

    >>> nn.Softmax(dim=1)(arete.tensor([[0.0, 0.0], [0.0, 1.0]]))
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    """


@layer
class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    >>> nn.Softmax2d()(arete.zeros(1, 4, 2, 2)).sum(1)
    tensor([[[1., 1.],
             [1., 1.]]])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3)


@layer
class LogSoftmax(Module):
    """The logarithm of softmax along `dim`.

    >>> nn.LogSoftmax(dim=0)(arete.tensor([0.0, 1.0]))
    tensor([-1.3133, -0.3133])
    """

