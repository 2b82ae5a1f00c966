"""Layers made from the table that the layers of C++ are made from, too (arete/nn/layer_table.cpp)."""

from __future__ import annotations

import __future__
import inspect
import re
from typing import Any, Callable, Dict, List, Optional

from ... import _C, _operators
from ..._C import Tensor
from .. import functional as F
from .module import Module
from .utils import _ntuple

_LAYERS = _C._layers()
_TYPES = {"bool": "bool", "int": "int", "float": "float", "str": "str", "Tensor": "Tensor"}
_FUNCTIONS = {"unfold_im2col": "unfold"}  # functions called otherwise than their operators
_OLDER_WORDS = ("size_average", "reduce")  # for reduction

check = _C._check_layer
"""check(layer, *options) throws what a user got wrong in them, in the order of the table."""


def _numbers(kind: str) -> int:
    """How many numbers a type wants: 2 for "int[2]"; 0 for any."""
    found = re.search(r"\[(\d+)\]", kind)
    return int(found[1]) if found else 0


class _Line:
    """A line of the table."""

    def __init__(self, name: str) -> None:
        self.schema, self.options, self.call, self.shown, self.has_check = _LAYERS[name]
        self.names = [option for option, _, _ in self.options]

    def parameters(self) -> str:
        """As a function has them; sizes are a number or several, and what defaults to another option is None at first."""
        parts = ["*"] if "(*, " in self.schema else []
        for name, kind, default in self.options:
            hint = "Any" if "[" in kind else _TYPES[kind.rstrip("?")]
            if kind.endswith("?") and hint != "Any":
                hint = f"Optional[{hint}]"
            shown = "None" if default in self.names else default
            parts.append(f"{name}: {hint}" + (f" = {shown}" if default else ""))
        return ", ".join(["self", *parts])


def _init(cls: type, line: _Line) -> str:
    base = inspect.signature(cls.__mro__[1].__init__).parameters  # type: ignore[misc]
    above = [name for name in line.names if name in base]
    body = ["super(_cls, self).__init__(" + ", ".join(f"{n}={n}" for n in above) + ")"]
    if line.has_check:
        body.append(f"check({', '.join([repr(cls.__name__), *line.names])})")
    for name, kind, default in line.options:
        if name in above or name in _OLDER_WORDS:
            continue
        value = name
        if default in line.names:
            value = f"{name} if {name} is not None else {default}"
        if _numbers(kind):
            value = f"_ntuple({_numbers(kind)})({value})"
            if kind.endswith("?") and default == "None":
                value = f"None if {name} is None else {value}"
        if kind == "Tensor?":
            body.append(f"self.register_buffer({name!r}, {name})")
        else:
            body.append(f"self.{name} = {value}")
    return f"def __init__({line.parameters()}) -> None:\n    " + "\n    ".join(body)


def _function(line: _Line) -> Callable:
    name = line.call.split("(")[0]
    name = _FUNCTIONS.get(name, name)
    return getattr(F, name, None) or getattr(_operators, name)


def _forward(line: _Line) -> str:
    said = dict(part.split("=") for part in line.call.partition("(")[2].rstrip(")").split(", ") if part)
    inputs, arguments, skipped = [], [], False
    for name, p in inspect.signature(_function(line)).parameters.items():
        source = said.get(name, name)
        if source in line.names and source not in _OLDER_WORDS:
            value = f"self.{source}"
        elif name in said:
            value = source
        elif name == "training":
            value = "self.training"
        elif p.default is p.empty:
            value = "input" if name == "self" else name
            inputs.append(value)
        else:
            skipped = True
            continue
        arguments.append(f"{name}={value}" if skipped or p.kind is p.KEYWORD_ONLY else value)
    result = "Any" if "return_indices" in line.names else "Tensor"
    parameters = "".join(f", {name}: Tensor" for name in inputs)
    return f"def forward(self{parameters}) -> {result}:\n    return _function({', '.join(arguments)})"


def _extra_repr(line: _Line) -> str:
    body = ["parts = []"]
    defaults = {name: (kind, default) for name, kind, default in line.options}
    for name, named, quoted, unless_default in line.shown:
        value = f"_given(self.{name})" if name == "bias" else f"self.{name}"
        text = (f"{name}=" if named else "") + f"{{{value}{'!r' if quoted else ''}}}"
        condition = ""
        if unless_default:
            kind, default = defaults[name]
            if _numbers(kind):
                default = str((int(default),) * _numbers(kind))
            condition = f"if {value} != {default}: "
        body.append(f'{condition}parts.append(f"{text}")')
    return "def extra_repr(self) -> str:\n    " + "\n    ".join([*body, 'return ", ".join(parts)'])


def _given(bias: Any) -> bool:
    return bias if isinstance(bias, bool) else bias is not None


def _is_inherited(method: Callable, base: type) -> bool:
    """Whether the base's __init__ has the same parameters, and perhaps more."""
    theirs = inspect.signature(base.__init__).parameters  # type: ignore[misc]
    own = inspect.signature(method).parameters
    return all(n in theirs and repr(theirs[n].default) == repr(p.default) for n, p in own.items())


made: Dict[type, Dict[str, Callable]] = {}
"""The methods that classes were given."""


def layer(cls: Any) -> Any:
    """Gives a layer what it does not say itself: __init__, forward, extra_repr and __constants__.

    @layer("LSTM") is for a class that has another name in the table.
    """
    if isinstance(cls, str):
        return lambda other: _complete(other, cls)
    return _complete(cls, cls.__name__)


def _complete(cls: Any, name: str) -> Any:
    line, base = _Line(name), cls.__mro__[1]
    texts: Dict[str, str] = {}
    if line.options:
        texts["__init__"] = _init(cls, line)
    if line.call and getattr(base, "forward", None) is getattr(Module, "forward", None):
        texts["forward"] = _forward(line)
    if line.shown or base.extra_repr is not Module.extra_repr:
        texts["extra_repr"] = _extra_repr(line)
    namespace: Dict[str, Any] = {"_cls": cls, "_given": _given, "_ntuple": _ntuple, "check": check}
    if line.call:
        namespace["_function"] = _function(line)
    made[cls] = {}
    for name, text in texts.items():
        if name in vars(cls):
            continue
        flags = __future__.annotations.compiler_flag
        exec(compile(text, f"<nn.{cls.__name__}.{name}>", "exec", flags, True), namespace)
        method = namespace[name]
        if name == "__init__" and _is_inherited(method, base):
            continue
        method.__qualname__ = f"{cls.__name__}.{name}"
        method.__module__ = cls.__module__
        made[cls][name] = method
        setattr(cls, name, method)
    if getattr(cls, "__constants__", None) is None:
        kinds = {n: kind for n, kind, _ in line.options if n not in _OLDER_WORDS}
        cls.__constants__ = [n for n, kind in kinds.items() if not kind.startswith("Tensor")]
    return cls
