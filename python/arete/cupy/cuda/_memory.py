"""Pools of memory: views of the one that all arrays come from."""
from __future__ import annotations

from ... import _C, cuda as _cuda
from ..._operators import empty as _empty


class MemoryPool:
    """The memory of the current GPU that arrays come from. There is one: a pool that is made is that one."""

    def __init__(self, allocator=None):
        if allocator is not None:
            raise NotImplementedError("MemoryPool: memory comes from the library's own allocator")

    def used_bytes(self):
        return _cuda.memory_allocated() if _cuda.is_available() else 0

    def total_bytes(self):
        return _cuda.memory_reserved() if _cuda.is_available() else 0

    def free_bytes(self):
        return self.total_bytes() - self.used_bytes()

    def free_all_blocks(self, stream=None):
        """Gives memory that is not in use back to the driver."""
        if _cuda.is_available():
            _cuda.empty_cache()

    def set_limit(self, size=None, fraction=None):
        """The most bytes to take from the driver, or the share of the GPU's."""
        if (size is None) == (fraction is None):
            raise ValueError("set_limit(): give size or fraction")
        if _cuda.is_available():
            total = _cuda.mem_get_info()[1]
            _cuda.set_per_process_memory_fraction(fraction if fraction is not None else min(1.0, size / total) if size else 1.0)

    def get_limit(self):
        if not _cuda.is_available():
            return 0
        share = _cuda.memory.get_per_process_memory_fraction()
        return 0 if share >= 1 else int(share * _cuda.mem_get_info()[1])

    @property
    def malloc(self):
        """Names this pool where set_allocator() takes a function."""
        return self


class PinnedMemoryPool:
    """Page-locked memory of the host, which is kept by nobody."""

    def n_free_blocks(self):
        return 0

    def free_all_blocks(self):
        pass

    @property
    def malloc(self):
        return self


def alloc_pinned_memory(size):
    """Bytes of the host, page-locked where there is a GPU, as a buffer: `numpy.frombuffer(memory, dtype, count)` is an array over them."""
    return _empty(size, dtype=_C.uint8, pin_memory=_cuda.is_available()).numpy()


_pool, _pinned = MemoryPool(), PinnedMemoryPool()


def get_default_memory_pool():
    return _pool


def get_default_pinned_memory_pool():
    return _pinned


def set_allocator(allocator=None):
    """Accepts the pool that there is (`MemoryPool().malloc`); other allocators are refused."""
    if allocator is not None and not isinstance(allocator, MemoryPool):
        raise NotImplementedError("set_allocator(): memory comes from the library's own allocator")


def set_pinned_memory_allocator(allocator=None):
    """The same of page-locked memory."""
    if allocator is not None and not isinstance(allocator, PinnedMemoryPool):
        raise NotImplementedError("set_pinned_memory_allocator(): memory comes from the library's own allocator")
