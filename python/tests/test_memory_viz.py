"""python -m arete.cuda._memory_viz on snapshots of ours and of torch's form."""
import json
import pickle
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest
from fake_gpus import run

import arete
from arete.cuda import _memory_viz as viz
from arete.cuda import memory


def make_a_tensor(n):
    return arete.ones(n)


@pytest.fixture
def snapshots(tmp_path):
    """Of before and after something was made and something freed."""
    memory._record_memory_history(None)
    memory._record_memory_history(stacks="python")
    first, gone = make_a_tensor(1000), arete.zeros(2000)
    memory._dump_snapshot(str(tmp_path / "before.pickle"))
    del gone
    second = make_a_tensor(3000)
    memory._dump_snapshot(str(tmp_path / "after.pickle"))
    memory._record_memory_history(None)
    yield tmp_path / "before.pickle", tmp_path / "after.pickle", (first, second)


def call(*arguments, **more):
    return subprocess.run([sys.executable, "-m", "arete.cuda._memory_viz", *map(str, arguments)], capture_output=True, **more)


def test_texts(snapshots):
    before, after, _ = snapshots
    stats = call("stats", before).stdout.decode()
    assert re.search(r"allocated: +11\.72 KiB", stats) and re.search(r"^2 segments$", stats,
                                                                     re.M) and "cpu 0x" in stats and "[####" in stats
    trace = call("trace", "-", stdin=open(after, "rb")).stdout.decode()
    lines = trace.splitlines()
    assert lines[0].startswith("cpu: ") and sum(" alloc " in line for line in lines) == 3
    assert sum(" free_completed " in line for line in lines) == 1
    made = [line for line in lines if "make_a_tensor (test_memory_viz.py:" in line and " alloc " in line]
    assert len(made) == 2 and " ones " in made[0] and "3.91 KiB" in made[0]


def bars(svg):
    """Title and width of each bar."""
    root = xml.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    return {g.find(space + "title").text: float(g.find(space + "rect").get("width")) for g in root.iter(space + "g")}


def test_flame_graphs(snapshots, tmp_path):
    before, after, _ = snapshots
    for action in ("memory", "segments"):
        out = tmp_path / f"{action}.svg"
        assert call(action, after, "-o", out).returncode == 0
        found = bars(out.read_text())
        mine = [(t, w) for t, w in found.items() if t.startswith("make_a_tensor")]
        assert sum(float(re.search(r"([\d.]+) KiB", t)[1]) for t, _ in mine) == pytest.approx(16000 / 1024, abs=0.02)
        total = next(w for t, w in found.items() if t.startswith("Memory: 15.62 KiB"))
        assert total == pytest.approx(1200, abs=1) and sum(w for _, w in mine) == pytest.approx(1200, abs=3)
        assert any(t.startswith("seg_0x") for t in found) == (action == "segments")
    assert call("compare", before, after, "-o", tmp_path / "compare.svg").returncode == 0
    found = bars((tmp_path / "compare.svg").read_text())
    assert any(t.startswith("only_before: 7.81 KiB") for t in found) and any(t.startswith("only_after: 11.72 KiB") for t in found)


def test_pages(snapshots, tmp_path):
    _, after, (first, second) = snapshots
    page = tmp_path / "trace.html"
    rows = {}
    for options in ((), ("-s",), ("-f",)):
        assert call("trace_plot", after, "-o", page, *options).returncode == 0
        text = page.read_text()
        assert text.startswith("<!doctype html>") and "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
        rows[options] = json.loads(re.search(r"\nconst D=(\{.*?\});\n", text, re.S)[1])
    assert [r[2] for r in rows[()]["rows"]] == [4000, 8000, 12000] and rows[()]["devices"] == ["cpu"]
    assert [r[1] >= 0 for r in rows[()]["rows"]] == [False, True, False]
    assert [r[2] for r in rows["-f",]["rows"]] == [4000, 12000]
    assert [r[2] for r in rows["-s",]["rows"]] == [4000, 8000, 12000]
    assert any("make_a_tensor" in place for place in rows[()]["places"]) and "ones" in rows[()]["operators"]
    assert call("segment_plot", after, "-o", page).returncode == 0
    data = json.loads(re.search(r"\nconst D=(\{.*?\});'use", page.read_text(), re.S)[1])
    assert [e[:2] for e in data["events"]].count([1, 1]) == 3 and [e[:2] for e in data["events"]].count([1, False]) == 1
    assert {first.data_ptr(), second.data_ptr()} <= {e[2] for e in data["events"]}


# What torch.cuda.memory._snapshot() gives: a segment with a gap, and events of a block, an older one and one that was freed.
FRAMES = [{"filename": "/home/me/train.py", "line": 12, "name": "forward"},
          {"filename": "/home/me/train.py", "line": 40, "name": "<module>"}]
TORCHS = {
    "segments": [{"device": 0, "address": 0x7000, "total_size": 4096, "allocated_size": 3072, "active_size": 3072, "requested_size": 3000,
                  "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                  "blocks": [{"address": 0x7000, "size": 2048, "requested_size": 2000, "state": "active_allocated", "frames": FRAMES},
                             {"address": 0x7800, "size": 1024, "requested_size": 0, "state": "inactive", "frames": []},
                             {"address": 0x7C00, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": []}]}],
    "device_traces": [[{"action": "segment_alloc", "addr": 0x7000, "size": 4096, "stream": 0, "time_us": 5, "frames": []},
                       {"action": "alloc", "addr": 0x7000, "size": 2048, "stream": 0, "time_us": 10, "frames": FRAMES},
                       {"action": "alloc", "addr": 0x7800, "size": 1024, "stream": 0, "time_us": 20, "frames": FRAMES},
                       {"action": "free_requested", "addr": 0x7800, "size": 1024, "stream": 0, "time_us": 30, "frames": []},
                       {"action": "free_completed", "addr": 0x7800, "size": 1024, "stream": 0, "time_us": 30, "frames": []}], []],
    "allocator_settings": {}, "external_annotations": [],
}


def test_snapshots_of_torch():
    stats = viz.segsum(TORCHS)
    assert "cuda:0 0x7000 [" in stats and "1.00 KiB free" in stats and re.search(r"rounded up: +72 B", stats)
    picture = re.search(r"\[(.*)\]", stats)[1]
    assert picture == "#" * 30 + " " * 15 + "#" * 15
    text = viz.trace(TORCHS)
    assert "cuda:0: 5 events" in text and "forward (train.py:12)" in text and "now     2.00 KiB" in text
    found = viz.memory(TORCHS, format_flamegraph=str).splitlines()
    assert "stream_0;<module> (train.py:40);forward (train.py:12) 2000" in found
    assert "stream_0;(rounded up) 48" in found and "stream_0;inactive 1024" in found and "stream_0;(no stack) 1000" in found
    data = json.loads(re.search(r"\nconst D=(\{.*?\});\n", viz.trace_plot(TORCHS), re.S)[1])
    assert sorted(r[2] for r in data["rows"]) == [1024, 1024, 2048] and data["devices"] == ["cuda:0"]  # one was there before
    assert viz.compare(TORCHS, TORCHS, format_flamegraph=str) == ""
    assert viz.segments({"segments": TORCHS["segments"]}, format_flamegraph=str).startswith("stream_0;seg_0x7000;")


def test_what_is_no_snapshot(tmp_path):
    wrong = tmp_path / "wrong.pickle"
    for content in (pickle.dumps({"a": 1}), b"not a pickle", b"", pickle.dumps(print), pickle.dumps([1, print])):
        wrong.write_bytes(content)
        done = call("stats", wrong)
        assert done.returncode == 1 and done.stderr.startswith(b"python -m arete.cuda._memory_viz: ") and b"Traceback" not in done.stderr
    wrong.write_bytes(pickle.dumps({**TORCHS, "device_traces": [[], []]}))
    assert b"has no events" in call("trace_plot", wrong, "-o", tmp_path / "x").stderr
    wrong.write_bytes(pickle.dumps({**TORCHS, "device_traces": TORCHS["device_traces"][:1] * 2}))
    assert b"several devices" in call("trace_plot", wrong, "-o", tmp_path / "x").stderr
    assert call("trace_plot", wrong, "-d", 1, "-o", tmp_path / "x").returncode == 0
    assert b"no device 7" in call("segment_plot", wrong, "-d", 7, "-o", tmp_path / "x").stderr
    assert call("stats", tmp_path / "nowhere").returncode == 1


def test_the_summary_has_torchs_rows():
    text = run("""
x = torch.ones(1000, device="cuda:1")
print(torch.cuda.memory_summary(1))
print("====", torch.cuda.memory_summary(1, abbreviated=True))
""")
    whole, short = text.split("====", 2)[0], text.rpartition("==== ")[2]
    for row in ("Metric", "Cur Usage", "Peak Usage", "Tot Alloc", "Tot Freed", "Allocated memory", "from large pool", "from small pool",
                "Active memory", "Requested memory", "GPU reserved memory", "Non-releasable memory", "Allocations", "Active allocs",
                "GPU reserved segments", "Non-releasable allocs", "Oversize allocations", "Oversize GPU segments", "CUDA OOMs: 0",
                "cudaMalloc retries: 0", "device ID 1"):
        assert row in text, row
        assert (row in short) != ("pool" in row), row
    frame = [line for line in text.splitlines() if line.startswith("|")]
    assert len(frame) > 40 and {len(line) for line in frame} == {77}
