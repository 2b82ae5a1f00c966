"""arete.save and arete.load: round trips, other programs' files, atomic writing."""
from __future__ import annotations

import copy
import io
import json
import math
import os
import pickle
from collections import Counter, OrderedDict

import numpy
import pytest

import arete
from arete import serialization
from arete._formats.source import raw_bytes
from arete.serialization import FormatError, UnpicklingError, load, save

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128",
          "float8_e4m3fn", "float8_e5m2"]


def round_trip(value, **options):
    f = io.BytesIO()
    save(value, f)
    f.seek(0)
    return load(f, **options)


def bits(t):
    return bytes(raw_bytes(t))


def assert_same(a, b):
    """Same types, same order, same bits."""
    assert type(a) is type(b), (type(a), type(b))
    if isinstance(a, arete.Tensor):
        assert a.dtype == b.dtype and tuple(a.shape) == tuple(b.shape) and a.requires_grad == b.requires_grad and bits(a) == bits(b)
    elif isinstance(a, dict):
        assert len(a) == len(b)
        for (ka, va), (kb, vb) in zip(a.items(), b.items()):
            assert_same(ka, kb)
            assert_same(va, vb)
        assert getattr(a, "_metadata", None) == getattr(b, "_metadata", None)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert_same(x, y)
    elif isinstance(a, float):
        assert math.copysign(1, a) == math.copysign(1, b) and (a == b or (a != a and b != b))
    elif isinstance(a, numpy.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    else:
        assert a == b


def make(dtype, shape=(3, 4)):
    t = arete.arange(12).reshape(3, 4)
    if dtype.startswith("float8"):
        return t.to(arete.float32).to(getattr(arete, dtype))
    if dtype.startswith("complex"):
        return arete.tensor([complex(i, 2 * i) for i in range(12)], dtype=getattr(arete, dtype)).reshape(3, 4)
    return t.to(getattr(arete, dtype))


VALUES = [
    None, True, 0, -1, 2 ** 62, 2 ** 63, -2 ** 200, 0.1, -0.0, 1e300, 5e-324, 3.0, math.inf, -math.inf, math.nan, 1 + 2j, "",
    "ü\n\0\"\ud800",
    b"", b"\0\xff", [], (), {}, set(), frozenset(), [1, [2.0, [None]]], (1, (2, [3])), {1: 2, "1": 3, 1.5: 4, None: 5, False: 6},
    {(1, "a"): {b"k": ()}}, {1, "a", (2, 3)}, frozenset([1]), OrderedDict([(3, 1), (1, 2)]), Counter({3: 2, 5: 1}),
    numpy.float64(1.5), numpy.int16(-3), numpy.bool_(True), numpy.arange(6, dtype="i2").reshape(2, 3),
    {"__metadata__": 1, "tensor": "dict"},
]


@pytest.mark.parametrize("value", VALUES, ids=[str(i) for i in range(len(VALUES))])
def test_values(value):
    assert_same(round_trip(value), value)


def test_arete_values():
    for value in (arete.Size([2, 3]), arete.float32, arete.bfloat16, arete.device("cpu"), arete.device("cuda:1"), {"s": arete.Size([])}):
        assert_same(round_trip(value), value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors(dtype):
    t = make(dtype)
    value = {"a": t, "b": [t.t(), t[0], t[0, 0], t[:0], t[:, ::2]], "c": (t.reshape(1, 3, 1, 4),)}
    result = round_trip(value)
    assert_same(result, value)
    assert result["b"][0].stride() == t.t().stride()


def test_flags():
    p = arete.nn.Parameter(arete.arange(3) * 0.5)
    frozen = arete.nn.Parameter(arete.zeros(2), requires_grad=False)
    leaf = arete.zeros(2, requires_grad=True)
    value = {"p": p, "frozen": frozen, "leaf": leaf, "made": leaf * 2, "view": p.detach(), "again": p}
    result = round_trip(value)
    assert_same(result, value)
    assert result["again"] is result["p"] and result["view"].data_ptr() == result["p"].data_ptr()
    assert result["made"].is_leaf


def test_names_in_the_file():
    t = [arete.full((2,), float(i)) for i in range(8)]
    value = {"model": OrderedDict([("0.weight", t[0]), ("0.bias", t[1])]),
             "opt": {"state": {0: {"m": t[2]}, "0": {"m": t[3]}}, "l": [t[4]]},
             "opt.l.0": t[5], "__metadata__": t[6], (1, 2): t[7]}
    f = io.BytesIO()
    save(value, f)
    data = f.getvalue()
    header = json.loads(data[8:8 + int.from_bytes(data[:8], "little")])
    assert set(header) == {"__metadata__", "model.0.weight", "model.0.bias", "opt.state.0.m", "opt.state.0.m~2", "opt.l.0", "opt.l.0~2",
                           "__metadata__~2", "4"}
    assert_same(load(io.BytesIO(data)), value)
    f = io.BytesIO()
    save({"w": t[0], "b": t[1]}, f)
    data = f.getvalue()
    assert set(json.loads(data[8:8 + int.from_bytes(data[:8], "little")])) == {"__metadata__", "w", "b"}


def test_readable_by_safetensors():
    st = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    f = io.BytesIO()
    value = {"a": arete.arange(6).reshape(2, 3), "b": arete.zeros(3), "u": arete.ones(5, dtype=arete.uint8)}
    save(value, f)
    found = st.load(f.getvalue())
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in value.items()}
    plain = st.save({"x": numpy.arange(4.0), "i": numpy.ones((2, 0), "i4")})
    assert_same(load(io.BytesIO(plain)), {"x": arete.arange(4, dtype=arete.float64), "i": arete.ones((2, 0), dtype=arete.int32)})


def test_plain_safetensors():
    """A file of another program: a dict of tensors in the file's order."""
    header = json.dumps({"b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                         "a": {"dtype": "I8", "shape": [], "data_offsets": [8, 9]},
                         "__metadata__": {"who": "me"}}).encode()
    data = len(header).to_bytes(8, "little") + header + numpy.array([1.5, 2], "f4").tobytes() + b"\x07"
    result = load(io.BytesIO(data))
    assert list(result) == ["b", "a"] and result["b"].tolist() == [1.5, 2.0] and result["a"].tolist() == 7


def test_optimizer_state(tmp_path):
    model = arete.nn.Linear(3, 2)
    optimizer = arete.optim.AdamW(model.parameters(), lr=0.01)
    model(arete.randn(4, 3)).sum().backward()
    optimizer.step()
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.25,
                  "history": [(0, 1.0), (1, 0.5)]}
    path = tmp_path / "run.safetensors"
    save(checkpoint, path)
    loaded = load(path)
    assert_same(loaded, copy.deepcopy(checkpoint))
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])


def test_errors_name_the_place():
    with pytest.raises(pickle.PicklingError, match="lambda"):
        save({"a": [1, 2, lambda: 0]}, io.BytesIO())
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="contain itself"):
        save(endless, io.BytesIO())
    with pytest.raises(TypeError, match="path or an open file"):
        save(1, 3)


def test_atomic(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    save({"x": 1}, path)
    os.chmod(path, 0o640)
    with pytest.raises(pickle.PicklingError):
        save({"x": lambda: 0}, path)

    def broken(*args):
        raise OSError("disk full")

    import arete._formats.safetensors as module
    with monkeypatch.context() as patch:
        patch.setattr(module, "raw_bytes", broken)
        with pytest.raises(OSError, match="disk full"):
            save({"x": arete.zeros(3)}, path)
    assert load(path) == {"x": 1} and os.listdir(tmp_path) == ["a.safetensors"]
    save({"x": 2}, path)
    assert os.stat(path).st_mode & 0o777 == 0o640 and load(path) == {"x": 2}
    link = tmp_path / "latest"
    link.symlink_to(path)
    save({"x": 3}, link)
    assert link.is_symlink() and load(path) == {"x": 3}
    mask = os.umask(0o027)
    try:
        save({}, tmp_path / "new")
    finally:
        os.umask(mask)
    assert os.stat(tmp_path / "new").st_mode & 0o777 == 0o640
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        save({}, tmp_path / "no" / "folder")


def test_mmap(tmp_path):
    path = tmp_path / "a.safetensors"
    save({"x": arete.arange(1000), "y": arete.ones(3, dtype=arete.uint8)}, path)
    mapped = load(path, mmap=True)
    assert mapped["x"].tolist() == list(range(1000))
    mapped["x"][0] = 7  # copy on write
    assert load(path)["x"][0].item() == 0
    with pytest.raises(ValueError, match="path"):
        load(io.BytesIO(path.read_bytes()), mmap=True)


def test_open_files(tmp_path):
    with open(tmp_path / "two", "wb") as f:
        save({"a": arete.ones(2)}, f)
    with open(tmp_path / "two", "rb") as f:
        assert load(f)["a"].tolist() == [1, 1]

    class Stream:
        def __init__(self, data):
            self.data = data

        def read(self):
            return self.data

    assert load(Stream((tmp_path / "two").read_bytes()))["a"].tolist() == [1, 1]


def test_map_location():
    value = {"a": arete.ones(2)}
    for where in ("cpu", arete.device("cpu"), {"cuda:0": "cpu"}, lambda storage, location: storage, lambda storage, location: None):
        assert_same(round_trip(value, map_location=where), value)
    with pytest.raises(TypeError, match="map_location"):
        round_trip(value, map_location=3)
    f = io.BytesIO()
    save(value, f)
    moved = f.getvalue().replace(b'{\\"tensor\\":\\"a\\"}', b'{\\"tensor\\":\\"a\\",\\"device\\":\\"cuda:0\\"}')
    size = len(moved) - 8 - 8  # what follows the header are two floats
    moved = size.to_bytes(8, "little") + moved[8:]
    if not arete.cuda.is_available():
        with pytest.raises(RuntimeError, match="map_location='cpu'"):
            load(io.BytesIO(moved))
    assert load(io.BytesIO(moved), map_location="cpu")["a"].tolist() == [1, 1]
    seen = []
    load(io.BytesIO(moved), map_location=lambda storage, location: seen.append(location) or storage)
    assert seen == ["cuda:0"]
    if arete.cuda.is_available():
        assert_same(round_trip({"a": arete.ones(2).cuda()}, map_location="cpu"), value)
        assert round_trip({"a": arete.ones(2).cuda()})["a"].is_cuda


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "i2", "<i4", ">i4", "i8", "f2", "f4", ">f8", "c8", ">c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files(tmp_path, dtype, order):
    a = numpy.asarray(numpy.arange(24).reshape(2, 3, 4).astype(dtype), order=order)
    numpy.save(tmp_path / "a.npy", a)
    result = load(tmp_path / "a.npy")
    assert numpy.array_equal(result.numpy(), a) and result.numpy().dtype == a.dtype.newbyteorder("=")
    for function in (numpy.savez, numpy.savez_compressed):
        function(tmp_path / "a.npz", x=a, y=a[0, 0, 0], z=a[:0])
        found = load(tmp_path / "a.npz")
        assert list(found) == ["x", "y", "z"] and found["y"].shape == () and found["z"].shape == (0, 3, 4)
        assert numpy.array_equal(found["x"].numpy(), a)


def test_numpy_refused(tmp_path):
    for bad in (numpy.array(["a"]), numpy.array([object()]), numpy.zeros(2, dtype=[("a", "i4")])):
        numpy.save(tmp_path / "a.npy", bad)
        with pytest.raises(FormatError):
            load(tmp_path / "a.npy")


def test_unknown_files(tmp_path):
    for content, error in ((b"", FormatError), (b"x", FormatError), (b"GGUF" + bytes(100), FormatError),
                           (pickle.dumps({1: 2}), UnpicklingError),
                           (b"PK\5\6" + bytes(17), FormatError), (b"PK\3\4abc", FormatError)):
        path = tmp_path / "f"
        path.write_bytes(content)
        with pytest.raises(error, match="f"):
            load(path)


def test_exports():
    assert set(serialization.__all__) == {"save", "load", "FormatError", "UnpicklingError", "add_safe_globals",
                                          "clear_safe_globals", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "safe_globals"}
    assert issubclass(FormatError, RuntimeError) and issubclass(FormatError, ValueError) and UnpicklingError is pickle.UnpicklingError
