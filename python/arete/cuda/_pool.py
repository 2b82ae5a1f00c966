"""Memory of their own for parts of a program."""
from __future__ import annotations

import contextlib
import weakref
from typing import Any, Dict, Iterator, List, Tuple

from .. import _C
from .._cuda_streams import _number

_c = _C._cuda
_STATES = "inactive", "active_allocated", "active_pending_free"
_known: "weakref.WeakValueDictionary[Tuple[int, int], MemPool]" = weakref.WeakValueDictionary()


class MemPool:
    """Memory that only what runs under use_mem_pool(), or graphs that are given the pool, take tensors from: what is freed in it is used
    again by these alone. With the pool its memory goes back to the driver; tensors that still live keep theirs.

    `use_on_oom`: free memory of the pool serves other tensors of the same stream before they would be out of memory (not for pools of
    graphs). NotImplementedError for `allocator`, since all memory comes from the driver, and for `no_split`, since pools cut their memory
    as they need it.

    >>> pool = arete.cuda.MemPool()  # doctest: +SKIP
    >>> with arete.cuda.use_mem_pool(pool):  # doctest: +SKIP
    ...     x = arete.ones(1000, device="cuda")
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False):
        if allocator is not None:
            raise NotImplementedError("MemPool(): allocator: memory of GPUs comes from the driver, not from functions of a program")
        if no_split:
            raise NotImplementedError("MemPool(): no_split: a pool cuts its memory into blocks of the sizes that are asked for")
        self._lends = use_on_oom
        self._first = _c.MemPool(_c.current_device(), use_on_oom)
        self._others: Dict[int, Any] = {}
        self._id = (self._first.device, self._first.id)
        _known[self._id] = self

    def _on(self, device: int) -> Any:
        """Its part on a device, which is made when it is used first."""
        device = _c.current_device() if device < 0 else device
        if device == self._first.device:
            return self._first
        if device not in self._others:
            self._others[device] = _c.MemPool(device, self._lends)
        return self._others[device]

    @staticmethod
    def _find(id: Tuple[int, int]) -> "MemPool":
        if id not in _known:
            raise ValueError(f"there is no MemPool with the id {id}")
        return _known[id]

    @property
    def allocator(self) -> None:
        """None: memory comes from the driver."""
        return None

    @property
    def id(self) -> Tuple[int, int]:
        """What functions that take a pool's id know it by."""
        return self._id

    def use_count(self) -> int:
        """How many hold it: this object, scopes of use_mem_pool() and graphs."""
        return self._first.use_count()

    def snapshot(self, include_traces: bool = True) -> List[Dict[str, Any]]:
        """Its segments and their blocks, as memory_snapshot() has them. Who allocated what is known to histories alone, so that no trace is
        part of it."""
        found = []
        for part in (self._first, *self._others.values()):
            for address, size, stream, expandable, blocks in part.snapshot():
                listed = [{"address": a, "size": n, "requested_size": n if state else 0, "state": _STATES[state], "frames": []}
                          for a, n, state in blocks]
                active = sum(b["size"] for b in listed if b["state"] != "inactive")
                found.append({
                    "device": part.device, "address": address, "total_size": size, "stream": stream, "segment_type": "large",
                    "segment_pool_id": self._id, "is_expandable": expandable, "frames": [],
                    "allocated_size": sum(b["size"] for b in listed if b["state"] == "active_allocated"),
                    "active_size": active, "requested_size": active, "blocks": listed})
        return found


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """What the calling thread allocates inside, on a device (the current one), comes from the pool. Other threads, also those that run
    backward passes, do not take part, and what is recorded as a graph comes from that graph's pool.

    >>> with arete.cuda.use_mem_pool(arete.cuda.MemPool()):  # doctest: +SKIP
    ...     x = arete.ones(1000, device="cuda")
    """
    scope = _c.MemPoolScope(pool._on(_number(device)))
    try:
        yield
    finally:
        scope.leave()


for _shown in (MemPool, use_mem_pool):
    _shown.__module__ = "arete.cuda"  # where they are shown
