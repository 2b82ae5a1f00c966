"""TensorBoard's event files.

    with SummaryWriter("runs/first") as writer:
        writer.add_scalar("loss", loss.item(), step)

Each record is framed as TFRecord (length, data, and masked CRC-32C of both) and holds one `Event` in protobuf, written by hand.
"""
from __future__ import annotations

import math
import os
import socket
import struct
import threading
import time
import zlib
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

__all__ = ["SummaryWriter", "FileWriter"]


def _crc_table() -> List[int]:
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


_CRC_TABLE = _crc_table()


def _masked_crc(data: bytes) -> int:
    crc = 0xFFFFFFFF
    table = _CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    try:
        return _varint(field << 3 | 5) + struct.pack("<f", value)
    except OverflowError:
        return _varint(field << 3 | 5) + struct.pack("<f", math.copysign(math.inf, value))


def _bytes(field: int, value: Union[bytes, str]) -> bytes:
    raw = value.encode("utf-8", "replace") if isinstance(value, str) else value
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


def _doubles(field: int, values: Sequence[float]) -> bytes:
    return _bytes(field, struct.pack(f"<{len(values)}d", *values))


def _number(value: Any) -> float:
    """A Python float of a number, or of a tensor or array with one element."""
    return float(value.item() if hasattr(value, "item") else value)


def _array(values: Any) -> Any:
    """A NumPy array of a tensor or of anything that NumPy takes."""
    import numpy

    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(values.dtype) or "float8" in str(values.dtype):
            values = values.float()
        values = values.numpy()
    return numpy.asarray(values)


def _png(pixels: Any) -> bytes:
    """A PNG of an array of bytes (height, width, channels)."""
    height, width, channels = pixels.shape
    color = {1: 0, 2: 4, 3: 2, 4: 6}[channels]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[y].tobytes() for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class FileWriter:
    """One event file in a folder. Records go to disk when `flush_secs` have passed since they last did, at flush() and at close()."""

    _count = 0

    def __init__(self, log_dir: Union[str, os.PathLike], max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        self.log_dir = os.fspath(log_dir)
        os.makedirs(self.log_dir, exist_ok=True)
        self.flush_secs = flush_secs
        FileWriter._count += 1
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{FileWriter._count}{filename_suffix}"
        self.path = os.path.join(self.log_dir, name)
        self._file = open(self.path, "ab")
        self._lock = threading.Lock()
        self._flushed = time.monotonic()
        self._write(_double(1, time.time()) + _bytes(3, "brain.Event:2"))
        self.flush()

    def get_logdir(self) -> str:
        return self.log_dir

    def add_value(self, value: bytes, step: Optional[int], walltime: Optional[float]) -> None:
        """Writes one encoded Summary.Value."""
        event = _double(1, time.time() if walltime is None else walltime)
        if step is not None:
            event += _int(2, int(step))
        self._write(event + _bytes(5, _bytes(1, value)))

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        record = length + struct.pack("<I", _masked_crc(length)) + event + struct.pack("<I", _masked_crc(event))
        with self._lock:
            if self._file.closed:
                raise ValueError(f"{self.path} is closed")
            self._file.write(record)
            due = time.monotonic() - self._flushed > self.flush_secs
        if due:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.flush()
                self._flushed = time.monotonic()

    def close(self) -> None:
        with self._lock:
            self._file.close()


class SummaryWriter:
    """Writes scalars, histograms, texts and images for TensorBoard into `log_dir` (by default runs/DATE_HOST + `comment`).

    Values may be tensors on any device; reading one from a GPU waits for it. With `purge_step`, TensorBoard forgets what earlier
    files say about this and later steps. `max_queue` means nothing.
    """

    def __init__(self, log_dir: Union[None, str, os.PathLike] = None, comment: str = "", purge_step: Optional[int] = None,
                 max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "") -> None:
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S_") + socket.gethostname() + comment)
        self.log_dir = os.fspath(log_dir)
        self.flush_secs = flush_secs
        self.filename_suffix = filename_suffix
        self.file_writer = FileWriter(self.log_dir, max_queue, flush_secs, filename_suffix)
        self.all_writers: Dict[str, FileWriter] = {self.log_dir: self.file_writer}
        if purge_step is not None:
            # A SessionLog that says START.
            self.file_writer._write(_double(1, time.time()) + _int(2, purge_step) + _bytes(7, _int(1, 1)))

    def get_logdir(self) -> str:
        return self.log_dir

    def add_scalar(self, tag: str, scalar_value: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        """One number of a curve. It is kept as float32, unless `new_style` or `double_precision` write it as a tensor."""
        number = _number(scalar_value)
        if new_style or double_precision:
            data = _int(1, 2) + _doubles(6, [number]) if double_precision else _int(1, 1) + _bytes(5, struct.pack("<f", number))
            value = _bytes(1, tag) + _bytes(8, data) + _bytes(9, _bytes(1, _bytes(1, "scalars")) + _int(4, 1))
        else:
            value = _bytes(1, tag) + _float(2, number)
        self.file_writer.add_value(value, global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: Dict[str, Any], global_step: Optional[int] = None,
                    walltime: Optional[float] = None) -> None:
        """Several curves in one picture: each has an event file in a folder of its own beside this writer's."""
        walltime = time.time() if walltime is None else walltime
        for tag, scalar in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, 10, self.flush_secs, self.filename_suffix)
            self.all_writers[folder].add_value(_bytes(1, main_tag) + _float(2, _number(scalar)), global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Optional[int] = None, bins: Union[str, int, Sequence[float]] = "tensorflow",
                      walltime: Optional[float] = None, max_bins: Optional[int] = None) -> None:
        """The distribution of the elements of a tensor. `bins`: "tensorflow" (limits that grow by 10%), a name or number for
        numpy.histogram, or the limits themselves. Without elements, or if none is finite, a ValueError."""
        import numpy

        data = _array(values).reshape(-1).astype(numpy.float64)
        data = data[numpy.isfinite(data)]
        if not data.size:
            raise ValueError(f"histogram {tag!r} of a tensor without finite elements")
        edges = _growing_limits() if isinstance(bins, str) and bins == "tensorflow" else bins
        counts, limits = numpy.histogram(data, bins=edges)
        if max_bins is not None and len(counts) > max_bins:
            group = -(-len(counts) // max_bins)
            counts = numpy.add.reduceat(counts, range(0, len(counts), group))
            limits = numpy.append(limits[:-1][::group], limits[-1])
        used = numpy.nonzero(counts)[0]
        first, last = (int(used[0]), int(used[-1])) if used.size else (0, 0)
        # TensorBoard wants an empty bucket to the left, so that the first one has a left limit.
        rights = [float(limits[first])] + [float(x) for x in limits[first + 1:last + 2]]
        buckets = [0.0] + [float(n) for n in counts[first:last + 1]]
        self.add_histogram_raw(tag, data.min(), data.max(), data.size, data.sum(), float((data * data).sum()), rights, buckets, global_step,
                               walltime)

    def add_histogram_raw(self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Sequence[float],
                          bucket_counts: Sequence[float], global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A histogram that was counted elsewhere: the right limits of the buckets and the counts in them."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError(f"{len(bucket_limits)} limits for {len(bucket_counts)} counts")
        histogram = b"".join(_double(i + 1, float(x)) for i, x in enumerate((min, max, num, sum, sum_squares)))
        histogram += _doubles(6, [float(x) for x in bucket_limits]) + _doubles(7, [float(x) for x in bucket_counts])
        self.file_writer.add_value(_bytes(1, tag) + _bytes(5, histogram), global_step, walltime)

    def add_text(self, tag: str, text_string: str, global_step: Optional[int] = None, walltime: Optional[float] = None) -> None:
        """A text, which TensorBoard shows as Markdown."""
        tensor = _int(1, 7) + _bytes(2, _bytes(2, _int(1, 1))) + _bytes(8, text_string)
        value = _bytes(1, tag + "/text_summary") + _bytes(8, tensor) + _bytes(9, _bytes(1, _bytes(1, "text")))
        self.file_writer.add_value(value, global_step, walltime)

    def add_image(self, tag: str, img_tensor: Any, global_step: Optional[int] = None, walltime: Optional[float] = None,
                  dataformats: str = "CHW") -> None:
        """An image with 1, 3 or 4 channels: bytes, or floating values between 0 and 1. `dataformats` orders C, H and W (or is "HW")."""
        import numpy

        pixels = _array(img_tensor)
        order = dataformats.upper()
        if sorted(order) not in (sorted("CHW"), sorted("HW")) or len(order) != pixels.ndim:
            raise ValueError(f"an image of shape {pixels.shape} with dataformats={dataformats!r}")
        pixels = pixels[..., None] if order == "HW" else pixels.transpose([order.index(axis) for axis in "HWC"])
        if order == "WH":
            pixels = pixels[..., None].transpose(1, 0, 2)
        if pixels.dtype != numpy.uint8:
            pixels = numpy.clip(pixels.astype(numpy.float64) * 255, 0, 255).astype(numpy.uint8)
        if pixels.shape[2] not in (1, 3, 4):
            raise ValueError(f"an image with {pixels.shape[2]} channels")
        image = _int(1, pixels.shape[0]) + _int(2, pixels.shape[1]) + _int(3, pixels.shape[2])
        image += _bytes(4, _png(numpy.ascontiguousarray(pixels)))
        self.file_writer.add_value(_bytes(1, tag) + _bytes(4, image), global_step, walltime)

    def flush(self) -> None:
        """Gives all that was written to the operating system."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self.all_writers.values():
            writer.close()

    def __enter__(self) -> "SummaryWriter":
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()


_LIMITS: Tuple[float, ...] = ()


def _growing_limits() -> Tuple[float, ...]:
    """Limits that grow by 10% from 1e-12 to 1e20, the same below zero, and zero between them."""
    global _LIMITS
    if not _LIMITS:
        positive, value = [], 1e-12
        while value < 1e20:
            positive.append(value)
            value *= 1.1
        big = struct.unpack("<d", b"\xff" * 6 + b"\xef\x7f")[0]
        _LIMITS = (-big, *(-x for x in reversed(positive)), 0.0, *positive, big)
    return _LIMITS
