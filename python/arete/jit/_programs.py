"""Modules and functions that are recorded programs, and their files."""
from __future__ import annotations

import io
import json
from typing import Any

from .._program import Graph, ProgramModule, Recorded


class _Call:
    """A call of a program, as a node of its graph."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def kind(self) -> str:
        """The operator."""
        return self._kind


class ProgramGraph(Graph):
    """The calls of a program, one a line.

    >>> graph = arete.jit.trace(lambda x: x.sin() + 1, arete.ones(2)).graph
    >>> [node.kind() for node in graph.nodes()]
    ['aten::sin', 'aten::add']
    """

    def nodes(self) -> list[_Call]:
        """The calls in their order."""
        calls = json.loads(self._program.text(for_file=False))["calls"]
        return [_Call("aten::" + call["op"].partition(".")[0] + "_" * (call.get("form") == "in_place")) for call in calls if "op" in call]


class ScriptModule(ProgramModule):
    """A module that is a recorded program: `graph` and `code` print it, `save(file)` keeps it, and its parameters and buffers are
    those of the program. See trace(), script() and load().

    >>> net = arete.jit.trace(arete.nn.Linear(2, 3), arete.ones(4, 2))
    >>> net(arete.ones(7, 2)).shape, [name for name, _ in net.named_parameters()]
    (arete.Size([7, 3]), ['weight', 'bias'])
    """

    def __init__(self, recorded: Recorded | None = None) -> None:
        if recorded is None:
            raise NotImplementedError("jit.ScriptModule is what trace(), script() and load() give: make the class one of nn.Module, leave "
                                      "out script_method, and call jit.script() on the module")
        super().__init__(recorded)

    def save(self, f: Any, _extra_files: dict | None = None) -> None:
        """Writes the program to a path or an open file."""
        self._recorded.save(f, _extra_files)

    @property
    def graph(self) -> ProgramGraph:
        """The calls; print it."""
        return ProgramGraph(self._recorded.program)

    @property
    def inlined_graph(self) -> ProgramGraph:
        """`graph`: there are no calls of other programs in it."""
        return self.graph

    @property
    def original_name(self) -> str:
        """The class of the module that was recorded."""
        return self._recorded.form.get("class", "Module")


class ScriptFunction:
    """A function that is a recorded program: see trace().

    >>> f = arete.jit.trace(lambda x, y: x.exp() * y, (arete.ones(2), arete.ones(2)))
    >>> f(arete.zeros(3), arete.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self.__name__ = self.__qualname__ = recorded.form.get("name", "program")

    def __deepcopy__(self, memo: Any) -> Any:
        return ScriptFunction(self._recorded.clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = io.BytesIO()
        self._recorded.save(file)
        return _load_bytes, (file.getvalue(),)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorded(*args, **kwargs)

    graph = inlined_graph = ScriptModule.graph
    code = ProgramModule.code
    save = ScriptModule.save

    @property
    def name(self) -> str:
        """That of the function that was recorded."""
        return self.__name__

    @property
    def qualified_name(self) -> str:
        """`name`, with that of the function's module."""
        place = self._recorded.form.get("place")
        return f"__torch__.{place}.{self.__name__}" if place else f"__torch__.{self.__name__}"


def _load_bytes(data: bytes) -> Any:
    return load(io.BytesIO(data))


def save(m: Any, f: Any, _extra_files: dict | None = None) -> None:
    """Writes a traced or scripted module or function to a path or an open file; at a path the file appears complete or not at all.
    `_extra_files`: texts or bytes by name, which load() gives back.

    >>> import io
    >>> file = io.BytesIO()
    >>> arete.jit.save(arete.jit.trace(arete.nn.Linear(2, 2), arete.ones(1, 2)), file)
    >>> _ = file.seek(0)
    >>> arete.jit.load(file)(arete.ones(3, 2)).shape
    arete.Size([3, 2])
    """
    if not isinstance(m, (ScriptModule, ScriptFunction)):
        raise TypeError(f"jit.save(): what jit.trace() and jit.script() give is saved, not {type(m).__name__}")
    m.save(f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: dict | None = None) -> Any:
    """A program from a path or an open file, which may be hostile: OSError says what is wrong with it. A ScriptModule, or a
    ScriptFunction if a function was saved. `map_location`: the device of its tensors, by default that on which it was recorded.
    `_extra_files`: a dict whose names get their contents, as bytes.

    >>> arete.jit.load("no such file")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: cannot open 'no such file': No such file or directory...
    """
    recorded = Recorded.load(f, map_location, _extra_files)
    return ScriptFunction(recorded) if recorded.form["kind"] == "function" else ScriptModule(recorded)


def export_opnames(m: Any) -> list[str]:
    """The operators that a program calls.

    >>> arete.jit.export_opnames(arete.jit.trace(arete.nn.Linear(2, 2), arete.ones(1, 2)))
    ['aten::linear']
    """
    return sorted({node.kind() for node in m.graph.nodes()})
