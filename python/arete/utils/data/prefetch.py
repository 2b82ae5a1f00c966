"""Batches on their way to a device."""
from __future__ import annotations

from typing import Any, Iterable, Iterator

from ... import _C
from .dataloader import DataLoader
from .dataset import IterableDataset

__all__ = ["DevicePrefetcher"]


class _Batches(IterableDataset):
    """What a loop gives, as a stream."""

    def __init__(self, loop: Iterable) -> None:
        self.loop = loop

    def __iter__(self) -> Iterator:
        return iter(self.loop)


def _same(batch: Any) -> Any:
    return batch


class DevicePrefetcher:
    """Iterating gives the loader's batches on `device`. Up to `ahead` of them are copied on a stream of its own while the loop works, by
    a thread that leaves the interpreter alone. What has no workers is walked by one.

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
        self.device = _C.device(device)
        self.ahead = ahead
        self._waits = _C._FeedWaits()
        self._copies: Any = None

    @property
    def consumer_wait(self) -> float:
        return self._waits.consumer_wait

    @property
    def loader_wait(self) -> float:
        return self._waits.loader_wait

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        loader: Any = self.loader
        if not isinstance(loader, DataLoader):
            loader = DataLoader(_Batches(loader), None, num_workers=1, prefetch_factor=self.ahead, collate_fn=_same)
        self._copies = self._copies or _C._CopyAhead(self.device)
        walk = loader._walk(self)
        self._waits = walk._feed.waits
        return walk.fed()
