"""`arete run`: its options, several machines (as launchers beside each other), restarts, signals, and reports of failures."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

import arete.distributed as dist

ARETE = os.environ.get("ARETE_PROGRAM")
pytestmark = pytest.mark.skipif(not ARETE, reason="ARETE_PROGRAM does not name the program arete")
needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="built without Gloo")


def start(*arguments, **more):
    return subprocess.Popen([ARETE, "run", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def run(*arguments, **more):
    process = start(*arguments, **more)
    out, err = process.communicate(timeout=120)
    return process.returncode, sorted(out.splitlines()), err


def shell(text, *options):
    return [*options, "--no-python", "sh", "-c", text]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch_two(options, program):
    """Two launchers, as if on two machines."""
    both = [start(*options(node), *shell(program)) for node in (0, 1)]
    results = [(*p.communicate(timeout=120), p.returncode) for p in both]
    return [(code, sorted(out.splitlines()), err) for out, err, code in results]


def test_two_machines():
    port = free_port()
    told = "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK/$GROUP_WORLD_SIZE $MASTER_ADDR"

    def options(node):
        return ["--nnodes", 2, "--node_rank", node, "--nproc_per_node", node + 1, "--master_addr", "127.0.0.1", "--master-port", port]

    (a, b) = launch_two(options, told)
    assert a == (0, ["[0] 0 0 3 0/2 127.0.0.1"], ""), a
    assert b == (0, ["[1] 1 0 3 1/2 127.0.0.1", "[2] 2 1 3 1/2 127.0.0.1"], ""), b
    # One fails: all end, and both say who it was.
    a, b = launch_two(options, "[ $RANK = 2 ] && exit 3; exec sleep 60")
    assert a[0] == 1 and re.search(r"on another machine: rank 2 \(process \d+\) ended with exit code 3", a[2]), a
    assert b[0] == 3 and "rank 2 (process" in b[2], b


def test_machines_that_find_each_other_and_restart():
    port = free_port()

    def options(node):
        return ["--nnodes=2:2", "--rdzv-backend", "c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id", "job7", "--max-restarts", 1,
                "--rdzv-conf", "join_timeout=60"]

    both = launch_two(options, 'echo "$RANK of $WORLD_SIZE, $TORCHELASTIC_RUN_ID $TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS"; '
                               '[ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exit 5; '
                               '[ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 60; exit 0')
    for code, _, err in both:
        assert code == 0 and "all ranks start again (1 of 1)" in err, both
    assert sorted(both[0][1] + both[1][1]) == [f"[{r}] {r} of 2, job7 {n}/1" for r in (0, 1) for n in (0, 1)]


def elastic(port, nodes, *more, conf="last_call_timeout=1"):
    return ["--nnodes", nodes, "--rdzv-backend", "c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf", conf, *more]


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_machines_that_come_and_go(tmp_path):
    port, log = free_port(), tmp_path / "log"
    log.touch()
    program = shell(f'echo "$ARETE_ATTEMPT: $GROUP_RANK of $GROUP_WORLD_SIZE, $RANK of $WORLD_SIZE" >> {log}; '
                    f'echo "$ARETE_ATTEMPT after $TORCHELASTIC_RESTART_COUNT" >> {log}; '
                    f'while [ ! -e {tmp_path}/end ]; do sleep 0.05; done')

    def said(*lines):
        wait_for(lambda: set(lines) <= set(log.read_text().splitlines()))

    options = elastic(port, "1:3", "--max-restarts", 1, conf="last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3")
    a = start(*options, "--nproc-per-node", 2, *program)
    said("0: 0 of 1, 0 of 2", "0: 0 of 1, 1 of 2")  # nobody else within a second
    b = start(*options, *program)
    said("1: 0 of 2, 1 of 3", "1: 1 of 2, 2 of 3")
    c = start(*options, *program)
    said("2: 0 of 3, 0 of 4", "2: 1 of 3, 2 of 4", "2: 2 of 3, 3 of 4")
    spare = start(*options, *program)
    b.terminate()  # the spare takes its place
    assert b.wait(20) == 128 + signal.SIGTERM
    said("3: 0 of 3, 0 of 4", "3: 1 of 3, 2 of 4", "3: 2 of 3, 3 of 4")
    c.kill()  # nobody hears of it any more
    said("4: 0 of 2, 1 of 3", "4: 1 of 2, 2 of 3")
    said("3 after 0", "4 after 1")
    (tmp_path / "end").touch()
    (out, err), others = a.communicate(timeout=60), [p.communicate(timeout=60) for p in (b, c, spare)]
    assert (a.returncode, spare.returncode) == (0, 0), (err, others)
    assert err.count("another machine has come: all") == 0 and err.count("another machine has come\n") == 2, err
    assert "another machine's launcher was ended by a signal\n" in err, err
    assert re.search(r"nothing was heard of the machine that came as number \d for 3 s", err), err
    assert err.count("(1 of 1)") == 1 and "ended with" not in err, err  # what comes and goes is no failure, but for who falls silent


def test_machines_whose_ranks_are_seldom_looked_at():
    options = elastic(free_port(), "2:3", "--monitor-interval", 6,
                      conf="last_call_timeout=0,keep_alive_interval=1,keep_alive_max_attempt=2")
    both = [start(*options, *shell("sleep 5; echo $RANK")) for _ in range(2)]
    results = [(*p.communicate(timeout=60), p.returncode) for p in both]
    assert sorted(results) == [("[0] 0\n", "", 0), ("[1] 1\n", "", 0)], results


def test_machines_that_go_before_they_begin(tmp_path):
    """Launchers that are told to end while they wait for others, and while they wait for room."""
    program = shell(f"echo $RANK of $WORLD_SIZE; touch {tmp_path}/here_$RANK; while [ ! -e {tmp_path}/end ]; do sleep 0.05; done")
    port = free_port()
    a = start(*elastic(port, "2:4", conf="last_call_timeout=4"), *program)
    time.sleep(0.5)
    b, c = (start(*elastic(port, "2:4", conf="last_call_timeout=4"), *program) for _ in range(2))
    time.sleep(1)
    b.terminate()
    assert b.wait(20) == 128 + signal.SIGTERM
    wait_for(lambda: all((tmp_path / f"here_{r}").exists() for r in (0, 1)))
    time.sleep(1)  # who has gone is not taken for one that waits
    (tmp_path / "end").touch()
    results = [(*p.communicate(timeout=60), p.returncode) for p in (a, b, c)]
    assert results == [("[0] 0 of 2\n", "", 0), ("", "", 143), ("[1] 1 of 2\n", "", 0)], results
    # A spare, whose place nobody waits for when a member goes.
    for file in tmp_path.iterdir():
        file.unlink()
    port = free_port()
    options = elastic(port, "1:2", conf="last_call_timeout=30")
    a = start(*options, *program)
    time.sleep(0.5)
    b = start(*options, *program)
    wait_for(lambda: all((tmp_path / f"here_{r}").exists() for r in (0, 1)))
    spare = start(*options, *program)
    time.sleep(1)
    spare.terminate()
    assert spare.wait(20) == 128 + signal.SIGTERM
    before = time.monotonic()
    (tmp_path / "here_0").unlink()
    b.terminate()
    wait_for((tmp_path / "here_0").exists, 20)
    assert time.monotonic() - before < 20
    (tmp_path / "end").touch()
    results = [(*p.communicate(timeout=60), p.returncode) for p in (a, b, spare)]
    assert [code for *_, code in results] == [0, 143, 143] and results[0][0] == "[0] 0 of 2\n[0] 0 of 1\n", results


def test_failures_of_machines_that_may_come_and_go(tmp_path):
    port = free_port()
    program = shell("sleep 0.3; [ $RANK = 1 ] && exit 7; exec sleep 60")
    both = [start(*elastic(port, "1:2", "--max-restarts", 1), *program) for _ in range(2)]
    results = [(*p.communicate(timeout=60), p.returncode) for p in both]
    assert sorted(code for *_, code in results) == [1, 7], results
    assert all(err.count("ended with exit code 7") == 2 and err.count("(1 of 1)") == 1 for _, err, _ in results), results
    # Fewer than the least come.
    alone = start(*elastic(free_port(), "2:3", conf="timeout=1"), *shell("echo never"))
    out, err = alone.communicate(timeout=60)
    assert alone.returncode == 1 and out == "" and "the other machines did not come in 1 s" in err, err
    # Who is not needed waits, and ends with the others.
    port = free_port()
    three = [start(*elastic(port, "1:2"), *shell("sleep 1.5; echo $RANK")) for _ in range(3)]
    results = [(*p.communicate(timeout=60), p.returncode) for p in three]
    assert sorted(out for out, *_ in results) == ["", "[0] 0\n", "[1] 1\n"] and all(code == 0 for *_, code in results), results
    # So it does when their job has failed.
    port = free_port()
    three = [start(*elastic(port, "1:2"), *shell("sleep 1.5; exit 3")) for _ in range(3)]
    results = [(*p.communicate(timeout=60), p.returncode) for p in three]
    assert sorted(code for *_, code in results)[0] == 1, results
    assert sum("has failed on the other machines" in err for _, err, _ in results) == 1, results


@needs_gloo
def test_ranks_start_again_in_a_fresh_store(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("""
import os, sys
import arete, arete.distributed as dist
dist.init_process_group()
x = arete.ones(1)
dist.all_reduce(x)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.group.WORLD._store.set("once", "here")
print("sum", x.item(), "in attempt", attempt, flush=True)
if attempt == 0 and dist.get_rank() == 1:
    raise SystemExit(4)
dist.barrier()
dist.destroy_process_group()
""")
    code, out, err = run("--standalone", "--nproc-per-node", 2, "--max-restarts", 2, "--python", sys.executable, script)
    assert code == 0, err
    assert out == [f"[{r}] sum 2.0 in attempt {n}" for r in (0, 1) for n in (0, 1)]
    assert re.search(r"arete run: rank 1 \(process \d+\) ended with exit code 4; the others were ended\n", err), err
    assert re.search(r"rank 1 \(node \S+, pid \d+\) has ended", err), err


def test_outputs(tmp_path):
    program = shell("echo out $LOCAL_RANK; echo err $LOCAL_RANK >&2")
    code, out, err = run("--standalone", "--nproc-per-node=3", "--log-dir", tmp_path, "--redirects", "0:1,1:3", "--tee", "2:2",
                         "--local-ranks-filter", "0,2", *program)
    assert (code, out, sorted(err.splitlines())) == (0, ["[2] out 2"], ["[0] err 0", "[2] err 2"])
    files = {str(p.relative_to(next(tmp_path.iterdir()))): p.read_text() for p in tmp_path.rglob("*.log")}
    assert files == {"attempt_0/0/stdout.log": "out 0\n", "attempt_0/1/stdout.log": "out 1\n", "attempt_0/1/stderr.log": "err 1\n",
                     "attempt_0/2/stderr.log": "err 2\n"}


def test_processors_of_ranks():
    allowed = os.sched_getaffinity(0)
    show = f"{sys.executable} -c 'import os; print(*sorted(os.sched_getaffinity(0)))'"
    for binding in ("node", "exclusive"):
        code, out, err = run("--standalone", "--nproc-per-node", 2, "--numa-binding", binding, *shell(show))
        if binding == "exclusive" and code == 1:  # with one core
            assert "fewer cores than processes" in err, err
            continue
        one, two = ({int(n) for n in line.split()[1:]} for line in sorted(out))
        assert code == 0 and one and two and one | two <= allowed and (binding == "node" or not one & two), (out, err)


def test_refusals():
    for options, text in [(["--nnodes", "1:4"], "needs --rdzv-backend=c10d"), (["--nnodes", "3:2"], "a number was expected"),
                          (["--nnodes", "1:2", "--rdzv-backend", "c10d", "--node-rank", "0"], "no numbers of machines"),
                          (["--nnodes", "x"], "a number was expected"),
                          (["--rdzv-backend", "etcd"], "no such rendezvous"), (["--start-method", "spawn"], "by fork and exec"),
                          (["--numa-binding", "near"], "no such binding"), (["--redirects", "4"], "outputs of ranks"),
                          (["--tee", "1:2"], "outputs of ranks"), (["--local-ranks-filter", "a"], "outputs of ranks"),
                          (["--rdzv-conf", "a=b"], "no such setting"), (["--unheard-of"], "there is no such option"),
                          (["--nnodes", "2", "--node-rank", "2"], "there is no such node")]:
        code, _, err = run(*options, *shell("echo never"))
        assert code == 1 and text in err, (options, err)


def test_a_port_that_is_taken():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        code, _, err = run("--nproc-per-node", 2, "--master-port", s.getsockname()[1], *shell("echo never"))
    assert code == 1 and "EADDRINUSE" in err and "another program has the port" in err, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_all_ranks(tmp_path, number):
    process = start("--standalone", "--nproc-per-node", 2, *shell(
        f"trap 'touch {tmp_path}/told_$RANK' USR1; trap 'touch {tmp_path}/ended_$RANK; exit 1' TERM INT; touch {tmp_path}/here_$RANK; "
        "while :; do sleep 0.05; done"))

    def wait_for(name):
        end = time.monotonic() + 60
        while not all((tmp_path / f"{name}_{r}").exists() for r in (0, 1)):
            assert time.monotonic() < end, name
            time.sleep(0.02)

    wait_for("here")
    process.send_signal(signal.SIGUSR1)
    wait_for("told")
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    process.communicate()
    wait_for("ended")


def test_no_rank_is_left_behind_by_a_killed_launcher(tmp_path):
    process = start("--standalone", "--nproc-per-node", 2, *shell(f"echo $$ > {tmp_path}/pid_$RANK.new; "
                                                                  f"mv {tmp_path}/pid_$RANK.new {tmp_path}/pid_$RANK; exec sleep 100"))
    files = [tmp_path / f"pid_{r}" for r in (0, 1)]
    end = time.monotonic() + 60
    while not all(f.exists() for f in files):
        assert time.monotonic() < end
        time.sleep(0.02)
    process.kill()
    process.wait()
    process.communicate()
    for f in files:
        stat = pathlib.Path(f"/proc/{f.read_text().strip()}/stat")
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < end
            time.sleep(0.02)


RECORDED = """
import os, sys, time
import arete, arete.distributed as dist
from arete.distributed.elastic.multiprocessing.errors import record
@record
def main():
    dist.init_process_group()
    dist.all_reduce(arete.ones(4))
    if sys.argv[1:] == ["kill"] and dist.get_rank() == 1:
        os.kill(os.getpid(), 9)
    if sys.argv[1:] == ["raise"] and dist.get_rank() == 1:
        raise RuntimeError("on purpose")
    dist.all_reduce(arete.ones(5))
    dist.barrier()
main()
"""


@needs_gloo
def test_the_culprit_is_named(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "records"
    script.write_text(RECORDED)
    more = {"env": {**os.environ, "TORCHELASTIC_ERROR_FILE": "/nowhere"}}
    code, _, err = run("--standalone", "--nproc-per-node", 3, "--python", sys.executable, script, "raise", **more)
    assert code == 1
    assert re.search(r"arete run: rank 1 \(node \S+, pid \d+\) has ended by RuntimeError: on purpose before all_reduce #2 of group "
                     r"default_pg_0 \(float32\[5\]\); ranks 0, 2 wait since", err), err
    assert re.search(r"arete run: rank 1 \(process \d+\) ended with exit code 1: RuntimeError: on purpose; the others", err), err
    code, _, err = run("--standalone", "--nproc-per-node", 3, "--diagnose", folder, "--python", sys.executable, script, "kill")
    assert code == 137
    report = r"rank 1 \(node \S+, pid \d+\) was ended by signal SIGKILL before all_reduce #2"
    assert len(re.findall("arete run: " + report, err)) == 1, err
    # Those that waited say it, too: their exceptions.
    assert re.findall(r"\[[02]\] .*DistBackendError: " + report, err), err
    assert sorted(p.name for p in folder.iterdir()) == ["rank_0.json", "rank_2.json"]
    assert json.loads((folder / "rank_0.json").read_text())["entries"][-1]["state"] in ("failed", "started")
    assert re.search(r"rank 0 .*: group default_pg_0, 1 of 2 collectives done, (failed )?in all_reduce #2 \(float32\[5\]\)", err), err
    code, out, _ = run("--diagnose", folder)
    assert code == 0 and any("rank 1 has left no record" in line for line in out), out


def test_the_modules_are_the_same_program(tmp_path):
    for name in ("run", "launch"):
        done = subprocess.run([sys.executable, "-m", f"arete.distributed.{name}", "--standalone", *shell("echo here")], capture_output=True,
                              text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "[0] here\n"), done.stderr


def test_parsed_options(tmp_path, capfd):
    """torchrun's parser, whose options programs that launch others fill in."""
    from arete.distributed import run as runner
    from arete.distributed.elastic.multiprocessing.errors import ChildFailedError

    program = tmp_path / "p.py"
    program.write_text("import os, sys\nprint(os.environ['RANK'], os.environ['WORLD_SIZE'], sys.argv[1:])\n"
                       "sys.exit(int(sys.argv[1]) if os.environ['RANK'] == '1' else 0)\n")
    parser = runner.get_args_parser()
    args = parser.parse_args(["--nproc_per_node=2", "--standalone", "--max-restarts", "0", str(program), "0", "--lr=1"])
    assert (args.nnodes, args.standalone, args.training_script_args) == ("1:1", True, ["0", "--lr=1"])
    runner.run(args)
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] 0 2 ['0', '--lr=1']", "[1] 1 2 ['0', '--lr=1']"]
    args.training_script_args = ["3"]
    with pytest.raises(ChildFailedError, match="exit code 3"):
        runner.run(args)
    with pytest.raises(ChildFailedError), socket.socket() as taken:  # of several machines the numbers come from c10d
        taken.bind(("127.0.0.1", 0))
        runner.run(parser.parse_args(["--nnodes=1:4", f"--rdzv-endpoint=127.0.0.1:{taken.getsockname()[1]}", str(program)]))
    assert "needs --rdzv-backend=c10d" in capfd.readouterr().err
    for option in ("--virtual-local-rank", "--run-path"):
        with pytest.raises(NotImplementedError):
            runner.run(parser.parse_args([option, str(program)]))
