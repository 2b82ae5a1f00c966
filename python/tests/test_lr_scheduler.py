"""The schedules against PyTorch's, step by step."""
from __future__ import annotations

import copy
import inspect
import warnings

import pytest
from peer import peer

import arete
from arete.optim import lr_scheduler as ours

torch = peer()
theirs = torch.optim.lr_scheduler

STEPS = 50


class Groups:
    """The least that a scheduler may ask of an optimizer."""

    def __init__(self, groups):
        self.param_groups = groups


def make(settings=None, adam=False):
    p = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    if adam:
        return torch.optim.Adam([{"params": [p[0]], "lr": 0.1}, {"params": [p[1]], "lr": 0.01}])
    return torch.optim.SGD([{"params": [p[0]], "lr": 0.1}, {"params": [p[1]], "lr": 0.01}], momentum=0.9)


CASES = {
    "lambda": lambda m, o: m.LambdaLR(o, lambda e: 0.95 ** e),
    "lambda_list": lambda m, o: m.LambdaLR(o, [lambda e: 0.95 ** e, lambda e: 1 / (e + 1)]),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda e: 0.9 if e % 2 else 1.05),
    "step": lambda m, o: m.StepLR(o, 7, 0.3),
    "multistep": lambda m, o: m.MultiStepLR(o, [3, 10, 10, 30], 0.5),
    "constant": lambda m, o: m.ConstantLR(o, 0.25, 9),
    "linear": lambda m, o: m.LinearLR(o, 0.1, 0.8, 13),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.93),
    "polynomial": lambda m, o: m.PolynomialLR(o, 31, 1.7),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 8, 0.001),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5, 2, 0.001),
    "restarts1": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5),
    "cyclic": lambda m, o: m.CyclicLR(o, 0.01, 0.2, 6),
    "cyclic2": lambda m, o: m.CyclicLR(o, [0.01, 0.02], [0.2, 0.3], 6, 9, mode="triangular2", cycle_momentum=False),
    "cyclic_exp": lambda m, o: m.CyclicLR(o, 0.01, 0.2, 6, mode="exp_range", gamma=0.97),
    "cyclic_fn": lambda m, o: m.CyclicLR(o, 0.01, 0.2, 6, scale_fn=lambda x: 0.9 ** x, scale_mode="iterations"),
    "onecycle": lambda m, o: m.OneCycleLR(o, 0.5, 60),
    "onecycle_linear": lambda m, o: m.OneCycleLR(o, [0.5, 0.3], epochs=6, steps_per_epoch=10, anneal_strategy="linear",
                                                 base_momentum=[0.8, 0.7], cycle_momentum=True),
    "onecycle3": lambda m, o: m.OneCycleLR(o, 0.5, 55, pct_start=0.25, three_phase=True, div_factor=10),
    "chained": lambda m, o: m.ChainedScheduler([m.ConstantLR(o, 0.3, 4), m.ExponentialLR(o, 0.95)]),
    "chained3": lambda m, o: m.ChainedScheduler([m.LinearLR(o, 0.3, 1, 4), m.StepLR(o, 5), m.CosineAnnealingLR(o, 20)], o),
    "sequential": lambda m, o: m.SequentialLR(o, [m.LinearLR(o, 0.1, 1, 5), m.CosineAnnealingLR(o, 20), m.ConstantLR(o, 0.5, 3)],
                                              [5, 25]),
    "sequential2": lambda m, o: m.SequentialLR(o, [m.ExponentialLR(o, 0.9), m.StepLR(o, 3), m.MultiStepLR(o, [2, 4]),
                                                   m.PolynomialLR(o, 9), m.CosineAnnealingWarmRestarts(o, 4)], [4, 12, 20, 31]),
    "sequential3": lambda m, o: m.SequentialLR(o, [m.LambdaLR(o, lambda e: 0.9 ** e), m.MultiplicativeLR(o, lambda e: 0.9),
                                                   m.LinearLR(o, 0.2)], [10, 20]),
}


def values(o):
    keys = ("lr", "initial_lr", "momentum", "betas", "max_lr", "min_lr", "max_momentum", "base_momentum")
    return [[g[k] for k in keys if k in g] for g in o.param_groups]


def flat(rows):
    return [x for row in rows for value in row for x in (value if isinstance(value, tuple) else (value,))]


def run(module, build, steps, adam=False):
    o = make(adam=adam)
    s = build(module, o)
    rows = [(values(o), list(s.get_last_lr()))]
    for _ in range(steps):
        o.step()
        s.step()
        rows.append((values(o), list(s.get_last_lr())))
    return rows


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("adam", [False, True])
def test_same_rates(name, adam):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mine, reference = run(ours, CASES[name], STEPS, adam), run(theirs, CASES[name], STEPS, adam)
    for i, ((a, last_a), (b, last_b)) in enumerate(zip(mine, reference)):
        assert flat(a) == pytest.approx(flat(b), rel=1e-12, abs=1e-15), f"step {i}"
        assert last_a == pytest.approx(last_b, rel=1e-12, abs=1e-15), f"step {i}"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("direction", ["mine", "to_theirs", "from_theirs"])
def test_state_resumes(name, direction):
    """After 17 steps the state goes to a new scheduler, also of the other library, which ends like the first."""
    saver = theirs if direction == "from_theirs" else ours
    loader = theirs if direction == "to_theirs" else ours
    o = make()
    s = CASES[name](saver, o)
    for _ in range(17):
        o.step()
        s.step()
    state, optimizer_state = copy.deepcopy(s.state_dict()), copy.deepcopy(o.state_dict())
    o2 = make()
    s2 = CASES[name](loader, o2)
    o2.load_state_dict(optimizer_state)
    s2.load_state_dict(state)
    for _ in range(20):
        o.step(), s.step(), o2.step(), s2.step()
        assert flat(values(o2)) == pytest.approx(flat(values(o)), rel=1e-12)
        assert s2.get_last_lr() == pytest.approx(s.get_last_lr(), rel=1e-12)
    assert s2.last_epoch == s.last_epoch if hasattr(s, "last_epoch") else True


@pytest.mark.parametrize("name", CASES)
def test_state_keys(name):
    a, b = CASES[name](ours, make()).state_dict(), CASES[name](theirs, make()).state_dict()
    assert set(a) <= set(b) and set(b) - set(a) <= {"_is_initial", "_get_lr_called_within_step"}


LAST_EPOCH = {
    "lambda": lambda m, o, e: m.LambdaLR(o, lambda e: 0.95 ** e, e),
    "multiplicative": lambda m, o, e: m.MultiplicativeLR(o, lambda e: 0.9, e),
    "step": lambda m, o, e: m.StepLR(o, 4, 0.3, e),
    "multistep": lambda m, o, e: m.MultiStepLR(o, [3, 10], 0.5, e),
    "constant": lambda m, o, e: m.ConstantLR(o, 0.25, 9, e),
    "linear": lambda m, o, e: m.LinearLR(o, 0.1, 0.8, 13, e),
    "exponential": lambda m, o, e: m.ExponentialLR(o, 0.93, e),
    "polynomial": lambda m, o, e: m.PolynomialLR(o, 31, 1.7, e),
    "cosine": lambda m, o, e: m.CosineAnnealingLR(o, 8, 0.001, e),
    "restarts": lambda m, o, e: m.CosineAnnealingWarmRestarts(o, 5, 2, 0.001, e),
    "cyclic": lambda m, o, e: m.CyclicLR(o, 0.01, 0.2, 6, last_epoch=e),
    "onecycle": lambda m, o, e: m.OneCycleLR(o, 0.5, 60, last_epoch=e),
}


@pytest.mark.parametrize("name", LAST_EPOCH)
@pytest.mark.parametrize("last", [3, 7])
def test_last_epoch(name, last):
    def resumed(module):
        o = make()
        s = LAST_EPOCH[name](module, o, -1)
        for _ in range(last):
            o.step(), s.step()
        s = LAST_EPOCH[name](module, o, last)
        rows = [flat(values(o))]
        for _ in range(20):
            o.step(), s.step()
            rows.append(flat(values(o)))
        return rows

    for mine, reference in zip(resumed(ours), resumed(theirs)):
        assert mine == pytest.approx(reference, rel=1e-12)


def test_last_epoch_needs_initial_lr():
    with pytest.raises(KeyError, match="initial_lr"):
        ours.StepLR(make(), 3, last_epoch=2)


@pytest.mark.parametrize("options", [
    {}, {"mode": "max", "patience": 2}, {"threshold_mode": "abs", "threshold": 0.05, "patience": 1}, {"cooldown": 3, "patience": 0},
    {"min_lr": [0.02, 0.001], "patience": 1, "factor": 0.5}, {"mode": "max", "threshold_mode": "abs", "patience": 3},
    {"eps": 1e-3, "patience": 0, "factor": 0.5}])
def test_plateau(options):
    gen = torch.Generator().manual_seed(3)
    metrics = torch.rand(60, generator=gen).tolist()
    a, b = make(), make()
    s, t = ours.ReduceLROnPlateau(a, **options), theirs.ReduceLROnPlateau(b, **options)
    assert set(s.state_dict()) == set(t.state_dict())
    for i, metric in enumerate(metrics):
        s.step(torch.tensor(metric, dtype=torch.float64))
        t.step(metric)
        assert flat(values(a)) == pytest.approx(flat(values(b)), rel=1e-12)
        assert s.get_last_lr() == t.get_last_lr()
        if i == 30:
            state = s.state_dict()
            s = ours.ReduceLROnPlateau(a, **options)
            s.load_state_dict(state)
    assert s.state_dict() == t.state_dict()


@pytest.mark.parametrize("name", ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine", "lambda", "restarts"])
def test_step_to_epoch(name):
    a, b = make(), make()
    s, t = CASES[name](ours, a), CASES[name](theirs, b)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for epoch in (5, 2, 20, 0, 11):
            s.step(epoch), t.step(epoch)
            assert flat(values(a)) == pytest.approx(flat(values(b)), rel=1e-12, abs=1e-15)


def test_fractional_restarts():
    a, b = make(), make()
    s, t = ours.CosineAnnealingWarmRestarts(a, 3, 2), theirs.CosineAnnealingWarmRestarts(b, 3, 2)
    for i in range(100):
        s.step(i / 7), t.step(i / 7)
        assert flat(values(a)) == pytest.approx(flat(values(b)), rel=1e-12)
        assert s.last_epoch == t.last_epoch


def test_nested_sequential():
    """The inner schedule has all of its epochs (PyTorch's starts it one epoch late in its own count)."""
    o = make()
    inner = ours.SequentialLR(o, [ours.ConstantLR(o), ours.ExponentialLR(o, 0.9)], [5])
    s = ours.SequentialLR(o, [inner, ours.StepLR(o, 4)], [20])
    seen = []
    for _ in range(26):
        seen.append(s.get_last_lr()[0])
        o.step(), s.step()
    expected = [0.1 / 3] * 5 + [0.1 * 0.9 ** i for i in range(15)] + [0.1] * 4 + [0.01] * 2
    assert seen == pytest.approx(expected, rel=1e-12)


def test_plain_groups_and_tensor_rates():
    """No hooks, no attributes: a list of dicts is enough. Rates that are tensors stay the same tensors."""
    rate = torch.tensor(0.5)
    o = Groups([{"lr": rate}, {"lr": 0.1}])
    s = ours.StepLR(o, 2, 0.1)
    for _ in range(4):
        s.step()
    assert o.param_groups[0]["lr"] is rate and rate.item() == pytest.approx(0.005)
    assert [float(x) for x in s.get_last_lr()] == pytest.approx([0.005, 0.001])
    assert float(o.param_groups[0]["initial_lr"]) == 0.5


def test_with_own_optimizers():
    model = arete.nn.Linear(2, 1)
    for optimizer in (arete.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), arete.optim.Adam(model.parameters(), lr=0.1)):
        reference = make(adam="betas" in optimizer.param_groups[0])
        s, r = ours.OneCycleLR(optimizer, 0.5, 10), theirs.OneCycleLR(reference, 0.5, 10)
        before = model.weight.tolist()
        for _ in range(9):
            assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(reference.param_groups[0]["lr"])
            assert optimizer.param_groups[0].get("betas") == pytest.approx(reference.param_groups[0].get("betas"))
            model(arete.ones(1, 2)).sum().backward()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer.step(), reference.step(), s.step(), r.step()
        assert model.weight.tolist() != before


def test_order_is_watched():
    o = make()
    s = ours.StepLR(o, 2)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        s.step()
    o = make()
    s = ours.StepLR(o, 2)
    with pytest.warns(UserWarning, match="get_last_lr"):
        s.get_lr()


@pytest.mark.parametrize("build, match", [
    (lambda o: ours.ConstantLR(o, 2.0), "factor"), (lambda o: ours.LinearLR(o, 0.0), "start_factor"),
    (lambda o: ours.LambdaLR(o, [lambda e: 1.0]), "2 parameter groups"), (lambda o: ours.OneCycleLR(o, 0.1), "total_steps"),
    (lambda o: ours.CosineAnnealingWarmRestarts(o, 0), "T_0"), (lambda o: ours.ReduceLROnPlateau(o, factor=1.0), "factor"),
    (lambda o: ours.SequentialLR(o, [ours.StepLR(o, 2)], [1]), "milestones"), (lambda o: ours.CyclicLR(o, [0.1], 1.0), "base_lr"),
    (lambda o: ours.SequentialLR(None, [ours.StepLR(o, 2)], []), "another optimizer"),
    (lambda o: ours.SequentialLR(o, [], []), "at least one"), (lambda o: ours.ChainedScheduler([]), "at least one"),
    (lambda o: ours.ChainedScheduler([ours.ReduceLROnPlateau(o)]), "metric"),
    (lambda o: ours.CyclicLR(Groups([{"lr": 1.0}]), 0.1, 1.0), "momentum"),
])
def test_wrong_arguments(build, match):
    with pytest.raises(ValueError, match=match):
        build(make())


def test_not_an_optimizer():
    with pytest.raises(TypeError, match="not an Optimizer"):
        ours.StepLR([1], 3)


def test_onecycle_ends():
    o = make()
    s = ours.OneCycleLR(o, 0.5, 3)
    o.step()
    for _ in range(3):
        s.step()
    with pytest.raises(ValueError, match="total_steps=3"):
        s.step()


def test_signatures():
    for name in ours.__all__:
        a = inspect.signature(getattr(ours, name)).parameters.values()
        b = inspect.signature(getattr(theirs, name)).parameters.values()
        assert [(p.name, p.default) for p in a] == [(p.name, p.default) for p in b], name
