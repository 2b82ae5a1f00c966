"""The loader's workers that are threads of C++ do what those of Python do."""
from __future__ import annotations

import gc
import pathlib
import sys
import threading
import time

import pytest

import arete
from arete import vision
from arete.utils.data import (BatchSampler, DataLoader, DevicePrefetcher, SequentialSampler, Subset, TensorDataset, TokenDataset,
                              random_split)
from arete.utils.data._utils import iterators as loaders
from arete.vision import transforms as T


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("native")
    arete.manual_seed(0)
    for i in range(24):
        path = folder / "abc"[i % 3] / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True)
        vision.io.write_jpeg((arete.rand(3, 12, 14) * 255).to(arete.uint8), str(path))
    (folder / "t.bin").write_bytes(bytes(range(250)))
    return folder


AUGMENT = T.Compose([T.RandomCrop(8, padding=2), T.RandomHorizontalFlip(), T.ColorJitter(0.3, hue=0.2)])
DATASETS = {
    "pictures": lambda root: vision.datasets.ImageFolder(root, AUGMENT),
    "part": lambda root: Subset(random_split(vision.datasets.ImageFolder(root, AUGMENT), [20, 4], seeded(3))[0], [*range(19, 0, -1), -2]),
    "tokens": lambda root: TokenDataset(root / "t.bin", 5),
    "tensors": lambda root: TensorDataset(arete.arange(60.0).view(20, 3).t().contiguous().t(), arete.arange(20) % 2 == 0),
}


def seeded(n):
    return arete.Generator().manual_seed(n)


def is_native(walk):
    """Whether a loop's workers are threads of C++."""
    assert type(walk) is loaders.WorkersIterator
    return walk._pool.native


def plain(batches):
    return [[(str(t.dtype), t.stride(), t.tolist()) for t in batch] for batch in batches]


def both(dataset, walk, **options):
    """What `walk` gives of the two loaders."""
    results = []
    for kind in ("native", "threads"):
        arete.manual_seed(4)
        loader = DataLoader(dataset, **options)
        if kind == "threads":
            loader._native_maker = lambda pin: None
        assert is_native(iter(loader)) == (kind == "native")
        arete.manual_seed(4)
        results.append(walk(loader))
        del loader
        gc.collect()
        assert not [t for t in threading.enumerate() if t.name.startswith("arete-loader")]
    return results


@pytest.mark.parametrize("name", DATASETS)
@pytest.mark.parametrize("options", [
    {"shuffle": True, "num_workers": 1}, {"num_workers": 3, "persistent_workers": True, "shuffle": True, "prefetch_factor": 3},
    {"num_workers": 2, "drop_last": True, "generator": "seeded", "shuffle": True, "persistent_workers": True, "pin_memory": True}])
def test_batches_are_those_of_python_workers(root, name, options):
    dataset = DATASETS[name](root)

    def walk(loader):
        """Three epochs, one of them left early, and the program's random numbers afterwards."""
        found = plain(loader)
        it = iter(loader)
        found += plain([next(it), next(it)])
        state = loader.state_dict()
        found += plain(loader)
        loader.load_state_dict(state)
        found += plain(loader)
        return found, state["batch"], arete.rand(2).tolist()

    def start(loader):
        if options.get("generator"):
            loader.generator.manual_seed(8)
        return walk(loader)

    given = {**options, "generator": seeded(8)} if options.get("generator") else options
    a, b = both(dataset, start, batch_size=4, **given)
    assert a == b and len(a[0]) > 9


def test_python_workers_where_something_is_python(root):
    pictures, tensors = DATASETS["pictures"](root), DATASETS["tensors"](root)

    class Own(TensorDataset):
        def __getitem__(self, i):
            return super().__getitem__(i)

    labels = DATASETS["pictures"](root)
    labels.targets[3] = "three"
    for dataset, options in [(Own(arete.ones(4)), {}), (tensors, {"collate_fn": lambda b: b}), (tensors, {"batch_size": None}),
                             (tensors, {"worker_init_fn": lambda i: None}), (TensorDataset(arete.ones(3, requires_grad=True)), {}),
                             (vision.datasets.ImageFolder(root, T.Lambda(lambda x: x)), {}), (labels, {}), (range(4), {})]:
        assert not is_native(iter(DataLoader(dataset, num_workers=1, **options)))
    assert is_native(iter(DataLoader(pictures, num_workers=1)))
    assert type(iter(DataLoader(pictures))) is loaders.DirectIterator


def test_a_transform_may_become_python_between_epochs(root):
    data = vision.datasets.ImageFolder(root, T.Compose([T.CenterCrop(8)]))
    loader = DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)
    before = [x for x, _ in loader]
    data.transform.transforms.append(T.Lambda(lambda x: 255 - x))
    after = [x for x, _ in loader]
    assert all((255 - a == b).all() for a, b in zip(before, after)) and len(before) == len(after) == 6


def test_errors_are_those_of_python_workers(root, tmp_path):
    broken = tmp_path / "a" / "1.jpg"
    broken.parent.mkdir()
    for i in range(6):
        vision.io.write_jpeg(arete.zeros(3, 9, 9, dtype=arete.uint8), str(tmp_path / "a" / f"{i}.jpg"))
    broken.write_bytes(broken.read_bytes()[:100])
    tensors = DATASETS["tensors"](root)
    at = []

    def walk(loader):
        found, it = [], iter(loader)
        while True:
            try:
                found.append(plain([next(it)]))
            except StopIteration:
                return found
            except Exception as error:
                notes = getattr(error, "__notes__", [None])
                at.extend(notes[:-1])
                found.append((type(error), str(error), notes[-1]))

    short = vision.datasets.ImageFolder(root, AUGMENT)
    del short.targets[20:]
    for dataset, options in [
            (vision.datasets.ImageFolder(tmp_path), {"batch_size": 2}),
        (vision.datasets.ImageFolder(root, T.RandomCrop(20)), {"batch_size": 20}),
            (tensors, {"batch_sampler": [[0, 1], [2, 25], [-20, 3], [-21], [], [1]]}), (short, {"batch_size": 5}),
            (Subset(tensors, [4, 5, 6]), {"batch_sampler": [[0], [3], [2, 1]]}),
        (tensors, {"batch_sampler": [["x"], (1, 2), [True], [2 ** 70]]}),
            (TokenDataset(root / "t.bin", 5), {"batch_sampler": [[0], [99]]})]:
        a, b = both(dataset, walk, num_workers=2, **options)
        assert a == b
        errors = [e for e in a if isinstance(e, tuple)]
        assert errors and (sys.version_info < (3, 11) or all("in DataLoader worker thread" in e[2] for e in errors))
    assert sys.version_info < (3, 11) or at[:2] == ["At index 1 of the dataset."] * 2


def test_indices_that_are_no_ints():
    numpy = pytest.importorskip("numpy")
    data = TensorDataset(arete.arange(10))
    for sampler in ([[numpy.int64(3), 1]], [(3, 1)], [[arete.tensor(3), arete.tensor(1)]]):
        loader = DataLoader(data, batch_sampler=sampler, num_workers=1)
        assert [b[0].tolist() for b in loader] == [[3, 1]]
    [batch] = DataLoader(data, batch_sampler=[[slice(1, 3), slice(4, 6)]], num_workers=1)
    assert batch[0].tolist() == [[1, 2], [4, 5]]
    mixed = DataLoader(data, batch_sampler=[[1], [slice(1, 3)], [2]], num_workers=2, in_order=False)
    assert sorted(str(b[0].tolist()) for b in mixed) == ["[1]", "[2]", "[[1, 2]]"]


def test_out_of_order_and_late():
    big = TensorDataset(arete.arange(4_000_000))
    loader = DataLoader(big, batch_sampler=[list(range(3_000_000)), [1], [2]], num_workers=2, in_order=False)
    order = [b[0].numel() for b in loader]
    assert sorted(order) == [1, 1, 3_000_000] and order[0] == 1
    late = DataLoader(big, batch_sampler=[list(range(3_000_000))] * 40, num_workers=1, timeout=1e-6)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 1e-06 seconds"):
        list(late)


def test_second_loop_and_early_exit(root):
    loader = DataLoader(DATASETS["pictures"](root), 2, num_workers=2, persistent_workers=True)
    first = iter(loader)
    next(first)
    pool = loader._pool
    assert len(list(loader)) == 12 and loader._pool is pool
    with pytest.raises(RuntimeError, match="second loop"):
        list(first)
    del loader, first
    gc.collect()
    assert pool.closed
    it = iter(DataLoader(DATASETS["pictures"](root), 2, num_workers=2))
    next(it)
    pool = it._pool
    del it
    gc.collect()
    assert pool.closed


def threads():
    return len(list(pathlib.Path("/proc/self/task").iterdir()))


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs Linux")
def test_threads_end_and_the_interpreter_is_left_alone(root):
    before = threads()
    it = iter(DataLoader(DATASETS["tensors"](root), 2, num_workers=5))
    next(it)
    assert threads() == before + 5 and not [t for t in threading.enumerate() if t.name.startswith("arete-loader")]
    del it
    gc.collect()
    assert threads() == before


def test_stats(root):
    loader = DataLoader(DATASETS["pictures"](root), 2, num_workers=2, prefetch_factor=1, persistent_workers=True)
    assert loader.stats() == (0, 0)
    begin = time.perf_counter()
    for _ in loader:
        time.sleep(0.02)
    waited = loader.stats().worker_wait
    assert 0.1 < waited < 2 * (time.perf_counter() - begin) and loader.stats().consumer_wait > 0
    time.sleep(0.3)
    assert loader.stats().worker_wait == waited
    begin = time.perf_counter()
    for _ in loader:
        pass
    assert loader.stats().worker_wait < 2 * (time.perf_counter() - begin)  # the pause between epochs does not count


@pytest.mark.parametrize("kind", ["native", "threads"])
def test_prefetcher_copies_ahead_of_the_loop(root, kind):
    loader = DataLoader(DATASETS["tokens"](root), 2, num_workers=2)
    if kind == "threads":
        loader._native_maker = lambda pin: None
    fetched = DevicePrefetcher(loader, "cpu", ahead=3)
    want, got, alive = plain(loader), [], threading.active_count()
    for i, batch in enumerate(fetched):
        got += plain([batch])
        assert threading.active_count() <= alive + 2  # the workers of Python, and nobody else
        time.sleep(0.02 if i else 0.5)
        if i == 1:
            assert loader.state_dict()["batch"] == 2  # the three ahead do not count
    assert got == want and len(got) == 12
    assert fetched.loader_wait > 0.05 and fetched.consumer_wait > 0


@pytest.mark.parametrize("kind", ["native", "threads", "none"])
def test_a_prefetched_epoch_resumes_behind_what_the_loop_got(root, kind):
    def make():
        loader = DataLoader(DATASETS["tensors"](root), 2, shuffle=True, num_workers=0 if kind == "none" else 2)
        if kind == "threads":
            loader._native_maker = lambda pin: None
        return loader

    loader, state, got = make(), None, []
    for i, batch in enumerate(DevicePrefetcher(loader, "cpu", ahead=3)):
        got += plain([batch])
        if i == 3:
            time.sleep(0.3)  # the next ones are fetched
            state = loader.state_dict()
    assert state["batch"] == 4 and len(got) == 10 and loader.state_dict()["batch"] == 0
    resumed = make()
    resumed.load_state_dict(state)
    assert plain(DevicePrefetcher(resumed, "cpu")) == got[4:]


def test_a_feed_takes_the_loops_place(root, monkeypatch):
    """One native call for each batch where the threads have the whole order, with what the general way gives."""
    def walk(apart, **options):
        arete.manual_seed(1)
        loader = DataLoader(DATASETS["pictures"](root), 2, shuffle=True, num_workers=2, **options)
        made = []
        with monkeypatch.context() as m:
            if apart:
                m.setattr(BatchSampler, "_whole", lambda self: None)
            fetched = DevicePrefetcher(loader, "cpu")
            for _ in range(2):
                walk = iter(fetched)
                assert (type(walk) is loaders.WorkersIterator) == apart
                made += plain(walk)
                assert fetched.consumer_wait > 0 and loader.stats().consumer_wait > 0
                assert loader.state_dict()["batch"] == 0
        return made

    assert walk(False) == walk(True) and walk(False, persistent_workers=True, timeout=60) == walk(True)


def test_a_feed_that_is_left_or_overtaken(root):
    loader = DataLoader(DATASETS["tensors"](root), 2, num_workers=2, persistent_workers=True)
    fetched = DevicePrefetcher(loader, "cpu", ahead=3)
    first = iter(fetched)
    assert next(first)[0][0, 0].item() == 0 and loader.state_dict()["batch"] == 1
    assert len(list(fetched)) == 10
    with pytest.raises(RuntimeError, match="the workers of this loop are gone"):
        for _ in first:  # those that were copied ahead are given
            pass
    assert len(list(fetched)) == 10
    with arete.profiler.profile(activities=[arete.profiler.ProfilerActivity.CPU]) as p:
        assert len(list(fetched)) == 10
    assert sum(e.name.startswith("enumerate(DataLoader)#") for e in p.events()) == 11  # and the end
    closed = iter(fetched)
    del first, closed
    gc.collect()
    slow = DataLoader(DATASETS["tensors"](root), 20, num_workers=1, timeout=1e-9)
    with pytest.raises(RuntimeError, match="DataLoader timed out after 1e-09 seconds"):
        for _ in range(50):
            list(DevicePrefetcher(slow, "cpu"))


def test_whole_epochs_without_order(root):
    loader = DataLoader(DATASETS["tensors"](root), 3, shuffle=True, num_workers=2, in_order=False)
    walk = iter(loader)
    assert walk._whole is not None
    rows = [row for x, _ in walk for row in x.tolist()]
    assert sorted(rows) == sorted(loader.dataset[i][0].tolist() for i in range(20))


def test_prefetcher_waits_for_one_batch_only():
    """A late batch does not hold up those before it."""
    last = threading.Event()

    class Late(TensorDataset):
        def __getitem__(self, i):
            assert i != 2 or last.wait(60)
            return super().__getitem__(i)

    got = []
    for (x,) in DevicePrefetcher(DataLoader(Late(arete.arange(4)), num_workers=3), "cpu"):
        got.append(x.item())
        if len(got) == 2:
            last.set()
    assert got == [0, 1, 2, 3]


def test_prefetcher_gives_an_error_its_place(root):
    loader = DataLoader(DATASETS["tensors"](root), batch_sampler=[[0], [1], [30], [2]], num_workers=2)
    seen = []
    with pytest.raises(IndexError, match="index 30 is out of range for a data set of 20 examples"):
        for x, _ in DevicePrefetcher(loader, "cpu"):
            seen.append(x[0, 0].item())
            time.sleep(0.02)
    assert seen == [0, 3]


def test_prefetcher_walks_any_loop():
    batches = [[arete.full((2,), i), {"text": "t"}] for i in range(5)]
    fetched = DevicePrefetcher(batches, "cpu")
    for _ in range(2):
        assert [(x.tolist(), rest) for x, rest in fetched] == [([i, i], {"text": "t"}) for i in range(5)]

    def broken():
        yield arete.ones(1)
        raise OSError("no file")

    it = iter(DevicePrefetcher(broken(), "cpu"))
    assert next(it).tolist() == [1]
    with pytest.raises(OSError, match="no file"):
        next(it)


def test_prefetcher_without_order():
    last = threading.Event()

    class Late(TensorDataset):
        def __getitem__(self, i):
            assert i != 0 or last.wait(60)
            return super().__getitem__(i)

    for dataset in (Late(arete.arange(8)), TensorDataset(arete.arange(8))):
        loader = DataLoader(dataset, 2, num_workers=2, in_order=False)
        it = iter(DevicePrefetcher(loader, "cpu"))
        got = [next(it)[0].tolist() for _ in range(2)]
        state = loader.state_dict()
        last.set()
        assert sorted(got + [b[0].tolist() for b in it]) == [[0, 1], [2, 3], [4, 5], [6, 7]]
        if type(dataset) is Late:
            assert [0, 1] not in got and state["batch"] == 0 and len(state["later"]) == 2


def test_prefetcher_keeps_the_form_of_batches():
    class Named(TensorDataset):
        def __getitem__(self, i):
            return {"x": (super().__getitem__(i)[0], "text"), "y": [1.5]}

    for workers in (0, 1):
        [batch] = DevicePrefetcher(DataLoader(Named(arete.arange(2)), 2, num_workers=workers), "cpu")
        assert batch["x"][0].tolist() == [0, 1] and list(batch["x"][1]) == ["text"] * 2 and batch["y"][0].tolist() == [1.5, 1.5]
