"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any, Callable, List, Optional, Union

from ... import _C, _operators
from ..._C import Tensor
from .. import functional as F
from .. import init
from ..parameter import Parameter, UninitializedParameter
from ._records import check, layer
from .lazy import LazyModuleMixin
from .module import Module, weight_and_bias
from .utils import _ntuple

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]


class _ConvNd(Module):
    """What the convolutions share: options, weights, their first values."""

    __constants__ = [
        "stride",
        "padding",
        "dilation",
        "groups",
        "padding_mode",
        "output_padding",
        "in_channels",
        "out_channels",
        "kernel_size",
    ]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple,
        stride: tuple,
        padding: Union[str, tuple],
        dilation: tuple,
        transposed: bool,
        output_padding: tuple,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        name = f"Conv{'Transpose' if transposed else ''}{len(kernel_size)}d"
        more = (output_padding, groups, bias, dilation) if transposed else (dilation, groups, bias)
        options = (kernel_size, stride, padding, *more, padding_mode)
        check(name, in_channels, out_channels, *options)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = _C._conv_edges(padding, kernel_size, dilation)
        channels = (in_channels, out_channels // groups)
        if not transposed:
            channels = (out_channels, in_channels // groups)
        self.weight = Parameter(
            _operators.empty((*channels, *kernel_size), device=device, dtype=dtype)
        )
        if bias:
            self.bias = Parameter(_operators.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"


class _Conv(_ConvNd):
    _spatial = 0
    _function: Callable

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        tuple_of = _ntuple(self._spatial)
        super().__init__(
            in_channels,
            out_channels,
            tuple_of(kernel_size),
            tuple_of(stride),
            padding if isinstance(padding, str) else tuple_of(padding),
            tuple_of(dilation),
            False,
            tuple_of(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return self._function(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, *weight_and_bias(self))


@layer
class Conv1d(_Conv):
    """Convolution of (N, Cin, L) or (Cin, L); weight (Cout, Cin / groups, k).

    padding is a number, "same" or "valid"; padding_mode "zeros", "reflect", "replicate" or
    "circular". Weight and bias start uniform in +-1 / sqrt(Cin / groups * k).

    >>> nn.Conv1d(3, 8, 5)(arete.randn(2, 3, 20)).shape
    arete.Size([2, 8, 16])
    >>> nn.Conv1d(3, 8, 5, groups=2)
    Traceback (most recent call last):
    arete.ArgumentError: in_channels must be divisible by groups...
    """

    _spatial = 1
    _function = F.conv1d


@layer
class Conv2d(_Conv):
    """Convolution of (N, Cin, H, W) or (Cin, H, W); weight (Cout, Cin / groups, kh, kw).

    Options as for :class:`Conv1d`, numbers or pairs of them.

    >>> nn.Conv2d(3, 8, 3, padding=1)(arete.randn(1, 3, 16, 16)).shape
    arete.Size([1, 8, 16, 16])
    """

    _spatial = 2
    _function = F.conv2d


@layer
class Conv3d(_Conv):
    """Convolution of (N, Cin, D, H, W) or (Cin, D, H, W); weight (Cout, Cin / groups, kd, kh, kw).

    >>> nn.Conv3d(3, 8, 3, padding="same")(arete.randn(1, 3, 4, 8, 8)).shape
    arete.Size([1, 8, 4, 8, 8])
    """

    _spatial = 3
    _function = F.conv3d


class _ConvTransposeNd(_ConvNd):
    _spatial = 0
    _function: Callable

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        tuple_of = _ntuple(self._spatial)
        super().__init__(
            in_channels,
            out_channels,
            tuple_of(kernel_size),
            tuple_of(stride),
            tuple_of(padding),
            tuple_of(dilation),
            True,
            tuple_of(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(
        self,
        input: Tensor,
        output_size: Optional[List[int]],
        stride: tuple,
        padding: tuple,
        kernel_size: tuple,
        num_spatial_dims: int,
        dilation: Optional[tuple] = None,
    ) -> List[int]:
        """The output padding that gives `output_size`; ValueError where none does."""
        if output_size is None:
            return list(_ntuple(num_spatial_dims)(self.output_padding))
        dilation = dilation or (1,) * num_spatial_dims
        return _C._conv_output_padding(input, output_size, stride, padding, kernel_size, dilation)

    def forward(self, input: Tensor, output_size: Optional[List[int]] = None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ValueError(f"Only `zeros` padding mode is supported for {type(self).__name__}")
        output_padding = self.output_padding
        if output_size is not None:
            output_padding = self._output_padding(
                input,
                output_size,
                self.stride,
                self.padding,
                self.kernel_size,
                self._spatial,
                self.dilation,
            )
        return self._function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )


@layer
class ConvTranspose1d(_ConvTransposeNd):
    """The gradient of Conv1d as a layer: (N, Cin, L) -> (N, Cout, L'); weight (Cin, Cout/groups, k).

    output_size in the call chooses among the lengths that the stride leaves open.

    >>> layer = nn.ConvTranspose1d(3, 8, 3, stride=2)
    >>> layer(arete.randn(2, 3, 5)).shape, layer(arete.randn(2, 3, 5), output_size=[12]).shape
    (arete.Size([2, 8, 11]), arete.Size([2, 8, 12]))
    >>> layer(arete.randn(2, 3, 5), output_size=[20])
    Traceback (most recent call last):
    arete.ArgumentError: requested an output size of [20], but valid sizes range from [11] to [12] (for an input of ...
    """

    _spatial = 1
    _function = F.conv_transpose1d


@layer
class ConvTranspose2d(_ConvTransposeNd):
    """The gradient of Conv2d as a layer; weight (Cin, Cout / groups, kh, kw).

    >>> nn.ConvTranspose2d(3, 8, 2, stride=2)(arete.randn(1, 3, 4, 4)).shape
    arete.Size([1, 8, 8, 8])
    """

    _spatial = 2
    _function = F.conv_transpose2d


@layer
class ConvTranspose3d(_ConvTransposeNd):
    """The gradient of Conv3d as a layer; weight (Cin, Cout / groups, kd, kh, kw).

    >>> nn.ConvTranspose3d(3, 8, 2, stride=2)(arete.randn(1, 3, 4, 4, 4)).shape
    arete.Size([1, 8, 8, 8, 8])
    """

    _spatial = 3
    _function = F.conv_transpose3d


class _LazyConvXdMixin(LazyModuleMixin):
    """Takes in_channels from the first input."""

    def __init__(self, out_channels: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        names = self._option_names
        options = dict(zip(names, args), **kwargs)
        groups, bias = options.pop("groups", 1), options.pop("bias", True)
        device, dtype = options.get("device"), options.get("dtype")
        super().__init__(0, 0, kernel_size, groups=1, bias=False, **options)
        self.groups = groups
        self.out_channels = out_channels
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    _option_names = (
        "stride",
        "padding",
        "dilation",
        "groups",
        "bias",
        "padding_mode",
        "device",
        "dtype",
    )

    def reset_parameters(self) -> None:
        """Sets the initial values anew."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Gives the parameters the shapes that the first input asks for."""
        if not self.has_uninitialized_params():
            return
        spatial = len(self.kernel_size)
        if input.dim() not in (spatial + 1, spatial + 2):
            raise RuntimeError(
                f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[-spatial - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        channels = (self.out_channels, self.in_channels // self.groups)
        if self.transposed:
            channels = (self.in_channels, self.out_channels // self.groups)
        self.weight.materialize((*channels, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class LazyConv1d(_LazyConvXdMixin, Conv1d):
    """A Conv1d that takes in_channels from its first input.

    >>> layer = nn.LazyConv1d(8, 2)
    >>> layer(arete.randn(1, 3, 4)).shape, layer.in_channels
    (arete.Size([1, 8, 3]), 3)
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvXdMixin, Conv2d):
    """A Conv2d that takes in_channels from its first input.

    >>> layer = nn.LazyConv2d(8, 2)
    >>> layer(arete.randn(1, 3, 4, 4)).shape, layer.in_channels
    (arete.Size([1, 8, 3, 3]), 3)
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvXdMixin, Conv3d):
    """A Conv3d that takes in_channels from its first input.

    >>> layer = nn.LazyConv3d(8, 2)
    >>> layer(arete.randn(1, 3, 4, 4, 4)).shape, layer.in_channels
    (arete.Size([1, 8, 3, 3, 3]), 3)
    """

    cls_to_become = Conv3d


class _LazyTranspose(_LazyConvXdMixin):
    _option_names = (
        "stride",
        "padding",
        "output_padding",
        "groups",
        "bias",
        "dilation",
        "padding_mode",
        "device",
        "dtype",
    )


class LazyConvTranspose1d(_LazyTranspose, ConvTranspose1d):
    """A ConvTranspose1d that takes in_channels from its first input.

    >>> layer = nn.LazyConvTranspose1d(8, 2)
    >>> layer(arete.randn(1, 3, 4)).shape, layer.in_channels
    (arete.Size([1, 8, 5]), 3)
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTranspose, ConvTranspose2d):
    """A ConvTranspose2d that takes in_channels from its first input.

    >>> layer = nn.LazyConvTranspose2d(8, 2)
    >>> layer(arete.randn(1, 3, 4, 4)).shape, layer.in_channels
    (arete.Size([1, 8, 5, 5]), 3)
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTranspose, ConvTranspose3d):
    """A ConvTranspose3d that takes in_channels from its first input.

    >>> layer = nn.LazyConvTranspose3d(8, 2)
    >>> layer(arete.randn(1, 3, 4, 4, 4)).shape, layer.in_channels
    (arete.Size([1, 8, 5, 5, 5]), 3)
    """

    cls_to_become = ConvTranspose3d
