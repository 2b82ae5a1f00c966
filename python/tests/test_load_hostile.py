"""Hostile safetensors and .npy files: errors, and soon."""
from __future__ import annotations

import io
import json
import time

import pytest

from arete.serialization import FormatError, load


def container(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return io.BytesIO(len(text).to_bytes(8, "little") + text + data)


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


HEADERS = {
    "no object": b"[]", "not JSON": b"{", "NaN": b'{"a": NaN}', "twice": b'{"a": 1, "a": 2}', "digits": b'{"a": ' + b"1" * 5000 + b"}",
    "deep": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not UTF-8": b'{"\xff": 1}', "no fields": {"a": {}}, "no dict": {"a": 3},
    "dtype": {"a": entry("F33")}, "dtype kind": {"a": entry(3)}, "dtype list": {"a": entry([])}, "shape": {"a": entry(shape=3)},
    "negative": {"a": entry(shape=[-2])}, "fraction": {"a": entry(shape=[2.0])}, "bool": {"a": entry(shape=[True, 2])},
    "too large": {"a": entry(shape=[2 ** 62, 2 ** 62])}, "many": {"a": entry(shape=[1] * 70)},
    "zero of huge": {"a": entry(shape=[0, 2 ** 62, 4], offsets=[0, 0])},
    "offsets": {"a": entry(offsets=[0])}, "reversed": {"a": entry(offsets=[8, 0])}, "outside": {"a": entry(shape=[4], offsets=[0, 16])},
    "size": {"a": entry(shape=[1])}, "negative offset": {"a": entry(offsets=[-8, 0])},
    "hole": {"a": entry("U8", [2], [0, 2]), "b": entry("U8", [2], [6, 8])},
    "overlap": {"a": entry(), "b": entry("U8", [2], [6, 8])}, "rest": {"a": entry("U8", [2], [0, 2])},
    "metadata": {"__metadata__": {"a": 1}, "a": entry()},
    "metadata kind": {"__metadata__": [], "a": entry()},
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(name):
    begin = time.process_time()
    with pytest.raises(FormatError):
        load(container(HEADERS[name], bytes(8)))
    assert time.process_time() - begin < 5


def test_a_header_of_any_length_is_not_allocated():
    for length in (2 ** 63, 2 ** 40, 10):
        with pytest.raises(FormatError):
            load(io.BytesIO(length.to_bytes(8, "little") + b"{"))


STRUCTURES = [
    "", "[", "3", "{}", {"version": 2, "root": None}, {"version": 1}, {}, {"x": 1}, {"tensor": "b"}, {"tensor": 3}, {"tensor": []},
    {"dict": 3},
    {"dict": [3]}, {"dict": [[1]]}, {"dict": [[[], 1]]}, {"dict": [[{"dict": []}, 1]]}, {"dict": [[1, 2], [1, 3]]},
    {"dict": [[{"tensor": "a"}, 1]]},
    {"set": [[]]}, {"set": 3}, {"tuple": 3}, {"size": ["a"]}, {"size": [2 ** 65]}, {"int": 3}, {"int": "z"}, {"float": "x"}, {"float": []},
    {"complex": [1]},
    {"complex": 3}, {"bytes": "?"}, {"bytes": 3}, {"dtype": "float33"}, {"dtype": []}, {"dtype": "load"}, {"device": "toaster 1"},
    {"device": 3},
    {"scalar": ["O", "00"]}, {"scalar": ["<f8", "00"]}, {"scalar": ["i4,i4", "00" * 8]}, {"scalar": []}, {"ndarray": "b"},
    {"tensor": "a", "stride": [1, 1]},
    {"tensor": "a", "stride": ["x"]}, {"tensor": "a", "dtype": "complex128"}, {"tensor": "a", "device": 3},
    {"set": [{"tuple": [{"tuple": [{"list": []}]}]}]},
    {"tensor": "i", "grad": True},
]


@pytest.mark.parametrize("structure", range(len(STRUCTURES)))
def test_structures(structure):
    root = STRUCTURES[structure]
    text = root if isinstance(root, str) else json.dumps(root if "version" in root else {"version": 1, "root": root})
    f = container({"__metadata__": {"arete.structure": text}, "a": entry(), "i": entry("I8", [1], [8, 9])}, bytes(9))
    with pytest.raises(FormatError):
        load(f)


@pytest.mark.parametrize("depth", [250, 900, 50_000])
@pytest.mark.parametrize("kind", ["list", "tuple", "key"])
def test_deep_structures(depth, kind):
    opened, closed = {"list": ("[", "]"), "tuple": ('{"tuple":[', "]}"), "key": ('{"dict":[[', ",1]]}")}[kind]
    text = '{"version":1,"root":' + opened * depth + "1" + closed * depth + "}"
    with pytest.raises(FormatError):
        load(container({"__metadata__": {"arete.structure": text}}))


def npy(header, data=b"", version=b"\1\0"):
    text = header.encode("latin1")
    size = len(text).to_bytes(2 if version[0] == 1 else 4, "little")
    return io.BytesIO(b"\x93NUMPY" + version + size + text + data)


@pytest.mark.parametrize("header", [
    "", "{}", "[]", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
    "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "9" * 30 + ",)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'shape': (2,)}",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': (1,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
    "{'descr': __import__('os'), 'fortran_order': False, 'shape': ()}",
    "{" * 20000, "{'descr': '<f4', 'fortran_order': False, 'shape': (2.5,)}"])
def test_npy(header):
    with pytest.raises(FormatError):
        load(npy(header, bytes(8)))


def test_npy_header_lengths():
    good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"
    assert load(npy(good, bytes(8))).tolist() == [0, 0] and load(npy(good, bytes(8), b"\2\0")).tolist() == [0, 0]
    for f in (io.BytesIO(b"\x93NUMPY\2\0\xff\xff\xff\xff"), io.BytesIO(b"\x93NUMPY\1\0"), npy(good, bytes(8), b"\7\0")):
        with pytest.raises(FormatError):
            load(f)
