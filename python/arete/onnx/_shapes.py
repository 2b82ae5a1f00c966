"""Shapes, places, reductions and new tensors as ONNX nodes."""
from __future__ import annotations

import math
from typing import Any

from ._graph import Call, Graph, Value
from ._operators import handles, widened


# ---- shapes

@handles("view", "reshape", "view_as", "reshape_as", "unflatten", "flatten")
def _reshape(g: Graph, c: Call) -> Any:
    shape = c.results[0].shape
    if any(e is None for e in shape):
        c.refuse("gives a shape that depends on values")
    c.leave("size", "shape", "other", "sizes", "dim", "start_dim", "end_dim")  # the result's shape is what they ask for
    # A size of 0 is one, and no "as it was".
    return g.op("Reshape", c.first, g.integers(shape), allowzero=1)


@handles("as_strided")
def _as_strided(g: Graph, c: Call) -> Any:
    # What tensor(numbers) is recorded with: a new list of numbers in a shape. Of other memory a model knows nothing.
    x, size, strides = c.first, c["size"], c["stride"]
    step, plain = 1, x.own and x.rank == 1 and not c.get("storage_offset") and all(isinstance(n, int) for n in [*size, *x.shape])
    for n, stride in zip(reversed(size), reversed(strides)):
        plain, step = plain and (n == 1 or stride == step), step * n if plain else 0
    if not plain or step != x.shape[0]:
        c.refuse("has a counterpart for the whole of a new list only")
    return g.op("Reshape", x, g.constant(size))


@handles("transpose")
def _transpose(g: Graph, c: Call) -> Any:
    x = c.first
    if x.rank == 0:
        c.leave("dim0", "dim1")
        return x
    perm = list(range(x.rank))
    a, b = (c.dim(n) for n in ("dim0", "dim1"))
    perm[a], perm[b] = perm[b], perm[a]
    return g.op("Transpose", x, perm=perm)


@handles("t", "T", "mT")
def _t(g: Graph, c: Call) -> Any:
    x = c.first
    if x.rank < 2:
        return g.op("Identity", x)
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2] if c.op == "mT" else list(range(x.rank))[::-1]
    return g.op("Transpose", x, perm=perm)


@handles("permute")
def _permute(g: Graph, c: Call) -> Any:
    x, dims = c.first, c["dims"]
    return g.op("Transpose", x, perm=[d % x.rank for d in dims]) if dims else x


@handles("squeeze")
def _squeeze(g: Graph, c: Call) -> Any:
    x, dims = c.first, c.get("dim")
    dims = range(x.rank) if dims is None else [d % max(x.rank, 1) for d in (dims if isinstance(dims, list) else [dims])]
    dims = [d for d in dims if x.rank and x.shape[d] == 1]
    # An empty list of axes would mean all of them.
    return g.op("Squeeze", x, g.constant(dims)) if dims else g.op("Identity", x)


@handles("unsqueeze")
def _unsqueeze(g: Graph, c: Call) -> Any:
    return g.op("Unsqueeze", c.first, g.constant([c.dim(rank=c.first.rank + 1)]))


@handles("expand", "expand_as")
def _expand(g: Graph, c: Call) -> Any:
    c.leave("size", "other")  # the result's shape is what they ask for
    return g.op("Expand", c.first, g.integers(c.results[0].shape))


@handles("repeat")
def _repeat(g: Graph, c: Call) -> Any:
    x, times = c.first, c["repeats"]
    if len(times) > x.rank:
        x = g.op("Unsqueeze", x, g.constant(list(range(len(times) - x.rank))))
    return g.op("Tile", x, g.integers(times))


@handles("select")
def _select(g: Graph, c: Call) -> Any:
    return g.op("Squeeze", g.op("Gather", c.first, g.integer(c["index"]), axis=c.dim()), g.constant([c.dim()]))


@handles("slice")
def _slice(g: Graph, c: Call) -> Any:
    x, dim = c.first, c.dim()
    start, end = c.get("start"), c.get("end")
    return g.op("Slice", x, g.integer(0 if start is None else start), g.integer(2**63 - 1 if end is None else end), g.constant([dim]),
                g.integer(c.get("step") or 1))


@handles("narrow")
def _narrow(g: Graph, c: Call) -> Any:
    x, dim, start = c.first, c.dim(), g.integer(c["start"])
    # A negative start counts from the end; Slice knows such, but start + length would then be the end only where it is below 0.
    if not isinstance(c["start"], int) or c["start"] < 0:
        from_end = g.op("Add", start, g.op("Shape", x, start=dim, end=dim + 1))
        start = from_end if isinstance(c["start"], int) else g.op("Where", g.op("Less", start, g.constant([0])), from_end, start)
    return g.op("Slice", x, start, g.op("Add", start, g.integer(c["length"])), g.constant([dim]))


@handles("cat", "stack")
def _cat(g: Graph, c: Call) -> Any:
    parts, dim = c.first, c["dim"]
    rank = c.results[0].rank
    dim = dim + rank if dim < 0 else dim
    if c.op == "cat":
        parts = [x for x in parts if x.rank == rank] or parts  # an empty list may stand among them
    made = [g.as_dtype(x, c.dtype) for x in parts]
    if c.op == "stack":
        made = [g.op("Unsqueeze", x, g.constant([dim])) for x in made]
    return g.op("Concat", *made, axis=dim)


@handles("split", "chunk", "split_with_sizes", "unbind")
def _split(g: Graph, c: Call) -> Any:
    x, dim = c.first, c.dim()
    c.leave("split_size", "chunks", "split_sizes")  # the results' shapes are what they ask for
    if c.op == "unbind":
        names = g.op("Split", x, g.constant([1] * len(c.results)), axis=dim, outputs=len(c.results))
        return [g.op("Squeeze", n, g.constant([dim])) for n in ([names] if isinstance(names, str) else names)]
    names = g.op("Split", x, g.integers([r.shape[dim] for r in c.results]), axis=dim, outputs=len(c.results))
    return [names] if isinstance(names, str) else names


@handles("to_copy", "to", "contiguous")
def _to_copy(g: Graph, c: Call) -> Any:
    return g.op("Identity", c.first) if c.first.dtype == c.dtype else g.cast(c.first, c.dtype)


@handles("copy")
def _copy(g: Graph, c: Call) -> Any:
    x, src = c["self"], c["src"]
    return g.op("Expand", g.as_dtype(src, x.dtype), g.integers(x.shape))


@handles("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
def _dropout(g: Graph, c: Call) -> Any:
    if c["training"]:
        c.refuse("has a counterpart in evaluation only")
    c.leave("p", "generator")  # nothing is drawn
    return g.op("Identity", c.first)


@handles("constant_pad_nd", "pad")
def _pad(g: Graph, c: Call) -> Any:
    x, pad = c.first, c["pad"]
    mode = {None: "constant", "replicate": "edge", "circular": "wrap"}.get(c.get("mode"), c.get("mode"))
    if mode == "wrap" and g.opset < 19:
        c.refuse("has no counterpart in the mode 'circular' below opset_version 19")
    before: list = [0] * x.rank
    after: list = [0] * x.rank
    for k in range(len(pad) // 2):
        before[-1 - k], after[-1 - k] = pad[2 * k], pad[2 * k + 1]
    if mode != "constant":
        return g.op("Pad", x, g.integers(before + after), mode=mode)
    return g.op("Pad", x, g.integers(before + after), g.like(c["value"] or 0, x))


@handles("tril", "triu")
def _tril(g: Graph, c: Call) -> Any:
    # Runtimes have no small integers in it.
    wide = "int64" if c.dtype in ("int8", "int16", "uint8") else c.dtype
    y = g.op("Trilu", g.as_dtype(c.first, wide), g.number(c["diagonal"], "int64"), upper=int(c.op == "triu"))
    return y if wide == c.dtype else g.cast(y, c.dtype)


# ---- places

@handles("embedding")
def _embedding(g: Graph, c: Call) -> Any:
    c.leave("padding_idx", "scale_grad_by_freq", "sparse")  # these are about gradients
    if c.get("max_norm") is None:
        c.leave("norm_type")
    else:
        c.refuse("has no counterpart with max_norm, which writes into the weight")
    return g.op("Gather", c["weight"], c["input"], axis=0)


@handles("index_select")
def _index_select(g: Graph, c: Call) -> Any:
    return g.op("Gather", c.first, c["index"], axis=c.dim())


@handles("index")
def _index(g: Graph, c: Call) -> Any:
    where = [(d, i) for d, i in enumerate(c["indices"]) if i is not None]
    if len(where) != 1 or where[0][1].dtype in ("bool", "uint8"):
        c.refuse("has a counterpart with one tensor of positions only")
    return g.op("Gather", c.first, where[0][1], axis=where[0][0])


@handles("gather")
def _gather(g: Graph, c: Call) -> Any:
    c.leave("sparse_grad")  # of the gradient
    return g.op("GatherElements", c.first, c["index"], axis=c.dim())


@handles("one_hot")
def _one_hot(g: Graph, c: Call) -> Any:
    if isinstance(c["num_classes"], int) and c["num_classes"] < 0:
        c.refuse("has a counterpart with num_classes only")
    return g.op("OneHot", c.first, g.number(c["num_classes"], "int64"), g.constant([0, 1]), axis=-1)


# ---- reductions

@handles("softmax", "log_softmax")
def _softmax(g: Graph, c: Call) -> Any:
    kind = "Softmax" if c.op == "softmax" else "LogSoftmax"
    return g.op(kind, g.as_dtype(c.first, c.dtype), axis=c.dim())


def _axes(g: Graph, c: Call) -> Any:
    """The dimensions that are reduced; none for all."""
    dims = c.get("dim")
    if dims is None or dims == [] or c.first.rank == 0:
        return None
    return g.constant([d % c.first.rank for d in (dims if isinstance(dims, list) else [dims])])


@handles("sum", "mean", "amax", "amin", "prod", "max", "min")
def _reduce(g: Graph, c: Call) -> Any:
    kinds = {"sum": "ReduceSum", "mean": "ReduceMean", "amax": "ReduceMax", "amin": "ReduceMin", "prod": "ReduceProd",
             "max": "ReduceMax", "min": "ReduceMin"}
    x = g.as_dtype(c.first, c.dtype)
    return g.op(kinds[c.op], x, _axes(g, c), keepdims=int(bool(c.get("keepdim"))))


@handles("logsumexp")
@widened
def _logsumexp(g: Graph, c: Call, x: Value) -> Any:
    # As sums of exp(x - largest), which do not overflow; where the largest is infinite, so is the result.
    axes, keep = _axes(g, c), int(bool(c["keepdim"]))
    largest = g.op("ReduceMax", x, axes, keepdims=1)
    largest = g.op("Where", g.op("IsInf", largest), g.like(0, x), largest)
    y = g.op("Log", g.op("ReduceSum", g.op("Exp", g.op("Sub", x, largest)), axes, keepdims=1))
    y = g.op("Add", y, largest)
    return y if keep else g.op("Reshape", y, g.constant([])) if axes is None else g.op("Squeeze", y, axes)


@handles("var", "std")
@widened
def _variance(g: Graph, c: Call, x: Value) -> Any:
    axes, correction, dims = _axes(g, c), c["correction"], c["dim"] or range(x.rank)
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes, keepdims=1))
    y = g.op("ReduceSum", g.op("Mul", centred, centred), axes, keepdims=int(bool(c["keepdim"])))
    counts = [x.shape[d] for d in dims]
    if all(isinstance(n, int) for n in counts):
        y = g.op("Div", y, g.like(max(math.prod(counts) - correction, 0), x))
    else:
        count = g.op("Shape", x) if axes is None else g.op("Gather", g.op("Shape", x), axes)
        count = g.op("Sub", g.cast(g.op("ReduceProd", count, keepdims=0), x.dtype), g.like(correction, x))
        y = g.op("Div", y, g.op("Max", count, g.like(0, x)))
    return g.op("Sqrt", y) if c.op == "std" else y


@handles("argmax", "argmin")
def _arg(g: Graph, c: Call) -> Any:
    kind = "ArgMax" if c.op == "argmax" else "ArgMin"
    if c.get("dim") is None or c.first.rank == 0:
        place = g.op(kind, g.op("Reshape", c.first, g.constant([-1])), axis=0, keepdims=1)
        return g.op("Reshape", place, g.constant([1] * c.first.rank if c.get("keepdim") else []))
    return g.op(kind, c.first, axis=c.dim(), keepdims=int(bool(c.get("keepdim"))))


@handles("max.dim", "min.dim")
def _max_dim(g: Graph, c: Call) -> Any:
    keep = int(bool(c.get("keepdim")))
    if c.first.rank == 0:
        c.leave("dim")
        return [c.first, g.constant(0)]
    axes = g.constant([c.dim()])
    return [g.op("ReduceMax" if c.op == "max.dim" else "ReduceMin", c.first, axes, keepdims=keep),
            g.op("ArgMax" if c.op == "max.dim" else "ArgMin", c.first, axis=c.dim(), keepdims=keep)]


@handles("topk")
def _topk(g: Graph, c: Call) -> Any:
    largest, ordered = c.get("largest", True), c.get("sorted", True)
    return g.op("TopK", c.first, g.integer(c["k"]), axis=c.dim(), largest=int(largest), sorted=int(ordered), outputs=2)


@handles("cumsum")
def _cumsum(g: Graph, c: Call) -> Any:
    if c.first.rank == 0:
        c.leave("dim")
        return g.as_dtype(c.first, c.dtype)
    return g.op("CumSum", g.as_dtype(c.first, c.dtype), g.constant(c.dim()))


# ---- tensors from nothing

@handles("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full")
def _full(g: Graph, c: Call) -> Any:
    r = c.results[0]
    c.leave("self", "size")  # the result's shape is what they ask for
    value = c["fill_value"] if "full" in c.op else int("ones" in c.op)
    return g.op("Expand", g.number(value, c.dtype), g.integers(r.shape))


@handles("fill")
def _fill(g: Graph, c: Call) -> Any:
    x = c.first
    return g.op("Expand", g.like(c["value"], x), g.integers(x.shape))


@handles("arange.start")
def _arange(g: Graph, c: Call) -> Any:
    r, dtype = c.results[0], c.dtype
    start, end, step = c.get("start", 0), c["end"], c.get("step", 1)
    if not any(isinstance(v, float) for v in (start, end, step)):
        # ONNX counts in few dtypes.
        y = g.op("Range", *(g.number(v, "int64") for v in (start, end, step)))
        return y if dtype == "int64" else g.cast(y, dtype)
    if None in r.shape:
        c.refuse("has a length that depends on dynamic sizes")
    # A runtime's Range decides in float32 how many there are, and ours in float64; integers count by what is left of the step.
    wide = "float64" if "float" in dtype else "int64"
    start, step = (int(v) if isinstance(v, float) and wide == "int64" else v for v in (start, step))
    y = g.op("Range", g.constant(0), g.number(r.shape[0], "int64"), g.constant(1))
    y = y if wide == "int64" else g.cast(y, wide)
    y = g.op("Add", g.op("Mul", y, g.number(step, wide)), g.number(start, wide))
    return y if dtype == wide else g.cast(y, dtype)
