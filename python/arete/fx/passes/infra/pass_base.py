"""A change of a graph, as a class."""
from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The changed module, and whether there was a change."""

    graph_module: Any
    modified: bool


class PassBase:
    """Calls requires(module), call(module) and ensures(module), the second of which a subclass writes."""

    def __call__(self, graph_module: Any) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    def call(self, graph_module: Any) -> PassResult | None:
        raise NotImplementedError

    def requires(self, graph_module: Any) -> None:
        pass

    def ensures(self, graph_module: Any) -> None:
        pass
