"""Layers as ONNX nodes: convolutions, pooling, norms, recurrences."""
from __future__ import annotations

from typing import Any

import numpy as np

from ._graph import Call, Graph, Value
from ._operators import handles, widened


# ---- convolutions, pooling, norms

def _spread(n: list[int], rank: int) -> list[int]:
    return n * rank if len(n) == 1 else n


@handles("conv1d", "conv2d", "conv3d", "conv1d.padding", "conv2d.padding", "conv3d.padding")
def _conv(g: Graph, c: Call) -> Any:
    x, weight = c["input"], c["weight"]
    rank = weight.rank - 2
    stride, dilation = _spread(c.fixed("stride"), rank), _spread(c.fixed("dilation"), rank)
    if isinstance(c["padding"], str):
        total = [d * (n - 1) if c["padding"] == "same" else 0 for d, n in zip(dilation, weight.shape[2:])]
        pads = [n // 2 for n in total] + [n - n // 2 for n in total]
    else:
        pads = _spread(c.fixed("padding"), rank) * 2
    inputs = [x, weight, c.get("bias")]
    alone = x.rank == rank + 1
    if alone:
        inputs[0] = g.op("Unsqueeze", x, g.constant([0]))
    y = g.op("Conv", *inputs, strides=stride, dilations=dilation, pads=pads, group=c["groups"])
    return g.op("Squeeze", y, g.constant([0])) if alone else y


@handles("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv_transpose(g: Graph, c: Call) -> Any:
    weight = c["weight"]
    rank = weight.rank - 2
    if c["input"].rank != weight.rank:
        c.refuse("has a counterpart with batches only")
    stride, more = _spread(c.fixed("stride"), rank), _spread(c.fixed("output_padding"), rank)
    if any(m >= s for m, s in zip(more, stride)):
        c.refuse("has a counterpart with output_padding below the stride only")
    return g.op("ConvTranspose", c["input"], weight, c.get("bias"), strides=stride, dilations=_spread(c.fixed("dilation"), rank),
                pads=_spread(c.fixed("padding"), rank) * 2, output_padding=more, group=c["groups"])


@handles("batch_norm", "batch_norm_relu")
def _batch_norm(g: Graph, c: Call) -> Any:
    x, mean, variance = c["input"], c.get("running_mean"), c.get("running_var")
    if c["training"] or mean is None:
        c.refuse("has a counterpart in evaluation only, with running statistics")
    c.leave("momentum")  # the statistics stay
    n = mean.shape[0]
    weight = c.get("weight") or g.constant(np.ones(n), x.dtype)
    bias = c.get("bias") or g.constant(np.zeros(n), x.dtype)
    y = g.op("BatchNormalization", x, weight, bias, mean, variance, epsilon=float(c["eps"]))
    if c.get("residual") is not None:
        y = g.op("Add", y, c["residual"])
    return g.op("Relu", y) if c.op == "batch_norm_relu" else y


@handles("layer_norm")
def _layer_norm(g: Graph, c: Call) -> Any:
    x, shape = c["input"], c.fixed("normalized_shape")
    weight = c.get("weight") or g.constant(np.ones(shape), x.dtype)
    return g.op("LayerNormalization", x, weight, c.get("bias"), axis=-len(shape), epsilon=float(c["eps"]))


@handles("rms_norm")
@widened
def _rms_norm(g: Graph, c: Call, x: Value) -> Any:
    shape, eps, weight = c.fixed("normalized_shape"), c.get("eps"), c.get("weight")
    axes = g.constant(list(range(-len(shape), 0)))
    mean = g.op("ReduceMean", g.op("Mul", x, x), axes, keepdims=1)
    eps = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}[c.dtype] if eps is None else eps
    y = g.op("Div", x, g.op("Sqrt", g.op("Add", mean, g.like(eps, x))))
    return y if weight is None else g.op("Mul", y, g.as_dtype(weight, x.dtype))


@handles("group_norm")
def _group_norm(g: Graph, c: Call) -> Any:
    x = c["input"]
    groups, channels = c["num_groups"], x.shape[1]
    if not isinstance(channels, int):
        c.refuse("has a counterpart with a fixed number of channels only")
    flat = g.op("Reshape", x, g.constant([0, groups, -1]))
    one, zero = g.constant(np.ones(groups), x.dtype), g.constant(np.zeros(groups), x.dtype)
    y = g.op("Reshape", g.op("InstanceNormalization", flat, one, zero, epsilon=float(c["eps"])), g.op("Shape", x))
    shape = g.constant([channels] + [1] * (x.rank - 2))
    if c.get("weight") is not None:
        y = g.op("Mul", y, g.op("Reshape", c["weight"], shape))
    return y if c.get("bias") is None else g.op("Add", y, g.op("Reshape", c["bias"], shape))


@handles("max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(g: Graph, c: Call) -> Any:
    rank = int(c.op[8])
    if c.first.rank != rank + 2:
        c.refuse("has a counterpart with batches only")
    kernel = _spread(c.fixed("kernel_size"), rank)
    return g.op("MaxPool", c.first, kernel_shape=kernel, strides=_spread(c.fixed("stride") or kernel, rank),
                pads=_spread(c.fixed("padding"), rank) * 2, dilations=_spread(c.fixed("dilation"), rank), ceil_mode=int(c["ceil_mode"]))


@handles("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(g: Graph, c: Call) -> Any:
    rank = int(c.op[8])
    if c.first.rank != rank + 2 or c.get("divisor_override"):
        c.refuse("has a counterpart with batches and without divisor_override only")
    kernel = _spread(c.fixed("kernel_size"), rank)
    return g.op("AveragePool", c.first, kernel_shape=kernel, strides=_spread(c.fixed("stride") or kernel, rank),
                pads=_spread(c.fixed("padding"), rank) * 2, ceil_mode=int(c["ceil_mode"]), count_include_pad=int(c["count_include_pad"]))


@handles("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
def _adaptive_avg_pool(g: Graph, c: Call) -> Any:
    x = c.first
    rank = int(c.op[17])
    if x.rank != rank + 2:
        c.refuse("has a counterpart with batches only")
    size = _spread(c.fixed("output_size"), rank)
    if all(n == 1 for n in size):
        return g.op("GlobalAveragePool", x)
    have = x.shape[-rank:]
    size = [h if n == -1 else n for h, n in zip(have, size)]  # None: as it is
    if not all(isinstance(h, int) and n and h % n == 0 for h, n in zip(have, size)):
        c.refuse("has a counterpart for output sizes that divide the input's only")
    kernel = [h // n for h, n in zip(have, size)]
    return g.op("AveragePool", x, kernel_shape=kernel, strides=kernel)


# ---- recurrences

@handles("recurrent_direction")
def _recurrence(g: Graph, c: Call) -> Any:
    kind = c["kind"]
    x, h = c["x"], c["h"]
    hidden = c["weight_hh"].shape[1]
    # The order of the gates: ours is i, f, g, o and r, z, n.
    order = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "tanh": [0], "relu": [0]}[kind]

    def gates(t: Any) -> Any:
        if len(order) == 1:
            return t.name
        parts = g.op("Split", t, g.constant([hidden] * len(order)), axis=0, outputs=len(order))
        return g.op("Concat", *(parts[k] for k in order), axis=0)

    first = lambda t: g.op("Unsqueeze", t, g.constant([0]))  # noqa: E731
    bias = None
    if c.get("bias_ih") is not None:
        bias = first(g.op("Concat", gates(c["bias_ih"]), gates(c["bias_hh"]), axis=0))
    inputs = [x, first(gates(c["weight_ih"])), first(gates(c["weight_hh"])), bias, None, first(h)]
    attributes: dict = {"hidden_size": hidden, "direction": "reverse" if c["reverse"] else "forward"}
    if kind == "lstm":
        y, last_h, last_c = g.op("LSTM", *inputs, first(c["c"]), outputs=3, **attributes)
        rest = [last_h, last_c]
    elif kind == "gru":
        y, last_h = g.op("GRU", *inputs, outputs=2, linear_before_reset=1, **attributes)
        rest = [last_h]
    else:
        y, last_h = g.op("RNN", *inputs, outputs=2, activations=["Tanh" if kind == "tanh" else "Relu"], **attributes)
        rest = [last_h]
    return [g.op("Squeeze", y, g.constant([1])), *(g.op("Squeeze", t, g.constant([0])) for t in rest)]
