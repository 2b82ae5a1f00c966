"""What CuPy has under cupy.cuda: devices, streams, events, memory pools and the runtime."""
from __future__ import annotations

import contextlib

from ... import cuda as _cuda
from ..._kernels import RawKernel, RawModule  # noqa: F401
from ..._kernels._raw import MemoryPointer
from ...cuda import nvtx  # noqa: F401
from . import driver, runtime, stream
from ._memory import (
    MemoryPool, PinnedMemoryPool, alloc_pinned_memory, get_default_memory_pool, get_default_pinned_memory_pool, set_allocator,
    set_pinned_memory_allocator,
)
from .stream import Entered, Event, ExternalStream, Stream, get_current_stream, get_elapsed_time

__all__ = [
    "Device", "Event", "ExternalStream", "MemoryPointer", "MemoryPool", "PinnedMemoryPool", "Stream", "alloc_pinned_memory", "driver",
    "get_current_stream", "get_default_memory_pool", "get_default_pinned_memory_pool", "get_elapsed_time", "is_available", "nvtx",
    "runtime", "set_allocator", "set_pinned_memory_allocator", "stream", "synchronize",
]

is_available = _cuda.is_available
Module, Function = RawModule, RawKernel


def synchronize():
    """Waits for the current GPU."""
    if is_available():
        _cuda.synchronize()


class Device(Entered):
    """A GPU; with `with`, the current one."""

    def __init__(self, device=None):
        self.id = int(device) if device is not None else _cuda.current_device() if is_available() else 0
        self._contexts = []

    def __repr__(self):
        return f"<CUDA Device {self.id}>"

    def __int__(self):
        return self.id

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def _context(self):
        return _cuda.device(self.id) if is_available() else contextlib.nullcontext()

    def use(self):
        if is_available():
            _cuda.set_device(self.id)
        return self

    def synchronize(self):
        if is_available():
            _cuda.synchronize(self.id)

    @property
    def compute_capability(self):
        """"90"."""
        return "%d%d" % _cuda.get_device_capability(self.id)

    @property
    def mem_info(self):
        """Bytes that are free, and all."""
        return _cuda.mem_get_info(self.id)

    @property
    def attributes(self):
        p = _cuda.get_device_properties(self.id)
        return {"MultiProcessorCount": p.multi_processor_count, "ComputeCapabilityMajor": p.major, "ComputeCapabilityMinor": p.minor}
