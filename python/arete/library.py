"""Operators of programs' own, under names in arete.ops: torch.library.

>>> @arete.library.custom_op("mine::scaled", mutates_args=())
... def scaled(x: arete.Tensor, by: float) -> arete.Tensor:
...     return x * by
>>> def backward(ctx, gradient):
...     return gradient * ctx.by, None
>>> def setup_context(ctx, inputs, output):
...     ctx.by = inputs[1]
>>> scaled.register_autograd(backward, setup_context=setup_context)
>>> x = arete.ones(2, requires_grad=True)
>>> arete.ops.mine.scaled(x, 3.0).sum().backward()
>>> x.grad
tensor([3., 3.])
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._library import DEFINITIONS, KEYS, Definition, define as _define, infer_schema, when_defined as _when_defined

__all__ = ["CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "impl", "impl_abstract", "infer_schema",
           "register_autograd",
           "register_fake", "register_kernel"]


def _devices(types: Any) -> list[str]:
    if types is None:
        return ["any"]
    types = [types] if isinstance(types, str) else list(types)
    return [KEYS[t] if t in KEYS else "any" if t == "default" else t for t in types]


def _name_of(op: Any) -> str:
    return op if isinstance(op, str) else op._qualname


class CustomOpDef:
    """An operator that custom_op() made: a function, to which implementations, a fake and a derivative may be added."""

    def __init__(self, definition: Definition, function: Callable) -> None:
        self._definition, self._qualname, self._init_fn = definition, definition.name, function
        self.__name__, self.__doc__, self.__wrapped__ = getattr(function, "__name__", "op"), function.__doc__, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._definition(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Callable | None = None, /) -> Callable:
        """What it does with tensors of a kind of device ("cpu", "cuda")."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn: Callable, /) -> Callable:
        """What it gives for tensors without values (device "meta")."""
        return register_fake(self, fn)

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """backward(ctx, *gradients) gives the gradients of the arguments; setup_context(ctx, inputs, output) keeps what it needs."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func: Callable | None = None) -> None:
        raise NotImplementedError("register_vmap: arete.vmap() calls operators with each element, so there is nothing to say")

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Callable | None = None, /) -> None:
        raise NotImplementedError("register_torch_dispatch: there is no __torch_dispatch__; subclasses have __torch_function__")


def custom_op(name: str, fn: Callable | None = None, /, *, mutates_args: Any, device_types: Any = None, schema: str | None = None,
              tags: Any = None) -> Any:
    """Makes a function an operator "namespace::name"; a decorator. Its annotations, or `schema`, say what it takes and gives,
    `mutates_args` which arguments it changes ("unknown": all tensors). A function of several operators may be recorded through; this one is
    a call of its
    own, with the derivative that it is given."""

    def made(function: Callable) -> CustomOpDef:
        definition = _define(name, schema if schema is not None else infer_schema(function, mutates_args=mutates_args))
        for device in _devices(device_types):
            definition.kernels[device] = function
        return CustomOpDef(definition, function)

    return made if fn is None else made(fn)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Defines an operator that has no implementation yet."""
    _define(qualname, schema)


def _decorator(act: Callable, fn: Callable | None) -> Any:
    if fn is None:
        return lambda function: (act(function), function)[1]
    act(fn)
    return fn


def _existing(name: str) -> Definition:
    if name not in DEFINITIONS:
        raise RuntimeError(f"operator {name} does not exist: define it first")
    return DEFINITIONS[name]


def impl(qualname: Any, types: Any, func: Callable | None = None, *, lib: Any = None) -> Any:
    """What an operator does with tensors of these kinds of devices ("cpu", "cuda", "default" for all)."""
    definition = _existing(_name_of(qualname))
    return _decorator(lambda f: definition.kernels.update(dict.fromkeys(_devices(types), f)), func)


def register_kernel(op: Any, device_types: Any, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    """impl() by the name in newer programs."""
    return impl(op, device_types, func)


def register_fake(op: Any, func: Callable | None = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: bool = False) -> Any:
    """What an operator gives for tensors without values (device "meta"). It may be said before the operator is defined."""
    return _decorator(lambda f: _when_defined(_name_of(op), lambda d: setattr(d, "fake", f)), func)


impl_abstract = register_fake


def register_autograd(op: Any, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None) -> None:
    """The derivative of an operator: see CustomOpDef.register_autograd(). RuntimeError for operators that change arguments,
    NotImplementedError for those that take tensors by keyword only."""
    _when_defined(_name_of(op), lambda d: d.derive(backward, setup_context))


class Library:
    """Defines operators of a namespace ("DEF", "FRAGMENT"), or implements some that are there ("IMPL")."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns in ("aten", "prim", "prims"):
            raise ValueError(f"{ns} is a reserved namespace: its operators are the library's own")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._made: list[Callable] = []  # what undoes what this object has defined and implemented

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        name = schema[: schema.index("(")].strip()
        definition = _define(f"{self.ns}::{name}", schema)
        self._made.append(lambda: DEFINITIONS.pop(definition.name) if DEFINITIONS.get(definition.name) is definition else None)
        return name

    def _full(self, op_name: Any) -> str:
        name = op_name if isinstance(op_name, str) else op_name._qualname
        return name if "::" in name else f"{self.ns}::{name}"

    def impl(self, op_name: Any, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False, allow_override: bool = False) -> None:
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        if key not in KEYS:
            raise NotImplementedError(f"Library.impl(): there is no dispatch key {key}; there are {', '.join(k for k in KEYS if k)}")
        if with_keyset:
            raise NotImplementedError("Library.impl(): there are no sets of keys to be given")
        if fn is not fallthrough_kernel:
            def act(definition: Definition) -> None:
                definition.kernels[KEYS[key]] = fn
                self._made.append(lambda: definition.kernels.pop(KEYS[key]) if definition.kernels.get(KEYS[key]) is fn else None)

            _when_defined(self._full(op_name), act)

    def fallback(self, fn: Callable, dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        raise NotImplementedError("Library.fallback(): operators have no fallbacks")

    def _register_fake(self, op_name: Any, fn: Callable, _stacklevel: int = 1, *, allow_override: bool = False) -> None:
        register_fake(self._full(op_name), fn)

    def _destroy(self) -> None:
        while self._made:
            self._made.pop()()


def fallthrough_kernel() -> None:
    """For Library.impl(): nothing of its own for this key."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def __getattr__(name: str) -> Any:
    if name in ("triton_op", "wrap_triton"):
        raise AttributeError(f"module 'arete.library' has no attribute '{name}': Triton does not know these tensors; "
                             "arete.kernels makes kernels")
    raise AttributeError(f"module 'arete.library' has no attribute {name!r}")
