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


def matrices(*shape, seed=0):
    """Matrices of distinct eigenvalues and singular values."""
    return numbers(shape, seed) + 3 * np.eye(shape[-2], shape[-1])


def adjoint(a):
    return np.conj(np.swapaxes(a, -1, -2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 9, 9), (5, 3), (3, 5), (0, 3, 3)])
def test_factorizations(shape, dtype):
    """Beside NumPy's, or multiplied back; also of batches, and of more than the 8 rows that real matrices have loops for."""
    near = {"rtol": 2e-4, "atol": 2e-4} if dtype == "complex64" else {"rtol": 1e-9, "atol": 1e-10}
    a = matrices(*shape).astype(dtype)
    x, linalg = arete.tensor(a), arete.linalg
    m, n = shape[-2:]
    k = min(m, n)

    def check(ours, theirs):
        np.testing.assert_allclose(ours.numpy(), theirs, **near)

    real = x.real.dtype
    u, s, vh = linalg.svd(x)
    assert u.shape[-1] == m and vh.shape[-1] == n and s.dtype == real
    check((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a)
    check(s, np.linalg.svd(a, compute_uv=False))
    check(u.mH @ u, np.broadcast_to(np.eye(m), u.shape))
    q, r = linalg.qr(x)
    check(q @ r, a)
    check(q.mH @ q, np.broadcast_to(np.eye(k), (*shape[:-2], k, k)))
    p, l, u = linalg.lu(x)  # noqa: E741
    check(p @ l @ u, a)
    if x.numel():
        check(linalg.pinv(x), np.linalg.pinv(a))
        b = numbers((*shape[:-2], m, 2), 4).astype(dtype)
        for driver in ("gels", "gelsy", "gelsd", "gelss"):
            found = linalg.lstsq(x, arete.tensor(b), driver=driver)
            check(found.solution, np.linalg.pinv(a) @ b)
            if driver == "gels" and m > n:
                assert found.residuals.dtype == real
                check(found.residuals, (np.abs(a @ (np.linalg.pinv(a) @ b) - b) ** 2).sum(-2))
            if driver == "gelss":
                assert found.singular_values.dtype == real and bool((found.rank == k).all())
        check(linalg.matrix_norm(x, "nuc"), np.linalg.svd(a, compute_uv=False).sum(-1))
        assert linalg.cond(x).dtype == real and linalg.matrix_rank(x).flatten().tolist() == [k] * (x.numel() // (m * n))
    if m != n:
        return
    values, vectors = linalg.eig(x)
    check(x @ vectors, (vectors * values[..., None, :]).numpy())
    check(linalg.eigvals(x).abs().sort()[0], np.sort(np.abs(np.linalg.eigvals(a))))
    h = a @ adjoint(a) + np.eye(n, dtype=dtype)
    for upper in (False, True):
        values, vectors = linalg.eigh(arete.tensor(np.triu(h) if upper else np.tril(h)), "U" if upper else "L")
        assert values.dtype == real
        check((vectors * values[..., None, :]) @ vectors.mH, h)
        factor = linalg.cholesky(arete.tensor(h), upper=upper)
        check(factor.mH @ factor if upper else factor @ factor.mH, h)
        check(arete.cholesky_solve(x, factor, upper), np.linalg.solve(h, a))
        check(arete.cholesky_inverse(factor, upper), np.linalg.inv(h))
    check(linalg.inv(x), np.linalg.inv(a))
    check(linalg.det(x), np.linalg.det(a))
    sign, logarithm = linalg.slogdet(x)
    assert logarithm.dtype == real
    check(sign * logarithm.exp(), np.linalg.det(a))
    check(arete.logdet(x), np.log(np.linalg.det(a)))
    b = numbers((*shape[:-2], n, 2), 4).astype(dtype)
    factors = linalg.lu_factor(x)
    for left in (True, False):
        right = arete.tensor(b if left else adjoint(b))
        for of_adjoint in (False, True):
            m = adjoint(a) if of_adjoint else a
            check(linalg.lu_solve(*factors, right, left=left, adjoint=of_adjoint),
                  np.linalg.solve(m, b) if left else np.swapaxes(np.linalg.solve(np.swapaxes(m, -1, -2), np.conj(b)), -1, -2))
        check(linalg.solve(x, right, left=left), np.linalg.solve(a, b) if left
              else np.swapaxes(np.linalg.solve(np.swapaxes(a, -1, -2), np.conj(b)), -1, -2))
    for upper in (False, True):
        check(linalg.solve_triangular(x, arete.tensor(b), upper=upper, unitriangular=upper),
              np.linalg.solve(np.triu(a, 1) + np.eye(n) if upper else np.tril(a), b))
    check(linalg.matrix_exp(arete.zeros(n, n, dtype=x.dtype) + 1j * arete.eye(n)), np.eye(n) * np.exp(1j))


GRADIENTS = {
    "svd": lambda a: arete.linalg.svd(a).S,
    "svd, product": lambda a: (lambda u, s, vh: (u * s.sin()) @ vh)(*arete.linalg.svd(a, full_matrices=False)),
    "svd, projection": lambda a: (lambda u: u @ u.mH)(arete.linalg.svd(a, full_matrices=False).U[..., :1]),
    "pinv": arete.linalg.pinv,
    "qr": lambda a: arete.linalg.qr(a),
    "lu": lambda a: arete.linalg.lu(a)[1:],
    "lstsq, gels": lambda a: arete.linalg.lstsq(a, B[: a.shape[0]], driver="gels").solution,
    "lstsq, gelsd": lambda a: arete.linalg.lstsq(a, B[: a.shape[0]], driver="gelsd").solution,
    "nuclear norm": lambda a: arete.linalg.matrix_norm(a, "nuc"),
    "householder": lambda a: arete.linalg.householder_product(a[:, :2] * 0.3, a[0, :2] * 0.2),
}
SQUARE = {
    "inv": arete.linalg.inv,
    "solve": lambda a: arete.linalg.solve(a, a @ B[:3] + B[:3]),
    "solve, right": lambda a: arete.linalg.solve(a, B[:3].mH, left=False),
    "lu_solve": lambda a: arete.linalg.lu_solve(*arete.linalg.lu_factor(a), B[:3], adjoint=True),
    "lu_solve, right": lambda a: arete.linalg.lu_solve(*arete.linalg.lu_factor(a), B[:3].mH, left=False),
    "triangular": lambda a: arete.linalg.solve_triangular(a, B[:3], upper=True),
    "triangular, right": lambda a: arete.linalg.solve_triangular(a, B[:3].mH, upper=False, left=False, unitriangular=True),
    "cholesky": lambda a: arete.linalg.cholesky(a @ a.mH + arete.eye(3)),
    "cholesky, upper": lambda a: arete.linalg.cholesky(a @ a.mH + arete.eye(3), upper=True),
    "cholesky_solve": lambda a: arete.cholesky_solve(B[:3], a.tril()),
    "cholesky_solve, upper": lambda a: arete.cholesky_solve(B[:3], a.triu(), upper=True),
    "cholesky_inverse": lambda a: arete.cholesky_inverse(a.tril()),
    "det": arete.linalg.det,
    "slogdet": arete.linalg.slogdet,
    "logdet": arete.logdet,
    "eig": lambda a: (lambda w, v: [w, v.abs()])(*arete.linalg.eig(a)),
    "eigvals": arete.linalg.eigvals,
    "eigh": lambda a: (lambda w, v: (v * w.sin()) @ v.mH)(*arete.linalg.eigh(a + a.mH)),
    "eigvalsh": lambda a: arete.linalg.eigvalsh(a + a.mH),
    "matrix_exp": lambda a: arete.linalg.matrix_exp(0.3 * a),
    "matrix_power": lambda a: arete.linalg.matrix_power(a, -2),
    "ormqr": lambda a: arete.ormqr(a[:, :2] * 0.3, a[0, :2] * 0.2, B[:3], transpose=True),
}
B = arete.tensor(numbers((4, 2), 7))


@pytest.mark.parametrize("name, shape", [*((name, shape) for name in GRADIENTS for shape in ((3, 3), (4, 2), (2, 4))
                                           if not (name == "householder" and shape == (2, 4))),
                                         *((name, (3, 3)) for name in SQUARE)])
def test_gradients_of_factorizations(name, shape):
    function = {**GRADIENTS, **SQUARE}[name]
    a = arete.tensor(matrices(*shape, seed=3)).requires_grad_()
    assert arete.autograd.gradcheck(function, (a,))
    assert arete.autograd.gradgradcheck(function, (a,))


def test_real_matrices_with_complex_eigenvalues_have_gradients():
    a = arete.tensor([[0.2, -1.5, 0.3], [1.1, 0.4, 0.2], [0.5, -0.3, 2.0]], dtype=arete.float64, requires_grad=True)
    assert arete.linalg.eigvals(a).imag.abs().max() > 1
    assert arete.autograd.gradcheck(arete.linalg.eigvals, (a,)) and arete.autograd.gradgradcheck(arete.linalg.eigvals, (a,))
    assert arete.autograd.gradcheck(lambda m: arete.linalg.eig(m)[1].abs(), (a,))


def test_a_singular_matrix_has_a_gradient_of_its_determinant():
    a = np.diag([1 + 1j, 2j, 0])  # its determinant is 0 to the last bit
    x = arete.tensor(a).requires_grad_()
    arete.view_as_real(arete.linalg.det(x))[0].backward()
    expected = np.zeros((3, 3), complex)
    expected[2, 2] = np.conj((1 + 1j) * 2j)
    np.testing.assert_allclose(x.grad.numpy(), expected, atol=1e-12)


def test_what_factorizations_say_of_complex_matrices():
    with pytest.raises(NotImplementedError, match="ldl_factor_ex: complex numbers are not supported"):
        arete.linalg.ldl_factor(arete.eye(2, dtype=arete.complex64))
    with pytest.raises(ValueError, match=r"linalg.inv: The diagonal element 2 is zero"):
        arete.linalg.inv(arete.diag(arete.tensor([1j, 0])))
    with pytest.raises(ValueError, match="leading minor of order 1"):
        arete.linalg.cholesky(-arete.eye(2, dtype=arete.complex128))
    with pytest.raises(TypeError, match="same dtype"):
        arete.linalg.solve(arete.eye(2, dtype=arete.complex64), arete.ones(2, 1))
    with pytest.raises(ValueError, match="non-finite"):
        arete.linalg.svd(arete.full((2, 2), complex(0, math.nan)))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("columns", [1, 3, 12])
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_triangles_with_subnormal_numbers(upper, columns, dtype):
    """Their reciprocals are infinite, the quotients are not."""
    least = np.finfo(dtype).tiny / 64
    rng = np.random.default_rng(7)
    for n in (1, 4, 20):
        k, draw = n // 2, lambda *sizes: rng.uniform(-1, 1, sizes) + 1j * rng.uniform(-1, 1, sizes)
        a = (np.triu if upper else np.tril)(draw(n, n) / n) + 2 * np.eye(n)
        x = draw(n, columns)
        a[k], x[k] = 0, 3 - 2j
        b = a @ x
        a[k, k], b[k] = least * (2 + 1j), least * (8 - 1j)
        system, right, want = (arete.tensor(v.astype(dtype)) for v in (a, b, x))
        close = {"rtol": 1e-4, "atol": 1e-4} if dtype == "complex64" else {"rtol": 1e-11, "atol": 1e-11}
        pivots = arete.arange(1, n + 1, dtype=arete.int32)
        solve, turned = arete.linalg.solve_triangular, system.mT.contiguous()
        found = [solve(system, right, upper=upper), solve(turned.mT, right, upper=upper),
                 solve(system.mT, right.mT, upper=not upper, left=False).mT, solve(turned, right.mT, upper=not upper, left=False).mT]
        if upper:  # factors are 1 and it
            found.append(arete.linalg.lu_solve(system, pivots, right))
        else:
            found.append(arete.linalg.lu_solve(turned, pivots, right.mT, left=False).mT)
        for y in found:
            np.testing.assert_allclose(y.numpy(), want.numpy(), **close)
