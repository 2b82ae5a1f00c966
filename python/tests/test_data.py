"""Datasets, samplers, collation and the DataLoader in the calling thread."""
from __future__ import annotations

import collections
import inspect
import re
import sys

import numpy
import pytest
from peer import peer

import arete
from arete.utils import data as ours

torch = peer()
theirs = torch.utils.data
Point = collections.namedtuple("Point", "x y")


def plain(value):
    """Batches as nested Python values with dtypes, so that those of both libraries compare."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return (str(value.dtype).rpartition(".")[2], list(value.shape), value.tolist())
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(v) for v in value])
    return value


class Squares(ours.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i

    def __len__(self):
        return self.n


class Count(ours.IterableDataset):
    def __init__(self, n=10):
        self.n = n

    def __iter__(self):
        info = ours.get_worker_info()
        start, step = (info.id, info.num_workers) if info else (0, 1)
        return iter(range(start, self.n, step))


ITEMS = {
    "float": [1.5, 2.5], "int": [1, 2], "bool": [True, False], "text": ["a", "b"], "bytes": [b"a", b"b"],
    "tuple": [(1, 2.0, "x"), (3, 4.0, "y")], "list": [[1, 2.0], [3, 4.0]],
    "dict": [{"a": 1, "b": (2, "u")}, {"a": 3, "b": (4, "v")}], "namedtuple": [Point(1, 2.0), Point(3, 4.0)],
    "ordered": [collections.OrderedDict(a=1, b=2), collections.OrderedDict(a=3, b=4)],
    "array": [numpy.arange(3.0), numpy.arange(3.0) + 1], "array8": [numpy.arange(3, dtype="u1"), numpy.arange(3, dtype="u1")],
    "numpy_float": [numpy.float32(1.5), numpy.float32(2)], "numpy_int": [numpy.int32(1), numpy.int32(2)],
    "numpy_double": [numpy.float64(1.5), numpy.float64(2)], "numpy_bool": [numpy.bool_(True), numpy.bool_(False)],
    "nested": [[[1, (2,)], {"k": [3.0]}], [[4, (5,)], {"k": [6.0]}]], "range": [range(3), range(3)],
}


@pytest.mark.parametrize("name", ITEMS)
def test_collate(name):
    mine, reference = ours.default_collate(ITEMS[name]), theirs.default_collate(ITEMS[name])
    assert plain(mine) == plain(reference)
    assert type(mine).__name__ == type(reference).__name__
    assert plain(ours.default_convert(ITEMS[name])) == plain(theirs.default_convert(ITEMS[name]))


def test_collate_tensors():
    mine = ours.default_collate([(arete.tensor([1, 2]), arete.tensor(3.0)), (arete.tensor([4, 5]), arete.tensor(6.0))])
    assert plain(mine) == ("list", [("int64", [2, 2], [[1, 2], [4, 5]]), ("float32", [2], [3.0, 6.0])])


def test_collate_errors():
    with pytest.raises(TypeError, match="found <class 'object'>"):
        ours.default_collate([object()])
    with pytest.raises(RuntimeError, match="equally long"):
        ours.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="dtype"):
        ours.default_collate([numpy.array(["a"]), numpy.array(["b"])])


def test_collate_map():
    class Mine:
        pass

    result = ours.collate([(Mine(), 1), (Mine(), 2)], collate_fn_map={Mine: lambda b, *, collate_fn_map=None: len(b), int: sum_of})
    assert result == [2, 3]


def sum_of(batch, *, collate_fn_map=None):
    return sum(batch)


def test_datasets():
    x, y = arete.arange(6), arete.arange(6) * 2
    d = ours.TensorDataset(x, y)
    assert len(d) == 6 and [int(v) for v in d[2]] == [2, 4]
    assert [int(v) for v in d[-1]] == [5, 10]
    with pytest.raises(ValueError, match="Size mismatch between tensors"):
        ours.TensorDataset(x, arete.arange(5))
    c = Squares(3) + Squares(4)
    assert len(c) == 7 and [c[i] for i in range(7)] == [0, 1, 4, 0, 1, 4, 9] and c[-1] == 9
    with pytest.raises(IndexError):
        c[7]
    with pytest.raises(TypeError):
        ours.ConcatDataset([Count()])
    with pytest.raises(ValueError):
        ours.ConcatDataset([])
    assert list(Count(2) + Count(3)) == [0, 1, 0, 1, 2]
    s = ours.Subset(Squares(5), [4, 2])
    assert len(s) == 2 and s[0] == 16 and s.__getitems__([1, 0]) == [4, 16]
    k = ours.StackDataset(Squares(3), d=Squares(3)) if False else ours.StackDataset(a=Squares(3), b=Squares(3))
    assert k[2] == {"a": 4, "b": 4} and k.__getitems__([0, 1])[1] == {"a": 1, "b": 1} and len(k) == 3
    assert ours.StackDataset(Squares(3), Squares(3))[1] == (1, 1)
    with pytest.raises(ValueError):
        ours.StackDataset(Squares(3), Squares(4))
    with pytest.raises(ValueError):
        ours.StackDataset()
    with pytest.raises(NotImplementedError, match="Dataset must implement"):
        ours.Dataset()[0]


def test_random_split():
    g = arete.Generator()
    g.manual_seed(3)
    parts = ours.random_split(range(10), [0.5, 0.3, 0.2], g)
    assert [len(p) for p in parts] == [5, 3, 2]
    assert sorted(i for p in parts for i in p) == list(range(10))
    assert [len(p) for p in ours.random_split(range(10), [0.33, 0.33, 0.34])] == [4, 3, 3]
    assert [len(p) for p in ours.random_split(range(10), [7, 3])] == [7, 3]
    with pytest.raises(ValueError, match="sum to 9"):
        ours.random_split(range(10), [6, 3])


SAMPLERS = {
    "sequential": lambda m, g: m.SequentialSampler(range(10)),
    "random": lambda m, g: m.RandomSampler(range(10), generator=g),
    "random_more": lambda m, g: m.RandomSampler(range(10), num_samples=25, generator=g),
    "random_fewer": lambda m, g: m.RandomSampler(range(10), num_samples=4, generator=g),
    "replacement": lambda m, g: m.RandomSampler(range(10), True, 70, g),
    "subset": lambda m, g: m.SubsetRandomSampler([3, 5, 7, 9], g),
    "weighted": lambda m, g: m.WeightedRandomSampler([0.1, 0.0, 3.0, 1.0], 20, generator=g),
    "weighted_once": lambda m, g: m.WeightedRandomSampler([0.1, 0.2, 3.0, 1.0], 3, False, g),
    "batch": lambda m, g: m.BatchSampler(m.RandomSampler(range(10), generator=g), 3, False),
    "batch_drop": lambda m, g: m.BatchSampler(m.SequentialSampler(range(10)), 3, True),
    "distributed": lambda m, g: m.DistributedSampler(range(10), 3, 1),
    "distributed_drop": lambda m, g: m.DistributedSampler(range(10), 3, 2, drop_last=True, seed=5),
    "distributed_plain": lambda m, g: m.DistributedSampler(range(2), 5, 4, shuffle=False),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name):
    def generator(module):
        g = module.Generator()
        g.manual_seed(11)
        return g

    mine, reference = SAMPLERS[name](ours, generator(arete)), SAMPLERS[name](theirs, generator(torch))
    a, b = list(mine), list(reference)
    assert len(a) == len(b) and len(mine) == len(reference)
    if name in ("sequential", "batch_drop", "distributed_plain"):
        assert a == b and list(mine) == list(reference)
    if name == "weighted":
        assert 1 not in a
    if name == "distributed":
        shares = [list(ours.DistributedSampler(range(10), 3, r)) for r in range(3)]
        assert set(sum(shares, [])) == set(range(10)) and len(sum(shares, [])) == 12
        mine.set_epoch(1)
        assert list(mine) != a


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", ["shuffled", "in order", "with a generator", "drawn", "own"])
def test_batches_of_indices_as_tensors_are_the_same(kind, drop_last):
    """What threads of C++ are given instead of lists: the same indices, the same random numbers."""

    class Own(ours.RandomSampler):
        def __iter__(self):
            return iter([5, 3, 1])

    sampler = {"shuffled": lambda: ours.RandomSampler(range(10)), "in order": lambda: ours.SequentialSampler(range(10)),
               "with a generator": lambda: ours.RandomSampler(range(10), generator=arete.Generator()),
               "drawn": lambda: ours.RandomSampler(range(10), replacement=True, num_samples=7),
               "own": lambda: Own(range(10))}[kind]
    seen = []

    def whole(batches):
        order = batches._whole()
        assert (order is None) == (kind not in ("shuffled", "in order", "with a generator"))
        return list(batches) if order is None else [b.tolist() for b in order.split(4)]

    for give in (list, whole):
        arete.manual_seed(3)
        seen.append((give(ours.BatchSampler(sampler(), 4, drop_last)), arete.rand(1).item()))
    assert seen[0] == seen[1]


def test_sampler_errors():
    for build in (lambda: ours.RandomSampler(range(3), num_samples=0), lambda: ours.BatchSampler([1], 0, False),
                  lambda: ours.WeightedRandomSampler([1.0], 0), lambda: ours.DistributedSampler(range(3), 2, 2),
                  lambda: ours.WeightedRandomSampler([[1.0]], 2)):
        with pytest.raises(ValueError):
            build()
    assert list(ours.RandomSampler([])) == []


OPTIONS = [{}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}, {"batch_size": 4, "shuffle": True},
           {"batch_size": 4, "collate_fn": sum}, {"batch_sampler": [[0, 1], [5], [2, 3, 4]]}, {"batch_size": 2, "sampler": [3, 1, 4]}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("workers", [0, 2])
def test_batches(options, workers):
    arete.manual_seed(5)
    mine = ours.DataLoader(Squares(), num_workers=workers, **options)
    first, second = [plain(b) for b in mine], [plain(b) for b in mine]
    assert len(mine) == len(first) == len(second)
    torch.manual_seed(5)
    reference = theirs.DataLoader(Squares(), **options)
    expected, again = [plain(b) for b in reference], [plain(b) for b in reference]
    if not options.get("shuffle"):
        assert first == expected and second == again
    else:
        assert sorted(v for b in first for v in b[2]) == [i * i for i in range(10)] and first != second


@pytest.mark.parametrize("options", [{}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}])
def test_stream(options):
    class Other(theirs.IterableDataset):
        def __iter__(self):
            return iter(range(10))

    mine, reference = ours.DataLoader(Count(), **options), theirs.DataLoader(Other(), **options)
    assert [plain(b) for b in mine] == [plain(b) for b in reference]
    with pytest.raises(TypeError):
        len(mine)


def test_stream_length():
    class Known(Count):
        def __len__(self):
            return 4

    loader = ours.DataLoader(Known(), batch_size=2)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="more batches than the 2"):
        assert len(list(loader)) == 5


@pytest.mark.parametrize("indirect", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_whole_batches(indirect, shuffle):
    """A TensorDataset is indexed once per batch, with the results of item by item."""
    dataset = ours.TensorDataset(arete.arange(40).reshape(10, 4), arete.arange(10) * 0.5, arete.arange(10) > 4)
    if indirect:
        dataset = ours.Subset(ours.Subset(dataset, [9, 8, 7, 3, 1]), [4, 0, 2])

    def batches(d, **options):
        arete.manual_seed(9)
        return [plain(b) for b in ours.DataLoader(d, batch_size=2, shuffle=shuffle, **options)]

    assert batches(dataset) == batches(dataset, collate_fn=lambda b: ours.default_collate(b))
    calls = []

    class Own(ours.TensorDataset):
        def __getitem__(self, i):
            calls.append(i)
            return super().__getitem__(i)[0]

    [batch] = ours.DataLoader(Own(arete.arange(3)), batch_size=3)
    assert calls == [0, 1, 2] and batch.tolist() == [0, 1, 2]
    with pytest.raises(IndexError, match="index 7"):
        list(ours.DataLoader(ours.TensorDataset(arete.arange(3)), batch_sampler=[[7]]))
    [batch] = ours.DataLoader(ours.TensorDataset(arete.arange(3)), batch_sampler=[[-1, 0]])
    assert batch[0].tolist() == [2, 0]


def test_arguments():
    for bad in ({"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
                {"shuffle": True, "sampler": [1]}, {"batch_sampler": [[1]], "batch_size": 3}, {"batch_size": None, "drop_last": True},
                {"batch_size": 0}, {"num_workers": 1, "prefetch_factor": 0}, {"multiprocessing_context": "fork"}):
        with pytest.raises(ValueError):
            ours.DataLoader(Squares(), **bad)
    with pytest.raises(ValueError, match="IterableDataset"):
        ours.DataLoader(Count(), shuffle=True)
    loader = ours.DataLoader(Squares(), batch_size=2)
    with pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 3
    loader.num_workers = 0


@pytest.mark.parametrize("name", ["num_workers", "prefetch_factor"])
@pytest.mark.parametrize("value", [1.5, "2", [1]])
def test_counts_are_ints(name, value):
    with pytest.raises(TypeError, match=f"{name} must be an int, got {re.escape(repr(value))}"):
        ours.DataLoader(Squares(), **{"num_workers": 1, name: value})
    loader = ours.DataLoader(Squares(4), 2, num_workers=numpy.int64(1), prefetch_factor=numpy.int32(1))
    assert [b.tolist() for b in loader] == [[0, 1], [4, 9]]
    with pytest.raises(TypeError, match="timeout must be a number"):
        ours.DataLoader(Squares(), timeout="1")


def test_pinning_without_a_gpu_warns_once(monkeypatch):
    monkeypatch.setattr(arete._C._cuda, "is_available", lambda: False)
    loader = ours.DataLoader(Squares(4), 4, pin_memory=True)
    with pytest.warns(UserWarning, match="'pin_memory' argument is set as true but no accelerator is found") as seen:
        assert [b.tolist() for b in loader] == [b.tolist() for b in loader] == [[0, 1, 4, 9]]
    assert len(seen) == 1 and seen[0].filename == __file__


def test_a_share_of_unknown_processes(monkeypatch):
    import types

    monkeypatch.setitem(sys.modules, "arete.distributed", None)
    monkeypatch.delattr(arete, "distributed", raising=False)
    with pytest.raises(RuntimeError, match="arete.distributed is not available: give num_replicas and rank"):
        ours.DistributedSampler(Squares())
    group = types.ModuleType("arete.distributed")
    group.is_available, group.is_initialized = lambda: True, lambda: False
    monkeypatch.setitem(sys.modules, "arete.distributed", group)
    monkeypatch.setattr(arete, "distributed", group, raising=False)
    with pytest.raises(ValueError, match="has not been initialized"):
        ours.DistributedSampler(Squares(), rank=0)
    group.is_initialized, group.get_world_size, group.get_rank = lambda: True, lambda: 3, lambda: 2
    assert list(ours.DistributedSampler(Squares(6), shuffle=False)) == [2, 5]


def test_getitems():
    class Many(Squares):
        def __getitems__(self, indices):
            return [-i for i in indices]

    assert [b.tolist() for b in ours.DataLoader(Many(4), batch_size=2)] == [[0, -1], [-2, -3]]


def test_signatures():
    for name in ("DataLoader", "DistributedSampler", "RandomSampler", "WeightedRandomSampler", "BatchSampler", "SubsetRandomSampler",
                 "StackDataset", "TensorDataset", "Subset", "ConcatDataset"):
        a, b = inspect.signature(getattr(ours, name)).parameters.values(), inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.kind, p.default) for p in a] == [(p.name, p.kind, p.default) for p in b], name
    assert set(ours.__all__) >= {n for n in theirs.__all__ if not any(s in n for s in ("Pipe", "datapipe", "Chunk", "valid", "determin"))}


def test_loaders_have_a_type_of_what_they_give():
    def train(loader: ours.DataLoader[int]) -> None:
        pass

    loader = ours.DataLoader[int]([1, 2, 3])
    assert isinstance(loader, ours.DataLoader) and [int(x) for x in loader] == [1, 2, 3]
