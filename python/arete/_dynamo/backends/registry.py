"""Backends by their names."""
from __future__ import annotations

from typing import Any, Callable

from ... import compiler
from ...compiler import list_backends as list_backends
from ..exc import InvalidBackend

__all__ = ["list_backends", "lookup_backend", "register_backend"]

# As in torch: a function of a graph and the tensors that it takes, which gives a function of those.
CompilerFn = Callable


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    """Gives a backend a name (its own, where none is said) for arete.compile(backend=name); also as a decorator. `tags` are words by which
    list_backends() leaves it out. AssertionError for a name that is taken.

    >>> @arete._dynamo.register_backend
    ... def counted(graph, inputs):
    ...     print(len(graph.graph.nodes), "nodes")
    ...     return graph.forward
    >>> arete.compile(lambda x: x + 1, backend="counted")(arete.ones(1))
    3 nodes
    tensor([2.])
    """
    if compiler_fn is None:
        return lambda function: register_backend(function, name, tags)
    if not callable(compiler_fn):
        raise TypeError(f"register_backend(): a backend is a function, not {type(compiler_fn).__name__}")
    name = name or compiler_fn.__name__
    if name in compiler._registered or name in compiler._BACKENDS:
        raise AssertionError(f"duplicate name: {name}")
    compiler._registered[name], compiler._tags[name] = compiler_fn, tuple(tags)
    return compiler_fn


def _eager(gm: Any, example_inputs: list) -> Callable:
    return gm.forward


def _plans(gm: Any, example_inputs: list) -> Callable:
    return compiler.compile(gm.forward)


def lookup_backend(compiler_fn: Any) -> Callable:
    """The backend of this name, a function of a graph and its inputs: for names of torch's the one that runs the graph, as it is
    ("eager", "aot_eager") or as plans. A function is itself. InvalidBackend for a name that nobody has.

    >>> arete._dynamo.lookup_backend("inductor")(arete.fx.symbolic_trace(lambda x: x + 1), [])(arete.ones(1))
    tensor([2.])
    """
    if not isinstance(compiler_fn, str):
        return compiler_fn
    if compiler_fn in compiler._registered:
        return compiler._registered[compiler_fn]
    if compiler_fn not in compiler._BACKENDS:
        raise InvalidBackend(name=compiler_fn)
    return _eager if "eager" in compiler_fn else _plans
