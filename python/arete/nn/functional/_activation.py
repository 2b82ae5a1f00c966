"""Activations and dropout."""

from __future__ import annotations

from typing import Any, Optional

from arete import Tensor, _ops

from ._common import check_probability, in_place, softmax_dim


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0)."""
    return input.relu_() if inplace else _ops.relu(input)


def relu_(input: Tensor) -> Tensor:
    """relu, written into `input`."""
    return input.relu_()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`input` limited to [0, 6]."""
    return in_place("relu6", input) if inplace else _ops.relu6(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`input` where it is greater than `threshold`, else `value`."""
    if inplace:
        return in_place("threshold", input, threshold, value)
    return _ops.threshold(input, threshold, value)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold, written into `input`."""
    return in_place("threshold", input, threshold, value)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """`input` limited to [min_val, max_val]."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not input.is_floating_point():  # the default bounds of integers are integers, too
        min_val, max_val = int(min_val), int(max_val)
    if inplace:
        return in_place("hardtanh", input, min_val, max_val)
    return _ops.hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh, written into `input`."""
    return in_place("hardtanh", input, min_val, max_val)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * relu6(input + 3) / 6."""
    return in_place("hardswish", input) if inplace else _ops.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6."""
    return in_place("hardsigmoid", input) if inplace else _ops.hardsigmoid(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, else alpha * (exp(input) - 1)."""
    return in_place("elu", input, alpha) if inplace else _ops.elu(input, alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu, written into `input`."""
    return in_place("elu", input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalizing elu."""
    return in_place("selu", input) if inplace else _ops.selu(input)


def selu_(input: Tensor) -> Tensor:
    """selu, written into `input`."""
    return in_place("selu", input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    return in_place("celu", input, alpha) if inplace else _ops.celu(input, alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu, written into `input`."""
    return in_place("celu", input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input` where positive, else negative_slope * input."""
    if inplace:
        return in_place("leaky_relu", input, negative_slope)
    return _ops.leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu, written into `input`."""
    return in_place("leaky_relu", input, negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where positive, else weight * input; one weight or one for each channel (dim 1)."""
    return _ops.prelu(input, weight)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu whose slopes are random in [lower, upper] in training, else their mean."""
    if inplace:
        return in_place("rrelu", input, lower, upper, training)
    return _ops.rrelu(input, lower, upper, training)


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """rrelu, written into `input`."""
    return in_place("rrelu", input, lower, upper, training)


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x * Phi(x) with the normal distribution's Phi; approximate "none" or "tanh"."""
    return _ops.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return in_place("silu", input) if inplace else _ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x))."""
    return in_place("mish", input) if inplace else _ops.mish(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return _ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent."""
    return _ops.tanh(input)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x))."""
    return _ops.logsigmoid(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""
    return _ops.softplus(input, beta, threshold)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return _ops.softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return _ops.tanhshrink(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""
    return _ops.softshrink(input, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    return _ops.hardshrink(input, lambd)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second."""
    if input.dim() == 0:
        raise RuntimeError(
            "glu does not support scalars because halving size must be even"
        )
    return _ops.glu(input, dim)


def softmax(
    input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; `dtype` converts the input first."""
    return _ops.softmax(input, softmax_dim("softmax", dim, input.dim()), dtype=dtype)


def log_softmax(
    input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The logarithm of softmax, accurate for small probabilities."""
    return _ops.log_softmax(input, softmax_dim("log_softmax", dim, input.dim()), dtype=dtype)


def softmin(
    input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """softmax(-x)."""
    return _ops.softmin(input, softmax_dim("softmin", dim, input.dim()), dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution of `logits` at the temperature `tau`.

    `hard` gives one-hot vectors, whose gradient is that of the soft sample.
    """
    return _ops.gumbel_softmax(logits, float(tau), hard, eps, dim)


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """In training, elements become 0 with probability p and the others are divided by 1 - p."""
    return _dropped("dropout", input, p, training, inplace)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of inputs with mean 0 and variance 1."""
    return _dropped("alpha_dropout", input, p, training, inplace)


def _dropped(
    name: str, input: Tensor, p: float, training: bool, inplace: bool
) -> Tensor:
    check_probability(p)
    if inplace and not training:
        return input
    out = getattr(_ops, name)(input, p, training)
    return input.copy_(out) if inplace else out


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, L) or (C, L)."""
    return _dropped("dropout1d", input, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, H, W); (N, C, L) is taken as such too."""
    return _dropped("dropout2d", input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
    return _dropped("dropout3d", input, p, training, inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels of (N, C, ...)."""
    return _dropped("feature_alpha_dropout", input, p, training, inplace)
