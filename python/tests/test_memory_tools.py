"""Counters, histories, trackers and what is kept for backward: on this machine, and on a GPU where there is one."""
import gc
import json
import math
import pickle
import threading

import pytest
from device_helpers import on_devices
from peer import peer

import arete
from arete.autograd import graph
from arete.cuda import memory
from arete.utils.checkpoint import checkpoint, checkpoint_sequential

torch = peer()


@pytest.fixture
def history():
    gc.collect()
    memory._record_memory_history(None)
    yield memory._record_memory_history
    memory._record_memory_history(None)


# ---- counters


def test_counters_without_use():
    if arete.cuda.is_available():
        pytest.skip("there is a GPU, and other tests use it")
    for f in (memory.memory_allocated, memory.max_memory_allocated, memory.memory_reserved, memory.max_memory_reserved):
        assert f() == 0 and getattr(arete.cuda, f.__name__)() == 0
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    memory.reset_accumulated_memory_stats()
    assert set(memory.memory_stats().values()) <= {0, -1}
    assert "no GPU" in memory.memory_summary()
    with pytest.raises(RuntimeError, match="cuda"):
        memory.mem_get_info()


def test_stats_have_the_names_of_torch():
    stats = memory.memory_stats()
    for kind in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
                 "inactive_split_bytes", "requested_bytes"):
        for pool in ("all", "small_pool", "large_pool"):
            for part in ("current", "peak", "allocated", "freed"):
                assert f"{kind}.{pool}.{part}" in stats
    for name in ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"):
        assert name in stats
    assert list(stats) == sorted(stats)
    assert memory.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]


def test_fraction_is_checked():
    for wrong in (0, -0.5, 1.5):
        with pytest.raises(ValueError, match="fraction"):
            memory.set_per_process_memory_fraction(wrong)
    with pytest.raises(TypeError, match="fraction"):
        memory.set_per_process_memory_fraction("half")


def test_gpu_processes():
    assert memory.list_gpu_processes(0).startswith("GPU:0")


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
def test_counters_move():
    gc.collect()
    memory.reset_peak_memory_stats()
    memory.reset_accumulated_memory_stats()
    before = memory.memory_allocated()
    x = arete.empty(1 << 20, device="cuda")
    assert memory.memory_allocated() - before == 4 << 20
    assert memory.memory_reserved() >= memory.memory_allocated()
    stats = memory.memory_stats()
    assert stats["allocation.all.allocated"] == 1 and stats["allocated_bytes.all.allocated"] == 4 << 20
    del x
    assert memory.memory_allocated() == before
    assert memory.max_memory_allocated() >= before + (4 << 20)
    assert memory.memory_stats()["allocation.all.freed"] == 1
    memory.reset_peak_memory_stats()
    assert memory.max_memory_allocated() == before
    free, total = memory.mem_get_info()
    assert 0 < free <= total
    assert "allocated" in memory.memory_summary() and "pool" not in memory.memory_summary(abbreviated=True).split("\n")[-1]


# ---- histories


def work(device="cpu"):
    model = arete.nn.Sequential(arete.nn.Linear(64, 128), arete.nn.ReLU(), arete.nn.Linear(128, 10)).to(device)
    kept = []
    for step in range(3):
        with memory.name_scope(f"step{step}"):
            x = arete.randn(32, 64, device=device)
            with memory.name_scope("forward"):
                y = model(x)
            y.sum().backward()
            kept.append(y.detach())
            model.zero_grad()
    return model, kept


def addresses(tensors):
    return {t.data_ptr(): t.nbytes for t in tensors}


@on_devices
def test_history_replays_to_the_live_set(history, device):
    history(stacks="python")
    model, kept = work(device)
    gc.collect()
    live = {e["addr"]: e["requested"] for e in json.loads(arete._C._memory.json())["live"] if e["device"].startswith(device)}
    assert dict(arete._C._memory.replayed()).keys() >= live.keys()
    held = addresses([*model.parameters(), *kept])
    assert held.items() <= live.items()
    if device == "cpu":
        assert live == held  # nothing else was made and kept
    del model, kept
    gc.collect()
    assert not [e for e in json.loads(arete._C._memory.json())["live"] if e["addr"] in held and e["device"].startswith(device)]


@on_devices
def test_events_say_who_and_where(history, device):
    history(context="all", stacks="python")
    x = arete.ones(1000, device=device)
    with memory.name_scope("here"):
        y = x.exp()
    expected_line = test_events_say_who_and_where.__code__.co_firstlineno + 5
    data = json.loads(arete._C._memory.json())
    event = next(e for e in data["events"] if e["action"] == "alloc" and e["addr"] == y.data_ptr())
    assert event["operator"] == "exp" and event["scope"] == "here" and event["requested"] == 4000
    frame = data["stacks"][event["stack"]][0]
    assert frame["filename"] == __file__ and frame["name"] == "test_events_say_who_and_where" and frame["line"] == expected_line
    address = y.data_ptr()
    del y
    last = [e for e in json.loads(arete._C._memory.json())["events"] if e["addr"] == address][-1]
    assert last["action"] == "free" and last["time_us"] >= event["time_us"]


def test_frames_of_calls_that_let_other_threads_run(history):
    """Long calls release the interpreter; the frames are those of their caller all the same."""
    history(stacks="python")
    x = arete.randn(512, 512)
    y = arete.nn.functional.relu(x @ x)
    data = json.loads(arete._C._memory.json())
    for t in (x, y):
        event = next(e for e in data["live"] if e["addr"] == t.data_ptr())
        names = [f["name"] for f in data["stacks"][event["stack"]]]
        assert "test_frames_of_calls_that_let_other_threads_run" in names


def test_layers_are_scopes(history):
    class Block(arete.nn.Module):
        def __init__(self, fails=False):
            super().__init__()
            self.inner = arete.nn.Linear(32, 32)
            self.fails = fails

        def forward(self, x):
            if self.fails:
                raise ZeroDivisionError
            return self.inner(x).relu()

    model = arete.nn.Sequential(Block(), arete.nn.Tanh(), Block())
    history(stacks="python")
    with memory.name_scope("step"):
        y = model(arete.randn(64, 32))
        with pytest.raises(ZeroDivisionError):
            Block(fails=True)(y)
        z = y.exp()
    events = json.loads(arete._C._memory.json())["events"]
    scopes = {(e["operator"], e["scope"]) for e in events if e["action"] == "alloc"}
    expected = {("linear", "step/Sequential/0/inner"), ("relu", "step/Sequential/0"), ("tanh", "step/Sequential/1"),
                ("linear", "step/Sequential/2/inner"), ("relu", "step/Sequential/2"), ("exp", "step"), ("randn", "step")}
    assert expected <= scopes and arete._C._memory.scope() == ""
    history(None)
    assert not arete.nn.Module._hooked
    model(y), z


def test_native_frames(history):
    history(stacks="all")
    x = arete.ones(1000)
    data = json.loads(arete._C._memory.json())
    event = next(e for e in data["live"] if e["addr"] == x.data_ptr())
    names = [f["name"] for f in data["stacks"][event["stack"]]]
    assert any("arete::" in n for n in names) and "test_native_frames" in names


def test_context_and_limits(history):
    history("state", context="state", stacks="python")
    x = arete.ones(1000)
    data = json.loads(arete._C._memory.json())
    assert data["events"] == [] and data["stacks"][next(e for e in data["live"] if e["addr"] == x.data_ptr())["stack"]]
    history(context=None, clear_history=True)
    y = arete.ones(1000)
    data = json.loads(arete._C._memory.json())
    assert [e["addr"] for e in data["live"]] == [y.data_ptr()] and data["stacks"] == [[]]
    history(context="alloc", stacks="python", max_entries=10, clear_history=True)
    for _ in range(20):
        arete.ones(1000)
    data = json.loads(arete._C._memory.json())
    assert len(data["events"]) == 10 and data["dropped"] == 30
    assert all(e["stack"] == 0 for e in data["events"] if e["action"] == "free")
    for wrong in ({"enabled": "some"}, {"context": "x"}, {"stacks": "c"}):
        with pytest.raises(ValueError):
            history(**wrong)


def test_nothing_is_recorded_when_off(history):
    history()
    arete.ones(10)
    history(None)
    arete.ones(10)
    data = json.loads(arete._C._memory.json())
    assert data["events"] == [] and data["live"] == []


def test_many_threads(history):
    history(stacks="python")
    kept = []

    def run(i):
        for _ in range(200):
            arete.ones(100 + i).exp()
        kept.append(arete.ones(5000 + i))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    data = json.loads(arete._C._memory.json())
    assert sorted(e["requested"] for e in data["live"]) == sorted(t.nbytes for t in kept)
    assert len({e["thread"] for e in data["events"]}) == 4
    assert dict(arete._C._memory.replayed()) == addresses(kept)


def test_pickle_is_what_the_viewer_reads(history, tmp_path):
    """Its structure: that of a snapshot of torch, as torch's own code for viewing goes through it."""
    history(stacks="python")
    model, kept = work()
    path = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(path))
    with open(path, "rb") as f:
        snapshot = pickle.load(f)
    assert snapshot.keys() == memory._snapshot().keys() >= {"segments", "device_traces"}
    trace = snapshot["device_traces"][-1]
    assert {t["action"] for t in trace} == {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"}
    held = addresses([*model.parameters(), *kept])
    blocks = {b["address"]: b["requested_size"] for s in memory.memory_snapshot() for b in s["blocks"] if b["state"] == "active_allocated"}
    assert held.items() <= blocks.items()
    memory_viz = pytest.importorskip("torch.cuda._memory_viz")
    assert "exp" not in memory_viz.segsum(snapshot) and len(memory_viz.segsum(snapshot)) > 100
    assert "alloc" in memory_viz.trace(snapshot)
    assert "<html" in memory_viz.trace_plot(snapshot).lower()
    flame = memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)  # the default downloads a program
    assert "work" in flame and "test_memory_tools.py" in flame


def test_files(history, tmp_path):
    history()
    x = arete.ones(1000)  # noqa: F841
    with memory.name_scope("</script><b>"):
        y = arete.ones(10)  # noqa: F841
    memory._dump_snapshot(tmp_path / "m.html")
    page = (tmp_path / "m.html").read_text()
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>") and "default-src 'none'" in page
    assert "</script><b>" not in page and page.count("</script>") == 1
    memory._dump_snapshot(str(tmp_path / "m.json"))
    assert json.loads((tmp_path / "m.json").read_text())["events"]
    with pytest.raises(ValueError, match="html"):
        memory._dump_snapshot(str(tmp_path / "m.txt"))
    with pytest.raises(OSError):
        memory._dump_snapshot(str(tmp_path / "nowhere" / "m.json"))


# ---- trackers


@on_devices
def test_tracker(device):
    unit = 1 << 20
    with arete.cuda.GPUMemoryTracker(device) as outer:
        a = arete.empty(unit, dtype=arete.uint8, device=device)
        with arete.utils.GPUMemoryTracker(device) as inner:
            b = arete.empty(2 * unit, dtype=arete.uint8, device=device)
            c = arete.empty(3 * unit, dtype=arete.uint8, device=device)
            del b
        del a
    assert (inner.peak, inner.delta, inner.allocated, inner.allocations) == (5 * unit, 3 * unit, 5 * unit, 2)
    assert (outer.peak, outer.delta, outer.allocated, outer.allocations) == (6 * unit, 3 * unit, 6 * unit, 3)
    del c
    assert outer.delta == 3 * unit  # it has ended
    assert "peak +6.00 MiB" in repr(outer) and device in repr(outer)


def test_tracker_without_a_gpu():
    with arete.cuda.GPUMemoryTracker() as t:
        x = arete.ones(1000)  # noqa: F841
    assert (t.peak, t.delta, t.allocations) == (0, 0, 0)


# ---- what is kept for backward


def loss_of(module, x, w):
    h = module.tanh(x @ w)
    return (module.exp(h) * h + module.sigmoid(h)).sum()


def same_in_both(hooks_of):
    """Gradients under hooks, ours and torch's, beside those without; and how often each hook ran."""
    values = arete.randn(8, 5).tolist(), arete.randn(5, 6).tolist()
    found = []
    for module in (arete, torch):
        x, w = (module.tensor(v, requires_grad=True) for v in values)
        plain = module.autograd.grad(loss_of(module, x, w), [x, w])
        with hooks_of(module):
            loss = loss_of(module, x, w)
        hooked = module.autograd.grad(loss, [x, w], retain_graph=True)
        again = module.autograd.grad(loss, [x, w])
        assert all((p == h).all() and (p == a).all() for p, h, a in zip(plain, hooked, again))
        found.append([g.tolist() for g in hooked])
    for ours, theirs in zip(*found):
        assert all(math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) for p, q in zip(ours, theirs) for a, b in zip(p, q))


def test_saved_tensors_hooks():
    calls = []

    def hooks_of(module):
        pack = lambda t: (calls.append("pack"), t.clone())[1]  # noqa: E731
        unpack = lambda t: (calls.append("unpack"), t)[1]  # noqa: E731
        return module.autograd.graph.saved_tensors_hooks(pack, unpack)

    same_in_both(hooks_of)
    assert calls.count("pack") >= 4 and calls.count("unpack") >= calls.count("pack")


def test_the_module_can_be_imported_from():
    from arete.autograd.graph import Node, saved_tensors_hooks

    assert saved_tensors_hooks is graph.saved_tensors_hooks and Node is arete.autograd.Node


def test_hooks_may_keep_anything(tmp_path):
    def pack(t):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.pt"
        arete.save(t, str(path))
        return path

    x = arete.randn(5, requires_grad=True)
    with graph.saved_tensors_hooks(pack, lambda path: arete.load(str(path))):
        y = x * x
    assert len(list(tmp_path.iterdir())) >= 1
    y.sum().backward()
    assert (x.grad == 2 * x.detach()).all()


def test_hooks_see_no_history_and_nest():
    seen = []
    x = arete.randn(4, requires_grad=True)
    inner = graph.saved_tensors_hooks(lambda t: seen.append((t.requires_grad, arete.is_grad_enabled())) or t, lambda t: t)
    outer = graph.saved_tensors_hooks(lambda t: pytest.fail("the inner ones alone are asked"), lambda t: t)
    with outer, inner:
        y = x.exp() * x
    assert seen and not any(a or b for a, b in seen)
    y.sum().backward()
    seen.clear()
    x.exp()
    assert seen == []


def test_second_derivatives_through_hooks():
    x = arete.randn(4, dtype=arete.float64, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        (g,) = arete.autograd.grad((x * x * x).sum(), x, create_graph=True)
        (h,) = arete.autograd.grad(g.sum(), x)
    assert arete.allclose(h, 6 * x.detach())
    assert arete.autograd.gradgradcheck(lambda t: (t.sin() * t).sum(), [x])


def test_hooks_that_break_rules():
    x = arete.randn(4, requires_grad=True)
    with pytest.raises(RuntimeError, match="in place"):
        with graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t):
            (x * 2).exp()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x.exp()
    with pytest.raises(TypeError, match="expected to be a Tensor"):
        y.sum().backward()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: 1 / 0):
        y = x.exp()
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    with pytest.raises(ZeroDivisionError):
        with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
            x.exp()
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            with graph.save_on_cpu():
                pass
    with graph.save_on_cpu():
        x.exp().sum().backward()


def test_what_hooks_keep_is_freed():
    class Kept:
        alive = 0

        def __init__(self, t):
            self.t = t.clone()
            Kept.alive += 1

        def __del__(self):
            Kept.alive -= 1

    x = arete.randn(4, requires_grad=True)
    with graph.saved_tensors_hooks(Kept, lambda k: k.t):
        y = x.exp().sum()
    assert Kept.alive > 0
    y.backward()
    gc.collect()
    assert Kept.alive == 0


@on_devices
@pytest.mark.parametrize("pin_memory", [False, True])
def test_save_on_cpu(device, pin_memory):
    x = arete.randn(64, 64, device=device, requires_grad=True)
    plain = arete.autograd.grad(loss_of(arete, x, x), x)[0]
    with graph.save_on_cpu(pin_memory=pin_memory):
        loss = loss_of(arete, x, x)
    assert (arete.autograd.grad(loss, x)[0] == plain).all()


@pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")
def test_save_on_cpu_frees_the_gpu():
    x = arete.randn(1 << 20, device="cuda", requires_grad=True)

    def deep(t):
        for _ in range(10):
            t = t.sin()
        return t

    with arete.cuda.GPUMemoryTracker() as plain:
        y = deep(x)
    del y
    with arete.cuda.GPUMemoryTracker() as offloaded, graph.save_on_cpu(pin_memory=True):
        y = deep(x)
    assert offloaded.delta < plain.delta / 4
    y.sum().backward()


# ---- checkpoints


def layers(n=6):
    arete.manual_seed(1)
    return arete.nn.Sequential(*[m for _ in range(n) for m in (arete.nn.Linear(16, 16), arete.nn.Tanh(), arete.nn.Dropout(0.3))])


def gradients(model, x, run):
    model.zero_grad()
    arete.manual_seed(5)
    x = x.detach().requires_grad_()
    run(model, x).square().sum().backward()
    return [x.grad, *(p.grad.clone() for p in model.parameters())]


def test_checkpoints_nested_and_in_sequence_equal_plain_ones():
    model, x = layers(), arete.randn(4, 16)
    halves = model[:9], model[9:]

    def nested(m, t):
        inner = lambda u: checkpoint(halves[0][3:], halves[0][:3](u), use_reentrant=False)  # noqa: E731
        return checkpoint(lambda u: halves[1](checkpoint(inner, u, use_reentrant=False)), t, use_reentrant=False)

    plain = gradients(model, x, lambda m, t: m(t))
    runs = {
        "nested": nested,
        "sequential": lambda m, t: checkpoint_sequential(m, 3, t, use_reentrant=False),
        "reentrant": lambda m, t: checkpoint_sequential(m, 4, t, use_reentrant=True),
        "one by one": lambda m, t: [t := checkpoint(layer, t, use_reentrant=False) for layer in m][-1],
    }
    for name, run in runs.items():
        for a, b in zip(plain, gradients(model, x, run)):
            assert (a == b).all(), name
    with graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        for a, b in zip(plain, gradients(model, x, nested)):
            assert (a == b).all()


def test_a_checkpoint_keeps_less():
    model, x = layers(20), arete.randn(512, 16, requires_grad=True)
    with arete.cuda.GPUMemoryTracker("cpu") as plain:
        y = model(x)
    del y
    with arete.cuda.GPUMemoryTracker("cpu") as less:
        y = checkpoint_sequential(model, 10, x, use_reentrant=False)
    assert less.delta < plain.delta / 2
    y.sum().backward()


def test_options_of_a_history():
    record = arete.cuda.memory._record_memory_history
    try:
        with pytest.raises(TypeError, match="unexpected keyword argument 'bogus'"):
            record(max_entries=3, bogus=1)
        with pytest.raises(TypeError, match="unexpected keyword argument 'max_entry'"):
            record(max_entry=3)
        with pytest.raises(TypeError, match="max_entries must be an int, not str"):
            record(max_entries="a")
        with pytest.raises(ValueError, match="max_entries must not be negative, got -1"):
            record(max_entries=-1)
        with pytest.raises(ValueError, match="max_entries"):
            record(True, trace_alloc_max_entries=-1)
        record(True, trace_alloc_max_entries=2, trace_alloc_record_context=True)  # as older programs do
        kept = [arete.ones(3) for _ in range(5)]
        assert len(arete.cuda.memory._snapshot()["device_traces"][-1]) <= 2 * 2 and len(kept) == 5
    finally:
        record(None)
