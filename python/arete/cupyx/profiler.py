"""How long calls take, as cupyx.profiler measures it."""
from __future__ import annotations

import math
import statistics
import time

from .. import cuda as _cuda, numpy as _np
from ..cuda import nvtx as _nvtx

__all__ = ["benchmark", "time_range"]


class _Result:
    """Seconds of each call: `cpu_times` until it came back, `gpu_times` until the GPU was done, a row for each GPU (none without one)."""

    def __init__(self, name, cpu_times, gpu_times):
        self.name, self.cpu_times, self.gpu_times = name, _np.asarray(cpu_times, device="cpu"), _np.asarray(gpu_times, device="cpu")
        self._rows = [("CPU", cpu_times), *((f"GPU-{i}", row) for i, row in enumerate(gpu_times))]

    def to_str(self, show_gpu=False):
        r = f"{self.name:<20s}:"
        for what, times in self._rows if show_gpu else self._rows[:1]:
            us = [t * 1e6 for t in times]
            spread = statistics.pstdev(us) if len(us) > 1 else 0.0
            r += f"    {what}: {statistics.fmean(us):9.3f} us   +/- {spread:6.3f} (min: {min(us):9.3f} / max: {max(us):9.3f}) us"
        return r

    def __str__(self):
        return self.to_str(show_gpu=True)

    __repr__ = __str__


def benchmark(func, args=(), kwargs=None, n_repeat=10000, *, name=None, n_warmup=10, max_duration=math.inf, devices=None):
    """Calls func(*args, **kwargs) again and again, n_repeat times or so many seconds long. Each call waits for the one before."""
    kwargs, gpu = kwargs or {}, _cuda.is_available()
    if devices is not None and tuple(int(d) for d in devices) != (_cuda.current_device(),):
        raise NotImplementedError("benchmark(): devices other than the current one")
    for _ in range(n_warmup):
        func(*args, **kwargs)
    cpu_times, gpu_times, began = [], [], time.perf_counter()
    for _ in range(n_repeat):
        if gpu:
            first, last = _cuda.Event(enable_timing=True), _cuda.Event(enable_timing=True)
            _cuda.synchronize()
            first.record()
        start = time.perf_counter()
        func(*args, **kwargs)
        cpu_times.append(time.perf_counter() - start)
        if gpu:
            last.record()
            last.synchronize()
            gpu_times.append(first.elapsed_time(last) / 1e3)
        if time.perf_counter() - began > max_duration:
            break
    return _Result(name or getattr(func, "__name__", "call"), cpu_times, [gpu_times] if gpu else [])


class time_range:
    """A range in the pictures of profilers, as a context or around a function."""

    def __init__(self, message, color_id=None, argb_color=None, sync=False):
        self.message, self.sync = message, sync

    def __enter__(self):
        _nvtx.range_push(self.message)
        return self

    def __exit__(self, *error):
        if self.sync and _cuda.is_available():
            _cuda.synchronize()
        _nvtx.range_pop()

    def __call__(self, function):
        import functools

        @functools.wraps(function)
        def call(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return call
