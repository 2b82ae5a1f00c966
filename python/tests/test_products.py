"""Gradients of prod and cumprod: with zeros anywhere, beside PyTorch's, and in memory that grows with the tensor, not
with its square."""
import subprocess
import sys

import numpy as np
import pytest
from device_helpers import PEAK
from peer import peer

import arete

torch = peer()
DEVICES = ["cpu"] + ["cuda"] * arete.cuda.is_available()
FUNCTIONS = {
    "cumprod": lambda x, d: x.cumprod(d),
    "prod": lambda x, d: x.prod(d),
    "prod kept": lambda x, d: x.prod(d, keepdim=True),
    "prod of all": lambda x, d: x.prod(),
}
BY_DIMENSION = [(name, d) for name in FUNCTIONS for d in ([0, 1, -1] if name != "prod of all" else [None])]
ROWS = [[2.0, -1.0, 0.5, 3.0], [2.0, 0.0, 0.5, 3.0], [0.0, -1.0, 0.0, 3.0], [2.0, -1.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0],
        [0.0, 2.0, 3.0, 4.0]]


def numbers(dtype, seed=0):
    """Rows with no zero, one, or several, at either end and between."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 2, (6, 4)) * rng.choice([-1, 1], (6, 4))
    if dtype.startswith("complex"):
        x = x + 1j * rng.uniform(-1, 1, (6, 4))
    return np.where(np.array(ROWS) == 0, 0, x)


def gradients(library, function, dim, x, dtype, device, twice=False):
    x = library.tensor(x.tolist(), dtype=getattr(library, dtype), device=device, requires_grad=True)
    y = FUNCTIONS[function](x, dim)
    weights = library.tensor(np.arange(1, 1 + y.numel()).reshape(tuple(y.shape)).tolist(), dtype=y.dtype, device=device)
    if not twice:
        return library.autograd.grad(y, x, weights)[0]
    weights.requires_grad_()
    (first,) = library.autograd.grad(y, x, weights, create_graph=True)
    return [first, *library.autograd.grad(first, [x, weights], library.ones_like(first) * 0.5 + first.detach())]


def values(t):
    t = t.detach().cpu()
    return np.array((t if t.is_complex() else t.double()).tolist())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
@pytest.mark.parametrize("function, dim", BY_DIMENSION)
def test_gradients(function, dim, dtype, device):
    for seed in range(3):
        x = numbers(dtype, seed)
        mine = gradients(arete, function, dim, x, dtype, device)
        assert mine.dtype is getattr(arete, dtype) and mine.shape == (6, 4)
        exact = dtype.endswith(("64", "128")) and dtype != "complex64"
        np.testing.assert_allclose(values(mine), values(gradients(torch, function, dim, x, dtype, "cpu")),
                                   rtol=1e-11 if exact else 1e-4, atol=1e-11 if exact else 1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("function, dim", BY_DIMENSION)
def test_gradients_of_half_types(function, dim, dtype, device):
    x = np.where(np.array(ROWS) == 0, 0, np.round(numbers("float64") * 4) / 4)  # which these types hold
    mine = gradients(arete, function, dim, x, dtype, device)
    assert mine.dtype is getattr(arete, dtype)
    exact = values(gradients(torch, function, dim, x, "float64", "cpu"))
    np.testing.assert_allclose(values(mine), exact, rtol=0.03, atol=0.03 * max(1, abs(exact).max()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("function, dim", BY_DIMENSION)
def test_second_gradients(function, dim, dtype, device):
    for seed in range(2):
        x = numbers(dtype, seed)
        mine = gradients(arete, function, dim, x, dtype, device, twice=True)
        theirs = gradients(torch, function, dim, x, dtype, "cpu", twice=True)
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(values(a), values(b), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("function, dim", BY_DIMENSION)
def test_against_differences(function, dim):
    for zeros in (0, 1, 2):
        x = arete.tensor([[1.5, -0.5, 2.0], [0.7, 1.1, -1.3]], dtype=arete.float64)
        x.view(-1)[1 : 1 + 2 * zeros : 2] = 0
        x.requires_grad_()
        assert arete.autograd.gradcheck(lambda t: FUNCTIONS[function](t, dim), (x,))
        assert arete.autograd.gradgradcheck(lambda t: FUNCTIONS[function](t, dim), (x,))


@pytest.mark.parametrize("device", DEVICES)
def test_shapes_at_the_edge(device):
    for shape in ((), (1,), (0,), (3, 0), (0, 3), (2, 1), (2, 3, 4)):
        for d in range(-max(1, len(shape)), max(1, len(shape))):
            for function in ("cumprod", "prod"):
                x = arete.full(shape, 2.0, device=device, requires_grad=True)
                FUNCTIONS[function](x, d).sum().backward()
                y = torch.full(shape, 2.0, requires_grad=True)
                FUNCTIONS[function](y, d).sum().backward()
                assert x.grad.tolist() == y.grad.tolist(), (shape, d, function)


def test_other_layouts():
    x, y = (library.tensor(numbers("float64").tolist(), dtype=library.float64, requires_grad=True)
            for library in (arete, torch))
    for function in ("cumprod", "prod"):
        for take in (lambda t: t.t(), lambda t: t[::2], lambda t: t[:, 1:], lambda t: t[:, :1].expand(6, 4),
                     lambda t: t.flip(1)):
            (mine,) = arete.autograd.grad(FUNCTIONS[function](take(x), 0).sum(), x)
            (theirs,) = torch.autograd.grad(FUNCTIONS[function](take(y), 0).sum(), y)
            np.testing.assert_allclose(values(mine), values(theirs), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("device", DEVICES)
def test_numbers_that_are_not_finite(device):
    """Products of the others, which division would not give."""
    inf, nan = float("inf"), float("nan")
    for row, others in (([2.0, inf, 3.0], [inf, 6.0, inf]), ([2.0, nan, 3.0], [nan, 6.0, nan]),
                        ([-inf, 2.0, 0.5], [1.0, -inf, -inf]),
                        ([inf, 0.0, 2.0], [0.0, inf, nan]), ([1e-30, 1e-30, 1e30], [1.0, 1.0, 0.0])):
        x = arete.tensor(row, device=device, requires_grad=True)
        np.testing.assert_allclose(values(arete.autograd.grad(x.prod(0), x)[0]), others, rtol=1e-6)


LONG = PEAK + """
import arete
x = arete.full((2, 20000), 1.0, requires_grad=True)
with arete.no_grad():
    x[1, 3:{end}:2] = 0
(x * 2).sum().backward()
before = peak()
y = x.{function}
(g,) = arete.autograd.grad(y.sum(), x)
print((peak() - before) // 1024, *g[:, :6].flatten().tolist())
"""


@pytest.mark.parametrize("function", ["cumprod(1)", "prod(1)", "prod()"])
@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_memory_of_long_rows(function, zeros):
    """20000 numbers in a row: their square would take 3 GiB."""
    run = subprocess.run([sys.executable, "-c", LONG.format(function=function, end=3 + 2 * zeros)], capture_output=True,
                         text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    grown, *found = map(float, run.stdout.split())
    assert grown < 32, f"{grown} MiB"
    if function == "cumprod(1)":
        ends = [20000, 3, 3]
        second = [ends[zeros] - i if i < ends[zeros] else 0 for i in range(6)]
        second[3] = {0: second[3], 1: 19997, 2: 2}[zeros]
        expected = [20000 - i for i in range(6)] + second
    elif function == "prod(1)":
        expected = [1] * 6 + ([1] * 6 if not zeros else [0, 0, 0, 1, 0, 0] if zeros == 1 else [0] * 6)
    else:
        expected = [1] * 12 if not zeros else [0] * 6 + ([0, 0, 0, 1, 0, 0] if zeros == 1 else [0] * 6)
    assert found == expected


@pytest.mark.skipif(not arete.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("function", ["cumprod", "prod"])
def test_memory_of_long_rows_on_gpus(function):
    x = arete.full((2, 20000), 1.0, device="cuda", requires_grad=True)
    y = FUNCTIONS[function](x, 1).sum()
    arete.cuda.reset_peak_memory_stats()
    before = arete.cuda.memory_allocated()
    y.backward()
    assert arete.cuda.max_memory_allocated() - before < 32 << 20
