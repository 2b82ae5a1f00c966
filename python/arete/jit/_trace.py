"""Programs of what is called with examples."""
from __future__ import annotations

import os
from typing import Any

from .. import _C
from .._program import Different, Recorded, check_module, every_dimension
from ..nn import Module
from ._programs import ScriptFunction, ScriptModule


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


def record(function: Any, args: tuple, kwargs: dict, what: str, least: int | None, **more: Any) -> Recorded:
    """Dimensions of at least this size may be dynamic; None: no one is."""
    is_module = isinstance(function, Module)
    if is_module:
        check_module(function)
    own = type(function).__name__
    if is_module:
        more.update({"training": function.training, "class": own})
    else:
        place = getattr(function, "__module__", None) or "__main__"
        more.update({"name": getattr(function, "__name__", own), "place": "" if place == "__main__" else place})
    return Recorded.record(function, args, kwargs, what=what, kind="module" if is_module else "function",
                           dynamic=None if least is None else lambda form, tensors: ([], every_dimension(tensors, least)), **more)


def record_and_compare(function: Any, args: tuple, kwargs: dict, what: str, least: int, tolerance: float) -> Recorded:
    recorded = record(function, args, kwargs, what, least)
    try:
        recorded.compare(function, args, kwargs, tolerance)
    except Different:
        # Gradients are wanted while recording, so that the program can give some; perhaps the function asks for that.
        if _C.is_grad_enabled():
            raise
        recorded = record(function, args, kwargs, what, least, no_gradients=True)
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
    if os.environ.get("PYTORCH_JIT") == "0":
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
        recorded = record_and_compare(func, args, kwargs, "jit.trace()", 1, check_tolerance)
    else:
        recorded = record(func, args, kwargs, "jit.trace()", None)
    for more in check_inputs or ():
        recorded.compare(func, as_tuple(more), {}, check_tolerance)
    return ScriptModule(recorded) if isinstance(func, Module) else ScriptFunction(recorded)


class _WithMethods(ScriptModule):
    """A module of several programs, which share its parameters."""

    def __init__(self, recorded: Recorded, methods: dict) -> None:
        super().__init__(recorded)
        self.__dict__.update(methods)
        self.__dict__["_methods"] = tuple(methods)

    def _one(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{what} has one program, and this module has {', '.join(self._methods)} beside forward: trace() the "
                                   "one that is wanted")

    def save(self, f: Any, _extra_files: dict | None = None) -> None:
        raise self._one("jit.save(): a file")

    def to(self, *args: Any, **kwargs: Any) -> Any:
        raise self._one("to(): what is moved")

    def __deepcopy__(self, memo: Any) -> Any:
        raise self._one("a copy")

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._one("a pickle")


def trace_module(mod: Any, inputs: dict, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
                 check_tolerance: float = 1e-5, strict: bool = True) -> ScriptModule:
    """trace() of several methods of a module, on the examples that `inputs` has by their names, "forward" among them; `check_inputs` is a
    list of such dicts. The programs share the module's parameters. Files and copies have one program, so such a module is not saved.

    >>> class Net(arete.nn.Linear):
    ...     def weighted(self, x):
    ...         return x * self.weight
    >>> net = arete.jit.trace_module(Net(2, 2), {"forward": arete.ones(1, 2), "weighted": arete.ones(2, 2)})
    >>> arete.equal(net.weighted(arete.ones(2, 2)), net.weight)
    True
    """
    if not isinstance(mod, Module):
        raise AttributeError(f"expected torch.nn.Module, but got {type(mod).__name__}")
    if not isinstance(inputs, dict) or "forward" not in inputs:
        raise NotImplementedError("jit.trace_module(): inputs are a dict from names of methods to examples, with 'forward' among them")
    made = {}
    for name, example in inputs.items():
        more = [given[name] for given in check_inputs or () if name in given]
        made[name] = trace(mod if name == "forward" else getattr(mod, name), example, optimize, check_trace, more, check_tolerance, strict)
    if len(made) == 1 or made["forward"] is mod:  # or PYTORCH_JIT=0
        return made["forward"]
    return _WithMethods(made.pop("forward")._recorded, made)


TopLevelTracedModule = TracedModule = ScriptModule
TracingCheckError = Different
