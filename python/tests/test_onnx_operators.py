"""Each operator that ONNX models can have, run by onnxruntime beside the library: values, dtypes and sizes, for the arguments at which
the two part ways; and what is refused, since a model that gives something else is worse than none."""
import io
import math

import pytest
from peer import peer

import arete
import arete.nn.functional as F
from arete import nn, tensor

onnxruntime = peer("onnxruntime")
onnx = peer("onnx")

INF = float("inf")
TOLERANCE = {"float16": 1e-3, "float32": 1e-5, "float64": 1e-7}


class Function(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *x):
        return self.f(*x)


def leaves(tree):
    return [x for part in tree for x in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def session(f, args, **options):
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    file = io.BytesIO()
    arete.onnx.export(f if isinstance(f, nn.Module) else Function(f), args, file, **options)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    return onnxruntime.InferenceSession(file.getvalue(), settings, providers=["CPUExecutionProvider"])


def same(run, f, args, what=""):
    got = run.run(None, {i.name: x.numpy() for i, x in zip(run.get_inputs(), args)})
    with arete.no_grad():
        wanted = leaves(f(*(x.clone() for x in args)))
    assert len(got) == len(wanted), what
    for k, (a, b) in enumerate(zip(got, wanted)):
        dtype = str(b.dtype).rpartition(".")[2]
        assert (str(a.dtype), a.shape) == (dtype, tuple(b.shape)), (what, k)
        tolerance = TOLERANCE.get(dtype, 0)
        arete.testing.assert_close(arete.from_numpy(a.copy()), b.detach(), rtol=tolerance, atol=tolerance, equal_nan=True,
                                   msg=lambda m, k=k: f"{what}, result {k}: {m}")


X = tensor([[-1.5, 0.25, 2.0, -0.75], [0.5, -2.25, 1.0, 3.0], [1.25, -0.5, 0.125, -3.0]])
UNIT = tensor([-0.9, -0.3, 0.0, 1e-4, 0.6])
ABOVE = tensor([1.0, 1.5, 20.0])
BLOCK = arete.linspace(-2, 2, 24).view(2, 3, 4)
SMALL = tensor([1e-10, -1e-10, 1e-4, -1e-4, 0.3, -0.3, 0.0, 5.0, 80.0])
U8 = tensor([200, 100, 255, 0], dtype=arete.uint8)
I8 = tensor([-128, 127, 5, 0], dtype=arete.int8)
I32 = tensor([2**31 - 1, -5, 3, 0], dtype=arete.int32)
I64 = tensor([5, -3, 7, 0])
TRUTHS = tensor([True, False, True, False])
HALF = tensor([6e4, 1e-4, -300.0, 0.5, 7.0, -7.0], dtype=arete.float16)
POINT = tensor(2.5)
IMAGES = arete.linspace(-1, 1, 2 * 4 * 7 * 6).view(2, 4, 7, 6).sin()
WHOLE = [U8, I8, I32, I64]
ALL = [X, HALF, *WHOLE, TRUTHS, POINT]


def each(f, *tensors):
    """The function of each of the tensors."""
    return [(f, (t,)) for t in tensors]


def weights(*shape):
    n = math.prod(shape)
    return tensor([(7 * k % n - n // 2) / n for k in range(n)]).view(shape)


def windows(rank):
    """Cases of convolutions and pools of this rank: their images."""
    return IMAGES[:, :, 0] if rank == 1 else IMAGES if rank == 2 else IMAGES.view(2, 2, 2, 7, 6)


def convolutions(rank):
    name, x = f"conv{rank}d", windows(rank)
    conv, w = getattr(F, name), weights(4, x.shape[1], *[2, 3, 2][:rank])
    apart = weights(4, x.shape[1] // 2, *[2, 3, 2][:rank])
    return {name: [(lambda x: conv(x, w), (x,)), (lambda x: conv(x[0], w, weights(4), stride=2, padding=1), (x,)),
                   (lambda x: conv(x, apart, padding=[1, 2, 0][:rank], dilation=2 if rank < 3 else 1, groups=2), (x,))],
            f"{name}.padding": [(lambda x: conv(x, w, padding="same"), (x,)), (lambda x: conv(x, w, padding="valid", stride=2), (x,))]}


def transposed(rank):
    name, x = f"conv_transpose{rank}d", windows(rank)
    conv, w = getattr(F, name), weights(x.shape[1], 2, *[2, 3, 2][:rank])
    return {name: [(lambda x: conv(x, w), (x,)), (lambda x: conv(x, w, weights(2), stride=3, padding=1, output_padding=2), (x,)),
                   (lambda x: conv(x, w, weights(4), stride=2, groups=2, dilation=2), (x,))]}


def pools(rank):
    x, small = windows(rank), 2 if rank == 3 else 3
    most, mean, adaptive = (getattr(F, f"{n}{rank}d") for n in ("max_pool", "avg_pool", "adaptive_avg_pool"))
    return {f"max_pool{rank}d": [(lambda x: most(x, 2), (x,)), (lambda x: most(x, small, 2, 1, ceil_mode=True), (x,)),
                                 (lambda x: most(x, 2, 1, dilation=[2, 1, 1][:rank] if rank < 3 else 1), (x,))],
            f"avg_pool{rank}d": [(lambda x: mean(x, 2), (x,)), (lambda x: mean(x, small, 2, 1, ceil_mode=True), (x,)),
                                 (lambda x: mean(x, small, 2, 1, True, False), (x,)), (lambda x: mean(x, 2, (1,) * rank), (x,))],
            f"adaptive_avg_pool{rank}d": [(lambda x: adaptive(x, 1), (x,)), (lambda x: adaptive(x, [x.shape[2], *x.shape[3:]]), (x,)),
                                          (lambda x: adaptive(x, [1, *x.shape[3:]]), (x,))]}


def reductions(name, *tensors):
    """A reduction of all, of one dimension and of several, of tensors without dimensions."""
    f = lambda *a, **k: lambda x: getattr(x, name)(*a, **k)  # noqa: E731
    return [*each(f(), *tensors), *each(f(-1), *tensors, POINT), *each(f(0, keepdim=True), *tensors, POINT)]


ONE = {name: each(lambda x, name=name: getattr(x, name)(), *tensors) for tensors, names in {
    (X, BLOCK.double(), HALF / 100, *WHOLE, TRUTHS, POINT): "exp tanh sigmoid sin cos reciprocal",
    (X, *WHOLE, TRUTHS, POINT): "log sqrt erf rsqrt log2 log10",
    (X, UNIT.half(), I64, POINT): "sinh cosh", (UNIT, UNIT.half(), TRUTHS): "asin acos atanh atan asinh tan",
    (SMALL, *WHOLE, TRUTHS, UNIT.half()): "log1p expm1", (ABOVE,): "acosh", (X, HALF, *WHOLE): "abs neg sign relu",
    (X * 3, HALF, *WHOLE, tensor([0.5, 1.5, 2.5, -0.5])): "floor ceil round", (tensor([0.0, INF, -INF, math.nan]), *WHOLE): "isnan isinf",
    tuple(ALL): "logical_not"}.items() for name in names.split()}

LAYERS = {name: each(f, X, HALF / 100, POINT) for name, f in {
    "silu": F.silu, "relu6": F.relu6, "logsigmoid": F.logsigmoid, "selu": F.selu, "hardsigmoid": F.hardsigmoid, "softsign": F.softsign,
    "mish": F.mish, "hardswish": F.hardswish, "celu": lambda x: (F.celu(x), F.celu(x, 0.3)), "elu": lambda x: (F.elu(x), F.elu(x, 0.3)),
    "leaky_relu": lambda x: (F.leaky_relu(x), F.leaky_relu(x, 0.3)), "hardtanh": lambda x: (F.hardtanh(x), F.hardtanh(x, -0.3, 0.7)),
    "gelu": lambda x: (F.gelu(x), F.gelu(x, approximate="tanh")),
    "softplus": lambda x: (F.softplus(x), F.softplus(x, 3, 0.2), F.softplus(x * 9), F.softplus(x, -2.0))}.items()}

TWO = {
    "add": [*each(lambda x: (x + 100, x + x, x.add(x, alpha=2), x + 0.5), *WHOLE), *each(lambda x: (x + 300, -56 + x), U8),
            *each(lambda x: (x + x, x + True, x + 2, x.add(x, alpha=False)), TRUTHS), (lambda a, b: a + b, (X, I64)),
            (lambda a, b: a + b, (U8, I8)), *each(lambda x: (x + 1e5, x.add(x, alpha=1e-7), x + tensor(1e-5), x + 0.1), HALF)],
    "sub": [*each(lambda x: (x - 201, x - x * 2, x.sub(x, alpha=3), x - 0.5), *WHOLE), (lambda a, b: a - b, (X, POINT))],
    "rsub": each(lambda x: (5 - x, 0.5 - x, arete.rsub(x, x, alpha=3)), X, *WHOLE),
    "mul": [*each(lambda x: (x * 3, x * x, x * 0.5, 300 * x), *WHOLE), *each(lambda x: (x * x, x * 2), TRUTHS),
            *each(lambda x: (x * 1e-5, x * tensor(1e-6), x * 0.3), HALF), (lambda a, b: a * b, (TRUTHS, I64))],
    "div": [*each(lambda x: (x / 7, x / (x.abs() + 1), 3 / (x.abs() + 2)), *WHOLE, TRUTHS.int()),
            *each(lambda x: (x / 1e9, x / 0.3), HALF)],
    "pow": [*each(lambda x: (x**0, x**1, x**2, x**5), *WHOLE), *each(lambda x: (x**0.5, 2.0**x), I64.abs(), X.abs()),
            *each(lambda x: x**tensor([2, 0, 1, 3]), X), *each(lambda x: x.abs()**0.1, HALF), *each(lambda x: x**2, TRUTHS)],
    "maximum": [*each(lambda x: x.maximum(x * 0 + 3), X, *WHOLE), (arete.maximum, (I64, X)),
                (arete.maximum, (TRUTHS, ~TRUTHS))],
    "minimum": [*each(lambda x: x.minimum(x * 0 + 3), X, *WHOLE), (arete.minimum, (U8, I64)), (arete.minimum, (TRUTHS, TRUTHS))],
    "remainder": [*each(lambda x: (x % 7, x % 300, x % 2.5), U8), *each(lambda x: (x % 7, x % -3, x % 2.5), I8, I32, I64),
                  *each(lambda x: (x % 0.7, x % -0.7, x % INF, 2.5 % x, x % x), X, X.double()),
                  *each(lambda x: x % 0.1, tensor([0.5, -3.0], dtype=arete.float16))],
    "fmod": [*each(lambda x: (x.fmod(7), x.fmod(300)), U8), *each(lambda x: (x.fmod(7), x.fmod(-3)), I8, I32, I64),
             *each(lambda x: (x.fmod(0.7), x.fmod(-0.7), x.fmod(INF)), X)],
    **{name: [*each(lambda x, name=name: [getattr(x, name)(n) for n in (3, -56, 2.5)], *ALL),
              *each(lambda x, name=name: getattr(x, name)(300), U8), *each(lambda x, name=name: getattr(x, name)(True), TRUTHS, I64),
              *[(getattr(arete, name), pair) for pair in ((U8, I8), (TRUTHS, I64), (X, X.double()), (I64, X), (TRUTHS, ~TRUTHS))]]
       for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{name: [(getattr(arete, name), pair) for pair in ((TRUTHS, ~TRUTHS), (I64, TRUTHS), (X, X * 0), (U8, I8))]
       for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: [*[(getattr(arete, name), pair) for pair in ((TRUTHS, ~TRUTHS), (I64, TRUTHS), (U8, U8 * 3), (I32, I64))],
              *each(lambda x, name=name: getattr(arete, name)(x, 3), *WHOLE)] for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
    "bitwise_not": each(arete.bitwise_not, *WHOLE, TRUTHS),
    "where": [*each(lambda x: (arete.where(x > 3, x, 7), arete.where(x > 3, 0.5, x), arete.where(x > 3, x, x * 2)), X, *WHOLE),
              *each(lambda x: arete.where(x > 0, x > 1, x < -1), X), (arete.where, (TRUTHS, X, POINT))],
    "masked_fill": [*each(lambda x: (x.masked_fill(x > 1, 100), x.masked_fill(x[:1] > 0, -7 if x.dtype != arete.uint8 else 7)), X, *WHOLE),
                    *each(lambda x: (x > 0).masked_fill(x > 1, False), X), *each(lambda x: x.masked_fill(x > 0, -INF), X, HALF)],
    "clamp": [*each(lambda x: (x.clamp(-5, 100), x.clamp(min=3), x.clamp(max=3), x.clamp(0.5, 2.5), x.clamp(3, 1)), X, *WHOLE, POINT),
              *each(lambda x: x.clamp(-1e5, 0.1), HALF), *each(lambda x: (arete.clamp_min(x, 2), arete.clamp_max(x, -5)), X, *WHOLE)],
}

PRODUCTS = {
    "matmul": [(arete.matmul, pair) for pair in ((X, X[0]), (X[0], X.mT), (X[0], X[1]), (BLOCK, X.mT), (I64, I64), (BLOCK, BLOCK.mT))],
    "linalg_matmul": [(arete.linalg.matmul, (X, X.mT))],
    "mm": [(arete.mm, (X, X.mT)), (arete.mm, (X.long(), X.long().mT))],
    "bmm": [(arete.bmm, (BLOCK, BLOCK.mT))], "mv": [(arete.mv, (X, X[0]))],
    "addmm": [(lambda a, b: (arete.addmm(a, b, b.mT), arete.addmm(a[0], b, b.mT, beta=0.5, alpha=2), arete.addmm(a * INF, b, b.mT, beta=0)),
               (arete.ones(3, 3), X)), (lambda a: arete.addmm(a, a, a, beta=2, alpha=3), (arete.ones(2, 2).long(),))],
    "baddbmm": [(lambda a: (arete.baddbmm(a @ a.mT, a, a.mT), arete.baddbmm(a @ a.mT, a, a.mT, beta=0, alpha=0.5)), (BLOCK,))],
    "linear": [(F.linear, (BLOCK, X)), (F.linear, (BLOCK, X, tensor([1.0, 2, 3]))), (F.linear, (X, X[0])), (F.linear, (X[0], X))],
    "scaled_dot_product_attention": [
        (F.scaled_dot_product_attention, (BLOCK, BLOCK + 1, BLOCK * 2)),
        (lambda q: (F.scaled_dot_product_attention(q, q[:, :2], q[:, :2], scale=0.3, is_causal=True),
                    F.scaled_dot_product_attention(q, q, q, attn_mask=tensor([[False] * 3, [True] * 3, [True, False, False]])),
                    F.scaled_dot_product_attention(q, q, q, attn_mask=tensor([[-INF] * 3, [0.0, 0, 0], [0.0, 1, -INF]]))), (BLOCK,)),
        (lambda q: F.scaled_dot_product_attention(q[None], q[None], q[None]), (BLOCK.half(),))],
    "feed_forward": [(nn.TransformerEncoderLayer(4, 2, 6, activation=a, batch_first=True).eval(), (BLOCK,)) for a in ("relu", "gelu")],
}

SHAPES = {
    "view": each(lambda x: (x.view(6, -1), x.view(-1), x.view(2, 1, 3, 4)), BLOCK) + each(lambda x: x.view(1, 1), POINT),
    "reshape": each(lambda x: (x.reshape(4, 6), x[:0].reshape(0, 12), x[:0].reshape(3, 0)), BLOCK),
    "flatten": each(lambda x: (x.flatten(), x.flatten(1), x.flatten(-3, -2)), BLOCK) + each(arete.flatten, POINT),
    "unflatten": each(lambda x: (x.unflatten(-1, (2, 2)), x.unflatten(0, (-1, 1))), BLOCK),
    "transpose": each(lambda x: (x.transpose(0, -1), x.transpose(-2, 1)), BLOCK, BLOCK > 0) + each(lambda x: x.transpose(0, -1), POINT),
    "permute": each(lambda x: x.permute(-1, 0, 1), BLOCK) + each(lambda x: x.permute(()), POINT),
    "t": each(arete.t, X, X[0], POINT),
    "squeeze": [*each(lambda x: (x.squeeze(), x.squeeze(0), x.squeeze(-1), x.squeeze((0, 1)), x.squeeze(())), BLOCK[:1, :1], BLOCK),
                *each(lambda x: (x.squeeze(), x.squeeze(0)), POINT)],
    "unsqueeze": each(lambda x: (x.unsqueeze(0), x.unsqueeze(-1)), X, POINT),
    "expand": each(lambda x: (x.expand(5, 3, 4), x[:, :1].expand(-1, 4), x[None, :0].expand(3, 0, 4)), X)
    + each(lambda x: x.expand(3), POINT),
    "repeat": each(lambda x: (x.repeat(2, 1), x.repeat(2, 1, 3), x.repeat(0, 1)), X) + each(lambda x: x.repeat(2), POINT),
    "as_strided": each(lambda x: ((x.flatten() * 1).as_strided((3, 4), (4, 1)), x * tensor(2.0), x * tensor([[1, 2, 3, 4]])), X),
    "select": each(lambda x: (x[1], x.select(-1, -2)), BLOCK, BLOCK > 0),
    "slice": each(lambda x: (x[:, 1:], x[..., -2:], x[:, :-1, ::2], x[5:], x[:, -9:2], x[1:0]), BLOCK),
    "narrow": each(lambda x: (x.narrow(1, 1, 2), x.narrow(-1, -3, 2), x.narrow(2, -2, 2), x.narrow(0, 2, 0)), BLOCK),
    "cat": [(lambda a, b: (arete.cat((a, b)), arete.cat((a, b), -1), arete.cat((a[:0], a)), arete.cat((tensor([]), a))), (X, X.double())),
            (lambda a, b: arete.cat((a, b)), (I64, X[0]))],
    "stack": [(lambda a: (arete.stack((a, a * 2)), arete.stack((a, a), -1)), (X,)), (lambda a: arete.stack((a, a + 1)), (POINT,)),
              (lambda a, b: arete.stack((a, b)), (I64, X[0]))],
    "split": each(lambda x: (x.split(2, 1), x.split(9), x.split(1, -1)), BLOCK),
    "chunk": each(lambda x: (x.chunk(2, -2), x.chunk(9)), BLOCK),
    "split_with_sizes": each(lambda x: x.split([1, 0, 2], 1), BLOCK),
    "unbind": each(lambda x: (x.unbind(), x.unbind(-1)), BLOCK, BLOCK[:1]),
    "to_copy": [*each(lambda x: [x.to(getattr(arete, d)) for d in "float64 float16 int64 int32 int16 bool".split()], X, I8, TRUTHS),
                *each(lambda x: (x.to(arete.int8), x.to(arete.uint8), x.float()), *WHOLE), *each(lambda x: x.clone(), X)],
    "to": each(lambda x: (x.to(arete.float32), x.to(memory_format=arete.contiguous_format)), X, X.double()),
    "contiguous": each(lambda x: (x.contiguous().view(-1), x.t().contiguous(), x.sum().contiguous()), X, I8),
    "copy": each(lambda x: ((x * 1).copy_(x[:1]), (x * 1).copy_(x[0] > 0)), X, X.long()),
    **{name: each(lambda x, name=name: getattr(F, name)(x, 0.3, training=False), IMAGES if name == "dropout3d" else BLOCK)
       for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")},
    "pad": each(lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 2, 1, -1), value=7), F.pad(x, (0, 0, 0, 0, 1, 1), value=-2)),
                BLOCK, BLOCK.long()),
    "constant_pad_nd": each(lambda x: arete.constant_pad_nd(x, (1, -1), 3), X, X.int()),
    "tril": each(lambda x: (x.tril(), x.tril(1), x.tril(-1)), BLOCK, BLOCK > 0, X.to(arete.int8), X.long()),
    "triu": each(lambda x: (x.triu(), x.triu(1), x.triu(-1)), BLOCK, BLOCK > 0, X.abs().to(arete.uint8)),
}

PLACES = {
    "embedding": [(lambda i: (F.embedding(i, X), F.embedding(i, X, padding_idx=1), F.embedding(i.int(), X)), (tensor([[0, 2], [1, 1]]),))],
    "index_select": [(lambda x: (x.index_select(1, tensor([2, 0])), x[:, tensor([0, -1])], x[:, :, tensor([[0, 1]])]), (BLOCK,))],
    "gather": [(lambda x: (x.gather(-1, arete.ones(2, 3, 2).long()), x.gather(0, arete.ones(1, 2, 2).long())), (BLOCK,))],
    "one_hot": [(lambda i: F.one_hot(i, 4), (tensor([[0, 3], [1, 1]]),))],
}

REDUCTIONS = {
    **{name: [*reductions(name, X, I64, *rest),
              *each(lambda x, name=name: (getattr(x, name)(dtype=arete.float64), getattr(x, name)()), I32)]
       for name, rest in {"sum": [U8, TRUTHS, HALF / 100], "prod": [U8, TRUTHS]}.items()},
    "mean": [*reductions("mean", X, HALF / 100), *each(lambda x: x.mean(dtype=arete.float64), X, I64)],
    "amax": reductions("amax", X, U8, I8, I32, I64), "amin": reductions("amin", X, U8, I8, I32, I64),
    "argmax": [*reductions("argmax", X, U8, I64), *each(lambda x: x.argmax(keepdim=True), BLOCK, POINT)],
    "argmin": [*reductions("argmin", X, U8, I64), *each(lambda x: x.argmin(keepdim=True), BLOCK)],
    "max": each(lambda x: x.max(), X, I64, U8), "min": each(lambda x: x.min(), X, I64, U8),
    "max.dim": each(lambda x: (*x.max(0), *x.max(-1, keepdim=True)), X, I64, U8, POINT),
    "min.dim": each(lambda x: (*x.min(0), *x.min(-1, keepdim=True)), X, I64, U8, POINT),
    "topk": each(lambda x: (*x.topk(2), *x.topk(3, 0, largest=False)), X) + each(lambda x: (*x.topk(1),), I64),
    "cumsum": each(lambda x: (x.cumsum(0), x.cumsum(-1, dtype=arete.float64)), X, I32, TRUTHS, U8, POINT),
    "softmax": each(lambda x: (x.softmax(0), x.softmax(-1, dtype=arete.float32)), X, X.half())
    + each(lambda x: x.softmax(0, dtype=arete.float32), I64),
    "log_softmax": each(lambda x: (x.log_softmax(0), x.log_softmax(-1)), X, X.half()),
    "logsumexp": [*each(lambda x: (x.logsumexp(-1), x.logsumexp(0, keepdim=True)), X, I64, POINT),
                  *each(lambda x: (x.logsumexp(0), (x * 900).logsumexp((0, 1)), (x * INF).logsumexp(0)), X.abs()),
                  *each(lambda x: (x.logsumexp(0), (x.abs() * -INF).logsumexp(0)), HALF)],
    "var": each(lambda x: (x.var(), x.var(0), x.var((0, 1), keepdim=True), x.var(1, correction=0), x[:1].var(0), x.var(0, correction=5)), X)
    + each(lambda x: (x[:3] * 0.9).var(0), HALF),
    "std": each(lambda x: (x.std(), x.std(-1, correction=2), x.std((0, 1), keepdim=True), x.std((0, 1), unbiased=False)), X),
}
for name in ("sum", "mean", "amax", "amin", "logsumexp"):
    REDUCTIONS[name] += each(lambda x, name=name: (getattr(x, name)((0, -1)), getattr(x, name)((), keepdim=True)), BLOCK)

MADE = {
    "full": [(lambda: (arete.full((2, 3), 7), arete.full((), 0.5), arete.full((2,), True), arete.full((0, 2), -1, dtype=arete.int8)), ())],
    "zeros": [(lambda: (arete.zeros(2, 3), arete.zeros(2, dtype=arete.bool)), ())],
    "ones": [(lambda: (arete.ones(2), arete.ones(2, 2).long()), ())],
    "full_like": each(lambda x: (arete.full_like(x, 7), arete.full_like(x, 2.5, dtype=arete.float64)), X, U8, POINT),
    "zeros_like": each(lambda x: (arete.zeros_like(x), arete.zeros_like(x, dtype=arete.int32)), X, TRUTHS, POINT),
    "ones_like": each(lambda x: (arete.ones_like(x), arete.ones_like(x, dtype=arete.int32)), X, TRUTHS),
    "new_zeros": each(lambda x: x.new_zeros(2, 3), X, U8), "new_ones": each(lambda x: x.new_ones((2,), dtype=arete.float64), U8),
    "new_full": each(lambda x: x.new_full((2,), 3), X, U8),
    "fill": each(lambda x: ((x * 1).fill_(3), (x * 1).zero_()), X, U8, POINT),
    "arange.start": [(lambda: (arete.arange(5), arete.arange(5, 1, -2), arete.arange(1, 4, dtype=arete.float16), arete.arange(0, 0.3, 0.1),
                               arete.arange(-1, 1, 0.1), arete.arange(250, 260, dtype=arete.uint8), arete.arange(3.1, dtype=arete.int32),
                               arete.arange(0, 5.5, dtype=arete.int64), arete.arange(0.0)), ())],
}

NORMS = {
    "batch_norm": [(lambda x, m, v: (F.batch_norm(x, m, v), F.batch_norm(x, m, v, m, v, eps=0.1, momentum=0.7)),
                    (BLOCK, X[:, 0], X[:, 1].abs())),
                   (lambda x, m, v: F.batch_norm(x, m, v), (X, X[0], X[1].abs()))],
    "batch_norm_relu": [(nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()).eval(), (IMAGES,))],
    "layer_norm": [(lambda x: (F.layer_norm(x, (4,)), F.layer_norm(x, (3, 4), X, X * 2, 0.1), F.layer_norm(x, (4,), None, X[0])),
                    (BLOCK,))],
    "rms_norm": [(lambda x: (F.rms_norm(x, (4,)), F.rms_norm(x, (3, 4), X, 0.1)), (BLOCK,)),
                 (lambda x: F.rms_norm(x, (6,), x), (HALF / 100,))],
    "group_norm": [(lambda x: (F.group_norm(x, 2), F.group_norm(x, 4, weights(4), weights(4) + 1, 0.1), F.group_norm(x, 1)), (IMAGES,)),
                   (lambda x: F.group_norm(x, 2), (X,))],
    "prelu": [(F.prelu, (X, tensor([0.3]))), (F.prelu, (BLOCK, tensor([0.3, -1.0, 2.0]))),
              (F.prelu, (X[0], tensor([0.3]))), (F.prelu, (POINT, tensor([0.3])))],
    "recurrent_direction": [(layer, (BLOCK,)) for layer in (
        nn.LSTM(4, 3, bidirectional=True), nn.GRU(4, 3, bias=False), nn.GRU(4, 2, 2), nn.RNN(4, 3),
        nn.RNN(4, 3, nonlinearity="relu", bidirectional=True))],
}

ROWS, EQUAL = tensor([[0, 2], [1, 0], [3, 3]]), tensor([[2.0, 1, 2, 1], [0, 0, 3, 3], [1, 1, 1, 1]])
WRITTEN = {
    "scatter": [(lambda x, s: (x.scatter(1, ROWS, s), x.scatter(0, ROWS[:2] % 3, s)), (X, X * 10)),
                (lambda x: (x.scatter(1, ROWS[:, :1], x, reduce="add"), x.scatter(1, ROWS[:, :1], x, reduce="multiply")), (X,))],
    "scatter.value": each(lambda x: (x.scatter(1, ROWS, 7), x.scatter(0, ROWS % 3, -1)), X, I64.expand(3, 4)),
    "scatter_add": each(lambda x: (x.scatter_add(1, ROWS, x), x.scatter_add(0, ROWS[:2] % 3, x)), X, I64.expand(3, 4)),
    "scatter_reduce": each(lambda x: tuple(x.scatter_reduce(1, ROWS, x * 2, how) for how in ("sum", "prod", "amax", "amin")), X),
    "index_add": [(lambda x, s: (x.index_add(1, tensor([2, 2]), s[:, :2]), x.index_add(0, tensor([1, 0, 1]), s, alpha=0.5)), (X, X * 10))],
    "index_copy": [(lambda x, s: (x.index_copy(1, tensor([2, 0]), s[:, :2]), x.index_copy(-2, tensor([1]), s[:1])), (X, X * 10))],
    "index_fill": each(lambda x: (x.index_fill(1, tensor([2, 0]), 7), x.index_fill(0, tensor([1]), 3)), X, I64.expand(3, 4)),
    "ordered_select": each(lambda x: (x[tensor([2, 0])], x[:, tensor([True, False, True, True])], x[..., tensor([-1, 0])]), X),
    "flat_nonzero": each(lambda x: (x[tensor([True, False, True])], x[tensor([[True, False, True, True]] * 3)]), X),
    "flat_index": each(lambda x: (x[tensor([0, -1]), tensor([2, -1])], x[:, tensor([[1], [0]]), tensor([0, -1, 1])]), BLOCK),
}
ORDERS = {
    "sort": each(lambda x: (*x.sort(), *x.sort(0, descending=True, stable=True)), X, EQUAL) + each(lambda x: (*x.sort(),), I64),
    "flip": each(lambda x: (x.flip(0), x.flip(0, -1), x.flip(())), X, I64.expand(3, 4)),
    "roll": each(lambda x: (x.roll(1), x.roll(-5, 1), x.roll((1, 2), (0, -1)), x.roll(4, 1)), X),
    "repeat_interleave": each(lambda x: (x.repeat_interleave(2), x.repeat_interleave(3, 0), x.repeat_interleave(2, -1)), X),
    "unfold": each(lambda x: (x.unfold(1, 3, 1), x.unfold(-1, 2, 2), x.unfold(0, 2, 1)), BLOCK, X),
    "diagonal": each(lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-1), x.diagonal(0, -1, 0)), BLOCK, X),
    "bucketize": each(lambda x: (arete.bucketize(x, tensor([-1.0, 0.25, 1.0])), arete.bucketize(x, tensor([0.25]), right=True)), X),
    "searchsorted": each(lambda x: (arete.searchsorted(tensor([-1.0, 0.25]), x), arete.searchsorted(tensor([0.25, 1]), x, side="right"),
                                    arete.searchsorted(tensor([0.25, 1]), x, out_int32=True)), X),
}
NUMBERS = {
    "floor_divide": [(lambda x, y: (x // y, x // 3, x // -0.7), (X, X.flip(0) + 0.1)), (lambda x: (x // 3, x // -2, 9 // (x + 6)), (I64,)),
                     (lambda x: x // 7, (HALF,))],
    "trunc": each(lambda x: x.trunc(), X, HALF, I64), "frac": each(lambda x: x.frac(), X),
    "norm": each(lambda x: tuple(x.norm(p, d, k) for p in (0, 1, 2, 3, INF, -INF) for d, k in ((None, False), (0, True), (-1, False))), X)
    + each(lambda x: (x / 100).norm(), HALF),
    "linalg_det": each(arete.linalg.det, X[:, :3], X.repeat(2, 1).view(2, 3, 4)[..., 1:]),
    "dot": [(lambda x, y: x.dot(y), (UNIT, UNIT * 2))],
    "linspace": [(lambda: (arete.linspace(-1, 1, 5), arete.linspace(0, 3, 1), arete.linspace(2, -2, 4, dtype=arete.float64)), ())],
    "glu": each(lambda x: (F.glu(x), F.glu(x[:2], 0)), X, X.half()),
    "cosine_similarity": [(lambda x, y: (F.cosine_similarity(x, y), F.cosine_similarity(x, y, 0, 10.0), F.cosine_similarity(x, y[0])),
                           (X, X.flip(1)))],
}
PICTURES = {
    "interpolate": [(lambda x, m=m, more=more: (F.interpolate(x, (9, 5), mode=m, **more),
                                                F.interpolate(x, scale_factor=(1.7, 0.6), mode=m, **more),
                                                F.interpolate(x, scale_factor=1.3, mode=m, recompute_scale_factor=True, **more)), (IMAGES,))
                    for m, more in (("nearest", {}), ("nearest-exact", {}), ("bilinear", {}), ("bilinear", {"align_corners": True}),
                                    ("bicubic", {}), ("bicubic", {"align_corners": True}))]
    + [(lambda x: (F.interpolate(x, (3, 2), mode="bilinear", antialias=True), F.interpolate(x[:, :, 0], 9, mode="linear"),
                   F.interpolate(x[:, :, 0], 11), F.interpolate(x.view(2, 2, 2, 7, 6), (3, 5, 9), mode="trilinear")), (IMAGES,))],
    "upsample_nearest": each(lambda x: F.upsample_nearest(x, scale_factor=2), IMAGES),
    "upsample_bilinear": each(lambda x: F.upsample_bilinear(x, (9, 5)), IMAGES),
    "grid_sample": [(lambda x, g, m=m, p=p, a=a: F.grid_sample(x, g, m, p, a), (IMAGES, weights(2, 3, 5, 2) * 2.4))
                    for m in ("bilinear", "nearest") for p in ("zeros", "border", "reflection") for a in (False, True)],
    "instance_norm": each(lambda x: (F.instance_norm(x), F.instance_norm(x, weight=weights(4), bias=weights(4), eps=0.1)), IMAGES),
    "local_response_norm": each(lambda x: (F.local_response_norm(x, 3), F.local_response_norm(x, 1, 0.1, 0.5, 2.0)), IMAGES),
}
for _rank in (1, 2, 3):
    PICTURES |= {
        f"adaptive_max_pool{_rank}d": each(lambda x, r=_rank: getattr(F, f"adaptive_max_pool{r}d")(x, 1), windows(_rank)),
        f"max_pool{_rank}d_with_indices": each(
            lambda x, r=_rank: (*getattr(F, f"max_pool{r}d")(x, 2, return_indices=True),
                                *getattr(F, f"max_pool{r}d")(x, 2, 1, 1, return_indices=True)), windows(_rank))}

CASES = {**ONE, **LAYERS, **TWO, **PRODUCTS, **SHAPES, **PLACES, **REDUCTIONS, **MADE, **NORMS, **WRITTEN, **ORDERS, **NUMBERS, **PICTURES}
for _rank in (1, 2, 3):
    CASES |= {**convolutions(_rank), **transposed(_rank), **pools(_rank)}

# No call from Python records these: others take their place, or they are parts of others.
NOT_RECORDED = {"T", "mT", "expand_as", "reshape_as", "view_as", "gelu_erf", "gelu_tanh", "index", "masked_fill.Tensor", "prelu_kernel",
                "clamp_point", "clamp_min_point", "clamp_max_point"}


@pytest.mark.parametrize("name", CASES)
def test_operator(name, monkeypatch):
    from arete.onnx._operators import HANDLERS

    arete.onnx.supported_operators()  # all of them are there
    called, handler = [], HANDLERS[name]
    monkeypatch.setitem(HANDLERS, name, lambda g, c: (called.append(1), handler(g, c))[1])
    for k, (f, args) in enumerate(CASES[name]):
        what = f"{name}, case {k}, {[f'{x.dtype} {tuple(x.shape)}' for x in args]}"
        try:
            run = session(f, args)
        except Exception as e:  # noqa: BLE001
            raise AssertionError(f"{what}: {e}") from e
        same(run, f, args, what)
    assert called


def test_every_operator_has_cases():
    assert set(arete.onnx.supported_operators()) == {*CASES, *NOT_RECORDED}


@pytest.mark.parametrize("name", ["log1p", "expm1"])
def test_small_numbers(name):
    """1 + x and exp(x) are 1 for such numbers, and the logarithm and the difference would be 0."""
    x = tensor([1e-10, -1e-10, 3e-8, 1e-4, -1e-4, 0.3, -0.3, -0.99, 0.0, 2.0, 80.0, INF, -1.0 if name == "log1p" else -INF])
    f = getattr(arete, name)
    run = session(f, (x,))
    got, = run.run(None, {run.get_inputs()[0].name: x.numpy()})
    arete.testing.assert_close(arete.from_numpy(got), f(x), rtol=1e-6, atol=0)


COMPOSED = {
    "products": (lambda x: (arete.einsum("ij,kj->ik", x, x), arete.outer(x[0], x[1]), *arete.meshgrid(x[0], x[1], indexing="ij")), X),
    "pictures": (lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :6, :6], 2), F.channel_shuffle(x, 2),
                            F.normalize(x), F.affine_grid(x[:, 0, :2, :3], (2, 4, 5, 3))), IMAGES),
    "writes in the middle": (lambda x: arete.einsum("ij->ji", (x * 1).add_(1)).contiguous().mul_(2), X),
    "means": (lambda x: (x.scatter_reduce(1, ROWS, x, "mean"), F.one_hot(tensor([0, 2])) * x[0, 0]), X),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_operators_that_are_composed_of_others(name):
    f, x = COMPOSED[name]
    same(session(f, (x,)), f, (x,))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding(mode):
    def f(x):
        return F.pad(x, (1, 2), mode=mode), F.pad(x[None], (2, 1, 1, 0), mode=mode)

    same(session(f, (BLOCK,), opset_version=19), f, (BLOCK,))


IN_PLACE = {
    "a chain": lambda x: (x * 1).add_(1).mul_(2).sub_(x).clamp_(0, 1).relu_().neg_().abs_().exp_().sqrt_().pow_(2).tanh_().sigmoid_(),
    "truths": lambda x: ((x * 1).eq_(1.25), (x * 1).lt_(0), (x * 1).logical_not_(), (x * 1).logical_and_(x > 0)),
    "masks": lambda x: ((x * 1).masked_fill_(x > 0, 7), (x * 1).tril_(), (x * 1).cumsum_(1), (x * 1).round_()),
    "shapes": lambda x: ((x * 1).t_(), (x[:1] * 1).squeeze_(0), (x * 1).unsqueeze_(0), (x * 1).transpose_(0, 1)),
    "wider operands": lambda x: ((x.abs() * 50).to(arete.uint8).remainder_(tensor([300, 7, 5, 9])), x.half().mul_(tensor(1e-6)).mul_(1e6)),
    "a view that is the last one": lambda x: F.relu(F.dropout((x * 1).flatten(), training=False), inplace=True),
    "results and inputs": lambda x: (x, x, (x * 1).copy_(x[0]), x.detach()),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    same(session(IN_PLACE[name], (X,)), IN_PLACE[name], (X,))


def after(write):
    """A function that writes into a tensor, and gives the tensor, too."""
    def f(x):
        y = x * 1
        return write(y), y
    return f


SHARED = [after(f) for f in (
    lambda y: y.view(-1).add_(1), lambda y: y[0].fill_(0), lambda y: y.split(1)[0].mul_(2),
    lambda y: y.reshape_as(arete.ones(4, 3)).zero_(),
    lambda y: (lambda v: (F.dropout(y, training=False).add_(1), v))(y.t()))]
REFUSED = {
    "writes into memory that other values show": SHARED,
    "writes into an input or a constant": [lambda x: x.add_(1), lambda x: x[0].mul_(2), lambda x: x.detach().zero_()],
    "the whole of a new list": [
        lambda x: x.as_strided((2, 2), (2, 1)), lambda x: (x.flatten() * 1).as_strided((4, 3), (1, 4)),
        lambda x: (x.flatten() * 1)[:4].as_strided((2, 2), (2, 1)), lambda x: (x.flatten() * 1).as_strided((2, 2), (2, 1), 1)],
    "with dropout": [lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)],
    "with enable_gqa": [lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], enable_gqa=True)],
    "evaluation only": [
        lambda x: F.dropout(x), lambda x: F.batch_norm(x, x[0], x[0], training=True), lambda x: F.alpha_dropout(x, training=True)],
    "max_norm": [lambda x: F.embedding(tensor([1, 0]), x * 1, max_norm=1.0)],
    "below opset_version 19": [lambda x: F.pad(x, (1, 1), mode="circular")],
    "without the values that are there": [lambda x: x.scatter_reduce(1, ROWS, x, "amax", include_self=False)],
    "no counterpart of the operator 'nonzero ": [lambda x: x.nonzero()],
    "a mask that is a constant only": [lambda x: x[x > 0]],
    "divisor_override": [lambda x: F.avg_pool2d(x[None, None], 2, divisor_override=3)],
    "divide the input's": [lambda x: F.adaptive_avg_pool1d(x[None], 3)],
    "output_padding below the stride": [lambda x: F.conv_transpose1d(x[None], x[..., None], stride=1, dilation=2, output_padding=1)],
    "with batches": [lambda x: F.max_pool1d(x, 2), lambda x: F.avg_pool1d(x, 2), lambda x: F.conv_transpose1d(x, x[..., None])],
    "one exponent for all": [lambda x: x.long() ** x.abs().long(), lambda x: 2 ** x.abs().long()],
    "num_classes": [lambda x: F.one_hot(x.long().abs())],
    "tensors with dimensions only": [lambda x: x.sum().softmax(0), lambda x: x.sum().topk(1)[0]],
    "complex64, which the model cannot have": [lambda x: x.to(arete.complex64)],
    "no counterpart that ONNX takes": [lambda x: x.to(arete.uint8) @ x.to(arete.uint8).mT, lambda x: (x > 0).amax(0)],
    "no counterpart of the operator 'special_i1": [arete.special.i1],
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(why):
    onnx.helper.make_opsetid("", 18)  # skips where it is missing
    for f in REFUSED[why]:
        with pytest.raises(NotImplementedError, match=why):
            arete.onnx.export(Function(f), (X.clone(),))


DYNAMIC = {
    "shapes": lambda x: (x.view(x.shape[0], -1), x.view(x.shape[0] * 3, -1), x.reshape(-1), x.flatten(1), x.expand(2, *x.shape),
                         x.repeat(2, 1, 1), x.transpose(0, 1), x.squeeze(), x[-1], x[1:], x[:-1], x[x.shape[0] - 1],
                         x[:1].expand_as(x), x.chunk(2, 1)),
    "narrow": lambda x: (x.narrow(0, -2, 2), x.narrow(0, x.shape[0] - 2, 1), x.narrow(0, 1 - x.shape[0], 1), x.narrow(1, -3, 2)),
    "made": lambda x: (arete.zeros(x.shape[0], 2), arete.full((x.shape[0] * 2,), x.shape[0]), arete.ones_like(x), arete.arange(x.shape[0]),
                       arete.arange(0, x.shape[0], 0.5), arete.arange(x.shape[0], dtype=arete.float32) / x.shape[0],
                       arete.arange(0, x.shape[0], 2), arete.ones(x.shape[0], x.shape[0]).tril() == 0),
    "numbers": lambda x: (x * x.shape[0], x.sum() / x.shape[0], x > x.shape[0] - 3, x.clamp(max=x.shape[0] - 3), x.long() % x.shape[0],
                          x.int() < x.shape[0], x.abs().to(arete.uint8) + x.shape[0], x.half() + x.shape[0],
                          x.masked_fill(x > 0, x.shape[0])),
    "reductions": lambda x: (x.var(), x.var(0), x.std((0, 1), correction=2), x.var(correction=0), x.logsumexp(0), x.mean(0), x.argmax(),
                             x.argmax(keepdim=True), x.cumsum(0), x.flatten().topk(x.shape[0])[0], x.softmax(0)),
    "places": lambda x: (F.pad(x, (0, 0, 0, 0, x.shape[0], 1)), x[:, tensor([0, 2])], F.one_hot(arete.arange(x.shape[0]), x.shape[0]),
                         arete.cat((x, x)).view(2, -1), (x * 1).fill_(2), (x * 1).copy_(x[:1])),
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_that_differ(name):
    run = session(DYNAMIC[name], (BLOCK.repeat(2, 1, 1),), input_names=["x"], dynamic_axes={"x": {0: "n"}})
    for n in (4, 2, 7):
        x = arete.randn(n, 3, 4)
        same(run, DYNAMIC[name], (x,), n)


@pytest.mark.parametrize("opset", [18, 19, 20, 21])
def test_operator_sets(opset):
    for name in ("avg_pool2d", "max_pool1d", "relu", "gelu", "group_norm", "pad", "var", "cat", "split", "to_copy"):
        for f, args in CASES[name]:
            same(session(f, args, opset_version=opset), f, args, name)
