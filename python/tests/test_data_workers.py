"""The worker threads of the DataLoader: order, errors, resuming, shutting down."""
from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import traceback
import weakref

import pytest

import arete
from arete.utils.data import (DataLoader, Dataset, IterableDataset, RandomSampler, TensorDataset, WeightedRandomSampler,
                              get_worker_info)


def loader_threads():
    return [t for t in threading.enumerate() if t.name.startswith("arete-loader")]


@pytest.fixture(autouse=True)
def no_threads_left():
    yield
    gc.collect()
    deadline = time.time() + 3
    while loader_threads() and time.time() < deadline:
        time.sleep(0.01)
    assert not loader_threads()


class Slow(Dataset):
    """Items that are ready in another order than they are asked for."""

    def __init__(self, n=24, delay=0.004):
        self.n, self.delay = n, delay

    def __getitem__(self, i):
        time.sleep(self.delay * (3 - i % 4))
        return i

    def __len__(self):
        return self.n


class Stream(IterableDataset):
    def __init__(self, n=10):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        yield from range(first, self.n, step)


def values(loader):
    return [b.tolist() for b in loader]


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_order(workers):
    assert sum(values(DataLoader(Slow(), 3, num_workers=workers)), []) == list(range(24))
    unordered = values(DataLoader(Slow(), 3, num_workers=workers, in_order=False))
    assert sorted(sum(unordered, [])) == list(range(24))


class Items(Dataset):
    """Those of a function."""

    def __init__(self, n, get):
        self.n, self.get = n, get

    def __getitem__(self, i):
        return self.get(i)

    def __len__(self):
        return self.n


def test_all_workers_read_at_a_time():
    together = threading.Barrier(8)
    loader = DataLoader(Items(16, lambda i: (together.wait(60), i)[1]), 1, num_workers=8)
    assert values(loader) == [[i] for i in range(16)]


def test_prefetch_is_bounded():
    seen = []

    def there(n):
        """Comes to be, and stays."""
        end = time.monotonic() + 60
        while len(seen) < n and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.1)
        return len(seen) == n

    it = iter(DataLoader(Items(100, lambda i: seen.append(i) or i), 1, num_workers=2, prefetch_factor=3))
    assert there(6)
    next(it)
    assert there(7)


def test_stream_over_workers():
    """Worker by worker in turn; short shares end early."""
    assert values(DataLoader(Stream(10), 2, num_workers=3)) == [[0, 3], [1, 4], [2, 5], [6, 9], [7], [8]]
    assert values(DataLoader(Stream(1), 2, num_workers=3)) == [[0]]
    assert values(DataLoader(Stream(0), 2, num_workers=2)) == []
    assert values(DataLoader(Stream(9), 2, num_workers=2, drop_last=True)) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert [int(x) for x in DataLoader(Stream(5), None, num_workers=2)] == [0, 1, 2, 3, 4]


class Broken(Dataset):
    def __getitem__(self, i):
        if i == 5:
            raise KeyError("item five")
        return i

    def __len__(self):
        return 8


@pytest.mark.parametrize("workers", [0, 2])
def test_exception(workers):
    it = iter(DataLoader(Broken(), 2, num_workers=workers))
    assert next(it).tolist() == [0, 1] and next(it).tolist() == [2, 3]
    with pytest.raises(KeyError, match="item five") as info:
        next(it)
    text = "".join(traceback.format_exception(info.type, info.value, info.tb))
    assert "__getitem__" in text and 'raise KeyError("item five")' in text
    if sys.version_info >= (3, 11):
        assert "At index 5 of the dataset." in text and ("DataLoader worker thread 0" in text) == (workers > 0)
    assert next(it).tolist() == [6, 7]
    with pytest.raises(StopIteration):
        next(it)


def test_stop_iteration_in_dataset_is_no_end():
    class Stops(Broken):
        def __getitem__(self, i):
            raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Stops(), 2, num_workers=1))


def test_init_fn_and_info():
    def init(worker):
        info = get_worker_info()
        assert info.id == worker and info.num_workers == 2
        info.dataset.mark = worker

    class Marked(Dataset):
        mark = -1

        def __getitem__(self, i):
            info = get_worker_info()
            return (self.mark, info.id, info.seed, info.random.random())

        def __len__(self):
            return 6

    dataset = Marked()
    arete.manual_seed(1)
    first = list(DataLoader(dataset, None, num_workers=2, worker_init_fn=init, collate_fn=lambda x: x))
    assert [x[0] for x in first] == [0, 1] * 3 and [x[1] for x in first] == [0, 1] * 3
    assert first[1][2] == first[0][2] + 1 and dataset.mark == -1
    arete.manual_seed(1)
    assert first == list(DataLoader(dataset, None, num_workers=2, worker_init_fn=init, collate_fn=lambda x: x))
    assert get_worker_info() is None

    def fails(worker):
        raise OSError("no file")

    with pytest.raises(OSError, match="no file"):
        list(DataLoader(Slow(), num_workers=2, worker_init_fn=fails))


def test_timeout():
    late = threading.Event()
    it = iter(DataLoader(Items(2, lambda i: late.wait(60)), num_workers=1, timeout=0.05))
    with pytest.raises(RuntimeError, match="timed out after 0.05 seconds"):
        next(it)
    late.set()


def test_dropped_iterator_ends_its_threads():
    it = iter(DataLoader(Slow(), num_workers=3))
    next(it)
    assert len(loader_threads()) == 3
    del it
    gc.collect()
    assert not loader_threads()
    for _ in DataLoader(Slow(), num_workers=2):
        break
    gc.collect()
    assert not loader_threads()


def test_persistent_workers():
    loader = DataLoader(Slow(8), 2, num_workers=2, persistent_workers=True, shuffle=True)
    assert sorted(sum(values(loader), [])) == list(range(8))
    threads = set(loader_threads())
    assert len(threads) == 2
    first = iter(loader)
    next(first)
    assert sorted(sum(values(loader), [])) == list(range(8))  # a loop that was left early disturbs nothing
    assert set(loader_threads()) == threads
    with pytest.raises(RuntimeError, match="second loop"):
        list(first)
    reference = weakref.ref(loader)
    del loader, first
    gc.collect()
    assert reference() is None and not loader_threads()
    stream = DataLoader(Stream(7), 2, num_workers=2, persistent_workers=True)
    assert values(stream) == values(stream) == [[0, 2], [1, 3], [4, 6], [5]]
    # A loader without a name lives as long as its loop.
    for data in (Slow(8), TensorDataset(arete.arange(8))):
        assert [len(x[0] if isinstance(x, list) else x) for x in DataLoader(data, 2, num_workers=2, persistent_workers=True)] == [2] * 4
    del stream
    gc.collect()
    assert not loader_threads()


def test_exit_with_an_open_iterator():
    code = ("from arete.utils.data import DataLoader\n"
            "it = iter(DataLoader(range(1000), num_workers=3)); next(it); print('over', flush=True)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    assert done.returncode == 0 and done.stdout == "over\n" and done.stderr == ""


def test_pin_memory():
    class Pinned:
        def pin_memory(self):
            return "pinned"

    from arete.utils.data._utils.pin_memory import pin_memory
    assert pin_memory({"a": [Pinned()], "b": "text", "c": (1, Pinned())}) == {"a": ["pinned"], "b": "text", "c": [1, "pinned"]}
    [batch] = DataLoader(Slow(2, 0), 2, pin_memory=True)
    assert batch.tolist() == [0, 1]
    if arete.cuda.is_available():
        assert batch.is_pinned()


LOADERS = {
    "plain": lambda **o: DataLoader(Slow(20, 0), 3, **o),
    "shuffled": lambda **o: DataLoader(Slow(20, 0), 3, shuffle=True, **o),
    "generator": lambda **o: DataLoader(Slow(20, 0), 3, shuffle=True, generator=seeded(4), **o),
    "own_sampler": lambda **o: DataLoader(Slow(20, 0), 3, sampler=RandomSampler(range(20), True, 50, seeded(2)), **o),
    "mixed": lambda **o: DataLoader(Slow(20, 0), 3, sampler=RandomSampler(range(20)), generator=seeded(4), **o),
    "weighted": lambda **o: DataLoader(Slow(20, 0), 3, sampler=WeightedRandomSampler([1.0] * 20, 30), **o),
    "tensors": lambda **o: DataLoader(TensorDataset(arete.arange(20)), 3, shuffle=True, collate_fn=lambda b: b[0][0], **o),
    "stream": lambda **o: DataLoader(Stream(20), 3, **o),
}


def seeded(n):
    g = arete.Generator()
    g.manual_seed(n)
    return g


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_resume(name, workers, steps):
    """Batches seen + batches after resuming = batches of a loop that went through, also in the epoch after."""
    arete.manual_seed(3)
    loader = LOADERS[name](num_workers=workers)
    values(loader)
    it = iter(loader)
    for _ in range(steps):
        next(it)
    state = loader.state_dict()
    rest = [b.tolist() for b in it]
    arete.manual_seed(99)  # what the next program happens to have
    before = arete.get_rng_state().tolist()
    resumed = LOADERS[name](num_workers=workers)
    resumed.load_state_dict(state)
    assert resumed.state_dict()["batch"] == steps
    assert values(resumed) == rest
    assert arete.get_rng_state().tolist() == before
    if name in ("generator", "own_sampler"):
        assert values(loader) == values(resumed)
    if name == "shuffled":
        arete.manual_seed(5)
        a = values(loader)
        arete.manual_seed(5)
        assert values(resumed) == a


def test_resume_after_break_and_between_epochs():
    loader = LOADERS["generator"]()
    for i, _ in enumerate(loader):
        if i == 2:
            break
    state = loader.state_dict()
    assert state["batch"] == 3
    again = LOADERS["generator"]()
    again.load_state_dict(state)
    rest = values(again)
    assert len(rest) == len(again) - 3
    between = again.state_dict()
    assert between["batch"] == 0
    third = LOADERS["generator"]()
    third.load_state_dict(between)
    assert values(third) == values(again)
    with pytest.raises(ValueError):
        loader.load_state_dict({})


def test_resume_dataset_with_state():
    class Stateful(Stream):
        at = 0

        def __iter__(self):
            while self.at < self.n:
                self.at += 1
                yield self.at
            self.at = 0

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    loader = DataLoader(Stateful(10), 2)
    it = iter(loader)
    next(it), next(it)
    other = DataLoader(Stateful(10), 2)
    other.load_state_dict(loader.state_dict())
    assert values(other) == [b.tolist() for b in it] == [[5, 6], [7, 8], [9, 10]]


def test_stats_say_who_waited():
    def slow():
        loader = DataLoader(Slow(12, 0.01), batch_size=2, num_workers=2, persistent_workers=True)
        assert loader.stats() == (0, 0)
        for _ in loader:
            pass
        first = loader.stats()
        time.sleep(0.3)  # between epochs nobody waits
        for _ in loader:
            pass
        # 0.6 if the pause counted
        return 0.02 < first.consumer_wait and first.worker_wait < first.consumer_wait and loader.stats().worker_wait < 0.4

    def fast():
        loader = DataLoader(list(range(12)), batch_size=1, num_workers=2, prefetch_factor=1)
        for _ in loader:
            time.sleep(0.02)
        return loader.stats().worker_wait > max(0.1, loader.stats().consumer_wait)

    for case in (slow, fast):  # a busy machine may hold up the wrong one, but not each time
        assert any(case() for _ in range(5)), case
    alone = DataLoader(Slow(4, 0.01), batch_size=2)
    for _ in alone:
        pass
    assert alone.stats().consumer_wait >= 0.06 and alone.stats().worker_wait == 0
