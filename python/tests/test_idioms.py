"""How people write it: the usual programs for mixed precision, CUDA, pinned memory, profiling and benchmarking, each as a short
function of `torch`. The same text runs with `import arete as torch` and, where PyTorch is installed, with PyTorch itself, which
shows that the program is a right one. On a machine without a GPU those that cannot do without one are skipped."""
import argparse
import collections
import contextlib
import copy
import gc
import itertools
import json
import math
import pickle
import threading
import timeit
import warnings

import pytest

import arete

try:
    import torch as pytorch
    import torch.utils.benchmark  # noqa: F401
except ImportError:
    pytorch = None

LIBRARIES = [arete] + [pytorch] * (pytorch is not None)


def _cases(*devices):
    return [pytest.param(library, device, id=f"{library.__name__}-{device}",
                         marks=[pytest.mark.skipif(not library.cuda.is_available(), reason="no GPU")] * (device == "cuda"))
            for library in LIBRARIES for device in devices]  # fmt: skip


anywhere = pytest.mark.parametrize("torch,device", _cases("cpu", "cuda"))
on_the_cpu = pytest.mark.parametrize("torch,device", _cases("cpu"))
on_a_gpu = pytest.mark.parametrize("torch,device", _cases("cuda"))


@pytest.fixture(autouse=True)
def _seeds_and_switches():
    for library in LIBRARIES:
        library.manual_seed(0)
    yield
    for library in LIBRARIES:
        library.use_deterministic_algorithms(False)
        library.set_float32_matmul_precision("highest")


def the_net(torch, device):
    nn = torch.nn
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)


def the_data(torch, device, batches=1, rows=64):
    """Inputs, and a sum that a net can learn."""
    inputs = [torch.randn(rows, 8, device=device) for _ in range(batches)]
    return [(x, x[:, :4].sum(1, keepdim=True)) for x in inputs]


def values(tensors):
    return [t.detach().float().cpu().numpy().copy() for t in tensors]


def same(a, b, tolerance=0.0):
    return all(abs(x - y).max() <= tolerance * max(abs(x).max(), abs(y).max()) for x, y in zip(a, b, strict=True))


def plain(key):
    """The name of an operator, without PyTorch's namespace."""
    return key.removeprefix("aten::")


# ---- mixed precision


@anywhere
def test_amp_a_typical_loop(torch, device):
    net, (batch,) = the_net(torch, device), the_data(torch, device)
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


@anywhere
def test_amp_clipping_of_unscaled_gradients(torch, device):
    net, ((x, y),) = the_net(torch, device), the_data(torch, device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0)
    with torch.autocast(device, dtype=torch.float16):
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


@anywhere
def test_amp_accumulated_gradients(torch, device):
    net, batches = the_net(torch, device), the_data(torch, device, batches=4)
    twin = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler(device)
    steps = 0
    for i, (x, y) in enumerate(batches):
        with torch.autocast(device, dtype=torch.float16):
            loss = torch.nn.functional.mse_loss(net(x), y) / len(batches)
        scaler.scale(loss).backward()
        if (i + 1) % len(batches) == 0:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            steps += 1
    x, y = (torch.cat(parts) for parts in zip(*batches))
    torch.nn.functional.mse_loss(twin(x), y).backward()
    expected = [p.detach() - 0.1 * p.grad for p in twin.parameters()]
    assert steps == 1 and same(values(net.parameters()), values(expected), 5e-3)


@anywhere
def test_amp_a_penalty_on_gradients(torch, device):
    def gradients(scaled):
        net, ((x, y),) = the_net(torch, device), the_data(torch, device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=scaled)
        with torch.autocast(device, dtype=torch.float16, enabled=scaled):
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaled_grads = torch.autograd.grad(outputs=scaler.scale(loss), inputs=net.parameters(), create_graph=True)
        inverse = 1.0 / scaler.get_scale()
        grads = [g * inverse for g in scaled_grads]  # no optimizer owns them: the scaler cannot do it
        with torch.autocast(device, dtype=torch.float16, enabled=scaled):
            norm = sum(g.pow(2).sum() for g in grads).sqrt()
            loss = loss + norm
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        result = values(p.grad for p in net.parameters())
        scaler.step(optimizer)
        scaler.update()
        return result

    torch.manual_seed(1)
    mixed = gradients(True)
    torch.manual_seed(1)
    assert same(mixed, gradients(False), 0.03)


@anywhere
def test_amp_several_losses_and_optimizers(torch, device):
    nets, ((x, y),) = [the_net(torch, device) for _ in range(2)], the_data(torch, device)
    optimizers = [torch.optim.SGD(nets[0].parameters(), lr=0.1), torch.optim.Adam(nets[1].parameters())]
    scaler = torch.amp.GradScaler(device, init_scale=256.0)
    before = [values(net.parameters()) for net in nets]
    with torch.autocast(device, dtype=torch.float16):
        out0, out1 = nets[0](x), nets[1](x)
        loss0 = torch.nn.functional.mse_loss(2 * out0 + 3 * out1, y)
        loss1 = torch.nn.functional.mse_loss(3 * out0 - 5 * out1, y)
    scaler.scale(loss0).backward(retain_graph=True)
    scaler.scale(loss1).backward()
    scaler.unscale_(optimizers[0])  # one may be looked at, the other left to step()
    for p in nets[1].parameters():
        p.grad[0] = math.inf
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert not any(same([a], [b]) for a, b in zip(before[0], values(nets[0].parameters())))
    assert same(before[1], values(nets[1].parameters()))  # each optimizer decides for itself
    assert scaler.get_scale() == 128


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


# ---- CUDA: devices, precision


@on_a_gpu
def test_cuda_devices_and_their_context(torch, device):
    cuda, first = torch.device("cuda"), torch.device("cuda:0")
    a = torch.tensor([1.0, 2.0], device=first)
    b = torch.tensor([1.0, 2.0]).cuda()
    assert a.device == b.device == first and a.is_cuda
    last = torch.cuda.device_count() - 1
    with torch.cuda.device(last):
        c = torch.tensor([1.0, 2.0], device=cuda)
        d = torch.tensor([1.0, 2.0]).to(device=cuda)
        e = torch.ones(2).cuda(first)
        assert torch.cuda.current_device() == last
    assert c.device == d.device == torch.device("cuda", last) and e.device == first
    assert (c + d).device == c.device and torch.cuda.current_device() == 0
    assert (a + c.to(first)).tolist() == [2.0, 4.0]


@anywhere
def test_cuda_code_for_any_device(torch, device):
    parser = argparse.ArgumentParser()
    parser.add_argument("--disable-cuda", action="store_true")
    args = parser.parse_args(["--disable-cuda"] if device == "cpu" else [])
    if not args.disable_cuda and torch.cuda.is_available():
        args.device = torch.device("cuda")
    else:
        args.device = torch.device("cpu")
    x = torch.empty((8, 42), device=args.device).fill_(1.0)
    net = torch.nn.Linear(42, 2).to(device=args.device)
    assert net(x).device.type == device and net(x).shape == (8, 2)


@anywhere
def test_cuda_the_accelerator_that_is_there(torch, device):
    if torch.cuda.is_available():
        name = "cuda"
    elif torch.xpu.is_available():
        name = "xpu"
    elif torch.backends.mps.is_available():
        name = "mps"
    else:
        name = "cpu"
    if torch.accelerator.is_available():
        found = torch.accelerator.current_accelerator()
        assert found.type == name and torch.accelerator.device_count() > 0
        torch.ones(2, device=found) + 1
        torch.accelerator.synchronize()
    else:
        assert name == "cpu" and torch.accelerator.device_count() == 0


@anywhere
def test_cuda_new_tensors_like_others(torch, device):
    x = torch.empty(2, device=device, dtype=torch.float64)
    full = x.new_full([3, 2], fill_value=-5)
    whole = torch.empty(2, dtype=torch.int64, device=device).new_tensor([[1, 2, 3]])
    assert full.tolist() == [[-5.0, -5.0]] * 3 and full.dtype is torch.float64 and full.device == x.device
    assert whole.dtype is torch.int64 and whole.device == x.device and whole.tolist() == [[1, 2, 3]]
    for made, value in ((torch.ones_like(full), 1.0), (torch.zeros_like(full), 0.0)):
        assert made.shape == (3, 2) and made.dtype is full.dtype and made.device == x.device and made[2, 1] == value


@anywhere
def test_cuda_tf32_switches(torch, device):
    exact_a, exact_b = (torch.randn(512, 512, dtype=torch.double, device=device) for _ in range(2))
    exact = exact_a @ exact_b
    mean = exact.abs().mean()
    a, b = exact_a.float(), exact_b.float()

    def error():
        return ((a @ b - exact).abs().max() / mean).item()

    convolutions = torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    quick = error()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    slow = error()
    assert not torch.backends.cuda.matmul.allow_tf32 and not torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = convolutions
    assert slow < 1e-4
    if device == "cuda" and torch.cuda.get_device_capability()[0] >= 8:
        assert slow < 0.1 * quick < 1e-2
    else:
        assert quick < 1e-4


@anywhere
def test_cuda_precision_of_float32_products(torch, device):
    a = torch.randn(256, 256, device=device)
    exact = a.double() @ a.double()
    errors = {}
    for precision in ("medium", "high", "highest"):
        torch.set_float32_matmul_precision(precision)
        assert torch.get_float32_matmul_precision() == precision
        assert torch.backends.cuda.matmul.allow_tf32 == (precision != "highest")
        errors[precision] = ((a @ a - exact).abs().max() / exact.abs().mean()).item()
    assert errors["highest"] < 1e-4 and errors["highest"] <= errors["high"] <= 0.05


@anywhere
def test_cuda_precision_by_its_newest_names(torch, device):
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = products.fp32_precision, convolutions.fp32_precision
    a = torch.randn(256, 256, device=device)
    exact = a.double() @ a.double()
    products.fp32_precision = "tf32"
    convolutions.fp32_precision = "tf32"
    assert products.fp32_precision == convolutions.fp32_precision == "tf32"
    products.fp32_precision = "ieee"
    assert products.fp32_precision == "ieee" and convolutions.fp32_precision == "tf32"
    assert (a @ a - exact).abs().max() / exact.abs().mean() < 1e-4
    products.fp32_precision, convolutions.fp32_precision = before
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, fp32_precision="tf32"):
        assert torch.backends.cudnn.fp32_precision == "tf32" and torch.backends.cudnn.conv.fp32_precision == "tf32"
    assert (products.fp32_precision, convolutions.fp32_precision) == before


@anywhere
def test_cuda_switches_of_cudnn(torch, device):
    cudnn, f = torch.backends.cudnn, torch.nn.functional
    x, w = torch.randn(2, 3, 12, 12, device=device), torch.randn(4, 3, 3, 3, device=device)
    expected = f.conv2d(x.double(), w.double())
    before = cudnn.benchmark, cudnn.deterministic, cudnn.enabled
    cudnn.benchmark = True
    cudnn.deterministic = True
    assert cudnn.benchmark and cudnn.deterministic
    with cudnn.flags(enabled=False, benchmark=False, deterministic=False, allow_tf32=False):
        assert not cudnn.enabled and not cudnn.deterministic
        out = f.conv2d(x, w)
    assert cudnn.enabled and cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic, cudnn.enabled = before
    assert same(values([out]), values([expected]), 1e-5)
    for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        was = getattr(torch.backends.cuda.matmul, name)
        setattr(torch.backends.cuda.matmul, name, False)
        assert not getattr(torch.backends.cuda.matmul, name)
        setattr(torch.backends.cuda.matmul, name, was)


@anywhere
def test_cuda_deterministic_algorithms(torch, device):
    torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled()
    index = torch.randint(0, 10, (5000,), device=device)
    x = torch.randn(5000, device=device)
    sums = [torch.zeros(10, device=device).index_add_(0, index, x).tolist() for _ in range(3)]
    assert sums[0] == sums[1] == sums[2]
    torch.use_deterministic_algorithms(False)
    assert not torch.are_deterministic_algorithms_enabled()


# ---- CUDA: streams, events


@on_a_gpu
def test_cuda_times_between_events(torch, device):
    x = torch.randn(1024, 1024, device=device)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        x = (x @ x).clamp_(-1, 1)
    end.record()
    torch.cuda.synchronize()
    assert end.query() and 0 < begin.elapsed_time(end) < 10_000


@on_a_gpu
def test_cuda_work_on_a_side_stream(torch, device):
    side = torch.cuda.Stream()
    a = torch.empty((1000, 1000), device=device).fill_(1.0)
    side.wait_stream(torch.cuda.default_stream(torch.device("cuda")))
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        b = torch.sum(a)
    a.record_stream(side)
    del a
    other = torch.zeros((1000, 1000), device=device)  # might take the place of `a`
    torch.cuda.current_stream().wait_stream(side)
    assert b.item() == 1_000_000 and other.sum().item() == 0
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


@on_a_gpu
def test_cuda_events_between_streams(torch, device):
    urgent, other = torch.cuda.Stream(priority=-1), torch.cuda.Stream()
    assert urgent.priority < 0 and urgent != other
    x = torch.ones((512, 512), device=device)
    urgent.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(urgent):
        for _ in range(10):
            x = x @ x / 512
        done = urgent.record_event()
    other.wait_event(done)
    with torch.cuda.stream(other):
        y = x * 2
    after = torch.cuda.Event()
    after.record(other)
    after.synchronize()
    assert after.query() and done.query()
    urgent.synchronize()
    assert (y == 2.0).all()


@on_a_gpu
def test_cuda_backward_on_a_side_stream(torch, device):
    net, ((x, y),) = the_net(torch, device), the_data(torch, device)
    torch.nn.functional.mse_loss(net(x), y).backward()
    expected = values(p.grad for p in net.parameters())
    net.zero_grad()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = torch.nn.functional.mse_loss(net(x), y)
        start = torch.ones_like(loss)
        loss.backward(start)  # each step backwards runs where the step forwards did
    torch.cuda.current_stream().wait_stream(side)
    assert same(expected, values(p.grad for p in net.parameters()), 1e-5)


@on_a_gpu
def test_cuda_every_thread_has_its_current_stream(torch, device):
    found = {}

    def work(name, stream):
        with torch.cuda.stream(stream):
            found[name] = torch.cuda.current_stream() == stream, torch.ones(1000, device=device).sum()
            stream.synchronize()

    threads = [threading.Thread(target=work, args=(i, torch.cuda.Stream())) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [found[i][0] for i in range(3)] == [True] * 3 and [found[i][1].item() for i in range(3)] == [1000.0] * 3


# ---- CUDA: memory


@anywhere
def test_cuda_counters_of_memory(torch, device):
    gc.collect()
    torch.cuda.empty_cache()
    start = torch.cuda.memory_allocated()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    x = torch.empty(1 << 20, device=device)
    y = torch.empty(1 << 20, device=device)
    held, most = torch.cuda.memory_allocated() - start, torch.cuda.max_memory_allocated() - start
    assert held == most == (8 << 20 if device == "cuda" else 0)
    del x
    assert torch.cuda.memory_allocated() - start == held // 2 and torch.cuda.max_memory_allocated() - start == most
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del y
    reserved = torch.cuda.memory_reserved()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved and torch.cuda.memory_allocated() == start


@on_a_gpu
def test_cuda_statistics_of_memory(torch, device):
    x = torch.empty(1 << 20, device=device)
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated() >= 4 << 20
    assert stats["allocated_bytes.all.peak"] >= stats["allocated_bytes.all.current"] and stats["num_ooms"] >= 0
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    assert len(torch.cuda.memory_summary(abbreviated=True).splitlines()) > 5
    torch.cuda.set_per_process_memory_fraction(0.5)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(int(total * 0.6), dtype=torch.uint8, device=device)
    torch.cuda.set_per_process_memory_fraction(1.0)
    del x


@pytest.mark.parametrize("torch,device", [c for c in _cases("cpu", "cuda") if c.id != "torch-cpu"])  # PyTorch knows GPUs only
def test_cuda_a_history_of_memory(torch, device, tmp_path):
    net, ((x, y),) = the_net(torch, device), the_data(torch, device)
    torch.cuda.memory._record_memory_history(max_entries=10_000)
    try:
        torch.nn.functional.mse_loss(net(x), y).backward()
        file = str(tmp_path / "steps.pickle")
        torch.cuda.memory._dump_snapshot(file)
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    with open(file, "rb") as f:
        found = pickle.load(f)
    assert {"segments", "device_traces"} <= found.keys()
    traces = [event for trace in found["device_traces"] for event in trace]
    assert sum(e["action"] == "alloc" for e in traces) >= 8
    frames = [frame for event in traces for frame in event.get("frames", ())]
    assert any(frame["filename"].endswith("test_idioms.py") for frame in frames)


# ---- CUDA: graphs


def _warmed_up(torch, function, times=3):
    """Graphs want what is done once to be done: on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            function()
    torch.cuda.current_stream().wait_stream(side)


@on_a_gpu
def test_graphs_of_some_calls(torch, device):
    place = torch.empty((5,), device=device).fill_(1.0)
    _warmed_up(torch, lambda: place * 2 + 1)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        assert torch.cuda.is_current_stream_capturing()
        result = place * 2 + 1
    for value in (3.0, 4.0):
        place.copy_(torch.full((5,), value, device=device))
        g.replay()
        assert result.tolist() == [2 * value + 1] * 5


@on_a_gpu
def test_graphs_of_a_whole_step(torch, device):
    batches = the_data(torch, device, batches=10)

    def start():
        torch.manual_seed(5)
        net = the_net(torch, device)
        return net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)

    def step(net, optimizer, x, y):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    net, optimizer = start()
    x, y = (t.clone() for t in batches[0])
    _warmed_up(torch, lambda: step(net, optimizer, x, y))
    g = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)  # so that backward() makes gradients from the graph's own memory
    with torch.cuda.graph(g):
        loss = step(net, optimizer, x, y)
    losses = []
    for data, target in batches[1:]:
        x.copy_(data)
        y.copy_(target)
        g.replay()
        losses.append(loss.item())
    twin, its = start()
    expected = [step(twin, its, *batches[0]) for _ in range(3)]
    expected = [step(twin, its, *batch).item() for batch in batches[1:]]
    assert losses == pytest.approx(expected, rel=1e-3)
    assert same(values(net.parameters()), values(twin.parameters()), 1e-3)


@on_a_gpu
def test_graphs_of_parts(torch, device):
    nn = torch.nn
    first, positive, negative = (m.to(device) for m in (nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)))
    parts = [first, positive, negative]
    plain_parts = [copy.deepcopy(m) for m in parts]
    x, h = torch.randn(32, 8, device=device), torch.randn(32, 8, device=device, requires_grad=True)
    graphed = [torch.cuda.make_graphed_callables(m, (sample,)) for m, sample in zip(parts, (x, h, h))]

    def step(parts, data):
        hidden = parts[0](data)
        out = parts[1](hidden) if hidden.sum().item() > 0 else parts[2](hidden)  # decided by data: no graph can
        out.sum().backward()
        return out.detach().clone()

    optimizer = torch.optim.SGD(itertools.chain(*(m.parameters() for m in parts)), lr=0.1)
    for data in (x, -x, torch.randn(32, 8, device=device)):
        optimizer.zero_grad(set_to_none=True)
        for m in plain_parts:
            m.zero_grad()
        assert same(values([step(graphed, data)]), values([step(plain_parts, data)]), 1e-4)
        for ours, theirs in zip(parts, plain_parts):
            for p, q in zip(ours.parameters(), theirs.parameters()):
                assert q.grad is None or same(values([p.grad]), values([q.grad]), 1e-4)


@on_a_gpu
def test_graphs_with_a_scaler(torch, device):
    net, batches = the_net(torch, device), the_data(torch, device, batches=8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler(device, init_scale=128.0)
    x, y = (t.clone() for t in batches[0])

    def backward():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.float16, cache_enabled=False):
            loss = torch.nn.functional.mse_loss(net(x), y)
        scaler.scale(loss).backward()
        return loss

    _warmed_up(torch, backward)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        loss = backward()
    losses = []
    for data, target in batches * 8:
        x.copy_(data)
        y.copy_(target)
        g.replay()
        scaler.step(optimizer)  # outside: it may have to leave the step out
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0] and scaler.get_scale() == 128


@on_a_gpu
def test_graphs_with_several_streams(torch, device):
    x, side = torch.ones(1000, device=device), torch.cuda.Stream()
    _warmed_up(torch, lambda: (x + 1) * (x + 2))
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        a = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = x + 2
        torch.cuda.current_stream().wait_stream(side)
        c = a * b
    x.fill_(2.0)
    g.replay()
    assert c.sum().item() == 12_000


@on_a_gpu
def test_graphs_that_share_memory(torch, device):
    x = torch.ones(1 << 16, device=device)
    _warmed_up(torch, lambda: (x + 1).exp())
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        a = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        b = a * 3
    x.fill_(4.0)
    first.replay()  # in the order of their captures
    second.replay()
    assert a[0].item() == 5 and b[-1].item() == 15


# ---- pinned memory, loading


def _median(torch, command, **names):
    timer = torch.utils.benchmark.Timer(command, globals=names)
    return timer.adaptive_autorange(min_run_time=0.005, max_run_time=0.2).median


@anywhere
def test_pinned_memory_is_timed(torch, device):
    pageable = torch.ones(1 << 18)
    commands = {"pageable": ("x.to(device)", pageable), "pageable, not blocking": ("x.to(device, non_blocking=True)", pageable)}
    if torch.cuda.is_available():
        pinned = torch.ones(1 << 18, pin_memory=True)
        assert pinned.is_pinned() and not pageable.is_pinned()
        commands |= {"pinned": ("x.to(device)", pinned), "pinned, not blocking": ("x.to(device, non_blocking=True)", pinned),
                     "pinned on the way": ("x.pin_memory().to(device, non_blocking=True)", pageable)}  # fmt: skip
    medians = {name: _median(torch, command, x=x, device=device) for name, (command, x) in commands.items()}
    assert all(0 < m < 1 for m in medians.values()) and len(medians) == (5 if torch.cuda.is_available() else 2)


@on_a_gpu
def test_pinned_memory_copies_beside_computing(torch, device):
    x = torch.randn(1 << 20)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.data_ptr() != x.data_ptr() and pinned.pin_memory().data_ptr() == pinned.data_ptr()
    there = pinned.to(device, non_blocking=True)  # what follows on the stream sees it
    result = there * 2
    assert same(values([result]), values([x * 2]))
    back = torch.empty(1 << 20, pin_memory=True)
    back.copy_(result, non_blocking=True)
    torch.cuda.synchronize()  # the host does not see what the stream sees
    assert same(values([back]), values([x * 2]))
    host = result.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    assert same(values([host]), values([back]))


@anywhere
def test_pinned_memory_lists_of_tensors(torch, device):
    tensors = [torch.full((100,), float(i)) for i in range(50)]

    def one_by_one(*tensors):
        return [t.to(device) for t in tensors]

    def together(*tensors):
        result = [t.to(device, non_blocking=True) for t in tensors]
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return result

    assert same(values(one_by_one(*tensors)), values(together(*tensors)))
    for function in (one_by_one, together):
        assert _median(torch, "copy(*tensors)", copy=function, tensors=tensors) > 0


@anywhere
def test_pinned_memory_from_a_loader(torch, device):
    data = torch.utils.data.TensorDataset(torch.arange(100).float(), torch.arange(100) % 7)
    # PyTorch's workers are forked processes, for which this one has too many threads.
    workers = {} if torch is pytorch else {"num_workers": 2, "prefetch_factor": 2, "persistent_workers": True}
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, drop_last=False,
                                         pin_memory=torch.cuda.is_available(), **workers)  # fmt: skip
    seen = []
    for x, label in loader:
        assert x.is_pinned() == label.is_pinned() == torch.cuda.is_available()
        x, label = x.to(device, non_blocking=True), label.to(device, non_blocking=True)
        assert x.device.type == device and (x.long() % 7 == label).all()
        seen += x.tolist()
    assert sorted(seen) == list(range(100)) and seen != sorted(seen) and len(loader) == 7


@anywhere
def test_pinned_memory_of_a_batch_of_its_own_type(torch, device):
    class Batch:
        def __init__(self, items):
            self.x = torch.stack([item[0] for item in items])

        def pin_memory(self):
            self.x = self.x.pin_memory()
            return self

    data = torch.utils.data.TensorDataset(torch.ones(6, 3))
    use = torch.cuda.is_available()
    for batch in torch.utils.data.DataLoader(data, batch_size=2, collate_fn=Batch, pin_memory=use):
        assert isinstance(batch, Batch) and batch.x.is_pinned() == use
        assert batch.x.to(device, non_blocking=True).sum().item() == 6


# ---- profiler


def _pictures(torch, device):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))  # fmt: skip
    return net.to(device), torch.randn(4, 3, 16, 16, device=device)


def _activities(torch):
    chosen = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        chosen += [torch.profiler.ProfilerActivity.CUDA]
    return chosen


@anywhere
def test_profiler_time_by_operator(torch, device):
    profile, record_function = torch.profiler.profile, torch.profiler.record_function
    net, x = _pictures(torch, device)
    with profile(activities=_activities(torch), record_shapes=True) as prof:
        with record_function("model_inference"):
            net(x)
    # On a GPU PyTorch has a second row for the range, of the time between its first and its last kernel.
    rows = {plain(row.key): row for row in prof.key_averages() if row.cpu_time_total > 0}
    assert rows["conv2d"].count == 2 and rows["model_inference"].count == 1
    assert rows["model_inference"].cpu_time_total >= rows["conv2d"].cpu_time_total > 0
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=10)
    assert all(text in table for text in ("Self CPU", "CPU total", "# of Calls", "model_inference", "conv2d", "Self CPU time total:"))
    by_shape = [row for row in prof.key_averages(group_by_input_shape=True) if plain(row.key) == "conv2d"]
    assert [row.count for row in by_shape] == [1, 1]
    assert sorted(row.input_shapes[0] for row in by_shape) == [[4, 3, 16, 16], [4, 8, 16, 16]]
    assert "Input Shapes" in prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=10)
    if device == "cuda":
        assert "CUDA total" in prof.key_averages().table(sort_by=device + "_time_total", row_limit=10)
        assert rows["conv2d"].device_time_total > 0


@on_the_cpu
def test_profiler_memory_by_operator(torch, device):
    net, x = _pictures(torch, device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as prof:
        out = net(x)
    rows = prof.key_averages()
    assert max(row.self_cpu_memory_usage for row in rows) >= 4 * 16 * 16 * 16 * 4  # the largest activation
    for sort_by in ("self_cpu_memory_usage", "cpu_memory_usage"):
        table = rows.table(sort_by=sort_by, row_limit=10)
        assert "CPU Mem" in table and "Self CPU Mem" in table
    assert out.shape == (4, 10)


@anywhere
def test_profiler_a_trace(torch, device, tmp_path):
    net, x = _pictures(torch, device)
    with torch.profiler.profile(activities=_activities(torch)) as prof:
        net(x)
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = collections.Counter(plain(e["name"]) for e in events if e.get("ph") == "X")
    assert spans["conv2d"] == 2 and spans["linear"] == 1
    assert all(e["dur"] >= 0 for e in events if e.get("ph") == "X")
    if device == "cuda":
        assert any(e.get("cat") == "kernel" for e in events)


@anywhere
def test_profiler_where_a_call_came_from(torch, device):
    net, x = _pictures(torch, device)
    with torch.profiler.profile(activities=_activities(torch), with_stack=True) as prof:
        net(x)
    key = "self_" + device + "_time_total"
    averages = prof.key_averages(group_by_stack_n=5)
    assert sum(row.count for row in averages if plain(row.key) == "conv2d") == 2
    assert len(averages.table(sort_by=key, row_limit=2).splitlines()) > 5
    if torch is arete:  # PyTorch keeps stacks for traces alone unless a private option asks for more
        assert "Source Location" in averages.table(sort_by=key, row_limit=2)
        assert any("test_idioms.py" in line for row in averages for line in row.stack)


@anywhere
def test_profiler_some_steps_of_a_long_run(torch, device, tmp_path):
    net, x = _pictures(torch, device)
    done = []

    def handler(p):
        done.append(p.step_num)
        assert "Self CPU time total" in p.key_averages().table(sort_by="self_" + device + "_time_total", row_limit=10)
        assert any(row.key.startswith("ProfilerStep") and row.cpu_time_total > 0 for row in p.key_averages())
        p.export_chrome_trace(str(tmp_path / f"trace_{p.step_num}.json"))

    with torch.profiler.profile(activities=_activities(torch), on_trace_ready=handler,
                                schedule=torch.profiler.schedule(wait=1, warmup=1, active=2)) as p:  # fmt: skip
        for _ in range(8):
            net(x)
            p.step()
    assert done == [4, 8]
    for step in done:
        events = json.loads((tmp_path / f"trace_{step}.json").read_text())["traceEvents"]
        names = {e["name"] for e in events if str(e.get("name")).startswith("ProfilerStep")}
        assert names == {f"ProfilerStep#{step - 2}", f"ProfilerStep#{step - 1}"}


@on_the_cpu
def test_profiler_a_schedule_by_itself(torch, device):
    action = torch.profiler.ProfilerAction
    chosen = torch.profiler.schedule(skip_first=10, wait=5, warmup=1, active=3, repeat=2)
    letters = {action.NONE: ".", action.WARMUP: "w", action.RECORD: "r", action.RECORD_AND_SAVE: "s"}
    assert "".join(letters[chosen(step)] for step in range(30)) == "." * 15 + "wrrs" + "." * 5 + "wrrs" + ".."


@anywhere
def test_profiler_for_tensorboard_without_a_block(torch, device, tmp_path):
    net, x = _pictures(torch, device)
    prof = torch.profiler.profile(schedule=torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1), record_shapes=True,
                                  on_trace_ready=torch.profiler.tensorboard_trace_handler(str(tmp_path / "log")))  # fmt: skip
    prof.start()
    for _ in range(3):
        net(x).sum().backward()
        prof.step()
    prof.stop()
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.endswith(".pt.trace.json")
    assert any(plain(str(e.get("name"))) == "conv2d" for e in json.loads(file.read_text())["traceEvents"])


# ---- benchmarking


def _dots(torch):
    def by_sum(a, b):
        return a.mul(b).sum(-1)

    def by_product(a, b):
        return torch.bmm(a.reshape(-1, 1, a.shape[-1]), b.reshape(-1, b.shape[-1], 1)).flatten(-3)

    return {"by_sum": by_sum, "by_product": by_product}


@anywhere
def test_benchmark_timers(torch, device):
    benchmark, dots = torch.utils.benchmark, _dots(torch)
    x = torch.randn(100, 64, device=device)
    assert same(values([dots["by_sum"](x, x)]), values([dots["by_product"](x, x)]), 1e-5)
    seconds = timeit.Timer("f(x, x)", setup="f(x, x)", globals={"f": dots["by_sum"], "x": x}).timeit(10) / 10
    for name, function in dots.items():
        m = benchmark.Timer(stmt="f(x, x)", setup="y = 1", globals={"f": function, "x": x}, label=name).timeit(10)
        assert isinstance(m, benchmark.Measurement) and len(m.times) == 1 and m.number_per_run == 10
        assert 0 < m.median == m.times[0] < 1000 * seconds + 1
        assert "1 measurement, 10 runs , 1 thread" in repr(m) and name in repr(m)


@on_the_cpu
def test_benchmark_threads(torch, device):
    before = torch.get_num_threads()
    seen = []
    timer = torch.utils.benchmark.Timer("look()", globals={"look": lambda: seen.append(torch.get_num_threads())}, num_threads=2)
    assert timer.timeit(3).task_spec.num_threads == 2
    assert set(seen) == {2} and torch.get_num_threads() == before


@anywhere
def test_benchmark_as_often_as_it_takes(torch, device):
    x = torch.randn(64, 64, device=device)
    m = torch.utils.benchmark.Timer("x @ x", globals={"x": x}).blocked_autorange(min_run_time=0.02)
    assert m.number_per_run >= 1 and sum(m.times) * m.number_per_run >= 0.02
    assert min(m.times) <= m.median <= max(m.times) and m.iqr >= 0 and m.mean > 0
    (merged,) = torch.utils.benchmark.Measurement.merge([m, m])
    assert len(merged.times) == 2 * len(m.times)


@anywhere
def test_benchmark_tables(torch, device):
    benchmark, results = torch.utils.benchmark, []
    for b, n in itertools.product([1, 32], [4, 64]):
        x = torch.ones(b, n, device=device)
        for threads in (1, 2):
            for name, function in _dots(torch).items():
                timer = benchmark.Timer(stmt="f(x, x)", globals={"f": function, "x": x}, num_threads=threads, label="Dots",
                                        sub_label=f"[{b}, {n}]", description=name)  # fmt: skip
                results.append(timer.blocked_autorange(min_run_time=0.001))
    compare = benchmark.Compare(results)
    compare.trim_significant_figures()
    plain_text = str(compare)
    compare.colorize()
    coloured = str(compare)
    for line in ("1 threads:", "2 threads:", "[32, 64]", "by_product", "Dots", "Times are in"):
        assert line in plain_text
    assert "\033[" in coloured and "\033[" not in plain_text
    assert sum(line.strip().startswith("[") for line in plain_text.splitlines()) >= 8  # 4 sizes for 2 numbers of threads


@anywhere
def test_benchmark_kept_and_compared_later(torch, device, tmp_path, capsys):
    benchmark = torch.utils.benchmark
    x = torch.ones(32, 32, device=device)
    for environment, stmt in (("branch A", "x.sum()"), ("branch B", "x.t().sum()")):
        m = benchmark.Timer(stmt, globals={"x": x}, label="sum", sub_label="32", description="all", env=environment).timeit(5)
        with open(tmp_path / "results.pickle", "ab") as f:
            pickle.dump(m, f)
    found = []
    with open(tmp_path / "results.pickle", "rb") as f, contextlib.suppress(EOFError):
        while True:
            found.append(pickle.load(f))
    assert [m.env for m in found] == ["branch A", "branch B"] and all(m.median > 0 for m in found)
    benchmark.Compare(found).print()
    printed = capsys.readouterr().out
    assert "branch A" in printed and "branch B" in printed


@anywhere
def test_benchmark_of_random_sizes(torch, device):
    benchmark = torch.utils.benchmark
    fuzzer = benchmark.Fuzzer(
        parameters=[benchmark.FuzzedParameter(f"k{i}", minval=1, maxval=1000, distribution="loguniform") for i in range(2)],
        tensors=[benchmark.FuzzedTensor("x", size=("k0", "k1"), min_elements=128, max_elements=10_000, probability_contiguous=0.6,
                                        cuda=device == "cuda")],
        seed=0)  # fmt: skip
    results, layouts = [], set()
    for tensors, properties, params in fuzzer.take(10):
        x = tensors["x"]
        assert x.shape == (params["k0"], params["k1"]) and 128 <= x.numel() == properties["x"]["numel"] <= 10_000
        assert x.is_contiguous() == properties["x"]["is_contiguous"] and x.device.type == device
        layouts.add(x.is_contiguous())
        sub_label = f"{params['k0']:<6} x {params['k1']:<4} {'' if properties['x']['is_contiguous'] else '(discontiguous)'}"
        timer = benchmark.Timer("x.sum()", globals=tensors, label="sum", sub_label=sub_label, description="all")
        results.append(timer.blocked_autorange(min_run_time=0.001))
    assert layouts == {True, False} and "(discontiguous)" in str(benchmark.Compare(results))
    assert [p for _, _, p in fuzzer.take(3)] == [p for _, _, p in fuzzer.take(3)] and 0 <= fuzzer.rejection_rate < 1


def test_benchmark_of_random_layouts():  # PyTorch 2.11 refuses probabilities that add up to 1
    benchmark = arete.utils.benchmark
    fuzzer = benchmark.Fuzzer(
        parameters=[
            [benchmark.FuzzedParameter("n", 2, 8, "uniform"),
             benchmark.FuzzedParameter("m", distribution={benchmark.ParameterAlias("n"): 0.5, 1: 0.5})],
            benchmark.FuzzedParameter("dims", distribution={2: 0.4, 3: 0.6}),
            benchmark.FuzzedParameter("step", distribution={1: 0.5, 2: 0.5}),
        ],
        tensors=[benchmark.FuzzedTensor(name, ("n", "m", 3), ("step", 1, 1), dim_parameter="dims", dtype=arete.int32) for name in "xy"],
        constraints=[lambda params: params["n"] != 5], seed=3)  # fmt: skip
    seen = collections.Counter()
    for tensors, properties, params in fuzzer.take(60):
        expected = (params["n"], params["m"], 3)[: params["dims"]]
        assert params["n"] != 5 and params["m"] in (1, params["n"])
        for name, x in tensors.items():
            order = properties[name]["order"]
            assert x.shape == expected and x.dtype is arete.int32
            # In its own order in memory the strides fall.
            strides = [x.stride(d) for d in order]
            assert strides == sorted(strides, reverse=True)
            seen[params["m"] == 1, params["dims"], params["step"], x.is_contiguous()] += 1
    assert len(seen) > 8


def test_wrong_ranges_of_random_sizes_are_errors():
    benchmark = arete.utils.benchmark
    for arguments in ({"distribution": "normal"}, {"distribution": {}}, {"distribution": {1: -1.0}}, {"minval": 0, "maxval": 4, "distribution": "loguniform"},
                      {"minval": 4, "maxval": 1, "distribution": "uniform"}, {"distribution": {1: 0.2}, "strict": True}):  # fmt: skip
        with pytest.raises(ValueError, match="FuzzedParameter 'k'"):
            benchmark.FuzzedParameter("k", **arguments)
    with pytest.raises(ValueError, match="steps"):
        benchmark.FuzzedTensor("x", ("k",), (1, 2))
    with pytest.raises(ValueError, match="names must differ"):
        benchmark.Fuzzer([benchmark.FuzzedParameter("x", 1, 2, "uniform")], [benchmark.FuzzedTensor("x", (2,))])
    narrow = benchmark.Fuzzer([benchmark.FuzzedParameter("k", 1, 2, "uniform")], [benchmark.FuzzedTensor("x", ("k",), min_elements=3)])
    with pytest.raises(RuntimeError, match="too narrow"):
        next(narrow.take(1))
