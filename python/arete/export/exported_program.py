"""Programs with a signature."""
from __future__ import annotations

import json
from collections import namedtuple
from typing import Any

from .._program import Graph, ProgramModule, Recorded
from . import _decompositions
from .graph_signature import (
    ArgumentSpec as ArgumentSpec, ConstantArgument as ConstantArgument, ExportGraphSignature as ExportGraphSignature,
    InputKind as InputKind, InputSpec as InputSpec, OutputKind as OutputKind, OutputSpec as OutputSpec, TensorArgument as TensorArgument,
    placeholder_name, signature_of,
)

__all__ = ["ExportedProgram"]

_ValueRanges = namedtuple("ValueRanges", "lower upper")


class ExportGraph(Graph):
    """The calls of an exported program: as text, one a line, and else the graph of its graph_module.

    >>> ep = arete.export.export(arete.nn.ReLU(), (arete.ones(2),))
    >>> [node.op for node in ep.graph.nodes]
    ['placeholder', 'call_function', 'output']
    """

    def __init__(self, exported: Any) -> None:
        super().__init__(exported._recorded.program)
        self._exported = exported
        self._nodes: Any = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._nodes is None:
            self._nodes = self._exported.graph_module  # which the graph does not hold
        return getattr(self._nodes.graph, name)


class ExportedProgram:
    """A program with a signature: see export() and load().

    >>> ep = arete.export.export(arete.nn.ReLU(), (arete.ones(2),))
    >>> ep.module()(arete.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """

    def __init__(self, recorded: Recorded, example_inputs: Any = None) -> None:
        self._recorded = recorded
        self.example_inputs = example_inputs
        self._results: list[str] | None = None  # their names in the graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self) -> ProgramModule:
        """A module that runs the program and shares its parameters and buffers."""
        return ProgramModule(self._recorded)

    @property
    def graph(self) -> ExportGraph:
        """The calls: print it, or look at its nodes."""
        return ExportGraph(self)

    @property
    def graph_module(self) -> Any:
        """The calls as a new fx.GraphModule of operators, to be looked at: it takes the state and the inputs in the order of
        graph_signature.input_specs, and gives a tuple. What is changed there is not changed in the program.

        >>> print(arete.export.export(arete.nn.ReLU(), (arete.ones(2),)).graph_module.code.strip())
        def forward(self, input):
            relu = arete.ops.aten.relu.default(input);  input = None
            return (relu,)
        """
        from ..fx import Graph, GraphModule
        from ..fx.experimental._program_graph import Writer, show

        j = json.loads(self._recorded.program.text(for_file=False))
        graph, attributes, values = Graph(), {}, {}
        count, state = len(j["inputs"]), self._recorded.program.state()
        for k, (name, t, kind, _) in enumerate(state):
            node = graph.placeholder(placeholder_name(name, kind))
            node.meta["val"] = t
            if k < len(j["constants"]):  # the rest are other names of these
                values[count + k] = node
        for k, x in enumerate(j["inputs"]):
            values[k] = graph.placeholder(x["name"])
            show(values[k], x)
        Writer(j, has_gradients=True).write(graph, attributes, values)
        graph.output(tuple(values[k] for k in j["outputs"]))
        return GraphModule(attributes, graph)

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """Names of inputs, outputs, parameters and buffers. Where there is no graph (an autograd.Function) results have numbers."""
        if self._results is None:
            try:
                self._results = [node.name for node in self.graph_module.graph.output_node().args[0]]
            except NotImplementedError:
                self._results = [f"output_{k}" for k in range(self._recorded.program.output_count())]
        return signature_of(self._recorded.program, self._results)

    @property
    def state_dict(self) -> dict:
        """Parameters and persistent buffers by name."""
        return {name: t for name, t, kind, lasting in self._recorded.program.state() if kind != "constant" and lasting}

    @property
    def constants(self) -> dict:
        """Tensors that are neither parameters nor persistent buffers, by name."""
        return {name: t for name, t, kind, lasting in self._recorded.program.state() if kind == "constant" or not lasting}

    @property
    def range_constraints(self) -> dict:
        """The range of each dynamic size by its name; an upper bound of None is none."""
        return {name: _ValueRanges(low, high) for name, low, high in self._recorded.program.sizes()}

    def named_parameters(self) -> Any:
        """(name, parameter) of all."""
        return ((name, t) for name, t, kind, _ in self._recorded.program.state() if kind == "parameter")

    def parameters(self) -> Any:
        """All parameters."""
        return (t for _, t in self.named_parameters())

    def named_buffers(self) -> Any:
        """(name, buffer) of all."""
        return ((name, t) for name, t, kind, _ in self._recorded.program.state() if kind == "buffer")

    def buffers(self) -> Any:
        """All buffers."""
        return (t for _, t in self.named_buffers())

    def run_decompositions(self, decomp_table: Any = None, decompose_custom_triton_ops: bool = False) -> "ExportedProgram":
        """This program with other operators, which shares its state: without a table those that operators are composed of, as far as
        these do the same; with one, from operators of `ops.aten` to functions of their arguments, what those call. All overloads of an
        operator are one.

        >>> ep = arete.export.export(arete.nn.Linear(2, 2), (arete.ones(1, 2),))
        >>> table = {arete.ops.aten.linear.default: lambda x, w, b=None: x @ w.t() + b}
        >>> [str(node.target) for node in ep.run_decompositions(table).graph.nodes if node.op == "call_function"]
        ['aten.t.default', 'aten.matmul.default', 'aten.add.Tensor']
        """
        if decompose_custom_triton_ops:
            raise NotImplementedError("ExportedProgram.run_decompositions(): programs have no kernels of Triton")
        recorded = _decompositions.composed(self) if decomp_table is None else _decompositions.replaced(self, decomp_table)
        return ExportedProgram(recorded, self.example_inputs)

    @property
    def tensor_constants(self) -> dict:
        """`constants`."""
        return self.constants

    @property
    def dialect(self) -> str:
        """"TRAINING": a program is what was called, with writes in place."""
        return "TRAINING"

    def validate(self) -> None:
        """Looks whether the graph is one: RuntimeError if it is not. Programs are checked when they are recorded and read."""
        self.graph_module.graph.lint()

    def __str__(self) -> str:
        return f"ExportedProgram:\n{self.graph}_Graph signature: {self.graph_signature}\nRange constraints: {self.range_constraints}\n"
