"""Groups of processes: the same program by Arete and PyTorch, stores that both share, faults, launchers."""
import json
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from peer import peer

import arete

dist = arete.distributed
torch = peer()
torch_dist = peer("torch.distributed")
HERE = pathlib.Path(__file__).resolve().parent

needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="built without Gloo")


def run_ranks(tmp_path, size, body, **more):
    """Runs a program as each rank of a group that meets in a file; gives what each printed, and ended with."""
    program = f"""
import arete, os, sys, time
from datetime import timedelta
import arete.distributed as dist
rank, size = int(sys.argv[1]), {size}
arete.set_num_threads(1)
def start(seconds=60, backend="gloo"):
    dist.init_process_group(backend, "file://{tmp_path}/store", timedelta(seconds=seconds), size, rank)
""" + body
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(r)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              **more) for r in range(size)]
    return [(p.communicate(timeout=120)[0], p.returncode) for p in ranks]


@needs_gloo
def test_all_functions_agree_with_torch(tmp_path):
    torch.ones(1)  # skips where PyTorch is not installed
    size, results = 3, {}
    runs = {}
    for name in ("arete", "torch"):
        (tmp_path / name).mkdir()
        runs[name] = subprocess.Popen([sys.executable, HERE / "distributed_program.py", name, str(size), tmp_path / name],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for name, process in runs.items():
        out = process.communicate(timeout=240)[0]
        assert process.returncode == 0, out
        results[name] = [json.loads((tmp_path / name / str(r)).read_text()) for r in range(size)]
    for rank in range(size):
        ours, theirs = results["arete"][rank], results["torch"][rank]
        assert ours[-1][0] == "end" and theirs[-1][0] == "end", (ours[-1], theirs[-1])
        assert [name for name, _ in ours] == [name for name, _ in theirs]
        assert [(a, b) for a, b in zip(ours, theirs) if a != b] == []


# ---- stores


def use_both(a, b):
    """What two stores with the same keys say to each other."""
    said = [a.set("k", "text"), b.get("k"), b.set("bytes", "\0x"), a.get("bytes"), a.add("n", 3), b.add("n", -5), b.get("n"),
            a.check(["k", "n"]), a.check(["none"]), a.compare_set("c", "", "1"), b.compare_set("c", "0", "2"), b.compare_set("c", "1", "2"),
            a.get("c"), a.delete_key("k"), b.delete_key("k"), b.check(["k"])]
    a.wait(["n", "c"], timedelta(seconds=5))
    later = threading.Timer(0.05, lambda: b.set("late", "here"))
    later.start()
    said.append(a.get("late"))
    later.join()
    return said


EXPECTED = [None, b"text", None, b"\0x", 3, -2, b"-2", True, False, b"1", b"1", b"2", b"2", True, False, False, b"here"]


def test_stores(tmp_path):
    server = dist.TCPStore("localhost", 0, is_master=True)
    hash_store = dist.HashStore()
    for a, b in [(server, dist.TCPStore("127.0.0.1", server.port)), (hash_store, hash_store),
                 (dist.PrefixStore("p", hash_store), dist.PrefixStore("p", hash_store)),
                 (dist.FileStore(str(tmp_path / "f"), 2), dist.FileStore(str(tmp_path / "f"), 2))]:
        assert use_both(a, b) == EXPECTED
        a.append("n", "0")
        a.multi_set(["x", "y"], ["1", b"2"])
        assert b.get("n") == b"-20" and b.multi_get(["x", "y"]) == [b"1", b"2"]
        with pytest.raises(dist.DistStoreError, match="wait timeout after 20ms, keys: .*none"):
            a.wait(["none"], timedelta(milliseconds=20))
        a.set_timeout(timedelta(milliseconds=30))
        assert a.timeout == timedelta(milliseconds=30)
        with pytest.raises(dist.DistError, match="none"):
            a.get("none")
        a.set_timeout(timedelta(minutes=1))
    assert issubclass(dist.DistError, RuntimeError)


@pytest.mark.parametrize("server", ["ours", "theirs"])
def test_tcp_store_speaks_with_torchs(server):
    make = {"ours": dist.TCPStore, "theirs": torch_dist.TCPStore}
    other = {"ours": torch_dist.TCPStore, "theirs": dist.TCPStore}[server]
    a = make[server]("127.0.0.1", 0, world_size=2, is_master=True, wait_for_workers=False)
    b = other("127.0.0.1", a.port, world_size=2, wait_for_workers=True)
    assert use_both(a, b) == EXPECTED
    assert use_both(b, a)[:1] + use_both(b, a)[-1:] == [None, b"here"]
    b.append("t", "ab")
    b.num_keys()  # torch's do not wait until the server has it
    a.append("t", "c")
    b.multi_set(["x", "y"], ["1", "2"])
    b.num_keys()
    assert a.get("t") == b"abc" and b.multi_get(["y", "x"]) == [b"2", b"1"] == a.multi_get(["y", "x"])
    assert a.num_keys() == b.num_keys()
    with pytest.raises(RuntimeError, match="wait timeout after 30ms"):
        b.wait(["never"], timedelta(milliseconds=30))
    b.set("after", "1")
    assert a.get("after") == b"1"


def test_stores_of_torch_that_arete_has_no_functions_for():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    client = torch_dist.TCPStore("127.0.0.1", server.port)
    client.queue_push("q", "v")
    assert client.queue_len("q") == 1 and client.queue_pop("q") == b"v" and client.queue_len("q") == 0
    client.set("k", "v")
    assert client.list_keys() == ["k"]


@pytest.mark.parametrize("ours_first", [True, False])
def test_file_store_shares_a_file_with_torchs(tmp_path, ours_first):
    kinds = [dist.FileStore, torch_dist.FileStore]
    first, second = kinds if ours_first else kinds[::-1]
    a, b = first(str(tmp_path / "f"), 2), second(str(tmp_path / "f"), 2)
    said = use_both(a, b)
    said[14] &= not ours_first  # torch's says that it deleted what was not there
    assert said == EXPECTED


def test_waiting_lets_other_threads_run():
    store = dist.HashStore()
    threading.Timer(0.05, lambda: store.set("k", "v")).start()
    assert store.get("k") == b"v"


# ---- groups


def test_a_world_of_one():
    dist.init_process_group("store", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = arete.ones(3, requires_grad=True)
        with arete.no_grad():
            dist.all_reduce(x)
        version = x._version
        work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
        assert work.wait() is True and work.is_completed() and work.is_success() and work.exception() is None
        assert x._version > version and x.is_leaf
        y = arete.ones(2)
        dist.all_reduce(y, dist._make_nccl_premul_sum(0.5))
        assert y.tolist() == [0.5, 0.5]
        assert dist.group.WORLD.size() == 1 and dist.get_backend() == "store" and dist.get_node_local_rank(3) == 3
        group = dist.new_group()
        assert dist.get_rank(group) == 0
        dist.destroy_process_group(group)
        with pytest.raises(ValueError, match="Invalid process group"):
            dist.destroy_process_group(group)
        with pytest.raises(TypeError, match="Cannot use ReduceOp.BAND with tensors of float32"):
            dist.all_reduce(y, dist.ReduceOp.BAND)
        with pytest.raises(ValueError, match="world_size times input tensor size"):
            dist.all_gather_into_tensor(arete.zeros(3), y)
        assert arete.utils.data.DistributedSampler(range(4)).num_replicas == 1
    finally:
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        dist.all_reduce(arete.ones(1))


def test_values():
    assert dist.ReduceOp.SUM == dist.ReduceOp.SUM != dist.ReduceOp.MAX and repr(dist.ReduceOp.AVG) == "<RedOpType.AVG: 1>"
    assert pickle.loads(pickle.dumps(dist.ReduceOp.BXOR)) == dist.ReduceOp.BXOR
    assert dist.GroupMember.WORLD is None and dist.is_available() and not dist.is_nccl_available()
    with pytest.raises(dist.DistBackendError, match="doesn't have NCCL built in"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(ValueError, match="Invalid ``op``"):
        dist.P2POp(print, arete.ones(1), 0)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        assert name not in os.environ
    with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
        dist.init_process_group()
    with pytest.raises(ValueError, match="rank parameter missing"):
        dist.init_process_group(init_method="tcp://localhost:0")


def test_a_rank_outside_of_a_group_is_warned():
    dist.init_process_group("fake", rank=2, world_size=4)
    try:
        group = dist.new_group([0, 1])
        assert group is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(group) == -1
        with pytest.warns(UserWarning, match="Running all_reduce on global rank 2 which does not belong"):
            assert dist.all_reduce(arete.ones(1), group=group) is None
    finally:
        dist.destroy_process_group()


# ---- faults


@needs_gloo
def test_the_others_hear_of_a_death(tmp_path):
    results = run_ranks(tmp_path, 3, """
start()
dist.barrier()
if rank == 2:
    os._exit(7)
begin = time.monotonic()
try:
    for _ in range(100): dist.all_reduce(arete.ones(1000))
except dist.DistBackendError as e:
    print("heard" if time.monotonic() - begin < 30 else "late")
""")
    assert results[2][1] == 7
    assert [out.split()[-1] for out, _ in results[:2]] == ["heard"] * 2, results


@needs_gloo
def test_one_that_does_not_come(tmp_path):
    results = run_ranks(tmp_path, 2, """
start(seconds=20)
dist.barrier()
if rank == 1:
    time.sleep(1.5)
else:
    try:
        dist.monitored_barrier(timeout=timedelta(milliseconds=200))
    except RuntimeError as e:
        print(e)
    dist.group.WORLD._set_timeout(timedelta(milliseconds=300))
    work = dist.all_reduce(arete.ones(2), async_op=True)
    try:
        work.wait()
    except dist.DistBackendError as e:
        print("second", work.is_completed(), work.is_success(), type(work.exception()).__name__)
os._exit(0)
""")
    assert "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 200 ms" in results[0][0]
    assert "second True False DistBackendError" in results[0][0], results[0][0]


def run_alone(body):
    """Runs the program of one rank of two whose other one never comes."""
    program = """
import arete, gc, os, signal, sys, threading, time
from datetime import timedelta
import arete.distributed as dist
dist.init_process_group("store", store=dist.HashStore(), rank=0, world_size=2, timeout=timedelta(seconds=100))
""" + body
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)


def test_a_group_ends_while_threads_hold_memory_of_python():
    done = run_alone("""
group = dist.group.WORLD
work = dist.irecv(arete.frombuffer(bytearray(64), dtype=arete.float32), 1)
del work
dist.destroy_process_group()
del group
gc.collect()
print("ended")
""")
    assert done.returncode == 0 and done.stdout == "ended\n", (done.stdout, done.stderr)


def test_waiting_is_interrupted():
    done = run_alone("""
work = dist.irecv(arete.zeros(2), 1)
try:
    work.wait(timedelta(milliseconds=250))
except RuntimeError as e:
    print(e)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    work.wait()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin < 20)
sys.stdout.flush()
os._exit(0)
""")
    assert done.stdout.splitlines() == ["Operation timed out! It did not complete within 250 ms", "interrupted True"], done.stderr


def test_numbers_of_operations():
    operation = type(dist.ReduceOp.SUM)
    assert operation(0) == dist.ReduceOp.SUM
    for kind in (-1, 9, 1000):
        with pytest.raises(ValueError, match="no such kind"):
            operation(kind)


def test_nobody_at_the_address():
    begin = time.monotonic()
    with pytest.raises(dist.DistNetworkError, match="The client socket has timed out after 300ms"):
        dist.init_process_group(init_method="tcp://127.0.0.1:1", rank=1, world_size=2, timeout=timedelta(milliseconds=300))
    assert time.monotonic() - begin < 20
    assert not dist.is_initialized()


def test_no_group_is_ended_by_the_end_of_the_program(tmp_path):
    for out, code in run_ranks(tmp_path, 2, """
start(backend="store")
x = arete.ones(2)
dist.all_reduce(x)
print(x.tolist())
"""):
        assert (out.strip(), code) == ("[2.0, 2.0]", 0), out


# ---- launchers

LAUNCHED = """
import os, sys, time
import arete, arete.distributed as dist
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and dist.get_node_local_rank() == int(os.environ["LOCAL_RANK"])
x = arete.tensor([rank + 1])
dist.all_reduce(x)
print(" ".join(["sum", str(x.item()), *sys.argv[1:]]), flush=True)  # at once: ranks share the output
if sys.argv[1:] == ["die"]:
    if rank == 1:
        os.kill(os.getpid(), 9)
    time.sleep(60)
if sys.argv[1:] == ["raise"] and rank == 1:
    raise RuntimeError("on purpose")
dist.destroy_process_group()
"""


def launch(tmp_path, *arguments, options=("--standalone", "--nproc-per-node", "2"), program=None, files=None):
    arete_program = os.environ.get("ARETE_PROGRAM")
    if not arete_program:
        pytest.skip("ARETE_PROGRAM does not name the program arete")
    script = tmp_path / "script.py"
    script.write_text(LAUNCHED)
    limit = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"] if files else []
    return subprocess.run([*limit, arete_program, "run", *options, *(program or ["--python", sys.executable, script]), *arguments],
                          capture_output=True, text=True, timeout=120)


@needs_gloo
def test_run_starts_all_ranks(tmp_path):
    done = launch(tmp_path, "--an", "argument")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{r}] sum 3 --an argument" for r in range(2)]


@needs_gloo
@pytest.mark.parametrize("how, code, text", [("die", 137, "ended with signal SIGKILL"), ("raise", 1, "ended with exit code 1")])
def test_run_ends_all_if_one_fails(tmp_path, how, code, text):
    begin = time.monotonic()
    done = launch(tmp_path, how)
    assert done.returncode == code and time.monotonic() - begin < 50
    assert "arete run: rank 1 (process " in done.stderr and text in done.stderr, done.stderr
    assert how == "die" or "[1] RuntimeError: on purpose" in done.stderr


def test_run_of_other_programs(tmp_path):
    done = launch(tmp_path, options=["--nproc_per_node", "2", "--standalone", "--no-python"],
                  program=["sh", "-c", "echo $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR; printf end"])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 0 2 127.0.0.1", "[0] end", "[1] 1 1 2 127.0.0.1", "[1] end"]
    for options, program, text in [(["--nproc-per-node", "none"], ["x"], "a number of processes"),
                                   (["--no-python"], ["/none"], "cannot be started"), (["--nnodes", "2"], ["x"], "one node")]:
        done = launch(tmp_path, options=["--standalone", *options], program=program)
        assert done.returncode == 1 and text in done.stderr, done.stderr


def test_run_ends_what_it_started_if_more_cannot_be(tmp_path):
    trap = f"trap 'sleep 0.5; touch {tmp_path}/ended_$RANK; exit 1' TERM; while :; do sleep 0.1; done"
    # Each rank takes two of the files that may be open.
    done = launch(tmp_path, options=["--standalone", "--nproc-per-node", "30", "--no-python"], program=["sh", "-c", trap], files=40)
    assert done.returncode == 1 and "no pipe" in done.stderr, done.stderr
    assert (tmp_path / "ended_0").exists()


def test_torchrun_starts_a_program(tmp_path):
    torch.ones(1)  # skips where PyTorch is not installed
    script = tmp_path / "script.py"
    script.write_text(LAUNCHED)
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script],
                          capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("sum 3") == 2
