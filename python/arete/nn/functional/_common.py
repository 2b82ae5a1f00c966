"""Helpers of the functions: reductions, in-place forms, sizes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Optional, Sequence, Union

from arete import Tensor, _ops

IntOrInts = Union[int, Sequence[int]]


def named(f: Callable, name: str, doc: str) -> Callable:
    """`f`, one of the forms of a function for 1, 2 and 3 dimensions, with its name and text."""
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


def shapes(n: int, call: str, result: int, several: bool = False) -> str:
    """An example of one of those forms: `call`, where "SIZES" stands for n sizes of 4, makes them `result`."""
    call = call.replace("SIZES", ", ".join(["4"] * n))
    shape = f"arete.Size([1, 2{f', {result}' * n}])"
    if several:
        return f"\n\n    >>> [t.shape for t in {call}]\n    [{shape}, {shape}]\n    "
    return f"\n\n    >>> {call}.shape\n    {shape}\n    "


def reduction_of(size_average: Optional[bool], reduce: Optional[bool], reduction: str) -> str:
    """`reduction`, unless the two older arguments say otherwise."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def check_reduction(reduction: str) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")


def reduced(loss: Tensor, reduction: str) -> Tensor:
    check_reduction(reduction)
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


@lru_cache(maxsize=None)
def operator(name: str) -> Any:
    """The operator record of that name, or None."""
    return getattr(_ops, name, None)


def in_place(name: str, input: Tensor, *args: Any) -> Tensor:
    """Writes the operator's result into `input` and gives `input`."""
    op = operator(name + "_")
    if op is not None and not input.requires_grad:
        return op(input, *args)
    # The gradient needs the values that are overwritten.
    return input.copy_(getattr(_ops, name)(input.clone(), *args))


def stride_or_empty(stride: Any) -> Any:
    """Records take an empty stride for "as the kernel's size"."""
    return () if stride is None else stride


def spread(value: IntOrInts, n: int) -> tuple:
    """One number for each of n dimensions."""
    return tuple(value) if not isinstance(value, int) else (value,) * n


def softmax_dim(name: str, dim: Optional[int], ndim: int) -> int:
    if dim is None:
        import warnings

        warnings.warn(
            f"Implicit dimension choice for {name} has been deprecated. "
            "Change the call to include dim=X as an argument.",
            stacklevel=4,
        )
        return 0 if ndim in (0, 1, 3) else 1
    return dim


def check_probability(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")

