"""NumPy's .npy arrays and .npz archives, without NumPy."""
from __future__ import annotations

import re
from typing import Any, Dict

from .source import DTYPE_SIZES, FormatError, Source, check, checked_count, dtype_named, flat_tensor
from .zipfile import ZipArchive

MAGIC = b"\x93NUMPY"
_KINDS = {
    "b1": "bool", "u1": "uint8", "i1": "int8", "u2": "uint16", "i2": "int16", "f2": "float16", "u4": "uint32", "i4": "int32",
    "f4": "float32", "u8": "uint64", "i8": "int64", "f8": "float64", "c8": "complex64", "c16": "complex128",
}
_FIELD = re.compile(r"\s*'(\w+)'\s*:\s*(?:'([^']*)'|(True|False)|\(([\d\s,L]*)\))\s*(?:,|$)")


def _header(text: str, what: str) -> Dict[str, Any]:
    text = text.strip()
    check(text.startswith("{") and text.endswith("}"), f"{what}: the header is no dict: {text[:80]!r}")
    body, at, fields = text[1:-1].strip(), 0, {}
    while at < len(body):
        match = _FIELD.match(body, at)
        if match is None:
            raise FormatError(f"{what}: the header has something else than a plain array at {body[at:at + 80]!r}")
        name, word, flag, numbers = match.groups()
        check(name not in fields, f"{what}: {name} occurs twice")
        if numbers is not None:
            parts = [p.strip().rstrip("L") for p in numbers.split(",") if p.strip()]
            check(all(p.isdigit() and len(p) < 20 for p in parts) and len(parts) <= 64, f"{what}: a bad shape ({numbers[:80]})")
            fields[name] = tuple(int(p) for p in parts)
        else:
            fields[name] = word if word is not None else flag == "True"
        at = match.end()
    check(set(fields) == {"descr", "fortran_order", "shape"}, f"{what}: the header has the fields {sorted(fields)}")
    check(type(fields["descr"]) is str and type(fields["fortran_order"]) is bool and type(fields["shape"]) is tuple,
          f"{what}: the header's fields are of wrong types")
    return fields


def _tensor(data: bytearray, what: str) -> Any:
    """The array in the bytes of an .npy file."""
    check(len(data) >= 10 and data[:6] == MAGIC, f"{what} is no .npy array")
    major = data[6]
    check(major in (1, 2, 3), f"{what}: version {major} of the .npy format")
    width = 2 if major == 1 else 4
    length = int.from_bytes(data[8:8 + width], "little")
    start = 8 + width + length
    check(length <= 1 << 20 and start <= len(data), f"{what}: a header of {length} bytes")
    fields = _header(data[8 + width:start].decode("utf-8" if major == 3 else "latin1", "replace"), what)
    descr = fields["descr"]
    check(descr[:1] in "<>|=" and descr[1:] in _KINDS, f"{what}: arrays of dtype {descr[:40]!r} are not read")
    name = _KINDS[descr[1:]]
    size, shape = DTYPE_SIZES[name], fields["shape"]
    count = checked_count(shape, what)
    check(count * size == len(data) - start, f"{what}: {len(data) - start} bytes for the shape {list(shape)} of {name}")
    body = data[start:]
    if descr[0] == ">" and size > 1:
        part = size // 2 if name.startswith("complex") else size
        swapped = bytearray(len(body))
        for i in range(part):
            swapped[i::part] = body[part - 1 - i::part]
        body = swapped
    flat = flat_tensor(body, 0, count, dtype_named(name))
    if fields["fortran_order"] and len(shape) > 1:
        return flat.reshape(shape[::-1]).permute(list(range(len(shape)))[::-1])
    return flat.reshape(shape)


def load_npy(source: Source) -> Any:
    return _tensor(source.read(0, source.size), source.name)


def load_npz(archive: ZipArchive) -> Dict[str, Any]:
    result = {}
    for name, entry in archive.entries.items():
        key = name[:-4] if name.endswith(".npy") else name
        result[key] = _tensor(archive.read(entry), f"{archive.source.name}: {name[:200]}")
    return result
