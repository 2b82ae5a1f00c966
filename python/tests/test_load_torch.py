"""Files that torch.save wrote, and hostile ones of the same format."""
from __future__ import annotations

import argparse
import collections
import doctest
import enum
import fractions
import io
import pickle
import random
import struct
import subprocess
import sys
import zipfile

import numpy
import pytest
from peer import peer

import arete
from arete.serialization import FormatError, UnpicklingError, load, save

torch = peer()


def saved(value, **options):
    f = io.BytesIO()
    torch.save(value, f, **options)
    return f.getvalue()


def compare(mine, theirs):
    if isinstance(theirs, torch.Tensor):
        assert type(mine).__name__ == type(theirs).__name__
        assert str(mine.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        assert tuple(mine.shape) == tuple(theirs.shape) and mine.requires_grad == theirs.requires_grad
        assert tuple(mine.stride()) == tuple(theirs.stride()) or theirs.numel() == 0 or theirs.is_neg()
        assert mine.detach().to(getattr(arete, "float64" if not theirs.is_complex() else "complex128")).tolist() == \
            theirs.detach().to(torch.float64 if not theirs.is_complex() else torch.complex128).tolist()
    elif isinstance(theirs, dict):
        assert type(mine) is type(theirs) and list(mine) == list(theirs)
        for key in theirs:
            compare(mine[key], theirs[key])
        assert getattr(mine, "_metadata", None) == getattr(theirs, "_metadata", None)
    elif isinstance(theirs, (list, tuple)) and not isinstance(theirs, torch.Size):
        assert type(mine) is type(theirs) and len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            compare(a, b)
    elif isinstance(theirs, (torch.dtype, torch.device, torch.Size)):
        assert str(mine).replace("arete", "torch") == str(theirs)
    else:
        assert type(mine) is type(theirs) and (mine == theirs or mine != mine)


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
          torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
BASE = torch.arange(24.0).reshape(4, 6)


def with_attribute():
    t = torch.ones(2)
    t.note = "kept"
    return t


VALUES = {
    "model": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict(),
    "strides": [BASE.t(), BASE[1:, ::2], BASE[0], BASE[0, 3], BASE[:0], BASE.expand(2, 4, 6), BASE[:, None], torch.zeros(2, 3, 4, 5).to(
        memory_format=torch.channels_last)],
    "parameters": [torch.nn.Parameter(BASE), torch.nn.Parameter(BASE, requires_grad=False), torch.ones(2, requires_grad=True)],
    "numbers": [1, -1, 255, 256, 65535, 65536, 2 ** 31, -2 ** 31, 2 ** 70, -2 ** 70, 0.1, float("inf"), True, None, 1 + 2j],
    "texts": ["", "a", "ü" * 300, b"", b"abc" * 100, bytearray(b"xy")],
    "containers": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [[]], {}, {1: {2: 3}}, {(1, "a"): 2}, {1, 2}, frozenset([3]),
                   collections.OrderedDict(
        a=1), collections.Counter("hello")],
    "torch": [torch.float32, torch.device("cuda:1"), torch.device("cpu"), torch.Size([2, 3])],
    "numpy": [numpy.float64(1.5), numpy.int32(-7), numpy.bool_(True), numpy.float16(2), numpy.complex64(1j)],
    "conj": [torch.tensor([1 + 2j]).conj(), torch.tensor([1 + 2j]).conj().imag],
    "many": list(range(3000)) + [{i: (i, str(i)) for i in range(1000)}],
    "meta": collections.OrderedDict(x=torch.zeros(2)),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_values(name, protocol):
    compare(load(io.BytesIO(saved(VALUES[name], pickle_protocol=protocol))), VALUES[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype, tmp_path):
    t = BASE.to(torch.complex64).to(dtype) if dtype.is_complex else BASE.to(dtype) if dtype.itemsize > 1 else (BASE % 2).to(dtype)
    path = tmp_path / "t.pt"
    torch.save({"t": t, "part": t[1:3]}, path)
    for mapped in (False, True):
        compare(load(path, mmap=mapped), {"t": t, "part": t[1:3]})


def test_shared_storage_is_shared():
    base = torch.arange(6.0)
    p = torch.nn.Parameter(torch.ones(2))
    a, b, c, d = load(io.BytesIO(saved([base, base[2:], p, p])))
    a[3] = 9
    assert b[1].item() == 9 and c is d


def test_attributes():
    assert load(io.BytesIO(saved(with_attribute()))).note == "kept"


def test_training_checkpoint():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2])
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(), "epoch": 3,
             "rng": torch.get_rng_state(), "args": {"lr": 0.1, "name": "x"}}
    mine = load(io.BytesIO(saved(value)), map_location="cpu")
    compare(mine, value)
    f = io.BytesIO()
    save(mine, f)
    f.seek(0)
    compare(load(f), value)


def test_files_are_read_by_pytorch(tmp_path):
    base = arete.arange(6, dtype=arete.float32).reshape(2, 3)
    value = {"whole": base, "turned": base.t(), "row": base[1], "p": arete.nn.Parameter(arete.ones(2)), "step": 3, "rates": (0.5, None),
             "names": {"a": [True, "b"]}, **{d: (arete.arange(4) % 2).to(getattr(arete, d)) for d in (
                 "float64", "float16", "bfloat16", "int8", "uint8", "bool", "complex64", "float8_e4m3fn", "float8_e5m2")}}
    for path in (tmp_path / "state.pt", str(tmp_path / "state.bin")):
        save(value, path)
        theirs = torch.load(path, weights_only=True)
        compare(load(path), theirs)
        assert theirs["row"].untyped_storage().data_ptr() == theirs["whole"].untyped_storage().data_ptr()
        assert isinstance(theirs["p"], torch.nn.Parameter) and theirs["turned"].stride() == (1, 3)
    save(value, tmp_path / "state.safetensors")
    with open(tmp_path / "state.safetensors", "rb") as f:
        assert f.read(9)[8:] == b"{"
    program = "import torch, sys; f = open(sys.argv[1], 'wb'); torch.save({'x': torch.ones(2)}, f)"
    (tmp_path / "program.py").write_text(program)
    subprocess.run([sys.executable, "-m", "arete.as_torch", tmp_path / "program.py", tmp_path / "open.pt"], check=True)
    assert torch.load(tmp_path / "open.pt", weights_only=True)["x"].tolist() == [1, 1]


class Evil:
    def __reduce__(self):
        import os
        return os.system, ("echo executed",)


def test_globals_are_refused(capfd):
    for value, name in ((Evil(), "posix.system"), (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"), (print, "print"),
                        (collections.deque(), "collections.deque"), (numpy.zeros(2), "_reconstruct")):
        with pytest.raises(UnpicklingError, match=name):
            load(io.BytesIO(saved(value)), weights_only=True)
        with pytest.raises(UnpicklingError, match=name):
            load(io.BytesIO(saved(value)))
    assert "executed" not in capfd.readouterr().out


def legacy(value):
    return saved(value, _use_new_zipfile_serialization=False)


def test_legacy_files(tmp_path):
    value = {"whole": BASE, "turned": BASE.t(), "row": BASE[1], "half": torch.ones(2).bfloat16(), "none": torch.zeros(0, 3),
             "p": torch.nn.Parameter(torch.ones(2)), "step": 3, "model": torch.nn.Linear(2, 3).state_dict()}
    for options in ({}, {"weights_only": False}, {"map_location": "cpu"}):
        mine = load(io.BytesIO(legacy(value)), **options)
        compare(mine, value)
        mine["row"][0] = -1
        assert mine["whole"][1, 0] == -1
    (tmp_path / "old.pt").write_bytes(legacy(value))
    compare(load(tmp_path / "old.pt", mmap=True), value)
    with pytest.raises(UnpicklingError, match="'os.system'|'posix.system'"):
        load(io.BytesIO(legacy([BASE, Evil()])))


def test_damaged_legacy_files():
    data = legacy({"a": BASE, "b": torch.arange(3)})
    for bad in (data[:-1], data + b"x", data[:-40], data[:100]):
        with pytest.raises((UnpicklingError, FormatError)):
            load(io.BytesIO(bad))
    r, read = random.Random(0), 0
    for _ in range(1500):
        bad = bytearray(data)
        for _ in range(r.randrange(1, 4)):
            bad[r.randrange(len(bad))] = r.randrange(256)
        try:
            load(io.BytesIO(bytes(bad)))
            read += 1
        except (UnpicklingError, FormatError, RuntimeError, TypeError, ValueError):
            pass
    assert read > 10
    with pytest.raises(UnpicklingError, match="bare pickle"):
        load(io.BytesIO(pickle.dumps({"a": 1}, protocol=2)))


@pytest.mark.parametrize("content, call", [
    (b"](" + b"K\1K\2\x86" * 2000 + b"e", b"ccollections\nOrderedDict\n"),
    (b"](" + b"K\1" * 2000 + b"e", b"c__builtin__\nset\n"),
    (b"X\xd0\7\0\0" + b"a" * 2000 + b"X\6\0\0\0latin1\x86", b"c_codecs\nencode\n"),
])
def test_few_bytes_that_ask_for_many_copies(content, call):
    arguments = b"h\1R" if content.endswith(b"\x86") else b"h\1\x85R"
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\2](" + content + b"q\1" + call + b"q\2" + (b"h\2" + arguments) * 2000 + b"e.")
        archive.writestr("archive/version", b"3\n")
    with pytest.raises(UnpicklingError, match="copied too often"):
        load(io.BytesIO(f.getvalue()))


def test_torchscript_is_refused():
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        for name in ("m/data.pkl", "m/constants.pkl", "m/code/x.py"):
            z.writestr(name, b"\x80\x02N.")
    with pytest.raises(FormatError, match="TorchScript"):
        load(io.BytesIO(f.getvalue()))


def archive(pickled, storages=(), order=b"little"):
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z:
        z.writestr("archive/data.pkl", pickled)
        z.writestr("archive/byteorder", order)
        for i, data in enumerate(storages):
            z.writestr(f"archive/data/{i}", data)
    f.seek(0)
    return f


def tensor_pickle(size=(2,), stride=(1,), offset=0, numel=2, key="0", grad=False, kind=b"FloatStorage", hooks=b")"):
    """A pickle of one tensor with any numbers."""
    def value(v):
        if isinstance(v, str):
            return b"X" + struct.pack("<I", len(v)) + v.encode()
        if isinstance(v, bool):
            return b"\x88" if v else b"\x89"
        if isinstance(v, tuple):
            return b"(" + b"".join(value(x) for x in v) + b"t"
        raw = v.to_bytes(12, "little", signed=True)
        return b"\x8a" + bytes([len(raw)]) + raw

    storage = b"(" + value("storage") + b"ctorch\n" + kind + b"\n" + value(key) + value("cpu") + value(numel) + b"tQ"
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + storage + value(offset) + value(size) + value(stride) + value(grad)
            + b"ccollections\nOrderedDict\n" + hooks + b"RtR.")


def test_hand_made_tensor():
    assert load(archive(tensor_pickle(), [numpy.array([1, 2], "f4").tobytes()])).tolist() == [1, 2]


@pytest.mark.parametrize("options", [
    {"size": (3,)}, {"offset": 1}, {"offset": -1}, {"stride": (2,)}, {"stride": (-1,)}, {"size": (-2,)},
    {"size": (2 ** 62,), "stride": (0,),
     "offset": 2}, {"size": (2 ** 40, 2 ** 40), "stride": (0, 0)}, {"numel": 3}, {"numel": -1}, {"numel": 2 ** 70}, {"key": "1"},
    {"key": "../data.pkl"}, {"size": (1, 2)}, {"size": (2 ** 70,)}, {"kind": b"LongStorage"}, {"kind": b"IntStorage", "grad": True},
    {"kind": b"QInt8Storage"}, {"hooks": b"]N\x86\x85a\x85"}, {"size": (0,) * 65, "stride": (0,) * 65}, {"kind": b"float32"}])
def test_bad_tensors(options):
    with pytest.raises((UnpicklingError, FormatError)):
        load(archive(tensor_pickle(**options), [bytes(8)]))


DEEP = 100_000


@pytest.mark.parametrize("pickled", [
    b"", b"\x80", b".", b"\x80\x02.", b"\x80\x02NN.", b"\x80\x02(N.", b"\x80\x02s.", b"\x80\x02NNNs.", b"\x80\x02]NNs.", b"\x80\x02}]Ns.",
    b"\x80\x02Ne.", b"\x80\x02N(Ne.", b"\x80\x02t.", b"\x80\x02h\x05.", b"\x80\x02NNR.", b"\x80\x02)R.", b"\x80\x02X\xff\xff\xff\x7fa.",
    b"\x80\x02\x8d" + b"\xff" * 8 + b"a.", b"\x80\x02\x8b\xff\xff\xff\x7f.", b"\x80\x02\x8b\xff\xff\xff\xff.",
    b"\x80\x02\x8b" + struct.pack(
        "<i", 5000) + bytes(5000) + b".", b"\x80\x02X\x01\x00\x00\x00\xff.", b"\x80\x09N.", b"I1\n.", b"\x80\x02cos\nsystem\n.",
    b"\x80\x02c" + b"a" * 1000 + b"\n.",
    b"\x80\x02)\x81.", b"\x80\x02}}b.", b"\x80\x02}NQ.", b"\x80\x02(NNNNNtQ.", b"\x80\x02ctorch\nSize\nK\x01\x85R.",
    b"\x80\x02ctorch\ndevice\n(X\x03\0\0\0abctR.",
    b"\x80\x02ctorch\nTensor\n)R.", b"\x80\x02ccollections\nOrderedDict\nN\x85R.", b"\x80\x02}" + b"(" * DEEP + b"t" * DEEP + b"Ns.",
    b"\x80\x02}" + b")" + b"\x85" * DEEP + b"Ns.", b"\x80\x04\x8f(" + b")" + b"\x85" * DEEP + b"\x90.",
    b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R.",
    b"\x80\x02cnumpy\ndtype\nX\x01\0\0\0O\x85R.", b"\x80\x02cnumpy.core.multiarray\nscalar\nNN\x86R.",
    b"\x80\x02c__builtin__\nint\nX\x01\0\0\0a\x85R.",
    b"\x80\x02c__builtin__\neval\n.", b"\x80\x02c__builtin__\nbytes\n\x8a\x04\0\0\0\x7f\x85R.",
    b"\x80\x02ccollections\nOrderedDict\n)R}X\x01\0\0\0ans}b.",
    b"\x80\x02ccollections\nOrderedDict\n)R}X\x09\0\0\0__class__Nsb.",
], ids=lambda p: repr(p[:24]))
def test_bad_pickles(pickled):
    with pytest.raises((UnpicklingError, FormatError)):
        load(archive(pickled))


def test_deep_and_shared_values():
    """What is deep or exponential without being a key is no harm."""
    doubling = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86q" + bytes([i + 1]) for i in range(100))
    assert len(load(archive(b"\x80\x02)q\x00" + doubling + b"\x86" * 100 + b"."))) == 2
    with pytest.raises(UnpicklingError):
        load(archive(b"\x80\x02})q\x00" + doubling + b"\x86" * 100 + b"Ns."))
    with pytest.raises(UnpicklingError):
        load(archive(b"\x80\x02cnumpy\ndtype\n)q\x00" + doubling + b"\x86" * 100 + b"\x85R."))
    assert len(load(archive(b"\x80\x02" + b")" + b"\x85" * DEEP + b"."))) == 1


def test_big_endian_is_refused():
    with pytest.raises(FormatError, match="byte order"):
        load(archive(tensor_pickle(), [bytes(8)], b"big"))


def test_bad_archives():
    good = archive(tensor_pickle(), [bytes(8)]).getvalue()
    load(io.BytesIO(good))
    end = good.rindex(b"PK\5\6")
    directory = struct.unpack_from("<I", good, end + 16)[0]

    def patched(at, data):
        return good[:at] + data + good[at + len(data):]

    bad = {
        "truncated": good[:-30], "count": patched(end + 10, b"\xff\xff"), "directory outside": patched(end + 16, b"\xff\xff\xff\x7f"),
        "directory size": patched(end + 12, b"\xff\xff\xff\x7f"), "disk": patched(end + 4, b"\1"),
        "method": patched(directory + 10, b"\x63"),
        "encrypted": patched(directory + 8, b"\1"), "size": patched(directory + 20, b"\xff\xff\xff\x7f\xff\xff\xff\x7f"),
        "header": patched(directory + 42, b"\xff\xff\xff\x7f"), "local name": patched(30, b"X"), "local signature": patched(0, b"PK\3\5"),
        "packed size": patched(directory + 20, b"\0\0\0\0"),
    }
    for name, data in bad.items():
        with pytest.raises((FormatError, UnpicklingError)):
            load(io.BytesIO(data))
            pytest.fail(name)


def test_overlapping_entries():
    f = archive(tensor_pickle(), [bytes(1000)])
    data = bytearray(f.getvalue())
    end = data.rindex(b"PK\5\6")
    at = struct.unpack_from("<I", data, end + 16)[0]
    size = struct.unpack_from("<I", data, at + 20)[0]
    struct.pack_into("<II", data, at + 20, size + 200, size + 200)
    with pytest.raises(FormatError, match="overlap"):
        load(io.BytesIO(bytes(data)))


def test_duplicate_entries():
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w") as z, pytest.warns(UserWarning):
        z.writestr("archive/data.pkl", b"\x80\x02N.")
        z.writestr("archive/data.pkl", b"\x80\x02N.")
    with pytest.raises(FormatError, match="twice"):
        load(io.BytesIO(f.getvalue()))


def test_zip_bomb():
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x.npy", bytes(10_000_000))
    data = bytearray(f.getvalue())
    at = struct.unpack_from("<I", data, data.rindex(b"PK\5\6") + 16)[0]
    struct.pack_into("<I", data, at + 24, 1000)
    with pytest.raises(FormatError, match="not of the size"):
        load(io.BytesIO(bytes(data)))
    struct.pack_into("<I", data, at + 24, 0x7FFFFFFF)
    with pytest.raises(FormatError, match="out of"):
        load(io.BytesIO(bytes(data)))


def samples():
    f = io.BytesIO()
    save({"a": arete.arange(4), "o": {"k": [1, (2.5, None)], 3: arete.ones(2, 2).t()}}, f)
    yield f.getvalue()
    yield saved({"a": torch.arange(4), "b": [numpy.float64(2), torch.nn.Parameter(torch.ones(2)), BASE.t(), {1, 2}]})
    f = io.BytesIO()
    numpy.savez_compressed(f, x=numpy.arange(9.0).reshape(3, 3), y=numpy.int8(1))
    yield f.getvalue()
    f = io.BytesIO()
    numpy.save(f, numpy.arange(6).reshape(2, 3))
    yield f.getvalue()


@pytest.mark.parametrize("which", range(4))
def test_fuzz(which):
    """Cut, changed and doubled files give values or the errors that are promised."""
    good = list(samples())[which]
    load(io.BytesIO(good))
    rng = random.Random(which)
    refused = 0
    for i in range(800):
        data = bytearray(good)
        if i % 4 == 0:
            del data[rng.randrange(len(data)):]
        elif i % 4 == 1:
            at = rng.randrange(len(data))
            data[at:at] = data[rng.randrange(len(data)):][:rng.randrange(64)]
        else:
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.choice((0, 1, 255, 128, rng.randrange(256)))
        try:
            load(io.BytesIO(bytes(data)), map_location="cpu")
        except (FormatError, UnpicklingError):
            refused += 1
    assert refused > 80


def test_pickle_module_agrees():
    """The interpreter reads plain values as Python's own does, in every protocol that it knows."""
    value = {"a": [1, 2.5, "x" * 300, (1, 2), {"k": None}], "b": {1, 2, 3}, "c": (b"raw", 2 ** 100, [])}
    for protocol in (2, 3, 4, 5):
        pickled = pickle.dumps(value, protocol)
        assert load(archive(pickled)) == value


class Shape(enum.Enum):
    ROUND = 1
    FLAT = 2


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


class WithState:
    def __init__(self, n):
        self.n = n

    def __getstate__(self):
        return {"twice": 2 * self.n}

    def __setstate__(self, state):
        self.n = state["twice"] // 2


def test_globals_that_the_program_allows():
    args = argparse.Namespace(lr=0.1, layers=[1, 2], weight=torch.ones(2))
    value = {"args": args, "shape": Shape.FLAT, "slots": Slots(1, "b"), "state": WithState(7),
             "half": fractions.Fraction(1, 2), "kind": argparse.Namespace}
    data = saved(value)
    allowed = [argparse.Namespace, Shape, Slots, WithState, fractions.Fraction]
    for some in ([], allowed[:1], allowed[:4]):
        with arete.serialization.safe_globals(some), pytest.raises(UnpicklingError, match="add_safe_globals"):
            load(io.BytesIO(data))
    arete.serialization.add_safe_globals(allowed)
    try:
        arete.serialization.add_safe_globals(allowed[:2])  # again
        assert arete.serialization.get_safe_globals() == allowed
        mine = load(io.BytesIO(data))
        assert type(mine["args"]) is argparse.Namespace and mine["args"].lr == 0.1 and mine["args"].layers == [1, 2]
        assert type(mine["args"].weight) is arete.Tensor and mine["args"].weight.tolist() == [1, 1]
        assert mine["shape"] is Shape.FLAT and (mine["slots"].a, mine["slots"].b) == (1, "b") and mine["state"].n == 7
        assert mine["half"] == fractions.Fraction(1, 2) and mine["kind"] is argparse.Namespace
    finally:
        arete.serialization.clear_safe_globals()
    assert arete.serialization.get_safe_globals() == []


@pytest.mark.parametrize("protocol", [2, 4])
def test_globals_that_would_be_refused(protocol):
    value = {"a": argparse.Namespace(x=1), "b": [fractions.Fraction(1, 2), argparse.Namespace(x=2)], "t": torch.ones(2),
             "d": torch.float16, "o": collections.OrderedDict(a=1), "text": "argparse", "more": "Namespace"}
    f = io.BytesIO(saved(value, pickle_protocol=protocol))
    unsafe = arete.serialization.get_unsafe_globals_in_checkpoint
    assert unsafe(f) == ["argparse.Namespace", "fractions.Fraction"]
    assert protocol == 4 or set(torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(f.getvalue()))) == {
        "argparse.Namespace", "fractions.Fraction"}
    with arete.serialization.safe_globals([argparse.Namespace]):
        assert unsafe(io.BytesIO(f.getvalue())) == ["fractions.Fraction"]
    with pytest.raises(ValueError, match="returned by torch.save"):
        unsafe(io.BytesIO(b"no such file"))


def test_globals_by_their_names_in_files():
    class Elsewhere(argparse.Namespace):
        pass

    data = saved(argparse.Namespace(a=1))
    with arete.serialization.safe_globals([(Elsewhere, "argparse.Namespace")]):
        assert type(load(io.BytesIO(data))) is Elsewhere
    for wrong in ("argparse.Namespace", 3, (3, "a.b"), (Elsewhere, 3), (Elsewhere,)):
        with pytest.raises(TypeError, match="a function or a class, or a pair"):
            arete.serialization.add_safe_globals([wrong])
    with pytest.raises(ValueError), arete.serialization.safe_globals([Elsewhere]):
        raise ValueError
    assert arete.serialization.get_safe_globals() == []


def test_allowed_classes_allow_nothing_else():
    hostile = pickle.dumps(Hostile(), 2)
    with arete.serialization.safe_globals([argparse.Namespace]):
        with pytest.raises(UnpicklingError, match="names the global"):
            load(archive(hostile))


class Hostile:
    def __reduce__(self):
        return print, ("executed",)


def test_examples_of_allowed_globals():
    for name in ("add_safe_globals", "get_safe_globals", "safe_globals", "clear_safe_globals"):
        function = getattr(arete.serialization, name)
        test = doctest.DocTestParser().get_doctest(function.__doc__, {"arete": arete}, function.__name__, None, 0)
        assert doctest.DocTestRunner().run(test) == (0, len(test.examples)) and test.examples


SPARSE = {"coo": lambda lib: lib.sparse_coo_tensor([[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 6.0], (2, 3)),
          "coalesced": lambda lib: SPARSE["coo"](lib).coalesce(),
          "hybrid": lambda lib: lib.sparse_coo_tensor([[0, 2]], [[3.0, 1.0], [4.0, 5.0]], (3, 2)),
          "csr": lambda lib: lib.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [3.0, 4.0, 5.0], (2, 3))}


@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors(name, tmp_path):
    """As PyTorch writes them, and so that it reads them with weights_only=True."""
    own, file = SPARSE[name](arete), tmp_path / "own.pt"
    arete.save({"sparse": own, "dense": arete.ones(2)}, file)
    theirs = torch.load(file)["sparse"]
    assert str(theirs.layout) == str(own.layout).replace("arete", "torch") and theirs.to_dense().tolist() == own.to_dense().tolist()
    torch.save([theirs], tmp_path / "torch.pt")
    for weights_only in (True, False):
        again = arete.load(tmp_path / "torch.pt", weights_only=weights_only)[0]
        assert again.layout == own.layout and again.shape == own.shape and arete.equal(again.to_dense(), own.to_dense())
        assert name == "csr" or again.is_coalesced() == own.is_coalesced() == (name == "coalesced")


def test_sparse_tensors_that_are_none(tmp_path):
    from arete._formats.torch_pickle import Functions
    from arete.sparse import make, make_csr

    for parts in (make(arete.tensor([[0, 9], [0, 0]]), arete.ones(2), (2, 2), False),
                  make_csr(arete.tensor([0, 5, 2]), arete.tensor([0, 1]), arete.ones(2), (2, 2)),
                  make_csr(arete.tensor([0, 1, 2]), arete.tensor([0, -1]), arete.ones(2), (2, 2))):
        arete.save(parts, tmp_path / "bad.pt")
        with pytest.raises(arete.serialization.UnpicklingError, match="a sparse tensor whose parts do not go together"):
            arete.load(tmp_path / "bad.pt")
    for indices, values in ((arete.zeros(1, 3), arete.ones(3)), (arete.zeros(2, 3), arete.ones(2)), (arete.zeros(2), arete.ones(2))):
        with pytest.raises(arete.serialization.UnpicklingError, match="a sparse tensor whose parts do not go together"):
            Functions.rebuild_sparse_tensor("torch.sparse_coo", (indices.long(), values, arete.Size((2, 2)), True))
    call = b"ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\n(X%s\0\0\0%stR%stR."
    for name, parts in ((b"torch.strided", b"()"), (b"torch.sparse_coo", b"()"), (b"torch.sparse_csr", b"(NNNNt")):
        pickled = b"\x80\x02" + call % (bytes([len(name)]), name, b")" if parts == b"()" else parts)
        with pytest.raises(arete.serialization.UnpicklingError, match="layout|sparse tensor"):
            arete.load(archive(pickled))
