"""Pooling."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from arete import Tensor, _ops

from ._common import IntOrInts, named, shapes, stride_or_empty


_SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}


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
    doc = f"""The maximum of each window of (N, C, {_SIZES[n]}) or (C, {_SIZES[n]}).

    The stride is kernel_size by default. With return_indices also the place of each maximum in its channel.
    ArgumentError where a window is larger than the padded input, or the padding than half a window."""
    call = "(arete.zeros(1, 2, SIZES), 2)"
    named(max_pool, name, doc + shapes(n, f"F.{name}{call}", 2))
    name += "_with_indices"
    doc = "The maxima and their places in each channel, as F.max_unpool takes them."
    named(with_indices, name, doc + shapes(n, f"F.{name}{call}", 2, several=True))
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
    """The mean of each window of (N, C, L) or (C, L).

    >>> F.avg_pool1d(arete.tensor([[[1.0, 3.0, 5.0, 7.0]]]), 2)
    tensor([[[2., 6.]]])
    >>> F.avg_pool1d(arete.tensor([[[1.0, 3.0]]]), 2, padding=1, count_include_pad=False)
    tensor([[[1., 3.]]])
    """
    return _ops.avg_pool1d(
        input, kernel_size, stride_or_empty(stride), padding, ceil_mode, count_include_pad
    )


def _avg_pool(n: int) -> Callable:
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

    doc = f"The mean of each window of (N, C, {_SIZES[n]}) or (C, {_SIZES[n]})."
    return named(avg_pool, name, doc + shapes(n, f"F.{name}(arete.zeros(1, 2, SIZES), 2)", 2))


avg_pool2d, avg_pool3d = _avg_pool(2), _avg_pool(3)


def _output_size(size: Any) -> Any:
    """-1 for dimensions that keep their size (None)."""
    sizes = (size,) if size is None or isinstance(size, int) else tuple(size)
    if any(s is not None and s < 0 for s in sizes):
        received = ", ".join(map(str, sizes))
        raise RuntimeError(
            f"elements of output_size must be greater than or equal to 0 but received {{{received}}}"
        )
    return tuple(-1 if s is None else int(s) for s in sizes)


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

    doc = f"""{{}} of as many windows of (N, C, {_SIZES[n]}) as `output_size` says.

    One number stands for all dimensions; None keeps the size of one."""
    call = "(arete.zeros(1, 2, SIZES), 3)"
    named(avg_pool, avg_name, doc.format("Means") + shapes(n, f"F.{avg_name}{call}", 3))
    named(max_pool, max_name, doc.format("Maxima") + shapes(n, f"F.{max_name}{call}", 3))
    indices_name = max_name + "_with_indices"
    doc = "The maxima and their places in each channel."
    named(with_indices, indices_name, doc + shapes(n, f"F.{indices_name}{call}", 3, several=True))
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

    doc = "(The sum of x^p in each window)^(1 / p), where p is norm_type."
    return named(lp_pool, name, doc + shapes(n, f"F.{name}(arete.zeros(1, 2, SIZES), 2, 2)", 2))


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

    doc = f"""Zeros with the maxima of max_pool{n}d at their places.

    output_size chooses among the sizes that the pooling can have come from."""
    pooled = f"F.max_pool{n}d_with_indices(arete.zeros(1, 2, SIZES), 2)"
    return named(max_unpool, name, doc + shapes(n, f"F.{name}(*{pooled}, 2)", 4))


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

    doc = """Maxima of windows at random places.

    There are output_size of them, or input size * output_ratio; ValueError where neither is given."""
    call = "(arete.zeros(1, 2, SIZES), 2, output_size=3)"
    named(fractional, name, doc + shapes(n, f"F.{name}{call}", 3))
    indices_name = name + "_with_indices"
    doc = "The maxima of random windows and their places in each channel."
    named(with_indices, indices_name, doc + shapes(n, f"F.{indices_name}{call}", 3, several=True))
    return fractional, with_indices


fractional_max_pool2d, fractional_max_pool2d_with_indices = _fractional(2)
fractional_max_pool3d, fractional_max_pool3d_with_indices = _fractional(3)
