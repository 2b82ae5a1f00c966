"""Helpers around work of several processes: functions that are started in processes, optimizers that step during backward(), and what
wrappers of modules use."""
import collections
import copy
import dataclasses
import logging
import os
import pickle
import sys

import pytest

import arete
from arete import nn
from arete.distributed import _composable, utils
from arete.distributed.elastic.multiprocessing.errors import ChildFailedError
from arete.distributed.launcher import LaunchConfig, elastic_launch
from arete.distributed.optim import _apply_optimizer_in_backward, _get_in_backward_optimizers

FORK = {"start_method": "fork", "max_restarts": 0}


def summed(x):
    import arete.distributed as dist

    dist.init_process_group("gloo")
    total = arete.tensor([x * (dist.get_rank() + 1)])
    dist.all_reduce(total)
    dist.destroy_process_group()
    return total, os.environ["TORCHELASTIC_RUN_ID"]


def fails_at_first(path):
    if not os.path.exists(path) and os.environ["RANK"] == "1":
        open(path, "w").close()
        raise KeyError("the first time")
    return os.environ["TORCHELASTIC_RESTART_COUNT"]


@pytest.mark.skipif(not arete.distributed.is_gloo_available(), reason="built without Gloo")
def test_functions_in_processes_find_one_another():
    results = elastic_launch(LaunchConfig(1, 1, 2, run_id="seven", **FORK), summed)(3.0)
    assert {rank: (x.tolist(), run) for rank, (x, run) in results.items()} == {0: ([9.0], "seven"), 1: ([9.0], "seven")}


def test_failures_and_new_starts(tmp_path):
    again = LaunchConfig(1, 1, 2, start_method="fork", max_restarts=1)
    assert elastic_launch(again, fails_at_first)(str(tmp_path / "a")) == {0: "1", 1: "1"}
    with pytest.raises(ChildFailedError, match="fails_at_first failed in rank 1:(.|\n)*KeyError: 'the first time'") as error:
        elastic_launch(LaunchConfig(1, 1, 2, **FORK), fails_at_first)(str(tmp_path / "b"))
    assert list(error.value.failures) == [1] and error.value.name == "fails_at_first"


def test_programs_in_processes(tmp_path):
    code = f"import os; open(r'{tmp_path}/' + os.environ['RANK'], 'w').write(os.environ['MASTER_PORT'])"
    config = LaunchConfig(1, 1, 2, rdzv_endpoint="localhost:12345", **FORK)
    assert elastic_launch(config, sys.executable)("-c", code) == {0: None, 1: None}
    assert [(tmp_path / name).read_text() for name in ("0", "1")] == ["12345"] * 2
    with pytest.raises(ChildFailedError, match="exit code 3"):
        elastic_launch(config, sys.executable)("-c", "raise SystemExit(3)")


@pytest.mark.parametrize("options, error", [
    ({"max_nodes": 2}, NotImplementedError), ({"rdzv_configs": {"rank": 1}}, NotImplementedError),
    ({"nproc_per_node": 0}, ValueError), ({"max_restarts": -1}, ValueError),
    ({"rdzv_backend": "etcd"}, NotImplementedError), ({"log_line_prefix_template": "x"}, NotImplementedError),
    ({"metrics_cfg": {"a": "b"}}, NotImplementedError), ({"virtual_local_rank": True}, NotImplementedError),
    ({"signals_to_handle": "SIGINT"}, NotImplementedError), ({"event_log_handler": "console"}, NotImplementedError)])
def test_what_a_launch_has_not(options, error):
    with pytest.raises(error, match="LaunchConfig: "):
        LaunchConfig(**{"min_nodes": 1, "max_nodes": 1, "nproc_per_node": 1, **options})
    with pytest.raises(ValueError, match="expected a function"):
        elastic_launch(LaunchConfig(1, 1, 1), None)()


def test_events_are_logged(capsys):
    from arete.distributed.elastic.events import Event, EventSource, get_logging_handler, record

    lines = []
    handler = logging.Handler()
    handler.emit = lambda said: lines.append(said.getMessage())
    logger = logging.getLogger("torchelastic-events-null")
    logger.addHandler(handler)
    try:
        for step in range(2):
            record(Event("saved", EventSource.WORKER, 5, {"step": step}))
    finally:
        logger.removeHandler(handler)
    assert lines == ['{"name": "saved", "source": "WORKER", "timestamp": 5, "metadata": {"step": %d}}' % step for step in range(2)]
    assert Event.deserialize(lines[1]) == Event("saved", EventSource.WORKER, 5, {"step": 1}) and not logger.propagate
    assert capsys.readouterr() == ("", "") and isinstance(get_logging_handler("console"), logging.StreamHandler)
    with pytest.raises(KeyError):
        record(Event("lost", EventSource.AGENT), "nowhere")


def test_optimizers_that_step_in_backward():
    def model():
        arete.manual_seed(1)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    mine, plain = model(), model()
    _apply_optimizer_in_backward(arete.optim.Adam, mine[0].parameters(), {"lr": 0.1})
    _apply_optimizer_in_backward(arete.optim.SGD, mine[2].parameters(), {"lr": 0.2})
    optimizers = [arete.optim.Adam(plain[0].parameters(), lr=0.1), arete.optim.SGD(plain[2].parameters(), lr=0.2)]
    for step in range(3):
        x = arete.randn(5, 3)
        mine(x).square().sum().backward()
        plain(x).square().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(mine.parameters(), plain.parameters()):
        assert arete.equal(a, b) and a.grad is None
    assert [type(o).__name__ for o in _get_in_backward_optimizers(mine)] == ["Adam", "Adam", "SGD", "SGD"]
    assert mine[0].weight._optimizer_kwargs == [{"lr": 0.1}]


def test_several_optimizers_of_one_parameter():
    w = nn.Parameter(arete.tensor([1.0]))
    _apply_optimizer_in_backward(arete.optim.SGD, [w], {"lr": 0.5}, register_hook=False)
    (w * 2).backward()
    assert w.item() == 1 and w.grad.item() == 2
    w.grad = None
    for _ in range(2):
        _apply_optimizer_in_backward(arete.optim.SGD, [w], {"lr": 0.25})
    (w * 2).backward()
    assert w.item() == 1 - 2 * (0.5 + 0.25 + 0.25) and w.grad is None


class OfKeywords(nn.Linear):
    calls = 0

    def forward(self, x, *, debug, use_reentrant, function=None):
        OfKeywords.calls += 1
        return super().forward(x) * debug + use_reentrant["shift"]


def test_modules_that_compute_again():
    """Keywords are the module's own, and copies do the same."""
    x, shift = arete.arange(4.0).reshape(2, 2), {"shift": arete.tensor([1.0, 2.0], requires_grad=True)}
    plain = OfKeywords(2, 2)
    wanted = plain(x, debug=3, use_reentrant=shift)
    net = _composable.checkpoint(copy.deepcopy(plain), determinism_check="none")
    assert type(net).__name__ == "OfKeywords" and isinstance(net, OfKeywords)
    for same in (net, copy.deepcopy(net), pickle.loads(pickle.dumps(net)), pickle.loads(pickle.dumps(copy.copy(net), 0))):
        before, shift["shift"].grad = OfKeywords.calls, None
        y = same(x, debug=3, use_reentrant=shift, function=1)
        assert arete.equal(y, wanted)
        y.sum().backward()
        assert OfKeywords.calls == before + 2 and shift["shift"].grad.tolist() == [2, 2] and same.weight.grad is not None
        with pytest.raises(AssertionError, match="before"):
            _composable.checkpoint(same)
    with pytest.raises(ValueError, match="determinism_check"):
        _composable.checkpoint(OfKeywords(2, 2), determinism_check="some")(x, debug=1, use_reentrant=shift)


@dataclasses.dataclass
class Holder:
    x: object
    name: str


def test_tensors_inside_of_containers():
    Pair = collections.namedtuple("Pair", "a b")
    one = arete.ones(2)
    given = {"list": [one, 3], "pair": Pair(one, "text"), "held": Holder(one, "n"), "o": collections.OrderedDict(k=(one,))}
    found = utils._apply_to_tensors(lambda t: t + 1, given)
    for value in (found["list"][0], found["pair"].a, found["held"].x, found["o"]["k"][0]):
        assert value.tolist() == [2, 2]
    assert found["list"][1] == 3 and found["pair"].b == "text" and type(found["o"]) is collections.OrderedDict
    args, kwargs = utils._cast_forward_inputs(arete.float16, one, arete.ones(1, dtype=arete.int64), k=[one])
    assert [a.dtype for a in (*args, *kwargs["k"])] == [arete.float16, arete.int64, arete.float16]
    assert utils._cast_forward_inputs(None, 1, a=2) == ((1,), {"a": 2})
    assert utils._unpack_kwargs(*utils._pack_kwargs(1, 2, a=3)) == ((1, 2), {"a": 3})
    assert utils._unpack_kwargs((1, 2), ()) == ((1, 2), {})
    with pytest.raises(AssertionError, match="too many keys"):
        utils._unpack_kwargs((1,), ("a", "b"))
    moved = utils._to_kwargs((one, 2), {"k": one}, arete.device("meta"), False)
    assert moved[0][0][0].is_meta and moved[0][0][1] == 2 and moved[1][0]["k"].is_meta
    assert utils._to_kwargs((), None, arete.device("cpu"), False) == (((),), ({},))
    with pytest.raises(NotImplementedError, match="stream of the caller"):
        utils._to_kwargs((one,), None, arete.device("cpu"), True)
    packed = nn.utils.rnn.pack_sequence([arete.ones(3), arete.ones(1)])
    assert utils._apply_to_tensors(lambda t: 2 * t, packed).data.tolist() == [2] * 4


def test_modules_and_their_states(capsys):
    inner = nn.Linear(2, 2)
    outer, other = nn.Sequential(inner), nn.ReLU()
    assert utils._get_root_modules([inner, outer, other]) == [outer, other]
    state = {"a.x": 1, "b.a.x": 2}
    utils._replace_by_prefix(state, "a.", "c.")
    assert state == {"b.a.x": 2, "c.x": 1}
    with pytest.raises(ValueError, match="must be distinct"):
        utils._replace_by_prefix(state, "a", "a")
    with pytest.raises(AssertionError, match="said"):
        utils._p_assert(False, "said")
    utils._p_assert(False, "printed", raise_assertion_error=False)
    assert "printed" in capsys.readouterr().out
    arete.distributed.init_process_group(store=arete.distributed.HashStore(), rank=0, world_size=1)
    try:
        before = inner.weight.clone()
        utils._sync_module_states(nn.BatchNorm1d(2), arete.distributed.GroupMember.WORLD, 1 << 20, 0, ())
        utils._sync_module_states(inner, arete.distributed.GroupMember.WORLD, 1 << 20, 0, ("bias",), broadcast_buffers=False)
        assert arete.equal(before, inner.weight)
    finally:
        arete.distributed.destroy_process_group()


def test_configs_of_accelerate():
    """Its launcher names the one machine's rank, and makes a config with a binding that it takes out again."""
    from arete.numa.binding import AffinityMode, NumaOptions

    from arete.multiprocessing.spawn import ProcessRaisedException  # whose name is a function's, too

    assert ProcessRaisedException is arete.multiprocessing.ProcessRaisedException and callable(arete.multiprocessing.spawn)
    config = LaunchConfig(1, 1, 2, rdzv_backend="static", rdzv_configs={"rank": 0}, numa_options=NumaOptions(AffinityMode.NODE), **FORK)
    with pytest.raises(NotImplementedError, match="LaunchConfig: numa_options is not supported"):
        elastic_launch(config, summed)(3.0)
    config.numa_options = None
    assert [x.tolist() for x, _ in elastic_launch(config, summed)(3.0).values()] == [[9.0], [9.0]]
    with pytest.raises(NotImplementedError, match="the rank 0 of one machine, not 'rank'"):
        LaunchConfig(1, 1, 2, rdzv_configs={"rank": 1})


def test_groups_are_listed():
    import arete.distributed as dist
    from arete.distributed import distributed_c10d as c10d

    dist.init_process_group("fake", rank=0, world_size=4)
    pair, other = dist.new_group([0, 1]), dist.new_group([2, 3])
    assert list(c10d._pg_map) == [dist.group.WORLD, pair] and other is dist.GroupMember.NON_GROUP_MEMBER
    assert c10d._pg_map[pair][0] == "fake" and other not in c10d._pg_map
    with pytest.raises(NotImplementedError, match="groups have no tags"):
        dist._functional_collectives.all_reduce(arete.ones(1), "sum", [0, 1], tag="a")
    net = dist.fsdp.FullyShardedDataParallel(arete.nn.Linear(2, 1))
    for state in (lambda g: net.optim_state_dict(net, arete.optim.SGD(net.parameters(), 0.1), group=g),
                  lambda g: net.full_optim_state_dict(net, arete.optim.SGD(net.parameters(), 0.1), group=g)):
        state(dist.group.WORLD)
        with pytest.raises(NotImplementedError, match=r"the group of the network is the group of its state, got that of \[0, 1\]"):
            state(pair)
    with pytest.raises(NotImplementedError, match="no ShardedTensor"):
        net.set_state_dict_type(net, dist.fsdp.StateDictType.SHARDED_STATE_DICT, dist.fsdp.ShardedStateDictConfig(_use_dtensor=False))
    dist.destroy_process_group(pair)
    assert list(c10d._pg_map) == [dist.group.WORLD]
    dist.destroy_process_group()
    assert not c10d._pg_map
