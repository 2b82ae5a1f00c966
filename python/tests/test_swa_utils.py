"""Averaged models and SWALR against PyTorch's."""
from __future__ import annotations

import inspect

import pytest

import arete
from arete.optim import swa_utils as ours

torch = pytest.importorskip("torch")
theirs = torch.optim.swa_utils


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


@pytest.mark.parametrize("make", [
    lambda m: {}, lambda m: {"avg_fn": m.get_swa_avg_fn()}, lambda m: {"avg_fn": m.get_ema_avg_fn(0.9)},
    lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8)}, lambda m: {"multi_avg_fn": m.get_swa_multi_avg_fn()},
    lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8), "use_buffers": True}])
def test_averages(make):
    model = net()
    a, b = ours.AveragedModel(model, **make(ours)), theirs.AveragedModel(model, **make(theirs))
    for _ in range(6):
        model(torch.randn(5, 3))
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
        a.update_parameters(model), b.update_parameters(model)
        sa, sb = a.state_dict(), b.state_dict()
        assert list(sa) == list(sb)
        for k in sa:
            torch.testing.assert_close(sa[k], sb[k])
    a.eval(), b.eval()
    x = torch.randn(2, 3)
    torch.testing.assert_close(a(x), b(x))


def test_update_bn():
    model, other = net(), net()
    model.eval(), other.eval()
    loader = [(torch.randn(8, 3), 0) for _ in range(4)]
    ours.update_bn(loader, model)
    theirs.update_bn(loader, other)
    assert not model.training and model[1].momentum == 0.1
    for k, v in other.state_dict().items():
        torch.testing.assert_close(model.state_dict()[k], v)


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
        ours.AveragedModel(net(), avg_fn=ours.get_swa_avg_fn(), multi_avg_fn=ours.get_swa_multi_avg_fn())
    for name in ours.__all__:
        a, b = inspect.signature(getattr(ours, name)).parameters.values(), inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.default) for p in a] == [(p.name, p.default) for p in b], name
    assert arete.Tensor is not None
