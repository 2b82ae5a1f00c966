"""Sharded training by Arete or PyTorch: `sharding_peer_program.py arete|torch RANK RANKS FOLDER`. What a rank got goes, as JSON, to
FOLDER/LIBRARY.RANK."""
import functools
import importlib
import json
import sys

name, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
torch, dist, fsdp, states, tensor, parallel = (importlib.import_module(name + part) for part in (
    "", ".distributed", ".distributed.fsdp", ".distributed.checkpoint.state_dict", ".distributed.tensor", ".distributed.tensor.parallel"))
wrap = importlib.import_module(name + ".distributed.fsdp.wrap")
nn = torch.nn
out = []


def note(what, *values):
    values = [v.full_tensor() if hasattr(v, "full_tensor") else v for v in values]
    out.append([what, [v.detach().float().reshape(-1).tolist() if isinstance(v, torch.Tensor) else str(v) for v in values]])


def filled(net):
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float32) * 1.3 + k).reshape(p.shape))
    return net


def network(width=7):
    return filled(nn.Sequential(nn.Linear(5, width), nn.GELU(), nn.Linear(width, width), nn.Linear(width, 3, bias=False)))


def batch(step):
    return torch.cos(torch.arange(40, dtype=torch.float32) + 7 * rank + step).reshape(8, 5)


def train(what, net, steps=3, micro=1, sync=None):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        for k in range(micro):
            if sync:
                sync(k == micro - 1)
            loss = net(batch(micro * step + k)).float().square().mean()
            loss.backward()
        note(f"{what} loss {step}", loss, nn.utils.clip_grad_norm_(net.parameters(), 0.1))
        optimizer.step()
    return optimizer


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/{name}.store", rank=rank, world_size=size)
    mesh = dist.init_device_mesh("cpu", (size,))
    net = network()
    for m in (net[0], net[2]):
        fsdp.fully_shard(m, mesh=mesh)
    fsdp.fully_shard(net, mesh=mesh)
    note("classes", type(net).__name__, type(net[0]).__name__, isinstance(net, fsdp.FSDPModule))
    for key, p in net.named_parameters():
        note(key, tuple(p.shape), p.numel(), tuple(p.to_local().shape), p.placements, isinstance(p, tensor.DTensor),
             isinstance(p, nn.Parameter))
    optimizer = train("fully_shard", net)
    for key, p in net.named_parameters():
        note(key, p, p.grad, p.grad.placements)
    model, optim = states.get_state_dict(net, optimizer)
    note("states", list(model), type(model["0.weight"]).__name__, list(optim), list(optim["state"]), list(optim["state"]["0.weight"]),
         optim["param_groups"][0]["params"], tuple(optim["state"]["0.weight"]["exp_avg"].shape), optim["state"]["2.bias"]["exp_avg_sq"])
    whole = states.get_model_state_dict(net, options=states.StateDictOptions(full_state_dict=True, cpu_offload=True))
    note("whole states", list(whole))
    for k, options in enumerate(({}, {"mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)})):
        net = fsdp.fully_shard(network(), mesh=mesh, **options)
        train(f"micro-batches {k}", net, 2, 3, net.set_requires_gradient_sync)
    # The older words.
    policy = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=40)
    net = fsdp.FullyShardedDataParallel(network(), auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    net(batch(0)).square().mean().backward()
    note("norm", net.clip_grad_norm_(0.1))
    optimizer.step()
    state = net.state_dict()
    note("older words", list(state), *state.values())
    # Tensors and layers.
    t = tensor.distribute_tensor(torch.arange(10.0).reshape(5, 2), mesh, [tensor.Shard(0)])
    note("tensor", t.to_local(), t, t.placements, tuple(t.shape), t.redistribute(placements=[tensor.Shard(1)]).to_local())
    net = network(8)  # PyTorch wants equal parts
    parallel.parallelize_module(net, mesh, {"0": parallel.ColwiseParallel(output_layouts=tensor.Replicate()),
                                            "2": parallel.ColwiseParallel(), "3": parallel.RowwiseParallel()})
    train("layers", net)
    note("layers", *(tuple(p.to_local().shape) for p in net.parameters()), net(torch.ones(2, 5)))
    with open(f"{folder}/{name}.{rank}", "w") as file:
        json.dump(out, file)
    dist.destroy_process_group()


main()
