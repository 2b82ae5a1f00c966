"""Times statements."""
from __future__ import annotations

import enum
import timeit
from typing import Any, Callable, Dict, Optional, Tuple, Union, overload

from .... import _C

from . import common
from .valgrind_wrapper import timer_interface as valgrind
from .valgrind_wrapper.timer_interface import CallgrindStats

__all__ = ["Timer", "timer", "Language"]

_c = _C._benchmark


def timer() -> float:
    """Seconds, once the GPUs in use have done all their work."""
    return _c.now()


class Language(enum.Enum):
    PYTHON = 0
    CPP = 1


class Timer:
    """Times a statement, given as text, after `setup`; `globals` are the names that both see. Operators on the CPU use
    `num_threads` threads; GPUs are waited for before the clock is read. `label`, `sub_label`, `description` and `env` place the
    measurements in the tables of Compare."""

    def __init__(self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
                 globals: Optional[Dict[str, Any]] = None, label: Optional[str] = None, sub_label: Optional[str] = None,
                 description: Optional[str] = None, env: Optional[str] = None, num_threads: int = 1,
                 language: Union[Language, str] = Language.PYTHON):
        if not isinstance(stmt, str):
            raise ValueError("stmt must be a string: the code to time")
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError("Timer times Python statements; C++ is timed by benchmark::Timer of arete/profile/benchmark.h")
        if global_setup:
            raise ValueError("global_setup is for C++ only: use setup")
        if num_threads < 1:
            raise ValueError(f"num_threads must be positive, not {num_threads}")
        import arete  # the package as statements know it

        self._given = {"arete": arete, "torch": arete, **(globals or {})}
        names = valgrind.CopyIfCallgrind.unwrap_all(self._given)
        stmt, setup = common.dedented(stmt), common.dedented(setup)
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
                           callback: Optional[Callable[[int, float], Any]] = None) -> common.Measurement:
        """Times blocks until their spread (iqr) is below `threshold` of the median, or `max_run_time` is over."""
        return common.Measurement(*_c.adaptive_autorange(self._run, threshold, min_run_time, max_run_time, callback), self._task_spec)

    def device_time(self, device: Any = "cuda", repetitions: int = 20, flush_cache: bool = False) -> common.Measurement:
        """Each run by itself: on a GPU between two events on the current stream, on the CPU by the clock. `flush_cache`: what the
        caches hold is overwritten before each run, outside the time measured."""
        names = dict(self._globals)
        exec(compile(self._task_spec.setup, "<timeit-setup>", "exec"), names)
        code = compile(self._task_spec.stmt, "<timeit-src>", "exec")
        return common.Measurement(*_c.device_time(lambda: exec(code, names), _C.device(device), repetitions, flush_cache,
                                                  self._task_spec.num_threads), self._task_spec)

    @overload
    def collect_callgrind(self, number: int = 100, *, repeats: None = None, collect_baseline: bool = True,
                          retain_out_file: bool = False) -> CallgrindStats: ...
    @overload
    def collect_callgrind(self, number: int = 100, *, repeats: int, collect_baseline: bool = True,
                          retain_out_file: bool = False) -> Tuple[CallgrindStats, ...]: ...
    def collect_callgrind(self, number: int = 100, *, repeats: Optional[int] = None, collect_baseline: bool = True,
                          retain_out_file: bool = False) -> Any:
        """The instructions of `number` runs by function, counted by Valgrind in a process of its own after a few runs to warm up;
        `repeats` times, if given, as a tuple. Unlike times they hardly differ from one time to the next. `collect_baseline` counts an
        empty statement too; `retain_out_file` keeps Callgrind's text in `stmt_callgrind_out`. The globals that the code mentions are
        copied by pickle. Work of all threads is counted, work of GPUs is not."""
        if number < 1 or (repeats is not None and repeats < 1):
            raise ValueError(f"number and repeats must be positive, not {number if number < 1 else repeats}")
        self._run(1)  # what is wrong with the statement shows here at once, and as the exception that it is
        found = valgrind.collect_callgrind(self._task_spec, self._given, number, repeats or 1, collect_baseline, retain_out_file)
        return found[0] if repeats is None else found
