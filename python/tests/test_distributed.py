"""Groups of processes: the same program by Arete and PyTorch, stores that both share, faults, launchers."""
import gc
import json
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta

import fake_gpus
import pytest
from device_helpers import without_gpus
from peer import peer

import arete

dist = arete.distributed
torch = peer()
torch_dist = peer("torch.distributed")
HERE = pathlib.Path(__file__).resolve().parent

needs_gloo = pytest.mark.skipif(not dist.is_gloo_available(), reason="built without Gloo")


def run_ranks(tmp_path, size, body, **more):
    """Runs a program as each rank of a group that meets in a file, without GPUs unless `env` has some; gives what each printed, and
    ended with."""
    program = f"""
import arete, os, sys, time
from datetime import timedelta
import arete.distributed as dist
rank, size = int(sys.argv[1]), {size}
arete.set_num_threads(1)
def start(seconds=60, backend="gloo"):
    dist.init_process_group(backend, "file://{tmp_path}/store", timedelta(seconds=seconds), size, rank)
def sign(name):
    open("{tmp_path}/" + name, "w").close()
def after(name, seconds=0):
    "So long after another rank has given the sign."
    while not os.path.exists("{tmp_path}/" + name):
        time.sleep(0.01)
    time.sleep(seconds)
""" + body
    more.setdefault("env", without_gpus())
    ranks = [subprocess.Popen([sys.executable, "-c", program, str(r)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              **more) for r in range(size)]
    return [(p.communicate(timeout=120)[0], p.returncode) for p in ranks]


def test_a_barrier_says_which_gpu_a_process_has(tmp_path):
    body = """
start(backend="nccl")
def error(device):
    try:
        dist.barrier(device_ids=[device])
    except arete.DeviceError as e:
        return str(e)
assert "7" in error(7)
dist.barrier(device_ids=[1 - rank])
home = dist.group.WORLD._home
assert home == arete.device("cuda", 1 - rank) and arete.cuda.current_device() == 0, home
assert "a group has one GPU in each process" in error(rank)
x = arete.ones(2, device=home) * (rank + 1)
dist.all_reduce(x)
dist.barrier()
print(x.tolist())
dist.destroy_process_group()
"""
    environment = {**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin()}
    for out, code in run_ranks(tmp_path, 2, body, env=environment):
        assert code == 0 and out == "[3.0, 3.0]\n", out


def test_the_first_gpu_is_a_choice_like_others(tmp_path):
    """Who has called set_device(0) has that GPU in groups and meshes; blocks for a while choose nothing."""
    body = """
start(backend="nccl")
with arete.cuda.device(1 - rank):
    pass
arete.randn(2, device="cuda:1")
assert dist.group.WORLD._home == arete.device("cuda", rank)  # nobody has chosen
arete.cuda.set_device(1 - rank)
assert dist.group.WORLD._home == arete.device("cuda", 1 - rank)
mesh = dist.init_device_mesh("cuda", (2,))
assert arete.cuda.current_device() == 1 - rank
dist.barrier()
x = arete.ones(2, device="cuda") * (rank + 1)
dist.all_reduce(x, group=mesh.get_group())
print(x.tolist(), x.device.index + rank)
dist.destroy_process_group()
"""
    environment = {**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin()}
    for out, code in run_ranks(tmp_path, 2, body, env=environment):
        assert code == 0 and out == "[3.0, 3.0] 1\n", out


def test_a_mesh_that_makes_the_default_group_keeps_to_the_chosen_gpu(tmp_path):
    """init_device_mesh() takes the local rank's GPU where the program has chosen none."""
    body = """
os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK=os.environ["LOCAL"], MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
if os.environ["CHOICE"]:
    arete.cuda.set_device(int(os.environ["CHOICE"]))
dist.init_device_mesh("cuda", (1,))
print(arete.cuda.current_device())
"""
    for local, choice, gpu in (("1", "", 1), ("0", "1", 1), ("1", "0", 0)):
        environment = {**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "LOCAL": local, "CHOICE": choice}
        assert run_ranks(tmp_path, 1, body, env=environment) == [(f"{gpu}\n", 0)], (local, choice)


@needs_gloo
@pytest.mark.parametrize("gpus", [False, True])
def test_waits_for_other_threads_and_streams_are_none_of_the_host_for_gpus(tmp_path, gpus):
    """cuda.set_sync_debug_mode("error") lets host tensors wait for Gloo, and streams for calls of tensors of GPUs."""
    body = f"""
start(backend="cpu:gloo,cuda:nccl" if {gpus} else "gloo")
if {gpus}:
    arete.cuda.set_device(rank)
x, y = arete.ones(4, device="cuda" if {gpus} else "cpu"), arete.ones(3)
dist.all_reduce(x)
arete.cuda.set_sync_debug_mode("error")
if rank == 1:
    after("waits", 0.5)
for t in (x, y):
    dist.all_reduce(t, async_op=True)
begun = time.monotonic()
if rank == 0:
    sign("waits")
twice = x * 2
print(y.tolist())
assert rank == 1 or time.monotonic() - begun > 0.4
arete.cuda.set_sync_debug_mode("default")
print(twice.tolist())
dist.destroy_process_group()
"""
    environment = {**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin() if gpus else "/nowhere"}
    for out, code in run_ranks(tmp_path, 2, body, env=environment):
        assert code == 0 and out == "[2.0, 2.0, 2.0]\n[8.0, 8.0, 8.0, 8.0]\n", out


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


@pytest.mark.parametrize("backend", [None, "gloo", "cpu:gloo"])
def test_names_of_backends_agree_with_torch(backend):
    torch.ones(1)
    for d in (dist, torch_dist):
        d.init_process_group(backend, store=d.HashStore(), rank=0, world_size=1)
    try:
        assert dist.get_backend() == torch_dist.get_backend() == dist.get_backend(dist.new_group())
        for device in ("cpu", "cuda:1"):
            assert dist.get_default_backend_for_device(device) == torch_dist.get_default_backend_for_device(device)
        assert dist.get_backend_config().startswith("cpu:gloo")
    finally:
        dist.destroy_process_group()
        torch_dist.destroy_process_group()


@needs_gloo
def test_tensors_of_gpus(tmp_path):
    # GPUs that are none, with Gloo in NCCL's place, whose own stream is late: what does not wait sees old values.
    plugin = fake_gpus.plugin()
    ranks = [subprocess.Popen([sys.executable, HERE / "nccl_program.py", "arete", "exchanges,messages,streams,groups"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**os.environ, "ARETE_CUDA_PLUGIN": plugin, "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": "2",
                                   "OMP_NUM_THREADS": "1", "ARETE_TEST_MEETING": f"file://{tmp_path}/store"}) for r in range(2)]
    for rank, process in enumerate(ranks):
        out = process.communicate(timeout=120)[0]
        assert process.returncode == 0 and f"rank {rank} of 2: 16" in out, out


@needs_gloo
def test_a_call_of_gpus_that_does_not_end_becomes_an_error(tmp_path):
    body = """
start(backend="cpu:gloo,cuda:nccl")
arete.cuda.set_device(rank)
x = arete.ones(4, device="cuda")
dist.all_reduce(x)
assert x.tolist() == [2.0] * 4
group = dist.new_group()
dist.all_reduce(x, group=group)
if rank == 0:
    group._set_timeout(timedelta(seconds=1))
    begun = time.monotonic()
    work = dist.all_reduce(arete.ones(7, device="cuda"), group=group, async_op=True)
    for call in (lambda: work.wait(timedelta(seconds=30)), lambda: dist.all_reduce(x, group=group)):
        try:
            call()
        except dist.DistBackendError as e:
            assert "all_reduce #2 of" in str(e) and "(float32[7]) on rank 0 did not complete within 1000 ms" in str(e), e
        else:
            raise AssertionError("it ended")
    assert work.is_completed() and not work.is_success() and "1000 ms" in str(work.exception())
    assert 0.9 < time.monotonic() - begun < 20
dist.barrier()
dist.all_reduce(x)
print(x.tolist())
"""
    for out, code in run_ranks(tmp_path, 2, body, env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin()}):
        assert code == 0 and out == "[8.0, 8.0, 8.0, 8.0]\n", out


@needs_gloo
def test_the_end_of_a_group_waits_for_what_is_under_way(tmp_path):
    body = """
start(backend="cpu:gloo,cuda:nccl")
arete.cuda.set_device(rank)
x, y = arete.ones(4, device="cuda"), arete.ones(3)
dist.all_reduce(x)
if rank == 1:
    after("waits", 2.3)
for t in (x, y):
    dist.all_reduce(t, async_op=True)
begun = time.monotonic()
if rank == 0:
    sign("waits")
dist.destroy_process_group()
assert rank == 1 or time.monotonic() - begun > 2.2
print(x.tolist(), y.tolist())
"""
    for out, code in run_ranks(tmp_path, 2, body, env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin()}):
        assert code == 0 and out == "[4.0, 4.0, 4.0, 4.0] [2.0, 2.0, 2.0]\n", out


@needs_gloo
def test_a_compiled_step_has_what_ranks_do_together(tmp_path):
    body = """
start()
def made():
    arete.manual_seed(0)
    net = arete.nn.Sequential(arete.nn.Linear(8, 16), arete.nn.Tanh(), arete.nn.Linear(16, 4))
    optimizer = arete.optim.Adam(net.parameters(), 1e-2)
    def step(x, y):
        optimizer.zero_grad()
        loss = dist.nn.functional.all_reduce((net(x) - y).square().mean(), dist.ReduceOp.AVG)
        loss.backward()
        works = [dist.all_reduce(p.grad, async_op=True) for p in net.parameters()]
        for p in net.parameters():
            p.grad *= 0.5
        optimizer.step()
        every = [arete.empty_like(loss) for _ in range(2)]
        dist.all_gather(every, loss.detach())
        flat = dist._functional_collectives.all_gather_tensor(x[:1], 0, dist.group.WORLD)
        return every[0] + every[1] * 0.5 + flat.sum()
    return net, step
(eager, plain), (net, step) = made(), made()
compiled = arete.compile(step)
draw = arete.Generator().manual_seed(rank)
for _ in range(5):
    x, y = arete.randn(6, 8, generator=draw), arete.randn(6, 4, generator=draw)
    a, b = plain(x, y), compiled(x, y)
    assert a.equal(b), (a, b)
    assert all(p.equal(q) for p, q in zip(eager.parameters(), net.parameters()))
arete.compile(step, fullgraph=True)(x, y)
@arete.compile(fullgraph=True)
def waits(x):
    dist.all_reduce(x)
    dist.barrier()
    return x
try:
    waits(x)
except ValueError as e:
    assert "barrier" in str(e), e
    print("refused")
"""
    for out, code in run_ranks(tmp_path, 2, body):
        assert code == 0 and out == "refused\n", out


def test_a_fake_group_knows_what_was_called():
    dist.init_process_group("fake", rank=1, world_size=4096)
    try:
        x, y = arete.ones(6, device="meta"), arete.ones(2)
        dist.all_reduce(x)
        dist.broadcast(y, 7, async_op=True).wait()
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 2), dist.P2POp(dist.irecv, y.int(), 4095)]):
            work.wait()
        dist.nn.functional.all_reduce(y, dist.ReduceOp.AVG)
        dist.reduce(y, 1, dist.ReduceOp.MAX)
        dist.barrier()
        assert dist.group.WORLD._recorded_calls() == [
            "all_reduce SUM float32[6]", "broadcast float32[2] from 7", "send float32[6] to 2", "recv int32[2] from 4095",
            "all_reduce AVG float32[2]", "reduce MAX float32[2] to 1", "barrier"]
        assert y.tolist() == [1, 1] and dist.get_pg_count() == 1
    finally:
        dist.destroy_process_group()


def test_parts_of_a_group():
    dist.init_process_group("fake", rank=5, world_size=8)
    try:
        mine = dist.split_group(split_ranks=[[6, 4, 5], [0, 1]])
        assert dist.get_process_group_ranks(mine) == [4, 5, 6]
        assert dist.get_process_group_ranks(dist.split_group(mine, [[0], [1, 2]])) == [5, 6]  # ranks of the group
        assert dist.split_group(split_ranks=[[0, 1]]) is None
        assert dist.new_group([1, 2], use_local_synchronization=True) is dist.GroupMember.NON_GROUP_MEMBER
        names = {dist.new_group([5, 6], use_local_synchronization=True).name() for _ in range(2)}
        assert len(names) == 2  # whatever else is made between them
        for wrong in (None, [], [[0, 1], [1, 2]], [[7, 8]]):
            with pytest.raises(ValueError):
                dist.split_group(split_ranks=wrong)
        with pytest.raises(NotImplementedError):
            dist.new_group(pg_options=object())
        with pytest.raises(AttributeError, match="no_such_name"):
            dist.distributed_c10d.no_such_name
        with pytest.raises(ValueError, match="each rank"):
            dist._functional_collectives.permute_tensor(arete.ones(2), [0] * 8, dist.group.WORLD)
    finally:
        dist.destroy_process_group()


def test_a_block_of_calls_and_the_store_of_the_group():
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    try:
        x, y = arete.ones(2), arete.ones(3)
        with dist._coalescing_manager(async_ops=True) as block:
            dist.all_reduce(x)
            block.append(dist.all_reduce(y, async_op=True))
        block.wait()
        assert len(block.works) == 1 and block.works[0].is_completed() and y.tolist() == [1, 1, 1]
        store = dist.distributed_c10d._get_default_store()
        store.set("key", "value")
        assert store.get("key") == b"value"
    finally:
        dist.destroy_process_group()


def test_a_mesh():
    dist.init_process_group("fake", rank=5, world_size=8)
    try:
        mesh = dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp"))
        assert [dist.get_process_group_ranks(mesh.get_group(d)) for d in ("pp", "dp", "tp")] == [[1, 5], [5, 7], [4, 5]]
        assert mesh.get_coordinate() == (1, 0, 1) and mesh["dp"].get_local_rank() == 0
        assert (mesh.ndim, mesh.size(), mesh.size(1)) == (3, 8, 2)
        part = mesh["dp", "tp"]
        assert part.mesh.tolist() == [[4, 5], [6, 7]] and part.get_group("tp") is mesh.get_group("tp")
        flat = part._flatten("flat")
        assert flat.mesh.tolist() == [4, 5, 6, 7] == dist.get_process_group_ranks(flat.get_group()) and mesh["flat"] is flat
        assert repr(mesh) == "DeviceMesh((pp=2, dp=2, tp=2), 'cpu', stride=(4, 2, 1))" and repr(dist.DeviceMesh("cpu", [4, 5])) == (
            "DeviceMesh((2,), 'cpu', stride=(1,))")
        assert mesh == dist.init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("pp", "dp", "tp")) != part
        for error, f in [(RuntimeError, mesh.get_group), (KeyError, lambda: mesh["x"]), (KeyError, lambda: mesh["tp", "dp"]),
                         (RuntimeError, lambda: mesh["dp", "dp"]),
                         (KeyError, lambda: mesh.get_group("x")), (RuntimeError, mesh.get_local_rank),
                         (RuntimeError, lambda: dist.init_device_mesh("cpu", (16,))),
                         (RuntimeError, lambda: dist.init_device_mesh("cuda:0", (8,))),
                         (RuntimeError, lambda: dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("a", "a"))),
                         (RuntimeError, lambda: dist.DeviceMesh("cpu", [4, 5])["a"])]:
            with pytest.raises(error):
                f()
        # Divided, of the whole and of a part, whose other dimensions keep their groups.
        world = dist.init_device_mesh("cpu", (8,), mesh_dim_names=("world",))
        made = world._unflatten(0, (2, 2, 2), ("pp", "dp", "tp"))
        assert made == mesh and dist.get_process_group_ranks(made.get_group("dp")) == [5, 7]
        finer = part._unflatten("tp", (1, 2), ("a", "b"), backend_override={"b": "store"})
        assert (finer.mesh.tolist(), finer.mesh_dim_names) == ([[[4, 5]], [[6, 7]]], ("dp", "a", "b"))
        assert finer.get_group("dp") is mesh.get_group("dp") and dist.get_process_group_ranks(finer.get_group("b")) == [4, 5]
        assert (dist.get_backend(finer.get_group("a")), dist.get_backend(finer.get_group("b"))) == ("fake", "store")
        finer = part._unflatten("tp", (1, 2), ("c", "d"), backend_override={-1: "store"})
        assert (dist.get_backend(finer.get_group("c")), dist.get_backend(finer.get_group("d"))) == ("fake", "store")
        assert dist.DeviceMesh._concatenate([mesh["pp"], mesh["tp"]]) == mesh["pp", "tp"]
        for error, text, f in [(ValueError, "size 8 into", lambda: world._unflatten(0, (2, 3), ("a", "b"))),
                               (RuntimeError, "mesh_dim_names", lambda: world._unflatten(0, (2, 4))),
                               (RuntimeError, "parts of one mesh", lambda: dist.DeviceMesh._concatenate([mesh["pp"], world])),
                               (NotImplementedError, "put together", lambda: dist.DeviceMesh._concatenate([mesh["pp"], flat])),
                               (NotImplementedError, "put together", lambda: flat._unflatten(0, (2, 2), ("a", "b"))),
                               (RuntimeError, "twice", lambda: dist.init_device_mesh("cpu", (8,), mesh_dim_names=("a",),
                                                                                     backend_override={"a": "store", 0: "store"})),
                               (IndexError, "no dimension 2",
                                lambda: part._unflatten("tp", (1, 2), ("e", "f"), backend_override={2: "store"})),
                               (IndexError, "no dimension 'dp'", lambda: part._unflatten("tp", (1, 2), ("g", "h"),
                                                                                         backend_override={"dp": "store"})),
                               (RuntimeError, "twice", lambda: part._unflatten("tp", (1, 2), ("i", "j"),
                                                                               backend_override={"j": "store", 1: "store"})),
                               (NotImplementedError, "no options", lambda: dist.init_device_mesh("cpu", (8,), backend_override={0: 1}))]:
            with pytest.raises(error, match=text):
                f()
    finally:
        dist.destroy_process_group()


@needs_gloo
def test_coalesced_calls(tmp_path):
    ranks = run_ranks(tmp_path, 2, """
start()
parts = [[arete.zeros(2), arete.zeros(1)] for _ in range(2)]
own = [arete.full((2,), float(rank)), arete.full((1,), rank + 5.0)]
assert dist.all_gather_coalesced(parts, own) is None
assert [[t.tolist() for t in p] for p in parts] == [[[0, 0], [5]], [[1, 1], [6]]]
future = dist.all_gather_coalesced(parts, [t * 2 for t in own], async_op=True)
assert future.wait() is parts and parts[1][1].item() == 12 and future.done()
future = dist.all_reduce_coalesced(own, async_op=True)
assert [t.tolist() for t in future.wait()] == [[1, 1], [11]] and future.wait()[1].item() == 11
# One message for each dtype; views of a wider tensor are written, too.
wide = arete.arange(6.0).reshape(2, 3) + rank
several = [wide[:, 1], arete.ones(3, dtype=arete.int32) * rank, wide[0, :1].requires_grad_(), arete.tensor(2, dtype=arete.int32)]
before = len(dist.flight_record()["entries"])
assert dist.all_reduce_coalesced(several) is None
assert len(dist.flight_record()["entries"]) == before + 2
assert wide.tolist() == [[1, 3, 2 + rank], [3 + rank, 9, 5 + rank]] and several[1].tolist() == [1] * 3 and several[3].item() == 4
given = [arete.full((2, 2), rank + 1.0).t(), arete.full((3,), rank, dtype=arete.int32), arete.tensor([rank + 7.0])]
table = arete.zeros(2, 4, 3)
to = [[table[r, 1:3, :2], arete.zeros(3, dtype=arete.int32), table[r, 0, :1]] for r in range(2)]
for async_op in (False, True):
    table.zero_()
    before = len(dist.flight_record()["entries"])
    future = dist.all_gather_coalesced(to, given, async_op=async_op)
    assert len(dist.flight_record()["entries"]) == before + 2 and (future is None or future.wait() is to)
    for r in range(2):
        assert table[r].tolist() == [[r + 7, 0, 0], [r + 1, r + 1, 0], [r + 1, r + 1, 0], [0] * 3] and to[r][1].tolist() == [r] * 3
for wrong in ([arete.zeros(2)], [arete.zeros(2), arete.zeros(3)], [arete.zeros(2, dtype=arete.int32), arete.zeros(1)]):
    try:
        dist.all_gather_coalesced([wrong] * 2, own)
    except ValueError as e:
        print(e)
dist.destroy_process_group()
""")
    said = ("each list of output_tensor_lists needs 2 tensors, one for each input, got 1\n"
            "output_tensor_lists: tensor 1 of each list must be like input 1, which has [1] of arete.float32 on cpu, "
            "got [3] of arete.float32 on cpu\n"
            "output_tensor_lists: tensor 0 of each list must be like input 0, which has [2] of arete.float32 on cpu, "
            "got [2] of arete.int32 on cpu\n")
    assert ranks == [(said, 0)] * 2, ranks


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


def use_queues(a, b, kind):
    for value in ("1", b"\0", "3"):
        a.queue_push("q", value)
    a.set("k", "v")
    assert b.queue_len("q") == 3 and b.queue_len("other") == 0 and b.check(["q", "k"])
    assert [b.queue_pop("q"), a.queue_pop("q", block=False), b.queue_pop("q")] == [b"1", b"\0", b"3"]
    assert b.queue_len("q") == 0 and not b.check(["q"])
    with pytest.raises(kind, match="queue is empty"):
        b.queue_pop("q", block=False)
    assert [k for k in a.list_keys() if k != "init/"] == ["k"]


@pytest.mark.parametrize("server", ["ours", "theirs"])
def test_queues_of_torchs_stores(server):
    one, other = (dist, torch_dist) if server == "ours" else (torch_dist, dist)
    a = one.TCPStore("127.0.0.1", 0, is_master=True)
    b = other.TCPStore("127.0.0.1", a.port)
    use_queues(a, b, other.QueueEmptyError)
    use_queues(b, a, one.QueueEmptyError)


def test_queues_of_stores(tmp_path):
    server, hash_store = dist.TCPStore("localhost", 0, is_master=True), dist.HashStore()
    for a, b in [(server, dist.TCPStore("127.0.0.1", server.port)), (hash_store, hash_store)]:
        use_queues(a, b, dist.QueueEmptyError)
        use_queues(dist.PrefixStore("p", a), dist.PrefixStore("p", b), dist.QueueEmptyError)
        got = []
        waits = threading.Thread(target=lambda b=b: got.extend((b.queue_pop("late"), b.queue_pop("late"))))
        waits.start()
        dist.PrefixStore("p", a).queue_push("late", "of another queue")
        a.queue_push("late", "1")
        a.queue_push("late", "2")
        waits.join(60)
        assert got == [b"1", b"2"] and b.queue_pop("p/late") == b"of another queue"
        a.set_timeout(timedelta(milliseconds=30))
        with pytest.raises(dist.DistStoreError, match="timeout after .*ms, keys: late") as error:
            a.queue_pop("late")
        assert not isinstance(error.value, dist.QueueEmptyError)
    assert issubclass(dist.QueueEmptyError, dist.DistStoreError)
    for function in (lambda s: s.queue_push("q", "v"), lambda s: s.queue_pop("q"), lambda s: s.queue_len("q"), lambda s: s.list_keys()):
        with pytest.raises(NotImplementedError, match="this store"):
            function(dist.FileStore(str(tmp_path / "f"), 2))


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
        with pytest.raises(ValueError, match="PREMUL_SUM has no factor"):
            dist.all_reduce(y, dist.ReduceOp.PREMUL_SUM)
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
    assert dist.GroupMember.WORLD is None and dist.is_available()
    if not dist.is_nccl_available():
        with pytest.raises(dist.DistBackendError, match="doesn't have NCCL built in"):
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        with pytest.raises(dist.DistBackendError):
            arete.cuda.nccl.version()
    with pytest.raises(ValueError, match="must be an accelerator with an index"):
        dist.init_process_group("fake", rank=0, world_size=2, device_id="cuda")
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
    # What the launcher says may come behind it.
    assert [[w for w in out.split() if w in ("heard", "late")] for out, _ in results[:2]] == [["heard"]] * 2, results


@needs_gloo
def test_one_that_does_not_come(tmp_path):
    results = run_ranks(tmp_path, 2, """
start(seconds=20)
dist.barrier()
if rank == 1:
    after("done")
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
    sign("done")
sys.stdout.flush()
os._exit(0)
""")
    assert "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 200 ms" in results[0][0]
    # What the launcher says may come in between.
    assert re.search(r"second.*True False DistBackendError", results[0][0], re.S), results[0][0]


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
                          capture_output=True, text=True, timeout=120, env=without_gpus())


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


@needs_gloo
def test_calls_that_are_methods_of_groups(tmp_path):
    ranks = run_ranks(tmp_path, 2, """
start()
group, ones, outs = dist.group.WORLD, arete.ones(2), [arete.zeros(2), arete.zeros(2)]
mine = arete.full((2,), float(rank))
def after(work):
    assert isinstance(work, dist.Work)
    work.wait()
x = ones.clone()
work = group.allreduce([x])
assert work.get_future().then(lambda f: f.value()[0] * 2).wait().tolist() == [4, 4]
options = dist.AllreduceOptions()
options.reduceOp = dist.ReduceOp.MAX
after(group.allreduce([mine], options))
assert mine.tolist() == [1, 1]
mine.fill_(rank)
after(group.allreduce(mine, dist.ReduceOp.PRODUCT))
assert mine.tolist() == [0, 0]
mine.fill_(rank)
after(group.allgather([outs], [mine]))
assert [o.tolist() for o in outs] == [[0, 0], [1, 1]] and [o.tolist() for o in group.allgather(outs, mine).result()] == [[0, 0], [1, 1]]
flat = arete.zeros(4)
after(group._allgather_base(flat, mine))
assert flat.tolist() == [0, 0, 1, 1]
after(group.broadcast([mine], dist.BroadcastOptions(rootRank=1)))
after(group.broadcast(mine, 1))
assert mine.tolist() == [1, 1]
after(group.reduce([mine], dist.ReduceOptions(rootRank=1)))
assert mine.tolist() == ([1, 1] if rank == 0 else [2, 2])
mine.fill_(rank)
after(group.gather([outs] if rank == 0 else [], [mine], dist.GatherOptions()))
assert rank or [o.tolist() for o in outs] == [[0, 0], [1, 1]]
after(group.scatter([mine], [[ones * 3, ones * 4]] if rank == 0 else [], dist.ScatterOptions()))
assert mine.tolist() == [3 + rank] * 2
after(group.reduce_scatter([mine], [[ones * rank, ones * 5]]))
assert mine.tolist() == ([1, 1] if rank == 0 else [10, 10])
after(group._reduce_scatter_base(mine, arete.arange(4.0)))
assert mine.tolist() == [4.0 * rank, 4.0 * rank + 2]
after(group.alltoall(outs, [ones * rank, ones * (rank + 10)]))
assert outs[0].tolist() == [10.0 * rank] * 2 and outs[1].tolist() == [10.0 * rank + 1] * 2
after(group.alltoall_base(flat, arete.arange(4.0) + 4 * rank, [], []))
assert flat.tolist() == [2.0 * rank, 2 * rank + 1, 4 + 2 * rank, 5 + 2 * rank]
if rank == 0:
    after(group.send([ones * 7], 1, 3))
    got = group.recv_anysource([mine], 4)
    got.wait()
    assert got._source_rank() == 1
else:
    after(group.recv([mine], 0, 3))
    after(group.send([mine], 0, 4))
assert mine.tolist() == [7, 7]
after(group.barrier())
group.monitored_barrier(timedelta(seconds=20))
for wrong in (lambda: group.allreduce([x, x]), lambda: group.broadcast([x], dist.BroadcastOptions(rootTensor=1)),
              lambda: dist.all_reduce(arete.ones(1, dtype=arete.complex64), dist.ReduceOp.MAX)):
    try:
        wrong()
    except ValueError:
        pass
    else:
        raise AssertionError("no error")
for options in (dist.AllreduceOptions(), dist.BarrierOptions()):  # what would change nothing cannot be said
    try:
        options.timeout = timedelta(seconds=1)
    except AttributeError:
        pass
    else:
        raise AssertionError("no error")
print("done")
""")
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_calls_of_groups_are_in_profiles(tmp_path):
    ranks = run_ranks(tmp_path, 2, """
start()
from arete.profiler import ProfilerActivity, profile
x = arete.ones(5, 3)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as p:
    dist.all_reduce(x)
    dist.all_gather([arete.ones(5, 3) for _ in range(2)], x)
    dist.all_reduce(x, async_op=True).wait()
    if rank == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    dist.barrier()
found = [(e.name, e.input_shapes[0]) for e in p.events() if e.name.startswith("gloo:") and e.name != "gloo:barrier"]
assert sorted(found) == sorted([(n, [5, 3]) for n in ("gloo:all_reduce", "gloo:all_gather", "gloo:all_reduce",
                                                      "gloo:send" if rank == 0 else "gloo:recv")]), found
assert sum(e.name == "gloo:barrier" for e in p.events()) == 1
print("done")
""")
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_a_barrier_before_anybody_chose_a_gpu(tmp_path):
    ranks = run_ranks(tmp_path, 2, """
start(backend="nccl")
assert arete.cuda.current_device() == 0
if rank == 1:
    dist.barrier()
else:
    dist.barrier(device_ids=[0])
x = arete.ones(2, device=f"cuda:{rank}")
dist.all_reduce(x)
every = [None] * 2
dist.all_gather_object(every, rank)
assert x.tolist() == [2, 2] and every == [0, 1] and arete.cuda.current_device() == 0
other = dist.new_group([0, 1], backend="nccl")
dist.barrier(other, device_ids=[rank])
dist.all_reduce(x, group=other)
assert x.tolist() == [4, 4]
print("done")
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "OMP_NUM_THREADS": "1"})
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_messages_of_gpus_to_the_process_itself(tmp_path):
    ranks = run_ranks(tmp_path, 2, """
start(backend="nccl")
arete.cuda.set_device(rank)
out = [arete.full((r + 1,), 10.0 * rank + r, device="cuda") for r in range(2)]
own = [arete.zeros(rank + 1, device="cuda") for _ in range(2)]
messages = [m for r in range(2) for m in (dist.P2POp(dist.irecv, own[r], r), dist.P2POp(dist.isend, out[r], r))]
for work in dist.batch_isend_irecv(messages):
    work.wait()
assert [t.tolist() for t in own] == [[10.0 * r + rank] * (rank + 1) for r in range(2)]
try:
    dist.send(out[0], rank)
except ValueError as e:
    assert "should not be the same as the rank of the current process" in str(e)
else:
    raise AssertionError("no error")
dist.barrier()
print("done")
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "OMP_NUM_THREADS": "1"})
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_forked_processes_do_not_wait_for_threads_of_groups():
    """A group that is still known somewhere, and that a process forked from here lets go of."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    mesh = dist.init_device_mesh("cpu", (1,))
    whole = dist.tensor.distribute_tensor(arete.ones(4, 2), mesh, [dist.tensor.Shard(0)])
    assert whole.sum().item() == 8 and mesh._plans
    held = [mesh.get_group(), mesh]
    dist.destroy_process_group()
    assert not mesh._plans
    del whole
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        for _ in range(16):  # which take the places of the group's
            threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        mesh = None
        held.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
