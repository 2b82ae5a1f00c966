"""A program as an ONNX model."""
from __future__ import annotations

import ast
import collections
import itertools
import json
from typing import Any

import onnx
from onnx import helper

from .._program import argument_of, next_mark, places_of_sizes
from . import _layers, _places, _shapes  # noqa: F401
from ._graph import TYPES, Call, Graph, NoCounterpart, Value
from ._operators import HANDLERS

OPSETS = (18, 21)


def _default(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text  # a name


def _arguments(schema: str) -> tuple[list[str], dict]:
    """Names of a schema's arguments, and the defaults of those that have one."""
    inside, names, depth, part = schema[schema.index("(") + 1 : schema.rindex(") -> ")], [], 0, ""
    defaults: dict[str, Any] = {}
    for c in inside + ",":
        if c == "," and depth == 0:
            declared, has_default, default = part.partition("=")
            name = declared.split()
            names += name[-1:] if name and name[-1] != "*" else []
            if has_default:
                defaults[name[-1]] = _default(default.strip())
            part = ""
        else:
            depth += (c in "[(") - (c in "])")
            part += c
    return names, defaults


def _size_name(extent: Any, symbols: list) -> Any:
    """What a model's value info says of a size."""
    if isinstance(extent, int):
        return extent
    if extent is None:
        return None
    terms = ["*".join([str(t[0])] * (t[0] != 1 or len(t) == 1) + [symbols[s]["name"] for s in t[1:]]) for t in extent]
    return " + ".join(terms).replace(" + -", " - ")


def _apart(name: str, taken: Any) -> str:
    while name in taken:
        name += "_"
    return name


def to_model(program: Any, input_names: Any, output_names: Any, opset: int) -> Any:
    """The program as an onnx.ModelProto, which onnx has checked."""
    if not OPSETS[0] <= opset <= OPSETS[1]:
        raise ValueError(f"onnx.export(): opset_version is {OPSETS[0]} to {OPSETS[1]}, not {opset}")
    j = json.loads(program.text(for_file=False))
    state = program.state()[: len(j["constants"])]
    names = list(input_names or (i["name"] for i in j["inputs"]))
    outputs = list(output_names or (f"output_{k}" if len(j["outputs"]) > 1 else "output" for k in range(len(j["outputs"]))))
    if output_names is None:
        outputs = [_apart(n, [*names, *(s[0] for s in state)]) for n in outputs]
    if len(names) != len(j["inputs"]) or len(outputs) != len(j["outputs"]):
        raise ValueError(f"onnx.export(): the program has {len(j['inputs'])} inputs and {len(j['outputs'])} outputs, but {len(names)} and "
                         f"{len(outputs)} names are given")
    if len({*names, *outputs}) != len(names) + len(outputs):
        raise ValueError(f"onnx.export(): names of inputs and outputs are different from each other, and not {names} and {outputs}")
    if not outputs:
        raise ValueError("onnx.export(): the program gives no tensors")
    taken, constants = {*names, *outputs}, []
    for name, *_ in state:
        constants.append(_apart(name, taken))
        taken.add(constants[-1])
    graph = Graph(opset, taken)
    for kind in (i["dtype"] for i in j["inputs"]):
        if kind not in TYPES:
            raise NotImplementedError(f"onnx.export(): inputs of dtype {kind} cannot be had")
    values: list[Any] = [Value(n, i["dtype"], i["shape"]) for n, i in zip(names, j["inputs"])]
    for name, (_, t, _, _) in zip(constants, state):
        values.append(Value(name, str(t.dtype).rpartition(".")[2], list(t.shape), fixed=True))
    for i, d, factor, offset in places_of_sizes(j):
        size = graph.op("Shape", values[i], start=d, end=d + 1)
        size = graph.op("Sub", size, graph.constant([offset])) if offset else size
        graph.sizes.append(size if factor == 1 else graph.op("Div", size, graph.constant([factor])))
    given = len(values)
    first = list(itertools.accumulate((len(c.get("results", ())) for c in j["calls"]), initial=given))
    values += [None] * (first[-1] - given)
    memory = _Memory()
    last_use = _last_use(j)
    schemas = {op: _arguments(s) for op, s in j["schemas"].items()}

    def write(number: int, own: int) -> None:
        """The nodes of a call; what is made before the value `own` is not written."""
        c = j["calls"][number]
        form, at = c.get("form", "call"), first[number]
        op = c.get("op", form)
        where = f"{op} ({j['places'][c['place']]})" if "place" in c else op
        results = [Value("", r["dtype"], r["shape"], op not in _VIEWS) for r in c.get("results", ())]
        if form == "detach":
            old = c["args"][0]["tensor"]
            memory[at] = memory[old]
            values[at] = values[old]
            return
        if op not in HANDLERS or form == "out":
            raise NoCounterpart(op, f"onnx.export(): there is no counterpart of the operator '{where}' (call {number + 1})")
        if "autocast" in c:  # it decides dtypes within the operator
            raise NotImplementedError(f"onnx.export(): there is no counterpart of '{where}' under autocast (call {number + 1})")
        for r in results:
            if r.dtype not in TYPES:
                raise NotImplementedError(f"onnx.export(): '{where}' gives {r.dtype}, which the model cannot have (call {number + 1})")
        argument_names, defaults = schemas[op]
        call = Call(op, dict(zip(argument_names, (argument_of(a, values) for a in c["args"]))), [], where)
        used = [a["tensor"] for a in c["args"] if a and "tensor" in a]
        lists = [v for a in c["args"] if a and "tensors" in a for v in a["tensors"] if v is not None]
        fixed = all(values[v].fixed for v in used + lists)
        if form == "in_place":
            # A model writes nowhere: what is written is another value, in the place of this one alone.
            self = used[0]
            roots = memory[self]
            if min(roots) < own:
                raise NotImplementedError(f"onnx.export(): '{where}' writes into an input or a constant, or in a function of cond() or "
                                          f"while_loop() into what it did not make (call {number + 1})")
            if any(last_use[v] > number for v in range(at) if v != self and not roots.isdisjoint(memory[v])):
                raise NotImplementedError(f"onnx.export(): '{where}' writes into memory that other values show (call {number + 1})")
            old = values[self]
            results = [Value("", old.dtype, old.shape, old.own)]
        for r in results:
            r.fixed = fixed
        call.results = results
        made = HANDLERS[op](graph, call)
        call.finish(defaults)
        made = made if isinstance(made, list) else [made]
        if len(made) != len(results):
            raise NotImplementedError(f"onnx.export(): not all results of '{where}' can be had")
        for r, m in zip(results, made):
            r.name = m.name if isinstance(m, Value) else m
        if form == "in_place":
            values[self] = results[0]
            return
        if op in _VIEWS:
            memory.update({at + k: memory[used[0]] for k in range(len(results))})
        values[at : at + len(results)] = results

    _Parts(j, graph, values, memory, first, write).write(0, len(j["calls"]), given)
    final = [values[k] for k in j["outputs"]]
    for name, v in zip(outputs, final):
        graph.nodes.append(helper.make_node("Identity", [v.name], [name]))
    used_names = _names_taken(graph.nodes)
    for name, (_, t, _, _) in zip(constants, state):
        if name in used_names:
            graph.tensor(name, t)
    info = [helper.make_tensor_value_info(n, TYPES[v.dtype], [_size_name(e, j["symbols"]) for e in v.shape])
            for n, v in [*zip(names, values), *zip(outputs, final)]]
    untold = [helper.make_tensor_value_info(n, TYPES[v.dtype], [None] * v.rank) for n, v in zip(outputs, final)]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "program", info[: len(names)], untold, list(graph.initializers.values())),
        opset_imports=[helper.make_opsetid("", opset)], producer_name="arete", ir_version=9 if opset < 21 else 10)
    try:
        # With the rules of types: operators of ONNX do not take all dtypes that ours take. The results' sizes are told afterwards, since
        # onnx counts a window of pooling (ceil_mode) that lies in the padding, which runtimes leave out as we do.
        onnx.checker.check_model(model, full_check=True)
    except onnx.shape_inference.InferenceError as e:
        raise NotImplementedError(f"onnx.export(): the program has no counterpart that ONNX takes: {e}") from None
    for output, told in zip(model.graph.output, info[len(names) :]):
        output.CopyFrom(told)
    return model


def _names_taken(nodes: Any) -> set[str]:
    """What nodes take, and those of the graphs inside of them."""
    names = {n for node in nodes for n in node.input}
    return names.union(*(_names_taken(a.g.node) for node in nodes for a in node.attribute if a.HasField("g")))


class _Memory(dict):
    """Of each value the values whose memory it may show: itself, or what it is a view of, or the results of the arms that it joins; -1
    stands for that of a value which only a run decides."""

    def __missing__(self, value: int) -> frozenset:
        return frozenset({value})


class _Parts:
    """The calls in their order: those between the marks of cond() and while_loop() are graphs of If and Loop, which see all values before
    them."""

    def __init__(self, j: dict, graph: Graph, values: list, memory: _Memory, first: list[int], write: Any) -> None:
        self._calls, self._graph, self._values, self._memory, self._first, self._write = j["calls"], graph, values, memory, first, write

    def write(self, k: int, end: int, own: int) -> None:
        while k < end:
            form = self._calls[k].get("form")
            if form in ("branch", "loop"):
                k = self._branch(k) if form == "branch" else self._loop(k)
            else:
                self._write(k, own)
                k += 1

    def _numbers(self, k: int) -> list[int]:
        (value,) = self._calls[k]["args"][0].values()
        return value if isinstance(value, list) else [value]

    def _given(self, k: int) -> list:
        return [self._values[v] for v in self._numbers(k)]

    def _graph_of(self, write: Any, inputs: list) -> Any:
        """A graph of what write() writes, and gives the values of."""
        outer, self._graph.nodes = self._graph.nodes, []
        results = [(self._graph.op("Identity", v), v.dtype) for v in write()]
        made = helper.make_graph(self._graph.nodes, "part", inputs, [self._told(name, kind) for name, kind in results])
        self._graph.nodes = outer
        return made

    def _told(self, name: str, kind: str, shape: Any = None) -> Any:
        return helper.make_tensor_value_info(name, TYPES[kind], shape)

    def _results(self, k: int, names: list) -> None:
        """The values of a mark."""
        for n, (name, r) in enumerate(zip(names, self._calls[k]["results"]), self._first[k]):
            self._values[n] = Value(name, r["dtype"], r["shape"])

    def _may_show(self, k: int, *given: list[int]) -> None:
        """The results of a mark may show the memory of any of these; which it is a run decides, so nothing is written into them."""
        for n, those in enumerate(zip(*given), self._first[k]):
            self._memory[n] = frozenset({-1}).union(*(self._memory[v] for v in those))

    def _node(self, kind: str, *inputs: Any, k: int, **graphs: Any) -> None:
        names = self._graph.op(kind, *inputs, outputs=len(self._calls[k]["results"]), **graphs)
        self._results(k, names if isinstance(names, list) else [names])

    def _branch(self, k: int) -> int:
        middle = next_mark(self._calls, k)
        end = next_mark(self._calls, middle)

        def part(begin: int, last: int) -> Any:
            def write() -> list:
                self.write(begin + 1, last, self._first[begin])
                return self._given(last)
            return self._graph_of(write, [])

        pred = self._given(k)[0]
        if self._calls[end].get("results"):
            self._node("If", pred, k=end, then_branch=part(k, middle), else_branch=part(middle, end))
            self._may_show(end, self._numbers(middle), self._numbers(end))
        return end + 1

    def _loop(self, k: int) -> int:
        middle = next_mark(self._calls, k)
        end = next_mark(self._calls, middle)
        own = self._first[k + 1]
        initial = self._given(k)

        def condition() -> Value:
            self.write(k + 1, middle, own)
            (test,) = self._given(middle)
            return Value(self._graph.op("Reshape", test, self._graph.constant([])), "bool", [])

        # Each value that is carried may have been any of them.
        every = [*self._numbers(k), *self._numbers(end)]
        self._may_show(k, *([v] * len(initial) for v in self._numbers(k)))
        # Before the first round, and behind each.
        self._results(k, [v.name for v in initial])
        begin = condition()
        names = [self._graph.name() for _ in initial]
        self._results(k, names)
        inputs = [self._told(self._graph.name(), "int64", []), self._told(self._graph.name(), "bool", []),
                  *(self._told(name, v.dtype) for name, v in zip(names, initial))]

        def write() -> list:
            self._values[own : self._first[middle]] = [None] * (self._first[middle] - own)  # of another round
            self.write(middle + 1, end, own)
            carried = self._given(end)
            self._results(k, [v.name for v in carried])
            return [condition(), *carried]

        if initial:
            self._node("Loop", "", begin, *initial, k=k, body=self._graph_of(write, inputs))
            self._may_show(k, *([v] * len(initial) for v in every))
        return end + 1


def _last_use(j: dict) -> dict:
    """Of each value the last call that takes it; results of the program are taken after all of them."""
    uses: dict[int, int] = {}
    for number, c in enumerate(j["calls"]):
        for a in c["args"]:
            for v in [a["tensor"]] if a and "tensor" in a else a["tensors"] if a and "tensors" in a else ():
                uses[v] = number
    uses.update(dict.fromkeys(j["outputs"], len(j["calls"])))
    return collections.defaultdict(lambda: -1, uses)


# Operators whose results may be their first argument's memory.
_VIEWS = {"as_strided", "diagonal", "unfold",
          "view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "transpose", "permute", "t", "T", "mT",
          "squeeze", "unsqueeze", "expand", "expand_as", "select", "slice", "narrow", "split", "chunk", "unbind", "split_with_sizes",
          "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"}
