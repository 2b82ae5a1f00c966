"""A program as an ONNX model."""
from __future__ import annotations

import ast
import collections
import json
from typing import Any

import onnx
from onnx import helper

from .._program import argument_of
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
    for k in range(len(j["symbols"])):
        v, d = next((v, d) for v in values[: len(names)] for d, e in enumerate(v.shape) if e == [[1, k]])
        graph.sizes.append(graph.op("Shape", v, start=d, end=d + 1))
    given = len(values)
    memory: dict[int, int] = {}  # of each value that shows another one's memory, which
    last_use = _last_use(j)
    schemas = {op: _arguments(s) for op, s in j["schemas"].items()}
    for number, c in enumerate(j["calls"]):
        op, form = c.get("op", "detach"), c.get("form", "call")
        where = f"{op} ({j['places'][c['place']]})" if "place" in c else op
        results = [Value("", r["dtype"], r["shape"], op not in _VIEWS) for r in c.get("results", ())]
        if form == "detach":
            old = c["args"][0]["tensor"]
            memory[len(values)] = memory.get(old, old)
            values.append(values[old])
            continue
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
            root = memory.get(self, self)
            if root < given:
                raise NotImplementedError(f"onnx.export(): '{where}' writes into an input or a constant (call {number + 1})")
            if any(last_use[v] > number for v in range(len(values)) if v != self and memory.get(v, v) == root):
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
            continue
        if op in _VIEWS:
            memory.update({len(values) + k: memory.get(used[0], used[0]) for k in range(len(results))})
        values += results
    final = [values[k] for k in j["outputs"]]
    for name, v in zip(outputs, final):
        graph.nodes.append(helper.make_node("Identity", [v.name], [name]))
    used_names = {n for node in graph.nodes for n in node.input}
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
