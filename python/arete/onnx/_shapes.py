"""Shapes, places, reductions and new tensors as ONNX nodes."""
from __future__ import annotations

import math
from typing import Any

from ._graph import Call, Graph
from ._operators import _first, handles


# ---- shapes

@handles("view", "reshape", "view_as", "reshape_as", "unflatten", "flatten")
def _reshape(g: Graph, c: Call) -> Any:
    shape = c.results[0].shape
    if any(e is None for e in shape):
        c.refuse("gives a shape that depends on values")
    # A size of 0 is one, and no "as it was".
    return g.op("Reshape", _first(c), g.integers(shape), allowzero=1)


@handles("transpose")
def _transpose(g: Graph, c: Call) -> Any:
    x = _first(c)
    perm = list(range(x.rank))
    a, b = (c.dim(n) for n in list(c.args)[1:3])
    perm[a], perm[b] = perm[b], perm[a]
    return g.op("Transpose", x, perm=perm)


@handles("t", "T", "mT")
def _t(g: Graph, c: Call) -> Any:
    x = _first(c)
    if x.rank < 2:
        return g.op("Identity", x)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if c.op == "mT" else list(range(x.rank))[::-1]
    return g.op("Transpose", x, perm=perm)


@handles("permute")
def _permute(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Transpose", x, perm=[d % x.rank for d in c[list(c.args)[1]]])


@handles("squeeze")
def _squeeze(g: Graph, c: Call) -> Any:
    x, dims = _first(c), c[list(c.args)[1]] if len(c.args) > 1 else None
    dims = range(x.rank) if dims is None or dims == [] else [d % x.rank for d in (dims if isinstance(dims, list) else [dims])]
    return g.op("Squeeze", x, g.constant([d for d in dims if x.shape[d] == 1]))


@handles("unsqueeze")
def _unsqueeze(g: Graph, c: Call) -> Any:
    return g.op("Unsqueeze", _first(c), g.constant([c.dim(rank=_first(c).rank + 1)]))


@handles("expand", "expand_as", "broadcast_to")
def _expand(g: Graph, c: Call) -> Any:
    return g.op("Expand", _first(c), g.integers(c.results[0].shape))


@handles("repeat")
def _repeat(g: Graph, c: Call) -> Any:
    x, times = _first(c), c[list(c.args)[1]]
    if len(times) > x.rank:
        x = g.op("Unsqueeze", x, g.constant(list(range(len(times) - x.rank))))
    return g.op("Tile", x, g.integers(times))


@handles("select")
def _select(g: Graph, c: Call) -> Any:
    return g.op("Squeeze", g.op("Gather", _first(c), g.integer(c["index"]), axis=c.dim()), g.constant([c.dim()]))


@handles("slice")
def _slice(g: Graph, c: Call) -> Any:
    x, dim = _first(c), c.dim()
    start, end = c.args.get("start"), c.args.get("end")
    return g.op("Slice", x, g.integer(0 if start is None else start), g.integer(2**63 - 1 if end is None else end), g.constant([dim]),
                g.integer(c.args.get("step") or 1))


@handles("narrow")
def _narrow(g: Graph, c: Call) -> Any:
    start = g.integer(c["start"])
    return g.op("Slice", _first(c), start, g.op("Add", start, g.integer(c["length"])), g.constant([c.dim()]))


@handles("cat", "stack")
def _cat(g: Graph, c: Call) -> Any:
    parts, dim = _first(c), c["dim"]
    rank = c.results[0].rank
    dim = dim + rank if dim < 0 else dim
    made = [g.as_dtype(x, c.results[0].dtype) for x in parts]
    if c.op == "stack":
        made = [g.op("Unsqueeze", x, g.constant([dim])) for x in made]
    return g.op("Concat", *made, axis=dim)


@handles("split", "chunk", "split_with_sizes", "unbind")
def _split(g: Graph, c: Call) -> Any:
    x, dim = _first(c), c.dim()
    if c.op == "unbind":
        names = g.op("Split", x, g.constant([1] * len(c.results)), axis=dim, outputs=len(c.results))
        return [g.op("Squeeze", n, g.constant([dim])) for n in ([names] if isinstance(names, str) else names)]
    names = g.op("Split", x, g.integers([r.shape[dim] for r in c.results]), axis=dim, outputs=len(c.results))
    return [names] if isinstance(names, str) else names


@handles("to_copy")
def _to_copy(g: Graph, c: Call) -> Any:
    return g.cast(_first(c), c.results[0].dtype)


@handles("copy")
def _copy(g: Graph, c: Call) -> Any:
    x, src = c["self"], c["src"]
    return g.op("Expand", g.as_dtype(src, x.dtype), g.integers(x.shape))


@handles("dropout", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "alpha_dropout")
def _dropout(g: Graph, c: Call) -> Any:
    if c.args.get("train", c.args.get("training")):
        c.refuse("has a counterpart in evaluation only")
    return g.op("Identity", _first(c))


@handles("constant_pad_nd", "pad")
def _pad(g: Graph, c: Call) -> Any:
    x, pad = _first(c), c["pad"]
    if c.args.get("mode") not in (None, "constant"):
        c.refuse("has a counterpart in the mode 'constant' only")
    before: list = [0] * x.rank
    after: list = [0] * x.rank
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    return g.op("Pad", x, g.integers(before + after), g.like(c["value"] or 0, x))


@handles("tril", "triu")
def _tril(g: Graph, c: Call) -> Any:
    return g.op("Trilu", _first(c), g.constant(c.args.get("diagonal") or 0), upper=int(c.op == "triu"))


# ---- places

@handles("embedding")
def _embedding(g: Graph, c: Call) -> Any:
    return g.op("Gather", c["weight"], c["input"], axis=0)


@handles("index_select")
def _index_select(g: Graph, c: Call) -> Any:
    return g.op("Gather", _first(c), c["index"], axis=c.dim())


@handles("index")
def _index(g: Graph, c: Call) -> Any:
    where = [(d, i) for d, i in enumerate(c["indices"]) if i is not None]
    if len(where) != 1 or where[0][1].dtype in ("bool", "uint8"):
        c.refuse("has a counterpart with one tensor of positions only")
    return g.op("Gather", _first(c), where[0][1], axis=where[0][0])


@handles("gather")
def _gather(g: Graph, c: Call) -> Any:
    return g.op("GatherElements", _first(c), c["index"], axis=c.dim())


@handles("one_hot")
def _one_hot(g: Graph, c: Call) -> Any:
    if c["num_classes"] < 0:
        c.refuse("has a counterpart with num_classes only")
    return g.op("OneHot", _first(c), g.constant(c["num_classes"]), g.constant([0, 1]), axis=-1)


# ---- reductions

@handles("softmax", "log_softmax")
def _softmax(g: Graph, c: Call) -> Any:
    kind = "Softmax" if c.op == "softmax" else "LogSoftmax"
    return g.op(kind, g.as_dtype(_first(c), c.results[0].dtype), axis=c.dim())


def _axes(g: Graph, c: Call) -> Any:
    dims = c.args.get("dim")
    if dims is None or dims == []:
        return None
    return g.constant([d % max(_first(c).rank, 1) for d in (dims if isinstance(dims, list) else [dims])])


@handles("sum", "mean", "amax", "amin", "prod", "logsumexp", "max", "min")
def _reduce(g: Graph, c: Call) -> Any:
    kinds = {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
             "logsumexp": "ReduceLogSumExp", "max": "ReduceMax", "min": "ReduceMin"}
    x = g.as_dtype(_first(c), c.results[0].dtype)
    return g.op(kinds[c.op], x, _axes(g, c), keepdims=int(bool(c.args.get("keepdim"))))


@handles("var", "std")
def _variance(g: Graph, c: Call) -> Any:
    x = _first(c)
    dims = c.args.get("dim")
    if c.args.get("correction") not in (0, None) and not (dims and all(isinstance(x.shape[d], int) for d in dims)):
        c.refuse("has a counterpart over fixed sizes only")
    axes = _axes(g, c)
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes, keepdims=1))
    y = g.op("ReduceMean", g.op("Mul", centred, centred), axes, keepdims=int(bool(c.args.get("keepdim"))))
    correction = 1 if c.args.get("correction") is None else c["correction"]
    if correction:
        n = math.prod(x.shape[d] for d in dims) if dims else c.refuse("has a counterpart over given dimensions only")
        y = g.op("Mul", y, g.like(n / max(n - correction, 0) if n > correction else math.nan, x))
    return g.op("Sqrt", y) if c.op == "std" else y


@handles("argmax", "argmin")
def _arg(g: Graph, c: Call) -> Any:
    kind = "ArgMax" if c.op == "argmax" else "ArgMin"
    if c.args.get("dim") is None:
        return g.op("Squeeze", g.op(kind, g.op("Reshape", _first(c), g.constant([-1])), axis=0, keepdims=1), g.constant([0]))
    return g.op(kind, _first(c), axis=c.dim(), keepdims=int(bool(c.args.get("keepdim"))))


@handles("max.dim", "min.dim")
def _max_dim(g: Graph, c: Call) -> Any:
    keep = int(bool(c.args.get("keepdim")))
    axes = g.constant([c.dim()])
    return [g.op("ReduceMax" if c.op == "max.dim" else "ReduceMin", _first(c), axes, keepdims=keep),
            g.op("ArgMax" if c.op == "max.dim" else "ArgMin", _first(c), axis=c.dim(), keepdims=keep)]


@handles("topk")
def _topk(g: Graph, c: Call) -> Any:
    largest, ordered = c.args.get("largest", True), c.args.get("sorted", True)
    return g.op("TopK", _first(c), g.integer(c["k"]), axis=c.dim(), largest=int(largest), sorted=int(ordered), outputs=2)


@handles("cumsum")
def _cumsum(g: Graph, c: Call) -> Any:
    return g.op("CumSum", g.as_dtype(_first(c), c.results[0].dtype), g.constant(c.dim()))


# ---- tensors from nothing

@handles("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full")
def _full(g: Graph, c: Call) -> Any:
    r = c.results[0]
    value = c["fill_value"] if "full" in c.op else int("ones" in c.op)
    if isinstance(value, list):
        number = g.cast(g.op("Squeeze", g.integer(value), g.constant([0])), r.dtype)
    else:
        number = g.constant(value, r.dtype)
    return g.op("Expand", number, g.integers(r.shape))


@handles("fill")
def _fill(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Expand", g.constant(c["value"], x.dtype), g.integers(x.shape))


@handles("arange.start", "arange")
def _arange(g: Graph, c: Call) -> Any:
    dtype = c.results[0].dtype

    def number(v: Any) -> Any:
        if isinstance(v, list):
            return g.cast(g.op("Squeeze", g.integer(v), g.constant([0])), dtype)
        return g.constant(v, dtype)

    step = c.args.get("step")
    return g.op("Range", number(c.args.get("start") or 0), number(c["end"]), number(1 if step is None else step))
