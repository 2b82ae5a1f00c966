"""Recording of graphs."""
from __future__ import annotations

import builtins
import collections
import contextlib
import enum
import functools
import inspect
import math
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .. import nn
from .._C import Tensor
from .._checks import _assert
from .graph import Graph
from .node import has_side_effect, map_aggregate
from .proxy import ParameterProxy, Proxy, TraceError, TracerBase

__all__ = ["PH", "Tracer", "symbolic_trace", "wrap"]


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


def _with_plain_arguments(function: Any) -> Callable:
    """The function with `*args` and `**kwargs` as its last arguments, which one value each stands for while a graph is recorded."""
    code = getattr(function, "__code__", None)
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        raise TraceError("a function with *args takes a number of inputs that is not known; name them by a function of your own")
    stars = sum(bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    plain = code.replace(co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS), co_posonlyargcount=0,
                         co_argcount=code.co_argcount + code.co_kwonlyargcount + stars, co_kwonlyargcount=0)
    return types.FunctionType(plain, function.__globals__, function.__name__, None, function.__closure__)


def _assert_is_none(value: Any, msg: str) -> None:
    assert value is None, msg


has_side_effect(_assert)
has_side_effect(_assert_is_none)


class Tracer(TracerBase):
    """Records a module or function. `is_leaf_module` says which modules are calls and are not looked into: those of nn, here.

    Functions of `autowrap_modules` and `autowrap_functions` are recorded; with `param_shapes_constant` sizes of parameters are numbers."""

    def __init__(self, autowrap_modules: tuple = (math,), autowrap_functions: tuple = (), param_shapes_constant: bool = False) -> None:
        self._autowrap_modules = autowrap_modules
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

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict) -> Any:
        """What an attribute of a module is while a graph is recorded: parameters, with proxy_buffer_attributes buffers, too, are nodes."""
        if isinstance(attr_val, nn.Parameter):
            named = self.root.named_parameters()
        elif self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            named = self.root.named_buffers()
        else:
            return attr_val
        name = next((n for n, value in named if value is attr_val), None)
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            made = (lambda node: ParameterProxy(self, node, name, attr_val)) if self.param_shapes_constant else None
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=made)
        return parameter_proxy_cache[name]

    def _leaf(self, a: Any) -> Any:
        if isinstance(a, Tensor):
            constants = self.graph._constants
            name = next((n for n, v in (*self.root.named_parameters(), *self.root.named_buffers(), *vars(self.root).items(),
                                        *constants.items()) if v is a), None)
            if name is None:
                name = self.get_fresh_qualname("_tensor_constant")
                constants[name] = a
            return self.create_node("get_attr", name, (), {})
        if isinstance(a, nn.Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        return super()._leaf(a)

    def get_fresh_qualname(self, prefix: str) -> str:
        number = 0
        while hasattr(self.root, f"{prefix}{number}") or f"{prefix}{number}" in self.graph._constants:
            number += 1
        return f"{prefix}{number}"

    def create_args_for_root(self, root_fn: Callable, is_module: bool, concrete_args: dict | None = None) -> tuple:
        parameters = list(inspect.signature(root_fn).parameters.values())
        args: list = [self.root] if is_module else []
        named: dict = {}
        starred: list = []
        for p in parameters[1 if is_module else 0:]:
            annotation = None if p.annotation is inspect.Parameter.empty else p.annotation
            if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
                stars = "*" if p.kind is p.VAR_POSITIONAL else "**"
                starred.append(self.create_proxy("placeholder", stars + p.name, (), {}, type_expr=annotation))
                continue
            default = () if p.default is inspect.Parameter.empty else (p.default,)
            if concrete_args and p.name in concrete_args:
                value = self._specialized(p.name, concrete_args[p.name], default)
            else:
                value = self.create_proxy("placeholder", p.name, default, {}, type_expr=annotation)
            if p.kind is p.KEYWORD_ONLY:
                named[p.name] = value
            else:
                args.append(value)
        if starred:
            return _with_plain_arguments(root_fn), [*args, *named.values(), *starred], {}
        return root_fn, args, named

    def _specialized(self, name: str, value: Any, default: tuple) -> Any:
        """A value of concrete_args, of which the program asserts that it is given."""
        leaves: list = []
        map_aggregate(value, leaves.append)
        if not isinstance(value, PHBase) and any(isinstance(leaf, PHBase) for leaf in leaves):
            raise NotImplementedError(f"concrete_args[{name!r}]: PH stands for a whole argument, not for a part of one")
        given = self.create_proxy("placeholder", f"{name}_1", default, {})
        if isinstance(value, PHBase):
            return given
        message = f"{name} has been specialized to have value {value} but got another value"
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (given, message), {})
        elif all(type(leaf) in (str, int, float, bool, complex, bytes, type(None)) for leaf in leaves):
            self.create_proxy("call_function", _assert, (given == value, message), {})
        else:
            warnings.warn(f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is up to the user "
                          "to make sure that your inputs match the inputs you specialized the function with.")
        return value

    @contextlib.contextmanager
    def _patched(self, function: Callable) -> Iterator[None]:
        """While a graph is recorded calls of modules come here, parameters are nodes, and wrapped functions calls."""
        call, attribute, parameters = nn.Module.__call__, nn.Module.__getattr__, {}  # type: ignore[var-annotated]
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

        def recorded_attribute(mod: nn.Module, name: str) -> Any:
            return tracer.getattr(name, attribute(mod, name), parameters)

        changed: list = []
        own = vars(nn.Module).get("__call__")

        def put(where: dict, name: str, function: Any) -> None:
            changed.append((where, name, where.get(name, changed)))
            where[name] = _recording(function)

        for (_, name), where in _wrapped.items():
            put(where, name, where.get(name) or getattr(builtins, name))
        scopes = [vars(m) for m in self._autowrap_modules]
        scopes += [getattr(f, "__globals__", {}) for f in (inspect.unwrap(function), *(m.forward for m in self.root.modules()))]
        for where in {id(scope): scope for scope in scopes}.values():
            for name, value in list(where.items()):
                if id(value) in self._autowrap and not name.startswith("_"):
                    put(where, name, value)
        nn.Module.__call__ = recorded_call  # type: ignore[method-assign]
        nn.Module.__getattr__ = recorded_attribute  # type: ignore[method-assign]
        try:
            yield
        finally:
            nn.Module.__getattr__ = attribute  # type: ignore[method-assign]
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

        Arguments in `concrete_args` are these values, which the program asserts; PH among them is an input."""
        for switch in ("trace_asserts", "check_mutable_operations"):
            if getattr(self, switch):
                raise NotImplementedError(f"fx.Tracer: {switch}: calls are recorded as they are made, and asserts of Python run")
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
        with self._patched(function):
            result = function(*args, **named)
            self.create_node("output", "output", (self.create_arg(result),), {})
        return self.graph


class PHBase(enum.Enum):
    """A marker in concrete_args: this argument is an input."""

    PH = 0


PH = PHBase.PH


def symbolic_trace(root: Any, concrete_args: dict | None = None) -> Any:
    """The GraphModule of a module or function, with the class Tracer."""
    from .graph_module import GraphModule

    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    return GraphModule(tracer.root, graph, type(root).__name__ if isinstance(root, nn.Module) else root.__name__)
