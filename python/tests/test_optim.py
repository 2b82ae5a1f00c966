"""Optimizers: numbers against plain formulas, groups, state, resuming."""
import pytest

import arete as torch

KINDS = [
    (torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True)), (torch.optim.Adam, dict(lr=0.01)),
    (torch.optim.AdamW, dict(lr=0.01, amsgrad=True)), (torch.optim.RMSprop, dict(lr=0.01, centered=True)),
    (torch.optim.Adagrad, dict(lr=0.1)), (torch.optim.Adadelta, dict(lr=1.0)), (torch.optim.Lion, dict(lr=0.01)),
]  # fmt: skip


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
    for name in ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta"]:
        for options in [{}, dict(weight_decay=0.1), dict(maximize=True)]:
            if name == "SGD":
                options = dict(options, lr=0.1, momentum=0.5)
            start = [0.3, -0.7, 1.2]
            ours = torch.tensor(start, dtype=torch.float64, requires_grad=True)
            theirs = reference.tensor(start, dtype=reference.float64, requires_grad=True)
            a = getattr(torch.optim, name)([ours], **options)
            b = getattr(reference.optim, name)([theirs], **options)
            for _ in range(5):
                for p, o in ((ours, a), (theirs, b)):
                    o.zero_grad()
                    (p.sin() * p).sum().backward()
                    o.step()
            assert ours.tolist() == pytest.approx(theirs.tolist(), rel=1e-10), (name, options)
            mine, other = a.state_dict(), b.state_dict()
            assert set(mine["state"][0]) == set(other["state"][0]), name
            a.load_state_dict({"state": {0: {k: torch.tensor(v.tolist(), dtype=torch.float64) if v.dim() else float(v)
                                             for k, v in other["state"][0].items()}},
                               "param_groups": mine["param_groups"]})


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
