"""The DataLoader: batches of a dataset, loaded by the loop itself or ahead of it by threads."""
from __future__ import annotations

import itertools
import operator
import warnings
from typing import Any, Callable, Dict, Generic, Iterable, Iterator, List, NamedTuple, Optional

from ... import _C
from ._utils.collate import default_collate, default_convert
from ._utils.iterators import DirectIterator, EpochIterator, WorkersIterator
from ._utils.progress import Progress, Times, state_of, words_of
from ._utils.worker import WorkerPool, get_worker_info
from .dataset import Dataset, IterableDataset, T_co, maker_of
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

__all__ = ["DataLoader", "LoaderStats", "default_collate", "default_convert", "get_worker_info"]

# Classes of iterators under torch's names, by which programs tell them.
_SingleProcessDataLoaderIter, _MultiProcessingDataLoaderIter = DirectIterator, WorkersIterator
_BaseDataLoaderIter = EpochIterator
_collate_fn_t, _worker_init_fn_t = Callable[[List[Any]], Any], Callable[[int], None]  # types of options

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
    """torch's names for whether a loader's dataset is asked for indices or gives a stream."""

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


class DataLoader(Generic[T_co]):
    """Iterating gives the batches of one epoch, in an order that depends on the sampler and its generator only.

    `num_workers` threads (0: the loop itself) load `prefetch_factor` batches each ahead of the loop; batch i is made by worker
    i % num_workers. Where the library makes whole batches by itself (a TokenDataset, a TensorDataset on the CPU, or a
    vision.datasets.ImageFolder with the library's transforms; the default collation, no `worker_init_fn`) they are threads of C++,
    which leave the interpreter's lock to the loop. Elsewhere workers are worth their while where loading waits for files or works
    outside of that lock, as arete's and NumPy's functions, image decoders and zlib do. Each worker has a shallow copy of the
    dataset, and `get_worker_info()` tells it who it is. An exception in a worker is raised in the loop with the worker's traceback.

    `state_dict()` in the middle of an epoch and `load_state_dict()` on a loader with the same arguments go on with the
    next batch, in the same order; with a DistributedSampler also on another number of processes.

    `pin_memory=True` puts batches into page-locked memory; without a GPU it warns and leaves them as they are.
    `multiprocessing_context`, which must be one, and `pin_memory_device` mean nothing here: workers are threads.

    >>> from arete.utils.data import DataLoader, TensorDataset
    >>> data = TensorDataset(arete.arange(5.0), arete.tensor([0, 1, 0, 1, 0]))
    >>> loader = DataLoader(data, batch_size=2)
    >>> len(loader), [labels.tolist() for values, labels in loader]
    (3, [[0, 1], [0, 1], [0]])
    >>> DataLoader(data, batch_size=2, shuffle=True, sampler=range(5))
    Traceback (most recent call last):
    ValueError: sampler option is mutually exclusive with shuffle
    """

    def __init__(self, dataset: Dataset[T_co], batch_size: Optional[int] = 1, shuffle: Optional[bool] = None,
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
        self._iterable = isinstance(dataset, IterableDataset)
        self._dataset_kind = _DatasetKind.Iterable if self._iterable else _DatasetKind.Map
        if self._iterable:
            for option, value, given in (("shuffle", shuffle, shuffle), ("sampler", sampler, sampler is not None),
                                         ("batch_sampler", batch_sampler, batch_sampler is not None)):
                if given:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {option} option, but got {option}={value}: "
                                     "the dataset gives the order")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._iterable:
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
        self._pool: Optional[WorkerPool] = None
        self._times = Times()
        self._progress: Optional[Progress] = None
        self._resume: Optional[dict] = None
        self._warned = False
        self._ready = True

    @staticmethod
    def _check(num_workers: int, timeout: float, prefetch_factor: Optional[int], persistent: bool, context: Any) -> None:
        if num_workers < 0:
            raise ValueError(f"num_workers option should be non-negative, but got {num_workers}")
        if not isinstance(timeout, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, got {timeout!r}")
        if timeout < 0:
            raise ValueError(f"timeout option should be non-negative, but got {timeout}")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError("prefetch_factor option could only be specified in multiprocessing: it needs num_workers > 0")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"prefetch_factor must be at least 1, not {prefetch_factor}")
        if persistent and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if context is not None and num_workers == 0:
            raise ValueError("multiprocessing_context needs num_workers > 0")
        if context is None:
            return
        import multiprocessing

        methods = multiprocessing.get_all_start_methods()
        if isinstance(context, str) and context not in methods:
            raise ValueError("multiprocessing_context option should specify a valid start method in "
                             f"{methods!r}, but got multiprocessing_context={context!r}")
        if not isinstance(context, (str, multiprocessing.context.BaseContext)):
            raise TypeError("multiprocessing_context option should be a valid context object or a string specifying "
                            f"the start method, but got multiprocessing_context={context!r}")

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
        return self._walk()

    def _walk(self, to: Any = None) -> Any:
        """A loop over an epoch. `to`: a DevicePrefetcher that gets the batches, of workers in any case, on its device."""
        if self.pin_memory and not self._warned and not _C._cuda.is_available():
            self._warned = True
            warnings.warn("'pin_memory' argument is set as true but no accelerator is found, so batches stay in pageable memory",
                          stacklevel=3)
        pin = _C._cuda.is_available() and (self.pin_memory or to is not None and to.device.type == "cuda")
        if not self.num_workers and to is None:
            return DirectIterator(self, pin)
        return WorkersIterator(self, pin, self._native_maker(pin), to)

    def _native_maker(self, pin: bool) -> Optional[Any]:
        """maker_of() the dataset, if workers need nothing of Python for its batches."""
        if self.worker_init_fn is not None or self._iterable or not self._auto_collation or self.collate_fn is not default_collate:
            return None
        pool = self._pool if self._pool is not None and not self._pool.closed else None
        if pool is not None and not pool.native:
            return None
        return maker_of(self.dataset if pool is None else pool.dataset, pin)

    def __len__(self) -> int:
        """Number of batches of an epoch. TypeError where the dataset or the sampler does not know its length."""
        if not self._iterable:
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
        return LoaderStats(self._times.loop_wait(), self._times.workers())

    def state_dict(self) -> Dict[str, Any]:
        """Where the latest loop over this loader is, as a dict of plain values. Batches that workers have loaded ahead do not count.

        `epoch`, `batch`, `later` and, of the loader's generator when the epoch began, `seed` and `offset` are what the loader of C++ goes
        on with (data::LoaderState), as this one goes on with those of a loader of C++."""
        if self._resume is not None:
            return dict(self._resume)
        if self._progress is not None and not self._progress.done:
            return self._progress.state(self)
        own = None if self.generator is None else words_of(self.generator)
        return state_of(own, [words_of(g) for g in self._generators()])

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Makes the next loop go on where the saved one was. The random state of the program is not touched."""
        if state_dict.get("version", 2) != 2 or not isinstance(state_dict.get("batch"), int):
            raise ValueError("this is no state of a DataLoader")
        if state_dict["batch"] and state_dict.get("seed") is None:
            raise ValueError("the state does not say where the loader's generator was")
        if len(state_dict.get("generators") or ()) != len(self._generators()):
            raise ValueError("the state is of a DataLoader with other generators")
        shares = state_dict.get("shares")
        if shares is not None and len(shares) != self.num_workers:
            raise ValueError(f"the state is of a loop over a stream without order by {len(shares)} workers, this loader "
                             f"has {self.num_workers}")
        self._resume = self._on_these_replicas(state_dict)

    def _replicas(self) -> Optional[list]:
        """Among how many processes a DistributedSampler divides the samples, and how many of them make a batch."""
        replicas = getattr(self.sampler, "num_replicas", None)
        return None if replicas is None or self.batch_size is None else [replicas, self.batch_size]

    def _on_these_replicas(self, state: Dict[str, Any]) -> dict:
        """The state of a loop by another number of processes, or with other batches. What all of them have got is the beginning of one
        order, so that the others can go on behind it."""
        were, are = state.get("replicas"), self._replicas()
        if were is None or are is None or were == are:
            return dict(state)
        samples = state["batch"] * were[0] * were[1]
        batch, rest = divmod(samples, are[0] * are[1])
        if rest or state.get("later"):
            raise ValueError(f"the state is behind {samples} samples, where no batch of {are[1]} by {are[0]} processes begins")
        return {**state, "batch": batch, "replicas": are}

    def _source(self) -> Any:
        """The generator from which epochs draw their seeds."""
        return _C.default_generator if self.generator is None else self.generator

    def _generators(self) -> list:
        """Others that the order depends on."""
        found: list = []
        for owner in (self.batch_sampler, self.sampler, getattr(self.batch_sampler, "sampler", None)):
            generator = getattr(owner, "generator", None)
            if isinstance(generator, _C.Generator) and not any(generator is g for g in (self._source(), *found)):
                found.append(generator)
        return found

    def _epoch_sampler(self) -> Any:
        """The sampler that has set_epoch(), if one has."""
        for owner in (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
            if hasattr(owner, "set_epoch") and hasattr(owner, "epoch"):
                return owner
        return None


class _Stream(IterableDataset):
    """An object that can be iterated over, as a dataset with all that it has."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole

    def __iter__(self) -> Iterator:
        return iter(self._whole)

    def __getattr__(self, name: str) -> Any:
        if name == "_whole":  # not set yet, as in copies
            raise AttributeError(name)
        return getattr(self._whole, name)


def _loader_like(other: Any) -> DataLoader:
    """A DataLoader without workers for a program's own object that has what DataLoaders have, as fastai's."""
    iterable, dataset = other._dataset_kind == _DatasetKind.Iterable, other.dataset
    if iterable and not isinstance(dataset, IterableDataset):
        dataset = _Stream(dataset)
    options: Dict[str, Any] = {"batch_size": None}
    if iterable and other._auto_collation:
        options = {"batch_size": other.batch_size, "drop_last": other.drop_last}
    elif not iterable and other._auto_collation:
        options = {"batch_sampler": other._index_sampler}
    elif not iterable:
        options["sampler"] = other._index_sampler
    return DataLoader(dataset, collate_fn=other.collate_fn, generator=other.generator, pin_memory=other.pin_memory, **options)


DirectIterator._loader_like = staticmethod(_loader_like)
