"""Streams and events of whichever device a program runs on: those of arete.cuda, and for the CPU, whose operators are done when they
return, ones with nothing to wait for."""
from __future__ import annotations

import time

from . import _C
from ._C import device as _device


def _is_cuda(device) -> bool:
    """For None: whether there is a GPU."""
    if device is None:
        return _C._cuda.is_available()
    return isinstance(device, int) or _device(device).type == "cuda"


class _OfDevice(type):
    """Calling Stream or Event themselves makes one of the device's own class."""

    def __call__(cls, *args, **kwargs):
        return cls._make(*args, **kwargs) if "_make" in cls.__dict__ else super().__call__(*args, **kwargs)


class Stream(metaclass=_OfDevice):
    """A queue of work on a device: arete.cuda.Stream on a GPU. Without a device: on the GPU if there is one.

    >>> stream = arete.Stream("cpu")
    >>> with stream:
    ...     x = arete.ones(2)
    >>> stream.query(), stream.device
    (True, device(type='cpu'))
    """

    _on_gpu: type  # the class for GPUs: _cuda_streams says which

    @classmethod
    def _make(cls, device=None, *args, **kwargs):
        if _is_cuda(device):
            return cls._on_gpu(device, *args, **kwargs)
        return type.__call__(cls, device, *args, **kwargs)

    def __init__(self, device=None, *, priority: int = 0):
        self.priority = priority

    device = _device("cpu")
    device_index = -1
    stream_id = 0

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def wait_event(self, event) -> None:
        pass

    def wait_stream(self, stream) -> None:
        pass

    def record_event(self, event=None):
        event = Event("cpu") if event is None else event
        event.record(self)
        return event

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __eq__(self, other):
        return isinstance(other, Stream) and self.device == other.device and self.stream_id == other.stream_id

    def __hash__(self):
        return hash((self.device, self.stream_id))

    def __repr__(self):
        return f"<arete.Stream device={self.device}>"


class Event(metaclass=_OfDevice):
    """A point in the work of a stream: arete.cuda.Event on a GPU. Without a device: on the GPU if there is one.

    >>> begin, end = arete.Event("cpu", enable_timing=True), arete.Event("cpu", enable_timing=True)
    >>> begin.record(); end.record()
    >>> begin.elapsed_time(end) >= 0
    True
    """

    _on_gpu: type  # the class for GPUs: _cuda_streams says which

    @classmethod
    def _make(cls, device=None, *args, **kwargs):
        if _is_cuda(device):
            return cls._on_gpu(*args, **kwargs)
        return type.__call__(cls, device, *args, **kwargs)

    def __init__(self, device=None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False):
        if interprocess:
            raise NotImplementedError("Event(): interprocess: work of the CPU is done when its operators return, and processes have other "
                                      "means to tell each other")
        self._timed = enable_timing
        self._time = None

    device = _device("cpu")
    event_id = 0

    def record(self, stream=None) -> None:
        self._time = time.perf_counter()

    def wait(self, stream=None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end_event) -> float:
        """Milliseconds from this event to the other."""
        if not isinstance(end_event, Event):
            raise TypeError(f"elapsed_time(): expected an Event, not {type(end_event).__name__}")
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return 1e3 * (end_event._time - self._time)
