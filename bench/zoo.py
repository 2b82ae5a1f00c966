#!/usr/bin/env python3
"""Thirty common architectures (zoo_models/) beside PyTorch eager: the same code, weights and data under both libraries.

    python bench/zoo.py [--scale small|full] [--device cpu|cuda] [--only REGEX] [--precision f32,autocast,ieee]
                        [--check-only] [--json FILE] [--threads N]

Each model is trained one step (loss, gradients, clipping, optimizer) and run once in eval mode. One line for each of
both modes at each precision: milliseconds of Arete and PyTorch and the speed as a multiple of PyTorch's; the peak of
allocated memory as a multiple of PyTorch's (GPUs only); how far the losses (in eval mode the outputs) are apart; and
the worst error of a loss, gradient or output as a share of what is allowed. Errors are distances from PyTorch in
float64; allowed is a small multiple of PyTorch's own error and of the precision's eps. Dropout is off where numbers are
compared and on where time is measured. f32 is float32 by the libraries' defaults, with convolutions in tf32 on GPUs, and
ieee the same without tf32. The exit status is 1 where something raises or an error exceeds the allowed."""
from __future__ import annotations

import argparse
import contextlib
import gc
import json
import re
import statistics
import sys
import time
import traceback
from types import SimpleNamespace

import arete
import numpy as np
import torch
from zoo_models import MODELS

SLACK = 4  # an error may be this multiple of PyTorch's
EPS = {"f32": 2.0**-23, "autocast": 2.0**-7, "ieee": 2.0**-23}  # float32's and bfloat16's
MODES = ("eval", "train")
ROUNDS, ROUND = 5, 0.03  # how often times are taken, and seconds that one takes at least


@contextlib.contextmanager
def without_dropout(net):
    """Turns off all modules that drop something: those named so, and recurrent and attention layers."""
    saved = []
    for m in net.modules():
        name = "p" if "Drop" in type(m).__name__ else "dropout"
        if isinstance(getattr(m, name, None), float):
            saved.append((m, name, getattr(m, name)))
            setattr(m, name, 0.0)
    try:
        yield
    finally:
        for m, name, rate in saved:
            setattr(m, name, rate)


class Subject:
    """A model of the zoo in one library. `start` gives it weights, data and optimizers at a precision."""

    def __init__(self, lib, make, options):
        lib.manual_seed(0)
        self.lib, self.device = lib, options.device
        self.task = make(lib, options.scale == "full", np.random.default_rng(0))
        self.net = self.task.net.to(self.device)

    def weights(self):
        """Arrays by name, with the means and variances that batch norm finds in the data."""
        norms = [m for m in self.net.modules() if hasattr(m, "running_mean")]
        for m in norms:
            m.momentum = None
        self.prepare(self.lib.float32)
        with self.lib.no_grad(), without_dropout(self.net):
            for loss_of in self.task.losses.values():
                loss_of(self.net, self.data)
        for m in norms:
            m.momentum = 0.1
        return {name: x.cpu().numpy().copy() for name, x in self.net.state_dict().items()}

    def prepare(self, dtype):
        """Converts the network and the data."""
        self.net.to(dtype)
        self.data = SimpleNamespace()
        for name, array in self.task.data.items():
            x = self.lib.from_numpy(array).to(self.device)
            setattr(self.data, name, x.to(dtype) if x.is_floating_point() else x)

    def start(self, precision, weights):
        self.half = precision == "autocast"
        self.lib.backends.cudnn.allow_tf32 = precision != "ieee"
        self.prepare(self.lib.float64 if precision == "f64" else self.lib.float32)
        self.net.load_state_dict({name: self.lib.from_numpy(array) for name, array in weights.items()})
        self.parts = []
        for part, loss_of in self.task.losses.items():
            named = self.net.get_submodule(part).named_parameters(prefix=part)
            parameters = {name: p for name, p in named if p.requires_grad}
            self.parts.append((loss_of, parameters, self.task.optimizer(list(parameters.values()))))
        self.net.zero_grad()

    def run(self, function):
        with self.lib.autocast(self.device, dtype=self.lib.bfloat16, enabled=self.half):
            return function(self.net, self.data)

    def step(self, look=None):
        """A training step; `look` sees each loss and its parameters before their gradients are clipped."""
        for loss_of, parameters, optimizer in self.parts:
            optimizer.zero_grad()
            loss = self.run(loss_of)
            loss.backward()
            if look:
                look(loss, parameters)
            self.lib.nn.utils.clip_grad_norm_(list(parameters.values()), 1.0)
            optimizer.step()

    def predict(self):
        with self.lib.no_grad():
            return self.run(self.task.predict)

    def action(self, mode):
        self.net.train(mode == "train")
        return self.step if mode == "train" else self.predict

    def values(self, mode):
        """What is compared, as groups of PyTorch's tensors by name: losses and gradients, or outputs."""
        with without_dropout(self.net):
            action = self.action(mode)
            if mode == "eval":
                outputs = action()
                outputs = outputs if isinstance(outputs, tuple) else (outputs,)
                return [{f"output {i}": self.exchanged(y) for i, y in enumerate(outputs)}]
            losses, gradients = {}, {}

            def look(loss, parameters):
                losses[f"loss {len(losses)}"] = self.exchanged(loss)
                gradients.update((n, self.exchanged(p.grad)) for n, p in parameters.items() if p.grad is not None)

            action(look)
            return [losses, gradients]

    def exchanged(self, x):
        x = x.detach()
        x = x if x.dtype == self.lib.float64 else x.float()
        return (x if self.lib is torch else torch.from_numpy(x.cpu().numpy())).to(self.device, copy=True)

    def seconds(self, action, count=1):
        """Of one of `count` calls in a row."""
        start = time.perf_counter()
        for _ in range(count):
            action()
        if self.device == "cuda":
            self.lib.cuda.synchronize()
        return (time.perf_counter() - start) / count

    def peak(self):
        """Bytes of a GPU's memory, since the last call."""
        if self.device == "cpu":
            return 0
        most = self.lib.cuda.max_memory_allocated()
        self.lib.cuda.reset_peak_memory_stats()
        return most


def excess(exact, theirs, ours, eps):
    """The largest error in a group, as a multiple of what is allowed, and its name. Allowed is a multiple of PyTorch's
    error in the same tensor, of its error in the whole group and of eps, in proportion to the tensor, and of eps for a
    tensor of the group's magnitude: gradients may vanish but for rounding."""
    if exact.keys() != ours.keys():
        return float("inf"), f"missing: {', '.join(sorted(exact.keys() ^ ours.keys()))}"
    norm = lambda x: x.double().norm().item()
    size = {name: norm(x) for name, x in exact.items()}
    error = {name: norm(theirs[name] - x) for name, x in exact.items()}
    total = statistics.fmean(s * s for s in size.values()) ** 0.5
    share = statistics.fmean(e * e for e in error.values()) ** 0.5 / max(total, 1e-300)
    mean = statistics.fmean(x.numel() for x in exact.values())
    worst, where = 0.0, ""
    for name, x in exact.items():
        found = norm(ours[name] - x)
        allowed = SLACK * (error[name] + (share + eps) * size[name] + eps * total * (x.numel() / mean) ** 0.5)
        if not found <= worst * allowed:
            worst, where = found / allowed if found < float("inf") and allowed else float("inf"), name
    return worst, where


def distance(theirs, ours):
    """Of two groups, in proportion to their size."""
    gap = sum((ours[n].double() - x.double()).square().sum().item() for n, x in theirs.items() if n in ours)
    return (gap / max(sum(x.double().square().sum().item() for x in theirs.values()), 1e-300)) ** 0.5


def told(error):
    """An exception in one line, with the place in the zoo where it came from."""
    places = [f for f in traceback.extract_tb(error.__traceback__) if "/bench/zoo" in f.filename]
    place = f" ({places[-1].filename.rpartition('/')[2]}:{places[-1].lineno})" if places else ""
    return traceback.format_exception_only(error)[-1].strip() + place


def release(device):
    gc.collect()
    if device == "cuda":
        arete.cuda.empty_cache()
        torch.cuda.empty_cache()


class Comparison:
    """The rows of one model. What raises is told in its row."""

    def __init__(self, name, options):
        self.options = options
        keys = [(mode, precision) for precision in options.precision.split(",") for mode in MODES]
        self.rows = {key: {"model": name, "mode": key[0], "precision": key[1], "errors": []} for key in keys}
        self.subjects, self.weights = {}, {}
        for lib in (torch, arete):
            with self.guard(lib, self.rows.values()):
                self.subjects[lib] = Subject(lib, MODELS[name], options)
                if lib is torch:
                    self.weights = self.subjects[lib].weights()

    @contextlib.contextmanager
    def guard(self, lib, rows):
        try:
            yield
        except Exception as error:  # whatever a library raises is a result
            for row in rows:
                row["errors"].append(f"{lib.__name__} raises {told(error)}")

    def values(self, lib, mode, precision):
        self.subjects[lib].start(precision, self.weights)
        return self.subjects[lib].values(mode)

    def check(self):
        for mode in MODES:
            exact = self.values(torch, mode, "f64")
            for (m, precision), row in self.rows.items():
                found = []
                for lib in (torch, arete) if m == mode else ():
                    with self.guard(lib, [row]):
                        found.append(self.values(lib, mode, precision))
                if len(found) == 2:
                    groups = zip(exact, *found)
                    row["excess"], row["worst"] = max(excess(*group, EPS[precision]) for group in groups)
                    row["difference"] = distance(found[0][0], found[1][0])
            release(self.options.device)

    def measure(self):
        """The best of rounds in which the libraries take turns: what else runs on the machine disturbs both."""
        for (mode, precision), row in self.rows.items():
            turns = []
            for lib, subject in self.subjects.items():
                with self.guard(lib, [row]):
                    subject.start(precision, self.weights)
                    subject.peak()
                    action = subject.action(mode)
                    subject.seconds(action, 2)
                    count = min(max(int(ROUND / subject.seconds(action)), 1), 20)
                    turns.append((lib.__name__, subject, action, count))
            for name, subject, action, count in turns if not row["errors"] else ():
                row[f"{name}_bytes"] = subject.peak()
            for _ in range(ROUNDS if not row["errors"] else 0):
                for name, subject, action, count in turns:
                    ms = subject.seconds(action, count) * 1e3
                    row[f"{name}_ms"] = min(ms, row.get(f"{name}_ms", ms))
            if not row["errors"]:
                row["ratio"] = row["torch_ms"] / row["arete_ms"]
                row["memory"] = row["arete_bytes"] / row["torch_bytes"] if row["torch_bytes"] else None
            release(self.options.device)

    def run(self):
        """The rows, finished."""
        if len(self.subjects) == 2:
            self.check()
            if not self.options.check_only:
                self.measure()
        for row in self.rows.values():
            row["ok"] = not row["errors"] and row["excess"] <= 1
        return list(self.rows.values())


def line(row):
    title = f"{row['model']:13s}{row['mode']:6s}{row['precision']:9s}"
    if row["errors"]:
        return f"{title} {'; '.join(dict.fromkeys(row['errors']))}  FAIL"
    number = lambda key, form: format(row[key], form) if row.get(key) is not None else "-"
    return (
        f"{title}{number('arete_ms', '.3f'):>11s}{number('torch_ms', '.3f'):>11s}{number('ratio', '.2f'):>8s}"
        f"{number('memory', '.2f'):>8s}{row['difference']:12.1e}{row['excess']:10.3f}"
        + ("" if row["ok"] else f"  FAIL {row['worst']}")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=("small", "full"), default="small")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", metavar="REGEX", help="models whose name has a match")
    parser.add_argument("--precision", default="f32,autocast")
    parser.add_argument("--check-only", action="store_true", help="compare numbers, measure no time")
    parser.add_argument("--json", metavar="FILE", help="write the rows")
    parser.add_argument("--threads", type=int, help="of the CPU, in both libraries")
    options = parser.parse_args()
    if not set(options.precision.split(",")) <= EPS.keys():
        parser.error(f"--precision is a list of {', '.join(EPS)}")
    for lib in (torch, arete) if options.threads else ():
        lib.set_num_threads(options.threads)
    print(
        f"{'model':13s}{'mode':6s}{'precision':9s}{'arete ms':>11s}{'torch ms':>11s}{'speed':>8s}{'memory':>8s}"
        f"{'difference':>12s}{'/allowed':>10s}"
    )
    rows = []
    for name in MODELS:
        if re.search(options.only, name):
            found = Comparison(name, options).run()
            rows += found
            print(*map(line, found), sep="\n", flush=True)
            release(options.device)
    ratios = sorted((row["ratio"], row["model"]) for row in rows if row.get("ratio"))
    if ratios:
        slow = sum(ratio < 1 for ratio, _ in ratios)
        print(f"\nspeed: median {statistics.median(r for r, _ in ratios):.2f}, {slow} of {len(ratios)} rows slower")
    failed = [row for row in rows if not row["ok"]]
    print(f"{len(rows) - len(failed)} of {len(rows)} rows agree")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(bool(failed) or not rows)


if __name__ == "__main__":
    main()
