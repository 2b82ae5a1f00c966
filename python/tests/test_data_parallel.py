"""Data-parallel training: the same programs by Arete and PyTorch, and what has no counterpart there."""
import json
import pathlib
import subprocess
import sys

import pytest
from fake_gpus import run as run_with_gpus
from peer import peer
from test_distributed import needs_gloo, run_ranks

import arete

HERE = pathlib.Path(__file__).resolve().parent


def is_close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 2e-5 * max(1, abs(b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_close, a, b))
    return a == b


@needs_gloo
def test_training_agrees_with_torch(tmp_path):
    peer().ones(1)  # skips where PyTorch is not installed
    runs, results = {}, {}
    for name in ("arete", "torch"):
        (tmp_path / name).mkdir()
        runs[name] = subprocess.Popen([sys.executable, HERE / "data_parallel_program.py", name, "2", tmp_path / name],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for name, process in runs.items():
        out = process.communicate(timeout=240)[0]
        assert process.returncode == 0, out
        results[name] = [json.loads((tmp_path / name / str(r)).read_text()) for r in range(2)]
    for ours, theirs in zip(results["arete"], results["torch"]):
        assert ours[-1][0] == "done" and theirs[-1][0] == "done", (ours[-1], theirs[-1])
        assert [name for name, _ in ours] == [name for name, _ in theirs]
        assert [(a, b) for a, b in zip(ours, theirs) if not is_close(a, b)] == []
    # The same bits on both ranks.
    both = [{name: values for name, values in one if name.startswith(("gradients", "end", "after join"))} for one in results["arete"]]
    assert both[0] == both[1] and len(both[0]) == 7


NET = """
nn = arete.nn
def make(*layers):
    net = nn.Sequential(*layers)
    with arete.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(arete.sin(arange(p.numel()) * 1.3 + k).reshape(p.shape))
    return net
arange = lambda n: arete.arange(n, dtype=arete.float32)
"""


@needs_gloo
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_three_processes_divide_gradients_that_lie_oddly(tmp_path, dtype):
    """Gradients, eager and compiled, are the mean within a rounding of each process' part and of each sum."""
    ranks = run_ranks(tmp_path, 3, NET + f"""
start()
dtype = arete.{dtype}
""" + """
def layers():
    return make(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).to(dtype)
def batch(k, r):
    return arete.cos(arange(24) + 7 * r + k).reshape(4, 6).to(dtype)
ours, alone = nn.parallel.DistributedDataParallel(layers()), layers()
def step(x):
    ours.zero_grad()
    ours(x).float().square().sum().backward()
compiled = arete.compile(step, options={"exact": True})
unit = arete.finfo(dtype).eps / 2
for k in range(5):
    (step if k < 2 else compiled)(batch(k, rank))
    parts = []
    for r in range(3):
        alone.zero_grad()
        alone(batch(k, r)).float().square().sum().backward()
        parts.append([p.grad.double() for p in alone.parameters()])
    for p, *of_ranks in zip(ours.parameters(), *parts):
        mean = sum(of_ranks) / 3
        most = sum(g.abs() for g in of_ranks) / 3
        assert p.grad.dtype == dtype and ((p.grad.double() - mean).abs() <= BOUND).all(), (k, p.grad, mean)
dist.destroy_process_group()
print("done")
""".replace("BOUND", "3 * unit * most + 1e-7"))
    for out, code in ranks:
        assert code == 0 and out == "done\n", out


@needs_gloo
def test_one_process_with_both_batches_makes_the_same_steps(tmp_path):
    ranks = run_ranks(tmp_path, 2, NET + """
start()
def train(net, loss, optimizer, **options):
    optimizer = optimizer(net.parameters(), **options)
    for step in range(6):
        optimizer.zero_grad()
        for l in loss(net, step):
            l.backward()
        optimizer.step()
    return [p.tolist() for p in net.parameters()]
def of_batch(net, step, rank):
    x = arete.cos(arange(40) + 7 * rank + step).reshape(8, 5)
    return net(x).square().mean()
layers = lambda: make(nn.Linear(5, 64), nn.GELU(), nn.Linear(64, 2))
for optimizer, options in ((arete.optim.AdamW, {}), (arete.optim.SGD, {"lr": 0.001, "momentum": 0.9})):
    alone = train(layers(), lambda net, step: [of_batch(net, step, r) / 2 for r in range(2)], optimizer, **options)
    ddp = nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb=0.0004)
    assert train(ddp, lambda net, step: [of_batch(net, step, rank)], optimizer, **options) == alone
    data = ddp._get_ddp_logging_data()
    assert data["has_rebuilt_buckets"] and data["world_size"] == 2 and len(data["bucket_sizes"].split(",")) > 2, data
# Dtypes have buckets of their own.
net = make(nn.Linear(4, 3), nn.Linear(3, 3).bfloat16(), nn.Linear(3, 2).double())
ddp = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
def step():
    x = ddp.module[0](arete.ones(2, 4) * (rank + 1))
    ddp.reducer.prepare(True)
    ddp.module[2](ddp.module[1](x.bfloat16()).double()).sum().backward()
    return {p.grad.data_ptr() for p in ddp.parameters()}
step()
ddp.zero_grad()
where = step()
assert [p.grad.dtype for p in net.parameters()] == [p.dtype for p in net.parameters()]
assert len({p.grad.untyped_storage().data_ptr() for p in net.parameters()}) == 3
kept = net[0].weight.grad
ddp.zero_grad()
assert step() == where
ddp.zero_grad(set_to_none=False)
assert step() == where
import pickle
again = pickle.loads(pickle.dumps(nn.parallel.DistributedDataParallel(make(nn.Linear(2, 1, bias=False)))))
again(arete.ones(1, 2) * rank).sum().backward()
assert again.module[0].weight.grad.tolist() == [[0.5, 0.5]]
every = [None, None]
dist.all_gather_object(every, [p.grad.tolist() for p in net.parameters()])
assert every[0] == every[1]
print("done")
""")
    assert ranks == [("done\n", 0)] * 2, ranks


@needs_gloo
def test_power_sgd(tmp_path):
    ranks = run_ranks(tmp_path, 2, NET + """
from arete.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, powerSGD_hook as powerSGD, register_ddp_comm_hook
start()
def gradients(hook, state, steps, low_rank):
    ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(24, 20, bias=True)))
    if hook is not None:
        ddp.register_comm_hook(state, hook)
    sums = 0
    for step in range(steps):
        ddp.zero_grad()
        # One row makes a gradient of rank 1, on each rank another one.
        x = arete.cos(arange(24 * (1 if low_rank else 16)) * (1 if low_rank else rank + 1)).reshape(-1, 24)
        (ddp(x) * arete.sin(arange(20) + rank)).sum().backward()
        sums = sums + ddp.module[0].weight.grad
    return ddp.module[0].weight.grad.clone(), ddp.module[0].bias.grad.clone(), sums / steps
exact = gradients(None, None, 4, True)
for hook in (powerSGD.powerSGD_hook,):
    # The mean of both has rank 1, as x is the same.
    state = powerSGD.PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=1)
    got = gradients(hook, state, 4, True)
    assert arete.allclose(got[0], exact[0], atol=1e-3), (got[0] - exact[0]).abs().max()
    assert arete.allclose(got[1], exact[1], atol=1e-5)
    assert state.iter == 4 and state.compression_stats()[0] > 1
# What is left out comes later: the means of many steps agree, though no step does.
exact = gradients(None, None, 60, False)
for hook, rank_of in ((powerSGD.powerSGD_hook, 1), (powerSGD.batched_powerSGD_hook, 1)):
    state = powerSGD.PowerSGDState(dist.group.WORLD, rank_of, start_powerSGD_iter=2, min_compression_rate=1)
    got = gradients(hook, state, 60, False)
    one, all_ = ((got[i] - exact[i]).norm() / exact[i].norm() for i in (0, 2))
    assert one > 0.05 and all_ < 0.5 * one, (one, all_)
every = [None, None]
dist.all_gather_object(every, got[0].tolist())
assert every[0] == every[1]
try:
    powerSGD.PowerSGDState(None, start_powerSGD_iter=1)
    assert False
except ValueError:
    pass
# A compressed bucket's gradients are views of the new buffer.
from arete.distributed.algorithms.ddp_comm_hooks import default_hooks
exact = gradients(None, None, 4, True)
state = powerSGD.PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=1)
got = gradients(default_hooks.bf16_compress_wrapper(powerSGD.powerSGD_hook), state, 4, True)
for i in range(2):
    assert arete.allclose(got[i], exact[i], atol=0.05, rtol=0.05), (got[i] - exact[i]).abs().max()
def checking(state, bucket):
    for g, p in zip(bucket.gradients(), bucket.parameters()):
        assert g.stride() == p.stride()
    joined = bucket.buffer()
    whole = arete.cat([arete.ones(3), joined.double()])
    bucket.set_buffer(whole[3:])
    for g in bucket.gradients():
        g.zero_()
    assert bucket.gradients()[0].dtype == arete.float64 and whole.sum() == 3
    try:
        bucket.set_buffer(whole)
        assert False
    except ValueError:
        pass
    future = arete.futures.Future()
    future.set_result(bucket.buffer())
    return future
net = make(nn.Linear(4, 4))[0]
net.weight.data = net.weight.data.t()
ddp = nn.parallel.DistributedDataParallel(net)
ddp.register_comm_hook(None, checking)
ddp._set_static_graph()
ddp(arete.ones(1, 4)).sum().backward()
assert net.weight.grad.sum() == 0 and ddp._get_ddp_logging_data()["static_graph"]
for kind in DDPCommHookType:
    ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(4, 4)))
    register_ddp_comm_hook(kind, ddp)
    ddp(arete.ones(1, 4)).sum().backward()
    assert arete.equal(ddp.module[0].weight.grad, arete.ones(4, 4)), kind
print("done")
""")
    assert ranks == [("done\n", 0)] * 2, ranks


@needs_gloo
def test_gradients_travel_as_bytes(tmp_path):
    ranks = run_ranks(tmp_path, 2, NET + """
from arete.distributed.algorithms.ddp_comm_hooks import quantization_hooks as quantization
start()
def gradients(hook):
    ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(24, 20)))
    ddp.register_comm_hook(None, hook)
    x = arete.cos(arange(24 * 16) * (rank + 1)).reshape(-1, 24)
    (ddp(x) * arete.sin(arange(20) + rank) * arete.tensor([0.0] + [1.0] * 19)).sum().backward()
    return ddp.module[0].weight.grad
def within(rows, own):  # half a step of each process' scale from the mean
    steps = arete.stack([(g.amax(1).clamp(min=0) - g.amin(1).clamp(max=0)) / 255 for g in (g.reshape(rows, -1) for g in own)])
    return (steps.mean(0) / 2).reshape(-1, 1) * 1.001 + 1e-6
own = [None] * 2
def keeping(state, bucket):
    dist.all_gather_object(own, bucket.buffer().clone())
    return dist.all_reduce(bucket.buffer().div_(2), async_op=True).get_future().then(lambda f: f.value()[0])
exact = gradients(keeping)
for hook, rows in ((quantization.quantization_pertensor_hook, 1),
                   (lambda state, bucket: quantization.quantization_perchannel_hook(state, bucket, 20), 25)):
    got = []
    def checked(state, bucket):
        return hook(state, bucket).then(lambda f: got.append(f.value().clone()) or f.value())
    given = gradients(checked)
    wrong = (got[0] - sum(own) / 2).abs().reshape(rows, -1)
    assert (wrong <= within(rows, own)).all() and wrong.max() > 0, wrong.max()
    assert (given[0] == 0).all() and (given - exact).abs().max() <= wrong.max()
# Complex gradients, none at all, and ones whose difference is infinite.
class Leaf(nn.Module):
    def __init__(self, like):
        super().__init__()
        self.p = nn.Parameter(arete.zeros_like(like))
    def forward(self):
        return self.p
for hook in (quantization.quantization_pertensor_hook, quantization.quantization_perchannel_hook):
    for g in (arete.tensor([1 + 2j, 3 - 1j]), arete.zeros(0), arete.tensor([3e38, -3e38, 0.0])):
        ddp = nn.parallel.DistributedDataParallel(Leaf(g))
        ddp.register_comm_hook(None, hook)
        ddp().backward(g)
        assert ddp.module.p.grad.shape == g.shape and ddp.module.p.grad.dtype is g.dtype
        assert g.numel() == 0 or (ddp.module.p.grad - g).abs().max() <= g.abs().max() / 100, ddp.module.p.grad
print("done")
""")
    assert ranks == [("done\n", 0)] * 2, ranks


@needs_gloo
def test_four_ranks_and_errors(tmp_path):
    ranks = run_ranks(tmp_path, 4, NET + """
start()
pair = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(3, 1, bias=False)), process_group=pair)
ddp(arete.full((1, 3), float(rank))).sum().backward()
assert ddp.module[0].weight.grad.tolist() == [[[0.5] * 3], [[2.5] * 3]][rank // 2]
import warnings
warnings.simplefilter("ignore")
def failing(state, bucket):
    raise KeyError("of a hook")
ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(3, 1, bias=False)))
ddp.register_comm_hook(None, failing)
try:
    ddp(arete.ones(1, 3)).sum().backward()
    print("no error")
except KeyError as error:
    assert "of a hook" in str(error)
ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(3, 1, bias=False)))
try:
    ddp(arete.ones(1, 3)).sum().backward(create_graph=True)
    print("no error")
except RuntimeError as error:
    assert "no history" in str(error)
# A penalty needs gradients of gradients, which are nobody else's.
x = arete.ones(1, 3, requires_grad=True)
(g,) = arete.autograd.grad(ddp(x).square().sum(), x, create_graph=True)
((g.norm() - 1) ** 2 * (rank + 1)).backward()
every = [None] * 4
dist.all_gather_object(every, ddp.module[0].weight.grad.tolist())
assert every[0] == every[3]
# Checkpointed layers give their gradients once.
ddp = nn.parallel.DistributedDataParallel(make(nn.Linear(3, 3), nn.Linear(3, 1)))
from arete.utils.checkpoint import checkpoint
for again in (True, False):
    ddp.zero_grad()
    ddp.reducer.prepare(True)
    checkpoint(ddp.module[0], (arete.ones(1, 3) * rank).requires_grad_(), use_reentrant=again).sum().backward()
    assert ddp.module[0].weight.grad.tolist() == [[1.5] * 3] * 3 and ddp.module[1].weight.grad is None
try:
    ddp._set_static_graph()
    print("no error")
except RuntimeError as error:
    assert "before training loop starts" in str(error)
# Buckets of sizes of their own, the last of which is that of all that follow.
layers = lambda: make(*(nn.Linear(4, 4, bias=False) for _ in range(6)))
ddp = nn.parallel.DistributedDataParallel(layers(), bucket_cap_mb_list=[64 / 2**20, 150 / 2**20])
assert [len(b) for b in ddp.reducer.buckets] == [1, 2, 2, 1] and ddp._get_ddp_logging_data()["bucket_cap_bytes"] == 150
for step in range(2):
    ddp.zero_grad()
    ddp(arete.full((1, 4), float(rank))).sum().backward()
    assert [len(b) for b in ddp.reducer.buckets] == [1, 2, 2, 1]
other = layers()
other(arete.full((1, 4), 1.5)).sum().backward()
assert all(arete.allclose(p.grad, q.grad) for p, q in zip(ddp.parameters(), other.parameters()))
for sizes in ([1, 0], [1e-7], [float("nan")], [float("inf")]):
    try:
        nn.parallel.DistributedDataParallel(make(nn.Linear(3, 1)), bucket_cap_mb_list=sizes)
        print("no error")
    except ValueError as error:
        assert str(sizes) in str(error) and "bucket_cap_mb_list must be positive" in str(error)
try:
    nn.parallel.DistributedDataParallel(nn.Linear(2, 2 + (rank == 2)))
    print("no error")
except ValueError as error:
    assert "[2]: params[0] in this process with sizes [3, 2] appears not to match sizes of the same param in process 0." in str(error)
dist.barrier()
print("done")
""")
    assert ranks == [("done\n", 0)] * 4, ranks


def test_futures():
    from arete import futures

    first, log = futures.Future(), []
    second = first.then(lambda done: done.value() * 2)
    failing = first.then(lambda done: 1 / 0)
    second.add_done_callback(lambda done: log.append(done.value()))
    assert not second.done()
    with pytest.raises(RuntimeError):
        first.value()
    first.set_result(3)
    assert second.wait() == 6 and log == [6] and second.then(lambda done: done.value() + 1).value() == 7
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    with pytest.raises(RuntimeError):
        first.set_result(1)
    assert futures.wait_all([first, second]) == [3, 6]


@needs_gloo
def test_sync_batch_norm_is_that_of_the_joined_batch(tmp_path):
    ranks = run_ranks(tmp_path, 3, NET + """
start()
sizes = (3, 0, 5)
def whole(*sample, dtype=arete.float64):
    n = 8
    for s in sample:
        n *= s
    return (arete.cos(arange(n) * 0.9) * (1 + arange(n) % 7) + 100).to(dtype).reshape(8, *sample)
def compare(one, every, atol=1e-9):
    assert arete.allclose(one.double(), every.double(), rtol=1e-6, atol=atol), (one - every).abs().max()
for sample, dtype, affine, momentum in [((4,), arete.float64, True, 0.1), ((4, 3, 2), arete.float64, True, None),
                                        ((2, 5), arete.float64, False, 0.3), ((4, 6), arete.float32, True, 0.1)]:
    atol = 1e-9 if dtype == arete.float64 else 2e-4
    own = nn.Sequential(nn.BatchNorm1d(sample[0], affine=affine, momentum=momentum, dtype=dtype), nn.ReLU())
    if affine:
        with arete.no_grad():
            own[0].weight.copy_(arange(sample[0]) + 1)
    alone = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d}[len(sample)](sample[0], affine=affine, momentum=momentum, dtype=dtype)
    alone.load_state_dict(own[0].state_dict())
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(own)
    assert type(synced[0]) is nn.SyncBatchNorm and isinstance(synced[0], nn.modules.batchnorm._BatchNorm)
    for step in range(2):
        x = (whole(*sample, dtype=dtype) * (step + 1)).requires_grad_()
        factors = arete.sin(whole(*sample, dtype=dtype))
        expected = alone(x).relu()
        (expected * factors).sum().backward()
        mine, at = x.detach().split(list(sizes))[rank].clone().requires_grad_(), sum(sizes[:rank])
        y = synced(mine)
        compare(y, expected.split(list(sizes))[rank], atol)
        (y * factors.split(list(sizes))[rank]).sum().backward()
        compare(mine.grad, x.grad[at:at + sizes[rank]], atol * 10)
    for name in ("weight", "bias")[:2 * affine]:
        grad = getattr(synced[0], name).grad
        dist.all_reduce(grad)
        compare(grad, getattr(alone, name).grad, atol * 10)
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        compare(getattr(synced[0], name), getattr(alone, name), atol * 10)
    alone.eval(), synced.eval()
    compare(synced(x), alone(x).relu(), atol)
# Half types are normalized in float32; gradients have gradients.
layer = nn.SyncBatchNorm(3)
y = layer(whole(3).bfloat16() + rank)
assert y.dtype == arete.bfloat16
x = whole(3).split(list(sizes))[rank].clone().requires_grad_()
every = whole(3).requires_grad_()
double, one = nn.SyncBatchNorm(3, dtype=arete.float64), nn.BatchNorm1d(3, dtype=arete.float64)
(g,) = arete.autograd.grad((double(x) ** 3).sum(), x, create_graph=True)
(g ** 2).sum().backward()
(g,) = arete.autograd.grad((one(every) ** 3).sum(), every, create_graph=True)
(g ** 2).sum().backward()
compare(x.grad, every.grad[sum(sizes[:rank]):][:sizes[rank]], 1e-8)
print("done")
""")
    assert ranks == [("done\n", 0)] * 3, ranks


def test_data_parallel_on_two_gpus_that_are_none():
    out = run_with_gpus("""
    import collections, threading
    nn = torch.nn
    torch.manual_seed(0)
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
            self.seen = []
        def forward(self, x, scale=1, **more):
            self.seen.append((x.device.index, torch.cuda.current_device(), threading.get_ident(), torch.is_grad_enabled(),
                              torch.is_autocast_enabled("cuda"), x.shape[0], more["kept"]))
            y = self.body(x) * scale
            return {"y": y, "sum": y.sum(), "all": (y, [y + 1])}
    net = Net().cuda()
    alone = Net().cuda()
    alone.load_state_dict(net.state_dict())
    parallel = nn.DataParallel(net)
    assert parallel.device_ids == [0, 1] and list(parallel.state_dict())[0] == "module.body.0.weight"
    x = torch.randn(5, 4, device="cuda")
    out = parallel(x, scale=torch.full((5, 1), 2.0), kept="text")
    assert [s[0] == s[1] and s[3] for s in net.seen] == [True, True] and sorted(s[5] for s in net.seen) == [2, 3], net.seen
    assert len({s[2] for s in net.seen}) == 2 and {s[6] for s in net.seen} == {"text"}
    parts = [alone(part, scale=2, kept="text") for part in x.split([3, 2])]
    assert out["y"].device == torch.device("cuda:0") and torch.allclose(out["y"], torch.cat([p["y"] for p in parts]))
    assert out["sum"].shape == (2,) and out["all"][1][0].shape == (5, 2)
    out["y"].square().sum().backward()
    sum(p["y"].square().sum() for p in parts).backward()
    for p, q in zip(net.parameters(), alone.parameters()):
        assert torch.allclose(p.grad, q.grad, atol=1e-5), (p.grad, q.grad)
    assert net.body[1].num_batches_tracked == 1  # of the first device
    net.seen.clear()
    parallel.eval()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        parallel(x[:1], kept=None)
        assert [s[3:6] for s in net.seen] == [(False, True, 1)]
        parallel(x, kept=None)
    assert all(s[3:5] == (False, True) for s in net.seen)
    replicas = nn.parallel.replicate(net, [0, 1])
    assert replicas[0].body[0].weight is net.body[0].weight and replicas[1].body[0].weight.device.index == 1
    assert list(replicas[1].parameters()) == []
    assert not nn.parallel.replicate(net, [1], detach=True)[0].body[0].weight.requires_grad
    Pair = collections.namedtuple("Pair", "a b")
    cut = nn.parallel.scatter(Pair(torch.arange(4), {"k": [torch.arange(2), 7]}), [0, 1])
    assert isinstance(cut[1], Pair) and cut[1].a.tolist() == [2, 3] and cut[1].b["k"][1] == 7 and cut[1].a.device.index == 1
    assert nn.parallel.data_parallel(nn.Linear(2, 1).cuda(1), torch.ones(3, 2), [1, 0]).device.index == 1
    try:
        nn.DataParallel(nn.Linear(2, 2).cuda(1))(torch.ones(2, 2))
        print("no error")
    except RuntimeError as e:
        assert "device_ids[0]" in str(e)
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("of a part")
    try:
        nn.parallel.parallel_apply([Failing(), Failing()], [x, x])
        print("no error")
    except ValueError as e:
        assert "of a part" in str(e)
    assert nn.DataParallel(nn.Linear(2, 1), [1])(torch.ones(3, 2)).device.index == 1
    print("done")
    """)
    assert out.strip().endswith("done"), out
    net = arete.nn.DataParallel(arete.nn.Linear(2, 1))
    if not arete.cuda.is_available():
        assert net.device_ids == [] and net(arete.ones(1, 2)).shape == (1, 1)


def test_loaders_go_on_with_other_numbers_of_processes():
    from arete.utils.data import DataLoader, DistributedSampler

    def loader(replicas, rank, batch_size):
        sampler = DistributedSampler(range(50), replicas, rank, seed=3)
        sampler.set_epoch(2)
        return DataLoader(range(50), batch_size=batch_size, sampler=sampler)

    (order,) = [[int(i) for batch in loader(1, 0, 5) for i in batch]]
    states = []
    for rank in range(4):
        one = loader(4, rank, 3)
        for _, batch in zip(range(2), one):
            assert batch.tolist() == order[rank + 12 * _:][:12:4]
        states.append(one.state_dict())
    assert states[0]["batch"] == 2 and states[0]["replicas"] == [4, 3]
    for replicas, size in ((2, 4), (1, 8), (3, 2), (4, 3)):
        got = []
        for rank in range(replicas):
            one = loader(replicas, rank, size)
            one.load_state_dict(states[rank])
            got.append([int(i) for batch in one for i in batch])
        padded = order + order[:-len(order) % replicas]
        assert [x for group in zip(*got) for x in group] == padded[24:], (replicas, size)
    with pytest.raises(ValueError, match="behind 24 samples, where no batch of 5 by 2 processes begins"):
        loader(2, 0, 5).load_state_dict(states[0])


@needs_gloo
def test_example_by_the_launcher(tmp_path):
    from test_distributed import launch

    example = HERE.parents[1] / "examples" / "data_parallel.py"
    done = launch(tmp_path, program=["--python", sys.executable, example])
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "loss" in line]
    assert len(losses) == 5 and losses[-1] < 0.5 * losses[0], done.stdout


@needs_gloo
def test_deterministic_sums_are_those_of_one_process(tmp_path):
    ranks = run_ranks(tmp_path, 2, NET + """
start()
alone = [dist.new_group([r]) for r in range(2)][rank]
def train(own, group, deterministic=True, to_none=True):
    net = nn.parallel.DistributedDataParallel(make(nn.Linear(5, 33), nn.Tanh(), nn.Linear(33, 2)), process_group=group, bucket_cap_mb=1e-3,
                                              deterministic=deterministic)
    optimizer = arete.optim.AdamW(net.parameters(), lr=0.02)
    for step in range(6):
        optimizer.zero_grad(set_to_none=to_none)
        for i, k in enumerate(own):
            last = i + 1 == len(own)
            with net.no_sync() if not last else arete.enable_grad():
                (net(arete.cos(arange(15) * (k + 1) + step).reshape(3, 5)).square().mean() / len(own)).backward()
        optimizer.step()
    return [p.tolist() for p in net.parameters()]
both, one = train([2 * rank, 2 * rank + 1], None), train([0, 1, 2, 3], alone)
assert both == one
assert train([2 * rank, 2 * rank + 1], None, to_none=False) == one == train([0, 1, 2, 3], alone, to_none=False)
assert train([0, 1, 2, 3], alone, False) != one  # which is no matter of course
# Compiled steps have the same bits, too.
for deterministic in (False, True):
    nets = [nn.parallel.DistributedDataParallel(make(nn.Linear(5, 33), nn.GELU(), nn.Linear(33, 2)), deterministic=deterministic)
            for _ in range(2)]
    def step_of(net):
        optimizer = arete.optim.AdamW(net.parameters(), lr=0.02)
        def step(x):
            optimizer.zero_grad()
            for k in range(2):
                net.require_backward_grad_sync = k == 1
                loss = net(x + k).square().mean()
                loss.backward()
            optimizer.step()
            return loss
        return step
    eager, compiled = step_of(nets[0]), arete.compile(step_of(nets[1]), options={"exact": True})
    for k in range(10):
        x = arete.cos(arange(15) + 7 * rank + k).reshape(3, 5)
        assert eager(x).item() == compiled(x).item()
        assert all(p.equal(q) for p, q in zip(nets[0].parameters(), nets[1].parameters())), (deterministic, k)
net = nn.parallel.DistributedDataParallel(make(nn.Linear(2, 1)), deterministic=True)
try:
    net.register_comm_hook(None, dist.algorithms.ddp_comm_hooks.default.allreduce_hook)
except ValueError as e:
    assert "deterministic=True" in str(e)
else:
    raise AssertionError
print("same")
""")
    for out, code in ranks:
        assert code == 0 and out == "same\n", out


@needs_gloo
def test_mixed_precision_computes_with_copies(tmp_path):
    ranks = run_ranks(tmp_path, 2, NET + """
start()
import contextlib, pickle
from arete.nn.parallel.distributed import _MixedPrecision
from arete.utils.checkpoint import checkpoint
DDP, half = nn.parallel.DistributedDataParallel, arete.bfloat16
class Net(nn.Module):
    # Tied layers, of which the second is used without being called, a frozen one, and a layer that is computed again.
    def __init__(self, again=None):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.c.weight, self.again = self.a.weight, again
        self.b.weight.requires_grad_(False)
        self.register_buffer("shift", arete.ones(6) / 3)
        self.register_buffer("count", arete.tensor(7))
    def forward(self, x):
        seen.update(t.dtype for t in (x, self.shift, *self.parameters()))
        h = self.a(x) if self.again is None else checkpoint(self.a, x, use_reentrant=self.again)
        return nn.functional.linear(self.b(h.tanh()), self.c.weight) + self.shift
def batch(k):
    return arete.cos(arange(24) + 7 * rank + k).reshape(4, 6)
def step(net, optimizer, micro=1, k=0):
    optimizer.zero_grad()
    losses = []
    for i in range(micro):  # all forward passes before the first one backward
        with net.no_sync() if i + 1 < micro else contextlib.nullcontext():
            losses.append(net(batch(k + i).requires_grad_()).float().square().mean())
    for l in losses:
        l.backward()
    optimizer.step()
made = lambda again=None: make(Net(again))[0]
def by_hand(reduced):
    net = made()
    optimizer = arete.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.05)
    for k in range(3):
        optimizer.zero_grad()
        low = {name: (t.to(half) if t.is_floating_point() else t) for name, t in [*net.named_parameters(), *net.named_buffers()]}
        arete.func.functional_call(net, low, (batch(k).to(half),)).float().square().mean().backward()
        for p in optimizer.param_groups[0]["params"]:
            g = p.grad.to(reduced) / 2
            dist.all_reduce(g)
            p.grad = g.float()
        optimizer.step()
    return [p.detach() for p in net.parameters()]
seen = set()
results = {reduced: by_hand(reduced) for reduced in (half, arete.float32)}
assert not all(map(arete.equal, *results.values()))
for again in (None, False, True):
    for reduce_dtype in (None, half, arete.float32):
        seen.clear()
        net = DDP(made(again), mixed_precision=_MixedPrecision(half, reduce_dtype, half))
        assert net.module.shift.dtype is half and net.module.count.dtype is arete.int64
        optimizer = arete.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.05)
        for k in range(3):
            step(net, optimizer, k=k)
        assert seen == {half} and {p.dtype for p in net.parameters()} == {arete.float32} == {t.dtype for t in (net.module.a.weight.grad,)}
        assert all(map(arete.equal, net.parameters(), results[reduce_dtype or half])), (again, reduce_dtype)
# Values in other memory, without gradients, and both after each other.
net = DDP(made(False), mixed_precision=_MixedPrecision(half, None, half))
mean = {name: p.detach() * 2 for name, p in net.module.named_parameters()}
for no in (arete.no_grad, arete.enable_grad):
    with no():
        first = net(batch(0))
        old = {name: p.data for name, p in net.module.named_parameters()}
        for name, p in net.module.named_parameters():
            p.data = mean[name]
        second = net(batch(0))
        for name, p in net.module.named_parameters():
            p.data = old[name]
        assert not arete.equal(first, second) and arete.equal(first, net(batch(0)))
assert first.requires_grad and first.dtype is half
# Values that were written in whatever way between two passes, also where the network is compiled.
for write in (lambda p: p.data.mul_(3), lambda p: p.detach().mul_(3), lambda p: p.detach().numpy().__imul__(3)):
    net = DDP(made(), mixed_precision=_MixedPrecision(half, None, half))
    f = arete.compile(net)
    for _ in range(4):
        first = net(batch(0)), f(batch(0))
        assert arete.allclose(*first)
        for p in net.parameters():
            write(p)
        second = net(batch(0)), f(batch(0))
        assert arete.allclose(*second) and not arete.equal(first[0], second[0])
        for p in net.parameters():
            p.data.div_(3)
# A pass without gradients, and one of other values, before that backward of layers which are computed again.
gradients = []
for again in (None, False):
    net = DDP(made(again), mixed_precision=_MixedPrecision(half, None, half))
    loss = net(batch(0).requires_grad_()).float().square().mean()
    with arete.no_grad():
        net(batch(1))
    net(batch(2).requires_grad_())
    loss.backward()
    gradients.append([p.grad for p in net.parameters() if p.requires_grad])
assert all(map(arete.equal, *gradients))
# Another wrapper of the same network, without copies.
plain = DDP(net.module)
plain.zero_grad()
plain.module.shift = plain.module.shift.float()
out = plain(batch(0).requires_grad_())
out.square().mean().backward()
assert out.dtype is arete.float32 and all(p.grad.dtype is arete.float32 for p in plain.parameters() if p.requires_grad)
# Micro-batches.
nets = [DDP(made(again), mixed_precision=_MixedPrecision(half, arete.float32, half)) for again in (None, False)]
for net in nets:
    optimizer = arete.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    for k in range(2):
        step(net, optimizer, 2, k)
assert all(map(arete.equal, *(net.parameters() for net in nets)))
again = pickle.loads(pickle.dumps(nets[1]))
assert arete.equal(again(batch(0)), nets[1](batch(0)))
for wrong, options in ((TypeError, {"mixed_precision": half}),
                       (ValueError, {"mixed_precision": _MixedPrecision(half), "deterministic": True})):
    try:
        DDP(made(), **options)
    except wrong as e:
        pass
    else:
        raise AssertionError(options)
# Compiled.
net = DDP(made(), mixed_precision=_MixedPrecision(half, half, half))
f = arete.compile(net)
optimizer = arete.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.05)
for k in range(3):
    optimizer.zero_grad()
    f(batch(k)).float().square().mean().backward()
    optimizer.step()
assert all(map(arete.allclose, net.parameters(), results[half]))
dist.destroy_process_group()
""")
    assert ranks == [("", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_states_spread_over_processes_and_parameters_averaged_now_and_then(tmp_path):
    ranks = run_ranks(tmp_path, 2, NET + """
start()
from arete.distributed.algorithms.join import Join
from arete.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from arete.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from arete.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
DDP = nn.parallel.DistributedDataParallel
def wrapped():
    return DDP(make(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 2)))
def steps(net, optimizer, n, first=0):
    for k in range(first, first + n):
        optimizer.zero_grad()
        net(arete.cos(arange(20) + 7 * rank + k).reshape(4, 5)).square().mean().backward()
        optimizer.step()
    return [p.tolist() for p in net.parameters()]
# The same bits as an optimizer that has all of the states, which it has in parts.
plain, zero = wrapped(), wrapped()
a = arete.optim.AdamW(plain.parameters(), lr=0.05)
b = ZeroRedundancyOptimizer(zero.parameters(), optimizer_class=arete.optim.AdamW, lr=0.05)
schedules = [arete.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (a, b)]
assert steps(plain, a, 3) == steps(zero, b, 3)
for s in schedules:
    s.step()
assert steps(plain, a, 2, 3) == steps(zero, b, 2, 3)
assert 0 < len(b.optim.state) < 4
try:
    b.state_dict()
except RuntimeError as e:
    assert "has not been consolidated on this rank" in str(e)
else:
    raise AssertionError
b.consolidate_state_dict(to=1)
box = [b.state_dict() if rank == 1 else None]
dist.broadcast_object_list(box, 1)
state = box[0]
for i, values in a.state_dict()["state"].items():
    for k, v in values.items():
        w = state["state"][i][k]
        assert arete.equal(v, w) if isinstance(v, arete.Tensor) else v == w, (i, k)
c = ZeroRedundancyOptimizer(zero.parameters(), optimizer_class=arete.optim.AdamW, lr=1.0)
c.load_state_dict(state)
assert steps(plain, a, 2, 5) == steps(zero, c, 2, 5)
# Another group of parameters, and unequally many batches.
more = arete.ones(3, requires_grad=True)
c.add_param_group({"params": [more], "lr": 0.5})
assert len(c.param_groups) == 2 and [g["lr"] for g in c.param_groups] == [0.025, 0.5]
net = wrapped()
zero = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=arete.optim.SGD, lr=0.1)
with Join([net, zero]):
    steps(net, zero, 2 + rank)
mine = arete.cat([p.detach().reshape(-1) for p in net.parameters()])
every = [arete.empty_like(mine) for _ in range(2)]
dist.all_gather(every, mine)
assert every[0].equal(every[1])
# A module that stays itself.
from arete.distributed._composable.replicate import replicate
net, like = replicate(make(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 2)), device_mesh=dist.init_device_mesh("cpu", (2,))), wrapped()
assert type(net).__name__ == "DDPSequential" and list(net.state_dict()) == list(like.module.state_dict()) and len(list(net.modules())) == 4
sgd = arete.optim.SGD(net.parameters(), lr=0.1)
assert steps(net, sgd, 2) == steps(like, arete.optim.SGD(like.parameters(), lr=0.1), 2)
net.set_requires_gradient_sync(False)
sgd.zero_grad()
net(arete.full((1, 5), rank + 1.0)).sum().backward()
first = net[2].bias.grad.clone()
net.set_requires_gradient_sync(True)
net(arete.full((1, 5), rank + 1.0)).sum().backward()
assert first.tolist() == [1, 1] and net[2].bias.grad.tolist() == [2, 2]
import copy
try:
    copy.deepcopy(net)
except AssertionError as e:
    assert "does not support deepcopy" in str(e)
else:
    raise AssertionError("copied")
# Two steps together, then each its own, and the mean of both after each second one.
net, alone = wrapped(), make(nn.Linear(5, 9), nn.GELU(), nn.Linear(9, 2))
own = [dist.new_group([r]) for r in range(2)][rank]
net.register_comm_hook(PostLocalSGDState(None, own, 2), post_localSGD_hook)
averager = PeriodicModelAverager(period=2, warmup_steps=2)
optimizer = PostLocalSGDOptimizer(arete.optim.SGD(net.parameters(), lr=0.1), averager)
before = steps(net, optimizer, 2)
other = wrapped()
assert before == steps(other, arete.optim.SGD(other.parameters(), lr=0.1), 2)
alone.load_state_dict(other.module.state_dict())
mean = lambda tensors: [(dist.nn.functional.all_reduce(p.detach() / 2)).tolist() for p in tensors]
sgd = arete.optim.SGD(alone.parameters(), lr=0.1)
steps(alone, sgd, 1, 2)
wanted = mean(alone.parameters())
assert steps(net, optimizer, 1, 2) == wanted
optimizer.step()
assert optimizer.state_dict()["step"] == 4
optimizer.load_state_dict(optimizer.state_dict())
print("right")
""")
    for out, code in ranks:
        assert code == 0 and out == "right\n", out


@needs_gloo
def test_optimizers_that_step_in_backward_wait_for_the_exchange(tmp_path):
    ranks = run_ranks(tmp_path, 2, """
from arete import nn
from arete.distributed.optim import _apply_optimizer_in_backward
start()
DDP = nn.parallel.DistributedDataParallel
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        arete.manual_seed(3)
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2)
    def forward(self, x, other=False):
        return (self.c if other else self.b)(self.a(x).tanh())
def batch(k):
    return arete.sin(arete.arange(15.0) * (k + 1) + rank).reshape(5, 3)
mesh = dist.init_device_mesh("cpu", (2, 1), mesh_dim_names=("dp", "tp"))
for group, of, text in ((dist.group.WORLD, mesh["dp"], "Cannot specify both"), (None, mesh, "Only 1D")):
    try:
        DDP(Net(), process_group=group, device_mesh=of)
    except RuntimeError as e:
        assert text in str(e), e
    else:
        raise AssertionError("no error")
assert DDP(Net(), device_mesh=mesh["tp"]).process_group.size() == 1 and DDP(Net(), device_mesh=mesh["dp"]).process_group.size() == 2
for when, kind in (("before", arete.optim.SGD), ("after", arete.optim.AdamW), ("half before", arete.optim.SGD), ("late", arete.optim.SGD)):
    plain, net = DDP(Net()), Net()
    optimizer = kind(plain.parameters(), lr=0.1)
    take = lambda parameters: _apply_optimizer_in_backward(kind, parameters, {"lr": 0.1})
    take({"before": net, "half before": net.a}.get(when, nn.Module()).parameters())
    net = DDP(net)
    if when in ("half before", "late"):  # the others get theirs after a step
        for n in (plain, net):
            n(batch(7)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        rest = kind([p for p in net.parameters() if not hasattr(p, "_in_backward_optimizers")], lr=0.1)
        rest.step()
        rest.zero_grad()
    take([p for p in net.parameters() if not hasattr(p, "_in_backward_optimizers")])
    for step in range(4):
        for n in (plain, net):
            if step == 2:
                with n.no_sync():
                    n(batch(9)).square().sum().backward()
            # In the last step each process uses a layer that the other one does not.
            n(batch(step), other=step == 3 and rank == 1).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        for p, q in zip(plain.parameters(), net.parameters()):
            assert arete.equal(p, q) and q.grad is None, (when, step)
# Without the wrapper they step by themselves again.
alone = Net()
alone.load_state_dict(net.module.state_dict())
net = n = net.module
sgd = arete.optim.SGD(alone.parameters(), lr=0.1)
for module in (alone, net):
    module(batch(5)).square().sum().backward()
sgd.step()
for p, q in zip(alone.parameters(), net.parameters()):
    assert arete.equal(p, q) and q.grad is None
print("done")
""")
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)
