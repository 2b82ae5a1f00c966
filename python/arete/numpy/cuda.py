"""What CuPy has under cupy.cuda: streams, events, synchronisation, memory."""
from __future__ import annotations

from .. import cuda as _cuda

is_available = _cuda.is_available


class _DefaultStream:
    """The default stream; on a machine without a GPU there is nothing to wait for."""

    @staticmethod
    def synchronize():
        if is_available():
            _cuda.synchronize()

    @property
    def ptr(self):
        return _cuda.default_stream().cuda_stream if is_available() else 0


class _StreamType(type):
    @property
    def null(cls):
        return _DefaultStream()


class Stream(metaclass=_StreamType):
    """A new stream; `Stream.null` is the default one."""

    def __new__(cls, *args, **kwargs):
        return _cuda.Stream()


def Event(**options):
    """An event that keeps its time."""
    return _cuda.Event(enable_timing=True)


class Device:
    """A GPU; with `with`, the current one."""

    def __init__(self, device=0):
        self.id = device

    def __enter__(self):
        self._context = _cuda.device(self.id)
        self._context.__enter__()
        return self

    def __exit__(self, *error):
        self._context.__exit__(*error)

    def synchronize(self):
        _cuda.synchronize(self.id)

    def use(self):
        _cuda.set_device(self.id)
