"""Gradients of convolutions by what was given to them, for layers that compute their own.

>>> x, weight = arete.ones(1, 1, 3, 3), arete.ones(1, 1, 2, 2)
>>> arete.nn.grad.conv2d_weight(x, weight.shape, arete.ones(1, 1, 2, 2)).tolist()
[[[[4.0, 4.0], [4.0, 4.0]]]]
"""

from __future__ import annotations

from typing import Any, Sequence

from .. import autograd
from .._C import Tensor, is_grad_enabled
from . import functional as F

__all__ = ["conv1d_input", "conv1d_weight", "conv2d_input", "conv2d_weight", "conv3d_input", "conv3d_weight"]


def _gradient(rank: int, at: int, operands: list, grad_output: Tensor, *rest: Any) -> Tensor:
    """By the operand at this place, which has a size alone: a convolution is linear in it."""
    again = is_grad_enabled() and any(t.requires_grad for t in (*operands, grad_output))
    with autograd.enable_grad():
        operands[at].requires_grad_()
        result = getattr(F, f"conv{rank}d")(operands[0], operands[1], None, *rest)
    return autograd.grad(result, operands[at], grad_output, create_graph=again)[0]


def _of_input(rank: int) -> Any:
    def conv_input(input_size: Sequence[int], weight: Tensor, grad_output: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                   groups: int = 1) -> Tensor:
        return _gradient(rank, 0, [grad_output.new_zeros(input_size), weight], grad_output, stride, padding, dilation, groups)

    conv_input.__name__ = conv_input.__qualname__ = f"conv{rank}d_input"
    conv_input.__doc__ = f"The gradient of `conv{rank}d` by its input, which has this size."
    return conv_input


def _of_weight(rank: int) -> Any:
    def conv_weight(input: Tensor, weight_size: Sequence[int], grad_output: Tensor, stride: Any = 1, padding: Any = 0,  # noqa: A002
                    dilation: Any = 1, groups: int = 1) -> Tensor:
        return _gradient(rank, 1, [input, grad_output.new_zeros(weight_size)], grad_output, stride, padding, dilation, groups)

    conv_weight.__name__ = conv_weight.__qualname__ = f"conv{rank}d_weight"
    conv_weight.__doc__ = f"The gradient of `conv{rank}d` by its weight, which has this size."
    return conv_weight


conv1d_input, conv2d_input, conv3d_input = map(_of_input, (1, 2, 3))
conv1d_weight, conv2d_weight, conv3d_weight = map(_of_weight, (1, 2, 3))
