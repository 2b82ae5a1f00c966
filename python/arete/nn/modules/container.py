"""Containers of modules and parameters."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Container as _Container
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Optional, Union

from ..._C import Tensor
from ..parameter import Parameter
from ._arguments import type_name
from .activation import ReLU
from .batchnorm import _BatchNorm
from .module import Module, _addindent

__all__ = [
    "Container",
    "Sequential",
    "ModuleList",
    "ModuleDict",
    "ParameterList",
    "ParameterDict",
]


class Container(Module):
    """A module with the children given by name (of old; use Sequential and the others).

    >>> nn.Container(first=nn.ReLU())
    Container(
      (first): ReLU()
    )
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(index: Any, length: int) -> int:
    i = operator.index(index)
    if not -length <= i < length:
        raise IndexError(f"index {i} is out of range")
    return i % length


def _is_plain(norm: _BatchNorm) -> bool:
    return type(norm).forward is _BatchNorm.forward and not norm._hooked


class _Modules(Module):
    """What Sequential and ModuleList share: modules by position."""

    _key: Callable[[Any], str]
    __getitem__: Callable[[Any], Any]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: Union[int, slice]) -> None:
        if isinstance(index, slice):
            for key in list(self._modules)[index]:
                delattr(self, key)
        else:
            delattr(self, self._key(index))
        self._renumber(self._modules.values())

    def _renumber(self, modules: Iterable) -> None:
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __dir__(self) -> list:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, module: Module) -> Any:
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: Union[int, slice]) -> Module:
        """Takes a module out."""
        module = self[key]
        del self[key]
        return module


class Sequential(_Modules):
    """Modules called one after the other.

    Takes modules, or an OrderedDict that names them. Indexing gives a module, slicing a
    Sequential of the same modules.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> len(net), net[0].out_features
    (3, 8)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        norm = None  # a batch norm that may do the next module's work in its own pass
        for module in self._modules.values():
            if norm is not None:
                if type(module) is ReLU and not module._hooked:
                    input, norm = norm.forward_relu(input), None
                    continue
                input, norm = norm(input), None
            if isinstance(module, _BatchNorm) and _is_plain(module) and isinstance(input, Tensor):  # and no stand-in, as fx has
                norm = module
            else:
                input = module(input)
        return input if norm is None else norm(input)

    def _key(self, index: Any) -> str:
        return next(islice(iter(self._modules), _position(index, len(self)), None))

    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def __add__(self, other: "Sequential") -> "Sequential":
        if not isinstance(other, Sequential):
            raise ValueError(
                f"add operator supports only objects of Sequential class, but {type(other)} is "
                "given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: "Sequential") -> "Sequential":
        if not isinstance(other, Sequential):
            raise ValueError(
                f"add operator supports only objects of Sequential class, but {type(other)} is "
                "given."
            )
        return self.extend(list(other))

    def __mul__(self, times: int) -> "Sequential":
        self._check_times(times)
        return Sequential(*(m for _ in range(times) for m in self))

    def __rmul__(self, times: int) -> "Sequential":
        return self * times

    def __imul__(self, times: int) -> "Sequential":
        self._check_times(times)
        own = list(self)
        for _ in range(times - 1):
            self.extend(own)
        return self

    @staticmethod
    def _check_times(times: int) -> None:
        if not isinstance(times, int):
            raise TypeError(
                f"unsupported operand type(s) for *: {Sequential} and {type(times)}"
            )
        if times <= 0:
            raise ValueError(
                f"Non-positive multiplication factor {times} for {Sequential}"
            )

    def insert(self, index: int, module: Module) -> "Sequential":
        """Puts a module before position `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def extend(self, sequential: Iterable) -> "Sequential":
        """Adds all modules of another Sequential."""
        for module in sequential:
            self.append(module)
        return self


class ModuleList(_Modules):
    """A list of modules that a module registers.

    >>> layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """

    def __init__(self, modules: Optional[Iterable[Module]] = None) -> None:
        super().__init__()
        if modules is not None:
            self += modules

    def _key(self, index: Any) -> str:
        return str(_position(index, len(self)))

    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __iadd__(self, modules: Iterable[Module]) -> "ModuleList":
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> "ModuleList":
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """As all modules, with runs of equal children in one line each."""
        if len(self) == 0:
            return self._get_name() + "()"
        runs: list = []  # [first, last, text]
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = []
        for first, last, text in runs:
            line = f"({first}): {text}"
            if first != last:
                line = f"({first}-{last}): {last - first + 1} x {text}"
            lines.append(_addindent(line, 2))
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"

    def insert(self, index: int, module: Module) -> None:
        """Puts a module before position `index`."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def extend(self, modules: Iterable[Module]) -> "ModuleList":
        """Adds several modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        for module in list(modules):
            self.append(module)
        return self


class ModuleDict(Module):
    """A dict of modules that a module registers; it keeps the order in which they were added.

    >>> heads = nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.ReLU()})
    >>> list(heads), heads["a"](arete.ones(1, 4)).shape
    (['a', 'b'], arete.Size([1, 2]))
    """

    def __init__(self, modules: Optional[Mapping[str, Module]] = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Takes a module out."""
        module = self[key]
        del self[key]
        return module

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """The names and their values."""
        return self._modules.items()

    def values(self) -> Any:
        """The values."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Adds or replaces modules from a mapping or from pairs."""
        for key, module in _pairs("ModuleDict", modules):
            self[key] = module


def _pairs(kind: str, source: Any) -> list:
    """The (key, value) pairs of a mapping or of an iterable of pairs."""
    if not isinstance(source, _Container) and not isinstance(source, Iterable):
        raise TypeError(
            f"{kind}.update should be called with an iterable of key/value pairs, but got "
            + type(source).__name__
        )
    if isinstance(source, (Mapping, ModuleDict, ParameterDict)):
        return list(source.items())
    pairs = list(source)
    for i, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(
                f"{kind} update sequence element #{i} should be Iterable; is "
                + type(pair).__name__
            )
        if len(pair) != 2:
            raise ValueError(
                f"{kind} update sequence element #{i} has length {len(pair)}; 2 is required"
            )
    return pairs


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; other values stay."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _describe(name: str, value: Any, kind_of: Any) -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    size = "x".join(str(n) for n in value.size())
    where = "" if value.device.type == "cpu" else f" ({value.device})"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"  ({name}): {kind} containing: [{kind_of(value)} of size {size}{where}]"


class ParameterList(Module):
    """A list of parameters that a module registers; tensors put in become parameters.

    >>> weights = nn.ParameterList([arete.ones(2), arete.zeros(3)])
    >>> len(weights), weights[0].requires_grad
    (2, True)
    """

    def __init__(self, values: Optional[Iterable] = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def _key(self, index: Any) -> str:
        return str(_position(index, self._size))

    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            out = type(self)()
            for i in range(self._size)[index]:
                out.append(self[i])
            return out
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._key(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator:
        return iter(self[i] for i in range(self._size))

    def __iadd__(self, values: Iterable) -> "ParameterList":
        return self.extend(values)

    def __dir__(self) -> list:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> "ParameterList":
        """Adds a value at the end."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable) -> "ParameterList":
        """Adds several values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(
                "ParameterList.extend should be called with an iterable, but got "
                + type(values).__name__
            )
        for value in list(values):
            self.append(value)
        return self

    def pop(self, index: int = -1) -> Any:
        """Takes a value out."""
        values = list(self)
        value = values.pop(index)
        for i in range(self._size):
            delattr(self, str(i))
        self._size = 0
        self.extend(values)
        return value

    def extra_repr(self) -> str:
        return "\n".join(_describe(str(i), value, lambda v: v.dtype) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters that a module registers; tensors put in become parameters.

    >>> weights = nn.ParameterDict({"scale": arete.ones(2)})
    >>> list(weights), weights["scale"].requires_grad
    (['scale'], True)
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def _name(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string "
                f"(type is '{type(key).__name__}'). Open an issue on github if you need non-string "
                "keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._name(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, self._name(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._name(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> "ParameterDict":
        """A ParameterDict of the same values."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, which is set to `default` if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes all values."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Takes a value out."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple:
        """Takes the last (key, value) out."""
        key = next(reversed(list(self._keys)))
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self[key] if key in self else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> "ParameterDict":
        """A ParameterDict with `default` for all keys."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        """The names."""
        return self._keys.keys()

    def items(self) -> Any:
        """The names and their values."""
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Any:
        """The values."""
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Adds or replaces values from a mapping (sorted unless it has an order) or from pairs."""
        pairs = _pairs("ParameterDict", parameters)
        if type(parameters) is dict:
            pairs = sorted(pairs)
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_describe(key, value, type_name) for key, value in self.items())

    def __or__(self, other: "ParameterDict") -> "ParameterDict":
        out = self.copy()
        out.update(other)
        return out

    def __ror__(self, other: "ParameterDict") -> "ParameterDict":
        out = other.copy()
        out.update(self)
        return out

    def __ior__(self, other: "ParameterDict") -> "ParameterDict":
        self.update(other)
        return self

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")
