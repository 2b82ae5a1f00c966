"""Programs of bench/ on steps so small and few that their figures mean nothing but are all there."""
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[2] / "bench"


@pytest.mark.parametrize("name", ["arete", "torch"])
def test_profiler_cost(name, tmp_path):
    pytest.importorskip(name)
    file = tmp_path / "cost.json"
    done = subprocess.run([sys.executable, str(BENCH / "profiler_cost.py"), "--lib", name, "--device", "cpu", "--models", "mlp", "--rounds",
                           "2", "--seconds", "0.01", "--json", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())[name]
    event = rows.pop("event")
    assert min(event["inside_us"], event["outside_us"]) > 0 and event["event_us"] == event["inside_us"] - event["outside_us"]
    (rows,) = rows.values()
    assert rows.pop("steps") >= 1
    assert list(rows) == ["before", "plain", "default", "shapes+memory+flops", "CPU only"]
    for key, row in rows.items():
        assert f"{row['done_ms']:.3f} ms" in done.stdout
        assert all(math.isfinite(v) and v > 0 for v in row.values()), key
        base = rows["before" if key in ("before", "plain") else "plain"]
        assert row["ratio"] == pytest.approx(row["done_ms"] / base["done_ms"])


def test_models(tmp_path):
    file = tmp_path / "models.json"
    done = subprocess.run([sys.executable, str(BENCH / "models.py"), "--lib", "arete", "--models", "mlp", "--device", "cpu", "--steps", "2",
                           "--rates", "--json", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = json.loads(file.read_text())["arete"]["mlp_784_256_10_b64"]
    assert row["rate"] == pytest.approx(1e3 / row["ms"]) and f"{row['rate']:.1f} step/s" in done.stdout
    assert "GB/s" in done.stdout and any(line.split()[:2] == ["linear", "float32"] for line in done.stdout.splitlines())


def test_distributed(tmp_path):
    if not importlib.import_module("arete.distributed").is_gloo_available():
        pytest.skip("built without Gloo")
    file = tmp_path / "rows.json"
    done = subprocess.run([sys.executable, str(BENCH / "distributed.py"), "--lib", "arete", "--device", "cpu", "--megabytes", "0.1",
                           "--rows", "ready,reduce,latency,gpt2", "--wrap", "fsdp", "--repeats", "2", "--json", str(file)],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["arete"]
    assert list(rows) == ["group_ready", "second_group_ready", "all_reduce_0.1MB", "all_reduce_async_0.1MB", "all_reduce_4B", "fsdp_gpt2",
                          "fsdp_gpt2_of_2_alone"]
    assert all(math.isfinite(row["value"]) and row["value"] > 0 for row in rows.values())


def program(monkeypatch, name):
    monkeypatch.syspath_prepend(str(BENCH))
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_loading_is_compared_with_its_time(monkeypatch):
    # A machine that becomes half as fast meanwhile, and batches from files that cost a tenth.
    ratios_of = program(monkeypatch, "loading").ratios_of
    assert ratios_of([100, 100, 50, 50], [90, 67.5, 45]) == pytest.approx([0.9] * 3)


@pytest.fixture
def cost(monkeypatch):
    return program(monkeypatch, "profiler_cost")


@pytest.mark.parametrize("name", ["arete", "torch"])
def test_recorded_ranges_take_longer(name, cost):
    pytest.importorskip(name)
    # What else runs on the machine may hide it, but not each time.
    assert any(event["inside_us"] > event["outside_us"] for event in (cost.event_cost(name, 3, 2000) for _ in range(8)))


def test_ratios_are_those_of_medians(cost):
    # One slow window of each kind, and a machine that has become half as fast since the first ones.
    rows = cost.summary([(0.01, 0.005)] * 3, [(0.02, 0.01), (0.5, 0.4), (0.02, 0.01)], {"x": [(0.03, 0.01), (0.03, 0.01), (9.0, 9.0)]})
    assert rows["x"] == {"done_ms": 30.0, "enqueued_ms": 10.0, "ratio": 1.5, "enqueued_ratio": 1.0}
    assert rows["plain"]["ratio"] == rows["plain"]["enqueued_ratio"] == 2.0 and rows["before"]["ratio"] == 1.0


def test_loading(tmp_path):
    file = tmp_path / "loading.json"
    done = subprocess.run([sys.executable, str(BENCH / "loading.py"), "--device", "cpu", "--pictures", "48", "--batch", "8", "--size", "32",
                           "--steps", "2", "--rounds", "2", "--resident", "1", "--workers", "1", "--json", str(file)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = json.loads(file.read_text())["arete"]
    ratios = row.pop("ratios")
    assert len(ratios) == 2 and row["ratio"] == pytest.approx(sum(ratios) / 2) and row["workers"] == 1
    assert all(math.isfinite(v) and v >= 0 for v in row.values()) and row["loader_alone"] > 0
    assert f"ratio {row['ratio']:.3f}" in done.stdout and "in an epoch of 6 batches" in done.stdout


def test_zoo(tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "zoo.json"
    done = subprocess.run([sys.executable, str(BENCH / "zoo.py"), "--check-only", "--only", "^(gcn|vae|llama)$", "--json", str(file)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 rows agree" in done.stdout


def test_breadth(tmp_path):
    pytest.importorskip("torch")
    file, page = tmp_path / "breadth.json", tmp_path / "breadth.html"
    done = subprocess.run([sys.executable, str(BENCH / "breadth.py"), "--quick", "--sizes", "host", "--threads", "1",
                           "--filter", r"^torch\.(add|logsumexp)$|^nn\.Linear$", "--json", str(file), "--html", str(page)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(file.read_text())["rows"].values()
    assert {r["callable"] for r in rows} == {"torch.add", "torch.logsumexp", "nn.Linear"}
    assert all(r["status"] == "ok" and r["ratio"] > 0 for r in rows)
    assert "<canvas" in page.read_text() and "torch.logsumexp" in page.read_text()


def test_corners():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, str(BENCH / "corners.py"), "--scale", "0.02"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [re.match(r"(.{40}) +([\d.]+) +([\d.]+) us +([\d.]+)x$", line) for line in done.stdout.splitlines()]
    assert len(rows) > 20 and all(rows), done.stdout
    assert all(float(r[2]) / float(r[3]) == pytest.approx(float(r[4]), abs=0.01, rel=0.05) for r in rows)


def test_lengths():
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, str(BENCH / "lengths.py"), "--numbers", "60000", "--slow", "1e9", "--dtypes", "float32",
                           "--only", "^(var|rms_norm|argmax)"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()[2:]
    names = ["argmax", "var", "var backward", "rms_norm", "rms_norm backward", "var of columns", "argmax of columns"]
    assert [re.match(r"float32 (\D+?)  ", line)[1] for line in lines[: len(names)]] == names
    assert "!" not in "".join(lines[: len(names)])  # the results agree
    slow = [re.fullmatch(r"float32 .+: ([\d.]+) ([\d.]+) us ([\d.]+)x", line) for line in lines[len(names) :]]
    assert len(slow) == 5 * 14 + 2 * 8 and all(slow)
    assert all(float(r[1]) / float(r[2]) == pytest.approx(float(r[3]), abs=0.01, rel=0.05) for r in slow)


def test_lengths_see_what_differs():
    pytest.importorskip("torch")
    code = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
from lengths import differ
from torch import tensor
x = tensor([1.0, 2.0])
print(differ(x, x, 1e-4), differ((x, tensor([3])), (x, tensor([3])), 1e-4), differ(x * 1.00001, x, 1e-4))
print(differ(x * 1.01, x, 1e-4), differ(x * float("nan"), x, 1e-4), differ(x.double(), x, 1e-4), differ(x[:1], x, 1e-4),
      differ(tensor([3]), tensor([4]), 1e-4))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False"] * 3 + ["True"] * 5


def test_goals():
    done = subprocess.run([sys.executable, str(BENCH / "gallery.py"), "--goals", "--scale", "0.0001"], capture_output=True, text=True,
                          env={**os.environ, "OMP_WAIT_POLICY": "passive"}, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [re.fullmatch(r"(.+?)\s+([\d.e+-]+) (us|ms|% )\s*([\d.]+) \3(  missed)?", line) for line in done.stdout.splitlines()[1:]]
    assert len(rows) == 10 and all(row and float(row[2]) > 0 for row in rows), done.stdout


def test_signals():
    done = subprocess.run([sys.executable, str(BENCH / "signals.py"), "--size", "2000", "--seconds", "0.001"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = [re.fullmatch(r"(.{28})((?: +[\d.]+){1,3})", line) for line in done.stdout.splitlines() if not line.startswith("No module")][1:]
    assert len(rows) == 17 and all(row and float(row[2].split()[0]) > 0 for row in rows), done.stdout
    done = subprocess.run([sys.executable, str(BENCH / "signals.py"), "--size", "2000", "--only", "label", "lable"], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 2 and "--only: choose from" in done.stderr and not done.stdout


def test_arrays(tmp_path):
    file, names = tmp_path / "arrays.json", ["fused: exp, cos", "fused: polynomial", "tiny: a + b", "histogram"]
    done = subprocess.run([sys.executable, str(BENCH / "arrays.py"), "--size", "1000", "--rounds", "1", "--seconds", "0.001", "--json",
                           str(file), "--only", *names], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())
    assert sorted(rows) == sorted(names)
    assert all(row["times"] == pytest.approx(row["peer"] / row["arete"]) and row["arete"] > 0 for row in rows.values())
    done = subprocess.run([sys.executable, str(BENCH / "arrays.py"), "--size", "1000", "--rounds", "1", "--seconds", "0.0001", "--sixty",
                           "--markdown"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert table[0] == "| call | us | times | call | us | times | call | us | times |"
    cells = [cell.strip() for line in table[2:] for cell in line.strip("|").split("|")]
    assert len(set(cells[::3])) == 60 and all(re.fullmatch(r"[\d.]+x", cell) for cell in cells[2::3])
