"""The safetensors container: a header in JSON, then the bytes of the tensors."""
from __future__ import annotations

import json
from typing import Any, BinaryIO, Dict, List, Tuple

from .source import DTYPE_SIZES, FormatError, Source, check, checked_count, dtype_name, dtype_named, flat_tensor, raw_bytes

CODES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "I16": "int16",
    "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32", "F32": "float32", "I64": "int64",
    "U64": "uint64", "F64": "float64", "C64": "complex64",
}
NAMES = {name: code for code, name in CODES.items()}
MAX_HEADER = 100_000_000


def parse_json(text: Any, what: str) -> Any:
    """JSON without duplicate keys, NaN, numbers of excessive length and excessive depth."""

    def pairs(items: List[Tuple[str, Any]]) -> dict:
        result = dict(items)
        check(len(result) == len(items), f"{what}: a key occurs twice")
        return result

    def integer(digits: str) -> int:
        check(len(digits) <= 20, f"{what}: a number of {len(digits)} digits")
        return int(digits)

    def constant(name: str) -> Any:
        raise FormatError(f"{what}: {name} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_int=integer, parse_constant=constant)
    except FormatError:
        raise
    except RecursionError:
        raise FormatError(f"{what}: nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{what}: {error}") from None


def is_safetensors(start: bytes, size: int) -> bool:
    return len(start) >= 9 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= size - 8


class SafetensorsFile:
    """The checked header of a file: `metadata` (texts by name) and `entries` (dtype name, shape, begin, end by name)."""

    def __init__(self, source: Source) -> None:
        self.source = source
        name = source.name
        length = int.from_bytes(source.read(0, 8), "little")
        check(length <= min(MAX_HEADER, source.size - 8), f"{name}: a safetensors header of {length} bytes")
        try:
            text = source.read(8, length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{name}: the safetensors header is not UTF-8: {error}") from None
        header = parse_json(text, f"{name}: safetensors header")
        check(isinstance(header, dict), f"{name}: the safetensors header is no object")
        metadata = header.pop("__metadata__", {})
        check(isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()),
              f"{name}: the metadata are not texts")
        self.metadata: Dict[str, str] = metadata
        self.start = 8 + length
        self.entries: Dict[str, Tuple[str, List[int], int, int]] = {k: self._entry(k, v) for k, v in header.items()}
        end = 0
        for _, _, first, last in sorted(self.entries.values(), key=lambda e: (e[2], e[3])):
            check(first == end, f"{name}: the data of the tensors have a hole or overlap at byte {first}")
            end = last
        check(end == source.size - self.start, f"{name}: the tensors have {end} bytes, the file {source.size - self.start}")

    def _entry(self, key: str, value: Any) -> Tuple[str, List[int], int, int]:
        what = f"{self.source.name}: tensor {key[:200]!r}"
        check(isinstance(value, dict) and {"dtype", "shape", "data_offsets"} <= set(value),
              f"{what}: dtype, shape or data_offsets is missing")
        code, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
        check(isinstance(code, str) and code in CODES, f"{what}: dtype {str(code)[:40]!r} is unknown")
        check(isinstance(shape, list), f"{what}: the shape is no list")
        check(isinstance(offsets, list) and len(offsets) == 2 and all(type(o) is int and o >= 0 for o in offsets),
              f"{what}: data_offsets are no two positions")
        count = checked_count(shape, what)
        begin, end = offsets
        check(end - begin == count * DTYPE_SIZES[CODES[code]], f"{what}: {end - begin} bytes for the shape {shape} of {code}")
        check(end <= self.source.size - self.start, f"{what}: ends behind the end of the file")
        return CODES[code], shape, begin, end

    def tensor(self, key: str, as_complex: bool = False) -> Any:
        """The tensor; `as_complex` reads F64 with a last size of 2 as complex128."""
        name, shape, begin, end = self.entries[key]
        if as_complex:
            check(name == "float64" and shape[-1:] == [2], f"{self.source.name}: {key[:100]!r} is not complex")
            name, shape = "complex128", shape[:-1]
        dtype, size = dtype_named(name), DTYPE_SIZES[name]
        buffer, offset = self.source.buffer(self.start + begin, end - begin, size)
        return flat_tensor(buffer, offset, (end - begin) // size, dtype).reshape(shape)


def write_safetensors(f: BinaryIO, tensors: Dict[str, Any], metadata: Dict[str, str]) -> None:
    """Writes contiguous tensors; those with larger elements come first, so that all are aligned."""
    header: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    position = 0
    for name in order:
        t = tensors[name]
        end = position + t.numel() * t.element_size()
        shape, dtype = [int(n) for n in t.shape], dtype_name(t.dtype)
        if dtype == "complex128":  # which the format does not have
            shape, dtype = [*shape, 2], "float64"
        header[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise ValueError(f"the names and values to save make a header of {len(text)} bytes; readers allow {MAX_HEADER}")
    f.write(len(text).to_bytes(8, "little"))
    f.write(text)
    for name in order:
        f.write(raw_bytes(tensors[name]))
