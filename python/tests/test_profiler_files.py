"""What arete.profiler writes: traces and timelines of memory."""
from __future__ import annotations

import collections
import gzip
import json
import re
import time

import pytest
from peer import peer
from profiler_helpers import own_ceilings, train_step  # noqa: F401

import arete
from arete.profiler import profile, record_function, schedule, tensorboard_trace_handler

torch = peer()


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
