"""Checkpoints of many processes: the same bits on any number of them, whatever happens while they are written."""
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from fake_gpus import run as run_with_gpus
from test_distributed import needs_gloo, run_ranks
from test_sharding import COMMON

import arete

dcp = arete.distributed.checkpoint
ARETE = pathlib.Path(os.environ.get("ARETE_PROGRAM") or pathlib.Path(arete.__file__).parents[2] / "bin" / "arete")

STATE = """
import hashlib
import time
import arete.distributed.checkpoint as dcp
from arete.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict, set_state_dict
def made(mesh):
    net = shard(filled(Net()), mesh=mesh)
    return net, arete.optim.AdamW(net.parameters(), lr=0.01)
def state_of(net, optimizer):
    return {"model": get_model_state_dict(net), "optim": get_optimizer_state_dict(net, optimizer), "step": 3, "extra": {"rng": [1.5, None]}}
def bits(net, optimizer):
    out = hashlib.sha256()
    flat = dict(get_model_state_dict(net))
    state = get_optimizer_state_dict(net, optimizer)["state"]
    flat.update({f"{n}.{k}": v for n in state for k, v in state[n].items()})
    for name in sorted(flat):
        t = flat[name]
        t = t.full_tensor() if isinstance(t, dist.tensor.DTensor) else t
        out.update(name.encode() + str(t.tolist()).encode())
    return out.hexdigest()
"""


@needs_gloo
def test_any_number_of_processes_loads_what_any_other_wrote(tmp_path):
    out = run_ranks(tmp_path, 4, COMMON + STATE + f"""
start()
meshes = {{n: dist.DeviceMesh("cpu", list(range(n))) for n in (1, 2, 3, 4)}}
digests = {{}}
for n, mesh in meshes.items():
    if rank < n:
        net, optimizer = made(mesh)
        train(net, 2, optimizer=optimizer)
        dcp.save(state_of(net, optimizer), checkpoint_id=f"{tmp_path}/{{n}}", process_group=mesh.get_group())
        digests[n] = bits(net, optimizer)
every = [None] * 4
dist.all_gather_object(every, digests)
digests = every[0]
assert len(set(digests.values())) == 4 and all(d == {{n: h for n, h in digests.items() if r < n}} for r, d in enumerate(every))
def loaded(mesh, source):
    net, optimizer = made(mesh)
    state = state_of(net, optimizer)
    state["step"], state["extra"]["rng"] = 0, None
    dcp.load(state, checkpoint_id=f"{tmp_path}/{{source}}", process_group=mesh.get_group() if mesh.ndim == 1 else None)
    assert state["step"] == 3 and state["extra"] == {{"rng": [1.5, None]}}
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    return net, optimizer
for n, mesh in meshes.items():
    for source in digests:
        if rank < n:
            assert bits(*loaded(mesh, source)) == digests[source], (n, source)
# On another mesh, copies that are written while the program goes on, and errors that all hear of.
net, optimizer = loaded(dist.init_device_mesh("cpu", (2, 2)), 3)
assert bits(net, optimizer) == digests[3]
work = dcp.async_save(state_of(net, optimizer), checkpoint_id="{tmp_path}/async")
train(net, 1, optimizer=optimizer)
work.result(60)  # which is there then, whoever asks
assert os.path.exists("{tmp_path}/async/index.json") and bits(net, optimizer) != digests[3]
dcp.load(state_of(net, optimizer), checkpoint_id="{tmp_path}/async")
assert bits(net, optimizer) == digests[3]
files = [f for f in os.listdir("{tmp_path}/async") if not f.startswith(".")]
assert len(files) == 5, files  # replicas share the writing
raises(dcp.CheckpointException, "Missing key in checkpoint state_dict: other",
       lambda: dcp.load({{"other": arete.ones(1)}}, checkpoint_id="{tmp_path}/async"))
# A note that cannot be written reaches rank 0 another way.
class NoNote(dcp._files._Save):
    def _note(self, r):
        return super()._note(r) if r != 2 or rank == 0 else self.folder / "gone" / "note.json"
whole, dcp._files._Save = dcp._files._Save, NoNote
work = dcp.async_save({{"x": 1}}, checkpoint_id="{tmp_path}/noted")
begin = time.monotonic()
raises(dcp.CheckpointException, "rank 2: FileNotFoundError", lambda: work.result(60))
assert time.monotonic() - begin < 30
dcp._files._Save = whole
dist.barrier()
bad = {{"x": object() if rank == 2 else 1}}
write, dcp._files._d.write_checkpoint_index = dcp._files._d.write_checkpoint_index, lambda *a: 1 / 0
raises(dcp.CheckpointException, "rank 0: ZeroDivisionError", lambda: dcp.save({{"x": 1}}, checkpoint_id="{tmp_path}/bad"))
work = dcp.async_save({{"x": 1}}, checkpoint_id="{tmp_path}/bad")
raises(ZeroDivisionError if rank == 0 else dcp.CheckpointException, "division" if rank == 0 else "rank 0: ZeroDivisionError",
       lambda: work.result(60))
dist.barrier()
dcp._files._d.write_checkpoint_index = write
raises(dcp.CheckpointException, "rank 2: TypeError: x: a object cannot be", lambda: dcp.save(bad, checkpoint_id="{tmp_path}/bad"))
# Copies by a thread; what all have the first one writes if it is to.
net, optimizer = loaded(dist.init_device_mesh("cpu", (4,)), 3)
stager = dcp.staging.DefaultStager()
work = dcp.async_save(state_of(net, optimizer), checkpoint_id="{tmp_path}/staged", async_stager=stager)
work.staging_completion.result(60)
train(net, 1, optimizer=optimizer)
work.upload_completion.result(60)
stager.close()
assert bits(*loaded(dist.init_device_mesh("cpu", (4,)), "staged")) == digests[3] != bits(net, optimizer)
for lowest, writers in ((False, 4), (True, 1)):
    same_in_all = {{str(k): arete.full((5,), float(k)) for k in range(8)}}
    dcp.save(same_in_all, checkpoint_id=f"{tmp_path}/{{lowest}}", planner=dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=lowest))
    assert len([f for f in os.listdir(f"{tmp_path}/{{lowest}}") if f.endswith(".safetensors")]) == writers
print("done")
""")
    assert out == [("done\n", 0)] * 4, "\n".join(text for text, _ in out)


def saved(folder):
    dcp.save({"a": arete.arange(60).reshape(6, 10), "b": {"c": arete.ones(3, dtype=arete.bfloat16), "empty": arete.empty(0, 4)},
              "numbers": [1, 2.5, float("inf"), 2**70, "x", b"y", (True, None)], "kind": arete.float16}, checkpoint_id=folder, no_dist=True)


def test_what_is_in_a_folder(tmp_path):
    saved(tmp_path / "c")
    assert len(list((tmp_path / "c").iterdir())) == 2
    saved(tmp_path / "c")  # in the place of the other
    assert len(list((tmp_path / "c").iterdir())) == 2
    state = {"a": arete.zeros(6, 10, dtype=arete.int64), "b": {"c": arete.zeros(3), "empty": arete.empty(0, 4)}, "numbers": 0, "kind": 0}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert arete.equal(state["a"], arete.arange(60).reshape(6, 10)) and state["b"]["c"].tolist() == [1, 1, 1]
    assert state["numbers"] == [1, 2.5, float("inf"), 2**70, "x", b"y", (True, None)] and state["kind"] is arete.float16
    net, optimizer = arete.nn.Linear(2, 2), None
    dcp.save({"net": net}, storage_writer=dcp.FileSystemWriter(tmp_path / "n"))
    other = arete.nn.Linear(2, 2)
    dcp.load({"net": other}, storage_reader=dcp.FileSystemReader(tmp_path / "n"))
    assert arete.equal(net.weight, other.weight) and optimizer is None
    with pytest.raises(NotImplementedError, match="per_thread_copy_ahead keeps its default"):
        dcp.FileSystemWriter(tmp_path / "n", per_thread_copy_ahead=1)
    with pytest.raises(dcp.CheckpointException, match=r"size mismatch for a: the checkpoint has \[6, 10\], the state \[60\]"):
        dcp.load({"a": arete.zeros(60)}, checkpoint_id=tmp_path / "c")
    with pytest.raises(ValueError, match="would have the name 'x.y'"):
        dcp._files._flat({"x": {"y": 1}, "x.y": 2}, "", {})
    Pair = collections.namedtuple("Pair", "t n")
    dcp.save({"pairs": [(arete.ones(1), 7)], "pair": Pair(arete.ones(1), 8)}, checkpoint_id=tmp_path / "t")
    state = {"pairs": [(arete.zeros(1), 0)], "pair": Pair(arete.zeros(1), 0)}
    dcp.load(state, checkpoint_id=tmp_path / "t")
    assert state == {"pairs": [(arete.ones(1), 7)], "pair": Pair(arete.ones(1), 8)} and type(state["pair"]) is Pair
    with pytest.raises(dcp.CheckpointException, match="overwrite=False"):
        dcp.save({}, storage_writer=dcp.FileSystemWriter(tmp_path / "t", overwrite=False))
    dcp.save({"x": 1}, storage_writer=dcp.FileSystemWriter(tmp_path / "new", overwrite=False))
    for planner in (1, dcp.DefaultLoadPlanner()):
        with pytest.raises(NotImplementedError, match="no planner but DefaultSavePlanner"):
            dcp.save({}, checkpoint_id=tmp_path / "p", planner=planner)
    with pytest.raises(NotImplementedError, match="enable_plan_caching keeps its default"):
        dcp.DefaultSavePlanner(enable_plan_caching=True)
    with pytest.raises(NotImplementedError, match="one index"):
        dcp.save({}, checkpoint_id=tmp_path / "p", use_collectives=False)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers(tmp_path, dtype):
    x = arete.randn(3, 4, dtype=getattr(arete, dtype))
    dcp.save({"x": x, "t": x.T, "none": x[:0], "one": x[0, 0]}, checkpoint_id=tmp_path / "c")
    state = {"x": arete.zeros_like(x), "t": arete.zeros_like(x.T), "none": arete.zeros_like(x[:0]), "one": arete.zeros_like(x[0, 0])}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    assert state["x"].equal(x) and state["t"].equal(x.T) and state["one"].equal(x[0, 0]) and state["none"].shape == (0, 4)
    facts = dcp.FileSystemReader(str(tmp_path / "c")).read_metadata().state_dict_metadata
    assert facts["x"].properties.dtype is x.dtype and facts["x"].size == x.shape
    folder = arete._C._distributed.Checkpoint(str(tmp_path / "c"))
    assert folder.read("x", [1, 1], [2, 3]).equal(x[1:, 1:])
    folder.verify()
    path = tmp_path / "c" / "index.json"
    index = json.loads(path.read_text())
    index["tensors"]["x"].update(dtype="F64", shape=[3, 4])  # half of what the piece has
    path.write_text(json.dumps(index))
    with pytest.raises(dcp.CheckpointException, match="no piece .* as the index describes it"):
        dcp.load({"x": arete.zeros(3, 4, dtype=arete.float64)}, checkpoint_id=tmp_path / "c")


def test_folders_become_files_and_back(tmp_path):
    saved(tmp_path / "c")
    dcp.format_utils.dcp_to_torch_save(tmp_path / "c", tmp_path / "file.pt")
    state = arete.load(tmp_path / "file.pt", weights_only=False)
    assert list(state) == ["a", "b", "numbers", "kind"] and arete.equal(state["a"], arete.arange(60).reshape(6, 10))
    assert state["b"]["c"].dtype is arete.bfloat16 and state["b"]["empty"].shape == (0, 4)
    assert state["numbers"] == [1, 2.5, float("inf"), 2**70, "x", b"y", (True, None)] and state["kind"] is arete.float16
    net = arete.nn.Sequential(arete.nn.Linear(2, 2))
    optimizer = arete.optim.Adam(net.parameters())
    net(arete.ones(1, 2)).sum().backward()
    optimizer.step()
    state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "list": [arete.ones(2), {3: arete.zeros(1)}]}
    arete.save(state, tmp_path / "one.pt")
    dcp.format_utils.torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "d")
    dcp.format_utils.dcp_to_torch_save(tmp_path / "d", tmp_path / "two.pt")
    one, two = (arete.load(tmp_path / f"{n}.pt", weights_only=False) for n in ("one", "two"))
    assert list(two["net"]) == ["0.weight", "0.bias"] and list(two["optimizer"]["state"]) == [0, 1] and list(two["list"][1]) == [3]
    again = arete.optim.Adam(net.parameters())
    again.load_state_dict(two["optimizer"])
    assert arete.equal(one["optimizer"]["state"][0]["exp_avg"], again.state_dict()["state"][0]["exp_avg"])


def test_programs_merge_split_and_describe(tmp_path):
    if not ARETE.exists():
        pytest.skip("the program arete is not beside the package")
    run = lambda *args: subprocess.run([ARETE, "ckpt", *map(str, args)], capture_output=True, text=True, timeout=60)  # noqa: E731
    saved(tmp_path / "c")
    out = run("info", "--verify", tmp_path / "c")
    assert out.returncode == 0 and "3 tensors in 2 pieces and 1 files" in out.stdout and "all bytes" in out.stdout, out
    assert run("merge", tmp_path / "c", tmp_path / "hf").returncode == 0
    whole = arete.load(tmp_path / "hf" / "model.safetensors")
    assert sorted(whole) == ["a", "b.c", "b.empty"] and arete.equal(whole["a"], arete.arange(60).reshape(6, 10))
    assert run("merge", tmp_path / "c", tmp_path / "some", "--prefix", "b.").returncode == 0
    assert sorted(arete.load(tmp_path / "some" / "model.safetensors")) == ["c", "empty"]
    assert run("merge", tmp_path / "c", tmp_path / "many", "--max-file-size", "0.0000001").returncode == 0
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert index["weight_map"]["a"] == "model-00001-of-00002.safetensors" and index["metadata"]["total_size"] == 486
    assert run("split", tmp_path / "many", tmp_path / "back", "--pieces", 4, "--prefix", "m.").returncode == 0
    assert "6 pieces" in run("info", "--verify", tmp_path / "back").stdout
    state = {"m": {"a": arete.zeros(6, 10, dtype=arete.int64)}}
    dcp.load(state, checkpoint_id=tmp_path / "back")
    assert arete.equal(state["m"]["a"], whole["a"])
    file = next((tmp_path / "c").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    out = run("info", "--verify", tmp_path / "c")
    assert out.returncode == 1 and "are not those that were written" in out.stderr, out
    assert run("merge", tmp_path / "c", tmp_path / "x", "--prefix", "none").returncode == 1


@pytest.mark.parametrize("kind, settings", [("SGD", {"momentum": 0.9, "weight_decay": 0.1}), ("NAdam", {}), ("Adamax", {}), ("Rprop", {}),
                                            ("ASGD", {"t0": 0.0}), ("AdamW", {"weight_decay": 0.1, "amsgrad": True})])
def test_a_state_that_is_looked_at_trains_as_before(kind, settings):
    results = []
    for looks in (False, True):
        p = arete.nn.Parameter(arete.tensor([1.0, 2.0]))
        net = arete.nn.ParameterList([p])
        optimizer = getattr(arete.optim, kind)(net.parameters(), lr=0.1, **settings)
        if looks:
            dcp.state_dict.get_optimizer_state_dict(net, optimizer)
        for _ in range(3):
            p.grad = p.detach() * 2
            optimizer.step()
        results.append(p.tolist())
    assert results[0] == results[1]


@pytest.mark.parametrize("change, text", [
    (lambda i: i.update(format="?"), "no index"), (lambda i: i.update(version=2), "newer"), (lambda i: i.pop("files"), "is missing"),
    (lambda i: i["tensors"]["a"]["pieces"][0].update(start=[1, 0]), "beyond the tensor"),
    (lambda i: i["tensors"]["a"]["pieces"][0].update(shape=[5, 10]), "do not cover"),
    (lambda i: i["tensors"]["a"]["pieces"][0].update(shape=[2**62, 10]), "beyond the tensor"),
    (lambda i: i["tensors"]["a"]["pieces"].append(i["tensors"]["a"]["pieces"][0]), "do not cover"),
    (lambda i: i["tensors"]["a"].update(shape=[2**40, 2**40]), "too large"), (lambda i: i["tensors"]["a"].update(shape=[-1]), "no number"),
    (lambda i: i["tensors"]["a"].update(shape=[0] * 17), "at most 16"), (lambda i: i["tensors"]["a"].update(dtype="X"), "unknown"),
    (lambda i: i["tensors"]["a"]["pieces"][0].update(file="../x.safetensors"), "not among the files"),
    (lambda i: i["files"].update({"../evil.safetensors": 1}), "no name of a file"), (lambda i: i["files"].update(
        {k: 5 for k in i["files"]}), "the index says 5"),
    (lambda i: i["tensors"]["a"]["pieces"][0].update(key="other"), "no piece"),
    (lambda i: i["tensors"]["a"].update(pieces=[dict(i["tensors"]["a"]["pieces"][0], shape=[3, 10], start=[s, 0]) for s in (0, 2)]),
     "overlap"),
])
def test_hostile_indices(tmp_path, change, text):
    saved(tmp_path / "c")
    path = tmp_path / "c" / "index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    with pytest.raises(dcp.CheckpointException, match=text):
        dcp.load({"a": arete.zeros(6, 10)}, checkpoint_id=tmp_path / "c")


@pytest.mark.parametrize("content, text", [(b"", "no JSON"), (b"[" * 100000, "no JSON|deeply"), (b'{"a": 1, "a": 2}', "occurs twice"),
                                           (b'{"x":' * 20 + b"1" + b"}" * 20, "too deeply"), (b"\xff\xfe", "no JSON")])
def test_indices_that_are_no_json(tmp_path, content, text):
    (tmp_path / "index.json").write_bytes(content)
    with pytest.raises(dcp.CheckpointException, match=text):
        dcp.load({"a": arete.zeros(6, 10)}, checkpoint_id=tmp_path)


SAVER = """
import sys, arete
import arete.distributed.checkpoint as dcp
for step in range(10 ** 6):
    dcp.save({"step": step, "x": arete.full((4096,), float(step)), "y": [arete.full((64, 64), float(step)) for _ in range(4)]},
             checkpoint_id=sys.argv[1])
    print(step, flush=True)
"""


def test_planners_choose_the_state(tmp_path):
    class Renamed(dcp.DefaultSavePlanner):
        def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
            super().set_up_planner({"new." + k: v for k, v in state_dict.items()}, storage_meta, is_coordinator)

    class Back(dcp.DefaultLoadPlanner):
        def set_up_planner(self, state_dict, metadata, is_coordinator):
            assert is_coordinator and "new.x" in metadata.state_dict_metadata
            super().set_up_planner({"new." + k: v for k, v in state_dict.items()}, metadata, is_coordinator)

    for save in (dcp.save, lambda *a, **k: dcp.async_save(*a, **k).result()):
        save({"x": arete.arange(3), "n": 7}, checkpoint_id=tmp_path / "a", planner=Renamed())
        state = {"x": arete.zeros(3, dtype=arete.int64), "n": 0}
        planner = Back()
        dcp.load(state, checkpoint_id=tmp_path / "a", planner=planner)
        assert state["x"].tolist() == [0, 1, 2] and planner.state_dict["new.n"] == 7
        shutil.rmtree(tmp_path / "a")

    class Halved(dcp.DefaultSavePlanner):
        def resolve_data(self, item):
            return item

    with pytest.raises(NotImplementedError, match="resolve_data is never called"):
        dcp.save({}, checkpoint_id=tmp_path / "p", planner=Halved())

    class Silent(dcp.DefaultSavePlanner):
        def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
            """What it would save is not said."""

    class SilentLoad(dcp.DefaultLoadPlanner):
        def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
            """What it would load is not said."""

    for save in (dcp.save, dcp.async_save):
        with pytest.raises(dcp.CheckpointException, match="Silent.set_up_planner\\(\\) gives no state on"):
            save({"x": arete.ones(2)}, checkpoint_id=tmp_path / "s", planner=Silent())
    dcp.save({"x": arete.ones(2)}, checkpoint_id=tmp_path / "s")
    with pytest.raises(dcp.CheckpointException, match="SilentLoad.set_up_planner\\(\\) gives no state on"):
        dcp.load({"x": arete.zeros(2)}, checkpoint_id=tmp_path / "s", planner=SilentLoad())


@pytest.mark.parametrize("made_of", ["DefaultStager", "BlockingAsyncStager"])
def test_stagers_stage_as_they_say(tmp_path, made_of):
    """stage() of a class made of a stager of the library, or of one object, is what is saved."""

    class Doubled(getattr(dcp.staging, made_of)):
        def stage(self, state_dict, **kwargs):
            return super().stage({k: v * 2 for k, v in state_dict.items()}, **kwargs)

    one = getattr(dcp.staging, made_of)()
    plain = one.stage
    one.stage = lambda state_dict: plain({k: v * 2 for k, v in state_dict.items()})
    for stager in (Doubled(), one):
        saved = dcp.async_save({"x": arete.ones(2)}, checkpoint_id=tmp_path / "s", async_stager=stager)
        if made_of == "DefaultStager":
            assert saved.staging_completion.result(60)["x"].tolist() == [2, 2]
            saved = saved.upload_completion
        saved.result(60)
        state = {"x": arete.zeros(2)}
        dcp.load(state, checkpoint_id=tmp_path / "s")
        assert state["x"].tolist() == [2, 2]


@needs_gloo
def test_states_and_stagers_that_fail_fail_for_all(tmp_path):
    ranks = run_ranks(tmp_path, 2, COMMON + f"""
start()
import arete.distributed.checkpoint as dcp
class Bad:
    def state_dict(self):
        if rank == 1:
            raise ValueError("no state")
        return {{"x": arete.ones(1)}}
    def load_state_dict(self, state):
        pass
class Choosy(dcp.DefaultSavePlanner):
    def set_up_planner(self, *args):
        super().set_up_planner(*args)
        if rank == 1:
            raise ValueError("no state")
class Stager(dcp.staging.BlockingAsyncStager):
    def stage(self, state):
        if rank == 1:
            raise ValueError("no state")
        return super().stage(state)
good, folder = {{"x": arete.ones(1)}}, "{tmp_path}/bad"
calls = [lambda: dcp.save({{"s": Bad()}}, checkpoint_id=folder), lambda: dcp.save(good, checkpoint_id=folder, planner=Choosy()),
         lambda: dcp.save({{"s": Bad()}}, checkpoint_id=folder, planner=dcp.DefaultSavePlanner()),
         lambda: dcp.async_save(good, checkpoint_id=folder, planner=Choosy()),
         lambda: dcp.async_save(good, checkpoint_id=folder, async_stager=Stager()),
         lambda: dcp.save(good, storage_writer=dcp.HuggingFaceStorageWriter(folder), planner=Choosy())]
for call in calls:
    raises(dcp.CheckpointException, "rank 1: ValueError: no state", call)
dcp.save(good, checkpoint_id=folder)
dist.destroy_process_group()
""")
    assert ranks == [("", 0)] * 2, "\n".join(out for out, _ in ranks)


def test_copies_of_two_gpus_wait_for_both():
    out = run_with_gpus("""
    from arete.distributed.checkpoint import staging
    streams = [torch.cuda.Stream(d) for d in (0, 1)]
    state, waited = {"a": [torch.ones(2, device="cuda:0")], "b": torch.ones(2, device="cuda:1")}, set()
    synchronize = torch.cuda.Stream.synchronize
    torch.cuda.Stream.synchronize = lambda stream: (waited.add(stream), synchronize(stream))[1]
    stagers = [staging.DefaultStager(), staging.DefaultStager(staging.StagingOptions(use_async_staging=False)),
               staging.BlockingAsyncStager(True)]
    for first in (0, 1):
        with torch.cuda.stream(streams[first]), torch.cuda.stream(streams[1 - first]):
            for stager in stagers:
                waited.clear()
                staged = stager.stage(state)
                staged = staged if isinstance(staged, dict) else staged.result(60)
                assert waited == set(streams), (first, waited)
                assert staged["a"][0].tolist() == staged["b"].tolist() == [1.0, 1.0] and staged["b"].device.type == "cpu"
    print("done")
    """)
    assert out == "done\n"


@pytest.mark.parametrize("options, files, at_once", [
    ({}, 1, 1), ({"thread_count": 3}, 3, 3), ({"thread_count": 99}, 6, 6), ({"single_file_per_rank": False}, 6, 1),
    ({"single_file_per_rank": False, "thread_count": 2}, 6, 2)])
def test_files_of_a_process(tmp_path, monkeypatch, options, files, at_once):
    together, write = threading.Barrier(at_once), dcp._files._d.write_pieces

    def writing(*args):
        together.wait(60)
        return write(*args)

    monkeypatch.setattr(dcp._files._d, "write_pieces", writing)
    state = {str(n): arete.arange(100 * n) for n in range(1, 7)}
    for _ in range(2):  # the second in the place of the first
        found = dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "c", **options)).state_dict_metadata
        assert list(found) == list(state) and found["3"].chunks[0].sizes == (300,)
        assert len(list((tmp_path / "c").glob("*.safetensors"))) == len(list((tmp_path / "c").iterdir())) - 1 == files
    read = {k: arete.zeros_like(t) for k, t in state.items()}
    dcp.load(read, checkpoint_id=tmp_path / "c")
    assert all(arete.equal(read[k], t) for k, t in state.items())


def test_numbers_of_threads(tmp_path):
    for kind in (dcp.FileSystemWriter, dcp.HuggingFaceStorageReader, dcp.HuggingFaceStorageWriter):
        with pytest.raises(ValueError, match="thread_count is the number of threads, from 1 on, got 0"):
            kind(tmp_path, thread_count=0)
    state, twice = {str(n): arete.arange(10 * n) for n in range(4)}, threading.Barrier(2)

    def by_twos(function):
        def call(*args):
            twice.wait(60)
            return function(*args)

        return call

    writer_of = dcp.hf_storage.serialization._safetensors_writer
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dcp.hf_storage.serialization, "_safetensors_writer", lambda held: by_twos(writer_of(held)))
        files = {name: 1 + int(name) for name in state}
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(tmp_path, files, thread_count=2))
        found = dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(
            tmp_path, files, save_distributed=True, enable_consolidation=True, thread_count_consolidation=2))
    assert found.state_dict_metadata["3"].size == (30,) and len(list(tmp_path.iterdir())) == 5
    read = {name: arete.zeros_like(t) for name, t in state.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dcp.hf_storage._Folder, "read", by_twos(dcp.hf_storage._Folder.read))
        dcp.load(read, storage_reader=dcp.HuggingFaceStorageReader(tmp_path, thread_count=2))
    assert all(arete.equal(read[name], t) for name, t in state.items())


def test_copies_for_what_is_saved_meanwhile(tmp_path, monkeypatch):
    staging, x, begun, goes_on = dcp.staging, arete.arange(4), threading.Event(), threading.Event()
    write = dcp._files._d.write_pieces

    def slow(*args):
        begun.set()
        assert goes_on.wait(60)
        return write(*args)

    def stored(name):
        state = {"x": arete.zeros(4, dtype=arete.int64)}
        dcp.load(state, checkpoint_id=tmp_path / name)
        return state["x"].tolist()

    monkeypatch.setattr(dcp._files._d, "write_pieces", slow)
    writer = dcp.FileSystemWriter(tmp_path / "a", cache_staged_state_dict=True)
    first = dcp.async_save({"x": x}, storage_writer=writer)
    assert begun.wait(60)
    threading.Timer(0.2, goes_on.set).start()
    x += 10
    second = dcp.async_save({"x": x}, storage_writer=writer, checkpoint_id=tmp_path / "b")  # waits: the memory is the same
    assert first.done() and len(writer._stager.state_dict_cache) == 1
    x += 10
    assert second.result(60).state_dict_metadata["x"].size == (4,)
    assert stored("a") == [0, 1, 2, 3] and stored("b") == [10, 11, 12, 13]
    options = staging.StagingOptions(use_async_staging=False)
    dcp.async_save({"x": x}, checkpoint_id=tmp_path / "c", async_stager=staging.DefaultStager(options)).result(60)

    class Own(staging.AsyncStager):
        """As programs have their own: the values are twice as large."""

        waited = False

        def stage(self, state_dict):
            return {k: v * 2 for k, v in state_dict.items()}

        def synchronize_staging(self):
            self.waited = True

    own = Own()
    dcp.async_save({"x": x}, checkpoint_id=tmp_path / "d", async_stager=own).result(60)
    assert own.waited and isinstance(staging.DefaultStager(), staging.AsyncStager)
    assert stored("c") == [20, 21, 22, 23] and stored("d") == [40, 42, 44, 46]
    for stager in (staging.BlockingAsyncStager(), staging.BlockingAsyncStager(True)):
        staged = stager.stage({"a": [x, (x, 1)], "b": "text"})
        x += 1
        assert staged["a"][0].tolist() == (x - 1).tolist() and staged["a"][1][1] == 1 and staged["b"] == "text"
    with pytest.raises(ValueError, match="Unexpected value type <class 'set'>"):
        staging.BlockingAsyncStager(type_check=True).stage({"a": [x, {1}]})
    assert staging.BlockingAsyncStager(type_check=True).stage({"a": [None, 1.5, b"b"]}) == {"a": [None, 1.5, b"b"]}


def test_who_is_killed_while_he_saves_loses_nothing(tmp_path):
    # A hundred times with ARETE_TEST_KILLS=100.
    rng, done = random.Random(5), -1
    for _ in range(int(os.environ.get("ARETE_TEST_KILLS", "3"))):
        saver = subprocess.Popen([sys.executable, "-c", SAVER, tmp_path / "c"], stdout=subprocess.PIPE, text=True)
        done = int(saver.stdout.readline())
        time.sleep(rng.random() * 0.2)
        saver.send_signal(signal.SIGKILL)
        done = max([done, *map(int, saver.communicate(timeout=60)[0].split())])
        state = {"step": 0, "x": arete.zeros(4096), "y": [arete.zeros(64, 64) for _ in range(4)]}
        dcp.load(state, checkpoint_id=tmp_path / "c")
        assert state["step"] in (done, done + 1)
        assert all((t == state["step"]).all() for t in [state["x"], *state["y"]])
    saved(tmp_path / "c")  # and what they left is cleared away
    assert len([f for f in (tmp_path / "c").iterdir() if not f.name.startswith(".index")]) == 2
    shutil.rmtree(tmp_path / "c")


def test_all_that_a_folder_has(tmp_path):
    from arete.distributed import checkpoint as dcp
    from arete.distributed.checkpoint.format_utils import _EmptyStateDictLoadPlanner
    from arete.distributed.checkpoint.state_dict_loader import _load_state_dict

    weights = arete.nn.Linear(2, 3).state_dict()
    dcp.save({"model": weights, "step": 3}, checkpoint_id=tmp_path / "c", no_dist=True)
    state = {}
    _load_state_dict(state, storage_reader=dcp.FileSystemReader(tmp_path / "c"), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    assert state["step"] == 3 and all(arete.equal(state["model"][k], v) for k, v in weights.items())
    with pytest.raises(ValueError, match="must be empty"):
        _load_state_dict(state, storage_reader=dcp.FileSystemReader(tmp_path / "c"), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    known = {"step": 0}
    _load_state_dict(known, storage_reader=dcp.FileSystemReader(tmp_path / "c"), no_dist=True)
    assert known == {"step": 3}


def test_what_a_folder_has(tmp_path):
    state = {"a": {"c": arete.zeros(2, 3, dtype=arete.complex64), "h": arete.ones(4, dtype=arete.bfloat16)}, "e": arete.zeros(0, 2), "n": 7}
    dcp.save(state, checkpoint_id=str(tmp_path / "run"))
    facts = dcp.FileSystemReader(str(tmp_path / "run")).read_metadata().state_dict_metadata
    told = {name: (f.properties.dtype, f.size, [(c.offsets, c.sizes) for c in f.chunks]) for name, f in facts.items() if name != "n"}
    Size = arete.Size
    assert told["a.c"] == (arete.complex64, Size([2, 3]), [(Size([0, 0]), Size([2, 3]))])
    assert told["a.h"] == (arete.bfloat16, Size([4]), [(Size([0]), Size([4]))])
    assert told["e"][:2] == (arete.float32, Size([0, 2])) and set(told) == {"a.c", "a.h", "e"}
    assert isinstance(facts["n"], dcp.metadata.BytesStorageMetadata)
    index = tmp_path / "run" / "index.json"
    text = index.read_text()
    assert text.count('"C64"') == 1
    index.write_text(text.replace('"C64"', '"C256"'))
    with pytest.raises(OSError, match=r"a\.c.*the dtype \"C256\" is unknown"):
        dcp.FileSystemReader(str(tmp_path / "run")).read_metadata()


@needs_gloo
def test_folders_of_hugging_face(tmp_path):
    """Two processes write what is spread over them whole, and read their parts of what one wrote."""
    body = COMMON + """
start()
from arete.distributed.tensor import Shard, distribute_tensor
dcp, folder = dist.checkpoint, "FOLDER/hf"
Reader, Writer = dcp.HuggingFaceStorageReader, dcp.HuggingFaceStorageWriter
mesh = dist.init_device_mesh("cpu", (2,))
net = shard(filled(Net()))
state = net.state_dict()
state.pop("head.weight")  # tied
files = {name: 1 + (k % 2) for k, name in enumerate(state)}
dcp.save(state, storage_writer=Writer(folder, files, save_distributed=True, enable_consolidation=True))
other = shard(Net())
mine = {name: p for name, p in other.state_dict().items() if name in state}
dcp.load(mine, storage_reader=Reader(folder))
same(net, other)
columns = {"embed.weight": distribute_tensor(arete.zeros(11, 7), mesh, [Shard(1)])}
dcp.load(columns, storage_reader=Reader(folder))
assert arete.equal(columns["embed.weight"].full_tensor(), whole(net)["embed.weight"])
assert Reader(folder).read_metadata().state_dict_metadata["embed.weight"].size == (11, 7)
failed = dcp.CheckpointException
wrong = {"embed.weight": arete.zeros(11, 7 + rank)}
raises(failed, "rank 1: ValueError: size mismatch", lambda: dcp.load(wrong, storage_reader=Reader(folder)))
raises(failed, "Missing key", lambda: dcp.load({"no": arete.zeros(1)}, storage_reader=Reader(folder)))
raises(failed, "no safetensors file", lambda: dcp.load({"no": arete.zeros(1)}, storage_reader=Reader("FOLDER")))
raises(failed, "step is no tensor", lambda: dcp.save({"step": 1}, storage_writer=Writer(folder)))
raises(failed, "number of a file", lambda: dcp.save({"x": arete.ones(1)}, storage_writer=Writer(folder, {"y": 1})))
raises(NotImplementedError, "files of parts", lambda: Writer(folder, save_distributed=True))
order = {name: distribute_tensor(arete.ones(4), mesh, [Shard(0)]) for name in ("ab", "ac")[rank]}
raises(failed, "other tensors", lambda: dcp.save(order, storage_writer=Writer("FOLDER/none")))
# The first process alone says which file is whose.
two = {name: distribute_tensor(arete.arange(4.) + 10 * k, mesh, [Shard(0)]) for k, name in enumerate(("a", "b"))}
dcp.save(two, storage_writer=Writer("FOLDER/order", None if rank else {"a": 2, "b": 1}))
back = {name: distribute_tensor(arete.zeros(4), mesh, [Shard(0)]) for name in two}
dcp.load(back, storage_reader=Reader("FOLDER/order"))
assert all(arete.equal(back[name].full_tensor(), two[name].full_tensor()) for name in two)
bad = {"x": distribute_tensor(arete.ones(4), mesh, [Shard(0)]), **({"step": 1} if rank else {})}
raises(failed, "rank 1: TypeError: step", lambda: dcp.save(bad, storage_writer=Writer("FOLDER/none")))
# The first process cannot write: all hear of it, no collective is left open, and what was there stays.
import resource
many = {f"t{k}": distribute_tensor(arange(4 << 10 * k // 2).reshape(-1, 4), mesh, [Shard(0)]) for k in range(4)}
numbers = {f"t{k}": k + 1 for k in range(4)}
dcp.save(many, storage_writer=Writer("FOLDER/full", numbers))
before = {f: open(f"FOLDER/full/{f}", "rb").read() for f in os.listdir("FOLDER/full")}
for t in many.values():
    t.mul_(2)
old = resource.getrlimit(resource.RLIMIT_FSIZE)
if rank == 0:  # the second file is longer
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, old[1]))
raises(failed, "rank 0: OSError", lambda: dcp.save(many, storage_writer=Writer("FOLDER/full", numbers)))
resource.setrlimit(resource.RLIMIT_FSIZE, old)
assert {f: open(f"FOLDER/full/{f}", "rb").read() for f in os.listdir("FOLDER/full")} == before and len(before) == 5
open("FOLDER/file" + str(rank), "w").close()
raises(failed, "rank 0: ", lambda: dcp.save(many, storage_writer=Writer("FOLDER/file0", numbers)))
dcp.save(many, storage_writer=Writer("FOLDER/full", numbers))
again = {name: distribute_tensor(arete.zeros(*t.shape), mesh, [Shard(1)]) for name, t in many.items()}
dcp.load(again, storage_reader=Reader("FOLDER/full"))
assert all(arete.equal(again[name].full_tensor(), t.full_tensor()) for name, t in many.items())
print("done")
""".replace("FOLDER", str(tmp_path))
    assert run_ranks(tmp_path, 2, body) == [("done\n", 0)] * 2
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == {f"model-0000{k}-of-00002.safetensors" for k in (1, 2)}
    whole = {}
    for name in set(index["weight_map"].values()):
        whole.update(arete.load(tmp_path / "hf" / name))
    assert set(whole) == set(index["weight_map"]) and sum(t.nbytes for t in whole.values()) == index["metadata"]["total_size"]
    (tmp_path / "hf" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(dcp.CheckpointException, match="not in the folder"):
        dcp.load({"a": arete.zeros(1)}, storage_reader=dcp.HuggingFaceStorageReader(tmp_path / "hf"))


def test_states_of_submodules():
    from arete.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_optimizer_state_dict,
        get_state_dict,
        set_model_state_dict,
        set_optimizer_state_dict,
    )
    nn = arete.nn
    net = nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 1, bias=False))))
    inner = ["1.0.weight", "1.0.bias", "1.1.0.weight"]
    assert list(get_model_state_dict(net, submodules={net[1]})) == inner
    own = get_model_state_dict(net, submodules={net[1]}, options=StateDictOptions(keep_submodule_prefixes=False))
    assert list(own) == ["0.weight", "0.bias", "1.0.weight"] and arete.equal(own["0.weight"], net[1][0].weight)
    assert list(get_model_state_dict(net, submodules={net[0], net[1][1]})) == ["0.weight", "0.bias", "1.1.0.weight"]
    without = StateDictOptions(keep_submodule_prefixes=False)
    assert list(get_model_state_dict(net, submodules={net})) == list(net.state_dict())
    assert list(get_model_state_dict(net, submodules={net}, options=without)) == list(net.state_dict())
    optimizer = arete.optim.SGD(net.parameters(), 0.1)
    for refused in (lambda: get_optimizer_state_dict(net, optimizer, options=without),
                    lambda: set_model_state_dict(net, net.state_dict(), options=without),
                    lambda: set_optimizer_state_dict(net, optimizer, get_optimizer_state_dict(net, optimizer), options=without),
                    lambda: get_state_dict(net, optimizer, options=without)):
        with pytest.raises(NotImplementedError, match="keep_submodule_prefixes"):
            refused()
    with pytest.raises(NotImplementedError, match="dsd_fqn_modifiers keeps its default"):
        get_model_state_dict(net, options=StateDictOptions(dsd_fqn_modifiers="_names"))
    with pytest.raises(NotImplementedError, match="submodules"):
        get_optimizer_state_dict(net, arete.optim.SGD(net.parameters(), 0.1), submodules={net[1]})


def test_errors_that_a_program_records_itself(tmp_path, monkeypatch):
    from arete.distributed.elastic.multiprocessing.errors import record
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error"))
    said = []

    class Handler:
        def initialize(self):
            said.append("began")

        def record_exception(self, error):
            said.append(str(error))

    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        record(fails, Handler())()
    assert record(lambda: 3, Handler())() == 3
    assert said == ["began", "no", "began"] and not (tmp_path / "error").exists()
