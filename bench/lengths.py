#!/usr/bin/env python3
"""Functions along rows and over columns of any length, with one number in 16 M or so each time: Arete beside PyTorch.

    python bench/lengths.py [--device cuda] [--dtypes float32,bfloat16] [--only REGEX] [--numbers N] [--slow 0.95]

One line for each function and direction: how many times as fast Arete is at each length, the best of five rounds; `!`
where a result differs by more than rounding. Then every case below --slow, with microseconds of PyTorch and of Arete.
Odd lengths are in it because rows and columns of them begin anywhere in a vector of elements.
"""

import argparse
import math
import re

import torch
from resampling import microseconds

import arete

LENGTHS = [31, 63, 127, 195, 255, 285, 511, 768, 1000, 1023, 2049, 4097, 30001, 50257]
# (what is summed up: rows, columns or the middle of three dimensions; its length; columns): of the numbers that there are.
COLUMNS = [(0, None, 31), (0, None, 195), (0, None, 1023), (0, None, 4095), (1, 127, 131), (1, 285, 63), (1, 1023, 17), (1, 64, 768)]
SAME = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 3e-3, "float64": 1e-9}  # of the largest element of a result


def functional(lib):
    return lib.nn.functional


# Each takes (library, rows, what else there is: weight, bias, target); True: also backward.
ROWS = {
    "sum": (lambda lib, x, k: lib.sum(x, -1), False),
    "amax": (lambda lib, x, k: lib.amax(x, -1), True),
    "argmax": (lambda lib, x, k: lib.argmax(x, -1), False),
    "var": (lambda lib, x, k: lib.var(x, -1), True),
    "std": (lambda lib, x, k: lib.std(x, -1), True),
    "norm": (lambda lib, x, k: lib.linalg.vector_norm(x, dim=-1), True),
    "logsumexp": (lambda lib, x, k: lib.logsumexp(x, -1), True),
    "softmax": (lambda lib, x, k: lib.softmax(x, -1), True),
    "log_softmax": (lambda lib, x, k: lib.log_softmax(x, -1), True),
    "layer_norm": (lambda lib, x, k: functional(lib).layer_norm(x, x.shape[-1:], k["weight"], k["bias"]), True),
    "rms_norm": (lambda lib, x, k: functional(lib).rms_norm(x, x.shape[-1:], k["weight"]), True),
    "cross_entropy": (lambda lib, x, k: functional(lib).cross_entropy(x, k["target"], reduction="none"), True),
    "cumsum": (lambda lib, x, k: lib.cumsum(x, -1), False),
}
OVER = {
    "sum": lambda lib, x, d: lib.sum(x, d),
    "var": lambda lib, x, d: lib.var(x, d),
    "amax": lambda lib, x, d: lib.amax(x, d),
    "norm": lambda lib, x, d: lib.linalg.vector_norm(x, dim=d),
    "argmax": lambda lib, x, d: lib.argmax(x, d),
    "logsumexp": lambda lib, x, d: lib.logsumexp(x, d),
}


def inputs(dtype, device, numbers):
    """Tensors of PyTorch, from which those of a case are cut, and the same memory as Arete's."""
    longest = max(LENGTHS)
    sizes = {"x": numbers, "grad": numbers, "weight": longest, "bias": longest}
    values = {name: torch.randn(size, device=device).to(dtype) for name, size in sizes.items()}
    values["target"] = torch.randint(0, 1 << 30, (numbers // min(LENGTHS) + 1,), device=device)
    return values, {name: arete.from_dlpack(value) for name, value in values.items()}


def along_rows(lib, values, function, length, backward):
    rows = max(1, values["x"].numel() // length)
    x = values["x"][: rows * length].view(rows, length)
    others = {name: values[name][:length] for name in ("weight", "bias")}
    others["target"] = values["target"][:rows] % length
    if not backward:
        return lambda: function(lib, x, others)
    leaves = [x.detach().requires_grad_()]
    for name in ("weight", "bias"):
        others[name] = others[name].detach().requires_grad_()
    y = function(lib, leaves[0], others)
    if function is ROWS["layer_norm"][0] or function is ROWS["rms_norm"][0]:
        leaves += [others["weight"]] + [others["bias"]] * (function is ROWS["layer_norm"][0])
    grad = values["grad"][: y.numel()].view(y.shape)
    return lambda: lib.autograd.grad(y, leaves, grad, retain_graph=True)


def over_columns(lib, values, function, form):
    dim, length, columns = form
    numbers = values["x"].numel()
    shape = (numbers // columns, columns) if dim == 0 else (max(1, numbers // (length * columns)), length, columns)
    x = values["x"][: math.prod(shape)].view(shape)
    return lambda: function(lib, x, dim)


def cases(only):
    """(name, the lengths or forms, maker of a call)."""
    for name, (function, has_backward) in ROWS.items():
        for backward in (False, True)[: 1 + has_backward]:
            title = name + (" backward" if backward else "")
            if re.search(only, title):
                yield title, LENGTHS, lambda lib, v, n, f=function, b=backward: along_rows(lib, v, f, n, b)
    for name, function in OVER.items():
        title = name + " of columns"
        if re.search(only, title):
            yield title, COLUMNS, lambda lib, v, form, f=function: over_columns(lib, v, f, form)


def differ(ours, theirs, bound):
    ours, theirs = (r if isinstance(r, (tuple, list)) else (r,) for r in (ours, theirs))
    for a, b in zip(ours, theirs, strict=True):
        a = torch.from_dlpack(a)
        if a.shape != b.shape or a.dtype != b.dtype:
            return True
        # What is no number is in no bound.
        if not ((a - b).abs().max() <= bound * b.abs().max() if b.is_floating_point() else (a == b).all()):
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--only", default="", help="functions that this regular expression matches")
    parser.add_argument("--numbers", type=int, default=1 << 24)
    parser.add_argument("--slow", type=float, default=0.95)
    options = parser.parse_args()
    slow = []
    print("lengths", LENGTHS, "\ncolumns", COLUMNS)
    for dtype in options.dtypes.split(","):
        values, ours = inputs(getattr(torch, dtype), options.device, options.numbers)
        for name, lengths, make in cases(options.only):
            line = f"{dtype} {name:<24}"
            for length in lengths:
                calls = [make(torch, values, length), make(arete, ours, length)]
                theirs, mine = calls[0](), calls[1]()
                mark = "!" if differ(mine, theirs, SAME[dtype]) else " "
                times = []
                for lib, call in zip((torch, arete), calls, strict=True):
                    times.append(microseconds(call, lib.cuda.synchronize if options.device.startswith("cuda") else lambda: None, 10))
                ratio = times[0] / times[1]
                line += f"{ratio:7.2f}{mark}"
                if ratio < options.slow:
                    slow.append((ratio, f"{dtype} {name} {length}: {times[0]:.1f} {times[1]:.1f} us {ratio:.2f}x"))
            print(line, flush=True)
    for _, line in sorted(slow):
        print(line)


if __name__ == "__main__":
    main()
