#!/usr/bin/env python3
"""Pipelines on CPU processes: how long schedules take, beside what the simulation says of them.

    python bench/pipeline.py [--ranks 4] [--microbatches 8] [--milliseconds 30] [--schedules GPipe,1F1B,...] [--steps 3] [--links]

The steps of stages are waits, so that processes that share few processors do not disturb each other: what is measured is the order of the
steps. What the simulation is told: how long a step takes beyond its wait, which the host needs in each however short it is (measured by the
same schedule in a process alone, where nobody waits for a message), and how long a small message is on its way. Bubbles are the part of
the time in which processes wait for each other. --links: messages of several sizes between the processes, whose line of latency and
bandwidth is fitted to every other size and predicts the rest."""
from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time

import arete
import arete.distributed as dist
import arete.multiprocessing as mp
from arete import _C, nn
from arete.autograd import Function
from arete.distributed.pipelining import PipelineStage
from arete.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class


class Wait(Function):
    """Takes so long, forwards and backwards."""

    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.backward_time = backward
        time.sleep(forward)
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        time.sleep(ctx.backward_time)
        return g, None, None


class Stage(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.weight, self.seconds = nn.Parameter(arete.eye(4)), seconds

    def forward(self, x):
        # The gradient of the input takes as long as the one of the weight.
        x = x if x.requires_grad else x.clone().requires_grad_()
        return Wait.apply(x, self.seconds, self.seconds) @ Wait.apply(self.weight, 0.0, self.seconds)


def seconds_of_schedule(name, options, group, rank, n):
    """Of a step of the process that has this rank among n."""
    kind, m = get_schedule_class(name), options.microbatches
    several = is_of_several(name)
    stages = options.stages if several else 1
    plan = _C._distributed.pipeline_schedule(name, n, n * stages, m, True)
    mine = [PipelineStage(Stage(options.milliseconds / 1e3 / stages), k, n * stages, "cpu", group=group)
            for k, r in enumerate(plan.rank_of_stage) if r == rank]
    schedule = kind(mine if several else mine[0], m, loss_fn=lambda y, t: (y - t).square().mean())
    first, last = any(s.is_first for s in mine), any(s.is_last for s in mine)
    times = []
    for step in range(options.steps + 1):
        dist.barrier(group)
        start = time.perf_counter()
        schedule.step(*([arete.ones(m, 4)] if first else []), target=arete.zeros(m, 4) if last else None)
        dist.barrier(group)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])  # the first one tells the shapes


def seconds_of_message(size, options, rank):
    x, times = arete.zeros(size, dtype=arete.uint8), []
    for _ in range(options.repeats):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(4):
            dist.send(x, 1) if rank == 0 else dist.recv(x, 0) if rank == 1 else None
            dist.recv(x, 1) if rank == 0 else dist.send(x, 0) if rank == 1 else None
        times.append((time.perf_counter() - start) / 8)
    return min(times)


def work(rank, options, folder, measured, alone, messages):
    arete.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=options.ranks)
    own = [dist.new_group([r]) for r in range(options.ranks)][rank]
    for number, name in enumerate(options.schedules):
        dist.barrier()
        alone[number, rank] = seconds_of_schedule(name, options, own, 0, 1)
        seconds = seconds_of_schedule(name, options, dist.group.WORLD, rank, options.ranks)
        if rank == 0:
            measured[number] = seconds
    for number, size in enumerate(options.sizes):
        seconds = seconds_of_message(size, options, rank)
        if rank == 0:
            messages[number] = seconds
    dist.destroy_process_group()


def is_of_several(name):
    return not issubclass(get_schedule_class(name), PipelineScheduleSingle)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--microbatches", type=int, default=8)
    parser.add_argument("--milliseconds", type=float, default=30, help="of a microbatch in a process, forward")
    parser.add_argument("--stages", type=int, default=2, help="in each process, where a schedule has several")
    parser.add_argument("--schedules", default="GPipe,1F1B,Interleaved1F1B,InterleavedZeroBubble,ZBVZeroBubble")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--links", action="store_true")
    options = parser.parse_args()
    options.schedules = options.schedules.split(",")
    options.sizes = [1 << k for k in range(10, 25 if options.links else 11, 2)]
    measured, alone, messages = (arete.zeros(*sizes, dtype=arete.float64).share_memory_()
                                 for sizes in ((len(options.schedules),), (len(options.schedules), options.ranks), (len(options.sizes),)))
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (options, folder, measured, alone, messages), nprocs=options.ranks, start_method="fork")
    n, m = options.ranks, options.microbatches
    print(f"{n} processes, {m} microbatches, {options.milliseconds:g} ms a step of a process; {os.cpu_count()} processors")
    print(f"a message of 1 kB: {1e6 * messages[0].item():.0f} us")
    print(f"{'schedule':24}{'a step + ms':>12}{'measured ms':>12}{'simulated':>11}{'error':>8}{'bubble':>9}{'simulated':>11}")
    busy = 3 * m * options.milliseconds / 1e3
    for number, name in enumerate(options.schedules):
        own_stages = options.stages if is_of_several(name) else 1
        stages = n * own_stages
        splits = "ZeroBubble" in name
        plan = _C._distributed.pipeline_schedule(name, n, stages, m, True)
        each = [options.milliseconds / 1e3 * n / stages] * stages
        # Nobody waits for what the first stage has backwards: it is all done in the second part.
        steps = (3 if splits else 2) * own_stages * m
        host = [(seconds - busy) / steps for seconds in alone[number].tolist()]  # of each step, beyond its wait
        more = [host[r] for r in plan.rank_of_stage]
        late = more if splits else [0.0] * stages  # a backward step that is whole is one step
        total, _ = _C._distributed.simulate_schedule(
            plan, [a + b for a, b in zip(each, more)], [a + b for a, b in zip([0.0, *each[1:]], more)],
            [a + b for a, b in zip([2 * each[0], *each[1:]], late)], messages[0].item())
        seconds = measured[number].item()
        print(f"{name:24}{1e3 * statistics.mean(host):12.2f}{1e3 * seconds:12.1f}{1e3 * total:11.1f}{100 * (seconds / total - 1):7.1f}%"
              f"{100 * (1 - busy / seconds):8.1f}%{100 * (1 - busy / total):10.1f}%")
    if options.links:
        rows = [(float(s), messages[k].item()) for k, s in enumerate(options.sizes)]
        latency, bandwidth = _C._distributed.fit_link(rows[::2])
        print(f"messages: {1e6 * latency:.1f} us, {bandwidth / 1e9:.2f} GB/s")
        for size, seconds in rows[1::2]:
            told = latency + size / bandwidth
            print(f"{int(size):12} bytes{1e6 * seconds:10.1f} us, told {1e6 * told:10.1f}, error {100 * (told / seconds - 1):6.1f}%")
    return 0


if __name__ == "__main__":
    sys.exit(main())
