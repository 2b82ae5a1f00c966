"""Adaptive pooling, where None keeps the size of a dimension."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from ..._C import Tensor
from ..._operators import _ops
from ._common import named, shapes

_SIZES = {1: "L", 2: "H, W", 3: "D, H, W"}


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
