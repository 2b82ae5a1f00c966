"""What functions written in Python are given: a place among the methods of Tensor, and torch's other names of arguments."""
from __future__ import annotations

import functools

from ... import _C
from .. import _ops

METHODS: dict[str, object] = {}


def also_method(function):
    """The function becomes a method of Tensor, too, or stands for a method of another name."""
    METHODS[function.__name__] = function
    return function


def numpy_names(function):
    """Takes "axis" for "dim" and the like, as operators made from records do."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    own = {other: name for name in names for other in _C._other_names(name)}

    @functools.wraps(function)
    def renamed(*args, **kwargs):
        if kwargs and not own.keys().isdisjoint(kwargs):
            for other in own.keys() & kwargs.keys():
                if own[other] in kwargs:
                    raise TypeError(f"{function.__name__}() got multiple values for argument '{other}'")
                kwargs[own[other]] = kwargs.pop(other)
        return function(*args, **kwargs)

    return renamed


def given(out, result):
    """The result, or the tensors of out= with its values: an operator writes them, under the rules for all of them."""
    if out is None:
        return result
    if isinstance(result, tuple):
        return tuple(given(o, r) for o, r in zip(out, result, strict=True))
    if isinstance(out, _C.Tensor) and out.dtype is not result.dtype:
        raise _C.DTypeError(f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
    return _ops.positive(result, out=out)
