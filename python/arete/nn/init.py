"""Initial values: functions that fill a tensor in place, without recording gradients."""

from __future__ import annotations

import math
import warnings
from typing import Any, Callable, Optional, Tuple

from .. import _operators, linalg
from .._C import Tensor
from .._grad_mode import no_grad

__all__ = [
    "calculate_gain",
    "uniform_",
    "normal_",
    "trunc_normal_",
    "constant_",
    "ones_",
    "zeros_",
    "eye_",
    "dirac_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "kaiming_normal_",
    "orthogonal_",
    "sparse_",
    "uniform",
    "normal",
    "constant",
    "eye",
    "dirac",
    "xavier_uniform",
    "xavier_normal",
    "kaiming_uniform",
    "kaiming_normal",
    "orthogonal",
    "sparse",
]

_GAINS = {"sigmoid": 1.0, "tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
_LINEAR = ("linear", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)))


def calculate_gain(nonlinearity: str, param: Any = None) -> float:
    """The factor by which a nonlinearity needs its inputs' standard deviation enlarged.

    `param` is the negative slope of "leaky_relu" (0.01 by default). ValueError for other names.

    >>> nn.init.calculate_gain("tanh")
    1.6666666666666667
    >>> nn.init.calculate_gain("gelu")
    Traceback (most recent call last):
    ValueError: Unsupported nonlinearity gelu
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity == "leaky_relu":
        if param is None:
            param = 0.01
        elif isinstance(param, bool) or not isinstance(param, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + param**2))
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b).

    >>> w = nn.init.uniform_(arete.empty(3, 5), 2.0, 4.0)
    >>> w.min() >= 2, w.max() < 4
    (tensor(True), tensor(True))
    """
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None
) -> Tensor:
    """Normal with the given mean and standard deviation.

    >>> nn.init.normal_(arete.empty(3, 5), std=0.02).shape
    arete.Size([3, 5])
    """
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Normal, restricted to [a, b].

    >>> w = nn.init.trunc_normal_(arete.empty(3, 5), a=-1.0, b=1.0)
    >>> w.abs().max() <= 1
    tensor(True)
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect.",
            stacklevel=2,
        )

    def below(x: float) -> float:
        return (1.0 + math.erf((x - mean) / (std * math.sqrt(2.0)))) / 2.0

    low, high = 2 * below(a) - 1, 2 * below(b) - 1
    with no_grad():
        tensor.uniform_(low, high, generator=generator)
        tensor.erfinv_()
        tensor.mul_(std * math.sqrt(2.0)).add_(mean)
        return tensor.clamp_(a, b)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """`val` everywhere.

    >>> nn.init.constant_(arete.empty(2), 0.5)
    tensor([0.5000, 0.5000])
    """
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    >>> nn.init.ones_(arete.empty(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    >>> nn.init.zeros_(arete.empty(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """The identity; ValueError unless the tensor has 2 dimensions.

    >>> nn.init.eye_(arete.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with no_grad():
        return tensor.copy_(
            _operators.eye(tensor.shape[0], tensor.shape[1], dtype=tensor.dtype, device=tensor.device)
        )


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Convolution weights (3 to 5 dimensions) that keep as many channels as they can.

    >>> nn.init.dirac_(arete.empty(2, 2, 3))
    tensor([[[0., 1., 0.],
             [0., 0., 0.]],
    <BLANKLINE>
            [[0., 0., 0.],
             [0., 1., 0.]]])
    """
    if tensor.dim() not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = tensor.shape[0] // groups
    centre = tuple(n // 2 for n in tensor.shape[2:])
    with no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, tensor.shape[1])):
                tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> Tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)).

    >>> nn.init.xavier_uniform_(arete.empty(3, 5)).abs().max() <= (6 / 8) ** 0.5
    tensor(True)
    >>> nn.init.xavier_uniform_(arete.empty(3))
    Traceback (most recent call last):
    ValueError: Fan in and fan out can not be computed for tensor with fewer than 2 dimensions
    """
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with the standard deviation gain * sqrt(2 / (fan_in + fan_out)).

    >>> nn.init.xavier_normal_(arete.empty(3, 5)).shape
    arete.Size([3, 5])
    """
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> Optional[float]:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan).

    >>> w = nn.init.kaiming_uniform_(arete.empty(3, 5), nonlinearity="relu")
    >>> w.abs().max() <= (6 / 5) ** 0.5
    tensor(True)
    >>> nn.init.kaiming_uniform_(arete.empty(3, 5), mode="fan")
    Traceback (most recent call last):
    ValueError: Mode fan not supported, please use one of ['fan_in', 'fan_out']
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Normal with the standard deviation gain / sqrt(fan).

    >>> nn.init.kaiming_normal_(arete.empty(3, 5), mode="fan_out").shape
    arete.Size([3, 5])
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A random (half-)orthogonal matrix times `gain`; dimensions after the first are one.

    >>> w = nn.init.orthogonal_(arete.empty(2, 5))
    >>> arete.allclose(w @ w.T, arete.eye(2), atol=1e-6)
    True
    """
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.shape[0]
    columns = tensor.numel() // rows
    with no_grad():
        values = _operators.empty(rows, columns, dtype=tensor.dtype, device=tensor.device)
        values.normal_(0, 1, generator=generator)
        if rows < columns:
            values = values.t()
        q, r = linalg.qr(values)
        q = q * _operators.diagonal(r).sign()  # uniform over all orthogonal matrices
        if rows < columns:
            q = q.t()
        return tensor.copy_(q.reshape(tensor.shape)).mul_(gain)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal values, of which a share `sparsity` in each column is 0.

    >>> (nn.init.sparse_(arete.empty(4, 3), sparsity=0.5) == 0).sum(0)
    tensor([2, 2, 2])
    """
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = int(math.ceil(sparsity * rows))
    with no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            picked = _operators.randperm(rows)[:zeros].to(tensor.device)
            tensor[:, column] = tensor[:, column].index_fill(0, picked, 0)
    return tensor


def _older_name(function: Callable) -> Callable:
    name = function.__name__[:-1]

    def older(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    older.__name__ = older.__qualname__ = name
    older.__doc__ = f"The older name of :func:`{name}_`."
    return older


uniform = _older_name(uniform_)
normal = _older_name(normal_)
constant = _older_name(constant_)
eye = _older_name(eye_)
dirac = _older_name(dirac_)
xavier_uniform = _older_name(xavier_uniform_)
xavier_normal = _older_name(xavier_normal_)
kaiming_uniform = _older_name(kaiming_uniform_)
kaiming_normal = _older_name(kaiming_normal_)
orthogonal = _older_name(orthogonal_)
sparse = _older_name(sparse_)
