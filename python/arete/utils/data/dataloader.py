"""The DataLoader: batches of a dataset, loaded by the loop itself or ahead of it by threads."""
from __future__ import annotations

import itertools
import operator
import queue
import time
import warnings
import weakref
from collections import deque
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Union

import arete
import arete.random  # gives generators get_state and set_state

from ._utils.collate import default_collate, default_convert
from ._utils.worker import EndOfStream, Failure, Fetcher, NativePool, WorkerPool, _open_pools, get_worker_info  # noqa: F401
from .dataset import Dataset, IterableDataset, maker_of
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, random_seed

__all__ = ["DataLoader", "LoaderStats", "default_collate", "default_convert", "get_worker_info"]

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


class LoaderStats(NamedTuple):
    """Who waited for whom during a DataLoader's latest epoch, in seconds.

    `consumer_wait`: the loop waited for batches (without workers, made them); `worker_wait`: the workers, all together, waited
    because enough batches were ready.

    >>> arete.utils.data.LoaderStats(consumer_wait=0.5, worker_wait=0.0).consumer_wait
    0.5
    """

    consumer_wait: float
    worker_wait: float


class _DatasetKind:
    Map = 0
    Iterable = 1


def _whole_number(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, got {value!r}") from None


class _EndlessSampler(Sampler):
    """For streams, which have no indices."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader:
    """Iterating gives the batches of one epoch, in an order that depends on the sampler and its generator only.

    `num_workers` threads (0: the loop itself) load `prefetch_factor` batches each ahead of the loop; batch i is made by worker
    i % num_workers. Where the library makes whole batches by itself (a TokenDataset, a TensorDataset on the CPU, or a
    vision.datasets.ImageFolder with the library's transforms; the default collation, no `worker_init_fn`) they are threads of C++,
    which leave the interpreter's lock to the loop. Elsewhere workers are worth their while where loading waits for files or works
    outside of that lock, as arete's and NumPy's functions, image decoders and zlib do. Each worker has a shallow copy of the
    dataset, and `get_worker_info()` tells it who it is. An exception in a worker is raised in the loop with the worker's traceback.

    `state_dict()` in the middle of an epoch and `load_state_dict()` on a loader with the same arguments go on with the
    next batch, in the same order.

    `pin_memory=True` puts batches into page-locked memory; without a GPU it warns and leaves them as they are.
    `multiprocessing_context` and `pin_memory_device` are accepted and mean nothing here.

    >>> from arete.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(arete.arange(5.0), arete.tensor([0, 1, 0, 1, 0]))
    >>> loader = DataLoader(data, batch_size=2)
    >>> len(loader), [labels.tolist() for values, labels in loader]
    (3, [[0, 1], [0, 1], [0]])
    >>> DataLoader(data, batch_size=2, shuffle=True, sampler=range(5))
    Traceback (most recent call last):
    ValueError: give sampler or shuffle=True, not both
    """

    def __init__(self, dataset: Dataset, batch_size: Optional[int] = 1, shuffle: Optional[bool] = None,
                 sampler: Optional[Iterable] = None, batch_sampler: Optional[Iterable[List]] = None, num_workers: int = 0,
                 collate_fn: Optional[Callable[[List], Any]] = None, pin_memory: bool = False, drop_last: bool = False,
                 timeout: float = 0, worker_init_fn: Optional[Callable[[int], None]] = None, multiprocessing_context: Any = None,
                 generator: Any = None, *, prefetch_factor: Optional[int] = None, persistent_workers: bool = False,
                 pin_memory_device: str = "", in_order: bool = True) -> None:
        num_workers = _whole_number("num_workers", num_workers)
        prefetch_factor = None if prefetch_factor is None else _whole_number("prefetch_factor", prefetch_factor)
        self._check(num_workers, timeout, prefetch_factor, persistent_workers, multiprocessing_context)
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.generator = generator
        self.persistent_workers = persistent_workers
        iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if iterable else _DatasetKind.Map
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("a DataLoader of an IterableDataset takes no shuffle, sampler or batch_sampler: the dataset gives the order")
        if sampler is not None and shuffle:
            raise ValueError("give sampler or shuffle=True, not both")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("drop_last needs a batch_size")
        if sampler is None:
            if iterable:
                sampler = _EndlessSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.collate_fn = collate_fn or (default_collate if batch_sampler is not None else default_convert)
        self._pool: Union[WorkerPool, NativePool, None] = None
        self._times = _Times(num_workers)
        self._progress: Optional[_Progress] = None
        self._resume: Optional[dict] = None
        self._warned = False
        self._ready = True

    @staticmethod
    def _check(num_workers: int, timeout: float, prefetch_factor: Optional[int], persistent: bool, context: Any) -> None:
        if num_workers < 0:
            raise ValueError(f"num_workers must not be negative, got {num_workers}")
        if not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if timeout < 0:
            raise ValueError(f"timeout must not be negative, got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor needs num_workers > 0")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"prefetch_factor must be at least 1, not {prefetch_factor}")
        if persistent and num_workers == 0:
            raise ValueError("persistent_workers needs num_workers > 0")
        if context is not None and num_workers == 0:
            raise ValueError("multiprocessing_context needs num_workers > 0")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and getattr(self, "_ready", False):
            raise ValueError(f"{name} of a DataLoader cannot be changed: make a new one")
        super().__setattr__(name, value)

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Iterable:
        return self.batch_sampler if self._auto_collation else self.sampler  # type: ignore[return-value]

    def __iter__(self) -> Iterator:
        if self.pin_memory and not self._warned and not arete.cuda.is_available():
            self._warned = True
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, so batches stay in pageable memory",
                          stacklevel=2)
        if not self.num_workers:
            return _DirectIterator(self)
        made = self._native_maker()
        return _ThreadedIterator(self) if made is None else _NativeIterator(self, *made)

    @property
    def _pins(self) -> bool:
        return self.pin_memory and arete.cuda.is_available()

    def _native_maker(self) -> Optional[tuple]:
        """maker_of() the dataset, if workers need nothing of Python for its batches."""
        pool = self._pool
        if self.worker_init_fn is not None or self._dataset_kind != _DatasetKind.Map or not self._auto_collation:
            return None
        if self.collate_fn is not default_collate or (isinstance(pool, WorkerPool) and not pool.closed):
            return None
        return maker_of(pool.dataset if isinstance(pool, NativePool) and not pool.closed else self.dataset, self._pins)

    def __len__(self) -> int:
        """Number of batches of an epoch. TypeError where the dataset or the sampler does not know its length."""
        if self._dataset_kind == _DatasetKind.Map:
            return len(self._index_sampler)  # type: ignore[arg-type]
        n = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def stats(self) -> LoaderStats:
        """Who waited for whom since the latest loop over this loader began.

        >>> loader = arete.utils.data.DataLoader(range(8), batch_size=4, num_workers=1)
        >>> for batch in loader:
        ...     pass
        >>> loader.stats().consumer_wait > 0
        True
        """
        return LoaderStats(self._times.loop_wait(), self._times.worker_wait())

    def state_dict(self) -> Dict[str, Any]:
        """Where the latest loop over this loader is, as a dict of plain values and tensors. Batches that workers have loaded ahead
        do not count."""
        if self._resume is not None:
            return dict(self._resume)
        if self._progress is not None and not self._progress.is_over():
            return self._progress.state(self)
        return {"version": 1, "batches": None, "later": [], "shares": None, "rng": None, "generators": [g.get_state() for g in self._generators()],
                "epoch": None, "dataset": None}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Makes the next loop go on where the saved one was. The random state of the program is not touched."""
        if state_dict.get("version") != 1:
            raise ValueError("this is no state of a DataLoader")
        if len(state_dict["generators"]) != len(self._generators()):
            raise ValueError("the state is of a DataLoader with other generators")
        shares = state_dict.get("shares")
        if shares is not None and len(shares) != self.num_workers:
            raise ValueError(f"the state is of a loop over a stream without order by {len(shares)} workers, this loader has {self.num_workers}")
        self._resume = dict(state_dict)

    def _generators(self) -> list:
        """The generators that the order depends on, apart from the global one."""
        found: list = []
        for owner in (self, self.batch_sampler, self.sampler, getattr(self.batch_sampler, "sampler", None)):
            generator = getattr(owner, "generator", None)
            if isinstance(generator, arete.Generator) and not any(generator is g for g in found):
                found.append(generator)
        return found

    def _epoch_sampler(self) -> Any:
        """The sampler that has set_epoch(), if one has."""
        for owner in (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if hasattr(owner, "set_epoch") and hasattr(owner, "epoch"):
                return owner
        return None


class _Times:
    """Seconds of waiting in an epoch. Outlives the iterator; each thread adds to a number of its own."""

    def __init__(self, num_workers: int) -> None:
        self.consumer_wait = 0.0
        self.feed: Any = None  # of a feed that waits in the loop's place
        self.worker_waits = [0.0] * num_workers
        self.native: Optional[Callable[[], float]] = None  # the sum, of threads that are not Python's

    def loop_wait(self) -> float:
        return self.consumer_wait + (0.0 if self.feed is None else self.feed.worker_wait)

    def worker_wait(self) -> float:
        return sum(self.worker_waits) if self.native is None else self.native()


class _Progress:
    """How far a loop is, and the random states from which its order can be made again. Outlives the iterator.

    `batches` counts those that the loop got; where they have numbers (no stream) it is the lowest number that it did not get, and
    `later` are those above that it got. `shares` is how many of each worker's batches it got, for streams without order, else None.
    `ahead` is None, or what an iterator gave to one that takes batches ahead of the loop (a DevicePrefetcher)."""

    def __init__(self, loader: DataLoader, resume: Optional[dict]) -> None:
        self.rng = arete.get_rng_state()
        self.generators = [g.get_state() for g in loader._generators()]
        sampler = loader._epoch_sampler()
        self.epoch = None if sampler is None else sampler.epoch
        resume = resume or {}
        self.batches: int = resume.get("batches") or 0
        self.later = set(resume.get("later") or ())
        self.numbered = loader._dataset_kind == _DatasetKind.Map
        self.shares: Optional[List[int]] = None
        if not self.numbered and loader.num_workers and not (loader.in_order and resume.get("shares") is None):
            # Of an ordered loop's first batches each worker made as many as the others, as long as none was at its end.
            whole, rest = divmod(self.batches, loader.num_workers)
            self.shares = list(resume.get("shares") or [whole + (w < rest) for w in range(loader.num_workers)])
        self.ahead: Optional[deque] = None
        self.done = False

    def is_over(self) -> bool:
        return self.done and self.ahead is None

    def made(self, task: int, worker: int) -> None:
        """An iterator gave a batch."""
        if self.ahead is None:
            self._got(task, worker)
        else:
            self.ahead.append((task, worker))

    def got_next(self) -> None:
        """The loop got the first of those ahead."""
        self._got(*self.ahead.popleft())  # type: ignore[union-attr]

    def _got(self, task: int, worker: int) -> None:
        if not self.numbered:
            self.batches += 1
            if self.shares is not None:
                self.shares[worker] += 1
            return
        self.later.add(task)
        while self.batches in self.later:
            self.later.remove(self.batches)
            self.batches += 1

    def state(self, loader: DataLoader) -> dict:
        inner = None
        if self.ahead is None and not loader.num_workers and not self.numbered and hasattr(loader.dataset, "state_dict"):
            inner = loader.dataset.state_dict()
        return {"version": 1, "batches": self.batches, "later": sorted(self.later), "shares": self.shares and list(self.shares),
                "rng": self.rng, "generators": self.generators, "epoch": self.epoch, "dataset": inner}


class _Iterator:
    """What both iterators share: the order of an epoch, resuming, and counting. Tasks are numbered from the epoch's beginning."""

    _task, _by = 0, 0  # the latest result's number and worker

    def __init__(self, loader: DataLoader) -> None:
        resume, loader._resume = loader._resume, None
        before = None
        if resume is not None:
            for generator, state in zip(loader._generators(), resume["generators"]):
                generator.set_state(state)
            if resume["epoch"] is not None:
                loader._epoch_sampler().set_epoch(resume["epoch"])
            if resume["rng"] is not None:
                before = arete.get_rng_state()
                arete.set_rng_state(resume["rng"])
        self._times = loader._times = _Times(loader.num_workers)
        try:
            self._progress = progress = loader._progress = _Progress(loader, resume)
            self._count = skip = progress.batches
            self._seed = random_seed(loader.generator)
            order: Iterator = enumerate(self._batches(loader))
            self._skip = 0
            self._skip_shares: Optional[List[int]] = None
            if loader._dataset_kind == _DatasetKind.Map:
                for _ in itertools.islice(order, skip):
                    pass
                if progress.later:
                    later = frozenset(progress.later)
                    order = (entry for entry in order if entry[0] not in later)
            elif progress.shares is not None:
                self._skip_shares = list(progress.shares)
            elif resume is not None and resume["dataset"] is not None and not loader.num_workers:
                loader.dataset.load_state_dict(resume["dataset"])  # type: ignore[attr-defined]
            else:
                self._skip = skip
            first = list(itertools.islice(order, 1))  # samplers draw their random numbers with the first index
        finally:
            if before is not None:
                arete.set_rng_state(before)
        self._order = itertools.chain(first, order)
        self._span = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
        self._iterable = loader._dataset_kind == _DatasetKind.Iterable
        self._pin = loader._pins
        self._length: Optional[int] = None
        if self._iterable:
            try:
                self._length = len(loader)
            except (TypeError, NotImplementedError):
                pass

    def __iter__(self) -> "_Iterator":
        return self

    def __next__(self) -> Any:
        if self._progress.done:
            raise StopIteration
        # A range in recordings of arete.profiler: how long the program waits for data.
        span = arete._C._profile.RecordFunction(self._span)
        start = time.perf_counter()
        try:
            data = self._load()
            while not isinstance(data, EndOfStream) and self._was_given():
                data = self._load()
        finally:
            span.end()
            self._times.consumer_wait += time.perf_counter() - start
        if isinstance(data, EndOfStream):
            self._progress.done = True
            self._finish()
            raise StopIteration
        self._count += 1
        self._progress.made(self._task, self._by)
        if self._length is not None and self._count == self._length + 1:
            warnings.warn(f"the IterableDataset gives more batches than the {self._length} of its length; with workers each of "
                          "them has to give its own share (get_worker_info())", stacklevel=2)
        return data

    def _was_given(self) -> bool:
        """Whether the latest batch of a stream came before where the loop is resumed. It then counts as skipped."""
        if self._skip_shares is not None:
            if not self._skip_shares[self._by]:
                return False
            self._skip_shares[self._by] -= 1
            return True
        if not self._skip:
            return False
        self._skip -= 1
        return True

    def _batches(self, loader: DataLoader) -> Iterator:
        """The indices of each batch."""
        return iter(loader._index_sampler)

    def _load(self) -> Any:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        """False if the next batch, or the end, had to be waited for."""
        return False

    def _finish(self) -> None:
        pass


def _fetcher_maker(loader: DataLoader, iterable: bool, pin: bool) -> Callable[[Any], Fetcher]:
    """Makes fetchers without holding the loader, which a worker must not keep alive."""
    auto, collate_fn, drop_last = loader._auto_collation, loader.collate_fn, loader.drop_last
    return lambda dataset: Fetcher(dataset, iterable, auto, collate_fn, drop_last, pin)


class _DirectIterator(_Iterator):
    """Loads in the calling thread."""

    _stream: Optional[arete.Generator] = None  # the thread's own generator, if it is not the loop's thread

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._fetcher = _fetcher_maker(loader, self._iterable, self._pin)(loader.dataset)

    def _load(self) -> Any:
        for self._task, indices in self._order:
            if self._stream is not None:
                arete._C._seed_for_batch(self._stream, self._seed, self._task)
            return self._fetcher.fetch(indices)
        return EndOfStream()


_GONE = ("the workers of this loop are gone: its loader was shut down, or with persistent_workers=True a second loop over it was "
         "begun")  # fmt: skip


class _WorkersIterator(_Iterator):
    """Lets workers load ahead, and gives what they loaded in order. Derived classes say how tasks go to workers and come back."""

    _pool: Any

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._timeout = loader.timeout or None
        self._in_order = loader.in_order
        self._persistent = loader.persistent_workers
        self._active = [True] * loader.num_workers
        self._tasks_of = [0] * loader.num_workers  # how many tasks each has got
        # Whose turn it is.
        self._worker = 0 if self._iterable else self._progress.batches % loader.num_workers
        self._owner: Any = {}      # which worker makes a task whose result has not been taken
        self._waiting: Dict[int, Any] = {}  # results that have been received
        self._open(loader)
        for _ in range(loader.num_workers * loader.prefetch_factor):  # type: ignore[operator]
            self._send()

    def _open(self, loader: DataLoader) -> None:
        """Begins the epoch."""
        raise NotImplementedError

    def _submit(self, number: int, indices: Any) -> None:
        """Gives a task to the worker whose turn it is."""
        raise NotImplementedError

    def _result(self, number: Optional[int]) -> Any:
        """The number of a result and the result, waiting for it; None stands for the first that comes."""
        raise NotImplementedError

    def _own(self, loader: DataLoader, kind: type, *args: Any) -> Any:
        """The loader's pool, or a new one."""
        pool: Any = loader._pool
        if pool is not None and type(pool) is not kind:
            pool.close()
        if pool is None or pool.closed:
            pool = kind(loader.num_workers, loader.dataset, *args)
            if self._persistent:
                loader._pool = pool
            # When its owner is gone, so is the pool; the threads hold neither loader nor iterator.
            weakref.finalize(loader if self._persistent else self, pool.close).atexit = False
        return pool

    def _send(self) -> None:
        """Gives the next task to the next worker whose stream has not ended."""
        n = self._pool.num_workers
        for _ in range(n):
            if self._active[self._worker]:
                break
            self._worker = (self._worker + 1) % n
        else:
            return
        for number, indices in self._order:
            self._owner[number] = self._worker
            self._submit(number, indices)
            self._tasks_of[self._worker] += 1
            self._worker = (self._worker + 1) % n
            return

    def _take(self) -> Any:
        """The result whose turn it is and its worker, or None if there are no more."""
        if not self._owner:
            return None
        self._task, data = self._result(self._next() if self._in_order else None)
        self._by = self._owner.pop(self._task)
        return data, self._by

    def _next(self) -> int:
        """The number of the oldest task without a result; there is one."""
        return next(iter(self._owner))

    def _load(self) -> Any:
        while True:
            taken = self._take()
            if taken is None:
                return EndOfStream()
            data, worker = taken
            if isinstance(data, EndOfStream):
                self._active[worker] = False
                self._send()
                continue
            self._send()
            if isinstance(data, Failure):
                data.reraise(f"in DataLoader worker thread {worker}")
            return data

    def _late(self) -> Exception:
        return RuntimeError(f"DataLoader timed out after {self._timeout} seconds")

    def _finish(self) -> None:
        if not self._persistent:
            self._pool.close()


class _ThreadedIterator(_WorkersIterator):
    """With threads of Python."""

    def _open(self, loader: DataLoader) -> None:
        self._pool = self._own(loader, WorkerPool, _fetcher_maker(loader, self._iterable, self._pin), loader.worker_init_fn, self._seed)
        self._epoch = self._pool.start_epoch(self._seed, self._times.worker_waits)

    def _submit(self, number: int, indices: Any) -> None:
        # When a stream's tasks come to be numbered depends on who is done first, but not which of a worker's tasks this is.
        batch = self._tasks_of[self._worker] * self._pool.num_workers + self._worker if self._iterable else number
        self._pool.tasks[self._worker].put((self._epoch, number, indices, self._seed, batch))

    def _receive(self, wait: bool = True) -> None:
        """Waits for one result of this epoch. Without `wait` queue.Empty if there is none."""
        while True:
            if self._pool.closed or self._pool.epoch != self._epoch:
                raise RuntimeError(_GONE)
            epoch, number, data = self._pool.results.get(wait, self._timeout)
            if epoch == self._epoch:
                self._waiting[number] = data
                return

    def _result(self, number: Optional[int]) -> Any:
        try:
            while (number not in self._waiting) if number is not None else not self._waiting:
                self._receive()
        except queue.Empty:
            raise self._late() from None
        if number is None:
            number = next(iter(self._waiting))
        return number, self._waiting.pop(number)

    def _is_ready(self) -> bool:
        if self._skip or self._skip_shares is not None and any(self._skip_shares):
            return False
        try:
            while self._owner:
                if self._waiting and (not self._in_order or self._next() in self._waiting):
                    number = self._next() if self._in_order else next(iter(self._waiting))
                    return not isinstance(self._waiting[number], EndOfStream)  # after which another worker's turn comes
                self._receive(False)
        except queue.Empty:
            return False
        except RuntimeError:
            pass  # the next batch is an error
        return True


class _Turns:
    """Which worker makes which batch where each has its turn: like a dict of the batches that have not been taken. Iterating
    is for those who take them in order."""

    def __init__(self, first: int, batches: int, workers: int) -> None:
        self.next = first
        self.end = first + batches
        self.workers = workers

    def __len__(self) -> int:
        return self.end - self.next

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.next, self.end))

    def pop(self, number: int) -> int:
        self.next += 1
        return number % self.workers


class _NativeIterator(_WorkersIterator):
    """With threads of C++, for whole batches."""

    def __init__(self, loader: DataLoader, maker: Any, maps: list) -> None:
        self._maker, self._maps = maker, maps
        super().__init__(loader)

    def _open(self, loader: DataLoader) -> None:
        self._pool = self._own(loader, NativePool)
        self._threads = self._pool.threads
        self._epoch = self._threads.start(self._maker, self._seed)
        self._times.native = self._threads.waited()
        # For what a sampler may give instead of a list of integers: the loop makes it by itself, with the same result or error.
        self._fetcher = _fetcher_maker(loader, False, self._pin)(self._pool.dataset)
        if self._whole is not None:
            size, n = loader.batch_sampler.batch_size, self._pool.num_workers  # type: ignore[union-attr]
            first = self._progress.batches
            rest = self._whole[first * size:]
            self._threads.submit_all(rest, size, n * loader.prefetch_factor, first)  # type: ignore[operator]
            self._owner = _Turns(first, -(-len(rest) // size), n)
            self._whole = None

    def _feed(self, copies: Any, ahead: int) -> Any:
        """What gives the rest of the epoch on a device (see Note [Feeding a loop]); None unless the threads have its whole order."""
        if not isinstance(self._owner, _Turns) or not self._in_order:
            return None
        first = self._progress.batches
        feed = arete._C._BatchFeed(self._threads, self._epoch, first, first + len(self._owner), copies, ahead, self._timeout or 0.0)
        self._times.feed = feed.waits
        _open_pools.add(feed)
        return feed

    def _fed(self, feed: Any) -> Any:
        """The feed's next batch, or None at the end, after which this iterator is at its end, too."""
        number = self._progress.batches
        worker = number % self._pool.num_workers
        try:
            batch = feed.next()
        except Exception as error:
            Failure(error).reraise(f"in DataLoader worker thread {worker}")
        if type(batch) is list:
            self._progress.made(number, worker)
            return batch
        if batch:
            raise self._late() if batch == -1 else RuntimeError(_GONE)
        self._progress.done = True
        self._finish()
        return None

    def _batches(self, loader: DataLoader) -> Iterator:
        sampler = loader._index_sampler
        # Where it can be, the order is given to the threads at once, and there is nothing to send from batch to batch.
        plain = isinstance(sampler, BatchSampler) and not self._maps and not self._progress.later
        self._whole = sampler._whole() if plain else None
        return iter(sampler) if self._whole is None else iter(())

    def _submit(self, number: int, indices: Any) -> None:
        chosen = indices
        try:
            if self._maps and type(indices) in (list, tuple):
                for m in self._maps:
                    chosen = [m[i] for i in chosen]
            if self._threads.submit(self._worker, number, chosen):
                return
        except Exception:
            pass  # it is raised again here:
        generator = arete.Generator()
        arete._C._seed_for_batch(generator, self._seed, number)
        before = arete._C._set_thread_generator(generator)
        try:
            self._waiting[number] = self._fetcher.fetch(indices)
        except Exception as error:
            self._waiting[number] = Failure(error)
        finally:
            arete._C._set_thread_generator(before)

    def _result(self, number: Optional[int]) -> Any:
        if self._waiting:
            if number is None:
                number = next(iter(self._waiting))
            if number in self._waiting:
                return number, self._waiting.pop(number)
        got = self._threads.wait(self._epoch, -1 if number is None else number, self._timeout or 0.0)
        if got < 0:
            raise self._late() if got == -1 else RuntimeError(_GONE)
        try:
            return got, self._threads.take(got)
        except Exception as error:
            return got, Failure(error)

    def _is_ready(self) -> bool:
        if not self._owner or (self._waiting if not self._in_order else self._next() in self._waiting):
            return True
        return self._threads.is_ready(self._epoch, self._next() if self._in_order else -1)
