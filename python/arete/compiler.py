"""Functions and modules whose calls run as plans: `arete.compile` under torch's names, and what programs ask of torch.compiler.

A compiled function is an eager function whose calls are put off: all of it runs in Python, each time, and so do branches, prints, hooks and
exceptions, but the kernels of its operators wait until a value is looked at or the function ends, and then run as a plan, with element-wise
operators in one kernel, without temporaries that nobody reads. There is nothing to guard and nothing that can be stale (docs/compile.md),
unless functions that are shown to be closed shall be skipped.
"""
from __future__ import annotations

import contextlib as _contextlib
import functools as _functools
import importlib as _importlib
import os as _os
import sys as _sys
import threading as _threading
import types as _types
import weakref as _weakref
from typing import Any, Callable

from arete import _C

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
# Options, with their values.
_OPTIONS = {"exact": (True, False), "skip": (True, False)}
_BACKENDS = ("inductor", "cudagraphs", "eager", "aot_eager", "aot_eager_decomp_partition", "onnxrt", "openxla", "tvm", "tensorrt")
_STANCES = ("default", "force_eager")
_stance = "default"
# Classes whose objects become other objects, and what makes these: modules.
_wrappers: list[tuple[type, Callable]] = []
# Programs of all compiled functions, for reset(); and where all that are made are kept, if somebody wants to explain them.
_programs: Any = _weakref.WeakSet()
_kept: "list[_Program] | None" = None
_FORMATS = ("text", "json", "html")
# Backends that the program has given names, with their tags.
_registered: dict[str, Callable] = {}
_tags: dict[str, tuple[str, ...]] = {}


class _UnderWay(_threading.local):
    """How many graphs for backends of the program this thread is recording."""

    graphs = 0


_under_way = _UnderWay()


def _name_of(function: Any) -> str:
    """What a function is called in explanations: with its line, where it has one."""
    name = str(getattr(function, "__qualname__", type(function).__name__))
    code = getattr(function, "__code__", None)
    if isinstance(code, _types.CodeType):
        name += f" ({code.co_filename}:{code.co_firstlineno})"
    return name.encode("utf-8", "backslashreplace").decode()


class _Program:
    """Plans of one function, and what its wrapper offers besides calling it."""

    def __init__(self, exact: bool, fullgraph: bool, name: str = "", band: int | None = None,
                 memory_budget: float = 1.0, skip: bool = False) -> None:
        self._made_by = exact, fullgraph, name, band, memory_budget, skip
        self.program = _C._make_program(exact, fullgraph, name, band, memory_budget)
        self.skipper: Any = None
        if skip:
            from arete import _skip  # what it needs is not needed to start

            self.skipper = _skip.Skipper(self.program)
        _programs.add(self)
        if _kept is not None:
            _kept.append(self)

    def run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        if _stance == "force_eager":
            return _C._call_eagerly(function, args, kwargs)
        if self.skipper is not None:
            return self.skipper.call(function, args, kwargs)
        return self.program.call(function, args, kwargs)

    def reset(self) -> None:
        """Forgets all plans."""
        self.program.reset()
        if self.skipper is not None:
            self.skipper.reset()

    def stats(self) -> dict:
        """How many calls, breaks, lists of primitive calls, plans and runs of plans there were."""
        return self.program.stats()

    def explain(self, format: str = "text", file: Any = None) -> "str | None":
        """What became of the calls so far: breaks with their lines and cost, lists of calls and what made them differ, plans with their
        steps, and what stayed apart, with the reason. `format`: "text" for people, "json" with all of it, or "html", a page that needs
        nothing else, with the plans drawn. Gives the text, or writes it to `file` (a path).
        """
        if format not in _FORMATS:
            raise ValueError(f"explain(): format is one of {', '.join(_FORMATS)}, not {format!r}")
        return _hand_out(_C._explain([self.program], format), file)

    # Plans are made anew where a copy is called.
    def __reduce__(self) -> tuple:
        return _Program, self._made_by


def _hand_out(text: str, file: Any) -> "str | None":
    if file is None:
        return text
    with open(_os.fspath(file), "w", encoding="utf-8") as out:
        out.write(text)
    return None


def _program_of(
    model: Any, *, fullgraph: bool = False, dynamic: Any = None, backend: Any = "inductor", mode: Any = None, options: Any = None,
    disable: bool = False,
) -> "_Program | None":
    """Checks the arguments of compile(); none if it is disabled. `model` gives the name."""
    if not isinstance(fullgraph, bool):
        raise TypeError(f"compile(): fullgraph is True or False, not {fullgraph!r}")
    if dynamic not in (None, True, False):
        raise TypeError(f"compile(): dynamic is True, False or None, not {dynamic!r}")
    if not (isinstance(backend, str) or callable(backend)):
        raise TypeError(f"compile(): a backend is a name, not {backend!r}")
    backend = _registered.get(backend, backend) if isinstance(backend, str) else backend
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if callable(backend):
        if disable:
            return None
        more = {**({"mode": mode} if mode not in (None, "default") else {}), **({"options": options} if options else {})}
        # From above here: graphs are recorded with all that programs are made of.
        return _importlib.import_module("arete._graph_backend").GraphProgram(backend, more, _name_of(model))
    if backend not in _BACKENDS:
        raise _importlib.import_module("arete._dynamo.exc").InvalidBackend(name=backend)
    options = dict(options or {})
    if not callable(options.pop("guard_filter_fn", callable)):  # there are no guards to choose from
        raise RuntimeError("compile(): guard_filter_fn is a function")
    band = options.pop("band_bytes", None)
    if band is not None and (not isinstance(band, int) or isinstance(band, bool) or band <= 0):
        raise RuntimeError(f"compile(): band_bytes is a number of bytes, not {band!r}")
    set_by = _sys.modules  # modules of settings that were asked for
    budget = options.pop("memory_budget", getattr(set_by.get("arete._functorch.config"), "activation_memory_budget", 1))
    if not isinstance(budget, (int, float)) or isinstance(budget, bool) or not 0 <= budget <= 1:
        raise RuntimeError(f"compile(): memory_budget is a number from 0 to 1, not {budget!r}")
    for key, value in options.items():
        if key not in _OPTIONS:
            _check_option(key, value)
        elif value not in _OPTIONS[key]:
            raise RuntimeError(f"Unexpected optimization option {key}={value!r}, which is one of {_OPTIONS[key]}")
    skip = bool(options.get("skip", mode == "reduce-overhead"))
    if disable:
        return None
    exact = options.get("exact", False) or options.get(
        "emulate_precision_casts", getattr(set_by.get("arete._inductor.config"), "emulate_precision_casts", False))
    return _Program(bool(exact), fullgraph, _name_of(model), band, float(budget), skip)


def _check_option(key: str, value: Any) -> None:
    """An option that torch's compiler of kernels has: taken as its setting is."""
    from arete._settings.inductor import TABLE  # few programs name one

    try:
        TABLE.check("option ", key, value)
    except (AttributeError, ValueError) as e:
        raise RuntimeError(f"Unexpected optimization option {key}={value!r} ({e}), known options are {', '.join(_OPTIONS)}, "
                           "band_bytes, memory_budget and the settings of _inductor.config") from None


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: Any = "inductor",
    mode: str | None = None,
    options: dict | None = None,
    disable: bool = False,
) -> Any:
    """A function or module whose calls run as plans; also as a decorator, with or without arguments.

    With `options={"exact": True}` results have the bits of eager code; without it floats are rounded less often. `fullgraph`: looking
    at a value inside is an error. Shapes may change (`dynamic` does not matter: a plan is made for each list of calls in milliseconds),
    and all backends' names are one. A function as `backend` is given each list of calls that the function makes, as an fx.GraphModule of
    operators of `ops.aten`, and the tensors that it takes: state of modules, then inputs; what it gives, a function of those, computes
    the results. Such a function must be one graph, and a look at a value is an error with its line; it runs each time, to know its calls.

    `mode="reduce-overhead"` or `options={"skip": True}`: where it is shown that the function does the same
    again it does not run (Python 3.12; docs/compile.md); the other modes are as the default. Options that speak of torch's compiler
    of kernels are taken as _inductor.config takes them: one warning says that nothing follows; others are refused. Without `exact`,
    temporaries of `options={"band_bytes": n}` and more (256 MiB), such as the logits of a language model, are made in bands of rows of
    about that size; `options={"memory_budget": b}`, from 0 to 1, is the part of the memory for temporaries that plans may take: with less
    than 1 they compute again what is cheap to compute.

    >>> @arete.compile
    ... def f(x):
    ...     return (2 * x + 1).sqrt().tanh().sum()
    >>> f(arete.ones(3))
    tensor(2.8179)
    >>> f.stats()["plans"]
    1
    """
    if model is None:
        return lambda function: compile(function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
                                        disable=disable)
    if not callable(model):
        raise TypeError(f"compile(): a function or a module is compiled, not {type(model).__name__}")
    own = _program_of(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if own is None:
        return model
    for kind, wrapper in _wrappers:
        if isinstance(model, kind):
            return wrapper(model, own)
    return _wrap(model, own)


def _wrap(function: Callable, own: _Program) -> Callable:
    program, run = own.program, own.run

    @_functools.wraps(function)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        return run(function, args, kwargs)

    compiled._program = own  # type: ignore[attr-defined]
    compiled._torchdynamo_orig_callable = function  # type: ignore[attr-defined]
    compiled.explain = own.explain  # type: ignore[attr-defined]
    compiled.stats = own.stats  # type: ignore[attr-defined]
    compiled.breaks = program.breaks  # type: ignore[attr-defined]
    return compiled


@_contextlib.contextmanager
def _recording_graph() -> Any:
    """A graph for a backend of the program is being recorded."""
    _under_way.graphs += 1
    try:
        yield
    finally:
        _under_way.graphs -= 1


def is_compiling() -> bool:
    """Whether the calls of a compiled function are being put off, or recorded for a backend.

    >>> arete.compiler.is_compiling(), arete.compile(arete.compiler.is_compiling)()
    (False, True)
    """
    return _C._is_compiling() or _under_way.graphs > 0


def is_dynamo_compiling() -> bool:
    """See is_compiling().

    >>> arete.compiler.is_dynamo_compiling()
    False
    """
    return is_compiling()


def is_exporting() -> bool:
    """False: nothing is exported.

    >>> arete.compiler.is_exporting()
    False
    """
    return False


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks a function whose calls are made at once inside compiled ones; as a decorator with or without arguments. Compiled functions
    that it calls there put nothing off either, with `recursive=False`, too: torch would compile them, to the same results.

    >>> @arete.compiler.disable
    ... def double(x):
    ...     return 2 * x, arete.compiler.is_compiling()
    >>> arete.compile(double)(2)
    (4, False)
    """
    if fn is None:
        return lambda function: disable(function, reason=reason)

    @_functools.wraps(fn)
    def at_once(*args: Any, **kwargs: Any) -> Any:
        return _C._call_eagerly(fn, args, kwargs)

    return at_once


class set_stance:
    """How compiled functions run: "default", or "force_eager" as if they were not compiled. As a call, a context or a decorator.

    >>> with arete.compiler.set_stance("force_eager"):
    ...     arete.compile(arete.compiler.is_compiling)()
    False
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None) -> None:
        if stance not in _STANCES:
            raise NotImplementedError(f"compiler.set_stance(): {stance!r} is none of {', '.join(_STANCES)}: plans are made in "
                                      "milliseconds, and what a function does is always what runs")
        if force_backend is not None:
            raise NotImplementedError("compiler.set_stance(): there is one backend")
        global _stance
        self._before, self._stance = _stance, stance
        _stance = stance

    def __call__(self, fn: Callable) -> Callable:
        global _stance
        stance, _stance = self._stance, self._before

        @_functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return fn(*args, **kwargs)

        return with_stance

    def __enter__(self) -> None:
        global _stance
        _stance = self._stance

    def __exit__(self, *_: Any) -> None:
        global _stance
        _stance = self._before


def reset() -> None:
    """Forgets all plans.

    >>> arete.compiler.reset()
    """
    for own in list(_programs):
        own.reset()


def cudagraph_mark_step_begin() -> None:
    """Tells compiled functions that results of before are no longer wanted. They stay anyway: nothing is overwritten.

    >>> arete.compiler.cudagraph_mark_step_begin()
    """


def allow_in_graph(fn: Any) -> Any:
    """Marks a function that a compiler shall not look into, as none does: gives the function.

    >>> arete.compiler.allow_in_graph(len) is len
    True
    """
    return fn


def assume_constant_result(fn: Any) -> Any:
    """Gives the function: it runs each time.

    >>> arete.compiler.assume_constant_result(len) is len
    True
    """
    return fn


def nested_compile_region(fn: Any = None) -> Any:
    """Marks a function that occurs often, so that a compiler shall translate it once: gives the function, whose plans are found again.

    >>> arete.compiler.nested_compile_region(len) is len
    True
    """
    return (lambda function: function) if fn is None else fn


def _filter_of_guards(name: str) -> Callable:
    def keep(guard_entries: list) -> list[bool]:
        return [True for _ in guard_entries]

    keep.__name__ = keep.__qualname__ = name
    keep.__doc__ = f"""For options={{"guard_filter_fn": ...}}: which guards are kept. All of them, since there are none.

    >>> arete.compile(lambda x: x + 1, options={{"guard_filter_fn": arete.compiler.{name}}})(arete.ones(1))
    tensor([2.])
    """
    return keep


skip_guard_on_inbuilt_nn_modules_unsafe = _filter_of_guards("skip_guard_on_inbuilt_nn_modules_unsafe")
skip_guard_on_all_nn_modules_unsafe = _filter_of_guards("skip_guard_on_all_nn_modules_unsafe")
skip_guard_on_globals_unsafe = _filter_of_guards("skip_guard_on_globals_unsafe")
skip_all_guards_unsafe = _filter_of_guards("skip_all_guards_unsafe")
keep_tensor_guards_unsafe = _filter_of_guards("keep_tensor_guards_unsafe")
keep_portable_guards_unsafe = _filter_of_guards("keep_portable_guards_unsafe")


def substitute_in_graph(original_fn: Callable, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False,
                        is_embedded_type: bool = False) -> Callable:
    """A decorator of what stands for a function that a compiler cannot read: gives the replacement. The original runs in compiled
    functions, too, since all that runs in them is Python's.

    >>> arete.compiler.substitute_in_graph(len)(lambda x: x.__len__())([1, 2])
    2
    """
    return lambda replacement: replacement


def save_cache_artifacts() -> Any:
    """The compiled kernels of the cache ($ARETE_KERNEL_CACHE) as bytes, and a CacheInfo that names them; None where there are none.
    Plans are not among them: they are made in milliseconds.

    >>> saved = arete.compiler.save_cache_artifacts()
    """
    from arete import _cache_artifacts  # few programs need it

    return _cache_artifacts.save()


def load_cache_artifacts(serialized_artifacts: bytes) -> Any:
    """Puts what save_cache_artifacts() gave, perhaps on another machine, into the cache, and names the kernels that are there then. Those
    of other GPUs or compilers are found by nobody. None, with a warning, for what is nothing of the sort, and where there is no cache.

    >>> saved = arete.compiler.save_cache_artifacts()
    >>> saved is None or arete.compiler.load_cache_artifacts(saved[0]) == saved[1]
    True
    """
    if not isinstance(serialized_artifacts, bytes):
        raise TypeError(f"load_cache_artifacts(): artifacts are bytes, not {type(serialized_artifacts).__name__}")
    from arete import _cache_artifacts

    return _cache_artifacts.load(serialized_artifacts)


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of backends: the one that is here, and those that the program has registered (_dynamo.register_backend) without one of
    these tags.

    >>> arete.compiler.list_backends()
    ['inductor']
    """
    return sorted(["inductor", *(name for name in _registered if not set(_tags.get(name, ())) & set(exclude_tags or ()))])
