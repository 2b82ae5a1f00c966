"""What a recording costs, and what it says of the host and of a GPU."""
from __future__ import annotations

import json
import time

import pytest
from profiler_helpers import own_ceilings  # noqa: F401

import arete
from arete.profiler import ProfilerActivity, profile


def plain_and_profiled(step, rounds=5, steps=10):
    """The shortest step without and with a profiler, in turn: what else runs on the machine meets both."""
    best = [float("inf"), float("inf")]

    def run(which):
        for _ in range(steps):
            begin = time.perf_counter()
            step()
            best[which] = min(best[which], time.perf_counter() - begin)

    step()
    for _ in range(rounds):
        run(0)
        with profile():
            step()
            run(1)
    return best


def check_overhead(step):
    """The least of as many rounds as it takes, for both: a machine that turned to something else says nothing."""
    off = on = float("inf")
    for _ in range(4):
        off, on = map(min, (off, on), plain_and_profiled(step))
        if on < 1.5 * off + 1e-4:
            return
    pytest.fail(f"a step takes {on} s under the profiler and {off} s without")


def test_overhead_is_bounded():
    net = arete.nn.Sequential(arete.nn.Linear(784, 256), arete.nn.ReLU(), arete.nn.Linear(256, 10))
    optimizer = arete.optim.SGD(net.parameters(), lr=0.01)
    x, y = arete.randn(64, 784), arete.randint(0, 10, (64,))
    loss_function = arete.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss_function(net(x), y).backward()
        optimizer.step()

    check_overhead(step)


def test_a_program_on_the_cpu_never_waits():
    with profile() as p:
        x = arete.ones(3)
        x.sum().item()
        x.nonzero()
    assert p.synchronizations() == []
    assert "The host waited 0 times" in p.synchronization_table()


@pytest.mark.skipif(arete.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu():
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
        with pytest.raises(ValueError, match="No activities specified"):
            profile(activities=[ProfilerActivity.CUDA]).start()
    with pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"):
        with arete.autograd.profiler.profile(use_device="cuda") as p:
            assert str(p).startswith("<unfinished")
            arete.ones(2)
    assert str(p) == p.table() and "ones" in str(p)
    assert [e.name for e in p.function_events] == ["ones"]


needs_gpu = pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")


@pytest.mark.skipif(not arete.cuda.is_available(), reason="there is no GPU")
def test_gpu_work_alone():
    x = arete.ones(1000, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        x.exp()
        arete.cuda.synchronize()
    rows = p.key_averages()
    if p._trace().device_times != "CUPTI":
        pytest.skip("there is no CUPTI")
    assert rows and all(e.device_type is arete.autograd.DeviceType.CUDA for e in rows)
    events = p.events()
    assert events and all(e.device_type is arete.autograd.DeviceType.CUDA and e.cpu_time == 0 < e.device_time for e in events)
    assert "Self CUDA time total" in rows.table() and p.total_average().self_device_time_total > 0


@needs_gpu
def test_kernels_belong_to_operators(tmp_path):
    a = arete.randn(256, 256, device="cuda")
    arete.mm(a, a)
    arete.cuda.synchronize()
    with profile(record_shapes=True, profile_memory=True) as p:
        for _ in range(3):
            arete.mm(a, a)
        arete.cuda.synchronize()
    (row,) = [e for e in p.key_averages() if e.key == "mm"]
    assert row.count == 3 and row.device_time_total > 0
    table = p.key_averages().table(sort_by="cuda_time_total")
    assert "Self CUDA" in table and "Self CUDA time total" in table
    (rate,) = [r for r in p.operator_rates() if r.name == "mm"]
    assert rate.device == "cuda:0" and rate.seconds > 0 and rate.flops == 3 * 2 * 256**3
    if p._trace().device_times != "CUPTI":
        assert "between CUDA events" in table
        return
    assert all(e.kernels for e in p.events() if e.name == "mm")
    p.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    kernels = [e for e in slices if e["cat"] == "kernel"]
    assert len(kernels) >= 3
    arrows = [e for e in events if e["cat"] == "ac2g"]
    assert len(arrows) >= 6
    for e in arrows:
        assert any((s["pid"], s["tid"]) == (e["pid"], e["tid"]) and s["ts"] <= e["ts"] <= s["ts"] + s["dur"]
                   for s in slices)
    # The clocks of host and GPU agree: a kernel begins after its operator does.
    operators = {e["args"]["External id"]: e for e in slices if e["cat"] == "cpu_op"}
    for k in kernels:
        if k["args"]["External id"] in operators:
            assert k["ts"] >= operators[k["args"]["External id"]]["ts"] - 5


@needs_gpu
def test_graphs_outlive_recordings():
    x = arete.ones(1000, device="cuda")
    with profile():  # attaches the tracer, and detaches it
        (x + 1).sum().item()
        graph = arete.cuda.CUDAGraph()
        with arete.cuda.graph(graph):
            y = x * 2 + 1
    for start in (1.0, 5.0):
        x.fill_(start)
        graph.replay()
        assert y.tolist() == [2 * start + 1] * 1000
    with profile() as p:
        graph.replay()
        arete.cuda.synchronize()
    if p._trace().device_times == "CUPTI":
        assert "Self CUDA time total" in p.key_averages().table()
    assert y.tolist() == [11.0] * 1000


@needs_gpu
def test_waits_and_copies_have_source_lines():
    x = arete.ones(1000)
    x.cuda().sum().item()
    with profile() as p:
        y = x.cuda()
        y.sum().item()
        y.nonzero()
        arete.cuda.synchronize()
        y.cpu()
    found = [(s.what, s.kind, s.bytes) for s in p.synchronizations()]
    assert found == [("to", "from host", 4000), ("item", "to host", 4), ("nonzero", "to host", 8),
                     ("synchronize", "wait", 0), ("to", "to host", 4000)]
    for s in p.synchronizations():
        assert "test_profiler_devices.py" in s.source and s.device == "cuda:0" and s.blocking
    assert "The host waited 5 times" in p.synchronization_table()


@needs_gpu
def test_overhead_on_a_gpu_is_bounded():
    net = arete.nn.Sequential(*[arete.nn.Linear(256, 256) for _ in range(20)]).cuda()
    optimizer = arete.optim.SGD(net.parameters(), lr=0.01)
    x = arete.randn(64, 256, device="cuda")

    def step():
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
        arete.cuda.synchronize()

    check_overhead(step)
