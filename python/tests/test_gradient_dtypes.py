"""Gradients, results of hooks and saved tensors of another dtype or device than what they stand for; views made under
no_grad. Run with both libraries."""
import importlib

import pytest
from idiom_helpers import anywhere, on_the_cpu

import arete

OPERATORS = {
    "mul": lambda torch, x: x * 2,
    "exp": lambda torch, x: x.exp(),
    "clone": lambda torch, x: x.clone(),
    "view": lambda torch, x: x.view(3),
    "linear": lambda torch, x: torch.nn.functional.linear(x, torch.ones_like(x.expand(3, 3))),
    "sum": lambda torch, x: x.sum(),
    "slice": lambda torch, x: x[1:],
    "cat": lambda torch, x: torch.cat([x, x]),
    "softmax": lambda torch, x: x.softmax(0),
    "cumsum": lambda torch, x: x.cumsum(0),
    "index": lambda torch, x: x[[0, 0, 2]],
    "to": lambda torch, x: x.double(),
    "norm": lambda torch, x: torch.nn.functional.layer_norm(x, (3,)),
}
DTYPES = ["float64", "float16", "bfloat16", "int64", "uint8", "bool"]


@anywhere
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_are_converted(torch, device, name, dtype):
    x = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = OPERATORS[name](torch, x)
    (expected,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    given = torch.ones(y.shape, dtype=getattr(torch, dtype), device=device)
    (gradient,) = torch.autograd.grad(y, x, given, retain_graph=True)
    assert gradient.dtype is torch.float32 and torch.equal(gradient, expected)
    y.backward(given)
    assert x.grad.dtype is torch.float32 and torch.equal(x.grad, expected)


@anywhere
def test_gradients_of_leaves(torch, device):
    x = torch.ones(2, device=device, requires_grad=True)
    x.backward(torch.tensor([3, 4], device=device))
    assert x.grad.dtype is torch.float32 and x.grad.tolist() == [3, 4]
    assert torch.autograd.grad(x, x, torch.ones(2, dtype=torch.float64, device=device))[0].dtype is torch.float32


@anywhere
def test_gradients_that_are_refused(torch, device):
    x = torch.ones(2, device=device, requires_grad=True)
    z = torch.ones(2, dtype=torch.complex64, device=device, requires_grad=True)
    for y, dtype in ((x * 2, torch.complex64), (z * 2, torch.float32), (z * 2, torch.int64)):
        for take in (lambda y, g: torch.autograd.grad(y, [x, z], g, allow_unused=True), lambda y, g: y.backward(g)):
            with pytest.raises(RuntimeError, match="both grad_output and output are required to have the same dtype"):
                take(y, torch.ones(2, dtype=dtype, device=device))
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device .* but got meta"):
        (x * 2).backward(torch.ones(2, device="meta"))
    for take in (lambda y: y.backward(), torch.autograd.backward, lambda y: torch.autograd.grad(y, z)):
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for real scalar outputs"):
            take((z * 2).sum())


@anywhere
def test_gradients_of_another_complex_dtype(torch, device):
    z = torch.ones(2, dtype=torch.complex64, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(z * 2, z, torch.ones(2, dtype=torch.complex128, device=device))
    assert gradient.dtype is torch.complex64 and gradient.tolist() == [2, 2]


@anywhere
def test_gradients_of_functions(torch, device):
    def made(convert):
        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, gradient):
                return convert(2 * gradient)

        return Double.apply

    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    for dtype in (torch.float64, torch.float16, torch.int64):
        for inner in (lambda t: t, lambda t: t * 3, lambda t: t.exp()):
            (expected,) = torch.autograd.grad((2 * inner(x)).sum(), x)
            (gradient,) = torch.autograd.grad(made(lambda g: g.to(dtype))(inner(x)).sum(), x)
            assert gradient.dtype is torch.float32 and torch.equal(gradient, expected)
    with pytest.raises(RuntimeError, match="invalid gradient at index 0 - expected device .* but got meta"):
        made(lambda g: g.to("meta"))(x).sum().backward()


@anywhere
@pytest.mark.parametrize("leaf", [True, False])
def test_hooks_keep_the_dtype(torch, device, leaf):
    for convert in (lambda g: g.double(), lambda g: g.half(), lambda g: g.long(), lambda g: g.to("meta")):
        x = torch.ones(2, device=device, requires_grad=True)
        y = x if leaf else x * 2
        y.register_hook(convert)
        with pytest.raises(RuntimeError, match="has changed the type of value"):
            (y * 3).sum().backward()
        assert x.grad is None
    x = torch.ones(2, device=device, requires_grad=True)
    y = x if leaf else x * 2
    y.register_hook(lambda g: g.double().mul(2).float())
    y.sum().backward()
    assert x.grad.tolist() == ([2, 2] if leaf else [4, 4])


def devices():
    return ["cpu"] + ["cuda"] * arete.cuda.is_available()


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "complex64"])
@pytest.mark.parametrize("name", ["exp", "mul", "sigmoid", "square", "linear"])
def test_saved_tensors_keep_the_dtype(device, dtype, name):
    """Formulas read what they saved as what it was."""
    by_name = {"mul": lambda x: x * x, "linear": lambda x: arete.nn.functional.linear(x, x)}
    function = by_name.get(name) or getattr(arete, name)
    x = arete.rand(3, device=device, requires_grad=True)
    with arete.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.to(getattr(arete, dtype))):
        y = function(x)
    with pytest.raises(RuntimeError, match=f"a saved tensor has changed its dtype.*float32.*{dtype}"):
        y.sum().backward()
    with arete.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()):  # there and back
        y = function(x)
    assert arete.equal(arete.autograd.grad(y.sum(), x)[0], arete.autograd.grad(function(x).sum(), x)[0])


@anywhere
def test_gradients_that_are_assigned(torch, device):
    p = torch.ones(3, device=device, requires_grad=True)
    for dtype in (torch.float64, torch.float16, torch.int64, torch.complex64):
        with pytest.raises(RuntimeError, match="attempting to assign a gradient with dtype '.*' to a tensor with"):
            p.grad = torch.ones(3, dtype=dtype, device=device)
    with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
        p.grad = p
    for wrong in (torch.ones(2, device=device), torch.ones(3, device="meta")):
        with pytest.raises(RuntimeError):
            p.grad = wrong
    for wrong in (3, [1.0, 1.0, 1.0]):
        with pytest.raises(TypeError, match="assigned grad expected to be a Tensor or None"):
            p.grad = wrong
    assert p.grad is None
    for right in (torch.ones(3, device=device), p.detach(), torch.ones(3, device=device, requires_grad=True)):
        p.grad = right
        assert p.grad is right
    del p.grad
    assert p.grad is None
    half = torch.ones(3, dtype=torch.float16, device=device, requires_grad=True)
    half.grad = torch.zeros(3, dtype=torch.float16, device=device)
    (half * 2).sum().backward()
    assert half.grad.tolist() == [2, 2, 2]


def base_and_view(torch, device, leaf, make):
    x = torch.ones(4, device=device, requires_grad=True)
    base = x if leaf else x * 1
    with torch.no_grad():
        return base, make(base)


@anywhere
@pytest.mark.parametrize("leaf", [True, False])
def test_writes_to_views_made_under_no_grad(torch, device, leaf):
    """Nothing would tell the base's history of them."""
    views = (lambda b: b[:2], lambda b: b.view(2, 2), lambda b: b[1], lambda b: b.view(2, 2).t(),
             lambda b: b.unfold(0, 2, 2))
    writes = (lambda v: v.mul_(3), lambda v: v.zero_(), lambda v: v.copy_(v.detach()),
              lambda v: torch.exp(v.detach(), out=v),
              lambda v: v.add_(torch.ones((), device=device, requires_grad=True)))
    for make in views:
        for write in writes:
            base, view = base_and_view(torch, device, leaf, make)
            with pytest.raises(RuntimeError):
                write(view)
            assert base.tolist() == [1, 1, 1, 1]
            if write is not writes[-1]:
                with torch.no_grad():
                    write(view)
    base, view = base_and_view(torch, device, leaf, lambda b: b[:2])
    with pytest.raises(RuntimeError, match="view|leaf"):
        view[0] = 7
    with pytest.raises(RuntimeError, match="view|leaf"):
        view[:1].mul_(3)


@anywhere
def test_other_writes_to_views_of_bases(torch, device):
    for write in (lambda v: v.mul_(3), lambda v: v.fill_(3)):
        base = torch.ones(4, device=device)
        with torch.no_grad():
            view = base[:2]
        write(view)
        assert base.tolist() == [3, 3, 1, 1]
        base = torch.ones(4, device=device, requires_grad=True) * 1
        write(base.detach()[:2])
        assert base.tolist() == [3, 3, 1, 1]
        with torch.no_grad():
            write(base[2:])
        assert base.tolist() == [3, 3, 3, 3]
        y = torch.ones(4, device=device, requires_grad=True) * 1
        write(y[:2])
        assert y.tolist() == [3, 3, 1, 1]


@on_the_cpu
def test_layers_and_optimizers_write_under_no_grad(torch, device):
    """What initialises or steps parameters through views goes on."""
    layer = torch.nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight[0].fill_(1)
        rows = layer.weight.view(-1)
        rows[2:].zero_()
    importlib.import_module(torch.__name__ + ".nn.init").ones_(layer.bias)
    assert layer.weight.tolist() == [[1, 1], [0, 0]]
    gates = torch.nn.LSTM(2, 3)
    with torch.no_grad():
        for name, p in gates.named_parameters():
            if "bias" in name:
                p[3:6].fill_(1)
    assert gates.bias_ih_l0[3:6].tolist() == [1, 1, 1]
