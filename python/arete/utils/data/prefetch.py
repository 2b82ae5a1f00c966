"""Batches on their way to a device."""
from __future__ import annotations

import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Iterable, Iterator, List

import arete

from ._utils.iterators import NativeIterator
from ._utils.pin_memory import pin_memory
from .dataloader import DataLoader

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


class _Copies:
    """Starts copies of batches on a stream of its own."""

    def __init__(self, device: Any) -> None:
        self.native = arete._C._CopyAhead(device)
        self.pins = device.type == "cuda"

    def start(self, batch: Any) -> tuple:
        """The batch on the device, and a number for `wait`."""
        if type(batch) is list and all(type(t) is arete.Tensor for t in batch):
            return self.native.copy(batch)
        if self.pins:
            batch = pin_memory(batch)  # also what is no tensor but can be pinned
        moved, event = self.native.copy(_tensors(batch, []))
        return _with(batch, iter(moved)), event

    def wait(self, event: int) -> None:
        """What the calling thread gives the device from now on comes after the copy."""
        self.native.wait(event)


class _End:
    """After the last batch; with the exception that ended the loader, if one did."""

    def __init__(self, error: Any = None) -> None:
        self.error = error

    def leave(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


class _Waits:
    """Seconds of waiting in an epoch."""

    def __init__(self) -> None:
        self.consumer_wait = self.loader_wait = 0.0


class DevicePrefetcher:
    """Iterating gives the loader's batches on `device`. Up to `ahead` of them are copied on a stream of its own while the loop works:
    by a thread, or, of a DataLoader whose workers are Python's, by the loop itself, as soon as they are ready, before it gets a batch.

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
        own_workers = isinstance(self.loader, DataLoader) and self.loader.num_workers > 0
        return self._from_workers() if own_workers else self._from_thread()

    def _from_workers(self) -> Iterator[Any]:
        copies = _Copies(self.device)
        source: Any = iter(self.loader)
        feed = source._feed(copies.native, self.ahead) if isinstance(source, NativeIterator) else None
        if feed is None:
            return self._ahead(source, copies)
        self._waits = feed.waits
        return iter(functools.partial(source._fed, feed), None)

    def _ahead(self, source: Any, copies: _Copies) -> Iterator[Any]:
        waits = self._waits = _Waits()
        clock = time.perf_counter
        start = clock()
        progress = source._progress
        progress.ahead = deque()
        batches: deque = deque()  # their copies have been started; at the end an _End

        def fetch() -> None:
            try:
                batches.append(copies.start(next(source)))
            except StopIteration:
                batches.append((_End(), -1))
            except BaseException as error:  # noqa: BLE001: raised when its turn comes
                batches.append((_End(error), -1))

        while True:
            if not batches:
                fetch()
            batch, event = batches.popleft()
            if type(batch) is _End:
                waits.consumer_wait += clock() - start
                progress.ahead = None
                batch.leave()
                return
            copies.wait(event)
            progress.got_next()
            while len(batches) < self.ahead and not (batches and type(batches[-1][0]) is _End) and source._is_ready():
                fetch()
            ready = len(batches) > 0
            given = clock()
            waits.consumer_wait += given - start
            yield batch
            batch = None  # the loop alone decides how long it lives
            start = clock()
            if ready:
                waits.loader_wait += start - given

    def _from_thread(self) -> Iterator[Any]:
        batches: queue.Queue = queue.Queue(self.ahead)
        stop = threading.Event()
        waits = self._waits = _Waits()
        copies = _Copies(self.device)
        source = iter(self.loader)
        progress = source._progress if isinstance(self.loader, DataLoader) else None  # type: ignore[attr-defined]
        if progress is not None:
            progress.ahead = deque()
        thread = threading.Thread(target=self._fetch, args=(source, batches, stop, copies, waits), daemon=True)
        thread.start()
        try:
            while True:
                start = time.perf_counter()
                batch, event = batches.get()
                waits.consumer_wait += time.perf_counter() - start
                if type(batch) is _End:
                    if progress is not None:
                        progress.ahead = None
                    batch.leave()
                    return
                copies.wait(event)
                if progress is not None:
                    progress.got_next()
                yield batch
        finally:
            stop.set()
            while thread.is_alive():  # it may wait for room
                try:
                    batches.get_nowait()
                except queue.Empty:
                    thread.join(0.01)

    def _fetch(self, source: Iterator, batches: queue.Queue, stop: threading.Event, copies: _Copies, waits: _Waits) -> None:
        end = _End()
        if isinstance(self.loader, DataLoader):  # what items draw here leaves the loop's numbers alone, as in a worker
            source._stream = arete.Generator()  # type: ignore[attr-defined]
            arete._C._set_thread_generator(source._stream)  # type: ignore[attr-defined]
        try:
            for batch in source:
                if stop.is_set():
                    return
                entry = copies.start(batch)
                start = time.perf_counter()
                batches.put(entry)
                waits.loader_wait += time.perf_counter() - start
        except BaseException as error:  # noqa: BLE001: raised where the loop is
            end.error = error
        batches.put((end, -1))
