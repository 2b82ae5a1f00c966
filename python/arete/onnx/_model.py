"""A program as an ONNX model."""
from __future__ import annotations

import json
from typing import Any

import onnx
from onnx import helper

from . import _layers, _shapes  # noqa: F401
from ._graph import TYPES, Call, Graph, Value
from ._operators import HANDLERS

OPSETS = (18, 21)


def _argument(j: Any, values: list) -> Any:
    if j is None:
        return None
    (kind, value), = j.items()
    if kind == "tensor":
        return values[value]
    if kind == "tensors":
        return [None if v is None else values[v] for v in value]
    if kind == "scalar":
        (kind, value), = value.items()
    if kind == "float" and isinstance(value, str):
        return float(value)
    return value


def _argument_names(schema: str) -> list[str]:
    inside, names, depth, part = schema[schema.index("(") + 1 : schema.rindex(") -> ")], [], 0, ""
    for c in inside + ",":
        if c == "," and depth == 0:
            name = part.split("=")[0].split()
            names += name[-1:] if name and name[-1] != "*" else []
            part = ""
        else:
            depth += (c in "[(") - (c in "])")
            part += c
    return names


def _size_name(extent: Any, symbols: list) -> Any:
    """What a model's value info says of a size."""
    if isinstance(extent, int):
        return extent
    if extent is None:
        return None
    terms = ["*".join([str(t[0])] * (t[0] != 1 or len(t) == 1) + [symbols[s]["name"] for s in t[1:]]) for t in extent]
    return " + ".join(terms)


def to_model(program: Any, input_names: Any, output_names: Any, opset: int) -> Any:
    """The program as an onnx.ModelProto, which onnx has checked."""
    if not OPSETS[0] <= opset <= OPSETS[1]:
        raise ValueError(f"onnx.export(): opset_version is {OPSETS[0]} to {OPSETS[1]}, not {opset}")
    j = json.loads(program.text())
    state = program.state()[: len(j["constants"])]
    names = list(input_names or (i["name"] for i in j["inputs"]))
    outputs = list(output_names or (f"output_{k}" if len(j["outputs"]) > 1 else "output" for k in range(len(j["outputs"]))))
    if len(names) != len(j["inputs"]) or len(outputs) != len(j["outputs"]):
        raise ValueError(f"onnx.export(): the program has {len(j['inputs'])} inputs and {len(j['outputs'])} outputs, but {len(names)} and "
                         f"{len(outputs)} names are given")
    if len({*names, *outputs, *(s[0] for s in state)}) != len(names) + len(outputs) + len(state):
        raise ValueError("onnx.export(): names of inputs, outputs and parameters are different from each other")
    graph = Graph(opset)
    for kind in (i["dtype"] for i in j["inputs"]):
        if kind not in TYPES:
            raise NotImplementedError(f"onnx.export(): inputs of dtype {kind} cannot be had")
    values: list[Any] = [Value(n, i["dtype"], i["shape"]) for n, i in zip(names, j["inputs"])]
    for name, t, _, _ in state:
        values.append(Value(name, str(t.dtype).rpartition(".")[2], list(t.shape)))
    for k in range(len(j["symbols"])):
        v, d = next((v, d) for v in values[: len(names)] for d, e in enumerate(v.shape) if e == [[1, k]])
        graph.sizes.append(graph.op("Shape", v, start=d, end=d + 1))
    views: dict[int, int] = {}  # of each value the one whose memory it shows
    schemas = {op: _argument_names(s) for op, s in j["schemas"].items()}
    for number, c in enumerate(j["calls"]):
        op, form = c.get("op", "detach"), c.get("form", "call")
        where = f"{op} ({j['places'][c['place']]})" if "place" in c else op
        results = [Value("", r["dtype"], r["shape"]) for r in c.get("results", ())]
        if form == "detach":
            values.append(values[c["args"][0]["tensor"]])
            continue
        if op not in HANDLERS or form == "out":
            raise NotImplementedError(f"onnx.export(): there is no counterpart of the operator '{where}' (call {number + 1})")
        args = dict(zip(schemas[op], (_argument(a, values) for a in c["args"])))
        used = [a["tensor"] for a in c["args"] if a and "tensor" in a]
        if form == "in_place":
            self = used[0]
            if self in views or self in views.values() or self < len(j["inputs"]) + len(state):
                raise NotImplementedError(f"onnx.export(): '{where}' writes into memory that other values show (call {number + 1})")
            old = values[self]
            results = [Value("", old.dtype, old.shape)]
        made = HANDLERS[op](graph, Call(op, args, results))
        made = made if isinstance(made, list) else [made]
        if len(made) != len(results):
            raise NotImplementedError(f"onnx.export(): not all results of '{where}' can be had")
        for r, m in zip(results, made):
            r.name = m.name if isinstance(m, Value) else m
        if form == "in_place":
            values[self] = results[0]
            continue
        if op in _VIEWS:
            views.update({len(values) + k: views.get(used[0], used[0]) for k in range(len(results))})
        values += results
    final = [values[k] for k in j["outputs"]]
    for name, v in zip(outputs, final):
        graph.nodes.append(helper.make_node("Identity", [v.name], [name]))
    used_names = {n for node in graph.nodes for n in node.input}
    for name, t, _, _ in state:
        if name in used_names:
            graph.tensor(name, t)
    info = [helper.make_tensor_value_info(n, TYPES[v.dtype], [_size_name(e, j["symbols"]) for e in v.shape])
            for n, v in [*zip(names, values), *zip(outputs, final)]]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "program", info[: len(names)], info[len(names) :], list(graph.initializers.values())),
        opset_imports=[helper.make_opsetid("", opset)], producer_name="arete", ir_version=9 if opset < 21 else 10)
    onnx.checker.check_model(model)
    return model


_VIEWS = {"view", "reshape", "flatten", "transpose", "permute", "t", "squeeze", "unsqueeze", "expand", "expand_as", "select", "slice",
          "narrow", "split", "chunk", "unbind", "split_with_sizes", "T", "mT", "view_as", "movedim", "unflatten"}
