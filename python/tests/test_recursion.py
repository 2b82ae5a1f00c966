"""Linear recursions in time, the ways of them against their definition."""
import numpy
import nvrtc
import pytest

import arete
from arete._operators import _ops
from arete.signal._recursion import _in_blocks, _in_chunks, _in_steps, _kernels, recursion

WAYS = pytest.mark.parametrize("way", [_in_chunks, _in_steps])


def substitution(x, a, before, dtype=numpy.longdouble):
    """Of rows (time), step by step; a[0] is 1."""
    y, back = numpy.concatenate([before, numpy.zeros(len(x))]).astype(dtype), a[:0:-1].astype(dtype)
    for t in range(len(x)):
        y[t + len(before)] = dtype(x[t]) - numpy.dot(back, y[t:t + len(before)])
    return y[len(before):]


def tensors(x, a, before, dtype=arete.float64):
    """Of rows (row, time), each of which is a channel."""
    a = numpy.ascontiguousarray(numpy.atleast_2d(a)[:, ::-1])
    return [arete.tensor(v, dtype=dtype) for v in (x[None], numpy.repeat(a, len(x) // len(a), 0), before[None])]


@WAYS
@pytest.mark.parametrize("order, time", [(1, 5), (1, 3000), (2, 1000), (4, 3), (4, 4099), (9, 700)])
@pytest.mark.parametrize("dtype", [arete.float32, arete.float64])
def test_rows_with_filters_of_their_own(way, order, time, dtype):
    numbers = numpy.random.default_rng(order)
    x, before = numbers.normal(size=(2, 3, time)), numbers.normal(size=(2, 3, order))
    a = numpy.array([numpy.poly(numbers.uniform(-0.9, 0.9, order)) for _ in range(3)])
    given = [arete.tensor(numpy.ascontiguousarray(v), dtype=dtype) for v in (x, a[:, ::-1], before)]
    x, a, before = (v.double().numpy() for v in given)
    wanted = [[substitution(x[b, c], a[c, ::-1], before[b, c]) for c in range(3)] for b in range(2)]
    numpy.testing.assert_allclose(way(*given).numpy(), numpy.array(wanted, "float64"), rtol=0,
                                  atol=(1e-6 if dtype is arete.float32 else 2e-14) * numpy.abs(wanted).max())


@WAYS
@pytest.mark.parametrize("poles", [
    [0.999, 0.999], [1.0, 1.0], [1.0005], [0.9999] + [0.8] * 7, numpy.exp([0.1j, -0.1j]) * 0.9999,
    # Of a low pass of order 4, close to each other.
    0.985 + 0.008 * numpy.exp([0.6j, -0.6j, 1.4j, -1.4j])])
def test_all_ways_are_as_exact_as_substitution(way, poles):
    a, time = numpy.poly(poles).real, 12000
    x = numpy.random.default_rng(0).normal(size=time)
    exact = substitution(x, a, numpy.zeros(len(poles)))
    allowed = numpy.abs(substitution(x, a, numpy.zeros(len(poles)), numpy.float64) - exact).max()
    found = way(*tensors(x[None], a, numpy.zeros((1, len(poles)))))[0, 0].numpy()
    assert numpy.abs(found - exact).max() < 8 * allowed


@pytest.mark.parametrize("a", [[1.0, 3.0], [1.0, -2.0, 0.5, 0.3], [1.0, 0.0, 0.0], [1.0, -1e300]])
@pytest.mark.parametrize("value", [1.0, 0.0, numpy.nan, numpy.inf])
def test_filters_that_grow(a, value):
    """What is finite until it overflows, as long as substitution; zeros stay zeros."""
    x, a = numpy.zeros(3000), numpy.array(a)
    x[1200] = value
    given = tensors(x[None], a, numpy.zeros((1, len(a) - 1)))
    with numpy.errstate(all="ignore"):
        wanted = substitution(x, a, numpy.zeros(len(a) - 1), numpy.float64)
    for way in (_in_chunks, _in_steps, _in_blocks):
        y = way(*given)[0, 0].numpy()
        assert (numpy.isfinite(y) == numpy.isfinite(wanted)).all()
        numpy.testing.assert_allclose(y[numpy.isfinite(y)], wanted[numpy.isfinite(y)], rtol=1e-12)


@pytest.mark.parametrize("order, time", [(3, 7), (3, 2), (1, 5), (4, 4), (2, 1)])
def test_gradients_of_recursions(order, time):
    numbers = numpy.random.default_rng(time)
    a = numpy.array([numpy.poly(numbers.uniform(-0.8, 0.8, order))[::-1] for _ in range(2)])
    given = [arete.tensor(v, requires_grad=True) for v in (numbers.normal(size=(2, 2, time)), a, numbers.normal(size=(2, 2, order)))]
    assert arete.autograd.gradcheck(recursion, given, check_forward_ad=True)
    assert arete.autograd.gradgradcheck(recursion, given)


@pytest.mark.parametrize("order, dtype", [(1, arete.float16), (3, arete.bfloat16), (1, arete.complex64), (3, arete.complex128),
                                          (40, arete.complex128)])
def test_recursions_of_other_numbers(order, dtype):
    wide = arete.complex128 if dtype.is_complex else arete.float64
    given = [t.to(dtype) for t in (arete.randn(2, 3, 50, dtype=wide), arete.randn(3, order + 1, dtype=wide) * (0.5 / order),
                                   arete.randn(2, 3, order, dtype=wide))]
    given[1][:, -1] = 1
    wanted = _in_blocks(*[t.to(wide) for t in given])
    assert (recursion(*given).to(wide) - wanted).abs().max() < 8 * arete.finfo(dtype).eps * wanted.abs().max()


def test_recursions_of_batches():
    x, a, before = arete.randn(3, 2, 2, 9), arete.tensor([[0.25, 0.5, 1.0], [-0.5, 0.1, 1.0]]), arete.randn(2, 2, 2)
    found = arete.func.vmap(recursion, in_dims=(0, None, None))(x, a, before)
    for y, row in zip(found, x):
        assert arete.equal(y, recursion(row, a, before))
    found = arete.func.vmap(recursion, in_dims=(None, 0, None))(x[0], arete.stack([a, a / a.flip(0)]), before)
    assert arete.allclose(found[1], recursion(x[0], a / a.flip(0), before))


@pytest.mark.parametrize("order, time", [(1, 5), (3, 300), (3, 2), (33, 50)])
def test_recursions_in_programs_have_gradients(order, time):
    numbers = numpy.random.default_rng(time)
    a = numpy.array([numpy.poly(numbers.uniform(-0.8, 0.8, order))[::-1] for _ in range(2)])
    given = [arete.tensor(v) for v in (numbers.normal(size=(2, 2, time)), a, numbers.normal(size=(2, 2, order)))]
    traced = arete.jit.trace(lambda *given: recursion(*given), tuple(given))
    gradients = []
    for function in (traced, recursion):
        leaves = [t.clone().requires_grad_() for t in given]
        function(*leaves).square().sum().backward()
        gradients.append([t.grad for t in leaves])
    for found, wanted in zip(*gradients):
        assert (found - wanted).abs().max() < 1e-11 * wanted.abs().max()


def test_running_sums_with_several_factors_of_their_own():
    for reverse in (False, True):
        given = [arete.randn(*sizes, dtype=arete.float64, requires_grad=True) for sizes in ((2, 7, 3), (2, 7, 3, 2))]
        assert arete.autograd.gradcheck(lambda x, f: _ops.linear_scan(x, f, 1, reverse), given)
        x, f = (t.detach().numpy() for t in given)
        x, f = (x[:, ::-1], f[:, ::-1]) if reverse else (x, f)
        y = x.copy()
        for t in range(7):
            y[:, t] += sum(f[:, t - k, :, k - 1] * y[:, t - k] for k in (1, 2) if t >= k)
        numpy.testing.assert_allclose(_ops.linear_scan(*given, 1, reverse).detach().numpy(), y[:, ::-1] if reverse else y, rtol=1e-12)


@pytest.mark.skipif(nvrtc.opened() is None, reason="no NVRTC")
@pytest.mark.parametrize("order", [1, 4, 32])
def test_the_kernels_compile_for_gpus(order):
    _in_chunks(arete.ones(1, 1, 5000), arete.full((1, order + 1), 0.01), arete.zeros(1, 1, order))
    compiled = [c for kernel in _kernels(order) for c in kernel._compiled.values()]
    assert len(compiled) >= 3 and not any(nvrtc.problems(c.text, c.options) for c in compiled)


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
def test_long_sequences_on_gpus():
    a = numpy.poly([0.9999, 0.99 + 0.1j, 0.99 - 0.1j, 0.5]).real
    x = numpy.random.default_rng(0).normal(size=(1, 200_000))
    x, a, before = tensors(x, a, numpy.zeros((1, 4)))
    wanted = _in_blocks(x, a, before)
    given = [t.cuda().requires_grad_() for t in (x, a, before)]
    found = recursion(*given)
    assert (found.detach().cpu() - wanted).abs().max() < 1e-9 * wanted.abs().max()
    # d(sum of outputs * g) / dx is the recursion from the end.
    g = arete.randn_like(x)
    (found * g.cuda()).sum().backward()
    wanted = _in_blocks(g.flip([2]), a, before).flip([2])
    assert (given[0].grad.cpu() - wanted).abs().max() < 1e-9 * wanted.abs().max()
