"""Pooling."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from arete import Tensor, _ops

from ._common import IntOrInts, named, stride_or_empty


def _max_pool(n: int) -> Tuple[Callable, Callable]:
    def max_pool(
        input: Tensor,
        kernel_size: IntOrInts,
        stride: Optional[IntOrInts] = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Union[Tensor, Tuple[Tensor, Tensor]]:
        op = getattr(_ops, with_indices.__name__ if return_indices else max_pool.__name__)
        return op(input, kernel_size, stride_or_empty(stride), padding, dilation, ceil_mode)

    def with_indices(
        input: Tensor,
        kernel_size: IntOrInts,
        stride: Optional[IntOrInts] = None,
        padding: IntOrInts = 0,
        dilation: IntOrInts = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tuple[Tensor, Tensor]:
        return max_pool(input, kernel_size, stride, padding, dilation, ceil_mode, True)

    name = f"max_pool{n}d"
    named(max_pool, name, f"The maximum of each window of {n} dimensions.")
    named(with_indices, name + "_with_indices", "The maxima and their places in each plane.")
    return max_pool, with_indices


max_pool1d, max_pool1d_with_indices = _max_pool(1)
max_pool2d, max_pool2d_with_indices = _max_pool(2)
max_pool3d, max_pool3d_with_indices = _max_pool(3)


def avg_pool1d(
    input: Tensor,
    kernel_size: IntOrInts,
    stride: Optional[IntOrInts] = None,
    padding: IntOrInts = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L)."""
    return _ops.avg_pool1d(
        input, kernel_size, stride_or_empty(stride), padding, ceil_mode, count_include_pad
    )


def _avg_pool(n: int, sizes: str) -> Callable:
    name = f"avg_pool{n}d"

    def avg_pool(
        input: Tensor,
        kernel_size: IntOrInts,
        stride: Optional[IntOrInts] = None,
        padding: IntOrInts = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Optional[int] = None,
    ) -> Tensor:
        stride = stride_or_empty(stride)
        return getattr(_ops, name)(
            input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
        )

    return named(avg_pool, name, f"The mean of each window of (N, C, {sizes}) or (C, {sizes}).")


avg_pool2d, avg_pool3d = _avg_pool(2, "H, W"), _avg_pool(3, "D, H, W")


def _output_size(size: Any) -> Any:
    """-1 for dimensions that keep their size (None)."""
    if isinstance(size, int):
        return size
    return tuple(-1 if s is None else int(s) for s in ((size,) if size is None else size))


def _adaptive(n: int) -> Tuple[Callable, Callable, Callable]:
    avg_name, max_name = f"adaptive_avg_pool{n}d", f"adaptive_max_pool{n}d"

    def avg_pool(input: Tensor, output_size: Any) -> Tensor:
        return getattr(_ops, avg_name)(input, _output_size(output_size))

    def max_pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        name = max_name + "_with_indices" if return_indices else max_name
        return getattr(_ops, name)(input, _output_size(output_size))

    def with_indices(
        input: Tensor, output_size: Any, return_indices: bool = False
    ) -> Tuple[Tensor, Tensor]:
        return max_pool(input, output_size, True)

    named(avg_pool, avg_name, "Means of windows that make `output_size` of them (None: as is).")
    named(max_pool, max_name, "Maxima of windows that make `output_size` of them (None: as is).")
    named(with_indices, max_name + "_with_indices", "The maxima and their places.")
    return avg_pool, max_pool, with_indices


adaptive_avg_pool1d, adaptive_max_pool1d, adaptive_max_pool1d_with_indices = _adaptive(1)
adaptive_avg_pool2d, adaptive_max_pool2d, adaptive_max_pool2d_with_indices = _adaptive(2)
adaptive_avg_pool3d, adaptive_max_pool3d, adaptive_max_pool3d_with_indices = _adaptive(3)


def _lp_pool(n: int) -> Callable:
    name = f"lp_pool{n}d"

    def lp_pool(
        input: Tensor,
        norm_type: float,
        kernel_size: IntOrInts,
        stride: Optional[IntOrInts] = None,
        ceil_mode: bool = False,
    ) -> Tensor:
        return getattr(_ops, name)(input, float(norm_type), kernel_size, stride, ceil_mode)

    return named(lp_pool, name, "(The sum of x^p in each window)^(1 / p).")


lp_pool1d, lp_pool2d, lp_pool3d = _lp_pool(1), _lp_pool(2), _lp_pool(3)


def _unpool(n: int) -> Callable:
    name = f"max_unpool{n}d"

    def max_unpool(
        input: Tensor,
        indices: Tensor,
        kernel_size: IntOrInts,
        stride: Optional[IntOrInts] = None,
        padding: IntOrInts = 0,
        output_size: Optional[Sequence[int]] = None,
    ) -> Tensor:
        size: Optional[List[int]] = None
        if output_size is not None:
            size = list(output_size)
            if len(size) == n + 2:
                size = size[2:]
        if isinstance(stride, (tuple, list)) and not stride:
            stride = None
        return getattr(_ops, name)(input, indices, kernel_size, stride, padding, size)

    return named(max_unpool, name, "Zeros with the maxima of a max pool at their places.")


max_unpool1d, max_unpool2d, max_unpool3d = _unpool(1), _unpool(2), _unpool(3)


def _fractional(n: int) -> Tuple[Callable, Callable]:
    name = f"fractional_max_pool{n}d"

    def fractional(
        input: Tensor,
        kernel_size: IntOrInts,
        output_size: Optional[IntOrInts] = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Optional[Tensor] = None,
    ) -> Any:
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
        if output_ratio is not None and not isinstance(output_ratio, (tuple, list)):
            output_ratio = [float(output_ratio)] * n
        op = getattr(_ops, name + "_with_indices" if return_indices else name)
        return op(input, kernel_size, output_size, output_ratio, _random_samples)

    def with_indices(
        input: Tensor,
        kernel_size: IntOrInts,
        output_size: Optional[IntOrInts] = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Optional[Tensor] = None,
    ) -> Tuple[Tensor, Tensor]:
        return fractional(input, kernel_size, output_size, output_ratio, True, _random_samples)

    named(fractional, name, "Maxima of windows at random places.")
    named(with_indices, name + "_with_indices", "The maxima of random windows and their places.")
    return fractional, with_indices


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional(3)
