"""Activation layers without weights, and PReLU."""

from __future__ import annotations

from typing import Any, Optional

import arete
from arete import Tensor

from .. import functional as F
from .. import init
from ..parameter import Parameter
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


class _InPlace(Module):
    """An activation whose only option is whether it overwrites its input."""

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


def _inplace_text(inplace: bool) -> str:
    return ", inplace=True" if inplace else ""


class Threshold(Module):
    """x where x > threshold, else value.

    >>> nn.Threshold(1.0, -7.0)(arete.tensor([0.5, 2.0]))
    tensor([-7.,  2.])
    """

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        text = f"threshold={self.threshold}, value={self.value}"
        return text + _inplace_text(self.inplace)


class ReLU(_InPlace):
    """max(x, 0).

    >>> nn.ReLU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class RReLU(Module):
    """Leaky ReLU whose slopes are random in [lower, upper] in training, else their mean.

    >>> nn.RReLU().eval()(arete.tensor([-48.0, 2.0]))
    tensor([-11.,   2.])
    """

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + _inplace_text(self.inplace)


class Hardtanh(Module):
    """x limited to [min_val, max_val].

    ValueError unless min_val < max_val.

    >>> nn.Hardtanh(-2.0, 2.0)(arete.tensor([-3.0, 0.5, 3.0]))
    tensor([-2.0000,  0.5000,  2.0000])
    """

    __constants__ = ["min_val", "max_val", "inplace"]

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
        if self.max_val <= self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + _inplace_text(self.inplace)


class ReLU6(Hardtanh):
    """x limited to [0, 6].

    >>> nn.ReLU6()(arete.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> nn.Sigmoid()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0.2689, 0.5000, 0.8808])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6.

    >>> nn.Hardsigmoid()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3333, 0.5000, 0.8333])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class Tanh(Module):
    """The hyperbolic tangent.

    >>> nn.Tanh()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.7616,  0.0000,  0.9640])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class SiLU(_InPlace):
    """x * sigmoid(x).

    >>> nn.SiLU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2689,  0.0000,  1.7616])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(_InPlace):
    """x * tanh(softplus(x)).

    >>> nn.Mish()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3034,  0.0000,  1.9440])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(_InPlace):
    """x * relu6(x + 3) / 6.

    >>> nn.Hardswish()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3333,  0.0000,  1.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""


class ELU(Module):
    """x where positive, else alpha * (exp(x) - 1).

    >>> nn.ELU(alpha=0.5)(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.3161,  0.0000,  2.0000])
    """

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + _inplace_text(self.inplace)


class CELU(Module):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    >>> nn.CELU(alpha=2.0)(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.7869,  0.0000,  2.0000])
    """

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + _inplace_text(self.inplace)


class SELU(_InPlace):
    """The self-normalizing ELU.

    >>> nn.SELU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.1113,  0.0000,  2.1014])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second.

    (*, 2n, *) -> (*, n, *).

    >>> nn.GLU()(arete.tensor([2.0, 4.0, 0.0, 0.0]))
    tensor([1., 2.])
    """

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """x * Phi(x) with the normal distribution's Phi; approximate "none" or "tanh".

    >>> nn.GELU()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1587,  0.0000,  1.9545])
    """

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardshrink(Module):
    """x where |x| > lambd, else 0.

    >>> nn.Hardshrink()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.,  0.,  2.])
    """

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class LeakyReLU(Module):
    """x where positive, else negative_slope * x.

    >>> nn.LeakyReLU(0.1)(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.1000,  0.0000,  2.0000])
    """

    __constants__ = ["inplace", "negative_slope"]

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + _inplace_text(self.inplace)


class LogSigmoid(Module):
    """log(sigmoid(x)).

    >>> nn.LogSigmoid()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-1.3133, -0.6931, -0.1269])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.

    >>> nn.Softplus()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0.3133, 0.6931, 2.1269])
    """

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> nn.Softshrink()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.5000,  0.0000,  1.5000])
    """

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class PReLU(Module):
    """x where positive, else weight * x; one weight or one for each channel, at first `init`.

    >>> nn.PReLU()(arete.tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    __constants__ = ["num_parameters"]

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(arete.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softsign(Module):
    """x / (1 + |x|).

    >>> nn.Softsign()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.5000,  0.0000,  0.6667])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x).

    >>> nn.Tanhshrink()(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([-0.2384,  0.0000,  1.0360])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class _AlongDim(Module):
    __constants__ = ["dim"]
    dim: Optional[int]

    def __init__(self, dim: Optional[int] = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(_AlongDim):
    """softmax(-x) along `dim`.

    >>> nn.Softmin(dim=0)(arete.tensor([0.0, 1.0]))
    tensor([0.7311, 0.2689])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class Softmax(_AlongDim):
    """exp(x) / sum(exp(x)) along `dim`.

    >>> nn.Softmax(dim=1)(arete.tensor([[0.0, 0.0], [0.0, 1.0]]))
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


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


class LogSoftmax(_AlongDim):
    """The logarithm of softmax along `dim`.

    >>> nn.LogSoftmax(dim=0)(arete.tensor([0.0, 1.0]))
    tensor([-1.3133, -0.3133])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)
