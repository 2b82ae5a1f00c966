"""Mixed precision as people write it."""
import copy
import functools
import math
import warnings

import numpy as np
import pytest
from idiom_helpers import anywhere, pytorch, same, seeds_and_switches, the_data, the_net, values  # noqa: F401 -- the fixture

import arete


def start(torch, device, batches=1, nets=1):
    """the_net() and the_data() with the same numbers in both libraries."""
    rng = np.random.default_rng(0)

    def filled(array):
        return torch.from_numpy(array.astype(np.float32)).to(device)

    made = [the_net(torch, device) for _ in range(nets)]
    with torch.no_grad():
        for p in (p for net in made for p in net.parameters()):
            p.copy_(filled(rng.uniform(-0.3, 0.3, tuple(p.shape))))
    inputs = [filled(rng.standard_normal((64, 8))) for _ in range(batches)]
    return made, [(x, x[:, :4].sum(1, keepdim=True)) for x in inputs]


def with_pytorchs_losses(program):
    """The test of a program that returns its losses: arete's are those that PyTorch has on the CPU."""

    @functools.wraps(program)
    def test(torch, device, **case):
        losses = program(torch, device, **case)
        if torch is arete and pytorch is not None:
            np.testing.assert_allclose(losses, program(pytorch, "cpu", **case), rtol=1e-2 if device == "cpu" else 3e-2)

    return test


# Each half type, and how far it rounds a number between 1 and 2.
in_half_types = pytest.mark.parametrize("dtype,rounding", [("float16", 2**-11), ("bfloat16", 2**-8)], ids=["float16", "bfloat16"])


@anywhere
@with_pytorchs_losses
def test_amp_a_typical_loop(torch, device):
    (net,), (batch,) = start(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device)
    losses = []
    for x, y in [batch] * 60:
        optimizer.zero_grad()
        with torch.autocast(device_type=device, dtype=torch.float16):
            out = net(x)
            assert out.dtype is torch.float16
            loss = torch.nn.functional.mse_loss(out, y)
            assert loss.dtype is torch.float32
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert all(p.dtype is torch.float32 and p.grad.dtype is torch.float32 for p in net.parameters())
    assert 2**10 <= scaler.get_scale() <= 2**16  # early skips find the largest scale that works
    return losses


@anywhere
@in_half_types
@with_pytorchs_losses
def test_amp_clipping_of_unscaled_gradients(torch, device, dtype, rounding):
    (net,), data = start(torch, device, batches=4)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast(device, dtype=getattr(torch, dtype)):
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        before = values(net.parameters())
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=0.01)
        scaler.step(optimizer)
        scaler.update()
        assert 0.05 < norm < 100  # of gradients without the scale
        moved = math.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(before, values(net.parameters()))))
        assert moved == pytest.approx(0.01, rel=1e-3)  # step() did not unscale once more
        losses.append(loss.item())
    return losses


@anywhere
@in_half_types
@with_pytorchs_losses
def test_amp_accumulated_gradients(torch, device, dtype, rounding):
    (net,), data = start(torch, device, batches=8)
    twin = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device)
    losses, after_steps = [], []
    for i, (x, y) in enumerate(data):
        with torch.autocast(device, dtype=getattr(torch, dtype)):
            loss = torch.nn.functional.mse_loss(net(x), y) / 4
        scaler.scale(loss).backward()
        if (i + 1) % 4 == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            after_steps.append(values(net.parameters()))
        losses.append(loss.item())
    x, y = (torch.cat(parts) for parts in zip(*data[:4]))
    torch.nn.functional.mse_loss(twin(x), y).backward()
    expected = [p.detach() - 0.1 * p.grad for p in twin.parameters()]
    assert len(after_steps) == 2 and same(after_steps[0], values(expected), 10 * rounding)
    return losses


@anywhere
@in_half_types
@with_pytorchs_losses
def test_amp_a_penalty_on_gradients(torch, device, dtype, rounding):
    def train(mixed):
        """The losses, and the first gradients."""
        (net,), data = start(torch, device, batches=4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=mixed)
        losses, first = [], None
        for x, y in data:
            optimizer.zero_grad()
            with torch.autocast(device, dtype=getattr(torch, dtype), enabled=mixed):
                loss = torch.nn.functional.mse_loss(net(x), y)
            scaled_grads = torch.autograd.grad(outputs=scaler.scale(loss), inputs=net.parameters(), create_graph=True)
            inverse = 1.0 / scaler.get_scale()
            grads = [g * inverse for g in scaled_grads]  # no optimizer owns them: the scaler cannot do it
            with torch.autocast(device, dtype=getattr(torch, dtype), enabled=mixed):
                norm = sum(g.pow(2).sum() for g in grads).sqrt()
                loss = loss + norm
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            first = first or values(p.grad for p in net.parameters())
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses, first

    losses, first = train(True)
    assert same(first, train(False)[1], 60 * rounding)
    return losses


@anywhere
@in_half_types
@with_pytorchs_losses
def test_amp_several_losses_and_optimizers(torch, device, dtype, rounding):
    nets, data = start(torch, device, batches=4, nets=2)
    optimizers = [torch.optim.SGD(nets[0].parameters(), lr=1e-3), torch.optim.Adam(nets[1].parameters())]
    scaler = torch.amp.GradScaler(device, init_scale=256.0)
    losses = []
    for i, (x, y) in enumerate(data):
        before = [values(net.parameters()) for net in nets]
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast(device, dtype=getattr(torch, dtype)):
            out0, out1 = nets[0](x), nets[1](x)
            loss0 = torch.nn.functional.mse_loss(2 * out0 + 3 * out1, y)
            loss1 = torch.nn.functional.mse_loss(3 * out0 - 5 * out1, y)
        scaler.scale(loss0).backward(retain_graph=True)
        scaler.scale(loss1).backward()
        scaler.unscale_(optimizers[0])  # one may be looked at, the other left to step()
        if i == 0:
            for p in nets[1].parameters():
                p.grad[0] = math.inf
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
        still = [[same([a], [b]) for a, b in zip(values(net.parameters()), old)] for net, old in zip(nets, before)]
        assert not any(still[0]) and set(still[1]) == {i == 0}  # each optimizer decides for itself
        assert scaler.get_scale() == 128
        losses += [loss0.item(), loss1.item()]
    return losses


def _product(torch, device, **options):
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=device, **options)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            result = a.mm(b)
            seen.extend([a.dtype, result.dtype])
            return result

        @staticmethod
        @torch.amp.custom_bwd(device_type=device)
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            result = grad.mm(b.t()), a.t().mm(grad)
            seen.append(result[0].dtype)
            return result

    return Product, seen


@anywhere
def test_amp_a_function_that_follows_autocast(torch, device):
    Product, seen = _product(torch, device)
    a, b = (torch.randn(16, 16, device=device, requires_grad=True) for _ in range(2))
    with torch.autocast(device, dtype=torch.float16):
        out = Product.apply(a, b)
    out.float().sum().backward()  # outside: backward() runs as forward() did
    assert seen == [torch.float32, torch.float16, torch.float16]
    assert same(values([out]), values([a @ b]), 5e-3)
    assert same(values([a.grad]), values([torch.ones(16, 16, device=device) @ b.t()]), 5e-3) and a.grad.dtype is torch.float32


@anywhere
def test_amp_a_function_that_needs_one_dtype(torch, device):
    Product, seen = _product(torch, device, cast_inputs=torch.float32)
    a, b = (torch.randn(16, 16, device=device, requires_grad=True) for _ in range(2))
    with torch.autocast(device, dtype=torch.float16):
        half = a @ b
        out = Product.apply(half, b)
    out.sum().backward()
    assert half.dtype is torch.float16 and seen == [torch.float32] * 3
    assert a.grad is not None and b.grad is not None
    with torch.autocast(device, enabled=False):
        assert Product.apply(a, b).dtype is torch.float32


@anywhere
def test_amp_a_decorated_method_and_a_region_without(torch, device):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        @torch.autocast(device_type=device, dtype=torch.bfloat16)
        def forward(self, x):
            x = self.first(x)
            with torch.autocast(device_type=device, enabled=False):
                return x.dtype, self.second(x.float())

    net = Net().to(device)
    inside, out = net(torch.randn(4, 8, device=device))
    assert inside is torch.bfloat16 and out.dtype is torch.float32
    assert not torch.is_autocast_enabled(device)


@anywhere
def test_amp_training_in_bfloat16_needs_no_scaler(torch, device):
    net, (batch,) = the_net(torch, device), the_data(torch, device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    for x, y in [batch] * 60:
        with torch.autocast(device_type=device, dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.5


@anywhere
def test_amp_old_names_with_one_switch(torch, device):
    use_amp = device == "cuda"
    net, ((x, y),) = the_net(torch, device), the_data(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that the names are old
        scaler = torch.cuda.amp.GradScaler(init_scale=1024.0, enabled=use_amp)
        with torch.cuda.amp.autocast(enabled=use_amp):
            out = net(x)
            loss = torch.nn.functional.mse_loss(out, y)
    before = values(net.parameters())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert out.dtype is (torch.float16 if use_amp else torch.float32)
    assert scaler.is_enabled() == use_amp and scaler.get_scale() == (1024 if use_amp else 1)
    assert not same(before, values(net.parameters()))


@anywhere
def test_amp_saved_and_resumed(torch, device, tmp_path):
    batches = the_data(torch, device, batches=6)

    def start():
        torch.manual_seed(3)
        net = the_net(torch, device)
        return net, torch.optim.Adam(net.parameters()), torch.amp.GradScaler(device, init_scale=64.0, growth_interval=2)

    def train(net, optimizer, scaler, batches):
        for x, y in batches:
            with torch.autocast(device, dtype=torch.float16):
                loss = torch.nn.functional.mse_loss(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

    whole = start()
    train(*whole, batches)
    first = start()
    train(*first, batches[:3])
    net, optimizer, scaler = first
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}, tmp_path / "at3.pt")
    second = start()
    found = torch.load(tmp_path / "at3.pt")
    for part, name in zip(second, ("model", "optimizer", "scaler")):
        part.load_state_dict(found[name])
    train(*second, batches[3:])
    assert second[2].get_scale() == whole[2].get_scale() == 512
    assert same(values(second[0].parameters()), values(whole[0].parameters()), 1e-6)


@anywhere
def test_amp_a_schedule_that_waits_for_steps(torch, device):
    net, ((x, y),) = the_net(torch, device), the_data(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    scaler = torch.amp.GradScaler(device)
    rates = []
    for factor in (math.inf, 1.0):
        optimizer.zero_grad()
        with torch.autocast(device, dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(net(x), y) * factor
        scaler.scale(loss).backward()
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() >= scale:
            schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == [0.1, 0.05]
