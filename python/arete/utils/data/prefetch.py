"""Batches on their way to a device."""
from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Iterable, Iterator

import arete

from ._utils.pin_memory import pin_memory

__all__ = ["DevicePrefetcher"]


def _moved(data: Any, device: Any) -> Any:
    """`data` with its tensors on the device."""
    if isinstance(data, arete.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, Mapping):
        return {key: _moved(value, device) for key, value in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_moved(value, device) for value in data))
    if isinstance(data, (tuple, list)):
        return type(data)(_moved(value, device) for value in data)
    return data


class _End:
    """After the last batch; with the exception that ended the loader, if one did."""

    def __init__(self, error: Any = None) -> None:
        self.error = error


class DevicePrefetcher:
    """Iterating gives the loader's batches on `device`; up to `ahead` of them are fetched and copied by a thread, on a stream of
    its own, while the loop works.

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
        self.consumer_wait = self.loader_wait = 0.0

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        batches: queue.Queue = queue.Queue(self.ahead)
        stop = threading.Event()
        self.consumer_wait = self.loader_wait = 0.0
        thread = threading.Thread(target=self._fetch, args=(batches, stop), daemon=True)
        thread.start()
        try:
            while True:
                start = time.perf_counter()
                batch, event = batches.get()
                self.consumer_wait += time.perf_counter() - start
                if isinstance(batch, _End):
                    if batch.error is not None:
                        raise batch.error
                    return
                if event is not None:
                    arete.cuda.current_stream(self.device).wait_event(event)
                yield batch
        finally:
            stop.set()
            while thread.is_alive():  # it may wait for room
                try:
                    batches.get_nowait()
                except queue.Empty:
                    thread.join(0.01)

    def _fetch(self, batches: queue.Queue, stop: threading.Event) -> None:
        end = _End()
        try:
            stream = arete.cuda.Stream(self.device) if self.device.type == "cuda" else None
            for batch in self.loader:
                if stop.is_set():
                    return
                event = None
                if stream is not None:
                    batch = pin_memory(batch)  # what is pinned stays as it is
                    with arete.cuda.stream(stream):
                        batch = _moved(batch, self.device)
                        event = stream.record_event()
                else:
                    batch = _moved(batch, self.device)
                start = time.perf_counter()
                batches.put((batch, event))
                self.loader_wait += time.perf_counter() - start
        except BaseException as error:  # noqa: BLE001: raised where the loop is
            end.error = error
        batches.put((end, None))
