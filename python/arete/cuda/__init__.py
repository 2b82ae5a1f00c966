"""GPUs: devices, streams, events, graphs, memory, under the names of torch.cuda. Works on machines without a GPU, too:
is_available() is False there and counters are 0."""
from __future__ import annotations

import contextlib

from .. import _C, _streams
from .._C import OutOfMemoryError, Tensor, device as _device  # noqa: F401

_c = _C._cuda


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return _c.is_available()


def unavailable_reason() -> str:
    """Why is_available() is False."""
    return _c.unavailable_reason()


def is_tf32_supported() -> bool:
    """Whether the GPU has units for TF32."""
    return is_available() and get_device_capability()[0] >= 8


def is_initialized() -> bool:
    """Whether a GPU is in use: CUDA starts when it is first used."""
    return _c.is_initialized()


def init() -> None:
    """Starts CUDA, which otherwise the first use does. RuntimeError that says why where that is not possible."""
    _c.init()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked while its parent used CUDA, so that it cannot."""
    return _c.is_in_bad_fork()


def ipc_collect() -> None:
    """Nothing to do: memory is not shared with other processes."""


def get_arch_list() -> list[str]:
    """The architectures that kernels are made for: those of the GPUs at hand, when they are first used."""
    return sorted({"sm_%d%d" % get_device_capability(i) for i in range(device_count())})


def device_count() -> int:
    return _c.device_count()


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


def current_device() -> int:
    return _c.current_device()


def set_device(device) -> None:
    number = _number(device)
    if number >= 0:
        _c.set_device(number)


class device(contextlib.ContextDecorator):  # noqa: A001
    """Makes a GPU the current one inside."""

    def __init__(self, device):
        self._to = _number(device)

    def __enter__(self):
        self._from = _c.current_device()
        if self._to >= 0:
            _c.set_device(self._to)

    def __exit__(self, *error):
        if self._to >= 0:
            _c.set_device(self._from)


class device_of(device):
    """Makes the GPU of a tensor the current one inside."""

    def __init__(self, obj):
        super().__init__(obj.device if obj.is_cuda else None)


class _Properties:
    def __init__(self, values):
        self.__dict__.update(values)

    def __repr__(self):
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count})")


def get_device_properties(device=None) -> _Properties:
    """name, major, minor, total_memory, multi_processor_count."""
    return _Properties(_c.properties(_number(device)))


def get_device_name(device=None) -> str:
    return get_device_properties(device).name


def get_device_capability(device=None) -> tuple[int, int]:
    p = get_device_properties(device)
    return p.major, p.minor


def can_device_access_peer(device, peer_device) -> bool:
    return _c.can_device_access_peer(_number(device), _number(peer_device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def synchronize(device=None) -> None:
    """Waits until all work of a GPU is done; raises what its kernels reported."""
    _c.synchronize(_number(device))


# ---- memory

from . import memory  # noqa: E402
from .memory import *  # noqa: E402, F403


# ---- streams and events


class Event(_streams.Event):
    """A point in the work of a stream; times with enable_timing."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        self._event = _c.Event(enable_timing)

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


# ---- graphs


class CUDAGraph:
    """Recorded work that replay() runs again with one call."""

    def __init__(self, keep_graph: bool = False):
        if keep_graph:
            raise NotImplementedError("CUDAGraph: keep_graph=True is not supported: the end of the capture makes the graph ready to "
                                      "run, and what was captured is not kept apart from that")
        self._graph = _c.Graph()
        self._pool = None
        self._capture = None

    def capture_begin(self, pool=None, capture_error_mode: str = "global"):
        """Records what the current stream is given until capture_end(); where that is the default stream, which a graph
        cannot record, a stream of its own becomes the current one. For `capture_error_mode` see graph."""
        now = current_stream()
        self._begin(pool, None if now == default_stream() else now, capture_error_mode)

    def _begin(self, pool, stream, mode):
        _check_capture_error_mode(mode)
        self._pool = _c.GraphPool(-1 if stream is None else stream.device_index) if pool is None else pool
        self._capture = _c.Capture(self._graph, self._pool, None if stream is None else stream._stream)

    def capture_end(self):
        if self._capture is None:
            raise RuntimeError("CUDAGraph.capture_end(): nothing is being recorded; call capture_begin() first")
        capture, self._capture = self._capture, None
        capture.end()

    def enable_debug_mode(self):
        """NotImplementedError: see debug_dump()."""
        self.debug_dump("")

    def debug_dump(self, debug_path: str):
        """NotImplementedError: a graph is not kept in a form that can be printed."""
        raise NotImplementedError("CUDAGraph: printing a graph is not supported; the profiler shows the kernels of its replays")

    def replay(self):
        self._graph.replay()

    def before_replay(self, function):
        """Calls `function()` before each replay, also of what is being recorded now: to write what the graph reads. What it raises
        keeps the graph from running."""
        (self._graph if self._capture is None else self._capture).before_replay(function)

    def reset(self):
        self._graph.reset()
        self._pool = None

    def pool(self):
        """The memory it was recorded with, for graphs that never run at the same time."""
        if self._pool is None:
            raise RuntimeError("CUDAGraph.pool(): nothing has been recorded yet")
        return self._pool


def graph_pool_handle():
    """Memory that graphs which never run at the same time may share."""
    return _c.GraphPool()


def _check_capture_error_mode(mode):
    if mode not in ("global", "thread_local", "relaxed"):
        raise ValueError(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {mode!r}")


class graph:
    """Records what runs inside: on `stream`, which is the current one meanwhile, or on a stream of its own.

    What would wait is refused by the library's own checks, whatever other threads do; so the driver records in its relaxed mode
    with each `capture_error_mode` ("global", "thread_local" or "relaxed"), and calls that other code makes are not refused.

    `graph.default_capture_stream` may be set to a stream that records where none is given."""

    default_capture_stream = None

    def __init__(self, cuda_graph: CUDAGraph, pool=None, stream=None, capture_error_mode: str = "global"):
        _check_capture_error_mode(capture_error_mode)
        if not (stream is None or isinstance(stream, Stream)):
            raise TypeError(f"graph: stream must be an arete.cuda.Stream, not {type(stream).__name__}")
        stream = self.default_capture_stream if stream is None else stream
        self._graph, self._pool, self._stream, self._mode = cuda_graph, pool, stream, capture_error_mode

    def __enter__(self):
        self._graph._begin(self._pool, self._stream, self._mode)

    def __exit__(self, kind, *error):
        if kind is None:
            self._graph.capture_end()
        else:
            self._graph._capture.abandon()
            self._graph._capture = None


def is_current_stream_capturing() -> bool:
    return is_available() and _c.is_current_stream_capturing()


# ---- random numbers: one stream of numbers for all devices


from .random import (  # noqa: E402, F401
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False, pool=None):
    """Callables that replay CUDA graphs of their forward and backward passes: see arete.cuda.graphs."""
    from .graphs import make_graphed_callables as make

    return make(callables, sample_args, num_warmup_iters, allow_unused_input, pool)


from . import amp, nvtx, random  # noqa: E402, F401
