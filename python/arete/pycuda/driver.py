"""Memory and copies, as pycuda.driver has them."""
from __future__ import annotations

import weakref
from typing import Any

import numpy

from .. import _C, _operators as _t, cuda as _cuda, numpy as _np
from .._kernels import In, InOut, Out
from .._kernels._raw import MemoryPointer
from ..cupy import cuda as _cupy

__all__ = ["Context", "Device", "DeviceAllocation", "Event", "In", "InOut", "LogicError", "Out", "Stream", "from_device",
           "from_device_like", "init", "mem_alloc", "mem_alloc_like", "mem_get_info", "memcpy_dtod", "memcpy_dtoh", "memcpy_dtoh_async",
           "memcpy_htod", "memcpy_htod_async", "memset_d8", "memset_d16", "memset_d32", "pagelocked_empty", "to_device"]

LogicError = ValueError
_allocations: weakref.WeakSet[DeviceAllocation] = weakref.WeakSet()


class Stream(_cupy.Stream):
    """A new stream; without a GPU, what is done at once."""

    handle = property(lambda self: self.ptr)

    def __init__(self, flags: int = 0):
        super().__init__()

    def is_done(self) -> bool:
        return self.done

    def wait_for_event(self, event: Event) -> None:
        self.wait_event(event)


class Event(_cupy.Event):
    """A moment in a stream."""

    def __init__(self, flags: int = 0):
        super().__init__()

    def record(self, stream=None) -> Event:
        super().record(stream)
        return self

    def synchronize(self) -> Event:
        super().synchronize()
        return self

    def query(self) -> bool:
        return self.done

    def time_since(self, event: Event) -> float:
        """Milliseconds from another event to this one."""
        return _cupy.get_elapsed_time(event, self)

    def time_till(self, event: Event) -> float:
        """Milliseconds from this event to another."""
        return _cupy.get_elapsed_time(self, event)


def init(flags: int = 0) -> None:
    """Does nothing: a device is ready when it is first used."""


class Device:
    """A GPU by its number."""

    def __init__(self, number: int):
        self.number = number

    @staticmethod
    def count() -> int:
        return _cuda.device_count()

    def name(self) -> str:
        return _cuda.get_device_name(self.number)

    def compute_capability(self) -> tuple[int, int]:
        return _cuda.get_device_capability(self.number)

    def total_memory(self) -> int:
        return _cuda.get_device_properties(self.number).total_memory

    def make_context(self, flags: int = 0) -> type[Context]:
        _cuda.set_device(self.number)
        return Context


class Context:
    """The current GPU's; there is one, which stays."""

    @staticmethod
    def synchronize() -> None:
        if _cuda.is_available():
            _cuda.synchronize()

    @staticmethod
    def pop() -> None:
        """Does nothing: contexts are no stack here."""

    push = detach = pop

    @staticmethod
    def get_device() -> Device:
        return Device(_cuda.current_device())


def _device() -> Any:
    return _C.device("cuda", _cuda.current_device()) if _cuda.is_available() else _C.device("cpu")


class DeviceAllocation(MemoryPointer):
    """Memory of a device; int() is its address, and a kernel's pointers of any type may be it."""

    def __init__(self, tensor):
        super().__init__(tensor)
        _allocations.add(self)

    def free(self) -> None:
        """Gives the memory back; nothing may use it afterwards."""
        self._bytes = _t.empty(0, dtype=_C.uint8)

    def as_buffer(self, size: int, offset: int = 0) -> memoryview:
        """The memory as a buffer, where it is the host's."""
        return memoryview(self._bytes.numpy())[offset:offset + size]


def mem_alloc(size: int) -> DeviceAllocation:
    """So many bytes, not set."""
    if size <= 0:
        raise LogicError("cuMemAlloc failed: invalid argument")
    return DeviceAllocation(_t.empty(int(size), dtype=_C.uint8, device=_device()))


def mem_alloc_like(array) -> DeviceAllocation:
    """As many bytes as an array has."""
    return mem_alloc(array.nbytes)


def mem_get_info() -> tuple[int, int]:
    """Free and total bytes of the GPU."""
    return _cuda.mem_get_info()


def _bytes_at(place, size: int) -> Any:
    """A tensor of the bytes from a place on: of an allocation, an array, or an address in an allocation that is alive."""
    if isinstance(place, MemoryPointer):
        found = place.memory
    elif isinstance(place, _np.ndarray):
        if not place.flags.c_contiguous:
            raise ValueError("copies take memory that is contiguous")
        found = place._tensor.view(-1).view(_C.uint8)
    else:
        address = int(place)
        owner = next((a for a in _allocations if a.ptr <= address < a.ptr + a.size), None)
        if owner is None:
            raise LogicError(f"0x{address:x} is in no memory that mem_alloc gave")
        found = owner._bytes[address - owner.ptr:]
    if size > found.numel():
        raise LogicError(f"{size} bytes are copied to or from a memory of {found.numel()}")
    return found[:size]


def _host_bytes(array, writable=False):
    view = numpy.asarray(array) if not isinstance(array, (bytes, bytearray, memoryview)) else numpy.frombuffer(array, numpy.uint8)
    if not view.flags.c_contiguous or writable and not view.flags.writeable:
        raise ValueError("copies take memory of the host that is contiguous" + ", and can be written" * writable)
    return view.reshape(-1).view(numpy.uint8)


def memcpy_htod(dest, src) -> None:
    """Copies a NumPy array, or anything with a buffer, to a device."""
    host = _host_bytes(src)
    _bytes_at(dest, host.size).copy_(_t.from_numpy(host.copy() if not host.flags.writeable else host))


def memcpy_dtoh(dest, src) -> None:
    """Copies into a NumPy array as many bytes as it has."""
    host = _host_bytes(dest, writable=True)
    host[...] = _bytes_at(src, host.size).cpu().numpy()


def memcpy_dtod(dest, src, size: int) -> None:
    """Copies bytes from one memory of a device to another."""
    _bytes_at(dest, size).copy_(_bytes_at(src, size))


def memcpy_htod_async(dest, src, stream=None) -> None:
    """As memcpy_htod, in the order of a stream."""
    with _on(stream):
        memcpy_htod(dest, src)


def memcpy_dtoh_async(dest, src, stream=None) -> None:
    """As memcpy_dtoh, in the order of a stream; it is done when this comes back."""
    with _on(stream):
        memcpy_dtoh(dest, src)


def _on(stream):
    from .._kernels._launch import on_stream

    return on_stream(stream)


def _filled(dest, value, count, dtype):
    _bytes_at(dest, count * dtype.itemsize).view(dtype).fill_(numpy.array(value, "u4").astype(f"i{dtype.itemsize}").item())


def memset_d8(dest, data: int, count: int) -> None:
    """Sets bytes."""
    _bytes_at(dest, count).fill_(data & 255)


def memset_d16(dest, data: int, count: int) -> None:
    """Sets pairs of bytes."""
    _filled(dest, data, count, _C.int16)


def memset_d32(dest, data: int, count: int) -> None:
    """Sets words of four bytes."""
    _filled(dest, data, count, _C.int32)


def to_device(array) -> DeviceAllocation:
    """New memory with an array's bytes."""
    a = numpy.ascontiguousarray(array)
    memory = mem_alloc(a.nbytes)
    memcpy_htod(memory, a)
    return memory


def from_device(memory, shape, dtype, order: str = "C"):
    """A NumPy array of a device's bytes."""
    r = numpy.empty(shape, dtype, order)
    flat = numpy.empty(r.size, dtype)
    memcpy_dtoh(flat, memory)
    r[...] = flat.reshape(r.shape, order=order)
    return r


def from_device_like(memory, array):
    """The same in the shape and dtype of another."""
    return from_device(memory, array.shape, array.dtype)


def pagelocked_empty(shape, dtype, order: str = "C", mem_flags: int = 0):
    """A NumPy array, in pinned memory where there is a GPU."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    count, d = int(numpy.prod(shape)), numpy.dtype(dtype)
    t = _t.empty(count * d.itemsize, dtype=_C.uint8, pin_memory=_cuda.is_available())
    return t.numpy().view(d).reshape(shape, order=order)
