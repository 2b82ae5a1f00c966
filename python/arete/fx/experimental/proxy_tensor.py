"""torch's make_fx: what a function calls for given arguments, as a module whose forward() is a graph of operators."""
from __future__ import annotations

import functools
import json
from typing import Any, Callable

from ... import _C
from ..._C import Tensor
from ..._program import Recorded, every_dimension, state_of
from ...nn import Module, Parameter
from ._program_graph import Writer
from ..graph import Graph
from ..graph_module import GraphModule

__all__ = ["get_proxy_mode", "make_fx"]


def _graph_of(recorded: Recorded, count: int, places: list[int]) -> tuple[Graph, dict]:
    j = json.loads(recorded.program.text(for_file=False))
    graph, attributes = Graph(), {}
    inputs = [graph.placeholder(f"{name}_1") for name in recorded.form["names"][:count]]
    values: dict = dict(enumerate(inputs[k] for k in places))
    for k, (_, tensor, kind, _) in enumerate(recorded.program.state()[: len(j["constants"])]):
        name = f"_{'param' if kind == 'parameter' else 'tensor'}_constant{k}"
        attributes[name] = Parameter(tensor, tensor.requires_grad) if kind == "parameter" and not isinstance(tensor, Parameter) else tensor
        values[len(places) + k] = graph.create_node("get_attr", name)
    Writer(j).write(graph, attributes, values)
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
    arguments, and with `tracing_mode="symbolic"` sizes of at least 2 are asked for (`sym_size`) where the function lets them differ ("fake"
    is as "real", which runs); a look at a value that depends on the arguments is an error with its line (docs/program.md). Arguments are
    tensors, numbers and texts.

    There are no decompositions: NotImplementedError for a table.

    >>> from arete.fx.experimental.proxy_tensor import make_fx
    >>> print(make_fx(lambda x: x.sin() + 1)(arete.ones(2)).code.strip())
    def forward(self, x_1):
        sin = arete.ops.aten.sin.default(x_1);  x_1 = None
        add = arete.ops.aten.add.Tensor(sin, 1);  sin = None
        return add
    """
    if decomposition_table:
        raise NotImplementedError("make_fx(): there is no table of decompositions; operators stay as the function called them")
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"make_fx(): tracing_mode is 'real', 'fake' or 'symbolic', not {tracing_mode!r}")

    @functools.wraps(f)
    def traced(*args: Any) -> GraphModule:
        places = [k for k, a in enumerate(args) if isinstance(a, Tensor)]
        for a in args:
            if isinstance(a, (tuple, list, dict)):
                raise TypeError("make_fx(): arguments are tensors, numbers and texts: take what is in a tree as arguments of their own")
        state = state_of(f) if isinstance(f, Module) else None
        recorded = Recorded.record(f, args, {}, what="make_fx()", kind="traced", state=state,
                                   dynamic=(lambda _, tensors: ([], every_dimension(tensors, 2))) if tracing_mode == "symbolic" else None)
        return GraphModule(*reversed(_graph_of(recorded, len(args), places)))

    return traced
