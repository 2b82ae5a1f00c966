#!/usr/bin/env python3
"""What data-parallel training costs: the same training steps alone and in DistributedDataParallel, under either library.

    arete run --standalone --nproc-per-node 2 bench/data_parallel.py [--device cuda|cpu] [--models mlp,resnet50,gpt2] [--steps N]
    torchrun --standalone --nproc-per-node 2 bench/data_parallel.py --lib torch ...

Rank 0 prints for each model the examples a second of one process, while the others train a network of their own and nothing is
exchanged; then those of all processes that train one network, and how much of the product that is; and the host's time for a step that is
given to an idle device, alone and in DistributedDataParallel. Windows of both kinds take turns, and figures are medians."""
from __future__ import annotations

import argparse
import functools
import importlib
import os
import statistics
import time

from models import gpt2_step, image_step, mlp_step

SMALL = {"words": 512, "layers": 2, "width": 64, "heads": 4, "context": 64}
WORK = {  # name: (examples of a step, the maker of the step)
    "cuda": {
        "mlp": (64, mlp_step),
        "resnet50": (128, functools.partial(image_step, depth=50, batch=128, size=224, dtype="float16")),
        "gpt2": (16, functools.partial(gpt2_step, batch=16, length=1024)),
    },
    "cpu": {
        "mlp": (64, mlp_step),
        "resnet50": (4, functools.partial(image_step, depth=50, batch=4, size=32, dtype="float32")),
        "gpt2": (2, functools.partial(gpt2_step, batch=2, length=64, dtype="float32", **SMALL)),
    },
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="arete", choices=["arete", "torch"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--models", default="mlp,resnet50,gpt2")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bucket-cap-mb", type=float)
    options = parser.parse_args()
    lib = importlib.import_module(options.lib)
    dist = importlib.import_module(options.lib + ".distributed")
    if options.device == "cuda":
        lib.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
        wait = lib.cuda.synchronize
    else:
        lib.set_num_threads(1)

        def wait():
            pass

    dist.init_process_group("nccl" if options.device == "cuda" else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    def window(step):
        wait()
        dist.barrier()
        start = time.perf_counter()
        for _ in range(options.steps):
            step()
        wait()
        return (time.perf_counter() - start) / options.steps

    def host(step):
        times = []
        for _ in range(options.steps):
            wait()
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    for name in options.models.split(","):
        examples, make = WORK[options.device][name]
        wrap = functools.partial(lib.nn.parallel.DistributedDataParallel, bucket_cap_mb=options.bucket_cap_mb)
        steps = {"alone": make(lib, options.device), "parallel": make(lib, options.device, wrap=wrap)}
        for step in steps.values():
            for _ in range(5):
                step()
        found = {kind: ([], []) for kind in steps}
        for _ in range(options.rounds):
            for kind, step in steps.items():
                found[kind][0].append(window(step))
                found[kind][1].append(host(step))
        if rank == 0:
            alone, parallel = (statistics.median(found[kind][0]) for kind in steps)
            of_host = [statistics.median(found[kind][1]) * 1e3 for kind in steps]
            print(f"{options.lib} {name}: {examples / alone:.1f} alone, {size * examples / parallel:.1f} on {size} "
                  f"({100 * alone / parallel:.1f} %); host {of_host[0]:.3f} ms, {of_host[1]:.3f} ms", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
