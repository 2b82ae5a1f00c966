"""Trains a small Transformer on data, tensor and pipeline parallel processes at once:

    arete run --standalone --nproc-per-node 8 examples/hybrid_parallel.py --dp 2 --tp 2 --pp 2

Batches are divided among `dp` lines of processes, which hold shards of each other's parameters; the matrices of a layer among `tp`; the
layers among `pp`, through which microbatches go."""
import argparse
import os

import arete as torch
import arete.distributed as dist
from arete import nn
from arete.distributed.fsdp import fully_shard
from arete.distributed.pipelining import PipelineStage, Schedule1F1B
from arete.distributed.tensor import Replicate
from arete.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
from arete.nn import functional as F

VOCABULARY = 64


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.head_width = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (f(y).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for f in (self.q, self.k, self.v))  # heads of this process
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Stage(nn.Module):
    """Some of the layers; the first stage has the embedding, the last one the head."""

    def __init__(self, number, stages, layers, width, heads):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width) if number == 0 else None
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers // stages))
        self.head = nn.Linear(width, VOCABULARY) if number == stages - 1 else None

    def forward(self, x):
        x = x if self.embed is None else self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


def spread(stage, tp, dp):
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "up")} | {name: RowwiseParallel() for name in ("out", "down")}
    for block in stage.blocks:
        parallelize_module(block, tp, plan)
    if stage.embed is not None:
        parallelize_module(stage.embed, tp, RowwiseParallel(input_layouts=Replicate()))
    if stage.head is not None:  # whose logits nobody gathers
        parallelize_module(stage.head, tp, ColwiseParallel(use_local_output=False))
    for block in stage.blocks:
        fully_shard(block, mesh=dp, reshard_after_forward=False)
    return fully_shard(stage, mesh=dp, reshard_after_forward=False)


def train(args):
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    mesh = dist.init_device_mesh(device.type, (args.dp, args.tp, args.pp), mesh_dim_names=("dp", "tp", "pp"))
    dp, tp, pp = mesh["dp"], mesh["tp"], mesh["pp"]
    torch.manual_seed(pp.get_local_rank())  # each process keeps its part of the same values
    net = Stage(pp.get_local_rank(), args.pp, args.layers, args.width, args.heads).to(device)
    net = spread(net, tp, dp)

    def loss_of(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    stage = PipelineStage(net, pp.get_local_rank(), args.pp, device, group=pp.get_group())
    schedule = Schedule1F1B(stage, n_microbatches=args.microbatches, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    batch, means = args.batch // args.dp, []
    for step in range(args.steps):
        generator = torch.Generator().manual_seed(step)
        start = torch.randint(0, VOCABULARY, (args.batch, 1), generator=generator)
        tokens = (start + 5 * torch.arange(args.length + 1)) % VOCABULARY
        tokens = tokens[dp.get_local_rank() * batch:][:batch].to(device)
        optimizer.zero_grad()
        losses = []
        with loss_parallel():
            schedule.step(*([tokens[:, :-1]] if stage.is_first else []), target=tokens[:, 1:] if stage.is_last else None, losses=losses,
                          return_outputs=False)
        optimizer.step()
        if stage.is_last:
            mean = torch.stack(losses).mean()
            dist.all_reduce(mean, dist.ReduceOp.AVG, dp.get_group())
            means.append(mean.item())
            if dp.get_local_rank() == tp.get_local_rank() == 0:
                print(f"step {step}: loss {means[-1]:.5f}", flush=True)
    return means


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("dp", 2), ("tp", 2), ("pp", 2), ("layers", 4), ("width", 32), ("heads", 4), ("batch", 16), ("microbatches", 4),
                        ("length", 16), ("steps", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    dist.init_process_group()
    train(parser.parse_args())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
