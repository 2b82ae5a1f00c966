"""Streams and events of GPUs: what arete.cuda shows, and what Stream and Event of any device make on a GPU."""
from __future__ import annotations

import functools
import importlib

from . import _C, _streams
from ._C import device as _device

_c = _C._cuda


@functools.cache
def driver():
    """The CUDA driver's functions; OSError without it."""
    import ctypes

    return ctypes.CDLL("libcuda.so.1")


def device_of_memory(address) -> _device:
    """The GPU whose memory lies at an address; the current one where the driver knows none."""
    found = _c.current_device()
    if address and _c.device_count() > 1:
        import ctypes

        ordinal = ctypes.c_int(-1)
        of_device = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        failed = driver().cuPointerGetAttribute(ctypes.byref(ordinal), of_device, ctypes.c_uint64(address))
        if not failed and ordinal.value >= 0:
            found = ordinal.value
    return _device("cuda", found)


def _number(device) -> int:
    """The number of a device; -1 (the current one) for None."""
    if device is None:
        return -1
    if isinstance(device, int):
        return device
    device = _device(device)
    if device.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return -1 if device.index is None else device.index


class Event(_streams.Event):
    """A point in the work of a stream; times with enable_timing. `blocking` is a hint, and changes nothing. Other processes may have an
    `interprocess` one, too, which has no times: by ipc_handle(), or sent to them."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        if external:
            raise NotImplementedError("Event(): external: events are those of streams and of their own graphs")
        self._event = _c.Event(enable_timing, interprocess)
        if interprocess:  # tells multiprocessing how it is sent
            importlib.import_module(f"{__package__}.multiprocessing.reductions")

    @classmethod
    def from_ipc_handle(cls, device, handle: bytes):
        """The event of another process on this machine, which must keep its own, from what ipc_handle() gave there."""
        self = object.__new__(cls)
        self._event = _c.Event.from_ipc_handle(_number(device), handle)
        return self

    def ipc_handle(self) -> bytes:
        """By what other processes have the event. One that is not recorded yet is of the current device from then on. ValueError for one
        that was not made with `interprocess`."""
        return self._event.ipc_handle()

    @property
    def device(self):
        """Of the stream it was first recorded on; None before that."""
        number = self._event._device_index
        return None if number < 0 else _device("cuda", number)

    @property
    def cuda_event(self) -> int:
        """The CUevent as an integer; 0 before it is recorded."""
        return self._event.cuda_event

    event_id = cuda_event

    def record(self, stream=None):
        self._event.record(None if stream is None else stream._stream)

    def wait(self, stream=None):
        self._event.wait(None if stream is None else stream._stream)

    def query(self) -> bool:
        return self._event.query()

    def elapsed_time(self, end_event) -> float:
        """Milliseconds from this event to the other."""
        if not isinstance(end_event, Event):
            raise TypeError(f"elapsed_time(): expected an arete.cuda.Event, not {type(end_event).__name__}")
        return self._event.elapsed_time(end_event._event)

    def synchronize(self):
        self._event.synchronize()


class Stream(_streams.Stream):
    """A queue of work on a GPU. Lower priorities come first.

    `stream_id` (with `device_index`) makes another object for the stream that has this number."""

    def __init__(self, device=None, priority: int = 0, *, stream_id=None, device_index=None, device_type=None):
        if stream_id is None:
            self._stream = _c.Stream(priority, _number(device))
        else:
            self._stream = _c.Stream.from_native(stream_id, _number(device if device_index is None else device_index))

    @property
    def stream_id(self) -> int:
        """A number for the stream: the CUstream."""
        return self._stream.cuda_stream

    @classmethod
    def _of(cls, stream):
        self = object.__new__(cls)
        self._stream = stream
        return self

    @property
    def device(self):
        return _device("cuda", self._stream._device_index)

    @property
    def device_index(self) -> int:
        return self._stream._device_index

    @property
    def cuda_stream(self) -> int:
        """The CUstream as an integer."""
        return self._stream.cuda_stream

    @property
    def priority(self) -> int:
        return self._stream.priority

    def query(self) -> bool:
        return self._stream.query()

    def synchronize(self):
        self._stream.synchronize()

    def wait_event(self, event):
        self._stream.wait_event(event._event)

    def wait_stream(self, stream):
        self._stream.wait_stream(stream._stream)

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other):
        return isinstance(other, Stream) and self._stream == other._stream

    def __hash__(self):
        return hash(self._stream)

    def __repr__(self):
        return f"<arete.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"

    def __enter__(self):
        self._entered = stream(self)
        self._entered.__enter__()
        return self

    def __exit__(self, *error):
        self._entered.__exit__(*error)


class ExternalStream(Stream):
    """A stream of other code, by its CUstream."""

    def __init__(self, stream_ptr: int, device=None):
        self._stream = _c.Stream.from_native(stream_ptr, _number(device))


def current_stream(device=None) -> Stream:
    return Stream._of(_c.current_stream(_number(device)))


def default_stream(device=None) -> Stream:
    return Stream._of(_c.default_stream(_number(device)))


def set_stream(stream: Stream) -> None:
    """This thread's work goes to the stream from now on, and the stream's device is the current one."""
    if stream is not None:
        _c.set_stream(stream._stream)
        _c.set_device(stream.device_index)


class StreamContext:
    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is not None:
            self._previous = current_stream(self.stream.device)
            self._device = _c.current_device()
            set_stream(self.stream)
        return self

    def __exit__(self, *error):
        if self.stream is not None:
            set_stream(self._previous)
            _c.set_device(self._device)


def stream(stream) -> StreamContext:
    """Inside, this thread's work goes to the stream, and its device is the current one."""
    return StreamContext(stream)


_streams.Event._on_gpu, _streams.Stream._on_gpu = Event, Stream
for _shown in (Event, Stream, ExternalStream, StreamContext, current_stream, default_stream, set_stream, stream):
    _shown.__module__ = "arete.cuda"  # where they are shown
