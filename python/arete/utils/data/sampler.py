"""Samplers: what gives the order of the indices."""
from __future__ import annotations

import itertools
from typing import Any, Generic, Iterable, Iterator, List, Optional, Sequence, Sized, TypeVar

from ... import _operators
from ... import _C

__all__ = ["Sampler", "SequentialSampler", "RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler"]

T_co = TypeVar("T_co", covariant=True)


class Sampler(Generic[T_co]):
    """Base of samplers: `__iter__()` gives indices (or lists of them, for a batch sampler).

    >>> class Backwards(arete.utils.data.Sampler):
    ...     def __init__(self, data):
    ...         self.data = data
    ...     def __iter__(self):
    ...         return iter(range(len(self.data) - 1, -1, -1))
    >>> list(Backwards("abc"))
    [2, 1, 0]
    """

    def __init__(self, data_source: Optional[Sized] = None) -> None:
        pass

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must implement __iter__")


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{name} should be a positive integer value, but got {name}={value!r}")


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} should be a boolean value, but got {name}={value!r}")


class SequentialSampler(Sampler[int]):
    """0, 1, 2, ...

    >>> list(arete.utils.data.SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def _whole(self) -> Any:
        """All indices of an epoch as a tensor, or None. Draws what iterating draws."""
        return _operators.arange(len(self.data_source))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """A new permutation in every epoch, or draws with replacement. `num_samples` indices in all (by default all).

    >>> sorted(arete.utils.data.RandomSampler("abc"))
    [0, 1, 2]
    >>> arete.utils.data.RandomSampler("abc", num_samples=0)
    Traceback (most recent call last):
    ValueError: num_samples should be a positive integer value, but got num_samples=0
    """

    def __init__(self, data_source: Sized, replacement: bool = False, num_samples: Optional[int] = None,
                 generator: Optional[Any] = None) -> None:
        _check_flag("replacement", replacement)
        if num_samples is not None:
            _check_count("num_samples", num_samples)
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator

    @property
    def num_samples(self) -> int:
        """How many indices an epoch has."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _whole(self) -> Any:
        """All indices of an epoch as a tensor, or None. Draws what iterating draws."""
        if self.replacement or self._num_samples is not None:
            return None
        return _C._permutation(len(self.data_source), new_generator(self.generator))

    def __iter__(self) -> Iterator[int]:
        n = len(self.data_source)
        generator = new_generator(self.generator)
        if self.replacement:
            for begin in range(0, self.num_samples, 32):
                count = min(32, self.num_samples - begin)
                yield from _operators.randint(high=n, size=(count,), dtype=_C.int64, generator=generator).tolist()
            return
        whole, rest = divmod(self.num_samples, n) if n else (0, 0)
        for _ in range(whole):
            yield from _C._permutation(n, generator).tolist()
        if n:
            yield from _C._permutation(n, generator).tolist()[:rest]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """A new permutation of the given indices in every epoch.

    >>> sorted(arete.utils.data.SubsetRandomSampler([7, 2]))
    [2, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Optional[Any] = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        for i in _C._permutation(len(self.indices), new_generator(self.generator)).tolist():
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices, index i with a probability proportional to weights[i].

    >>> list(arete.utils.data.WeightedRandomSampler([0.0, 1.0, 0.0], num_samples=3))
    [1, 1, 1]
    >>> arete.utils.data.WeightedRandomSampler([1.0], num_samples=-1)
    Traceback (most recent call last):
    ValueError: num_samples should be a positive integer value, but got num_samples=-1
    """

    def __init__(self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Optional[Any] = None) -> None:
        _check_count("num_samples", num_samples)
        _check_flag("replacement", replacement)
        weights_tensor = _operators.as_tensor(weights, dtype=_C.float64)
        if len(weights_tensor.shape) != 1:
            raise ValueError(f"weights should be a 1d sequence but given weights have shape {tuple(weights_tensor.shape)}")
        self.weights = weights_tensor
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        if self.replacement:
            return iter(_C._weighted_order(self.weights, self.num_samples, self.generator).tolist())
        return iter(_operators.multinomial(self.weights, self.num_samples, generator=new_generator(self.generator)).tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[List[int]]):
    """Lists of `batch_size` indices of another sampler; a short last one is given unless `drop_last`.

    >>> list(arete.utils.data.BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool) -> None:
        _check_count("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last should be a boolean value, but got drop_last={drop_last!r}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[List[int]]:
        source = iter(self.sampler)
        while True:
            batch = list(itertools.islice(source, self.batch_size))
            if not batch or (self.drop_last and len(batch) < self.batch_size):
                return
            yield batch

    def _whole(self) -> Any:
        """The indices of all batches, one after the other, as a tensor, or None. Draws what iterating draws."""
        if type(self) is not BatchSampler or type(self.sampler) not in (SequentialSampler, RandomSampler):
            return None
        whole = self.sampler._whole()  # type: ignore[attr-defined]
        return whole if whole is None else whole[:len(self) * self.batch_size]

    def __len__(self) -> int:
        n = len(self.sampler)  # type: ignore[arg-type]
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


def new_generator(source: Optional[Any] = None) -> Any:
    """A generator with a seed from another one, by default the global one."""
    return _C.Generator().manual_seed(_C._random_seed(source))
