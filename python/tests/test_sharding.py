"""Parameters spread over processes: the same bits as data parallelism and one process, and what becomes of memory and states."""
import json
import os
import pathlib
import subprocess
import sys

import fake_gpus
import pytest
from device_helpers import without_gpus
from peer import peer
from test_data_parallel import is_close
from test_distributed import needs_gloo, run_ranks

COMMON = """
from arete import nn
from arete.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from arete.utils.checkpoint import checkpoint
DDP = nn.parallel.DistributedDataParallel
arange = lambda n: arete.arange(n, dtype=arete.float32)
def filled(net):
    with arete.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(arete.sin(arange(p.numel()) * 1.3 + k).reshape(p.shape) * 0.5)
    return net
class Block(nn.Module):
    def __init__(self, n=7, outer=False, inner=False):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(n), nn.Linear(n, 2 * n), nn.Linear(2 * n, n)
        self.outer, self.inner = outer, inner
    def run(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))
    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False) if self.inner else self.run(x)
class Net(nn.Module):
    # An embedding that is tied, blocks, and a layer that some passes leave out.
    def __init__(self, **options):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(11, 7), nn.ModuleList(Block(**options) for _ in range(3))
        self.extra, self.head = nn.Linear(7, 7), nn.Linear(7, 11, bias=False)
        self.head.weight = self.embed.weight
    def forward(self, tokens, extra=True):
        x = self.embed(tokens)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if b.outer else b(x)
        return self.head(self.extra(x) if extra else x)
def shard(net, **options):
    for b in net.blocks:
        fully_shard(b, **options)
    return fully_shard(net, **options)
def tokens(rank, step):
    return ((arete.arange(12) * 5 + 3 * rank + 2 * step) % 11).reshape(2, 6)
def loss(net, rank, step, **options):
    logits = net(tokens(rank, step), **options)
    return nn.functional.cross_entropy(logits.reshape(-1, 11), tokens(rank, step + 1).reshape(-1))
def train(net, steps=2, losses=None, optimizer=None, clip=None):
    optimizer = optimizer or arete.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for l in (losses or (lambda s: [loss(net, rank, s)]))(step):
            l.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
    return net
def whole(net):
    return {name: p.full_tensor() if isinstance(p, dist.tensor.DTensor) else p.detach() for name, p in net.named_parameters()}
def same(net, other):
    a, b = whole(net), whole(other.module if isinstance(other, DDP) else other)
    assert a.keys() == b.keys() and len(a) > 0
    wrong = [(name, (a[name] - b[name]).abs().max().item()) for name in a if not arete.equal(a[name], b[name])]
    assert not wrong, wrong
def raises(kind, text, f):
    try:
        f()
    except kind as e:
        assert text in str(e), e
    else:
        raise AssertionError("no error: " + text)
"""


def run(tmp_path, size, body):
    ranks = run_ranks(tmp_path, size, COMMON + "start()\n" + body + "\nprint('done')", env=without_gpus(OMP_NUM_THREADS="1"))
    assert ranks == [("done\n", 0)] * size, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_the_same_bits_as_data_parallelism(tmp_path):
    run(tmp_path, 2, """
same(train(shard(filled(Net())), 6), train(DDP(filled(Net())), 6))
ddp = train(DDP(filled(Net())))
for options in ({}, {"reshard_after_forward": True}, {"reshard_after_forward": False}, {"offload_policy": CPUOffloadPolicy()}):
    same(train(shard(filled(Net()), **options)), ddp)
# Again computed in the pass backward, around and within what is sharded.
for options in ({"outer": True}, {"inner": True}):
    same(train(shard(filled(Net(**options)))), ddp)
# Compiled, each block or all of it.
net = filled(Net())
for b in net.blocks:
    b.compile()
same(train(shard(net)), ddp)
net = shard(filled(Net()))
f = arete.compile(net)
train(net, losses=lambda s: [loss(f, rank, s)])
same(net, ddp)
# One group; modules that make a group together.
same(train(fully_shard(filled(Net()))), ddp)
net = filled(Net())
fully_shard([net.blocks[0], net.blocks[1]])
same(train(fully_shard(net)), ddp)
# One process that accumulates both batches.
alone = filled(Net())
same(train(alone, losses=lambda s: [loss(alone, r, s) / 2 for r in range(2)]), ddp)
# Micro-batches, of which the last one's pass reduces the sums; what is left out by all keeps no gradient, by one the others'.
def micro(net):
    def losses(step):
        for k in range(3):
            if isinstance(net, DDP):
                net.require_backward_grad_sync = k == 2
            else:
                net.set_requires_gradient_sync(k == 2)
            yield loss(net, rank, 3 * step + k, extra=step == 1 and (k == 1 or rank == 1))
    return losses
ddp = DDP(filled(Net()))
train(ddp, losses=micro(ddp))
for late in (False, True):
    net = shard(filled(Net()))
    net.set_reshard_after_backward(not late)
    same(train(net, losses=micro(net)), ddp)
""")


@needs_gloo
def test_neighbours_keep_parameters_between_the_passes(tmp_path):
    """reshard_after_forward=2 on four processes: the pass backward gathers in pairs, and has the same bits."""
    run(tmp_path, 4, """
def gathered():
    calls = [c for c in dist.flight_record()["entries"] if "all_gather" in c["profiling_name"]]
    return {name: sum(c["process_group"][0] == name for c in calls) for name in {c["process_group"][0] for c in calls}}
plain = train(shard(filled(Net())), 3)
before, net = gathered(), shard(filled(Net(inner=True)), reshard_after_forward=2)
now, each = gathered() if train(net, 3) else {}, 3 * len(list(net.parameters()))
same(net, plain)
pair = net._fsdp_state.kept_by
assert dist.get_process_group_ranks(pair) == [rank // 2 * 2, rank // 2 * 2 + 1] and net.blocks[0]._fsdp_state.kept_by is pair
assert now[pair.group_name] == each and now["default_pg_0"] - before["default_pg_0"] == each, (before, now, each)
# Where a layer that is sharded is called by a checkpoint, whose first run shows no history.
before, net = gathered(), shard(filled(Net(outer=True)), reshard_after_forward=2)
now, each = gathered() if train(net, 3) else {}, 3 * len(list(net.parameters()))
same(net, plain)
assert now[pair.group_name] - before[pair.group_name] == now["default_pg_0"] - before["default_pg_0"] == each, (before, now, each)
# Those of a group have its backend and its patience.
from datetime import timedelta
group = dist.new_group(timeout=timedelta(seconds=77), backend="cpu:gloo")
part = fully_shard(nn.Linear(4, 4), mesh=dist.DeviceMesh.from_group(group, "cpu"), reshard_after_forward=2)._fsdp_state.kept_by
assert part._timeout == timedelta(seconds=77) != pair._timeout and part._backend == group._backend != pair._backend
# Micro-batches, both passes of one after those of the other, and what is compiled.
net = shard(filled(Net()), reshard_after_forward=2)
f = arete.compile(net)
same(train(net, 3, losses=lambda s: [loss(f, rank, s)]), plain)
net, other = shard(filled(Net()), reshard_after_forward=2), shard(filled(Net()))
for n in (net, other):
    train(n, 2, losses=lambda s: [loss(n, rank, s) + loss(n, rank, s + 5)])
same(net, other)
net.set_reshard_after_forward(True)  # as if there had been no number
train(net), train(other)
same(net, other)
mixed = {"mp_policy": MixedPrecisionPolicy(param_dtype=arete.bfloat16, reduce_dtype=arete.float32)}
same(train(shard(filled(Net()), reshard_after_forward=2, **mixed)), train(shard(filled(Net()), **mixed)))
for number in (0, 3, 8):
    raises(ValueError, "should be a factor of 4", lambda: fully_shard(nn.Linear(4, 4), reshard_after_forward=number))
assert [fully_shard(nn.Linear(4, 4), reshard_after_forward=n)._fsdp_state.reshard for n in (1, 4)] == [False, True]
""")


@needs_gloo
@pytest.mark.parametrize("size", [2, 3])
def test_other_dimensions_than_the_first(tmp_path, size):
    run(tmp_path, size, """
from arete.distributed.tensor import Replicate, Shard
columns = lambda p: Shard(-1) if p.dim() > 1 else None
ddp = train(DDP(filled(Net())), clip=0.3)
def close(net):
    a, b = whole(net), whole(ddp.module)
    assert a.keys() == b.keys()
    for name in a:
        assert arete.allclose(a[name], b[name], atol=2e-6), name
for options in ({}, {"reshard_after_forward": False}, {"offload_policy": CPUOffloadPolicy()}):
    net = train(shard(filled(Net()), shard_placement_fn=columns, **options), clip=0.3)
    close(net)
p = net.blocks[0].up.weight
number, first = Shard.local_shard_size_and_offset(7, size, rank)
assert p.placements == p.grad.placements == (Shard(1),) and tuple(p.shape) == (14, 7)
assert tuple(p.to_local().shape) == tuple(p.grad.to_local().shape) == (14, number)
assert arete.equal(p.to_local(), p.full_tensor()[:, first:first + number])
assert net.blocks[0].up.bias.placements == (Shard(0),)
state = net.state_dict()
assert state["blocks.0.up.weight"].placements == (Shard(1),)
other = shard(filled(Net()))  # by rows, from a state by columns, and back
other.load_state_dict(state)
same(other, net)
dist.checkpoint.save({"net": state}, checkpoint_id="FOLDER/columns")
mine = {"net": {name: arete.zeros(p.shape) for name, p in state.items()}}
dist.checkpoint.load(mine, checkpoint_id="FOLDER/columns")
for name, p in whole(net).items():
    assert arete.equal(mine["net"][name], p), name
net = shard(filled(Net()), shard_placement_fn=columns)
net.load_state_dict(other.state_dict(), assign=True)
same(net, other)
raises(ValueError, "2 dimensions", lambda: fully_shard(nn.Linear(2, 2), shard_placement_fn=lambda p: Shard(2)))
raises(ValueError, "Shard() or None", lambda: fully_shard(nn.Linear(2, 2), shard_placement_fn=lambda p: Replicate()))
""".replace("FOLDER", str(tmp_path)))


@needs_gloo
def test_saved_states_stay_spread(tmp_path):
    """arete.save() of a state whose tensors are spread writes this process' parts as what they are; they were plain tensors."""
    run(tmp_path, 2, """
net, file = train(shard(filled(Net()))), "FOLDER/" + str(rank)
arete.save({"net": net.state_dict(), "step": 3}, file)
for weights_only in (True, False):
    saved = arete.load(file, weights_only=weights_only)
    w = saved["net"]["blocks.0.up.weight"]
    assert saved["step"] == 3 and w.placements == net.blocks[0].up.weight.placements and tuple(w.shape) == (14, 7)
    assert arete.equal(w.full_tensor(), net.blocks[0].up.weight.full_tensor())
    other = shard(Net())
    other.load_state_dict(saved["net"])
    same(other, net)
raises(NotImplementedError, "is not pickled", lambda: arete.save(net.blocks[0].up.weight, file))
""".replace("FOLDER", str(tmp_path)))


@needs_gloo
def test_gradients_and_memory(tmp_path):
    run(tmp_path, 2, """
net = shard(filled(Net()))
block = net.blocks[0]
groups = [m._fsdp_state.group for m in net.modules() if isinstance(m, FSDPModule)]
p = block.up.weight
assert len(groups) == 4 and isinstance(net, Net) and type(net).__name__ == "FSDPNet" and isinstance(p, nn.Parameter)
assert tuple(p.shape) == (14, 7) and p.numel() == 98 and tuple(p.to_local().shape) == (7, 7)
assert p.placements == (dist.tensor.Shard(0),) and p.device_mesh.size() == 2
seen = []
block.up.register_forward_pre_hook(lambda m, args: seen.append((m.weight.shape, m.weight.detach().shape, [g.is_unsharded for g in groups])))
l = loss(net, rank, 0)
# The root's and the block's own; from the second time on those of the next two blocks, too, which are small.
assert seen.pop() == ((14, 7), (14, 7), [True, True, False, False]), seen
assert [g.is_unsharded for g in groups] == [True, False, False, False]
l.backward()
assert not any(g.is_unsharded for g in groups) and tuple(p.grad.to_local().shape) == (7, 7)
l = loss(net, rank, 1)
assert seen.pop() == ((14, 7), (14, 7), [True] * 4)
# Gradients add up, and are those of data parallelism.
l.backward()
ddp = DDP(filled(Net()))
for step in range(2):
    loss(ddp, rank, step).backward()
for (name, a), b in zip(net.named_parameters(), ddp.module.parameters()):
    # Data parallelism adds before it takes the mean.
    assert (a.grad is None and b.grad is None) or arete.allclose(a.grad.full_tensor(), b.grad, atol=1e-7, rtol=1e-5), name
assert arete.equal(nn.utils.clip_grad_norm_(net.parameters(), 1e9), nn.utils.clip_grad_norm_(net.parameters(), 1e9))
for kind in (1.0, 2.0, float("inf")):
    a, b = (nn.utils.clip_grad_norm_(n.parameters(), 0.05, kind) for n in (net, ddp))
    assert abs(a - b) <= 1e-6 * b, (kind, a, b)
    for q, r in zip(net.parameters(), ddp.parameters()):
        assert arete.allclose(q.grad.full_tensor(), r.grad, atol=0, rtol=1e-5)
# Whole outside of its module only if it is asked for.
kept = []
block.up.register_forward_hook(lambda m, args, out: kept.append(m.weight.T))
loss(net, rank, 0)
raises(ValueError, "used whole while it is not", lambda: kept[0].sum().item())
block.unshard()
assert tuple(p.to_local().shape) == (14, 7)
p.detach().sum().item()
block.reshard()
handle = block.unshard(async_op=True)
handle.wait()
assert tuple(p.to_local().shape) == (14, 7)
block.reshard()
assert tuple(p.to_local().shape) == (7, 7)
# Whatever else is to be gathered ahead.
block.set_modules_to_forward_prefetch(list(net.blocks[1:]))
loss(net, rank, 0)
assert seen.pop() == ((14, 7), (14, 7), [True] * 4)
block.set_modules_to_forward_prefetch([])
# A step between forward and backward pass is noticed.
l = loss(net, rank, 0)
arete.optim.SGD(net.parameters(), lr=0.1).step()
raises(RuntimeError, "modified by an inplace operation", l.backward)
# After errors everything goes on.
net.zero_grad()
fails = net.blocks[1].down.register_forward_hook(lambda m, args, out: 1 / 0)
raises(ZeroDivisionError, "", lambda: loss(net, rank, 0))
fails.remove()
class Fails(arete.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, g):
        raise ZeroDivisionError("in the pass")
fails = net.blocks[1].down.register_forward_hook(lambda m, args, out: Fails.apply(out))
raises(ZeroDivisionError, "in the pass", lambda: loss(net, rank, 0).backward())
fails.remove()
assert tuple(p.to_local().shape) == (7, 7)
ddp = DDP(filled(Net()))
ddp.module.load_state_dict({n: t.clone() for n, t in whole(net).items()} | {"head.weight": net.embed.weight.full_tensor()})
net.zero_grad()
for n in (net, ddp):
    loss(n, rank, 3).backward()
for (name, a), b in zip(net.named_parameters(), ddp.module.parameters()):
    assert arete.equal(a.grad.full_tensor(), b.grad), name
# Gradients of gradients are refused.
import warnings
warnings.simplefilter("ignore")
raises(RuntimeError, "create_graph", lambda: loss(net, rank, 0).backward(create_graph=True))
assert p.grad.norm().item() == p.grad.full_tensor().norm().item()  # of all of it
assert arete.equal((net.state_dict()["extra.weight"] * 2).full_tensor(), 2 * net.extra.weight.full_tensor())
for optimizer in (arete.optim.Adafactor, arete.optim.LBFGS, arete.optim.Muon):
    raises(NotImplementedError, "a step depends on whole parameters", lambda: optimizer([block.up.weight]))
import copy
raises(AssertionError, "does not support deepcopy", lambda: copy.deepcopy(net))
raises(AssertionError, "can only be applied to a module once", lambda: fully_shard(net))
raises(ValueError, "scalar parameters", lambda: fully_shard(nn.ParameterList([nn.Parameter(arete.ones(()))])))
""")


@needs_gloo
def test_modules_of_other_forms(tmp_path):
    run(tmp_path, 2, """
# An optimizer that somebody else has written.
class Own(arete.optim.Optimizer):
    @arete.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state["mean"], state["square"] = arete.zeros_like(p.grad), arete.zeros_like(p.grad)
            state["mean"].mul_(0.5).add_(p.grad, alpha=0.5)
            state["square"].addcmul_(p.grad, p.grad, value=0.1)
            p.addcdiv_(state["mean"], state["square"].sqrt().add_(1e-3), value=-0.1)
            p.add_(p.grad, alpha=-0.1)
net, one = (filled(nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 3))) for _ in range(2))
fully_shard(net[0])
fully_shard(net)
for n in (net, one):
    optimizer = Own(n.parameters(), {})
    for step in range(3):
        optimizer.zero_grad()
        n(arange(10).reshape(2, 5) * (step + 1)).square().mean().backward()
        optimizer.step()
for p, q in zip(net.parameters(), one.parameters()):
    assert arete.allclose(p.full_tensor(), q, atol=1e-6)
raises(ValueError, "a plain tensor is written", lambda: net[0].weight.grad.add_(one[0].weight.grad))
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(7, 7), nn.Linear(7, 7)
    def forward(self, x, *, memory=None):
        return {"x": nn.functional.gelu(self.a(x)) + (0 if memory is None else self.b(memory)), "n": 3}
class Both(nn.Module):
    # A module that is called twice, with an input that comes from far, and results in a dictionary.
    def __init__(self):
        super().__init__()
        self.enc, self.dec, self.out = Two(), Two(), nn.Linear(7, 11)
    def forward(self, x):
        memory = self.enc(x)["x"]
        for _ in range(2):
            x = self.dec(x, memory=memory)["x"]
        return self.out(x)
    def half(self, x):
        return self.out(x) / 2
def made(frozen=False, spread=True):
    net = filled(Both())
    for name, p in net.named_parameters():
        p.requires_grad_(not frozen or ".b." not in name)
    if not spread:
        return DDP(net)
    for m in (net.enc, net.dec, net):
        fully_shard(m)
    return net
def of(net, step):
    return net(arete.cos(arange(42) * (rank + 1) + step).reshape(6, 7)).square().mean()
def steps(net):
    optimizer = arete.optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=0.01)
    for step in range(3):
        l = of(net, step)
        if step == 1:  # twice the same graph
            l.backward(retain_graph=True)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        with arete.no_grad():
            of(net, step)
    return net
for frozen in (False, True):
    net = made(frozen)
    same(steps(net), steps(made(frozen, spread=False)))
with arete.no_grad():
    a = of(net, 0)
with arete.inference_mode():
    assert of(net, 0) == a
assert tuple(arete.autograd.grad(of(net, 0), [net.out.bias])[0].shape) == (11,)
dist.fsdp.register_fsdp_forward_method(net, "half")
x = arete.ones(1, 7)
assert tuple(net.half(x).shape) == (1, 11) and tuple(net.out.bias.to_local().shape) == (6 - rank,)
net.zero_grad()
net.half(x).sum().backward()
assert arete.equal(net.out.bias.grad.full_tensor(), arete.full((11,), 0.5))
class Scaled(nn.Module):
    # Its own gradient is there before that of its input needs it.
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(arange(7))
    def forward(self, x):
        return (x * self.w.detach()).exp() + self.w.sum()
def scaled(spread):
    net = nn.Sequential(filled(nn.Linear(7, 7)), Scaled())
    if not spread:
        return DDP(net)
    fully_shard(net[1])
    return fully_shard(net)
nets = [scaled(spread) for spread in (True, False)]
for n in nets:
    n(arange(14).reshape(2, 7) / 9).sum().backward()
assert arete.equal(nets[0][0].weight.grad.full_tensor(), nets[1].module[0].weight.grad)
# Modules that make one group are moved one after the other.
pair = nn.Sequential(nn.Linear(7, 7), nn.Linear(7, 7))
fully_shard([pair[0], pair[1]])
pair[0].to(arete.float64)
raises(RuntimeError, "moved to different devices or dtypes", lambda: pair(x))
pair.to(arete.float64)
pair(x.double()).sum().backward()
assert pair[1].bias.grad.dtype == arete.float64
import gc, weakref
# Hooks end with their module, which they may hold; None takes one away.
calls = []
net.set_all_reduce_hook(lambda gradients, net=net: calls.append(gradients.numel()))
raises(TypeError, "hook must be callable or None, got int", lambda: net.set_all_reduce_hook(3))
raises(NotImplementedError, "stream must be None", lambda: net.set_all_reduce_hook(print, stream=1))
net.half(x).sum().backward()
assert len(calls) == 1 and calls[0] % 64 == 0, calls  # each parameter begins at a multiple of 256 bytes
net.set_all_reduce_hook(None)
net.half(x).sum().backward()
assert len(calls) == 1, calls
net.set_all_reduce_hook(lambda gradients, net=net: None)
ddp = DDP(nn.Linear(2, 1))
ddp.register_comm_hook(ddp, lambda owner, bucket: None)
seen = [weakref.ref(net), weakref.ref(ddp)]
del net, ddp
gc.collect()
assert [s() for s in seen] == [None, None]
""")


@needs_gloo
def test_replicas_frozen_parameters_and_states(tmp_path):
    run(tmp_path, 4, """
def close(net, other, tol=1e-6):
    a, b = whole(net), whole(other.module if isinstance(other, DDP) else other)
    wrong = [(k, (a[k] - b[k]).abs().max()) for k in a if not (a[k] - b[k]).abs().max() < tol]
    assert a.keys() == b.keys() and not wrong, wrong
# The same shards on two pairs of processes, or the same on all.
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
ddp = train(DDP(filled(Net())), 2)
for m in (mesh, dist.init_device_mesh("cpu", (4, 1)), None):
    close(train(shard(filled(Net()), mesh=m), 2), ddp)
net, ddp = shard(filled(Net()), mesh=mesh), DDP(filled(Net()))
def micro(n):
    def losses(step):
        for k in range(3):
            n.set_requires_all_reduce(k == 2) if n is net else setattr(n, "require_backward_grad_sync", k == 2)
            yield loss(n, rank, 3 * step + k)
    return losses
close(train(net, 2, losses=micro(net)), train(ddp, 2, losses=micro(ddp)))
# Frozen parameters are there until the gradients of what went into their module are known.
net, other = filled(Net()), filled(Net())
for n in (net, other):
    for name, p in n.named_parameters():
        p.requires_grad_("up" not in name and "embed" not in name)
net, seen = shard(net), []
net.blocks[0].down.register_full_backward_pre_hook(
    lambda m, g: seen.append([b._fsdp_state.group.is_unsharded for b in net.blocks]))
close(train(net, 2), train(DDP(other), 2))
assert seen == [[True, False, False]] * 2, seen
# Made without memory; states that are whole, or spread in the same way or another.
with arete.device("meta"):
    net = Net()
shard(net)
raises(ValueError, "on meta", lambda: net.blocks[0](arete.ones(1, 7)))
net.to_empty(device="cpu")
start = filled(Net())
net.load_state_dict(start.state_dict())
close(net, start, 1e-9)
close(train(net, 2), train(DDP(start), 2))
state = net.state_dict()
assert list(state) == list(start.state_dict()) and all(isinstance(t, dist.tensor.DTensor) for t in state.values())
for options in ({}, {"mesh": mesh}):
    other = shard(filled(Net()), **options)
    other.load_state_dict(state)
    close(other, net, 1e-9)
# Tensors that take the place of parameters on meta, before anything else.
with arete.device("meta"):
    net = Net()
shard(net)
start, like = filled(Net()), net.state_dict()
net.load_state_dict({k: nn.Parameter(dist.tensor.distribute_tensor(t, like[k].device_mesh, like[k].placements))
                     for k, t in start.state_dict().items()}, assign=True)
net.unshard()
assert net.head.weight is net.embed.weight and not net.embed.weight.is_meta
close(net, start, 1e-9)
close(train(net, 2), train(DDP(start), 2))
# Equal seeds make the values of one process.
with arete.device("meta"):
    net = Net()
shard(net, mesh=mesh).to_empty(device="cpu")
alone = Net()
for n in (net, alone):
    arete.manual_seed(5)
    for m in n.modules():
        if hasattr(m, "reset_parameters"):
            m.reset_parameters()
    with arete.no_grad():
        nn.init.orthogonal_(n.blocks[0].up.weight)
        nn.init.trunc_normal_(n.blocks[1].up.weight, std=0.02)
        n.extra.weight.copy_(arange(49).reshape(7, 7))
same(net, alone)
# Computed with in bfloat16, and summed up in float32: the bits of who does so by hand.
net = shard(filled(Net()), mp_policy=MixedPrecisionPolicy(param_dtype=arete.bfloat16, reduce_dtype=arete.float32))
kinds = []
net.blocks[0].up.register_forward_hook(lambda m, args, out: kinds.append((m.weight.dtype, args[0].dtype, out.dtype)))
loss(net, rank, 0).backward()
assert kinds == [(arete.bfloat16,) * 3] and net.extra.bias.dtype == arete.float32
half = filled(Net()).bfloat16()
loss(half, rank, 0).backward()
for a, b in zip(net.parameters(), half.parameters()):
    g = [arete.empty(b.shape) for _ in range(4)]
    dist.all_gather(g, b.grad.float())
    assert arete.equal(a.grad.full_tensor(), g[0] / 4 + g[1] / 4 + g[2] / 4 + g[3] / 4)
net.bfloat16()
assert net.extra.weight.dtype == arete.bfloat16 and isinstance(net.extra.weight, dist.tensor.DTensor)
net.zero_grad()
loss(net, rank, 0).backward()
""")


@needs_gloo
def test_older_words_and_states_of_optimizers(tmp_path):
    run(tmp_path, 2, """
import functools
from arete.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)
from arete.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, ShardingStrategy, StateDictType
from arete.distributed.fsdp import FullyShardedDataParallel as FSDP
from arete.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from arete.distributed.fsdp.wrap import CustomPolicy, ModuleWrapPolicy, size_based_auto_wrap_policy, transformer_auto_wrap_policy
adam = lambda net: arete.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
ddp = train(DDP(filled(Net())), 2)
policies = (ModuleWrapPolicy({Block}), functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block}),
            functools.partial(size_based_auto_wrap_policy, min_num_params=200), None,
            CustomPolicy(lambda m: isinstance(m, nn.Linear) and m.out_features != 11))
for strategy, policy in ((s, p) for s in ShardingStrategy for p in (policies if s is ShardingStrategy.FULL_SHARD else policies[:1])):
    mesh = dist.init_device_mesh("cpu", (1, 2)) if "HYBRID" in strategy.name else None
    net = FSDP(filled(Net()), sharding_strategy=strategy, auto_wrap_policy=policy, device_mesh=mesh)
    assert len([m for m in net.modules() if isinstance(m, FSDPModule)]) == {policies[2]: 4, None: 1, policies[4]: 8}.get(policy, 4)
    optimizer = adam(net)
    same(train(net, 2, optimizer=optimizer), ddp)
# States of modules.
state = net.state_dict()
assert list(state) == list(ddp.module.state_dict()) and type(state["embed.weight"]) is arete.Tensor
with FSDP.state_dict_type(net, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
    assert len(net.state_dict()) == (0 if rank else len(state))
with FSDP.state_dict_type(net, StateDictType.SHARDED_STATE_DICT):
    assert isinstance(net.state_dict()["embed.weight"], dist.tensor.DTensor)
    net.load_state_dict(net.state_dict())
net.load_state_dict(state)
same(net, ddp)
# States of optimizers.
optimizer_state = FSDP.optim_state_dict(net, optimizer)
assert tuple(optimizer_state["state"]["embed.weight"]["exp_avg"].shape) == (11, 7)
other = FSDP(filled(Net()), auto_wrap_policy=policies[0])
second = adam(other)
other.load_state_dict(state)
second.load_state_dict(FSDP.optim_state_dict_to_load(other, second, optimizer_state))
with FSDP.state_dict_type(other, StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(rank0_only=True)):
    third = adam(other)
    third.load_state_dict(FSDP.optim_state_dict_to_load(other, third, None if rank else optimizer_state))
    for p in other.parameters():
        assert all(arete.equal(third.state[p][k], second.state[p][k]) for k in ("exp_avg", "exp_avg_sq"))
same(train(net, 2, optimizer=optimizer), train(other, 2, optimizer=second))
whole_states = StateDictOptions(full_state_dict=True, cpu_offload=True)
from_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
net, have = shard(filled(Net())), get_model_state_dict(other, options=whole_states)
assert len(have) == (0 if rank else len(state))
set_model_state_dict(net, have, options=from_0)
optimizer = adam(net)
set_optimizer_state_dict(net, optimizer, get_optimizer_state_dict(other, second, options=whole_states), options=from_0)
same(train(net, 2, optimizer=optimizer), train(other, 2, optimizer=second))
# Rank 0's tensors may be of another dtype or shape, fewer or more.
have = {k: v.double() for k, v in get_model_state_dict(other, options=whole_states).items()}
set_model_state_dict(net, have, options=from_0)
same(net, other)
raises(ValueError, "size mismatch for embed.weight: rank 0 has [3], the state [11, 7]",
       lambda: set_model_state_dict(net, {**have, "embed.weight": arete.ones(3)}, options=from_0))
have = {"more": arete.ones(1), **{k: v for k, v in have.items() if k != "embed.weight"}}
raises(RuntimeError, "Missing key", lambda: set_model_state_dict(net, have if rank == 0 else {}, options=from_0))
loose = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
assert set_model_state_dict(net, have if rank == 0 else {}, options=loose) == (["embed.weight"], ["more"])
net.zero_grad()
less = get_optimizer_state_dict(other, second, options=whole_states)
if rank == 0:
    del less["state"]["embed.weight"]
set_optimizer_state_dict(net, adam(net), less, options=from_0)
set_optimizer_state_dict(net, adam(net), get_optimizer_state_dict(other, second,
                                                                  options=StateDictOptions(flatten_optimizer_state_dict=True)))
# Whole parameters for a while.
before = whole(other)
with FSDP.summon_full_params(other):
    with arete.no_grad():
        assert tuple(other.module.embed.weight.to_local().shape) == (11, 7)
        other.module.embed.weight.mul_(2)
after = whole(other)
assert arete.equal(after["embed.weight"], before["embed.weight"] * 2) and arete.equal(after["extra.weight"], before["extra.weight"])
other.zero_grad()
with other.no_sync():
    loss(other, rank, 0).backward()
assert other.module.embed.weight.grad is None
loss(other, rank, 1).backward()
assert other.clip_grad_norm_(1.0) > 0
# What one process finds in its gradients all know.
net, scaler = shard(filled(Net())), ShardedGradScaler("cpu", init_scale=4.0)
optimizer, before = arete.optim.SGD(net.parameters(), lr=0.1), None
for step in range(2):
    before = whole(net)
    scaler.scale(loss(net, rank, step)).backward()
    if step == 0 and rank == 1:
        net.embed.weight.grad.to_local()[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2 and arete.equal(whole(net)["extra.weight"], before["extra.weight"]) == (step == 0)
    optimizer.zero_grad()
""")


@needs_gloo
def test_gpus(tmp_path):
    # GPUs that are none, whose group's own stream is late: what does not wait sees old values.
    ranks = [subprocess.Popen([sys.executable, pathlib.Path(__file__).with_name("shard_program.py")], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "RANK": str(r), "LOCAL_RANK": str(r),
                                   "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1", "ARETE_TEST_MEETING": f"file://{tmp_path}/store",
                                   "ARETE_TEST_FOLDER": f"{tmp_path}/checkpoint"}) for r in range(2)]
    for rank, process in enumerate(ranks):
        out = process.communicate(timeout=120)[0]
        assert process.returncode == 0 and (rank or out.endswith("all right\n")), out


@needs_gloo
def test_reductions_on_gpus_that_are_none(tmp_path):
    ranks = run_ranks(tmp_path, 2, COMMON + """
start(backend="cpu:gloo,cuda:nccl")
arete.cuda.set_device(rank)
# A network that was trained on the host before.
net = fully_shard(filled(nn.Linear(4, 4)), mesh=dist.init_device_mesh("cpu", (2,)))
net(arange(4) * (rank + 1)).square().sum().backward()
wanted = net.weight.grad.full_tensor()
net.zero_grad()
net.cuda()
net((arange(4) * (rank + 1)).cuda()).square().sum().backward()
assert arete.allclose(net.weight.grad.full_tensor().cpu(), wanted)
# A call that does not end ends reductions, too, which have a communicator of their own.
net = fully_shard(nn.Linear(4, 4, device="cuda"), reshard_after_forward=False)
x = arete.ones(2, 4, device="cuda")
net(x).sum().backward()
loss = net(x).sum()
if rank == 0:
    group = dist.group.WORLD
    group._set_timeout(timedelta(seconds=1))
    lone = dist.all_reduce(arete.ones(7, device="cuda"), async_op=True)
    raises(dist.DistBackendError, "all_reduce", lambda: lone.wait(timedelta(seconds=30)))
    raises(dist.DistBackendError, "all_reduce", lambda: (loss.backward(), net.weight.grad.to_local().sum().item()))
    print("done", flush=True)
    dist.barrier()
else:
    dist.barrier()
    print("done", flush=True)
os._exit(0)
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "ARETE_MONITOR": "0", "OMP_NUM_THREADS": "1"})
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_parameters_on_gpus_are_gathered_through_the_host(tmp_path):
    ranks = run_ranks(tmp_path, 2, COMMON + """
start()
arete.cuda.set_device(rank)
alone = filled(Net()).cuda()
net = fully_shard(filled(Net()), mesh=dist.init_device_mesh("cuda", (2,)))
for k in range(3):
    tokens = (arange(12) * (k + 1) % 11).long().reshape(2, 6).cuda()
    for one in (alone, net):
        one.zero_grad()
        one(tokens).square().sum().backward()
    for p, q in zip(alone.parameters(), net.parameters()):
        assert arete.allclose(p.grad, q.grad.full_tensor(), rtol=1e-5), k
# What is under way in another queue is waited for by whoever reads.
many = [arete.full((1000,), float(rank), device="cuda") for _ in range(8)]
for x in many:
    dist.all_reduce(x, async_op=True)
assert all(x.eq(1).all() for x in many)
print("done")
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "OMP_NUM_THREADS": "1"})
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_batch_norms_keep_whole_precision(tmp_path):
    body = """
import warnings
from arete.distributed import fsdp
from arete.distributed.fsdp.wrap import ModuleWrapPolicy
def dtypes_and_results(**options):
    net = filled(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    seen = {}
    for i, m in enumerate(net):
        m.register_forward_hook(lambda m, args, result, i=i: seen.__setitem__(i, args[0].dtype))
    net = fsdp.FullyShardedDataParallel(net, mixed_precision=fsdp.MixedPrecision(param_dtype=arete.bfloat16, **options),
                                        auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    y = net(arange(12).reshape(3, 4) * (rank + 1) / 7)
    y.float().square().sum().backward()
    assert all(p.dtype == p.grad.dtype == arete.float32 for p in net.parameters())
    return [seen[i] for i in range(4)], y.float().flatten().tolist()
start()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    dtypes, y = dtypes_and_results()
assert "mixed precision disabled" in str(told[0].message) and "BatchNorm1d" in str(told[0].message)
assert dtypes == [arete.bfloat16, arete.float32, arete.bfloat16, arete.bfloat16]
# PyTorch's numbers
assert rank or [round(v, 5) for v in y] == [-0.24414, 0.12793, -0.30664, 0.12695, -0.60938, 0.23438], y
assert dtypes_and_results(_module_classes_to_ignore=())[0] == [arete.bfloat16] * 4
"""
    ranks = run_ranks(tmp_path, 2, COMMON + body + "\nprint('done')")
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)


@needs_gloo
def test_training_agrees_with_torch(tmp_path):
    peer().ones(1)  # skips where PyTorch is not installed
    program = pathlib.Path(__file__).with_name("sharding_peer_program.py")
    ranks = [subprocess.Popen([sys.executable, program, name, str(r), "2", tmp_path], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env={**os.environ, "OMP_NUM_THREADS": "1"})
             for name in ("arete", "torch") for r in range(2)]
    for process in ranks:
        out = process.communicate(timeout=200)[0]
        assert process.returncode == 0, out
    for r in range(2):
        ours, theirs = (json.loads((tmp_path / f"{name}.{r}").read_text()) for name in ("arete", "torch"))
        assert [what for what, _ in ours] == [what for what, _ in theirs] and len(ours) > 20
        for (what, a), (_, b) in zip(ours, theirs):
            if what.startswith("micro-batches 1"):  # in bfloat16
                assert all(abs(x[0] - y[0]) <= 0.02 * max(1, abs(y[0])) for x, y in zip(a, b)), (what, a, b)
            else:
                assert is_close(a, b), (what, a, b)


@needs_gloo
def test_hooks_for_accumulated_gradients_see_reduced_ones(tmp_path):
    run(tmp_path, 2, """
from arete.distributed.optim import _apply_optimizer_in_backward
seen = []
net, _ = shard(filled(Net())), None
for name, p in net.named_parameters():
    p.register_post_accumulate_grad_hook(lambda q, p=p, name=name: seen.append((name, q is p, tuple(q.grad.shape), q.grad.full_tensor())))
net.set_requires_gradient_sync(False)
loss(net, rank, 0).backward()
assert seen == []  # of sums that nobody has reduced yet
net.set_requires_gradient_sync(True)
net.zero_grad()
for p in net.parameters():
    assert p.grad is None
other = shard(filled(Net()))
loss(other, rank, 0, extra=False).backward()
net = shard(filled(Net()))
for name, p in net.named_parameters():
    p.register_post_accumulate_grad_hook(lambda q, p=p, name=name: seen.append((name, q is p, tuple(q.grad.shape), q.grad.full_tensor())))
loss(net, rank, 0, extra=False).backward()
wanted = {name: p.grad for name, p in other.named_parameters() if p.grad is not None}
assert len(seen) == len(wanted) and not any("extra" in name for name, *_ in seen)
for name, is_leaf, shape, whole_gradient in seen:
    assert is_leaf and shape == tuple(wanted[name].shape) and arete.equal(whole_gradient, wanted[name].full_tensor())
# An optimizer for each parameter, which steps while the pass ends.
net = shard(filled(Net()))
steppers = {p: arete.optim.AdamW([p], lr=0.01, weight_decay=0.1) for p in net.parameters()}
def step(p):
    steppers[p].step()
    steppers[p].zero_grad()
for p in net.parameters():
    p.register_post_accumulate_grad_hook(step)
for k in range(3):
    loss(net, rank, k).backward()
    assert all(p.grad is None for p in net.parameters())
same(net, train(DDP(filled(Net())), 3))
net = shard(filled(Net()))
_apply_optimizer_in_backward(arete.optim.AdamW, net.parameters(), {"lr": 0.01, "weight_decay": 0.1})
for k in range(3):
    loss(net, rank, k).backward()
same(net, train(DDP(filled(Net())), 3))
""")


@needs_gloo
@pytest.mark.parametrize("gpus", [False, True])
def test_networks_on_meta_take_the_tensors_of_a_state(tmp_path, gpus):
    ranks = run_ranks(tmp_path, 2, COMMON + f"""
gpus = {gpus}
start(backend="nccl" if gpus else "gloo")
from arete.distributed.checkpoint.state_dict import (StateDictOptions, get_optimizer_state_dict, set_model_state_dict,
                                                     set_optimizer_state_dict)
wanted = filled(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)))
with arete.device("meta"):
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
assert arete.cuda.current_device() == 0
fully_shard(net, mesh=dist.init_device_mesh("cuda" if gpus else "cpu", (2,)))
assert not gpus or arete.cuda.current_device() == rank  # which nobody has chosen
set_model_state_dict(net, wanted.state_dict() if rank == 0 else {{}},
                     options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
kind = "cuda" if gpus else "cpu"
optimizer = arete.optim.Adam(net.parameters())
optimizer_of = arete.optim.Adam(wanted.parameters(), lr=0.5)
wanted(arange(6).reshape(2, 3)).sum().backward()
optimizer_of.step()
set_optimizer_state_dict(net, optimizer, get_optimizer_state_dict(wanted, optimizer_of) if rank == 0 else {{}},
                         options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
assert optimizer.param_groups[0]["lr"] == 0.5 and optimizer.state[net[2].bias]["exp_avg"].device.type == kind
set_model_state_dict(net, wanted.state_dict() if rank == 0 else {{}},
                     options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
for name, p in net.named_parameters():
    assert p.device.type == kind and p.requires_grad and arete.equal(p.full_tensor().cpu(), wanted.get_parameter(name)), name
assert net[1].running_var.device.type == kind
net(arange(6).reshape(2, 3).to(kind)).sum().backward()
assert net[0].weight.grad.full_tensor().shape == (5, 3)
dist.barrier()
print("done")
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin(), "OMP_NUM_THREADS": "1"})
    assert ranks == [("done\n", 0)] * 2, "\n".join(out for out, _ in ranks)
