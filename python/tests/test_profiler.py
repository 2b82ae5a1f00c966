"""arete.profiler's events, tables and schedules, beside torch's where both can be asked."""
from __future__ import annotations

import doctest
import re
import threading

import pytest
from peer import peer
from profiler_helpers import counts, own_ceilings, train_step  # noqa: F401

import arete
from arete.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule

torch = peer()


def test_names_and_counts_are_those_of_torch():
    theirs = counts(train_step(torch, lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
                               torch.profiler.record_function))
    ours = counts(train_step(arete, profile, record_function))
    for name in ("linear", "relu", "sub", "mean", "forward", "Optimizer.step#SGD.step", "MeanBackward0",
                 "ReluBackward0", "SubBackward0", "PowBackward0"):
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
                       t.profiler.record_function)
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
        outer.cpu_time_total - sum(e.cpu_time_total for e in outer.cpu_children))
    starts = [e.time_range.start for e in events]
    assert starts == sorted(starts)
    for e in events:
        if e.cpu_parent is not None:
            assert e.cpu_parent.time_range.start <= e.time_range.start
            assert e.time_range.end <= e.cpu_parent.time_range.end
    assert p.total_average().self_cpu_time_total == pytest.approx(
        sum(e.cpu_time_total for e in events if e.cpu_parent is None))


def test_backward_functions_know_their_forward_calls():
    x = arete.ones(3, requires_grad=True)
    with profile() as p:
        (x * x).exp().sum().backward()
    forward = {e.sequence_nr: e.name for e in p.events() if e.sequence_nr >= 0 and e.name.islower()}
    backward = {e.sequence_nr: e.name for e in p.events() if e.name.endswith("Backward0")}
    assert {forward[n]: backward[n] for n in backward} == {
        "mul": "MulBackward0", "exp": "ExpBackward0", "sum": "SumBackward0"}


def test_memory_of_operators():
    with profile(profile_memory=True) as p:
        x = arete.ones(1000)
        y = x + 1
        del x
    rows = {e.key: e for e in p.key_averages()}
    assert rows["add"].cpu_memory_usage == 4000 and rows["add"].self_cpu_memory_usage == 4000
    assert rows["[memory]"].cpu_memory_usage == -4000
    assert y.shape == (1000,)


@pytest.mark.parametrize("arguments", [
    dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=1, active=1, repeat=2),
    dict(wait=2, warmup=1, active=3, repeat=2, skip_first=3),
    dict(wait=3, warmup=1, active=1, skip_first=1, skip_first_wait=1),
])
def test_schedule_is_torchs(arguments):
    ours, theirs = schedule(**arguments), torch.profiler.schedule(**arguments)
    assert [ours(i).name for i in range(30)] == [theirs(i).name for i in range(30)]


@pytest.mark.parametrize("arguments", [
    dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=1, active=1, repeat=2),
    dict(wait=1, warmup=1, active=3, repeat=1), dict(wait=5, warmup=1, active=1),
])
def test_the_same_steps_are_recorded(arguments):
    def steps(t):
        seen = []

        def ready(p):
            seen.append((p.step_num, sorted(e.key for e in p.key_averages() if e.key.startswith("ProfilerStep")),
                         sum(e.count for e in p.key_averages() if e.key.endswith("neg"))))

        x = t.ones(2)
        with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], schedule=t.profiler.schedule(**arguments),
                                on_trace_ready=ready) as p:
            for _ in range(9):
                -x
                p.step()
        return seen

    assert steps(arete) == steps(torch)  # where the steps of a recording are one row


def test_action_of_a_function():
    recorded = []
    p = profile(schedule=lambda step: ProfilerAction.RECORD_AND_SAVE if step == 2 else ProfilerAction.NONE,
                on_trace_ready=lambda p: recorded.append(len(p.events())))
    p.start()
    for _ in range(5):
        arete.ones(2) + 1
        p.step()
    p.stop()
    assert len(recorded) == 1 and recorded[0] >= 2


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
    assert e.use_device == ("cuda" if arete.cuda.is_available() else None) and not e.is_async
    assert e.node_id == -1 and e.device_index == 0 and e.device_time == 0
    assert (e.scope, by_name["mine"].scope, by_name["SumBackward0"].scope) == (0, 7, 1)
    assert by_name["SumBackward0"].fwd_thread == e.thread > 0 == e.fwd_thread
    first = next(e for e in events if e.name == "sum")
    assert len(first.concrete_inputs) == len(first.input_shapes)
    assert first.concrete_inputs[0] is None and [1] in first.concrete_inputs and True in first.concrete_inputs
    for row in (e, p.key_averages()[0]):
        for name in ("cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total",
                     "self_device_time_total"):
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
