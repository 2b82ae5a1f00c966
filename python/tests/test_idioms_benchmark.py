"""Benchmarks as people write them."""
import collections
import contextlib
import itertools
import pickle
import shutil
import timeit

import pytest
from idiom_helpers import anywhere, on_the_cpu, same, seeds_and_switches, values  # noqa: F401 -- the fixture

import arete


def _dots(torch):
    def by_sum(a, b):
        return a.mul(b).sum(-1)

    def by_product(a, b):
        return torch.bmm(a.reshape(-1, 1, a.shape[-1]), b.reshape(-1, b.shape[-1], 1)).flatten(-3)

    return {"by_sum": by_sum, "by_product": by_product}


@anywhere
def test_benchmark_timers(torch, device):
    benchmark, dots = torch.utils.benchmark, _dots(torch)
    x = torch.randn(100, 64, device=device)
    assert same(values([dots["by_sum"](x, x)]), values([dots["by_product"](x, x)]), 1e-5)
    seconds = timeit.Timer("f(x, x)", setup="f(x, x)", globals={"f": dots["by_sum"], "x": x}).timeit(10) / 10
    for name, function in dots.items():
        m = benchmark.Timer(stmt="f(x, x)", setup="y = 1", globals={"f": function, "x": x}, label=name).timeit(10)
        assert isinstance(m, benchmark.Measurement) and len(m.times) == 1 and m.number_per_run == 10
        assert 0 < m.median == m.times[0] < 1000 * seconds + 1
        assert "1 measurement, 10 runs , 1 thread" in repr(m) and name in repr(m)


@on_the_cpu
def test_benchmark_threads(torch, device):
    before = torch.get_num_threads()
    seen = []
    timer = torch.utils.benchmark.Timer("look()", globals={"look": lambda: seen.append(torch.get_num_threads())}, num_threads=2)
    assert timer.timeit(3).task_spec.num_threads == 2
    assert set(seen) == {2} and torch.get_num_threads() == before


@anywhere
def test_benchmark_as_often_as_it_takes(torch, device):
    x = torch.randn(64, 64, device=device)
    m = torch.utils.benchmark.Timer("x @ x", globals={"x": x}).blocked_autorange(min_run_time=0.02)
    assert m.number_per_run >= 1 and sum(m.times) * m.number_per_run >= 0.02
    assert min(m.times) <= m.median <= max(m.times) and m.iqr >= 0 and m.mean > 0
    (merged,) = torch.utils.benchmark.Measurement.merge([m, m])
    assert len(merged.times) == 2 * len(m.times)


@anywhere
def test_benchmark_tables(torch, device):
    benchmark, results = torch.utils.benchmark, []
    for b, n in itertools.product([1, 32], [4, 64]):
        x = torch.ones(b, n, device=device)
        for threads in (1, 2):
            for name, function in _dots(torch).items():
                timer = benchmark.Timer(stmt="f(x, x)", globals={"f": function, "x": x}, num_threads=threads, label="Dots",
                                        sub_label=f"[{b}, {n}]", description=name)
                results.append(timer.blocked_autorange(min_run_time=0.001))
    compare = benchmark.Compare(results)
    compare.trim_significant_figures()
    plain_text = str(compare)
    compare.colorize()
    coloured = str(compare)
    for line in ("1 threads:", "2 threads:", "[32, 64]", "by_product", "Dots", "Times are in"):
        assert line in plain_text
    assert "\033[" in coloured and "\033[" not in plain_text
    assert sum(line.strip().startswith("[") for line in plain_text.splitlines()) >= 8  # 4 sizes for 2 numbers of threads


@anywhere
def test_benchmark_kept_and_compared_later(torch, device, tmp_path, capsys):
    benchmark = torch.utils.benchmark
    x = torch.ones(32, 32, device=device)
    for environment, stmt in (("branch A", "x.sum()"), ("branch B", "x.t().sum()")):
        m = benchmark.Timer(stmt, globals={"x": x}, label="sum", sub_label="32", description="all", env=environment).timeit(5)
        with open(tmp_path / "results.pickle", "ab") as f:
            pickle.dump(m, f)
    found = []
    with open(tmp_path / "results.pickle", "rb") as f, contextlib.suppress(EOFError):
        while True:
            found.append(pickle.load(f))
    assert [m.env for m in found] == ["branch A", "branch B"] and all(m.median > 0 for m in found)
    benchmark.Compare(found).print()
    printed = capsys.readouterr().out
    assert "branch A" in printed and "branch B" in printed


@anywhere
def test_benchmark_of_random_sizes(torch, device):
    benchmark = torch.utils.benchmark
    fuzzer = benchmark.Fuzzer(
        parameters=[benchmark.FuzzedParameter(f"k{i}", minval=1, maxval=1000, distribution="loguniform") for i in range(2)],
        tensors=[benchmark.FuzzedTensor("x", size=("k0", "k1"), min_elements=128, max_elements=10_000, probability_contiguous=0.6,
                                        cuda=device == "cuda")],
        seed=0)
    results, layouts = [], set()
    for tensors, properties, params in fuzzer.take(10):
        x = tensors["x"]
        assert x.shape == (params["k0"], params["k1"]) and 128 <= x.numel() == properties["x"]["numel"] <= 10_000
        assert x.is_contiguous() == properties["x"]["is_contiguous"] and x.device.type == device
        layouts.add(x.is_contiguous())
        sub_label = f"{params['k0']:<6} x {params['k1']:<4} {'' if properties['x']['is_contiguous'] else '(discontiguous)'}"
        timer = benchmark.Timer("x.sum()", globals=tensors, label="sum", sub_label=sub_label, description="all")
        results.append(timer.blocked_autorange(min_run_time=0.001))
    assert layouts == {True, False} and "(discontiguous)" in str(benchmark.Compare(results))
    assert [p for _, _, p in fuzzer.take(3)] == [p for _, _, p in fuzzer.take(3)] and 0 <= fuzzer.rejection_rate < 1


def test_benchmark_of_random_layouts():  # PyTorch 2.11 refuses probabilities that add up to 1
    benchmark = arete.utils.benchmark
    fuzzer = benchmark.Fuzzer(
        parameters=[
            [benchmark.FuzzedParameter("n", 2, 8, "uniform"),
             benchmark.FuzzedParameter("m", distribution={benchmark.ParameterAlias("n"): 0.5, 1: 0.5})],
            benchmark.FuzzedParameter("dims", distribution={2: 0.4, 3: 0.6}),
            benchmark.FuzzedParameter("step", distribution={1: 0.5, 2: 0.5}),
        ],
        tensors=[benchmark.FuzzedTensor(name, ("n", "m", 3), ("step", 1, 1), dim_parameter="dims", dtype=arete.int32) for name in "xy"],
        constraints=[lambda params: params["n"] != 5], seed=3)
    seen = collections.Counter()
    for tensors, properties, params in fuzzer.take(60):
        expected = (params["n"], params["m"], 3)[: params["dims"]]
        assert params["n"] != 5 and params["m"] in (1, params["n"])
        for name, x in tensors.items():
            order = properties[name]["order"]
            assert x.shape == expected and x.dtype is arete.int32
            # In its own order in memory the strides fall.
            strides = [x.stride(d) for d in order]
            assert strides == sorted(strides, reverse=True)
            seen[params["m"] == 1, params["dims"], params["step"], x.is_contiguous()] += 1
    assert len(seen) > 8


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="Valgrind is not installed")
def test_benchmark_instruction_counts(capsys):  # not with PyTorch, whose import takes a minute and more there
    torch = arete
    setup = """\
        def dot_v0(a, b):
            return a.mul(b).sum(-1)

        def dot_v1(a, b):
            return (a + 0).mul(b).sum(-1)

        x = torch.randn(2, 2)"""
    t0 = torch.utils.benchmark.Timer(stmt="dot_v0(x, x)", setup=setup)
    t1 = torch.utils.benchmark.Timer(stmt="dot_v1(x, x)", setup=setup)
    stats_v0 = t0.collect_callgrind()
    stats_v1 = t1.collect_callgrind()
    print(stats_v0)
    stats_v0 = stats_v0.as_standardized()
    stats_v1 = stats_v1.as_standardized()
    delta = stats_v1.delta(stats_v0)
    for before, after in (("arete::ops::", ""), ("(anonymous namespace)::", "")):
        delta = delta.transform(lambda line, before=before, after=after: line.replace(before, after))
    assert 0 < delta.sum() < stats_v0.counts() and delta.sum() == stats_v1.counts() - stats_v0.counts()
    assert 0 < delta.denoise().sum() == stats_v1.counts(denoise=True) - stats_v0.counts(denoise=True)
    (apart,) = [c for c, function in delta if function.endswith(":call_pointwise(arete::ops::Call const&)".replace("arete::ops::", ""))]
    assert apart % 100 == 0 < apart  # one operator more in each of 100 runs
    torch.set_printoptions(linewidth=160)
    print(delta)
    torch.set_printoptions(profile="default")
    printed = capsys.readouterr().out
    for line in ("Noisy symbols removed", "Instructions:", "Baseline:", "100 runs per measurement, 1 thread", f"Total: {delta.sum()}"):
        assert line in printed
    assert 80 < max(map(len, printed.splitlines())) <= 160


def test_wrong_ranges_of_random_sizes_are_errors():
    benchmark = arete.utils.benchmark
    for arguments in ({"distribution": "normal"}, {"distribution": {}}, {"distribution": {1: -1.0}},
                      {"minval": 0, "maxval": 4, "distribution": "loguniform"},
                      {"minval": 4, "maxval": 1, "distribution": "uniform"}, {"distribution": {1: 0.2}, "strict": True}):
        with pytest.raises(ValueError, match="FuzzedParameter 'k'"):
            benchmark.FuzzedParameter("k", **arguments)
    with pytest.raises(ValueError, match="steps"):
        benchmark.FuzzedTensor("x", ("k",), (1, 2))
    with pytest.raises(ValueError, match="names must differ"):
        benchmark.Fuzzer([benchmark.FuzzedParameter("x", 1, 2, "uniform")], [benchmark.FuzzedTensor("x", (2,))])
    narrow = benchmark.Fuzzer([benchmark.FuzzedParameter("k", 1, 2, "uniform")], [benchmark.FuzzedTensor("x", ("k",), min_elements=3)])
    with pytest.raises(RuntimeError, match="too narrow"):
        next(narrow.take(1))
