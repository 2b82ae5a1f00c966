"""Compiled functions in which processes exchange tensors: calls of groups are calls of the plan."""
import os

import fake_gpus
import pytest
from test_data_parallel import NET
from test_distributed import needs_gloo, run_ranks

TRAIN = NET + """
DDP = nn.parallel.DistributedDataParallel
def layers():
    return make(nn.Linear(5, 33), nn.GELU(), nn.Linear(33, 16), nn.Tanh(), nn.Linear(16, 2))
def batch(k, rows=3):
    return arete.cos(arange(5 * rows) + 7 * rank + k).reshape(rows, 5)
def training(kind, **options):
    def of(net):
        optimizer = kind(net.parameters(), **options)
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        return step
    return of
def breaks_of(f):
    return [(what, count) for _, what, count in f.breaks()]
def compare(step_of, make_net=lambda: DDP(layers(), bucket_cap_mb=1e-3), calls=11, breaks=0, batch=batch, warm=1, **options):
    "Steps of two networks, one of them compiled after `warm` calls, have the same bits; gives the compiled one."
    nets = [make_net(), make_net()]
    eager, called = step_of(nets[0]), step_of(nets[1])
    compiled = arete.compile(called, options={"exact": True}, **options)
    for k in range(calls):
        a, b = eager(batch(k)), (called if k < warm else compiled)(batch(k))
        assert a.equal(b), (k, a, b)
        for p, q in zip(nets[0].parameters(), nets[1].parameters()):
            assert p.equal(q) and (p.grad is q.grad is None or p.grad.equal(q.grad)), k
    assert breaks is None or compiled.stats()["breaks"] == breaks, breaks_of(compiled)
    return compiled
"""


def finished(ranks, text="done\n"):
    for out, code in ranks:
        assert code == 0 and out == text, out


@needs_gloo
@pytest.mark.parametrize("size", [1, 2, 4])
def test_steps_of_data_parallel_training(tmp_path, size):
    finished(run_ranks(tmp_path, size, TRAIN + """
start()
plain = training(arete.optim.AdamW, lr=0.02)
f = compare(plain, fullgraph=True)
text = f.explain()
assert "all_reduce" in text and "break" not in text, text
assert f.stats()["plans"] <= 2 and f.stats()["runs"] == 10, text
compare(plain, warm=0, breaks=6)                         # where AdamW makes the state of each parameter

def accumulating(net):
    optimizer = arete.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    def step(x):
        optimizer.zero_grad()
        with net.no_sync():
            for k in range(2):
                net(x + k).square().mean().backward()
        loss = net(x + 2).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        return loss
    return step
compare(accumulating, fullgraph=True)

def twice(net):                                          # two passes are each exchanged
    optimizer = arete.optim.SGD(net.parameters(), lr=0.1)
    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        return loss
    return step
compare(twice, fullgraph=True)
compare(twice, lambda: DDP(layers(), gradient_as_bucket_view=True), fullgraph=True)
compare(plain, lambda: DDP(layers(), static_graph=True), fullgraph=True)
compare(plain, lambda: DDP(layers(), deterministic=True), fullgraph=True)
compare(accumulating, lambda: DDP(layers(), deterministic=True, bucket_cap_mb=1e-3), fullgraph=True)

def scaled(net):
    optimizer, scaler = arete.optim.AdamW(net.parameters(), lr=0.02), arete.amp.GradScaler("cpu", init_scale=1024, growth_interval=3)
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss
    return step
compare(scaled, breaks=10)                              # on a CPU it is looked at whether a gradient is infinite

# Buffers travel before a pass, batches of all processes are one to SyncBatchNorm.
def norms():
    return DDP(make(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2)))
compare(plain, norms, fullgraph=True)
compare(plain, lambda: DDP(nn.SyncBatchNorm.convert_sync_batchnorm(make(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)))),
        fullgraph=True)
# One network compiled, the rest not.
nets = [DDP(layers(), bucket_cap_mb=1e-3) for _ in range(2)]
called = [nets[0], arete.compile(nets[1], options={"exact": True})]
optimizers = [arete.optim.AdamW(n.parameters(), lr=0.02) for n in nets]
for k in range(6):
    for net, optimizer in zip(called, optimizers):
        optimizer.zero_grad()
        net(batch(k)).square().mean().backward()
        optimizer.step()
    assert all(p.equal(q) for p, q in zip(nets[0].parameters(), nets[1].parameters()))
dist.destroy_process_group()
print("done")
"""))


@needs_gloo
def test_gradients_are_made_in_their_buckets(tmp_path):
    finished(run_ranks(tmp_path, 2, TRAIN + """
start()
import json
def wide():                                              # of whole lines of memory, so that nothing lies otherwise in a bucket
    return DDP(make(nn.Linear(16, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 16)), bucket_cap_mb=1e-3)
def wide_batch(k):
    return arete.cos(arange(16 * 8) + 7 * rank + k).reshape(8, 16)
def copied(f):
    "The bytes that the plan that ran most copies."
    plan = max((p for t in json.loads(f.explain("json"))["functions"][0]["traces"] for p in t["plans"]), key=lambda p: p["runs"])
    assert any("all_reduce" in s["text"] for s in plan["steps"])
    return sum(s["bytes_written"] for s in plan["steps"] if "_foreach_copy_" in s["operators"])
for kind, options in ((arete.optim.SGD, dict(lr=0.1, momentum=0.9)), (arete.optim.AdamW, dict(lr=0.02))):
    f = compare(training(kind, **options), wide, batch=wide_batch, fullgraph=True)
    assert copied(f) == 6 * 4, f.explain()               # the number of each parameter that says whether it had a gradient
    net = wide()
    g = arete.compile(training(kind, **options)(net))    # products are added up in another order
    for k in range(6):
        g(wide_batch(k))
    assert copied(g) == 6 * 4, g.explain()

# Behind a bias of ten, products would write to places that are not aligned.
def odd():
    return DDP(make(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 10)))
net = odd()
g = arete.compile(training(arete.optim.SGD, lr=0.1)(net))
for k in range(6):
    g(wide_batch(k))
assert copied(g) == (4 + 16 * 32 + 32) * 4, g.explain()  # the numbers, and the first layer, whose gradients one product makes

# What the step does with a gradient besides goes on seeing it, and so does who keeps one.
seen = []
def watched(net):
    net.module[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad * 1))
    inner = training(arete.optim.SGD, lr=0.1)(net)
    def step(x):
        seen.clear()
        inner(x)
        return seen[0]
    return step
f = compare(watched, wide, batch=wide_batch, fullgraph=True)
nets = [wide(), wide()]
steps = [training(arete.optim.SGD, lr=0.1)(n) for n in nets]
steps[1] = arete.compile(steps[1], options={"exact": True})
kept = [[], []]
for k in range(8):
    for net, step, its in zip(nets, steps, kept):
        step(wide_batch(k))
        its.append([p.grad for p in net.parameters()])
for a, b in zip(*kept):
    assert all(p.equal(q) for p, q in zip(a, b))
assert not kept[0][0][0].equal(kept[0][1][0])
dist.destroy_process_group()
print("done")
"""))


@needs_gloo
def test_hooks_and_what_breaks(tmp_path):
    finished(run_ranks(tmp_path, 2, TRAIN + """
start()
from arete.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
plain = training(arete.optim.SGD, lr=0.1, momentum=0.9)
def hooked(hook, state=lambda: None):
    def net():
        net = DDP(layers(), bucket_cap_mb=1e-3)
        net.register_comm_hook(state(), hook)
        return net
    return net
for hook in default_hooks.allreduce_hook, default_hooks.bf16_compress_hook, default_hooks.fp16_compress_hook:
    compare(plain, hooked(hook), fullgraph=True)
compare(plain, hooked(default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)), fullgraph=True)
power = lambda: powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3, min_compression_rate=0.1)
compare(plain, hooked(powerSGD_hook.powerSGD_hook, power), fullgraph=True)
def own(state, bucket):
    sums = bucket.buffer() / size
    return dist.all_reduce(sums, async_op=True).get_future().then(lambda done: done.value()[0])
compare(plain, hooked(own), fullgraph=True)
def looking(state, bucket):
    assert bucket.buffer().sum().item() == bucket.buffer().sum().item()
    return own(state, bucket)
f = compare(plain, hooked(looking), breaks=None)
assert "(sum)" in f.explain() and "looking" in f.explain(), f.explain()

# A parameter without a gradient: only then is it looked at whether others had one.
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = make(nn.Linear(5, 4)), make(nn.Linear(5, 4))
    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(x)
compare(plain, lambda: DDP(Branches(), bucket_cap_mb=1e-4), breaks=None)
# Uneven inputs.
nets = [DDP(layers()) for _ in range(2)]
for net, compiles in zip(nets, (False, True)):
    step = plain(net)
    if compiles:
        step = arete.compile(step, options={"exact": True})
    with net.join():
        for k in range(5 + 3 * rank):
            step(batch(k))
assert all(p.equal(q) for p, q in zip(nets[0].parameters(), nets[1].parameters()))
dist.destroy_process_group()
print("done")
"""))


@needs_gloo
@pytest.mark.parametrize("size", [2, 4])
def test_ranks_that_record_follow_and_call(tmp_path, size):
    """The order of calls is the same for ranks that see shapes for the first time, know them, skip the function, or do not compile it."""
    finished(run_ranks(tmp_path, size, TRAIN + """
start()
def plain(net):
    optimizer = arete.optim.AdamW(net.parameters(), lr=0.02)
    def step(x):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        both = arete.stack([loss.detach(), x.sum()])
        dist.all_reduce(both, dist.ReduceOp.AVG)
        return both
    return step
def rows(k):
    return 3 + (k * (rank + 1)) // 4 % 3             # new shapes at other calls on each rank
first = DDP(layers(), bucket_cap_mb=1e-3)
eager = plain(first)
wanted = [eager(batch(k, rows(k))) for k in range(24)]
for compiles in (lambda f: arete.compile(f, options={"exact": True}), lambda f: f if rank else arete.compile(f, options={"exact": True}),
                 lambda f: arete.compile(f, options={"exact": True, "skip": rank == 0})):
    net = DDP(layers(), bucket_cap_mb=1e-3)
    step = compiles(plain(net))
    for k in range(24):
        assert step(batch(k, rows(k))).equal(wanted[k]), k
    assert all(p.equal(q) for p, q in zip(first.parameters(), net.parameters()))
calls = dist.flight_record()["entries"]
assert all(e["state"] == "completed" for e in calls), calls
sums = [e["profiling_name"] for e in calls]
every = [None] * size
dist.all_gather_object(every, sums)
assert all(e == sums for e in every)
dist.destroy_process_group()
print("done")
"""))


@needs_gloo
def test_all_calls_of_groups(tmp_path):
    finished(run_ranks(tmp_path, 2, NET + """
start()
n = size
def of(k, *sizes):
    return arete.sin(arange(int(arete.tensor(sizes).prod())) * (1 + rank) + k).reshape(sizes)
def everything(x):
    results = []
    y = x * 2
    dist.all_reduce(y)
    results.append(y + 1)
    z = x.t() * 3                                        # not in order: copied, and back
    dist.all_reduce(z, dist.ReduceOp.MAX)
    results.append(z * 1)
    b = x + rank
    work = dist.broadcast(b, 1, async_op=True)
    c = x.exp()
    work.wait()
    results.append(b * c)
    parts = [arete.empty(4, 4) for _ in range(n)]
    dist.all_gather(parts, x)
    results += parts
    whole = arete.empty(n * 4, 4)
    dist.all_gather_into_tensor(whole, c)
    results.append(whole)
    out = arete.empty(2, 4)
    dist.reduce_scatter_tensor(out, c, dist.ReduceOp.AVG)
    results.append(out * 2)
    out = arete.empty(4, 4)
    dist.reduce_scatter(out, [c, x])
    results.append(out)
    out = arete.empty(4, 4)
    dist.all_to_all_single(out, x)
    results.append(out)
    out = [arete.empty(2, 4) for _ in range(n)]
    dist.all_to_all(out, list(c.chunk(2)))
    results += out
    d = x.clone()
    dist.reduce(d, 0)
    results.append(d - 1)
    dist.gather(x * 4, [results[0] * 0 for _ in range(n)] if rank == 0 else None, 0)
    got = [arete.empty(4, 4) for _ in range(n)] if rank == 1 else None
    dist.gather(x * 5, got, 1)
    results += got or []
    out = arete.empty(4, 4)
    dist.scatter(out, [x, x + 1] if rank == 0 else None, 0)
    results.append(out)
    dist.all_reduce(arete.ones(3))                       # of which nobody wants the result
    results.append(dist.nn.functional.all_reduce(x, op=dist._make_nccl_premul_sum(float(x.shape[0]))))
    w = x.clone().requires_grad_()
    dist.nn.functional.all_reduce(w.square().sum()).backward()
    results.append(w.grad)
    same = [dist.all_reduce(t, async_op=True) for t in (x.sin(), x.cos())]
    assert all(s.wait() for s in same)
    in_place = x.clone()
    in_place[1:3] = 7
    dist.all_reduce(in_place[1:3])                       # a part
    results.append(in_place)
    return results
compiled = arete.compile(everything, options={"exact": True}, fullgraph=True)
for k in range(4):
    for a, b in zip(everything(of(k, 4, 4)), compiled(of(k, 4, 4)), strict=True):
        assert a.equal(b), (a, b)
assert compiled.stats()["plans"] == compiled.stats()["traces"] == 1
# What cannot be put off comes after what was: a break, with its name.
@arete.compile
def mixed(x):
    y = x + 1
    dist.all_reduce(y)
    dist.barrier()
    z = y * 2
    if rank == 0:
        dist.send(z, 1)
    else:
        dist.recv(z, 0)
    dist.all_reduce(z)
    other = dist.all_reduce(z, async_op=True)
    assert other.is_completed() and other.is_success()
    dist.monitored_barrier()
    objects = [None] * size
    dist.all_gather_object(objects, rank)
    assert objects == [0, 1]
    shown = z.numpy()                                    # others see it from now on
    dist.all_reduce(z)
    return z
for k in range(3):
    assert mixed(arete.ones(2) * k).tolist() == [32 * (k + 1)] * 2, mixed(arete.ones(2))
what = {what for _, what, _ in mixed.breaks()}
assert {"barrier", "send" if rank == 0 else "recv"} <= what, what
dist.destroy_process_group()
print("done")
"""))


def test_what_wrappers_exchange_overlaps_computation():
    import arete
    import arete.distributed as dist
    from arete import nn

    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        def calls_of(net):
            calls = []
            for f in (net, arete.compile(net)):
                for _ in range(4):
                    before = len(dist.group.WORLD._recorded_calls())
                    f(arete.ones(2, 4)).sum().backward()
                    dist.all_reduce(arete.ones(2), async_op=True).wait()
                    calls.append([c.split(" ")[0] + c.partition(",")[1] for c in dist.group.WORLD._recorded_calls()[before:]])
            return calls

        bucket, own = "all_reduce,", "all_reduce"  # with what says that it overlaps, and without
        for calls in calls_of(nn.parallel.DistributedDataParallel(nn.Linear(4, 3)))[1:]:  # after the first all agree on buckets
            assert calls == [bucket, own], calls
        for calls in calls_of(dist.fsdp.fully_shard(nn.Linear(4, 3), mesh=dist.init_device_mesh("cpu", (2,)))):
            assert set(calls) == {"all_gather,", "reduce_scatter,", own} and calls.count(own) == 1, calls
    finally:
        dist.destroy_process_group()


def test_a_fake_group_sees_calls_in_order():
    import arete
    import arete.distributed as dist

    dist.init_process_group("fake", rank=1, world_size=64)
    try:
        def step(x):
            y = x * 2
            dist.all_reduce(y)
            dist.broadcast(x, 3)
            works = [dist.all_reduce(t, dist.ReduceOp.MAX, async_op=True) for t in (y, x)]
            for w in works:
                w.wait()
            return y + x

        step(arete.ones(6))
        called = dist.group.WORLD._recorded_calls()
        compiled = arete.compile(step, fullgraph=True)
        for k in range(1, 4):
            compiled(arete.ones(6))
            assert dist.group.WORLD._recorded_calls() == called * (k + 1) and len(called) == 4
    finally:
        dist.destroy_process_group()


@needs_gloo
def test_streams_of_calls_are_waited_for(tmp_path):
    """Where calls are done late, in a stream of the group, whoever uses their memory waits: in a plan, in another one, behind both."""
    finished(run_ranks(tmp_path, 2, TRAIN + """
start(backend="cpu:gloo,cuda:nccl")
arete.cuda.set_device(rank)
gpu = f"cuda:{rank}"
plain = training(arete.optim.SGD, lr=0.1, momentum=0.9)
wrapped = lambda **options: DDP(layers().to(gpu), bucket_cap_mb=1e-3, **options)
on_gpu = lambda k: batch(k).to(gpu)
f = compare(plain, wrapped, batch=on_gpu, fullgraph=True)
assert "one graph" in f.explain(), f.explain()             # in parts, between which calls are made
# The gradients that come last are not waited for by the update of the others.
updates = [line for line in f.explain().split("plan: list")[1].splitlines() if line.endswith(": optimizer_update")]
assert len(updates) == 2, f.explain()
for k, e in enumerate(dist.flight_record()["entries"][-3:]):
    assert e["operation"] == "all_reduce" and f"DDP bucket {k + 1} of 3" in e["detail"], e
compare(plain, lambda: wrapped(deterministic=True), batch=on_gpu, fullgraph=True)
# The step outside of the plan: behind a backward pass that is one, with calls under way.
nets = [wrapped(), wrapped()]
called = [nets[0], arete.compile(nets[1], options={"exact": True})]
optimizers = [arete.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in nets]
for k in range(8):
    for net, optimizer in zip(called, optimizers):
        optimizer.zero_grad()
        net(on_gpu(k)).square().mean().backward()
        optimizer.step()
    assert all(p.equal(q) for p, q in zip(nets[0].parameters(), nets[1].parameters())), k
# Temporaries whose memory is used again while a call is under way.
@arete.compile(options={"exact": True}, fullgraph=True)
def sums(x):
    results = []
    for k in range(4):
        y = x * (k + rank)
        dist.all_reduce(y, async_op=True)
        z = (x + k).sin()
        w = (z * z).cumsum(0)
        results.append(w.sum())
        if k % 2 == 0:
            results.append(y.sum())
    last = x * 3
    dist.all_reduce(last, async_op=True)
    return results + [last]
for k in range(4):
    x = arete.cos(arange(100) + k).to(gpu)
    wanted = []
    for i in range(4):
        wanted.append(((x + i).sin() ** 2).cumsum(0).sum())
        if i % 2 == 0:
            wanted.append((x * i + x * (i + 1)).sum())
    for a, b in zip(sums(x), wanted + [x * 6], strict=True):
        assert a.allclose(b, 1e-4, 1e-4), (a, b)
dist.destroy_process_group()
print("done")
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin()}))


SHARD = TRAIN + """
from arete.distributed.fsdp import MixedPrecisionPolicy, fully_shard
where = "cpu"
def sharded(**options):
    arete.manual_seed(0)
    net = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)], nn.Linear(8, 3)).to(where)
    for block in net[:3]:
        fully_shard(block, **options)
    return fully_shard(net, **options)
def batch(k):
    return arete.cos(arange(32) + k + 7 * rank).reshape(4, 8).to(where)
def trained(net, loss_of=lambda net, x: net(x).square().mean()):
    optimizer = arete.optim.AdamW(net.parameters(), lr=0.05)
    def step(x):
        optimizer.zero_grad()
        loss = loss_of(net, x)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss
    return step
def same(nets):
    return all(p.to_local().equal(q.to_local()) for p, q in zip(nets[0].parameters(), nets[1].parameters()))
def compare(breaks=0, step_of=trained, calls=8, warm=1, **options):
    nets = [sharded(**options) for _ in range(2)]
    eager, called = [step_of(net) for net in nets]
    compiled = arete.compile(called, options={"exact": True}, fullgraph=breaks == 0)
    for k in range(calls):
        assert (called if k < warm else compiled)(batch(k)).equal(eager(batch(k))), k
        assert same(nets), k
    assert breaks is None or compiled.stats()["breaks"] == breaks, breaks_of(compiled)
    return compiled, nets
"""


@needs_gloo
@pytest.mark.parametrize("size", [1, 2, 4])
def test_sharded_steps(tmp_path, size):
    finished(run_ranks(tmp_path, size, SHARD + """
start()
compiled, nets = compare()
assert compiled.stats()["plans"] == 1 and ("all_gather" in compiled.explain()) == (size > 1)
compare(reshard_after_forward=False, breaks=None)
compare(mp_policy=MixedPrecisionPolicy(param_dtype=arete.bfloat16, reduce_dtype=arete.float32))

def accumulating(net):
    optimizer = arete.optim.SGD(net.parameters(), lr=0.1)
    def step(x):
        optimizer.zero_grad()
        for k in range(3):
            net.set_requires_gradient_sync(k == 2)
            loss = net(x + k).square().mean()
            loss.backward()
        optimizer.step()
        return loss
    return step
compare(step_of=accumulating)
# Looks at values while parameters are whole, and between the passes.
class Looks(nn.Module):
    def forward(self, x):
        assert x.sum().item() == x.sum().item()
        return x
def looking(net):
    net[1].append(Looks())
    return trained(net, lambda net, x: (lambda loss: loss * (1 + 0 * loss.item()))(net(x).square().mean()))
compare(step_of=looking, breaks=None)
# The pass backward outside, with a step that nothing puts off, and other steps in between.
nets = [sharded(), sharded()]
called = [nets[0], arete.compile(nets[1], options={"exact": True})]
optimizers = [arete.optim.AdamW(n.parameters(), lr=0.05) for n in nets]
for k in range(8):
    for net, optimizer in zip(called if k % 3 else nets, optimizers):
        optimizer.zero_grad()
        net(batch(k)).square().mean().backward()
        optimizer.step()
    assert same(nets), k
assert nets[1][3].weight.full_tensor().equal(nets[0][3].weight.full_tensor())
# A function that fails, at either end of what it puts off.
class Stop(Exception):
    pass
for late in (False, True):
    def failing(x):
        loss = nets[1](x).square().mean()
        if late:
            loss.backward()
        raise Stop
    for f in (failing, arete.compile(failing)):
        try:
            f(batch(0))
        except Stop:
            pass
    nets[1].zero_grad()
    for net, optimizer in zip(called, optimizers):
        optimizer.zero_grad()
        net(batch(9)).square().mean().backward()
        optimizer.step()
    assert same(nets), late
dist.destroy_process_group()
print("done")
"""))


@needs_gloo
def test_sharded_steps_in_streams(tmp_path):
    finished(run_ranks(tmp_path, 2, SHARD + """
start(backend="cpu:gloo,cuda:nccl")
arete.cuda.set_device(rank)
where = f"cuda:{rank}"
compare(calls=2, warm=0, breaks=None)                    # connects in the plan's middle
compiled, _ = compare(calls=10)
assert "one graph" in compiled.explain(), compiled.explain()
compare(mp_policy=MixedPrecisionPolicy(param_dtype=arete.bfloat16))
dist.destroy_process_group()
print("done")
""", env={**os.environ, "ARETE_CUDA_PLUGIN": fake_gpus.plugin()}))


@needs_gloo
def test_a_rank_that_ends_is_an_error_of_the_function(tmp_path):
    (first, code), (second, other) = run_ranks(tmp_path, 2, TRAIN + """
start()
net = DDP(layers(), bucket_cap_mb=1e-3)
@arete.compile(options={"exact": True, "memory_budget": 0.3})
def step(x):
    net.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    return loss
for k in range(3):
    step(batch(k, 64))
if rank == 1:
    os._exit(0)
try:
    step(batch(4, 64))
except dist.DistBackendError as e:
    print("told", str(e), flush=True)
os._exit(0)
""")
    assert (code, other, second) == (0, 0, ""), (first, second)
    assert "\ntold rank 1 (" in "\n" + first, first  # the error names it, whoever prints the report


@needs_gloo
def test_threads_of_python_go_on_while_a_look_waits(tmp_path):
    """The other process makes its call only when another thread of this one has run."""
    finished(run_ranks(tmp_path, 2, """
import threading
start(seconds=10)
looks = {"item": lambda x: x.item(), "tolist": lambda x: x.tolist(), "numpy": lambda x: x.numpy().tolist(), "bool": bool, "repr": repr}
for name, look in looks.items():
    @arete.compile
    def f(x):
        y = x * 2
        dist.all_reduce(y)
        return look(y)
    sign = f"TMP/{name}"
    def later():
        time.sleep(0.2)
        open(sign, "w").close()
    if rank == 0:
        thread = threading.Thread(target=later)
        thread.start()
    while rank == 1 and not os.path.exists(sign):
        time.sleep(0.01)
    assert f(arete.ones(1)) == look(arete.full((1,), 4.0)), name
    if rank == 0:
        thread.join()
dist.destroy_process_group()
print("done")
""".replace("TMP", str(tmp_path))))
