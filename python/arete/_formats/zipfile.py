"""Reading of zip archives, strictly: one disk, no overlaps, no duplicates, stored or (on request) deflated entries."""
from __future__ import annotations

import struct
from typing import Dict, NamedTuple

from .source import Source, check


class Entry(NamedTuple):
    name: str
    method: int
    crc: int
    packed: int
    size: int
    start: int


def _end_record(source: Source) -> tuple:
    """(number of entries, size and offset of the directory, where what follows the entries begins)."""
    name = source.name
    check(source.size >= 22, f"{name}: a zip archive of {source.size} bytes")
    tail_size = min(source.size, 22 + 65535)
    tail_start = source.size - tail_size
    tail = bytes(source.read(tail_start, tail_size))
    at = tail.rfind(b"PK\5\6")
    while at >= 0:
        if at + 22 <= len(tail) and at + 22 + int.from_bytes(tail[at + 20:at + 22], "little") == len(tail):
            break
        at = tail.rfind(b"PK\5\6", 0, at)
    check(at >= 0, f"{name}: the end of the zip archive is missing: the file is truncated or damaged")
    disk, start_disk, here, count, size, offset, _ = struct.unpack_from("<4xHHHHIIH", tail, at)
    end = tail_start + at
    if at >= 20 and tail[at - 20:at - 16] == b"PK\6\7":
        _, record, disks = struct.unpack_from("<4xIQI", tail, at - 20)
        check(disks <= 1 and record + 56 <= end, f"{name}: a bad zip64 record")
        big = bytes(source.read(record, 56))
        check(big[:4] == b"PK\6\6", f"{name}: a bad zip64 record")
        disk, start_disk, here, count, size, offset = struct.unpack_from("<16xIIQQQQ", big, 0)
        end = record
    check(disk == 0 and start_disk == 0 and here == count, f"{name}: a zip archive in several parts")
    check(offset + size <= end, f"{name}: the zip directory lies outside of the file")
    check(count * 46 <= size, f"{name}: a zip directory of {count} entries in {size} bytes")
    return count, size, offset


def _zip64(extra: bytes, fields: list, name: str) -> list:
    """Replaces the fields that are full by the values in the zip64 extra field."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 1:
            block, used = extra[at + 4:at + 4 + length], 0
            for i, value in enumerate(fields):
                if value == 0xFFFFFFFF:
                    check(used + 8 <= len(block), f"{name}: a short zip64 field")
                    fields[i] = struct.unpack_from("<Q", block, used)[0]
                    used += 8
            return fields
        at += 4 + length
    check(0xFFFFFFFF not in fields, f"{name}: a zip64 field is missing")
    return fields


class ZipArchive:
    """`entries` by name, checked; `read(entry)` gives the bytes."""

    def __init__(self, source: Source) -> None:
        self.source = source
        count, size, offset = _end_record(source)
        directory = bytes(source.read(offset, size))
        self.entries: Dict[str, Entry] = {}
        spans = []
        at = 0
        for _ in range(count):
            check(at + 46 <= size and directory[at:at + 4] == b"PK\1\2", f"{source.name}: the zip directory is damaged")
            flags, method, crc, packed, unpacked, n, m, k, header = struct.unpack_from("<8xHH4xIIIHHH8xI", directory, at)
            raw = directory[at + 46:at + 46 + n]
            check(at + 46 + n + m + k <= size, f"{source.name}: the zip directory is damaged")
            unpacked, packed, header = _zip64(directory[at + 46 + n:at + 46 + n + m], [unpacked, packed, header], source.name)
            at += 46 + n + m + k
            name = raw.decode("utf-8", "replace")
            what = f"{source.name}: zip entry {name[:200]!r}"
            check(not flags & 0x2041, f"{what} is encrypted")
            check(method in (0, 8) and (method == 8 or packed == unpacked), f"{what}: unknown compression {method}")
            check(name not in self.entries, f"{what} occurs twice")
            check(header + 30 <= offset, f"{what} lies outside of the file")
            local = bytes(source.read(header, 30))
            n2, m2 = struct.unpack_from("<26xHH", local)
            start = header + 30 + n2 + m2
            check(local[:4] == b"PK\3\4" and start + packed <= offset, f"{what} lies outside of the file")
            check(n2 == n and bytes(source.read(header + 30, n2)) == raw, f"{what} has another name at its data")
            self.entries[name] = Entry(name, method, crc, packed, unpacked, start)
            spans.append((header, start + packed))
        spans.sort()
        for (_, end), (begin, _) in zip(spans, spans[1:]):
            check(end <= begin, f"{source.name}: entries of the zip archive overlap")

    def read(self, entry: Entry, verify: bool = True) -> bytearray:
        """The content, unpacked. `verify` checks its sum."""
        import zlib

        data = self.source.read(entry.start, entry.packed)
        what = f"{self.source.name}: zip entry {entry.name[:200]!r}"
        if entry.method == 8:
            check(entry.size <= entry.packed * 1040 + 64, f"{what}: {entry.size} bytes out of {entry.packed}")
            unpack = zlib.decompressobj(-15)
            try:
                data = bytearray(unpack.decompress(data, entry.size + 1))
            except zlib.error as error:
                check(False, f"{what}: {error}")
            check(len(data) == entry.size and unpack.eof, f"{what} is not of the size that the archive tells")
        check(not verify or zlib.crc32(data) == entry.crc, f"{what}: the checksum is wrong")
        return data
