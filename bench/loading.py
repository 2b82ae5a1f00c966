#!/usr/bin/env python3
"""Training from picture files beside the same loop on batches that lie on the device.

    python bench/loading.py [--lib arete,torch] [--device cuda] [--pictures N] [--batch N] [--size N] [--workers N] [--steps N]

Writes JPEG pictures of (size + 8) x (size + 8) into ten class folders of a temporary folder, then trains ResNet-18 (channels_last, f16
autocast and GradScaler on a GPU, fused SGD) on resident batches and on those of an ImageFolder with random crops and flips through a
DataLoader; both give bytes, which the device normalises. Prints pictures a second of both (medians of rounds), their ratio, and who
waited for whom. The speed of a host may change by a quarter within seconds: rounds of both loops take turns, each round from files is
compared with the resident ones before and after it, and the ratio is the median of these. All files have been read once before the
clock starts."""
from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import pathlib
import statistics
import tempfile
import time

from models import resnet

CLASSES = 10


def write_pictures(root, count, side, different=20000):
    """Smooth random pictures: a coarse random one made larger, so that the files are as long as those of photographs. After
    `different` of them come further names of the same files."""
    import arete
    from arete.vision import io

    arete.manual_seed(0)
    for c in range(CLASSES):
        (root / f"class{c}").mkdir(parents=True)

    def path(i):
        return str(root / f"class{i % CLASSES}" / f"{i:06d}.jpg")

    different = min(count, different)
    for first in range(0, different, 500):
        n = min(500, different - first)
        coarse = arete.rand(n, 3, side // 8, side // 8) * 255
        pictures = arete.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic").clamp(0, 255)
        for i, picture in enumerate((pictures + 6 * arete.randn(n, 3, side, side)).clamp(0, 255).to(arete.uint8), first):
            io.write_jpeg(picture, path(i), quality=85)
    for i in range(different, count):
        os.link(path(i % different), path(i))


class Copied:
    """PyTorch's usual loop: the loader's pinned batches, copied without waiting."""

    def __init__(self, loader, device):
        self.loader, self.device = loader, device

    def __iter__(self):
        for x, y in self.loader:
            yield x.to(self.device, non_blocking=True), y.to(self.device, non_blocking=True)


def modules_of(name):
    """The library's modules of datasets and transforms, and a function that puts a loader's batches on a device."""
    if name == "arete":
        from arete.utils.data import DevicePrefetcher
        from arete.vision import datasets, transforms

        return datasets, transforms, DevicePrefetcher
    from torchvision import datasets, transforms

    return datasets, transforms, Copied


class Training:
    def __init__(self, lib, device):
        self.lib, self.device = lib, device
        self.net = resnet(lib, 18).to(device).to(memory_format=lib.channels_last)
        self.optimizer = lib.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)
        self.scaler = lib.amp.GradScaler(device, init_scale=1024.0, enabled=device == "cuda")
        self.mean = lib.tensor([123.7, 116.3, 103.5], device=device).view(1, 3, 1, 1)
        self.std = lib.tensor([58.4, 57.1, 57.4], device=device).view(1, 3, 1, 1)

    def step(self, x, y):
        lib = self.lib
        x = x.to(memory_format=lib.channels_last).float().sub_(self.mean).div_(self.std)
        self.optimizer.zero_grad(set_to_none=True)
        with lib.autocast(self.device, dtype=lib.float16, enabled=self.device == "cuda"):
            loss = lib.nn.functional.cross_entropy(self.net(x), y)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def wait(self):
        if self.device == "cuda":
            self.lib.cuda.synchronize()

    def rate(self, batches, steps):
        """Pictures a second over `steps` steps, after which the device has done its work."""
        pictures = 0
        self.wait()
        start = time.perf_counter()
        for x, y in itertools.islice(batches, steps):
            loss = self.step(x, y)
            pictures += len(y)
        self.wait()
        seconds = time.perf_counter() - start
        assert bool(self.lib.isfinite(loss.float()))
        return pictures / seconds


def forever(batches):
    while True:
        yield from batches


def ratios_of(resident, loaded):
    """Of each loaded round to the mean of the resident ones around it."""
    return [b / ((before + after) / 2) for before, b, after in zip(resident, loaded, resident[1:])]


def measure(name, root, options):
    lib = importlib.import_module(name)
    datasets, transforms, on_device = modules_of(name)
    device = options.device
    if device == "cuda":
        lib.set_float32_matmul_precision("high")
        lib.backends.cudnn.benchmark = True
    lib.manual_seed(0)
    augment = [transforms.RandomCrop(options.size), transforms.RandomHorizontalFlip()]
    if name != "arete":
        augment.append(transforms.PILToTensor())
    data = datasets.ImageFolder(str(root), transforms.Compose(augment))
    loader = lib.utils.data.DataLoader(data, batch_size=options.batch, shuffle=True, drop_last=True, num_workers=options.workers,
                                       pin_memory=device == "cuda", persistent_workers=options.workers > 0)
    fed = on_device(loader, device)
    training = Training(lib, device)
    resident = [(x.to(device), y.to(device)) for x, y in itertools.islice(loader, options.resident)]
    training.rate(forever(resident), 5)  # plans and workspaces
    for _ in loader:  # reads all files once
        pass
    start, count = time.perf_counter(), 0
    for x, _ in loader:
        count += len(x)
    alone = count / (time.perf_counter() - start)
    # Epochs go on from round to round. What was loaded beside the resident steps is used up before the clock starts.
    batches, rates = forever(fed), {"resident": [], "loaded": []}
    rates["resident"].append(training.rate(forever(resident), options.steps))
    for _ in range(options.rounds):
        training.rate(batches, 2 * options.workers + 4)
        rates["loaded"].append(training.rate(batches, options.steps))
        rates["resident"].append(training.rate(forever(resident), options.steps))
    batches.close()
    ratios = ratios_of(**rates)
    a, b, ratio = (statistics.median(values) for values in (rates["resident"], rates["loaded"], ratios))
    row = {"resident": a, "loaded": b, "ratio": ratio, "ratios": ratios, "loader_alone": alone, "workers": options.workers}
    print(f"{name:6s} loader alone {alone:10.0f} img/s   resident {a:10.0f} img/s   from files {b:10.0f} img/s   ratio {ratio:.3f} "
          f"({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
    if name == "arete":
        for x, y in fed:  # a whole epoch, so that the figures are complete
            training.step(x, y)
        training.wait()
        stats = loader.stats()
        row.update(training_waited=fed.consumer_wait, batches_waited=fed.loader_wait, workers_waited=stats.worker_wait)
        print(f"       in an epoch of {len(loader)} batches: training waited {fed.consumer_wait:.3f} s for batches on the device; "
              f"batches on the device waited {fed.loader_wait:.3f} s,\n       the loop {stats.consumer_wait:.3f} s for workers, "
              f"and the {options.workers} workers together {stats.worker_wait:.3f} s for room")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="arete")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pictures", type=int, help="by default as many as Tiny ImageNet has, 100000; 1000 on a CPU")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=max(1, min(10, len(os.sched_getaffinity(0)) - 2)),
                        help="by default 10 or fewer: the training loop and a reserve keep two processors")
    parser.add_argument("--steps", type=int, help="of each loop in a round: by default 100, on a CPU 2")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--resident", type=int, default=16, help="batches that lie on the device")
    parser.add_argument("--json")
    options = parser.parse_args()
    on_cpu = options.device == "cpu"
    options.pictures = (1000 if on_cpu else 100000) if options.pictures is None else options.pictures
    options.steps = (2 if on_cpu else 100) if options.steps is None else options.steps
    if options.pictures < options.batch or options.workers < 0 or min(options.batch, options.steps, options.rounds, options.resident) < 1:
        parser.error("there must be at least one batch of pictures, and one step, round and resident batch, and no less than 0 workers")
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        write_pictures(root, options.pictures, options.size + 8)
        size = sum(p.stat().st_size for p in root.rglob("*.jpg")) / options.pictures
        print(f"{options.pictures} pictures of {options.size + 8} x {options.size + 8}, {size:.0f} bytes each; batches of {options.batch}, "
              f"{options.workers} workers", flush=True)
        rows = {}
        for name in options.lib.split(","):
            try:
                rows[name] = measure(name, root, options)
            except ModuleNotFoundError as error:
                print(f"{name}: not measured, {error}")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
