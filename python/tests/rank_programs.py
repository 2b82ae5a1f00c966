"""Programs of several ranks as users write them, for PyTorch with Gloo and `arete.as_torch` alike: `rank_programs.py FOLDER [NAME ...]`
under torchrun or `arete run`. What a rank got goes, as JSON, to FOLDER/RANK."""
import contextlib
import copy
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def filled(net):
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 1.3 + k).reshape(p.shape) * 0.5)
    return net


def batch(rank, step, rows=8, columns=6):
    return torch.cos(torch.arange(rows * columns, dtype=torch.float32) * 0.7 + 5 * rank + step).reshape(rows, columns)


def network():
    return filled(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3)))


def steps(net, rank, count=3, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(count):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(batch(rank, step)), torch.arange(8) % 3)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [torch.stack(losses), *(p.detach() for p in net.parameters())]


@program
def tutorial(rank, size):
    """The DDP tutorial's model, optimizer and save by rank 0 with a barrier and map_location."""
    model = DDP(network())
    out = steps(model, rank)
    path = os.path.join(FOLDER, "tutorial.pt")
    if dist.get_rank() == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return out + list(model.state_dict())


@program
def resume(rank, size):
    """Checkpoint and resume: model, optimizer, scheduler, epoch."""
    path = os.path.join(FOLDER, "resume.pt")

    def make():
        model = DDP(network())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

    def train(model, optimizer, scheduler, begin, end):
        for step in range(begin, end):
            optimizer.zero_grad(set_to_none=True)
            F.mse_loss(model(batch(rank, step)), batch(rank, step + 1, 8, 3)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()

    a = make()
    train(*a, 0, 5)
    b = make()
    train(*b, 0, 3)
    if rank == 0:
        torch.save({"model": b[0].module.state_dict(), "optimizer": b[1].state_dict(), "scheduler": b[2].state_dict(), "step": 3}, path)
    dist.barrier()
    c = make()
    saved = torch.load(path, map_location={"cuda:0": "cpu"}, weights_only=True)
    c[0].module.load_state_dict(saved["model"])
    c[1].load_state_dict(saved["optimizer"])
    c[2].load_state_dict(saved["scheduler"])
    train(*c, saved["step"], 5)
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(a[0].parameters(), c[0].parameters()))
    return list(c[0].parameters()) + [c[2].get_last_lr()]


@program
def accumulation(rank, size):
    """Gradient accumulation with no_sync."""
    model = DDP(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    for step in range(2):
        optimizer.zero_grad()
        for micro in range(3):
            context = model.no_sync() if micro < 2 else contextlib.nullcontext()
            with context:
                (model(batch(rank, 3 * step + micro)).square().mean() / 3).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5))
        optimizer.step()
    return norms + list(model.parameters())


@program
def uneven(rank, size):
    """Uneven inputs: processes with fewer batches than others."""
    model = DDP(network())
    with model.join():
        for step in range(2 + rank):
            model.zero_grad()
            model(batch(rank, step)).square().mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.1 * p.grad
    return list(model.parameters())


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x, way):
        x = F.gelu(self.stem(x))
        return self.a(x) if way else self.b(x)


@program
def unused(rank, size):
    """Parameters that a step does not use, on all ranks or on some."""
    model = DDP(filled(Branches()), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad()
        model(batch(rank, step), way=step == 0 or (step + rank) % 2 == 0).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


@program
def static(rank, size):
    """static_graph with checkpointed layers and gradient_as_bucket_view."""
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
            self.head = nn.Linear(6, 3)

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(lambda x, layer=layer: torch.tanh(layer(x)), x, use_reentrant=False)
            return self.head(x)

    model = DDP(filled(Net()), static_graph=True, gradient_as_bucket_view=True)
    return steps(model, rank)


@program
def buffers(rank, size):
    """BatchNorm's buffers are broadcast from rank 0; SyncBatchNorm; broadcast_buffers=False."""
    def net():
        return filled(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)))
    out = []
    for options in ({}, {"broadcast_buffers": False}):
        model = DDP(net(), **options)
        out += steps(model, rank)
        if not options:
            model.eval()
            out.append(model(batch(0, 9)).detach())
        else:
            out += list(model.module[1].buffers())
    return out


@program
def gan(rank, size):
    """Two networks, two optimizers, one detaches the other's results."""
    G, D = DDP(filled(nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6)))), DDP(filled(nn.Sequential(nn.Linear(6, 8),
        nn.LeakyReLU(0.2), nn.Linear(8, 1))))
    og, od = torch.optim.Adam(G.parameters(), lr=0.01, betas=(0.5, 0.999)), torch.optim.Adam(D.parameters(), lr=0.01, betas=(0.5, 0.999))
    loss = nn.BCEWithLogitsLoss()
    out = []
    for step in range(3):
        real, noise = batch(rank, step), batch(rank, step + 50)
        od.zero_grad()
        both = D(torch.cat([real, G(noise).detach()]))
        error = loss(both, torch.cat([torch.ones(8, 1), torch.zeros(8, 1)]))
        error.backward()
        od.step()
        og.zero_grad()
        for p in D.parameters():
            p.requires_grad_(False)
        lie = loss(D.module(G(noise)), torch.ones(8, 1))
        lie.backward()
        og.step()
        for p in D.parameters():
            p.requires_grad_(True)
        out += [error.detach(), lie.detach()]
    return out + list(G.parameters()) + list(D.parameters())


@program
def ema(rank, size):
    """An average of a wrapped network's weights."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
    model = DDP(network())
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    by_hand = copy.deepcopy(model.module).eval().requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()
        average.update_parameters(model.module)
        with torch.no_grad():
            torch._foreach_lerp_(list(by_hand.parameters()), list(model.module.parameters()), 0.1)
    return list(average.module.parameters()) + list(by_hand.parameters())


@program
def scaler(rank, size):
    """autocast and GradScaler under DDP; rank 1's gradient overflows once, and all skip that step."""
    model = DDP(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)
    out = []
    for step in range(4):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch(rank, step)).square().mean()
        if step == 1 and rank == 1:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        scaler.step(optimizer)
        scaler.update()
        out.append(scaler.get_scale())
    return out + [("bf16", p.detach()) for p in model.parameters()]


@program
def metrics(rank, size):
    """Sums of correct and counts over ranks, gathered predictions, means of losses."""
    logits, target = batch(rank, 0, 7 + rank, 3), torch.arange(7 + rank) % 3
    correct, count = (logits.argmax(1) == target).sum(), torch.tensor(len(target))
    both = torch.stack([correct, count]).double()
    dist.all_reduce(both, op=dist.ReduceOp.SUM)
    sizes = [torch.zeros((), dtype=torch.long) for _ in range(size)]
    dist.all_gather(sizes, count)
    most = max(int(s) for s in sizes)
    padded = F.pad(logits, (0, 0, 0, most - len(logits)))
    every = [torch.empty_like(padded) for _ in range(size)]
    dist.all_gather(every, padded)
    joined = torch.cat([e[:int(s)] for e, s in zip(every, sizes)])
    everyone = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "correct": int(correct)})
    work = dist.all_reduce(correct, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()
    assert work.is_completed()
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(("text", rank), gathered, dst=0)
    return [both[0] / both[1], joined, everyone, correct, gathered]


@program
def sampler(rank, size):
    """DistributedSampler: set_epoch, drop_last, and the state of a loader."""
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
    data = TensorDataset(torch.arange(23), torch.arange(23) ** 2)
    out = []
    for options in ({"shuffle": False}, {"shuffle": False, "drop_last": True}, {"num_replicas": 4, "rank": 3, "shuffle": False}):
        s = DistributedSampler(data, **options)
        loader = DataLoader(data, batch_size=4, sampler=s, num_workers=0)
        for epoch in range(2):
            s.set_epoch(epoch)
            out += [len(s), len(loader)] + [x for x, _ in loader]
    s = DistributedSampler(data, seed=3)
    orders = []
    for epoch in range(2):
        s.set_epoch(epoch)
        mine = torch.tensor(list(s))
        every = [torch.empty_like(mine) for _ in range(size)]
        dist.all_gather(every, mine)
        assert set(torch.cat(every).tolist()) == set(range(23))
        orders.append(torch.stack(every))
    return out + [not torch.equal(*orders)]


@program
def frozen(rank, size):
    """A frozen body, a trained head, groups of parameters with rates of their own."""
    net = network()
    for p in net[0].parameters():
        p.requires_grad = False
    model = DDP(net)
    out = steps(model, rank, optimizer=torch.optim.AdamW([{"params": [net[2].weight], "lr": 0.1},
        {"params": [net[2].bias], "weight_decay": 0.0}], lr=0.01))
    return out + [net[0].weight.grad is None]


@program
def tied(rank, size):
    """Weights of an embedding and a head that are one."""
    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(torch.tanh(self.body(self.embed(tokens))))

    model = DDP(filled(LM()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(3):
        tokens = (torch.arange(24) * 5 + 3 * rank + step).remainder(11).reshape(4, 6)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(-1, 1).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert model.module.head.weight is model.module.embed.weight
    return losses + list(model.parameters())


@program
def zero(rank, size):
    """ZeroRedundancyOptimizer, its state gathered and loaded."""
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = DDP(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    out = steps(model, rank, optimizer=optimizer)
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        state = optimizer.state_dict()
        out += [sorted(state), len(state["state"])] + [state["state"][k]["exp_avg"] for k in sorted(state["state"])]
    return out


@program
def mesh(rank, size):
    """A mesh of two dimensions, or of one by the number of ranks; collectives along each."""
    from torch.distributed.device_mesh import init_device_mesh
    m = init_device_mesh("cpu", (1, size), mesh_dim_names=("replicate", "shard"))
    x = torch.ones(3) * (rank + 1)
    dist.all_reduce(x, group=m["shard"].get_group())
    y = torch.ones(3) * (rank + 1)
    dist.all_reduce(y, group=m.get_group("replicate"))
    flat = m["replicate", "shard"]._flatten("all")
    z = torch.ones(1)
    dist.all_reduce(z, group=flat.get_group())
    return [x, y, z, m.get_local_rank("shard"), m.get_local_rank(mesh_dim="replicate"), list(m.mesh.shape), m.mesh.tolist(), m.ndim,
            m.size(), m.size(1),
            m.get_coordinate(), str(m.mesh_dim_names), flat.size(), m["shard"].mesh.tolist(), m.device_type, m["shard"].get_rank(), m == m,
            len(m.get_all_groups())]


@program
def objects(rank, size):
    """Lists of objects from rank 0: settings, paths of runs; scattered shares."""
    box = [{"lr": 0.1, "name": "run-7"}, [1, 2], None] if rank == 0 else [None, None, None]
    dist.broadcast_object_list(box, src=0)
    mine = [None]
    dist.scatter_object_list(mine, [{"part": r} for r in range(size)] if rank == 0 else None, src=0)
    if rank == 0:
        dist.send_object_list(["to", 1], dst=1)
        got = []
    elif rank == 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
    else:
        got = []
    named = [None]
    if rank == 0:
        named = [torch.arange(3)]
    dist.broadcast_object_list(named, src=0, device=torch.device("cpu"))
    return [box, mine, got, named[0]]


@program
def subgroup(rank, size):
    """Groups of some ranks: all_reduce, broadcast, barriers; ranks of groups."""
    every = [dist.new_group([r for r in range(size) if r != left]) for left in range(size)]
    out = []
    for left, group in enumerate(every):
        x = torch.arange(3.0) * (rank + 1)
        if rank != left:
            dist.all_reduce(x, group=group)
            out += [dist.get_rank(group), dist.get_world_size(group), dist.get_process_group_ranks(group), dist.get_global_rank(group, 0),
                    dist.get_group_rank(group, rank)]
            dist.barrier(group=group)
        else:
            out.append(dist.get_rank(group))
        out.append(x)
    own = dist.new_group([rank], use_local_synchronization=True)
    y = torch.ones(1)
    dist.all_reduce(y, group=own)
    whole = dist.new_group(backend="gloo", group_desc="whole")
    z = torch.full((2,), float(rank))
    dist.broadcast(z, group=whole, group_src=1)
    dist.destroy_process_group(whole)
    sub, subs = dist.new_subgroups(1)
    w = torch.ones(1)
    dist.all_reduce(w, group=sub)
    return out + [y, z, w, len(subs)]


@program
def stores(rank, size):
    """Counting and waiting in a store, as barriers of programs do."""
    from datetime import timedelta
    store = dist.distributed_c10d._get_default_store()
    store = dist.PrefixStore("mine", store)
    store.set(f"at{rank}", f"value {rank}")
    store.wait([f"at{r}" for r in range(size)], timedelta(seconds=20))
    values = [store.get(f"at{r}").decode() for r in range(size)]
    n = store.add("count", 1)
    assert 1 <= n <= size
    if n == size:
        store.set("all", "here")
    store.wait(["all"])
    assert store.check(["all"]) and not store.check(["none"])
    dist.monitored_barrier(timeout=timedelta(seconds=20))
    first = store.compare_set("who", "", str(rank)) if rank == 0 else None
    try:
        store.wait(["nobody"], timedelta(milliseconds=50))
        waited = None
    except Exception as e:
        waited = type(e).__name__
    return [values, store.get("all"), str(first), waited, int(store.get("count"))]


@program
def download(rank, size):
    """Rank 0 prepares the data, the others wait for it at a barrier."""
    path = os.path.join(FOLDER, "data.pt")
    if rank != 0:
        dist.barrier()
    if not os.path.exists(path):
        torch.save(torch.arange(10) * 3, path)
    if rank == 0:
        dist.barrier()
    return [torch.load(path, weights_only=True)]


@program
def half(rank, size):
    """bfloat16 weights under DDP."""
    model = DDP(network().bfloat16())
    for step in range(1):
        model(batch(rank, step).bfloat16()).float().square().mean().backward()
    return [("bf16", p.grad) for p in model.parameters()]


@program
def hooks(rank, size):
    """Communication hooks: bf16, fp16, PowerSGD, one's own."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    out = []
    for hook in (default_hooks.allreduce_hook, default_hooks.fp16_compress_hook, default_hooks.bf16_compress_hook):
        model = DDP(network(), bucket_cap_mb_list=[1e-4, 1])
        model.register_comm_hook(None, hook)
        out += [("bf16", x) for x in steps(model, rank)[1:]]

    def own(state, bucket):
        t = bucket.buffer().div_(state)
        return dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0])
    model = DDP(network())
    model.register_comm_hook(size, own)
    out += steps(model, rank)
    torch.manual_seed(0)
    model = DDP(filled(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))))
    model.register_comm_hook(powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=1, start_powerSGD_iter=2),
                             powerSGD_hook.powerSGD_hook)
    return out + [steps(model, rank, 2)[0]]


@program
def split(rank, size):
    """Groups that their members alone make, permutations, coalesced collectives."""
    import torch.distributed._functional_collectives as funcol
    mine = dist.new_group([0, 1] if rank < 2 else [2], use_local_synchronization=True)
    x = torch.full((2,), rank + 1.0)
    dist.all_reduce(x, group=mine)
    a, b = funcol.all_reduce_coalesced([torch.ones(2), torch.ones(3) * rank], "sum", dist.group.WORLD)
    c = funcol.permute_tensor(torch.full((3,), float(rank)), [(r + 1) % size for r in range(size)], dist.group.WORLD)
    from torch.distributed.distributed_c10d import all_gather_object, is_nccl_available  # noqa: F401
    every = [None] * size
    all_gather_object(every, rank)
    return [x, a + 0, b + 0, c + 0, every]


@program
def parts(rank, size):
    """distribute_module with functions of its own, trained: columns and rows of layers by hand, a loss that is a DTensor."""
    from torch.distributed.tensor import Replicate, Shard, distribute_module, distribute_tensor
    from torch.distributed.tensor.parallel.style import ColwiseParallel  # noqa: F401
    m = dist.init_device_mesh("cpu", (size,))

    def cut(name, module, mesh):
        if isinstance(module, nn.Linear):
            dim = 0 if name == "0" else 1
            module.register_parameter("weight", nn.Parameter(distribute_tensor(module.weight, mesh, [Shard(dim)])))
            module.register_parameter("bias", nn.Parameter(distribute_tensor(module.bias, mesh, [Shard(0) if dim == 0 else Replicate()])))

    net = distribute_module(filled(nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))), m, cut,
                            lambda module, inputs, mesh: distribute_tensor(inputs[0], mesh, [Replicate()]),
                            lambda module, outputs, mesh: outputs.redistribute(mesh, [Replicate()]))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    losses = []
    for step in range(3):
        optimizer.zero_grad()
        loss = net(batch(0, step)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.full_tensor().detach())
    state = net.state_dict()
    wholes = [state[k].full_tensor() for k in sorted(state)] + [p.detach().full_tensor() for p in net.parameters()]
    return losses + wholes + [str(state["0.weight"].placements)]


@program
def own_parameters(rank, size):
    """Parameters made of DTensors, computed with by themselves: losses, gradients by backward() and grad(), of second order, hooks, steps
    by hand and by optimizers."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    m = dist.init_device_mesh("cpu", (size,))
    full = torch.arange(4.0 * size).reshape(2 * size, 2) / 4 + 1

    def spread(x, *places):
        return distribute_tensor(x, m, places)

    def make(place=Shard(0)):
        return nn.Parameter(spread(full, place))

    losses = [
        lambda p: p.sum(), lambda p: (p * 2).mean(), lambda p: p.norm(), lambda p: (p * p).sum(), lambda p: p.pow(2).mean(),
        lambda p: p.max(), lambda p: (1 - p).square().sum(), lambda p: (p.T @ p).sum(), lambda p: p.mT.square().sum(),
        lambda p: p[1].sum(), lambda p: p.exp().sum(),
        lambda p: torch.cat([p, p]).square().sum(), lambda p: p.view(-1).square().sum(), lambda p: p.softmax(1)[0, 0],
        lambda p: F.relu(p).sum(), lambda p: p.double().sum(), lambda p: p.clone().square().sum(), lambda p: torch.linalg.vector_norm(p),
        lambda p: F.linear(spread(torch.ones(3, 2), Replicate()), p).square().sum(),
        lambda p: F.layer_norm(spread(torch.ones(3, 2).cumsum(0), Replicate()) @ p.t(), (2 * size,)).square().sum()]
    out = []
    for place in (Shard(0), Replicate()):
        for loss in losses:
            p = make(place)
            value = loss(p)
            value.backward()
            out += [value.detach().full_tensor(), p.grad.full_tensor()]
        p = make(place)
        given, = torch.autograd.grad(p.square().sum(), p)
        of_parts, = torch.autograd.grad(p.to_local().square().sum(), p)
        out += [type(given).__name__, str(given.placements), given.full_tensor(), str(of_parts.placements)]
        y = p * 2
        of_y, = torch.autograd.grad(y.square().sum(), y)
        of_vector, = torch.autograd.grad(p * 3, p, spread(full.sin(), place))
        out += [of_y.full_tensor(), of_vector.full_tensor()]
        first, = torch.autograd.grad(p.norm() * 2, p, create_graph=True)
        (first * spread(full.sin(), place)).sum().square().backward()
        out += [first.detach().full_tensor(), p.grad.full_tensor()]
        p, q = make(place), nn.Parameter(spread(torch.ones(3, 2), Replicate()))
        first, = torch.autograd.grad((q @ p.t()).square().sum(), q, create_graph=True)
        first.square().sum().backward()
        out += [first.detach().full_tensor(), p.grad.full_tensor(), q.grad.full_tensor()]
    p, seen = make(), []
    p.register_hook(lambda g: (seen.append(g.full_tensor()), g * 2)[1])
    p.square().sum().backward()
    with torch.no_grad():
        p -= 0.1 * p.grad
        p.add_(p.grad, alpha=-0.1).mul_(0.5)
    out += [seen, p.detach().full_tensor(), p.requires_grad, p.is_leaf, list(p.shape), p.dim(), p.numel()]
    with torch.no_grad():
        p.copy_(spread(full * 3, Shard(1)))
    out += [str(p.placements), p.detach().full_tensor()]
    for kind in (torch.optim.SGD, torch.optim.Adam):
        p = make()
        optimizer = kind([p], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            p.square().sum().backward()
            nn.utils.clip_grad_norm_([p], 1.0)
            optimizer.step()
        out.append(p.detach().full_tensor())
    try:
        (make() * 2).backward()
    except RuntimeError as e:
        out.append("scalar outputs" in str(e))
    return out


@program
def points(rank, size):
    """Messages in a ring: isend/irecv, batch_isend_irecv, send to the next, recv from anyone."""
    left, right = (rank - 1) % size, (rank + 1) % size
    x, y = torch.full((3,), float(rank)), torch.zeros(3)
    for r in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]):
        r.wait()
    z = torch.zeros(3)
    a = dist.isend(x * 2, right, tag=4)
    b = dist.irecv(z, left, tag=4)
    a.wait()
    b.wait()
    w = torch.zeros(1)
    src = None
    if rank == 1:
        dist.send(torch.ones(1) * 5, dst=0)
    elif rank == 0:
        src = dist.recv(w)
    return [y, z, w, src]


@program
def scattered(rank, size):
    """all_gather_into_tensor, reduce_scatter_tensor, all_to_all(_single) with sizes, gather and scatter."""
    flat = torch.zeros(size * 2, 3)
    dist.all_gather_into_tensor(flat, batch(rank, 0, 2, 3))
    part = torch.zeros(2, 3)
    dist.reduce_scatter_tensor(part, batch(rank, 1, 2 * size, 3))
    listed = torch.zeros(2)
    dist.reduce_scatter(listed, [torch.ones(2) * (rank + r) for r in range(size)])
    sizes_in, sizes_out = [1 + (rank + r) % 2 for r in range(size)], [1 + (rank + r) % 2 for r in range(size)]
    x, y = torch.arange(float(sum(sizes_in))) + 10 * rank, torch.zeros(sum(sizes_out))
    dist.all_to_all_single(y, x, sizes_out, sizes_in)
    got = [torch.zeros(2) for _ in range(size)] if rank == 0 else None
    dist.gather(torch.ones(2) * rank, gather_list=got, dst=0)
    mine = torch.zeros(2)
    dist.scatter(mine, [torch.ones(2) * 3 * r for r in range(size)] if rank == 0 else None, src=0)
    s = torch.ones(2) * (rank + 1)
    dist.reduce(s, dst=1, op=dist.ReduceOp.MAX)
    return [flat, part, listed, y, got, mine] + ([s] if rank == 1 else [])


@program
def functional(rank, size):
    """_functional_collectives and collectives with gradients."""
    import torch.distributed._functional_collectives as funcol
    import torch.distributed.nn.functional as dfn
    x = batch(rank, 0, 2 * size, 3)
    a = funcol.all_reduce(x, "sum", group=dist.group.WORLD)
    b = funcol.all_gather_tensor(x, 0, dist.group.WORLD)
    c = funcol.reduce_scatter_tensor(x, "sum", 0, dist.group.WORLD)
    d = funcol.all_to_all_single(x, None, None, dist.group.WORLD)
    e = funcol.broadcast(x, 0, dist.group.WORLD)
    g = funcol.wait_tensor(a)
    w = x.clone().requires_grad_()
    (dfn.all_reduce(w) * batch(rank, 3, 2 * size, 3)).sum().backward()
    v = x.clone().requires_grad_()
    (torch.cat(dfn.all_gather(v)) ** 2).sum().backward()
    return [a + 0, b + 0, c + 0, d + 0, e + 0, g + 0, w.grad, v.grad]


@program
def placements(rank, size):
    """DTensors: distributed, redistributed, partial, gathered, of modules."""
    from torch.distributed.tensor import (DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor, init_device_mesh, ones,
                                          zeros)
    m = init_device_mesh("cpu", (size,))
    x = torch.arange(float(5 * 7)).reshape(5, 7)
    rows, columns = distribute_tensor(x, m, [Shard(0)]), distribute_tensor(x, m, [Shard(1)])
    both = rows.redistribute(m, [Replicate()])
    part = DTensor.from_local(torch.ones(2, 2) * rank, m, [Partial()], run_check=False)
    out = [rows.to_local(), columns.to_local(), both.to_local(), part.full_tensor(), part.redistribute(placements=[Replicate()]).to_local(),
           part.redistribute(m, [Shard(0)]).to_local(), rows.redistribute(m,
               [Shard(1)]).to_local(), str(rows.placements), str(part.placements), list(rows.shape), list(rows.stride()),
           (rows + 1).full_tensor(), (rows * both).full_tensor(), rows.sum().full_tensor(), (rows @ columns.t()).full_tensor(), ones(4, 3,
               device_mesh=m, placements=[Shard(0)]).to_local(),
           zeros(4, device_mesh=m, placements=[Replicate()]).to_local(), rows.device_mesh == m, rows.mean(0).full_tensor()]
    net = distribute_module(network(), m)
    y = net(distribute_tensor(batch(0, 0, 8, 6), m, [Shard(0)]))
    y.square().mean().backward()
    return out + [str(y.placements), y.full_tensor(), net[0].weight.grad.full_tensor()]


@program
def fsdp2(rank, size):
    """The FSDP2 tutorial: fully_shard, clip, state dicts whole and in parts."""
    from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict,
        set_model_state_dict, set_optimizer_state_dict)
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import distribute_tensor
    with torch.device("meta"):
        net = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 3))
    for layer in net[:3]:
        fully_shard(layer)
    fully_shard(net)
    assert isinstance(net, FSDPModule)
    net.to_empty(device="cpu")
    source = filled(nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)), nn.Linear(6, 3)))
    sharded = {name: nn.Parameter(distribute_tensor(source.state_dict()[name], p.device_mesh, p.placements)) for name,
               p in net.state_dict().items()}
    net.load_state_dict(sharded, assign=True)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    out = []
    for step in range(3):
        net.unshard()
        loss = F.cross_entropy(net(batch(rank, step)), torch.arange(8) % 3)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        out += [loss.detach(), norm.full_tensor()]
    whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    states = get_optimizer_state_dict(net, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    if rank == 0:
        out += [sorted(whole), sorted(states["state"]), whole["0.weight"], states["state"]["0.weight"]["exp_avg"]]
    else:
        out += [len(whole), len(states)]
    set_model_state_dict(net, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    set_optimizer_state_dict(net, optimizer, states, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    loss = net(batch(rank, 5)).square().mean()
    loss.backward()
    optimizer.step()
    return out + [loss.detach()] + [p.full_tensor() for p in net.parameters()]


@program
def tensor_parallel(rank, size):
    """The tensor parallel tutorial: colwise, rowwise, sequence parallel, loss parallel."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, loss_parallel,
        parallelize_module)

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.w1, self.w2, self.w3, self.out = nn.LayerNorm(6), nn.Linear(6, 12, bias=False), nn.Linear(12, 6,
                bias=False), nn.Linear(6, 12, bias=False), nn.Linear(6, 12)

        def forward(self, x):
            h = self.norm(x)
            h = self.w2(F.silu(self.w1(h)) * self.w3(h))
            return self.out(x + h if x.shape == h.shape else h)

    m = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    net = parallelize_module(filled(FeedForward()), m["tp"], {
        "w1": ColwiseParallel(), "w2": RowwiseParallel(), "w3": ColwiseParallel(),
        "out": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=False)
    out = []
    for step in range(3):
        optimizer.zero_grad()
        with loss_parallel():
            loss = F.cross_entropy(net(batch(0, step)), torch.arange(8) % 12)
            loss.backward()
        optimizer.step()
        out.append(loss.detach().full_tensor() if hasattr(loss, "full_tensor") else loss.detach())
    sequence = parallelize_module(filled(FeedForward()), m, {
        "norm": SequenceParallel(), "w1": ColwiseParallel(input_layouts=Shard(1)), "w3": ColwiseParallel(input_layouts=Shard(1)),
        "w2": RowwiseParallel(output_layouts=Replicate())})
    y = sequence(batch(0, 0, 4, 36).reshape(4, 6, 6).chunk(size, 1)[rank].contiguous())
    y.square().mean().backward()
    return out + [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()] + [y]


@program
def pipeline(rank, size):
    """The pipeline tutorial: PipelineStage by hand, each schedule. Gradients of several steps are added up, some of other losses before."""
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import get_schedule_class
    out = []
    for name, each, n, scale in (("GPipe", 1, 4, True), ("1F1B", 1, 3, True), ("1F1B", 1, 4, False), ("LoopedBFS", 2, 6, True),
                                 ("Interleaved1F1B", 2, 6, True), ("InterleavedZeroBubble", 2, 6, True)):
        layers = [filled(nn.Sequential(nn.Linear(6, 6), nn.Tanh())) for _ in range(size * each)]
        mine = [rank, rank + size][:each]
        first, last = 0 in mine, size * each - 1 in mine
        stages = [PipelineStage(layers[k], k, size * each, torch.device("cpu")) for k in mine]
        s = get_schedule_class(name)(stages[0] if each == 1 else stages, n, loss_fn=F.mse_loss, scale_grads=scale)
        for p in layers[mine[0]].parameters():
            p.grad = torch.ones_like(p)
        for step in range(2):
            losses = []
            got = s.step(*[batch(0, step, 24, 6)][:first], losses=losses, **({"target": batch(0, 9, 24, 6)} if last else {}))
            if last:
                out += [got, torch.stack(losses)]
            out += [p.grad.clone() for k in mine for p in layers[k].parameters()]
    return out


@program
def checkpoints(rank, size):
    """The DCP recipe: save with AppState, load into another, async_save."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.checkpoint.stateful import Stateful
    from torch.distributed.fsdp import fully_shard

    class AppState(Stateful):
        def __init__(self, model, optimizer=None):
            self.model, self.optimizer = model, optimizer

        def state_dict(self):
            model, optimizer = get_state_dict(self.model, self.optimizer)
            return {"model": model, "optim": optimizer}

        def load_state_dict(self, state):
            set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])

    def make(seed):
        net = network()
        if seed:
            with torch.no_grad():
                for p in net.parameters():
                    p.mul_(seed)
        fully_shard(net)
        return net, torch.optim.Adam(net.parameters(), lr=0.01)

    a = make(0)
    steps(a[0], rank, optimizer=a[1])
    dcp.save({"app": AppState(*a)}, checkpoint_id=os.path.join(FOLDER, "dcp"))
    b = make(3)
    dcp.load({"app": AppState(*b)}, checkpoint_id=os.path.join(FOLDER, "dcp"))
    out = steps(b[0], rank, optimizer=b[1])
    future = dcp.async_save({"model": b[0].state_dict()}, checkpoint_id=os.path.join(FOLDER, "async"))
    future.result()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p for p in out]


@program
def spawned(rank, size):
    """Attributes that scripts ask for."""
    from torch.distributed.elastic.multiprocessing.errors import record
    record(lambda: None)()
    return [dist.is_available(), dist.is_initialized(), dist.get_backend(), dist.is_torchelastic_launched(), dist.is_gloo_available(),
            os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"],
            os.environ["LOCAL_WORLD_SIZE"], os.environ["GROUP_RANK"], os.environ["ROLE_RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"],
            dist.group.WORLD is not None, dist.get_node_local_rank(),
            str(dist.Backend.GLOO), dist.GroupMember.NON_GROUP_MEMBER is not None, dist.group.WORLD.size(), dist.group.WORLD.rank()]


def plain(value):
    if isinstance(value, torch.Tensor):
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
        return {"tensor": value.detach().double().reshape(-1).tolist(), "shape": list(value.shape), "dtype": str(value.dtype)}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


FOLDER = sys.argv[1]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    out = {}
    for name in sys.argv[2:] or PROGRAMS:
        try:
            out[name] = plain(PROGRAMS[name](rank, size))
        except Exception as e:
            out[name] = {"error": "".join(traceback.format_exception(e)[-4:])}
        dist.barrier()
    with open(os.path.join(FOLDER, str(rank)), "w") as f:
        json.dump(out, f)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
