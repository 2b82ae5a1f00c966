"""Random programs, called and compiled: with `exact` bit for bit, else in float64 up to the rounding of a few operations.

A program is a list of small functions over a pool of tensors, some of which are views of others, some written in place, with backward
passes and host reads in between. The same ones each time; with ARETE_FUZZ_SECONDS for so long. ARETE_FUZZ_SEED sets the first seed.
"""
from __future__ import annotations

import os
import random
import time

import fake_gpus
import pytest

import arete
from arete.nn import functional as F

SECONDS = float(os.environ.get("ARETE_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("ARETE_FUZZ_SEED", "0"))
KEPT = 8  # of the pool
DEVICE = os.environ.get("ARETE_TEST_DEVICE", "cpu")


def elementwise(r, pool, dtype):
    a, b = r.choice(pool), r.choice(pool)
    kind = r.randrange(12)
    if kind == 0:
        return F.gelu(a, approximate=r.choice(("none", "tanh")))
    if kind == 1:
        return a.sigmoid() * r.uniform(0.5, 2)
    if kind == 2:
        return arete.tanh(a) - 0.25
    if kind == 3:
        return arete.where(a > 0.1, a, 0.5 * a)
    if kind == 4:
        return a.to(r.choice((arete.float32, arete.float64))).to(dtype)
    if kind == 5:
        return F.relu(a)
    if kind == 6:
        return a.clamp(-1.5, 1.5).exp()
    if kind == 7:
        return a.square() + 0.1
    try:  # of shapes that fit together, or not
        return (a + b, a * b, a - 0.5 * b, a / (b.abs() + 1))[kind - 8]
    except RuntimeError:
        return a + 1


def rows(r, pool, dtype):
    a = r.choice(pool)
    if a.dim() == 0:
        return a * 2
    dims = r.sample(range(a.dim()), r.randint(1, a.dim())) if r.random() < 0.3 else [r.choice((-1, -1, -1, 0, a.dim() - 1))]
    keep = r.random() < 0.6
    kind = r.randrange(12)
    if kind == 0:
        return a.sum(dims, keepdim=keep)
    if kind == 1:
        return a.mean(dims, keepdim=keep)
    if kind == 2:
        return a.amax(dims, keepdim=keep)
    if kind == 3:
        return a - a.mean(dims, keepdim=True)
    if kind == 4:
        return a * arete.rsqrt(a.square().mean(-1, keepdim=True) + 1e-3)
    if kind == 5:
        return F.softmax(a, r.choice((-1, 0)))
    if kind == 6:
        return F.layer_norm(a, a.shape[-1:]) if a.shape[-1] > 1 else a + 1
    if kind == 7:
        e = (a - a.amax(-1, keepdim=True)).exp()
        return e / e.sum(-1, keepdim=True)
    if kind == 8:
        return arete.logsumexp(a, dims, keepdim=keep)
    if kind == 9:
        return (a > 0.1).sum(dims, keepdim=keep).to(dtype)  # not 0, about which gradients lie that are roundings alone
    if kind == 10:
        return F.layer_norm(a, a.shape[-1:], weight=a.detach().reshape(-1, a.shape[-1])[0]) if a.shape[-1] > 1 else a
    return a.var(dims, keepdim=True, correction=0).sqrt() + a


def shapes(r, pool, dtype):
    a = r.choice(pool)
    kind = r.randrange(9)
    if kind == 0 and a.dim() > 1:
        return a.transpose(0, -1)
    if kind == 1 and a.dim() > 1:
        return a.flatten(0, 1)
    if kind == 2 and a.dim() > 0 and a.shape[0] > 1:
        return a[r.randrange(a.shape[0])]
    if kind == 3 and a.dim() > 0 and a.shape[-1] % 2 == 0:
        return a.unflatten(-1, (2, a.shape[-1] // 2))
    if kind == 4:
        return a.unsqueeze(r.choice((0, -1)))
    if kind == 5 and a.dim() > 0:
        return arete.cat([a, 2 * a], r.choice((0, -1)))
    if kind == 6 and a.dim() > 0:
        return arete.stack([a, a + 1, a * 0.5], r.choice((0, -1))).transpose(0, -1).contiguous().mean(0 if r.random() < 0.5 else -1)
    if kind == 7 and a.dim() > 0 and a.shape[-1] > 1:
        return a[..., : a.shape[-1] // 2]
    return a.contiguous() + 0


def products(r, pool, dtype):
    a = r.choice(pool)
    if a.dim() < 2 or a.shape[-1] > 64 or a.numel() > 1 << 15:
        return a + 0.5
    g = arete.Generator().manual_seed(r.randrange(1000))
    w = (arete.randn(r.choice((4, 16)), a.shape[-1], generator=g, dtype=arete.float64) / 4).to(dtype).to(a.device)
    kind = r.randrange(4)
    if kind == 0:
        return F.linear(a, w)
    if kind == 1:
        return F.gelu(F.linear(a, w, w[:, 0]), approximate="tanh")
    if kind == 2 and a.dim() == 4:
        k = (arete.randn(8, a.shape[1], 1, 1, generator=g, dtype=arete.float64) / 4).to(dtype).to(a.device)
        return F.relu(F.conv2d(a, k))
    return a.flatten(0, -2).t() @ a.flatten(0, -2) / a.numel()


def in_place(r, pool, dtype):
    a = r.choice(pool)
    if a.requires_grad:
        return a * 1.5
    b = arete.empty_like(a).copy_(a)
    if r.random() < 0.4 and b.dim() > 0:
        (b[..., 0] if r.random() < 0.5 else b[0]).mul_(0.5)
    return r.choice((b.add_, b.sub_))(0.25)


def gradient(r, pool, dtype):
    a = r.choice(pool).detach().requires_grad_()
    y = a
    for _ in range(r.randint(1, 4)):
        y = r.choice((elementwise, rows, products))(r, [y], dtype)
    if not y.requires_grad:
        return a.detach()
    return arete.autograd.grad(y.square().sum() if r.random() < 0.5 else y.mean(), a)[0]


def look(r, pool, dtype):
    a = r.choice(pool)
    return a + (1 if float(a.detach().double().mean()) > 0.3 else 0.5)


KINDS = (elementwise, elementwise, elementwise, rows, rows, rows, shapes, shapes, products, in_place, gradient)


def program(seed, dtype):
    """A function of three tensors, and these."""
    def f(x, y, z):
        r = random.Random(seed)
        pool = [x, y, z]
        for k in range(r.randint(3, 14)):
            step = look if r.random() < 0.02 else r.choice(KINDS)
            new = step(r, pool, dtype)
            if new.numel() > 1 << 16 or not new.is_floating_point():
                continue
            # Values stay moderate, so that differences are those of roundings.
            pool.append(new if r.random() < 0.7 else arete.tanh(new))
            if len(pool) > KEPT:
                pool.pop(r.randrange(len(pool)))
        return pool

    g = arete.Generator().manual_seed(seed)
    r = random.Random(~seed)
    n = r.choice((1, 2, 8, 64, 70)), r.choice((1, 3, 8, 16)), r.choice((2, 8, 17, 32))
    last = n if r.random() < 0.7 else (2, 8, 4, 6)
    sizes = [n, n if r.random() < 0.5 else n[-1:], last]
    return f, [arete.randn(*s, generator=g, dtype=arete.float64).to(dtype).to(DEVICE) for s in sizes]


def check(seed, exact):
    dtype = random.Random(seed).choice((arete.float32, arete.float64, arete.bfloat16)) if exact else arete.float64
    f, inputs = program(seed, dtype)
    # Bands of a few rows, and as little memory as can be.
    compiled = arete.compile(f, options={"exact": exact, "band_bytes": 64, "memory_budget": random.Random(seed).choice((0, 0.5, 1))})
    for _ in range(3 if DEVICE == "cpu" else 7):  # the fifth is a graph
        expected, got = f(*inputs), compiled(*inputs)
        assert len(expected) == len(got)
        for k, (e, g) in enumerate(zip(expected, got)):
            assert e.shape == g.shape and e.dtype == g.dtype and e.stride() == g.stride(), (seed, k)
            if exact:
                assert arete.equal(e.nan_to_num(7), g.nan_to_num(7)), (seed, k, (e - g).abs().max())
            else:
                arete.testing.assert_close(g, e, rtol=1e-6, atol=1e-6, equal_nan=True, msg=f"seed {seed}, tensor {k}")


def seeds(number):
    """So many, or as many as there is time for."""
    begun, seed = time.monotonic(), SEED
    while time.monotonic() - begun < SECONDS / 2 if SECONDS else seed < SEED + number:
        yield seed
        seed += 1


@pytest.mark.parametrize("exact", [False, True])
def test_random_programs(exact):
    for seed in seeds(300):
        check(seed, exact)


def check_graphs(seed):
    """Graphs give the bits that their steps give when they are called one by one."""
    for exact in (False, True):
        f, inputs = program(seed, arete.float64)
        compiled = arete.compile(f, options={"exact": exact, "memory_budget": random.Random(seed).choice((0, 0.5, 1))})
        first = None
        for _ in range(9):  # the last ones are graphs
            got = [t.nan_to_num(7).tolist() for t in compiled(*(t.clone() for t in inputs))]
            first = first or got
            assert got == first, (seed, exact)
        yield "one graph" in compiled.explain()


def test_random_programs_as_graphs():
    fake_gpus.run(f"""
        import sys
        sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
        import test_compile_fuzz as fuzz
        fuzz.DEVICE = "cuda"
        graphs = [sum(fuzz.check_graphs(seed)) for seed in fuzz.seeds(20)]
        assert sum(graphs) > len(graphs), graphs  # each is two programs
    """)
