"""The operators that ONNX has counterparts of, each as the nodes that do the same."""
from __future__ import annotations

import math
from typing import Any, Callable

from ._graph import Call, Graph, Value

HANDLERS: dict[str, Callable[[Graph, Call], Any]] = {}


def handles(*names: str) -> Callable:
    def add(f: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = f
        return f

    return add


def _first(c: Call) -> Value:
    return next(iter(c.args.values()))


def _floating(g: Graph, c: Call, x: Value) -> Any:
    """x in the result's dtype, where integers become floats."""
    return g.as_dtype(x, c.results[0].dtype)


for _name, _kind in {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sigmoid": "Sigmoid",
    "erf": "Erf", "reciprocal": "Reciprocal", "softsign": "Softsign", "mish": "Mish", "hardswish": "HardSwish",
}.items():
    HANDLERS[_name] = lambda g, c, kind=_kind: g.op(kind, _floating(g, c, _first(c)))
for _name, _kind in {"abs": "Abs", "neg": "Neg", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sign": "Sign", "relu": "Relu",
                     "logical_not": "Not", "isnan": "IsNaN"}.items():
    HANDLERS[_name] = lambda g, c, kind=_kind: g.op(kind, _first(c))


@handles("isinf")
def _isinf(g: Graph, c: Call) -> Any:
    return g.op("IsInf", c["self"])


@handles("rsqrt")
def _rsqrt(g: Graph, c: Call) -> Any:
    return g.op("Reciprocal", g.op("Sqrt", _floating(g, c, _first(c))))


@handles("log1p")
def _log1p(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Log", g.op("Add", x, g.like(1, x)))


@handles("expm1")
def _expm1(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Sub", g.op("Exp", x), g.like(1, x))


@handles("log2", "log10")
def _log_of(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Div", g.op("Log", x), g.like(math.log(2 if c.op == "log2" else 10), x))


@handles("silu")
def _silu(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Mul", x, g.op("Sigmoid", x))


@handles("relu6")
def _relu6(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Clip", x, g.like(0, x), g.like(6, x))


@handles("gelu", "gelu_erf", "gelu_tanh")
def _gelu(g: Graph, c: Call) -> Any:
    x = _first(c)
    if c.op == "gelu_tanh" or c.args.get("approximate") == "tanh":
        cube = g.op("Mul", g.op("Mul", x, x), x)
        inner = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.like(0.044715, x))), g.like(math.sqrt(2 / math.pi), x))
        t = g.op("Tanh", inner)
    else:
        t = g.op("Erf", g.op("Mul", x, g.like(math.sqrt(0.5), x)))
    return g.op("Mul", g.op("Mul", x, g.like(0.5, x)), g.op("Add", t, g.like(1, x)))


@handles("softplus")
def _softplus(g: Graph, c: Call) -> Any:
    x = _first(c)
    if c["beta"] != 1:
        c.refuse("has a counterpart with beta=1 only")
    large = g.op("Greater", x, g.like(c["threshold"], x))
    return g.op("Where", large, x, g.op("Softplus", x))


@handles("elu")
def _elu(g: Graph, c: Call) -> Any:
    if c.args.get("scale", 1) not in (1, None) or c.args.get("input_scale", 1) not in (1, None):
        c.refuse("has a counterpart without scales only")
    return g.op("Elu", _first(c), alpha=float(c["alpha"]))


@handles("celu")
def _celu(g: Graph, c: Call) -> Any:
    return g.op("Celu", _first(c), alpha=float(c["alpha"]))


@handles("selu")
def _selu(g: Graph, c: Call) -> Any:
    return g.op("Selu", _first(c), alpha=1.6732632423543772, gamma=1.0507009873554805)


@handles("leaky_relu")
def _leaky_relu(g: Graph, c: Call) -> Any:
    return g.op("LeakyRelu", _first(c), alpha=float(c["negative_slope"]))


@handles("hardtanh")
def _hardtanh(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Clip", x, g.like(c["min_val"], x), g.like(c["max_val"], x))


@handles("hardsigmoid")
def _hardsigmoid(g: Graph, c: Call) -> Any:
    return g.op("HardSigmoid", _first(c), alpha=1 / 6, beta=0.5)


@handles("logsigmoid")
def _logsigmoid(g: Graph, c: Call) -> Any:
    x = _first(c)
    return g.op("Neg", g.op("Softplus", g.op("Neg", x)))


@handles("prelu", "prelu_kernel")
def _prelu(g: Graph, c: Call) -> Any:
    x, weight = _first(c), c["weight"]
    if weight.rank == 1 and x.rank > 1:
        weight = g.op("Reshape", weight, g.constant([weight.shape[0]] + [1] * (x.rank - 2)))
    return g.op("PRelu", x, weight)


@handles("clamp", "clamp_min", "clamp_max")
def _clamp(g: Graph, c: Call) -> Any:
    x = _first(c)
    low, high = c.args.get("min"), c.args.get("max")
    x_in = g.as_dtype(x, c.results[0].dtype)
    like = lambda v: None if v is None else g.constant(v, c.results[0].dtype)  # noqa: E731
    return g.op("Clip", x_in, like(low), like(high))


def _both(g: Graph, c: Call, dtype: str) -> list:
    """Both operands in one dtype; numbers become constants."""
    names = list(c.args)[:2]
    return [g.as_dtype(x, dtype) if isinstance(x, Value) else g.constant(x, dtype) for x in (c[n] for n in names)]


def _common(c: Call) -> str:
    """The dtype that two operands are compared in."""
    a, b = (c[n] for n in list(c.args)[:2])
    tensors = [x for x in (a, b) if isinstance(x, Value)]
    wide = [t for t in tensors if t.rank] or tensors
    numbers = [x for x in (a, b) if not isinstance(x, Value)]
    if any(isinstance(n, float) for n in numbers) and not any(t.is_floating for t in tensors):
        return "float32"
    floating = [t for t in wide if t.is_floating] or [t for t in tensors if t.is_floating]
    order = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
    return max((t.dtype for t in floating or wide), key=order.index)


@handles("add", "sub", "rsub")
def _add(g: Graph, c: Call) -> Any:
    dtype = c.results[0].dtype
    a, b = _both(g, c, dtype)
    if c.op == "rsub":
        a, b = b, a
    if dtype == "bool":
        return g.op("Or", a, b)
    alpha = c.args.get("alpha")
    if alpha not in (None, 1):
        b = g.op("Mul", b, g.constant(alpha, dtype))
    return g.op("Add" if c.op == "add" else "Sub", a, b)


@handles("mul")
def _mul(g: Graph, c: Call) -> Any:
    dtype = c.results[0].dtype
    return g.op("And" if dtype == "bool" else "Mul", *_both(g, c, dtype))


@handles("div")
def _div(g: Graph, c: Call) -> Any:
    return g.op("Div", *_both(g, c, c.results[0].dtype))


@handles("pow")
def _pow(g: Graph, c: Call) -> Any:
    return g.op("Pow", *_both(g, c, c.results[0].dtype))


@handles("maximum", "minimum")
def _extremum(g: Graph, c: Call) -> Any:
    return g.op("Max" if c.op == "maximum" else "Min", *_both(g, c, c.results[0].dtype))


@handles("remainder", "fmod")
def _mod(g: Graph, c: Call) -> Any:
    dtype = c.results[0].dtype
    a, b = _both(g, c, dtype)
    if "float" not in dtype:
        return g.op("Mod", a, b, fmod=int(c.op == "fmod"))
    if c.op == "fmod":
        return g.op("Mod", a, b, fmod=1)
    return g.op("Sub", a, g.op("Mul", b, g.op("Floor", g.op("Div", a, b))))


@handles("eq", "ne", "lt", "le", "gt", "ge")
def _compare(g: Graph, c: Call) -> Any:
    a, b = _both(g, c, _common(c))
    kinds = {"eq": "Equal", "ne": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
    r = g.op(kinds[c.op], a, b)
    return g.op("Not", r) if c.op == "ne" else r


@handles("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor")
def _logic(g: Graph, c: Call) -> Any:
    if c.op.startswith("bitwise") and c.results[0].dtype != "bool":
        return g.op({"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}[c.op[8:]], *_both(g, c, c.results[0].dtype))
    return g.op({"and": "And", "or": "Or", "xor": "Xor"}[c.op.rpartition("_")[2]], *_both(g, c, "bool"))


@handles("bitwise_not")
def _bitwise_not(g: Graph, c: Call) -> Any:
    return g.op("Not" if _first(c).dtype == "bool" else "BitwiseNot", _first(c))


@handles("where")
def _where(g: Graph, c: Call) -> Any:
    condition, *rest = (c[n] for n in list(c.args)[:3])
    dtype = c.results[0].dtype
    values = [g.as_dtype(x, dtype) if isinstance(x, Value) else g.constant(x, dtype) for x in rest]
    return g.op("Where", g.as_dtype(condition, "bool"), *values)


@handles("masked_fill", "masked_fill.Tensor")
def _masked_fill(g: Graph, c: Call) -> Any:
    x, value = _first(c), c["value"]
    value = g.as_dtype(value, x.dtype) if isinstance(value, Value) else g.like(value, x)
    return g.op("Where", g.as_dtype(c["mask"], "bool"), value, x)


# ---- products

@handles("matmul", "mm", "bmm", "mv", "linalg_matmul")
def _matmul(g: Graph, c: Call) -> Any:
    return g.op("MatMul", *_both(g, c, c.results[0].dtype))


def _scaled(g: Graph, x: Any, factor: Any, dtype: str) -> Any:
    return x if factor in (None, 1) else g.op("Mul", x, g.constant(factor, dtype))


@handles("addmm", "baddbmm")
def _addmm(g: Graph, c: Call) -> Any:
    dtype = c.results[0].dtype
    x, a, b = (c[n] for n in list(c.args)[:3])
    product = _scaled(g, g.op("MatMul", a, b), c.args.get("alpha"), dtype)
    if c.args.get("beta") == 0:
        return product
    return g.op("Add", _scaled(g, x, c.args.get("beta"), dtype), product)


def _last_two_swapped(g: Graph, x: Any, rank: int) -> Any:
    return g.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


@handles("linear")
def _linear(g: Graph, c: Call) -> Any:
    y = g.op("MatMul", c["input"], g.op("Transpose", c["weight"], perm=[1, 0]))
    return y if c.args.get("bias") is None else g.op("Add", y, c["bias"])


@handles("feed_forward")
def _feed_forward(g: Graph, c: Call) -> Any:
    def layer(x: Any, weight: str, bias: str) -> Any:
        y = g.op("MatMul", x, g.op("Transpose", c[weight], perm=[1, 0]))
        return y if c[bias] is None else g.op("Add", y, c[bias])

    x = c["input"]
    before = layer(x, "weight1", "bias1")
    hidden = Value(before, x.dtype, c.results[1].shape)
    kind = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_tanh"}[c["activation"]]
    after = HANDLERS[kind](g, Call(kind, {"self": hidden}, [hidden]))
    return [layer(after, "weight2", "bias2"), after, before]


@handles("scaled_dot_product_attention")
def _attention(g: Graph, c: Call) -> Any:
    q, k, v = c["query"], c["key"], c["value"]
    if c.args.get("dropout_p"):
        c.refuse("has no counterpart with dropout")
    if c.args.get("enable_gqa"):
        c.refuse("has no counterpart with enable_gqa")
    scale = c.args.get("scale")
    if scale is None:
        if not isinstance(q.shape[-1], int):
            c.refuse("has a dynamic number of features")
        scale = 1 / math.sqrt(q.shape[-1])
    scores = g.op("Mul", g.op("MatMul", q, _last_two_swapped(g, k, k.rank)), g.like(scale, q))
    mask = c.args.get("attn_mask")
    if c.args.get("is_causal"):
        shape = g.op("Concat", *(g.op("Shape", t, start=t.rank - 2, end=t.rank - 1) for t in (q, k)), axis=0)
        lower = g.cast(g.op("Trilu", g.op("Expand", g.constant(1, "int64"), shape), g.constant(0), upper=0), "bool")
        scores = g.op("Where", lower, scores, g.like(-math.inf, q))
    if mask is not None:
        scores = g.op("Where", mask, scores, g.like(-math.inf, q)) if mask.dtype == "bool" else g.op("Add", scores, mask)
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), v)
