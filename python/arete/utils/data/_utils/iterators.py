"""The loops of a DataLoader over an epoch: in the calling thread, with threads of Python, and with threads of C++."""
from __future__ import annotations

import itertools
import queue
import time
import warnings
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional

import arete

from ..sampler import BatchSampler, random_seed
from .progress import Progress, Times
from .worker import EndOfStream, Failure, Fetcher, NativePool, WorkerPool, _open_pools

if TYPE_CHECKING:
    from ..dataloader import DataLoader


class EpochIterator:
    """What all iterators share: the order of an epoch, resuming, and counting. Tasks are numbered from the epoch's beginning."""

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
        self._times = loader._times = Times(loader.num_workers)
        try:
            self._progress = progress = loader._progress = Progress(loader, resume)
            self._count = skip = progress.batches
            self._seed = random_seed(loader.generator)
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
        self._iterable = loader._iterable
        self._pin = loader._pins
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


class DirectIterator(EpochIterator):
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


class WorkersIterator(EpochIterator):
    """Lets workers load ahead, and gives what they loaded in order. Derived classes say how tasks go to workers and come back."""

    _pool: Any

    def __init__(self, loader: DataLoader) -> None:
        super().__init__(loader)
        self._timeout = loader.timeout or None
        self._in_order = loader.in_order
        self._persistent = loader.persistent_workers
        self._loader = loader if self._persistent else None  # the pool's owner, which may have no other name
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


class ThreadedIterator(WorkersIterator):
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


class Turns:
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


class NativeIterator(WorkersIterator):
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
            self._owner = Turns(first, -(-len(rest) // size), n)
            self._whole = None

    def _feed(self, copies: Any, ahead: int) -> Any:
        """What gives the rest of the epoch on a device (see Note [Feeding a loop]); None unless the threads have its whole order."""
        if not isinstance(self._owner, Turns) or not self._in_order:
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
