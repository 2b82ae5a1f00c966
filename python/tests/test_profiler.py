"""arete.profiler, beside torch's where both can be asked."""
from __future__ import annotations

import collections
import doctest
import gzip
import json
import re
import threading
import time

import pytest

import arete
from arete.profiler import (ProfilerAction, ProfilerActivity, profile, record_function, schedule,
                            tensorboard_trace_handler)  # fmt: skip

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """The machine's ceilings are measured once for all tests, and not kept for the user."""
    monkeypatch.setenv("ARETE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def train_step(t, profile_function, record):
    """The same step under either library; returns the profiler."""
    t.manual_seed(0)
    net = t.nn.Sequential(t.nn.Linear(20, 30), t.nn.ReLU(), t.nn.Linear(30, 5))
    optimizer = t.optim.SGD(net.parameters(), lr=0.1)
    x, y = t.randn(8, 20), t.randn(8, 5)
    with profile_function() as p:
        with record("forward"):
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    return p


def counts(p):
    return {e.key.removeprefix("aten::"): e.count for e in p.key_averages()}


def test_names_and_counts_are_those_of_torch():
    theirs = counts(train_step(torch, lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
                               torch.profiler.record_function))
    ours = counts(train_step(arete, profile, record_function))
    for name in ("linear", "relu", "sub", "mean", "forward", "Optimizer.step#SGD.step", "MeanBackward0",
                 "ReluBackward0", "SubBackward0", "PowBackward0"):  # fmt: skip
        assert ours.get(name) == theirs.get(name), (name, ours, theirs)


def columns(text):
    header = next(line for line in text.splitlines() if "Name" in line)
    return re.split(r"\s{2,}", header.strip())


@pytest.mark.parametrize("options", [{}, {"record_shapes": True, "profile_memory": True, "with_flops": True}])
def test_columns_are_those_of_torch(options):
    by_shape = "record_shapes" in options
    texts = []
    for t in (torch, arete):
        p = train_step(t, lambda: t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], **options),
                       t.profiler.record_function)  # fmt: skip
        texts.append(p.key_averages(group_by_input_shape=by_shape).table(sort_by="self_cpu_time_total", row_limit=7))
    theirs, ours = (columns(text) for text in texts)
    # The unit of FLOPs depends on the least of them.
    unify = [re.sub(r"Total .?FLOPs", "Total FLOPs", c) for c in theirs]
    assert [re.sub(r"Total .?FLOPs", "Total FLOPs", c) for c in ours] == unify
    assert "Self CPU time total: " in texts[1]
    lines = texts[1].splitlines()
    rule = [i for i, line in enumerate(lines) if line.startswith("---")]
    assert len(rule) == 3 and rule[2] - rule[1] - 1 == 7
    assert len({len(line) for line in lines[: rule[2] + 1]}) == 1, "the lines have one length"


def test_table_is_sorted_and_limited():
    p = train_step(arete, profile, record_function)
    for key in ("self_cpu_time_total", "cpu_time_total", "cpu_time", "count"):
        table = p.key_averages().table(sort_by=key, row_limit=4)
        first = [line.split()[0] for line in table.splitlines()[3:7]]
        rows = sorted(p.key_averages(), key=lambda e: -getattr(e, key))
        assert first == [r.key for r in rows[:4]], key
    assert p.key_averages().table(row_limit=-1).count("\n") == len(p.key_averages()) + 5
    top = p.key_averages().table(top_level_events_only=True)
    assert "forward" in top and "linear " not in top
    # Calls of the same name within others do not count.
    with profile() as p:
        x = arete.ones(2)
        with record_function("outer"):
            x.exp().exp()
            x.sin()
        x.exp()
    lines = p.key_averages().table(top_level_events_only=True).splitlines()
    assert [(line.split()[0], line.split()[-1]) for line in lines[3:6]] == [("ones", "1"), ("outer", "1"), ("exp", "1")]
    assert "sin" not in "".join(lines) and lines[6].startswith("---")
    rows = [line.split()[0] for line in p.events().table().splitlines()[3:9]]
    assert rows == ["ones", "outer", "exp", "exp", "sin", "exp"]  # each event by itself
    rows = [line.split()[0] for line in p.events().table(top_level_events_only=True).splitlines()[3:6]]
    assert rows == ["ones", "outer", "exp"]
    assert "a title" in p.key_averages().table(header="a title")
    with pytest.raises(ValueError, match="unknown figure to sort by"):
        p.key_averages().table(sort_by="beauty")


def test_shapes_group_and_flops_count():
    a, b = arete.ones(8, 20), arete.ones(20, 30)
    with profile(record_shapes=True, with_flops=True) as p:
        arete.mm(a, b)
        arete.mm(a, b)
        arete.mm(b.T, a.T)
    rows = [e for e in p.key_averages(group_by_input_shape=True) if e.key == "mm"]
    assert sorted((e.count, e.input_shapes[:2]) for e in rows) == [(1, [[30, 20], [20, 8]]), (2, [[8, 20], [20, 30]])]
    (total,) = [e for e in p.key_averages() if e.key == "mm"]
    assert total.flops == 3 * 2 * 8 * 20 * 30 and total.count == 3 and total.input_shapes == []
    event = next(e for e in p.events() if e.key == "mm")
    assert event.input_dtypes[:2] == ["float32", "float32"]
    assert event.bytes == 4 * (8 * 20 + 20 * 30 + 8 * 30)


def test_events_form_a_tree():
    p = train_step(arete, profile, record_function)
    events = p.events()
    outer = next(e for e in events if e.name == "forward")
    assert outer.is_user_annotation and outer.cpu_parent is None
    names = [e.name for e in outer.cpu_children]
    assert names.count("linear") == 2 and "relu" in names
    assert outer.self_cpu_time_total == pytest.approx(
        outer.cpu_time_total - sum(e.cpu_time_total for e in outer.cpu_children))  # fmt: skip
    starts = [e.time_range.start for e in events]
    assert starts == sorted(starts)
    for e in events:
        if e.cpu_parent is not None:
            assert e.cpu_parent.time_range.start <= e.time_range.start
            assert e.time_range.end <= e.cpu_parent.time_range.end
    assert p.total_average().self_cpu_time_total == pytest.approx(
        sum(e.cpu_time_total for e in events if e.cpu_parent is None))  # fmt: skip


def test_backward_functions_know_their_forward_calls():
    x = arete.ones(3, requires_grad=True)
    with profile() as p:
        (x * x).exp().sum().backward()
    forward = {e.sequence_nr: e.name for e in p.events() if e.sequence_nr >= 0 and e.name.islower()}
    backward = {e.sequence_nr: e.name for e in p.events() if e.name.endswith("Backward0")}
    assert {forward[n]: backward[n] for n in backward} == {
        "mul": "MulBackward0", "exp": "ExpBackward0", "sum": "SumBackward0"}  # fmt: skip


def test_memory_of_operators():
    with profile(profile_memory=True) as p:
        x = arete.ones(1000)
        y = x + 1
        del x
    rows = {e.key: e for e in p.key_averages()}
    assert rows["add"].cpu_memory_usage == 4000 and rows["add"].self_cpu_memory_usage == 4000
    assert rows["[memory]"].cpu_memory_usage == -4000
    assert y.shape == (1000,)


CATEGORIES = ("PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL", "unknown")


def memory_timeline(t, folder):
    """Two steps of one program; the plain, the packed and the raw file, and the bytes of all parameters."""
    t.manual_seed(0)
    net = t.nn.Sequential(t.nn.Linear(200, 300), t.nn.Tanh(), t.nn.Linear(300, 300), t.nn.ReLU(), t.nn.Linear(300, 10))
    optimizer = t.optim.Adam(net.parameters(), lr=1e-3)
    x, y = t.randn(64, 200), t.randint(0, 10, (64,))
    with t.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) as p:
        for _ in range(2):
            optimizer.zero_grad(set_to_none=True)
            loss = t.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
    texts = []
    for name in ("m.json", "m.json.gz", "m.raw.json.gz"):
        p.export_memory_timeline(str(folder / name), device="cpu")
        data = (folder / name).read_bytes()
        texts.append(json.loads(gzip.decompress(data) if name.endswith("gz") else data))
    return *texts, 4 * sum(q.numel() for q in net.parameters())


@pytest.mark.filterwarnings("ignore")
def test_memory_timeline_has_torchs_form(tmp_path):
    results = []
    for t in (torch, arete):
        plain, packed, raw, parameters = memory_timeline(t, tmp_path)
        assert plain == packed
        times, sizes = plain
        assert len(times) == len(sizes) and times == sorted(times) and abs(times[0] / 1e6 - time.time()) < 100
        assert all(len(row) == 1 + len(CATEGORIES) and row[0] == 0 and min(row) >= 0 for row in sizes)
        # The raw file tells the same in single changes.
        held, before = collections.Counter(), -1
        for ns, action, size, category in raw:
            assert (action == 1) == (ns == -1) and (size < 0 or action in (1, 2, 3)) and category in range(8)
            assert ns >= before
            before = ns
            held[category] += size
        assert [held[i] for i in range(8)] == sizes[-1][1:]
        results.append({name: max(row[i] for row in sizes) for i, name in enumerate(CATEGORIES, 1)})
        assert results[-1]["GRADIENT"] == parameters
    theirs, ours = results
    assert ours["AUTOGRAD_DETAIL"] == theirs["AUTOGRAD_DETAIL"]
    assert 0 <= theirs["OPTIMIZER_STATE"] - ours["OPTIMIZER_STATE"] <= 6 * 4  # where the number of steps is a tensor, too
    # Theirs has the results of operators that ours runs as one.
    assert 0.5 * theirs["ACTIVATION"] < ours["ACTIVATION"] <= theirs["ACTIVATION"]
    assert ours["PARAMETER"] == ours["INPUT"] == 0


def test_memory_timeline_as_a_page(tmp_path):
    with profile(profile_memory=True) as p:
        x = arete.ones(1000, requires_grad=True)
        (x * x).sum().backward()
    p.export_memory_timeline(tmp_path / "m.html", "cpu")
    page = (tmp_path / "m.html").read_text()
    assert page.startswith("<!doctype html>") and page.count("</script>") == 1 and "default-src 'none'" in page
    data = json.loads(page[page.index("const D=") + len("const D=") : page.index(";\n'use strict'")])
    assert data["scope"] == "category" and data["devices"] == ["cpu"] and data["last"] > 0
    rows = {(data["operators"][r[4]], data["scopes"][r[5]], r[2]) for r in data["rows"]}
    assert {("mul", "ACTIVATION", 4000), ("ones", "unknown", 4000)} <= rows
    assert any(category == "GRADIENT" and size == 4000 for _, category, size in rows)
    p.export_memory_timeline(tmp_path / "m.json")  # the device can be left out
    if not arete.cuda.is_available():
        with pytest.raises(RuntimeError, match="there is no GPU"):
            p.export_memory_timeline(tmp_path / "gpu.html", "cuda:0")
        assert not (tmp_path / "gpu.html").exists()
    with pytest.raises(ValueError, match="a name that ends in .html, .json, .json.gz or .raw.json.gz"):
        p.export_memory_timeline(tmp_path / "m.svg", "cpu")
    with profile() as p:
        arete.ones(2)
    with pytest.raises(ValueError, match="the recording has no memory.*profile_memory=True"):
        p.export_memory_timeline(tmp_path / "none.json", "cpu")


@pytest.mark.parametrize("arguments", [
    dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=1, active=1, repeat=2),
    dict(wait=2, warmup=1, active=3, repeat=2, skip_first=3),
    dict(wait=3, warmup=1, active=1, skip_first=1, skip_first_wait=1),
])  # fmt: skip
def test_schedule_is_torchs(arguments):
    ours, theirs = schedule(**arguments), torch.profiler.schedule(**arguments)
    assert [ours(i).name for i in range(30)] == [theirs(i).name for i in range(30)]


@pytest.mark.parametrize("arguments", [
    dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=1, active=1, repeat=2),
    dict(wait=1, warmup=1, active=3, repeat=1), dict(wait=5, warmup=1, active=1),
])  # fmt: skip
def test_the_same_steps_are_recorded(arguments):
    def steps(t):
        seen = []

        def ready(p):
            seen.append((p.step_num, sorted(e.key for e in p.key_averages() if e.key.startswith("ProfilerStep")),
                         sum(e.count for e in p.key_averages() if e.key.endswith("neg"))))  # fmt: skip

        x = t.ones(2)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], schedule=t.profiler.schedule(**arguments),
                                on_trace_ready=ready) as p:  # fmt: skip
            for _ in range(9):
                -x
                p.step()
        return seen

    assert steps(arete) == steps(torch)  # where the steps of a recording are one row


def test_action_of_a_function():
    recorded = []
    p = profile(schedule=lambda step: ProfilerAction.RECORD_AND_SAVE if step == 2 else ProfilerAction.NONE,
                on_trace_ready=lambda p: recorded.append(len(p.events())))  # fmt: skip
    p.start()
    for _ in range(5):
        arete.ones(2) + 1
        p.step()
    p.stop()
    assert len(recorded) == 1 and recorded[0] >= 2


def test_trace_file(tmp_path):
    path = tmp_path / "trace.json"
    p = train_step(arete, lambda: profile(record_shapes=True, profile_memory=True), record_function)
    p.export_chrome_trace(path)
    p.export_chrome_trace(str(path) + ".gz")
    trace = json.loads(path.read_text())
    assert json.loads(gzip.open(str(path) + ".gz").read())["traceEvents"] == trace["traceEvents"]
    events = trace["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "s", "f", "i", "C"}
    for e in events:
        assert isinstance(e["name"], str) and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        assert e["ts"] >= 0 and e.get("dur", 0) >= 0
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == len(p.events())
    assert [e["ts"] for e in slices] == sorted(e["ts"] for e in slices)
    # Arrows: each id begins once and ends once, later, both inside of slices.
    arrows = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            assert e["ph"] not in arrows[e["cat"], e["id"]]
            arrows[e["cat"], e["id"]][e["ph"]] = e
            assert any(s["tid"] == e["tid"] and s["ts"] <= e["ts"] <= s["ts"] + s["dur"] for s in slices)
    assert arrows
    for pair in arrows.values():
        assert set(pair) == {"s", "f"} and pair["s"]["ts"] <= pair["f"]["ts"] and pair["f"]["bp"] == "e"
    linear = next(e for e in slices if e["name"] == "linear")
    assert linear["cat"] == "cpu_op" and linear["args"]["Input Dims"][0] == [8, 20]
    memory = [e["args"] for e in events if e["name"] == "[memory]"]
    total = 0
    for m in memory:
        total += m["Bytes"]
        assert m["Total Allocated"] == total
    counters = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert counters == [m["Total Allocated"] for m in memory]


def test_tensorboard_handler(tmp_path):
    for pack in (False, True):
        with profile(on_trace_ready=tensorboard_trace_handler(tmp_path / str(pack), "me", use_gzip=pack)):
            arete.ones(2) + 1
        (file,) = (tmp_path / str(pack)).iterdir()
        assert re.fullmatch(r"me\.\d+\.pt\.trace\.json" + (r"\.gz" if pack else ""), file.name)
        data = file.read_bytes()
        assert json.loads(gzip.decompress(data) if pack else data)["traceEvents"]


def test_stacks(tmp_path):
    def inner(x):
        return x + 1

    with profile(with_stack=True) as p:
        inner(arete.ones(2))
    event = next(e for e in p.events() if e.name == "add")
    assert "test_profiler.py" in event.stack[0] and event.stack[0].endswith(": inner")
    assert event.stack[1].endswith(": test_stacks")
    rows = [e for e in p.key_averages(group_by_stack_n=1) if e.key == "add"]
    assert rows[0].stack == event.stack[:1]
    assert "Source Location" in p.key_averages(group_by_stack_n=2).table()
    p.export_stacks(tmp_path / "stacks.txt")
    for line in (tmp_path / "stacks.txt").read_text().splitlines():
        assert re.fullmatch(r".+;[^;]+ \d+", line)
    with profile() as p:
        arete.ones(2)
    with pytest.raises(ValueError, match="the recording has no stacks"):
        p.export_stacks(tmp_path / "none.txt")


def test_threads():
    ready, go = threading.Event(), threading.Event()

    def old():
        arete.ones(2).neg()
        ready.set()
        go.wait()
        for _ in range(3):
            arete.ones(2).abs()

    thread = threading.Thread(target=old)
    thread.start()
    ready.wait()
    with profile() as p:
        go.set()
        thread.join()
        young = threading.Thread(target=lambda: arete.ones(2).sin())
        young.start()
        young.join()
        arete.ones(2).cos()
    by_name = {e.name: e.thread for e in p.events() if e.name in ("abs", "sin", "cos")}
    assert len(set(by_name.values())) == 3
    assert counts(p)["abs"] == 3 and "neg" not in counts(p)


def test_record_function():
    @record_function("decorated")
    def f(x):
        """What it does."""
        return f(x - 1) if x.item() > 0 else x

    assert f.__name__ == "f" and f.__doc__ == "What it does."
    with profile() as p:
        f(arete.tensor(2.0))
        with pytest.raises(ValueError):
            with record_function("failing"):
                raise ValueError
        with arete.autograd.profiler.record_function("older name"):
            pass
    assert counts(p)["decorated"] == 3 and counts(p)["failing"] == 1 and counts(p)["older name"] == 1
    with record_function("without a profiler"):
        arete.ones(2)


def test_loading_is_a_range():
    data = arete.utils.data.TensorDataset(arete.ones(10, 2))
    with profile() as p:
        for _ in arete.utils.data.DataLoader(data, batch_size=4):
            pass
    (row,) = [e for e in p.key_averages() if e.key.startswith("enumerate(DataLoader)#")]
    assert row.count == 4 and row.is_user_annotation  # three batches and the end


def test_older_names():
    with arete.autograd.profiler.profile(record_shapes=True) as p:
        arete.ones(2) + 1
        assert p.function_events is None
    assert any(e.name == "add" for e in p.function_events)
    assert "add" in p.key_averages().table(sort_by="cpu_time_total")
    assert p.self_cpu_time_total > 0 and p.total_average().count >= 2
    with arete.autograd.profiler.profile(enabled=False) as p:
        arete.ones(2)
    assert p.function_events is None
    with arete.autograd.profiler.emit_nvtx():
        with pytest.raises(ValueError, match="emit_nvtx is on"):
            profile().start()
        arete.ones(2) + 1
    with profile():  # it is over
        pass


@pytest.mark.parametrize("module", [arete.profiler, arete.autograd.profiler])
def test_examples_of_the_documentation(module):
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        test = doctest.DocTestParser().get_doctest(value.__doc__, {"arete": arete}, name, name, 0)
        assert test.examples, f"{name} has no example"
        assert doctest.DocTestRunner().run(test).failed == 0, name


def test_misuse_is_an_error():
    p = profile()
    with pytest.raises(ValueError, match="nothing has been recorded yet"):
        p.events()
    with p:
        with pytest.raises(ValueError, match="a profiler is running already"):
            profile().start()
    with pytest.raises(ValueError, match="not running"):
        p.step()
    with pytest.raises(ValueError, match="No valid profiler activities found"):
        profile(activities=[])
    with pytest.raises(ValueError, match="Invalid profiler schedule arguments"):
        schedule(wait=0, warmup=0, active=0)

    def broken(p):
        raise KeyError("handler")

    q = profile(on_trace_ready=broken)
    q.start()
    with pytest.raises(KeyError, match="handler"):
        q.stop()
    with profile() as p:  # nothing is left running
        arete.ones(2)
    assert p.events()


def test_a_program_on_the_cpu_never_waits():
    with profile() as p:
        x = arete.ones(3)
        x.sum().item()
        x.nonzero()
    assert p.synchronizations() == []
    assert "The host waited 0 times" in p.synchronization_table()


def test_rates_and_roofline(tmp_path):
    a = arete.randn(256, 256)
    with profile() as p:
        for _ in range(3):
            arete.mm(a, a)
        b = arete.ones(4_000_000)
        b + 1
        arete.ones(1) + 1
    rates = {(r.name, r.count): r for r in p.operator_rates()}
    product = rates["mm", 3]
    assert product.flops == 3 * 2 * 256**3 and product.dtype == "float32" and product.device == "cpu"
    assert product.flops_per_second == pytest.approx(product.flops / product.seconds)
    assert product.intensity == pytest.approx(2 * 256**3 / (3 * 4 * 256**2))
    assert rates["add", 2].bytes == 2 * 4 * (4_000_000 + 1)
    assert {r.regime for r in rates.values()} <= {"overhead", "memory", "compute"}
    assert rates["add", 2].regime == "memory"
    table = p.rate_table()
    for column in ("TFLOP/s", "GB/s", "FLOP/byte", "Bound by", "Of roof"):
        assert column in table
    p.export_roofline(tmp_path / "roof.svg")
    p.export_roofline(tmp_path / "roof.html")
    import xml.etree.ElementTree as tree

    root = tree.parse(tmp_path / "roof.svg").getroot()
    circles = root.findall(".//{http://www.w3.org/2000/svg}circle")
    assert len(circles) >= 3 + 2
    width, height = (float(root.get(k)) for k in ("width", "height"))
    for c in circles:
        assert 0 < float(c.get("cx")) < width and 0 < float(c.get("cy")) < height
    page = (tmp_path / "roof.html").read_text()
    assert "<svg" in page and "<table" in page and "http-equiv" not in page and "<script src" not in page
    ceilings = arete.profiler.ceilings()
    assert ceilings["bandwidth"] > 0 and ceilings["gemm"]["float32"] > 0


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


def test_overhead_is_bounded():
    net = arete.nn.Sequential(arete.nn.Linear(784, 256), arete.nn.ReLU(), arete.nn.Linear(256, 10))
    optimizer = arete.optim.SGD(net.parameters(), lr=0.01)
    x, y = arete.randn(64, 784), arete.randint(0, 10, (64,))
    loss_function = arete.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        loss_function(net(x), y).backward()
        optimizer.step()

    off, on = plain_and_profiled(step)
    assert on < 1.5 * off + 1e-4, (on, off)


needs_gpu = pytest.mark.skipif(not arete.cuda.is_available(), reason="needs a GPU")


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
                   for s in slices)  # fmt: skip
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
                     ("synchronize", "wait", 0), ("to", "to host", 4000)]  # fmt: skip
    for s in p.synchronizations():
        assert "test_profiler.py" in s.source and s.device == "cuda:0" and s.blocking
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

    off, on = plain_and_profiled(step)
    assert on < 1.5 * off + 1e-4, (on, off)


def cost(function):
    """FLOPs and bytes of all that a function calls."""
    with profile() as p:
        function()
    return sum(e.flops for e in p.events()), sum(e.bytes for e in p.events())


def test_flops_of_products():
    t = arete
    a, b, bias = t.ones(64, 128), t.ones(128, 32), t.ones(32)
    batch, other, square = t.ones(4, 8, 16), t.ones(4, 16, 24), t.ones(8, 24)
    v, w = t.ones(128), t.ones(64)
    image, kernel = t.ones(2, 6, 10, 12), t.ones(9, 2, 3, 3)
    product, batches = 2 * 64 * 128 * 32, 2 * 4 * 8 * 16 * 24
    for function, flops in (
        (lambda: t.mm(a, b), product), (lambda: t.addmm(bias, a, b), product),
        (lambda: t.ones(64, 32).addmm_(a, b, beta=2, alpha=0.5), product),
        (lambda: t.baddbmm(square, batch, other), batches), (lambda: t.bmm(batch, other), batches),
        (lambda: t.einsum("bij,bjk->bik", batch, other), batches), (lambda: t.mv(a, v), 2 * 64 * 128), (lambda: t.dot(v, v), 256),
        (lambda: t.outer(v, w), 128 * 64), (lambda: t.nn.functional.linear(a, b.t().contiguous(), bias), product),
        (lambda: t.nn.functional.conv2d(image, kernel, groups=3), 2 * (2 * 9 * 8 * 10) * 2 * 9),
        (lambda: t.nn.functional.conv_transpose2d(t.ones(2, 9, 8, 10), kernel, groups=3), 2 * (2 * 9 * 8 * 10) * 2 * 9),
        (lambda: t.nn.functional.conv1d(t.ones(2, 3, 10), t.ones(4, 3, 3), t.ones(4)), 2 * (2 * 4 * 8) * 9),
        (lambda: t.nn.functional.conv3d(t.ones(1, 2, 4, 5, 6), t.ones(3, 2, 2, 2, 2), t.ones(3)), 2 * (3 * 3 * 4 * 5) * 16),
    ):  # fmt: skip
        assert cost(function)[0] == flops
    # Beside the product something is added up.
    for function, least, most in ((lambda: t.addbmm(square, batch, other), batches, 1.1 * batches),
                                  (lambda: t.addmv(w, a, v), 2 * 64 * 128, 2.1 * 64 * 128),
                                  (lambda: t.addr(a, w, v), 2 * 64 * 128, 4 * 64 * 128)):  # fmt: skip
        assert least <= cost(function)[0] <= most


def test_flops_are_torchs():
    torch_cost = {}
    for t in (torch, arete):
        a, b, bias = t.ones(64, 128), t.ones(128, 32), t.ones(32)
        batch, other = t.ones(4, 8, 16), t.ones(4, 16, 24)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], with_flops=True) as p:
            t.mm(a, b)
            t.addmm(bias, a, b)
            t.bmm(batch, other)
            t.baddbmm(t.ones(8, 24), batch, other)
        flops = {e.key.removeprefix("aten::"): e.flops for e in p.key_averages()}
        torch_cost[t.__name__] = [flops[name] for name in ("mm", "addmm", "bmm", "baddbmm")]
    assert torch_cost["arete"] == torch_cost["torch"]


def test_what_is_touched_at_indices_counts_alone():
    t = arete
    table, index = t.ones(50257, 768), t.arange(64)
    rows, slices, indices = t.ones(64, 768), 64 * 768 * 4, 64 * 8
    wide = index.unsqueeze(1).expand(64, 768)  # what expand() repeats is in memory once
    read = 2 * slices + indices
    for function in (lambda: t.nn.functional.embedding(index, table), lambda: table[index], lambda: table.index_select(0, index),
                     lambda: table.gather(0, wide)):  # fmt: skip
        assert cost(function) == (0, read)
    assert cost(lambda: t.take(table, index)) == (0, 2 * 64 * 4 + indices)
    assert cost(lambda: t.take_along_dim(table, index.unsqueeze(1), 0)) == (0, read)
    # In place only what is written moves, and what is computed with the old values is read, too.
    for function in (lambda: table.index_copy_(0, index, rows), lambda: table.index_put_((index,), rows),
                     lambda: table.scatter_(0, wide, rows), lambda: table.__setitem__(index, rows)):  # fmt: skip
        assert cost(function) == (0, read)
    assert cost(lambda: table.index_fill_(0, index, 3.0)) == (0, slices + indices)
    for function in (lambda: table.index_add_(0, index, rows), lambda: table.scatter_add_(0, wide, rows)):
        assert cost(function) == (64 * 768, 3 * slices + indices)
    # The other forms copy the table.
    flops, moved = cost(lambda: table.index_copy(0, index, rows))
    assert flops == 0 and moved >= 2 * table.nbytes + slices


def test_empty_tensors_move_nothing():
    x = arete.ones(10)
    assert cost(lambda: (arete.empty(1000, 1000), arete.empty_like(x), x.new_empty(50))) == (0, 0)
    assert cost(lambda: arete.zeros(1000)) == (0, 4000)


def test_attributes_of_events():
    with profile(record_shapes=True) as p:
        with record_function("mine"):
            x = arete.ones(2, 3, requires_grad=True)
        arete.nn.functional.dropout(x.sum(1, keepdim=True) * 2.5, p=0.5, training=True).sum().backward()
    events = p.events()
    by_name = {e.name: e for e in events}
    e = by_name["sum"]
    assert e.device_type == arete.autograd.DeviceType.CPU == arete.autograd.profiler.DeviceType.CPU
    assert all(row.device_type is arete.autograd.DeviceType.CPU for row in p.key_averages())
    assert e.use_device == ("cuda" if arete.cuda.is_available() else None) and not e.is_async and e.node_id == -1 and e.device_index == 0 and e.device_time == 0
    assert (e.scope, by_name["mine"].scope, by_name["SumBackward0"].scope) == (0, 7, 1)
    assert by_name["SumBackward0"].fwd_thread == e.thread > 0 == e.fwd_thread
    first = next(e for e in events if e.name == "sum")
    assert len(first.concrete_inputs) == len(first.input_shapes)
    assert first.concrete_inputs[0] is None and [1] in first.concrete_inputs and True in first.concrete_inputs
    for row in (e, p.key_averages()[0]):
        for name in ("cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total",
                     "self_device_time_total"):  # fmt: skip
            text = getattr(row, name + "_str")
            assert text.endswith("us") and float(text[:-2]) == pytest.approx(getattr(row, name), abs=1e-3)
    assert repr(first).startswith(f"<FunctionEvent id={first.id} name=sum device_type=DeviceType.CPU cpu_time=")
    assert "input_shapes=[[2, 3]" in repr(first) and f"thread={first.thread}" in repr(first)
    assert arete.autograd.kineto_available() and arete.profiler.kineto_available() and arete.autograd.profiler.kineto_available()


def test_zero_grad_is_a_range():
    names = []
    for t in (torch, arete):
        x = t.ones(2, requires_grad=True)
        optimizer = t.optim.SGD([x], lr=0.1)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU]) as p:
            for _ in range(2):
                optimizer.zero_grad()
        names.append([(e.name, e.scope) for e in p.events()])
    assert names[0] == names[1] == [("Optimizer.zero_grad#SGD.zero_grad", 7)] * 2


def test_steps_are_one_row_and_the_trace_tells_them_apart(tmp_path):
    with profile(schedule=schedule(wait=0, warmup=0, active=3, repeat=1)) as p:
        for _ in range(3):
            arete.ones(2)
            p.step()
    (row,) = [e for e in p.key_averages() if e.key.startswith("ProfilerStep")]
    assert row.key == "ProfilerStep*" and row.count == 3
    steps = [e for e in p.events() if e.is_user_annotation]
    assert [e.name for e in steps] == ["ProfilerStep*"] * 3
    assert [e.trace_name for e in steps] == [f"ProfilerStep#{i}" for i in range(3)]
    p.export_chrome_trace(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text()
    assert all(f'"ProfilerStep#{i}"' in text for i in range(3)) and "ProfilerStep*" not in text


def test_metadata_of_traces(tmp_path):
    named = []

    def name():
        named.append(f"recording {len(named)}")
        return named[-1]

    p = profile(custom_trace_id_callback=name)
    assert p.get_trace_id() is None
    p.preset_metadata_json("preset", '{"a": 1}')
    with p:
        arete.ones(2)
        p.add_metadata("text", 'a "quoted" one')
        p.add_metadata_json("list", "[1, 2]")
        with pytest.raises(ValueError, match="no JSON"):
            p.add_metadata_json("broken", "[1,")
        with pytest.raises(ValueError, match="has an entry of this name"):
            p.add_metadata("traceEvents", "none")
    p.add_metadata("late", "too")
    p.export_chrome_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert (trace["preset"], trace["text"], trace["list"], trace["late"]) == ({"a": 1}, 'a "quoted" one', [1, 2], "too")
    assert trace["trace_id"] == p.get_trace_id() == "recording 0" and named == ["recording 0"]
    with profile() as q:
        pass
    assert re.fullmatch("[0-9A-F]{32}", q.get_trace_id())


def test_options_that_do_nothing_are_refused():
    for options in ({"experimental_config": object()}, {"post_processing_timeout_s": 1.0}, {"acc_events": True}, {"with_modules": True}):
        with pytest.raises(NotImplementedError, match=next(iter(options))):
            profile(**options)
    with pytest.raises(NotImplementedError, match="experimental_config"):
        arete.autograd.profiler.profile(experimental_config=object())
    for t in (torch, arete):
        with pytest.raises(AssertionError, match="Step must be non-negative. Got -1."):
            t.profiler.schedule(wait=1, warmup=1, active=1)(-1)


def test_a_recording_in_steps():
    p = profile()
    assert p.current_action == ProfilerAction.RECORD
    p.prepare_trace()
    assert p.current_action == ProfilerAction.WARMUP
    arete.ones(2).neg()
    p.start_trace()
    arete.ones(2).exp()
    p.stop_trace()
    assert [e.name for e in p.events()] == ["ones", "exp"]
    with pytest.raises(ValueError, match="nothing is being recorded"):
        p.stop_trace()


def test_collection_can_be_toggled():
    with profile() as p:
        arete.ones(2).exp()
        p.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        arete.ones(2).sin()
        p.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        arete.ones(2).cos()
    assert [e.name for e in p.events()] == ["ones", "exp", "ones", "cos"]
    p.toggle_collection_dynamic(False, [ProfilerActivity.CPU])  # nothing is on: nothing happens
    with profile() as p:
        arete.ones(2)
    assert len(p.events()) == 1


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


def test_rooflines_have_known_names(tmp_path):
    with profile() as p:
        arete.ones(100).exp()
    for name in ("r.svg", "r.html"):
        p.export_roofline(tmp_path / name)
    for name in ("r.png", "r"):
        with pytest.raises(ValueError, match=r"ends in .svg or .html"):
            p.export_roofline(tmp_path / name)
        assert not (tmp_path / name).exists()
    figures = arete.profiler.ceilings("cpu")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d", figures["date"]) and figures["spread"] >= 0 and figures["load"] >= 0
    assert figures["cache"] > 0 and (figures["doubts"] == "" or "arete bench --ceilings --again" in figures["doubts"])
    assert (figures["doubts"] in p.rate_table()) if figures["doubts"] else ("may be too low" not in p.rate_table())
