"""scaled_dot_product_attention in bands of the scores: beside the one that stores them all and beside PyTorch, and in
memory that grows with the length, not with its square."""
import subprocess
import sys

import numpy as np
import pytest
from device_helpers import PEAK
from peer import peer

import arete
from arete.nn.attention import SDPBackend, sdpa_kernel

torch = peer()
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
attention = arete.nn.functional.scaled_dot_product_attention
TOLERANCE = {"float64": 1e-10, "float32": 2e-5, "bfloat16": 3e-2, "float16": 4e-3}


def lengths(device):
    """Queries and keys whose scores, for some heads, are more than a device has at one time."""
    return (640, 600) if device == "cpu" else (1700, 1600)


def random(*sizes, seed=0, dtype="float32", device="cpu"):
    x = arete.tensor(np.random.default_rng(seed).standard_normal(sizes, dtype=np.float32), device=device)
    return x.to(getattr(arete, dtype)).requires_grad_()


def operators_of(call):
    with arete.profiler.profile() as p:
        call()
    return {e.key for e in p.key_averages()}


def both(inputs, mask=None, seed=7, in_bands=True, **more):
    """Output and gradients in bands and with all scores stored."""
    needed = [t for t in (*inputs, mask) if t is not None and t.requires_grad]
    found = []
    for backends in [list(SDPBackend.__members__.values())[1:], SDPBackend.MATH]:
        with sdpa_kernel(backends):
            arete.manual_seed(seed)
            out = attention(*inputs, mask, **more)
            grad = arete.cos(arete.arange(out.numel(), device=out.device)).reshape(out.shape).to(out.dtype)
            found.append([out.detach(), *arete.autograd.grad(out, needed, grad)])
    return [[t.double().cpu().numpy() for t in part] for part in found]


def assert_close(found, expected, dtype="float32"):
    for mine, theirs in zip(found, expected):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=TOLERANCE[dtype] * max(1, np.abs(theirs).max(initial=0)))


CASES = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.4},
    "dropout": {"dropout_p": 0.3},
    "causal, dropout": {"is_causal": True, "dropout_p": 0.5},
    "nothing stays": {"dropout_p": 1.0},
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_bands_are_the_whole(case, dtype, device):
    """With the same random numbers."""
    rows, keys = lengths(device)
    inputs = [random(2, 4, n, d, seed=i, dtype=dtype, device=device) for i, (n, d) in enumerate([(rows, 20), (keys, 20), (keys, 9)])]
    assert_close(*both(inputs, **CASES[case]), dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["bool", "float", "gradient"])
@pytest.mark.parametrize("shape", ["ls", "1l1", "b11s", "bhls", "1hls", "b1ls"])
def test_masks(shape, kind, device):
    rows, keys = lengths(device)
    sizes = [{"b": 3, "h": 5, "l": rows, "s": keys, "1": 1}[c] for c in shape]
    mask = random(*sizes, seed=4, device=device)
    if kind == "bool":
        mask = mask.detach() > -0.5
        if sizes[-1] > 1:
            mask[..., :1, :] = False  # rows that see nothing
    elif kind == "float":
        mask = mask.detach().masked_fill(mask.detach() > 1, float("-inf"))
    inputs = [random(3, 5, n, 16, seed=i, device=device) for i, n in enumerate([rows, keys, keys])]
    for p in (0.0, 0.2):
        assert_close(*both(inputs, mask, dropout_p=p))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dim", [64, 72])
def test_heads_of_whole_vectors(dim, dtype, device):
    """As they lie in a layer: heads inside of rows. Masks, dropout and heads that are shared."""
    def heads(n, length, seed):
        return random(2, length, n, dim, seed=seed, dtype=dtype, device=device).detach().transpose(1, 2).requires_grad_()

    rows, keys = lengths(device)
    inputs = [heads(4, rows, 0), heads(4, keys, 1), heads(4, keys, 2)]
    mask = random(rows, keys, seed=3, device=device).detach()
    for more in ({"mask": mask > -0.5}, {"mask": mask.to(getattr(arete, dtype))}, {"mask": mask[:1] > 0, "dropout_p": 0.2}):
        assert_close(*both(inputs, **more), dtype)
    assert_close(*both([inputs[0], heads(2, keys, 1), heads(2, keys, 2)], is_causal=True, enable_gqa=True, dropout_p=0.3), dtype)


@pytest.mark.skipif(not arete.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_few_scores_take_one_kernel_on_gpus(dtype):
    q = random(2, 3, 9, 16, dtype=dtype, device="cuda")
    for more in ({}, {"attn_mask": arete.ones(9, 9, dtype=arete.bool, device="cuda")}):
        assert "fused_attention" in operators_of(lambda: attention(q, q, q, **more))
    dropped = operators_of(lambda: attention(q, q, q, dropout_p=0.5))
    assert ("fused_attention" in dropped) == (dtype == "float32")
    bias = arete.zeros(9, 9, device="cuda").to(q.dtype).requires_grad_()
    assert "fused_attention" not in operators_of(lambda: attention(q, q, q, bias))


@pytest.mark.parametrize("device", DEVICES)
def test_few_queries_of_many_keys(device):
    """As when a model generates: one query for each head, heads that share keys, masks of what is padding."""
    for dtype, dim, heads, shared, queries, keys in (("float32", 128, 16, 16, 1, 4097), ("bfloat16", 128, 32, 8, 1, 1504),
                                                     ("float32", 64, 8, 2, 1, 999), ("float16", 80, 4, 4, 3, 2050),
                                                     ("bfloat16", 64, 6, 3, 1, 40)):
        q = random(2, heads, queries, dim, dtype=dtype, device=device)
        k, v = (random(2, shared, keys, dim, seed=s, dtype=dtype, device=device) for s in (1, 2))
        padding = arete.arange(keys, device=device) < arete.tensor([keys, keys // 3], device=device).reshape(2, 1, 1, 1)
        each = random(2, heads, queries, keys, seed=3, dtype=dtype, device=device)
        for mask in (None, padding, each):
            with arete.no_grad(), sdpa_kernel(SDPBackend.MATH):
                expected = attention(q, k, v, mask, enable_gqa=heads != shared)
            with arete.no_grad():
                found = attention(q, k, v, mask, enable_gqa=heads != shared)
            assert_close([found.double().cpu().numpy()], [expected.double().cpu().numpy()], dtype)
    # What the backward pass takes from the forward one.
    inputs = [random(2, 8, 1, 64, device=device), *(random(2, 2, 999, 64, seed=s, device=device) for s in (1, 2))]
    assert_close(*both(inputs, enable_gqa=True))


@pytest.mark.parametrize("device", DEVICES)
def test_shapes(device):
    rows, keys = lengths(device)

    def check(q, k, v, **more):
        both_ways = both([random(*sizes, seed=i, device=device) for i, sizes in enumerate([q, k, v])], **more)
        assert_close(*both_ways)

    check((12, rows, 8), (12, keys, 8), (12, keys, 8))  # no heads
    check((2, 3, 2, rows, 8), (2, 3, 2, keys, 8), (2, 3, 2, keys, 4))  # more dimensions
    check((4, 3, rows, 8), (3, keys, 8), (4, 1, keys, 8))  # batches that broadcast
    check((2, 6, rows, 8), (2, 2, keys, 8), (2, 2, keys, 4), enable_gqa=True, is_causal=True)
    check((6, rows, 8), (3, keys, 8), (3, keys, 4), enable_gqa=True, dropout_p=0.5)
    check((8, rows, 1), (8, keys, 1), (8, keys, 3))
    check((8, rows, 3), (8, keys, 3), (8, keys, 0))
    check((9, 16 * rows, 4), (9, 30, 4), (9, 30, 4), is_causal=True)  # most rows see all keys
    check((9, 30, 4), (9, 16 * keys, 4), (9, 16 * keys, 4), is_causal=True)  # nobody sees most keys


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sizes_of_zero(dtype, device):
    for q, k in [((2, 0, 5, 8), (2, 0, 5, 8)), ((0, 2, 5, 8), (0, 2, 5, 8)), ((2, 2, 0, 8), (2, 2, 5, 8)), ((2, 2, 5, 8), (2, 2, 0, 8))]:
        q, k, v = (random(*sizes, dtype=dtype, device=device) for sizes in (q, k, k))
        for more in ({}, {"is_causal": True}, {"dropout_p": 0.5}):
            out = attention(q, k, v, **more)
            assert out.shape == q.shape and not out.any()
            out.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_the_lowest_number_see_all_keys(dtype, device):
    q, k, v = (random(2, 9, 16, seed=i, dtype=dtype, device=device).detach() for i in range(3))
    mask = arete.zeros(9, 9, dtype=q.dtype, device=device)
    mask[3] = arete.finfo(mask.dtype).min
    assert_close([attention(q, k, v, mask)[:, 3].double().cpu().numpy()], [v.double().mean(1).cpu().numpy()], dtype)


def test_bands_are_taken_where_scores_are_many():
    rows, keys = lengths("cpu")
    q, k = random(8, rows, 8), random(8, keys, 8)
    assert "fused_attention" in operators_of(lambda: attention(q, k, k))
    assert "fused_attention" not in operators_of(lambda: attention(q[:1, :9], k[:1, :9], k[:1, :9]))
    with sdpa_kernel(SDPBackend.MATH):
        assert "fused_attention" not in operators_of(lambda: attention(q, k, k))


@pytest.mark.parametrize("device", DEVICES)
def test_heads_lie_as_those_of_the_queries(device):
    rows, _ = lengths(device)
    packed = random(2, rows, 3, 4, 16, device=device)  # heads beside each other, as a product of rows gives them
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    out = attention(q, k, v, is_causal=True)
    assert out.shape == q.shape and out.transpose(1, 2).is_contiguous()
    gradients = arete.autograd.grad(out.cos().sum(), (q, k, v))
    assert all(g.transpose(1, 2).is_contiguous() for g in gradients)
    dense = [t.detach().contiguous().requires_grad_() for t in (q, k, v)]
    other = attention(*dense, is_causal=True)
    assert other.is_contiguous()
    expected = [other, *arete.autograd.grad(other.cos().sum(), dense)]
    assert_close(*([t.detach().double().cpu().numpy() for t in some] for some in ([out, *gradients], expected)))
    assert attention(q[:, :1].expand(q.shape), k, v).is_contiguous()  # one head for several has no order
    q, k, v = (random(2, 3, rows, n, device=device) for n in (1, 1, 4))  # rows of one element are a step apart, as elements are
    assert attention(q, k, v).is_contiguous()


@pytest.mark.parametrize("device", DEVICES)
def test_second_derivatives(device):
    rows, keys = lengths(device)
    inputs = [random(8, n, 4, seed=i, dtype="float64", device=device) for i, n in enumerate([rows, keys, keys])]
    found = []
    for backends in (list(SDPBackend.__members__.values())[1:], SDPBackend.MATH):
        with sdpa_kernel(backends):
            arete.manual_seed(3)
            first = arete.autograd.grad(attention(*inputs, dropout_p=0.25).square().sum(), inputs, create_graph=True)
            second = arete.autograd.grad(sum(g.square().sum() for g in first), inputs)
            found.append([t.detach().cpu().numpy() for t in (*first, *second)])
    assert_close(*found, "float64")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("mask_grad", [True, False])
def test_the_same_bits_each_time(mask_grad, dtype, device):
    rows, keys = lengths(device)
    inputs = [random(2, 4, n, 16, seed=i, dtype=dtype, device=device) for i, n in enumerate([rows, keys, keys])]
    mask = random(rows, keys, seed=5, dtype=dtype, device=device).detach().requires_grad_(mask_grad)
    arete.use_deterministic_algorithms(True)
    try:
        first, again = (both(inputs, mask, dropout_p=0.5)[0] for _ in range(2))
    finally:
        arete.use_deterministic_algorithms(False)
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(torch is None, reason="no PyTorch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", ["plain", "causal", "mask", "bias"])
def test_beside_pytorch(case, dtype):
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((2, 6, n, 24)) for n in (510, 470, 470)]
    mask = {"mask": rng.random((510, 470)) > 0.3, "bias": rng.standard_normal((6, 510, 470))}.get(case)
    found = []
    for library, t in ((arete, dtype), (torch, "float64")):
        tensors = [library.tensor(a).to(getattr(library, dtype)).to(getattr(library, t)).requires_grad_() for a in arrays]
        m = None if mask is None else library.tensor(mask)
        if case == "bias":
            m = m.to(getattr(library, dtype)).to(getattr(library, t)).requires_grad_()
            tensors.append(m)
        out = library.nn.functional.scaled_dot_product_attention(*tensors[:3], m, is_causal=case == "causal")
        grads = library.autograd.grad(out, tensors, library.ones_like(out))
        found.append([x.detach().to(library.float64).numpy() for x in (out, *grads)])
    assert_close(*found, dtype)


LONG = PEAK + """
import arete
q, k, v = (arete.randn(1, 8, 2048, 32, dtype=arete.{dtype}).requires_grad_() for _ in range(3))
mask = {mask}
attend = arete.nn.functional.scaled_dot_product_attention
attend(q[:, :1], k[:, :1], v[:, :1]).sum().backward()  # what is made at the first call
before = peak()
attend(q, k, v, mask, {more}).sum().backward()
print((peak() - before) // 1024)
"""


@pytest.mark.parametrize("dtype, mask, more, limit", [
    ("float32", "None", "", 32),
    ("bfloat16", "None", "is_causal=True", 32),
    ("float32", "arete.rand(2048, 2048) > 0.2", "dropout_p=0.1", 32),
    ("float32", "arete.randn(1, 1, 2048, 2048).requires_grad_()", "", 80),  # the gradient is as large as the bias
])
def test_memory(dtype, mask, more, limit):
    """All scores would take 128 MiB, several times."""
    code = LONG.format(dtype=dtype, mask=mask, more=more)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert int(run.stdout) < limit, f"{run.stdout} MiB"


@pytest.mark.skipif(not arete.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("more", [{}, {"is_causal": True}, {"dropout_p": 0.1}, {"masked": True}])
def test_memory_on_gpus(more, dtype):
    """All scores would take a GiB or two, several times."""
    if "masked" in more:
        more = {"attn_mask": arete.rand(4096, 4096, device="cuda") > 0.2}
    q, k, v = (arete.randn(2, 16, 4096, 64, device="cuda").to(getattr(arete, dtype)).requires_grad_() for _ in range(3))
    attention(q, k, v, **more).sum().backward()
    arete.cuda.reset_peak_memory_stats()
    before = arete.cuda.memory_allocated()
    attention(q, k, v, **more).sum().backward()
    assert arete.cuda.max_memory_allocated() - before < 256 << 20  # output and four gradients take 160 MiB of float32
