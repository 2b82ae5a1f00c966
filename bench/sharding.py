#!/usr/bin/env python3
"""What sharded training gives, under either library: tokens a second of all processes, and the most memory that one has needed.

    arete run --standalone --nproc-per-node 2 bench/sharding.py --library arete --model llama124m [--mode ddp|fsdp|zero2]
    torchrun --standalone --nproc-per-node 2 bench/sharding.py --library torch --model llama7b ...

The networks are Llama's: RMSNorm, rotary positions, SwiGLU, no biases. They compute in bfloat16; parameters, gradients and AdamW's state
are in --parameters' dtype, and gradients are summed in --reduce's. Parameters are made on `meta`, and each process makes its own rows.

`--compile` compiles the whole step with Arete, the network with PyTorch, which cannot do more.

`--trace FILE` records three more steps on rank 0, writes their trace, and prints where their time goes: how long the GPU computes,
exchanges, does both and does nothing, and how long the host takes to give a step's work away."""
from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import time

SIZES = {  # width, layers, heads, inner width, words, whether the last layer has the embedding's weight
    "llama124m": (768, 12, 12, 2048, 50304, True),
    "llama7b": (4096, 32, 32, 11008, 32000, False),
    "tiny": (64, 2, 4, 128, 512, True),
}
WORK = {"llama124m": (16, 1024), "llama7b": (2, 2048), "tiny": (2, 64)}  # sequences of a step, and their length


def network(lib, width, layers, heads, inner, words, tied, recompute):
    nn, F = lib.nn, lib.nn.functional
    checkpoint = importlib.import_module(lib.__name__ + ".utils.checkpoint").checkpoint

    def turned(x, cos, sin):
        a, b = x.chunk(2, -1)
        return lib.cat((a * cos - b * sin, b * cos + a * sin), -1)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
            self.down = nn.Linear(inner, width, bias=False)

        def run(self, x, cos, sin):
            n, length, _ = x.shape
            q, k, v = (t.reshape(n, length, heads, width // heads).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
            y = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

        def forward(self, x, cos, sin):
            return checkpoint(self.run, x, cos, sin, use_reentrant=False) if recompute else self.run(x, cos, sin)

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.blocks = nn.Embedding(words, width), nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, words, bias=False)
            if tied:
                self.head.weight = self.embed.weight

        def forward(self, tokens, targets):
            x = self.embed(tokens)
            half = width // heads // 2
            rates = 10000.0 ** (-lib.arange(half, device=x.device, dtype=lib.float32) / half)
            angles = lib.arange(tokens.shape[1], device=x.device, dtype=lib.float32)[:, None] * rates
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            for block in self.blocks:
                x = block(x, cos, sin)
            return F.cross_entropy(self.head(self.norm(x)).reshape(-1, words).float(), targets.reshape(-1))

    return Llama


def union(spans):
    """Stretches of time, each a pair, put together where they touch."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([begin, end])
    return joined


def total(spans):
    return sum(end - begin for begin, end in union(spans))


def where_time_goes(path, steps):
    """What the GPU did in a trace file of either library, in milliseconds a step."""
    with open(path) as file:
        events = json.load(file)
    events = events["traceEvents"] if isinstance(events, dict) else events
    work = [e for e in events if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    if not work:
        return "  the trace has no work of a GPU"
    span = {id(e): (e["ts"], e["ts"] + e["dur"]) for e in work}
    exchanges = [e for e in work if "nccl" in e["name"].lower()]
    of = {"exchange": [span[id(e)] for e in exchanges], "compute": [span[id(e)] for e in work if "nccl" not in e["name"].lower()]}
    whole = max(e for _, e in span.values()) - min(b for b, _ in span.values())
    busy, compute, exchange = total(span.values()), total(of["compute"]), total(of["exchange"])
    both = compute + exchange - busy
    scale, hidden = 1e-3 / steps, 100 * both / max(exchange, 1e-9)
    lines = [f"  of {whole * scale:.2f} ms a step the GPU computes {compute * scale:.2f}, exchanges {exchange * scale:.2f} (of it "
             f"{both * scale:.2f} behind computing: {hidden:.0f} %), does nothing for {(whole - busy) * scale:.2f}"]
    for name in sorted({e["name"].split("(")[0] for e in exchanges}):
        mine = [span[id(e)] for e in exchanges if e["name"].split("(")[0] == name]
        streams = sorted({str(e["args"]["stream"]) for e in exchanges if e["name"].split("(")[0] == name})
        alone = total(mine + of["compute"]) - compute
        lines.append(f"  {name}: {len(mine) / steps:.0f} a step, {total(mine) * scale:.2f} ms, alone {alone * scale:.2f}; "
                     f"streams {', '.join(streams)}")
    joined = union(span.values())
    gaps = sorted(((b[0] - a[1], a[1]) for a, b in zip(joined, joined[1:])), reverse=True)[:5]
    start = joined[0][0]
    lines.append("  longest times of nothing: " + ", ".join(f"{gap * 1e-3:.2f} ms at {(at - start) * 1e-3:.1f}" for gap, at in gaps))
    times = {}
    for e in work:
        times[e["name"]] = times.get(e["name"], 0) + e["dur"]
    for name, time_of in sorted(times.items(), key=lambda item: -item[1])[:12]:
        lines.append(f"  {time_of * scale:8.3f} ms  {name[:110]}")
    return "\n".join(lines)


def gatherings_of(lib):
    """How often Arete's allocator has put pieces of memory together, or waited for some, so far."""
    return next((line.split()[-1] for line in lib.cuda.memory_summary().splitlines() if "gatherings" in line), "?")


def trace(lib, options, step, wait, rank, cuda):
    """Three more steps: all ranks make them, the first one records."""
    steps, profiler = 3, importlib.import_module(options.lib + ".profiler")
    kinds = [profiler.ProfilerActivity.CPU] + [profiler.ProfilerActivity.CUDA] * cuda
    hosts = []
    for _ in range(5):  # without a recording: how long the host alone takes for a step
        wait()
        start = time.perf_counter()
        step()
        hosts.append(time.perf_counter() - start)
    wait()
    before, gatherings = (lib.cuda.memory_stats(), gatherings_of(lib)) if cuda else ({}, "")
    if rank == 0:
        with profiler.profile(activities=kinds) as recorded:
            for _ in range(steps):
                step()
            wait()
        recorded.export_chrome_trace(options.trace)
        after = lib.cuda.memory_stats() if cuda else {}
        print(f"where the time goes, rank 0, {steps} steps recorded; the host gives a step away in {1e3 * statistics.median(hosts):.2f} ms")
        print(where_time_goes(options.trace, steps))
        changed = {k: after[k] - before.get(k, 0) for k in after if k.startswith(("num_", "segment.all")) and after[k] != before.get(k, 0)}
        print(f"  the allocator's counters that changed: {changed or 'none'}")
        if cuda and options.lib == "arete":
            print(f"  gatherings of cached memory (each takes the host's time): {gatherings} before, {gatherings_of(lib)} after")
        if hasattr(recorded, "synchronizations"):
            waits = {}
            for s in recorded.synchronizations():
                key = (s.what, s.operator or "", s.source or "")
                count, waited = waits.get(key, (0, 0.0))
                waits[key] = (count + 1, waited + s.host_time)
            for key, (count, waited) in sorted(waits.items(), key=lambda item: -item[1][1])[:8]:
                name = " ".join(filter(None, key))
                print(f"  the host in {name}: {count / steps:.1f} times a step, {waited * 1e-3 / steps:.3f} ms", flush=True)
    else:
        for _ in range(steps):
            step()
        wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", dest="lib", default="arete", choices=["arete", "torch"])
    parser.add_argument("--model", default="llama124m", choices=sorted(SIZES))
    parser.add_argument("--mode", default="fsdp", choices=["fsdp", "zero2", "ddp"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--parameters", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--reduce", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--recompute", action="store_true", help="blocks are computed again in the backward pass")
    parser.add_argument("--offload", action="store_true", help="shards and optimizer states in host memory")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--trace", metavar="FILE", help="prints where the time of three more steps goes, and writes their trace")
    options = parser.parse_args()
    lib = importlib.import_module(options.lib)
    dist = importlib.import_module(options.lib + ".distributed")
    fsdp = importlib.import_module(options.lib + ".distributed.fsdp")
    local, cuda = int(os.environ.get("LOCAL_RANK", 0)), options.device == "cuda"
    if cuda:
        lib.cuda.set_device(local)
    else:
        lib.set_num_threads(1)
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = lib.device("cuda", local) if cuda else lib.device("cpu")
    batch, length = options.batch or WORK[options.model][0], options.length or WORK[options.model][1]
    width, layers, heads, inner, words, tied = SIZES[options.model]
    dtype = getattr(lib, options.parameters)

    with lib.device("meta"):
        net = network(lib, width, layers, heads, inner, words, tied, options.recompute)().to(dtype)
    count = sum(p.numel() for p in net.parameters())
    if options.mode != "ddp":
        settings = {"mesh": dist.init_device_mesh(options.device, (size,)),
                    "mp_policy": fsdp.MixedPrecisionPolicy(param_dtype=lib.bfloat16, reduce_dtype=getattr(lib, options.reduce)),
                    "reshard_after_forward": options.mode == "fsdp"}
        if options.offload:
            settings["offload_policy"] = fsdp.CPUOffloadPolicy()
        for block in net.blocks:
            fsdp.fully_shard(block, **settings)
        fsdp.fully_shard(net, **{**settings, "reshard_after_forward": False})
    net.to_empty(device="cpu" if options.offload else device)
    lib.manual_seed(rank)
    with lib.no_grad():
        for p in net.parameters():
            p = p.to_local() if hasattr(p, "to_local") else p
            if p.dim() == 1:
                p.fill_(1.0)
            else:
                p.normal_(0.0, 0.02)
    if options.mode == "ddp":
        net = lib.nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True)
    if options.compile and options.lib == "torch":
        net = lib.compile(net)
    more = {"fused": True} if options.lib == "torch" and cuda and not options.offload else {}
    optimizer = lib.optim.AdamW(net.parameters(), lr=1e-4, weight_decay=0.1, **more)
    tokens = lib.randint(words, (batch, length + 1), device=device)

    def step():
        if options.mode == "ddp":
            with lib.autocast(options.device, dtype=lib.bfloat16):
                loss = net(tokens[:, :-1], tokens[:, 1:])
        else:
            loss = net(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    if options.compile and options.lib == "arete":
        step = lib.compile(step)

    def wait():
        if cuda:
            lib.cuda.synchronize()

    for _ in range(8 if options.compile else 3):
        loss = step()
    wait()
    if cuda:
        lib.cuda.reset_peak_memory_stats()
    rates = []
    for _ in range(options.rounds):
        dist.barrier()
        wait()
        start = time.perf_counter()
        for _ in range(options.steps):
            loss = step()
        wait()
        rates.append(size * batch * length * options.steps / (time.perf_counter() - start))
    used = "memory is not measured on CPUs"
    if cuda:
        allocated, reserved = lib.cuda.max_memory_allocated() / 2**30, lib.cuda.max_memory_reserved() / 2**30
        used = f"{allocated:.2f} GiB allocated, {reserved:.2f} GiB reserved at most"
    if rank == 0:
        print(f"{options.lib} {options.model} ({count / 1e6:.0f}M) {options.mode}{', compiled' * options.compile}, {size} processes, "
              f"batch {batch} x {length}, parameters {options.parameters}: {statistics.median(rates):,.0f} tokens/s "
              f"(of {len(rates)} rounds {min(rates):,.0f} to {max(rates):,.0f}), {used}, loss {float(loss.detach()):.3f}", flush=True)
    if options.trace:
        trace(lib, options, step, wait, rank, cuda)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
