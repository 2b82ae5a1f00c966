#!/usr/bin/env python3
"""Whole training steps beside PyTorch in one run: the same model code under both libraries.

    python bench/models.py [--lib arete,torch] [--models mlp,resnet18,resnet50,gpt2] [--device cuda] [--json FILE] [--steps N] [--rates]

Prints examples a second (medians over steps, timed by events on a GPU) and the peak of allocated memory. With --rates, of Arete also the
TFLOP/s and GB/s of each operator within three recorded steps."""
from __future__ import annotations

import argparse
import gc
import importlib
import json
import statistics
import time


def resnet(lib, depth):
    """ResNet-18 or -50 (He et al. 2015, https://arxiv.org/abs/1512.03385), the stride in the 3x3 convolutions."""
    nn = lib.nn

    class Block(nn.Module):
        def __init__(self, inner, width, stride):
            super().__init__()
            out = width * (4 if depth == 50 else 1)
            sizes = [(inner, width, 1), (width, width, 3), (width, out, 1)] if depth == 50 else [(inner, width, 3), (width, width, 3)]
            layers, first = [], True
            for a, b, k in sizes:
                step = stride if k == 3 and first else 1
                first = first and k != 3
                layers += [nn.Conv2d(a, b, k, step, k // 2, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
            self.body = nn.Sequential(*layers[:-1])
            self.relu = nn.ReLU(inplace=True)
            self.shortcut = None
            if stride != 1 or inner != out:
                self.shortcut = nn.Sequential(nn.Conv2d(inner, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x):
            return self.relu(self.body(x) + (x if self.shortcut is None else self.shortcut(x)))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inner = 64
    for i, count in enumerate([3, 4, 6, 3] if depth == 50 else [2, 2, 2, 2]):
        for j in range(count):
            layers.append(Block(inner, 64 << i, 2 if i and not j else 1))
            inner = (64 << i) * (4 if depth == 50 else 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


def gpt2(lib, words=50304, layers=12, width=768, heads=12, context=1024):
    """GPT-2 124M with tied embeddings; gives the loss."""
    nn, F = lib.nn, lib.nn.functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, s, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, -1)
            x = x + self.out(y)
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.tokens.weight
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, x, target):
            h = self.tokens(x) + self.places(lib.arange(x.shape[1], device=x.device))
            for layer in self.layers:
                h = layer(h)
            logits = self.head(self.norm(h))
            return F.cross_entropy(logits.view(-1, words), target.view(-1))

    return GPT()


def mlp_step(lib, device, wrap=lambda net: net):
    """A training step of the 784-256-10 network at batch 64. In all of these `wrap(network)` is what is called."""
    nn, F = lib.nn, lib.nn.functional
    x = lib.randn(64, 784, device=device)
    y = lib.randint(0, 10, (64,), device=device)
    net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = lib.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    called = wrap(net)

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(called(x), y).backward()
        optimizer.step()

    return step


def autocast(lib, device, dtype):
    """Autocast to `dtype`, a name; with "float32" none."""
    half = dtype != "float32"
    return lib.autocast(device, dtype=getattr(lib, dtype) if half else lib.bfloat16, enabled=half)


def image_step(lib, device, depth, batch, size, dtype, wrap=lambda net: net):
    """A training step of a ResNet on pictures, under autocast to `dtype`; gives the loss."""
    F, last = lib.nn.functional, lib.channels_last
    x = lib.randn(batch, 3, size, size, device=device).to(memory_format=last)
    y = lib.randint(0, 1000, (batch,), device=device)
    net = resnet(lib, depth).to(device).to(memory_format=last)
    optimizer = lib.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4, fused=True)
    scaler = lib.amp.GradScaler(device, init_scale=1024.0, enabled=dtype == "float16")
    called = wrap(net)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast(lib, device, dtype):
            loss = F.cross_entropy(called(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step


def gpt2_step(lib, device, batch, length, dtype="bfloat16", words=50304, wrap=lambda net: net, **sizes):
    """A training step of GPT-2 (of other `sizes`, if they are given) under autocast to `dtype`; gives the loss. `wrap(network)` is what is
    called."""
    x, y = (lib.randint(0, min(words, 50257), (batch, length), device=device) for _ in range(2))
    net = gpt2(lib, words, **sizes).to(device)
    called = wrap(net)  # which may change what the parameters are
    optimizer = lib.optim.AdamW(net.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast(lib, device, dtype):
            loss = called(x, y)
        loss.backward()
        lib.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        return loss

    return step


def prepare(lib, device):
    """The switches that a program in a hurry sets, and a fixed seed."""
    if device == "cuda":
        lib.set_float32_matmul_precision("high")
        lib.backends.cudnn.allow_tf32 = True
        lib.backends.cudnn.benchmark = True
    lib.manual_seed(0)


class Bench:
    def __init__(self, lib, device, steps, rates=False):
        self.lib, self.device, self.steps = lib, device, steps
        self.rates = rates and lib.__name__ == "arete"
        self.rows = {}

    def _wait(self):
        if self.device == "cuda":
            self.lib.cuda.synchronize()

    def measure(self, key, unit, amount, step, pipelined=False):
        """amount of `unit` a step; pipelined: many steps without waiting (programs bound by their host's work)."""
        lib = self.lib
        gc.collect()
        if self.device == "cuda":
            lib.cuda.reset_peak_memory_stats()
        for _ in range(5):
            step()
        self._wait()
        times = []
        if self.device == "cuda" and not pipelined:
            for _ in range(self.steps):
                a, b = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
                a.record()
                step()
                b.record()
                b.synchronize()
                times.append(a.elapsed_time(b) / 1e3)
        else:
            for _ in range(5):
                start = time.perf_counter()
                for _ in range(self.steps):
                    step()
                self._wait()
                times.append((time.perf_counter() - start) / self.steps)
        middle = statistics.median(times)
        peak = lib.cuda.max_memory_allocated() / 2**30 if self.device == "cuda" else 0.0
        self.rows[key] = {"rate": amount / middle, "unit": unit, "ms": middle * 1e3, "peak_gib": peak}
        name = lib.__name__
        print(f"{name:6s} {key:32s} {amount / middle:12.1f} {unit:6s} {middle * 1e3:10.3f} ms {peak:8.2f} GiB", flush=True)
        if self.rates:
            with lib.profiler.profile() as p:
                for _ in range(3):
                    step()
                self._wait()
            print(p.rate_table(), flush=True)

    def mlp(self):
        self.measure("mlp_784_256_10_b64", "step/s", 1, mlp_step(self.lib, self.device), pipelined=True)

    def images(self, depth, batch, size, dtype):
        step = image_step(self.lib, self.device, depth, batch, size, dtype)
        self.measure(f"resnet{depth}_{size}_{dtype}_b{batch}", "img/s", batch, step)
        assert bool(self.lib.isfinite(step().float()))

    def gpt2(self, batch, length):
        step = gpt2_step(self.lib, self.device, batch, length)
        self.measure(f"gpt2_124m_bfloat16_b{batch}_s{length}", "tok/s", batch * length, step)
        assert bool(self.lib.isfinite(step().float()))

    def run(self, models):
        if "mlp" in models:
            self.mlp()
        for depth in (18, 50):
            if f"resnet{depth}" in models:
                for batch in (64, 256):
                    self.images(depth, batch, 224, "float16")
        if "gpt2" in models:
            self.gpt2(32, 1024)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", default="arete,torch")
    parser.add_argument("--models", default="mlp,resnet18,resnet50,gpt2")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json")
    parser.add_argument("--rates", action="store_true")
    options = parser.parse_args()
    rows = {}
    for name in options.lib.split(","):
        lib = importlib.import_module(name)
        prepare(lib, options.device)
        bench = Bench(lib, options.device, options.steps, options.rates)
        bench.run(options.models.split(","))
        rows[name] = bench.rows
        if options.device == "cuda":
            lib.cuda.empty_cache()
    libs = list(rows)
    if len(libs) == 2:
        print()
        for key, ours in rows[libs[0]].items():
            theirs = rows[libs[1]].get(key)
            if theirs:
                memory = f", memory {ours['peak_gib'] / theirs['peak_gib']:.2f}x" if theirs["peak_gib"] else ""
                print(f"{key:40s} {libs[0]} / {libs[1]}: {ours['rate'] / theirs['rate']:.2f}x{memory}")
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
