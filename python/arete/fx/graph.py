"""Lists of calls, and the Python that they are written as."""
from __future__ import annotations

import builtins
import cmath
import contextlib
import keyword
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from .node import Node, map_arg, qualified_name

__all__ = ["CodeGen", "Graph", "PythonCode"]

_INFIX = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and_": "&",
          "or_": "|",
          "xor": "^", "lshift": "<<", "rshift": ">>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_WRITTEN = (str, int, float, complex, bool, bytes, type(None), type(...))  # and none of their subclasses, such as enums
_PREFIX = {"neg": "-", "invert": "~", "pos": "+"}


class PythonCode:
    """The text of a graph's function, and what its names stand for."""

    def __init__(self, src: str, globals: dict) -> None:  # noqa: A002
        self.src, self.globals = src, globals


class CodeGen:
    """How a graph is written; torch's hooks into it are not there."""


class _Names:
    """Names that are no others."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def new(self, wanted: str) -> str:
        name = re.sub(r"\W", "_", wanted) or "_"
        if name[0].isdigit():
            name = f"_{name}"
        stem, number = re.fullmatch(r"(.*?)(?:_(\d+))?", name, re.S).groups()  # type: ignore[union-attr]
        count = int(number or 0)
        while name in self._used or keyword.iskeyword(name) or hasattr(builtins, name) or name == "self":
            count += 1
            name = f"{stem}_{count}"
        self._used.add(name)
        return name


class _NodeList:
    def __init__(self, graph: Graph, reverse: bool = False) -> None:
        self._graph, self._reverse = graph, reverse

    def __iter__(self) -> Iterator[Node]:
        root = self._graph._root
        at = root._prev if self._reverse else root._next
        while at is not root:
            if not at._erased:
                yield at
            at = at._prev if self._reverse else at._next

    def __reversed__(self) -> Iterator[Node]:
        return iter(_NodeList(self._graph, not self._reverse))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Graph:
    """The calls of a program in their order.

    >>> graph = arete.fx.Graph()
    >>> x = graph.placeholder("x")
    >>> _ = graph.output(graph.call_function(arete.exp, (x,)))
    >>> print(graph)
    graph():
        %x : [num_users=1] = placeholder[target=x]
        %exp : [num_users=1] = call_function[target=arete.exp](args = (%x,), kwargs = {})
        return %exp
    """

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None) -> None:
        self.owning_module, self._tracer_cls, self._tracer_extras = owning_module, tracer_cls, tracer_extras
        self._root = Node(self, "", "root", "", (), {})
        self._before = self._root  # where nodes are put: before this one
        self._names = _Names()
        self._codegen = CodeGen()
        self._constants: dict[str, Any] = {}  # tensors that nodes name and no module has: GraphModule keeps them

    @property
    def nodes(self) -> _NodeList:
        return _NodeList(self)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        return next(n for n in reversed(self.nodes) if n.op == "output")

    def create_node(self, op: str, target: Any, args: Any = None, kwargs: Any = None, name: str | None = None,
                    type_expr: Any = None) -> Node:
        """A new node where nodes are put (at the end, or see inserting_before())."""
        if name is None:
            name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
            name = f"_{name.lstrip('*')}" if name.startswith("*") else name
            name = name.strip("_") if op == "call_function" or name.startswith("__") else name
            name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
        node = Node(self, self._names.new(name), op, target, tuple(args or ()), dict(kwargs or {}), type_expr)
        for other in node.all_input_nodes:
            if other.graph is not self:
                raise RuntimeError(f"Argument '{other}' of Node '{node}' does not belong to this Graph")
        self._before.prepend(node)
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        return self.create_node("placeholder", name, () if default_value is ... else (default_value,), type_expr=type_expr,
                                name=name.lstrip("*"))

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None) -> Node:
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function: Callable, args: Any = None, kwargs: Any = None, type_expr: Any = None,
                      name: str | None = None) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, type_expr=type_expr, name=name)

    def output(self, result: Any, type_expr: Any = None) -> Node:
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def erase_node(self, to_erase: Node) -> None:
        """RuntimeError if another node takes its result."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                               f"{to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._set((), {})
        to_erase._remove()  # it keeps its neighbours, for those who walk over it now
        to_erase._erased = True

    @contextlib.contextmanager
    def _inserting(self, before: Node) -> Iterator[None]:
        if before.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        old, self._before = self._before, before
        try:
            yield
        finally:
            self._before = old

    def inserting_before(self, n: Node | None = None) -> contextlib.AbstractContextManager:
        """Where nodes are put within a block; without a node, at the beginning of the graph."""
        return self._inserting(self._root._next if n is None else n)

    def inserting_after(self, n: Node | None = None) -> contextlib.AbstractContextManager:
        return self._inserting((self._root._prev if n is None else n)._next)

    def node_copy(self, node: Node, arg_transform: Callable = lambda n: n) -> Node:
        """A copy of a node of another graph, with arg_transform(node) for the nodes that it takes."""
        made = self.create_node(node.op, node.target, map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform), node.name,
                                node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict, return_output_node: bool = False) -> Any:
        """Copies all nodes of another graph but its output, and gives what that returns; `val_map` says which nodes stand for which."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls)
        made._constants = dict(self._constants)
        values: dict[Node, Node] = {}
        for node in self.nodes:
            values[node] = made.node_copy(node, lambda n: values[n])
        return made

    def lint(self) -> None:
        """RuntimeError for nodes that take what comes after them, that are others' or have one name, and for targets that the module
        lacks."""
        seen: dict[str, Node] = {}
        for node in self.nodes:
            for other in node.all_input_nodes:
                if other.graph is not self or seen.get(other.name) is not other:
                    raise RuntimeError(f"Argument '{other}' of Node '{node}' was used before it has been defined! Please check that "
                                       "Nodes in the graph are "
                                       f"topologically ordered\n{self}")
            if node.name in seen:
                raise RuntimeError(f"Node redefined name {node.name}!")
            seen[node.name] = node
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                at: Any = self.owning_module
                for part in node.target.split("."):
                    if not hasattr(at, part):
                        raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part}")
                    at = getattr(at, part)

    def eliminate_dead_code(self, is_impure_node: Callable | None = None) -> bool:
        """Takes away what nothing uses and what changes nothing; gives whether there was any."""
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not (is_impure_node or Node.is_impure)(node) and node.op != "output":
                self.erase_node(node)
                changed = True
        return changed

    def __str__(self) -> str:
        return "\n    ".join(["graph():", *(n.format_node() for n in self.nodes)])

    def print_tabular(self) -> None:
        rows = [("opcode", "name", "target", "args", "kwargs"),
                *((n.op, n.name, str(n.target), str(n.args), str(n.kwargs)) for n in self.nodes)]
        widths = [max(map(len, column)) for column in zip(*rows)]
        rows.insert(1, tuple("-" * w for w in widths))  # type: ignore[arg-type]
        for row in rows:
            print("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())

    def on_generate_code(self, make_transformer: Callable) -> Any:
        raise RuntimeError("graphs are written in one way; change the nodes instead")

    def python_code(self, root_module: str = "self", *, verbose: bool = False, **more: Any) -> PythonCode:
        """The function `forward` of this graph, with the module under the name `root_module`."""
        return _Writer(self, root_module).code()


class _Writer:
    def __init__(self, graph: Graph, root: str) -> None:
        self.graph, self.root = graph, root
        self.globals: dict[str, Any] = {}
        self.names = _Names()
        for node in graph.nodes:
            self.names._used.add(node.name)

    def value_name(self, wanted: str, value: Any) -> str:
        for name, known in self.globals.items():
            if known is value:
                return name
        name = self.names.new(wanted)
        self.globals[name] = value
        return name

    def function(self, target: Callable) -> str:
        """Where the package has a function its path, else a name of its own."""
        path = qualified_name(target)
        if path.startswith("builtins.") and getattr(builtins, path[9:], None) is target:
            return path[9:]
        return self.at(path, target) or self.value_name(getattr(target, "__name__", "function"), target)

    def at(self, path: str, value: Any) -> str | None:
        """The path, if the value is there."""
        first, *rest = path.split(".")
        at = sys.modules.get(first)
        if at is None or first in self.names._used:
            return None
        top = at
        for part in rest:
            at = getattr(at, part, None)
        if at is not value:
            return None
        self.globals[first] = top
        return path

    def text(self, value: Any) -> str:
        if isinstance(value, Node):
            return value.name
        if not isinstance(value, (tuple, list, dict, slice)) and type(value) not in _WRITTEN or \
                isinstance(value, complex) and not cmath.isfinite(value):
            if callable(value) and hasattr(value, "__module__"):
                return self.function(value)
            # dtypes and orders of memory are written as paths.
            path = str(value) if type(value).__name__ in ("dtype", "memory_format") else ""
            return self.at(path, value) or self.value_name(type(value).__name__, value)
        if isinstance(value, float) and repr(value) in ("inf", "-inf", "nan"):
            return f"float('{value!r}')"
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return f"{self.function(type(value))}({', '.join(map(self.text, value))})"
        if isinstance(value, tuple):
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.text, value))}]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        return "..." if value is ... else repr(value)

    def call(self, name: str, args: Any, kwargs: dict) -> str:
        plain = [self.text(a) for a in args]
        named = [f"{k}={self.text(v)}" if k.isidentifier() and not keyword.iskeyword(k) else f"**{{{k!r}: {self.text(v)}}}" for k,
                 v in kwargs.items()]
        return f"{name}({', '.join(plain + named)})"

    def path(self, target: str) -> str:
        text = self.root
        for part in target.split("."):
            text = f"{text}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f"getattr({text}, {part!r})"
        return text

    def expression(self, node: Node) -> str:
        if node.op == "get_attr":
            return self.path(node.target)
        if node.op == "call_module":
            return self.call(self.path(node.target), node.args, node.kwargs)
        if node.op == "call_method":
            first = self.text(node.args[0])
            return self.call(f"{first if isinstance(node.args[0], Node) else f'({first})'}.{node.target}", node.args[1:], node.kwargs)
        name, a = getattr(node.target, "__name__", ""), node.args
        if getattr(node.target, "__module__", None) == "_operator" and not node.kwargs:
            if name in _INFIX and len(a) == 2:
                return f"{self.operand(a[0])} {_INFIX[name]} {self.operand(a[1])}"
            if name in _PREFIX and len(a) == 1:
                return f"{_PREFIX[name]}{self.operand(a[0])}"
            if name == "getitem":
                return f"{self.operand(a[0])}[{self.text(a[1])}]"
        if node.target is getattr and len(a) == 2 and isinstance(a[1], str) and a[1].isidentifier() and \
                not keyword.iskeyword(a[1]) and isinstance(a[0], Node):
            return f"{a[0].name}.{a[1]}"
        return self.call(self.function(node.target), a, node.kwargs)

    def operand(self, value: Any) -> str:
        text = self.text(value)
        return text if isinstance(value, Node) or re.fullmatch(r"[\w.]+|\(.*\)", text) and not re.fullmatch(r"\d+", text) or \
            type(value) is int and value >= 0 else f"({text})"

    def code(self) -> PythonCode:
        parameters, body, result = [], [], None
        dies: dict[Node, list[str]] = {}  # values are let go where they are used last
        has_default, stars = False, []  # type: ignore[var-annotated]
        seen: set[Node] = set()
        for node in reversed(self.graph.nodes):
            if node.op != "output" and not node.users and node.op != "placeholder":
                dies.setdefault(node, []).append(node.name)
            for other in node.all_input_nodes:
                if other not in seen:
                    seen.add(other)
                    dies.setdefault(node, []).append(other.name)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                default = f" = {self.text(node.args[0])}" if node.args else ""
                own = node.target.lstrip("*")
                if not node.args and own == node.target and has_default and "*" not in stars:
                    parameters.append("*")  # only an argument that is given by name may follow one with a default
                    stars.append("*")
                has_default, stars = has_default or bool(node.args), [*stars, node.target[: len(node.target) - len(own)]]
                parameters.append(node.target[: len(node.target) - len(own)] + (own if own.isidentifier() else node.name) + default)
                if node.name != own and own.isidentifier():
                    body.append(f"{node.name} = {own}")
            elif node.op == "output":
                result = self.text(node.args[0])
            else:
                body.append(f"{node.name} = {self.expression(node)}" + (f";  {' = '.join(dies[node])} = None" if node in dies else ""))
        body.append(f"return {result}")
        lines = [f"def forward({', '.join([self.root, *parameters])}):", *(f"    {line}" for line in body)]
        return PythonCode("\n".join(lines) + "\n", self.globals)
