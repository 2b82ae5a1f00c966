"""Modules whose forward() is a graph."""
from __future__ import annotations

import copy
import itertools
import linecache
from typing import Any

from .. import nn
from .._C import Tensor
from .graph import Graph

__all__ = ["GraphModule"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()


class _CodeOnlyModule(nn.Module):
    """A module that has the attributes of another."""

    def __init__(self, body: dict) -> None:
        super().__init__()
        self.__dict__ = body


def _copy_attr(from_module: nn.Module, to_module: nn.Module, target: str) -> None:
    *prefix, field = target.split(".")
    for part in prefix:
        if not hasattr(from_module, part):
            return
        from_module = getattr(from_module, part)
        if not hasattr(to_module, part):
            setattr(to_module, part, nn.Module())
        to_module = getattr(to_module, part)
    value = getattr(from_module, field)
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):  # it moves with the module
        to_module.register_buffer(field, value, persistent=field not in from_module._non_persistent_buffers_set)
    else:
        setattr(to_module, field, value)


def _assign_attr(value: Any, to_module: nn.Module, target: str) -> None:
    *prefix, field = target.split(".")
    for part in prefix:
        if getattr(to_module, part, None) is None:
            setattr(to_module, part, nn.Module())
        to_module = getattr(to_module, part)
    setattr(to_module, field, value)


def _rebuild(cls: type, cls_name: str, attributes: dict, graph: Graph) -> GraphModule:
    made = cls.__new__(cls)
    GraphModule.__init__(made, nn.Module(), Graph(), cls_name)
    made.__dict__.update(attributes)
    made.graph = graph
    return made


class GraphModule(nn.Module):
    """A module that has what the nodes of a graph name of `root` (a module, or a dict by names), and runs the graph.

    `graph` may be changed and set; recompile() makes its changes hold. `code` is the Python that runs.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(type(cls.__name__, (cls,), {"__module__": cls.__module__}))  # each has a forward() of its own

    def __init__(self, root: Any, graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = type(self).__qualname__ = class_name
        if isinstance(root, nn.Module):
            self.training = root.training
        for node in graph.nodes:
            if node.op in ("get_attr", "call_module"):
                if isinstance(root, nn.Module):
                    if node.op == "get_attr" and "." not in node.target and not hasattr(root, node.target):
                        if node.target in graph._constants:
                            self.register_buffer(node.target, graph._constants[node.target])
                        continue
                    _copy_attr(root, self, node.target)
                elif node.target not in root:
                    raise RuntimeError(f"Node {node} referenced target {node.target} but that target was not provided in root")
                else:
                    _assign_attr(root[node.target], self, node.target)
        self.meta: dict = dict(getattr(root, "meta", {})) if isinstance(getattr(root, "meta", None), dict) else {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        object.__setattr__(self, "_graph", g)
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        return self._code

    def recompile(self) -> Any:
        """Makes forward() of the graph as it is now, and gives its PythonCode."""
        written = self._graph.python_code("self")
        object.__setattr__(self, "_code", written.src)
        name = f"<arete.fx {next(_numbers)}>"
        linecache.cache[name] = (len(written.src), None, written.src.splitlines(True), name)  # for tracebacks
        scope = dict(written.globals)
        exec(compile(written.src, name, "exec"), scope)
        type(self).forward = scope["forward"]  # type: ignore[method-assign]
        return written

    def add_submodule(self, target: str, m: nn.Module) -> bool:
        at: Any = self
        *prefix, field = target.split(".")
        for part in prefix:
            if not hasattr(at, part):
                setattr(at, part, nn.Module())
            at = getattr(at, part)
            if not isinstance(at, nn.Module):
                return False
        at.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        at: Any = self
        *prefix, field = target.split(".")
        for part in prefix:
            at = getattr(at, part, None)
        if not isinstance(at, nn.Module) or not isinstance(getattr(at, field, None), nn.Module):
            return False
        delattr(at, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        used: set = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used |= {".".join(parts[:i]) for i in range(1, len(parts) + 1)}
                try:
                    used |= {f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules() if name}
                except AttributeError:
                    pass
        for name, _ in list(self.named_modules()):
            if name and name not in used:
                self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **more: Any) -> str:
        text = f"class {type(self).__name__}(torch.nn.Module):\n" + "".join(f"    {line}\n" for line in self._code.splitlines())
        if print_output:
            print(text)
        return text

    def __deepcopy__(self, memo: dict) -> GraphModule:
        made = _rebuild(*self._class(), copy.deepcopy(self._attributes(), memo), copy.deepcopy(self._graph))
        memo[id(self)] = made
        return made

    def __copy__(self) -> GraphModule:
        return _rebuild(*self._class(), dict(self._attributes()), copy.deepcopy(self._graph))

    def _class(self) -> tuple:
        return type(self).__bases__[0], type(self).__name__  # below what the program has named: see __new__()

    def _attributes(self) -> dict:
        return {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}

    def __reduce__(self) -> tuple:
        nodes = [(n.name, n.op, n.target, n.args, n.kwargs) for n in self._graph.nodes]
        place = {name: i for i, (name, *_) in enumerate(nodes)}
        from .node import map_arg

        packed = [(name, op, target, map_arg(args, lambda n: _Ref(place[n.name])), map_arg(kwargs, lambda n: _Ref(place[n.name])))
                  for name, op, target, args, kwargs in nodes]
        return _unpack, (*self._class(), self._attributes(), packed)

    def __str__(self) -> str:
        return f"{super().__str__()}\n\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"


class _Ref:
    """A node in a pickle, by its place."""

    def __init__(self, place: int) -> None:
        self.place = place


def _unpack(cls: type, cls_name: str, attributes: dict, packed: list) -> GraphModule:
    from .node import map_aggregate

    graph, made = Graph(), []
    for name, op, target, args, kwargs in packed:
        args, kwargs = (map_aggregate(a, lambda x: made[x.place] if isinstance(x, _Ref) else x) for a in (args, kwargs))
        made.append(graph.create_node(op, target, args, kwargs, name))
    return _rebuild(cls, cls_name, attributes, graph)
