"""Networks in stages: what they are cut into, and under all schedules the bits of one process that accumulates microbatches."""
import collections

import arete
import pytest
from arete import nn
from arete.distributed import pipelining as P
from arete.distributed.pipelining import microbatch
from arete.utils.checkpoint import checkpoint
from pipeline_networks import Block, Net
from test_distributed import needs_gloo
from test_sharding import run


class Marked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        return self.last(self.inner(x))


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        y = self.a(x)
        P.pipe_split()
        return self.b(y) + x


def names(pipe):
    return [sorted(name for name, _ in pipe.get_stage_module(k).named_parameters()) for k in range(pipe.num_stages)]


def test_networks_are_cut_where_they_say():
    net, tokens = Net(), arete.arange(12).reshape(2, 6) % 11
    spec = {"layers.1": P.SplitPoint.BEGINNING, "layers.2": P.SplitPoint.END}
    pipe = P.pipeline(net, (tokens,), split_spec=spec)
    assert pipe.num_stages == 3
    assert {n.split(".")[0] + "." + n.split(".")[1] for n in names(pipe)[1]} == {"layers.1", "layers.2"}
    assert arete.equal(pipe(tokens)[0], net(tokens)) and pipe.get_stage_module(0).embed.weight is net.embed.weight
    assert set(sum(names(pipe), [])) == {n for n, _ in net.named_parameters()}
    scale = arete.ones(1) * 2
    pipe = P.pipeline(net, (tokens,), {"scale": scale}, spec)
    assert arete.equal(pipe(tokens, scale=scale)[0], net(tokens, scale))
    with pytest.raises(TypeError, match="wants"):
        pipe()
    pipe = P.pipeline(Marked(), (arete.ones(1, 3),))
    assert names(pipe) == [["inner.a.bias", "inner.a.weight"], ["inner.b.bias", "inner.b.weight", "last.bias", "last.weight"]]
    assert P.pipeline(net, (tokens,)).num_stages == 1
    # Nothing is drawn or counted by looking at a network.
    bn = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(), nn.Linear(3, 3))
    arete.manual_seed(0)
    state = arete.get_rng_state()
    P.pipeline(bn, (arete.ones(2, 3),), split_spec={"3": P.SplitPoint.BEGINNING})
    assert bn[1].num_batches_tracked == 0 and arete.equal(arete.get_rng_state(), state)


def test_networks_are_cut_by_cost():
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)], nn.Linear(8, 32), nn.Linear(32, 8))
    pipe = P.pipeline(net, (arete.ones(2, 8),), split_policy=P.split_by_cost(3))
    assert [sorted({int(n[0]) for n in part}) for part in names(pipe)] == [[0, 1, 2, 3], [4], [5]]
    pipe = P.pipeline(Net(), (arete.zeros(2, 6, dtype=arete.int64),), split_policy=P.split_by_cost(2))
    assert pipe.num_stages == 2 and 2 <= sum(n.endswith("up.weight") for n in names(pipe)[0]) <= 3
    with pytest.raises(ValueError, match="are not cut into 7"):
        P.pipeline(net, (arete.ones(2, 8),), split_policy=P.split_by_cost(7))


def test_arguments_may_have_tensors_as_defaults():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 3), nn.Linear(3, 2)

        def forward(self, x, by=arete.arange(3.0), factor=2.0):
            return self.b(self.a(x) * factor + by)

    net, x = Shifted(), arete.ones(4, 2)
    pipe = P.pipeline(net, (x,), split_spec={"b": P.SplitPoint.BEGINNING})
    assert pipe.num_stages == 2 and set(net.__dict__) == set(Shifted().__dict__)
    assert arete.equal(pipe(x)[0], net(x)) and arete.equal(pipe(x, by=arete.ones(3))[0], net(x, arete.ones(3)))

    class ByPosition(Shifted):
        def forward(self, x, by=arete.arange(3.0), /, factor=2.0, *, more=arete.ones(3)):
            return self.b(self.a(x) * factor + by + more)

    net = ByPosition()
    pipe = P.pipeline(net, (x,), split_spec={"b": P.SplitPoint.BEGINNING})
    assert arete.equal(pipe(x)[0], net(x)) and arete.equal(pipe(x, arete.ones(3))[0], net(x, arete.ones(3)))
    with pytest.raises(TypeError, match="missing a required argument: 'x'"):
        P.pipeline(net, (), split_spec={"b": P.SplitPoint.BEGINNING})


def test_what_cannot_be_cut_says_so():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    net[2].weight = net[0].weight
    x, cut = (arete.ones(1, 2),), {"1": P.SplitPoint.BEGINNING}
    with pytest.raises(NotImplementedError, match="0.weight is used in stages 0 and 1"):
        P.pipeline(net, x, split_spec=cut)
    with pytest.raises(ValueError, match="Cannot specify both"):
        P.pipeline(net, x, split_spec=cut, split_policy=P.split_by_cost(2))
    with pytest.raises(AttributeError):
        P.pipeline(net, x, split_spec={"7": P.SplitPoint.END})

    class First(nn.Module):
        def forward(self, pair):
            return pair[0]

    class Pair(nn.Module):
        def __init__(self, whole):
            super().__init__()
            self.a, self.b, self.first, self.whole = nn.LSTM(2, 2), nn.Linear(2, 2), First(), whole

        def forward(self, x):
            pair = self.a(x)
            P.pipe_split()
            return self.b(self.first(pair) if self.whole else pair[0])

    x = arete.ones(1, 1, 2)
    with pytest.raises(NotImplementedError, match="holds tensors"):
        P.pipeline(Pair(True), (x,))
    net = Pair(False)
    assert arete.equal(P.pipeline(net, (x,))(x)[0], net(x))


def test_microbatches():
    x = arete.arange(10).reshape(5, 2)
    columns = {"z": microbatch.TensorChunkSpec(1)}
    args, kwargs = microbatch.split_args_kwargs_into_chunks((x, {"y": x}, 3), {"z": x}, 2, kwargs_chunk_spec=columns)
    assert [len(a[0]) for a in args] == [3, 2] and args[1][2] == 3 and arete.equal(args[1][1]["y"], x[3:])
    assert [tuple(k["z"].shape) for k in kwargs] == [(5, 1)] * 2
    assert arete.equal(microbatch.merge_chunks([a[0] for a in args], None), x)
    assert arete.equal(microbatch.merge_chunks([k["z"] for k in kwargs], microbatch.TensorChunkSpec(1)), x)
    with pytest.raises(ValueError, match="not cut into 6"):
        microbatch.split_args_kwargs_into_chunks((x,), None, 6)


@pytest.mark.parametrize("kind", ["eager", "compiled", "checkpoint", "conv", "attention", "lstm"])
def test_backward_passes_in_two_parts_have_the_bits_of_one(kind):
    arete.manual_seed(0)
    x0 = arete.randn(4, 5, 6)
    if kind == "conv":
        net, x0 = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)), arete.randn(2, 3, 8, 8)
    elif kind == "attention":
        net = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    elif kind == "lstm":
        net = nn.LSTM(6, 6, 2)
    else:
        net = nn.Sequential(Block(6), Block(6))
    f = {"compiled": arete.compile(net), "checkpoint": lambda x: checkpoint(net, x, use_reentrant=False),
         "lstm": lambda x: net(x)[0]}.get(kind, net)
    found = []
    for split in (False, True, False, True):
        net.zero_grad()
        x = x0.clone().requires_grad_()
        y = f(x)
        g = y.detach() + 0.5
        if split:
            parts = arete._C._SplitBackward([y], [g], [x])
            assert all(p.grad is None for p in net.parameters()) and x.grad is None
            parts.accumulate()
            found.append([parts.input_gradients()[0], *(p.grad for p in net.parameters())])
        else:
            y.backward(g)
            found.append([x.grad, *(p.grad for p in net.parameters())])
    assert all(arete.equal(a, b) for other in found[1:] for a, b in zip(other, found[0]))


STAGES = """
from arete.distributed import pipelining as P
from arete.distributed.pipelining.schedules import get_schedule_class
sys.path.insert(0, TESTS)
from pipeline_networks import Net
def batch(step, n=8):
    return ((arete.arange(n * 5) * 7 + 3 * step) % 11).reshape(n, 5)
def loss_of(out, target):
    return nn.functional.cross_entropy(out, target.reshape(-1))
def alone(net, steps, n, scale=True, size=8, rank=0):
    # One process that accumulates microbatches.
    optimizer = arete.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    every = []
    for s in range(steps):
        optimizer.zero_grad()
        for x, t in zip(batch(2 * s + rank, size).tensor_split(n), batch(2 * s + rank + 1, size).tensor_split(n)):
            loss = loss_of(net(x), t)
            loss.backward(arete.full_like(loss, 1 / n if scale else 1.0))
            every.append(loss.item())
        optimizer.step()
    return every
def stages_of(net, number, rank, ranks, v=False, group=None):
    points = ["layers.0", "layers.1", "layers.2", "layers.3"]
    spec = {p: P.SplitPoint.BEGINNING for p in (points[1:2] if number == 2 else points[1:4])}
    pipe = P.pipeline(net, (batch(0, 2),), split_spec=spec)
    assert pipe.num_stages == number, pipe.num_stages
    mine = [k for k in range(number) if (rank == (number - 1 - k if v and k >= ranks else k % ranks))]
    return [pipe.build_stage(k, "cpu", group) for k in mine]
def piped(name, net, number, steps, n, scale=True, size=8, rank=rank, ranks=size, group=None, wrap=lambda s: s, data=0):
    stages = stages_of(net, number, rank, ranks, name.startswith("ZBV"), group)
    for s in stages:
        s.submod = wrap(s.submod)
    kind = get_schedule_class(name)
    single = issubclass(kind, P.schedules.PipelineScheduleSingle)
    schedule = kind(stages[0] if single else stages, n, loss_fn=loss_of, scale_grads=scale)
    optimizer = arete.optim.SGD([p for s in stages for p in s.submod.parameters()], lr=0.3, momentum=0.9)
    every, outputs = [], None
    for s in range(steps):
        optimizer.zero_grad()
        losses = []
        first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        out = schedule.step(*([batch(2 * s + data, size)] if first else []), target=batch(2 * s + 1 + data, size) if last else None,
                            losses=losses)
        every += [l.item() for l in losses]
        assert (out is not None) == last and (out is None or (tuple(out.shape) == (size * 5, 11) and not out.requires_grad))
        optimizer.step()
    return stages, schedule, every
def same_parameters(stages, net):
    wanted = dict(net.named_parameters())
    for s in stages:
        for name, p in s.submod.named_parameters():
            name = name.removeprefix("module.")
            assert arete.equal(p, wanted[name]), (s.stage_index, name, (p - wanted[name]).abs().max())
"""


def stages(tmp_path, size, body):
    import pathlib

    run(tmp_path, size, f"TESTS = {str(pathlib.Path(__file__).parent)!r}\n" + STAGES + body)


@needs_gloo
def test_schedules_have_the_bits_of_one_process(tmp_path):
    stages(tmp_path, 4, """
plain, sums = filled(Net()), filled(Net())
losses = alone(plain, 2, 8)
alone(sums, 1, 4, scale=False)
for name in ("GPipe", "1F1B", "InterleavedZeroBubble"):
    stages, schedule, every = piped(name, filled(Net()), 4, 2, 8)
    same_parameters(stages, plain)
    assert every == (losses if any(s.is_last for s in stages) else []), (every, losses)
    # No memory of microbatches is left.
    assert not any(s._at or s._arrived for s in stages)
    # Without backward steps.
    x, t = batch(9), batch(10)
    got = []
    out = schedule.eval(*([x] if rank == 0 else []), target=t if every else None, losses=got)
    if every:
        whole = [plain(m).detach() for m in x.tensor_split(8)]
        assert arete.equal(out, arete.cat(whole))
        assert [g.item() for g in got] == [loss_of(o, m).item() for o, m in zip(whole, t.tensor_split(8))]
stages, _, _ = piped("1F1B", filled(Net()), 4, 1, 4, scale=False)
same_parameters(stages, sums)
""")


@needs_gloo
def test_several_stages_a_process_and_replicas_of_stages(tmp_path):
    stages(tmp_path, 4, """
plain = filled(Net())
losses = alone(plain, 2, 4)
mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "pp"))
pp, dp = mesh["pp"], mesh["dp"]
where = dict(rank=pp.get_local_rank(), ranks=2, group=pp.get_group())
for name, number in (("LoopedBFS", 4), ("Interleaved1F1B", 4), ("InterleavedZeroBubble", 4), ("ZBVZeroBubble", 4)):
    stages, _, every = piped(name, filled(Net()), number, 2, 4, **where)
    same_parameters(stages, plain)
    assert not every or every == losses
# Microbatches of several sizes: the last one is smaller.
uneven = filled(Net())
alone(uneven, 2, 4, size=7)
same_parameters(piped("Interleaved1F1B", filled(Net()), 4, 2, 4, size=7, **where)[0], uneven)
# Both lines of the mesh have batches of their own, and gradients are exchanged once a step.
ddp = lambda m: DDP(m, process_group=dp.get_group())
both = DDP(filled(Net()), process_group=dp.get_group())
optimizer = arete.optim.SGD(both.parameters(), lr=0.3, momentum=0.9)
for s in range(2):
    optimizer.zero_grad()
    b = 2 * s + dp.get_local_rank()
    for k, (x, t) in enumerate(zip(batch(b).tensor_split(4), batch(b + 1).tensor_split(4))):
        both.require_backward_grad_sync = k == 3
        l = loss_of(both(x), t)
        l.backward(arete.full_like(l, 0.25))
    optimizer.step()
for name, number in (("1F1B", 2), ("InterleavedZeroBubble", 2), ("ZBVZeroBubble", 4)):
    stages, _, _ = piped(name, filled(Net()), number, 2, 4, wrap=ddp, data=dp.get_local_rank(), **where)
    same_parameters(stages, both.module)
    assert all(arete.equal(p.grad, q.grad) for s in stages for n, p in s.submod.named_parameters()
               for m, q in both.named_parameters() if m == n)
stages, _, _ = piped("1F1B", filled(Net()), 2, 2, 4, wrap=lambda m: fully_shard(m, mesh=dp), data=dp.get_local_rank(), **where)
wanted = dict(both.module.named_parameters())
assert all(arete.equal(p.full_tensor(), wanted[n]) for n, p in stages[0].submod.named_parameters())
raises(NotImplementedError, "no backward pass in two parts",
       lambda: P.ScheduleInterleavedZeroBubble(stages, 2, loss_fn=loss_of))
""")


@needs_gloo
def test_messages_and_mistakes(tmp_path):
    stages(tmp_path, 2, """
class First(nn.Module):
    # Several outputs, of which some have no gradient, one is not used and one is not contiguous.
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 4)
    def forward(self, x):
        y = self.a(x)
        return y.t().contiguous().t(), y * 3, (x > 0).any(1), y.argmax(1), y.half()
class Second(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Linear(4, 1)
    def forward(self, y, unused, mask, best, half):
        return (self.b(y) * mask.unsqueeze(1) + best.unsqueeze(1) + half.float().sum(1, keepdim=True)), y
x, t = arange(24).reshape(8, 3).sin(), arange(8).reshape(8, 1)
first, second = filled(First()), filled(Second())
loss = lambda out, target: nn.functional.mse_loss(out[0], target)
for m in range(4):
    l = loss(second(*first(x[2 * m:2 * m + 2])), t[2 * m:2 * m + 2])
    l.backward(arete.full_like(l, 0.25))
for kind in (P.Schedule1F1B, P.ScheduleInterleavedZeroBubble):
    net = filled((First, Second)[rank]())
    stage = P.PipelineStage(net, rank, 2, arete.device("cpu"), input_args=(x[:2],) if rank == 0 else None)
    schedule = kind(stage if kind is P.Schedule1F1B else [stage], 4, loss_fn=loss)
    out = schedule.step(x) if rank == 0 else schedule.step(target=t)
    assert rank == 0 or [tuple(o.shape) for o in out] == [(8, 1), (8, 4)]
    for p, q in zip(net.parameters(), (first, second)[rank].parameters()):
        assert arete.equal(p.grad, q.grad)
    # Without zero_grad() all that is there is divided, as torch does.
    schedule.step(x) if rank == 0 else schedule.step(target=t)
    for p, q in zip(net.parameters(), (first, second)[rank].parameters()):
        arete.testing.assert_close(p.grad, q.grad * 1.25)
# What is frozen before a stage needs nothing from it.
net = filled((First, Second)[rank]()).requires_grad_(rank == 1)
schedule = P.ScheduleGPipe(P.PipelineStage(net, rank, 2, "cpu"), 2, loss_fn=loss)
schedule.step(x) if rank == 0 else schedule.step(target=t)
assert (rank == 0) == (net.get_parameter("a.weight" if rank == 0 else "b.weight").grad is None)
# Without a loss there are no backward steps.
schedule = P.ScheduleGPipe(P.PipelineStage(net, rank, 2, "cpu"), 2)
assert ((schedule.step(x) if rank == 0 else schedule.step()) is None) == (rank == 0)
stage = P.PipelineStage(net, rank, 2, "cpu")
with arete.no_grad():
    raises(RuntimeError, "requires gradients to be enabled", lambda: P.ScheduleGPipe(stage, 2, loss_fn=loss).step())
raises(ValueError, "of the pipeline has stages", lambda: P.ScheduleGPipe(P.PipelineStage(net, 1 - rank, 2, "cpu"), 2))
raises(ValueError, "divisible", lambda: P.ScheduleInterleaved1F1B([P.PipelineStage(net, rank + k, 4, "cpu") for k in (0, 2)], 5))
raises(NotImplementedError, "dw_builder", lambda: P.PipelineStage(net, 0, 2, "cpu", dw_builder=print))
raises(RuntimeError, "cannot be larger", lambda: P.PipelineStage(net, 0, 1, "cpu"))
if rank == 1:
    raises(ValueError, "has no target", lambda: P.ScheduleGPipe(stage, 2, loss_fn=loss).step())
wrong = P.PipelineStage(net, 0, 2, "cpu", input_args=x[:3])
if rank == 0:
    raises(ValueError, "inputs were to be", lambda: P.ScheduleGPipe(wrong, 4, loss_fn=loss).step(x))
""")


def test_a_pipeline_of_4096_processes_exchanges_messages_that_match(monkeypatch):
    """Each process of one pipeline in a group that is fake: what it would send and receive, as a queue of its own."""
    dist = arete.distributed
    c10d = arete.distributed.distributed_c10d
    for kind in (P.Schedule1F1B, P.ScheduleZBVZeroBubble):
        queues, ranks = {}, []
        for p in range(8):
            rank = (37 * 8 + 3) * 8 + p
            dist.init_process_group("fake", rank=rank, world_size=4096)
            mesh = dist.init_device_mesh("cpu", (64, 8, 8), mesh_dim_names=("dp", "tp", "pp"))
            group = mesh["pp"].get_group()
            ranks = dist.get_process_group_ranks(group)
            queue = queues[p] = collections.deque()
            for name, sends in (("isend", True), ("irecv", False)):
                def noted(t, *, group, sends=sends, real=getattr(c10d, name), queue=queue, **peer):
                    queue.append((sends, *peer.values(), tuple(t.shape)))
                    return real(t, group=group, **peer)

                monkeypatch.setattr(c10d, name, noted)
            stages = [p] if kind is P.Schedule1F1B else [p, 15 - p]
            made = [P.PipelineStage(nn.Linear(3, 3), k, 8 * len(stages), "cpu", input_args=arete.ones(2, 3), group=group) for k in stages]
            schedule = kind(made if len(made) > 1 else made[0], 12, loss_fn=lambda y, t: (y - t).sum())
            x, first, last = arete.ones(24, 3), p == 0, p == (7 if len(stages) == 1 else 0)
            schedule.step(*([x] if first else []), target=x if last else None)
            monkeypatch.undo()
            dist.destroy_process_group()
        assert ranks == list(range(ranks[0], ranks[0] + 8)) and sum(map(len, queues.values())) > 8 * 12 * 2
        # Each message ends when both sides have come to it.
        moved = True
        while moved:
            moved = False
            for p, queue in queues.items():
                while queue and queue[0][0]:
                    _, peer, shape = queue[0]
                    if not queues[peer] or queues[peer][0] != (False, p, shape):
                        break
                    queue.popleft()
                    queues[peer].popleft()
                    moved = True
        assert not any(queues.values()), {p: q[0] for p, q in queues.items() if q}
