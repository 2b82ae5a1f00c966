"""Timer.collect_callgrind: real counts where Valgrind is installed; its files, and the arithmetic of counts, on small texts."""
import copy
import math
import pickle
import re
import shutil
import sys

import pytest

import arete
from arete.utils import benchmark
from arete.utils.benchmark.utils.valgrind_wrapper import timer_interface

with_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="Valgrind is not installed")

# Two libraries. main calls walk (which calls itself) and ping, ping and pong call each other; `inl.h` was put inline into walk.
FILE = """\
# callgrind format
version: 1
cmd: ./program fn=(9) not_a_name

positions: line
events: Dr Ir
summary: 30 335

ob=(1) /lib/program
fl=(1) main.c
fn=(1) main
10 1 5
+2 0 20
cob=(2) /lib/walk.so
cfi=(2) walk.c
cfn=(2) walk
calls=1 7
* 9 160
cfi=(1)
cfn=(3) ping
calls=1 40
+1 2 150
-5 3

ob=(2)
fl=(2)
fn=(2)
7 4 60
fi=(3) inl.h
100 0 40
fe=(2)
8 0 30
cfn=(2)
calls=3 7
8 5 90
jump=3 7
9
9 0 30

ob=(1)
fl=(1)
fn=(3)
40 0 70
cfn=(4) pong
calls=2 50
41 0 140

fn=(4)
50 0 80
cfn=(3)
calls=1 40
51 0 145

totals: 30 335
"""


def rows(counts):
    return {function: c for c, function in counts}


def test_file():
    inclusive, exclusive = timer_interface._parsed(FILE)
    assert (inclusive.inclusive, exclusive.inclusive) == (True, False)
    main, walk, ping, pong = (
        "main.c:main [/lib/program]", "walk.c:walk [/lib/walk.so]", "main.c:ping [/lib/program]", "main.c:pong [/lib/program]")
    assert rows(exclusive) == {main: 25, walk: 160, ping: 70, pong: 80} and exclusive.sum() == 335
    assert rows(inclusive) == {main: 335, walk: 160, ping: 210, pong: 225}
    assert [f.function for f in exclusive] == [walk, pong, ping, main]


def test_file_with_addresses_and_plain_names():
    text = """events: Ir
positions: instr line
fl=a.c
fn=f
0x400 3 7
+4 * 2
* +1 1
cfn=g
calls=1 0x500 20
+0 3 500
fn=g
0x500 20 500
fn=f'2
0x400 3 400
cfn=f'2
calls=9 0x400 3
0x404 3 300
cfn=g
calls=1 0x500 20
0x404 3 999999
"""
    inclusive, exclusive = timer_interface._parsed(text)
    assert rows(exclusive) == {"a.c:f [???]": 10, "a.c:g [???]": 500, "a.c:f'2 [???]": 400}
    # Not more than there was.
    assert rows(inclusive) == {"a.c:f [???]": 510, "a.c:g [???]": 500, "a.c:f'2 [???]": 910}


def counts(library, *pairs, inclusive=False, **options):
    return library.FunctionCounts(tuple(library.FunctionCount(*p) for p in pairs), inclusive, **options)


PAIRS = [(500, "a.c:f [x.so]"), (300, "a.c:g [x.so]"), (30, "dictobject.c:lookdict_unicode [python]"), (2, "b.c:h")]


def test_arithmetic():
    a, b = counts(benchmark, *PAIRS), counts(benchmark, (300, "a.c:g [x.so]"), (7, "c.c:new"), (510, "a.c:f [x.so]"))
    assert len(a) == 4 and a[0] == (500, "a.c:f [x.so]") and a[-1].count == 2 and a[-1].function == "b.c:h" and a.sum() == 832
    assert list(a - b) == [(30, PAIRS[2][1]), (2, "b.c:h"), (-7, "c.c:new"), (-10, "a.c:f [x.so]")]  # equal ones are gone
    assert (a + b).sum() == a.sum() + b.sum() and rows(a + b)["a.c:f [x.so]"] == 1010
    assert len(a - a) == 0 and list((a + b) - b) == list(a) and list(a * 2) == list(a + a)
    assert list(a * 0.01) == [(5, "a.c:f [x.so]"), (3, "a.c:g [x.so]")]  # whole numbers, and none that are 0
    assert list(a.transform(lambda f: f.split(":")[0])) == [(800, "a.c"), (30, "dictobject.c"), (2, "b.c")]
    assert list(a.filter(lambda f: "g" in f)) == [(300, "a.c:g [x.so]")]
    assert a.denoise() == a.filter(lambda f: "dict" not in f)
    assert len(counts(benchmark, (1, "o.c:unicodekeys_lookup_unicode"), (1, "o.c:unicodekeys_lookup_generic")).denoise()) == 1
    assert isinstance(a[1:3], benchmark.FunctionCounts) and list(a[1:3]) == list(a)[1:3] and list(a[::-1]) == list(a)[::-1]
    assert pickle.loads(pickle.dumps(a)) == a
    with pytest.raises(ValueError, match="inclusive"):
        a + counts(benchmark, inclusive=True)
    with pytest.raises(TypeError):
        a - 3
    with pytest.raises(IndexError):
        a[4]


def stats(library, spec, **options):
    parts = [counts(library, *PAIRS[k:], inclusive=k % 2 == 1) for k in range(4)]
    return library.CallgrindStats(spec, 100, options.get("symbols", True), *parts[::-1], "text")


def test_texts_beside_torch():
    reference = pytest.importorskip("torch.utils.benchmark")

    def text(x):  # without class and address
        return re.sub(r"^<.*>\n?", "", repr(x))

    long = [(10**k, f"file{k}.c:" + "name_" * 3 * k) for k in range(20)]
    for pairs in ([], PAIRS, long, [(-5, "a"), (12345, "b" * 39), (3, "c" * 100)]):
        for options in ({}, {"_linewidth": 160}, {"_linewidth": 50}, {"truncate_rows": False}, {"inclusive": True}):
            ours, theirs = counts(benchmark, *pairs, **options), counts(reference, *pairs, **options)
            assert text(ours) == text(theirs)
            assert text(ours[:]) == text(counts(reference, *pairs, **{**options, "truncate_rows": False}))
    for task in ({"stmt": "f(x)", "setup": "pass"}, {"stmt": "f(x)\ng(x)", "setup": "x = 3", "label": "L", "num_threads": 2}):
        ours = stats(benchmark, benchmark.TaskSpec(**task))
        theirs = stats(reference, reference.utils.common.TaskSpec(**task))
        assert text(ours) == text(theirs)
        assert ours.counts(denoise=True) == theirs.counts(denoise=True) and list(ours.delta(ours)) == []
        assert text(ours.as_standardized().stats()) == text(theirs.as_standardized().stats())


def test_stats():
    s = stats(benchmark, benchmark.TaskSpec("f(x)", "pass"), symbols=False)
    assert s.counts() == 832 and s.counts(denoise=True) == 802 and s.stats(inclusive=True).sum() == 332
    assert s.stats() is s.stmt_exclusive_stats and s.stats(inclusive=True) is s.stmt_inclusive_stats
    assert rows(s.as_standardized().stats()) == {"a.c:f": 500, "a.c:g": 300, "dictobject.c:lookdict_unicode": 30, "b.c:h": 2}
    assert s.as_standardized().stmt_callgrind_out is None and s.stmt_callgrind_out == "text"
    assert "without debug symbols" in repr(s) and "100 runs per measurement, 1 thread\n" in repr(s)
    by_place = benchmark.FunctionCounts(tuple(benchmark.FunctionCount(1, f"{where}:f") for where in (
        "/one/build/../arete/ops/call.cpp", "/two/arete/ops/call.cpp", "/a/Python-3.11/Objects/call.c", "/b/./Objects/call.c",
        "/c/mine.c")), False)
    there = rows(benchmark.CallgrindStats(s.task_spec, 1, True, *[by_place] * 4).as_standardized().stats())
    assert there == {"arete/ops/call.cpp:f": 2, "Objects/call.c:f": 2, "/c/mine.c:f": 1}


def test_globals_that_cannot_be_taken_along():
    lock = {"unused": 1, "f": lambda: 1}
    with pytest.raises(TypeError, match=r"the global 'f' \(function\) cannot be taken"):
        benchmark.Timer("f()", globals=lock).collect_callgrind()
    with pytest.raises(TypeError, match=r"the global 'g' \(generator\)"):
        benchmark.Timer("y = 1", "x = g", globals={"g": (i for i in range(3))}).collect_callgrind()

    def there(value, setup=None):
        wrapped = benchmark.CopyIfCallgrind(value, setup=setup)
        return timer_interface._pickled({"v": wrapped, "unused": lock["f"]}, "v.x = 1")

    class OfMain:
        pass

    OfMain.__module__, OfMain.__qualname__ = "__main__", "OfMain"
    with pytest.raises(TypeError, match=r"the global 'v' \(type\) cannot be taken: 'OfMain' is in __main__"):
        there(OfMain)
    ((name, setup, pickled),) = there([1, arete, arete.ones(2)], "  import re\n  import os")
    one, module, ones = pickle.loads(pickled)
    assert (name, setup, one) == ("v", "import re\nimport os", 1) and module is arete and ones.tolist() == [1, 1]


def test_wrong_use(monkeypatch):
    for arguments in ({"number": 0}, {"repeats": 0}):
        with pytest.raises(ValueError, match="positive"):
            benchmark.Timer("x = 1").collect_callgrind(**arguments)
    with pytest.raises(ZeroDivisionError):  # at once, and as it is
        benchmark.Timer("1 / n", globals={"n": benchmark.CopyIfCallgrind(0)}).collect_callgrind()
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OSError, match="needs Valgrind.*install the package `valgrind`"):
        benchmark.Timer("x = 1").collect_callgrind()


@with_valgrind
def test_counts(monkeypatch):
    class Net(arete.nn.PReLU):
        pass

    # As a class of the program that runs, which `setup` makes in the other process too.
    Net.__module__, Net.__qualname__ = "__main__", "Net"
    monkeypatch.setattr(sys.modules["__main__"], "Net", Net, raising=False)
    net = benchmark.CopyIfCallgrind(Net(), setup="class Net(torch.nn.PReLU):\n    pass")
    names = {"n": 2, "x": arete.ones(64), "net": net, "math": math, "c": copy.copy, "unused": lambda: 1}
    threads = arete.get_num_threads()
    timer = benchmark.Timer("net(y).sum().backward()", "assert torch.get_num_threads() == 1\ny = math.sqrt(n) * c(x)[:4]", globals=names)
    first, second = timer.collect_callgrind(30, repeats=2, retain_out_file=True)
    assert arete.get_num_threads() == threads and first.number_per_run == 30 and first.task_spec == timer._task_spec
    # The same each time, and all that Valgrind counted.
    assert abs(first.delta(second).sum()) < 0.02 * first.counts()
    for s in (first, second):
        assert s.counts() == int(re.search(r"^totals: (\d+)", s.stmt_callgrind_out, re.M)[1])
        assert max(c for c, _ in s.stats(inclusive=True)) <= s.counts()
    # Loop and calls of the empty statement cost little, and are the same for both.
    assert 30 <= first.baseline_exclusive_stats.sum() < 0.1 * first.counts()
    assert list(first.baseline_exclusive_stats) == list(second.baseline_exclusive_stats)
    assert any("arete::" in function for _, function in first.stats())
    exclusive, inclusive = rows(first.stats()), rows(first.stats(inclusive=True))
    assert all(inclusive[f] >= c for f, c in exclusive.items())
    assert not any(" [" in f for _, f in first.as_standardized().stats())
    assert f"Instructions: {first.counts():>12}" in repr(first) and "30 runs per measurement, 1 thread" in repr(first)
    assert pickle.loads(pickle.dumps(first)).stats() == first.stats()


@with_valgrind
def test_twice_the_work():
    setup = """
        x = torch.ones(64)
        def factorial(n):  # under its own frames as under those of the loop
            return 1 if n == 0 else n * factorial(n - 1)
    """
    once, twice = (benchmark.Timer(stmt, setup).collect_callgrind(50)
                   for stmt in ("x + x; factorial(9)", "for _ in 1, 2:\n    x + x\n    factorial(9)"))
    assert once.stmt_callgrind_out is None
    work = [s.counts() - s.baseline_exclusive_stats.sum() for s in (once, twice)]
    assert 1.95 < work[1] / work[0] < 2.1
    difference = rows(twice.as_standardized().delta(once.as_standardized()))
    (more,) = [c for f, c in difference.items() if f.endswith("arete::ops::call_pointwise(arete::ops::Call const&)")]
    assert more > 0 and more % 50 == 0  # the same for each of the runs


@with_valgrind
def test_work_of_all_threads():
    timer = benchmark.Timer("torch.set_num_threads(next(threads)); x.exp()", "x = torch.ones(200_000); threads = iter((2, 1, 2))")
    one, two = timer.collect_callgrind(1, repeats=2, collect_baseline=False)  # after one run that warms up
    assert one.counts() > 200_000 and 0.95 < two.counts() / one.counts() < 1.1
    assert len(one.baseline_inclusive_stats) == len(one.baseline_exclusive_stats) == 0


@with_valgrind
def test_errors_of_the_other_process():
    with pytest.raises(ChildProcessError, match="(?s)AssertionError: only here"):
        benchmark.Timer("x = 1", "import sys\nassert 'pytest' in sys.modules, 'only here'").collect_callgrind(1)
