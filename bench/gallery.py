"""The programs of examples/gallery at full size: milliseconds of Arete, NumPy and, where it is installed, CuPy, in one run.

    python bench/gallery.py [NAME ...] [--scale 0.25]
    python bench/gallery.py --goals [--scale 0.25]

Each library runs in a process of its own. What it computes is the same text: `import cupy` gives Arete or CuPy.
With --goals: single figures of Arete beside what they are to be on an H100 or better."""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

GALLERY = pathlib.Path(__file__).resolve().parents[1] / "examples" / "gallery"


def arguments(name, scale, xp):
    """What compute() of a program is called with, made by `xp`, and the bytes that it must at least move."""
    import numpy as np

    random, n = np.random.default_rng(0), lambda size: max(int(size * scale), 16)
    f32 = lambda a: xp.asarray(np.ascontiguousarray(a, dtype=np.float32))  # noqa: E731
    if name in ("filters", "fft_filter"):
        rows, columns = n(2160), n(3840)
        return (f32(random.random((rows, columns))),), 4 * rows * columns * 2
    if name == "mandelbrot":
        return (f32(np.linspace(-2.2, 0.8, n(2000))), f32(np.linspace(-1.5, 1.5, n(2000)))), 4 * n(2000) ** 2
    if name == "life":
        return (xp.asarray((random.random((n(2048), n(2048))) < 0.3).astype(np.int32)), 20), 20 * 8 * n(2048) ** 2
    if name == "heat":
        return (f32(random.random((n(2048), n(2048)))), 20), 20 * 8 * n(2048) ** 2
    if name == "monte_carlo":
        return tuple(f32(a) for a in (*random.random((2, n(1 << 24))), random.normal(size=n(1 << 24)))), 12 * n(1 << 24)
    if name == "nbody":
        x = np.concatenate([random.normal(size=(2, n(8192))), np.full((1, n(8192)), 1e-4)])
        return (f32(x), f32(0 * x[:2]), 2), 0
    if name == "product":
        return (f32(random.normal(size=(n(2048), n(2048)))), f32(random.normal(size=(n(2048), n(2048))))), 0
    if name == "kmeans":
        return (f32(random.normal(size=(n(200000), 2))), f32(random.normal(size=(8, 2))), 10), 0
    if name == "bandwidth":
        return (f32(random.random(n(1 << 24))),), 6 * 8 * n(1 << 24)
    if name == "histogram":
        return (f32(random.random(n(1 << 24))),), 4 * n(1 << 24)
    raise SystemExit(f"no program {name!r}")


def measure(library, name, scale):
    """Milliseconds of one call of compute(), the best of several, and gigabytes a second of what it must move."""
    if library == "cupy":
        import types

        fake = types.ModuleType("arete.cupy")
        fake.install = lambda: None
        sys.modules["arete"], sys.modules["arete.cupy"] = types.ModuleType("arete"), fake
        sys.modules["arete"].cupy = fake
    sys.path.insert(0, str(GALLERY))
    program = importlib.import_module(name)
    if library == "numpy":
        import numpy as xp

        run, wait = program.by_numpy, lambda: None
    else:
        xp, run = program.cp, program.compute
        wait = xp.cuda.Device().synchronize
    given, size = arguments(name, scale, xp)
    run(*given), wait()
    best, spent = float("inf"), 0.0
    while spent < 2 and best > 0:
        begin = time.perf_counter()
        run(*given), wait()
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
    return {"ms": best * 1e3, "GB/s": size / best / 1e9}


def milliseconds(call, wait, least=0.3):
    """Of a call among as many as are under way together; the best of several rounds."""
    call(), wait()
    best, n = float("inf"), 1
    for _ in range(5):
        while True:
            begin = time.perf_counter()
            for _ in range(n):
                call()
            wait()
            took = time.perf_counter() - begin
            if took > least / 5:
                break
            n *= 2
        best = min(best, took / n * 1e3)
    return best


def first_use():
    """Milliseconds until a kernel is done that this process has not called before, after another's call: compiled, or from disk."""
    import arete.cupy as cp
    import numpy as np

    x, took = cp.ones(1000, dtype=np.float32), 0.0
    for k in (1, 2):
        begin = time.perf_counter()
        statements = f"T s = {k}; for (int j = 0; j < 4; ++j) s += x[(i + j) % n] * y; z = s"
        cp.ElementwiseKernel("raw T x, T y", "T z", statements, "mine")(x, x)
        cp.cuda.Device().synchronize()
        took = time.perf_counter() - begin
    return took * 1e3


def goals(scale):
    """Pairs of a figure's name and (value, goal, unit); a goal of percents is at least, others are at most."""
    import arete
    import arete.cupy as cp
    import numpy as np
    from arete.cupyx.scipy import ndimage

    arete.cupy.install()
    sys.path.insert(0, str(GALLERY))
    import monte_carlo
    import nbody

    n, wait = lambda size: max(int(size * scale), 16), cp.cuda.Device().synchronize  # noqa: E731
    time_of = lambda call: milliseconds(call, wait)  # noqa: E731
    ones = lambda *sizes: cp.ones(sizes, dtype=np.float32)  # noqa: E731
    a = ones(3)
    begin, calls = time.perf_counter(), 10000
    for _ in range(calls):
        a + a
    yield "a + b of three elements, host", ((time.perf_counter() - begin) / calls * 1e6, 5, "us")
    wait()
    x, y = ones(n(1 << 28)), ones(n(1 << 28))
    dot = cp.ReductionKernel("T x, T y", "T z", "x * y + x", "a + b", "z = a", "0", "map_reduce")
    copy = time_of(lambda: cp.copyto(y, x))
    yield "map-reduce of two arrays of 2^28, of a copy's rate", (100 * copy / time_of(lambda: dot(x, y)), 90, "%")
    del x, y
    picture, weights = cp.random.random((n(2160), n(3840))).astype(np.float32), ones(5, 5)
    yield "correlate, 5 x 5 of 2160 x 3840", (time_of(lambda: ndimage.correlate(picture, weights)), 0.05, "ms")
    x, y = (cp.random.random(n(100_000_000)).astype(np.float32) for _ in range(2))
    yield "Monte Carlo pi of 100 M points", (time_of(lambda: monte_carlo.inside(x, y)), 0.3, "ms")
    yield "histogram, 256 bins of 100 M", (time_of(lambda: cp.histogram(x, 256, (0, 1))), 0.2, "ms")
    yield "torch's histc, 256 bins of 100 M", (time_of(lambda: arete.histc(x._tensor, 256, 0, 1)), 0.2, "ms")
    numbers = (x._tensor * 256).to(arete.uint8)
    yield "torch's bincount, 100 M of uint8", (time_of(lambda: arete.bincount(numbers, minlength=256)), 0.2, "ms")
    del x, y, numbers
    bodies = cp.concatenate([cp.random.standard_normal((2, n(16384))), cp.full((1, n(16384)), 1e-4)]).astype(np.float32)
    yield "n-body step, 16,384", (time_of(lambda: nbody.compute(bodies, ones(2, n(16384)), 1)), 0.25, "ms")
    with tempfile.TemporaryDirectory() as folder:
        for name, goal in (("first use of a kernel", 40), ("first use of a kernel, from disk", 1)):
            done = subprocess.run([sys.executable, __file__, "--one", "first"], capture_output=True, text=True, check=True,
                                  env={**os.environ, "ARETE_KERNEL_CACHE": folder})
            yield name, (float(done.stdout), goal, "ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.goals:
        print(f"{'figure':52}{'Arete':>12}{'goal':>12}")
        for name, (value, goal, unit) in goals(options.scale):
            kept = value >= goal if unit == "%" else value <= goal
            print(f"{name:52}{value:9.4g} {unit:2}{goal:9.4g} {unit:2}{'' if kept else '  missed'}", flush=True)
        return
    if options.one == "first":
        print(first_use())
        return
    if options.one:
        print(json.dumps(measure(options.one, options.names[0], options.scale)))
        return
    libraries = ["arete", "numpy"] + ["cupy"] * (importlib.util.find_spec("cupy") is not None)
    names = options.names or sorted(f.stem for f in GALLERY.glob("*.py") if f.stem != "picture")
    print(f"{'program':14}" + "".join(f"{n + ' ms':>14}" for n in libraries) + f"{'arete GB/s':>14}{'numpy / arete':>16}")
    for name in names:
        rows = {}
        for library in libraries:
            command = [sys.executable, __file__, name, "--scale", str(options.scale), "--one", library]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode and library != "cupy":
                raise SystemExit(f"{name} with {library}:\n{done.stderr}")
            if done.returncode:
                print(f"{name} fails with {library}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            rows[library] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"ms": float("nan")}
        ratio = rows["numpy"]["ms"] / rows["arete"]["ms"]
        times = "".join(f"{rows[n]['ms']:14.3f}" for n in libraries)
        print(f"{name:14}{times}{rows['arete']['GB/s']:14.1f}{ratio:16.2f}", flush=True)


if __name__ == "__main__":
    main()
