"""Contexts, pools and names of types."""
from __future__ import annotations

import functools
import weakref
from typing import Any

from .. import numpy as _np
from . import driver as _driver

__all__ = ["DeviceMemoryPool", "PageLockedMemoryPool", "clear_context_caches", "context_dependent_memoize", "dtype_to_ctype",
           "make_default_context"]

_caches: weakref.WeakSet[Any] = weakref.WeakSet()


def context_dependent_memoize(function):
    """The function, which is called once for each device and arguments, until clear_context_caches()."""
    cached = functools.cache(lambda device, /, *args, **kwargs: function(*args, **kwargs))
    _caches.add(cached)
    return functools.wraps(function)(lambda *args, **kwargs: cached(_driver._device(), *args, **kwargs))


def clear_context_caches() -> None:
    """Forgets what functions of context_dependent_memoize gave."""
    for cached in _caches:
        cached.cache_clear()


def make_default_context(ctx_maker=None):
    """The context of the current GPU, or what `ctx_maker` makes of it, a driver.Device."""
    return _driver.Context if ctx_maker is None else ctx_maker(_driver.Context.get_device())


def dtype_to_ctype(dtype) -> str:
    """What C calls the numbers of a dtype."""
    name = _np.dtype(dtype).name
    known = {"bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short", "uint16": "unsigned short", "int32": "int",
             "uint32": "unsigned", "int64": "long", "uint64": "unsigned long", "float32": "float", "float64": "double"}
    if name not in known:
        raise ValueError(f"C has no number like {name}")
    return known[name]


class DeviceMemoryPool:
    """Memory of a device. All of it is of one pool, whichever gives it."""

    def allocate(self, size):
        """So many bytes, not set."""
        return _driver.mem_alloc(size)

    __call__ = allocate

    def free_held(self) -> None:
        """Gives back what no array uses."""
        if _driver._cuda.is_available():
            _driver._cuda.empty_cache()

    def stop_holding(self) -> None:
        """The same, once: memory that comes back later is held."""
        self.free_held()


class PageLockedMemoryPool:
    """Memory of the host, pinned where there is a GPU."""

    def allocate(self, shape, dtype, order="C"):
        """A NumPy array, not set."""
        return _driver.pagelocked_empty(shape, dtype, order)
