"""What programs ask of torch.compiler in passing: whether they are being compiled (never), and marks for a compiler."""
from __future__ import annotations


def is_compiling() -> bool:
    """False: functions run as Python does.

    >>> arete.compiler.is_compiling(), arete.compiler.is_dynamo_compiling(), arete.compiler.is_exporting()
    (False, False, False)
    """
    return False


def is_dynamo_compiling() -> bool:
    """False: see is_compiling().

    >>> arete.compiler.is_dynamo_compiling()
    False
    """
    return False


def is_exporting() -> bool:
    """False: see is_compiling().

    >>> arete.compiler.is_exporting()
    False
    """
    return False


def disable(fn=None, recursive=True, *, reason=None):
    """Marks a function that shall not be compiled, which none is: gives the function, as a decorator with or without arguments.

    >>> @arete.compiler.disable
    ... def double(x):
    ...     return 2 * x
    >>> double(2)
    4
    """
    return (lambda function: function) if fn is None else fn


def reset() -> None:
    """Forgets what was compiled, which is nothing.

    >>> arete.compiler.reset()
    """


def cudagraph_mark_step_begin() -> None:
    """Tells compiled functions that results of before are no longer wanted: there are none, and graphs are the program's own
    (`arete.cuda.CUDAGraph`).

    >>> arete.compiler.cudagraph_mark_step_begin()
    """
