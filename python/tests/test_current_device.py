"""`"cuda"` without a number is the current device, whoever chose it and whatever it is given to."""
import pytest
from fake_gpus import run

import arete

# What makes a tensor on the current GPU, or moves `host` there.
WAYS = ['torch.zeros(2, device="cuda")', 'torch.tensor([1.0], device="cuda")', 'torch.rand(2, device=torch.device("cuda"))', "host.cuda()",
        'host.to("cuda")', 'host.to(torch.device("cuda"))', 'host.to(device="cuda", dtype=torch.float64)', 'first.to("cuda")',
        'torch.as_tensor([1.0], device="cuda")', 'torch.asarray([1.0], device="cuda")', 'torch.empty_like(host, device="cuda")',
        'host.new_zeros(2, device="cuda")', 'host.new_tensor([1.0], device="cuda")', 'torch.arange(3, device="cuda")',
        'torch.full((2,), 1.0, device="cuda")', 'torch.from_numpy(numpy.ones(2)).cuda()', 'torch.nn.Linear(2, 2).cuda().weight',
        'torch.nn.Linear(2, 2).to("cuda").weight', 'torch.nn.Linear(2, 2, device="cuda").weight', 'loaded("cuda")',
        'loaded(torch.device("cuda"))',
        'loaded({"cpu": "cuda"})', "loaded(lambda storage, location: storage.cuda())", 'torch.eye(2, device="cuda")',
        'torch.nn.utils.rnn.pack_sequence([host[0]]).to("cuda").data', 'next(iter(torch.utils.data.DevicePrefetcher([host], "cuda")))',
        'next(iter(torch.utils.data.DevicePrefetcher(loader, "cuda")))[0]', "default_device()", "in_a_device()",
        'torch.cuda.Stream().device', 'torch.cuda.current_stream().device', 'torch.Generator(device="cuda").device', "recorded().device",
        'torch.cuda.GPUMemoryTracker()._device', 'torch.cuda.GPUMemoryTracker("cuda")._device', "tracker().device"]

SET_UP = """
import io
import numpy
host, first, second = torch.ones(2, 3), torch.ones(2, 3, device="cuda:0"), torch.ones(2, 3, device="cuda:1")
file = io.BytesIO()
torch.save(host, file)
def loaded(map_location):
    file.seek(0)
    return torch.load(file, map_location=map_location)
def default_device():
    torch.set_default_device("cuda")
    try:
        assert torch.get_default_device() == torch.device("cuda", torch.cuda.current_device())
        return torch.zeros(2)
    finally:
        torch.set_default_device(None)
def in_a_device():
    with torch.device("cuda"):
        return torch.nn.Linear(2, 2).weight
def recorded():
    event = torch.cuda.Event()
    event.record()
    return event
def tracker():
    with torch.cuda.GPUMemoryTracker() as t:
        return t._tracker
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(host), num_workers=1)
def where(x):
    return x if isinstance(x, torch.device) else x.device
"""


@pytest.mark.parametrize("choose", ["torch.cuda.set_device(1)", 'torch.cuda.set_device("cuda:1")',
                                    'torch.cuda.set_device(torch.device("cuda", 1))'])
def test_everything_follows_the_choice(choose):
    out = run(SET_UP + f"""
    {choose}
    assert torch.cuda.current_device() == 1
    for way in {WAYS!r}:
        if where(eval(way)) != torch.device("cuda:1"):
            print(way, where(eval(way)))
    """.replace("\n    ", "\n"))
    assert out == ""


def test_the_choice_ends():
    run(SET_UP + """
with torch.cuda.device(1):
    assert torch.zeros(1, device="cuda").device.index == 1
    with torch.cuda.device("cuda:0"):
        assert host.cuda().device.index == 0
    with torch.cuda.device_of(first):
        assert host.cuda().device.index == 0
    assert host.cuda().device.index == 1
assert host.cuda().device.index == 0 and torch.cuda.current_device() == 0
with torch.cuda.stream(torch.cuda.Stream(device=1)):
    assert host.cuda().device.index == 1
with torch.cuda.Stream(device="cuda:1"):
    assert host.cuda().device.index == 1
assert host.cuda().device.index == 0
import threading
torch.cuda.set_device(1)
found = []
thread = threading.Thread(target=lambda: found.append(torch.zeros(1, device="cuda").device.index))
thread.start()
thread.join()
assert found == [0]  # every thread has its own choice
""")


def test_numbers_are_kept():
    run(SET_UP + """
torch.cuda.set_device(1)
assert host.cuda(0).device.index == 0 and host.to("cuda:0").device.index == 0 and host.to(0).device.index == 0
assert (first + 1).device.index == 0 and torch.zeros_like(first).device.index == 0 and first.clone().device.index == 0
assert second.to("cuda") is second and second.cuda() is second
assert second.to("cuda", torch.float32) is second
assert first.cuda().device.index == 1  # moves
w = torch.ones(2, device="cuda:0", requires_grad=True)
(w * 2).sum().backward()
assert w.grad.device.index == 0
assert loaded("cuda:0").device.index == 0
try:
    torch.zeros(1, device="cuda:2")
except RuntimeError as e:
    assert "invalid device ordinal" in str(e), e
else:
    raise AssertionError("there is no third GPU")
""")


def test_devices_compare_as_in_torch():
    cuda, first = arete.device("cuda"), arete.device("cuda:0")
    assert cuda != first and cuda == arete.device("cuda") and first == arete.device("cuda",
                                                                                    0) and hash(first) == hash(arete.device("cuda:0"))
    assert (str(cuda), repr(cuda), cuda.index) == ("cuda", "device(type='cuda')", None)
    assert (str(first), repr(first), first.index) == ("cuda:0", "device(type='cuda', index=0)", 0)
    cpu = arete.device("cpu", 0)
    assert (str(cpu), repr(cpu), cpu.index) == ("cpu:0", "device(type='cpu', index=0)", 0) and cpu != arete.device("cpu")
    assert arete.zeros(1, device=cpu).device == arete.device("cpu")


@pytest.mark.skipif(arete.cuda.device_count() < 2, reason="needs two GPUs")
def test_on_real_gpus():
    """The same with kernels, copies between the GPUs and streams that are real."""
    x = arete.arange(6.0).reshape(2, 3)
    with arete.cuda.device(1):
        y, z = x.cuda(), arete.full((3,), 2.0, device="cuda")
        assert y.device == z.device == arete.device("cuda:1")
        assert (y * z).sum().item() == 30 and arete.cuda.memory_allocated() >= 24
        side = arete.cuda.Stream()
        with arete.cuda.stream(side):
            w = (y @ y.T).to("cuda")
        side.synchronize()
        assert w.device.index == 1 and w.cpu().tolist() == (x @ x.T).tolist()
    first = y.cuda()
    assert first.device.index == 0 and arete.equal(first.cpu(), x)
    arete.cuda.set_device(1)
    try:
        net = arete.nn.Linear(3, 2).cuda()
        net(first.cuda()).sum().backward()
        assert net.weight.grad.device.index == 1
        graph = arete.cuda.CUDAGraph()
        static = arete.zeros(3, device="cuda")
        with arete.cuda.graph(graph):
            out = static * 2 + 1
        static.fill_(3)
        graph.replay()
        assert out.tolist() == [7, 7, 7] and out.device.index == 1
    finally:
        arete.cuda.set_device(0)


def test_a_copy_of_a_tensor_stays_where_that_is():
    run("""
x = torch.ones(2, device="cuda:1")
assert torch.tensor(x).device == x.device and torch.tensor(x, device="cpu").device.type == "cpu"
torch.set_default_device("cuda:0")
assert torch.tensor(torch.ones(2, device="cpu")).device.type == "cpu" and torch.tensor([1.0]).device == torch.device("cuda:0")
""")


def test_gradients_go_back_through_pinned_memory():
    run("""
x = torch.ones(3, requires_grad=True)
y = (2 * x).pin_memory()
y.sum().backward()
assert y.is_pinned() and x.grad.tolist() == [2, 2, 2]
""")


def test_results_of_embedding_bag_on_a_gpu():
    """As torch's: which indices have the maximum is not said of sums and means."""
    run("""
weight, index, begins = torch.ones(4, 3, device="cuda"), torch.tensor([0, 1, 2, 1], device="cuda"), torch.tensor([0, 3], device="cuda")
for mode in (0, 1):
    out, bag, size, places = torch.embedding_bag(weight, index, begins, mode=mode)
    assert bag.tolist() == [0, 0, 0, 1] and size.tolist() == [3, 1] and places.shape == (0,), mode
assert torch.embedding_bag(weight, index, begins, mode=2)[3].shape == (2, 3)
""")
