"""Activations and dropout."""

from __future__ import annotations

from typing import Any, Optional

from arete import ArgumentError, Tensor, _ops

from ._common import check_probability, in_place, softmax_dim


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0).

    >>> F.relu(arete.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """
    return input.relu_() if inplace else _ops.relu(input)


def relu_(input: Tensor) -> Tensor:
    """relu, written into `input`.

    >>> x = arete.tensor([-1.0, 2.0])
    >>> F.relu_(x) is x, x
    (True, tensor([0., 2.]))
    """
    return input.relu_()


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """`input` limited to [0, 6].

    >>> F.relu6(arete.tensor([-1.0, 3.0, 8.0]))
    tensor([0., 3., 6.])
    """
    return in_place("relu6", input) if inplace else _ops.relu6(input)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """`input` where it is greater than `threshold`, else `value`.

    >>> F.threshold(arete.tensor([0.5, 1.0, 2.0]), 1.0, -7.0)
    tensor([-7., -7.,  2.])
    """
    if not input.is_floating_point():
        threshold, value = int(threshold), int(value)
    if inplace:
        return in_place("threshold", input, threshold, value)
    return _ops.threshold(input, threshold, value)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """threshold, written into `input`.

    >>> F.threshold_(arete.tensor([0.5, 2.0]), 1.0, 0.0)
    tensor([0., 2.])
    """
    return in_place("threshold", input, threshold, value)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """`input` limited to [min_val, max_val].

    >>> F.hardtanh(arete.tensor([-3.0, 0.5, 3.0]), -2.0, 2.0)
    tensor([-2.0000,  0.5000,  2.0000])
    >>> F.hardtanh(arete.ones(2), 2.0, 1.0)
    Traceback (most recent call last):
    ValueError: min_val cannot be greater than max_val
    """
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    if not input.is_floating_point():  # the default bounds of integers are integers, too
        min_val, max_val = int(min_val), int(max_val)
    if inplace:
        return in_place("hardtanh", input, min_val, max_val)
    return _ops.hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """hardtanh, written into `input`.

    >>> F.hardtanh_(arete.tensor([-3.0, 0.5]))
    tensor([-1.0000,  0.5000])
    """
    return in_place("hardtanh", input, min_val, max_val)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * relu6(input + 3) / 6.

    >>> F.hardswish(arete.tensor([-4.0, 1.5, 4.0]))
    tensor([0.0000, 1.1250, 4.0000])
    """
    return in_place("hardswish", input) if inplace else _ops.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """relu6(input + 3) / 6.

    >>> F.hardsigmoid(arete.tensor([-4.0, 0.0, 1.5]))
    tensor([0.0000, 0.5000, 0.7500])
    """
    return in_place("hardsigmoid", input) if inplace else _ops.hardsigmoid(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """`input` where positive, else alpha * (exp(input) - 1).

    >>> F.elu(arete.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return in_place("elu", input, alpha) if inplace else _ops.elu(input, alpha)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """elu, written into `input`.

    >>> F.elu_(arete.tensor([-1.0, 2.0]), alpha=0.5)
    tensor([-0.3161,  2.0000])
    """
    return in_place("elu", input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """scale * elu(input, alpha) with the constants that keep mean 0 and variance 1 from layer to layer.

    >>> F.selu(arete.tensor([-1.0, 1.0]))
    tensor([-1.1113,  1.0507])
    """
    return in_place("selu", input) if inplace else _ops.selu(input)


def selu_(input: Tensor) -> Tensor:
    """selu, written into `input`.

    >>> F.selu_(arete.tensor([-1.0, 1.0]))
    tensor([-1.1113,  1.0507])
    """
    return in_place("selu", input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)).

    >>> F.celu(arete.tensor([-1.0, 2.0]), alpha=2.0)
    tensor([-0.7869,  2.0000])
    """
    return in_place("celu", input, alpha) if inplace else _ops.celu(input, alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """celu, written into `input`.

    >>> F.celu_(arete.tensor([-1.0, 2.0]))
    tensor([-0.6321,  2.0000])
    """
    return in_place("celu", input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """`input` where positive, else negative_slope * input.

    >>> F.leaky_relu(arete.tensor([-1.0, 2.0]), 0.1)
    tensor([-0.1000,  2.0000])
    """
    if inplace:
        return in_place("leaky_relu", input, negative_slope)
    return _ops.leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """leaky_relu, written into `input`.

    >>> F.leaky_relu_(arete.tensor([-1.0, 2.0]))
    tensor([-0.0100,  2.0000])
    """
    return in_place("leaky_relu", input, negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """`input` where positive, else weight * input; one weight or one for each channel (dim 1).

    >>> F.prelu(arete.tensor([[-1.0, -1.0]]), arete.tensor([0.25, 0.5]))
    tensor([[-0.2500, -0.5000]])
    >>> F.prelu(arete.ones(1, 2), arete.ones(3))
    Traceback (most recent call last):
    arete.ArgumentError: Mismatch of parameter numbers and input channel size. Found parameter numbers = 3 ...
    """
    return _ops.prelu(input, weight)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """leaky_relu whose slopes are random in [lower, upper] in training, else their mean.

    >>> F.rrelu(arete.tensor([-48.0, 2.0]))
    tensor([-11.,   2.])
    """
    if inplace:
        return in_place("rrelu", input, lower, upper, training)
    return _ops.rrelu(input, lower, upper, training)


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """rrelu, written into `input`.

    >>> F.rrelu_(arete.tensor([-48.0, 2.0]))
    tensor([-11.,   2.])
    """
    return in_place("rrelu", input, lower, upper, training)


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """x * Phi(x) with the normal distribution's Phi; approximate "none" or "tanh".

    >>> F.gelu(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.1587,  0.0000,  0.8413])
    >>> F.gelu(arete.tensor(1.0), approximate="tanh")
    tensor(0.8412)
    >>> F.gelu(arete.tensor(1.0), approximate="sigmoid")
    Traceback (most recent call last):
    arete.ArgumentError: approximate argument must be either none or tanh...
    """
    return _ops.gelu(input, approximate=approximate)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x).

    >>> F.silu(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2689,  0.0000,  0.7311])
    """
    return in_place("silu", input) if inplace else _ops.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)).

    >>> F.mish(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.3034,  0.0000,  0.8651])
    """
    return in_place("mish", input) if inplace else _ops.mish(input)


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> F.sigmoid(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([0.2689, 0.5000, 0.7311])
    """
    return _ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """The hyperbolic tangent.

    >>> F.tanh(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7616,  0.0000,  0.7616])
    """
    return _ops.tanh(input)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)).

    >>> F.logsigmoid(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([-1.3133, -0.6931, -0.3133])
    """
    return _ops.logsigmoid(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold.

    >>> F.softplus(arete.tensor([-1.0, 0.0, 30.0]))
    tensor([ 0.3133,  0.6931, 30.0000])
    """
    return _ops.softplus(input, beta, threshold)


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> F.softsign(arete.tensor([-1.0, 0.0, 3.0]))
    tensor([-0.5000,  0.0000,  0.7500])
    """
    return _ops.softsign(input)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x).

    >>> F.tanhshrink(arete.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.2384,  0.0000,  0.2384])
    """
    return _ops.tanhshrink(input)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and 0 where |x| <= lambd.

    >>> F.softshrink(arete.tensor([-2.0, 0.25, 1.0]))
    tensor([-1.5000,  0.0000,  0.5000])
    """
    if lambd < 0:
        raise ArgumentError(f"lambda must be greater or equal to 0, but found to be {lambd}.")
    return _ops.softshrink(input, lambd)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0.

    >>> F.hardshrink(arete.tensor([-2.0, 0.25, 1.0]))
    tensor([-2.,  0.,  1.])
    """
    return _ops.hardshrink(input, lambd)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second.

    (*, 2n, *) -> (*, n, *). RuntimeError for an odd size and for a tensor without dimensions.

    >>> F.glu(arete.tensor([2.0, 4.0, 0.0, 0.0]))
    tensor([1., 2.])
    >>> F.glu(arete.ones(3))
    Traceback (most recent call last):
    arete.ArgumentError: Halving dimension must be even, but dimension 0 is size 3. Operator: glu
    """
    if input.dim() == 0:
        raise RuntimeError(
            "glu does not support scalars because halving size must be even"
        )
    return _ops.glu(input, dim)


def softmax(
    input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`; `dtype` converts the input first.

    Without `dim` there is a warning, and a dimension is chosen by the number of dimensions.

    >>> F.softmax(arete.tensor([[0.0, 0.0], [0.0, 1.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.2689, 0.7311]])
    >>> F.softmax(arete.ones(2), dim=1)
    Traceback (most recent call last):
    IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)...
    """
    return _ops.softmax(input, softmax_dim("softmax", dim, input.dim()), dtype=dtype)


def log_softmax(
    input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The logarithm of softmax, accurate for small probabilities.

    >>> F.log_softmax(arete.tensor([0.0, 1.0]), dim=0)
    tensor([-1.3133, -0.3133])
    """
    return _ops.log_softmax(input, softmax_dim("log_softmax", dim, input.dim()), dtype=dtype)


def softmin(
    input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """softmax(-x).

    >>> F.softmin(arete.tensor([0.0, 1.0]), dim=0)
    tensor([0.7311, 0.2689])
    """
    return _ops.softmin(input, softmax_dim("softmin", dim, input.dim()), dtype=dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A sample of the Gumbel-softmax distribution of `logits` at the temperature `tau`.

    `hard` gives one-hot vectors, whose gradient is that of the soft sample.

    >>> F.gumbel_softmax(arete.zeros(2, 3), hard=True).sum(-1)
    tensor([1., 1.])
    """
    return _ops.gumbel_softmax(logits, float(tau), hard, eps, dim)


def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """In training, elements become 0 with probability p and the others are divided by 1 - p.

    >>> F.dropout(arete.ones(2, 3), training=False).sum()
    tensor(6.)
    >>> F.dropout(arete.ones(2, 3), p=0.5).shape
    arete.Size([2, 3])
    >>> F.dropout(arete.ones(2, 3), p=1.5)
    Traceback (most recent call last):
    ValueError: dropout probability has to be between 0 and 1, but got 1.5
    """
    return _dropped("dropout", input, p, training, inplace)


def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps mean and variance of inputs with mean 0 and variance 1.

    >>> F.alpha_dropout(arete.ones(2, 3), p=0.2, training=True).shape
    arete.Size([2, 3])
    """
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
    """Dropout of whole channels of (N, C, L) or (C, L).

    >>> F.dropout1d(arete.ones(2, 3, 4)).shape
    arete.Size([2, 3, 4])
    """
    return _dropped("dropout1d", input, p, training, inplace)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, H, W); (N, C, L) is taken as such too.

    >>> F.dropout2d(arete.ones(2, 3, 4, 4)).shape
    arete.Size([2, 3, 4, 4])
    """
    return _dropped("dropout2d", input, p, training, inplace)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of (N, C, D, H, W) or (C, D, H, W).

    >>> F.dropout3d(arete.ones(2, 3, 4, 4, 4)).shape
    arete.Size([2, 3, 4, 4, 4])
    """
    return _dropped("dropout3d", input, p, training, inplace)


def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """alpha_dropout of whole channels of (N, C, ...).

    >>> F.feature_alpha_dropout(arete.ones(2, 3, 4), training=True).shape
    arete.Size([2, 3, 4])
    """
    return _dropped("feature_alpha_dropout", input, p, training, inplace)
