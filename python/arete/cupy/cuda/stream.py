"""Streams and events. Without a GPU streams have nothing to wait for, and events tell the host's time."""
from __future__ import annotations

import contextlib
import time

from ... import cuda as _cuda

is_available = _cuda.is_available


class Entered:
    """What `with` makes current: _context() of it, as often as it is entered. `_contexts`: those that are open."""

    def __enter__(self):
        context = self._context()
        context.__enter__()
        self._contexts.append(context)
        return self

    def __exit__(self, *error):
        return self._contexts.pop().__exit__(*error)


class _StreamType(type):
    @property
    def null(cls):
        """The default stream."""
        return cls._around(_cuda.default_stream() if is_available() else None)

    ptds = null


class Stream(Entered, metaclass=_StreamType):
    """A new stream; `with stream:` and `stream.use()` make it the current one. It never waits for the null stream, whatever
    `non_blocking` says: an event that one records and the other waits for orders the two."""

    def __init__(self, null=False, non_blocking=False, ptds=False, priority=0):
        self._stream = None if not is_available() else _cuda.default_stream() if null or ptds else _cuda.Stream(priority=priority)
        self._contexts = []

    @classmethod
    def _around(cls, stream):
        self = Stream.__new__(Stream)
        self._stream, self._contexts = stream, []
        return self

    @property
    def ptr(self):
        return self._stream.cuda_stream if self._stream else 0

    @property
    def done(self):
        return self._stream.query() if self._stream else True

    def __eq__(self, other):
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self):
        return hash(self.ptr)

    def __repr__(self):
        return f"<Stream {self.ptr}>"

    def _context(self):
        return _cuda.stream(self._stream) if self._stream else contextlib.nullcontext()

    def use(self):
        if self._stream:
            _cuda.set_stream(self._stream)
        return self

    def synchronize(self):
        if self._stream:
            self._stream.synchronize()

    def record(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event):
        if self._stream:
            self._stream.wait_event(event._event)

    def launch_host_func(self, callback, arg):
        """Calls it on the host when what the stream has to do is done: this waits for that."""
        self.synchronize()
        callback(arg)

    def add_callback(self, callback, arg):
        """The same with (stream, status, arg)."""
        self.synchronize()
        callback(self, 0, arg)


class ExternalStream(Stream):
    """A stream of other code, by its address."""

    def __init__(self, ptr, device_id=-1):
        self._stream, self._contexts = _cuda.ExternalStream(ptr, device_id if device_id >= 0 else None), []


def get_current_stream(device_id=None):
    """The stream that work goes to."""
    return Stream._around(_cuda.current_stream(device_id) if is_available() else None)


class Event:
    """A moment in a stream, with its time unless `disable_timing`."""

    def __init__(self, block=False, disable_timing=False, interprocess=False):
        if interprocess:
            raise NotImplementedError("Event: events are of one process")
        self._event = _cuda.Event(enable_timing=not disable_timing, blocking=block) if is_available() else None
        self._timed, self._time = not disable_timing, None

    @property
    def done(self):
        return self._event.query() if self._event else True

    def record(self, stream=None):
        if self._event:
            self._event.record(stream._stream if stream is not None else _cuda.current_stream())
        else:
            self._time = time.perf_counter()

    def synchronize(self):
        if self._event:
            self._event.synchronize()


def get_elapsed_time(start_event, end_event):
    """Milliseconds between two events that were recorded."""
    if not (start_event._timed and end_event._timed):
        raise ValueError("get_elapsed_time(): the events were made with disable_timing")
    if start_event._event:
        return start_event._event.elapsed_time(end_event._event)
    if start_event._time is None or end_event._time is None:
        raise ValueError("get_elapsed_time(): both events must be recorded")
    return (end_event._time - start_event._time) * 1e3
