"""Reading parts of a file, and tensors over what was read."""
from __future__ import annotations

import os
import sys
from typing import Any, Optional, Sequence, Tuple, Union

from .. import _C, _operators


class FormatError(RuntimeError, ValueError):
    """A file that is damaged, truncated, or not of a format that can be read."""


def check(condition: bool, message: str) -> None:
    if not condition:
        raise FormatError(message)


class Source:
    """A file by path or an open one, of known size, read by position. `mapped` maps it instead (only by path)."""

    def __init__(self, f: Union[str, os.PathLike, Any], mapped: bool = False) -> None:
        self._map: Any = None
        self._data: Optional[memoryview] = None
        self._base = 0
        self._own = isinstance(f, (str, os.PathLike))
        if self._own:
            self.name = os.fspath(f)
            self._file = open(f, "rb")
            self.size = os.fstat(self._file.fileno()).st_size
            if mapped and self.size:
                import mmap

                self._map = mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_COPY)
            return
        self.name = str(getattr(f, "name", "the file"))
        if mapped:
            raise ValueError("mmap=True needs the path of a file, not an open one")
        self._file = f
        if hasattr(f, "seek") and (not hasattr(f, "seekable") or f.seekable()):
            self._base = f.tell()
            self.size = f.seek(0, os.SEEK_END) - self._base
        else:
            self._data = memoryview(f.read())
            self.size = len(self._data)

    def close(self) -> None:
        if self._own:
            self._file.close()

    def read(self, offset: int, count: int) -> bytearray:
        """The bytes of a range that must lie in the file."""
        check(0 <= offset and 0 <= count and offset + count <= self.size,
              f"{self.name}: bytes {offset} to {offset + count} are asked for, but the file has {self.size} (is it truncated?)")
        if self._data is not None:
            return bytearray(self._data[offset:offset + count])
        if self._map is not None:
            return bytearray(self._map[offset:offset + count])
        self._file.seek(self._base + offset)
        if not hasattr(self._file, "readinto"):
            result = bytearray(self._file.read(count))
            check(len(result) == count, f"{self.name}: the file became shorter while it was read")
            return result
        result = bytearray(count)
        view, done = memoryview(result), 0
        while done < count:
            step = self._file.readinto(view[done:])
            check(bool(step), f"{self.name}: the file became shorter while it was read")
            done += step
        return result

    def buffer(self, offset: int, count: int, alignment: int) -> Tuple[Any, int]:
        """A writable buffer and the position in it of a range of the file; the mapping itself where there is one."""
        if self._map is not None and offset % alignment == 0:
            check(0 <= offset and 0 <= count and offset + count <= self.size, f"{self.name}: the file is truncated")
            return self._map, offset
        return self.read(offset, count), 0


DTYPE_SIZES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}


def dtype_name(dtype: Any) -> str:
    """"float32" for arete.float32."""
    return str(dtype).rpartition(".")[2]


def dtype_named(name: str) -> Any:
    dtype = getattr(_C, name, None) if name in DTYPE_SIZES else None
    check(dtype is not None, f"the file has tensors of dtype {name}, which arete does not have")
    return dtype


def flat_tensor(buffer: Any, offset: int, count: int, dtype: Any) -> Any:
    """A tensor of one dimension over `count` elements of a writable buffer, which it keeps alive."""
    check(sys.byteorder == "little", "tensors are read on little-endian machines only")
    if count == 0:
        return _operators.empty((0,), dtype=dtype)
    return _C.frombuffer(buffer, dtype=dtype, count=count, offset=offset)


def raw_bytes(tensor: Any) -> Any:
    """The elements of a tensor in row-major order, as bytes or a view of them, which the caller must use while it holds it."""
    tensor = tensor.detach().cpu()
    if getattr(tensor, "is_conj", bool)():
        tensor = tensor.resolve_conj()
    if getattr(tensor, "is_neg", bool)():
        tensor = tensor.resolve_neg()
    tensor = tensor.contiguous()
    count = tensor.numel() * tensor.element_size()
    if count == 0:
        return b""
    return _Bytes(tensor, count).view


class _Bytes:
    """A memoryview over the memory of a tensor on the CPU. The view's ctypes array holds the tensor."""

    def __init__(self, tensor: Any, count: int) -> None:
        import ctypes

        array = (ctypes.c_ubyte * count).from_address(tensor.data_ptr())
        array.tensor = tensor  # type: ignore[attr-defined]
        self.view = memoryview(array).cast("B")


def checked_count(shape: Sequence[int], what: str) -> int:
    """Number of elements of a shape, all of whose products fit 63 bits."""
    check(len(shape) <= 64, f"{what}: {len(shape)} dimensions")
    count, product = 1, 1
    for n in shape:
        if type(n) is not int or not 0 <= n < 2 ** 63:
            raise FormatError(f"{what}: a size that is no int between 0 and 2**63")
        count *= n
        product *= max(n, 1)
    check(product < 2 ** 63, f"{what}: the shape {list(shape)} is too large")
    return count
