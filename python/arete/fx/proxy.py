"""What stands for a value while a graph is recorded."""
from __future__ import annotations

import dis
import operator
import os
import sys
import traceback
from collections.abc import Iterator
from typing import Any

from .._C import OperatorMethod, Tensor
from .graph import Graph
from .node import Node, map_aggregate

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "TracerBase"]


_FOLDER = os.path.dirname(os.path.dirname(__file__)) + os.sep  # of this package


class TraceError(ValueError):
    """What cannot be recorded."""


class Proxy:
    """A value that is not known yet: what is done with it becomes nodes of the tracer's graph."""

    def __init__(self, node: Any, tracer: Any = None) -> None:
        if tracer is None:
            tracer = GraphAppendingTracer(node.graph)
        self.tracer, self.node = tracer, node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Proxy]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __index__(self) -> int:
        raise TraceError(f"{self} is used as an index of Python, whose value is not known while a graph is recorded")

    def __len__(self) -> int:
        raise RuntimeError("'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
                           "torch.fx.wrap('len') at module scope")

    def __contains__(self, item: Any) -> bool:
        raise TraceError("'in' needs values, which are not known while a graph is recorded")

    def keys(self) -> Any:
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found: list = []

        def look(a: Any) -> None:
            if isinstance(a, Proxy):
                found.append(a)
            elif isinstance(a, (tuple, list)):
                for x in a:
                    look(x)
            elif isinstance(a, dict):
                look(list(a.values()))
            elif isinstance(a, slice):
                look([a.start, a.stop, a.step])

        look([args, kwargs])
        tracer = found[0].tracer
        method = _method_name(func)
        if method is not None:
            return tracer.create_proxy("call_method", method, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


class ParameterProxy(Proxy):
    """A parameter, whose sizes are known."""

    def __init__(self, tracer: Any, node: Any, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.name, self.param = name, param

    @property
    def shape(self) -> Any:
        return self.param.shape

    @property
    def ndim(self) -> int:
        return self.param.ndim

    def size(self, *args: Any, **kwargs: Any) -> Any:
        return self.param.size(*args, **kwargs)

    def dim(self) -> int:
        return self.param.dim()

    def numel(self) -> int:
        return self.param.numel()

    nelement = numel


def _method_name(func: Any) -> str | None:
    """The name of a method of Tensor, None for functions."""
    name = getattr(func, "__name__", None)
    if isinstance(func, OperatorMethod):
        return name
    return name if isinstance(name, str) and Tensor.__dict__.get(name) is func and not hasattr(func, "functional") else None


class Attribute(Proxy):
    """An attribute of a value, which becomes a method where it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root, self.attr, self.tracer = root, attr, root.tracer
        self._node: Any = None

    @property
    def node(self) -> Any:  # type: ignore[override]
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class TracerBase:
    """What makes nodes and the values that stand for them."""

    graph: Graph
    record_stack_traces = False
    check_mutable_operations = False
    trace_asserts = False
    proxy_buffer_attributes = False
    scope: Any = None

    def create_node(self, kind: str, target: Any, args: tuple, kwargs: dict, name: str | None = None, type_expr: Any = None) -> Node:
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        return Proxy(node, self)

    def create_proxy(self, kind: str, target: Any, args: tuple, kwargs: dict, name: str | None = None, type_expr: Any = None,
                     proxy_factory_fn: Any = None) -> Proxy:
        node = self.create_node(kind, target, self.create_arg(args), self.create_arg(kwargs), name, type_expr)
        if self.record_stack_traces:
            frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_FOLDER)]
            node.stack_trace = "".join(traceback.format_list(frames)).strip()
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Any:
        """A value as an argument of nodes."""
        return map_aggregate(a, self._leaf)

    def _leaf(self, a: Any) -> Any:
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, range):
            return range(*(self._leaf(n) for n in (a.start, a.stop, a.step)))
        return a

    def to_bool(self, obj: Proxy) -> bool:
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def keys(self, obj: Proxy) -> Any:
        return Attribute(obj, "keys")()

    def iter(self, obj: Proxy) -> Iterator[Proxy]:
        """The parts of a value that is taken apart into a known number of names, as in `a, b = x`."""
        frame: Any = sys._getframe(2)
        code, offset = frame.f_code, frame.f_lasti
        for instruction in dis.get_instructions(code):
            if instruction.offset >= offset and instruction.opname == "UNPACK_SEQUENCE":
                if instruction.offset == offset:
                    return (obj[i] for i in range(instruction.argval))  # type: ignore[index]
                break
        raise TraceError("Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
                         "**kwargs function argument.")


class GraphAppendingTracer(TracerBase):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph


def _install() -> None:
    def recorded(function: Any, turned: bool = False) -> Any:
        def method(self: Proxy, *others: Any) -> Any:
            return self.tracer.create_proxy("call_function", function, (*others, self) if turned else (self, *others), {})

        return method

    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"):
        plain = name.strip("_")
        setattr(Proxy, f"__{plain}__", recorded(getattr(operator, name)))
        setattr(Proxy, f"__r{plain}__", recorded(getattr(operator, name), True))  # `x += y` is recorded as `x = x + y`, as by torch
    for name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "invert", "pos", "getitem", "setitem"):
        setattr(Proxy, f"__{name}__", recorded(getattr(operator, name)))
    for name in ("abs", "round"):
        setattr(Proxy, f"__{name}__", recorded({"abs": abs, "round": round}[name]))
    Proxy.__hash__ = object.__hash__  # type: ignore[method-assign,assignment]


_install()
