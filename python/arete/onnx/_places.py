"""Places that are given or found, orders, and pictures of other sizes as ONNX nodes."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ._graph import Call, Graph, Value
from ._operators import handles, widened
from ._shapes import _axes


# ---- writes at places

def _over(g: Graph, index: Value, dim: int, x: Value) -> Any:
    """Positions along a dimension, [n], for each element of x."""
    alone = g.op("Reshape", index, g.constant([-1 if d == dim else 1 for d in range(x.rank)]))
    return g.op("Expand", alone, g.op("Shape", x))


def _scattered(g: Graph, c: Call, index: Any, source: Any, how: str) -> Any:
    return g.op("ScatterElements", c.first, index, source, axis=c.dim(), reduction=how)


@handles("scatter", "scatter.value", "scatter_add", "scatter_reduce")
def _scatter(g: Graph, c: Call) -> Any:
    index, reduce = c["index"], "sum" if c.op == "scatter_add" else c.get("reduce")
    kinds = {None: "none", "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in kinds or c.get("include_self") is False:
        c.refuse(f"has no counterpart that reduces by {reduce!r}{'' if reduce == 'mean' else ' without the values that are there'}")
    c.get("include_self")
    if c.op == "scatter.value":
        source = g.op("Expand", g.like(c["value"], c.first), g.op("Shape", index))
    else:
        source = c["src"]
        if source.shape != index.shape:  # what has a place is written
            source = g.op("Slice", source, g.constant([0] * index.rank), g.op("Shape", index))
    return _scattered(g, c, index, source, kinds[reduce])


@handles("index_add", "index_copy", "index_fill")
def _index_write(g: Graph, c: Call) -> Any:
    x, index, dim = c.first, c["index"], c.dim()
    if c.op == "index_fill":
        shape = list(x.shape)
        shape[dim] = index.shape[0] if index.rank else 1
        filled = Value(g.op("Expand", g.like(c["value"], x), g.integers(shape)), x.dtype, shape)
        return _scattered(g, c, _over(g, index, dim, filled), filled, "none")
    source = c["source"]
    if c.op == "index_copy":
        return _scattered(g, c, _over(g, index, dim, source), source, "none")
    scaled = source if c["alpha"] == 1 else g.op("Mul", source, g.like(c["alpha"], source))
    return _scattered(g, c, _over(g, index, dim, source), scaled, "add")


# ---- what is found

@handles("ordered_select")
def _ordered_select(g: Graph, c: Call) -> Any:
    c.leave("once")  # it is about gradients
    return g.op("Gather", c.first, c["index"], axis=c.dim())


@handles("flat_nonzero")
def _flat_nonzero(g: Graph, c: Call) -> Any:
    if not c.first.fixed:
        c.refuse("has a counterpart for a mask that is a constant only: else sizes depend on values")
    return g.op("Reshape", g.op("NonZero", g.op("Reshape", c.first, g.constant([-1]))), g.constant([-1]))


@handles("sort")
def _sort(g: Graph, c: Call) -> Any:
    c.leave("stable")  # of equal elements TopK gives the first one first
    dim = c.dim()
    count = g.op("Shape", c.first, start=dim, end=dim + 1)
    return g.op("TopK", c.first, count, axis=dim, largest=int(c["descending"]), sorted=1, outputs=2)


@handles("bucketize", "searchsorted")
def _bucketize(g: Graph, c: Call) -> Any:
    x, bounds = (c["self"], c["boundaries"]) if c.op == "bucketize" else (c["self"], c["sorted_sequence"])
    if bounds.rank != 1 or not isinstance(x, Value) or c.get("sorter") is not None:
        c.refuse("has a counterpart for tensors and one list of bounds only")
    right = c["right"] or c.get("side") == "right"
    dtype = x.dtype if x.is_floating or not bounds.is_floating else bounds.dtype
    least, most = g.as_dtype(bounds, dtype), g.op("Unsqueeze", g.as_dtype(x, dtype), g.constant([-1]))
    below = g.cast(g.op("LessOrEqual" if right else "Less", least, most), "int64")
    c.leave("out_int32")
    return g.cast(g.op("ReduceSum", below, g.constant([-1]), keepdims=0), c.dtype)


# ---- other orders of what is there

@handles("flip")
def _flip(g: Graph, c: Call) -> Any:
    dims = [d % c.first.rank for d in c["dims"]] if c.first.rank else []
    if not dims:
        return g.op("Identity", c.first)
    n = len(dims)
    return g.op("Slice", c.first, g.constant([-1] * n), g.constant([-(2**63)] * n), g.constant(dims), g.constant([-1] * n))


@handles("repeat_interleave")
def _repeat_interleave(g: Graph, c: Call) -> Any:
    x, times = c.first, c["repeats"]
    c.leave("output_size")  # the result's shape says it
    if c["dim"] is None:
        flat, dim, rank = g.op("Reshape", x, g.constant([-1])), 0, 1
    else:
        flat, dim, rank = x, c.dim(), x.rank
    tiled = g.op("Tile", g.op("Unsqueeze", flat, g.constant([dim + 1])), g.integers([1] * (dim + 1) + [times] + [1] * (rank - dim - 1)))
    return g.op("Reshape", tiled, g.integers(c.results[0].shape), allowzero=1)


@handles("unfold")
def _unfold(g: Graph, c: Call) -> Any:
    x, dim = c.first, c.dim("dimension")
    count, size, step = c.results[0].shape[dim], c["size"], c["step"]
    if not all(isinstance(n, int) for n in (count, size, step)):
        c.refuse("has a counterpart for a fixed number of windows only")
    windows = np.arange(count)[:, None] * step + np.arange(size)
    perm = [*range(dim + 1), *range(dim + 2, x.rank + 1), dim + 1]
    return g.op("Transpose", g.op("Gather", x, g.constant(windows), axis=dim), perm=perm)


@handles("roll")
def _roll(g: Graph, c: Call) -> Any:
    x, shifts, dims = c.first, c.fixed("shifts"), c["dims"]
    y = x if dims else g.op("Reshape", x, g.constant([-1]))
    for shift, dim in zip(shifts, [d % x.rank for d in dims] if dims else [0]):
        size = x.shape[dim] if dims else math.prod(x.shape) if all(isinstance(n, int) for n in x.shape) else None
        if not isinstance(size, int):
            c.refuse("has a counterpart along fixed sizes only")
        if size == 0 or shift % size == 0:
            continue
        at, axis = size - shift % size, g.constant([dim])
        y = g.op("Concat", g.op("Slice", y, g.constant([at]), g.constant([size]), axis),
                 g.op("Slice", y, g.constant([0]), g.constant([at]), axis), axis=dim)
    return g.op("Identity", y) if dims else g.op("Reshape", y, g.op("Shape", x))


@handles("diagonal")
def _diagonal(g: Graph, c: Call) -> Any:
    x, offset, count = c.first, c["offset"], c.results[0].shape[-1]
    a, b = c.dim("dim1"), c.dim("dim2")
    rows, columns = x.shape[a], x.shape[b]
    if not all(isinstance(n, int) for n in (count, rows, columns)):
        c.refuse("has a counterpart of fixed sizes only")
    rest = [d for d in range(x.rank) if d not in (a, b)]
    flat = g.op("Reshape", g.op("Transpose", x, perm=[*rest, a, b]), g.constant([0] * len(rest) + [-1]))
    return g.op("Gather", flat, g.constant(np.arange(count) * (columns + 1) + max(offset, 0) + max(-offset, 0) * columns), axis=-1)


@handles("flat_index")
def _flat_index(g: Graph, c: Call) -> Any:
    # Positions from the end are those of the sizes.
    total = None
    c.leave("dims")
    for index, size, stride in zip(c["indices"], c["sizes"], c["strides"]):
        size, stride = (g.number(n, "int64") for n in (size, stride))
        index = g.as_dtype(index, "int64")
        index = g.op("Where", g.op("Less", index, g.constant(0)), g.op("Add", index, size), index)
        part = g.op("Mul", index, stride)
        total = part if total is None else g.op("Add", total, part)
    return total


# ---- numbers

@handles("dot")
def _dot(g: Graph, c: Call) -> Any:
    return g.op("MatMul", *c.leading(2))


@handles("linspace")
def _linspace(g: Graph, c: Call) -> Any:
    r = c.results[0]
    start, end = c["start"], c["end"]
    if not all(isinstance(n, (int, float)) for n in (start, end, *r.shape)):
        c.refuse("has a counterpart with fixed ends and a fixed number only")
    c.leave("steps")
    return g.constant(np.linspace(start, end, r.shape[0]), c.dtype)


@handles("glu")
def _glu(g: Graph, c: Call) -> Any:
    value, gate = g.op("Split", c.first, axis=c.dim(), num_outputs=2, outputs=2)
    return g.op("Mul", value, g.op("Sigmoid", gate))


@handles("cosine_similarity")
def _cosine_similarity(g: Graph, c: Call) -> Any:
    x, y = c.leading(2)
    wide, rank = "float32" if "16" in c.dtype else c.dtype, max(x.rank, y.rank)
    axis = c["dim"] % rank
    if not all(isinstance(n, int) for n in (*x.shape, *y.shape)):
        c.refuse("has a counterpart of fixed sizes only")
    sizes = g.constant(list(np.broadcast_shapes(x.shape, y.shape)))
    x, y = (g.op("Expand", g.as_dtype(t, wide), sizes) for t in (x, y))
    axis = g.constant([axis])
    dot = g.op("ReduceSum", g.op("Mul", x, y), axis, keepdims=0)
    norms = [g.op("Max", g.op("ReduceL2", t, axis, keepdims=0), g.number(c["eps"], wide)) for t in (x, y)]
    y = g.op("Div", dot, g.op("Mul", *norms))
    return y if wide == c.dtype else g.cast(y, c.dtype)


@handles("floor_divide")
def _floor_divide(g: Graph, c: Call) -> Any:
    from ._operators import _arithmetic

    def make(a: Any, b: Any, dtype: str) -> Any:
        if "float" not in dtype:
            return g.op("Div", g.op("Sub", a, g.op("Mod", a, b)), b)
        # Without what is left, whose sign is the divisor's, the quotient is whole but for rounding.
        rest = g.op("Mod", a, b, fmod=1)
        zero = g.number(0, dtype)
        other = g.op("Xor", g.op("Less", rest, zero), g.op("Less", b, zero))
        other = g.op("And", other, g.op("Not", g.op("Equal", rest, zero)))
        return g.op("Round", g.op("Div", g.op("Sub", a, g.op("Where", other, g.op("Add", rest, b), rest)), b))

    return _arithmetic(g, c, make)


@handles("trunc", "frac")
def _trunc(g: Graph, c: Call) -> Any:
    x = c.first
    if not x.is_floating:
        return g.op("Identity", x)
    whole = g.op("Mul", g.op("Sign", x), g.op("Floor", g.op("Abs", x)))
    return whole if c.op == "trunc" else g.op("Sub", x, whole)


@handles("norm")
@widened
def _norm(g: Graph, c: Call, x: Value) -> Any:
    p, axes, keep = c["p"], _axes(g, c), int(bool(c["keepdim"]))
    if p in (1, 2):
        return g.op(f"ReduceL{int(p)}", x, axes, keepdims=keep)
    size = g.op("Abs", x)
    if math.isinf(p):
        return g.op("ReduceMax" if p > 0 else "ReduceMin", size, axes, keepdims=keep)
    if p == 0:
        return g.op("ReduceSum", g.op("Sign", size), axes, keepdims=keep)
    total = g.op("ReduceSum", g.op("Pow", size, g.like(p, x)), axes, keepdims=keep)
    return g.op("Pow", total, g.like(1 / p, x))


@handles("linalg_det")
def _det(g: Graph, c: Call) -> Any:
    return g.op("Det", c.first)


# ---- pictures

@handles("interpolate", "upsample_nearest", "upsample_bilinear")
def _interpolate(g: Graph, c: Call) -> Any:
    x = c.first
    mode = c.get("mode") or ("nearest" if c.op == "upsample_nearest" else "bilinear")
    align = bool(c.get("align_corners")) or c.op == "upsample_bilinear"
    attributes: dict = {"coordinate_transformation_mode": "align_corners" if align else "half_pixel"}
    if mode == "nearest":
        attributes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    elif mode == "nearest-exact":
        attributes.update(mode="nearest", nearest_mode="round_prefer_ceil")
    elif mode in ("linear", "bilinear", "trilinear"):
        attributes["mode"] = "linear"
    elif mode == "bicubic":
        # Those who blur as they shrink have another cubic.
        attributes.update(mode="cubic", cubic_coeff_a=-0.5 if c.get("antialias") else -0.75)
    else:
        c.refuse(f"has no counterpart in the mode {mode!r}")
    if c.get("antialias"):
        attributes.update(antialias=1, exclude_outside=1)
    factors = c.get("scale_factor")
    c.leave("size")
    if factors and not c.get("recompute_scale_factor"):
        scales = _spread_factors(factors, x.rank - 2)
        return g.op("Resize", x, None, g.constant([1.0, 1.0, *scales], "float32"), **attributes)
    sizes = g.op("Concat", g.op("Shape", x, start=0, end=2), g.integers(c.results[0].shape[2:]), axis=0)
    return g.op("Resize", x, None, None, sizes, **attributes)


def _spread_factors(factors: Any, rank: int) -> list[float]:
    factors = factors if isinstance(factors, list) else [factors]
    return factors * rank if len(factors) == 1 else factors


@handles("grid_sample")
def _grid_sample(g: Graph, c: Call) -> Any:
    mode = c["mode"]
    if g.opset >= 20:  # where they have other names
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    elif c.first.rank != 4:
        c.refuse("has a counterpart for pictures only, below opset_version 20")
    return g.op("GridSample", c.first, c["grid"], mode=mode, padding_mode=c["padding_mode"], align_corners=int(bool(c["align_corners"])))


@handles("instance_norm")
def _instance_norm(g: Graph, c: Call) -> Any:
    x, n = c["input"], c["input"].shape[1]
    if not c["use_input_stats"] or not isinstance(n, int):
        c.refuse("has a counterpart with statistics of the input and a fixed number of channels only")
    c.leave("running_mean", "running_var", "momentum")  # they stay
    weight = c.get("weight") or g.constant(np.ones(n), x.dtype)
    return g.op("InstanceNormalization", x, weight, c.get("bias") or g.constant(np.zeros(n), x.dtype), epsilon=float(c["eps"]))


@handles("local_response_norm")
def _local_response_norm(g: Graph, c: Call) -> Any:
    if c["size"] % 2 == 0 or c.first.rank != 4:
        c.refuse("has a counterpart for pictures and an odd number of channels only")
    return g.op("LRN", c.first, size=c["size"], alpha=float(c["alpha"]), beta=float(c["beta"]), bias=float(c["k"]))


@handles("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool_places(g: Graph, c: Call) -> Any:
    from ._layers import _spread

    rank = int(c.op[8])
    sizes = c.first.shape[2:]
    if c.first.rank != rank + 2 or not all(isinstance(n, int) for n in sizes):
        c.refuse("has a counterpart for batches of fixed sizes only")
    kernel = _spread(c.fixed("kernel_size"), rank)
    y, places = g.op("MaxPool", c.first, kernel_shape=kernel, strides=_spread(c.fixed("stride") or kernel, rank), outputs=2,
                     pads=_spread(c.fixed("padding"), rank) * 2, dilations=_spread(c.fixed("dilation"), rank),
                     ceil_mode=int(c["ceil_mode"]))
    return [y, g.op("Mod", places, g.constant(math.prod(sizes)))]  # ONNX counts through the whole batch


@handles("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(g: Graph, c: Call) -> Any:
    from ._layers import _spread

    rank = int(c.op[17])
    have, size = c.first.shape[-rank:], _spread(c.fixed("output_size"), rank)
    size = [h if n == -1 else n for h, n in zip(have, size)]
    if c.first.rank != rank + 2 or len(c.results) != 1 or not all(isinstance(h, int) and n and h % n == 0 for h, n in zip(have, size)):
        c.refuse("has a counterpart for batches and output sizes that divide the input's only")
    kernel = [h // n for h, n in zip(have, size)]
    return g.op("MaxPool", c.first, kernel_shape=kernel, strides=kernel)
