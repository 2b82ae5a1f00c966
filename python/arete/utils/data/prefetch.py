"""Batches on their way to a device."""
from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Iterable, Iterator, List

import arete

from ... import _C
from ._utils.iterators import WorkersIterator
from ._utils.pin_memory import pin_memory
from .dataloader import DataLoader
from .dataset import IterableDataset

__all__ = ["DevicePrefetcher"]


def _tensors(data: Any, found: List[Any]) -> List[Any]:
    """The tensors of a batch, in order."""
    if isinstance(data, arete.Tensor):
        found.append(data)
    elif isinstance(data, Mapping):
        for value in data.values():
            _tensors(value, found)
    elif isinstance(data, (tuple, list)):
        for value in data:
            _tensors(value, found)
    return found


def _with(data: Any, tensors: Iterator[Any]) -> Any:
    """`data` with other tensors."""
    if isinstance(data, arete.Tensor):
        return next(tensors)
    if isinstance(data, Mapping):
        return {key: _with(value, tensors) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_with(value, tensors) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(_with(value, tensors) for value in data)
    return data


class _Batches(IterableDataset):
    """What a loop gives, as a stream."""

    def __init__(self, loop: Iterator) -> None:
        self.loop = loop

    def __iter__(self) -> Iterator:
        return self.loop


def _same(batch: Any) -> Any:
    return batch


class _Waits:
    """Seconds of waiting in an epoch."""

    def __init__(self) -> None:
        self.consumer_wait = self.loader_wait = 0.0


class DevicePrefetcher:
    """Iterating gives the loader's batches on `device`. Up to `ahead` of them are copied on a stream of its own while the loop works:
    by a thread of C++, or where workers are Python's by the loop itself, as soon as they are ready, before it gets a batch. What has no
    workers is walked by one.

    After an epoch `consumer_wait` is how many seconds the loop waited for batches (make loading faster), and `loader_wait` how
    long batches were ready before the loop wanted them.

    >>> data = arete.utils.data.TensorDataset(arete.arange(4))
    >>> loader = arete.utils.data.DataLoader(data, batch_size=2)
    >>> [x.tolist() for x, in arete.utils.data.DevicePrefetcher(loader, "cpu")]
    [[0, 1], [2, 3]]
    """

    def __init__(self, loader: Iterable, device: Any, ahead: int = 2) -> None:
        if ahead < 1:
            raise ValueError(f"ahead must be positive, got {ahead}")
        self.loader = loader
        self.device = arete.device(device)
        self.ahead = ahead
        self._waits: Any = _Waits()

    @property
    def consumer_wait(self) -> float:
        return self._waits.consumer_wait

    @property
    def loader_wait(self) -> float:
        return self._waits.loader_wait

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        copies = _C._CopyAhead(self.device)
        source: Any = iter(self.loader)
        progress = source._progress if isinstance(self.loader, DataLoader) else None
        feed = source._feed(copies, self.ahead) if isinstance(source, WorkersIterator) else None
        if feed is not None:
            self._waits = feed.waits
            return iter(functools.partial(source._fed, feed), None)
        if progress is not None:
            progress.ahead = deque()
        if not isinstance(source, WorkersIterator):
            # A loader's batches have their own random numbers; anything else draws from its worker's.
            numbers = None if progress is None else arete.Generator()
            source = iter(DataLoader(_Batches(source), None, num_workers=1, prefetch_factor=self.ahead, collate_fn=_same, generator=numbers))
        return self._ahead(source, copies, progress)

    def _start(self, copies: Any, batch: Any) -> tuple:
        """The batch on the device, and its copies."""
        if type(batch) is list and all(type(t) is arete.Tensor for t in batch):
            copied = copies.copy(batch)
            return copied.tensors, copied
        if self.device.type == "cuda":
            batch = pin_memory(batch)  # also what is no tensor but can be pinned
        copied = copies.copy(_tensors(batch, []))
        return _with(batch, iter(copied.tensors)), copied

    def _ahead(self, source: Any, copies: Any, progress: Any) -> Iterator[Any]:
        waits = self._waits = _Waits()
        clock = time.perf_counter
        start = clock()
        batches: deque = deque()  # their copies have been started; at the end what ended the loop, and None

        def fetch() -> None:
            try:
                batches.append(self._start(copies, next(source)))
            except BaseException as error:  # noqa: BLE001: raised when its turn comes
                batches.append((error, None))

        while True:
            if not batches:
                fetch()
            batch, copied = batches.popleft()
            if copied is None:
                waits.consumer_wait += clock() - start
                if progress is not None:
                    progress.ahead = None
                if isinstance(batch, StopIteration):
                    return
                try:
                    raise batch
                finally:
                    batch = None
            copied.wait()
            copied = None
            if progress is not None:
                progress.got_next()
            while len(batches) < self.ahead and not (batches and batches[-1][1] is None) and source._is_ready():
                fetch()
            ready = len(batches) > 0
            given = clock()
            waits.consumer_wait += given - start
            yield batch
            batch = None  # the loop alone decides how long it lives
            start = clock()
            if ready:
                waits.loader_wait += start - given
