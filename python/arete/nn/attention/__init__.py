"""Which ways of computing scaled_dot_product_attention are allowed."""
from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import List, Union

from ... import _C

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """Ways of computing attention under torch's names. Two of them are there: FLASH_ATTENTION, EFFICIENT_ATTENTION and
    CUDNN_ATTENTION all stand for cuDNN's kernel on GPUs, which does not store the scores; MATH are two products around a softmax,
    all that CPUs have."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_ORDER = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH)


@contextlib.contextmanager
def sdpa_kernel(backends: Union[SDPBackend, List[SDPBackend]], set_priority: bool = False) -> Iterator[dict]:
    """Inside, attention is computed in one of these ways only, of the whole process. A call on a GPU that none of them can do is
    an error. `set_priority` changes nothing: where the kernel that does not store the scores can be used it comes first.

    >>> q = arete.ones(1, 1, 2, 4)
    >>> with arete.nn.attention.sdpa_kernel(arete.nn.attention.SDPBackend.MATH):
    ...     arete.nn.functional.scaled_dot_product_attention(q, q, q).shape
    arete.Size([1, 1, 2, 4])
    """
    if isinstance(backends, SDPBackend):
        backends = [backends]
    if not isinstance(backends, list) or not all(isinstance(b, SDPBackend) for b in backends):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    before = _C._attention_backends(None)
    _C._attention_backends([b in backends for b in _ORDER])
    try:
        yield {}
    finally:
        _C._attention_backends(before)
