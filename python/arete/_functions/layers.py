"""What layers are made of, as torch names it."""
from __future__ import annotations

import builtins

from .. import _C, _ops
from .._C import Tensor
from .._grad_mode import no_grad

_GRID_MODES, _GRID_PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sample with its modes as numbers: bilinear, nearest, bicubic; zeros, border, reflection.

    >>> arete.grid_sampler(arete.tensor([[[[1.0, 3.0]]]]), arete.zeros(1, 1, 1, 2), 0, 0, True)
    tensor([[[[2.]]]])
    """
    return _ops.grid_sample(input, grid, _GRID_MODES[interpolation_mode], _GRID_PADDINGS[padding_mode], align_corners)


def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sampler of images (N, C, H, W).

    >>> arete.grid_sampler_2d(arete.zeros(1, 3, 4, 4), arete.zeros(1, 2, 2, 2), 0, 0, False).shape
    arete.Size([1, 3, 2, 2])
    """
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool):
    """grid_sampler of volumes (N, C, D, H, W).

    >>> arete.grid_sampler_3d(arete.zeros(1, 3, 4, 4, 4), arete.zeros(1, 2, 2, 2, 3), 0, 0, False).shape
    arete.Size([1, 3, 2, 2, 2])
    """
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def native_layer_norm(input: Tensor, normalized_shape, weight, bias, eps: float):
    """layer_norm, and the mean and the reciprocal of the deviation that it divides by.

    >>> out, mean, rstd = arete.native_layer_norm(arete.tensor([[1.0, 3.0]]), [2], None, None, 1e-5)
    >>> mean, rstd
    (tensor([[2.]]), tensor([[1.0000]]))
    """
    dims = list(builtins.range(-len(normalized_shape), 0))
    half = input.dtype in (_C.float16, _C.bfloat16)
    # As torch's: of half precision in float32 on a GPU and beside float32 parameters, without a gradient.
    wide = half and (input.is_cuda or weight is not None and weight.dtype is _C.float32)
    with no_grad():
        spread, mean = _ops.var_mean(input.float() if half else input, dims, correction=0, keepdim=True)
        kind = _C.float32 if wide else input.dtype
        mean, rstd = mean.to(kind), (spread + eps).rsqrt().to(kind)
    return _ops.layer_norm(input, list(normalized_shape), weight, bias, eps), mean, rstd
