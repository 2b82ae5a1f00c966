"""Operators by torch's names of namespaces: `arete.ops.aten.add.Tensor(x, y)` is a call of `add`, whichever overload is named, and
`arete.ops.mine.scaled` what arete.library has defined.

>>> arete.ops.aten.add.Tensor(arete.ones(2), 1)
tensor([2., 2.])
"""
from __future__ import annotations

import os
import pathlib
import types
from collections.abc import Callable
from typing import Any

from . import _operators
from ._aten import OPERATORS as _ATEN
from ._C import Tensor
from ._library import DEFINITIONS
from ._operators import _ops
from ._torchaudio import install as _torchaudio_operators  # names of namespaces of operators stay free
from ._torchvision import install as _torchvision_operators
from .profiler import record_function as _record_function

__all__ = ["OpNamespace", "OpOverload", "OpOverloadPacket", "load_library", "loaded_libraries"]

loaded_libraries: set = set()


def load_library(path: Any) -> None:
    """Of the libraries of torchvision and torchaudio the operators that their Python needs are there without them. OSError for others:
    they are made for PyTorch's C++."""
    folder = pathlib.Path(os.fspath(path)).parent
    for name, operators in (("torchvision", _torchvision_operators), ("torchaudio", _torchaudio_operators)):
        if name in (folder.name, folder.parent.name):
            operators()
            loaded_libraries.add(os.fspath(path))
            return
    raise OSError(f"{path}: a library of operators for PyTorch's C++ cannot be loaded; arete.library defines operators in Python")


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


def _index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return x.index_put(tuple(slice(None) if i is None else i for i in indices), values, accumulate)


def _index(x: Any, indices: Any) -> Any:
    return x[tuple(slice(None) if i is None else i for i in indices)]


def _to_copy(x: Any, **options: Any) -> Any:
    options = {k: v for k, v in options.items() if v is not None and k not in ("layout", "pin_memory")}
    return x.to(copy=True, **options)


def _to(x: Any, *args: Any, **options: Any) -> Any:
    return x.to(*args, **{k: v for k, v in options.items() if k not in ("layout", "pin_memory")})


# What torch names in its operators and the library in other ways.
_WRITTEN: dict[str, Callable] = {
    "alias": lambda x: x.view(x.shape), "_unsafe_view": lambda x, size: x.reshape(size), "_local_scalar_dense": lambda x: x.item(),
    "slice": _slice,
    "sym_size": lambda x, dim=None: x.size() if dim is None else x.size(dim), "sym_stride": lambda x,
    dim=None: x.stride() if dim is None else x.stride(dim),
    "sym_numel": lambda x: x.numel(), "sym_storage_offset": lambda x: x.storage_offset(), "lift_fresh_copy": lambda x: x.clone(),
    "lift_fresh": lambda x: x,
    "slice_copy": lambda x, *a, **options: _slice(x, *a, **options).clone(), "index": _index,
    "index_put": _index_put,
    "_to_copy": _to_copy, "to": _to, "copy": lambda x, y: x.clone().copy_(y),
    "contiguous": lambda x, memory_format=None: x.contiguous(memory_format=memory_format),
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "_sparse_addmm": lambda x, sparse, dense, *, beta=1, alpha=1: (
        alpha * (sparse @ dense) if beta == 0 else beta * x + alpha * (sparse @ dense)),  # x may be NaN then
    "_is_all_true": lambda x: x.all(), "detach": lambda x: x.detach(), "detach_": lambda x: x.detach_(),
    "clone": lambda x, memory_format=None: x.clone() if memory_format is None else x.clone(memory_format=memory_format),
}


def _record_function_exit(handle: Any) -> Any:
    asked = getattr(type(handle), "__torch_function__", None)
    if asked is not None:  # a call that is being recorded
        return asked(getattr(OpNamespace("profiler"), "_record_function_exit"), (type(handle),), (handle,), {})
    handle.__exit__(None, None, None)
    return None


_PROFILER: dict[str, Callable] = {
    "_record_function_enter": lambda name, args=None: _record_function(name, args).__enter__(),
    "_record_function_exit": _record_function_exit,
}


class _Call:
    """What overloads and packets have in common."""

    _function: Callable
    _qualname: str

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self) and other._function is self._function  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(str(self))


class OpOverload(_Call):
    """One overload of an operator; the library finds by the arguments what is meant."""

    def __init__(self, packet: OpOverloadPacket, name: str) -> None:
        self.overloadpacket, self._overloadname, self._function, self._qualname = packet, name, packet._function, packet._qualname
        self.namespace, self._opname = packet._qualname.split("::")
        self.__name__ = self.__qualname__ = f"{self._opname}.{name}"
        self.__module__ = f"torch._ops.{self.namespace}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self._opname}.{self._overloadname}"

    def name(self) -> str:
        return self._qualname if self._overloadname == "default" else f"{self._qualname}.{self._overloadname}"

    @property
    def op(self) -> Callable:
        return self._function


class OpOverloadPacket(_Call):
    """An operator; its attributes are its overloads, of which the library has one under all names."""

    def __init__(self, qualname: str, function: Callable) -> None:
        self._qualname, self._function = qualname, function
        self.__name__ = self.__qualname__ = qualname.split("::")[1]
        self.__module__ = f"torch.ops.{qualname.split('::')[0]}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __str__(self) -> str:
        return self._qualname.replace("::", ".")

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("_"):
            raise AttributeError(f"'{self._qualname}' has no attribute {name!r}")
        made = self.__dict__[name] = OpOverload(self, name)
        return made

    def overloads(self) -> list[str]:
        """The overloads that have been named."""
        return [name for name, value in self.__dict__.items() if isinstance(value, OpOverload)] or ["default"]


def _aten(name: str) -> Callable | None:
    written = _WRITTEN.get(name) or _ATEN.get(name)
    if written is not None:
        return written
    found = getattr(_operators, name, None) if not name.startswith("__") else None
    if callable(found) and not isinstance(found, type):
        return found
    try:
        return getattr(_ops, name)
    except AttributeError:
        method = getattr(Tensor, name, None)
        return method if callable(method) else None


def _defined(space: str, name: str) -> Callable | None:
    found = DEFINITIONS.get(f"{space}::{name}")
    if found is None and space in ("c10d", "c10d_functional", "_c10d_functional", "_dtensor"):
        from .distributed._functional_collectives import OPERATORS  # only here: other programs need no groups

        found = OPERATORS.get(f"{space}::{name}")
    return found


class OpNamespace(types.ModuleType):
    """The operators of a namespace."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torch.ops.{name}")
        self.__dict__["name"] = name

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        space = self.__dict__["name"]
        function = (_aten(name) if space in ("aten", "prims") else
                    _PROFILER.get(name) if space == "profiler" else _defined(space, name))
        if function is None:
            raise AttributeError(f"'_OpNamespace' '{space}' object has no attribute '{name}'")
        made = OpOverloadPacket(f"{space}::{name}", function)
        if space == "aten":  # others may be defined anew
            self.__dict__[name] = made
        return made

    def __dir__(self) -> list[str]:
        space = self.__dict__["name"]
        return sorted(n.split("::")[1] for n in DEFINITIONS if n.startswith(f"{space}::"))


_spaces: dict[str, OpNamespace] = {}


def __getattr__(name: str) -> OpNamespace:
    if name.startswith("__"):
        raise AttributeError(name)
    return _spaces.setdefault(name, OpNamespace(name))


