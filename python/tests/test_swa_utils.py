"""Averaged models and SWALR against PyTorch's."""
from __future__ import annotations

import inspect

import pytest
from peer import peer

import arete
from arete.optim import swa_utils as ours

torch = peer()
theirs = torch.optim.swa_utils


def nets():
    """The same network of both libraries."""
    made = [m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.Linear(4, 2)) for m in (arete, torch)]
    give_weights(*made)
    return made


def give_weights(mine, theirs):
    mine.load_state_dict({k: arete.tensor(v.tolist(), dtype=getattr(arete, str(v.dtype)[6:])) for k, v in theirs.state_dict().items()})


def assert_same(mine, theirs):
    assert list(mine) == list(theirs)
    for k, v in theirs.items():
        torch.testing.assert_close(torch.tensor(mine[k].tolist(), dtype=v.dtype), v)


@pytest.mark.parametrize("make", [
    lambda m: {}, lambda m: {"avg_fn": m.get_swa_avg_fn()}, lambda m: {"avg_fn": m.get_ema_avg_fn(0.9)},
    lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8)}, lambda m: {"multi_avg_fn": m.get_swa_multi_avg_fn()},
    lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8), "use_buffers": True}])
def test_averages(make):
    mine, reference = nets()
    a, b = ours.AveragedModel(mine, **make(ours)), theirs.AveragedModel(reference, **make(theirs))
    for _ in range(6):
        reference(torch.randn(5, 3))
        with torch.no_grad():
            for p in reference.parameters():
                p.add_(torch.randn_like(p))
        give_weights(mine, reference)
        a.update_parameters(mine), b.update_parameters(reference)
        assert_same(a.state_dict(), b.state_dict())
    a.eval(), b.eval()
    x = torch.randn(2, 3)
    assert_same({"y": a(arete.tensor(x.tolist()))}, {"y": b(x)})


def test_update_bn():
    mine, reference = nets()
    mine.eval(), reference.eval()
    batches = [torch.randn(8, 3) for _ in range(4)]
    ours.update_bn([(arete.tensor(x.tolist()), 0) for x in batches], mine)
    theirs.update_bn([(x, 0) for x in batches], reference)
    assert not mine.training and mine[1].momentum == 0.1
    assert_same(mine.state_dict(), reference.state_dict())


@pytest.mark.parametrize("options", [{}, {"anneal_strategy": "linear"}, {"anneal_epochs": 3}, {"anneal_epochs": 0}, {"anneal_epochs": 1}])
@pytest.mark.parametrize("goal", [0.05, [0.05, 0.7]])
def test_swalr(options, goal):
    def run(module):
        p = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
        o = torch.optim.SGD([{"params": [p[0]], "lr": 0.3}, {"params": [p[1]], "lr": 0.1}])
        s = module.SWALR(o, goal, **options)
        rates = []
        for _ in range(50):
            rates += [g["lr"] for g in o.param_groups]
            o.step(), s.step()
        return rates

    assert run(ours) == pytest.approx(run(theirs), rel=1e-9)


def test_errors_and_signatures():
    with pytest.raises(ValueError, match="decay"):
        ours.get_ema_avg_fn(2)
    with pytest.raises(ValueError, match="not both"):
        ours.AveragedModel(arete.nn.Linear(1, 1), avg_fn=ours.get_swa_avg_fn(), multi_avg_fn=ours.get_swa_multi_avg_fn())
    for name in ours.__all__:
        a, b = inspect.signature(getattr(ours, name)).parameters.values(), inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.default) for p in a] == [(p.name, p.default) for p in b], name
