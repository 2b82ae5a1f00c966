"""What programs ask of torch.jit in passing: whether they are being compiled (never), and marks for a compiler.

There is no compiler of Python functions: `script` and `trace` are missing, unless the environment has PYTORCH_JIT=0, torch's own switch
for running what they would compile as it is.
"""
from __future__ import annotations

import builtins as _builtins
import os as _os
from typing import Any, Final  # noqa: F401

_REASON = ("there is no compiler of Python functions. With PYTORCH_JIT=0 in the environment, as in torch, jit.script and jit.trace give "
           "the function or module as it is")


def is_scripting() -> bool:
    """False: code runs as Python does.

    >>> arete.jit.is_scripting(), arete.jit.is_tracing()
    (False, False)
    """
    return False


def is_tracing() -> bool:
    """False: calls are not traced.

    >>> arete.jit.is_tracing()
    False
    """
    return False


def ignore(drop=False, **kwargs):
    """Marks a function that a compiler shall leave to Python, which all are: gives the function, as a decorator with or without
    arguments.

    >>> @arete.jit.ignore
    ... def double(x):
    ...     return 2 * x
    >>> double(2)
    4
    """
    return drop if callable(drop) else lambda function: function


def unused(fn):
    """Marks a function that compiled code does not call: gives the function.

    >>> arete.jit.unused(len) is len
    True
    """
    return fn


def export(fn):
    """Marks a method that a compiler shall compile, too: gives the method.

    >>> arete.jit.export(len) is len
    True
    """
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value, of which a compiler would know the type.

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
    """Gives the function: nothing is traced.

    >>> arete.jit.script_if_tracing(len) is len
    True
    """
    return fn


def _as_it_is(obj, *args, **kwargs):
    return obj


def __getattr__(name: str):
    if name in ("script", "trace") and _os.environ.get("PYTORCH_JIT") == "0":
        return _as_it_is
    why = f": {_REASON}" if name in ("script", "trace", "ScriptModule", "ScriptFunction", "freeze", "load", "save", "fork") else ""
    raise AttributeError(f"module 'arete.jit' has no attribute '{name}'{why}")
