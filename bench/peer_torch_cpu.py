#!/usr/bin/env python3
"""PyTorch's side of arete-bench on the CPU: the same rows, the same definitions, the same threads.

Prints one line a row and writes {"torch": version, "rows": {key: [figure, unit]}} to --json FILE.
A figure is the median of the repetitions after two warm-up rounds.
"""

import argparse
import json
import os
import statistics
import sys
import time

WARM_UP = 2
MANY = 1 << 24
FLOAT = 4


def median_seconds(call, repetitions, calls=1):
    times = []
    for i in range(-WARM_UP, repetitions):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        if i >= 0:
            times.append((time.perf_counter() - begin) / calls)
    return statistics.median(times)


class Rows:
    """Functions that prepare a row's data and return its call, by name."""

    def __init__(self):
        self.all = {}

    def add(self, name, unit, amount=0.0, calls=1, repetitions=9):
        def keep(prepare):
            self.all[name] = (unit, amount, calls, repetitions, prepare)
            return prepare

        return keep


def figure(unit, amount, seconds):
    if unit == "us":
        return seconds * 1e6
    if unit == "ms":
        return seconds * 1e3
    if unit in ("GB/s", "GFLOP/s"):
        return amount / seconds / 1e9
    return amount / seconds  # samples per second


def make_rows(torch):
    nn, functional = torch.nn, torch.nn.functional
    rows = Rows()

    @rows.add("overhead_add", "us", calls=1000)
    def _():
        a, b = torch.randn(16), torch.randn(16)
        return lambda: a + b

    @rows.add("overhead_add_", "us", calls=1000)
    def _():
        a, b = torch.randn(16), torch.randn(16)
        return lambda: a.add_(b)

    for size in (512, 2048):

        @rows.add(f"mm_f32_{size}", "GFLOP/s", amount=2.0 * size**3)
        def _(size=size):
            a, b = torch.randn(size, size), torch.randn(size, size)
            return lambda: a @ b

    @rows.add("copy_16M", "GB/s", amount=2 * FLOAT * MANY)
    def _():
        x = torch.randn(MANY)
        out = torch.empty_like(x)
        return lambda: out.copy_(x)

    @rows.add("add_16M", "GB/s", amount=3 * FLOAT * MANY)
    def _():
        x, y = torch.randn(MANY), torch.randn(MANY)
        out = torch.empty_like(x)
        return lambda: torch.add(x, y, out=out)

    @rows.add("exp_16M", "ms")
    def _():
        x = torch.randn(MANY)
        out = torch.empty_like(x)
        return lambda: torch.exp(x, out=out)

    @rows.add("gelu_16M", "ms")
    def _():
        x = torch.randn(MANY)
        return lambda: functional.gelu(x)

    @rows.add("sum_16M", "GB/s", amount=FLOAT * MANY)
    def _():
        x = torch.randn(MANY)
        return lambda: x.sum()

    def chain(p, q):
        return functional.gelu(p * 1.5 + q) * torch.sigmoid(q) - torch.tanh(p)

    @rows.add("chain6_eager_16M", "ms")
    def _():
        p, q = torch.randn(MANY), torch.randn(MANY)
        return lambda: chain(p, q)

    @rows.add("chain6_compile_16M", "ms")
    def _():
        p, q = torch.randn(MANY), torch.randn(MANY)
        compiled = torch.compile(chain)
        return lambda: compiled(p, q)

    @rows.add("softmax_512x32000", "ms")
    def _():
        x = torch.randn(512, 32000)
        return lambda: torch.softmax(x, -1)

    @rows.add("layer_norm_4096x1024", "ms")
    def _():
        x = torch.randn(4096, 1024)
        return lambda: functional.layer_norm(x, (1024,))

    @rows.add("sum_dim0_4096x4096", "ms")
    def _():
        x = torch.randn(MANY)
        return lambda: x.view(4096, 4096).sum(0)

    @rows.add("transpose_4096", "ms")
    def _():
        x = torch.randn(MANY)
        return lambda: x.view(4096, 4096).t().contiguous()

    @rows.add("sort_4M", "ms")
    def _():
        x = torch.randn(MANY)
        return lambda: x[: MANY // 4].sort()

    @rows.add("cumsum_16M", "ms")
    def _():
        x = torch.randn(MANY)
        return lambda: x.cumsum(0)

    def training_step(net, inputs, targets):
        adam = torch.optim.Adam(net.parameters(), lr=1e-3)

        def step():
            adam.zero_grad(set_to_none=True)
            functional.cross_entropy(net(inputs), targets).backward()
            adam.step()

        return step

    @rows.add("mlp_784_256_10_b64", "img/s", amount=64, repetitions=15)
    def _():
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
        return training_step(net, torch.randn(64, 784), torch.randint(10, (64,)))

    @rows.add("cnn_fmnist_b64", "img/s", amount=64, repetitions=15)
    def _():
        def block(before, after):
            conv = nn.Conv2d(before, after, 3, padding=1)
            return [conv, nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]

        net = nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(3136, 10))
        return training_step(net, torch.randn(64, 1, 28, 28), torch.randint(10, (64,)))

    @rows.add("transformer4_d256_s128_b16_train", "seq/s", amount=16, repetitions=15)
    def _():
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
                self.body = nn.TransformerEncoder(layer, 4)
                self.head = nn.Linear(256, 10)

            def forward(self, x):
                return self.head(self.body(x)[:, 0])

        return training_step(Encoder(), torch.randn(16, 128, 256), torch.randint(10, (16,)))

    return rows.all


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rows", help="names separated by commas; all if left out")
    parser.add_argument("--reps", type=int, help="repetitions of every row")
    parser.add_argument("--json", help="file to write")
    options = parser.parse_args()
    # Before the import, which reads it.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    wanted = options.rows.split(",") if options.rows is not None else None
    results = {}
    for name, (unit, amount, calls, repetitions, prepare) in make_rows(torch).items():
        if wanted is not None and name not in wanted:
            continue
        key = f"cpu{options.threads}/{name}"
        try:
            seconds = median_seconds(prepare(), options.reps or repetitions, calls)
        except Exception as error:  # one row without a figure must not cost the others theirs
            print(f"{key:44s} failed: {str(error).splitlines()[:1]}", file=sys.stderr, flush=True)
            continue
        results[key] = [figure(unit, amount, seconds), unit]
        print(f"{key:44s} {results[key][0]:12.4g} {unit}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
