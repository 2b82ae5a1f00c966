"""Kernels from Python functions beside torch's operators: values, gradients of first and second order, dtypes, errors."""
import numpy as np
import pytest
from peer import peer

import arete
from arete import kernels as k

torch = peer()


def softmax(rows, x, temperature):
    e = k.exp((x - rows.max(x, gradient=False)) / temperature)
    return e / rows.sum(e)


def layer_norm(rows, x, weight, bias, eps):
    centered = x - rows.mean(x)
    scale = k.rsqrt(rows.mean(centered * centered) + eps)
    return centered * scale * weight + bias, scale


def array(t):
    return t.detach().cpu().numpy()


def both(shape, dtype="float64", seed=0):
    values = np.random.default_rng(seed).standard_normal(shape)
    return (getattr(library, "tensor")(values, dtype=getattr(library, dtype)).requires_grad_() for library in (arete, torch))


@pytest.mark.parametrize("dim", [0, 1, -1, (0, 2), None])
def test_rows_along_any_dimensions(dim):
    a, b = both((3, 4, 5))
    ours = k.apply_rows(softmax, a, 2.0, dim=dim)
    dims = (0, 1, 2) if dim is None else dim
    theirs = (b / 2 - torch.logsumexp(b / 2, dims, keepdim=True)).exp()
    np.testing.assert_allclose(array(ours), array(theirs), atol=1e-14)
    for y in (ours, theirs):
        (y * y).sum().backward()
    np.testing.assert_allclose(array(a.grad), array(b.grad), atol=1e-14)


def test_several_results_and_second_derivatives():
    (x, x_), (w, w_), (b, b_) = both((6, 8)), both(8, seed=1), both(8, seed=2)
    y, scale = k.apply_rows(layer_norm, x, w, b, 1e-3)
    m = x_.mean(-1, keepdim=True)
    scale_ = torch.rsqrt(((x_ - m) ** 2).mean(-1, keepdim=True) + 1e-3)
    y_ = torch.nn.functional.layer_norm(x_, (8,), w_, b_, 1e-3)
    np.testing.assert_allclose(array(y), array(y_), atol=1e-13)
    np.testing.assert_allclose(array(scale), array(scale_), atol=1e-13)
    results = []
    for library, inputs, outputs in ((arete, (x, w, b), (y, scale)), (torch, (x_, w_, b_), (y_, scale_))):
        loss = (outputs[0] ** 3).sum() + outputs[1].exp().sum()
        first = library.autograd.grad(loss, inputs, create_graph=True)
        second = library.autograd.grad(sum((g * g).sum() for g in first), inputs)
        results.append([array(t) for t in (*first, *second)])
    for mine, other in zip(*results):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dim", [0, (1, 2), None])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "prod"])
def test_reductions(reduce, dim, keepdim):
    (x, x_), (y, y_) = both((3, 4, 5)), both((4, 1), seed=1)
    ours = k.apply_reduce(lambda a, b, c: (a - b) * c, x, y, 0.5, dim=dim, keepdim=keepdim, reduce=reduce)
    term = (x_ - y_) * 0.5
    dims = (0, 1, 2) if dim is None else dim if isinstance(dim, tuple) else (dim,)
    if reduce == "prod":
        theirs = term
        for d in sorted(dims, reverse=True):
            theirs = theirs.prod(d, keepdim=True)
        theirs = theirs if keepdim else theirs.squeeze(dims)
    else:
        theirs = getattr(torch, reduce)(term, dims, keepdim=keepdim)
    np.testing.assert_allclose(array(ours), array(theirs), atol=1e-13)
    if reduce == "prod":
        with pytest.raises(NotImplementedError, match="product of a row has no gradient"):
            k.apply_reduce(lambda a: a, x, reduce=reduce).backward()
        return
    for z in (ours, theirs):
        (z * z).sum().backward()
    for mine, other in ((x, x_), (y, y_)):
        np.testing.assert_allclose(array(mine.grad), array(other.grad), atol=1e-13)


def test_elements():
    (x, x_), (y, y_) = both((3, 4)), both(4, seed=1)
    ours = k.apply_program(lambda a, b, c: k.where(a > b, a ** 2.0 * c, k.sigmoid(b)), x, y, 3.0)
    theirs = torch.where(x_ > y_, x_ ** 2 * 3, torch.sigmoid(y_))
    np.testing.assert_allclose(array(ours), array(theirs), atol=1e-14)
    ours.sum().backward(), theirs.sum().backward()
    np.testing.assert_allclose(array(x.grad), array(x_.grad), atol=1e-14)
    np.testing.assert_allclose(array(y.grad), array(y_.grad), atol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8", "int64", "bool"])
def test_dtypes_are_those_of_operators(dtype):
    x, x_ = (getattr(library, "tensor")([[1, 0, 1], [1, 1, 1]], dtype=getattr(library, dtype)) for library in (arete, torch))
    name = lambda t: str(t.dtype).rpartition(".")[2]  # noqa: E731
    if dtype != "bool":
        assert name(k.apply_program(lambda v: v + v, x)) == name(x_ + x_)
        assert name(k.apply_program(lambda v: v * 2, x)) == name(x_ * 2)
        assert name(k.apply_program(lambda v, n: v * n, x, 2)) == name(x_ * 2)
    assert name(k.apply_program(lambda v: v > 0, x)) == "bool"
    for reduce in ("sum", "any", "all") + (("amax",) if dtype != "bool" else ()):
        ours, theirs = k.apply_reduce(lambda v: v, x, dim=1, reduce=reduce), getattr(torch, reduce)(x_, 1)
        if dtype == "uint8" and reduce in ("any", "all"):
            theirs = theirs.bool()  # torch keeps uint8
        if reduce == "amax" and dtype in ("int32", "uint8"):
            ours = ours.to(x.dtype)  # integers of rows are int64
        assert name(ours) == name(theirs), reduce
        np.testing.assert_array_equal(array(ours.float()), array(theirs.float()))


def test_numbers_may_change_and_closures_count():
    x = arete.tensor([1.0, 2.0])
    factor = 2.0

    def scaled(v):
        return v * factor

    assert k.apply_program(scaled, x).tolist() == [2, 4]
    factor = 5.0
    assert k.apply_program(scaled, x).tolist() == [5, 10]
    assert [k.apply_program(lambda v, f: v * f, x, f).tolist() for f in (1.0, -1.0)] == [[1, 2], [-1, -2]]


def test_a_history_outlives_its_kernel():
    x = arete.ones(3).requires_grad_()

    def passing(rows, v):
        return v * rows.sum(v)

    y = k.apply_rows(passing, x)
    del passing
    assert "passing" in repr(y)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6, 6]


def test_inside_a_checkpoint():
    x, w = arete.randn(4, 5).requires_grad_(), arete.randn(5).requires_grad_()
    f = lambda v: k.apply_rows(lambda rows, a, b: a * b / rows.sum(k.exp(a * b)), v, w)  # noqa: E731
    want = arete.autograd.grad((f(x) ** 2).sum(), (x, w))
    got = arete.autograd.grad((arete.utils.checkpoint.checkpoint(f, x, use_reentrant=False) ** 2).sum(), (x, w))
    for a, b in zip(want, got):
        np.testing.assert_array_equal(array(a), array(b))


@pytest.mark.parametrize("rows", [1, 4, 30])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_products_with_functions(rows, dtype):
    dtype = getattr(arete, dtype)
    x, bias = arete.randn(2, rows, 48).to(dtype), arete.randn(40).to(dtype)
    weight, scale = arete.randint(-128, 128, (40, 48), dtype=arete.int8), arete.rand(40, 1).to(dtype) / 100
    dense = weight.to(dtype) * scale

    def dequantized(w, s):
        return w * s

    for result, want in ((None, x @ dense.mT), ((lambda y, b, low: k.maximum(y + b, low), bias, 0.0), (x @ dense.mT + bias).relu())):
        got = k.apply_matmul(x, weight.mT, right=(dequantized, scale.mT), result=result)
        assert got.dtype is dtype and got.shape == (2, rows, 40)
        np.testing.assert_allclose(array(got.double()), array(want.double()), rtol=0, atol=3e-2 if dtype is arete.bfloat16 else 1e-4)
    assert k.apply_matmul(x, weight.mT, right=(dequantized, scale.mT), result=lambda y: y > 0).dtype is arete.bool


def test_products_with_functions_have_gradients():
    x, w, s = (arete.randn(*shape, dtype=arete.float64).requires_grad_() for shape in ((3, 4), (4, 5), (3, 1)))

    def f(x, w, s):
        return k.apply_matmul(x, w, left=(lambda v, t: v * t, s), right=k.exp, result=lambda y: k.sqrt(y * y + 1.0))

    assert arete.autograd.gradcheck(f, (x, w, s))
    want = ((x * s) @ w.exp()).square().add(1).sqrt()
    np.testing.assert_allclose(array(f(x, w, s).detach()), array(want.detach()), rtol=1e-12)
    for a, b in zip(arete.autograd.grad(f(x, w, s).sum(), (x, w, s)), arete.autograd.grad(want.sum(), (x, w, s))):
        np.testing.assert_allclose(array(a), array(b), rtol=1e-10)


@pytest.mark.parametrize("call,error,text", [
    (lambda x: k.apply_matmul(x[None], x[:, None], right=3), TypeError, "left, right and result are functions, not int"),
    (lambda x: k.apply_matmul(x[None], 3.0), TypeError, "the operands must be tensors, not float"),
    (lambda x: k.apply_matmul(x[None], x[:, None].int()), TypeError, "one real dtype behind their programs"),
    (lambda x: k.apply_matmul(x, x[:, None]), ValueError, "must be matrices"),
    (lambda x: k.apply_matmul(x[None], x[None]), RuntimeError, "shapes cannot be multiplied .1x3 and 1x3."),
    (lambda x: k.apply_matmul(x[None], x[:, None], left=(lambda v, w: v + w, arete.ones(2, 3))), ValueError, "does not broadcast"),
    (lambda x: k.apply_matmul(x[None], x[:, None], result=lambda v: (v, v)), TypeError, "gives one value"),
    (lambda x: k.apply_program(lambda v: v if v > 0 else -v, x), TypeError, "known only when it runs: where"),
    (lambda x: k.apply_program(lambda v: 3.0, x), TypeError, "returned float"),
    (lambda x: k.apply_program(lambda v: (), x), TypeError, "returned nothing"),
    (lambda x: k.apply_program(lambda v: v, 3.0), TypeError, "at least one argument must be a tensor"),
    (lambda x: k.apply_program(lambda v, w: v, x, "a"), TypeError, "tensors or numbers, not str"),
    (lambda x: k.apply_program(lambda v: v, x.to(arete.complex64)), TypeError, "real numbers, not arete.complex64"),
    (lambda x: k.apply_rows(lambda rows, v: rows.max(v), x[:0], dim=0), ValueError, "no minimum and no maximum"),
    (lambda x: k.apply_rows(lambda rows, v: v, x, dim=3), IndexError, "Dimension out of range"),
    (lambda x: k.apply_reduce(lambda v: v, x, reduce="median"), ValueError, "not 'median'"),
    (lambda x: k.apply_program(lambda v, w: v + w, x, x[:2]), RuntimeError, "must match the size of tensor b"),
])
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(arete.ones(3))
