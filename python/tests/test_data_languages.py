"""The loaders of C++ and Python: the same data and seed give the same batches, bit for bit, with any number of workers, and either goes
on where the other stopped."""
from __future__ import annotations

import functools
import json
import pathlib
import subprocess
import zlib

import pytest

import arete
from arete import vision
from arete.utils.data import (DataLoader, Dataset, DevicePrefetcher, DistributedSampler, RandomSampler, SubsetRandomSampler, TensorDataset,
                              TokenDataset, WeightedRandomSampler)
from arete.vision import transforms as T

PROGRAM = pathlib.Path(arete._C.__file__).parents[2] / "bin" / "loader_program"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="the program of C++ has not been built")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("languages")
    arete.manual_seed(0)
    for i in range(23):
        path = folder / "pictures" / "abc"[i % 3] / f"{i:03d}.jpg"
        path.parent.mkdir(exist_ok=True, parents=True)
        vision.io.write_jpeg((arete.rand(3, 12, 14) * 255).to(arete.uint8), str(path))
    (folder / "tokens.bin").write_bytes(bytes(range(240)))
    return folder


class Noise(Dataset):
    """As in the program."""

    def __len__(self):
        return 23

    def __getitem__(self, i):
        return (arete.rand(3) + arete.tensor(float(i)),)


AUGMENT = [T.RandomCrop(8, padding=2), T.RandomHorizontalFlip(), T.ColorJitter(0.3, hue=0.2), T.ToTensor()]
DATA = {
    "pictures": lambda root: vision.datasets.ImageFolder(root / "pictures", T.Compose(AUGMENT)),
    "tokens": lambda root: TokenDataset(root / "tokens.bin", 5),
    "noise": lambda root: Noise(),
    "tensors": lambda root: TensorDataset(arete.arange(46.0).view(23, 2), arete.arange(23)),
}
SAMPLERS = {
    "drawn": lambda n, g: RandomSampler(range(n), True, 70, g),
    "weighted": lambda n, g: WeightedRandomSampler([i % 4 for i in range(n)], 40, generator=g),
    "some": lambda n, g: SubsetRandomSampler([0, 2, 3, 5, 7, 8, 1], g),
    "share": lambda n, g: DistributedSampler(range(n), 2, 1, seed=6),
}
DEFAULTS = {"data": "pictures", "sampler": "shuffle", "workers": 2, "seed": None, "program_seed": 3, "drop_last": False, "in_order": True,
            "device": False, "epochs": 2, "stop": 1000, "state": None}


def in_cpp(root, **ask):
    done = subprocess.run([PROGRAM, json.dumps({**DEFAULTS, **ask, "root": str(root)})], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["batches"], result["state"], result["after"]


def checksum(t):
    return zlib.crc32(bytes(t.contiguous().flatten().numpy().data.cast("B")))


def in_python(root, native=True, **ask):
    ask = {**DEFAULTS, **ask}
    data = DATA[ask["data"]](root)
    generator = None if ask["seed"] is None else arete.Generator().manual_seed(ask["seed"])
    kind = ask["sampler"]
    order = {"sampler": SAMPLERS[kind](len(data), generator)} if kind in SAMPLERS else {"shuffle": kind == "shuffle"}
    loader = DataLoader(data, 4, num_workers=ask["workers"], drop_last=ask["drop_last"], generator=generator, in_order=ask["in_order"],
                        **order)
    if not native:
        loader._native_maker = lambda pin: None
    arete.manual_seed(ask["program_seed"])
    if ask["state"] is not None:
        loader.load_state_dict(ask["state"])
    batches, state = [], None
    for epoch in range(ask["epochs"]):
        if kind == "share" and (ask["state"] is None or epoch):
            loader.sampler.set_epoch(epoch)
        for batch in DevicePrefetcher(loader, "cpu") if ask["device"] else loader:
            batches.append([checksum(t) for t in batch])
            if len(batches) == ask["stop"]:
                state = loader.state_dict()
                break
        if state:
            break
    return batches, state or loader.state_dict(), arete.rand(()).item()


@pytest.fixture(scope="module")
def expected(root):
    """What the loop of Python without workers gives."""
    return functools.lru_cache(None)(lambda **ask: in_python(root, workers=0, **ask))


@pytest.mark.parametrize("workers", [0, 2, 3])
@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("data", DATA)
def test_batches_are_the_same(root, expected, data, seed, workers):
    want, _, after = expected(data=data, seed=seed)
    assert len(want) == 12 and want[:6] != want[6:]
    for device in (False, True):
        assert in_cpp(root, data=data, seed=seed, workers=workers, device=device)[::2] == (want, after)
        for native in (True, False):
            assert in_python(root, native, data=data, seed=seed, workers=workers, device=device)[::2] == (want, after)


@pytest.mark.parametrize("options", [{"sampler": "in order"}, {"drop_last": True}, *({"sampler": s, "data": "tensors"} for s in SAMPLERS)])
@pytest.mark.parametrize("seed", [None, 5])
def test_orders_are_the_same(root, expected, options, seed):
    want, _, after = expected(seed=seed, **options)
    for workers in (0, 2):
        assert in_cpp(root, workers=workers, seed=seed, **options)[::2] == (want, after)
        assert in_python(root, workers=workers, seed=seed, **options)[::2] == (want, after)


@pytest.mark.parametrize("ways", [(in_cpp, in_python), (in_python, in_cpp)], ids=["to Python", "to C++"])
@pytest.mark.parametrize("seed", [None, 5])
@pytest.mark.parametrize("options", [{}, {"data": "noise"}, {"sampler": "drawn", "data": "tensors"},
                                     {"sampler": "weighted", "data": "tokens"},
                                     {"sampler": "share", "data": "tensors"}])
def test_either_goes_on_where_the_other_stopped(root, expected, ways, seed, options):
    before, after = ways
    want = expected(seed=seed, **options)[0]
    per_epoch = len(want) // 2
    for stop, workers in [(1, (2, 3)), (per_epoch - 1, (0, 2)), (per_epoch + 2, (3, 0))]:
        got, state, _ = before(root, seed=seed, workers=workers[0], stop=stop, **options)
        assert got == want[:stop] and state["batch"] == stop % per_epoch
        # The epochs after it are the saved ones' only where the loader has a generator of its own.
        epochs = 1 if seed is None or stop >= per_epoch else 2
        rest, _, number = after(root, seed=seed, workers=workers[1], state=json.loads(json.dumps(state)), epochs=epochs, program_seed=9,
                                **options)
        assert rest == want[stop:][:per_epoch - stop % per_epoch + per_epoch * (epochs - 1)]
        # The resumed epoch leaves the program's numbers alone, and so does one of a loader with its own.
        arete.manual_seed(9)
        assert number == arete.rand(()).item()


@pytest.mark.parametrize("ways", [(in_cpp, in_python), (in_python, in_cpp)], ids=["to Python", "to C++"])
def test_a_loop_without_order_loses_nothing_on_the_way(root, expected, ways):
    before, after = ways
    want = expected(seed=5)[0]
    got, state, _ = before(root, seed=5, workers=3, in_order=False, stop=4)
    assert state["batch"] + len(state["later"]) == 4
    for workers in (0, 3):
        rest = after(root, seed=5, workers=workers, state=state, epochs=1)[0]
        assert sorted(got + rest) == sorted(want[:6])
