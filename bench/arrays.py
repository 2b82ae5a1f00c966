"""arete.numpy beside NumPy (and CuPy with --device cuda): the functions of arrays that programs call most, both libraries in turn.

    python bench/arrays.py [--device cuda] [--size 1000000] [--only NAME ... | --sixty] [--processor-time] [--json FILE] [--markdown]

Each line is a call: microseconds of both libraries (the least of several rounds, which alternate), and how many times as fast
arete.numpy is; below 0.95 it falls short. Those of three elements (`tiny: `) measure what a call costs the host.
--sixty are the functions that people use most, on large arrays; --markdown prints their table for documentation.
With --processor-time and one thread (OMP_NUM_THREADS=1) other programs on the machine disturb least.
"""
from __future__ import annotations

import argparse
import json
import math
import sys
import time
from typing import Any, Callable


SIXTY = [
    "zeros", "ones", "arange", "linspace", "copy", "astype", "concatenate", "stack", "repeat", "meshgrid", "transpose copy",
    "roll", "pad", "add", "multiply scalar", "divide", "power 2", "int + float", "iadd", "broadcast add", "abs", "sqrt", "exp",
    "log", "sin", "round", "maximum", "clip", "less", "isnan", "logical_and", "where", "sum", "sum axis 0", "mean", "std", "max",
    "argmax", "any", "cumsum", "median", "percentile", "sort", "argsort", "unique", "searchsorted", "histogram", "nonzero",
    "boolean index", "fancy index", "masked assign", "slice assign", "dot", "matmul", "einsum", "solve", "norm", "fft", "random",
    "normal",
]


def tiny_calls(np: Any) -> dict[str, Callable[[], Any]]:
    """Calls on three elements: what the host does for them."""
    a, b, i, k = np.asarray([1.0, 2.0, 3.0]), np.asarray([2.0, 3.0, 4.0]), np.asarray([0, 1, 2]), np.asarray([True, False, True])
    m = np.asarray([[1.0, 2.0, 3.0]] * 3)

    def write() -> None:
        a[1] = 2.0

    return {f"tiny: {text}": call for text, call in {
        "array(list)": lambda: np.array([1.0, 2.0, 3.0]),
        "zeros(3)": lambda: np.zeros(3),
        "arange(3)": lambda: np.arange(3),
        "a + b": lambda: a + b,
        "a * 2.0": lambda: a * 2.0,
        "i + a": lambda: i + a,
        "a < b": lambda: a < b,
        "exp(a)": lambda: np.exp(a),
        "where": lambda: np.where(k, a, b),
        "a[1]": lambda: a[1],
        "m[1, 2]": lambda: m[1, 2],
        "a[1] = x": write,
        "a[1:3]": lambda: a[1:3],
        "a[::-1]": lambda: a[::-1],
        "m[:, 1]": lambda: m[:, 1],
        "a[k]": lambda: a[k],
        "a[i]": lambda: a[i],
        "float(a[1])": lambda: float(a[1]),
        "a[1] * a[2] + 1": lambda: a[1] * a[2] + 1,
        "len(a)": lambda: len(a),
        "a.shape": lambda: a.shape,
        "list(a)": lambda: list(a),
        "m.T": lambda: m.T,
        "copy": lambda: a.copy(),
        "reshape": lambda: a.reshape(3, 1),
        "astype": lambda: a.astype(np.float32),
        "sum": lambda: a.sum(),
        "sum axis 0": lambda: m.sum(axis=0),
        "mean": lambda: a.mean(),
        "max": lambda: a.max(),
        "argmax": lambda: a.argmax(),
        "np.sum": lambda: np.sum(a),
        "a @ b": lambda: a @ b,
        "m @ m": lambda: m @ m,
        "dot": lambda: np.dot(a, b),
        "concatenate": lambda: np.concatenate([a, b]),
        "sort": lambda: np.sort(a),
        "argsort": lambda: np.argsort(a),
        "unique": lambda: np.unique(i),
        "nonzero": lambda: np.nonzero(k),
        "count_nonzero": lambda: np.count_nonzero(k),
        "random": lambda: np.random.random(3),
    }.items()}


def fused(np: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What makes one pass over memory of a function of arrays, where the library has it."""
    if np.__name__ == "arete.numpy":
        from arete.cupy import fuse

        return fuse()
    return np.fuse() if hasattr(np, "fuse") else lambda f: f


def calls(np: Any, n: int) -> dict[str, Callable[[], Any]]:
    """What is measured, on arrays of one library with the same numbers."""
    import numpy

    rng = numpy.random.default_rng(0)
    side = max(int(math.sqrt(n)), 4)
    k = min(side, 512)
    host = {"x": rng.normal(size=n), "y": rng.normal(size=n) + 2, "f": rng.normal(size=n).astype("float32"),
            "g": rng.normal(size=n).astype("float32"), "i": rng.integers(0, 1000, n), "m": rng.normal(size=(side, side)),
            "a": rng.normal(size=(k, k)), "b": rng.normal(size=(k, k)), "s": rng.normal(size=10)}
    d = {name: np.asarray(v) for name, v in host.items()}
    x, y, f, g, i, m, a, b, s = (d[name] for name in "xyfgimabs")
    mask, places, spd = x > 0, i % n, a @ a.T + k * np.eye(k)
    row, edges = m[0], np.linspace(-4, 4, 101)
    out = np.empty_like(x)
    xc, yc = x.copy(), y.copy()  # in memory of the library's own: see arete.cupy.fuse
    bell = fused(np)(lambda x, y: np.exp(-((x - y) ** 2)) * np.cos(x) + y)
    horner = fused(np)(lambda x, y: ((0.5 * x + y) * x - 0.25) * x + 1.0)
    return {
        **tiny_calls(np),
        "fused: exp, cos": lambda: bell(xc, yc),
        "fused: polynomial": lambda: horner(xc, yc),
        "add": lambda: x + y,
        "add float32": lambda: f + g,
        "add out=": lambda: np.add(x, y, out=out),
        "multiply scalar": lambda: x * 2.5,
        "iadd": lambda: out.__iadd__(x),
        "divide": lambda: x / y,
        "power 2": lambda: x**2,
        "int + float": lambda: i + x,
        "int // 7": lambda: i // 7,
        "floor": lambda: np.floor(x),
        "abs": lambda: np.abs(x),
        "sqrt": lambda: np.sqrt(np.abs(x)),
        "exp": lambda: np.exp(x),
        "exp float32": lambda: np.exp(f),
        "log": lambda: np.log(y),
        "sin": lambda: np.sin(x),
        "tanh": lambda: np.tanh(x),
        "arctan2": lambda: np.arctan2(x, y),
        "hypot": lambda: np.hypot(x, y),
        "maximum": lambda: np.maximum(x, y),
        "clip": lambda: np.clip(x, -1, 1),
        "round": lambda: np.round(x, 2),
        "less": lambda: x < y,
        "isnan": lambda: np.isnan(x),
        "logical_and": lambda: np.logical_and(mask, mask),
        "where": lambda: np.where(mask, x, y),
        "broadcast add": lambda: m + row,
        "sum": lambda: x.sum(),
        "sum float32": lambda: f.sum(),
        "sum axis 0": lambda: m.sum(axis=0),
        "sum axis 1": lambda: m.sum(axis=1),
        "mean": lambda: x.mean(),
        "std": lambda: x.std(),
        "var axis 1": lambda: m.var(axis=1),
        "max": lambda: x.max(),
        "argmax": lambda: x.argmax(),
        "any": lambda: (x > 100).any(),
        "cumsum": lambda: np.cumsum(x),
        "prod": lambda: x.prod(),
        "median": lambda: np.median(x),
        "percentile": lambda: np.percentile(x, 90),
        "sort": lambda: np.sort(x),
        "argsort": lambda: np.argsort(x),
        "unique": lambda: np.unique(i),
        "bincount": lambda: np.bincount(i),
        "histogram": lambda: np.histogram(x, bins=100),
        "searchsorted": lambda: np.searchsorted(edges, x),
        "diff": lambda: np.diff(x),
        "interp": lambda: np.interp(x, edges, edges),
        "boolean index": lambda: x[mask],
        "fancy index": lambda: x[places],
        "fancy assign": lambda: out.__setitem__(places, 1.0),
        "masked assign": lambda: out.__setitem__(mask, 0.0),
        "slice assign": lambda: out.__setitem__(slice(None, None, 2), 1.0),
        "reverse copy": lambda: x[::-1].copy(),
        "transpose copy": lambda: m.T.copy(),
        "concatenate": lambda: np.concatenate([x, y]),
        "stack": lambda: np.stack([x, y], axis=1),
        "tile": lambda: np.tile(row, 100),
        "repeat": lambda: np.repeat(row, 100),
        "arange": lambda: np.arange(n),
        "zeros": lambda: np.zeros(n),
        "ones": lambda: np.ones(n),
        "linspace": lambda: np.linspace(0, 1, n),
        "astype": lambda: x.astype(np.float32),
        "copy": lambda: x.copy(),
        "nonzero": lambda: np.nonzero(mask),
        "dot": lambda: x @ y,
        "matmul": lambda: a @ b,
        "einsum": lambda: np.einsum("ij,kj->ik", a, b),
        "outer": lambda: np.outer(row, row),
        "solve": lambda: np.linalg.solve(spd, b),
        "inv": lambda: np.linalg.inv(spd),
        "eigh": lambda: np.linalg.eigh(spd),
        "norm": lambda: np.linalg.norm(x),
        "fft": lambda: np.fft.fft(x),
        "rfft": lambda: np.fft.rfft(x),
        "random": lambda: np.random.random(n),
        "normal": lambda: np.random.standard_normal(n),
        "pad": lambda: np.pad(m, 1),
        "roll": lambda: np.roll(x, 1),
        "flip and add": lambda: x[::-1] + y,
        "isin": lambda: np.isin(i, [1, 2, 3]),
        "convolve": lambda: np.convolve(x[:20000], s),
        "gradient": lambda: np.gradient(x),
        "cov": lambda: np.cov(m[:50]),
        "count_nonzero": lambda: np.count_nonzero(mask),
        "take": lambda: np.take(x, places),
        "meshgrid": lambda: np.meshgrid(row, row),
    }


def settle() -> None:
    """Waits until no thread of the process computes: OpenBLAS's look for work for a tenth of a second after a call."""
    for _ in range(100):
        start = time.process_time()
        time.sleep(0.01)
        if time.process_time() - start < 0.001:
            return


def microseconds(call: Callable[[], Any], wait: Callable[[], Any], least: float, clock: Callable[[], float]) -> float:
    """The time of one call, of as many as take `least` seconds together."""
    settle()
    n = 1
    while True:
        start = clock()
        for _ in range(n):
            call()
        wait()
        took = clock() - start
        if took > least or n > 100000:
            return took / n * 1e6
        n = max(n * 2, int(n * least / max(took, 1e-7)) + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", type=int, default=1000000, help="elements of the large arrays")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a round of a call")
    parser.add_argument("--processor-time", action="store_true", help="of all threads, instead of the time that goes by")
    parser.add_argument("--only", nargs="*", help="calls by their names")
    parser.add_argument("--sixty", action="store_true", help="the functions that people use most")
    parser.add_argument("--markdown", action="store_true", help="a table at the end, three calls a row")
    parser.add_argument("--json", help="a file for the figures")
    given = parser.parse_args()

    import arete.cupy
    import arete.numpy as own

    own.set_device(given.device)  # arete.cupy has chosen a GPU where there is one

    def no_wait() -> None:
        """The CPU is done when a call comes back."""

    wait: Callable[[], Any] = no_wait
    peer_wait: Callable[[], Any] = no_wait
    if given.device == "cuda":
        wait = own.cuda.Stream.null.synchronize
        try:
            import cupy as peer
        except ImportError:
            peer = None
            print("CuPy is not installed: there is nothing to compare with", file=sys.stderr)
        else:
            peer_wait = peer.cuda.Stream.null.synchronize
    else:
        import numpy as peer

    clock = time.process_time if given.processor_time else time.perf_counter
    ours, theirs = calls(own, given.size), calls(peer, given.size) if peer is not None else {}
    figures = {}
    print(f"{'call':22}{'arete, us':>12}{peer.__name__ if peer is not None else '-':>12}{'times':>8}")
    for name, call in ours.items():
        if (given.only and name not in given.only) or (given.sixty and name not in SIXTY):
            continue
        best = [math.inf, math.inf]
        for _ in range(given.rounds):
            best[0] = min(best[0], microseconds(call, wait, given.seconds, clock))
            if theirs:
                best[1] = min(best[1], microseconds(theirs[name], peer_wait, given.seconds, clock))
        ratio = best[1] / best[0]
        figures[name] = {"arete": best[0], "peer": best[1], "times": ratio}
        print(f"{name:22}{best[0]:12.2f}{best[1]:12.2f}{ratio:8.2f}{'  short' if theirs and ratio < 0.95 else ''}", flush=True)
    if theirs:
        ratios = sorted(v["times"] for v in figures.values())
        print(f"\n{len(ratios)} calls, {sum(r < 0.95 for r in ratios)} short of 0.95; "
              f"the geometric mean is {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} times")
    if given.markdown:
        cells = [f"{name} | {v['arete']:,.0f} | {v['times']:.2f}x" for name, v in figures.items()]
        print("\n" + " ".join(["| call | us | times"] * 3) + " |\n" + "|---|---:|---:" * 3 + "|")
        for at in range(0, len(cells), 3):
            print("| " + " | ".join((cells[at:at + 3] + [" | | "] * 2)[:3]) + " |")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
