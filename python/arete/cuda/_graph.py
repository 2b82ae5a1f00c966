"""CUDA graphs."""
from __future__ import annotations

from .. import _C
from .._cuda_streams import Stream, current_stream, default_stream
from ._pool import MemPool

_c = _C._cuda


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
        device = -1 if stream is None else stream.device_index
        self._pool = _c.MemPool(device) if pool is None else _pool_of(pool, device)
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
    return _c.MemPool()


def _pool_of(pool, device):
    """What a capture takes: of a MemPool, or the id of one, the part on a device."""
    if isinstance(pool, tuple):
        pool = MemPool._find(pool)
    return pool._on(device) if isinstance(pool, MemPool) else pool


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


CUDAGraph.__module__ = graph.__module__ = graph_pool_handle.__module__ = "arete.cuda"  # where they are shown
