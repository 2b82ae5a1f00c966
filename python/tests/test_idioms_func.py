"""Function transforms as people write them: each program gives with arete what it gives with PyTorch."""
import copy
import functools
import importlib

import numpy as np
import pytest
from idiom_helpers import anywhere, pytorch, seeds_and_switches  # noqa: F401 -- the fixture

import arete


class Tools:
    """A library's names and numbers that are the same in both."""

    def __init__(self, torch, device):
        self.torch, self.device, self.functional = torch, device, torch.nn.functional
        self.func = importlib.import_module(f"{torch.__name__}.func")

    def normal(self, *sizes, seed=0, scale=1.0):
        return self.torch.tensor((np.random.default_rng(seed).standard_normal(sizes) * scale).astype(np.float32), device=self.device)

    def integers(self, low, high, sizes, seed=0):
        return self.torch.tensor(np.random.default_rng(seed).integers(low, high, sizes), device=self.device)

    def filled(self, module, seed=1):
        rng = np.random.default_rng(seed)
        with self.torch.no_grad():
            for p in module.parameters():
                p.copy_(self.torch.tensor((rng.standard_normal(tuple(p.shape)) * 0.2).astype(np.float32)))
        return module.to(self.device)

    def mlp(self, inputs, hidden, outputs, seed=1):
        nn = self.torch.nn
        return self.filled(nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)), seed)

    def parameters(self, module):
        return {name: p.detach() for name, p in module.named_parameters()}

    def calling(self, module):
        return lambda parameters, *args: self.func.functional_call(module, parameters, args)


def with_pytorchs_numbers(program):
    """The test of a program that returns tensors: arete's are those that PyTorch has on the CPU."""

    def numbers(torch, device):
        return [t.detach().cpu().numpy() for t in program(Tools(torch, device))]

    @functools.wraps(program)
    def test(torch, device):
        got = numbers(torch, device)
        assert all(np.isfinite(a).all() for a in got)
        if torch is arete and pytorch is not None:
            for a, b in zip(got, numbers(pytorch, "cpu"), strict=True):
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=0, atol=(1e-4 if device == "cpu" else 5e-3) * max(np.abs(b).max(), 1e-6))

    del test.__wrapped__  # pytest gives what the signature names
    return test


@anywhere
@with_pytorchs_numbers
def test_meta_learning(tools):
    func, functional = tools.func, tools.functional
    net = tools.mlp(1, 40, 1)
    apply = tools.calling(net)
    tasks = [tools.normal(25, 10, 1, seed=s) for s in range(4)]

    def loss(p, x, y):
        return functional.mse_loss(apply(p, x), y)

    def adapted(p, x, y, x_query, y_query):
        for _ in range(3):
            slopes = func.grad(loss)(p, x, y)
            p = {name: p[name] - 0.1 * slopes[name] for name in p}
        return loss(p, x_query, y_query)

    def total(p):
        return func.vmap(adapted, in_dims=(None, 0, 0, 0, 0))(p, *tasks).mean()

    p = tools.parameters(net)
    for _ in range(3):
        slopes = func.grad(total)(p)
        p = {name: p[name] - 0.05 * slopes[name] for name in p}
    return p.values()


@anywhere
@with_pytorchs_numbers
def test_neural_tangent_kernel(tools):
    func, torch = tools.func, tools.torch
    net = tools.mlp(8, 32, 3)
    p, a, b, f = tools.parameters(net), tools.normal(6, 8), tools.normal(5, 8, seed=5), tools.calling(net)
    slopes = [[j.flatten(2) for j in func.vmap(func.jacrev(f), (None, 0))(p, x).values()] for x in (a, b)]
    contracted = sum(torch.einsum("Naf,Mbf->NMab", u, v) for u, v in zip(*slopes))

    def entry(x, y):
        _, transposed = func.vjp(lambda p: f(p, x), p)
        return func.vmap(lambda v: func.jvp(lambda p: f(p, y), (p,), transposed(v))[1])(torch.eye(3, device=tools.device))

    products = func.vmap(func.vmap(entry, (None, 0)), (0, None))(a, b)
    return contracted, products


@anywhere
@with_pytorchs_numbers
def test_gradients_clipped_by_sample(tools):
    func, torch, nn = tools.func, tools.torch, tools.torch.nn
    net = tools.filled(nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2),
                                     nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10)))
    f = tools.calling(net)
    x, y = tools.normal(12, 1, 16, 16), tools.integers(0, 10, 12)

    def loss(p, x, y):
        return tools.functional.cross_entropy(f(p, x.unsqueeze(0)), y.unsqueeze(0))

    slopes = func.vmap(func.grad(loss), (None, 0, 0))(tools.parameters(net), x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in slopes.values()]).norm(dim=0)
    factors = (1 / (norms + 1e-6)).clamp(max=1.0)
    return [torch.einsum("b,b...->...", factors, g) for g in slopes.values()] + [norms]


@anywhere
@with_pytorchs_numbers
def test_trace_by_random_vectors(tools):
    func, torch = tools.func, tools.torch
    f, p, x = tools.calling(net := tools.mlp(6, 32, 1)), tools.parameters(net), tools.normal(20, 6)
    signs = torch.sign(tools.normal(30, 20, 6, seed=9))
    products = func.vmap(lambda v: func.jvp(func.grad(lambda x: f(p, x).sum()), (x,), (v,))[1])(signs)
    exact = func.vmap(lambda x: torch.trace(func.hessian(lambda x: f(p, x).squeeze())(x)))(x)
    forward = func.vmap(lambda x: torch.einsum("ii", func.jacfwd(func.jacfwd(lambda x: f(p, x).squeeze()))(x)))(x)
    return (products * signs).sum(-1).mean(0), exact, forward


@anywhere
@with_pytorchs_numbers
def test_products_with_the_hessian(tools):
    func, torch = tools.func, tools.torch
    net = tools.mlp(10, 50, 5)
    f, p, x, y = tools.calling(net), tools.parameters(net), tools.normal(64, 10), tools.integers(0, 5, 64)

    def loss(p):
        return tools.functional.cross_entropy(f(p, x), y)

    v = {name: torch.ones_like(t) for name, t in p.items()}
    backwards = func.vjp(func.grad(loss), p)[1](v)[0]
    for _ in range(4):  # the largest eigenvalue by powers
        v = func.jvp(func.grad(loss), (p,), (v,))[1]
        norm = sum((u * u).sum() for u in v.values()).sqrt()
        v = {name: u / norm for name, u in v.items()}
    out, tangent = func.jvp(lambda p: f(p, x), (p,), (v,))  # and the Fisher matrix
    share = out.softmax(-1)
    fisher = func.vjp(lambda p: f(p, x), p)[1](share * tangent - share * (share * tangent).sum(-1, keepdim=True))[0]
    return [norm, *backwards.values(), *v.values(), *fisher.values()]


@anywhere
@with_pytorchs_numbers
def test_ensemble_with_an_optimizer(tools):
    func, torch, nn = tools.func, tools.torch, tools.torch.nn
    nets = [tools.filled(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)), seed) for seed in range(8)]
    base = copy.deepcopy(nets[0]).to("meta")
    p, buffers = func.stack_module_state(nets)
    x, y = tools.normal(50, 20), tools.integers(0, 4, 50)
    optimizer = torch.optim.Adam(list(p.values()), lr=1e-2)
    for _ in range(10):
        out = func.vmap(lambda p, b: func.functional_call(base, (p, b), (x,)))(p, buffers)
        loss = func.vmap(tools.functional.cross_entropy, (0, None))(out, y).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [loss]


@anywhere
@with_pytorchs_numbers
def test_influence_and_laplace(tools):
    func, torch = tools.func, tools.torch
    net = tools.mlp(4, 6, 2)
    p, x, y, f = tools.parameters(net), tools.normal(30, 4), tools.integers(0, 2, 30), tools.calling(net)
    sizes = [t.numel() for t in p.values()]

    def loss(flat, x, y):
        return tools.functional.cross_entropy(
            f({name: part.view(t.shape) for (name, t), part in zip(p.items(), flat.split(sizes))}, x), y)

    flat = torch.cat([t.reshape(-1) for t in p.values()])
    damped = func.hessian(loss)(flat, x, y) + 0.1 * torch.eye(len(flat), device=tools.device)
    slopes = func.vmap(func.grad(loss), (None, 0, 0))(flat, x.unsqueeze(1), y.unsqueeze(1))
    jacobian = torch.cat([j.flatten(2) for j in func.vmap(func.jacrev(f), (None, 0))(p, x).values()], 2).flatten(0, 1)
    precision = jacobian.mT @ jacobian + torch.eye(len(flat), device=tools.device)
    factor = torch.linalg.cholesky(precision)
    spread = (jacobian * torch.cholesky_solve(jacobian.mT, factor).mT).sum(1)
    return slopes @ torch.linalg.solve(damped, slopes[0]), spread, torch.linalg.slogdet(precision)[1]


@anywhere
@with_pytorchs_numbers
def test_penalty_on_the_jacobian(tools):
    func, net = tools.func, tools.mlp(5, 32, 3)
    x, f = tools.normal(20, 5), tools.calling(net)

    def loss(p):
        jacobians = func.vmap(func.jacrev(lambda x: f(p, x)))(x)
        return f(p, x).square().mean() + 0.1 * (jacobians**2).sum((1, 2)).mean()

    return func.grad(loss)(tools.parameters(net)).values()


@anywhere
@with_pytorchs_numbers
def test_implicit_differentiation(tools):
    func, torch = tools.func, tools.torch
    a, b = tools.normal(6, 6, scale=0.1), tools.normal(9, 6, seed=2)

    def fixed_point(b):
        x = torch.zeros(6, device=tools.device)
        for _ in range(30):
            x = torch.tanh(a @ x + b)
        return x

    class FixedPoint(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(b):
            return fixed_point(b)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output, inputs[0])

        @staticmethod
        def backward(ctx, g):
            x, b = ctx.saved_tensors
            slope = 1 - torch.tanh(a @ x + b)**2
            return torch.linalg.solve(torch.eye(6, device=tools.device) - (slope.unsqueeze(-1) * a).mT, g) * slope

    return func.vmap(func.jacrev(fixed_point))(b), func.vmap(func.jacrev(FixedPoint.apply))(b)


@anywhere
@with_pytorchs_numbers
def test_roots_of_a_batch(tools):
    func, torch = tools.func, tools.torch

    def newton(a):
        f, x = lambda x: x**3 + a * x - 1, torch.ones_like(a)
        for _ in range(20):
            x = x - f(x) / func.grad(f)(x)
        return x

    def halving(a):
        low, high = torch.zeros_like(a), torch.full_like(a, 2.0)
        for _ in range(30):
            middle = (low + high) / 2
            above = middle**3 + a * middle - 1 > 0
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        return low

    a = tools.normal(100).abs()
    return func.vmap(newton)(a), func.vmap(halving)(a), func.vmap(func.grad(newton))(a)


@anywhere
@with_pytorchs_numbers
def test_equation_of_burgers(tools):
    func, net = tools.func, tools.mlp(2, 32, 1)
    x, f = tools.normal(50, 2), tools.calling(net)

    def residual(p, x):
        u = lambda p, x: f(p, x).squeeze()  # noqa: E731
        slope = func.jacrev(u, argnums=1)(p, x)
        return slope[1] + u(p, x) * slope[0] - 0.01 * func.jacrev(func.jacrev(u, argnums=1), argnums=1)(p, x)[0, 0]

    def loss(p):
        return (func.vmap(residual, (None, 0))(p, x)**2).mean()

    p = tools.parameters(net)
    for _ in range(3):
        slopes = func.grad(loss)(p)
        p = {name: p[name] - 0.01 * slopes[name] for name in p}
    return [loss(p), *p.values()]


@anywhere
@with_pytorchs_numbers
def test_attention_by_sample(tools):
    layer = tools.filled(tools.torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True))
    f = tools.calling(layer)
    slopes = tools.func.vmap(tools.func.grad(lambda p, x: f(p, x.unsqueeze(0)).square().mean()), (None, 0))(
        tools.parameters(layer), tools.normal(6, 10, 16))
    return slopes.values()


@anywhere
@with_pytorchs_numbers
def test_batch_norms_replaced_or_frozen(tools):
    func, nn = tools.func, tools.torch.nn
    x = tools.normal(4, 6, 1, 12, 12)
    net = tools.filled(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)))
    frozen = copy.deepcopy(net).eval()
    func.replace_all_batch_norm_modules_(net)
    p, f, g = tools.parameters(net), tools.calling(net), tools.calling(frozen)
    slopes = func.vmap(func.grad(lambda p, x: g(p, x.unsqueeze(0)).sum()), (None, 0))(p, x[0])
    return [func.vmap(f, (None, 0))(p, x), *slopes.values()]


@anywhere
@with_pytorchs_numbers
def test_trees_and_chunks(tools):
    func, torch = tools.func, tools.torch
    given = {"x": tools.normal(3, 5), "y": (tools.normal(5, 3, seed=2), tools.normal(4, seed=3))}

    def f(d, scale):
        return {"a": d["x"] * scale + d["y"][0].sum(), "b": [d["y"][1] * d["x"].sum()]}

    dims = ({"x": 1, "y": (0, None)}, None)
    one, each = (func.vmap(f, in_dims=dims, out_dims=out)(given, 2.0) for out in (1, {"a": 0, "b": [1]}))
    x, w = tools.normal(64, 30), tools.normal(30, 30, seed=2)
    g = lambda v: torch.tanh(w @ v)  # noqa: E731
    return (one["a"], one["b"][0], each["a"], each["b"][0], func.vmap(func.jacrev(g), chunk_size=8)(x),
            func.jacrev(g, chunk_size=7)(x[0]), func.vmap(g, chunk_size=10)(x))


@anywhere
@with_pytorchs_numbers
def test_tied_weights(tools):
    func, torch, nn = tools.func, tools.torch, tools.torch.nn

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(12, 8), nn.Linear(8, 12, bias=False)
            self.out.weight = self.table.weight

        def forward(self, i):
            return self.out(torch.tanh(self.table(i)))

    net, i = tools.filled(Tied()), tools.integers(0, 12, (5, 6))
    p = {"table.weight": net.table.weight.detach() * 2}
    slopes = func.vmap(func.grad(lambda p, i: tools.functional.cross_entropy(func.functional_call(net, p, (i,)), i)), (None, 0))(p, i)
    return func.functional_call(net, p, (i,)), func.functional_call(net, p, (i,), tie_weights=False), slopes["table.weight"]


@anywhere
@with_pytorchs_numbers
def test_linearized(tools):
    f, p = tools.calling(net := tools.mlp(6, 32, 6)), tools.parameters(net)
    value, product = tools.func.linearize(lambda x: f(p, x), tools.normal(6))
    tangents = tools.normal(10, 6, seed=3)
    return value, tools.torch.stack([product(t) for t in tangents]), tools.func.vmap(product)(tangents)


@anywhere
@with_pytorchs_numbers
def test_likelihood_of_gaussian_processes(tools):
    func, torch = tools.func, tools.torch
    x, y, settings = tools.normal(20, 2), tools.normal(20, seed=4), tools.normal(6, 3, seed=3, scale=0.3)

    def loss(setting):
        length, scale, noise = setting.exp()
        kernel = scale * torch.exp(-((x[:, None] - x[None]) / length).square().sum(-1) / 2)
        factor = torch.linalg.cholesky(kernel + (noise + 0.1) * torch.eye(20, device=tools.device))
        return 0.5 * (y @ torch.cholesky_solve(y[:, None], factor)).sum() + torch.log(torch.diagonal(factor)).sum()

    return func.vmap(loss)(settings), func.vmap(func.grad(loss))(settings), func.vmap(func.hessian(loss))(settings)


@anywhere
@with_pytorchs_numbers
def test_paths_of_a_random_equation(tools):
    func, torch = tools.func, tools.torch

    def path(x, noise):
        points = []
        for t in range(noise.shape[0]):
            x = x + 0.01 * torch.sin(x) + 0.1 * noise[t]
            points.append(x)
        return torch.stack(points)

    x, noise = tools.normal(20, 3), tools.normal(20, 30, 3, seed=4)
    return func.vmap(path)(x, noise), func.vmap(func.jacrev(lambda x, n: path(x, n)[-1]))(x, noise)


@anywhere
def test_random_augmentation(torch, device):
    func, functional = Tools(torch, device).func, torch.nn.functional
    pictures = torch.randn(10, 3, 16, 16, device=device)

    def augmented(x):
        x = torch.where(torch.rand((), device=device) < 0.5, x.flip(-1), x)
        x = functional.dropout(x * (1 + 0.1 * torch.randn(3, 1, 1, device=device)), 0.3)
        rows = torch.randint(0, 4, (), device=device) + torch.arange(12, device=device)
        return x.index_select(-2, rows) + 0.05 * torch.randn_like(x[:, :12])

    different = func.vmap(augmented, randomness="different")(pictures[:1].expand(10, 3, 16, 16))
    same = func.vmap(augmented, randomness="same")(pictures[:1].expand(10, 3, 16, 16))
    assert different.shape == same.shape == (10, 3, 12, 16)
    assert bool((same == same[0]).all()) and not bool((different == different[0]).flatten(1).all(1)[1:].any())


@anywhere
def test_recurrent_layers_by_sample_and_by_net(torch, device):
    if torch is not arete:
        pytest.skip("torch's LSTM has no rule for batches")
    tools, nn = Tools(torch, device), torch.nn
    func, x = tools.func, tools.normal(5, 7, 6)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        nets = [tools.filled(kind(6, 8, batch_first=True), seed) for seed in range(3)]
        f = lambda p, x: func.functional_call(nets[0], p, (x,))[0]  # noqa: B023, E731
        out = func.vmap(f, (0, None))(func.stack_module_state(nets)[0], x)
        assert torch.allclose(out, torch.stack([net(x)[0] for net in nets]), atol=1e-5)
        p, loss = tools.parameters(nets[0]), lambda p, x: f(p, x.unsqueeze(0)).square().sum()
        slopes = func.vmap(func.grad(loss), (None, 0))(p, x)
        for name in p:
            assert torch.allclose(slopes[name], torch.stack([func.grad(loss)(p, row)[name] for row in x]), atol=1e-4)
