"""Pooling layers."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Tuple, Union

from arete import Tensor

from .. import functional as F
from .module import Module
from .utils import _ntuple

__all__ = [
    *(f"MaxPool{n}d" for n in (1, 2, 3)),
    *(f"MaxUnpool{n}d" for n in (1, 2, 3)),
    *(f"AvgPool{n}d" for n in (1, 2, 3)),
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    *(f"LPPool{n}d" for n in (1, 2, 3)),
    *(f"AdaptiveMaxPool{n}d" for n in (1, 2, 3)),
    *(f"AdaptiveAvgPool{n}d" for n in (1, 2, 3)),
]


class _Pool(Module):
    """A layer whose text shows the attributes named by _shown."""

    _function: Callable
    _shown: Tuple[str, ...] = ("kernel_size", "stride", "padding")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._shown)


class _MaxPoolNd(_Pool):
    _shown = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool1d(_MaxPoolNd):
    """The maximum of each window of (N, C, L) or (C, L), and with return_indices its place.

    >>> nn.MaxPool1d(2)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 4])
    """

    _function = F.max_pool1d


class MaxPool2d(_MaxPoolNd):
    """The maximum of each window of (N, C, H, W) or (C, H, W).

    >>> nn.MaxPool2d(2)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 4, 4])
    """

    _function = F.max_pool2d


class MaxPool3d(_MaxPoolNd):
    """The maximum of each window of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.MaxPool3d(2)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 4, 4, 4])
    """

    _function = F.max_pool3d


class _MaxUnpoolNd(_Pool):
    _spatial = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        tuple_of = _ntuple(self._spatial)
        self.kernel_size = tuple_of(kernel_size)
        self.stride = tuple_of(stride if stride is not None else kernel_size)
        self.padding = tuple_of(padding)

    def forward(
        self, input: Tensor, indices: Tensor, output_size: Optional[List[int]] = None
    ) -> Tensor:
        return self._function(
            input, indices, self.kernel_size, self.stride, self.padding, output_size
        )


class MaxUnpool1d(_MaxUnpoolNd):
    """Zeros with the maxima of a MaxPool1d at their places.

    >>> pooled, places = nn.MaxPool1d(2, return_indices=True)(arete.zeros(1, 3, 8))
    >>> nn.MaxUnpool1d(2)(pooled, places).shape
    arete.Size([1, 3, 8])
    """

    _spatial = 1
    _function = F.max_unpool1d


class MaxUnpool2d(_MaxUnpoolNd):
    """Zeros with the maxima of a MaxPool2d at their places.

    >>> pooled, places = nn.MaxPool2d(2, return_indices=True)(arete.zeros(1, 3, 8, 8))
    >>> nn.MaxUnpool2d(2)(pooled, places).shape
    arete.Size([1, 3, 8, 8])
    """

    _spatial = 2
    _function = F.max_unpool2d


class MaxUnpool3d(_MaxUnpoolNd):
    """Zeros with the maxima of a MaxPool3d at their places.

    >>> pooled, places = nn.MaxPool3d(2, return_indices=True)(arete.zeros(1, 3, 8, 8, 8))
    >>> nn.MaxUnpool3d(2)(pooled, places).shape
    arete.Size([1, 3, 8, 8, 8])
    """

    _spatial = 3
    _function = F.max_unpool3d


class AvgPool1d(_Pool):
    """The mean of each window of (N, C, L) or (C, L).

    >>> nn.AvgPool1d(2)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 4])
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        one = _ntuple(1)
        self.kernel_size = one(kernel_size)
        self.stride = one(stride if stride is not None else kernel_size)
        self.padding = one(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
        )


class _AvgPoolNd(_Pool):
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Optional[int] = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return self._function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool2d(_AvgPoolNd):
    """The mean of each window of (N, C, H, W) or (C, H, W).

    >>> nn.AvgPool2d(2)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 4, 4])
    """

    _function = F.avg_pool2d


class AvgPool3d(_AvgPoolNd):
    """The mean of each window of (N, C, D, H, W) or (C, D, H, W).

    >>> nn.AvgPool3d(2)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 4, 4, 4])
    """

    _function = F.avg_pool3d


class _FractionalNd(Module):
    _spatial = 0

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Optional[Tensor] = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        tuple_of = _ntuple(self._spatial)
        self.kernel_size = tuple_of(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = tuple_of(output_size) if output_size is not None else None
        self.output_ratio = tuple_of(output_ratio) if output_ratio is not None else None
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{name} requires specifying either an output size, or a pooling ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(
                f"output_ratio must be between 0 and 1 (got {output_ratio})"
            )

    def forward(self, input: Tensor) -> Any:
        return self._function(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
        )


class FractionalMaxPool2d(_FractionalNd):
    """Maxima of windows at random places of (N, C, H, W), output_size or output_ratio of them.

    >>> nn.FractionalMaxPool2d(2, output_size=5)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 5, 5])
    """

    _spatial = 2
    _function = F.fractional_max_pool2d


class FractionalMaxPool3d(_FractionalNd):
    """Maxima of windows at random places of (N, C, D, H, W).

    >>> nn.FractionalMaxPool3d(2, output_size=5)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 5, 5, 5])
    """

    _spatial = 3
    _function = F.fractional_max_pool3d


class _LPPoolNd(_Pool):
    _shown = ("norm_type", "kernel_size", "stride", "ceil_mode")
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return self._function(
            input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPoolNd):
    """(The sum of x^p in each window of (N, C, L))^(1 / p).

    >>> nn.LPPool1d(2, 2)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 4])
    """

    _function = F.lp_pool1d


class LPPool2d(_LPPoolNd):
    """(The sum of x^p in each window of (N, C, H, W))^(1 / p).

    >>> nn.LPPool2d(2, 2)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 4, 4])
    """

    _function = F.lp_pool2d


class LPPool3d(_LPPoolNd):
    """(The sum of x^p in each window of (N, C, D, H, W))^(1 / p).

    >>> nn.LPPool3d(2, 2)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 4, 4, 4])
    """

    _function = F.lp_pool3d


class _AdaptiveMaxPoolNd(_Pool):
    _shown = ("output_size",)
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__()
        self.output_size = output_size
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return self._function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of output_size windows of (N, C, L).

    >>> nn.AdaptiveMaxPool1d(3)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 3])
    """

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima of output_size windows of (N, C, H, W); None keeps a dimension.

    >>> nn.AdaptiveMaxPool2d(3)(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 3, 3])
    """

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima of output_size windows of (N, C, D, H, W).

    >>> nn.AdaptiveMaxPool3d(3)(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 3, 3, 3])
    """

    _function = staticmethod(F.adaptive_max_pool3d)


class _AdaptiveAvgPoolNd(_Pool):
    _shown = ("output_size",)
    __constants__ = ["output_size"]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self._function(input, self.output_size)


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means of output_size windows of (N, C, L).

    >>> nn.AdaptiveAvgPool1d(3)(arete.zeros(1, 3, 8)).shape
    arete.Size([1, 3, 3])
    """

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means of output_size windows of (N, C, H, W); None keeps a dimension.

    >>> nn.AdaptiveAvgPool2d((3, None))(arete.zeros(1, 3, 8, 8)).shape
    arete.Size([1, 3, 3, 8])
    """

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means of output_size windows of (N, C, D, H, W).

    >>> nn.AdaptiveAvgPool3d((3, None, 3))(arete.zeros(1, 3, 8, 8, 8)).shape
    arete.Size([1, 3, 3, 8, 3])
    """

    _function = staticmethod(F.adaptive_avg_pool3d)
