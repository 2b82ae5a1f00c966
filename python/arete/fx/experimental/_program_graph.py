"""Recorded programs as graphs: the calls under the names of `arete.ops.aten`."""
from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any

from ... import ops
from ..._higher_order_ops import cond, while_loop
from ..._operators import _ops, channels_last, channels_last_3d, contiguous_format, preserve_format
from ..._program import _DTYPES, argument_of, next_mark, places_of_sizes
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node

__all__ = ["Writer"]


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


def _of(*names: str) -> Callable[[list, dict], str]:
    """The overload that is for tensors, or numbers, among the first arguments: one name for each of the ways of these."""
    if len(names) == 2:
        return lambda args, kwargs: names[0] if isinstance(args[-1], Node) else names[1]
    return lambda args, kwargs: names[(not isinstance(args[0], Node)) * 2 + (not isinstance(args[1], Node))]


def _over(one: str, several: str | None = None) -> Callable[[list, dict], str]:
    """The overload of a function over all dimensions, over one, and over several."""
    def chosen(args: list, kwargs: dict) -> str:
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        return "default" if dim is None else several if several and isinstance(dim, (list, tuple)) else one

    return chosen


def _with(argument: str, given: str, otherwise: str = "default") -> Callable[[list, dict], str]:
    return lambda args, kwargs: given if argument in kwargs else otherwise


# The overloads by which torch's graphs call operators, where they are not "default": records have one for several of them.
_OVERLOADS: dict[str, Any] = {
    **dict.fromkeys("add sub mul bucketize frexp ldexp slice_copy split_copy unsafe_split".split(), "Tensor"),
    **dict.fromkeys("eq ne lt le gt ge fmod remainder bitwise_and bitwise_or bitwise_xor copysign rsub fill masked_fill "
                    "lerp".split(), _of("Tensor", "Scalar")),
    **dict.fromkeys("log_softmax softmax select transpose unbind unflatten select_copy transpose_copy unbind_copy".split(), "int"),
    **dict.fromkeys(("pow", "float_power"), _of("Tensor_Tensor", "Tensor_Scalar", "Scalar")),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), _of("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), "correction"),
    **dict.fromkeys(("all", "any", "squeeze"), _over("dim", "dims")),
    **dict.fromkeys(("conv_transpose2d", "conv_transpose3d"), "input"), **dict.fromkeys(("sort", "argsort"), _with("stable", "stable")),
    "sum": _over("dim_IntList"), "count_nonzero": _over("dim_IntList"), "mean": _over("dim"), "prod": _over("dim_int"),
    "div": _with("rounding_mode", "Tensor_mode", "Tensor"), "empty": "memory_format", "flatten": "using_ints", "scatter": "src",
    "scatter_reduce": "two", "index_fill": "int_Scalar", "xlogy": _of("Tensor", "Scalar_Other", "Scalar_Self"),
    "where": lambda args, kwargs: _of("self", "ScalarOther", "ScalarSelf", "Scalar")(args[1:], kwargs),
    "arange.start": lambda args, kwargs: "start_step" if len(args) > 2 or "step" in kwargs else "start",
    "movedim": lambda args, kwargs: "intlist" if isinstance(args[1], (list, tuple)) else "int",
    "split": lambda args, kwargs: "sizes" if isinstance(args[1], (list, tuple)) else "Tensor",
}


def _target(name: str, in_place: bool, args: list, kwargs: dict) -> Callable:
    op, _, overload = name.partition(".")
    said = _OVERLOADS.get(name)
    overload = said(args, kwargs) if callable(said) else said or overload
    if in_place:
        op += "_"
    if not hasattr(_ops, op):
        of = " of a recurrent layer (nn.LSTM, nn.GRU, nn.RNN)" if op.startswith("recurrent") else ""
        raise NotImplementedError(f"a graph of operators cannot have the call of {op}{of}, which ops.aten has no name for")
    # Where torch's name stands for a function with other arguments, the record itself.
    if getattr(ops._aten(op), "_records", None) == getattr(_ops, op)._records:
        return getattr(getattr(ops.aten, op), overload or "default")
    return getattr(_ops, op)


# Numbers of orders of memory, as records have them.
_CONTIGUOUS, _PRESERVE, _CHANNELS_LAST = range(3)


def _copy(op: str, x: Any, given: dict, is_here: bool, dtype: Any, rank: int) -> tuple[Callable, tuple, dict]:
    """torch's call of what gives x, of this dtype and rank, in another dtype, device or order of memory. `is_here`: all tensors of
    the program are on one device."""
    order = given["memory_format"]
    kwargs = {"memory_format": (contiguous_format, preserve_format, channels_last if rank == 4 else channels_last_3d)[order]}
    if order == (_CONTIGUOUS if op == "contiguous" else _PRESERVE):
        kwargs = {}
    if op == "contiguous":
        return ops.aten.contiguous.default, (x,), kwargs
    if op == "to":
        return ops.aten.to.dtype, (x, given["dtype"]), kwargs
    if is_here and given["dtype"] is dtype:
        return ops.aten.clone.default, (x,), kwargs
    return ops.aten._to_copy.default, (x,), {"dtype": given["dtype"], **({} if is_here else {"device": given["device"]}), **kwargs}


# What torch gives its arguments in another order, or by other names: its overload, our names in its order, and what follows them.
_IN_TORCHS_ORDER: dict[str, tuple[Callable, str, tuple]] = {
    "batch_norm": (ops.aten.batch_norm.default, "input weight bias running_mean running_var training momentum eps", (True,)),
    "instance_norm": (ops.aten.instance_norm.default, "input weight bias running_mean running_var use_input_stats momentum eps", (True,)),
    "embedding": (ops.aten.embedding.default, "weight input padding_idx scale_grad_by_freq sparse", ()),
    "slice": (ops.aten.slice.Tensor, "self dim start end step", ()), "index": (ops.aten.index.Tensor, "self indices", ()),
    "index_put": (ops.aten.index_put.default, "self indices values accumulate", ()), "elu": (ops.aten.elu.default, "self alpha", ()),
    "copy": (ops.aten.copy.default, "self src", ()),
}


def _gives_several(schema: str) -> bool:
    """Whether an operator gives a list or a tuple."""
    return "[]" in schema.rpartition(") -> ")[2] or schema.rstrip().endswith(")")


def _sums(j: Any) -> Iterator[list]:
    """The integers of an argument that sizes decide."""
    if not j:
        return
    (kind, value), = j.items()
    if kind == "scalar":
        yield from _sums(value)
    elif kind in ("int", "float") and isinstance(value, list):
        yield value
    elif kind == "ints":
        yield from (e for e in value if isinstance(e, list))


def _has_gradient(type_of: dict) -> bool:
    dtype = _DTYPES[type_of["dtype"]]
    return dtype.is_floating_point or dtype.is_complex


def _values(j: Any) -> list:
    """The values that an argument takes."""
    if j and "tensor" in j:
        return [j["tensor"]]
    return list(j["tensors"]) if j and "tensors" in j else []


class Writer:
    """Writes the calls of a program, of its text as JSON, as nodes; each value is a node by its number, and each dynamic size by ("size",
    number)."""

    def __init__(self, j: dict, has_gradients: bool = False) -> None:
        """`has_gradients`: nodes have the gradients of the calls; what cannot have them is refused."""
        self._calls, self._has_gradients = j["calls"], has_gradients
        for call in self._calls if has_gradients else ():
            if "function" in call:
                raise NotImplementedError(f"a graph of operators cannot have a call of an autograd.Function ({call['op']})")
        self._schemas = j["schemas"]
        self._declared = {op: _declared(schema) for op, schema in j["schemas"].items()}
        self._places = places_of_sizes(j)
        self._first = [len(j["inputs"]) + len(j["constants"])]
        self._is_on_one_device = {a["device"] for call in self._calls for a in call["args"] if a and "device" in a} <= {j["device"]}
        self._dtypes = {k: _DTYPES[x["dtype"]] for k, x in enumerate(j["inputs"])}
        self._whole_numbers = {k for k, x in enumerate(j["inputs"]) if not _has_gradient(x)}
        for call in self._calls:
            results = call.get("results", ())
            self._dtypes.update((self._first[-1] + r, _DTYPES[x["dtype"]]) for r, x in enumerate(results))
            self._whole_numbers.update(self._first[-1] + r for r, x in enumerate(results) if not _has_gradient(x))
            self._first.append(self._first[-1] + len(results))

    def write(self, graph: Graph, attributes: dict, values: dict, first: int = 0, last: int | None = None) -> None:
        """The calls from the first to before the last one; `attributes` gets the functions of cond() and while_loop()."""
        k, last = first, len(self._calls) if last is None else last
        while k < last:
            form = self._calls[k].get("form", "call")
            k = self._control(graph, attributes, values, k, form) if form in ("branch", "loop") else self._call(graph, values, k, form)

    def _call(self, graph: Graph, values: dict, k: int, form: str) -> int:
        call = self._calls[k]
        results = range(self._first[k], self._first[k + 1])
        if form == "detach":
            values[results[0]] = graph.call_function(ops.aten.detach.default, (values[call["args"][0]["tensor"]],))
            return k + 1
        op = call.get("op")
        if form == "out" or op not in self._declared or "autocast" in call:
            under = " under autocast" if "autocast" in call else ""
            raise NotImplementedError(f"a graph of operators cannot have the call of {op or form}{under}")
        names, positional, defaults = self._declared[op]
        seen = self._without_gradients(graph, values, call) if self._has_gradients and "no_grad" in call else values
        given = [self._value(graph, seen, a) for a in call["args"]]
        kwargs = {n: v for n, v in zip(names[positional:], given[positional:]) if v is not None and defaults.get(n, ...) != v}
        args = given[:positional]
        while args and (args[-1] is None or not isinstance(args[-1], (Node, list)) and defaults.get(names[len(args) - 1], ...) == args[-1]):
            args.pop()
        target, name = _target(op, form == "in_place", args, kwargs), op.partition(".")[0].strip("_") + "_" * (form == "in_place")
        if op in ("to_copy", "to", "contiguous"):
            target, args, kwargs = _copy(op, given[0], dict(zip(names, given)), self._is_on_one_device,
                                         self._dtypes.get(call["args"][0]["tensor"]), len(call["results"][0]["shape"]))
            name = target._opname.strip("_")
        elif op in _IN_TORCHS_ORDER and form == "call" and all(v is None for n, v in zip(names, given) if n in ("max_norm", "out")):
            target, order, more = _IN_TORCHS_ORDER[op]
            by_name = {n: defaults.get(n) if v is None else v for n, v in zip(names, given)}
            args, kwargs = [by_name[n] for n in order.split()] + list(more), {}
            if op == "embedding" and args[2] is None:
                args[2] = -1  # none
        node = graph.create_node("call_function", target, tuple(args), kwargs, name)
        if form == "in_place":
            return k + 1  # what it wrote into is the value that it was
        several = len(results) != 1 or _gives_several(self._schemas[op])
        self._give(graph, values, node, k, several)
        return k + 1

    def _without_gradients(self, graph: Graph, values: dict, call: dict) -> dict:
        """The values as a call in a region of no_grad() sees them, whose results and what it writes have no gradient through it."""
        taken = {v for a in call["args"] for v in _values(a) if v is not None} - self._whole_numbers
        return {**values, **{v: graph.call_function(ops.aten.detach.default, (values[v],)) for v in sorted(taken)}}

    def _give(self, graph: Graph, values: dict, node: Node, k: int, several: bool) -> None:
        results = self._calls[k].get("results", ())
        for r, result in enumerate(results):
            value = values[self._first[k] + r] = graph.call_function(operator.getitem, (node, r)) if several else node
            show(value, result)

    def _value(self, graph: Graph, values: dict, j: Any) -> Any:
        while j and "scalar" in j:
            j = j["scalar"]
        if j and "dtype" in j:
            return _DTYPES[j["dtype"]]
        if j and not {"complex", "program"}.isdisjoint(j):
            raise NotImplementedError("a graph of operators cannot have the call of a kernel of expressions, as the gradients of "
                                      "element-wise operators are" if "program" in j else
                                      "a graph of operators cannot have complex numbers")
        if any(True for _ in _sums(j)):
            (kind, value), = j.items()
            if kind == "ints":
                return [self._integer(graph, values, e) for e in value]
            number = self._integer(graph, values, value)
            return graph.call_function(float, (number,)) if kind == "float" else number
        return argument_of(j, values)

    def _integer(self, graph: Graph, values: dict, e: Any) -> Any:
        if not isinstance(e, list):
            return e
        total = None
        for factor, *sizes in e:
            term = factor
            for s in sizes:
                size = self._size(graph, values, s)
                term = size if isinstance(term, int) and term == 1 else graph.call_function(operator.mul, (term, size))
            total = term if total is None else graph.call_function(operator.add, (total, term))
        return total

    def _size(self, graph: Graph, values: dict, s: int) -> Node:
        if ("size", s) not in values:
            place, dim, factor, offset = self._places[s]
            size = graph.call_function(ops.aten.sym_size.int, (values[place], dim), name="sym_size_int")
            if offset:
                size = graph.call_function(operator.sub, (size, offset))
            values["size", s] = size if factor == 1 else graph.call_function(operator.floordiv, (size, factor))
        return values["size", s]

    # ---- cond and while_loop: Note [Control flow in programs]

    def _captured(self, first: int, last: int, made: list) -> list:
        """What the calls take, their last mark too, and neither they make nor is in `made`."""
        own = {*range(self._first[first], self._first[last]), *made}
        taken: dict = {}
        for call in self._calls[first : last + 1]:
            for a in call["args"]:
                taken.update(dict.fromkeys(v for v in _values(a) if v is not None and v not in own))
                taken.update(dict.fromkeys(("size", s) for e in _sums(a) for _, *sizes in e for s in sizes))
        return list(taken)

    def _function(self, graph: Graph, attributes: dict, name: str, first: int, last: int, takes: list, alone: bool = False) -> Node:
        """The calls as a GraphModule of the graph's module. It gives what the last mark takes, in a tuple or alone."""
        inner, own = Graph(), {}
        values = {v: inner.placeholder(f"arg{k}_1") for k, v in enumerate(takes)}
        self.write(inner, own, values, first, last)
        results = [values[v] for v in _values(self._calls[last]["args"][0])]
        inner.output(results[0] if alone else tuple(results))
        count = sum(key.startswith(name) for key in attributes)
        attributes[f"{name}_{count}"] = GraphModule(own, inner)
        return graph.get_attr(f"{name}_{count}")

    def _control(self, graph: Graph, attributes: dict, values: dict, k: int, form: str) -> int:
        middle = next_mark(self._calls, k)
        end = next_mark(self._calls, middle)
        given = _values(self._calls[k]["args"][0])
        carried = list(range(self._first[k], self._first[k + 1]))
        captured = list(dict.fromkeys(self._captured(k + 1, middle, carried) + self._captured(middle + 1, end, carried)))
        captured = [v for v in captured if not (isinstance(v, int) and self._first[k] <= v < self._first[end])]
        for v in captured:
            if isinstance(v, tuple):
                self._size(graph, values, v[1])
        taken = [values[v] for v in captured]
        if form == "branch":
            functions = [self._function(graph, attributes, name, first + 1, last, captured)
                         for name, first, last in (("true_graph", k, middle), ("false_graph", middle, end))]
            node = graph.call_function(cond, (values[given[0]], *functions, taken), name="cond")
            self._give(graph, values, node, end, True)
        else:
            test = self._function(graph, attributes, "while_loop_cond_graph", k + 1, middle, carried + captured, alone=True)
            body = self._function(graph, attributes, "while_loop_body_graph", middle + 1, end, carried + captured)
            node = graph.call_function(while_loop, (test, body, [values[v] for v in given], taken), name="while_loop")
            self._give(graph, values, node, k, True)
        return end + 1


def show(node: Node, type_of: dict) -> None:
    """The dtype and sizes of a value, where numbers are all of them, as a tensor without memory: meta["val"]."""
    if all(isinstance(n, int) for n in type_of["shape"]):
        node.meta["val"] = _ops.empty(type_of["shape"], dtype=_DTYPES[type_of["dtype"]], device="meta")
