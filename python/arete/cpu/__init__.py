"""The CPU under the names that arete.cuda has for GPUs, for programs that ask whichever device they run on."""
from __future__ import annotations

from .. import _streams
from .._streams import Event  # noqa: F401
from . import amp  # noqa: F401


def is_available() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device) -> None:
    """There is one only."""


def synchronize(device=None) -> None:
    """Nothing to wait for: operators on the CPU return when they are done."""


def is_initialized() -> bool:
    return True


class Stream(_streams.Stream):
    """There is one queue of work, and what it is given is done at once."""

    def __init__(self, priority: int = -1):
        super().__init__("cpu", priority=priority)


class StreamContext:
    """Nothing changes inside."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


_stream = Stream()


def current_stream(device=None) -> Stream:
    return _stream


def stream(stream) -> StreamContext:
    return StreamContext(stream)
