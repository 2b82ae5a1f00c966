"""Functions and modules as programs that run without their Python: torch.jit's names over recorded programs (docs/program.md).

`trace` records at once, `script` at the first call; both write down the calls of operators that are made, so a branch that depends on
values is an error with its line, and Python that is run while recording (numbers, loops over lists, hooks) leaves only its calls.
"""
from __future__ import annotations

import builtins as _builtins
import functools as _functools
import io as _io
import operator as _operator
import os as _os
import sys as _sys
import threading as _threading
import types as _types
import warnings as _warnings
from typing import Any, Callable, Final  # noqa: F401

from .. import _C
from .._program import (Different as _Different, Graph as _Graph, ProgramModule as _ProgramModule, Recorded as _Recorded,
                       addresses as _addresses, every_dimension as _every_dimension, check_module as _check_module,
                       _signature)
from ..futures import Future as _Future
from ..nn import Module as _Module

__all__ = ["ScriptFunction", "ScriptModule", "TracerWarning", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting",
           "is_tracing", "isinstance", "load", "optimize_for_inference", "save", "script", "script_if_tracing", "trace", "unused", "wait"]


class TracerWarning(Warning):
    """A category of warnings that programs silence. Nothing here warns with it.

    >>> issubclass(arete.jit.TracerWarning, Warning)
    True
    """


def is_scripting() -> bool:
    """False: code runs as Python does, and is recorded meanwhile.

    >>> arete.jit.is_scripting()
    False
    """
    return False


def is_tracing() -> bool:
    """Whether calls are being recorded.

    >>> arete.jit.is_tracing()
    False
    >>> seen = []
    >>> _ = arete.jit.trace(lambda x: seen.append(arete.jit.is_tracing()) or x + 1, arete.ones(2))
    >>> True in seen
    True
    """
    return _C._is_recording_program()


class ScriptModule(_ProgramModule):
    """A module that is a recorded program: `graph` and `code` print it, `save(file)` keeps it, and its parameters and buffers are
    those of the program. See trace(), script() and load().

    >>> net = arete.jit.trace(arete.nn.Linear(2, 3), arete.ones(4, 2))
    >>> net(arete.ones(7, 2)).shape, [name for name, _ in net.named_parameters()]
    (arete.Size([7, 3]), ['weight', 'bias'])
    """

    def save(self, f: Any, _extra_files: dict | None = None) -> None:
        """Writes the program to a path or an open file."""
        self._recorded.save(f, _extra_files)

    @property
    def inlined_graph(self) -> _Graph:
        """`graph`: there are no calls of other programs in it."""
        return self.graph


class ScriptFunction:
    """A function that is a recorded program: see trace().

    >>> f = arete.jit.trace(lambda x, y: x.exp() * y, (arete.ones(2), arete.ones(2)))
    >>> f(arete.zeros(3), arete.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, recorded: _Recorded) -> None:
        self._recorded = recorded
        self.__name__ = self.__qualname__ = recorded.form.get("name", "program")

    def __deepcopy__(self, memo: Any) -> Any:
        return ScriptFunction(self._recorded.clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = _io.BytesIO()
        self._recorded.save(file)
        return _load_bytes, (file.getvalue(),)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._recorded(*args, **kwargs)

    graph = inlined_graph = _ProgramModule.graph
    code = _ProgramModule.code
    save = ScriptModule.save

    @property
    def name(self) -> str:
        """That of the function that was recorded."""
        return self.__name__


def _load_bytes(data: bytes) -> Any:
    return load(_io.BytesIO(data))


def _record(function: Any, args: tuple, kwargs: dict, what: str, least: int | None, **more: Any) -> _Recorded:
    """Dimensions of at least this size may be dynamic; None: no one is."""
    is_module = _builtins.isinstance(function, _Module)
    if is_module:
        _check_module(function)
    more.update({"training": function.training} if is_module else {"name": getattr(function, "__name__", type(function).__name__)})
    return _Recorded.record(function, args, kwargs, what=what, kind="module" if is_module else "function",
                           dynamic=None if least is None else lambda form, tensors: ([], _every_dimension(tensors, least)), **more)


def _record_and_compare(function: Any, args: tuple, kwargs: dict, what: str, least: int, tolerance: float) -> _Recorded:
    recorded = _record(function, args, kwargs, what, least)
    try:
        recorded.compare(function, args, kwargs, tolerance)
    except _Different:
        # Gradients are wanted while recording, so that the program can give some; perhaps the function asks for that.
        if _C.is_grad_enabled():
            raise
        recorded = _record(function, args, kwargs, what, least, no_gradients=True)
        recorded.compare(function, args, kwargs, tolerance)
    return recorded


def trace(func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
          check_tolerance: float = 1e-5, strict: bool = True, *, example_kwarg_inputs: dict | None = None) -> Any:
    """The calls that a function or module makes on example inputs, as a ScriptFunction or ScriptModule. It shares its parameters with
    the module, and what recording wrote into buffers is undone.

    With `check_trace` the function is also run with other sizes, and dimensions that it lets differ are dynamic: those of one position
    and size in several inputs together (a batch). It is then compared with the program, on the example and each of `check_inputs`.
    Without it sizes are those of the example. Inputs of other sizes than those are refused when the program is called, and so is
    training it in another mode.

    A value that is looked at (`item()`, a branch on a tensor) is a ValueError with its line. `optimize` must be None; results are
    trees of tuples, lists and dicts whatever `strict` says.

    >>> net = arete.nn.Sequential(arete.nn.Linear(4, 8), arete.nn.ReLU(), arete.nn.Linear(8, 2))
    >>> traced = arete.jit.trace(net, arete.ones(1, 4))
    >>> arete.equal(traced(arete.ones(5, 4)), net(arete.ones(5, 4)))
    True
    >>> arete.jit.trace(lambda x: x if x.sum() > 0 else -x, arete.ones(2))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    arete.ArgumentError: a value that depends on the inputs was looked at on the host while a program was recorded ...
    """
    if _os.environ.get("PYTORCH_JIT") == "0":
        return func
    if optimize is not None:
        raise NotImplementedError("jit.trace(): `optimize` is an old switch without meaning")
    if not callable(func):
        raise TypeError(f"jit.trace(): a function or a module is traced, not {type(func).__name__}")
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("Either example_inputs or example_kwarg_inputs must be given")
    as_tuple = lambda x: x if type(x) is tuple else tuple(x) if type(x) is list else (x,)  # noqa: E731
    args = () if example_inputs is None else as_tuple(example_inputs)
    kwargs = example_kwarg_inputs or {}
    if check_trace:
        recorded = _record_and_compare(func, args, kwargs, "jit.trace()", 1, check_tolerance)
    else:
        recorded = _record(func, args, kwargs, "jit.trace()", None)
    for more in check_inputs or ():
        recorded.compare(func, as_tuple(more), {}, check_tolerance)
    return ScriptModule(recorded) if _builtins.isinstance(func, _Module) else ScriptFunction(recorded)


_CPU, _CUDA = _C.device("cpu"), _C.device("cuda")
_MOST = 64  # programs of a scripted function
_recording = _threading.RLock()
_flags_of_module = _operator.attrgetter("training", "_hooked")


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
        self.roots: list[_Module] = []
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
        self.globals += [(m.__dict__, k) for m in self.modules for k, x in m.__dict__.items() if _builtins.isinstance(x, _C.Tensor)]
        self.parameters = list(dict.fromkeys(p for m in self.modules for p in m._parameters.values() if p is not None))
        self.first = self.parameters[:1]
        self.kept = [list(d.values()) for d in self.dicts], self.outside()
        self.objects = self.addresses()
        self.is_empty = not self.objects and not self.modules

    def visit(self, function: Any) -> None:
        if _builtins.isinstance(function, _Module):
            self.roots.append(function)
        elif _builtins.isinstance(function, _types.MethodType):
            self.visit(function.__self__)
            self.visit(function.__func__)
        elif _builtins.isinstance(function, _functools.partial):
            for x in (function.func, *function.args, *function.keywords.values()):
                self.visit(x)
        elif _builtins.isinstance(function, _Record):
            self.visit(function._scripted.function)
        elif _builtins.isinstance(function, _types.FunctionType) and id(function) not in self.seen:
            self.seen.add(id(function))
            for cell in function.__closure__ or ():
                if _builtins.isinstance(x := _content(cell), (_C.Tensor, _Module)):
                    self.cells.append(cell)
                self.visit(x)
            codes = [function.__code__]
            for code in codes:
                codes += [c for c in code.co_consts if _builtins.isinstance(c, _types.CodeType)]
                for name in code.co_names:
                    x = function.__globals__.get(name)
                    if _builtins.isinstance(x, (_C.Tensor, _Module)):
                        self.globals.append((function.__globals__, name))
                    if not _builtins.isinstance(x, _types.FunctionType) or x.__globals__ is function.__globals__:  # no library's
                        self.visit(x)

    def outside(self) -> list:
        return [_content(c) for c in self.cells] + [g.get(name) for g, name in self.globals]

    def addresses(self) -> tuple:
        found = _addresses(self.dicts)
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
        self.programs: dict[Any, list[_Recorded]] = {}  # by all that they depend on but sizes of at least 2
        self.known: dict[Any, _Recorded] = {}  # by sizes, too
        self.last: dict[Any, _Recorded] = {}  # by flags
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

    def find(self, key: tuple, count: int, tensors: list, args: tuple, kwargs: dict) -> _Recorded | None:
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
                recorded = _record(self.function, args, kwargs, "jit.script()", 2)
            else:
                recorded = self.record_without_gradients(args, kwargs)
            # What the function keeps of a call was not assigned by others, and it may have met its globals first here.
            self.watched = _Watched(self.function)
            self.programs.setdefault(free, []).append(recorded)
            self.count += 1
            return recorded

    def record_without_gradients(self, args: tuple, kwargs: dict) -> _Recorded:
        try:
            return _record_and_compare(self.function, args, kwargs, "jit.script()", 2, 1e-5)
        except _Different:  # of what is not the same each time the first call counts, as with gradients
            return _record(self.function, args, kwargs, "jit.script()", 2, no_gradients=True)

    def warn(self, what: str) -> None:
        if what not in self.warned:
            self.warned.add(what)
            name = getattr(self.function, "__qualname__", type(self.function).__name__)
            _warnings.warn(f"jit.script(): '{name}' {what}", stacklevel=5)

    def recorded(self) -> _Recorded:
        """The one that ran last, of those that are for the function as it is now."""
        recorded = self.last.get(self.flags())
        if recorded is None:
            raise RuntimeError("a scripted function is recorded when it is first called, which it was not, or not since its mode or its "
                               "parameters are others: call it, or use jit.trace()")
        return recorded


class _Methods(dict):
    """Scripted methods of a module, which copies of it do not get."""

    def __deepcopy__(self, memo: Any) -> Any:
        return _Methods()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _Methods, ()


class _Record(ScriptFunction):
    def __init__(self, function: Callable) -> None:
        self._scripted = _Scripted(function)
        _functools.update_wrapper(self, function)

    @property
    def _recorded(self) -> _Recorded:  # type: ignore[override]
        return self._scripted.recorded()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._scripted(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if not _builtins.isinstance(instance, _Module):
            return _functools.partial(self, instance)
        # A method, whose programs are those of one module.
        methods = instance.__dict__.setdefault("_scripted_methods", _Methods())
        if id(self) not in methods:
            methods[id(self)] = _Record(_types.MethodType(self._scripted.function, instance))
        return methods[id(self)]

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        found: Any = _sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        return self.__qualname__ if found is self else (type(self), (self._scripted.function,))


class _RecordModule(ScriptModule):
    """A module whose calls are recorded; everything else is the module's own."""

    def __init__(self, module: Any) -> None:
        _Module.__init__(self)
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
        import copy

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
    if _os.environ.get("PYTORCH_JIT") == "0":
        return obj
    if _builtins.isinstance(obj, (ScriptFunction, ScriptModule)):
        return obj
    if _builtins.isinstance(obj, type):
        return obj  # objects of the class are made by Python, while recording
    if optimize is not None:
        raise NotImplementedError("jit.script(): `optimize` is an old switch without meaning")
    if not callable(obj):
        raise TypeError(f"jit.script(): a function or a module is scripted, not {type(obj).__name__}")
    made = _RecordModule(obj) if _builtins.isinstance(obj, _Module) else _Record(obj)
    for args in example_inputs or ():
        made(*args)
    return made


def save(m: Any, f: Any, _extra_files: dict | None = None) -> None:
    """Writes a traced or scripted module or function to a path or an open file; at a path the file appears complete or not at all.
    `_extra_files`: texts or bytes by name, which load() gives back.

    >>> import io
    >>> file = io.BytesIO()
    >>> arete.jit.save(arete.jit.trace(arete.nn.Linear(2, 2), arete.ones(1, 2)), file)
    >>> _ = file.seek(0)
    >>> arete.jit.load(file)(arete.ones(3, 2)).shape
    arete.Size([3, 2])
    """
    if not _builtins.isinstance(m, (ScriptModule, ScriptFunction)):
        raise TypeError(f"jit.save(): what jit.trace() and jit.script() give is saved, not {type(m).__name__}")
    m.save(f, _extra_files)


def load(f: Any, map_location: Any = None, _extra_files: dict | None = None) -> Any:
    """A program from a path or an open file, which may be hostile: OSError says what is wrong with it. A ScriptModule, or a
    ScriptFunction if a function was saved. `map_location`: the device of its tensors, by default that on which it was recorded.
    `_extra_files`: a dict whose names get their contents, as bytes.

    >>> arete.jit.load("no such file")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: cannot open 'no such file': No such file or directory...
    """
    recorded = _Recorded.load(f, map_location, _extra_files)
    return ScriptFunction(recorded) if recorded.form["kind"] == "function" else ScriptModule(recorded)


class _FrozenRecord(ScriptModule):
    """A copy of a scripted module that shows none of its state."""

    def __init__(self, record: Any, preserved: Any) -> None:
        _Module.__init__(self)
        import copy

        twin = copy.deepcopy(record)
        for t in (*twin.parameters(), *twin.buffers()):
            t.requires_grad_(False)
        try:
            first = record._recorded.clone()
            first.program.freeze()
        except RuntimeError:  # not recorded yet
            first = None
        self.__dict__.update(_twin=twin, _first=first, _preserved=tuple(preserved), training=False)
        for name in preserved:
            self.__dict__[name] = getattr(twin._scripted.function, name)

    @property
    def _recorded(self) -> _Recorded:  # type: ignore[override]
        twin = self.__dict__["_twin"]
        if self._first is not None and not twin._scripted.count:
            return self._first
        recorded = twin._recorded.clone()
        recorded.program.freeze()
        return recorded

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._twin(*args, **kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.__dict__["_first"] = None
        self._twin._apply(fn)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__["_first"] = None
        self._twin.to(*args, **kwargs)
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self)(self._twin, self._preserved)
        made.__dict__["_first"] = self._first
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        file = _io.BytesIO()
        self.save(file)
        return _load_bytes, (file.getvalue(),)

    def extra_repr(self) -> str:
        return self._twin.extra_repr()


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A copy of a traced or scripted module in evaluation mode, whose parameters and buffers are constants: it has no state_dict, and
    no gradient flows to them. Of a scripted module `preserved_attrs` names attributes and methods that the copy has, too; what was
    traced has none.

    >>> net = arete.jit.trace(arete.nn.Linear(2, 2).eval(), arete.ones(1, 2))
    >>> frozen = arete.jit.freeze(net)
    >>> len(frozen.state_dict()), frozen(arete.ones(1, 2)).requires_grad
    (0, False)
    """
    if not _builtins.isinstance(mod, ScriptModule):
        raise RuntimeError("Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your "
                           f"'nn.Module'. Got: {type(mod).__name__}")
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before "
                           "freezing.")
    if _builtins.isinstance(mod, _RecordModule):
        return _FrozenRecord(mod, preserved_attrs or ())
    if preserved_attrs:
        raise NotImplementedError("jit.freeze(): a recorded program has no attributes to preserve")
    recorded = mod._recorded.clone()
    recorded.program.freeze()
    return ScriptModule(recorded)


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """freeze(), if it is not frozen: kernels are chosen where the program runs, and arete.compile() of it puts them together.

    >>> net = arete.jit.trace(arete.nn.Linear(2, 2).eval(), arete.ones(1, 2))
    >>> len(arete.jit.optimize_for_inference(net).state_dict())
    0
    """
    if not _builtins.isinstance(mod, _FrozenRecord):
        return freeze(mod, other_methods)
    gone = [name for name in other_methods or () if name not in mod._preserved]
    if gone:
        raise AttributeError(f"jit.optimize_for_inference(): freeze(preserved_attrs=) has not kept {gone}")
    return mod


def fork(func: Callable, *args: Any, **kwargs: Any) -> _Future:
    """Runs the function now, and gives its result as a future for wait(): tasks of programs are not run beside each other.

    >>> arete.jit.wait(arete.jit.fork(lambda x: 2 * x, 3))
    6
    """
    future: _Future = _Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: _Future) -> Any:
    """The result of a future that fork() gave.

    >>> arete.jit.wait(arete.jit.fork(max, 3, 5))
    5
    """
    return future.wait()


def ignore(drop=False, **kwargs):
    """Marks a function that is left to Python, which all are, while recording: gives the function, as a decorator with or without
    arguments.

    >>> @arete.jit.ignore
    ... def double(x):
    ...     return 2 * x
    >>> double(2)
    4
    """
    return drop if callable(drop) else lambda function: function


def unused(fn):
    """Marks a function that recorded code does not call: gives the function.

    >>> arete.jit.unused(len) is len
    True
    """
    return fn


def interface(obj):
    """Marks a class that says which methods modules have: gives the class, since recording asks for no types.

    >>> arete.jit.interface(dict) is dict
    True
    """
    return obj


def export(fn):
    """Marks a method that is to be kept, too: gives the method, since a program has one.

    >>> arete.jit.export(len) is len
    True
    """
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value.

    >>> arete.jit.annotate(int, 3)
    3
    """
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:  # noqa: A001
    """Whether the object is of this type, or of one of several.

    >>> arete.jit.isinstance(3, int)
    True
    """
    return _builtins.isinstance(obj, target_type)


def script_if_tracing(fn):
    """Gives the function: what it calls is recorded with the rest.

    >>> arete.jit.script_if_tracing(len) is len
    True
    """
    return fn


_script_if_tracing = script_if_tracing


def _overload(fn):
    """Marks one of several signatures of a function: gives it.

    >>> arete.jit._overload(len) is len
    True
    """
    return fn


_overload_method = _overload
