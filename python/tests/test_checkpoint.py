"""Activation checkpointing: same gradients, fewer activations, errors."""
from __future__ import annotations

import collections

import pytest

import arete
from arete.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential

nn = arete.nn
Pair = collections.namedtuple("Pair", "a b")


def gradients(module, x, run):
    x = x.detach().clone().requires_grad_(True)
    module.zero_grad()
    out = run(x)
    out.sum().backward()
    return [out.detach(), x.grad] + [p.grad.clone() for p in module.parameters()]


def same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        assert x.tolist() == y.tolist()


@pytest.mark.parametrize("reentrant", [None, True, False])
def test_same_gradients(reentrant):
    arete.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    x = arete.randn(5, 3)
    same(gradients(net, x, net), gradients(net, x, lambda t: checkpoint(net, t, use_reentrant=reentrant)))


def test_sequential():
    arete.manual_seed(0)
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(7)])
    x = arete.randn(2, 4)
    for segments in (1, 2, 3, 7):
        same(gradients(net, x, net), gradients(net, x, lambda t: checkpoint_sequential(net, segments, t, use_reentrant=False)))
    with pytest.raises(ValueError):
        checkpoint_sequential(net, 8, x)
    with pytest.raises(ValueError):
        checkpoint_sequential(net, 2, x, other=1)


def test_dropout_is_the_same_both_times():
    net = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5))
    x = arete.randn(4, 16)
    arete.manual_seed(3)
    plain = gradients(net, x, net)
    arete.manual_seed(3)
    same(plain, gradients(net, x, lambda t: checkpoint(net, t, use_reentrant=False)))
    before = arete.get_rng_state().tolist()
    t = x.clone().requires_grad_(True)
    out = checkpoint(net, t, use_reentrant=False)
    after = arete.get_rng_state().tolist()
    out.sum().backward()
    assert before != after and arete.get_rng_state().tolist() == after


def test_parameters_without_inputs_that_need_gradients():
    net = nn.Linear(2, 2)
    checkpoint(net, arete.ones(3, 2), use_reentrant=False).sum().backward()
    assert net.weight.grad.tolist() == [[3, 3], [3, 3]]


def test_structures():
    x, y = arete.ones(2, requires_grad=True), arete.full((2,), 2.0, requires_grad=True)

    def function(a, pair, *, scale, note):
        return {"sum": a + pair.a * scale["k"], "list": [pair.b * a, note], "int": arete.arange(3), "same": a, "none": None}

    out = checkpoint(function, x, Pair(y, y), scale={"k": y}, note="n", use_reentrant=False)
    assert out["list"][1] == "n" and out["none"] is None and not out["int"].requires_grad and out["int"].tolist() == [0, 1, 2]
    (out["sum"].sum() + out["list"][0].sum() + out["same"].sum()).backward()
    assert x.grad.tolist() == [4, 4] and y.grad.tolist() == [5, 5]


def test_runs_twice_and_keeps_nothing():
    calls = []

    def function(a):
        calls.append(arete.is_grad_enabled())
        return a.exp()

    x = arete.ones(2, requires_grad=True)
    out = checkpoint(function, x, use_reentrant=False)
    assert calls == [False]
    out.sum().backward()
    assert calls == [False, True]
    with arete.no_grad():
        assert not checkpoint(function, x).requires_grad


def test_nested():
    arete.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    x = arete.randn(2, 3)

    def inner(t):
        return checkpoint(net[0], t, use_reentrant=False)

    same(gradients(net, x, net), gradients(net, x, lambda t: checkpoint(lambda u: net[2](net[1](inner(u))), t, use_reentrant=False)))


def test_errors():
    sizes = [2, 3]
    x = arete.ones(4, requires_grad=True)
    out = checkpoint(lambda t: t[:sizes.pop()] * 2, x, use_reentrant=False)
    with pytest.raises(RuntimeError, match="other tensors"):
        out.sum().backward()
    assert issubclass(CheckpointError, RuntimeError)
    with pytest.raises(ValueError, match="keyword"):
        checkpoint(lambda t, k: t, x, k=1, use_reentrant=True)
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(lambda t: t, x, determinism_check="x")

    def fails(t):
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        checkpoint(fails, x)
