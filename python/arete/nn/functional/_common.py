"""What the written functions share."""

from __future__ import annotations

from typing import Callable, Sequence, Union

IntOrInts = Union[int, Sequence[int]]


def named(f: Callable, name: str, doc: str) -> Callable:
    """`f`, one of several forms of a function, with its name and text."""
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


def shapes(n: int, call: str, result: int, several: bool = False) -> str:
    """An example of a form for n dimensions: `call`, where "SIZES" stands for n sizes of 4, makes them `result`."""
    call = call.replace("SIZES", ", ".join(["4"] * n))
    shape = f"arete.Size([1, 2{f', {result}' * n}])"
    if several:
        return f"\n\n    >>> [t.shape for t in {call}]\n    [{shape}, {shape}]\n    "
    return f"\n\n    >>> {call}.shape\n    {shape}\n    "
