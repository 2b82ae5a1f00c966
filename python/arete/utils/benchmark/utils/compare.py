"""Tables of measurements."""
from __future__ import annotations

from typing import Iterable

from .... import _C
from . import common

__all__ = ["Compare"]


class Compare:
    """A table for each label: sub-labels in rows, descriptions in columns, grouped by number of threads."""

    def __init__(self, results: Iterable[common.Measurement]):
        self._results: list = []
        self.extend_results(results)
        self._trim = self._highlight = False
        self._colorize = 0

    def __str__(self) -> str:
        return _C._benchmark.compare(self._results, self._trim, self._highlight, self._colorize)

    def extend_results(self, results: Iterable[common.Measurement]) -> None:
        results = list(results)
        for r in results:
            if not isinstance(r, common.Measurement):
                raise ValueError(f"expected instances of Measurement, got {type(r).__name__}")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Shows the figures that mean something only."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """For terminals: the best of each column (or row) green, much worse ones red."""
        self._colorize = 2 if rowwise else 1

    def highlight_warnings(self) -> None:
        """Marks measurements with a large spread."""
        self._highlight = True

    def print(self) -> None:
        print(self)
