"""Named stretches of time for Nsight Systems."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .. import _C

__all__ = ["range", "range_pop", "range_push"]

range_push = _C._cuda.range_push
range_pop = _C._cuda.range_pop


@contextlib.contextmanager
def range(msg: str, *args, **kwargs) -> Iterator[None]:  # noqa: A001
    """A named stretch of time; further arguments fill the name in, as str.format does."""
    range_push(msg.format(*args, **kwargs) if args or kwargs else msg)
    try:
        yield
    finally:
        range_pop()
