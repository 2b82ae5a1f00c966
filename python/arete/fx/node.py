"""A call in a graph."""
from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

from .._C import Tensor

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Argument = Any  # what nodes take: other nodes, numbers, texts, dtypes, and tuples, lists and dicts of these
Target = Any  # a function, or the name of a method, module or attribute

OPS = ("placeholder", "get_attr", "call_function", "call_method", "call_module", "output", "root")
_side_effects: set = set()


def has_side_effect(fn: Callable) -> Callable:
    """Says that calls of a function stay in a graph though nothing takes their results; a decorator."""
    _side_effects.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable) -> Any:
    """fn(leaf) for each leaf of tuples, lists, dicts and slices.

    >>> arete.fx.map_aggregate((1, [2, {"a": 3}]), lambda n: n + 1)
    (2, [3, {'a': 4}])
    """
    if isinstance(a, tuple):
        items = [map_aggregate(x, fn) for x in a]
        return type(a)(*items) if hasattr(a, "_fields") else type(a)(items) if type(a) is not tuple else tuple(items)
    if isinstance(a, list):
        return [map_aggregate(x, fn) for x in a]
    if isinstance(a, dict):
        return {key: map_aggregate(x, fn) for key, x in a.items()}
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable) -> Any:
    """fn(node) for each Node in such a tree."""
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def qualified_name(target: Callable) -> str:
    """Where a function is found."""
    if isinstance(target, types.BuiltinFunctionType) and target.__module__ == "_operator":
        return f"operator.{target.__name__}"
    module = getattr(target, "__module__", None) or "builtins"
    if module.partition(".")[0] == "arete":
        module = Tensor.__module__ + module[len("arete"):]  # the name that arete.as_torch gives it
    if module.startswith("torch._ops."):  # an overload, which says that it is torch's
        module = f"{Tensor.__module__}.ops.{module[11:]}"
    return f"{module}.{getattr(target, '__qualname__', None) or getattr(target, '__name__', type(target).__name__)}"


class Node:
    """A call, an input, an attribute of the root or the result of a graph. Made by the methods of Graph.

    `op` is one of "placeholder", "get_attr", "call_function", "call_method", "call_module" and "output", `target` the name or function. In
    `args` and `kwargs` other nodes stand for their results. `users` has the nodes that take this one's result, `meta` is the program's own.
    """

    def __init__(self, graph: Any, name: str, op: str, target: Any, args: tuple, kwargs: dict, return_type: Any = None) -> None:
        if op not in OPS:
            raise AssertionError(f"op '{op}' is not one of {OPS}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node target {target} has type {type(target)} but a Callable is expected")
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(f"Node target {target} has type {type(target)} but a str is expected")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users: dict[Node, None] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple = ()
        self._kwargs: dict = {}
        self._prev = self._next = self
        self._erased = False
        self.meta: dict[str, Any] = {}
        self._set(tuple(args), dict(kwargs))

    def _set(self, args: tuple, kwargs: dict) -> None:
        for node in self._input_nodes:
            node.users.pop(self, None)
        self._args, self._kwargs, self._input_nodes = args, kwargs, {}
        map_arg((args, kwargs), lambda n: self._input_nodes.setdefault(n))
        for node in self._input_nodes:
            node.users[self] = None

    @property
    def args(self) -> tuple:
        return self._args

    @args.setter
    def args(self, args: tuple) -> None:
        self._set(tuple(args), self._kwargs)

    @property
    def kwargs(self) -> dict:
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs: dict) -> None:
        self._set(self._args, dict(kwargs))

    @property
    def all_input_nodes(self) -> list[Node]:
        return list(self._input_nodes)

    @property
    def next(self) -> Node:
        return self._next

    @property
    def prev(self) -> Node:
        return self._prev

    @property
    def stack_trace(self) -> str | None:
        """The program's lines that made the call, where a Tracer with `record_stack_traces` saw it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def __repr__(self) -> str:
        return self.name

    def _remove(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x: Node) -> None:
        """Puts another node of this graph before this one."""
        if x.graph is not self.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if x is self:
            return
        x._remove()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x: Node) -> None:
        """Puts another node of this graph behind this one."""
        self._next.prepend(x)

    def update_arg(self, idx: int, arg: Any) -> None:
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        self.args = (*self._args[:idx], arg, *self._args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        self.kwargs = {**self._kwargs, key: arg}

    def replace_all_uses_with(self, replace_with: Node, delete_user_cb: Callable | None = None, *,
                              propagate_meta: bool = False) -> list[Node]:
        """Nodes that take this one's result take the other's; those of which delete_user_cb(node) is False stay. Gives the changed ones."""
        if propagate_meta:
            replace_with.meta.update({k: v for k, v in self.meta.items() if k not in replace_with.meta})
        changed = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        def swapped(n: Node) -> Node:
            return new_input if n is old_input else n

        self._set(map_arg(self._args, swapped), map_arg(self._kwargs, swapped))

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether it stays though nothing takes its result."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            return self.target in _side_effects or self.target in (setattr,
                                                                   operator.setitem) or name.endswith("_") and not name.endswith("__")
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__")
        return False

    def format_node(self, *others: Any, **more: Any) -> str:
        if self.op == "placeholder":
            return f"%{self.name} : [num_users={len(self.users)}] = placeholder[target={self.target}]"
        if self.op == "output":
            return f"return {map_arg(self._args[0], lambda n: _Shown(f'%{n.name}'))}"
        target = self.target if isinstance(self.target, str) else qualified_name(self.target)
        shown = map_arg((self._args, self._kwargs), lambda n: _Shown(f"%{n.name}"))
        return (f"%{self.name} : [num_users={len(self.users)}] = {self.op}[target={target}](args = {shown[0]}, kwargs = {shown[1]})"
                if self.op != "get_attr" else f"%{self.name} : [num_users={len(self.users)}] = get_attr[target={target}]")


class _Shown(str):
    def __repr__(self) -> str:
        return str(self)
