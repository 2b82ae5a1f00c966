"""torch's `_foreach_*`: pointwise operators on each tensor of a list, for each device and dtype one launch where that is possible.

All are made of the table here. A list of results is a tuple; the forms with a trailing underscore write into the tensors of the first
list and return it.
"""
from __future__ import annotations

from numbers import Number
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from .. import _C

_UNARY = ("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log", "log10",
          "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc")

_LIST, _NUMBER, _NUMBERS, _TENSOR = "a list of tensors", "a number", "a list of numbers", "a tensor"


class _Operand(NamedTuple):
    """The argument of an operator that says which of its overloads is meant: its names, by what it is."""

    names: Dict[str, str]
    default: Any = None


class _Row(NamedTuple):
    record: str
    lists: Tuple[str, ...] = ()  # arguments that are always lists, after the first
    last: Any = None  # an _Operand
    alpha: bool = False
    packed: bool = False  # a tensor stands for as many numbers as it has elements
    number: bool = False  # one without dimensions for its number: it takes no part in promotion


def _binary(record: str, tensor: bool = False, alpha: bool = False) -> _Row:
    names = {_LIST: "other", _NUMBER: "scalar", _NUMBERS: "scalars"}
    return _Row(record, last=_Operand({**names, _TENSOR: "other"} if tensor else names), alpha=alpha, number=alpha or not tensor)


def _ternary(record: str) -> _Row:
    last = _Operand({_NUMBER: "value", _NUMBERS: "scalars", _TENSOR: "scalars"}, default=1)
    return _Row(record, ("tensor1", "tensor2"), last, packed=True)


_TABLE: Dict[str, _Row] = {
    **{name: _Row(name) for name in _UNARY},
    "add": _binary("add", tensor=True, alpha=True),
    "sub": _binary("sub", alpha=True),
    "mul": _binary("mul", tensor=True),
    "div": _binary("div", tensor=True),
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "clamp_min": _binary("maximum"),
    "clamp_max": _binary("minimum"),
    "pow": _Row("pow", last=_Operand({_LIST: "exponent", _NUMBER: "exponent", _NUMBERS: "exponent"}), number=True),
    "lerp": _Row("lerp", ("tensors1",), _Operand({_LIST: "weights", _NUMBER: "weight", _NUMBERS: "weight"}), number=True),
    "addcmul": _ternary("addcmul"),
    "addcdiv": _ternary("addcdiv"),
}


def _kind(value: Any) -> str:
    if isinstance(value, _C.Tensor):
        return _TENSOR
    if isinstance(value, (list, tuple)):
        return _LIST if not value or isinstance(value[0], _C.Tensor) else _NUMBERS
    return _NUMBER if isinstance(value, Number) else type(value).__name__


def _refuse(name: str, row: _Row, why: str) -> TypeError:
    accepted = "" if row.last is None else ", ".join(f"{argument}: {kind}" for kind, argument in row.last.names.items())
    return TypeError(f"{name}() received an invalid combination of arguments: {why}" + (f". It takes {accepted}" if accepted else ""))


def _bind(name: str, row: _Row, given: Tuple[Any, ...], named: Dict[str, Any]) -> List[Any]:
    """The arguments of the record."""
    last = row.last
    names = ["self", *row.lists]
    bound = dict(zip(names, given))
    if len(given) > len(names) + (last is not None):
        raise _refuse(name, row, f"{len(given)} positional arguments were given")
    operand = given[len(names)] if len(given) > len(names) else None
    for key, value in named.items():
        if key in names and key not in bound:
            bound[key] = value
        elif last is not None and operand is None and key in last.names.values():
            operand = value
            if last.names.get(_kind(value)) != key:
                raise _refuse(name, row, f"'{key}' is {_kind(value)}")
        elif key != "alpha" or not row.alpha:
            raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
    for key in names:
        if key not in bound:
            raise TypeError(f"{name}() missing required argument '{key}'")
        if not isinstance(bound[key], (list, tuple)):
            raise TypeError(f"{name}(): argument '{key}' must be tuple of Tensors, not {type(bound[key]).__name__}")
    arguments = [bound[key] for key in names]
    if last is None:
        return arguments
    if operand is None:
        operand = last.default
    if operand is None:
        raise _refuse(name, row, "an argument is missing")
    kind = _kind(operand)
    if kind not in last.names and not (kind == _TENSOR and operand.dim() == 0):
        raise _refuse(name, row, f"one of them is {kind}")
    if kind == _TENSOR:
        operand = _unpack(operand, len(arguments[0])) if row.packed else _number(operand, row)
    arguments.append(operand)
    if row.alpha:
        if "alpha" in named and kind != _LIST and (kind != _TENSOR or kind not in last.names):
            raise _refuse(name, row, f"alpha goes with tensors, not with {kind}")
        arguments.append(named.get("alpha", 1))
    return arguments


def _number(scalar: Any, row: _Row) -> Any:
    """What a 0-d tensor stands for: its number, where it does and reading it neither waits for a GPU nor loses history; else itself."""
    if scalar.dim() != 0:
        raise RuntimeError(f"scalar tensor expected to be 0 dim but it has {scalar.dim()} dimensions and {scalar.numel()} elements.")
    return scalar.item() if row.number and scalar.is_cpu and not scalar.requires_grad else scalar


def _unpack(scalars: Any, count: int) -> List[Any]:
    if scalars.dim() != 1:
        raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {scalars.dim()} instead.")
    if scalars.numel() != count:
        raise RuntimeError(f"Expected length of scalars to match input of length {count} but got {scalars.numel()} instead.")
    return scalars.tolist()


def _lists_of_processes(*arguments: Any) -> Any:
    """What computes on lists if some of their tensors are spread over processes."""
    for argument in arguments:
        for kind in {type(t) for t in argument} if isinstance(argument, (list, tuple)) else (type(argument),):
            if hasattr(kind, "_on_lists"):
                return kind._on_lists
    return None


def _call(function: Callable, record: str, arguments: List[Any], in_place: bool) -> Any:
    spread = _lists_of_processes(*arguments)
    if spread is None:
        return function(record, *arguments)
    return spread("of_lists")(lambda *parts: function(record, *parts), arguments, in_place)


def _make(name: str, row: _Row) -> Tuple[Callable, Callable]:
    def fresh(*args, **kwargs):
        return tuple(_call(_C._foreach, row.record, _bind(fresh.__name__, row, args, kwargs), False))

    def in_place(*args, **kwargs):
        arguments = _bind(in_place.__name__, row, args, kwargs)
        _call(_C._foreach_in_place, row.record, arguments, True)
        return arguments[0]

    lists = "".join(f", {a}" for a in row.lists)
    operand = "" if row.last is None else ", " + " or ".join(dict.fromkeys(row.last.names.values()))
    fresh.__doc__ = f"{row.record} of each tensor: (self{lists}{operand}{', *, alpha=1' if row.alpha else ''})."
    in_place.__doc__ = fresh.__doc__[:-1] + ", in place."
    for function, ending in ((fresh, ""), (in_place, "_")):
        function.__name__ = function.__qualname__ = f"_foreach_{name}{ending}"
        function.__module__ = "arete"
    return fresh, in_place


def _foreach_pow_of(power: Callable) -> Callable:
    """With the overload of a number to the power of tensors."""
    def _foreach_pow(self, exponent):
        if _kind(self) == _NUMBER:
            if not isinstance(exponent, (list, tuple)):
                raise TypeError(f"_foreach_pow(): argument 'exponent' must be tuple of Tensors, not {type(exponent).__name__}")
            return tuple(_call(_C._foreach, "pow", [self, exponent], False))
        return power(self, exponent)

    _foreach_pow.__doc__ = power.__doc__
    return _foreach_pow


def _foreach_zero_(self):
    """Zeros in each tensor."""
    _C._foreach_zero(list(self))
    return self


def _foreach_copy_(self, src, non_blocking=False):
    """Copies each tensor of src into that of self."""
    _call(lambda _, *lists: _C._foreach_copy(*lists, non_blocking), "copy", [list(self), list(src)], True)
    return self


def _foreach_norm(self, ord=2, dtype=None):  # noqa: A002
    """The vector norm of each tensor, 0-d."""
    return _norms(list(self), _order("_foreach_norm", ord), dtype, True)


def _foreach_powsum(self, ord=2, dtype=None):  # noqa: A002
    """The sum of |x|**ord of each tensor, 0-d."""
    return _norms(list(self), _order("_foreach_powsum", ord), dtype, False)


def _norms(tensors: List[Any], order: float, dtype: Any, root: bool) -> tuple:
    spread = _lists_of_processes(tensors)
    return tuple(_C._foreach_norm(tensors, order, dtype, root)) if spread is None else spread("norms_of_lists")(tensors, order, dtype, root)


def _order(name: str, order: Any) -> float:
    if _kind(order) != _NUMBER:
        raise TypeError(f"{name}(): argument 'ord' (position 2) must be Number, not {type(order).__name__}")
    return float(order)


def _foreach_max(self):
    """The largest element of each tensor, 0-d."""
    spread = _lists_of_processes(self)
    return tuple(_C._foreach_max(list(self))) if spread is None else spread("extremes_of_lists")(list(self))


def functions() -> Dict[str, Callable]:
    """All of them by name."""
    made = {f.__name__: f for name, row in _TABLE.items() for f in _make(name, row)}
    made["_foreach_pow"] = _foreach_pow_of(made["_foreach_pow"])
    for function in (_foreach_zero_, _foreach_copy_, _foreach_norm, _foreach_powsum, _foreach_max, made["_foreach_pow"]):
        function.__module__ = "arete"
        made[function.__name__] = function
    return made
