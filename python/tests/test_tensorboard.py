"""The event files, read back with a small reader, and with TensorBoard where it is installed."""
from __future__ import annotations

import os
import struct
import zlib

import numpy
import pytest

import arete
from arete.utils.tensorboard import SummaryWriter, _masked_crc


def fields(data):
    """(number, value) of an encoded message: ints, raw 4 or 8 bytes, or bytes."""
    at, result = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value = data[at:at + size]
            at += size
        result.append((key >> 3, value))
    return result


def events(folder):
    [name] = [n for n in os.listdir(folder) if n.startswith("events.out.tfevents.")]
    with open(os.path.join(folder, name), "rb") as f:
        data = f.read()
    found = []
    while data:
        size, check = struct.unpack_from("<QI", data)
        assert check == _masked_crc(data[:8])
        event = data[12:12 + size]
        assert struct.unpack_from("<I", data, 12 + size)[0] == _masked_crc(event)
        found.append(dict(fields(event)))
        data = data[16 + size:]
    return found


def values(folder):
    return [(e.get(2), dict(fields(dict(fields(e[5]))[1]))) for e in events(folder) if 5 in e]


def test_crc():
    """Of "123456789" the CRC-32C is e3069283."""
    crc = 0xE3069283
    assert _masked_crc(b"123456789") == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_scalar("loss", 0.5, 3, walltime=7.0)
        w.add_scalar("loss", arete.tensor(1.5), 2 ** 40)
        w.add_scalar("big", 1e300, -1)
        w.add_scalar("no step", numpy.float32(2))
        w.add_scalars("two/curves", {"a": 1, "b": 2.0}, 5)
        assert w.get_logdir() == str(tmp_path)
    first = events(tmp_path)[0]
    assert first[3] == b"brain.Event:2"
    found = values(tmp_path)
    assert found[0] == (3, {1: b"loss", 2: struct.pack("<f", 0.5)}) and events(tmp_path)[1][1] == struct.pack("<d", 7.0)
    assert found[1] == (2 ** 40, {1: b"loss", 2: struct.pack("<f", 1.5)})
    assert found[2] == (2 ** 64 - 1, {1: b"big", 2: struct.pack("<f", float("inf"))}) and found[3][0] is None
    assert values(tmp_path / "two_curves_a") == [(5, {1: b"two/curves", 2: struct.pack("<f", 1)})]
    assert values(tmp_path / "two_curves_b") == [(5, {1: b"two/curves", 2: struct.pack("<f", 2)})]
    with pytest.raises(ValueError, match="closed"):
        w.add_scalar("x", 1)


def histogram(folder):
    parsed = dict(fields(values(folder)[0][1][5]))
    unpack = lambda raw: list(struct.unpack(f"<{len(raw) // 8}d", raw))  # noqa: E731
    return [unpack(parsed[i])[0] for i in range(1, 6)], unpack(parsed[6]), unpack(parsed[7])


@pytest.mark.parametrize("bins", ["tensorflow", 10, "auto", [-5.0, 0.0, 1.0, 5.0]])
def test_histogram(tmp_path, bins):
    data = arete.tensor([[-1.0, 0.0, 0.5], [2.0, 2.0, float("nan")]])
    with SummaryWriter(tmp_path) as w:
        w.add_histogram("h", data, 1, bins=bins)
        with pytest.raises(ValueError, match="finite"):
            w.add_histogram("h", data[:0])
    numbers, limits, counts = histogram(tmp_path)
    assert numbers == [-1, 2, 5, 3.5, 9.25]
    assert len(limits) == len(counts) and sum(counts) == 5 and counts[0] == 0 and limits == sorted(limits)
    for right, total in zip(limits, numpy.cumsum(counts)):
        assert total <= sum(x <= right for x in (-1, 0, 0.5, 2, 2))


def test_text_and_image(tmp_path):
    with SummaryWriter(tmp_path) as w:
        w.add_text("note", "**über**", 1)
        w.add_image("picture", arete.full((3, 2, 4), 0.5), 2)
        w.add_image("gray", numpy.arange(6, dtype="u1").reshape(2, 3), 2, dataformats="HW")
        with pytest.raises(ValueError):
            w.add_image("bad", arete.ones(2, 2, 2, 2))
    text, picture, gray = [v for _, v in values(tmp_path)]
    assert text[1] == b"note/text_summary" and dict(fields(text[8]))[8] == "**über**".encode()
    image = dict(fields(picture[4]))
    assert (image[1], image[2], image[3]) == (2, 4, 3)
    png = dict(fields(gray[4]))[4]
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", png[16:24]) == (3, 2)
    assert zlib.decompress(png[41:41 + struct.unpack(">I", png[33:37])[0]]) == bytes([0, 0, 1, 2, 0, 3, 4, 5])


def test_flush_and_purge(tmp_path):
    w = SummaryWriter(tmp_path, purge_step=4, filename_suffix=".x")
    w.add_scalar("a", 1, 4)
    w.flush()
    assert len(events(tmp_path)) == 3 and os.listdir(tmp_path)[0].endswith(".x") and dict(fields(events(tmp_path)[1][7])) == {1: 1}
    w.close()


def test_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    SummaryWriter(comment="-try").close()
    assert os.listdir("runs")[0].endswith("-try")


def test_tensorboard_reads_them(tmp_path):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard is not installed")
    with SummaryWriter(tmp_path) as w:
        for i in range(5):
            w.add_scalar("loss", i / 2, i)
        w.add_scalar("precise", 0.1, 0, double_precision=True)
        w.add_histogram("weights", arete.arange(100) * 0.1, 1)
        w.add_text("note", "hello")
        w.add_image("picture", arete.rand(3, 4, 5))
    found = loader.EventAccumulator(str(tmp_path), size_guidance={"tensors": 0})
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(i, i / 2) for i in range(5)]
    assert found.Histograms("weights")[0].histogram_value.num == 100
    assert found.Images("picture")[0].width == 5
    assert "note/text_summary" in found.Tags()["tensors"]
