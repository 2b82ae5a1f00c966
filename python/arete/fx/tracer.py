"""Recording of graphs."""
from __future__ import annotations

import builtins
import collections
import contextlib
import enum
import functools
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

from .. import nn
from .._C import Tensor
from .graph import Graph
from .node import map_aggregate
from .proxy import Proxy, TraceError, TracerBase

__all__ = ["Tracer", "symbolic_trace", "wrap"]


_wrapped: dict = {}  # by (id of globals, name): where functions stand that are recorded as calls


def wrap(fn_or_name: Any) -> Any:
    """Says at the top of a module that a function, or what a name there stands for, is recorded as a call and not looked into."""
    name = fn_or_name if isinstance(fn_or_name, str) else getattr(fn_or_name, "__name__", None)
    if not isinstance(name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    frame = inspect.currentframe()
    assert frame is not None and frame.f_back is not None
    frame = frame.f_back
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def _first_proxy(args: tuple, kwargs: dict) -> Proxy | None:
    found: list = []
    map_aggregate((args, kwargs), lambda a: found.append(a) if isinstance(a, Proxy) else None)
    return found[0] if found else None


def _recording(function: Callable) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy(args, kwargs)
        return function(*args, **kwargs) if proxy is None else proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return call


class Tracer(TracerBase):
    """Records a module or function. `is_leaf_module` says which modules are calls and are not looked into: those of nn, here."""

    def __init__(self, autowrap_modules: tuple = (math,), autowrap_functions: tuple = (), param_shapes_constant: bool = False) -> None:
        self._autowrap = {id(f): f for m in autowrap_modules for n, f in vars(m).items() if not n.startswith("_") and callable(f)}
        self._autowrap.update({id(f): f for f in autowrap_functions})
        self.param_shapes_constant = param_shapes_constant
        self.root: Any = None
        self.module_stack: dict = collections.OrderedDict()
        self.node_name_to_scope: dict = {}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        package, _, rest = type(m).__module__.partition(".")
        return package in ("arete", Tensor.__module__) and rest.startswith("nn") and not isinstance(m, nn.Sequential)

    def path_of_module(self, mod: nn.Module) -> str:
        if not hasattr(self, "_paths"):
            self._paths = {m: name for name, m in self.root.named_modules()}
        if mod not in self._paths:
            self._paths = {m: name for name, m in self.root.named_modules()}
        if mod not in self._paths:
            raise NameError("module is not installed as a submodule")
        return self._paths[mod]

    def call_module(self, m: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Any:
        name = self.path_of_module(m)
        return self.create_proxy("call_module", name, args, kwargs) if self.is_leaf_module(m, name) else forward(*args, **kwargs)

    def _leaf(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            for name, value in (*self.root.named_parameters(), *self.root.named_buffers()):
                if value is a:
                    return self.create_node("get_attr", name, (), {})
            name = next((n for n, v in vars(self.root).items() if v is a), None)
            if name is None:
                number = 0
                while hasattr(self.root, f"_tensor_constant{number}"):
                    number += 1
                name = f"_tensor_constant{number}"
                setattr(self.root, name, a)
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super()._leaf(a)

    def get_fresh_qualname(self, prefix: str) -> str:
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    def create_args_for_root(self, root_fn: Callable, is_module: bool, concrete_args: dict | None = None) -> tuple:
        parameters = list(inspect.signature(root_fn).parameters.values())
        args: list = [self.root] if is_module else []
        named: dict = {}
        for p in parameters[1 if is_module else 0:]:
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                proxy = self.create_proxy("placeholder", ("*" if p.kind is p.VAR_POSITIONAL else "**") + p.name, (), {})
                if p.kind is p.VAR_POSITIONAL:
                    args.append(_Starred(proxy))
                continue
            if concrete_args and p.name in concrete_args:
                value = concrete_args[p.name]
                default = (value,) if not isinstance(value, (tuple, list, dict)) else ()
                self.create_proxy("placeholder", p.name, default, {})
            else:
                default = () if p.default is inspect.Parameter.empty else (p.default,)
                value = self.create_proxy("placeholder", p.name, default, {})
            if p.kind is p.KEYWORD_ONLY:
                named[p.name] = value
            else:
                args.append(value)
        return root_fn, args, named

    @contextlib.contextmanager
    def _patched(self) -> Iterator[None]:
        """While a graph is recorded calls of modules come here, parameters are nodes, and wrapped functions calls."""
        call = nn.Module.__call__
        tracer = self

        def recorded_call(mod: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if mod is tracer.root:
                return call(mod, *args, **kwargs)
            path = tracer.path_of_module(mod)
            tracer.module_stack[path] = (path, type(mod))
            try:
                return tracer.call_module(mod, lambda *a, **k: call(mod, *a, **k), args, kwargs)
            finally:
                tracer.module_stack.pop(path, None)

        changed: list = []
        own = vars(nn.Module).get("__call__")

        def put(where: dict, name: str, function: Any) -> None:
            changed.append((where, name, where.get(name, changed)))
            where[name] = _recording(function)

        for (_, name), where in _wrapped.items():
            put(where, name, where.get(name) or getattr(builtins, name))
        for where in {id(m.forward.__func__.__globals__): m.forward.__func__.__globals__ for m in self.root.modules()
                      if inspect.ismethod(m.forward)}.values():
            for name, value in list(where.items()):
                if id(value) in self._autowrap:
                    put(where, name, value)
        nn.Module.__call__ = recorded_call  # type: ignore[method-assign]
        try:
            yield
        finally:
            if own is not None:
                nn.Module.__call__ = own  # type: ignore[method-assign]
            else:
                del nn.Module.__call__
            for where, name, before in reversed(changed):
                if before is changed:
                    del where[name]
                else:
                    where[name] = before

    def trace(self, root: Any, concrete_args: dict | None = None) -> Graph:
        """The graph of a module's forward(), or of a function. TraceError where Python needs a value that is not known: branches, loops.

        Arguments in `concrete_args` are these values."""
        self._keep = root
        if isinstance(root, nn.Module):
            self.root, function = root, type(root).forward
            if "forward" in vars(root):
                bound = root.forward

                def function(_self: Any, *args: Any, **kwargs: Any) -> Any:
                    return bound(*args, **kwargs)

                function.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
                    inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *inspect.signature(bound).parameters.values()])
        else:
            self.root, function = nn.Module(), root
        self._paths = {m: name for name, m in self.root.named_modules()}
        self.graph = Graph(tracer_cls=type(self))
        function, args, named = self.create_args_for_root(function, isinstance(root, nn.Module), concrete_args)
        plain = [a for a in args if not isinstance(a, _Starred)]
        starred = [a.proxy for a in args if isinstance(a, _Starred)]
        if starred:
            raise TraceError("a function with *args takes a number of inputs that is not known; name them by a function of your own")
        with self._patched():
            result = function(*plain, **named)
            self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph


class _Starred:
    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy


class PHBase(enum.Enum):
    """A marker in concrete_args: this argument is an input."""

    PH = 0


def symbolic_trace(root: Any, concrete_args: dict | None = None) -> Any:
    """The GraphModule of a module or function, with the class Tracer."""
    from .graph_module import GraphModule

    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, nn.Module) else root.__name__)
