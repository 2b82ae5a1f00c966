"""Devices, precision, streams, events and memory as people write it."""
import argparse
import gc
import pickle
import threading
from pathlib import Path

import pytest
from idiom_helpers import anywhere, cases, on_a_gpu, same, seeds_and_switches, the_data, the_net, values  # noqa: F401 -- the fixture


# ---- devices, precision


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


# ---- streams, events


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


# ---- memory


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


@pytest.mark.parametrize("torch,device", [c for c in cases("cpu", "cuda") if c.id != "torch-cpu"])  # PyTorch knows GPUs only
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
    assert any(frame["filename"].endswith(Path(__file__).name) for frame in frames)
