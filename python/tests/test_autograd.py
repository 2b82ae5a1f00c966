"""Differentiation from Python."""
import gc
import weakref

import pytest

import arete as torch


def test_backward_and_grad():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    assert g.tolist() == [3, 12] and g.requires_grad
    (h,) = torch.autograd.grad(g.sum(), x)
    assert h.tolist() == [6, 12]
    y.backward()
    assert x.grad.tolist() == [3, 12]
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()
    (x * 2).backward(torch.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [5, 32]
    z = torch.ones(2, requires_grad=True)
    assert torch.autograd.grad(x.sum(), [x, z], allow_unused=True)[1] is None
    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    (a * b).backward(inputs=[a])
    assert a.grad.tolist() == [1] and b.grad is None
    assert "Backward" in (a * b).grad_fn.name() and (a * b).grad_fn.next_functions[0][0].name() == "AccumulateGrad"


def test_hooks():
    x = torch.ones(2, requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    other = x.register_hook(lambda g: g * 10)
    (x * 3).sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [30, 30]
    handle.remove()
    other.remove()
    x.grad = None
    y = x * 2
    y.retain_grad()
    y.sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [2, 2] and y.grad.tolist() == [1, 1]

    def fails(g):
        raise KeyError("from the hook")

    x.register_hook(fails)
    with pytest.raises(KeyError, match="from the hook"):
        (x * 2).sum().backward()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, y=None):
        ctx.save_for_backward(x, None)
        ctx.factor = factor
        return x * factor, x.sum()

    @staticmethod
    def backward(ctx, g, g_sum):
        x, nothing = ctx.saved_tensors
        assert nothing is None and ctx.needs_input_grad[0] and x is not None
        return g * ctx.factor + g_sum, None, None


def test_custom_functions():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    a, b = Scaled.apply(x, 4)
    assert a.tolist() == [4, 8] and b.item() == 3 and a.requires_grad
    a.sum().backward()  # the gradient of b is zeros
    assert x.grad.tolist() == [4, 4]
    y = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: Scaled.apply(t, 2.5), [y])
    assert torch.autograd.gradgradcheck(lambda t: t.exp(), [y])
    assert not torch.autograd.gradcheck(lambda t: t.detach() * t, [y], raise_exception=False)
    assert not torch.autograd.gradcheck(lambda t: (t - 100).sqrt(), [y], raise_exception=False)  # NaN everywhere

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g, g

    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        Wrong.apply(y).sum().backward()


def test_graphs_are_freed():
    x = torch.ones(3, requires_grad=True)

    class Marker:
        pass

    marker = Marker()
    w = weakref.ref(marker)

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, m):
            ctx.m = m
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    y = Keeps.apply(x, marker)
    y.sum().backward()
    del y, marker
    gc.collect()
    assert w() is None


def test_in_place_rules():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x += 1
    y = x.exp()
    z = y * 2
    y += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with torch.no_grad():
        x += 1
    assert x.tolist() == [2, 2]
    x.data = torch.zeros(2)
    assert x.tolist() == [0, 0] and x.requires_grad


def test_anomaly():
    x = torch.tensor([-1.0], requires_grad=True)
    with torch.autograd.detect_anomaly():
        with pytest.raises(RuntimeError):
            x.sqrt().backward()
    assert not torch.autograd.is_anomaly_enabled()
