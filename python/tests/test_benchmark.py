"""arete.utils.benchmark beside torch.utils.benchmark: figures, texts and tables of the same times; the loops by what they run."""
import dataclasses
import pickle
import random
import re
import time

import pytest
from peer import peer

import arete
from arete.utils import benchmark

reference = peer("torch.utils.benchmark")


def pair(number, times, **task):
    """The same measurement of both packages."""
    task = {"stmt": "f(x)", "setup": "pass", **task}
    return (benchmark.Measurement(number, times, benchmark.TaskSpec(**task)),
            reference.Measurement(number, times, reference.utils.common.TaskSpec(**task)))


def times(seed, n, scale, noise):
    r = random.Random(seed)
    return [scale * (1 + noise * abs(r.gauss(0, 1))) for _ in range(n)]


CASES = [(seed, n, scale, noise, number)
         for seed, (n, noise) in enumerate([(1, 0), (2, 0.1), (3, 0.3), (5, 0.01), (40, 0.05), (41, 0.4), (400, 0.001)])
         for scale in (3e-9, 4.2e-7, 1e-6, 8.7e-5, 2e-3, 0.7, 30.0) for number in (1, 1000)]


@pytest.mark.parametrize("seed,n,scale,noise,number", CASES)
def test_measurement(seed, n, scale, noise, number):
    ours, theirs = pair(number, [t * number for t in times(seed, n, scale, noise)], sub_label="a", description="b")
    for name in ("median", "mean", "iqr"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), rel=1e-12, abs=1e-18), name
    assert ours.times == pytest.approx(theirs.times)
    assert ours.significant_figures == theirs.significant_figures
    assert ours.has_warnings == theirs.has_warnings
    for threshold in (0.01, 0.1, 0.25):
        assert ours.meets_confidence(threshold) == theirs.meets_confidence(threshold)

    def text(m):  # the same lines, but for the address and a warning that the reference breaks elsewhere
        lines = re.sub(r"^<.*>\n", "", repr(m))
        return lines.replace("of the median", "of the\nmedian").split()

    assert text(ours) == text(theirs)


@pytest.mark.parametrize("task", [
    {}, {"label": "L"}, {"label": "L", "sub_label": "S"}, {"sub_label": "S"}, {"setup": "x = 3"}, {"setup": "x = 3\ny = 4"},
    {"stmt": "f(x)\ng(x)\n\nh()"}, {"stmt": "f(x)\ng(x)", "sub_label": "S", "description": "D", "env": "E"}, {"num_threads": 4},
])
def test_texts(task):
    ours, theirs = pair(10, [1e-3, 1.01e-3, 1.02e-3, 1.03e-3], **task)
    assert ours.task_spec.title == theirs.task_spec.title
    assert ours.task_spec.summarize() == theirs.task_spec.summarize()
    assert ours.as_row_name == theirs.as_row_name
    assert repr(ours).split("\n")[1:] == repr(theirs).split("\n")[1:]
    assert repr(ours).startswith("<arete.utils.benchmark.utils.common.Measurement object at 0x")
    assert ours.num_threads == theirs.num_threads and ours.label == theirs.label


@pytest.mark.parametrize("t", [1e-9, 1e-6, 9.99e-7, 1e-3, 0.5e-3, 1.0, 0.999, 100.0, 3.3e-8])
def test_select_unit(t):
    assert benchmark.select_unit(t) == reference.select_unit(t)
    assert benchmark.unit_to_english(benchmark.select_unit(t)[0]) == reference.unit_to_english(reference.select_unit(t)[0])


@pytest.mark.parametrize("x", [3.14159, 79896.4, 0.00123456, -2.71828, 100.0, 999.99])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_trim_sigfig(x, n):
    assert benchmark.trim_sigfig(x, n) == pytest.approx(reference.trim_sigfig(x, n), rel=1e-6)


def grid(labels=("ops",), envs=(None,), holes=False, noise=0.02, threads=(1, 4), scale=1e-6):
    found, seed = [], 0
    for label in labels:
        for env in envs:
            for t in threads:
                for sub in ("add", "matmul", "exp"):
                    for size, description in enumerate(("n = 1", "n = 4096", "big")):
                        seed += 1
                        if holes and seed % 5 == 2:
                            continue
                        values = [v * 10 for v in times(seed, 9, scale * (seed % 7 + 1) * 8**size, noise)]
                        found.append(pair(10, values, label=label, sub_label=sub, description=description, env=env, num_threads=t))
    return [a for a, _ in found], [b for _, b in found]


@pytest.mark.parametrize("options", [
    {}, {"holes": True}, {"labels": ("one", "another one")}, {"labels": (None,)}, {"envs": ("old", "newer")}, {"threads": (1,)},
    {"noise": 0.5}, {"noise": 0.12}, {"noise": 0.0005, "scale": 1e-3}, {"scale": 0.3},
    {"envs": ("b", "a"), "holes": True, "threads": (2, 1)},
])
@pytest.mark.parametrize("change", ["", "trim", "columns", "rows", "warn", "all"])
def test_compare(options, change):
    ours, theirs = (module.Compare(results) for module, results in zip((benchmark, reference), grid(**options)))
    for c in (ours, theirs):
        if change in ("trim", "all"):
            c.trim_significant_figures()
        if change in ("columns", "rows", "all"):
            c.colorize(rowwise=change == "rows")
        if change in ("warn", "all"):
            c.highlight_warnings()
    strip = lambda text: [line.rstrip() for line in str(text).rstrip().split("\n")]  # noqa: E731
    assert strip(ours) == strip(theirs)


def test_compare_prints_and_merges(capsys):
    a, _ = pair(10, [1e-3], label="l", description="d")
    b, _ = pair(1, [3e-4], label="l", description="d")
    c = benchmark.Compare([a])
    c.extend_results([b])
    c.print()
    assert "200.0" in capsys.readouterr().out  # the median of 100 and 300 us
    assert benchmark.Measurement.merge([a, b])[0].times == pytest.approx([1e-4, 3e-4])
    with pytest.raises(ValueError, match="Measurement"):
        c.extend_results([3])


def test_timeit_counts_runs_and_warms_up():
    runs = []
    m = benchmark.Timer("f()", "g()", globals={"f": lambda: runs.append(1), "g": lambda: runs.append(0)}).timeit(500)
    assert (m.number_per_run, len(m.raw_times)) == (500, 1)
    assert runs.count(1) == 505 and runs.count(0) == 2
    with pytest.raises(ValueError, match="number"):
        benchmark.Timer().timeit(0)


def test_blocked_autorange():
    told = []
    timer = benchmark.Timer("time.sleep(0.001)", globals={"time": time})
    m = timer.blocked_autorange(lambda n, t: told.append((n, t)), min_run_time=0.05)
    assert 0.001 <= m.median
    assert sum(m.raw_times) >= 0.05
    assert told == list(zip([m.number_per_run] * len(m.raw_times), m.raw_times))
    # A busy machine may hold up either, but not each time.
    assert any(timer.blocked_autorange(min_run_time=0.05).median < 0.01 for _ in range(5))
    quick = [benchmark.Timer("pass").blocked_autorange(min_run_time=0.02) for _ in range(5)]
    assert any(m.number_per_run >= 1000 and m.median < 1e-6 for m in quick)


def test_adaptive_autorange():
    steady = benchmark.Timer("sum(range(20000))").adaptive_autorange(threshold=0.9, min_run_time=0.001, max_run_time=5)
    assert len(steady.raw_times) > 3 and sum(steady.raw_times) < 5
    # Times that never agree: it stops at the limit.
    clock = iter(range(10**6))
    wild = benchmark.Timer("pass", timer=lambda: next(clock) ** 3 * 1e-4).adaptive_autorange(threshold=1e-6, max_run_time=1)
    assert sum(wild.raw_times) >= 1


def test_device_time():
    runs = []
    t = benchmark.Timer("y = x.exp(); runs.append(y)", "x = arete.ones(1000)", globals={"runs": runs})
    for flush in (False, True):
        m = t.device_time("cpu", repetitions=7, flush_cache=flush)
        assert len(m.raw_times) == 7 and m.number_per_run == 1 and 0 < m.median < 1
    assert len(runs) == 18  # two to warm up, each time
    with pytest.raises(ZeroDivisionError):
        benchmark.Timer("1 / 0").device_time("cpu")
    if not arete.cuda.is_available():
        with pytest.raises(RuntimeError, match="cuda"):
            t.device_time()


def test_threads_and_globals():
    before = arete.get_num_threads()
    seen = []
    t = benchmark.Timer("seen.append(arete.get_num_threads()); torch.ones(1)", globals={"seen": seen}, num_threads=before + 1)
    assert t.timeit(1).num_threads == before + 1
    assert set(seen) == {before + 1} and arete.get_num_threads() == before


def test_indented_statements_and_refusals():
    m = benchmark.Timer("""
        x = 1
        y = x
        """, setup="""
        z = 2
        """).timeit(10)
    assert m.stmt == "x = 1\ny = x" and m.setup == "z = 2"
    for arguments in ({"stmt": len}, {"language": "c++"}, {"global_setup": "x"}, {"num_threads": 0}):
        with pytest.raises(ValueError):
            benchmark.Timer(**arguments)
    with pytest.raises(NameError):
        benchmark.Timer("nothing_of_that_name").timeit(1)
    with pytest.raises(ValueError):
        benchmark.Measurement(1, [], benchmark.TaskSpec("a", "b"))


def test_the_first_run_does_not_set_the_size_of_blocks():
    counts = []
    first = [True]

    def work():
        if first:
            first.clear()
            time.sleep(0.3)  # what only a fresh process does

    timer = benchmark.Timer("work()", globals={"work": work})
    m = timer.blocked_autorange(callback=lambda n, t: counts.append(n), min_run_time=0.05)
    assert m.number_per_run >= 100 and len(counts) == len(m.times) < 5000


def test_dataclass_functions():
    ours, theirs = pair(10, [0.5, 0.6], setup="x = 1\ny = 2", label="l", num_threads=2)
    for function in (dataclasses.asdict, lambda m: [f.name for f in dataclasses.fields(m)]):
        assert function(ours.task_spec) == function(theirs.task_spec)
        assert function(ours) == function(theirs)
    changed = dataclasses.replace(ours.task_spec, label="other")
    assert changed.label == "other" and changed.num_threads == 2 and ours.task_spec.label == "l"
    assert dataclasses.replace(ours, number_per_run=5).times == [0.1, 0.12]
    for setup in ("pass", "", "x = 1", "x = 1\ny = 2"):
        ours, theirs = pair(1, [1.0], setup=setup)
        assert ours.task_spec.setup_str() == theirs.task_spec.setup_str()


def test_wrong_arguments_are_errors():
    for package in (benchmark, reference):
        with pytest.raises(ValueError):
            package.Compare([3])
    with pytest.raises(RuntimeError, match="the meta device computes nothing"):
        benchmark.Timer("pass").device_time("meta")


def test_pickle():
    m, _ = pair(3, [1.0, 2.0], label="l", env="e")
    m.metadata = {"commit": 3}
    again = pickle.loads(pickle.dumps(m))
    assert again == m and again.metadata == {"commit": 3} and again.task_spec == m.task_spec
    assert hash(again.task_spec) == hash(m.task_spec)
