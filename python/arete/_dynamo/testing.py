"""Backends that count, for tests of programs."""
from __future__ import annotations

from typing import Any, Callable

from .backends.registry import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounterWithBackend:
    """A backend that counts the graphs that it was given, `frame_count`, and their calls, `op_count`, keeps them in `graphs`, and leaves
    the work to another one.

    >>> from arete._dynamo.testing import CompileCounterWithBackend
    >>> backend = CompileCounterWithBackend("eager")
    >>> f = arete.compile(lambda x: x.sin() + 1, backend=backend)
    >>> _ = f(arete.ones(2)), f(arete.zeros(2))
    >>> backend.frame_count, backend.op_count
    (1, 2)
    """

    def __init__(self, backend: Any) -> None:
        self._backend = lookup_backend(backend)
        self.clear()

    def clear(self) -> None:
        """Counts from zero."""
        self.frame_count, self.op_count, self.graphs = 0, 0, []

    def __call__(self, gm: Any, example_inputs: list) -> Callable:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        self.graphs.append(gm)
        return self._backend(gm, example_inputs)


class CompileCounter(CompileCounterWithBackend):
    """One that runs graphs as they are.

    >>> from arete._dynamo.testing import CompileCounter
    >>> CompileCounter().frame_count
    0
    """

    def __init__(self) -> None:
        super().__init__("eager")


class EagerAndRecordGraphs:
    """A backend that keeps the graphs, and runs them as they are.

    >>> from arete._dynamo.testing import EagerAndRecordGraphs
    >>> backend = EagerAndRecordGraphs()
    >>> _ = arete.compile(lambda x: x + 1, backend=backend)(arete.ones(2))
    >>> len(backend.graphs)
    1
    """

    def __init__(self) -> None:
        self.graphs: list = []

    def __call__(self, gm: Any, example_inputs: list) -> Callable:
        self.graphs.append(gm)
        return gm.forward
