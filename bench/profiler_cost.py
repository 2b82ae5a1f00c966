#!/usr/bin/env python3
"""What a profiler costs the steps it records: the same program under both libraries.

    python bench/profiler_cost.py [--lib arete|torch] [--device cuda|cpu] [--models mlp,resnet18,resnet50,gpt2] [--rounds N] [--json FILE]

For each model: the plain training step, the step within a recording (default options; shapes, memory and FLOPs; the CPU alone), and
the plain step again after recordings, each as the time until the device is done, many steps without waiting, and as the time until the
host has given one step to an idle device. What grows by as much in both costs the host, what grows in the first alone the device.
Then what writing one event down costs.

Windows of each kind take turns, and ratios are those of medians, so that neither drift nor a single slow window passes for a cost. Each
model runs in a process of its own: no recording comes before its first windows. Starting and ending a recording is not measured."""
from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import multiprocessing
import statistics
import time

from models import gpt2_step, image_step, mlp_step, prepare

SMALL = {"words": 512, "layers": 2, "width": 64, "heads": 4, "context": 64}
WORK = {  # (a name for --models, what is printed, the maker of the step)
    "cuda": [
        ("mlp", "784-256-10, batch 64", mlp_step),
        ("resnet18", "ResNet-18, batch 64", functools.partial(image_step, depth=18, batch=64, size=224, dtype="float16")),
        ("resnet18", "ResNet-18, batch 256", functools.partial(image_step, depth=18, batch=256, size=224, dtype="float16")),
        ("resnet50", "ResNet-50, batch 64", functools.partial(image_step, depth=50, batch=64, size=224, dtype="float16")),
        ("gpt2", "GPT-2 124M, 8 x 1024 tokens", functools.partial(gpt2_step, batch=8, length=1024)),
    ],
    "cpu": [
        ("mlp", "784-256-10, batch 64", mlp_step),
        ("resnet18", "ResNet-18, batch 4 of 32 x 32", functools.partial(image_step, depth=18, batch=4, size=32, dtype="float32")),
        ("gpt2", "GPT of 2 layers, 2 x 64 tokens", functools.partial(gpt2_step, batch=2, length=64, dtype="float32", **SMALL)),
    ],
}


def kinds(lib):
    """What a step may be recorded with, by name."""
    return {"default": {},
            "shapes+memory+flops": {"record_shapes": True, "profile_memory": True, "with_flops": True},
            "CPU only": {"activities": [lib.profiler.ProfilerActivity.CPU]}}


class Steps:
    """A step, and how many of them make a window."""

    def __init__(self, lib, device, step, seconds):
        self.wait = lib.cuda.synchronize if device == "cuda" else lambda: None
        self.step, self.count, self.profile = step, 1, lib.profiler.profile
        for _ in range(5):  # plans, compiled kernels, memory
            step()
        while self.count < 500 and (once := self.until_done()) * self.count < seconds:
            self.count = min(500, max(2 * self.count, int(seconds / once)))

    def until_done(self):
        """Seconds a step until the device is done, many without waiting."""
        self.wait()
        start = time.perf_counter()
        for _ in range(self.count):
            self.step()
        self.wait()
        return (time.perf_counter() - start) / self.count

    def until_enqueued(self):
        """Seconds until the host has given a step to a device that has nothing to do."""
        times = []
        for _ in range(min(5, self.count)):
            self.wait()
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        self.wait()
        return statistics.median(times)

    def window(self, options=None):
        """Both, within a recording with `options`; None: without one."""
        gc.collect()
        if options is None:
            return self.until_done(), self.until_enqueued()
        with self.profile(**options):
            self.step()  # what a recording does once
            return self.until_done(), self.until_enqueued()


def summary(before, plain, recorded):
    """Milliseconds by medians, and ratios to the plain windows that took turns with the recorded ones; of those, to the windows
    before any recording (a profiler at rest: 1.0 if it costs nothing)."""

    def middle(windows):
        done, enqueued = (1e3 * statistics.median(w[i] for w in windows) for i in (0, 1))
        return {"done_ms": done, "enqueued_ms": enqueued}

    rows = {"before": middle(before), "plain": middle(plain), **{name: middle(windows) for name, windows in recorded.items()}}
    for name, row in rows.items():
        base = rows["before" if name == "plain" else "plain"]
        row["ratio"] = row["done_ms"] / base["done_ms"]
        row["enqueued_ratio"] = row["enqueued_ms"] / base["enqueued_ms"]
    rows["before"]["ratio"] = rows["before"]["enqueued_ratio"] = 1.0
    return rows


def measure(name, device, number, rounds, seconds):
    """The figures of one model under one library."""
    lib = importlib.import_module(name)
    prepare(lib, device)
    steps = Steps(lib, device, WORK[device][number][2](lib, device), seconds)
    before = [steps.window() for _ in range(rounds)]
    recorded, plain = {kind: [] for kind in kinds(lib)}, []
    for _ in range(rounds):
        for kind, options in kinds(lib).items():
            recorded[kind].append(steps.window(options))
            plain.append(steps.window())
    return {"steps": steps.count, **summary(before, plain, recorded)}


def event_cost(name, rounds, count=5000):
    """Microseconds for an empty range within a recording, and outside of one."""
    lib = importlib.import_module(name)
    record, activities = lib.profiler.record_function, [lib.profiler.ProfilerActivity.CPU]

    def ranges():
        start = time.perf_counter()
        for _ in range(count):
            with record("range"):
                pass
        return 1e6 * (time.perf_counter() - start) / count

    ranges()
    inside, outside = [], []
    for _ in range(rounds):
        outside.append(ranges())
        with lib.profiler.profile(activities=activities):
            inside.append(ranges())
    inside, outside = statistics.median(inside), statistics.median(outside)
    return {"inside_us": inside, "outside_us": outside, "event_us": inside - outside}


def alone(function, *arguments):
    """What the function gives in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def show(name, title, rows):
    print(f"{name}, {title}: {rows['steps']} steps a window", flush=True)
    print(f"  {'':22s} {'until done':>13s} {'ratio':>6s}   {'until enqueued':>14s} {'ratio':>6s}")
    texts = {"before": "before any recording", "plain": "plain, after some"}
    for key, row in rows.items():
        if key != "steps":
            print(f"  {texts.get(key, key):22s} {row['done_ms']:10.3f} ms {row['ratio']:6.2f}   {row['enqueued_ms']:11.3f} ms "
                  f"{row['enqueued_ratio']:6.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="arete", help="arete, torch or both with a comma")
    parser.add_argument("--device", default="cuda", choices=sorted(WORK))
    parser.add_argument("--models", help="mlp,resnet18,resnet50,gpt2 or some of them; on a CPU, where they are small, there is no resnet50")
    parser.add_argument("--rounds", type=int, default=7, help="windows of each kind")
    parser.add_argument("--seconds", type=float, help="that a window takes, about (0.1 on a GPU, 0.05 on a CPU)")
    parser.add_argument("--json")
    options = parser.parse_args()
    known = {model for model, _, _ in WORK[options.device]}
    wanted = options.models.split(",") if options.models else known
    if not known.issuperset(wanted):
        parser.error(f"--models: there are {', '.join(sorted(known))}")
    seconds = options.seconds or (0.1 if options.device == "cuda" else 0.05)
    results = {}
    for name in options.lib.split(","):
        rows = results[name] = {}
        for number, (model, title, _) in enumerate(WORK[options.device]):
            if model in wanted:
                rows[title] = alone(measure, name, options.device, number, options.rounds, seconds)
                show(name, title, rows[title])
        rows["event"] = alone(event_cost, name, options.rounds)
        print(f"{name}: an empty range takes {rows['event']['inside_us']:.2f} us in a recording, {rows['event']['outside_us']:.2f} us "
              f"outside of one: {rows['event']['event_us']:.2f} us for writing it down", flush=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(results, f, indent=1)


if __name__ == "__main__":
    main()
