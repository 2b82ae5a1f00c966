"""Optimizers: numbers against plain formulas, groups, state, resuming."""
import pytest

import arete as torch

KINDS = [
    (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)), (torch.optim.Adam, dict(lr=0.01)),
    (torch.optim.AdamW, dict(lr=0.01, amsgrad=True)), (torch.optim.RMSprop, dict(lr=0.01, centered=True)),
    (torch.optim.Adagrad, dict(lr=0.1)), (torch.optim.Adadelta, dict(lr=1.0)), (torch.optim.Lion, dict(lr=0.01)),
    (torch.optim.NAdam, dict(lr=0.01)), (torch.optim.RAdam, dict(lr=0.01)), (torch.optim.Adamax, dict(lr=0.01)),
    (torch.optim.Rprop, dict(lr=0.01)), (torch.optim.ASGD, dict(lr=0.1, lambd=0.1, t0=2)),
]


def loss_of(p, q):
    return ((p - 1) ** 2).sum() + ((q + 2) ** 2).sum()


@pytest.mark.parametrize("kind,options", KINDS)
def test_resumes_bit_for_bit(kind, options):
    def fresh():
        torch.manual_seed(1)
        p, q = torch.randn(3, requires_grad=True), torch.randn(2, 2, requires_grad=True)
        return p, q, kind([{"params": [p]}, {"params": [q], "lr": 0.05}], **options)

    def steps(p, q, optimizer, n):
        for _ in range(n):
            optimizer.zero_grad()
            loss_of(p, q).backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.9

    p, q, optimizer = fresh()
    start = loss_of(p, q).item()
    steps(p, q, optimizer, 6)
    assert loss_of(p, q).item() < start
    p2, q2, first = fresh()
    steps(p2, q2, first, 3)
    saved = first.state_dict()
    assert saved["param_groups"][1]["params"] == [1] and saved["state"][0]
    second = kind([{"params": [p2]}, {"params": [q2]}], **options)
    second.load_state_dict(saved)
    assert second.param_groups[1]["lr"] == 0.05
    steps(p2, q2, second, 3)
    assert p2.tolist() == p.tolist() and q2.tolist() == q.tolist()


def test_against_torch():
    reference = pytest.importorskip("torch")
    for library in (torch, reference):
        library.set_default_dtype(library.float64)  # that of the numbers in states
    try:
        compare_with(reference)
    finally:
        for library in (torch, reference):
            library.set_default_dtype(library.float32)


def compare_with(reference):
    for name in ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "Rprop", "ASGD"]:
        for options in [{}, dict(weight_decay=0.1), dict(maximize=True), dict(decoupled_weight_decay=True, weight_decay=0.1)]:
            if "decoupled_weight_decay" in options and name not in ("NAdam", "RAdam") or name == "Rprop" and "weight_decay" in options:
                continue
            if name == "SGD":
                options = dict(options, lr=0.1, momentum=0.5)
            if name == "ASGD":
                options = dict(options, lr=0.1, lambd=0.1, t0=2)
            if name == "RAdam":
                options = dict(options, betas=(0.9, 0.95))  # both kinds of steps within a few
            start = [0.3, -0.7, 1.2]
            ours = torch.tensor(start, dtype=torch.float64, requires_grad=True)
            theirs = reference.tensor(start, dtype=reference.float64, requires_grad=True)
            a = getattr(torch.optim, name)([ours], **options)
            b = getattr(reference.optim, name)([theirs], **options)
            for _ in range(8):
                for p, o in ((ours, a), (theirs, b)):
                    o.zero_grad()
                    (p.sin() * p).sum().backward()
                    o.step()
            assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-10), (name, options)
            mine, other = a.state_dict(), b.state_dict()
            assert set(mine["state"][0]) == set(other["state"][0]), name
            assert set(mine["param_groups"][0]) - {"decoupled_weight_decay"} == \
                set(other["param_groups"][0]) - {"decoupled_weight_decay"}, name
            for key, value in other["state"][0].items():
                assert mine["state"][0][key].tolist() == pytest.approx(value.tolist(), rel=1e-6, abs=1e-12), (name, key)
            a.load_state_dict({"state": {0: {k: torch.tensor(v.tolist(), dtype=torch.float64) if v.dim() else float(v)
                                             for k, v in other["state"][0].items()}},
                               "param_groups": mine["param_groups"]})


def curve(x):
    """Least at (1, 1), in a bent valley."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def closure_for(optimizer, x):
    def closure():
        optimizer.zero_grad()
        loss = curve(x)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("options", [
    dict(lr=0.002, max_iter=8), dict(line_search_fn="strong_wolfe", max_iter=8),
    dict(line_search_fn="strong_wolfe", history_size=2, max_iter=5), dict(lr=0.01, max_eval=4, history_size=3),
])
def test_lbfgs_against_torch(options):
    reference = pytest.importorskip("torch")
    ours = torch.tensor([-1.2, 1.0], dtype=torch.float64, requires_grad=True)
    theirs = reference.tensor([-1.2, 1.0], dtype=reference.float64, requires_grad=True)
    a, b = torch.optim.LBFGS([ours], **options), reference.optim.LBFGS([theirs], **options)
    for step in range(3):
        losses = [o.step(closure_for(o, x)).item() for o, x in ((a, ours), (b, theirs))]
        assert losses[0] == pytest.approx(losses[1], rel=1e-6), step
        assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-6), step
    mine, other = a.state_dict(), b.state_dict()
    assert set(mine["state"][0]) == set(other["state"][0]) - {"al"}
    assert set(mine["param_groups"][0]) == set(other["param_groups"][0])
    for key in ("func_evals", "n_iter"):
        assert mine["state"][0][key] == other["state"][0][key]
    for key in ("old_dirs", "old_stps", "ro"):
        for m, o in zip(mine["state"][0][key], other["state"][0][key], strict=True):
            assert m.tolist() == pytest.approx(o.tolist(), rel=1e-3)

    # States of torch go on here as they do there.
    def converted(value):
        if isinstance(value, list):
            return [converted(v) for v in value if v is not None]
        return torch.tensor(value.tolist(), dtype=torch.float64) if isinstance(value, reference.Tensor) else value

    x = torch.tensor(theirs.tolist(), dtype=torch.float64, requires_grad=True)
    c = torch.optim.LBFGS([x], **options)
    c.load_state_dict({"state": {0: {k: converted(v) for k, v in other["state"][0].items()}},
                       "param_groups": other["param_groups"]})
    c.step(closure_for(c, x))
    b.step(closure_for(b, theirs))
    assert x.tolist() == pytest.approx(theirs.tolist(), rel=1e-6)


def test_lbfgs_resumes_and_names_mistakes():
    def start():
        x = torch.tensor([-1.2, 1.0], requires_grad=True)
        return x, torch.optim.LBFGS([x], max_iter=4, line_search_fn="strong_wolfe")

    x, whole = start()
    for _ in range(4):
        whole.step(closure_for(whole, x))
    y, first = start()
    assert first.state_dict()["state"] == {}
    first.step(closure_for(first, y))
    first.step(closure_for(first, y))
    second = torch.optim.LBFGS([y])
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["line_search_fn"] == "strong_wolfe"
    for _ in range(2):
        second.step(closure_for(second, y))
    assert y.tolist() == x.tolist()
    assert second.step(lambda: 3.5) == 3.5  # losses may be numbers
    with pytest.raises(TypeError):
        second.step()
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        torch.optim.LBFGS([y], line_search_fn="armijo")
    with pytest.raises(ValueError, match="parameter groups"):
        torch.optim.LBFGS([{"params": [x]}, {"params": [y]}])
    with pytest.raises(ZeroDivisionError):
        second.step(lambda: 1 / 0)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(curve(y)).backward()
    with pytest.raises((RuntimeError, TypeError)):
        scaler.step(second)


def test_numbers_of_the_state_under_a_scaler():
    for kind in (torch.optim.NAdam, torch.optim.ASGD):
        x = torch.ones(3, requires_grad=True)
        optimizer = kind([x], lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        values = []
        for factor in (1.0, float("inf"), 1.0):
            optimizer.zero_grad()
            scaler.scale((x * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            values.append((x.tolist(), optimizer.state_dict()["state"][0]["step"].item()))
        assert values[0] == values[1] and values[2][1] == 2 and values[2][0] != values[0][0], kind


def test_closure_hooks_and_errors():
    p = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.5)
    calls = []
    optimizer.register_step_post_hook(lambda o, a, k: calls.append(1))

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 2
    assert calls == [1] and p.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None
    for bad, kind in [([], ValueError), (p, TypeError), ([1], TypeError), ([p * 2], ValueError)]:
        with pytest.raises(kind):
            torch.optim.SGD(bad, lr=0.1)
    for options in [dict(lr=-1), dict(lr=0.1, momentum=-1), dict(lr=0.1, nesterov=True)]:
        with pytest.raises(ValueError):
            torch.optim.SGD([p], **options)
    with pytest.raises(ValueError):
        optimizer.add_param_group({"params": [p]})
    q = torch.ones(1, requires_grad=True)
    optimizer.add_param_group({"params": q, "lr": 1.0})
    (q * 3).sum().backward()
    optimizer.step()
    assert q.tolist() == [-2] and "lr: 1.0" in repr(optimizer)


def test_custom_optimizer():
    class Sign(torch.optim.Optimizer):
        def __init__(self, params, lr=0.1):
            super().__init__(params, dict(lr=lr))

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["step"] = state.get("step", 0) + 1
                    p -= group["lr"] * p.grad.sign()

    p = torch.ones(2, requires_grad=True)
    o = Sign([p])
    (p * 2).sum().backward()
    o.step()
    assert p.tolist() == [pytest.approx(0.9)] * 2 and o.state_dict()["state"][0]["step"] == 1


@pytest.mark.parametrize("options", [dict(fused=True, foreach=True), dict(fused=True, differentiable=True), dict(foo=1)])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_refused_options_are_torchs(name, options):
    said = []
    for T in (torch, pytest.importorskip("torch")):
        with pytest.raises((RuntimeError, TypeError)) as e:
            getattr(T.optim, name)([T.ones(2, requires_grad=True)], **options)
        said.append((e.type, str(e.value)))
    assert said[0] == said[1]
