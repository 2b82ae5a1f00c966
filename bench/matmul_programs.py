"""Products with a weight of int8 and a scale for each output: Arete's apply_matmul beside PyTorch.

    python bench/matmul_programs.py [--device cuda]

One line for each number of rows: microseconds of PyTorch with the weight as it is multiplied (bfloat16, or float32 on a CPU), of PyTorch
when it converts the weight first, and of apply_matmul, the best of five rounds of many calls; then the GB/s at which apply_matmul reads the
weight. The function ends in a bias and a ReLU in all three.
"""

import argparse

import numpy as np
import torch
from resampling import microseconds

import arete
from arete import kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--inner", type=int, default=4096)
    parser.add_argument("--outer", type=int, default=11008)
    options = parser.parse_args()
    on_gpu = options.device.startswith("cuda")
    synchronize = [(library.cuda.synchronize if on_gpu else lambda: None) for library in (torch, arete)]
    dtype = "bfloat16" if on_gpu else "float32"
    rng = np.random.default_rng(0)
    weight = rng.integers(-128, 128, (options.outer, options.inner), dtype=np.int8)
    scale = rng.random((options.outer, 1), dtype=np.float32) / 100
    bias = rng.standard_normal(options.outer).astype(np.float32)

    def on(library, array, to=None):
        tensor = library.from_numpy(array).to(options.device)
        return tensor.to(getattr(library, to)) if to else tensor

    w, s, b = on(torch, weight), on(torch, scale, dtype), on(torch, bias, dtype)
    dense = w.to(s.dtype) * s
    w_, s_, b_ = on(arete, weight), on(arete, scale, dtype), on(arete, bias, dtype)
    right, result = (lambda w, s: w * s, s_.mT), (lambda y, b: kernels.maximum(y + b, 0.0), b_)

    print(f"{'rows':>5} {'dense':>10} {'converts':>10} {'arete':>10} {'GB/s':>7} {'error':>8}")
    for rows in (1, 2, 4, 16, 256):
        x = rng.standard_normal((rows, options.inner)).astype(np.float32)
        theirs, ours = on(torch, x, dtype), on(arete, x, dtype)
        calls = 200 if on_gpu else 3
        with torch.no_grad():
            plain = microseconds(lambda: torch.nn.functional.linear(theirs, dense, b).relu_(), synchronize[0], calls)
            converts = microseconds(lambda: torch.nn.functional.linear(theirs, w.to(s.dtype) * s, b).relu_(), synchronize[0], calls)
            want = torch.nn.functional.linear(theirs.double(), dense.double(), b.double()).relu_().cpu().numpy()
        call = lambda: kernels.apply_matmul(ours, w_.mT, right=right, result=result)  # noqa: E731
        own = microseconds(call, synchronize[1], calls)
        got = call().double().cpu().numpy()
        error = np.linalg.norm(got - want) / np.linalg.norm(want)
        print(f"{rows:5} {plain:10.1f} {converts:10.1f} {own:10.1f} {weight.size / own / 1e3:7.0f} {error:8.1e}")


if __name__ == "__main__":
    main()
