"""Datasets: things with `__getitem__` and `__len__`, or with `__iter__`, and their combinations."""
from __future__ import annotations

import bisect
import itertools
import math
import sys
from typing import Any, Generic, Iterable, Iterator, List, Optional, Sequence, TypeVar, Union

from ... import _operators
from ... import _C

__all__ = ["Dataset", "IterableDataset", "TensorDataset", "StackDataset", "ConcatDataset", "ChainDataset", "Subset", "TokenDataset",
           "random_split"]

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base of map-style datasets: `__getitem__(index)` gives one item, `__len__()` their number.

    A dataset may have `__getitems__(indices)` as well, which gives the list of items of a whole batch.

    >>> class Squares(arete.utils.data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> next(iter(arete.utils.data.DataLoader(Squares(), batch_size=4)))
    tensor([0, 1, 4, 9])
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} must implement __getitem__")

    def __add__(self, other: "Dataset") -> "ConcatDataset":
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base of streams: `__iter__()` gives the items. With workers each has a shallow copy of its own, and the dataset divides
    the work with the help of `get_worker_info()`.

    >>> class Lines(arete.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(["a", "b", "c"])
    >>> list(arete.utils.data.DataLoader(Lines(), batch_size=2))
    [['a', 'b'], ['c']]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must implement __iter__")

    def __add__(self, other: Dataset) -> "ChainDataset":  # type: ignore[override]
        return ChainDataset([self, other])


class TensorDataset(Dataset):
    """Item i is the tuple of the i-th rows of the tensors. A DataLoader with the default collation takes whole batches by one
    indexing per tensor.

    >>> data = arete.utils.data.TensorDataset(arete.arange(3), arete.ones(3))
    >>> len(data), data[2]
    (3, (tensor(2), tensor(1.)))
    >>> arete.utils.data.TensorDataset(arete.ones(3), arete.ones(2))
    Traceback (most recent call last):
    ValueError: Size mismatch between tensors: their first sizes are [3, 2]
    """

    def __init__(self, *tensors: Any) -> None:
        if not tensors:
            raise ValueError("TensorDataset needs at least one tensor")
        sizes = [t.size(0) for t in tensors]
        if any(n != sizes[0] for n in sizes):
            raise ValueError(f"Size mismatch between tensors: their first sizes are {sizes}")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple:
        return tuple(t[index] for t in self.tensors)

    def _maker(self, pin: bool) -> Optional[Any]:
        if any(type(t) is not _C.Tensor or t.requires_grad for t in self.tensors):
            return None
        return _C._row_maker(list(self.tensors), pin)

    def __len__(self) -> int:
        return self.tensors[0].size(0)


class StackDataset(Dataset):
    """Item i is the tuple (or with keyword arguments the dict) of the i-th items of several datasets.

    >>> arete.utils.data.StackDataset(image=["i0", "i1"], label=[0, 1])[1]
    {'image': 'i1', 'label': 1}
    """

    def __init__(self, *args: Dataset, **kwargs: Dataset) -> None:
        if bool(args) == bool(kwargs):
            raise ValueError("StackDataset takes datasets either by position or by name" if args
                             else "At least one dataset should be passed")
        self.datasets: Any = args or kwargs
        lengths = [len(d) for d in self._list()]  # type: ignore[arg-type]
        if any(n != lengths[0] for n in lengths):
            raise ValueError(f"Size mismatch between datasets: their lengths are {lengths}")
        self._length = lengths[0]

    def _list(self) -> list:
        return list(self.datasets.values()) if isinstance(self.datasets, dict) else list(self.datasets)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __getitems__(self, indices: list) -> list:
        columns = []
        for d in self._list():
            items = d.__getitems__(indices) if callable(getattr(d, "__getitems__", None)) else [d[i] for i in indices]
            if len(items) != len(indices):
                raise ValueError(f"__getitems__ of {type(d).__name__} gave {len(items)} items for {len(indices)} indices")
            columns.append(items)
        rows = zip(*columns)
        return [dict(zip(self.datasets, row)) for row in rows] if isinstance(self.datasets, dict) else list(rows)

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Map-style datasets one after the other.

    >>> data = arete.utils.data.ConcatDataset([["a", "b"], ["c"]])
    >>> len(data), data[2]
    (3, 'c')
    """

    @staticmethod
    def cumsum(sequence: Iterable) -> List[int]:
        """Where each dataset ends."""
        return list(itertools.accumulate(len(d) for d in sequence))

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("datasets should not be an empty iterable")
        if any(isinstance(d, IterableDataset) for d in self.datasets):
            raise TypeError("ConcatDataset does not support IterableDataset: use ChainDataset")
        self.cumulative_sizes = self.cumsum(self.datasets)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        n = len(self)
        if not -n <= index < n:
            raise IndexError(f"index {index} of a ConcatDataset of length {n}")
        index = index + n if index < 0 else index
        part = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[part][index - (self.cumulative_sizes[part - 1] if part else 0)]


class ChainDataset(IterableDataset):
    """Streams one after the other.

    >>> class Lines(arete.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         return iter(["a", "b"])
    >>> list(arete.utils.data.ChainDataset([Lines(), Lines()]))
    ['a', 'b', 'a', 'b']
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        super().__init__()
        self.datasets = datasets

    def __iter__(self) -> Iterator:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise TypeError(f"ChainDataset only supports IterableDataset, not {type(d).__name__}")
            yield from d

    def __len__(self) -> int:
        return sum(len(d) for d in self.datasets)  # type: ignore[arg-type]


class Subset(Dataset[T_co]):
    """The items of `dataset` at `indices`.

    >>> data = arete.utils.data.Subset(["a", "b", "c"], [2, 0])
    >>> len(data), data[0]
    (2, 'c')
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: List[int]) -> list:
        chosen = [self.indices[i] for i in indices]
        if callable(getattr(self.dataset, "__getitems__", None)):
            return self.dataset.__getitems__(chosen)  # type: ignore[attr-defined]
        return [self.dataset[i] for i in chosen]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Dataset, lengths: Sequence[Union[int, float]], generator: Optional[Any] = _C.default_generator) -> List[Subset]:
    """Splits at random into Subsets with the given lengths, or with fractions of it that sum to 1 (what is left over by
    rounding down goes round the first ones).

    >>> parts = arete.utils.data.random_split(range(10), [0.75, 0.25])
    >>> [len(part) for part in parts]
    [8, 2]
    >>> arete.utils.data.random_split(range(10), [5, 6])
    Traceback (most recent call last):
    ValueError: the lengths [5, 6] sum to 11, but the dataset has 10 items
    """
    total = len(dataset)  # type: ignore[arg-type]
    sizes = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        for i, part in enumerate(sizes):
            if not 0 <= part <= 1:
                raise ValueError(f"lengths[{i}] = {part} is no fraction between 0 and 1")
        sizes = [math.floor(total * part) for part in sizes]
        for i in range(total - sum(sizes)):
            sizes[i % len(sizes)] += 1
    if sum(sizes) != total:
        raise ValueError(f"the lengths {sizes} sum to {sum(sizes)}, but the dataset has {total} items")
    order = (_operators.randperm(total) if generator is None else _operators.randperm(total, generator=generator)).tolist()
    ends = list(itertools.accumulate(sizes))
    return [Subset(dataset, order[end - size:end]) for end, size in zip(ends, sizes)]


def _whole(dataset: Any) -> Optional[tuple]:
    """The dataset that makes batches of `dataset` at once and the indices of the Subsets on the way to it, outermost first; None
    if they are made of items.

    It has `_maker(pin)`, and the class that defines it is the one that defines the items: a class derived from it may define
    them anew. A maker is a function of C++ that gives the default collation of the items with these indices, or None for what are no
    plain ones; `_rows(indices, pin)`, if there is one, does the same at once.
    """
    maps = []
    while type(dataset) is Subset:
        maps.append(dataset.indices)
        dataset = dataset.dataset
    if not hasattr(type(dataset), "_maker") or hasattr(dataset, "__getitems__"):
        return None
    owner = next(c for c in type(dataset).__mro__ if "__getitem__" in c.__dict__)
    return (dataset, maps) if "_maker" in owner.__dict__ else None


def rows_of(dataset: Any, indices: list, pin: bool = False) -> Optional[list]:
    """The default collation of `[dataset[i] for i in indices]` made at once, where the dataset can do that (also through Subsets),
    else None. With `pin` what is new may be made in page-locked memory.
    """
    whole = _whole(dataset)
    if whole is None:
        return None
    dataset, maps = whole
    for chosen in maps:
        indices = [chosen[i] for i in indices]
    indices = list(indices)
    if not indices or any(type(i) is not int for i in indices):
        return None
    if hasattr(dataset, "_rows"):
        return dataset._rows(indices, pin)
    maker = dataset._maker(pin)
    return None if maker is None else made_by(maker, indices)


def made_by(native: Any, *args: Any) -> Any:
    """What a function of C++ gives that makes batches, or fails to with one of their items."""
    try:
        return native(*args)
    except Exception as error:
        index = _C._failed_example()
        if index >= 0:
            note(error, f"At index {index} of the dataset.")
        raise


def note(error: BaseException, text: str) -> None:
    if sys.version_info >= (3, 11):
        error.add_note(text)


def maker_of(dataset: Any, pin: bool) -> Optional[Any]:
    """The maker of such batches, which threads can call without Python, or None. It stands for the dataset as it is now; with `pin`
    batches come in page-locked memory.
    """
    whole = _whole(dataset)
    if whole is None:
        return None
    maker = whole[0]._maker(pin)
    for chosen in reversed(whole[1]):
        if maker is not None:
            maker = maker.subset(chosen if isinstance(chosen, (list, tuple, _C.Tensor)) else list(chosen))
    return maker


class TokenDataset(Dataset):
    """Windows over a file of unsigned 16- or 32-bit token numbers, mapped into memory: items are (tokens, the same shifted by
    one), int64 (length).

    `stride` 0: windows follow each other. OSError if the file is missing, cut off inside a token, or too short for a window.

    >>> data = arete.utils.data.TokenDataset("train.bin", 1024)  # doctest: +SKIP
    >>> x, y = data[0]  # doctest: +SKIP
    """

    def __init__(self, path: Any, length: int, bytes_per_token: int = 2, stride: int = 0) -> None:
        self._file = _C._TokenDataset(str(path), length, bytes_per_token, stride)

    def __len__(self) -> int:
        return len(self._file)

    @property
    def tokens(self) -> int:
        """How many tokens the file holds."""
        return self._file.tokens()

    def __getitem__(self, index: int):
        return tuple(self._file.get(index))

    def _maker(self, pin: bool) -> Any:
        return self._file.maker(pin)
