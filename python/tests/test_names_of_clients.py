"""Names that libraries made for PyTorch ask for when they are imported: that they work, or say in a sentence why they do not."""
import pickle
import signal

import numpy as np
import pytest

import arete
from arete.distributed.elastic import multiprocessing as elastic


def test_how_it_was_built():
    assert "USE_MKL=OFF" in arete.__config__.show() and f"get_num_threads(): {arete.get_num_threads()}" in arete.__config__.parallel_info()


def test_the_package_has_its_name():
    assert arete.torch is arete


def test_the_type_of_tensors():
    kind = arete.TensorType.get()
    assert (str(kind), kind.kind(), kind.isSubtypeOf(arete.TensorType()), kind == arete.TensorType(), kind.isSubtypeOf(3)) == (
        "Tensor", "TensorType", True, True, False)


def test_assertions_are_recorded():
    class Net(arete.nn.Module):
        def forward(self, x):
            arete._assert(x.shape[0] == 2, "two rows")
            return x + 1

    traced = arete.fx.symbolic_trace(Net())
    assert traced(arete.ones(2)).tolist() == [2, 2]
    with pytest.raises(AssertionError, match="two rows"):
        traced(arete.ones(3))


def test_parts_of_programs_are_named_in_recordings():
    enter, leave = arete.ops.profiler._record_function_enter, arete.ops.profiler._record_function_exit
    with arete.profiler.profile() as recorded:
        handle = enter("part")
        arete.ones(2) + 1
        leave(handle)
    assert [e.cpu_parent.name for e in recorded.events() if e.name == "add"] == ["part"]


def test_selective_checkpoints_are_refused():
    checkpoint = arete.utils.checkpoint
    with pytest.raises(NotImplementedError, match="computed again as a whole"):
        checkpoint.checkpoint(arete.exp, arete.ones(1, requires_grad=True), use_reentrant=False,
                              context_fn=lambda: checkpoint.create_selective_checkpoint_contexts([arete.ops.aten.exp.default]))
    assert checkpoint.CheckpointPolicy.MUST_SAVE.value == 0
    with pytest.raises(ValueError, match="states of GPUs"):
        checkpoint.set_device_states([], [], device_type="xpu")


def test_profiles_are_off_already():
    assert arete._C._jit_set_profiling_executor(False) is False
    with pytest.raises(NotImplementedError, match="no fuser"):
        arete._C._jit_set_profiling_mode(True)


def test_operators_may_be_allowed_by_their_torch_names(tmp_path):
    class Net(arete.nn.Module):
        pass

    path = tmp_path / "thing.pt"
    arete.save({"function": arete.nn.functional.relu}, path)
    with pytest.raises(pickle.UnpicklingError, match="torch.nn.functional.relu"):
        arete.load(path)
    with arete.serialization.safe_globals([arete.nn.functional.relu]):
        assert arete.load(path)["function"] is arete.nn.functional.relu


def test_arrays_of_numpy_may_be_allowed(tmp_path):
    path = tmp_path / "array.pt"
    arete.save({"x": np.arange(6.0).reshape(2, 3), "n": np.float32(2.5)}, path)
    with arete.serialization.safe_globals([np.ndarray, np.dtype, type(np.dtype("f8")), type(np.dtype("f4")),
                                           np.zeros(1).__reduce__()[0]]):
        found = arete.load(path)
    assert found["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["x"].dtype == np.float64 and found["n"] == np.float32(2.5)


def test_batched_tensors_by_torchs_names():
    from arete._functorch import vmap as names

    is_batched = arete._C._functorch.is_batchedtensor
    assert arete.vmap(lambda x: x + is_batched(x))(arete.zeros(2)).tolist() == [1, 1] and not is_batched(arete.zeros(2))
    assert names._broadcast_to_and_flatten([0, None], arete.utils._pytree.tree_structure([{"a": 1, "b": 2}, 3])) == [0, 0, None]
    assert names._broadcast_to_and_flatten((0,), arete.utils._pytree.tree_structure([1])) is None
    with pytest.raises(ValueError, match="must only return Tensors"):
        names._maybe_remove_batch_dim("f", 3, 1, 2, 0)


def test_print_options():
    assert arete._tensor_str.PRINT_OPTS.threshold == 1000
    arete.set_printoptions(edgeitems=2, sci_mode=False)
    try:
        assert (arete._tensor_str.PRINT_OPTS.edgeitems, arete._tensor_str.PRINT_OPTS.sci_mode) == (2, False)
    finally:
        arete.set_printoptions(profile="default")
    assert arete._tensor_str._tensor_str(arete.tensor(2.5, dtype=arete.float64), 0) == "2.5000"
    assert arete._tensor_str._tensor_str(arete.tensor([1, 2], dtype=arete.int8), 0) == "[1, 2]"
    with pytest.raises(AttributeError, match="no option"):
        arete._tensor_str.PRINT_OPTS.colour  # noqa: B018


def test_numpys_seeds_of_workers():
    from arete.utils.data._utils.worker import _generate_state

    assert _generate_state(5, 0) == [161328693, 2841646664, 2763651139, 2546215728]  # as PyTorch 2.11
    assert _generate_state(123456789012345, 3) == [3999280408, 2418223825, 1775828080, 3641838301]
    assert np.random.RandomState(_generate_state(5, 1)) is not None


@pytest.mark.parametrize("kind", ["qint8", "quint8", "qint32", "quint4x2", "quint2x4"])
def test_quantised_dtypes_are_names(kind):
    named = getattr(arete, kind)
    assert repr(named) == f"arete.{kind}" and pickle.loads(pickle.dumps(named)) is named and named.is_signed == kind.startswith("q" + "int")
    with pytest.raises(TypeError):
        arete.ones(2, dtype=named)


def test_tensors_are_of_no_other_device():
    x = arete.ones(1)
    assert not (x.is_xpu or x.is_xla or x.is_mtia or x.is_ipu or x.is_maia or x.is_vulkan)


def test_levels_of_checks(monkeypatch):
    dist = arete.distributed
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
    dist.set_debug_level_from_env()
    assert dist.get_debug_level() is dist.DebugLevel.DETAIL
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "much")
    with pytest.raises(ValueError, match="OFF, INFO, or DETAIL, got 'much'"):
        dist.set_debug_level_from_env()
    dist.set_debug_level(dist.DebugLevel.OFF)
    assert dist.get_debug_level() is dist.DebugLevel.OFF


def test_elastic_names():
    utils = arete.distributed.elastic.utils
    assert elastic.Std.from_str("2") is elastic.Std.ERR and elastic.Std.from_str("0:1") == {0: elastic.Std.OUT}
    for wrong in ("4", "a:1", "0:x"):
        with pytest.raises(ValueError, match="is no outputs"):
            elastic.Std.from_str(wrong)
    assert elastic.to_map(elastic.Std.OUT, 2) == {0: elastic.Std.OUT, 1: elastic.Std.OUT}
    assert elastic.SignalException("ended", signal.SIGTERM).sigval is signal.SIGTERM
    with pytest.raises(NotImplementedError, match="elastic_launch starts functions"):
        elastic.start_processes("name", print, {}, {}, None)
    with pytest.raises(NotImplementedError, match="--log-dir"):
        elastic.api.DefaultLogsSpecs()
    assert utils.macros.substitute(["${local_rank}", "$HOME"], "1") == ["1", "$HOME"]
    with utils.get_socket_with_port() as found:
        assert found.getsockname()[1] > 0


def test_stores_of_launchers():
    from arete.distributed.elastic.utils.distributed import create_c10d_store

    store = create_c10d_store(True, "127.0.0.1")
    store.set("key", "value")
    assert store.get("key") == b"value"
    with pytest.raises(ValueError, match="server_port must be named"):
        create_c10d_store(False, "127.0.0.1")


def test_names_that_say_what_there_is_instead():
    from arete._subclasses import FakeTensor, fake_tensor
    from arete.distributed import autograd, rpc
    from arete.distributed.elastic.agent.server.api import WorkerSpec
    from arete.distributed.elastic.rendezvous import RendezvousError, RendezvousParameters, RendezvousTimeoutError

    from arete.distributed.rendezvous import rendezvous

    assert issubclass(RendezvousTimeoutError, RendezvousError) and not rpc.is_available() and not autograd.is_available()
    assert arete.distributed.rendezvous is rendezvous and next(rendezvous("tcp://localhost:0?rank=0&world_size=1"))[1:] == (0, 1)
    assert not isinstance(arete.ones(1), FakeTensor) and not fake_tensor.is_fake(arete.ones(1))
    for name in (FakeTensor, WorkerSpec, RendezvousParameters, rpc.init_rpc, rpc.rpc_sync, rpc.RRef, autograd.context,
                 rpc.api._require_initialized(print)):
        with pytest.raises(NotImplementedError):
            name()


def test_sobol_points(monkeypatch):
    pytest.importorskip("scipy")
    engine = arete.quasirandom.SobolEngine(5)
    first = engine.draw(7)
    assert first[:3, :2].tolist() == [[0, 0], [0.5, 0.5], [0.75, 0.25]] and first.double().sum().item() == 16.125  # as PyTorch 2.11
    rest = engine.fast_forward(9).draw_base2(4, dtype=arete.float64)
    assert (rest.dtype, rest.sum().item(), engine.num_generated) == (arete.float64, 40.0, 32)
    assert arete.equal(engine.reset().draw(7), first)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(2)
    same = [arete.quasirandom.SobolEngine(3, scramble=True, seed=1).draw(8) for _ in range(2)]
    assert arete.equal(*same) and ((0 <= same[0]) & (same[0] < 1)).all()
    assert sorted((same[0] * 8).long()[:, 1].tolist()) == list(range(8))  # one in each eighth
    monkeypatch.setitem(__import__("sys").modules, "scipy.stats", None)
    with pytest.raises(ImportError, match="takes its direction numbers from SciPy"):
        arete.quasirandom.SobolEngine(2)


def test_tensors_are_swapped_by_name():
    from arete.nn.utils._named_member_accessor import _MISSING, set_tensor, swap_tensor

    net = arete.nn.BatchNorm1d(2)
    net.plain = arete.zeros(1)
    weight, new = net.weight, arete.ones(2)
    assert swap_tensor(net, "weight", new) is weight and net.weight is new and list(net._parameters) == ["weight", "bias"]
    assert swap_tensor(net, "running_mean", new).tolist() == [0, 0] and net.running_mean is new
    assert swap_tensor(net, "plain", new).tolist() == [0] and net.plain is new
    assert swap_tensor(net, "plain", _MISSING) is new and not hasattr(net, "plain")
    set_tensor(net, "other", new)
    assert net.other is new
    for error, call in ((AttributeError, lambda: swap_tensor(net, "nothing", new)), (KeyError, lambda: set_tensor(net, "a.b", new)),
                        (KeyError, lambda: set_tensor(net, "", new)), (TypeError, lambda: set_tensor(net, "weight", 3)),
                        (TypeError, lambda: swap_tensor(net, "training", new)), (TypeError, lambda: set_tensor(3, "x", new))):
        with pytest.raises(error):
            call()


def test_containers_take_part_in_vmap(monkeypatch):
    """A library may replace the steps around a function, as tensordict does, whose containers are leaves to it."""
    steps = arete._functorch.vmap
    seen = []

    def create(dims, leaves, level, form):
        seen.append((dims, len(leaves), level))
        return steps.tree_unflatten([steps._add_batch_dim(t, d, level) for d, t in zip(dims, leaves)], form)

    monkeypatch.setattr(steps, "_create_batched_inputs", create)
    assert arete.vmap(lambda x, y: x + y.sum(), in_dims=(0, -1))(arete.ones(2), arete.ones(3, 2)).tolist() == [4, 4]
    assert seen == [([0, 1], 2, 1)]


def test_functions_of_modules():
    from arete._functorch.make_functional import combine_state_for_ensemble, make_functional, make_functional_with_buffers

    net = arete.nn.Sequential(arete.nn.Linear(2, 3), arete.nn.BatchNorm1d(3)).eval()
    x = arete.randn(4, 2)
    f, parameters, buffers = make_functional_with_buffers(net)
    assert f(parameters, buffers, x).equal(net(x)) and not any(t.is_cpu for t in (*f.parameters(), *f.buffers()))
    assert f([p * 0 for p in parameters], buffers, x).tolist() == [[0] * 3] * 4
    with pytest.raises(RuntimeError, match="has buffers"):
        make_functional(net)
    f, parameters = make_functional(arete.nn.Linear(2, 1), disable_autograd_tracking=True)
    assert not parameters[0].requires_grad and f(parameters, x).shape == (4, 1)
    nets = [arete.nn.Linear(2, 1) for _ in range(3)]
    f, parameters, buffers = combine_state_for_ensemble(nets)
    assert parameters[0].is_leaf and parameters[0].requires_grad and buffers == ()
    arete.testing.assert_close(arete.vmap(f, (0, 0, None))(parameters, buffers, x), arete.stack([n(x) for n in nets]))
    with pytest.raises(RuntimeError, match="of the same class"):
        combine_state_for_ensemble([nets[0], arete.nn.ReLU()])


def test_what_libraries_ask_of_memory_and_devices():
    x = arete.ones(4)
    for t in (x, arete.ones(4, device="meta"), arete.ones(0)):
        assert arete._C._is_alias_of(t, t[1:]) and not arete._C._is_alias_of(t, t.clone())
    assert isinstance(x.untyped_storage(), arete.StorageBase)
    assert arete._utils._get_available_device_type() == ("cuda" if arete.cuda.is_available() else None)
    assert arete._utils._get_device_module("cuda") is arete.cuda
    with pytest.raises(RuntimeError, match="does not have a corresponding module"):
        arete._utils._get_device_module("toaster")


def test_what_libraries_ask_of_modes():
    from arete.autograd import forward_ad

    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0
    assert forward_ad._current_level == -1

    class Mode(arete.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    assert not arete._C._is_torch_function_mode_enabled()
    with Mode():
        assert arete._C._is_torch_function_mode_enabled()
    assert not isinstance(arete.cond, arete._ops.HigherOrderOperator)


def test_tensors_of_optimizers_are_grouped():
    from arete.utils._foreach_utils import _group_tensors_by_device_and_dtype as group

    x, y = arete.ones(1), arete.ones(2, dtype=arete.float64)
    found = group([[x, y, x], [None, y, x], []], with_indices=True)
    assert {k: (list(map(len, lists)), indices) for k, (lists, indices) in found.items()} == {
        (x.device, x.dtype): ([2, 2, 0], [0, 2]), (x.device, y.dtype): ([1, 1, 0], [1])}
    assert found[x.device, x.dtype][0][1][0] is None and found[x.device, x.dtype][0][1][1] is x and group([[x]])[x.device, x.dtype][1] == []
    with pytest.raises(RuntimeError, match="not of one length"):
        group([[x], [x, y]])


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_of_programs_are_iterated_over(workers):
    """As fastai's: an object that is its own dataset, and has what DataLoaders have."""
    from arete.utils.data.dataloader import _DatasetKind, _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

    class Own:
        _dataset_kind, _auto_collation, collate_fn, drop_last, in_order = _DatasetKind.Iterable, False, staticmethod(list), False, True
        generator, pin_memory, num_workers = None, False, workers

        def __iter__(self):
            return iter([(1, 2), (3, 4)])

    loader = Own()
    loader.dataset = loader
    if workers:
        with pytest.warns(UserWarning, match="Own is loaded by the loop itself, without its 2 workers"):
            batches = _MultiProcessingDataLoaderIter(loader)
    else:
        batches = _SingleProcessDataLoaderIter(loader)
    assert isinstance(batches, _SingleProcessDataLoaderIter) and list(batches) == [[1, 2], [3, 4]]
    Own._dataset_kind, Own._auto_collation, Own._index_sampler = _DatasetKind.Map, True, [[2, 0], [1]]
    loader.dataset = "abc"
    assert list(_SingleProcessDataLoaderIter(loader)) == [["c", "a"], ["b"]]
    Own._auto_collation, Own._index_sampler, Own.collate_fn = False, [1, 2], staticmethod(str.upper)
    assert list(_SingleProcessDataLoaderIter(loader)) == ["B", "C"]
