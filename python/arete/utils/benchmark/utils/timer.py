"""Times statements."""
from __future__ import annotations

import enum
import textwrap
import timeit
from typing import Any, Callable, Dict, Optional, Union

import arete
from arete import _C

from . import common

__all__ = ["Timer", "timer", "Language"]

_c = _C._benchmark


def timer() -> float:
    """Seconds, once the GPUs in use have done all their work."""
    return _c.now()


class Language(enum.Enum):
    PYTHON = 0
    CPP = 1


def _dedented(code: str) -> str:
    return textwrap.dedent(code).removeprefix("\n").rstrip()


class Timer:
    """Times a statement, given as text, after `setup`; `globals` are the names that both see. Operators on the CPU use
    `num_threads` threads; GPUs are waited for before the clock is read. `label`, `sub_label`, `description` and `env` place the
    measurements in the tables of Compare."""

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
                 globals: Optional[Dict[str, Any]] = None, label: Optional[str] = None, sub_label: Optional[str] = None,
                 description: Optional[str] = None, env: Optional[str] = None, num_threads: int = 1,
                 language: Union[Language, str] = Language.PYTHON):  # fmt: skip
        if not isinstance(stmt, str):
            raise ValueError("stmt must be a string: the code to time")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError("Timer times Python statements; C++ is timed by benchmark::Timer of arete/profile/benchmark.h")
        if global_setup:
            raise ValueError("global_setup is for C++ only: use setup")
        if num_threads < 1:
            raise ValueError(f"num_threads must be positive, not {num_threads}")
        names = {"arete": arete, "torch": arete, **(globals or {})}
        stmt, setup = _dedented(stmt), _dedented(setup)
        self._globals = names
        self._timer = timeit.Timer(stmt, setup, timer, names)
        self._task_spec = common.TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _run(self, number: int) -> float:
        with common.set_torch_threads(self._task_spec.num_threads):
            return self._timer.timeit(number)

    def timeit(self, number: int = 1000000) -> common.Measurement:
        """One time of `number` runs, after a hundredth of them to warm up."""
        return common.Measurement(*_c.timeit(self._run, number), self._task_spec)

    def blocked_autorange(self, callback: Optional[Callable[[int, float], Any]] = None, min_run_time: float = 0.2) -> common.Measurement:
        """Times blocks of runs for `min_run_time` seconds; blocks are just large enough that reading the clock costs nothing."""
        return common.Measurement(*_c.blocked_autorange(self._run, min_run_time, callback), self._task_spec)

    def adaptive_autorange(self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
                           callback: Optional[Callable[[int, float], Any]] = None) -> common.Measurement:  # fmt: skip
        """Times blocks until their spread (iqr) is below `threshold` of the median, or `max_run_time` is over."""
        return common.Measurement(*_c.adaptive_autorange(self._run, threshold, min_run_time, max_run_time, callback), self._task_spec)

    def device_time(self, device: Any = "cuda", repetitions: int = 20, flush_cache: bool = False) -> common.Measurement:
        """Each run by itself: on a GPU between two events on the current stream, on the CPU by the clock. `flush_cache`: what the
        caches hold is overwritten before each run, outside the time measured."""
        names = dict(self._globals)
        exec(compile(self._task_spec.setup, "<timeit-setup>", "exec"), names)
        code = compile(self._task_spec.stmt, "<timeit-src>", "exec")
        return common.Measurement(*_c.device_time(lambda: exec(code, names), arete.device(device), repetitions, flush_cache,
                                                  self._task_spec.num_threads), self._task_spec)  # fmt: skip
