"""Named stretches of time and moments for Nsight Systems; without a GPU they do nothing.

>>> with arete.cuda.nvtx.range("step {}", 3):
...     _ = arete.ones(2).sum()
"""
from __future__ import annotations

import contextlib
from typing import Any, Iterator

from .. import _C

__all__ = ["range_push", "range_pop", "range_start", "range_end", "mark", "range"]

_c = _C._cuda


def range_push(msg: str) -> None:
    """Begins a range inside the one that is open on this thread."""
    _c.range_push(msg)


def range_pop() -> None:
    """Ends the range that was begun last on this thread."""
    _c.range_pop()


def range_start(msg: str) -> int:
    """Begins a range that may overlap others and end on another thread; gives its number, for range_end()."""
    return _c.range_start(msg)


def range_end(range_id: int) -> None:
    """Ends a range of range_start()."""
    _c.range_end(range_id)


def mark(msg: str) -> None:
    """Marks a moment."""
    _c.mark(msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:  # noqa: A001
    """A range around a block, or around each call of a function: `msg.format(*args, **kwargs)`."""
    _c.range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        _c.range_pop()
