"""Complex tensors beside torch: values, gradients, promotion, parts, in-place forms and errors."""
import math

import arete
import numpy as np
import pytest
from peer import peer

torch = peer()

DTYPES = ["complex64", "complex128"]
UNARY = ["exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tan", "sinh",
         "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sinc", "neg", "positive", "square", "reciprocal",
         "abs", "angle", "sgn", "conj", "conj_physical", "real", "imag", "isnan", "isinf", "isfinite", "isreal",
         "logical_not"]
BINARY = ["add", "sub", "rsub", "mul", "div", "pow", "eq", "ne", "logical_and", "logical_or", "logical_xor"]


def numbers(shape, seed, dtype="complex128"):
    rng = np.random.default_rng(seed)
    return (rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(dtype)


def both(a, grad=False):
    ours, theirs = arete.tensor(a), torch.tensor(a)
    if grad:
        ours.requires_grad_()
        theirs.requires_grad_()
    return ours, theirs


def same(ours, theirs, rtol=None):
    theirs = theirs.detach().resolve_conj()
    assert str(ours.dtype).split(".")[-1] == str(theirs.dtype).split(".")[-1]
    assert tuple(ours.shape) == tuple(theirs.shape)
    narrow = theirs.dtype in (torch.complex64, torch.float32)
    np.testing.assert_allclose(ours.detach().numpy(), theirs.numpy(), rtol=rtol or (2e-5 if narrow else 1e-10),
                               atol=1e-5 if narrow else 1e-11)


def real_loss(t):
    """A real number that depends on both parts of every element, differently."""
    if not t.is_complex():
        return (t * 1.5).sum()
    weights = [1.0, -0.5]
    view = arete.view_as_real(t) if isinstance(t, arete.Tensor) else torch.view_as_real(t.resolve_conj())
    make = arete.tensor if isinstance(t, arete.Tensor) else torch.tensor
    return (view * make(weights, dtype=view.dtype)).sum()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_tensor(name, dtype):
    ours, theirs = both(numbers((3, 4), 1, dtype), grad=True)
    a, b = getattr(arete, name)(ours), getattr(torch, name)(theirs)
    same(a, b)
    if b.requires_grad:
        real_loss(a).backward()
        real_loss(b).backward()
        same(ours.grad, theirs.grad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_tensors(name, dtype):
    x, xt = both(numbers((3, 1), 2, dtype), grad=True)
    y, yt = both(numbers((4,), 3, dtype), grad=True)
    a, b = getattr(arete, name)(x, y), getattr(torch, name)(xt, yt)
    same(a, b)
    if b.requires_grad:
        real_loss(a).backward()
        real_loss(b).backward()
        same(x.grad, xt.grad)
        same(y.grad, yt.grad)


@pytest.mark.parametrize("name", ["exp", "log", "sqrt", "tanh", "asin", "sgn", "abs", "angle", "reciprocal", "mul", "div", "pow"])
def test_second_derivatives(name):
    arrays = [numbers((5,), 4)] + ([numbers((5,), 5)] if name in BINARY else [])
    results = []
    for lib, index in ((arete, 0), (torch, 1)):
        inputs = [both(a, grad=True)[index] for a in arrays]
        y = getattr(lib, name)(*inputs)
        loss = real_loss(y * y)
        (g,) = lib.autograd.grad(loss, inputs[:1], create_graph=True)
        results.append(lib.autograd.grad(real_loss(g * g), inputs[:1])[0])
    same(*results)


def test_special_points():
    points = [complex(x, y) for x in (-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf) for y in (-1.0, -0.0, 0.0, 2.0)]
    ours, theirs = both(np.array(points))
    for name in ("sqrt", "log", "exp", "abs", "angle", "isfinite", "isinf", "sgn"):
        a, b = getattr(arete, name)(ours).numpy(), getattr(torch, name)(theirs).numpy()
        finite = np.isfinite(b) if name != "sgn" else np.isfinite(np.array(points))
        np.testing.assert_allclose(a[finite], b[finite], rtol=1e-12, err_msg=name)
    assert arete.abs(arete.tensor(3e38 + 1e38j, dtype=arete.complex64)).isfinite() is not None
    # PyTorch gives NaN for the power 0 of 0, Python 1.
    assert (arete.tensor(0j) ** arete.tensor(0j)).item() == 0j**0j
    zero, zero_t = both(np.array([0j, 0j, 1 + 1j]), grad=True)
    exponent = np.array([2 + 0j, 3 + 0j, 2j])
    a, b = zero ** arete.tensor(exponent), zero_t ** torch.tensor(exponent)
    same(a, b)
    real_loss(a).backward()
    real_loss(b).backward()
    same(zero.grad, zero_t.grad)


def test_promotion():
    kinds = ["bool", "int32", "int64", "float32", "float64", "bfloat16", "complex64", "complex128"]
    for left in kinds:
        for shape in ((2,), ()):
            a, b = arete.ones(shape, dtype=getattr(arete, left)), torch.ones(shape, dtype=getattr(torch, left))
            assert str((a * 1j).dtype)[6:] == str((b * 1j).dtype)[6:], left
            for right in ("complex64", "complex128"):
                c, d = arete.ones(2, dtype=getattr(arete, right)), torch.ones(2, dtype=getattr(torch, right))
                assert str((a + c).dtype)[6:] == str((b + d).dtype)[6:], (left, right)


def test_python_numbers():
    x, xt = both(np.array([1.0, 2.0], dtype="float32"))
    same(x * 1j, xt * 1j)
    same(1j + x, 1j + xt)
    same(1j - x, 1j - xt)
    same((2 + 1j) / x, (2 + 1j) / xt)
    same(x ** (1 + 1j), xt ** (1 + 1j))
    z, zt = both(numbers((3,), 6))
    same(z**2, zt**2)
    same(2**z, 2**zt)
    same(z / 2, zt / 2)
    assert (z[0] == complex(zt[0])).item() is True
    assert isinstance(z[0].item(), complex) and z[0].item() == zt[0].item()
    assert z.tolist() == zt.tolist()
    assert complex(z[1]) == complex(zt[1])


def test_parts():
    z, zt = both(numbers((2, 3), 7))
    same(z.real, zt.real)
    same(z.imag, zt.imag)
    same(arete.view_as_real(z), torch.view_as_real(zt))
    z.real, zt.real = 5.0, 5.0
    z.imag, zt.imag = arete.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0])
    same(z, zt)
    z.imag.mul_(2)
    zt.imag.mul_(2)
    same(z, zt)
    pairs = arete.zeros(2, 2)
    arete.view_as_complex(pairs).add_(1 + 2j)
    assert pairs.tolist() == [[1.0, 2.0], [1.0, 2.0]]
    r, rt = both(np.array([1.0, 2.0]), grad=True)
    i, it = both(np.array([0.5, -1.0]), grad=True)
    for f, g in ((arete.complex, torch.complex), (arete.polar, torch.polar)):
        r.grad = i.grad = rt.grad = it.grad = None
        a, b = f(r, i), g(rt, it)
        same(a, b)
        real_loss(a).backward()
        real_loss(b).backward()
        same(r.grad, rt.grad)
        same(i.grad, it.grad)
    with pytest.raises(Exception, match="imag is not implemented for tensors with non-complex dtypes"):
        arete.imag(r)
    assert r.real.tolist() == r.tolist()
    same(z.T, zt.T)
    same(z.mH, zt.mH)


def test_products():
    a, at = both(numbers((2, 3), 8), grad=True)
    b, bt = both(numbers((3, 4), 9), grad=True)
    for f in (lambda lib, x, y: lib.matmul(x, y), lambda lib, x, y: lib.einsum("ij,jk->ki", x, y),
              lambda lib, x, y: lib.outer(x.reshape(-1), y.reshape(-1)), lambda lib, x, y: lib.vdot(x.reshape(-1), y.reshape(-1)[:6]),
              lambda lib, x, y: lib.dot(x.reshape(-1), y.reshape(-1)[:6]), lambda lib, x, y: lib.mv(x, y[:, 0])):
        a.grad = b.grad = at.grad = bt.grad = None
        ours, theirs = f(arete, a, b), f(torch, at, bt)
        same(ours, theirs)
        real_loss(ours).backward()
        real_loss(theirs).backward()
        same(a.grad, at.grad)
        same(b.grad, bt.grad)


@pytest.mark.parametrize("name, args", [("sum", ()), ("mean", ()), ("mean", (1,)), ("prod", ()), ("prod", (1,)),
                                        ("cumsum", (1,)), ("cumprod", (1,)), ("var", ()), ("std", (0,)), ("norm", ()),
                                        ("any", ()), ("all", ()), ("count_nonzero", ())])
def test_reductions(name, args):
    x, xt = both(numbers((3, 4), 10), grad=True)
    a, b = getattr(arete, name)(x, *args), getattr(torch, name)(xt, *args)
    same(a, b)
    if b.requires_grad:
        real_loss(a).backward()
        real_loss(b).backward()
        same(x.grad, xt.grad)


def test_choices():
    x, xt = both(numbers((3, 4), 11), grad=True)
    y, yt = both(numbers((4,), 12), grad=True)
    mask = np.arange(12).reshape(3, 4) % 3 == 0
    a = arete.where(arete.tensor(mask), x, y).masked_fill(arete.tensor(~mask), 2j) + arete.lerp(x, y, 0.25)
    b = torch.where(torch.tensor(mask), xt, yt).masked_fill(torch.tensor(~mask), 2j) + torch.lerp(xt, yt, 0.25)
    a, b = a + arete.addcmul(x, x, y, value=2), b + torch.addcmul(xt, xt, yt, value=2)
    a, b = a + arete.addcdiv(x, x, y, value=0.5), b + torch.addcdiv(xt, xt, yt, value=0.5)
    same(a, b)
    real_loss(a).backward()
    real_loss(b).backward()
    same(x.grad, xt.grad)
    same(y.grad, yt.grad)


def test_in_place():
    x, xt = both(numbers((3,), 13))
    y, yt = both(numbers((3,), 14), grad=True)
    a, b = y * 1, yt * 1
    for t, u in ((a, x), (b, xt)):
        t.mul_(u).add_(1j)
        t[0].div_(2)
        t.exp_()
    same(a, b)
    real_loss(a).backward()
    real_loss(b).backward()
    same(y.grad, yt.grad)
    with pytest.raises((RuntimeError, TypeError), match="can't be cast to the desired output type"):
        arete.ones(2).mul_(1j)


def test_creation():
    assert arete.full((2,), 1 + 2j).tolist() == torch.full((2,), 1 + 2j).tolist()
    assert arete.full((2,), 1j).dtype is arete.complex64
    assert arete.zeros(2, dtype=arete.complex64).tolist() == [0j, 0j]
    assert arete.ones(2, dtype=arete.complex128).tolist() == [1 + 0j, 1 + 0j]
    assert arete.tensor([1, 2j]).dtype is arete.complex64
    z = arete.randn(4000, dtype=arete.complex64)
    assert abs(z.var().item() - 1) < 0.1 and abs(z.real.var().item() - 0.5) < 0.05
    assert arete.rand(3, dtype=arete.complex128).imag.min() >= 0


def test_numpy_and_text():
    a = numbers((2, 2), 15, "complex64")
    assert np.array_equal(arete.from_numpy(a).numpy(), a)
    for values in (a, np.array(1 + 2j), np.array([1e-8 + 1j, 1e5 - 2j])):
        ours, theirs = both(values)
        assert repr(ours).replace("arete.", "torch.") == repr(theirs)


@pytest.mark.parametrize("name", ["lt", "ge", "maximum", "fmod", "floor", "ceil", "round", "trunc", "sort", "argmax", "max",
                                  "atan2", "relu", "sign"])
def test_what_has_no_meaning_is_an_error(name):
    z = arete.ones(3, dtype=arete.complex64)
    args = (z, z) if name in ("lt", "ge", "maximum", "fmod", "atan2") else (z,)
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        getattr(arete, name)(*args)


def test_gradcheck():
    z = arete.tensor(numbers((3,), 16)).requires_grad_()
    r = arete.tensor([0.5, 1.0, 2.0], dtype=arete.float64).requires_grad_()
    assert arete.autograd.gradcheck(lambda z, r: (z * r).exp().abs() + z.log().imag, (z, r))
    assert arete.autograd.gradgradcheck(lambda z, r: z * r * z, (z, r))


def test_a_condition_cannot_be_complex():
    for shape in ((), (2,)):
        with pytest.raises(TypeError, match="a condition cannot be complex"):
            arete.where(arete.ones(shape, dtype=arete.complex64), 1, 2)


def test_steps_of_gradient_are_as_precise_as_the_elements():
    x = arete.tensor([0j, 2.1 + 2.1j, 4.2 - 1j], dtype=arete.complex128)
    assert arete.gradient(x, spacing=[2.1])[0][0].item() == pytest.approx(1 + 1j, rel=1e-15)


def test_closeness_looks_at_both_parts():
    x = arete.tensor([1 + 1j, 1 + 1j, 1 + 1j, complex("inf"), complex(1, float("nan"))])
    y = arete.tensor([1 + 1j, 1 + 2j, 2 + 1j, complex("inf"), complex(1, float("nan"))])
    for dtype in (arete.complex64, arete.complex128):
        a, b = x.to(dtype), y.to(dtype)
        assert arete.isclose(a, b).tolist() == [True, False, False, True, False]
        assert arete.isclose(a, b, equal_nan=True).tolist() == [True, False, False, True, True]
        assert arete.isclose(a[:2], b[:2], atol=1.0).tolist() == [True, True]
        assert not arete.allclose(a[:2], b[:2])


def test_sums_of_parts_have_any_layout():
    a = arete.complex(arete.rand(6, 5, 4), arete.rand(6, 5, 4))
    b = arete.complex(arete.rand(5, 1), arete.rand(5, 1))
    pairs = [
        (a, a),
        (a, b),
        (b, a),
        (b[0, 0], a),
        (b[0, 0], b[1, 0]),
        (a[:0], a[:0]),
        (a[:, ::2], a[:, ::2]),
        (a.permute(2, 0, 1), a.permute(2, 0, 1)),
        (a.permute(2, 1, 0), a.permute(2, 1, 0)[:1]),
        (a[0, 0].expand(3, 4), a[0, 0].expand(3, 4)),
    ]
    for x, y in pairs:
        for alpha in (1, -2.5, 2j):
            factor = arete.tensor(alpha, dtype=arete.complex64)
            re = x.real + (factor.real * y.real - factor.imag * y.imag)
            im = x.imag + (factor.real * y.imag + factor.imag * y.real)
            arete.testing.assert_close(arete.add(x, y, alpha=alpha), arete.complex(re, im))
            arete.testing.assert_close(arete.sub(x, y, alpha=alpha), 2 * x - arete.complex(re, im))
    turned = a.permute(2, 0, 1)
    assert (turned + turned).stride() == turned.stride()
    doubled = a.clone()
    doubled.add_(a)
    arete.testing.assert_close(doubled, 2 * a)
