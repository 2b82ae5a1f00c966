"""Random numbers in the workers of a DataLoader: whose they are, and that they stay the same however a loop is cut up."""
from __future__ import annotations

import time

import pytest

import arete
from arete import vision
from arete.nn import functional as F
from arete.utils.data import DataLoader, Dataset, DevicePrefetcher, IterableDataset, TensorDataset, get_worker_info
from arete.vision import transforms as T


class Noisy(Dataset):
    """Items that draw, and are ready in another order than they are asked for."""

    def __len__(self):
        return 24

    def __getitem__(self, i):
        time.sleep(0.001 * (i * 7 % 4))
        return arete.tensor(float(i)) + 0.9 * arete.rand(())


class Stream(IterableDataset):
    def __init__(self, n=40):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id if info else 0, self.n, info.num_workers if info else 1):
            time.sleep(0.001 * (i * 5 % 3))
            yield i + 0.9 * arete.rand(()).item()


def rows(batches):
    return [b.tolist() for b in batches]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("random")
    (folder / "a").mkdir()
    arete.manual_seed(0)
    for i in range(20):
        vision.io.write_jpeg((arete.rand(3, 12, 12) * 255).to(arete.uint8), str(folder / "a" / f"{i:02d}.jpg"))
    return folder


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_workers_leave_the_programs_numbers_alone(workers):
    def run():
        arete.manual_seed(0)
        seen, dropped = [], []
        for batch in DataLoader(Noisy(), 2, num_workers=workers):
            seen.append(batch.tolist())
            dropped.append(F.dropout(arete.ones(8), 0.5).tolist())
        return seen, dropped

    first = run()
    assert all(run() == first for _ in range(4))
    arete.manual_seed(0)
    iter(DataLoader([1]))  # what beginning an epoch draws
    assert [F.dropout(arete.ones(8), 0.5).tolist() for _ in range(12)] == first[1]
    noise = [x % 1 for batch in first[0] for x in batch]
    assert len(set(noise)) == 24


def test_a_prefetcher_without_workers_does_so_too():
    """Its thread makes the batches that workers would make."""
    def run(workers, cut=0):
        arete.manual_seed(0)
        loader = DataLoader(Noisy(), 2, shuffle=True, num_workers=workers)
        dropped, seen, state = [], [], None
        for i, batch in enumerate(DevicePrefetcher(loader, "cpu")):
            seen.append(batch.tolist())
            dropped.append(F.dropout(arete.ones(8), 0.5).tolist())
            state = loader.state_dict() if i + 1 == cut else state
        return seen, dropped, state

    first = run(0, 5)
    assert run(0)[:2] == run(0)[:2] == run(1)[:2] == first[:2]
    resumed = DataLoader(Noisy(), 2, shuffle=True)
    resumed.load_state_dict(first[2])
    assert rows(DevicePrefetcher(resumed, "cpu")) == first[0][5:]


def test_what_a_worker_sees_and_seeds():
    class Asks(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            info = get_worker_info()
            before = (arete.initial_seed(), info.seed, arete.get_rng_state().tolist() == info.generator.get_state().tolist())
            arete.manual_seed(123)
            return before, arete.initial_seed(), arete.rand(2).tolist()

    def walk(**options):
        return list(DataLoader(Asks(), None, num_workers=2, collate_fn=lambda x: x, generator=arete.Generator().manual_seed(5), **options))

    arete.manual_seed(9)
    state = arete.get_rng_state().tolist()
    items = walk()
    assert arete.get_rng_state().tolist() == state and arete.initial_seed() == 9
    base = items[0][0][0]
    assert [item[0] for item in items] == [(base, base, True), (base + 1, base + 1, True)] * 2
    arete.manual_seed(123)
    assert {(item[1], tuple(item[2])) for item in items} == {(123, tuple(arete.rand(2).tolist()))}
    seeds = []
    walk(worker_init_fn=lambda worker: seeds.append((arete.initial_seed() - worker, arete.utils.data.get_worker_info().seed - worker)))
    assert seeds == [(base, base)] * 2
    chosen = walk(worker_init_fn=lambda worker: arete.manual_seed(77))
    assert [item[0][:2] for item in chosen] == [(77, base), (77, base + 1)] * 2


def test_what_the_loop_sees_of_a_batch_it_makes():
    """Without workers the thread's default generator is the batch's meanwhile, but its seed is shown as the program's."""
    class Asks(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, i):
            before = arete.initial_seed()
            arete.manual_seed(123)
            if i == 2:
                raise OSError("no file")
            return before, arete.initial_seed(), get_worker_info(), arete.rand(()).item()

    arete.manual_seed(9)
    loader = iter(DataLoader(Asks(), None, collate_fn=lambda x: x))
    state = arete.get_rng_state().tolist()
    first, second = next(loader), next(loader)
    assert first == second and first[:3] == (9, 123, None)
    with pytest.raises(OSError):
        next(loader)
    assert arete.get_rng_state().tolist() == state and arete.initial_seed() == 9


def test_worker_init_fn_may_choose_the_numbers():
    def walk(seed):
        arete.manual_seed(seed)
        return rows(DataLoader(Noisy(), 4, num_workers=2, worker_init_fn=lambda worker: arete.manual_seed(7)))

    assert walk(1) == walk(2) != rows(DataLoader(Noisy(), 4, num_workers=2))
    noise = [x % 1 for batch in walk(1) for x in batch]
    assert len(set(noise)) == 24  # also of workers with the same seed


def test_checkpoint_and_fork_in_a_worker():
    class Forks(Noisy):
        def __getitem__(self, i):
            with arete.random.fork_rng():
                inner = arete.rand(3)
            x = arete.ones(3, requires_grad=True)
            y = arete.utils.checkpoint.checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=False)
            y.sum().backward()
            return arete.stack([inner, y.detach(), x.grad])

    arete.manual_seed(3)
    state = None
    for batch in DataLoader(Forks(), 4, num_workers=3):
        state = state or arete.get_rng_state().tolist()
        assert (batch[:, 2] == 2 * batch[:, 1]).all()  # the same elements were dropped again
        assert len({tuple(inner) for inner in batch[:, 0].tolist()}) == 4
    assert arete.get_rng_state().tolist() == state


def test_the_default_generator_object_is_the_worker_s():
    class Draws(Noisy):
        def __getitem__(self, i):
            return arete.rand(2, generator=arete.default_generator)

    arete.manual_seed(1)
    state = None
    for _ in DataLoader(Draws(), 4, num_workers=2):
        state = state or arete.get_rng_state().tolist()
        time.sleep(0.01)
    assert arete.get_rng_state().tolist() == state
    with pytest.raises(TypeError, match="other than the default one"):
        arete._C._set_thread_generator(arete.default_generator)


AUGMENT = T.Compose([T.RandomCrop(8, padding=2), T.RandomHorizontalFlip(), T.ColorJitter(0.3, hue=0.2)])
KINDS = {
    "python": lambda root: Noisy(),
    "native": lambda root: vision.datasets.ImageFolder(root, AUGMENT),
    "subset": lambda root: arete.utils.data.Subset(vision.datasets.ImageFolder(root, AUGMENT), range(18, -1, -1)),
}


def pictures(batch):
    return (batch[0] if isinstance(batch, list) else batch).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_depend_on_the_batch_alone(root, kind):
    """Not on how many workers there are, nor on where the loop was resumed."""
    dataset = KINDS[kind](root)

    def make(workers, native=True, **options):
        arete.manual_seed(4)
        loader = DataLoader(dataset, 3, shuffle=True, num_workers=workers, **options)
        if not native:
            loader._native_maker = lambda pin: None
        return loader

    loader = make(2, persistent_workers=True)
    whole, second = [pictures(b) for b in loader], [pictures(b) for b in loader]
    assert whole != second
    for workers, native in [(0, True), (1, True), (5, True), (1, False), (3, False)]:
        assert [pictures(b) for b in make(workers, native)] == whole
    for cut, before, after in [(1, 2, 2), (3, 2, 3), (2, 3, 1), (5, 1, 2), (3, 0, 2), (4, 3, 0)]:
        first = make(before)
        it = iter(first)
        got = [pictures(next(it)) for _ in range(cut)]
        for native in (True, False):
            resumed = make(after, native)
            resumed.load_state_dict(first.state_dict())
            arete.manual_seed(1000)
            assert got + [pictures(b) for b in resumed] == whole


def test_a_batch_that_the_loop_makes_has_the_workers_numbers(root):
    """Indices that threads of C++ do not take."""
    dataset = vision.datasets.ImageFolder(root, AUGMENT)

    def walk(native, wrap):
        arete.manual_seed(6)
        loader = DataLoader(dataset, batch_sampler=[[0, 1], wrap(2), [3, 4]], num_workers=2)
        if not native:
            loader._native_maker = lambda pin: None
        return [pictures(b) for b in loader], arete.rand(2).tolist()

    class Odd(list):
        pass

    assert walk(True, lambda i: [i, 5]) == walk(True, lambda i: Odd([i, 5])) == walk(False, lambda i: Odd([i, 5]))


def cut_unordered(make, steps, prefetch=False):
    """What an unordered loop gave before a cut and after resuming; and the state."""
    arete.manual_seed(8)
    loader = make()
    source = DevicePrefetcher(loader, "cpu", ahead=3) if prefetch else loader
    got, it = [], iter(source)
    for _ in range(steps):
        got.append(pictures(next(it)))
    time.sleep(0.05)
    state = loader.state_dict()
    del it, source
    resumed = make()
    resumed.load_state_dict(state)
    return got, [pictures(b) for b in resumed], state


class FirstIsSlow(Noisy):
    """The first batch, and each one of worker 1, comes last."""

    def __getitem__(self, i):
        info = get_worker_info()
        time.sleep(0.15 if i < 2 else 0.02 if info and info.id == 1 else 0)
        return arete.tensor(float(i)) + 0.9 * arete.rand(())


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_unordered_loops_lose_and_repeat_nothing(workers, prefetch):
    def make(in_order=False):
        return DataLoader(FirstIsSlow(), 2, num_workers=workers, in_order=in_order, prefetch_factor=3)

    arete.manual_seed(8)
    whole = sorted(rows(make(True)))
    got, rest, state = cut_unordered(make, 2, prefetch)
    assert state["batch"] == 0 and len(state["later"]) == 2  # the first one is not there
    assert sorted(got + rest) == whole and len(rest) == 10
    for options in ({"num_workers": 0}, {"num_workers": 2}):  # whoever goes on
        other = DataLoader(FirstIsSlow(), 2, **options)
        other.load_state_dict(state)
        assert sorted([int(x) for b in got + rows(other) for x in b]) == list(range(24))
        assert other.state_dict()["batch"] == 0
    third = make()
    third.load_state_dict(state)
    it = iter(third)
    more = [next(it).tolist() for _ in range(3)]
    again = make()
    again.load_state_dict(third.state_dict())
    assert sorted(got + more + rows(again)) == whole


def test_unordered_native_loops_lose_and_repeat_nothing():
    rows_of_first = 400_000
    data = TensorDataset(arete.arange(rows_of_first + 20))
    order = [list(range(20, rows_of_first + 20))] + [[i, i + 1] for i in range(0, 20, 2)]

    def make():
        return DataLoader(data, batch_sampler=order, num_workers=2, in_order=False)

    got, rest, state = cut_unordered(make, 3)
    assert sorted(got + rest, key=lambda b: (len(b), b)) == sorted(order, key=lambda b: (len(b), b)) and len(rest) == 8
    assert state["batch"] + len(state["later"]) == 3


@pytest.mark.parametrize("steps", [1, 5, 9])
def test_unordered_streams_lose_and_repeat_nothing(steps):
    class Uneven(Stream):
        """Worker 1 is slow, worker 2 ends early."""

        def __iter__(self):
            for x in super().__iter__():
                info = get_worker_info()
                if info.id == 2 and x >= 9:
                    return
                time.sleep(0.01 if info.id == 1 else 0)
                yield x

    def make(in_order=False):
        return DataLoader(Uneven(), 2, num_workers=3, in_order=in_order)

    arete.manual_seed(8)
    whole = sorted(rows(make(True)))
    got, rest, state = cut_unordered(make, steps)
    assert sum(state["shares"]) == state["batch"] == steps
    assert sorted(got + rest) == whole
    with pytest.raises(ValueError, match="by 3 workers, this loader has 2"):
        DataLoader(Uneven(), 2, num_workers=2).load_state_dict(state)


def test_states_without_the_new_entries_load():
    arete.manual_seed(1)
    loader = DataLoader(range(12), 2, num_workers=2, in_order=False)
    it = iter(loader)
    next(it)
    state = {k: v for k, v in loader.state_dict().items() if k not in ("later", "shares")}
    state["batch"] = 2
    resumed = DataLoader(range(12), 2, num_workers=2)
    resumed.load_state_dict(state)
    assert rows(resumed) == [[4, 5], [6, 7], [8, 9], [10, 11]]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_that_failed_is_tried_again(workers):
    class Once(Dataset):
        broken = [True]

        def __len__(self):
            return 8

        def __getitem__(self, i):
            if i == 2 and self.broken:
                raise OSError("no file")
            return i

    loader = DataLoader(Once(), 2, num_workers=workers)
    it = iter(loader)
    assert next(it).tolist() == [0, 1]
    with pytest.raises(OSError):
        next(it)
    assert next(it).tolist() == [4, 5]
    Once.broken.clear()
    resumed = DataLoader(Once(), 2, num_workers=workers)
    resumed.load_state_dict(loader.state_dict())
    assert rows(resumed) == [[2, 3], [6, 7]]
