"""Batch norm folded into the layer before it, for evaluation."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional, Tuple, TypeVar

from ..._C import Tensor
from ..._grad_mode import no_grad
from ..parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]

M = TypeVar("M")


def _fused(
    w: Tensor, b: Optional[Tensor], mean: Tensor, var: Tensor, eps: float,
    scale: Optional[Tensor], shift: Optional[Tensor], shape: list,
) -> Tuple[Parameter, Parameter]:
    with no_grad():
        factor = (var + eps).rsqrt()
        if scale is not None:
            factor = factor * scale
        new_bias = ((0 if b is None else b) - mean) * factor
        if shift is not None:
            new_bias = new_bias + shift
        new_weight = (w * factor.reshape(shape)).to(w.dtype)
    bias_grad = w.requires_grad if b is None else b.requires_grad
    return (
        Parameter(new_weight, w.requires_grad),
        Parameter(new_bias.to(w.dtype if b is None else b.dtype), bias_grad),
    )


def _fused_copy(layer: M, bn: Any, fuse: Callable, *options: Any) -> M:
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = fuse(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, *options
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Optional[Tensor],
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Optional[Tensor],
    bn_b: Optional[Tensor],
    transpose: bool = False,
) -> Tuple[Parameter, Parameter]:
    """Weight and bias of a convolution that does what it and the batch norm after it do.

    >>> bn = nn.BatchNorm2d(4)
    >>> w, b = nn.utils.fuse_conv_bn_weights(
    ...     arete.ones(4, 3, 1, 1), None, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    >>> w.shape, b.shape
    (arete.Size([4, 3, 1, 1]), arete.Size([4]))
    """
    shape = [-1] + [1] * (conv_w.dim() - 1)
    if transpose:
        shape = [1, -1] + [1] * (conv_w.dim() - 2)
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_conv_bn_eval(conv: M, bn: Any, transpose: bool = False) -> M:
    """A copy of `conv` that does what conv and bn (both in evaluation mode) do.

    >>> conv, bn = nn.Conv2d(3, 4, 1).eval(), nn.BatchNorm2d(4).eval()
    >>> x = arete.randn(1, 3, 5, 5)
    >>> arete.allclose(nn.utils.fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-5)
    True
    """
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    return _fused_copy(conv, bn, fuse_conv_bn_weights, transpose)


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Optional[Tensor],
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> Tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer that does what it and the batch norm after it do.

    >>> bn = nn.BatchNorm1d(4)
    >>> w, b = nn.utils.fuse_linear_bn_weights(
    ...     arete.ones(4, 3), None, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    >>> w.shape, b.shape
    (arete.Size([4, 3]), arete.Size([4]))
    """
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, [-1, 1])


def fuse_linear_bn_eval(linear: M, bn: Any) -> M:
    """A copy of `linear` that does what linear and bn (both in evaluation mode) do.

    >>> linear, bn = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4).eval()
    >>> x = arete.randn(2, 3)
    >>> arete.allclose(nn.utils.fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), atol=1e-5)
    True
    """
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    return _fused_copy(linear, bn, fuse_linear_bn_weights)
