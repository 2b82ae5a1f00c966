"""Streams, events, graphs, ranges and random states: what holds on any machine, and on one with a GPU."""
from __future__ import annotations

import importlib

import pytest

import arete

try:
    import torch as pytorch
except ImportError:
    pytorch = None

either = pytest.mark.parametrize("torch", [arete] + [pytorch] * (pytorch is not None), ids=lambda lib: lib.__name__)
gpu = pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
no_gpu = pytest.mark.skipif(arete.cuda.is_available(), reason="for machines without a GPU")


@either
def test_the_usual_checkpoint(torch):
    state = {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}
    first = torch.rand(3).tolist()
    torch.rand(5)
    torch.cuda.set_rng_state_all(state["cuda"])
    torch.set_rng_state(state["cpu"])
    assert torch.rand(3).tolist() == first
    assert len(state["cuda"]) == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert torch.cuda.random.get_rng_state_all is torch.cuda.get_rng_state_all
    assert importlib.import_module(torch.__name__ + ".cuda.random").seed_all is torch.cuda.seed_all


@no_gpu
@either
def test_states_without_a_gpu(torch):
    before = torch.get_rng_state()
    for ask in (torch.cuda.get_rng_state, torch.cuda.initial_seed, torch.cuda.init):
        with pytest.raises(RuntimeError):
            ask()
    torch.cuda.seed()
    torch.cuda.seed_all()
    torch.cuda.set_rng_state(before)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.cuda.get_arch_list() == []


@gpu
def test_states_on_a_gpu():
    arete.cuda.manual_seed_all(5)
    assert arete.cuda.initial_seed() == 5
    state, states = arete.cuda.get_rng_state("cuda:0"), arete.cuda.get_rng_state_all()
    a = arete.rand(100, device="cuda")
    arete.cuda.set_rng_state(state, 0)
    assert arete.equal(a, arete.rand(100, device="cuda"))
    arete.cuda.set_rng_state_all(states)
    assert arete.equal(a, arete.rand(100, device="cuda"))
    arete.cuda.seed_all()
    assert not arete.equal(a, arete.rand(100, device="cuda"))
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        arete.cuda.get_rng_state(99)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        arete.cuda.get_rng_state("cpu")


@either
def test_streams_of_the_cpu(torch):
    s, e = torch.Stream("cpu"), torch.Event("cpu")
    assert s.device.type == e.device.type == "cpu" and s.stream_id == 0 == e.event_id
    if torch is arete:  # PyTorch's raise for the CPU
        assert s.query() and e.query()
        s.wait_event(s.record_event(e))
        s.wait_stream(s)
        s.synchronize()
        e.synchronize()
    now = torch.cpu.current_stream()
    assert isinstance(now, torch.cpu.Stream)
    with torch.cpu.stream(now):
        x = torch.ones(2) + 1
    torch.cpu.synchronize()
    assert x.tolist() == [2.0, 2.0] and torch.cpu.is_initialized()


def test_events_of_the_cpu():
    a, b = (arete.Event("cpu", enable_timing=True) for _ in range(2))
    with pytest.raises(ValueError, match="must be recorded"):
        a.elapsed_time(b)
    a.record()
    sum(range(100000))
    b.record()
    assert a.elapsed_time(b) > 0
    with pytest.raises(TypeError, match="expected an Event, not int"):
        a.elapsed_time(3)
    with pytest.raises(ValueError, match="enable_timing"):
        arete.Event("cpu").elapsed_time(b)
    with pytest.raises(TypeError):
        arete.Stream("cpu", foo=3)
    assert isinstance(arete.Stream(), arete.cuda.Stream if arete.cuda.is_available() else arete.Stream)
    assert issubclass(arete.cuda.Stream, arete.Stream) and issubclass(arete.cuda.Event, arete.Event)


def test_events_and_graphs_say_what_is_wrong():
    with pytest.raises(TypeError, match="expected an arete.cuda.Event, not int"):
        arete.cuda.Event(enable_timing=True).elapsed_time(3)
    with pytest.raises(TypeError):
        arete.cuda.Event(foo=1)
    with pytest.raises(TypeError, match="foo"):
        arete.cuda.Stream(foo=3)
    e = arete.cuda.Event()
    assert e.device is None and e.cuda_event == 0
    with pytest.raises(RuntimeError, match="nothing is being recorded; call capture_begin"):
        arete.cuda.CUDAGraph().capture_end()
    with pytest.raises(NotImplementedError, match="keep_graph=True is not supported"):
        arete.cuda.CUDAGraph(keep_graph=True)
    with pytest.raises(NotImplementedError, match="printing a graph is not supported"):
        arete.cuda.CUDAGraph().debug_dump("graph.dot")
    assert arete.cuda.graph.default_capture_stream is None
    arete.cuda.ipc_collect()


def test_ranges():
    nvtx = importlib.import_module("arete.cuda.nvtx")
    assert nvtx is arete.cuda.nvtx
    nvtx.mark("here")
    number = nvtx.range_start("overlapping")
    with nvtx.range("step {} of {name}", 3, name="training"):
        nvtx.range_push("inner")
        nvtx.range_pop()
    nvtx.range_end(number)
    with pytest.raises(IndexError):
        with nvtx.range("step {}"):
            pass

    @nvtx.range("a function")
    def double(x):
        return 2 * x

    assert double(2) == double(1) * 2 == 4


@gpu
def test_streams_on_a_gpu():
    s = arete.Stream("cuda", priority=-1)
    assert isinstance(s, arete.cuda.Stream) and s.priority == -1 and s.stream_id == s.cuda_stream != 0
    assert arete.cuda.Stream(stream_id=s.stream_id, device_index=0) == s
    e = arete.Event("cuda", enable_timing=True)
    assert isinstance(e, arete.cuda.Event) and e.device is None
    with s:
        e.record()
    assert e.device == arete.device("cuda:0") and e.cuda_event != 0
    e.synchronize()
    assert arete.cuda.get_arch_list() == ["sm_%d%d" % arete.cuda.get_device_capability()]
    arete.cuda.init()


@gpu
def test_a_default_stream_for_captures():
    arete.cuda.graph.default_capture_stream = s = arete.cuda.Stream()
    try:
        x, g = arete.zeros(3, device="cuda"), arete.cuda.CUDAGraph()
        with arete.cuda.graph(g):
            assert arete.cuda.current_stream() == s
            x += 1
        g.replay()
        assert x.tolist() == [1.0, 1.0, 1.0]
    finally:
        arete.cuda.graph.default_capture_stream = None


@gpu
def test_a_default_device_on_a_gpu():
    with arete.device("cuda"):
        assert arete.nn.Linear(2, 2)(arete.ones(3, 2)).is_cuda and not arete.ones(1, device="cpu").is_cuda


@gpu
@pytest.mark.parametrize("points", (1025, 4111))
def test_transforms_whose_plan_a_capture_makes(points):
    x, g = arete.randn(4, points, device="cuda"), arete.cuda.CUDAGraph()
    try:
        with arete.cuda.graph(g):
            y = arete.fft.fft(x)
    except RuntimeError as e:  # cuFFT waits for the tables of a large prime
        assert points == 4111 and "do the same transform once before the capture" in str(e)
        arete.fft.fft(x)
        g = arete.cuda.CUDAGraph()
        with arete.cuda.graph(g):
            y = arete.fft.fft(x)
    g.replay()
    assert arete.equal(y, arete.fft.fft(x))
