"""Loss scaling beside torch: trajectories with overflows, mistakes, states, reports."""
import pickle

import numpy as np
import pytest
from device_helpers import on_devices
from peer import peer

import arete

torch = peer()
F = arete.nn.functional

OPTIMIZERS = [("SGD", dict(lr=0.1)), ("SGD", dict(lr=0.1, momentum=0.9, dampening=0.3)), ("SGD", dict(lr=0.1, momentum=0.9, nesterov=True)),
              ("Adam", dict(lr=0.1)), ("AdamW", dict(lr=0.1, weight_decay=0.1, amsgrad=True)), ("Adagrad", dict(lr=0.1, lr_decay=0.1)),
              ("RMSprop", dict(lr=0.01, momentum=0.9, centered=True)), ("Adadelta", dict())]


def train(T, device, make, steps, overflows, clip=False, growth_interval=3, **settings):
    """A few steps on a small problem where some losses are infinite."""
    w = T.tensor([[1.0, 2.0, -1.0], [0.5, -0.3, 0.2]], device=device).requires_grad_()
    b = T.tensor([0.1, 0.2], device=device).requires_grad_()
    optimizer = make([w, b])
    scaler = T.amp.GradScaler(device, init_scale=1024.0, growth_interval=growth_interval, **settings)
    trace = []
    for i in range(steps):
        optimizer.zero_grad()
        x = T.tensor([[0.1 * i, 1.0, -0.2], [0.3, 0.1 * i, 0.7]], device=device)
        loss = ((x @ w.t() + b) ** 2).mean()
        scaler.scale(loss * float("inf") if i in overflows else loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            T.nn.utils.clip_grad_norm_([w, b], 0.5)
        scaler.step(optimizer)
        scaler.update()
        trace.append((scaler.get_scale(), scaler._get_growth_tracker(), w.detach().cpu().numpy().copy(), b.detach().cpu().numpy().copy()))
    return trace, optimizer, scaler


def expect_same(ours, theirs):
    for a, b in zip(ours, theirs):
        assert a[:2] == b[:2]
        np.testing.assert_allclose(a[2], b[2], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a[3], b[3], rtol=1e-5, atol=1e-6)


@on_devices
@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("name,options", OPTIMIZERS)
def test_trajectories_are_torchs(name, options, clip, device):
    arguments = dict(steps=14, overflows=(0, 1, 5), clip=clip)
    ours, optimizer, scaler = train(arete, device, lambda p: getattr(arete.optim, name)(p, **options), **arguments)
    theirs, reference, their_scaler = train(torch, "cpu", lambda p: getattr(torch.optim, name)(p, **options), **arguments)
    expect_same(ours, theirs)
    assert scaler.state_dict() == their_scaler.state_dict()
    state, want = optimizer.state_dict()["state"], reference.state_dict()["state"]
    for number, values in want.items():
        for key, value in values.items():
            if value is not None:  # the count of steps knows of those left out, too
                np.testing.assert_allclose(state[number][key].cpu().numpy(), value.numpy(), rtol=1e-4, atol=1e-6)


@on_devices
def test_an_optimizer_written_in_python(device):
    def plain(T):
        class Plain(T.optim.Optimizer):
            def __init__(self, params):
                super().__init__(params, {"lr": 0.1})

            def step(self, closure=None):
                with T.no_grad():
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.add_(p.grad, alpha=-group["lr"])
                return "stepped"

        return Plain

    for clip in (False, True):
        arguments = dict(steps=8, overflows=(2,), clip=clip)
        ours, optimizer, scaler = train(arete, device, plain(arete), **arguments)
        theirs, _, _ = train(torch, "cpu", plain(torch), **arguments)
        expect_same(ours, theirs)
    loss = (optimizer.param_groups[0]["params"][0] ** 2).sum()
    optimizer.zero_grad()
    optimizer.param_groups[0]["params"][1].grad = arete.zeros(2, device=device)
    scaler.scale(loss).backward()
    assert scaler.step(optimizer) == "stepped"


@on_devices
def test_several_optimizers_losses_and_accumulation(device):
    def run(T, kind):
        a, b, c = (T.tensor([v], device=kind).requires_grad_() for v in (1.0, 2.0, 3.0))
        first, second = T.optim.SGD([a, b], lr=0.1, momentum=0.9), T.optim.Adam([c], lr=0.1)
        scaler, out = T.amp.GradScaler(kind, init_scale=64.0, growth_interval=2), []
        for i in range(6):
            first.zero_grad()
            second.zero_grad()
            for part in range(2):  # accumulation
                losses = scaler.scale([(a * b).sum() / (part + 1), (c * c).sum() * (float("inf") if i == 1 else 1)])
                losses[0].backward(retain_graph=True)
                losses[1].backward()
            scaler.unscale_(first)
            scaler.step(first)
            scaler.step(second)
            scaler.update()
            out.append([scaler.get_scale(), *(float(p.detach().cpu()[0]) for p in (a, b, c))])
        return out

    # Only the optimizer whose gradients overflowed leaves its step out, but the scale is one.
    np.testing.assert_allclose(run(arete, device), run(torch, "cpu"), rtol=1e-5)


@on_devices
def test_a_skipped_step_changes_nothing(device):
    w = arete.tensor([1.0, 2.0], device=device).requires_grad_()
    optimizer, scaler = arete.optim.AdamW([w], lr=0.1), arete.amp.GradScaler(device)
    w.grad = arete.tensor([1.0, float("nan")], device=device)
    scaler.scale(arete.ones((), device=device))
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [1, 2]
    state = optimizer.state_dict()["state"][0] if optimizer.state_dict()["state"] else {}
    assert all(float(v.abs().sum()) == 0 for v in state.values())
    assert scaler.get_scale() == 2.0**15
    assert scaler.num_skipped() == 1
    w.grad = arete.tensor([2.0**15, -(2.0**15)], device=device)
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose(w.tolist(), [0.9 - 0.001, 2.1 - 0.002], rtol=1e-4)
    assert float(optimizer.state_dict()["state"][0]["step"]) == 1


@on_devices
def test_steps_with_and_without_a_scaler_mix(device):
    def run(T, kind):
        w = T.tensor([1.0, -2.0], device=kind).requires_grad_()
        optimizer, scaler = T.optim.Adam([w], lr=0.1), T.amp.GradScaler(kind, init_scale=4.0)
        for i in range(6):
            optimizer.zero_grad()
            loss = (w * w).sum() * (float("inf") if i == 2 else 1)
            if i % 2:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        return w.detach().cpu().numpy()

    np.testing.assert_allclose(run(arete, device), run(torch, "cpu"), rtol=1e-5)


def messages(T, kind):
    """What each mistake is answered with."""
    w = T.ones(2, device=kind).requires_grad_()
    unused = T.ones(2, device=kind).requires_grad_()
    optimizer, other = T.optim.SGD([w], lr=0.1), T.optim.SGD([unused], lr=0.1)
    said = []

    def attempt(f):
        try:
            f()
            said.append(None)
        except (RuntimeError, AssertionError, ValueError) as e:
            said.append(str(e).strip())

    scaler = T.amp.GradScaler(kind, init_scale=8.0)
    attempt(lambda: scaler.unscale_(optimizer))
    attempt(lambda: scaler.step(optimizer))
    attempt(lambda: scaler.update())
    scaler.scale(w.sum()).backward()
    attempt(lambda: scaler.update())
    attempt(lambda: scaler.step(other))
    scaler.unscale_(optimizer)
    attempt(lambda: scaler.unscale_(optimizer))
    scaler.step(optimizer)
    attempt(lambda: scaler.step(optimizer))
    attempt(lambda: scaler.unscale_(optimizer))
    attempt(lambda: scaler.step(optimizer, closure=lambda: None))
    attempt(lambda: scaler.scale(3))
    attempt(lambda: scaler.load_state_dict({}))
    attempt(lambda: T.amp.GradScaler(kind, growth_factor=1.0))
    attempt(lambda: T.amp.GradScaler(kind, backoff_factor=1.0))
    half = T.ones(2, device=kind, dtype=T.float16).requires_grad_()
    half.grad = T.ones(2, device=kind, dtype=T.float16)
    attempt(lambda: scaler.unscale_(T.optim.SGD([half], lr=0.1)))
    return said


@on_devices
def test_errors_begin_with_torchs_words(device):
    for ours, theirs in zip(messages(arete, device), messages(torch, "cpu"), strict=True):
        assert theirs is not None
        assert theirs.replace(" ", "") in (ours or "nothing").replace(" ", "")


@on_devices
def test_update_takes_a_scale(device):
    w = arete.ones(2, device=device).requires_grad_()
    scaler = arete.amp.GradScaler(device)
    scaler.scale(w.sum())
    scaler.update(4.0)
    assert scaler.get_scale() == 4
    scaler.update(arete.tensor(2.0, device=device))
    assert scaler.get_scale() == 2
    with pytest.raises(ValueError, match="new_scale should be a float"):
        scaler.update(arete.ones(2, device=device))


@on_devices
def test_the_floor(device):
    trace, _, scaler = train(arete, device, lambda p: arete.optim.SGD(p, lr=0.1), steps=12, overflows=range(12), min_scale=16.0)
    assert [t[0] for t in trace] == [512, 256, 128, 64, 32, 16, 16, 16, 16, 16, 16, 16]
    assert scaler.num_skipped() == 12


@on_devices
def test_state_dict_and_pickle(device):
    arguments = dict(steps=4, overflows=(1,))
    _, optimizer, scaler = train(arete, device, lambda p: arete.optim.SGD(p, lr=0.1), **arguments)
    _, _, reference = train(torch, "cpu", lambda p: torch.optim.SGD(p, lr=0.1), **arguments)
    state = scaler.state_dict()
    assert state == reference.state_dict()
    assert {k: type(v) for k, v in state.items()} == {k: type(v) for k, v in reference.state_dict().items()}
    fresh = arete.amp.GradScaler(device)
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state == pickle.loads(pickle.dumps(scaler)).state_dict()
    scaler.load_state_dict({**state, "scale": 2.0, "_growth_tracker": 1})
    assert scaler.get_scale() == 2
    assert scaler._get_growth_tracker() == 1
    assert fresh.get_growth_factor() == 2 and fresh.get_backoff_factor() == 0.5 and fresh.get_growth_interval() == 3  # noqa: PT018
    fresh.set_growth_factor(3.0)
    fresh.set_growth_interval(7)
    fresh.set_backoff_factor(0.25)
    assert list(fresh.state_dict().values())[1:4] == [3.0, 0.25, 7]


@on_devices
def test_not_enabled_everything_passes(device):
    w = arete.ones(2, device=device).requires_grad_()
    optimizer, scaler = arete.optim.SGD([w], lr=0.5), arete.amp.GradScaler(device, enabled=False)
    loss = w.sum()
    assert scaler.scale(loss) is loss or arete.equal(scaler.scale(loss), loss)
    loss.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.tolist() == [0.5, 0.5]
    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}
    assert not scaler.is_enabled()


@on_devices
def test_report_names_the_parameter(device):
    net = arete.nn.Sequential(arete.nn.Linear(2, 2), arete.nn.Linear(2, 2)).to(device)
    optimizer, scaler = arete.optim.SGD(net.parameters(), lr=0.1), arete.amp.GradScaler(device)
    assert "0 of 0 steps" in scaler.report(net)
    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(net(arete.ones(1, 2, device=device)).sum()).backward()
        if step == 1:
            net[0].bias.grad[1] = float("inf")
            net[0].weight.grad[0, 0] = float("nan")
        scaler.step(optimizer)
        scaler.update()
    text = scaler.report(net)
    assert "1 of 3 steps skipped" in text
    assert "step 2, in the gradients of 2 of 4 parameters" in text
    where = "" if device == "cpu" else " on cuda:0"
    assert f"'0.bias' (float32[2]{where})" in text
    assert "normal at the start" in text
    assert "parameter 1" in scaler.report()


@on_devices
def test_a_whole_training_in_float16(device):
    arete.manual_seed(0)
    net = arete.nn.Sequential(arete.nn.Linear(8, 32), arete.nn.ReLU(), arete.nn.Linear(32, 1)).to(device)
    x = arete.randn(64, 8, device=device)
    y = x.sum(1, keepdim=True)
    optimizer, scaler = arete.optim.AdamW(net.parameters(), lr=1e-2), arete.amp.GradScaler(device)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        with arete.autocast(device, dtype=arete.float16):
            loss = F.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        arete.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 20
    assert all(p.dtype is arete.float32 and bool(p.isfinite().all()) for p in net.parameters())


@on_devices
@pytest.mark.parametrize("name", ["SGD", "Adam", "NAdam", "RMSprop"])
@pytest.mark.parametrize("fused", [None, True])
def test_gradients_are_unscaled_after_a_step(name, fused, device):
    if fused and name not in ("SGD", "Adam"):
        pytest.skip("torch has no fused one")

    def run(T, kind):
        w, b = T.ones(3, device=kind).requires_grad_(), T.ones(2, device=kind).requires_grad_()
        optimizer = getattr(T.optim, name)([w, b], **({"fused": True} if fused else {}))
        scaler, seen = T.amp.GradScaler(kind, init_scale=8.0), []
        for factor in (1.0, float("inf"), 3.0):
            optimizer.zero_grad()
            scaler.scale((w * T.arange(1, 4, device=kind)).sum() + (b[0] * factor)).backward()
            scaler.step(optimizer)
            found = scaler._found_inf_per_device(optimizer)
            if not (fused and factor == float("inf")):  # torch's fused optimizers leave them scaled then
                seen += [w.grad.tolist(), b.grad.tolist()]
            seen += [[d.type for d in found], [f.item() for f in found.values()]]
            scaler.update()
            seen.append(dict(scaler._found_inf_per_device(optimizer)))
        return seen

    ours, theirs = run(arete, device), run(torch, "cpu")
    assert [x if x != ["cpu"] else [arete.device(device).type] for x in theirs] == ours


def test_gradients_that_share_memory_are_unscaled_once():
    w = arete.ones(3).requires_grad_()
    optimizer, scaler = arete.optim.SGD([w], lr=1.0), arete.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(w.sum())
    w.grad = arete.full((1,), 4.0).expand(3)
    scaler.step(optimizer)
    assert w.tolist() == [0, 0, 0] and w.grad.tolist() == [1, 1, 1]


@on_devices
@pytest.mark.parametrize("fused", [None, True])
def test_float16_gradients(fused, device):
    """torch refuses them in both calls, but in step() of a fused optimizer."""

    def run(T, kind):
        w = T.ones(2, device=kind, dtype=T.float16).requires_grad_()
        optimizer, scaler, said = T.optim.SGD([w], lr=0.5, fused=fused), T.amp.GradScaler(kind, init_scale=8.0), []
        for call in (scaler.step, scaler.unscale_):
            scaler.scale(w.sum()).backward()
            try:
                call(optimizer)
                said.append("done")
            except ValueError as e:
                said.append(str(e)[:37])
            if said[-1] == "done":
                scaler.update()
        return said, w.tolist()

    assert run(arete, device) == run(torch, "cpu")
    with_masters = arete.ones(2, device=device, dtype=arete.float16).requires_grad_()
    optimizer = arete.optim.SGD([with_masters], lr=0.5, master_weights=True)
    scaler = arete.amp.GradScaler(device, init_scale=8.0)
    scaler.scale(with_masters.sum()).backward()
    scaler.step(optimizer)
    assert with_masters.tolist() == [0.5, 0.5] and with_masters.grad.tolist() == [1, 1]
