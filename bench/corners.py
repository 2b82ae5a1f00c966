"""Recurrent layers, losses, factors and other calls that were slow once: Arete beside PyTorch, with both libraries' defaults.

    python bench/corners.py [--device cuda] [--only REGEX] [--scale 0.1]

One line for each case: microseconds of PyTorch and of Arete, the best of five rounds, how many times as fast Arete is, and on a GPU the
peak memory of a call beyond what is there before it, in MiB. `--scale` makes the cases smaller.
"""

import argparse
import re

import torch
from resampling import microseconds

import arete


def recurrent(kind, steps, batch, width, layers, dtype="float32", train=True):
    def make(lib, device):
        layer = getattr(lib.nn, kind)(width, width, layers).to(device, getattr(lib, dtype))
        x = lib.randn(steps, batch, width, device=device).to(getattr(lib, dtype))

        def call():
            if train:
                layer.zero_grad()
                layer(x)[0].sum().backward()
            else:
                with lib.no_grad():
                    layer(x)

        return call

    return make


def step(inputs, loss):
    """A call that computes a loss of the first input and its gradient."""

    def make(lib, device):
        leaf, *others = inputs(lib, device)
        leaf.requires_grad_()

        def call():
            leaf.grad = None
            loss(lib, leaf, *others).backward()

        return call

    return make


def forward(inputs, function):
    def make(lib, device):
        given = inputs(lib, device)
        return lambda: function(lib, *given)

    return make


def cases(n):
    """By name; n(size) is the size to take."""

    def ctc(steps, batch, classes, labels):
        def inputs(lib, d):
            scores = lib.randn(steps, batch, classes, device=d).log_softmax(2).detach()
            targets = lib.randint(1, classes, (batch, labels), device=d)
            return scores, targets, lib.full((batch,), steps, dtype=lib.long), lib.full((batch,), labels, dtype=lib.long)

        return step(inputs, lambda lib, *given: lib.nn.functional.ctc_loss(*given))

    def normal(*sizes):
        return lambda lib, d: tuple(lib.randn(*s, device=d) for s in sizes)

    def numbers(count, most):
        return lambda lib, d: (lib.randint(0, most, (count,), device=d),)

    def halves(rows, columns):
        return lambda lib, d: (lib.randn(n(rows), columns, device=d).to(lib.bfloat16),)

    def convolution(x, w, groups):
        call = {4: "conv2d", 5: "conv3d"}[len(x)]
        return forward(normal((n(x[0]), *x[1:]), w), lambda lib, x, w: getattr(lib.nn.functional, call)(x, w, groups=groups))

    def samples(images, channels, side, turned):
        """At random places, or where a turn takes those of the images."""

        def inputs(lib, d):
            grid = lib.rand(n(images), side, side, 2, device=d) * 2 - 1
            if turned:
                turn = lib.tensor([[0.9, -0.2, 0.05], [0.2, 0.9, -0.1]], device=d).expand(n(images), 2, 3)
                grid = lib.nn.functional.affine_grid(turn, (n(images), channels, side, side), align_corners=False)
            return lib.randn(n(images), channels, side, side, device=d), grid

        return forward(inputs, lambda lib, x, grid: lib.nn.functional.grid_sample(x, grid, align_corners=False))

    def over_middle(op, *sizes):
        return forward(normal((n(sizes[0]), *sizes[1:])), lambda lib, x: getattr(lib, op)(x, 1))

    width = n(650)
    return {
        "conv3d 15x45x15x1x45, 3 groups": convolution((15, 45, 15, 1, 45), (15, 15, 3, 1, 9), 3),
        "conv3d 33x99x33x1x99, 3 groups": convolution((33, 99, 33, 1, 99), (33, 33, 3, 1, 9), 3),
        **{f"conv2d 32x{32 * c}x{s}x{s}, 32 groups": convolution((32, 32 * c, s, s), (32 * c, c, 3, 3), 32)
           for c, s in ((4, 56), (8, 56), (16, 28))},
        "grid_sample 37448x6x8x8": samples(37448, 6, 8, False),
        "grid_sample 8x64x128x128": samples(8, 64, 128, False),
        "grid_sample 8x8x256x256": samples(8, 8, 256, False),
        "grid_sample 8x64x128x128, turned": samples(8, 64, 128, True),
        "prod over the middle of 280x280x280": over_middle("prod", 280, 280, 280),
        "mean over the middle of 402x268x268": over_middle("mean", 402, 268, 268),
        "sum over the middle of 420x280x280": over_middle("sum", 420, 280, 280),
        "scatter 2.5, 2972x2229": forward(
            lambda lib, d: (lib.randn(n(2972), 2229, device=d), lib.randint(0, n(2972), (n(1486), 2229), device=d)),
            lambda lib, x, i: x.scatter(0, i, 2.5)),
        "fft.irfft 36750 of 245": forward(lambda lib, d: (lib.randn(n(36750), 123, device=d, dtype=lib.complex64),),
                                          lambda lib, x: lib.fft.irfft(x, n=245)),
        "sort, 16M of 1M": forward(numbers(n(1 << 24), 1 << 20), lambda lib, x: lib.sort(x)[0]),
        **{f"sum of columns, {r}x{c}, bf16": forward(halves(r, c), lambda lib, x: x.sum(0)) for r, c in
           ((32768, 768), (32768, 2304), (32768, 3072), (4096, 3072))},
        **{f"{op} of rows, 65536x1000, bool": forward(lambda lib, d: (lib.randn(n(65536), 1000, device=d) > 9,),
                                                      lambda lib, x, op=op: getattr(lib, op)(x, 1)) for op in ("sum", "any", "all")},
        "cumsum 4096x4096, complex64": forward(lambda lib, d: (lib.randn(n(4096), n(4096), device=d, dtype=lib.complex64),),
                                               lambda lib, x: x.cumsum(1)),
        "logcumsumexp of columns, 4096x4096": forward(normal((n(4096), n(4096))), lambda lib, x: x.logcumsumexp(0)),
        **{f"cross_entropy, {(1 << 25) // c}x{c}, bf16": forward(
            lambda lib, d, c=c: (*halves((1 << 25) // c, c)(lib, d), lib.randint(0, c, (n((1 << 25) // c),), device=d)),
            lambda lib, x, y: lib.nn.functional.cross_entropy(x, y)) for c in (256, 1024)},
        "LSTM step": recurrent("LSTM", n(35), 20, width, 2), "LSTM eval": recurrent("LSTM", n(35), 20, width, 2, train=False),
        "LSTM step, bfloat16": recurrent("LSTM", n(35), 20, width, 2, "bfloat16"),
        "GRU step": recurrent("GRU", n(35), 20, width, 2), "GRU eval": recurrent("GRU", n(35), 20, width, 2, train=False),
        "RNN step": recurrent("RNN", n(35), 20, width, 2), "RNN eval": recurrent("RNN", n(35), 20, width, 2, train=False),
        "ctc_loss 50, 16, 20, 30": ctc(50, 16, 20, 30), "ctc_loss 500, 16, 40, 60": ctc(n(500) + 120, 16, 40, 60),
        "linalg.lu, 128 of 64x64": forward(normal((128, n(64), n(64))), lambda lib, x: lib.linalg.lu(x)),
        "linalg.lu, 2 of 512x512": forward(normal((2, n(512), n(512))), lambda lib, x: lib.linalg.lu(x)),
        "linalg.lu, 64 of 5x7": forward(normal((64, 5, 7)), lambda lib, x: lib.linalg.lu(x)),
        "polygamma(2), 1M": forward(normal((n(1 << 20),)), lambda lib, x: lib.polygamma(2, x)),
        "polygamma(1), 900": forward(normal((900,)), lambda lib, x: lib.polygamma(1, x)),
        "fmod, 4M": forward(normal((n(1 << 22),), (n(1 << 22),)), lambda lib, x, y: lib.fmod(x, y)),
        "multi_margin_loss 4096x8192, step": step(
            lambda lib, d: (lib.randn(n(4096), n(8192), device=d), lib.randint(0, n(8192), (n(4096),), device=d)),
            lambda lib, x, y: lib.nn.functional.multi_margin_loss(x, y)),
        "multilabel_margin_loss 512x2048, step": step(
            lambda lib, d: (lib.randn(n(512), n(2048), device=d), lib.randint(0, n(2048), (n(512), n(2048)), device=d)),
            lambda lib, x, y: lib.nn.functional.multilabel_margin_loss(x, y)),
        "cdist p=1, 1000x64": forward(normal((n(1000), 64)), lambda lib, x: lib.cdist(x, x, p=1.0)),
        "pairwise_distance 20000x64": forward(
            normal((n(20000), 64), (n(20000), 64)), lambda lib, x, y: lib.nn.functional.pairwise_distance(x, y)),
        "unique, 16M": forward(numbers(n(1 << 24), 1000), lambda lib, x: lib.unique(x)),
        "bincount, 1M": forward(numbers(n(1 << 20), 1000), lambda lib, x: lib.bincount(x)),
        "fill_, 1M": forward(normal((n(1 << 20),)), lambda lib, x: x.fill_(2.0)),
        "fft.fft 1024 of 1024": forward(normal((n(1024), n(1024))), lambda lib, x: lib.fft.fft(x.to(lib.complex64))),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="cases that this regular expression matches")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    for name, make in cases(lambda size: max(2, int(size * options.scale))).items():
        if not re.search(options.only, name):
            continue
        times, memory = [], []
        for lib in (torch, arete):
            lib.manual_seed(0)
            call = make(lib, options.device)
            times.append(microseconds(call, lib.cuda.synchronize if on_gpu else lambda: None, 10))
            if on_gpu:
                before = lib.cuda.memory_allocated()
                lib.cuda.reset_peak_memory_stats()
                call()
                memory.append((lib.cuda.max_memory_allocated() - before) / 2**20)
        shown = "".join(f" {m:8.1f}" for m in memory)
        print(f"{name:<40} {times[0]:10.1f} {times[1]:10.1f} us {times[0] / times[1]:6.2f}x{shown}", flush=True)


if __name__ == "__main__":
    main()
