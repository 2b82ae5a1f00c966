"""Linear maps, convolutions, embeddings, and functions that move image blocks."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Union

import arete
from arete import Tensor, _ops

from ._common import IntOrInts, named, shapes

linear = _ops.linear
bilinear = _ops.bilinear


def _conv(n: int, doc: str) -> Callable:
    name = f"conv{n}d"

    def conv(
        input: Tensor,
        weight: Tensor,
        bias: Optional[Tensor] = None,
        stride: IntOrInts = 1,
        padding: Union[str, IntOrInts] = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
    ) -> Tensor:
        op = getattr(_ops, name + "_padding" if isinstance(padding, str) else name)
        return op(input, weight, bias, stride, padding, dilation, groups)

    return named(conv, name, doc)


conv1d = _conv(
    1,
    """Convolution of (N, Cin, L) or (Cin, L) with weight (Cout, Cin / groups, k).

    `padding` is a number, "valid" (none) or "same" (the output has the input's length).

    >>> F.conv1d(arete.tensor([[[1.0, 2.0, 4.0]]]), arete.tensor([[[-1.0, 1.0]]]))
    tensor([[[1., 2.]]])
    >>> F.conv1d(arete.ones(1, 1, 3), arete.ones(1, 1, 2), padding="same")
    tensor([[[2., 2., 1.]]])
    >>> F.conv1d(arete.ones(1, 2, 3), arete.ones(1, 3, 1))
    Traceback (most recent call last):
    arete.ArgumentError: Given groups=1, weight of size [1, 3, 1], expected input[1, 2, 3] to have 3 channels, ...
    """,
)
conv2d = _conv(
    2,
    """Convolution of (N, Cin, H, W) or (Cin, H, W) with weight (Cout, Cin / groups, kh, kw).

    `stride`, `padding` and `dilation` are one number or one for each dimension.

    >>> F.conv2d(arete.randn(1, 3, 8, 8), arete.randn(5, 3, 3, 3), padding=1).shape
    arete.Size([1, 5, 8, 8])
    >>> F.conv2d(arete.ones(1, 1, 2, 2), arete.ones(1, 1, 3, 3))
    Traceback (most recent call last):
    arete.ArgumentError: Calculated padded input size per channel: (2). Kernel size: (3). Kernel size can't be ...
    """,
)
conv3d = _conv(
    3,
    """Convolution of (N, Cin, D, H, W) with weight (Cout, Cin / groups, kd, kh, kw).

    >>> F.conv3d(arete.zeros(1, 3, 4, 4, 4), arete.zeros(5, 3, 2, 2, 2)).shape
    arete.Size([1, 5, 3, 3, 3])
    """,
)


def _conv_transpose(n: int, kernel: str) -> Callable:
    name = f"conv_transpose{n}d"

    def conv_transpose(
        input: Tensor,
        weight: Tensor,
        bias: Optional[Tensor] = None,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        dilation: IntOrInts = 1,
    ) -> Tensor:
        return getattr(_ops, name)(
            input, weight, bias, stride, padding, output_padding, groups, dilation
        )

    doc = f"The gradient of conv{n}d as an operator; weight (Cin, Cout / groups, {kernel})."
    weight = f"arete.zeros(3, 2{', 2' * n})"
    doc += shapes(n, f"F.{name}(arete.zeros(1, 3, SIZES), {weight}, stride=2)", 8)
    return named(conv_transpose, name, doc)


conv_transpose1d = _conv_transpose(1, "k")
conv_transpose2d = _conv_transpose(2, "kh, kw")
conv_transpose3d = _conv_transpose(3, "kd, kh, kw")


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d of (T, N, Cin) with weight (k, Cin, Cout) -> (T', N, Cout).

    >>> F.conv_tbc(arete.zeros(5, 2, 3), arete.zeros(3, 3, 4), arete.zeros(4)).shape
    arete.Size([3, 2, 4])
    """
    out = _ops.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, 1, pad, 1, 1)
    return out.permute(2, 0, 1)


def unfold(
    input: Tensor,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """The windows of images (N, C, H, W) as columns (N, C kh kw, windows).

    >>> F.unfold(arete.arange(6.0).reshape(1, 1, 2, 3), kernel_size=2)
    tensor([[[0., 1.],
             [1., 2.],
             [3., 4.],
             [4., 5.]]])
    """
    return _ops.unfold_im2col(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: IntOrInts,
    kernel_size: IntOrInts,
    dilation: IntOrInts = 1,
    padding: IntOrInts = 0,
    stride: IntOrInts = 1,
) -> Tensor:
    """Sums columns (N, C kh kw, windows) back into images (N, C, *output_size).

    >>> F.fold(arete.ones(1, 4, 2), output_size=(2, 3), kernel_size=2)
    tensor([[[[1., 2., 1.],
              [1., 2., 1.]]]])
    >>> F.fold(arete.ones(1, 4, 3), output_size=(2, 3), kernel_size=2)
    Traceback (most recent call last):
    arete.ArgumentError: Given output_size=[2, 3], kernel_size=[2, 2], dilation=[1, 1], padding=[0, 0], ...
    """
    return _ops.fold(input, output_size, kernel_size, dilation, padding, stride)


def _row_of(padding_idx: Optional[int], rows: int) -> int:
    """A record's padding_idx: not negative, -1 for none."""
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx if padding_idx >= 0 else padding_idx + rows


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: Optional[int] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (V, D) at the integers `input` -> (*, D).

    The row padding_idx gets no gradient. With max_norm the rows looked up are scaled to at most
    that norm, in place. `sparse` is accepted; gradients are dense. IndexError for an index out of
    range.

    >>> weight = arete.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> F.embedding(arete.tensor([2, 0]), weight)
    tensor([[5., 6.],
            [1., 2.]])
    >>> F.embedding(arete.tensor([3]), weight)
    Traceback (most recent call last):
    IndexError: index 3 is out of bounds for dimension 0 with size 3. Operator: embedding. Argument: index
    """
    if padding_idx is not None:
        padding_idx = _row_of(padding_idx, weight.size(0))
    return _ops.embedding(
        input, weight, padding_idx, max_norm, float(norm_type), scale_grad_by_freq, sparse
    )


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Optional[Tensor] = None,
    max_norm: Optional[float] = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Optional[Tensor] = None,
    include_last_offset: bool = False,
    padding_idx: Optional[int] = None,
) -> Tensor:
    """Sums, means or maxima of bags of rows of `weight` (V, D) -> (B, D).

    Bags are the rows of a 2-d `input`, or the stretches of a 1-d one that start at `offsets`.

    ValueError for offsets with 2-d input or none with 1-d input, NotImplementedError for
    per_sample_weights with a mode other than "sum".

    >>> weight = arete.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> F.embedding_bag(arete.tensor([0, 1, 2]), weight, arete.tensor([0, 1]), mode="sum")
    tensor([[ 1.,  2.],
            [ 8., 10.]])
    >>> F.embedding_bag(arete.tensor([0, 1]), weight)
    Traceback (most recent call last):
    ValueError: offsets has to be a 1D Tensor but got None
    """
    if weight.dtype == arete.int64 and input.is_floating_point():
        import warnings

        warnings.warn(
            "Argument order of nn.functional.embedding_bag was changed. Usage "
            "`embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`.",
            stacklevel=2,
        )
        input, weight = weight, input
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only "
                f"supported for mode='sum' (got mode='{mode}'). Please open a feature request on "
                "GitHub."
            )
        if input.size() != per_sample_weights.size():
            raise ValueError(
                f"embedding_bag: If per_sample_weights ({tuple(per_sample_weights.shape)}) is not "
                f"None, then it must have the same shape as the input ({tuple(input.shape)})"
            )
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                "of fixed length sequences. However, found offsets of type "
                f"{type(offsets)}"
            )
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        if offsets.dim() != 1:
            raise ValueError("offsets has to be a 1D Tensor")
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    if padding_idx is not None:
        padding_idx = _row_of(padding_idx, weight.size(0))
    return _ops.embedding_bag(
        input,
        weight,
        offsets,
        max_norm,
        float(norm_type),
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 (*, num_classes): 1 at the class, else 0.

    num_classes -1: the largest class + 1. ArgumentError for negative classes and for larger ones.

    >>> F.one_hot(arete.tensor([0, 2]))
    tensor([[1, 0, 0],
            [0, 0, 1]])
    >>> F.one_hot(arete.tensor([0, 2]), num_classes=4)
    tensor([[1, 0, 0, 0],
            [0, 0, 1, 0]])
    """
    return _ops.one_hot(tensor, num_classes)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(*, C r^2, H, W) -> (*, C, H r, W r).

    >>> F.pixel_shuffle(arete.arange(4.0).reshape(1, 4, 1, 1), 2)
    tensor([[[[0., 1.],
              [2., 3.]]]])
    >>> F.pixel_shuffle(arete.zeros(1, 3, 1, 1), 2)
    Traceback (most recent call last):
    arete.ArgumentError: pixel_shuffle expects its input's 'channel' dimension to be divisible by the ...
    """
    return _ops.pixel_shuffle(input, upscale_factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(*, C, H r, W r) -> (*, C r^2, H, W).

    >>> F.pixel_unshuffle(arete.zeros(1, 1, 4, 6), 2).shape
    arete.Size([1, 4, 2, 3])
    """
    return _ops.pixel_unshuffle(input, downscale_factor)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleaves the channels of `groups` groups of (N, C, ...).

    >>> F.channel_shuffle(arete.arange(4).reshape(1, 4, 1), 2).flatten()
    tensor([0, 2, 1, 3])
    """
    return _ops.channel_shuffle(input, groups)


native_channel_shuffle = channel_shuffle


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: Optional[float] = None
) -> Tensor:
    """Pads (before, after) of the last dimension, then of the one before it, ...

    mode: "constant" (with `value`, 0 by default), "reflect", "replicate" or "circular". Negative
    numbers crop.

    >>> F.pad(arete.tensor([[1, 2, 3]]), (1, 2))
    tensor([[0, 1, 2, 3, 0, 0]])
    >>> F.pad(arete.tensor([[1, 2, 3]]), (1, 2), mode="circular")
    tensor([[3, 1, 2, 3, 1, 2]])
    >>> F.pad(arete.tensor([[1, 2, 3]]), (-1, 0))
    tensor([[2, 3]])
    >>> F.pad(arete.ones(1, 3), (3, 0), mode="reflect")
    Traceback (most recent call last):
    arete.ArgumentError: Padding size should be less than the corresponding input dimension, but got: ...
    """
    return _ops.pad(input, tuple(pad), mode, value)


_MODES_WITH_CORNERS = ("linear", "bilinear", "bicubic", "trilinear")


def interpolate(
    input: Tensor,
    size: Optional[IntOrInts] = None,
    scale_factor: Union[float, List[float], None] = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
    recompute_scale_factor: Optional[bool] = None,
    antialias: bool = False,
) -> Tensor:
    """Resizes (N, C, L), (N, C, H, W) or (N, C, D, H, W) to `size` or by `scale_factor`.

    mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
    antialias: filters as wide as the spacing of the outputs ("bilinear" and "bicubic" of 4-D input).

    ValueError unless there is one of size and scale_factor, with one number for each dimension.

    >>> x = arete.tensor([[[1.0, 3.0]]])
    >>> F.interpolate(x, scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    >>> F.interpolate(x, size=3, mode="linear", align_corners=True)
    tensor([[[1., 2., 3.]]])
    >>> F.interpolate(x)
    Traceback (most recent call last):
    ValueError: either size or scale_factor should be defined
    """
    if mode in _MODES_WITH_CORNERS:
        align_corners = bool(align_corners)
    elif align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | "
            "bilinear | bicubic | trilinear"
        )
    spatial = input.dim() - 2
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if isinstance(size, (list, tuple)) and len(size) != spatial:
            raise ValueError(
                "Input and output must have the same number of spatial dimensions, but got input "
                f"with spatial dimensions of {list(input.shape[2:])} and output size of {size}. "
                "Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in "
                "(o1, o2, ...,oK) format."
            )
        sizes = [int(s) for s in size] if isinstance(size, (list, tuple)) else [int(size)] * spatial
        if recompute_scale_factor:
            raise ValueError(
                "recompute_scale_factor is not meaningful with an explicit size."
            )
        return _ops.interpolate(
            input, sizes, mode=mode, align_corners=bool(align_corners), antialias=antialias
        )
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if isinstance(scale_factor, (list, tuple)):
        if len(scale_factor) != spatial:
            raise ValueError(
                "Input and scale_factor must have the same number of spatial dimensions, but got "
                f"input with spatial dimensions of {list(input.shape[2:])} and scale_factor of "
                f"shape {scale_factor}. Please provide input tensor in (N, C, d1, d2, ...,dK) "
                "format and scale_factor in (s1, s2, ...,sK) format."
            )
    return _ops.interpolate(
        input,
        None,
        scale_factor,
        mode=mode,
        align_corners=bool(align_corners),
        recompute_scale_factor=recompute_scale_factor,
        antialias=antialias,
    )


def upsample(
    input: Tensor,
    size: Optional[IntOrInts] = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Optional[bool] = None,
) -> Tensor:
    """The older name of :func:`interpolate`.

    >>> F.upsample(arete.tensor([[[1.0, 3.0]]]), scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: Optional[IntOrInts] = None, scale_factor: Any = None
) -> Tensor:
    """interpolate with mode "nearest".

    >>> F.upsample_nearest(arete.zeros(1, 1, 2, 3), scale_factor=2).shape
    arete.Size([1, 1, 4, 6])
    """
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: Optional[IntOrInts] = None, scale_factor: Any = None
) -> Tensor:
    """interpolate with mode "bilinear" and align_corners.

    >>> F.upsample_bilinear(arete.tensor([[[[1.0, 3.0]]]]), size=(1, 3))
    tensor([[[[1., 2., 3.]]]])
    """
    return interpolate(input, size, scale_factor, "bilinear", align_corners=True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Optional[bool] = None,
) -> Tensor:
    """Values of (N, C, H, W) at the positions `grid` (N, H', W', 2), (x, y) in [-1, 1].

    Also for (N, C, D, H, W) and (N, D', H', W', 3). mode: "bilinear", "nearest", "bicubic";
    padding_mode: "zeros", "border", "reflection".

    >>> x = arete.tensor([[[[1.0, 3.0]]]])
    >>> F.grid_sample(x, arete.tensor([[[[-1.0, 0.0], [0.0, 0.0]]]]), align_corners=True)
    tensor([[[[1., 2.]]]])
    >>> F.grid_sample(x, arete.zeros(1, 1, 1, 2), mode="cubic")
    Traceback (most recent call last):
    ValueError: nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but ...
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    return _ops.grid_sample(input, grid, mode, padding_mode, bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: Optional[bool] = None) -> Tensor:
    """Positions (N, H, W, 2) of the affine maps theta (N, 2, 3) for outputs of `size`.

    Also (N, 3, 4) -> (N, D, H, W, 3).

    >>> F.affine_grid(arete.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), (1, 1, 1, 2))
    tensor([[[[-0.5000,  0.0000],
              [ 0.5000,  0.0000]]]])
    """
    return _ops.affine_grid(theta, tuple(size), bool(align_corners))
