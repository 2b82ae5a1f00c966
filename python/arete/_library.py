"""Operators that programs make: what they do on each kind of device, their gradients, and how they are called."""
from __future__ import annotations

import inspect
import threading
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

from . import _C
from ._C import Tensor
from ._grad_mode import no_grad
from ._operators import _schemas
from .autograd.function import Function

KEYS = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta", "CompositeExplicitAutograd": "any", "CompositeImplicitAutograd": "implicit",
        "Autograd": "autograd", "AutogradCPU": "autograd cpu", "AutogradCUDA": "autograd cuda", "": "any"}

_NAMES = {Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str", _C.dtype: "ScalarType", _C.device: "Device"}


def infer_schema(prototype_function: Callable, /, *, mutates_args: Any, op_name: str | None = None) -> str:
    """The schema of a function by its annotations, in torch's words.

    >>> def scaled(x: arete.Tensor, by: float = 2.0) -> arete.Tensor:
    ...     return x * by
    >>> arete.library.infer_schema(scaled, mutates_args=())
    '(Tensor x, float by=2.) -> Tensor'
    """
    hints = typing.get_type_hints(prototype_function)
    parts, keyword = [], False
    names = list(inspect.signature(prototype_function).parameters.values())
    for number, p in enumerate(names):
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise ValueError(f"infer_schema(func): parameter {p.name} takes any number of arguments, which no schema says")
        if p.name not in hints:
            raise ValueError(f"infer_schema(func): Parameter {p.name} must have a type annotation.")
        text = _type_text(hints[p.name], p.name)
        if mutates_args == "unknown" and text.startswith("Tensor") or p.name in mutates_args and mutates_args != "unknown":
            text = text.replace("Tensor", f"Tensor(a{number}!)", 1)
        if p.kind is p.KEYWORD_ONLY and not keyword:
            parts.append("*")
            keyword = True
        parts.append(f"{text} {p.name}" + ("" if p.default is p.empty else f"={_default_text(p.default)}"))
    unknown = set(() if mutates_args == "unknown" else mutates_args) - {p.name for p in names}
    if unknown:
        raise ValueError(f"infer_schema(func): {unknown} in mutates_args were not found in the function's parameters")
    returned = hints.get("return", inspect.Signature.empty)
    if returned is inspect.Signature.empty:
        raise ValueError("infer_schema(func): No return type annotation was provided. Please add one.")
    if returned in (None, type(None)):
        result = "()"
    elif typing.get_origin(returned) is tuple:
        result = f"({', '.join(_type_text(t, 'return') for t in typing.get_args(returned))})"
    else:
        result = _type_text(returned, "return")
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _default_text(value: Any) -> str:
    if isinstance(value, float):
        return repr(value).removesuffix("0") if repr(value).endswith(".0") else repr(value)
    return f'"{value}"' if isinstance(value, str) else str(value)


def _type_text(kind: Any, name: str) -> str:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind in _NAMES:
        return _NAMES[kind]
    if origin in (typing.Union, types.UnionType):
        inner = [a for a in args if a is not type(None)]
        if len(inner) == 1 and len(args) == 2:
            return _type_text(inner[0], name) + "?"
        if set(inner) <= {int, float, bool}:
            return "Scalar" + "?" * (len(inner) < len(args))
    if origin in (list, Sequence) and len(args) == 1:
        return _type_text(args[0], name) + "[]"
    raise ValueError(f"infer_schema(func): Parameter {name} has unsupported type {kind}")


class Definition:
    """An operator "namespace::name": its kernels by kinds of devices, and its derivative."""

    def __init__(self, name: str, schema: str) -> None:
        self.name, self.schema = name, schema
        self.kernels: dict[str, Callable] = {}
        self.fake: Callable | None = None
        self.backward: Callable | None = None
        self.setup: Callable | None = None
        self.sharded: Callable | None = None  # of arguments of which some are spread over processes
        text = schema[schema.index("(") + 1: schema.rindex("->")].strip().removesuffix(")")
        self.parameters: list[inspect.Parameter] = []
        self.changes: list[str] = []
        self.keyword_tensors: list[str] = []
        keyword = False
        for part in _schemas.split(text):
            if part == "*":
                keyword = True
                continue
            left, _, default = part.partition("=")
            kind, _, name = left.strip().rpartition(" ")
            if "!" in kind:
                self.changes.append(name)
            if keyword and kind.startswith("Tensor"):
                self.keyword_tensors.append(name)
            self.parameters.append(inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY if keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=_value(default) if default else inspect.Parameter.empty))
        self.signature = inspect.Signature(self.parameters)

    def derive(self, backward: Callable, setup: Callable | None) -> None:
        """Gives it a derivative."""
        if self.changes:
            raise RuntimeError(f"Cannot register autograd formula for non-functional operator {self.name} with schema {self.schema}. "
                               "Please create a functional operator and register an autograd formula for that.")
        if self.keyword_tensors:
            raise NotImplementedError(f"register_autograd with kwarg-only Tensor args: {', '.join(self.keyword_tensors)} of {self.name} "
                                      "can have no gradient; let them be given by position, too")
        self.backward, self.setup = backward, setup

    def kernel(self, device: str) -> Callable:
        for key in (device, "any", "implicit"):
            if key in self.kernels:
                return self.kernels[key]
        if device == "meta" and self.fake is not None:
            return self.fake
        raise NotImplementedError(f"Could not run '{self.name}' on the device '{device}': no implementation was registered for it "
                                  f"(there are those for {', '.join(self.kernels) or 'none'})")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        positional, named = list(bound.args), dict(bound.kwargs)
        tensors = [t for a in (*positional, *named.values()) for t in (a if isinstance(a, (tuple, list)) else (a,))
                   if isinstance(t, Tensor)]
        if self.sharded is not None and any(hasattr(t, "_spec") for t in tensors):
            return self.sharded(args, kwargs)
        kinds = [t.device.type for t in tensors if t.dim() or len(tensors) == 1] or [t.device.type for t in tensors]
        device = "meta" if "meta" in kinds else kinds[0] if kinds else "cpu"
        own = self.kernels.get(f"autograd {device}") or self.kernels.get("autograd")
        inside = self.name in _inside.names
        if own is not None and not inside:
            before, _inside.names = _inside.names, _inside.names | {self.name}
            try:
                return own(*positional, **named)
            finally:
                _inside.names = before
        run = self.fake if device == "meta" and "meta" not in self.kernels and self.fake is not None else self.kernel(device)
        if inside or run is self.kernels.get("implicit") or not (_C.is_grad_enabled() and any(t.requires_grad for t in tensors)):
            return run(*positional, **named)
        if self.schema.rstrip().endswith("()"):  # what only changes its arguments has no derivative
            with no_grad():
                return run(*positional, **named)
        return self._recorded(run, positional, named)

    def _recorded(self, run: Callable, positional: list, named: dict) -> Any:
        definition, count, names = self, len(positional), list(named)
        # Function sees the tensors that it is given, and none within lists or by keyword. The graph owns the class, which owns no tensors.
        arguments = [*positional, *named.values()]
        lists = [(tuple if isinstance(a, tuple) else list, len(a))
                 if isinstance(a, (tuple, list)) and any(isinstance(t, Tensor) for t in a) else None for a in arguments]
        gives_list = False

        def rebuilt(flat: Sequence) -> list:
            rest = iter(flat)
            return [next(rest) if of is None else of[0]([next(rest) for _ in range(of[1])]) for of in lists]

        class Recorded(Function):
            @staticmethod
            def forward(ctx: Any, *flat: Any) -> Any:
                nonlocal gives_list
                given = rebuilt(flat)
                inputs, keywords = tuple(given[:count]), dict(zip(names, given[count:]))
                ctx.needs_input_grad = tuple(rebuilt(ctx.needs_input_grad)[:count])
                with no_grad():
                    result = run(*inputs, **keywords)
                if definition.setup is not None:
                    more = {"keyword_only_inputs": keywords} if keywords else {}
                    definition.setup(ctx, inputs, result, **more)
                gives_list = isinstance(result, list)
                return tuple(result) if gives_list else result

            @staticmethod
            def backward(ctx: Any, *gradients: Any) -> Any:
                if definition.backward is None:
                    raise RuntimeError(f"Trying to backward through {definition.name} but no autograd formula was registered. Please use "
                                       "register_autograd to add one.")
                ctx.needs_input_grad = tuple(rebuilt(ctx.needs_input_grad)[:count])
                got = definition.backward(ctx, list(gradients)) if gives_list else definition.backward(ctx, *gradients)
                got = got if isinstance(got, tuple) else (got,)
                if len(got) < count or any(g is not None for g in got[count:]):
                    raise RuntimeError(f"{definition.name}: backward gave {len(got)} gradients for {count} arguments")
                flat: list = []
                for g, of in zip((*got[:count], *[None] * len(names)), lists):
                    if isinstance(g, (tuple, list)) and all(one is None for one in g):
                        g = None
                    own = [g] if of is None else [None] * of[1] if g is None else list(g)
                    if of is not None and len(own) != of[1]:
                        raise RuntimeError(f"{definition.name}: backward gave {len(own)} gradients for a list of {of[1]}")
                    flat += own
                return tuple(flat)

        Recorded.__name__ = Recorded.__qualname__ = self.name.replace("::", "_")
        result = Recorded.apply(*[t for a, of in zip(arguments, lists) for t in ([a] if of is None else a)])
        return list(result) if gives_list else result


class _Inside(threading.local):
    """The operators whose implementation of gradients this thread is in: there they are meant themselves by their names."""

    names: frozenset = frozenset()


_inside = _Inside()


def _value(text: str) -> Any:
    import ast

    text = text.strip()
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


DEFINITIONS: dict[str, Definition] = {}
# Fakes and derivatives of operators that nobody has defined yet.
WAITING: dict[str, list[Callable[[Definition], None]]] = {}


def define(name: str, schema: str) -> Definition:
    if "::" not in name:
        raise ValueError(f"an operator's name has a namespace, as in 'mylib::{name}'")
    if name.startswith("aten::"):
        raise RuntimeError(f"{name}: operators of aten are the library's own")
    made = DEFINITIONS[name] = Definition(name, schema)
    for act in WAITING.pop(name, []):
        act(made)
    return made


def when_defined(name: str, act: Callable[[Definition], None]) -> None:
    if name in DEFINITIONS:
        act(DEFINITIONS[name])
    else:
        WAITING.setdefault(name, []).append(act)
