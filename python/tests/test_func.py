"""arete.func and arete.utils._pytree beside torch.func where PyTorch is installed."""
import importlib

import numpy as np
import pytest
from idiom_helpers import LIBRARIES

import arete
from arete.utils.checkpoint import checkpoint

both = pytest.mark.parametrize("torch", LIBRARIES, ids=lambda library: library.__name__)


def func_of(torch):
    return importlib.import_module(f"{torch.__name__}.func")


def close(x, values):
    np.testing.assert_allclose(x.detach().numpy(), values, rtol=1e-5, atol=1e-6)


@both
def test_gradients(torch):
    func = func_of(torch)
    x = torch.tensor([1.0, 2.0])
    g = func.grad(lambda x: (x**3).sum())(x)
    close(g, [3, 12])
    assert not g.requires_grad
    second = func.grad(lambda x: func.grad(lambda x: (x**3).sum())(x).sum())(x)
    close(second, [6, 12])
    assert not second.requires_grad
    g, value = func.grad_and_value(lambda a, b: (a["w"] * b).sum())({"w": x}, x)
    close(g["w"], [1, 2])
    assert value.item() == 5
    g, aux = func.grad(lambda a, b: ((a * b).sum(), a + 1), argnums=(0, 1), has_aux=True)(x, x + 1)
    close(g[0], [2, 3])
    close(g[1], [1, 2])
    close(aux, [2, 3])
    with pytest.raises(RuntimeError, match="to return a scalar Tensor, got tensor with 1 dims"):
        func.grad(lambda x: x)(x)
    with pytest.raises(RuntimeError, match="Got argnum=3, but only 1 positional inputs"):
        func.grad(lambda x: x.sum(), argnums=3)(x)
    with torch.no_grad():
        close(func.grad(lambda x: (x**3).sum())(x), [3, 12])


@both
def test_history_from_outside(torch):
    func = func_of(torch)
    x, w = torch.tensor([1.0, 2.0], requires_grad=True), torch.tensor(3.0, requires_grad=True)
    g = func.grad(lambda x: (w * x**3).sum())(x)
    assert g.requires_grad
    g.sum().backward()
    close(x.grad, [18, 36])
    close(w.grad, 15)
    g = func.grad(lambda x: (w * x**2).sum())(x.detach())  # of what it closes over alone
    assert g.requires_grad
    close(torch.autograd.grad(g.sum(), w)[0], 6)


@both
def test_products_with_jacobians(torch):
    func = func_of(torch)
    x = torch.tensor([1.0, 2.0])
    f = lambda x: {"a": x**2, "b": x.sum()}  # noqa: E731
    y, pull = func.vjp(f, x)
    (g,) = pull({"a": torch.ones(2), "b": torch.tensor(2.0)})
    close(g, [4, 6])
    assert not y["a"].requires_grad and not g.requires_grad
    y, pushed = func.jvp(f, (x,), (torch.tensor([1.0, 10.0]),))
    close(pushed["a"], [2, 40])
    close(pushed["b"], 11)
    assert not pushed["a"].requires_grad and not y["a"].requires_grad
    twice = func.jvp(lambda x: func.jvp(lambda x: x**3, (x,), (torch.ones(2),))[1], (x,), (torch.ones(2),))[1]
    close(twice, [6, 12])
    jacobian = func.jacrev(f)(x)
    close(jacobian["a"], [[2, 0], [0, 4]])
    close(jacobian["b"], [1, 1])
    close(func.jacfwd(lambda x: x**2)(x), [[2, 0], [0, 4]])
    close(func.hessian(lambda x: (x**3).sum() + x.prod())(x), [[6, 1], [1, 12]])
    a, b = func.jacrev(lambda a, b: a @ b, argnums=(0, 1))(torch.ones(2, 3), torch.ones(3))
    assert tuple(a.shape) == (2, 2, 3) and tuple(b.shape) == (2, 3)
    third = func.hessian(lambda x: func.grad(lambda y: (y**4).sum())(x).sum())(x)
    close(third, [[24, 0], [0, 48]])


@both
def test_maps(torch):
    func = func_of(torch)
    x = torch.arange(6.0).reshape(2, 3)
    close(torch.vmap(torch.dot)(x, x), [5, 50])
    close(func.vmap(lambda a: 2 * a, in_dims=1, out_dims=1)(x), (2 * x).numpy())
    total, parts = func.vmap(lambda a, b: (a.sum() + b, {"x": a}), in_dims=(0, None))(x, torch.tensor(1.0))
    close(total, [4, 13])
    close(parts["x"], x.numpy())
    outer = func.vmap(func.vmap(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))
    close(outer(torch.arange(3.0), torch.arange(4.0)), np.outer(np.arange(3), np.arange(4)))
    per_sample = func.vmap(func.grad(lambda w, x: ((w * x).sum()) ** 2), in_dims=(None, 0))(torch.ones(3), x)
    close(per_sample, [[0, 6, 12], [72, 96, 120]])
    with pytest.raises(ValueError, match="got sizes \\[2, 3\\] for the mapped dimension"):
        func.vmap(torch.dot)(torch.ones(2, 3), torch.ones(3, 3))
    with pytest.raises(ValueError, match="must only return Tensors, got type <class 'int'>"):
        func.vmap(lambda x: 3)(x)
    with pytest.raises(ValueError, match="We cannot vmap over non-Tensor arguments"):
        func.vmap(lambda x, y: x)(x, 3)
    with pytest.raises(RuntimeError, match="randomness error mode"):
        func.vmap(lambda x: x + torch.rand(3))(x)
    same = func.vmap(lambda x: torch.rand(3) + 0 * x, randomness="same")(x)
    assert torch.equal(same[0], same[1])
    different = func.vmap(lambda x: torch.rand(3) + 0 * x, randomness="different")(x)
    assert not torch.equal(different[0], different[1])


@both
def test_ensembles(torch):
    func = func_of(torch)
    models = [torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval() for _ in range(3)]
    parameters, buffers = func.stack_module_state(models)
    x = torch.ones(4, 3)
    got = func.vmap(lambda p, b, x: func.functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(parameters, buffers, x)
    close(got, torch.stack([m(x) for m in models]).detach().numpy())
    assert parameters["0.weight"].requires_grad and parameters["0.weight"].is_leaf


def test_what_there_is_not():
    with arete.autograd.forward_ad.dual_level():
        dual = arete.autograd.forward_ad.make_dual(arete.ones(2), arete.ones(2))
        with pytest.raises(NotImplementedError, match="grad.*: .* tangents of dual tensors"):
            arete.func.grad(lambda x: x.sum())(dual)
        with pytest.raises(NotImplementedError, match="lose the tangents"):
            arete.func.grad_and_value(lambda x: (x * dual).sum())(arete.ones(2))
    with pytest.raises(NotImplementedError, match="randomness"):
        func_of(arete).jacfwd(lambda x: x, randomness="same")


@both
def test_trees(torch):
    pytree = importlib.import_module(f"{torch.__name__}.utils._pytree")
    tree = {"a": [1, (2, 3)], "b": None}
    leaves, form = pytree.tree_flatten(tree)
    assert leaves == [1, 2, 3, None] and pytree.tree_unflatten(leaves, form) == tree and form.num_leaves == 4
    assert pytree.tree_map(lambda x: x, tree) == tree and pytree.tree_leaves(tree) == leaves
    assert pytree.tree_map_only(int, lambda x: -x, tree) == {"a": [-1, (-2, -3)], "b": None}
    with pytest.raises(ValueError, match="has length 1"):
        pytree.tree_unflatten([1], form)


def test_vmap_refuses_writes_that_all_elements_would_share():
    total, x = arete.zeros(2), arete.ones(3, 2)
    with pytest.raises(RuntimeError, match=r"vmap: inplace arithmetic\(self, \*extra_args\) is not possible"):
        arete.vmap(lambda t, row: t.add_(row), in_dims=(None, 0))(total, x)
    assert not total.any()
    assert arete.equal(arete.vmap(lambda t, row: t.add_(row))(arete.zeros(3, 2), x), x)


@both
def test_what_vmap_maps(torch):
    x, y = torch.arange(6.0).reshape(3, 2), torch.arange(3.0)
    assert torch.vmap(lambda x, *, y: x.sum() + y.sum())(x, y=y).tolist() == [4, 8, 12]  # what is given by name stays whole
    assert torch.vmap(lambda x: x * 2, in_dims=-1, out_dims=(1,))(x).equal(x * 2)
    chunks = {"chunk_size": 2} if torch is arete else {}  # of which PyTorch joins what is not mapped, too, and fails
    f = torch.vmap(lambda x, t: (x + t["y"], t["y"]), in_dims=(0, {"y": None}), out_dims=(0, None), **chunks)
    found, same = f(x, {"y": y[:2]})
    assert found.equal(x + y[:2]) and same.equal(y[:2])
    for text, call in (
        ("expected `in_dims` to be int or a .* tuple matching the structure of inputs, got: <class 'list'>",
         lambda: torch.vmap(torch.sin, in_dims=[0])(x)),
        ("in_dims is not compatible with the structure of `inputs`", lambda: torch.vmap(torch.sin, in_dims=(0, 0))(x)),
        ("in_dims is not compatible with the structure of `inputs`",
         lambda: torch.vmap(lambda t: t["y"], in_dims=({"x": 0},))({"y": y})),
        ("but the input is of type <class 'int'>", lambda: torch.vmap(torch.sin)(3)),
        ("so expected in_dim to satisfy -1 <= in_dim < 1", lambda: torch.vmap(torch.sin, in_dims=1)(y)),
        ("same size in the mapped dimension, got sizes", lambda: torch.vmap(torch.add)(y, x[:2])),
        ("out_dims is not compatible with the structure of `outputs`", lambda: torch.vmap(torch.sin, out_dims=(0, 1))(x)),
        ("`out_dims` must be an int, None or a python collection of ints", lambda: torch.vmap(torch.sin, out_dims=1.5)(x)),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_a_checkpointed_layer_that_lost_its_place_is_an_error():
    net = arete.nn.Linear(3, 3)
    scale = arete.tensor(2.0, requires_grad=True)
    scaled = {f"inner.{name}": p * scale for name, p in net.named_parameters()}
    y = arete.func.functional_call(_Checkpointed(net), scaled, (arete.randn(2, 3),))
    del net.weight
    with pytest.raises(RuntimeError, match="without 'weight'"):
        y.sum().backward()


class _Checkpointed(arete.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


@pytest.mark.parametrize("reentrant", [False, True])
def test_functional_call_around_checkpoints(reentrant):
    """What the call has put into a module is there again when its layers are computed again, after the call."""

    class Net(arete.nn.Module):
        def __init__(self, run):
            super().__init__()
            self.a, self.b, self.run = arete.nn.Linear(3, 3), arete.nn.Linear(3, 3), run

        def forward(self, x):
            return self.run(lambda x: self.b(self.run(self.a, x).tanh()), x)

    plain = Net(lambda f, x: f(x))
    again = Net(lambda f, x: checkpoint(f, x, use_reentrant=reentrant))
    again.load_state_dict(plain.state_dict())
    x, found = arete.randn(2, 3, requires_grad=True), []
    for net in (plain, again):
        scales = [arete.tensor(k, requires_grad=True) for k in (2.0, 3.0)]
        results = [arete.func.functional_call(net, {name: p * scale for name, p in net.named_parameters()}, (x,)) for scale in scales]
        wanted = (x, *scales, *net.parameters())
        found.append(arete.autograd.grad([y.square().sum() for y in results], wanted))
    assert all(map(arete.equal, *found))
