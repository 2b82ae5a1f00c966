"""Subclasses of Tensor that say what operators do with them: torch's protocol __torch_function__.

Operators look for such classes in C++ (operator_object.cpp), and only once there is one. Methods and attributes of Tensor are
looked up in the class of the object, so a subclass gets forms of its own that ask first: plain tensors pay nothing.
"""
from __future__ import annotations

import threading
import types

from .. import _C
from .._C import Tensor
from . import _ops


class DisableTorchFunctionSubclass:
    """Inside, subclasses of Tensor count as tensors: operators ask no __torch_function__.

    >>> with arete._C.DisableTorchFunctionSubclass():
    ...     arete.ones(1) + 1
    tensor([2.])
    """

    def __enter__(self):
        self._before = _C._switch_overrides_off(True)

    def __exit__(self, *error):
        _C._switch_overrides_off(self._before)


def _disabled_torch_function_impl(func, types, args=(), kwargs=None):
    """As __torch_function__ of a subclass: operators take its objects for tensors and give plain tensors."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def in_class(result, cls, given):
    """The tensors of a result as objects of a subclass; those among the arguments `given` (`out=`) stay, and are shown by others."""
    if isinstance(result, Tensor):
        if type(result) is not Tensor:
            return result
        return as_subclass(result, cls) if any(result is g for g in given) else result._in_class(cls)
    if isinstance(result, (tuple, list)):
        items = [in_class(r, cls, given) for r in result]
        if hasattr(result, "_fields"):
            return type(result)(*items)
        return type(result)(items)
    return result


def get_default_nowrap_functions() -> set:
    """What gives plain tensors of subclasses, too: attributes that name other tensors.

    >>> arete.Tensor.grad.__get__ in arete.overrides.get_default_nowrap_functions()
    True
    """
    return {Tensor._base.__get__, Tensor.grad.__get__}


def _torch_function(cls, func, types, args=(), kwargs=None):
    """What a subclass of Tensor makes of a call of `func`; this one gives its results the class `cls`.

    >>> class Tagged(arete.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return super().__torch_function__(func, types, args, kwargs)
    >>> type(arete.exp(arete.zeros(2).as_subclass(Tagged))).__name__
    exp
    'Tagged'
    """
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    return result if func in get_default_nowrap_functions() else in_class(result, cls, list(_flat(args, kwargs or {})))


_torch_function.__name__, _torch_function.__qualname__ = "__torch_function__", "Tensor.__torch_function__"
Tensor.__torch_function__ = classmethod(_torch_function)
_C._disabled_torch_function_impl = _disabled_torch_function_impl
_C.DisableTorchFunctionSubclass = DisableTorchFunctionSubclass


def _has_own(kind) -> bool:
    """Whether objects of this class want to be asked."""
    own = getattr(kind, "__torch_function__", None)
    return own is not None and own is not _disabled_torch_function_impl and kind is not Tensor


# Most arguments, which do not.
_PLAIN = frozenset((Tensor, int, float, bool, str, slice, type(None)))


def overloaded_arguments(arguments) -> list:
    """One argument of each class that wants to be asked, subclasses before their bases, else from left to right."""
    found: list = []
    for a in arguments:
        if type(a) in _PLAIN or any(type(a) is type(f) for f in found) or not _has_own(type(a)):
            continue
        place = next((i for i, f in enumerate(found) if isinstance(a, type(f))), len(found))
        found.insert(place, a)
    return found


def handle_torch_function(public_api, relevant_args, *args, **kwargs):
    """What the __torch_function__ of the first of the arguments that has one makes of this call.

    TypeError where each gives NotImplemented.

    >>> class Twice(arete.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return func, args[1:]
    >>> x = arete.ones(1).as_subclass(Twice)
    >>> arete.overrides.handle_torch_function(max, (x,), x, 3)
    (<built-in function max>, (3,))
    """
    overloaded = overloaded_arguments(relevant_args)
    kinds = tuple(type(a) for a in overloaded)
    for a in overloaded:
        result = type(a).__torch_function__(public_api, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}" if hasattr(public_api, "__module__") else public_api.__name__
    raise TypeError(f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented: {list(kinds)}")


def _flat(args, kwargs):
    for a in (*args, *kwargs.values()):
        if isinstance(a, (tuple, list)):
            yield from a
        else:
            yield a


class _Modes(threading.local):
    def __init__(self):
        self.stack: list = []


_local = _Modes()


class TorchFunctionMode:
    """Within a block sees every call of an operator by this thread: __torch_function__(func, types, args, kwargs) of a subclass gives the
    result. The innermost mode looks first, and calls of its own go to the next one. Not seen are attributes of tensors, indexing,
    conversions (`to`, `item`, `tolist`, `tensor`), `detach`, what recurrent layers call, and the work of backward().

    >>> class Names(arete.overrides.TorchFunctionMode):
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = arete.ones(2) + 1
    ones
    add
    """

    def __init__(self):
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        _local.stack.append(self)
        _C._let_mode_look(True)
        return self

    def __exit__(self, *error):
        _local.stack.pop()
        _C._let_mode_look(bool(_local.stack))


_C._is_torch_function_mode_enabled = lambda: bool(_local.stack)


def _call_mode(function, args, kwargs):
    mode = _local.stack.pop()
    _C._let_mode_look(bool(_local.stack))
    try:
        kinds = tuple(type(a) for a in overloaded_arguments(_flat(args, kwargs)))
        result = mode.__torch_function__(function, kinds, args, kwargs)
    finally:
        _local.stack.append(mode)
        _C._let_mode_look(True)
    if result is NotImplemented:
        raise TypeError(f"Multiple dispatch failed for '{function}'; all __torch_function__ handlers returned NotImplemented: [{mode}]")
    return result


def _call(function, args, kwargs, asking=None):
    """`asking`: the function as a mode gets it, which when it is called asks tensors of other classes."""
    if isinstance(function, str):  # an operator that is written as a sign
        function = getattr(_ops, function)
    if _C._let_mode_look(False):  # a call that a mode looks at
        return _call_mode(asking or function, args, kwargs) if _local.stack else function(*args, **kwargs)
    return handle_torch_function(function, tuple(_flat(args, kwargs)), *args, **kwargs)


def _asking_method(function):
    def method(self, *args, **kwargs):
        if _C._are_overrides_off():
            return function(self, *args, **kwargs)
        return _call(function, (self, *args), kwargs, method)

    # Not the docstring, which is made from the operator's samples when it is read; inspect.getdoc() finds that of Tensor.
    for attribute in ("__name__", "__qualname__"):
        if isinstance(value := getattr(function, attribute, None), str):
            setattr(method, attribute, value)
    return method


def _asking_attribute(attribute):
    get, put, drop = attribute.__get__, getattr(attribute, "__set__", None), getattr(attribute, "__delete__", None)

    def asking(access):
        def function(self, *value):
            return access(self, *value) if _C._are_overrides_off() else _call(access, (self, *value), {})

        return access and function

    return property(asking(get), asking(put), asking(drop))


# What makes objects and classes, and what is written for subclasses already.
_LEFT_ALONE = {"__class__", "__deepcopy__", "__dict__", "__doc__", "__getattribute__", "__hash__", "__init__", "__init_subclass__",
               "__module__", "__new__", "__reduce_ex__", "__setattr__", "__delattr__", "__torch_function__", "__weakref__",
               "as_subclass", "__dictoffset__", "__weaklistoffset__", "__array_priority__"}
_asking: dict = {}


def _asking_members() -> dict:
    """The members of Tensor in the form that asks, made once."""
    if not _asking:
        for name, member in vars(Tensor).items():
            if name in _LEFT_ALONE or name[0] == "_" and name[:2] != "__":
                continue
            if isinstance(member, (property, types.GetSetDescriptorType, types.MemberDescriptorType)):
                _asking[name] = _asking_attribute(member)
            elif callable(member):
                _asking[name] = _asking_method(member)
        one_by_one = Tensor.__iter__
        _asking["__iter__"] = lambda self: iter(self.unbind(0)) if self.dim() else one_by_one(self)
    return _asking


def _init_subclass(cls, **kwargs):
    super(Tensor, cls).__init_subclass__(**kwargs)
    if not _has_own(cls):
        return
    for name, member in _asking_members().items():
        if next((k for k in cls.__mro__ if name in vars(k)), None) is Tensor:
            setattr(cls, name, member)
    _C._add_overriding_type(cls)


Tensor.__init_subclass__ = classmethod(_init_subclass)
_C._set_override_handler(_call)


def as_subclass(self, cls):
    """The same memory, with its history, as an object of a subclass of Tensor.

    >>> class Tagged(arete.Tensor):
    ...     pass
    >>> type(arete.ones(2).as_subclass(Tagged) * 2).__name__
    'Tagged'
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"cls must be a type (not an instance of a type) that inherits from Tensor: {cls}")
    with DisableTorchFunctionSubclass():
        return _ops.view(self, self.shape)._in_class(cls)


as_subclass.__qualname__ = "Tensor.as_subclass"
Tensor.as_subclass = as_subclass
