"""The operators that ONNX has counterparts of, each as the nodes that do the same."""
from __future__ import annotations

import math
from typing import Any, Callable

from ._graph import Call, Graph, Value, same_in, wrapped

HANDLERS: dict[str, Callable[[Graph, Call], Any]] = {}


def handles(*names: str) -> Callable:
    def add(f: Callable) -> Callable:
        for name in names:
            HANDLERS[name] = f
        return f

    return add


def widened(f: Callable[[Graph, Call, Value], Any]) -> Callable[[Graph, Call], Any]:
    """A handler of several nodes for numbers between which two bytes are too few: it has its argument, which integers become floats in,
    in float32, and the result is narrowed once, as ours is."""

    def handler(g: Graph, c: Call) -> Any:
        dtype = c.dtype
        y = f(g, c, g.value(c.first, "float32" if "16" in dtype else dtype))
        return g.cast(y, dtype) if "16" in dtype else y

    return handler


def _truth(g: Graph, c: Call, x: Any) -> Any:
    """What is true or false as the result, which has another dtype where it is written in place."""
    return x if c.dtype == "bool" else g.cast(x, c.dtype)


for _name, _kind in {
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan",
    "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sigmoid": "Sigmoid",
    "erf": "Erf", "reciprocal": "Reciprocal", "softsign": "Softsign", "mish": "Mish", "hardswish": "HardSwish",
}.items():
    HANDLERS[_name] = lambda g, c, kind=_kind: g.op(kind, g.as_dtype(c.first, c.dtype))  # integers become floats
for _name, _kind in {"abs": "Abs", "sign": "Sign"}.items():
    HANDLERS[_name] = lambda g, c, kind=_kind: g.op(kind, c.first)
for _name, _kind in {"floor": "Floor", "ceil": "Ceil", "round": "Round"}.items():
    # ONNX rounds no integers.
    HANDLERS[_name] = lambda g, c, kind=_kind: g.op(kind if c.first.is_floating else "Identity", c.first)
for _name, _kind in {"isnan": "IsNaN", "isinf": "IsInf"}.items():
    HANDLERS[_name] = lambda g, c, kind=_kind: g.op(kind, c.first if c.first.is_floating else g.cast(c.first, "float32"))


@handles("logical_not")
def _logical_not(g: Graph, c: Call) -> Any:
    return _truth(g, c, g.op("Not", g.as_dtype(c.first, "bool")))


@handles("neg")
def _neg(g: Graph, c: Call) -> Any:
    x = c.first
    return g.op("Sub", g.like(0, x), x) if x.dtype == "uint8" else g.op("Neg", x)  # ONNX negates what has a sign


@handles("relu")
def _relu(g: Graph, c: Call) -> Any:
    return g.op("Relu", c.first) if c.first.is_floating else g.op("Max", c.first, g.like(0, c.first))


@handles("rsqrt")
@widened
def _rsqrt(g: Graph, c: Call, x: Value) -> Any:
    return g.op("Reciprocal", g.op("Sqrt", x))


@handles("log1p")
@widened
def _log1p(g: Graph, c: Call, x: Value) -> Any:
    # 1 + x forgets most of a small x; what it forgot is the quotient of x and of what it kept.
    one = g.like(1, x)
    sum_ = g.op("Add", x, one)
    kept = g.op("Sub", sum_, one)
    small = g.op("Less", g.op("Abs", x), one)
    y = g.op("Mul", g.op("Log", sum_), g.op("Where", small, g.op("Div", x, kept), one))
    return g.op("Where", g.op("Equal", kept, g.like(0, x)), x, y)


@handles("expm1")
@widened
def _expm1(g: Graph, c: Call, x: Value) -> Any:
    # The same as exp(x) - 1, from which nothing is left of a small x.
    return g.op("Mul", g.op("Tanh", g.op("Mul", x, g.like(0.5, x))), g.op("Add", g.op("Exp", x), g.like(1, x)))


@handles("log2", "log10")
@widened
def _log_of(g: Graph, c: Call, x: Value) -> Any:
    return g.op("Div", g.op("Log", x), g.like(math.log(2 if c.op == "log2" else 10), x))


@handles("silu")
@widened
def _silu(g: Graph, c: Call, x: Value) -> Any:
    return g.op("Mul", x, g.op("Sigmoid", x))


@handles("relu6")
def _relu6(g: Graph, c: Call) -> Any:
    x = c.first
    return g.op("Clip", x, g.like(0, x), g.like(6, x))


@handles("gelu", "gelu_erf", "gelu_tanh")
@widened
def _gelu(g: Graph, c: Call, x: Value) -> Any:
    if c.op == "gelu_tanh" or c.get("approximate") == "tanh":
        cube = g.op("Mul", g.op("Mul", x, x), x)
        inner = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.like(0.044715, x))), g.like(math.sqrt(2 / math.pi), x))
        t = g.op("Tanh", inner)
    else:
        t = g.op("Erf", g.op("Mul", x, g.like(math.sqrt(0.5), x)))
    return g.op("Mul", g.op("Mul", x, g.like(0.5, x)), g.op("Add", t, g.like(1, x)))


@handles("softplus")
@widened
def _softplus(g: Graph, c: Call, x: Value) -> Any:
    beta = c["beta"]
    scaled = x if beta == 1 else g.op("Mul", x, g.like(beta, x))
    large = g.op("Greater", scaled, g.like(c["threshold"], x))
    y = g.op("Softplus", scaled)
    return g.op("Where", large, x, y if beta == 1 else g.op("Div", y, g.like(beta, x)))


@handles("elu")
def _elu(g: Graph, c: Call) -> Any:
    return g.op("Elu", c.first, alpha=float(c["alpha"]))


@handles("celu")
@widened  # ONNX has it in float32 alone
def _celu(g: Graph, c: Call, x: Value) -> Any:
    return g.op("Celu", x, alpha=float(c["alpha"]))


@handles("selu")
def _selu(g: Graph, c: Call) -> Any:
    return g.op("Selu", c.first, alpha=1.6732632423543772, gamma=1.0507009873554805)


@handles("leaky_relu")
def _leaky_relu(g: Graph, c: Call) -> Any:
    return g.op("LeakyRelu", c.first, alpha=float(c["negative_slope"]))


@handles("hardtanh")
def _hardtanh(g: Graph, c: Call) -> Any:
    x = c.first
    return g.op("Clip", x, g.like(c["min_val"], x), g.like(c["max_val"], x))


@handles("hardsigmoid")
def _hardsigmoid(g: Graph, c: Call) -> Any:
    return g.op("HardSigmoid", c.first, alpha=1 / 6, beta=0.5)


@handles("logsigmoid")
@widened
def _logsigmoid(g: Graph, c: Call, x: Value) -> Any:
    return g.op("Neg", g.op("Softplus", g.op("Neg", x)))


@handles("prelu", "prelu_kernel")
def _prelu(g: Graph, c: Call) -> Any:
    x, weight = c.first, c["weight"]
    if weight.rank == 1 and x.rank != 1:
        weight = g.op("Reshape", weight, g.constant([weight.shape[0]] + [1] * (x.rank - 2) if x.rank else []))
    return g.op("PRelu", x, weight)


@handles("clamp", "clamp_point", "clamp_min_point", "clamp_max_point")
def _clamp(g: Graph, c: Call) -> Any:
    dtype, bounds = c.dtype, [c.get("min"), c.get("max")]
    # A number that does not fit is taken as it is.
    wide = dtype if all(n is None or _fits(n, dtype) for n in bounds) else "int64" if "int" in dtype else "float32"
    x = g.as_dtype(c.first, wide)
    if any(isinstance(n, float) and math.isnan(n) for n in bounds):
        c.refuse("has no counterpart with nan")
    y = g.op("Clip", x, *(None if n is None else g.number(n, wide) for n in bounds))
    return y if wide == dtype else g.cast(y, dtype)


def _both(g: Graph, c: Call, dtype: str) -> list:
    """Both operands in one dtype; numbers become constants."""
    return [g.as_dtype(x, dtype) if isinstance(x, Value) else g.number(x, dtype) for x in c.leading(2)]


def _fits(number: Any, dtype: str) -> bool:
    """Whether a dtype has this number; one that sizes decide may be any."""
    if isinstance(number, list):
        return dtype in ("int64", "float32", "float64")
    if "float" in dtype:
        return "16" not in dtype or same_in(number, dtype)
    return isinstance(number, bool) if dtype == "bool" else wrapped(number, dtype) == number


def _arithmetic(g: Graph, c: Call, make: Callable[[Any, Any, str], Any]) -> Any:
    """make(a, b, dtype) of both operands in the result's dtype. Floats of two bytes take numbers, and other floats where they are written
    in place or those have no dimensions, in float32: all of it is that where an operand is not the same in two bytes."""
    dtype = c.dtype
    operands = [*c.leading(2), c.get("alpha", 1)]
    wide = "float" in dtype and "16" in dtype and not all(
        x.dtype == dtype or not x.is_floating if isinstance(x, Value) else _fits(x, dtype) for x in operands)
    y = make(*_both(g, c, "float32" if wide else dtype), "float32" if wide else dtype)
    return g.cast(y, dtype) if wide else y


def _common(c: Call) -> str:
    """The dtype that two operands are compared in."""
    a, b = c.leading(2)
    tensors = [x for x in (a, b) if isinstance(x, Value)]
    wide = [t for t in tensors if t.rank] or tensors
    numbers = [x for x in (a, b) if not isinstance(x, Value)]
    if any(isinstance(n, float) for n in numbers) and not any(t.is_floating for t in tensors):
        return "float32"
    floating = [t for t in wide if t.is_floating] or [t for t in tensors if t.is_floating]
    if not floating:
        # Integers are compared as they are: a dtype that not all of them fit into would make other ones of them. ONNX orders no truths.
        dtype = tensors[0].dtype
        alike = all(t.dtype == dtype for t in tensors) and all(_fits(n, dtype) for n in numbers)
        return dtype if alike and (dtype != "bool" or c.op in ("eq", "ne")) else "int64"
    order = ["float16", "bfloat16", "float32", "float64"]
    dtype = max((t.dtype for t in floating), key=order.index)
    # Numbers are taken in float32 by tensors of two bytes.
    return "float32" if "16" in dtype and len(tensors) == 1 else dtype


@handles("add", "sub", "rsub")
def _add(g: Graph, c: Call) -> Any:
    def make(a: Any, b: Any, dtype: str) -> Any:
        if c.op == "rsub":
            a, b = b, a
        if dtype == "bool":
            # Or is a sum of truths, of which one may be left out.
            return g.op("Or", a, b) if c["alpha"] else a
        if c["alpha"] != 1:
            b = g.op("Mul", b, g.number(c["alpha"], dtype))
        return g.op("Add" if c.op == "add" else "Sub", a, b)

    return _arithmetic(g, c, make)


@handles("mul")
def _mul(g: Graph, c: Call) -> Any:
    return _arithmetic(g, c, lambda a, b, dtype: g.op("And" if dtype == "bool" else "Mul", a, b))


@handles("div")
def _div(g: Graph, c: Call) -> Any:
    return _arithmetic(g, c, lambda a, b, dtype: g.op("Div", a, b))


@handles("pow")
def _pow(g: Graph, c: Call) -> Any:
    exponent = c["exponent"]
    if "int" in c.dtype:
        # Products wrap as ours do, and are there for each width; runtimes take Pow of integers in float64.
        if not isinstance(exponent, int) or exponent < 0 or not isinstance(c.first, Value):
            c.refuse("has a counterpart for integers with one exponent for all only")
        power, result = g.as_dtype(c.first, c.dtype), None
        if exponent == 0:
            return g.op("Expand", g.number(1, c.dtype), g.op("Shape", power))
        while exponent:
            if exponent & 1:
                result = power if result is None else g.op("Mul", result, power)
            exponent >>= 1
            power = g.op("Mul", power, power) if exponent else power
        return result
    return _arithmetic(g, c, lambda a, b, dtype: g.op("Pow", a, b))


@handles("maximum", "minimum")
def _extremum(g: Graph, c: Call) -> Any:
    if c.dtype == "bool":
        return g.op("Or" if c.op == "maximum" else "And", *_both(g, c, "bool"))
    return _arithmetic(g, c, lambda a, b, dtype: g.op("Max" if c.op == "maximum" else "Min", a, b))


@handles("remainder", "fmod")
def _mod(g: Graph, c: Call) -> Any:
    dtype = c.dtype
    if "float" not in dtype:
        # What does not fit is taken as it is.
        wide = dtype if all(x.dtype == dtype if isinstance(x, Value) else _fits(x, dtype) for x in c.leading(2)) else "int64"
        y = g.op("Mod", *_both(g, c, wide), fmod=int(c.op == "fmod"))
        return y if wide == dtype else g.cast(y, dtype)

    def make(a: Any, b: Any, dtype: str) -> Any:
        if dtype != c.dtype:  # a remainder of halves is one by the rounded number, as in eager code
            a, b = (g.cast(g.cast(x, c.dtype), dtype) for x in (a, b))
        rest = g.op("Mod", a, b, fmod=1)
        if c.op == "fmod":
            return rest
        # Of the divisor's sign. a - b * floor(a / b) is another number where the quotient is rounded.
        zero = g.number(0, dtype)
        other = g.op("Xor", g.op("Less", rest, zero), g.op("Less", b, zero))
        other = g.op("And", other, g.op("Not", g.op("Equal", rest, zero)))
        return g.op("Where", other, g.op("Add", rest, b), rest)

    return _arithmetic(g, c, make)


@handles("eq", "ne", "lt", "le", "gt", "ge")
def _compare(g: Graph, c: Call) -> Any:
    a, b = _both(g, c, _common(c))
    kinds = {"eq": "Equal", "ne": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
    r = g.op(kinds[c.op], a, b)
    return _truth(g, c, g.op("Not", r) if c.op == "ne" else r)


@handles("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor")
def _logic(g: Graph, c: Call) -> Any:
    if c.op.startswith("bitwise") and c.dtype != "bool":
        return g.op({"and": "BitwiseAnd", "or": "BitwiseOr", "xor": "BitwiseXor"}[c.op[8:]], *_both(g, c, c.dtype))
    return _truth(g, c, g.op({"and": "And", "or": "Or", "xor": "Xor"}[c.op.rpartition("_")[2]], *_both(g, c, "bool")))


@handles("bitwise_not")
def _bitwise_not(g: Graph, c: Call) -> Any:
    return g.op("Not" if c.first.dtype == "bool" else "BitwiseNot", c.first)


@handles("where")
def _where(g: Graph, c: Call) -> Any:
    condition, *rest = c.leading(3)
    dtype = c.dtype
    values = [g.as_dtype(x, dtype) if isinstance(x, Value) else g.number(x, dtype) for x in rest]
    return g.where(g.as_dtype(condition, "bool"), *values, dtype)


@handles("masked_fill", "masked_fill.Tensor")
def _masked_fill(g: Graph, c: Call) -> Any:
    x, value = c.first, c["value"]
    value = g.as_dtype(value, x.dtype) if isinstance(value, Value) else g.like(value, x)
    return g.where(g.as_dtype(c["mask"], "bool"), value, x, x.dtype)


# ---- products

@handles("matmul", "mm", "bmm", "mv", "linalg_matmul")
def _matmul(g: Graph, c: Call) -> Any:
    return g.op("MatMul", *_both(g, c, c.dtype))


def _scaled(g: Graph, x: Any, factor: Any, dtype: str) -> Any:
    return x if factor in (None, 1) else g.op("Mul", x, g.number(factor, dtype))


@handles("addmm", "baddbmm")
def _addmm(g: Graph, c: Call) -> Any:
    dtype = c.dtype
    x, a, b = c.leading(3)
    product = _scaled(g, g.op("MatMul", a, b), c.get("alpha"), dtype)
    if c.get("beta") == 0:
        return product
    return g.op("Add", _scaled(g, x, c.get("beta"), dtype), product)


def _last_two_swapped(g: Graph, x: Any, rank: int) -> Any:
    return g.op("Transpose", x, perm=[*range(rank - 2), rank - 1, rank - 2])


@handles("linear")
def _linear(g: Graph, c: Call) -> Any:
    weight = c["weight"]
    y = g.op("MatMul", c["input"], g.op("Transpose", weight, perm=[1, 0]) if weight.rank == 2 else weight)
    return y if c.get("bias") is None else g.op("Add", y, c["bias"])


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
    if c.get("dropout_p"):
        c.refuse("has no counterpart with dropout")
    if c.get("enable_gqa"):
        c.refuse("has no counterpart with enable_gqa")
    scale = c.get("scale")
    if scale is None:
        if not isinstance(q.shape[-1], int):
            c.refuse("has a dynamic number of features")
        scale = 1 / math.sqrt(q.shape[-1])
    # The query is scaled, not the products, which two bytes may be too few for.
    scores = g.op("MatMul", g.op("Mul", q, g.like(scale, q)), _last_two_swapped(g, k, k.rank))
    mask, never = c.get("attn_mask"), g.like(-math.inf, q)
    if c.get("is_causal"):
        shape = g.op("Concat", *(g.op("Shape", t, start=t.rank - 2, end=t.rank - 1) for t in (q, k)), axis=0)
        lower = g.cast(g.op("Trilu", g.op("Expand", g.constant(1, "int64"), shape), g.constant(0), upper=0), "bool")
        scores = g.op("Where", lower, scores, never)
    if mask is not None:
        scores = g.op("Where", mask, scores, never) if mask.dtype == "bool" else g.op("Add", scores, mask)
    shares = g.op("Softmax", scores, axis=-1)
    if mask is not None:
        # A query that may look at nothing has a result of zeros, not of 0 / 0.
        nothing = g.op("Equal", g.op("ReduceMax", scores, g.constant([-1]), keepdims=1), never)
        shares = g.op("Where", nothing, g.like(0, q), shares)
    return g.op("MatMul", shares, v)
