"""The programs of examples/gallery at full size: milliseconds of Arete, NumPy and, where it is installed, CuPy, in one run.

    python bench/gallery.py [NAME ...] [--scale 0.25]

Each library runs in a process of its own. What it computes is the same text: `import cupy` gives Arete or CuPy."""
from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
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
