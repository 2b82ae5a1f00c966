"""Further programs of several ranks, for PyTorch with Gloo and `arete.as_torch` alike, started as those of rank_programs.py are: states
that other numbers of ranks read, adapters, averages and clipping of sharded networks, groups that end, meet late or are nested, uneven
messages."""
import copy
import datetime
import logging
import os
import time

import rank_programs
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from rank_programs import FOLDER, batch, filled, network, steps
from torch.nn.parallel import DistributedDataParallel as DDP

PROGRAMS = rank_programs.PROGRAMS
PROGRAMS.clear()


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def sharded(net=None, mesh=None, **options):
    from torch.distributed.fsdp import fully_shard
    net = net or network()
    options.update({} if mesh is None else {"mesh": mesh})
    for layer in net:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, **options)
    fully_shard(net, **options)
    return net


def whole(values):
    return [v.full_tensor() if hasattr(v, "full_tensor") else v for v in values]


@program
def foreach(rank, size):
    """Operators on lists of DTensors, sharded unevenly or whole; norms and extremes are of all parts."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    m = init_device_mesh("cpu", (size,))
    values = [batch(0, k, 4, 3) for k in range(3)]  # one of three ranks has no rows of the first
    places = [[Shard(0)], [Shard(1)], [Replicate()]]

    def made(add=0.0):
        return [distribute_tensor(v + add, m, p) for v, p in zip(values, places)]

    a, b = made(), made(2.5)
    out = [*torch._foreach_add(a, b, alpha=2), *torch._foreach_mul(a, 3.0), *torch._foreach_div(a, [1.0, 2.0, 4.0]),
           *torch._foreach_sqrt(b), *torch._foreach_addcmul(a, b, b, value=0.5), *torch._foreach_norm(a), *torch._foreach_norm(a, 1),
           *torch._foreach_neg(a), *torch._foreach_norm(a[1:], float("inf"))]
    assert all(isinstance(x, type(a[0])) for x in out)
    out += [str(x.placements) for x in torch._foreach_add(a, b)]
    torch._foreach_add_(a, b)
    torch._foreach_mul_(a, 0.5)
    torch._foreach_lerp_(b, a, 0.1)
    torch._foreach_addcdiv_(a, made(1.0), made(3.0), value=-0.1)
    torch._foreach_zero_(b[1:])
    return out + a + b + [x.to_local() for x in a]


@program
def clipped(rank, size):
    """Norms and limits of gradients of sharded and of spread parameters; of all orders."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    m = init_device_mesh("cpu", (size,))
    net = sharded()
    out = []
    for order in (1.0, 2.0, 3.0, float("inf")):
        net.zero_grad()
        net(batch(rank, int(min(order, 9)))).square().mean().backward()
        out += whole([torch.nn.utils.clip_grad_norm_(net.parameters(), 0.3, norm_type=order, foreach=order != 3.0)])
        out += whole(p.grad for p in net.parameters())
    torch.nn.utils.clip_grad_value_(net.parameters(), 0.01)
    out += whole(p.grad for p in net.parameters())
    parameters = [nn.Parameter(distribute_tensor(batch(0, 1), m, [Shard(1)])), nn.Parameter(distribute_tensor(batch(0, 2), m, [Shard(0)])),
                  nn.Parameter(distribute_tensor(batch(0, 3), m, [Replicate()]))]
    sum((p * p).sum() for p in parameters).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
    out += whole([norm])
    torch.nn.utils.clip_grads_with_norm_(parameters, 2.0, norm)
    out += whole(p.grad for p in parameters)
    torch.nn.utils.clip_grad_value_(parameters, 0.1)
    out += whole(p.grad for p in parameters)
    return out + whole([parameters[0].grad.norm(), parameters[0].norm(), parameters[1].grad.abs().max()])


@program
def optimizers(rank, size):
    """Steps of many optimizers on sharded networks and on parameters that are DTensors: by loops, lists and fused."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    m = init_device_mesh("cpu", (size,))
    out = []
    for name, options in (("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}), ("AdamW", {"foreach": True}),
                          ("AdamW", {"amsgrad": True, "foreach": False}), ("Adam", {"fused": True}), ("RMSprop", {"momentum": 0.5}),
                          ("Adagrad", {})):
        make = getattr(torch.optim, name)
        net = sharded()
        out += whole(steps(net, rank, 2, make(net.parameters(), lr=0.02, **options)))
        parameters = [nn.Parameter(distribute_tensor(batch(0, k, 5, 3), m, [place])) for k, place in enumerate((Shard(0), Replicate()))]
        optimizer = make(parameters, lr=0.02, **options)
        for _ in range(2):
            optimizer.zero_grad()
            sum((p * p * p).mean() for p in parameters).backward()
            optimizer.step()
        out += whole(p.detach() for p in parameters)
    return out


class Adapted(nn.Module):
    """A frozen layer and a product of small rank."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        filled(self.down), filled(self.up)
        base.requires_grad_(False)

    def forward(self, x):
        return self.base(x) + 0.5 * self.up(self.down(x))


@program
def adapters(rank, size):
    """FSDP over a frozen network with adapters: groups that mix both, an optimizer of what is trained, a state of adapters alone."""
    net = network()
    net[0], net[2] = Adapted(net[0]), Adapted(net[2])
    sharded(net)
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.05)
    out = [len(trained), sum(p.numel() for p in trained)]
    out += whole(steps(net, rank, 3, optimizer))
    state = {k: v.full_tensor() for k, v in net.state_dict().items() if "down" in k or "up" in k}
    return out + [sorted(state), *state.values(), [p.grad is None for p in net.parameters()]]


@program
def averaged(rank, size):
    """Averages of a sharded network's weights: lists in place, by hand, and swapped in for an evaluation."""
    net = sharded()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    average = [p.detach().clone() for p in net.parameters()]
    by_hand = {name: p.detach().clone() for name, p in net.named_parameters()}
    for step in range(3):
        optimizer.zero_grad()
        net(batch(rank, step)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(average, [p.detach() for p in net.parameters()], 0.1)
            for name, p in net.named_parameters():
                by_hand[name].mul_(0.9).add_(p, alpha=0.1)
    trained = {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(by_hand)
    with torch.no_grad():
        evaluated = net(batch(0, 7))
    net.load_state_dict(trained)
    return whole(average) + whole(by_hand.values()) + [evaluated] + whole(net.parameters())


@program
def everything(rank, size):
    """DDP of a compiled network under autocast with GradScaler, accumulation, clipping and a schedule."""
    model = DDP(torch.compile(network(), backend="eager"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 3))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    out = []
    for step in range(3):
        for micro in range(2):
            model.require_backward_grad_sync = micro == 1
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(batch(rank, 2 * step + micro)), batch(rank, step, 8, 3)) / 2
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        out.append(("bf16", torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return out + [scheduler.get_last_lr(), sorted(model.state_dict())] + [("bf16", p.detach()) for p in model.parameters()]


@program
def resized(rank, size):
    """A checkpoint of all ranks, network and optimizer, that two ranks and one rank go on from."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import DeviceMesh
    path = os.path.join(FOLDER, "resized")
    first = sharded()
    optimizer = torch.optim.Adam(first.parameters(), lr=0.01)
    out = whole(steps(first, 0, 2, optimizer))
    model_state, optimizer_state = get_state_dict(first, optimizer)
    dcp.save({"model": model_state, "optimizer": optimizer_state, "step": 2}, checkpoint_id=path)
    pair = dist.new_group([0, 1])
    if rank < 2:
        net = sharded(filled(nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))), mesh=DeviceMesh.from_group(pair, "cpu"))
        with torch.no_grad():
            for p in net.parameters():
                p.zero_()
        again = torch.optim.Adam(net.parameters(), lr=0.01)
        model_state, optimizer_state = get_state_dict(net, again)
        state = {"model": model_state, "optimizer": optimizer_state, "step": 0}
        dcp.load(state, checkpoint_id=path, process_group=pair)
        set_state_dict(net, again, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        out += [state["step"]] + whole(steps(net, 0, 2, again))
    if rank == 0:
        alone = network()
        state = {"model": {k: torch.zeros_like(v) for k, v in alone.state_dict().items()}}
        dcp.load(state, checkpoint_id=path, no_dist=True)
        alone.load_state_dict(state["model"])
        out += list(alone.parameters())
    dist.barrier()
    return out


@program
def planners(rank, size):
    """Checkpoints with planners: a part of a state, names that are not there, what a checkpoint holds."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import DefaultLoadPlanner, DefaultSavePlanner, FileSystemReader, FileSystemWriter
    path = os.path.join(FOLDER, "planners")
    net = sharded()
    dcp.save({"model": net.state_dict(), "epoch": 3}, storage_writer=FileSystemWriter(path), planner=DefaultSavePlanner())
    facts = FileSystemReader(path).read_metadata().state_dict_metadata
    out = [sorted(facts), list(facts["model.0.weight"].size)]
    head = {"model": {"2.weight": torch.zeros(3, 10), "2.bias": torch.zeros(3)}}
    dcp.load(head, storage_reader=FileSystemReader(path), planner=DefaultLoadPlanner())
    more = {"model": {"0.bias": torch.zeros(10), "new.bias": torch.ones(2)}}
    try:
        dcp.load(copy.deepcopy(more), checkpoint_id=path)
        out.append("loaded")
    except BaseException as e:  # torch's CheckpointException is one
        out.append("new.bias" in str(e))
    dcp.load(more, checkpoint_id=path, planner=DefaultLoadPlanner(allow_partial_load=True))
    return out + list(head["model"].values()) + list(more["model"].values())


@program
def renamed(rank, size):
    """Checkpoints under other names, by planners; what all have is written by the first one."""
    import torch.distributed.checkpoint as dcp

    class Save(dcp.DefaultSavePlanner):
        def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False):
            state = {"ema_" + name: value for name, value in state_dict.items()}
            super().set_up_planner(state_dict=state, storage_meta=storage_meta, is_coordinator=is_coordinator)

    class Load(dcp.DefaultLoadPlanner):
        def set_up_planner(self, state_dict, metadata, is_coordinator):
            assert sorted(metadata.state_dict_metadata) == ["ema_" + name for name in sorted(state_dict)]
            super().set_up_planner({"ema_" + name: value for name, value in state_dict.items()}, metadata, is_coordinator)

    path, net, other = os.path.join(FOLDER, "renamed"), sharded(filled(network())), network()
    dcp.save(net.state_dict(), checkpoint_id=path, planner=Save(dedup_save_to_lowest_rank=True))
    state = other.state_dict()
    dcp.load(state, checkpoint_id=path, planner=Load())
    return list(state.values())


@program
def asynchronous(rank, size):
    """Checkpoints that are written while training goes on: there for all when result() returns, with the values of before; copies in one
    place for all of them."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    net = sharded(filled(network()))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    writer, group, saved, out = dcp.FileSystemWriter(os.path.join(FOLDER, "live0")), dist.new_group(), None, []
    for k in range(3):
        optimizer.zero_grad()
        net(batch(rank, k)).square().mean().backward()
        if saved is not None:
            saved.result()
        optimizer.step()
        model, optim = get_state_dict(net, optimizer)
        saved = dcp.async_save({"model": model, "optim": optim}, storage_writer=writer, checkpoint_id=os.path.join(FOLDER, f"live{k}"),
                               process_group=group)
    saved.result()
    for k in range(3):
        model, optim = get_state_dict(net, optimizer)
        state = {"model": model, "optim": optim}
        dcp.load(state, checkpoint_id=os.path.join(FOLDER, f"live{k}"))
        set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        out += whole(net.parameters()) + [s["exp_avg"].full_tensor() for s in optimizer.state_dict()["state"].values()]
    return out


@program
def whole_states(rank, size):
    """States of optimizers by number, which rank 0 gathers and all take a part of again, as PyTorch's page on fully_shard has it."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import _init_optim_state
    from torch.distributed.tensor import DTensor, distribute_tensor

    def trained(optimizer, net, step):
        optimizer.zero_grad()
        net(batch(rank, step)).square().mean().backward()
        optimizer.step()

    net = sharded(filled(network()))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    for step in range(2):
        trained(optimizer, net, step)
    gathered = {n: {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in values.items()}
                for n, values in optimizer.state_dict()["state"].items()}
    box = [gathered if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    path = os.path.join(FOLDER, "by_number")
    dcp.save({"optim": optimizer.state_dict()}, checkpoint_id=path)
    others = []
    for way in range(2):
        other = sharded(filled(network()))
        with torch.no_grad():
            for p, q in zip(other.parameters(), net.parameters()):
                p.copy_(q.detach())
        new = torch.optim.AdamW(other.parameters(), lr=0.05)
        _init_optim_state(new)
        state = new.state_dict()
        if way == 0:
            for n, values in state["state"].items():
                for k, v in values.items():
                    values[k] = distribute_tensor(box[0][n][k], v.device_mesh, v.placements) if isinstance(v, DTensor) else box[0][n][k]
            new.load_state_dict(state)
        else:
            dcp.load({"optim": state}, checkpoint_id=path)
            new.load_state_dict(state)
        others.append((other, new))
    for n, o in [(net, optimizer), *others]:
        trained(o, n, 2)
    return [gathered[n]["exp_avg_sq"] for n in sorted(gathered)] + [whole(n.parameters()) for n, _ in [(net, optimizer), *others]]


@program
def files(rank, size):
    """One file by rank 0 of a sharded network, whole or of bfloat16, and of its optimizer; loaded by all."""
    from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_optimizer_state_dict,
        set_model_state_dict, set_optimizer_state_dict)
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    path = os.path.join(FOLDER, "files.pt")
    net = sharded()
    optimizer = torch.optim.AdamW([{"params": [p for p in net.parameters() if p.dim() > 1], "weight_decay": 0.1},
                                   {"params": [p for p in net.parameters() if p.dim() == 1], "weight_decay": 0.0}], lr=0.01)
    steps(net, rank, 2, optimizer)
    state = {"model": get_model_state_dict(net, options=options), "optimizer": get_optimizer_state_dict(net, optimizer, options=options)}
    if rank == 0:
        torch.save(state, path)
    dist.barrier()
    state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    again = sharded()
    new = torch.optim.AdamW([{"params": [p for p in again.parameters() if p.dim() > 1], "weight_decay": 0.1},
                             {"params": [p for p in again.parameters() if p.dim() == 1], "weight_decay": 0.0}], lr=0.5)
    set_model_state_dict(again, state["model"], options=options)
    set_optimizer_state_dict(again, new, state["optimizer"], options=options)
    out = whole(steps(again, rank, 2, new)) + [g["lr"] for g in new.param_groups] + [g["weight_decay"] for g in new.param_groups]
    return out + [sorted(state["optimizer"]), sorted(state["optimizer"]["param_groups"][0]["params"])]


@program
def accumulated(rank, size):
    """FSDP: micro-batches without reductions, mixed precision, no resharding after the forward pass."""
    from torch.distributed.fsdp import MixedPrecisionPolicy
    net = sharded()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(2):
        for micro in range(3):
            net.set_requires_gradient_sync(micro == 2)
            (net(batch(rank, 3 * step + micro)).square().mean() / 3).backward()
        optimizer.step()
        optimizer.zero_grad()
    out = whole(net.parameters())
    low = sharded(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32), reshard_after_forward=False)
    for step in range(2):
        y = low(batch(rank, step))
        y.float().square().mean().backward()
    return out + [str(y.dtype)] + [("bf16", g) for g in whole(p.grad for p in low.parameters())]


@program
def hybrid(rank, size):
    """Replicas of shards, and shards over all with a mesh of two dimensions; recomputed layers within."""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
    out = []
    for shape in ((size, 1), (1, size)):
        m = dist.init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
        net = network()
        apply_activation_checkpointing(net, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda layer: isinstance(layer, nn.Linear))
        sharded(net, mesh=m)
        out += whole(steps(net, rank, 3, torch.optim.Adam(net.parameters(), lr=0.02)))
        out += [str(next(net.parameters()).placements), sorted(net.state_dict())]
    return out


@program
def evaluated(rank, size):
    """An evaluation of uneven parts: sums that are weighed, predictions of different lengths, a loop that ends with the longest."""
    model = DDP(network()).eval()
    count, correct, loss = torch.zeros(()), torch.zeros(()), torch.zeros((), dtype=torch.float64)
    predictions = []
    with torch.inference_mode():
        for step in range(1 + rank):
            x, y = batch(rank, step, 5 + rank), torch.arange(5 + rank) % 3
            logits = model.module(x)
            loss += F.cross_entropy(logits, y, reduction="sum").double()
            correct += (logits.argmax(1) == y).sum()
            count += len(y)
            predictions.append(logits.argmax(1))
    totals = torch.stack([loss, correct.double(), count.double()])
    dist.all_reduce(totals)
    mine = torch.cat(predictions)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor([len(mine)]))
    gathered = [None] * size
    dist.all_gather_object(gathered, mine.tolist())
    going, rounds = torch.ones(1), 0
    while True:
        going.fill_(1.0 if rounds < 1 + rank else 0.0)
        dist.all_reduce(going, op=dist.ReduceOp.MAX)
        if going.item() == 0:
            break
        rounds += 1
    return [totals, lengths, gathered, rounds]


@program
def late(rank, size):
    """A monitored barrier that one rank does not reach names it; a new group works afterwards. Timeouts of calls are errors."""
    group = dist.new_group(list(range(size)), timeout=datetime.timedelta(seconds=20), backend="gloo")
    said = None
    if rank != 1:
        try:
            dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=1))
        except RuntimeError as e:
            said = "ank 1" in str(e) if rank == 0 else True
    store = dist.distributed_c10d._get_default_store()
    store.add("late", 1)
    while store.add("late", 0) < size:
        time.sleep(0.01)
    group = dist.new_group(list(range(size)), timeout=datetime.timedelta(seconds=20))
    x = torch.ones(2) * rank
    dist.all_reduce(x, group=group)
    dist.monitored_barrier(group, timeout=datetime.timedelta(seconds=10), wait_all_ranks=True)
    return [said if rank == 0 else None, x]


@program
def again(rank, size):
    """Groups that end and are made again: of some ranks, and the default one."""
    out = []
    for k in range(3):
        group = dist.new_group([0, 1])
        x = torch.full((2,), float(rank + k))
        if rank < 2:
            dist.all_reduce(x, group=group)
            dist.destroy_process_group(group)
        out.append(x)
    dist.barrier()
    for k in range(2):
        dist.destroy_process_group()
        out.append(dist.is_initialized())
        # In the launcher's store PyTorch finds what the group before has left there, and may wait for it.
        dist.init_process_group("gloo", f"file://{FOLDER}/again{k}", rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60))
        x = torch.full((2,), float(rank + k))
        dist.all_reduce(x)
        out += [x, dist.get_rank(), dist.get_world_size()]
    model = DDP(network())
    return out + steps(model, rank)


@program
def nested(rank, size):
    """Groups within groups: orders of ranks, roots by either number, networks in each."""
    rows = [dist.new_group([r]) for r in range(size)]
    turned = dist.new_group(list(reversed(range(size))))
    tail = dist.new_group(list(range(1, size)))
    out = [dist.get_rank(turned), dist.get_process_group_ranks(turned), dist.get_group_rank(turned, 0), dist.get_global_rank(turned, 0),
           dist.get_rank(tail), dist.get_world_size(rows[rank])]
    x = torch.tensor([float(rank)])
    dist.broadcast(x, group_src=0, group=turned)
    y = torch.tensor([float(rank)])
    dist.broadcast(y, src=size - 1, group=turned)
    parts = [torch.zeros(1) for _ in range(size)]
    dist.all_gather(parts, torch.tensor([float(rank)]), group=turned)
    out += [x, y, parts]
    if rank > 0:
        model = DDP(network(), process_group=tail)
        out += steps(model, rank)
        z = torch.ones(1) * rank
        dist.reduce(z, group_dst=0, group=tail)
        out.append(z if rank == 1 else None)
    alone = DDP(network(), process_group=rows[rank])
    return out + steps(alone, rank)


@program
def stages(rank, size):
    """A pipeline by hand: activations forward, gradients back, with batches of messages whose order differs; shapes before tensors."""
    layer = filled(nn.Linear(6, 6))
    before, after = (rank - 1) % size, (rank + 1) % size
    losses = []
    for micro in range(3):
        if rank == 0:
            x = batch(0, micro)
        else:
            shape = torch.zeros(2, dtype=torch.int64)
            dist.recv(shape, before)
            x = torch.empty(shape.tolist())
            dist.recv(x, before)
            x.requires_grad_()
        y = torch.tanh(layer(x))
        if rank < size - 1:
            dist.send(torch.tensor(y.shape), after)
            dist.send(y.detach(), after)
            g = torch.empty_like(y)
            dist.recv(g, after)
            y.backward(g)
        else:
            loss = y.square().mean()
            loss.backward()
            losses.append(loss.detach())
        if rank > 0:
            dist.send(x.grad, before)
    got = [torch.zeros(3 + before), torch.zeros(2, dtype=torch.int32)]
    messages = [dist.P2POp(dist.isend, torch.ones(3 + rank) * rank, after), dist.P2POp(dist.irecv, got[0], before),
                dist.P2POp(dist.isend, torch.full((2,), rank, dtype=torch.int32), before), dist.P2POp(dist.irecv, got[1], after)]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return losses + [p.grad for p in layer.parameters()] + (got if size > 2 else [])


@program
def uneven_exchange(rank, size):
    """Experts: counts first, rows of uneven numbers after them, and the way back, with gradients; nothing for some."""
    from torch.distributed.nn.functional import all_to_all_single
    counts = torch.tensor([(rank + 2 * r) % 3 for r in range(size)])
    theirs = torch.zeros(size, dtype=torch.int64)
    dist.all_to_all_single(theirs, counts)
    send, receive = counts.tolist(), theirs.tolist()
    x = torch.cos(torch.arange(sum(send) * 4.0)).reshape(-1, 4).requires_grad_()
    y = all_to_all_single(torch.zeros(sum(receive), 4), x, receive, send)
    z = (y * (rank + 1)).square()
    back = all_to_all_single(torch.zeros(sum(send), 4), z, send, receive)
    back.sum().backward()
    return [theirs, y, back, x.grad]


@program
def routed(rank, size):
    """_functional_collectives with gradients: gathered, scattered, exchanged; waited for or used at once."""
    import torch.distributed._functional_collectives as funcol
    x = torch.sin(torch.arange(size * 6.0) + rank).reshape(2 * size, 3).requires_grad_()
    gathered = funcol.all_gather_tensor_autograd(x, 0, dist.group.WORLD)
    scattered = funcol.reduce_scatter_tensor_autograd(x * 2, "sum", 0, dist.group.WORLD)
    moved = funcol.all_to_all_single_autograd(x.square(), [2] * size, [2] * size, dist.group.WORLD)
    total = gathered.square().sum() + (scattered ** 3).sum() + moved.sum() * (rank + 1)
    total.backward()
    sums = funcol.all_reduce(x.detach(), "sum", dist.group.WORLD)
    most = funcol.all_reduce(x.detach(), "max", list(range(size)))
    wide = funcol.all_gather_tensor(x.detach(), 1, dist.group.WORLD)
    pieces = funcol.reduce_scatter_tensor(torch.ones(2, size) * rank, "sum", 1, dist.group.WORLD)
    first = funcol.broadcast(x.detach(), 0, dist.group.WORLD)
    return [gathered, scattered, moved, x.grad, sums + 0, most + 0, wide + 0, pieces + 0, first + 0]


@program
def big_objects(rank, size):
    """Objects of megabytes, nested and with tensors, of different sizes; None and exceptions."""
    mine = {"rank": rank, "bytes": bytes(range(256)) * (4096 * (rank + 1)), "tensor": torch.arange(1000) * rank, "deep": [{"x": (1, None)}]}
    gathered = [None] * size if rank == size - 1 else None
    dist.gather_object(mine, gathered, dst=size - 1)
    every = [None] * size
    dist.all_gather_object(every, ValueError("no") if rank == 0 else None)
    box = [bytes(3 << 20) if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    said = [(len(g["bytes"]), g["tensor"].sum().item(), g["deep"]) for g in gathered] if gathered else None
    return [said, [repr(e) for e in every], len(box[0])]


@program
def seeds(rank, size):
    """Seeds by rank: what ranks draw differs, what they agree on does not; loaders' workers and dropout by rank."""
    torch.manual_seed(100 + rank)
    own = torch.rand(4)
    every = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(every, own)
    shared = torch.tensor([torch.initial_seed() if rank == 0 else 0])
    dist.broadcast(shared, 0)
    torch.manual_seed(int(shared))
    same = torch.rand(4)
    alike = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(alike, same)
    generator = torch.Generator().manual_seed(7 + rank)
    orders = [None] * size
    dist.all_gather_object(orders, torch.randperm(50, generator=generator).tolist())
    state = torch.get_rng_state()
    a = F.dropout(torch.ones(20), 0.5)
    torch.set_rng_state(state)
    return [torch.equal(every[0], every[1]), all(torch.equal(alike[0], a) for a in alike), orders[0] == orders[1], sorted(orders[0]),
            torch.equal(a, F.dropout(torch.ones(20), 0.5)), int(shared)]


@program
def shares(rank, size):
    """DistributedSampler with drop_last, shuffled, through a loader with workers; a shorter last part; a resumed epoch."""
    from torch.utils.data import DataLoader, TensorDataset
    from torch.utils.data.distributed import DistributedSampler
    data = TensorDataset(torch.arange(29))
    out = []
    for drop in (False, True):
        s = DistributedSampler(data, shuffle=True, seed=5, drop_last=drop)
        loader = DataLoader(data, batch_size=3, sampler=s, num_workers=1, drop_last=drop, persistent_workers=True)
        for epoch in range(2):
            s.set_epoch(epoch)
            seen = torch.cat([x for x, in loader])
            every = [None] * size
            dist.all_gather_object(every, seen.tolist())
            together = [x for e in every for x in e]
            out += [len(s), len(loader), len(seen), len(set(together)) == len(together), len(set(together))]
    return out


@program
def logs(rank, size):
    """Logging by rank 0, levels by rank, messages that name ranks; debug levels."""
    logger = logging.getLogger(f"rank{rank}")
    logger.setLevel(logging.INFO if rank == 0 else logging.WARNING)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logger.addHandler(handler)
    logger.info("loss %.3f", 0.5)
    logger.warning("rank %d of %d", dist.get_rank(), dist.get_world_size())
    out = [lines, str(dist.get_debug_level()), dist.get_debug_level() == dist.DebugLevel.OFF]
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    out += [str(dist.get_debug_level()), int(dist.get_debug_level())]
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "INFO"
    dist.set_debug_level_from_env()
    out.append(dist.get_debug_level().name)
    dist.set_debug_level(dist.DebugLevel.OFF)
    return out


@program
def tensor_and_data(rank, size):
    """Tensor parallel layers trained with clipping and a checkpoint, whose state is a plain network's."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    m = dist.init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
    net = parallelize_module(filled(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))), m, {"0": ColwiseParallel(),
                                                                                                       "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    out = []
    for step in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(batch(0, step)), torch.arange(8) % 3)
        loss.backward()
        out += whole([torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)])
        optimizer.step()
        out.append(loss.detach())
    path = os.path.join(FOLDER, "tp")
    dcp.save(net.state_dict(), checkpoint_id=path)
    plain = filled(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
    state = plain.state_dict()
    dcp.load(state, checkpoint_id=path)
    plain.load_state_dict(state)
    full = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    return out + list(plain.parameters()) + list(full.values()) + [sorted(full)]


@program
def divided(rank, size):
    """A mesh of the world divided into dimensions, parts of it and parts of parts; backends of dimensions; coalesced calls."""
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
    world = init_device_mesh("cpu", (size,), mesh_dim_names=("world",))
    m = world._unflatten(0, (1, size, 1), ("pp", "dp", "tp"))
    finer = m["pp", "dp"]._unflatten(1, (size, 1), ("outer", "inner"))
    both = DeviceMesh._concatenate([m["dp"], m["tp"]])
    other = init_device_mesh("cpu", (size, 1), mesh_dim_names=("a", "b"), backend_override={"a": "gloo", 1: "gloo"})
    out = []
    for mesh, name in ((m, "dp"), (m["dp", "tp"], "dp"), (finer, "outer"), (both, "dp"), (both, "tp"), (other, "a")):
        x = torch.ones(2) * (rank + 1)
        dist.all_reduce(x, group=mesh.get_group(name))
        out += [x, mesh.mesh.tolist(), str(mesh.mesh_dim_names), mesh.get_local_rank(name), mesh[name].size()]
    out.append(dist.get_backend(other.get_group("a")))
    a, b = torch.ones(2) * rank, torch.ones(3) + rank
    dist.all_reduce_coalesced([a, b])
    future = dist.all_reduce_coalesced([a, b], op=dist.ReduceOp.MAX, async_op=True)
    future.wait()
    ops = [dist.supports_complex(op) for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.BAND, dist.ReduceOp.PRODUCT)]
    return out + [a, b, ops]


@program
def localsgd(rank, size):
    """Averages of parameters every second step, a broadcast of buffers, gradients reduced by hand in one flat tensor."""
    net = filled(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        optimizer.zero_grad()
        net(batch(rank, step)).square().mean().backward()
        if step % 2:
            flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
            works = [dist.all_reduce(chunk, async_op=True) for chunk in flat.chunk(3)]
            for work in works:
                work.wait()
            flat /= size
            for p, g in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
                p.grad.copy_(g.view_as(p))
        optimizer.step()
        if step % 2 == 0:
            with torch.no_grad():
                vector = torch.nn.utils.parameters_to_vector(net.parameters())
                dist.all_reduce(vector)
                torch.nn.utils.vector_to_parameters(vector / size, net.parameters())
    for b in net.buffers():
        dist.broadcast(b, src=size - 1)
    future = dist.all_reduce(torch.ones(3) * rank, async_op=True).get_future()
    return list(net.parameters()) + list(net.buffers()) + [future.wait()[0], future.then(lambda f: f.value()[0] * 2).wait()]


@program
def hierarchy(rank, size):
    """Averages of parameters among few ranks often and among all of them now and then, and gradients that stay each rank's own."""
    from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
    from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
    net, out = filled(nn.Linear(6, 3)), []
    net = DDP(net)
    net.register_comm_hook(None, noop_hook)
    averager = HierarchicalModelAverager({2: 1, 3: size}, warmup_steps=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(8):
        optimizer.zero_grad()
        net(batch(rank, step)).square().mean().backward()
        optimizer.step()
        averager.average_parameters(optimizer.param_groups if step % 2 else net.parameters())
        out += [p.detach().clone() for p in net.parameters()]
    for options in ({}, {"period_group_size_dict": {2: size + 1}}, {"period_group_size_dict": {0: size}}):
        try:
            HierarchicalModelAverager(**options)
        except ValueError:
            out.append("refused")
    return out


@program
def looking_in(rank, size):
    """CommDebugMode: which collectives redistribution, tensor parallelism, DDP and plain calls make, by modules."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, DTensor, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    m = init_device_mesh("cpu", (size,))
    counts = lambda mode: sorted((str(k), n) for k, n in mode.get_comm_counts().items() if n)  # noqa: E731
    x = distribute_tensor(batch(0, 1, 6, 6), m, [Shard(0)]).requires_grad_()
    out, mode = [], CommDebugMode()
    with mode:
        whole = x.redistribute(m, [Replicate()])
    out.append(counts(mode))
    with mode:
        (whole * 2).to_local(grad_placements=[Partial()]).sum().backward()
    out += [mode.get_total_counts(), x.grad]
    terms = DTensor.from_local(batch(rank, 2, 6, 6), m, [Partial()])
    for places in ([Replicate()], [Shard(0)], [Shard(1)]):
        with mode:
            moved = terms.redistribute(m, places)
        out += [counts(mode), moved.full_tensor()]
    with mode:
        made = DTensor.from_local(batch(rank, 3, 2, 6), m, [Replicate()], run_check=False)
    out += [mode.get_total_counts(), made.shape]
    net = nn.Sequential(nn.Linear(6, 6 * size), nn.ReLU(), nn.Linear(6 * size, 6))
    parallelize_module(filled(net), m, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    inputs = batch(0, 4).requires_grad_()
    with mode:
        net(inputs).sum().backward()
    forward = mode.comm_module_counts["Sequential.2"]["forward"]
    out += [counts(mode), sorted((str(k), n) for k, n in forward.items()), sorted((k, str(v)) for k, v in mode.get_sharding_info().items()),
            inputs.grad]
    text = mode.generate_comm_debug_tracing_table(noise_level=0)
    out += [[line for line in text.splitlines() if "Sequential" in line], sorted(mode.get_parameter_info())]
    path = os.path.join(FOLDER, f"log{rank}")
    mode.log_comm_debug_tracing_table_to_file(path, noise_level=1)
    out.append("c10d_functional.all_reduce: 1" in open(path).read())
    net = DDP(network())
    loss = net(batch(rank, 0)).square().mean()
    with mode:
        y = torch.ones(2)
        dist.all_reduce(y)
        dist.all_gather_into_tensor(torch.zeros(2 * size), y)
        dist.broadcast(y, 0)
    return out + [counts(mode), float(loss)]


@program
def spread_functions(rank, size):
    """Functions of DTensors with where their results lie: views, writes, joins, hooks, local_map, copies by torch.save."""
    import io
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor, DTensor, init_device_mesh
    from torch.distributed.tensor.experimental import local_map
    m = init_device_mesh("cpu", (size,))
    x = distribute_tensor(batch(0, 1, 6, 6), m, [Shard(1)])
    out = []
    for f in (lambda t: t.t(), lambda t: t.unsqueeze(0), lambda t: t.permute(1, 0), lambda t: t[1:3], lambda t: t[0],
              lambda t: t[None, ..., 1:2],
              lambda t: t.select(0, 1), lambda t: t.reshape(2, 3, 6), lambda t: t.view(6, 6, 1),
              lambda t: t.expand(2, 6, 6), lambda t: t.squeeze(), lambda t: torch.cat([t, t * 2]), lambda t: torch.stack([t, t], 1),
              lambda t: t.cumsum(0), lambda t: t.sort(0)[0], lambda t: t.topk(2, 0)[0], lambda t: t.split(2)[1], lambda t: t.chunk(2)[0],
              lambda t: t.unbind(0)[3], lambda t: torch.softmax(t, 0), lambda t: t.argmax(0), lambda t: t.sum(0),
              lambda t: t.new_zeros(6, 6),
              lambda t: torch.full_like(t, 3), lambda t: t.clone().mul_(2).add_(t), lambda t: t.clone().relu_(),
              lambda t: t.clone().fill_(4), lambda t: torch.add(t, t, out=t.clone()), lambda t: t.var(0), lambda t: t.all(0)):
        y = f(x)
        out += [y.placements if not isinstance(y.placements[0], Partial) else "partial", y.full_tensor()]
    out += [x.stride(), x.T.stride(), x.t().is_contiguous()]
    leaf = distribute_tensor(batch(0, 2, 6, 6), m, [Shard(0)]).requires_grad_()
    seen = []
    y = leaf * 3
    y.retain_grad()
    y.register_hook(lambda g: seen.append(str(g.placements)))
    y.square().sum().backward()
    out += [seen, y.grad, str(y.grad.placements), leaf.grad, y.is_leaf, leaf.is_leaf]
    double = local_map(lambda a, k, b: (a * k + b, k), out_placements=([Shard(0)], None), in_placements=([Shard(0)], None, [Shard(0)]),
                       redistribute_inputs=True)
    made, k = double(leaf, 2, x)
    made.sum().backward()
    out += [made, str(made.placements), k, leaf.grad]
    summed = local_map(lambda a: a.sum(0, keepdim=True), out_placements=[Partial()], in_placements=([Shard(0)],))(leaf)
    out += [summed.full_tensor(), str(summed.placements)]
    for wrong in (lambda: local_map(lambda a: a, [Shard(0)], ([Shard(0)],))(x), lambda: x.redistribute(m, [Partial()])):
        try:
            wrong()
            out.append("no error")
        except (ValueError, RuntimeError) as e:
            out.append(type(e).__name__)
    for one in (x, leaf):
        file = io.BytesIO()
        torch.save({"x": one}, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)["x"]
        out += [again, str(again.placements), again.requires_grad, type(again).__name__, again.device_mesh == m]
    copied = copy.deepcopy(leaf)
    out += [copied, copied.grad, copied.requires_grad]
    given = batch(rank, 3, 6, 6).requires_grad_()
    parts = DTensor.from_local(given, m, [Shard(0)])
    out += [parts.is_leaf, parts.shape, parts.stride(), DTensor.from_local(given, m, (Shard(0),), shape=(6 * size, 6), stride=(6, 1)).shape]
    low = parts.redistribute(m, [Replicate()], forward_dtype=torch.bfloat16, backward_dtype=torch.float32)
    low.float().sum().backward()
    return out + [low.dtype, ("bf16", low.full_tensor().float().detach()), given.grad, given.grad.dtype]


@program
def sharded_columns(rank, size):
    """fully_shard with shard_placement_fn."""
    from torch.distributed.tensor import Shard
    net = filled(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3)))
    sharded(net, shard_placement_fn=lambda p: Shard(1) if p.ndim > 1 else None)
    out = steps(net, rank)
    return whole(out) + [str(p.placements) for p in net.parameters()] + [tuple(p.to_local().shape) for p in net.parameters()]


@program
def terms(rank, size):
    """DTensors that are terms: what is linear keeps them, products add them up, item() is of a process' own."""
    from torch.distributed.tensor import DTensor, Partial, Shard, distribute_tensor, init_device_mesh
    m = init_device_mesh("cpu", (size,))
    out = []
    for op in ("sum", "avg"):
        a = DTensor.from_local(batch(rank, 1, 6, 6), m, [Partial(op)])
        results = [-a, a * 2, 3 * a, a / 2, a + a, a - a * 3, a.T]
        out += [*results, [str(x.placements) for x in results], a + 1, 1 / (a.abs() + 2), a * a]
    x = distribute_tensor(batch(0, 0, 6, 6), m, [Shard(0)]).requires_grad_()
    out += [x @ a, a @ x.T, F.linear(x, a), a.T @ x]
    mean = x.square().mean()
    mean.backward()
    return out + [mean, str(mean.placements), mean.item(), x.grad]


@program
def sparse_tables(rank, size):
    """Tables with sparse gradients, and their optimizers; sums of sparse tensors."""
    class Tabled(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.bag = nn.Embedding(9, 4, sparse=True), nn.EmbeddingBag(9, 4, sparse=True, mode="sum")
            self.head = nn.Linear(4, 3)

        def forward(self, x):
            return self.head(self.table(x).sum(1) + self.bag(x))

    net = DDP(filled(Tabled()))
    tables = [net.module.table.weight, net.module.bag.weight]
    optimizers = [torch.optim.SparseAdam(tables, lr=0.1), torch.optim.SGD(net.parameters(), lr=0.1)]
    out = []
    for step in range(3):
        net.zero_grad()
        if step == 2:
            with net.no_sync():
                net(torch.tensor([[rank, 7]])).sum().backward()
        net(torch.tensor([[rank, 2, 2], [3, rank + 4, step]])).square().mean().backward()
        for t in tables:
            out += [t.grad.is_sparse, t.grad.coalesce().indices(), t.grad.to_dense()]
        for optimizer in optimizers:
            optimizer.step()
    x = torch.sparse_coo_tensor(torch.tensor([[rank, 2, 2]]), torch.tensor([1.0, rank + 1.0, 1.0]), (4,))
    dist.all_reduce(x, async_op=True).wait()
    y = torch.sparse_coo_tensor(torch.zeros(2, rank, dtype=torch.int64), torch.ones(rank, 3), (4, 2, 3))
    dist.all_reduce(y)
    return out + [p.detach() for p in net.parameters()] + [x.coalesce().indices(), x.to_dense(), y.to_dense()]


@program
def put_together(rank, size):
    """Dimensions of a mesh that are put together, beside others and in another order; what groups say of themselves."""
    from torch.distributed.tensor.parallel import ColwiseParallel, SequenceParallel
    m = dist.init_device_mesh("cpu", (1, size, 1), mesh_dim_names=("replicas", "shards", "tp"))
    flat = m["replicas", "shards"]._flatten("both")
    both = m["both", "tp"]
    x = torch.ones(2) * (rank + 1)
    dist.all_reduce(x, group=both.get_group("both"))
    turned = m["tp", "shards"]
    out = [x, both.shape, both.mesh_dim_names, both["both"].size(), m["both"].mesh.equal(flat.mesh), both.get_local_rank("both"),
           turned.shape, turned.mesh_dim_names, turned.get_local_rank("shards"), m["shards"]._get_root_mesh() == m,
           m["shards"]._flatten("shards").size()]
    group = dist.new_group(list(range(size)), group_desc="all")
    op = dist.P2POp(dist.isend, x, group=group, group_peer=(rank + 1) % size)
    return out + [group.group_desc, dist.new_group(list(range(size))).group_desc, dist.group.WORLD.group_desc, op.peer,
                  repr(ColwiseParallel()), repr(SequenceParallel())]


@program
def reduced_by_hand(rank, size):
    """Hooks of sharded networks get what was reduced, and may change it; without replicas set_requires_all_reduce() changes nothing."""
    net, seen = sharded(), []

    def hook(gradients):
        seen.append(gradients.ndim)
        gradients.mul_(0.5)
        dist.all_reduce(gradients, op=dist.ReduceOp.MAX)
    for layer in net[::2]:
        layer.set_all_reduce_hook(hook)
    net.set_requires_all_reduce(False)
    out = whole(steps(net, rank))
    replicas = sharded(mesh=dist.init_device_mesh("cpu", (size, 1), mesh_dim_names=("replicate", "shard")))
    replicas[2].set_all_reduce_hook(lambda gradients: gradients.neg_())
    return out + whole(steps(replicas, rank)) + [seen]


if __name__ == "__main__":
    rank_programs.main()
