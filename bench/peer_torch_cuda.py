#!/usr/bin/env python3
"""PyTorch's side of arete-bench on one GPU: the same rows, the same definitions, the same timing.

Prints one line a row and writes {"torch": version, "rows": {key: [figure, unit]}} to --json FILE.
Times are medians between two events on the stream, one pair around each call. The libtorch/ rows are PyTorch's C++
interface, compiled now (that takes a minute; where it cannot be, those rows stay empty).
"""

import argparse
import json
import math
import os
import statistics
import sys
import time

LIBTORCH = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAFunctions.h>
#include <algorithm>
#include <chrono>
#include <functional>

static double issue_us(const std::function<void()>& call, int calls) {
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) call();
  for (int round = 0; round < 7; ++round) {
    c10::cuda::device_synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count() / calls);
    c10::cuda::device_synchronize();
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::vector<std::pair<std::string, double>> figures() {
  pybind11::gil_scoped_release release;
  const auto gpu = torch::TensorOptions().device(torch::kCUDA);
  torch::Tensor a = torch::randn({16}, gpu), b = torch::randn({16}, gpu), m = torch::randn({16, 16}, gpu);
  torch::Tensor r = torch::randn({16}, gpu).requires_grad_();
  std::vector<std::pair<std::string, double>> rows;
  const auto row = [&](const char* name, const std::function<void()>& call, int calls = 2000) {
    rows.emplace_back(name, issue_us(call, calls));
  };
  {
    torch::NoGradGuard guard;
    row("libtorch/add", [&] { auto t = a + b; });
    row("libtorch/add_", [&] { a.add_(b); });
    row("libtorch/mm16", [&] { auto t = torch::mm(m, m); });
    row("libtorch/view", [&] { auto t = m.view({256}); });
    row("libtorch/empty", [&] { auto t = torch::empty({1024}, gpu); });
    row("libtorch/sum", [&] { auto t = m.sum(); });
  }
  row("libtorch/add_autograd", [&] { auto t = r + b; });
  row("libtorch/fwd_bwd_4ops", [&] {
    torch::relu(r * b + a).sum().backward();
    r.mutable_grad().reset();
  }, 300);
  return rows;
}
"""


class Rows:
    """Functions that prepare a row's data and return its call, by name."""

    def __init__(self):
        self.all = {}

    def add(self, name, unit, amount=0.0, repetitions=30, calls=1, timing="device"):
        def keep(prepare):
            self.all[name] = (unit, amount, repetitions, calls, timing, prepare)
            return prepare

        return keep


def make_rows(torch):
    nn, functional = torch.nn, torch.nn.functional
    gpu = "cuda"
    rows = Rows()
    half_types = ((torch.float32, "f32"), (torch.bfloat16, "bf16"))

    def randn(*sizes, dtype=torch.float32):
        return torch.randn(*sizes, device=gpu, dtype=dtype)

    def unary(name, unit, amount, make, call, **more):
        @rows.add(name, unit, amount, **more)
        def _():
            x = make()
            return lambda: call(x)

    many = 1 << 28
    for dtype, suffix in half_types:
        size = 4 if dtype == torch.float32 else 2
        one = many * size
        flat = lambda dtype=dtype: randn(many, dtype=dtype)
        matrix = lambda dtype=dtype: randn(16384, many // 16384, dtype=dtype)

        @rows.add(f"bw/copy_{suffix}", "GB/s", 2 * one)
        def _(flat=flat):
            x = flat()
            o = torch.empty_like(x)
            return lambda: o.copy_(x)

        @rows.add(f"bw/add_{suffix}", "GB/s", 3 * one)
        def _(flat=flat):
            x, y = flat(), flat()
            return lambda: x + y

        def chain(p, q):
            return functional.gelu(p * 1.5 + q) * torch.sigmoid(q) - torch.tanh(p)

        @rows.add(f"bw/chain6_eager_{suffix}", "ms")
        def _(flat=flat):
            p, q = flat(), flat()
            return lambda: chain(p, q)

        @rows.add(f"bw/chain6_compile_{suffix}", "GB/s", 3 * one)
        def _(flat=flat):
            p, q = flat(), flat()
            compiled = torch.compile(chain)
            return lambda: compiled(p, q)

        unary(f"bw/gelu_{suffix}", "GB/s", 2 * one, flat, functional.gelu)
        unary(f"bw/sum_all_{suffix}", "GB/s", one, flat, lambda x: x.sum())
        unary(f"bw/sum_dim0_{suffix}", "GB/s", one, matrix, lambda x: x.sum(0))
        unary(f"bw/sum_dim1_{suffix}", "GB/s", one, matrix, lambda x: x.sum(1))
        unary(f"bw/transpose_contig_{suffix}", "GB/s", 2 * one, matrix, lambda x: x.t().contiguous())
        unary(f"bw/cumsum_{suffix}", "GB/s", 2 * one, flat, lambda x: x.cumsum(0), repetitions=10)

        logits = lambda dtype=dtype: randn(8192, 50304, dtype=dtype)
        hidden = lambda dtype=dtype: randn(32768, 1024, dtype=dtype)
        unary(f"row/softmax50304_{suffix}", "GB/s", 2 * 8192 * 50304 * size, logits, lambda x: torch.softmax(x, -1))
        unary(f"row/dropout_{suffix}", "GB/s", 2 * 32768 * 1024 * size, hidden, lambda x: functional.dropout(x, 0.1))

        @rows.add(f"row/cross_entropy_fwd_{suffix}", "ms")
        def _(logits=logits):
            x, y = logits(), torch.randint(50304, (8192,), device=gpu)
            return lambda: functional.cross_entropy(x, y)

        @rows.add(f"row/cross_entropy_fwdbwd_{suffix}", "ms")
        def _(logits=logits):
            x, y = logits().requires_grad_(), torch.randint(50304, (8192,), device=gpu)

            def call():
                x.grad = None
                functional.cross_entropy(x, y).backward()

            return call

        @rows.add(f"row/layer_norm1024_{suffix}", "GB/s", 2 * 32768 * 1024 * size)
        def _(hidden=hidden, dtype=dtype):
            x, w = hidden(), torch.ones(1024, device=gpu, dtype=dtype)
            b = torch.zeros_like(w)
            return lambda: functional.layer_norm(x, (1024,), w, b)

        @rows.add(f"row/layer_norm1024_fwdbwd_{suffix}", "ms")
        def _(hidden=hidden, dtype=dtype):
            x, w, g = hidden(), torch.ones(1024, device=gpu, dtype=dtype), hidden()
            leaves = [x, w, torch.zeros_like(w)]
            for leaf in leaves:
                leaf.requires_grad_()

            def call():
                for leaf in leaves:
                    leaf.grad = None
                functional.layer_norm(x, (1024,), leaves[1], leaves[2]).backward(g)

            return call

    @rows.add("row/embedding_fwdbwd_f32", "ms")
    def _():
        w, i = randn(50304, 1024).requires_grad_(), torch.randint(50304, (65536,), device=gpu)
        g = randn(65536, 1024)

        def call():
            w.grad = None
            functional.embedding(i, w).backward(g)

        return call

    def product(name, n, dtype, tf32=False):
        @rows.add(f"mm/{name}_{n}", "TFLOP/s", 2 * n**3, repetitions=10)
        def _():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            p, q = randn(n, n, dtype=dtype), randn(n, n, dtype=dtype)
            return lambda: p @ q

    for n in (2048, 8192):
        product("f64", n, torch.float64)
        product("f32", n, torch.float32)
        product("tf32", n, torch.float32, tf32=True)
    for n in (512, 768, 1024, 1536, 2048, 8192):
        product("f16", n, torch.float16)
    for n in (2048, 4096, 8192):
        product("bf16", n, torch.bfloat16)

    @rows.add("mm/fp8_8192", "TFLOP/s", 2 * 8192**3, repetitions=10)
    def _():
        x = randn(8192, 8192).to(torch.float8_e4m3fn)
        w = randn(8192, 8192).to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=gpu)
        return lambda: torch._scaled_mm(x, w, one, one, out_dtype=torch.bfloat16)

    @rows.add("mm/linear_gelu_eager_bf16", "ms")
    def _():
        x, linear = randn(16384, 1024, dtype=torch.bfloat16), nn.Linear(1024, 4096, device=gpu, dtype=torch.bfloat16)

        def call():
            with torch.no_grad():
                return functional.gelu(linear(x))

        return call

    @rows.add("mm/bmm512x256_bf16", "TFLOP/s", 2 * 512 * 256**3)
    def _():
        b = randn(512, 256, 256, dtype=torch.bfloat16)
        return lambda: b @ b.transpose(1, 2)

    for d in (64, 128):
        flops = 4 * 8 * 16 * 4096 * 4096 * d / 2

        def heads(d=d):
            return randn(8, 16, 4096, d, dtype=torch.bfloat16)

        @rows.add(f"attn/causal_fwd_d{d}", "TFLOP/s", flops)
        def _(heads=heads):
            q, k, v = (heads().requires_grad_() for _ in range(3))
            return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        @rows.add(f"attn/causal_fwdbwd_d{d}", "TFLOP/s", 3.5 * flops)
        def _(heads=heads):
            q, k, v = (heads().requires_grad_() for _ in range(3))
            g = heads()

            def call():
                q.grad = k.grad = v.grad = None
                functional.scaled_dot_product_attention(q, k, v, is_causal=True).backward(g)

            return call

    flops = 2 * 256 * 28 * 28 * 128 * 128 * 9
    last = {"memory_format": torch.channels_last}
    for dtype, suffix in ((torch.float16, "f16"), (torch.float16, "f16_not_timed"), (torch.float32, "f32"), (torch.float32, "tf32"),
                          (torch.float32, "tf32_not_timed")):

        def make(dtype=dtype, suffix=suffix):
            torch.backends.cudnn.benchmark = "not_timed" not in suffix
            torch.backends.cudnn.allow_tf32 = "tf32" in suffix
            x = randn(256, 128, 28, 28, dtype=dtype).to(**last).requires_grad_()
            w = (randn(128, 128, 3, 3, dtype=dtype) * 0.03).to(**last).requires_grad_()
            return x, w

        @rows.add(f"conv/3x3_128_fwd_{suffix}", "TFLOP/s", flops)
        def _(make=make):
            x, w = make()
            return lambda: functional.conv2d(x, w, padding=1)

        @rows.add(f"conv/3x3_128_fwdbwd_{suffix}", "TFLOP/s", 3 * flops)
        def _(make=make, dtype=dtype):
            x, w = make()
            g = randn(256, 128, 28, 28, dtype=dtype).to(**last)

            def call():
                x.grad = w.grad = None
                functional.conv2d(x, w, padding=1).backward(g)

            return call

    @rows.add("conv/bn_relu_fwdbwd_f16", "ms")
    @rows.add("conv/bn_then_relu_fwdbwd_f16", "ms")
    def _():
        norm = nn.BatchNorm2d(128, device=gpu)
        x = randn(256, 128, 56, 56, dtype=torch.float16).to(**last).requires_grad_()
        g = torch.randn_like(x)

        def call():
            x.grad = None
            functional.relu(norm(x)).backward(g)

        return call

    def gpt2_parameters():
        layer = [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,), (768,)]
        layer += [(3072, 768), (3072,), (768, 3072), (768,)]
        shapes = [(50304, 768), (1024, 768)] + 12 * layer + [(768,), (768,)]
        parameters = [nn.Parameter(randn(*s)) for s in shapes]
        for p in parameters:
            p.grad = torch.randn_like(p)
        return parameters

    @rows.add("optim/adamw_124M_fused", "ms")
    def _():
        return torch.optim.AdamW(gpt2_parameters(), lr=1e-4, fused=True).step

    @rows.add("optim/clip_grad_norm_124M", "ms")
    def _():
        parameters = gpt2_parameters()
        return lambda: nn.utils.clip_grad_norm_(parameters, 1.0)

    def transfer(name, mb, make):
        rows.add(f"xfer/{name}_{mb}MB", "GB/s", mb << 20, repetitions=8)(make)

    for mb in (1, 10, 100, 1000):

        def host(mb=mb):
            return torch.ones(mb << 20, dtype=torch.uint8)

        def pair(pinned, to_host, host=host):
            h = host().pin_memory() if pinned else host()
            d = torch.empty_like(h, device=gpu)
            return (lambda: h.copy_(d, non_blocking=pinned)) if to_host else (lambda: d.copy_(h, non_blocking=pinned))

        for name, pinned, to_host in (
            ("h2d_pageable", False, False),
            ("h2d_pinned", True, False),
            ("d2h_pageable", False, True),
            ("d2h_pinned", True, True),
        ):
            transfer(name, mb, lambda pair=pair, pinned=pinned, to_host=to_host: pair(pinned, to_host))

    points = 100_000_000
    uniform = lambda: torch.rand(points, device=gpu)
    unary("array/sum_100M", "GB/s", 4 * points, uniform, lambda x: x.sum())
    unary("array/sort_f32_100M", "ms", 0, uniform, lambda x: x.sort(), repetitions=5)
    unary("array/topk100_100M", "ms", 0, uniform, lambda x: x.topk(100), repetitions=5)
    unary("array/rand_100M", "GB/s", 4 * points, lambda: None, lambda _: torch.rand(points, device=gpu))
    unary("array/randn_100M", "GB/s", 4 * points, lambda: None, lambda _: torch.randn(points, device=gpu))

    @rows.add("array/gather_50M", "ms", repetitions=5)
    def _():
        x, i = uniform(), torch.randint(points, (points // 2,), device=gpu)
        return lambda: x.index_select(0, i)

    @rows.add("array/conv5x5_4k_f32", "ms")
    def _():
        torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = True, False
        x, w = torch.rand(1, 1, 2160, 3840, device=gpu), torch.rand(1, 1, 5, 5, device=gpu)
        return lambda: functional.conv2d(x, w, padding=2)

    @rows.add("train/mlp_784_256_10_b64", "us", repetitions=7, calls=200, timing="host_and_device")
    def _():
        net = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(gpu)
        adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
        x, y = randn(64, 784), torch.randint(10, (64,), device=gpu)

        def call():
            adam.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            adam.step()

        return call

    return rows.all


def median_seconds(torch, call, repetitions, calls, timing):
    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(repetitions):
        if timing == "device":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(calls):
                call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3 / calls)
        else:
            start = time.perf_counter()
            for _ in range(calls):
                call()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / calls)
    return statistics.median(times)


def figure(unit, amount, seconds):
    scale = {"us": 1e6, "ms": 1e3}
    if unit in scale:
        return seconds * scale[unit]
    return amount / seconds / {"GB/s": 1e9, "TFLOP/s": 1e12}[unit]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, help="not used on a GPU")
    parser.add_argument("--rows", help="names separated by commas; all if left out")
    parser.add_argument("--reps", type=int, help="repetitions of every row")
    parser.add_argument("--json", help="file to write")
    options = parser.parse_args()
    import torch

    torch.manual_seed(0)
    wanted = options.rows.split(",") if options.rows is not None else None
    results = {}

    def keep(name, value, unit):
        if math.isfinite(value):
            results[name] = [value, unit]
        print(f"{name:44s} {value:12.4g} {unit}", flush=True)

    for name, (unit, amount, repetitions, calls, timing, prepare) in make_rows(torch).items():
        if wanted is not None and name not in wanted:
            continue
        try:
            seconds = median_seconds(torch, prepare(), options.reps or repetitions, calls, timing)
            keep(name, figure(unit, amount, seconds), unit)
        except Exception as error:  # one row without a figure must not cost the others theirs
            print(f"{name:44s} failed: {str(error).splitlines()[:1]}", file=sys.stderr, flush=True)
        torch.cuda.empty_cache()
    if wanted is None or any(name.startswith("libtorch/") for name in wanted):
        try:
            from torch.utils.cpp_extension import load_inline

            os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")
            built = load_inline(
                "arete_peer", LIBTORCH, functions="figures", extra_cflags=["-O2"], with_cuda=True, no_implicit_headers=True
            )
            for name, value in built.figures():
                if wanted is None or name in wanted:
                    keep(name, value, "us")
        except Exception as error:
            print(f"libtorch/ rows failed: {str(error)[-500:]}", file=sys.stderr, flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "rows": results}, file, indent=1)


if __name__ == "__main__":
    main()
