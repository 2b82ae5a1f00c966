"""Smaller modules of torch's: saved objects, hub, weak dictionaries, what devices of others answer, what is refused."""
import argparse
import collections
import hashlib
import importlib
import io
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
from idiom_helpers import on_the_cpu, pytorch

import arete


class Thing:
    def __init__(self, torch):
        self.x, self.names = torch.ones(2, 3).t(), np.arange(3, dtype=np.uint32)
        self.kind, self.place, self.size = torch.float16, torch.device("cpu"), torch.Size([1, 2])


@on_the_cpu
def test_saved_objects(torch, device, tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(4, 2)).sum().backward()
    optimizer.step()
    weight, generator = torch.ones(3), torch.Generator().manual_seed(3)
    file = tmp_path / "all.pt"
    torch.save({"thing": Thing(torch), "net": net, "optimizer": optimizer, "w": weight, "v": weight[1:],
                "p": torch.nn.Parameter(weight * 2),
                "g": generator, "class": torch.nn.Linear, "f": torch.relu, "counter": collections.Counter("aab")}, file)
    with pytest.raises(pickle.UnpicklingError):
        torch.load(file, weights_only=True)
    got = torch.load(file, weights_only=False)
    assert torch.equal(got["thing"].x, torch.ones(3, 2)) and got["thing"].names.tolist() == [0, 1, 2] and got["thing"].kind is torch.float16
    assert got["thing"].size == (1, 2) and got["class"] is torch.nn.Linear and got["f"](-weight).tolist() == [0, 0, 0]
    assert all(torch.equal(a, b) for a, b in zip(got["net"].state_dict().values(), net.state_dict().values(), strict=True))
    assert got["optimizer"].state_dict()["state"][0]["step"] == 1 and type(got["p"]) is torch.nn.Parameter and got["p"].requires_grad
    got["w"][1] = 9
    assert got["v"].tolist() == [9, 1] and torch.equal(torch.rand(2, generator=got["g"]), torch.rand(2, generator=generator))
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        torch.save({"f": lambda: 0}, tmp_path / "no.pt")


def test_objects_between_libraries(tmp_path):
    if pytorch is None:
        pytest.skip("no PyTorch")
    for writer, reader in ((arete, pytorch), (pytorch, arete)):
        held = argparse.Namespace(x=writer.arange(6.0).view(2, 3).t(), d=writer.float64, p=writer.nn.Parameter(writer.ones(2)),
                                  s=writer.Size([2]))
        writer.save({"held": held, "layer": writer.nn.Linear}, tmp_path / "it.pt")
        got = reader.load(tmp_path / "it.pt", weights_only=False)
        assert got["held"].x.tolist() == [[0, 3], [1, 4], [2, 5]] and got["held"].x.stride() == (1, 3) and got["held"].d is reader.float64
        assert type(got["held"].p) is reader.nn.Parameter and got["held"].s == reader.Size([2]) and got["layer"] is reader.nn.Linear


def test_hub(tmp_path, capsys):
    hub = arete.hub
    before = hub.get_dir()
    try:
        hub.set_dir(tmp_path / "hub")
        weights = tmp_path / "weights.pt"
        arete.save({"w": arete.ones(2)}, weights)
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()[:8]
        named = weights.rename(tmp_path / f"weights-{digest}.pt")
        for _ in range(2):  # fetched, and found
            assert hub.load_state_dict_from_url(named.as_uri(), check_hash=True, progress=False)["w"].tolist() == [1, 1]
        assert capsys.readouterr().err.count("Downloading") == 1 and (tmp_path / "hub" / "checkpoints" / named.name).exists()
        with pytest.raises(RuntimeError, match="invalid hash value"):
            hub.download_url_to_file(named.as_uri(), str(tmp_path / "other"), hash_prefix="0000", progress=False)
        assert not (tmp_path / "other").exists() and not list(tmp_path.glob(".*partial"))
        (tmp_path / "hubconf.py").write_text("import arete\ndependencies = ['numpy']\ndef layer(n, bias=True):\n    'A layer.'\n"
                                             "    return arete.nn.Linear(n, n, bias)\n")
        layer = hub.load(str(tmp_path), "layer", 3, source="local", bias=False)
        assert layer.bias is None and hub.list(str(tmp_path), source="local") == ["layer"]
        assert hub.help(str(tmp_path), "layer", source="local") == "A layer."
        with pytest.raises(RuntimeError, match="Cannot find callable nothing"):
            hub.load(str(tmp_path), "nothing", source="local")
        (tmp_path / "hubconf_part.py").write_text("n = 5\n")
        (tmp_path / "hubconf.py").write_text("def later():\n    from hubconf_part import n\n    return n\n")
        assert hub.load(str(tmp_path), "later", source="local") == 5 and str(tmp_path) not in sys.path
        with pytest.raises(Exception, match="its code would run"):
            hub.load("owner/name:branch", "layer")
        (tmp_path / "hub" / "owner_name_branch").mkdir()
        (tmp_path / "hub" / "owner_name_branch" / "hubconf.py").write_text("def layer():\n    return 1\n")
        assert hub.load("owner/name:branch", "layer") == 1
        with pytest.raises(Exception, match="is not trusted"):
            hub.load("owner/name:branch", "layer", trust_repo=False)
        hostile = tmp_path / "hostile.pt"
        arete.save({"it": argparse.Namespace(a=1)}, hostile)
        with pytest.raises(Exception, match="add_safe_globals"):
            hub.load_state_dict_from_url(hostile.as_uri(), progress=False)
        assert hub.load_state_dict_from_url(hostile.as_uri(), progress=False, weights_only=False)["it"].a == 1
        with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
            archive.write(named, "../inside.pt")
        assert hub.load_state_dict_from_url((tmp_path / "one.zip").as_uri(), progress=False)["w"].tolist() == [1, 1]
        mask = os.umask(0o027)
        try:
            hub.download_url_to_file(named.as_uri(), str(tmp_path / "mode"), progress=False)
        finally:
            os.umask(mask)
        assert (tmp_path / "mode").stat().st_mode & 0o777 == 0o640
        with pytest.raises(ValueError, match="Unknown source"):
            hub.load("owner/name", "layer", source="elsewhere")
    finally:
        hub.set_dir(before)


@on_the_cpu
def test_trees(torch, device):
    pytree = importlib.import_module(f"{torch.__name__}.utils._pytree")
    tree = {"a": [1, (2, None)], "b": collections.OrderedDict(c=3)}
    leaves, form = pytree.tree_flatten_with_path(tree)
    assert [(pytree.keystr(path), leaf) for path, leaf in leaves] == [("['a'][0]", 1), ("['a'][1][0]", 2), ("['a'][1][1]", None),
                                                                      ("['b']['c']", 3)]
    again = pytree.treespec_loads(pytree.treespec_dumps(form))
    assert pytree.tree_unflatten([leaf for _, leaf in leaves], again) == tree and again == form
    assert pytree.tree_map_with_path(lambda path, x: len(path), [0, [0]]) == [1, [2]]
    assert pytree.tree_all(lambda x: x is not None, [1, 2]) and not pytree.tree_any(lambda x: x is None, [1])
    assert dict in pytree.SUPPORTED_NODES and pytree.SUPPORTED_NODES[list].flatten_fn([1, 2])[0] == [1, 2]


@on_the_cpu
def test_scans(torch, device):
    scan = importlib.import_module(f"{torch.__name__}._higher_order_ops.associative_scan").associative_scan
    if torch is not arete:
        return  # PyTorch's own wants its compiler here
    for n in (1, 2, 3, 7, 8):
        x, gate = torch.randn(2, n, 3), torch.rand(2, n, 3)
        assert torch.equal(scan(lambda a, b: a + b, x.long(), 1), x.long().cumsum(1))
        a, b = scan(lambda l, r: (l[0] * r[0], l[1] * r[0] + r[1]), (gate, x), 1, combine_mode="generic")
        state, expected = torch.zeros(2, 3), []
        for i in range(n):
            state = state * gate[:, i] + x[:, i]
            expected.append(state)
        torch.testing.assert_close(b, torch.stack(expected, 1))
        torch.testing.assert_close(a, gate.cumprod(1))
        torch.testing.assert_close(scan(torch.maximum, x, -2, reverse=True), x.flip(1).cummax(1).values.flip(1))


@on_the_cpu
def test_small_names(torch, device):
    weak = importlib.import_module(f"{torch.__name__}.utils.weak").WeakIdKeyDictionary()
    x = torch.ones(2)
    weak[x] = 3
    assert weak[x] == 3 and torch.ones(2) not in weak and len(weak) == 1
    del x
    assert len(weak) == 0
    assert torch.sym_max(2, 3.0) == 3.0 and torch.sym_min(2, 3) == 2 and torch.sym_int(-2.5) == -2
    assert torch.sym_not(False) and torch.sym_sum([1, 2]) == 3
    seen = [torch._C._get_tracing_state()]
    torch.jit.trace(lambda x: seen.append(bool(torch._C._get_tracing_state())) or x + 1, torch.ones(2))
    assert seen[0] is None and True in seen and issubclass(torch.jit.TracerWarning, Warning)
    assert repr(torch.uint3).endswith(".uint3") and torch.uint3.itemsize == 1 and not torch.uint3.is_floating_point
    for function, arguments, error in ((torch._assert, (False, "no"), AssertionError),
                                       (torch._assert, (torch.tensor(False), "no"), AssertionError),
                                       (torch._check_with, (ValueError, False, lambda: "no"), ValueError),
                                       (torch._check_tensor_all, (torch.tensor([True, False]), lambda: "no"), RuntimeError)):
        with pytest.raises(error, match="no"):
            function(*arguments)
    assert torch._shape_as_tensor(torch.ones(2, 3)).tolist() == [2, 3] and not torch.xpu.is_available() and torch.xpu.device_count() == 0
    assert not torch.mps.is_available() if torch is arete else True
    assert torch._C._nn._parse_to("cpu", torch.float64, True) == (torch.device("cpu"), torch.float64, True, None)
    assert torch._C._nn._parse_to(torch.float16)[:2] == (None, torch.float16)
    assert torch.functional.einsum is torch.einsum and torch.legacy_contiguous_format is torch.contiguous_format


def test_counted_operations():
    net = arete.nn.Sequential(arete.nn.Conv2d(3, 4, 3), arete.nn.Flatten(), arete.nn.Linear(144, 4))
    with arete.utils.flop_counter.FlopCounterMode(display=False) as counter:
        net(arete.ones(3, 3, 8, 8)).sum().backward()
    # Forwards; backwards for the weights, and for the input of the second layer.
    convolution, linear = 2 * 3 * 4 * 36 * 27, 2 * 3 * 144 * 4
    assert counter.get_total_flops() == 2 * convolution + 3 * linear == sum(counter.get_flop_counts()["Global"].values())


def test_counted_by_whole_names():
    x, v = arete.ones(3, 4), arete.ones(4)
    with arete.utils.flop_counter.FlopCounterMode(display=False) as counter:
        arete.mv(x, v), arete.dot(v, v), arete.cummax(v, 0)
    assert counter.get_total_flops() == 2 * 12 + 2 * 4


def test_callbacks_of_futures_that_raise():
    future, seen = arete.futures.Future(), []

    def wrong(done):
        raise ValueError("wrong")

    future.add_done_callback(wrong)
    future.add_done_callback(lambda done: seen.append(done.value()))
    with pytest.raises(ValueError, match="wrong"):
        future.set_result(1)
    assert seen == [1] and future.value() == 1


def test_what_is_not_there_says_so():
    pipelining = importlib.import_module("arete.distributed.pipelining")
    for refused in (pipelining.ScheduleDualPipeV, arete.ao.quantization.quantize_dynamic,
                    arete.quantization.prepare, arete.SymInt):
        with pytest.raises(NotImplementedError, match=": .*\\w"):
            refused(arete.nn.Linear(1, 1))
    assert not isinstance(arete.ones(1), arete.distributed.tensor.DTensor) and not isinstance(1, arete.SymInt)
    with pytest.raises(RuntimeError, match="there are no devices of the kind 'xpu'"):
        arete.xpu.synchronize()
    with pytest.raises(TypeError, match="dtype"):
        arete.ones(2, dtype=arete.uint3)


def test_states_of_optimizers_by_names_and_numbers():
    class Apart(arete.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = arete.nn.Linear(2, 2), arete.nn.Linear(2, 1, bias=False)

    fsdp, keys = arete.distributed.fsdp.FullyShardedDataParallel, arete.distributed.fsdp.fully_sharded_data_parallel.OptimStateKeyType
    net = Apart()
    optim = arete.optim.Adam([{"params": net.b.parameters()}, {"params": net.a.parameters(), "lr": 0.5}])
    net.b(net.a(arete.ones(1, 2))).sum().backward()
    optim.step()
    numbered = optim.state_dict()
    named = fsdp.rekey_optim_state_dict(numbered, keys.PARAM_NAME, net, optim=optim)
    assert [g["params"] for g in named["param_groups"]] == [["b.weight"], ["a.weight", "a.bias"]]
    assert named["state"]["b.weight"]["exp_avg"] is numbered["state"][0]["exp_avg"] and named["param_groups"][1]["lr"] == 0.5
    assert fsdp.rekey_optim_state_dict(named, keys.PARAM_NAME, net, optim=optim) == named
    back = fsdp.rekey_optim_state_dict(named, keys.PARAM_ID, net, optim=optim)
    assert back["state"].keys() == numbered["state"].keys() and back["param_groups"] == numbered["param_groups"]
    # without the optimizer as the module has them
    assert fsdp.rekey_optim_state_dict(named, keys.PARAM_ID, net)["param_groups"][0]["params"] == [2]
    with pytest.raises(ValueError, match="no parameter 'c'"):
        fsdp.rekey_optim_state_dict({"state": {"c": {}}, "param_groups": []}, keys.PARAM_ID, net)


def test_names_of_the_profiler():
    profiler = arete.profiler
    assert profiler.profiler.profile is profiler.profile and profiler.profiler._default_schedule_fn(3) is profiler.ProfilerAction.RECORD
    with pytest.warns(UserWarning, match="XPU is not available"):
        p = profiler.profile(activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.XPU])
    assert p.activities == {profiler.ProfilerActivity.CPU} and not arete.autograd._profiler_enabled()
    with pytest.raises(ValueError, match="No valid profiler activities"), pytest.warns(UserWarning):
        profiler.profile(activities=[profiler.ProfilerActivity.MTIA])
    p.start()
    assert arete.autograd._profiler_enabled()
    arete.ones(2).exp()
    arete.autograd._disable_profiler()
    assert not arete.autograd._profiler_enabled() and "exp" in {e.name for e in p.events()}
    with pytest.raises(RuntimeError, match="not running"):
        arete.autograd._disable_profiler()
    if not arete.cuda.is_available():
        with pytest.raises(RuntimeError, match="needs a GPU"):
            arete.cuda.profiler.start()
    with pytest.raises(NotImplementedError):
        arete.cuda.profiler.init("file")


def test_tensors_of_classes_with_attributes():
    from arete._tensor import _rebuild_from_type_v2

    class Named(arete.Tensor):
        pass

    made = _rebuild_from_type_v2(arete.ones, Named, (2,), {"title": "x"})
    assert type(made) is Named and made.title == "x" and made.tolist() == [1, 1]


def test_types_of_results(tmp_path):
    """One for the function and the method of an operator, found by its name, so that results can be pickled."""
    import copy
    import subprocess

    x = arete.tensor([[1.0, 3.0], [2.0, 0.0]])
    for result, name in ((x.max(1), "max"), (arete.max(x, 1), "max"), (x.topk(1), "topk"), (arete.linalg.svd(x), "linalg_svd"),
                         (x.cummin(0), "cummin"), (x.sort(), "sort")):
        kind = getattr(arete.return_types, name)
        assert type(result) is kind and isinstance(copy.deepcopy(result), kind)
        again = pickle.loads(pickle.dumps(result))
        assert type(again) is kind and all(arete.equal(a, b) for a, b in zip(again, result))
    assert arete.return_types.topk((1, 2)).indices == 2
    with pytest.raises(AttributeError, match="no operator of this name has several results"):
        arete.return_types.add
    (tmp_path / "max.pickle").write_bytes(pickle.dumps(x.max(1)))  # and read where nobody has called it
    program = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).indices.tolist())"
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "max.pickle"], capture_output=True, text=True)
    assert done.stdout == "[1, 0]\n", done.stderr


def test_small_names():
    x = arete.randn(3, 4, dtype=arete.float64, requires_grad=True)
    y, g = x.softmax(1), arete.randn(3, 4, dtype=arete.float64)
    assert arete.allclose(arete._softmax_backward_data(g, y, 1, x.dtype), arete.autograd.grad(y, x, g)[0])
    shares = arete._sample_dirichlet(arete.tensor([[1.0, 2.0, 50.0]]).expand(400, 3))
    assert arete.allclose(shares.sum(1), arete.ones(400)) and 0.9 < float(shares[:, 2].mean()) < 0.98
    assert str(arete.ops.aten.add) == "aten.add" and repr(arete.ops.aten.add) == "<OpOverloadPacket(op='aten.add')>"
    assert arete.accelerator.set_device_idx is arete.accelerator.set_device_index
    assert arete._C._get_accelerator().type == ("cuda" if arete.cuda.is_available() else "cpu")
    with pytest.raises(NotImplementedError, match="there are no quantised tensors"):
        arete.nn.quantized.FloatFunctional()
    from arete.utils._triton import has_triton

    assert arete.backends.mkldnn.enabled and not has_triton()
    with pytest.raises(RuntimeError, match="oneDNN cannot be switched off"):
        arete.backends.mkldnn.enabled = False


def test_a_state_that_is_copied_to_meta_parameters_does_nothing_and_says_so():
    net = arete.nn.Linear(2, 2, device="meta")
    state = arete.nn.Linear(2, 2).state_dict()
    with pytest.warns(UserWarning, match="for weight: copying from a non-meta parameter .* does nothing; .*assign=True"):
        net.load_state_dict(state)
    net.load_state_dict(state, assign=True)
    assert arete.equal(net.weight, state["weight"])
