"""The loops of a DataLoader over an epoch: in the calling thread, and with workers."""
from __future__ import annotations

import itertools
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional

from .... import _C
from ..dataset import made_by
from ..sampler import BatchSampler
from .pin_memory import with_tensors
from .progress import Progress, Times, words_of
from .worker import EndOfStream, Failure, Fetcher, Streams, WorkerPool, _open_pools

if TYPE_CHECKING:
    from ..dataloader import DataLoader


class EpochIterator:
    """What all iterators share: the order of an epoch, resuming, and counting. Tasks are numbered from the epoch's beginning.

    Note [Random numbers of an epoch] in arete/data/sampler.h says what an epoch draws."""

    _task, _by = 0, 0  # the latest result's number and worker

    def __init__(self, loader: DataLoader, pin: bool) -> None:
        resume, loader._resume = loader._resume, None
        source, default, before = loader._source(), _C.default_generator, None
        if resume is not None:
            for generator, words in zip(loader._generators(), resume.get("generators") or ()):
                _C._set_generator_words(generator, *words)
            if resume.get("epoch") is not None and loader._epoch_sampler() is not None:
                loader._epoch_sampler().set_epoch(resume["epoch"])
            before = words_of(default)  # the program's numbers are left alone
            if resume.get("program") is not None:
                _C._set_generator_words(default, *resume["program"])
            if resume.get("seed") is not None:
                _C._set_generator_words(source, resume["seed"], resume["offset"])
        self._times = loader._times = Times()
        try:
            self._progress = progress = loader._progress = Progress(loader, resume)
            self._count = skip = progress.batch
            self._seed = _C._random_seed(source)
            order: Iterator = enumerate(self._batches(loader))
            self._skip = 0
            self._skip_shares: Optional[List[int]] = None
            if not loader._iterable:
                for _ in itertools.islice(order, skip):
                    pass
                if progress.later:
                    later = frozenset(progress.later)
                    order = (entry for entry in order if entry[0] not in later)
            elif progress.shares is not None:
                self._skip_shares = list(progress.shares)
            elif resume is not None and resume.get("dataset") is not None and not loader.num_workers:
                loader.dataset.load_state_dict(resume["dataset"])  # type: ignore[attr-defined]
            else:
                self._skip = skip
            first = list(itertools.islice(order, 1))  # samplers draw their random numbers with the first index
        finally:
            if before is not None:
                _C._set_generator_words(default, *before)
        self._order = itertools.chain(first, order)
        self._span = f"enumerate(DataLoader)#{type(self).__name__}.__next__"
        self._iterable = loader._iterable
        self._pin = pin
        self._length: Optional[int] = None
        if self._iterable:
            try:
                self._length = len(loader)
            except (TypeError, NotImplementedError):
                pass

    def __iter__(self) -> "EpochIterator":
        return self

    def __next__(self) -> Any:
        if self._progress.done:
            raise StopIteration
        # A range in recordings of arete.profiler: how long the program waits for data.
        span = _C._profile.RecordFunction(self._span)
        start = time.perf_counter()
        try:
            data = self._load()
            while not isinstance(data, EndOfStream) and self._was_given():
                data = self._load()
        finally:
            span.end()
            if self._times.feed is None:
                self._times.consumer_wait += time.perf_counter() - start
        if isinstance(data, EndOfStream):
            self._progress.done = True
            self._finish()
            raise StopIteration
        self._count += 1
        self._progress.got(self._task, self._by)
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

    def _finish(self) -> None:
        pass


def _fetcher_maker(loader: DataLoader, iterable: bool, pin: bool) -> Callable[[Any], Fetcher]:
    """Makes fetchers without holding the loader, which a worker must not keep alive."""
    auto, collate_fn, drop_last = loader._auto_collation, loader.collate_fn, loader.drop_last
    return lambda dataset: Fetcher(dataset, iterable, auto, collate_fn, drop_last, pin)


def _is_foreign(loader: Any) -> bool:
    """Whether it is an object of a program that has the attributes of a DataLoader, as fastai's."""
    return not hasattr(loader, "_progress")


class DirectIterator(EpochIterator):
    """Loads in the calling thread, with the random numbers that workers would have."""

    _loader_like: Callable[[Any], DataLoader]  # of a program's own object: dataloader.py says which

    def __init__(self, loader: DataLoader, pin: Optional[bool] = None) -> None:
        if _is_foreign(loader):
            loader = DirectIterator._loader_like(loader)
        super().__init__(loader, _C._cuda.is_available() and loader.pin_memory if pin is None else pin)
        self._progress.alone = True
        self._streams = Streams(self._seed)
        self._fetcher = _fetcher_maker(loader, self._iterable, self._pin)(loader.dataset)

    def _load(self) -> Any:
        for self._task, indices in self._order:
            return self._streams.call(self._task, self._fetcher.fetch, indices)
        return EndOfStream()


_GONE = ("the workers of this loop are gone: its loader was shut down, or with persistent_workers=True a second loop over it was "
         "begun")


class WorkersIterator(EpochIterator):
    """Lets workers load ahead, and gives what they loaded in order. With a `maker` of whole batches they are threads of C++. `to` is a
    DevicePrefetcher that gets the batches on its device (see Note [Feeding a loop]). What a program's own object gives is loaded in the
    calling thread: it takes workers for processes, each of which has its own copy of all that it changes."""

    def __new__(cls, loader: DataLoader, *args: Any, **kwargs: Any) -> Any:
        if not _is_foreign(loader):
            return super().__new__(cls)
        warnings.warn(f"{type(loader).__name__} is loaded by the loop itself, without its {loader.num_workers} workers, which would have "
                      "to be processes", stacklevel=2)
        return DirectIterator(loader)

    def __init__(self, loader: DataLoader, pin: bool, maker: Any = None, to: Any = None) -> None:
        self._maker = maker
        self._whole: Any = None  # the epoch's order, where the threads have it at once, and there is nothing to send from batch to batch
        super().__init__(loader, pin)
        n = loader.num_workers or 1
        ahead: int = n * (loader.prefetch_factor or to.ahead)
        self._timeout = loader.timeout or 0.0
        self._in_order = loader.in_order
        self._persistent = loader.persistent_workers
        self._loader = loader if self._persistent else None  # the pool's owner, which may have no other name
        self._active = [True] * n
        self._tasks_of = [0] * n  # how many tasks each has got
        self._worker = 0  # whose turn it is, of a stream
        self._owner: Dict[int, int] = {}  # which worker makes a task whose result has not been taken
        self._pool = self._pool_of(loader, n)
        self._threads = self._pool.threads
        self._epoch = self._pool.start(maker, self._seed, to is not None)
        self._times.workers = self._threads.waited()
        self._feed: Any = None
        if to is not None:
            self._feed = _C._BatchFeed(self._threads, self._epoch.number, self._in_order, to._copies, to.ahead, self._timeout)
            self._times.feed = self._feed.waits
            _open_pools.add(self._feed)
        if maker is not None:
            # For what a sampler may give instead of a list of integers: the loop makes it by itself, with the same result or error.
            self._fetcher = _fetcher_maker(loader, False, self._pin)(self._pool.dataset)
        if self._whole is not None:
            size, first = loader.batch_sampler.batch_size, self._progress.batch  # type: ignore[union-attr]
            later, rest = self._progress.later, self._whole[first * size:]
            self._threads.submit_all(rest, size, ahead, first, sorted(later))
            self._order = ((i, None) for i in range(first, first - (-len(rest) // size)) if i not in later)
            if self._feed is not None:
                self._feed.add([i for i, _ in self._order], True)
        for _ in range(ahead):
            self._send()

    def _batches(self, loader: DataLoader) -> Iterator:
        sampler = loader._index_sampler
        if self._maker is not None and isinstance(sampler, BatchSampler):
            self._whole = sampler._whole()
        return iter(sampler) if self._whole is None else iter(())

    def _pool_of(self, loader: DataLoader, workers: int) -> WorkerPool:
        """The loader's pool, or a new one."""
        native = self._maker is not None
        pool = loader._pool
        if pool is not None and pool.native != native:
            pool.close()
        if pool is None or pool.closed:
            work = () if native else (_fetcher_maker(loader, self._iterable, self._pin), loader.worker_init_fn, self._seed)
            pool = WorkerPool(workers, loader.dataset, native, not loader.num_workers, *work)
            if self._persistent:
                loader._pool = pool
            # When its owner is gone, so is the pool; the threads hold neither loader nor iterator.
            weakref.finalize(loader if self._persistent else self, pool.close).atexit = False
        return pool

    def _send(self) -> None:
        """Gives the next task to the worker whose turn it is; of a stream, to the next one whose share has not ended."""
        n = self._pool.num_workers
        if not any(self._active):
            return
        while not self._active[self._worker]:
            self._worker = (self._worker + 1) % n
        for number, indices in self._order:
            worker = self._worker if self._iterable else number % n
            self._owner[number] = worker
            if self._whole is None:
                self._submit(worker, number, indices)
                if self._feed is not None:
                    self._feed.add([number], False)
            self._tasks_of[worker] += 1
            self._worker = (self._worker + 1) % n
            return

    def _submit(self, worker: int, number: int, indices: Any) -> None:
        if self._maker is None:
            # When a stream's tasks come to be numbered depends on who is done first, but not which of a worker's tasks this is.
            batch = self._tasks_of[worker] * self._pool.num_workers + worker if self._iterable else number
            self._epoch.tasks[number] = indices, batch
            self._threads.submit_number(worker, number)
            return
        try:
            if self._threads.submit(worker, number, indices):
                return
        except Exception:
            pass  # it is raised again here:
        try:
            made = Streams(self._seed).call(number, self._fetcher.fetch, indices)
        except Exception as error:
            made = Failure(error)
        self._epoch.finish(self._threads, number, made)

    def _take(self) -> Any:
        """The result whose turn it is and its worker, or None if there are no more."""
        if not self._owner:
            return None
        try:
            if self._feed is None:
                self._task = self._threads.wait(self._epoch.number, self._next(), self._timeout)
                data = made_by(self._threads.take, self._task) if self._task >= 0 else self._task
            else:
                data = made_by(self._feed.next)
                self._task = self._feed.number
        except Exception as error:
            self._task, data = (self._task if self._feed is None else self._feed.number), Failure(error)
        if type(data) is int:
            raise self._lost(data)
        self._by = self._owner.pop(self._task)
        if self._task in self._epoch.made:  # by Python; a feed has its tensors
            made = self._epoch.made.pop(self._task)
            data = made if self._feed is None else with_tensors(made, iter(data))
        return data, self._by

    def _next(self) -> int:
        """The number of the oldest task without a result, or -1 for any; there is one."""
        return next(iter(self._owner)) if self._in_order else -1

    def _lost(self, code: int) -> Exception:
        return RuntimeError(f"DataLoader timed out after {self._timeout} seconds" if code == -1 else _GONE)

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

    def fed(self) -> Iterator:
        """The loop over what the feed gives: where the threads have the whole order with one call for each batch."""
        return self if self._whole is None else iter(self._fed, None)

    def _fed(self) -> Any:
        """The feed's next batch, or None at the end, after which this iterator is at its end, too."""
        try:
            batch = made_by(self._feed.next)
        except Exception as error:
            Failure(error).reraise(f"in DataLoader worker thread {self._feed.number % self._pool.num_workers}")
        if type(batch) is list:
            number = self._feed.number
            self._progress.got(number, number % self._pool.num_workers)
            return batch
        if batch:
            raise self._lost(batch)
        self._progress.done = True
        self._finish()
        return None

    def _finish(self) -> None:
        if not self._persistent:
            self._pool.close()
