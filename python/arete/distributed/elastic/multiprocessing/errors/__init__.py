"""Exceptions of ranks, told to their launcher."""
from __future__ import annotations

import functools
import json
import os
import time
import traceback
from typing import Any, Callable, Optional, TypeVar

__all__ = ["ChildFailedError", "record"]
_R = TypeVar("_R")


class ChildFailedError(Exception):
    """Processes that a launcher started have failed: `failures` has the exceptions by rank, the first one being what ended the others."""

    def __init__(self, name: str, failures: dict) -> None:
        self.name, self.failures = name, failures
        rank, first = self.get_first_failure()
        super().__init__(f"{name} failed in rank {rank}: {first}")

    def __reduce__(self) -> tuple:
        return type(self), (self.name, self.failures)

    def get_first_failure(self) -> tuple:
        return next(iter(self.failures.items()))


def _write_error(error: BaseException) -> None:
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    said = {"message": {"message": f"{type(error).__name__}: {error}",
                        "extraInfo": {"py_callstack": "".join(traceback.format_exception(error)), "timestamp": str(int(time.time()))}}}
    try:
        with open(path, "w") as file:
            json.dump(said, file)
    except OSError:
        pass  # the launcher has the exit code


def record(fn: Callable[..., _R], error_handler: Optional[Any] = None) -> Callable[..., _R]:
    """Makes a program's main function write its exception to the file that TORCHELASTIC_ERROR_FILE names, where the launcher finds
    it (`arete run` and torchrun print it), before it is raised on. An `error_handler` does that in another way: its `initialize()` is
    called before the function, and its `record_exception(error)` where it fails.

    >>> from arete.distributed.elastic.multiprocessing.errors import record
    >>> @record
    ... def main():
    ...     return 3
    >>> main()
    3
    """
    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> _R:
        if error_handler is not None:
            error_handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as e:
            if e.code not in (None, 0) and error_handler is None:
                _write_error(e)
            raise
        except Exception as e:
            (_write_error if error_handler is None else error_handler.record_exception)(e)
            raise

    return wrapped
