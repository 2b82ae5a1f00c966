"""`arete.export`: a module's calls as a program with a signature, under torch.export's names (docs/program.md).

    ep = arete.export.export(net, (x,), dynamic_shapes={"x": {0: arete.export.Dim("batch")}})
    arete.export.save(ep, "net.arete")
    arete.export.load("net.arete").module()(x)
"""
from __future__ import annotations

import base64 as _base64
import enum as _enum
import inspect as _inspect
import io as _io
import json as _json
from collections import namedtuple as _namedtuple
from typing import Any

from . import _C
from ._grad_mode import no_grad as _no_grad
from ._operators import _ops
from ._program import (Graph as _Graph, ProgramModule as _ProgramModule, Recorded as _Recorded, _close,
                       check_module as _check_module, state_of as _state_of)
from .nn import Module as _Module
from .serialization import load as _load_tensors, save as _save_tensors

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "InputKind", "InputSpec", "TensorArgument", "dims", "export", "load", "save",
           "unflatten"]

_ValueRanges = _namedtuple("ValueRanges", "lower upper")


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


class InputKind(_enum.Enum):
    """What an input of a program is.

    >>> arete.export.InputKind.PARAMETER.name
    'PARAMETER'
    """

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4


class TensorArgument:
    """A tensor of a program, by its name.

    >>> arete.export.TensorArgument("x")
    TensorArgument(name='x')
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"TensorArgument(name={self.name!r})"


class InputSpec:
    """An input: its kind, the name it has in the program (`arg.name`), the name of the state that it is, if it is one (`target`), and
    whether a buffer is saved (`persistent`).

    >>> arete.export.export(arete.nn.Linear(2, 2), (arete.ones(1, 2),)).graph_signature.input_specs[0]
    InputSpec(kind=InputKind.PARAMETER, arg=TensorArgument(name='p_weight'), target='weight', persistent=None)
    """

    def __init__(self, kind: InputKind, arg: TensorArgument, target: str | None, persistent: bool | None = None) -> None:
        self.kind, self.arg, self.target, self.persistent = kind, arg, target, persistent

    def __repr__(self) -> str:
        return f"InputSpec(kind={self.kind}, arg={self.arg}, target={self.target!r}, persistent={self.persistent})"


# What torch calls state of a kind among a program's inputs.
_STATE = {"parameter": ("p", InputKind.PARAMETER), "buffer": ("b", InputKind.BUFFER), "constant": ("c", InputKind.CONSTANT_TENSOR)}


def _placeholder(name: str, kind: str) -> str:
    return f"{_STATE[kind][0]}_{name.replace('.', '_')}"


class ExportGraphSignature:
    """What the inputs, outputs and state of a program are called; `input_specs` has the state before the inputs, as torch has.

    >>> arete.export.export(arete.nn.Linear(2, 2), (arete.ones(1, 2),)).graph_signature.parameters
    ('weight', 'bias')
    """

    def __init__(self, program: Any) -> None:
        state = program.state()
        self.user_inputs = tuple(i[0] for i in program.inputs())
        self.user_outputs = tuple(f"output_{k}" for k in range(program.output_count()))
        self.parameters = tuple(name for name, _, kind, _ in state if kind == "parameter")
        self.buffers = tuple(name for name, _, kind, _ in state if kind == "buffer")
        self.non_persistent_buffers = frozenset(name for name, _, kind, lasting in state if kind == "buffer" and not lasting)
        self.lifted_tensor_constants = tuple(name for name, _, kind, _ in state if kind == "constant")
        self.buffers_to_mutate = {name: name for name in program.written()}
        self.input_specs = [
            InputSpec(_STATE[kind][1], TensorArgument(_placeholder(name, kind)), name,
                      lasting if kind == "buffer" else None)
            for name, _, kind, lasting in state
        ] + [InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in self.user_inputs]

    def __repr__(self) -> str:
        return f"ExportGraphSignature({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


class ExportGraph(_Graph):
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

    def __init__(self, recorded: _Recorded, example_inputs: Any = None) -> None:
        self._recorded = recorded
        self.example_inputs = example_inputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self) -> _ProgramModule:
        """A module that runs the program and shares its parameters and buffers."""
        return _ProgramModule(self._recorded)

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
        from .fx import Graph, GraphModule
        from .fx.experimental._program_graph import Writer, show

        j = _json.loads(self._recorded.program.text(for_file=False))
        graph, attributes, values = Graph(), {}, {}
        count, state = len(j["inputs"]), self._recorded.program.state()
        for k, (name, t, kind, _) in enumerate(state):
            node = graph.placeholder(_placeholder(name, kind))
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
        """Names of inputs, outputs, parameters and buffers."""
        return ExportGraphSignature(self._recorded.program)

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
        ['aten.t.default', 'aten.matmul.default', 'aten.add.default']
        """
        if decompose_custom_triton_ops:
            raise NotImplementedError("ExportedProgram.run_decompositions(): programs have no kernels of Triton")
        recorded = _composed(self) if decomp_table is None else _replaced(self, decomp_table)
        return ExportedProgram(recorded, self.example_inputs)

    def __str__(self) -> str:
        return f"ExportedProgram:\n{self.graph}_Graph signature: {self.graph_signature}\nRange constraints: {self.range_constraints}\n"


def _examples(ep: ExportedProgram) -> list:
    """Inputs of the program: those of the recording, or zeros."""
    if ep.example_inputs is not None:
        return ep._recorded.tensors_of(*ep.example_inputs)
    ranges = {name: (low, high) for name, low, high in ep._recorded.program.sizes()}
    shapes = [[int(n) if n.isdigit() else max(2, ranges[n][0]) for n in sizes] for _, _, sizes in ep._recorded.program.inputs()]
    return [_ops.zeros(shape, dtype=dtype) for shape, (_, dtype, _) in zip(shapes, ep._recorded.program.inputs())]


def _recorded_again(ep: ExportedProgram, run: Any, inputs: list, whole: list | None = None) -> _Recorded:
    """What `run` calls, with the inputs, sizes and state of the program; its results are the program's."""
    old = ep._recorded
    info, ranges, exact = old.program.inputs(), old.program.sizes(), []
    for k, x in enumerate(_json.loads(old.program.text(for_file=False))["inputs"]):
        for d, terms in enumerate(x["shape"]):
            if isinstance(terms, list):
                (factor, size), = (t for t in terms if len(t) == 2)
                name, low, high = ranges[size]
                exact.append((name, k, d, low, high, factor, sum(t[0] for t in terms if len(t) == 1)))
    state = [(name, t, kind == "parameter", lasting) for name, t, kind, lasting in old.program.state() if kind != "constant"]
    program = _C._SavedProgram.record(run, inputs, [i[0] for i in info], exact, [], state, whole)
    for key, text in old.program.metadata().items():
        program.set_metadata(key, text)
    return _Recorded(program, old.form, old.classes)


def _composed(ep: ExportedProgram) -> _Recorded:
    inputs = _examples(ep)
    program = ep._recorded.program

    def results(p: Any) -> list:
        copy, random = p.clone(), _C.default_generator.get_state()
        given = [t.detach().clone() for t in inputs]
        with _no_grad():
            found = copy(given)
        _C.default_generator.set_state(random)
        return found + given + [t for _, t, kind, _ in copy.state() if kind != "constant"]  # with what it wrote

    try:
        wanted = results(program)
    except (ValueError, TypeError, RuntimeError):  # of what is there instead of the inputs of a recording
        return ep._recorded
    if not {"batch_norm", "batch_norm_relu"}.isdisjoint(program.operators()):
        ep = _with_batch_norms_apart(ep, results, wanted)
        program = ep._recorded.program

    def taken_apart(whole: list) -> _Recorded | None:
        """None where what an operator is composed of is not all that it does, or cannot be saved or looked at."""
        try:
            made = _recorded_again(ep, program, inputs, whole)
            made.program.text(for_file=True)
            _ = ExportedProgram(made).graph_module
            same = _all_close(results(made.program), wanted)
        except (ValueError, TypeError, RuntimeError, NotImplementedError):
            return None
        return made if same else None

    names = program.operators()
    made = taken_apart([])
    return made or taken_apart([op for op in names if not taken_apart([n for n in names if n != op])]) or ep._recorded


def _batch_norm_apart(x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float,
                      cudnn_enabled: bool = True) -> Any:
    """In training the statistics, and what they do with running ones, operator by operator."""
    if not training:
        return _ops.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    wide = x.float() if x.element_size() < 4 else x
    dims, shape = [0, *range(2, x.dim())], [1, -1] + [1] * (x.dim() - 2)
    mean, var = wide.mean(dims, keepdim=True), wide.var(dims, correction=0, keepdim=True)
    with _no_grad():
        for running, now in ((running_mean, mean), (running_var, wide.var(dims, correction=1, keepdim=True))):
            if running is not None:
                running.lerp_(now.view(running.shape).to(running.dtype), momentum)
    y = (wide - mean) * (var + eps).rsqrt()
    y = y if weight is None else y * weight.view(shape)
    return (y if bias is None else y + bias.view(shape)).to(x.dtype)


def _batch_norm_relu_apart(x: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
                           momentum: float = 0.1, eps: float = 1e-5, residual: Any = None) -> Any:
    y = _batch_norm_apart(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return _ops.relu(y if residual is None else y + residual)


def _with_batch_norms_apart(ep: ExportedProgram, results: Any, wanted: list) -> ExportedProgram:
    """The program with what batch norms do in training, where it can be written anew."""
    try:
        made = _replaced(ep, {_ops.batch_norm: _batch_norm_apart, _ops.batch_norm_relu: _batch_norm_relu_apart})
        if _all_close(results(made.program), wanted):
            return ExportedProgram(made, ep.example_inputs)
    except (ValueError, TypeError, RuntimeError, NotImplementedError):
        pass
    return ep


def _all_close(a: list, b: list) -> bool:
    return all(x.shape == y.shape and x.dtype == y.dtype and _close(x, y, 1e-4) for x, y in zip(a, b))


def _replaced(ep: ExportedProgram, table: dict) -> _Recorded:
    from .fx import GraphModule, Interpreter

    functions = {}
    for op, function in table.items():
        name = getattr(op, "_opname", None) or getattr(op, "__name__", None)
        if name is None or not callable(function):
            raise TypeError(f"run_decompositions(): a table is from operators of ops.aten to functions, not from {op!r} to {function!r}")
        functions[name] = function
    if not functions:
        return ep._recorded

    class Replacing(Interpreter):
        def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
            name = getattr(target, "_opname", getattr(target, "__name__", ""))
            # Of cond and while_loop, whose functions are graphs, too.
            args = tuple((lambda *given, inner=a: Replacing(inner).run(*given)) if isinstance(a, GraphModule) else a for a in args)
            return functions.get(name, target)(*args, **kwargs)

    module = ep.graph_module
    state = [t for _, t, _, _ in ep._recorded.program.state()]
    return _recorded_again(ep, lambda given: list(Replacing(module).run(*state, *given)), _examples(ep))


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
    if kind in ("tuple", "list", "Size", "namedtuple"):
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


def export(mod: Any, args: tuple, kwargs: dict | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
           preserve_module_call_signature: tuple = ()) -> ExportedProgram:
    """The calls that a module makes on example arguments, with a signature.

    `dynamic_shapes` says which sizes may differ: a dict by the names of forward's arguments, or a tuple in their order, of what is said
    of each: for a tensor a dict from dimensions to Dims (or Dim.AUTO, Dim.DYNAMIC, None), or a tuple of such; for trees trees. The
    module is recorded with three values of each, so integers that it computes from them are right for all; a loop over a dynamic size,
    or a branch on a value, is a ValueError with its line. The program shares its parameters with the module.

    `strict=True` and `preserve_module_call_signature` are refused: Python runs while recording, and modules leave no trace.

    >>> net = arete.nn.Linear(4, 2)
    >>> ep = arete.export.export(net, (arete.ones(3, 4),), dynamic_shapes={"input": {0: arete.export.Dim("batch", max=64)}})
    >>> arete.equal(ep.module()(arete.ones(9, 4)), net(arete.ones(9, 4)))
    True
    >>> ep.module()(arete.ones(65, 4))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    arete.ArgumentError: Expected input 'input' at dimension 0 to be <= 64, but got 65. ...
    """
    if not isinstance(mod, _Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise ValueError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    if strict:
        raise NotImplementedError("export(): strict=True is an analysis of Python's code; calls are recorded (strict=False)")
    if preserve_module_call_signature:
        raise NotImplementedError("export(): modules inside leave nothing but their calls in a program")
    _check_module(mod)
    dynamic_shapes = _one_by_one(mod.forward, len(args), dynamic_shapes)
    kept: list = []

    def dynamic(form: dict, tensors: list) -> tuple[list, list]:
        kept[:] = form, tensors
        return _dynamic(form, tensors, dynamic_shapes) if dynamic_shapes else ([], [])

    recorded = _Recorded.record(mod, args, kwargs or {}, what="export()", kind="exported", state=_state_of(mod), dynamic=dynamic,
                               training=mod.training)
    if dynamic_shapes:
        _check_dynamic(recorded.program, *kept, dynamic_shapes)
    return ExportedProgram(recorded, (args, kwargs or {}))


_MOST_OF_EXAMPLES = 16 << 20


def save(ep: ExportedProgram, f: Any, *, extra_files: dict | None = None) -> None:
    """Writes a program to a path or an open file, with its example inputs, if they have no more than 16 MiB; `extra_files`: texts or
    bytes by name, which load() gives back.

    >>> import io
    >>> file = io.BytesIO()
    >>> arete.export.save(arete.export.export(arete.nn.ReLU(), (arete.ones(2),)), file)
    >>> _ = file.seek(0)
    >>> arete.export.load(file).module()(arete.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    if ep.example_inputs is not None:
        tensors = [t.detach() for t in ep._recorded.tensors_of(*ep.example_inputs)]
        if sum(t.numel() * t.element_size() for t in tensors) <= _MOST_OF_EXAMPLES:
            file = _io.BytesIO()
            _save_tensors(tensors, file)
            ep._recorded.program.set_metadata("examples", _base64.b64encode(file.getvalue()).decode())
    ep._recorded.save(f, extra_files)


def load(f: Any, *, extra_files: dict | None = None) -> ExportedProgram:
    """A program from a path or an open file, which may be hostile: OSError says what is wrong with it. What jit.save() wrote is read,
    too.

    >>> arete.export.load("no such file")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    OSError: cannot open 'no such file': No such file or directory...
    """
    recorded = _Recorded.load(f, extra=extra_files)
    text, examples = recorded.program.metadata().get("examples"), None
    if text is not None:
        try:
            tensors = _load_tensors(_io.BytesIO(_base64.b64decode(text, validate=True)), map_location=recorded.program.device())
            examples = recorded.arguments(tensors) if recorded.program.fits(tensors) else None
        except Exception:  # a hostile file may hold anything
            raise OSError("load: the file says nothing sensible about the example inputs of its program") from None
    return ExportedProgram(recorded, examples)


def unflatten(module: ExportedProgram, flat_args_adapter: Any = None) -> _ProgramModule:
    """A module that runs the program, with its parameters and buffers in a tree of modules; those inside cannot be called or replaced.

    >>> net = arete.nn.Sequential(arete.nn.Linear(2, 2), arete.nn.ReLU())
    >>> arete.export.unflatten(arete.export.export(net, (arete.ones(1, 2),))).get_parameter("0.weight").shape
    arete.Size([2, 2])
    """
    if flat_args_adapter is not None:
        raise NotImplementedError("unflatten(): flat_args_adapter: arguments are those of the recording")
    return module.module()
