"""What programs say to PyTorch's compiler of Python, which there is none of here."""
from __future__ import annotations

import builtins
import contextlib
from typing import Any, Callable

from ..futures import Future


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """Runs the function now, and gives its result as a future for wait(): tasks of programs are not run beside each other.

    >>> arete.jit.wait(arete.jit.fork(lambda x: 2 * x, 3))
    6
    """
    future: Future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future) -> Any:
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
    return builtins.isinstance(obj, target_type)


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


class optimized_execution(contextlib.nullcontext):
    """Nothing, as a `with` block: kernels are chosen where a program runs, and arete.compile() puts them together.

    >>> with arete.jit.optimized_execution(False):
    ...     pass
    """

    def __init__(self, should_optimize: bool) -> None:
        super().__init__()


class fuser(optimized_execution):
    """Nothing, as a `with` block: there is one way of running programs, whatever torch's fusers are called.

    >>> with arete.jit.fuser("fuser2"):
    ...     pass
    """

    def __init__(self, name: str) -> None:
        if name not in ("fuser0", "fuser1", "fuser2", "fuser3"):
            raise Exception(f"unrecognized fuser option (name: {name})")
        super().__init__(True)


class strict_fusion(optimized_execution):
    """Refused: what is put together is not checked in a program (`explain()` of compiled functions shows it).

    >>> arete.jit.strict_fusion()
    Traceback (most recent call last):
    NotImplementedError: jit.strict_fusion(): explain() of a compiled function shows what is put together
    """

    def __init__(self) -> None:
        raise NotImplementedError("jit.strict_fusion(): explain() of a compiled function shows what is put together")


_strategy: list = [("STATIC", 2), ("DYNAMIC", 10)]


def set_fusion_strategy(strategy: list) -> list:
    """Gives what was set before; programs do not specialise, so nothing follows from it.

    >>> before = arete.jit.set_fusion_strategy([("DYNAMIC", 3)])
    >>> arete.jit.set_fusion_strategy(before)
    [('DYNAMIC', 3)]
    """
    global _strategy
    before, _strategy = _strategy, list(strategy)
    return before


def _unwrap_optional(x: Any) -> Any:
    """The value, which must not be None.

    >>> arete.jit._unwrap_optional(3)
    3
    """
    assert x is not None, "Unwrapping null optional"
    return x
