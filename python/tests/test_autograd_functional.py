"""Jacobians and Hessians, beside torch's where it is there and by hand."""
import pytest

import arete
from arete.autograd import functional

X, Y = [0.5, -1.0, 2.0], [[1.0, 2.0, 0.5], [0.25, -1.0, 3.0]]


def mixed(x, y):
    return y @ x.sin(), (x * y).sum()


def number(x, y):
    return (y @ x.exp()).square().sum() + x.prod()


def plain(result):
    return [plain(r) for r in result] if isinstance(result, tuple) else [result.tolist(), list(result.shape), result.requires_grad]


CALLS = [
    lambda t, f: f.vjp(mixed, (t.tensor(X), t.tensor(Y)), (t.ones(2), t.tensor(2.0))),
    lambda t, f: f.vjp(lambda x: (x * x).sum(), t.tensor(X)),
    lambda t, f: f.jvp(mixed, (t.tensor(X), t.tensor(Y)), (t.ones(3), t.ones(2, 3))),
    lambda t, f: f.jvp(lambda x: (x * 2, t.ones(2)), t.tensor(X), t.ones(3)),
    lambda t, f: f.jacobian(mixed, (t.tensor(X), t.tensor(Y))),
    lambda t, f: f.jacobian(mixed, (t.tensor(X), t.tensor(Y)), vectorize=True),
    lambda t, f: f.jacobian(lambda x: x.reshape(3, 1) * x, t.tensor(X), create_graph=True),
    lambda t, f: f.jacobian(lambda x: t.ones(2), t.tensor(X)),
    lambda t, f: f.jacobian(lambda x, y: x * 2, (t.tensor(X), t.tensor(Y))),
    lambda t, f: f.hessian(number, (t.tensor(X), t.tensor(Y))),
    lambda t, f: f.hessian(lambda x: (x ** 3).sum(), t.tensor(X), vectorize=True),
    lambda t, f: f.hessian(lambda x: x.sum(), t.tensor(X)),
    lambda t, f: f.hvp(number, (t.tensor(X), t.tensor(Y)), (t.ones(3), t.ones(2, 3))),
    lambda t, f: f.vhp(number, (t.tensor(X), t.tensor(Y)), (t.ones(3), t.ones(2, 3))),
    lambda t, f: f.vhp(lambda x: x[0] * x[1], t.tensor(X), t.ones(3), create_graph=True),
]


@pytest.mark.parametrize("call", CALLS)
def test_as_in_torch(call):
    torch = pytest.importorskip("torch")

    def same(a, b):
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(same, a, b))
        return a == pytest.approx(b, rel=1e-5, abs=1e-6)

    ours, theirs = plain(call(arete, functional)), plain(call(torch, torch.autograd.functional))
    assert same(ours, theirs), (ours, theirs)


def test_results_can_be_differentiated():
    x = arete.tensor(X, requires_grad=True)
    functional.jacobian(lambda x: x ** 3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [6 * v for v in X]
    _, product = functional.vjp(lambda x: x ** 3, x, arete.ones(3), create_graph=True)
    assert arete.autograd.grad(product.sum(), x)[0].tolist() == [6 * v for v in X]
    assert not functional.jacobian(lambda x: x ** 3, x).requires_grad


@pytest.mark.parametrize("call, error, text", [
    (lambda: functional.vjp(lambda x: x, arete.ones(2)), RuntimeError, "The vector v can only be None if"),
    (lambda: functional.jvp(lambda x: x, arete.ones(2), arete.ones(3)), RuntimeError, "have different sizes"),
    (lambda: functional.jacobian(lambda x: 1.0, arete.ones(2)), TypeError, "must be either a Tensor or a tuple of Tensors"),
    (lambda: functional.jacobian(lambda x: arete.ones(2), arete.ones(2), strict=True), RuntimeError, "does not require gradients"),
    (lambda: functional.jacobian(lambda x, y: x, (arete.ones(2), arete.ones(2)), strict=True), RuntimeError, "independent of input 1"),
    (lambda: functional.hessian(lambda x: x, arete.ones(2)), RuntimeError, "should return a single Tensor with a single element"),
    (lambda: functional.jacobian(lambda x: x, arete.ones(2), strategy="forward-mode"), NotImplementedError, "vectorize=True"),
])
def test_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
