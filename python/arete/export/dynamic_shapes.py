"""Which sizes of a program may differ."""
from __future__ import annotations

import enum as _enum
import inspect as _inspect
from typing import Any

from ..utils import _pytree

__all__ = ["AdditionalInputs", "Dim", "ShapesCollection", "dims"]


class _Hint(_enum.Enum):
    AUTO = "auto"
    DYNAMIC = "dynamic"
    STATIC = "static"


class Dim:
    """A size that differs from call to call, from `min` to `max`; dimensions with one Dim are equal.

    Dim.AUTO is a dimension that is dynamic if the function lets it differ, Dim.DYNAMIC one that must be, Dim.STATIC (or None) one that
    is as in the example. A product with a positive number, or a sum with one, is a dimension that follows from it.

    >>> arete.export.Dim("batch", min=1, max=64)
    Dim('batch', min=1, max=64)
    >>> 2 * arete.export.Dim("half") + 1
    2*half + 1
    """

    AUTO, DYNAMIC, STATIC = _Hint.AUTO, _Hint.DYNAMIC, _Hint.STATIC
    _factor, _offset = 1, 0

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Dim name must be a valid identifier, got {name!r}")
        self.__name__ = name
        self.min, self.max = 1 if min is None else min, max
        if self.min < 0 or (max is not None and max <= self.min):
            raise ValueError(f"Cannot create Dim with inconsistent min={min}, max={max}")
        self._root = self

    def __repr__(self) -> str:
        return f"Dim({self.__name__!r}, min={self.min}, max={self.max})"

    def _derived(self, factor: Any, offset: Any) -> "Dim":
        if type(factor) is not int or type(offset) is not int or factor <= 0:
            raise NotImplementedError(f"export.Dim: from a size follow its products with positive integers and sums with integers, but got "
                                      f"{factor!r} and {offset!r}")
        return _DerivedDim(self._root, self._factor * factor, self._offset * factor + offset)

    def __add__(self, other: int) -> "Dim":
        return self._derived(1, other)

    def __sub__(self, other: int) -> "Dim":
        return self._derived(1, -other)

    def __mul__(self, other: int) -> "Dim":
        return self._derived(other, 0)

    __radd__, __rmul__ = __add__, __mul__


class _DerivedDim(Dim):
    def __init__(self, root: Dim, factor: int, offset: int) -> None:
        self._root, self._factor, self._offset = root, factor, offset
        self.__name__ = f"{factor}*" * (factor > 1) + root.__name__ + (f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else "")
        self.min = root.min * factor + offset
        self.max = None if root.max is None else root.max * factor + offset

    def __repr__(self) -> str:
        return self.__name__


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several of one range.

    >>> [d.__name__ for d in arete.export.dims("height", "width")]
    ['height', 'width']
    """
    return tuple(Dim(n, min=min, max=max) for n in names)


def _one_by_one(function: Any, count: int, said: Any) -> Any:
    """What is said of `count` arguments by position, where that of `*args` may be a tuple for all of them, for each by itself."""
    parameters = [p for p in _inspect.signature(function).parameters.values() if p.kind < p.KEYWORD_ONLY]
    before = len(parameters) - 1
    if not parameters or parameters[-1].kind != parameters[-1].VAR_POSITIONAL or not isinstance(said, (dict, tuple, list)):
        return said
    name, rest = parameters[-1].name, max(count - before, 0)
    of_rest = said.get(name) if isinstance(said, dict) else said[before] if len(said) == before + 1 else None
    if not isinstance(of_rest, (tuple, list)) or len(of_rest) != rest or not any(isinstance(x, (dict, tuple, list)) for x in of_rest):
        return said
    if isinstance(said, dict):
        return {**{k: v for k, v in said.items() if k != name}, **{f"{name}_{before + k}": x for k, x in enumerate(of_rest)}}
    return (*said[:before], *of_rest)


def _specifications(form: dict, dynamic_shapes: Any) -> list[tuple[str, Any]]:
    """(form of an argument, what is said of it)."""
    arguments = dict(zip(form["names"], form["args"]))
    arguments.update(form["kwargs"])
    if isinstance(dynamic_shapes, dict):
        unknown = [k for k in dynamic_shapes if k not in arguments]
        if unknown:
            raise ValueError(f"dynamic_shapes names {unknown}, but the arguments are {list(arguments)}")
        return [(arguments[k], v) for k, v in dynamic_shapes.items()]
    if len(dynamic_shapes) != len(arguments):
        raise ValueError(f"dynamic_shapes says something of {len(dynamic_shapes)} arguments, but there are {len(arguments)}")
    return list(zip(arguments.values(), dynamic_shapes))


def _dimensions(form: Any, said: Any, found: list) -> None:
    """Adds (number of the tensor, dimension, Dim) of what is said of a tree."""
    if said is None:
        return
    if "tensor" in form:
        pairs = said.items() if isinstance(said, dict) else enumerate(said) if isinstance(said, (tuple, list)) else None
        if pairs is None:
            raise TypeError(f"dynamic_shapes: of a tensor a dict from dimensions to Dims or a list of Dims is wanted, not {said!r}")
        found += [(form["tensor"], dim, size) for dim, size in pairs]
        return
    (kind, value), *rest = form.items()
    if kind == "namedtuple" and isinstance(said, dict):
        fields = dict(rest)
        for name, part in zip(fields["fields"], fields["items"]):
            _dimensions(part, said.get(name), found)
    elif kind in ("tuple", "list", "Size", "namedtuple"):
        items = value if kind != "namedtuple" else dict(rest)["items"]
        if not isinstance(said, (tuple, list)) or len(said) != len(items):
            raise ValueError(f"dynamic_shapes has another structure than the arguments: {said!r} for {len(items)} items")
        for part, more in zip(items, said):
            _dimensions(part, more, found)
    elif kind in ("dict", "OrderedDict"):
        for key, part in value:
            _dimensions(part, said.get(key) if isinstance(said, dict) else None, found)
    else:
        raise ValueError(f"dynamic_shapes says {said!r} of an argument that is no tensor")


def _dynamic(form: dict, tensors: list, dynamic_shapes: Any) -> tuple[list, list]:
    found: list = []
    for argument, said in _specifications(form, dynamic_shapes):
        _dimensions(argument, said, found)
    exact, maybe = [], []
    for tensor, dim, size in found:
        if size is None or size is Dim.STATIC:
            continue
        if isinstance(size, int) and not isinstance(size, bool):
            if tensors[tensor].shape[dim] != size:
                raise ValueError(f"dynamic_shapes says that dimension {dim} is {size}, but the example has {tensors[tensor].shape[dim]}")
        elif size is Dim.AUTO or size is Dim.DYNAMIC:
            maybe.append((tensor, dim))
        elif isinstance(size, Dim):
            root = size._root
            exact.append((root.__name__, tensor, dim, root.min, root.max, size._factor, size._offset))
        else:
            raise TypeError(f"dynamic_shapes: a Dim, an integer or None is wanted, not {size!r}")
    return exact, maybe


def _check_dynamic(program: Any, form: dict, tensors: list, dynamic_shapes: Any) -> None:
    """What had to be dynamic is."""
    found: list = []
    for argument, said in _specifications(form, dynamic_shapes):
        _dimensions(argument, said, found)
    inputs = program.inputs()
    for tensor, dim, size in found:
        if size is Dim.DYNAMIC and inputs[tensor][2][dim].isdigit():
            raise RuntimeError(f"dimension {dim} of '{inputs[tensor][0]}' was said to be dynamic, but the function runs, or makes the same "
                               f"calls, with the size {inputs[tensor][2][dim]} alone")


def _bound(function: Any, args: tuple, kwargs: dict, with_defaults: bool = False) -> dict:
    """The arguments by name, those in `**kwargs`, too."""
    bound = _inspect.signature(function).bind(*args, **kwargs)
    if with_defaults:
        bound.apply_defaults()
    rest = [p.name for p in bound.signature.parameters.values() if p.kind == p.VAR_KEYWORD]
    return {**{k: v for k, v in bound.arguments.items() if k not in rest}, **(bound.arguments.get(rest[0], {}) if rest else {})}


class ShapesCollection:
    """What is said of the sizes of tensors, by these: dynamic_shapes for arguments that hold them somewhere.

    >>> x = arete.ones(4, 3)
    >>> shapes = arete.export.ShapesCollection()
    >>> shapes[x] = {0: arete.export.Dim("batch")}
    >>> ep = arete.export.export(arete.nn.ReLU(), (x,), dynamic_shapes=shapes)
    >>> ep.module()(arete.ones(7, 3)).shape
    arete.Size([7, 3])
    """

    def __init__(self) -> None:
        self._said: dict[int, tuple[Any, dict]] = {}  # with the tensors, whose addresses stay theirs

    def __setitem__(self, t: Any, shape: Any) -> None:
        known = self._said.setdefault(id(t), (t, {}))[1]
        for dim, size in dict(shape if isinstance(shape, dict) else enumerate(shape)).items():
            if known.setdefault(dim, size) != size:
                raise ValueError(f"ShapesCollection: dimension {dim} of a tensor is said to be {size!r}, and before {known[dim]!r}")

    def __getitem__(self, t: Any) -> Any:
        return self._said.setdefault(id(t), (t, {}))[1]

    def __len__(self) -> int:
        return len(self._said)

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict | None = None) -> dict:
        """What export() is told of the arguments; ValueError for tensors that are not among them."""
        bound = _bound(getattr(m, "forward", m), args, kwargs or {})
        missing = self._said.keys() - {id(x) for x in _pytree.tree_leaves(bound)}
        if missing:
            raise ValueError(f"ShapesCollection: {len(missing)} of {len(self._said)} tensors are not among the arguments")
        return {name: _pytree.tree_map(lambda x: dict(self._said[id(x)][1]) if id(x) in self._said else None, tree)
                for name, tree in bound.items()}


class AdditionalInputs:
    """Other inputs of a function: sizes that differ among them and the example's are dynamic.

    >>> more = arete.export.AdditionalInputs()
    >>> more.add((arete.ones(7, 3),))
    >>> ep = arete.export.export(arete.nn.ReLU(), (arete.ones(4, 3),), dynamic_shapes=more)
    >>> more.verify(ep)
    >>> str(ep.graph).splitlines()[0]
    'program(%input: float32[s0, 3]):'
    """

    def __init__(self) -> None:
        self._inputs: list[tuple[tuple, dict]] = []

    def add(self, args: tuple, kwargs: dict | None = None) -> None:
        """Some more."""
        if type(args) is not tuple or not isinstance(kwargs or {}, dict):
            raise TypeError("AdditionalInputs.add(): a tuple of arguments and a dict of those by name are wanted")
        self._inputs.append((args, kwargs or {}))

    def dynamic_shapes(self, m: Any, args: tuple, kwargs: dict | None = None) -> dict:
        """What export() is told of the arguments."""
        function = getattr(m, "forward", m)
        first, *others = (_bound(function, a, k, with_defaults=True) for a, k in ((args, kwargs or {}), *self._inputs))
        for other in others:
            if other.keys() != first.keys():
                raise ValueError(f"AdditionalInputs: only some inputs have {sorted(other.keys() ^ first.keys())}")

        def differing(x: Any, *more: Any) -> Any:
            if not hasattr(x, "shape"):
                if any(type(y) is not type(x) or y != x for y in more):
                    raise ValueError(f"AdditionalInputs: {x!r} is no tensor, and is another value elsewhere; programs have it inside")
                return None
            if not all(hasattr(y, "shape") for y in more):
                raise ValueError("AdditionalInputs: what is a tensor is none elsewhere")
            if any(len(y.shape) != len(x.shape) for y in more):
                raise ValueError("AdditionalInputs: a tensor has more dimensions elsewhere")
            return {d: Dim.DYNAMIC for d, n in enumerate(x.shape) if any(y.shape[d] != n for y in more)} or None

        found = {name: _pytree.tree_map(differing, tree, *[other[name] for other in others]) for name, tree in first.items()}
        return {name: found[name] for name in _bound(function, args, kwargs or {})}

    def verify(self, ep: Any) -> None:
        """Calls the program with all of them: an error says which it does not take."""
        for args, kwargs in self._inputs:
            ep.module()(*args, **kwargs)
