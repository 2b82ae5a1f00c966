"""The kind of GPU that is there, for programs that do not name one: CUDA's or none.

>>> kind = arete.accelerator.current_accelerator()
>>> x = arete.ones(2, device=kind or "cpu")
"""
from __future__ import annotations

from typing import Any, Optional

from . import cuda
from ._C import device as _device
from .cuda import (  # noqa: F401
    current_stream,
    device_count,
    empty_cache,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from .cuda import current_device as current_device_idx  # noqa: F401
from .cuda import current_device as current_device_index  # noqa: F401
from .cuda import device as device_index  # noqa: F401
from .cuda import mem_get_info as get_memory_info  # noqa: F401
from .cuda import set_device as set_device_idx  # noqa: F401
from .cuda import set_device as set_device_index  # noqa: F401


def current_accelerator(check_available: bool = False) -> Optional[Any]:
    """arete.device("cuda"), or None where no GPU can be used.

    >>> arete.accelerator.current_accelerator() in (None, arete.device("cuda"))
    True
    """
    return _device("cuda") if cuda.is_available() else None
