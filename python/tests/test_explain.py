"""What compiled functions say of themselves: lines, costs, reasons; and the command that runs a program and explains it."""
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

import arete
import arete.nn.functional as F
from arete import compiler, explain, nn
from fake_gpus import run


def functions_of(f):
    (its,) = json.loads(f.explain("json"))["functions"]
    return its


def line_of(text):
    """The number of the line of this file that ends with a comment."""
    return next(n for n, line in enumerate(pathlib.Path(__file__).read_text().splitlines(), 1) if line.endswith("# " + text))


def trained():
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = arete.optim.SGD(net.parameters(), lr=0.01)

    @arete.compile
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()  # the loss
        loss.backward()  # the pass
        optimizer.step()  # the update
        return loss

    return step


def test_lines_and_operators():
    step = trained()
    for _ in range(3):
        step(arete.ones(4, 6))
    its = functions_of(step)
    assert its["name"].startswith("trained.<locals>.step (") and __file__ in its["name"]
    plan = max((p for t in its["traces"] for p in t["plans"]), key=lambda p: p["runs"])
    lines = {s["where"] for s in plan["steps"]}
    for text in ("the loss", "the pass", "the update"):
        assert f"{__file__}:{line_of(text)} in step" in lines
    assert all(s["operators"] and len(s["operators"]) == len(s["calls"]) for s in plan["steps"])
    assert sum(s["bytes_read"] + s["bytes_written"] for s in plan["steps"]) == plan["bytes_moved"] < plan["bytes_recorded"]


def test_calls_of_large_tensors_have_lines_too():
    f = arete.compile(lambda x: (x + 1).exp().sum())  # large
    f(arete.ones(1 << 18))
    (trace,) = functions_of(f)["traces"]
    assert all(f":{line_of('large')} in <lambda>" in s["where"] for s in trace["plans"][0]["steps"])


def test_what_made_another_plan():
    f = arete.compile(lambda x: F.relu(x * 2).sum())  # changes
    f(arete.ones(64, 7))
    f(arete.ones(32, 7))
    one, two = functions_of(f)["traces"]
    assert one["changed"] == "" and two["nearest"] == 1 and two["call"] == 0
    assert two["changed"] == "mul: input float32[64, 7] became float32[32, 7]" and f":{line_of('changes')} in" in two["where"]
    assert "another list: 2 is 1 up to call 0; mul: input float32[64, 7] became float32[32, 7] at" in f.explain()


def test_a_break_says_what_it_costs():
    @arete.compile
    def f(x):
        loss = (x * 2).sum()
        if loss.item() > 3:  # looks
            loss = loss + 1
        return loss

    f(arete.ones(3)), f(arete.ones(3))
    (look,) = functions_of(f)["breaks"]
    assert look["where"] == f"{__file__}:{line_of('looks')} in f" and look["what"] == "sum" and look["count"] == 2
    assert look["making"] > 0 and "arete.where" in look["advice"]
    text = f.explain()
    assert f"break: {look['where']} (sum), 2 times" in text and look["advice"] in text


def test_indices_that_depend_on_values_are_breaks():
    f = arete.compile(lambda x: (x * 2)[x > 0].sum())
    f(arete.tensor([1.0, -1.0, 2.0]))
    (look,) = functions_of(f)["breaks"]
    assert look["what"] == "compact" and "shape" in look["advice"]


def test_formats_and_files(tmp_path):
    f = arete.compile(lambda x: x * 2 + 1)
    f(arete.ones(3))
    assert f.explain("text") == f.explain()
    for format in ("text", "json", "html"):
        file = tmp_path / f"told.{format}"
        assert f.explain(format, file=file) is None
        assert file.read_text() == f.explain(format)
    assert (tmp_path / "told.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ValueError, match="xml"):
        f.explain("xml")
    net = arete.compile(nn.Linear(2, 2))
    net(arete.ones(1, 2))
    assert json.loads(net.explain(format="json"))["functions"][0]["name"] == "Linear"


def test_explain_output_has_torchs_names():
    def f(x):
        y = x * 2 + 1
        return y + 1 if y.sum().item() > 0 else y  # dynamo

    told = arete._dynamo.explain(f)(arete.ones(3))
    assert (told.graph_count, told.graph_break_count) == (2, 1)
    assert told.ops_per_graph == [["mul", "add", "sum"], ["add"]] and told.op_count == 4
    (reason,) = told.break_reasons
    assert "sum" in reason.reason and reason.graph_break
    assert reason.user_stack[0].lineno == line_of("dynamo") and reason.user_stack[0].name == "f"
    assert told.out_guards == [] and len(told.graphs) == 2 and "planning" in told.compile_times
    assert repr(told).startswith("Graph Count: 2\nGraph Break Count: 1\nOp Count: 4\n") and "break: " in repr(told)


PROGRAM = """
import sys
import arete as torch

@torch.compile
def f(x):
    return (x * 2 + 1).sum()

def main():
    g = torch.compile(lambda x: x - 1)  # gone before the program ends
    for n in (3, 3, 4):
        f(torch.ones(n)), g(torch.ones(n))

main()
print("arguments", sys.argv[1:], __name__)
"""


def explain_program(tmp_path, text, *arguments, options=(), **environment):
    program = tmp_path / "prog.py"
    program.write_text(text)
    return subprocess.run([sys.executable, "-m", "arete.explain", *options, str(program), *arguments], capture_output=True, text=True,
                          env={**os.environ, **environment}, cwd=tmp_path)


def test_the_command(tmp_path):
    ran = explain_program(tmp_path, PROGRAM, "--json", "x", options=("--json", "told.json", "--html", "told.html"))
    assert ran.returncode == 0, ran.stderr
    assert "arguments ['--json', 'x'] __main__\n" in ran.stdout
    told = ran.stdout.split("== what became")[1]
    assert "f (" in told and "<lambda> (" in told and told.count("3 calls ran as 3 plans") == 2 and "became float32[4]" in told
    functions = json.loads((tmp_path / "told.json").read_text())["functions"]
    assert [f["stats"]["calls"] for f in functions] == [3, 3]
    assert "prog.py" in functions[0]["name"] and "prog.py:7 in f" in functions[0]["traces"][0]["plans"][0]["steps"][0]["where"]
    assert "<!doctype html>" in (tmp_path / "told.html").read_text()


@pytest.mark.parametrize("ending, status, said", [
    ("raise ValueError('on the way')", 1, "ValueError: on the way"),
    ("sys.exit(3)", 3, ""),
    ("sys.exit('a reason')", 1, "a reason"),
    ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
])
def test_the_programs_end_is_kept(tmp_path, ending, status, said):
    ran = explain_program(tmp_path, PROGRAM + ending + "\n")
    assert ran.returncode == status and said in ran.stderr and "3 calls ran" in ran.stdout
    assert "runpy" not in ran.stderr and "explain.py" not in ran.stderr


@pytest.mark.parametrize("ending, status", [("sys.stdout.close()", 0), ("sys.stdout = None", 0), ("sys.stdout = object()", 120)])
def test_a_program_without_output_keeps_its_end(tmp_path, ending, status):
    ran = explain_program(tmp_path, f"import sys, arete\narete.compile(lambda x: x + 1)(arete.ones(2))\n{ending}\n",
                          options=("--json", "told.json"))
    assert ran.returncode == status, ran.stderr
    assert json.loads((tmp_path / "told.json").read_text())["functions"][0]["stats"]["calls"] == 1


def test_deep_expressions_are_looked_through(tmp_path):
    ran = explain_program(tmp_path, "x = " + "+".join(["1"] * 1500) + "\n")
    assert ran.returncode == 0 and "compiled no function" in ran.stdout


def test_names_that_are_no_text():
    def f(x):
        return x + 1

    f.__qualname__ = "f\udcff"
    assert arete.compile(f)(arete.ones(1)).item() == 2 and "f\\udcff" in arete.compile(f).explain()

    class Odd:
        __code__ = 3

        def __call__(self, x):
            return x * 2

    assert arete.compile(Odd())(arete.ones(1)).item() == 2


def test_counts_of_many_lists_and_of_none():
    f = arete.compile(lambda x: (x * 2).exp().sum() + 1, fullgraph=True)  # otherwise calls on so little are soon made at once
    for n in range(1, 101):
        f(arete.ones(n))
    assert "a call: 4 primitive calls in 1 kernel" in f.explain() or "a call: 4 primitive calls in 2 kernels" in f.explain()
    arete._dynamo.reset()
    assert f.stats()["calls"] == f.stats()["runs"] == f.stats()["traces"] == f.stats()["plans"] == 0


def test_what_nobody_reads_is_no_operator_of_a_step():
    def f(x):
        z = x + 1
        z.exp()
        return z.cos()

    compiled = arete.compile(f)
    compiled(arete.ones(3))
    (plan,) = functions_of(compiled)["traces"][0]["plans"]
    assert [s["operators"] for s in plan["steps"]] == [["add", "cos"]] and plan["left_out"] == 1


def test_graph_break_counts_as_a_break():
    def f(x):
        y = x * 2
        arete._dynamo.graph_break()
        return y + 1

    told = arete._dynamo.explain(f)(arete.ones(3))
    assert (told.graph_count, told.graph_break_count, len(told.break_reasons)) == (2, 1, 1)
    with pytest.raises(ValueError, match="fullgraph"):
        arete.compile(f, fullgraph=True)(arete.ones(3))
    with pytest.raises(ValueError, match="fullgraph"):
        arete.compile(lambda x: x[x > 0], fullgraph=True)(arete.ones(3))


def test_other_threads_run_meanwhile():
    x = arete.ones(1 << 22)
    f = arete.compile(lambda x: [x.exp().log1p().sin().cos().tanh() for _ in range(6)])
    f(x)

    def longest_stop():
        """Of another thread, as a part of the time that the call takes."""
        ticks, done = [], threading.Event()

        def tick():
            while not done.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0.0005)

        thread = threading.Thread(target=tick)
        thread.start()
        begun = time.perf_counter()
        f(x)
        took = time.perf_counter() - begun
        done.set()
        thread.join()
        return max(b - a for a, b in zip(ticks, ticks[1:])) / took

    assert any(longest_stop() < 0.5 for _ in range(8))


def test_programs_without_compiled_functions_are_told_so(tmp_path):
    text = """
import arete
w = arete.ones(3, requires_grad=True)
def train(x):
    loss = (x * w).sum()
    loss.backward()
for k in range(2):
    train(arete.ones(3))
"""
    ran = explain_program(tmp_path, text)
    assert ran.returncode == 0 and "compiled no function" in ran.stdout
    assert "prog.py:4: the function train() has a backward pass (line 6)" in ran.stdout
    ran = explain_program(tmp_path, PROGRAM, TORCH_COMPILE_DISABLE="1")
    assert ran.returncode == 0 and "switched off" in ran.stdout


def test_wrong_arguments_end_before_the_program_begins(tmp_path):
    ran = explain_program(tmp_path, "print('ran')", options=("--json", "no/folder/told.json"))
    assert ran.returncode == 2 and "--json" in ran.stderr and "ran" not in ran.stdout
    ran = subprocess.run([sys.executable, "-m", "arete.explain", "nowhere.py"], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 2 and "nowhere.py" in ran.stderr


def test_threads_of_executors_are_not_waited_for(tmp_path):
    text = PROGRAM + """
import concurrent.futures
pool = concurrent.futures.ThreadPoolExecutor(1)
print(pool.submit(lambda: "from a thread").result())
"""
    ran = explain_program(tmp_path, text)
    assert ran.returncode == 0 and "from a thread" in ran.stdout and "what became" in ran.stdout


def test_nothing_is_kept_afterwards(tmp_path, monkeypatch, capsys):
    program = tmp_path / "prog.py"
    program.write_text(PROGRAM)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert explain.main([str(program)]) == 0
    assert "what became" in capsys.readouterr().out and compiler._kept is None


def test_kernels_of_a_plan_are_made_before_it_runs():
    said = run("""
        import json
        def f(x):
            return (x.exp() * 2).sum(0), x.sort().values + 1
        g, x = torch.compile(f), torch.rand(30, 40, device="cuda")
        for _ in range(3):
            a, b = g(x)
        assert torch.allclose(a, f(x)[0]) and torch.equal(b, f(x)[1])
        (plan,) = json.loads(g.explain("json"))["functions"][0]["traces"][0]["plans"]
        print(json.dumps([len(plan["steps"]), [k["step"] for k in plan["kernels"]]]))
    """)
    steps, with_kernels = json.loads(said)
    assert steps == 3 and sorted(with_kernels) == [0, 2]  # all but the sort, each once
