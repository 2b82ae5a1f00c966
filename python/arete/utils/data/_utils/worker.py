"""The threads that load batches, and what they have in common with loading in the calling thread."""
from __future__ import annotations

import atexit
import copy
import random
import threading
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional

from .... import _C
from ....random import _shown, initial_seed
from .. import dataset as datasets
from .collate import default_collate
from .pin_memory import pin_memory, tensors_in

_local = threading.local()


def _generate_state(base_seed: int, worker_id: int) -> List[int]:
    """Four numbers of 32 bits by which programs seed NumPy in a worker."""
    import numpy

    return numpy.random.SeedSequence([worker_id, base_seed & 0xffffffff, base_seed >> 32, 0]).generate_state(4).tolist()


class WorkerInfo:
    """About the worker that runs this code: `id`, `num_workers`, `seed`, `dataset` (its shallow copy), and two sources of random
    numbers of its own: `generator` (an arete.Generator, in the worker arete's default one) and `random` (a random.Random).

    Both begin with `seed`, for a `worker_init_fn`. Before each batch they are seeded by the epoch's seed and the number of the batch.

    >>> from arete.utils.data import DataLoader, IterableDataset, get_worker_info
    >>> class Share(IterableDataset):
    ...     def __iter__(self):
    ...         info = get_worker_info()
    ...         return iter(range(info.id, 6, info.num_workers))
    >>> sorted(DataLoader(Share(), batch_size=None, num_workers=2))
    [0, 1, 2, 3, 4, 5]
    """

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id = id
        self.num_workers = num_workers
        self.dataset = dataset
        self.seed = seed
        self.random = random.Random(seed)
        self.generator = _C.Generator()
        self.generator.manual_seed(seed)

    def _begin_batch(self, stream: int, number: int) -> None:
        """What the worker draws from now on depends on these two numbers alone."""
        _C._seed_for_batch(self.generator, stream, number)
        self.random.seed(stream + ((number + 1) << 64))

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed})"


def get_worker_info() -> Optional[WorkerInfo]:
    """In a worker of a DataLoader its WorkerInfo, elsewhere None.

    >>> print(arete.utils.data.get_worker_info())
    None
    """
    return getattr(_local, "info", None)


class Streams:
    """The random numbers of an epoch's batches for who makes them in the calling thread, whose own are left alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.pair = seed, initial_seed()
        self.generator = _C.Generator()

    def call(self, number: int, make: Callable, *args: Any) -> Any:
        """make(*args) with the numbers of a batch."""
        shown, _shown.pair = _shown.pair, self.pair
        _C._seed_for_batch(self.generator, self.seed, number)
        before = _C._set_thread_generator(self.generator)
        try:
            return make(*args)
        finally:
            _C._set_thread_generator(before)
            _shown.pair = shown


class EndOfStream:
    """Given instead of a batch by a worker whose stream has ended."""


class Failure:
    """An exception on its way from a worker to the loop."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def reraise(self, where: str) -> None:
        error, self.error = self.error, None  # type: ignore[assignment]
        if isinstance(error, StopIteration):  # out of __next__ it would end the loop in silence
            raise RuntimeError(f"StopIteration raised {where}") from error
        datasets.note(error, f"Raised {where}.")
        raise error


class Fetcher:
    """Loads what a sampler's entry names: a batch, or without automatic batching one item."""

    def __init__(self, dataset: Any, iterable: bool, auto_collation: bool, collate_fn: Callable, drop_last: bool, pin: bool) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last
        self.pin = pin
        self.iterator: Optional[Iterator] = iter(dataset) if iterable else None

    def fetch(self, indices: Any) -> Any:
        data = self._items(indices) if self.iterator is None else self._next(indices)
        return pin_memory(data) if self.pin and not isinstance(data, EndOfStream) else data

    def _items(self, indices: Any) -> Any:
        if not self.auto_collation:
            return self.collate_fn(self.dataset[indices])
        if self.collate_fn is default_collate:
            batch = datasets.rows_of(self.dataset, indices, self.pin)
            if batch is not None:
                return batch
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.collate_fn(self.dataset.__getitems__(indices))
        items: List[Any] = []
        i = None
        try:
            for i in indices:
                items.append(self.dataset[i])
        except Exception as error:
            datasets.note(error, f"At index {i!r} of the dataset.")
            raise
        return self.collate_fn(items)

    def _next(self, indices: Any) -> Any:
        if not self.auto_collation:
            for item in self.iterator:  # type: ignore[union-attr]
                return self.collate_fn(item)
            return EndOfStream()
        items: List[Any] = []
        for _ in indices:
            for item in self.iterator:  # type: ignore[union-attr]
                items.append(item)
                break
            else:
                break
        if not items or (self.drop_last and len(items) < len(indices)):
            return EndOfStream()
        return self.collate_fn(items)


def worker_copy(dataset: Any) -> Any:
    """A shallow copy, also of the datasets inside of this module's combinations, so that what a worker assigns to attributes
    (an opened file, its share of the work) is its own. What cannot be copied is shared."""
    try:
        clone = copy.copy(dataset)
    except Exception:
        return dataset
    if type(clone) is datasets.Subset:
        clone.dataset = worker_copy(clone.dataset)
    elif type(clone) in (datasets.ConcatDataset, datasets.ChainDataset) and isinstance(clone.datasets, (list, tuple)):
        clone.datasets = [worker_copy(d) for d in clone.datasets]
    elif type(clone) is datasets.StackDataset:
        parts = clone.datasets
        clone.datasets = {k: worker_copy(d) for k, d in parts.items()} if isinstance(parts, dict) \
            else tuple(worker_copy(d) for d in parts)
    return clone


_open_pools: "weakref.WeakSet" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_open_pools):
        pool.close()


class Epoch:
    """What Python's workers and a loop have in common, besides the order of the batches' numbers: what is to be made, and what was."""

    def __init__(self, number: int, seed: int, feeds: bool) -> None:
        self.number = number
        self.seed = seed
        self.feeds = feeds  # the tensors of batches go to a device
        self.tasks: Dict[int, tuple] = {}  # indices, and the number of the batch in its random numbers
        self.made: Dict[int, Any] = {}

    def finish(self, threads: Any, number: int, data: Any) -> None:
        self.made[number] = data
        threads.finish(self.number, number, tensors_in(data, []) if self.feeds else [])


class WorkerPool:
    """The workers of a loader. `threads` has their queues and hands numbered batches on; it is the same engine for threads of Python
    and of C++, which never take the interpreter's lock and are for datasets of which the library makes whole batches by itself.

    Tasks of another epoch than the present one are forgotten, and with them a loop that was left early."""

    def __init__(self, num_workers: int, dataset: Any, native: bool, shared: bool, *work: Any) -> None:
        self.num_workers = num_workers
        self.native = native
        self.closed = False
        self.epoch = Epoch(0, 0, False)
        self.threads = _C._WorkerPool(num_workers, own_threads=native)
        self.shared = shared  # workers have the dataset itself, and no copies
        self.dataset = worker_copy(dataset) if native and not shared else dataset
        self.python = [] if native else [threading.Thread(target=_work, args=(self, i, *work), daemon=True, name=f"arete-loader-{i}")
                                         for i in range(num_workers)]
        _open_pools.add(self)
        for thread in self.python:
            thread.start()

    def start(self, maker: Any, seed: int, feeds: bool) -> Epoch:
        self.epoch = Epoch(self.threads.start(maker, seed), seed, feeds)
        return self.epoch

    def close(self, wait: float = 5.0) -> None:
        """Ends the threads, and waits for what they are doing just now, but not forever."""
        if self.closed:
            return
        self.closed = True
        self.threads.close(wait)
        for thread in self.python:
            if thread is not threading.current_thread():
                thread.join(wait)


def _work(pool: WorkerPool, worker: int, make_fetcher: Callable, init_fn: Optional[Callable], first_seed: int) -> None:
    """What a worker thread does until its pool is closed."""
    dataset = pool.dataset if pool.shared else worker_copy(pool.dataset)
    info = _local.info = WorkerInfo(worker, pool.num_workers, first_seed + worker, dataset)
    _C._set_thread_generator(info.generator)  # the main thread's numbers stay as they are
    broken: Optional[BaseException] = None
    try:
        if init_fn is not None:
            init_fn(worker)
    except BaseException as error:
        broken = error
    # A worker_init_fn that calls arete.manual_seed chooses the first epoch's numbers, as it does in torch.
    chosen = info.generator.initial_seed()
    stream: Optional[int] = None if chosen == info.seed else chosen
    last, fetcher = 0, None
    while True:
        task = pool.threads.next(worker)
        if task is None:
            return
        epoch, number = pool.epoch, task[1]
        if task[0] != epoch.number:
            continue
        indices, batch = epoch.tasks.pop(number)
        data: Any
        try:
            if broken is not None:
                # Handed over once and not kept: its traceback will hold the loop's frames, and with them the iterator.
                error, broken = broken, RuntimeError("worker_init_fn has failed in this worker")
                raise error
            if epoch.number != last:
                if last != 0 or stream is None:
                    stream = epoch.seed
                last, fetcher = epoch.number, None
                info.seed = epoch.seed + worker
                _shown.pair = epoch.seed, info.seed
                info._begin_batch(stream, batch)
                fetcher = make_fetcher(info.dataset)
            else:
                info._begin_batch(stream, batch)  # type: ignore[arg-type]
            data = EndOfStream() if fetcher is None else fetcher.fetch(indices)
        except BaseException as error:
            data = Failure(error)
        epoch.finish(pool.threads, number, data)
        data = task = epoch = indices = error = None  # type: ignore[assignment]
