"""Sharded training on GPUs, one a process, beside data parallelism:

    arete run --standalone --nproc-per-node 2 python/tests/shard_program.py

Each check prints a line; what is wrong ends the program. GPUs that are none (ARETE_CUDA_PLUGIN) will do."""
import os

import arete
import arete.distributed as dist
from arete import nn
from arete.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from arete.utils.checkpoint import checkpoint

DDP = nn.parallel.DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width, again):
        super().__init__()
        self.norm, self.up, self.down, self.again = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width), again

    def run(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False) if self.again else self.run(x)


class Net(nn.Module):
    def __init__(self, width, layers, again=False):
        super().__init__()
        self.embed = nn.Embedding(101, width)
        self.blocks = nn.ModuleList(Block(width, again) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 101, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def made(width, layers, **options):
    arete.manual_seed(1)
    return Net(width, layers, **options).cuda()


def shard(net, **options):
    for block in net.blocks:
        fully_shard(block, **options)
    return fully_shard(net, **options)


def trained(net, steps, rank, batch=(4, 32), micro=1):
    optimizer = arete.optim.AdamW(net.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        for k in range(micro):
            tokens = ((arete.arange(batch[0] * batch[1] + 1, device="cuda") * 7 + 13 * rank + 5 * step + k) % 101)
            if micro > 1 and isinstance(net, DDP):
                net.require_backward_grad_sync = k == micro - 1
            elif micro > 1:
                net.set_requires_gradient_sync(k == micro - 1)
            logits = net(tokens[:-1].reshape(batch))
            nn.functional.cross_entropy(logits.reshape(-1, 101).float(), tokens[1:]).backward()
        optimizer.step()
    return net


def difference(net, other):
    other = other.module if isinstance(other, DDP) else other
    worst = 0.0
    for (name, a), b in zip(net.named_parameters(), other.parameters()):
        worst = max(worst, float((a.full_tensor().to(b.device) - b.detach()).abs().max()))
    return worst


def main():
    rank = int(os.environ["RANK"])
    arete.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    meeting = os.environ.get("ARETE_TEST_MEETING", "env://")
    dist.init_process_group("nccl", meeting, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
    width, layers, steps = (256, 6, 8) if not os.environ.get("ARETE_CUDA_PLUGIN") else (16, 3, 3)
    arete.use_deterministic_algorithms(True)

    def say(text):
        if rank == 0:
            print(text, flush=True)

    def check(what, is_right, detail=""):
        assert is_right, f"rank {rank}: {what} {detail}"
        say(f"{what}: right {detail}")

    # With two processes sums do not depend on an order: the same bits as data parallelism.
    exact = dist.get_world_size() == 2
    ddp = trained(DDP(made(width, layers)), steps, rank)
    for name, options in (("fully_shard", {}), ("kept between the passes", {"reshard_after_forward": False})):
        worst = difference(trained(shard(made(width, layers), **options), steps, rank), ddp)
        check(name, worst == 0 if exact else worst < 1e-4, f"(difference {worst})")
    worst = difference(trained(shard(made(width, layers, again=True)), steps, rank), ddp)
    check("with checkpoints", worst == 0 if exact else worst < 1e-4, f"(difference {worst})")
    worst = difference(trained(shard(made(width, layers), offload_policy=CPUOffloadPolicy()), steps, rank), ddp)
    # Steps are made by the CPU, whose square roots and divisions may differ in the last bit.
    check("shards in host memory", worst < 2e-4, f"(difference {worst})")
    worst = difference(trained(shard(made(width, layers)), 3, rank, micro=3), trained(DDP(made(width, layers)), 3, rank, micro=3))
    check("micro-batches", worst == 0 if exact else worst < 1e-4, f"(difference {worst})")

    # Gradients that are added in one order: a process that has all micro-batches makes the same bits.
    size = dist.get_world_size()
    if size in (1, 2, 4):
        alone = [dist.new_group([r]) for r in range(size)][rank]
        results = []
        for group, own in ((None, range(rank * 4 // size, (rank + 1) * 4 // size)), (alone, range(4))):
            net = DDP(made(width, layers), process_group=group, deterministic=True, bucket_cap_mb=0.1)
            optimizer = arete.optim.AdamW(net.parameters(), lr=1e-3)
            for step in range(steps):
                optimizer.zero_grad()
                for k in own:
                    net.require_backward_grad_sync = k == own[-1]
                    tokens = (arete.arange(129, device="cuda") * 7 + 13 * k + 5 * step) % 101
                    loss = nn.functional.cross_entropy(net(tokens[:-1].reshape(4, 32)).reshape(-1, 101), tokens[1:])
                    (loss / len(own)).backward()
                optimizer.step()
            results.append([p.detach() for p in net.parameters()])
        check("sums in one order", all(arete.equal(a, b) for a, b in zip(*results)))

    # In bfloat16: the gradients of who computes so by hand.
    net = shard(made(width, layers), mp_policy=MixedPrecisionPolicy(param_dtype=arete.bfloat16, reduce_dtype=arete.float32))
    half = made(width, layers).bfloat16()
    for n in (net, half):
        tokens = (arete.arange(129, device="cuda") * 7 + 13 * rank) % 101
        nn.functional.cross_entropy(n(tokens[:-1].reshape(4, 32)).reshape(-1, 101).float(), tokens[1:]).backward()
    for (name, a), b in zip(net.named_parameters(), half.parameters()):
        want = b.grad.float()
        dist.all_reduce(want)
        got = a.grad.full_tensor() * dist.get_world_size()
        worst = float((got - want).abs().max())
        assert worst <= 1e-6 * max(1.0, float(want.abs().max())), (name, worst)
    check("bfloat16 with sums in float32", True)

    # Memory: gathered parameters are a few groups', and steps need no more than the first ones.
    net = shard(made(width, layers))
    trained(net, 2, rank)
    arete.cuda.synchronize()
    arete.cuda.reset_peak_memory_stats()
    before = arete.cuda.memory_reserved()
    trained(net, 4, rank)
    arete.cuda.synchronize()
    check("steady memory", arete.cuda.memory_reserved() <= before * 1.05 + (8 << 20),
          f"({before >> 20} MiB reserved, {arete.cuda.memory_reserved() >> 20} after four steps)")
    assert not any(m._fsdp_state.group.is_unsharded for m in net.modules() if isinstance(m, FSDPModule))

    # Work of other streams meanwhile, and a long queue: nothing is overtaken.
    side = arete.cuda.Stream()
    net, other = shard(made(width, layers)), DDP(made(width, layers))
    for n in (net, other):
        noise = arete.ones(1 << 16, device="cuda")
        with arete.cuda.stream(side):
            for _ in range(20):
                noise = noise * 1.0001
        trained(n, steps, rank)
    worst = difference(net, other)
    check("beside other streams", worst == 0 if exact else worst < 1e-4, f"(difference {worst})")

    with arete.no_grad():
        total = sum(p.numel() for p in net.parameters())
    check("parameters count whole", total == sum(p.numel() for p in other.parameters()))
    folder = os.environ.get("ARETE_TEST_FOLDER")
    if folder:
        import arete.distributed.checkpoint as dcp

        work = dcp.async_save(net.state_dict(), checkpoint_id=folder)
        trained(net, 1, rank)
        work.result()
        dist.barrier()
        again = shard(made(width, layers))
        dcp.load(again.state_dict(), checkpoint_id=folder)
        worst = difference(again, other)
        check("written while the next step ran", worst == 0 if exact else worst < 1e-4, f"(difference {worst})")
    say("all right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
