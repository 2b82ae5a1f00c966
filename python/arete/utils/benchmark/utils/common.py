"""Measurements, and how their numbers are written."""
from __future__ import annotations

import contextlib
import dataclasses
import textwrap
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from .... import _C

__all__ = ["TaskSpec", "Measurement", "select_unit", "unit_to_english", "trim_sigfig", "ordered_unique", "set_torch_threads"]

_c = _C._benchmark
TaskSpec = _c.TaskSpec
# For dataclasses.replace() and asdict(), which look fields up by name.
TaskSpec.__dataclass_fields__ = dataclasses.make_dataclass(
    "TaskSpec", ["stmt", "setup", "global_setup", "label", "sub_label", "description", "env", "num_threads"]).__dataclass_fields__
_OF_THE_TASK = ("stmt", "setup", "global_setup", "label", "sub_label", "description", "env", "num_threads", "title")


class Measurement(_c.Measurement):
    """The times of repeated runs of one task: `median`, `mean`, `iqr` and `times` in seconds for one run."""

    def __init__(self, number_per_run: int, raw_times: List[float], task_spec: TaskSpec, metadata: Optional[Dict[Any, Any]] = None):
        super().__init__(number_per_run, raw_times, task_spec)
        self.metadata = metadata

    def __getattr__(self, name: str) -> Any:
        if name in _OF_THE_TASK:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute {name!r}")

    def __reduce__(self) -> tuple:
        return Measurement, (self.number_per_run, self.raw_times, self.task_spec, self.metadata)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Measurement) and self.__reduce__()[1] == other.__reduce__()[1]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{object.__repr__(self)}\n{self._text()}"

    @staticmethod
    def merge(measurements: Iterable["Measurement"]) -> List["Measurement"]:
        """One measurement for each task, with the times of all that are given."""
        return [Measurement(m.number_per_run, m.raw_times, m.task_spec) for m in _c.merge(list(measurements))]


Measurement.__dataclass_fields__ = dataclasses.make_dataclass(
    "Measurement", ["number_per_run", "raw_times", "task_spec", "metadata"]).__dataclass_fields__


def select_unit(t: float) -> Tuple[str, float]:
    """The unit in which a time is easy to read, and its seconds."""
    return _c.select_unit(t)


def unit_to_english(u: str) -> str:
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x: float, n: int) -> float:
    """`x` rounded to `n` significant figures."""
    return _c.trim_sigfig(x, n)


def dedented(code: str) -> str:
    """Code as people write it between triple quotes, without the indentation and the empty line before it."""
    return textwrap.dedent(code).removeprefix("\n").rstrip()


def ordered_unique(elements: Iterable[Any]) -> List[Any]:
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """Operators on the CPU use `n` threads inside."""
    before = _C.get_num_threads()
    _C.set_num_threads(n)
    try:
        yield
    finally:
        _C.set_num_threads(before)
