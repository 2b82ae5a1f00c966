"""Profiling as people write it."""
import collections
import json
from pathlib import Path

from idiom_helpers import anywhere, on_the_cpu, plain, seeds_and_switches  # noqa: F401 -- the fixture

import arete


def _pictures(torch, device):
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
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
        assert any(Path(__file__).name in line for row in averages for line in row.stack)


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
                                schedule=torch.profiler.schedule(wait=1, warmup=1, active=2)) as p:
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
                                  on_trace_ready=torch.profiler.tensorboard_trace_handler(str(tmp_path / "log")))
    prof.start()
    for _ in range(3):
        net(x).sum().backward()
        prof.step()
    prof.stop()
    (file,) = (tmp_path / "log").iterdir()
    assert file.name.endswith(".pt.trace.json")
    assert any(plain(str(e.get("name"))) == "conv2d" for e in json.loads(file.read_text())["traceEvents"])
