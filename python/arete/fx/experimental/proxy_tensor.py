"""torch's make_fx: what a function calls for given arguments, as a module whose forward() is a graph of operators."""
from __future__ import annotations

import ast
import functools
import json
import operator
from typing import Any, Callable

from ... import _C, ops
from ..._C import Tensor
from ..._operators import _ops
from ..._program import _DTYPES, Recorded, argument_of, state_of
from ...nn import Module, Parameter
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["get_proxy_mode", "make_fx"]


def _declared(schema: str) -> tuple[list[str], int, dict]:
    """Names of a schema's arguments, how many may be given by position, and the defaults that can be written down."""
    names: list[str] = []
    positional, depth, part = None, 0, ""
    defaults: dict[str, Any] = {}
    for c in schema[schema.index("(") + 1 : schema.rindex(") -> ")] + ",":
        if c != "," or depth:
            depth += (c in "[(") - (c in "])")
            part += c
            continue
        declared, _, default = part.partition("=")
        part = ""
        if declared.strip() == "*":
            positional = len(names)
        elif declared.strip():
            names.append(declared.split()[-1])
            try:
                defaults[names[-1]] = ast.literal_eval(default)
            except (SyntaxError, ValueError):
                pass  # none, or a name
    return names, len(names) if positional is None else positional, defaults


def _value(j: Any, values: list) -> Any:
    while j and "scalar" in j:
        j = j["scalar"]
    if j and "dtype" in j:
        return _DTYPES[j["dtype"]]
    if j and not {"complex", "program"}.isdisjoint(j):
        raise NotImplementedError("make_fx(): a graph cannot have the call of a kernel of expressions, as the gradients of element-wise "
                                  "operators are" if "program" in j else "make_fx(): a graph cannot have complex numbers")
    return argument_of(j, values)


def _target(name: str, in_place: bool) -> Callable:
    op, _, overload = name.partition(".")
    if in_place:
        op += "_"
    # Where torch's name stands for a function with other arguments, the record itself.
    if getattr(ops._aten(op), "_records", None) == getattr(_ops, op)._records:
        return getattr(getattr(ops.aten, op), overload or "default")
    return getattr(_ops, op)


def _gives_several(schema: str) -> bool:
    """Whether an operator gives a list or a tuple."""
    return "[]" in schema.rpartition(") -> ")[2] or schema.rstrip().endswith(")")


def _graph_of(recorded: Recorded, count: int, places: list[int]) -> tuple[Graph, dict]:
    j = json.loads(recorded.program.text(for_file=False))
    graph, attributes = Graph(), {}
    inputs = [graph.placeholder(f"{name}_1") for name in recorded.form["names"][:count]]
    values: list[Any] = [inputs[k] for k in places]
    for k, (_, tensor, kind, _) in enumerate(recorded.program.state()[: len(j["constants"])]):
        name = f"_{'param' if kind == 'parameter' else 'tensor'}_constant{k}"
        attributes[name] = Parameter(tensor, tensor.requires_grad) if kind == "parameter" and not isinstance(tensor, Parameter) else tensor
        values.append(graph.create_node("get_attr", name))
    declared = {op: _declared(schema) for op, schema in j["schemas"].items()}
    for call in j["calls"]:
        form = call.get("form", "call")
        if form == "detach":
            values.append(graph.call_function(ops.aten.detach.default, (values[call["args"][0]["tensor"]],)))
            continue
        op = call.get("op")
        if form == "out" or op not in declared or "autocast" in call:
            under = " under autocast" if "autocast" in call else ""
            raise NotImplementedError(f"make_fx(): a graph cannot have the call of {op or form}{under}")
        names, positional, defaults = declared[op]
        given = [_value(a, values) for a in call["args"]]
        kwargs = {n: v for n, v in zip(names[positional:], given[positional:]) if v is not None and defaults.get(n, ...) != v}
        args = given[:positional]
        while args and (args[-1] is None or not isinstance(args[-1], (Node, list)) and defaults.get(names[len(args) - 1], ...) == args[-1]):
            args.pop()
        target, name = _target(op, form == "in_place"), op.partition(".")[0].strip("_") + "_" * (form == "in_place")
        node = graph.create_node("call_function", target, tuple(args), kwargs, name)
        if form == "in_place":
            continue  # what it wrote into is the value that it was
        results = call.get("results", ())
        if len(results) == 1 and not _gives_several(j["schemas"][op]):
            values.append(node)
        else:
            values += [graph.call_function(operator.getitem, (node, k)) for k in range(len(results))]
    graph.output(recorded._result([values[k] for k in j["outputs"]]))
    return graph, attributes


def get_proxy_mode() -> Callable | None:
    """What records calls just now, which programs ask for being there: make_fx, or None.

    >>> arete.fx.experimental.proxy_tensor.get_proxy_mode() is None
    True
    """
    return make_fx if _C._is_recording_program() else None


def make_fx(f: Callable, decomposition_table: dict | None = None, tracing_mode: str = "real", _allow_non_fake_inputs: bool = False,
            *, pre_dispatch: bool = False, record_module_stack: bool = False, _allow_fake_constant: bool = False,
            _error_on_data_dependent_ops: bool = True) -> Callable:
    """A function of f's arguments that runs f on copies of them and gives a GraphModule of the operators that f called, under the
    names of `arete.ops.aten`; where it asked for gradients, of those that operators alone make. Sizes and numbers are those of the
    arguments; a look at a value that depends on them is an error with its line (docs/program.md). Arguments are tensors, numbers and texts.

    There are no decompositions: NotImplementedError for a table, and for `tracing_mode="symbolic"` ("fake" is as "real", which runs).

    >>> from arete.fx.experimental.proxy_tensor import make_fx
    >>> print(make_fx(lambda x: x.sin() + 1)(arete.ones(2)).code.strip())
    def forward(self, x_1):
        sin = arete.ops.aten.sin.default(x_1);  x_1 = None
        add = arete.ops.aten.add.default(sin, 1);  sin = None
        return add
    """
    if decomposition_table:
        raise NotImplementedError("make_fx(): there is no table of decompositions; operators stay as the function called them")
    if tracing_mode == "symbolic":
        raise NotImplementedError("make_fx(): sizes are those of the arguments; arete.export.export has sizes that differ (dynamic_shapes)")
    if tracing_mode not in ("real", "fake"):
        raise ValueError(f"make_fx(): tracing_mode is 'real', 'fake' or 'symbolic', not {tracing_mode!r}")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        places = [k for k, a in enumerate(args) if isinstance(a, Tensor)]
        for a in args:
            if isinstance(a, (tuple, list, dict)):
                raise TypeError("make_fx(): arguments are tensors, numbers and texts: take what is in a tree as arguments of their own")
        state = state_of(f) if isinstance(f, Module) else None
        recorded = Recorded.record(f, args, {}, what="make_fx()", kind="traced", state=state)
        return GraphModule(*reversed(_graph_of(recorded, len(args), places)))

    return traced
