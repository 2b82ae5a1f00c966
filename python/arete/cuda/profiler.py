"""Switches of the tools that record what a GPU does from outside, such as Nsight Systems."""
from __future__ import annotations

import contextlib
from typing import Iterator

from .. import _C, _cuda_streams

__all__ = ["init", "profile", "start", "stop"]


def _call(name: str) -> None:
    if not _C._cuda.is_available():
        raise RuntimeError(f"torch.cuda.profiler needs a GPU: {_C._cuda.unavailable_reason()}")
    code = getattr(_cuda_streams.driver(), name)()
    if code:
        raise RuntimeError(f"{name} gave error {code} of the CUDA driver")


def init(output_file: str, flags: object = None, output_mode: str = "key_value") -> None:
    """NotImplementedError: CUDA 12 has no such profiler any more, and start() needs none."""
    raise NotImplementedError("torch.cuda.profiler.init: CUDA has no profiler that writes such files any more")


def start() -> None:
    """What a tool from outside is to record begins; RuntimeError without a GPU."""
    _call("cuProfilerStart")


def stop() -> None:
    """It ends."""
    _call("cuProfilerStop")


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """What runs within is recorded by a tool from outside."""
    start()
    try:
        yield
    finally:
        stop()
