"""Programs that are recorded when they are called for."""
from __future__ import annotations

import copy
import functools
import inspect
import operator
import os
import sys
import threading
import types
import warnings
from typing import Any, Callable

from .. import _C
from .._program import Different, Recorded, _signature, addresses
from ..nn import Module
from ._programs import ScriptFunction, ScriptModule
from ._trace import is_tracing, record, record_and_compare

_CPU, _CUDA = _C.device("cpu"), _C.device("cuda")
_MOST = 64  # programs of a scripted function
_recording = threading.RLock()
_flags_of_module = operator.attrgetter("training", "_hooked")


def _modes() -> tuple:
    """What a recording depends on besides the function and its arguments."""
    return (_C.is_grad_enabled(), _C.is_inference_mode_enabled(), _C.get_default_dtype(),
            _C._is_autocast_enabled(_CPU) and _C._autocast_dtype(_CPU), _C._is_autocast_enabled(_CUDA) and _C._autocast_dtype(_CUDA))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


class _Watched:
    """The modules and tensors that a function sees without being given them: what is assigned in their place is noticed. As in torch
    numbers are those of the recording."""

    def __init__(self, function: Any) -> None:
        self.roots: list[Module] = []
        self.cells: list[Any] = []
        self.globals: list[tuple[dict, str]] = []
        self.seen: set[int] = set()
        self.visit(function)
        self.modules = list(dict.fromkeys(m for root in self.roots for m in root.modules()))
        self.dicts: list[dict] = []
        for m in self.modules:
            self.dicts += [m._parameters, m._buffers, m._modules]
            if m._hooked:
                self.dicts += [m._forward_pre_hooks, m._forward_hooks, m._backward_pre_hooks, m._backward_hooks]
        # Buffers that nobody registered.
        self.globals += [(m.__dict__, k) for m in self.modules for k, x in m.__dict__.items() if isinstance(x, _C.Tensor)]
        self.parameters = list(dict.fromkeys(p for m in self.modules for p in m._parameters.values() if p is not None))
        self.first = self.parameters[:1]
        self.kept = [list(d.values()) for d in self.dicts], self.outside()
        self.objects = self.addresses()
        self.is_empty = not self.objects and not self.modules

    def visit(self, function: Any) -> None:
        if isinstance(function, Module):
            self.roots.append(function)
        elif isinstance(function, types.MethodType):
            self.visit(function.__self__)
            self.visit(function.__func__)
        elif isinstance(function, functools.partial):
            for x in (function.func, *function.args, *function.keywords.values()):
                self.visit(x)
        elif isinstance(function, _Record):
            self.visit(function._scripted.function)
        elif isinstance(function, types.FunctionType) and id(function) not in self.seen:
            self.seen.add(id(function))
            for cell in function.__closure__ or ():
                if isinstance(x := _content(cell), (_C.Tensor, Module)):
                    self.cells.append(cell)
                self.visit(x)
            codes = [function.__code__]
            for code in codes:
                codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
                for name in code.co_names:
                    x = function.__globals__.get(name)
                    if isinstance(x, (_C.Tensor, Module)):
                        self.globals.append((function.__globals__, name))
                    if not isinstance(x, types.FunctionType) or x.__globals__ is function.__globals__:  # no library's
                        self.visit(x)

    def outside(self) -> list:
        return [_content(c) for c in self.cells] + [g.get(name) for g, name in self.globals]

    def addresses(self) -> tuple:
        found = addresses(self.dicts)
        return found + tuple(map(id, self.outside())) if self.cells or self.globals else found

    def flags(self) -> tuple:
        """Modes of the modules, and of which kind their parameters are."""
        return (*map(_flags_of_module, self.modules), *[p.requires_grad for p in self.parameters],
                *[(p.dtype, p.device) for p in self.first])


class _Scripted:
    """Programs of one function or module, recorded when they are first called for."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.watched: _Watched | None = None
        self.flags_then: tuple = ()
        self.changes = 0  # of what is watched, since a program was of use
        self.warned: set[str] = set()
        self.forget()

    def forget(self) -> None:
        self.programs: dict[Any, list[Recorded]] = {}  # by all that they depend on but sizes of at least 2
        self.known: dict[Any, Recorded] = {}  # by sizes, too
        self.last: dict[Any, Recorded] = {}  # by flags
        self.count = 0

    def flags(self) -> tuple:
        """Those of the function now; forgets programs of what it saw before."""
        watched = self.watched
        if watched is not None and (
            watched.is_empty or watched.addresses() == watched.objects and watched.flags() == self.flags_then
        ):
            return self.flags_then
        with _recording:
            self.watched, before = _Watched(self.function), watched
            self.flags_then = self.watched.flags()
            if before is not None and before.objects != self.watched.objects:
                self.forget()
                self.changes += 1
        return self.flags_then

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if is_tracing():  # a part of the program that is being recorded
            return self.function(*args, **kwargs)
        flags = self.flags()
        tensors: list = []
        given = [_signature(a, tensors, "jit.script()") for a in args]
        if kwargs:
            given += [(k, _signature(a, tensors, "jit.script()")) for k, a in kwargs.items()]
        key = (*given, flags, _modes(), *[(t.dtype, t.shape, t.device, t.requires_grad, t.is_contiguous()) for t in tensors])
        recorded = self.known.get(key)
        if recorded is None:
            recorded = self.find(key, len(tensors), tensors, args, kwargs)
            if recorded is None:
                return self.function(*args, **kwargs)
            if len(self.known) >= 1024:
                self.known.clear()
            self.known[key] = recorded
        else:
            self.changes = 0
        self.last[flags] = recorded
        return recorded.run(tensors)

    def find(self, key: tuple, count: int, tensors: list, args: tuple, kwargs: dict) -> Recorded | None:
        """A program for the arguments; None where the function has to run."""
        # Sizes of 0 and 1 are the program's own: they broadcast, are squeezed, and are asked for.
        free = (*key[: len(key) - count], *[(dtype, tuple([n if n < 2 else -1 for n in shape]), *rest)
                                            for dtype, shape, *rest in key[len(key) - count :]])
        with _recording:
            for recorded in self.programs.get(free, ()):
                if recorded.program.fits(tensors):
                    self.changes = 0
                    return recorded
            if self.count >= _MOST:
                self.warn(f"has {_MOST} programs, for other arguments, modes or sizes: it is not recorded again but runs as it is")
                return None
            if self.changes > 8:
                self.changes = 8  # recorded if the next call sees the same
                self.warn("is called with other parameters each time: it is not recorded each time but runs as it is")
                return None
            if _C.is_grad_enabled():
                recorded = record(self.function, args, kwargs, "jit.script()", 2)
            else:
                recorded = self.record_without_gradients(args, kwargs)
            # What the function keeps of a call was not assigned by others, and it may have met its globals first here.
            self.watched = _Watched(self.function)
            self.programs.setdefault(free, []).append(recorded)
            self.count += 1
            return recorded

    def record_without_gradients(self, args: tuple, kwargs: dict) -> Recorded:
        try:
            return record_and_compare(self.function, args, kwargs, "jit.script()", 2, 1e-5)
        except Different:  # of what is not the same each time the first call counts, as with gradients
            return record(self.function, args, kwargs, "jit.script()", 2, no_gradients=True)

    def warn(self, what: str) -> None:
        if what not in self.warned:
            self.warned.add(what)
            name = getattr(self.function, "__qualname__", type(self.function).__name__)
            warnings.warn(f"jit.script(): '{name}' {what}", stacklevel=5)

    def recorded(self) -> Recorded:
        """The one that ran last, of those that are for the function as it is now."""
        recorded = self.last.get(self.flags())
        if recorded is None and not self.needs_arguments():
            self()
            recorded = self.last.get(self.flags())
        if recorded is None:
            name = getattr(self.function, "__qualname__", type(self.function).__name__)
            raise RuntimeError(f"'{name}' is recorded when it is first called, which it was not, or not since its mode or its parameters "
                               "are others: dtypes and dimensions of its inputs are not known. Call what jit.script() gave once with "
                               f"inputs of the usual kind, or say jit.script({name}, example_inputs=[(x,)]), or jit.trace({name}, (x,))")
        return recorded

    def needs_arguments(self) -> bool:
        """Whether it cannot be called without."""
        try:
            parameters = inspect.signature(getattr(self.function, "forward", self.function)).parameters.values()
        except (TypeError, ValueError):
            return True
        return any(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in parameters)


class _Methods(dict):
    """Scripted methods of a module, which copies of it do not get."""

    def __deepcopy__(self, memo: Any) -> Any:
        return _Methods()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _Methods, ()


class _Record(ScriptFunction):
    def __init__(self, function: Callable) -> None:
        self._scripted = _Scripted(function)
        functools.update_wrapper(self, function)

    @property
    def _recorded(self) -> Recorded:  # type: ignore[override]
        return self._scripted.recorded()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._scripted(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if not isinstance(instance, Module):
            return functools.partial(self, instance)
        # A method, whose programs are those of one module.
        methods = instance.__dict__.setdefault("_scripted_methods", _Methods())
        if id(self) not in methods:
            methods[id(self)] = _Record(types.MethodType(self._scripted.function, instance))
        return methods[id(self)]

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return self.__qualname__ if found is self else (type(self), (self._scripted.function,))


class _RecordModule(ScriptModule):
    """A module whose calls are recorded; everything else is the module's own."""

    def __init__(self, module: Any) -> None:
        Module.__init__(self)
        self.__dict__["_scripted"] = _Scripted(module)
        for own in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[own] = getattr(module, own)

    _recorded = _Record._recorded  # type: ignore[assignment]

    @property
    def training(self) -> bool:  # type: ignore[override]
        return self.__dict__["_scripted"].function.training

    @property
    def original_name(self) -> str:
        """The class of the module."""
        return type(self._scripted.function).__name__

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._scripted(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_scripted"].function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "training" and name in self.__dict__ or name.startswith("_compiled"):
            object.__setattr__(self, name, value)  # of its calls
            return
        setattr(self._scripted.function, name, value)
        self._scripted.forget()  # programs have numbers and texts inside

    def __delattr__(self, name: str) -> None:
        delattr(self._scripted.function, name)
        self._scripted.forget()

    def __len__(self) -> int:
        return len(self._scripted.function)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(self._scripted.function)

    def __getitem__(self, key: Any) -> Any:
        return self._scripted.function[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._scripted.function

    def train(self, mode: bool = True) -> Any:
        self._scripted.function.train(mode)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        self._scripted.forget()
        self._scripted.function.to(*args, **kwargs)
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._scripted.forget()
        self._scripted.function._apply(fn)
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return type(self)(copy.deepcopy(self._scripted.function, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self._scripted.function,)

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """A function or module whose calls are recorded as a program when they are first made, and run as that from then on; as a
    decorator, too. There is no compiler of Python: what is recorded is the path that was taken. Branches and loops that depend on
    values of tensors are refused with their line; those that depend on numbers, shapes or types are taken when recording.

    Arguments of another structure, dtypes, numbers, sizes that the program does not take, sizes of 0 and 1, other modes of the module,
    of gradients or of autocast are recorded anew, and so is a module whose parameters, buffers, submodules or hooks are others than
    they were. Beyond 64 programs the function itself runs, with a warning. `example_inputs`, a list of tuples of arguments, are
    recorded at once. save() keeps the program that ran last in the present mode.

    >>> @arete.jit.script
    ... def f(x, n: int):
    ...     for _ in range(n):
    ...         x = x * 2
    ...     return x
    >>> f(arete.ones(2), 3), f(arete.ones(2), 1)
    (tensor([8., 8.]), tensor([2., 2.]))
    >>> str(f.graph).count("mul")
    1
    """
    if os.environ.get("PYTORCH_JIT") == "0":
        return obj
    if isinstance(obj, (ScriptFunction, ScriptModule)):
        return obj
    if isinstance(obj, type):
        return obj  # objects of the class are made by Python, while recording
    if optimize is not None:
        raise NotImplementedError("jit.script(): `optimize` is an old switch without meaning")
    if not callable(obj):
        raise TypeError(f"jit.script(): a function or a module is scripted, not {type(obj).__name__}")
    made = _RecordModule(obj) if isinstance(obj, Module) else _Record(obj)
    for args in example_inputs or ():
        made(*args)
    return made


RecursiveScriptModule = ScriptModule


def script_method(fn: Any) -> Any:
    """Refused, with jit.ScriptModule as the class of a program's module.

    >>> arete.jit.script_method(len)
    Traceback (most recent call last):
    NotImplementedError: jit.script_method(): make the class one of nn.Module, and call jit.script() on the module
    """
    raise NotImplementedError("jit.script_method(): make the class one of nn.Module, and call jit.script() on the module")
