#!/usr/bin/env python3
"""Collectives and data-parallel training beside PyTorch: the same program under both libraries, one process a rank.

    python bench/distributed.py [--lib arete,torch] [--ranks 2] [--device cuda|cpu] [--rows reduce,latency,ready,gpt2,resnet50]
                                [--megabytes 16,256,1024] [--repeats 15] [--compile] [--wrap ddp|fsdp|fsdp-bf16]
                                [--bucket-megabytes 25] [--json FILE] [--trace FILE]

Rows: the bus bandwidth of all_reduce (bytes x 2 (n - 1) / n / time, as NCCL's own tests have it), microseconds of one of 4 bytes as the
device sees it and as the host does (the call alone), seconds until a group has done its first all_reduce, the first and a second
group, and training steps with DistributedDataParallel, with their part of what one rank alone does. With `--wrap fsdp` each rank has a part
of GPT-2's parameters and does a part of the optimizer's work (whole parameters stay from forward to backward), of which the layers gather
what they compute with, or bfloat16 copies of it with fsdp-bf16. `--trace` says where the time of three more steps goes, of one rank alone
and of all, and writes their traces to FILE.LIB.MODEL.alone and FILE.LIB.MODEL.all. Of GPUs the times are medians of
events around each call, the slowest rank's."""
from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def start(options, name, ranks):
    """Runs the ranks of one library; gives the rows of rank 0."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.json")
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--lib", name, "--json", file, "--rank"]
        processes = []
        for rank in range(ranks):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank),
                           "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            processes.append(subprocess.Popen(command, env=environment))
        while any(p.poll() is None for p in processes) and not any(p.poll() for p in processes):
            time.sleep(0.05)
        for p in processes:
            if any(q.poll() for q in processes):
                p.kill()
            p.wait()
        if any(p.returncode for p in processes):
            raise SystemExit(f"{name} failed")
        with open(file) as f:
            return json.load(f)


class Rank:
    def __init__(self, options, name):
        self.began = time.perf_counter()
        self.lib, self.options = importlib.import_module(name), options
        self.dist = importlib.import_module(name + ".distributed")
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.on_gpu = options.device == "cuda"
        if self.on_gpu:
            self.lib.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            self.lib.ones(1, device="cuda").item()
        self.rows = {}

    def put(self, key, value, unit):
        self.rows[key] = {"value": value, "unit": unit}
        if self.rank == 0:
            print(f"{self.lib.__name__:6s} {key:36s} {value:14.3f} {unit}", flush=True)

    def wait(self):
        if self.on_gpu:
            self.lib.cuda.synchronize()

    def slowest(self, value):
        if self.size == 1:
            return value
        x = self.lib.tensor([value], dtype=self.lib.float64, device=self.options.device)
        self.dist.all_reduce(x, op=self.dist.ReduceOp.MAX)
        return x.item()

    def milliseconds(self, f, warmup=5):
        lib = self.lib
        for _ in range(warmup):
            f()
        self.wait()
        times = []
        for _ in range(self.options.repeats):
            if self.on_gpu:
                a, b = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
                a.record()
                f()
                b.record()
                b.synchronize()
                times.append(a.elapsed_time(b))
            else:
                begun = time.perf_counter()
                f()
                times.append((time.perf_counter() - begun) * 1e3)
        return self.slowest(statistics.median(times))

    def ready(self):
        dist, lib = self.dist, self.lib
        begun = time.perf_counter()
        dist.init_process_group("nccl" if self.on_gpu else "gloo")
        x = lib.ones(1, device=self.options.device)
        dist.all_reduce(x)
        self.wait()
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        group = dist.new_group()
        dist.all_reduce(x, group=group)
        self.wait()
        second = time.perf_counter() - begun
        if "ready" in self.options.rows:
            self.put("group_ready", self.slowest(first), "s")
            self.put("second_group_ready", self.slowest(second), "s")

    def reduce(self):
        lib, dist = self.lib, self.dist
        for megabytes in map(float, self.options.megabytes.split(",")):
            n = int(megabytes * 2**20)
            x = lib.ones(n // 2, dtype=lib.bfloat16, device=self.options.device)
            ms = self.milliseconds(lambda: dist.all_reduce(x))
            self.put(f"all_reduce_{megabytes:g}MB", n / ms / 1e6 * 2 * (self.size - 1) / self.size, "GB/s")
            ms = self.milliseconds(lambda: dist.all_reduce(x, async_op=True).wait())
            self.put(f"all_reduce_async_{megabytes:g}MB", n / ms / 1e6 * 2 * (self.size - 1) / self.size, "GB/s")

    def latency(self):
        lib, dist = self.lib, self.dist
        x = lib.ones(1, device=self.options.device)

        def many():
            for _ in range(100):
                dist.all_reduce(x)

        self.put("all_reduce_4B", self.milliseconds(many) * 10, "us")
        for key, f in (("host", lambda: dist.all_reduce(x)), ("host_async", lambda: dist.all_reduce(x, async_op=True).wait())):
            if not self.on_gpu:
                continue
            times = []
            for _ in range(self.options.repeats):
                self.wait()
                begun = time.perf_counter()
                for _ in range(100):
                    f()
                times.append((time.perf_counter() - begun) * 1e4)
            self.wait()
            self.put(f"all_reduce_4B_{key}", self.slowest(statistics.median(times)), "us")

    def shard(self, net):
        fsdp, half = importlib.import_module(self.lib.__name__ + ".distributed.fsdp"), self.lib.bfloat16
        policy = fsdp.MixedPrecisionPolicy(param_dtype=half if self.options.wrap == "fsdp-bf16" else None, reduce_dtype=self.lib.float32)
        for part in (*net.layers, net):
            fsdp.fully_shard(part, mp_policy=policy, reshard_after_forward=False)

    def training(self, model):
        import models

        lib, device = self.lib, self.options.device
        small = not self.on_gpu
        models.prepare(lib, device)

        def rate(parallel):
            def wrap(net):
                if parallel and self.options.wrap.startswith("fsdp") and model == "gpt2":
                    self.shard(net)
                elif parallel:
                    ids = [int(os.environ["LOCAL_RANK"])] if self.on_gpu else None
                    net = lib.nn.parallel.DistributedDataParallel(net, device_ids=ids, gradient_as_bucket_view=True,
                                                                  bucket_cap_mb=self.options.bucket_megabytes)
                return lib.compile(net) if self.options.compile else net

            if model == "gpt2":
                batch, length = (2, 32) if small else (16, 1024)
                sizes = {"words": 64, "layers": 1, "width": 32, "heads": 2, "context": 32, "dtype": "float32"} if small else {}
                step, items, key, unit = models.gpt2_step(lib, device, batch, length, wrap=wrap, **sizes), batch * length, "gpt2", "tok/s"
            else:
                batch = 2 if small else 128
                step = models.image_step(lib, device, 50, batch, 32 if small else 224, "float32" if small else "bfloat16", wrap)
                items, key, unit = batch, "resnet50", "img/s"
            ms = self.milliseconds(step, warmup=2 if small else 8)
            if self.options.trace:
                import sharding

                file = f"{self.options.trace}.{lib.__name__}.{model}.{'all' if parallel else 'alone'}"
                given = argparse.Namespace(lib=lib.__name__, trace=file)
                sharding.trace(lib, given, step, self.wait, self.rank, self.on_gpu)
            return items * (self.size if parallel else 1) / ms * 1e3, key, unit

        alone, key, unit = rate(False)
        every, key, unit = rate(True)
        name = self.options.wrap if model == "gpt2" else "ddp"
        self.put(f"{name}_{key}", every, unit)
        self.put(f"{name}_{key}_of_{self.size}_alone", 100 * every / alone / self.size, "%")

    def run(self):
        self.ready()
        rows = self.options.rows.split(",")
        if "reduce" in rows and self.size > 1:
            self.reduce()
        if "latency" in rows:
            self.latency()
        for model in ("gpt2", "resnet50"):
            if model in rows:
                self.training(model)
        if self.rank == 0:
            with open(self.options.json, "w") as f:
                json.dump(self.rows, f)
        self.dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="arete,torch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", default="ready,reduce,latency,gpt2,resnet50")
    parser.add_argument("--megabytes", default="16,256,1024")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--wrap", default="ddp", choices=["ddp", "fsdp", "fsdp-bf16"])
    parser.add_argument("--bucket-megabytes", type=int, default=25)
    parser.add_argument("--trace", metavar="FILE")
    parser.add_argument("--json")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return Rank(options, options.lib).run()
    rows = {name: start(options, name, options.ranks) for name in options.lib.split(",")}
    libs = list(rows)
    if len(libs) == 2:
        print()
        for key, ours in rows[libs[0]].items():
            theirs = rows[libs[1]][key]
            ratio = ours["value"] / theirs["value"]
            print(f"{key:44s} {libs[0]} / {libs[1]}: {ratio if ours['unit'] not in ('us', 's') else 1 / ratio:.2f}x as fast")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
