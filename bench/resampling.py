"""Search in sorted sequences and resampling of pictures: Arete beside PyTorch.

    python bench/resampling.py [--device cuda]

One line for each case: microseconds of both, the best of five rounds of many calls, and how many times as fast Arete is.
"""

import argparse
import time

import numpy as np
import torch

import arete


def microseconds(call, synchronize, calls):
    for _ in range(3):
        call()
    best = float("inf")
    for _ in range(5):
        synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        synchronize()
        best = min(best, (time.perf_counter() - begin) / calls)
    return 1e6 * best


def resampling(library, picture, dtype, last, options):
    """The calls of one case forward and backward."""
    functional = library.nn.functional
    x = picture.to(getattr(library, dtype))
    if last:
        x = x.contiguous(memory_format=library.channels_last)
    leaf = x.clone().requires_grad_()
    y = functional.interpolate(leaf, **options)
    ones = library.ones_like(y)
    return (
        lambda: functional.interpolate(x, **options),
        lambda: library.autograd.grad(y, leaf, ones, retain_graph=True),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    on_gpu = device.startswith("cuda")
    libraries = (arete, torch)
    synchronize = [(library.cuda.synchronize if on_gpu else lambda: None) for library in libraries]
    rng = np.random.default_rng(0)

    def row(name, calls, count):
        mine, peer = (microseconds(call, wait, count) for call, wait in zip(calls, synchronize))
        print(f"{name:<48} {mine:10.1f} {peer:10.1f} us {peer / mine:6.2f}x", flush=True)

    cases = {
        "bilinear x2": {"scale_factor": 2, "mode": "bilinear"},
        "nearest x2": {"scale_factor": 2, "mode": "nearest"},
        "bicubic x2": {"scale_factor": 2, "mode": "bicubic"},
        "bilinear 56 to 24, antialias": {"size": (24, 24), "mode": "bilinear", "antialias": True},
    }
    picture = rng.standard_normal((32 if on_gpu else 8, 64, 56, 56)).astype("float32")
    pictures = [library.tensor(picture).to(device) for library in libraries]
    for dtype in ("float32", "bfloat16") if on_gpu else ("float32",):
        for last in (False, True):
            for name, options in cases.items():
                both = [resampling(library, p, dtype, last, options) for library, p in zip(libraries, pictures)]
                label = f"{name}, {dtype}{', channels last' if last else ''}"
                row(label, [b[0] for b in both], 50 if on_gpu else 3)
                row(label + ", backward", [b[1] for b in both], 20 if on_gpu else 3)
    for n, m in ((1_000, 1_000), (10_000, 1_000_000), (1_000_000, 10_000_000)):
        arrays = np.sort(rng.standard_normal(n).astype("float32")), rng.standard_normal(m).astype("float32")
        both = [[library.tensor(a).to(device) for a in arrays] for library in libraries]
        calls = [lambda library=library, t=t: library.searchsorted(*t) for library, t in zip(libraries, both)]
        row(f"searchsorted, {m} in {n}", calls, 20 if on_gpu else 2)


if __name__ == "__main__":
    main()
