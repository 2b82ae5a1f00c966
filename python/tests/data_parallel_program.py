"""Data-parallel training by several ranks with Arete or PyTorch: `data_parallel_program.py arete|torch RANKS FOLDER`. Each rank writes
what it got, as JSON, to FOLDER/RANK."""
import contextlib
import copy
import importlib
from datetime import timedelta

from distributed_program import main


def network(torch, norm=False):
    """Layers that share a weight, with one that is frozen and values that both libraries have."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(6, 8)
            self.norm = nn.BatchNorm1d(8) if norm else nn.LayerNorm(8)
            self.second = nn.Linear(8, 8, bias=False)
            self.tied = nn.Linear(8, 8)
            self.tied.weight = self.second.weight
            self.last = nn.Linear(8, 3)
            self.last.bias.requires_grad_(False)

        def forward(self, x, double=False):
            y = torch.tanh(self.norm(self.first(x)))
            y = self.tied(torch.tanh(self.second(y)))
            return self.last(y) * (2 if double else 1)

    return filled(torch, Net())


def filled(torch, module):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 1.3 + k).reshape(p.shape) * 0.5)
    return module


def batch(torch, rank, step, n=4, features=6):
    return torch.cos(torch.arange(n * features, dtype=torch.float32) * 0.7 + 5 * rank + step).reshape(n, features)


def gradients(module):
    return [p.grad for p in module.parameters()]


def training(torch, dist, rank, size, note):
    net = network(torch)
    if rank == 1:
        with torch.no_grad():
            net.first.weight.add_(1)  # rank 0's values come over it
    ddp = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.0002)
    note("start", *ddp.parameters())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(4):
        optimizer.zero_grad(set_to_none=step != 2)
        ddp(batch(torch, rank, step), double=step == 1).square().mean().backward()
        note(f"gradients {step}", *gradients(ddp))
        optimizer.step()
    note("end", *ddp.parameters())
    note("keys", list(ddp.state_dict()), ddp.module is net)
    with torch.no_grad():
        note("no grad", ddp(batch(torch, 0, 0)))
    again = copy.deepcopy(ddp)
    for one in (ddp, again):
        one.zero_grad()
        one(batch(torch, rank, 9)).sum().backward()
        note("copies", *gradients(one))
    # Gradients that are kept.
    kept = ddp.module.first.weight.grad
    before = kept.clone()
    ddp.zero_grad()
    ddp(batch(torch, rank, 3)).sum().backward()
    note("kept", bool((kept == before).all()))


def accumulation(torch, dist, rank, size, note):
    ddp = torch.nn.parallel.DistributedDataParallel(network(torch))
    for step in range(2):
        for micro in range(3):
            with ddp.no_sync() if micro < 2 else contextlib.nullcontext():
                ddp(batch(torch, rank, 3 * step + micro)).square().mean().backward()
            note(f"accumulated {step} {micro}", *gradients(ddp))
        ddp.zero_grad()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)


def unused(torch, dist, rank, size, note):
    nn = torch.nn

    class Choice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

        def forward(self, x, which):
            for i in which:
                x = self.layers[i](x)
            return x

    ddp = nn.parallel.DistributedDataParallel(filled(torch, Choice()), find_unused_parameters=True)
    for step, (zero, one) in enumerate([((0, 1, 2), (0, 1, 2)), ((0,), (1, 2)), ((2, 1), (2, 1)), ((1,), (0,))]):
        ddp(batch(torch, rank, step, features=3), zero if rank == 0 else one).square().mean().backward()
        note(f"unused {step}", *gradients(ddp))
        if step != 1:
            ddp.zero_grad()


def hooks(torch, dist, rank, size, note):
    default = importlib.import_module(f"{torch.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")
    nn = torch.nn

    def doubled(state, bucket):
        state.append([bucket.index(), bucket.is_last(), bucket.buffer().numel(), len(bucket.gradients()), len(bucket.parameters())])
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] * (2 / size))

    def local(state, bucket):
        future = getattr(torch, "futures").Future()
        future.set_result(bucket.buffer() * 1)
        return future

    calls = []
    for name, state, hook in [("allreduce", None, default.allreduce_hook), ("fp16", None, default.fp16_compress_hook),
                              ("bf16", dist.group.WORLD, default.bf16_compress_hook), ("doubled", calls, doubled), ("local", None, local),
                              ("wrapped", None, default.fp16_compress_wrapper(default.allreduce_hook))]:
        ddp = nn.parallel.DistributedDataParallel(network(torch))
        ddp.register_comm_hook(state, hook)
        for step in range(2):
            ddp.zero_grad()
            ddp(batch(torch, rank, step)).square().mean().backward()
        note(f"hook {name}", *gradients(ddp))
    note("hook calls", calls)


def buffers(torch, dist, rank, size, note):
    ddp = torch.nn.parallel.DistributedDataParallel(network(torch, norm=True))
    for step in range(3):
        ddp.zero_grad()
        ddp(batch(torch, rank, step)).square().mean().backward()
        note(f"statistics {step}", ddp.module.norm.running_mean, ddp.module.norm.num_batches_tracked)
    ddp.eval()
    with torch.no_grad():
        note("evaluated", ddp(batch(torch, 0, 7)), ddp.module.norm.running_var)


def joining(torch, dist, rank, size, note):
    for by_all in (True, False):
        ddp = torch.nn.parallel.DistributedDataParallel(network(torch, norm=True), bucket_cap_mb=0.0002)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with ddp.join(divide_by_initial_world_size=by_all):
            for step in range(2 + 2 * rank):
                optimizer.zero_grad()
                ddp(batch(torch, rank, step)).square().mean().backward()
                if step < 2 or by_all:
                    note(f"joined {step}", *gradients(ddp))
                optimizer.step()
        note(f"after join {by_all}", *ddp.parameters(), *ddp.buffers())
    try:
        with ddp.join(throw_on_early_termination=True):
            for step in range(1 + rank):
                ddp(batch(torch, rank, step)).sum().backward()
        note("early", "nothing")
    except RuntimeError as error:
        note("early", str(error))


def mistakes(torch, dist, rank, size, note):
    ddp = torch.nn.parallel.DistributedDataParallel

    def fails(name, f):
        try:
            f()
            note(name, "nothing")
        except Exception as error:
            note(name, [c.__name__ for c in (ValueError, TypeError, RuntimeError) if isinstance(error, c)][:1])

    net = torch.nn.Linear(2, 2)
    fails("device_ids", lambda: ddp(net, device_ids=[0]))
    fails("two device_ids", lambda: ddp(net, device_ids=[0, 1]))
    fails("frozen", lambda: ddp(torch.nn.Linear(2, 2).requires_grad_(False)))
    fails("lazy", lambda: ddp(torch.nn.LazyLinear(2)))
    fails("hook", lambda: ddp(net).register_comm_hook(None, 1))


def program(torch, dist, rank, size, folder, note):
    for part in (training, accumulation, unused, hooks, buffers, joining, mistakes):
        dist.init_process_group("gloo", init_method=f"file://{folder}/store_{part.__name__}", rank=rank, world_size=size,
                                timeout=timedelta(seconds=60))
        part(torch, dist, rank, size, note)
        dist.barrier()
        dist.destroy_process_group()
    note("done")


def shown(v):
    return [list(v.shape), v.double().reshape(-1).tolist()] if hasattr(v, "tolist") else v


if __name__ == "__main__":
    main(program, shown)
