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

from . import _operators as operators
from ._C import Tensor
from .compiler import compile as compiled
from ._library import DEFINITIONS, KEYS, Definition, define as _define, infer_schema, when_defined as _when_defined

__all__ = ["CustomOpDef", "Library", "OpCheckError", "custom_op", "define", "fallthrough_kernel", "impl", "impl_abstract", "infer_schema",
           "opcheck", "register_autograd",
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
        raise NotImplementedError("register_vmap: under arete.vmap() the operators that it calls run for the whole batch")

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


class OpCheckError(Exception):
    """An operator that is not what it says: see opcheck()."""


def _mapped(f: Callable, value: Any) -> Any:
    """The same structure of lists, tuples and dicts with f of each tensor."""
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(f, v) for v in value)
    if isinstance(value, dict):
        return {k: _mapped(f, v) for k, v in value.items()}
    return f(value) if isinstance(value, Tensor) else value


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    _mapped(found.append, value)
    return found


def _copied(value: Any) -> Any:
    return _mapped(lambda t: t.detach().clone().requires_grad_(t.requires_grad), value)


def _check_schema(op: Callable, definition: Definition, args: tuple, kwargs: dict) -> None:
    args, kwargs = _copied((args, kwargs))
    bound = definition.signature.bind(*args, **kwargs).arguments
    before = {name: [(t, t.detach().clone()) for t in _tensors([value])] for name, value in bound.items()}
    results = _tensors([op(*args, **kwargs)])
    for name, pairs in before.items():
        for t, old in pairs:
            if name not in definition.changes and not operators.equal(t.detach().nan_to_num(), old.nan_to_num()):
                raise OpCheckError(f"{definition.name}: Argument {name} is not defined as mutable but was mutated")
            for i, r in enumerate(results):
                if r.numel() and r.untyped_storage().data_ptr() == t.untyped_storage().data_ptr():
                    raise OpCheckError(f"{definition.name}: Argument {name} is not defined to alias output {i} but was aliasing")
    places = [r.untyped_storage().data_ptr() for r in results if r.numel()]
    if len(set(places)) != len(places):
        raise OpCheckError(f"{definition.name}: outputs are not defined to alias each other but do")


def _check_registration(op: Callable, definition: Definition, args: tuple, kwargs: dict) -> None:
    args, kwargs = _copied((args, kwargs))
    if not any(t.requires_grad for t in _tensors([args, kwargs])) or definition.schema.rstrip().endswith("()"):
        return
    if any(key.startswith("autograd") or key == "implicit" for key in definition.kernels) or definition.backward is not None:
        return
    if any(r.requires_grad for r in _tensors([op(*args, **kwargs)])):
        raise OpCheckError(f"{definition.name} has no formula of a gradient (register_autograd), but was given arguments that require one")


def _check_fake(op: Callable, definition: Definition, args: tuple, kwargs: dict) -> None:
    args, kwargs = _mapped(lambda t: t.detach().clone(), (args, kwargs))
    try:
        faked = _tensors([op(*_mapped(lambda t: t.to("meta"), args), **_mapped(lambda t: t.to("meta"), kwargs))])
    except NotImplementedError as error:
        raise OpCheckError(f"{definition.name} has no fake (register_fake): {error}") from error
    real = _tensors([op(*args, **kwargs)])
    for i, (f, r) in enumerate(zip(faked, real)):
        for fact, got, wanted in (("shape", f.shape, r.shape), ("dtype", f.dtype, r.dtype), ("strides", f.stride(), r.stride())):
            if got != wanted:
                raise OpCheckError(f"{definition.name}: {fact} of output {i} of the fake are {got}, of the operator {wanted}")
    if len(faked) != len(real):
        raise OpCheckError(f"{definition.name}: the fake gives {len(faked)} tensors, the operator {len(real)}")


def _check_compiled(op: Callable, definition: Definition, args: tuple, kwargs: dict, rtol: float | None, atol: float | None) -> None:
    close = {"rtol": 1e-4 if rtol is None else rtol, "atol": 1e-5 if atol is None else atol, "equal_nan": True}
    runs: list[list[Tensor]] = []
    for run in (op, compiled(op)):
        for _ in range(1 if run is op else 3):  # a compiled function records its first calls
            own_args, own_kwargs = _copied((args, kwargs))
            results = _tensors([run(*own_args, **own_kwargs)])
            differentiated = [r for r in results if r.requires_grad] if definition.backward is not None else []
            if differentiated:
                sum((r.sum() for r in differentiated[1:]), differentiated[0].sum()).backward()
            inputs = _tensors([own_args, own_kwargs])
            gradients = [t.grad for t in inputs if t.grad is not None]
            runs.append([t.detach() for t in (*results, *inputs, *gradients)])
    for other in runs[1:]:
        if len(other) != len(runs[0]) or not all(operators.allclose(a, b, **close) for a, b in zip(runs[0], other)):
            raise OpCheckError(f"{definition.name}: compiled it gives other tensors, changes other arguments or has other gradients")


_TESTS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def opcheck(op: Any, args: tuple, kwargs: dict | None = None, *, test_utils: Any = _TESTS, raise_exception: bool = True,
            atol: float | None = None, rtol: float | None = None) -> dict[str, Any]:
    """Tries an operator with arguments and sees whether it does what it says: it changes only the arguments of `mutates_args`, its results
    are new memory (test_schema); where gradients are wanted there is a formula (test_autograd_registration); the fake gives shapes,
    dtypes and strides of the real results (test_faketensor); compiled it does the same (test_aot_dispatch_dynamic). "SUCCESS" for each;
    else OpCheckError, or the error in its place.

    >>> @arete.library.custom_op("mine::unsaid", mutates_args=())
    ... def unsaid(x: arete.Tensor) -> arete.Tensor:
    ...     return x.mul_(2).clone()
    >>> arete.library.opcheck(unsaid, (arete.ones(2),), test_utils="test_schema", raise_exception=False)
    {'test_schema': OpCheckError('mine::unsaid: Argument x is not defined as mutable but was mutated')}
    """
    chosen = _TESTS if test_utils == "ALL" else (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = [name for name in chosen if name not in _TESTS]
    if unknown:
        raise ValueError(f"opcheck: test_utils are some of {', '.join(_TESTS)}, or 'ALL', not {', '.join(map(str, unknown))}")
    definition, kwargs = _existing(_name_of(op)), kwargs or {}
    call = op if callable(op) else definition
    found: dict[str, Any] = {}
    for name in chosen:
        try:
            if name == "test_schema":
                _check_schema(call, definition, args, kwargs)
            elif name == "test_autograd_registration":
                _check_registration(call, definition, args, kwargs)
            elif name == "test_faketensor":
                _check_fake(call, definition, args, kwargs)
            else:
                _check_compiled(call, definition, args, kwargs, rtol, atol)
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise error if isinstance(error, OpCheckError) else OpCheckError(f"{definition.name}: {name} failed: {error}") from error
            found[name] = error
    return found


def fallthrough_kernel() -> None:
    """For Library.impl(): nothing of its own for this key."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


def __getattr__(name: str) -> Any:
    if name in ("triton_op", "wrap_triton"):
        raise AttributeError(f"module 'arete.library' has no attribute '{name}': Triton does not know these tensors; "
                             "arete.kernels makes kernels")
    raise AttributeError(f"module 'arete.library' has no attribute {name!r}")
