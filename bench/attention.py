#!/usr/bin/env python3
"""Attention on a GPU beside PyTorch in one process: f32 and half types, masks, dropout, sizes of heads, and few queries of many keys.

    python bench/attention.py [REGEX]

Milliseconds of scaled_dot_product_attention without gradients and of its backward pass, the best of three rounds of twenty, and PyTorch's
time over Arete's. REGEX is looked for in the names of the rows."""
from __future__ import annotations

import re
import sys

import arete
import torch

ROUNDS, CALLS = 3, 20
#        dtype, (batch, heads, length, size of a head), mask, dropout, causal
CASES = [
    ("float32", (4, 16, 2048, 64), None, 0.0, False), ("float32", (4, 16, 2048, 64), None, 0.0, True),
    ("float32", (4, 16, 2048, 128), None, 0.0, False), ("float32", (4, 16, 2048, 64), "boolean", 0.0, False),
    ("float32", (4, 16, 2048, 64), "bias", 0.0, False), ("float32", (4, 16, 2048, 64), None, 0.1, False),
    ("float32", (8, 8, 512, 64), None, 0.0, False), ("float32", (32, 8, 128, 32), None, 0.0, False),
    ("bfloat16", (4, 16, 2048, 64), None, 0.0, False), ("bfloat16", (4, 16, 2048, 64), "boolean", 0.0, False),
    ("bfloat16", (4, 16, 2048, 64), "bias", 0.0, False), ("bfloat16", (4, 16, 2048, 64), None, 0.1, False),
    ("bfloat16", (4, 16, 2048, 64), None, 0.1, True), ("bfloat16", (4, 16, 2048, 128), "boolean", 0.0, False),
    ("bfloat16", (4, 16, 2048, 80), "bias", 0.0, False), ("bfloat16", (64, 12, 197, 64), None, 0.1, False),
]
#        batch, heads, those of keys, queries, keys, size of a head: as when a model generates. Without a mask and with one of padding.
FEW = [(1, 32, 32, 1, 512, 128), (1, 32, 32, 1, 4096, 128), (1, 32, 8, 1, 4096, 128), (8, 32, 8, 1, 4096, 128), (32, 32, 8, 1, 2048, 128),
       (16, 12, 12, 1, 1024, 64), (1, 32, 8, 1, 32768, 128), (1, 32, 32, 8, 4096, 128), (1, 16, 16, 77, 4096, 64)]


def timed(lib, call):
    for _ in range(3):
        call()
    best = float("inf")
    for _ in range(ROUNDS):
        begin, end = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        lib.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / CALLS)
    return best


def measure(lib, dtype, sizes, mask, dropout, causal):
    """Milliseconds of the forward and of the backward pass."""
    dtype = getattr(lib, dtype)
    heads = [lib.randn(*sizes, device="cuda").to(dtype).requires_grad_() for _ in range(3)]
    length = sizes[2]
    bias = {"boolean": lambda: lib.rand(length, length, device="cuda") > 0.3,
            "bias": lambda: lib.randn(1, sizes[1], length, length, device="cuda").to(dtype), None: lambda: None}[mask]()

    def attend():
        return lib.nn.functional.scaled_dot_product_attention(*heads, bias, dropout_p=dropout, is_causal=causal)

    with lib.no_grad():
        forward = timed(lib, attend)
    out = attend()
    gradient = lib.ones_like(out)

    def backward():
        for x in heads:
            x.grad = None
        out.backward(gradient, retain_graph=True)

    return forward, timed(lib, backward)


def measure_few(lib, dtype, sizes, padding):
    """Milliseconds of the forward pass."""
    batch, heads, shared, queries, keys, width = sizes
    q, k, v = (lib.randn(batch, n, length, width, device="cuda").to(getattr(lib, dtype))
               for n, length in ((heads, queries), (shared, keys), (shared, keys)))
    mask = (lib.arange(keys, device="cuda") < keys - 5).expand(batch, 1, queries, keys).contiguous() if padding else None
    with lib.no_grad():
        return timed(lib, lambda: lib.nn.functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=heads != shared))


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    print(f"{'':58s}{'Arete ms':>16s}{'PyTorch ms':>16s}{'PyTorch / Arete':>18s}")
    for dtype, sizes, mask, dropout, causal in CASES:
        name = " ".join(filter(None, [dtype, "x".join(map(str, sizes)), mask, dropout and f"dropout {dropout}", causal and "causal"]))
        if not re.search(pattern, name):
            continue
        ours, theirs = (measure(lib, dtype, sizes, mask, dropout, causal) for lib in (arete, torch))
        print(f"{name:58s}{ours[0]:8.3f}{ours[1]:8.3f}{theirs[0]:8.3f}{theirs[1]:8.3f}{theirs[0] / ours[0]:9.2f}{theirs[1] / ours[1]:9.2f}",
              flush=True)
    for dtype in ("bfloat16", "float32"):
        for sizes in FEW:
            for padding in (False, True):
                name = f"few {dtype} {sizes[0]} x {sizes[1]}/{sizes[2]}, {sizes[3]} of {sizes[4]} x {sizes[5]}" + " padding" * padding
                if not re.search(pattern, name):
                    continue
                ours, theirs = (measure_few(lib, dtype, sizes, padding) for lib in (arete, torch))
                print(f"{name:58s}{ours:8.4f}{'':8s}{theirs:8.4f}{'':8s}{theirs / ours:9.2f}", flush=True)


if __name__ == "__main__":
    main()
