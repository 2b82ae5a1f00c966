"""Filters of signals and pictures, milliseconds of arete.cupyx.scipy beside SciPy (or CuPy with --cupy, where it is installed), in one run.

    python bench/signals.py [--device cuda] [--size 1000000] [--only NAME ...] [--seconds 1] [--cupy]

--size is the length of signals; pictures have half as many elements. Times are of the best of several calls, with the wait for the
device."""
from __future__ import annotations

import argparse
import time


def cases(xp, signal, ndimage, n, host):
    """Names and calls, of the arrays `host` moved by `xp`."""
    x, rows, picture, spots, labels, path, seed = (xp.asarray(v) for v in host)
    b, a = (xp.asarray(v) for v in ([0.0048, 0.0193, 0.0289, 0.0193, 0.0048], [1.0, -2.3695, 2.3140, -1.0547, 0.1874]))
    sections = xp.asarray([[0.0675, 0.1349, 0.0675, 1.0, -1.1430, 0.4128]] * 4)
    places = xp.asarray([[0.9, 0.1], [-0.1, 0.9]])
    return {
        f"lfilter, 1 x {n}": lambda: signal.lfilter(b, a, x),
        f"lfilter, 1000 x {n // 1000}": lambda: signal.lfilter(b, a, rows),
        "sosfilt, 4 sections": lambda: signal.sosfilt(sections, x),
        "filtfilt": lambda: signal.filtfilt(b, a, x),
        "find_peaks, prominence": lambda: signal.find_peaks(x, prominence=0.5),
        "savgol_filter": lambda: signal.savgol_filter(x, 11, 3),
        "hilbert": lambda: signal.hilbert(x),
        "medfilt": lambda: signal.medfilt(x, 5),
        "label": lambda: ndimage.label(spots),
        "binary_fill_holes": lambda: ndimage.binary_fill_holes(spots),
        "binary_propagation, winding": lambda: ndimage.binary_propagation(seed, mask=path),
        "mean of labels": lambda: ndimage.mean(picture, labels, xp.arange(1, 100)),
        "median_filter, 5 x 5": lambda: ndimage.median_filter(picture, 5),
        "median_filter, 15 x 15": lambda: ndimage.median_filter(picture, 15),
        "rotate": lambda: ndimage.rotate(picture, 30),
        "affine_transform": lambda: ndimage.affine_transform(picture, places),
        "zoom": lambda: ndimage.zoom(picture, 1.5),
    }


def milliseconds(call, wait, seconds):
    call(), wait()
    best, spent = float("inf"), 0.0
    while spent < seconds:
        begin = time.perf_counter()
        call(), wait()
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
    return best * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seconds", type=float, default=1.0, help="spent on calls of a function")
    parser.add_argument("--cupy", action="store_true", help="beside CuPy instead of SciPy")
    given = parser.parse_args()

    import numpy

    import arete.numpy
    from arete.cupyx.scipy import ndimage, signal

    arete.numpy.set_device(given.device)
    on_gpu = given.device.startswith("cuda")
    random, n, side = numpy.random.default_rng(0), given.size, int((given.size / 2) ** 0.5)
    picture = random.normal(size=(side, side))
    smooth = sum(numpy.roll(picture, (i, j), (0, 1)) for i in range(-4, 5) for j in range(-4, 5))
    path, seed = numpy.ones((side, side), bool), numpy.zeros((side, side), bool)
    path[1::4, 1:] = path[3::4, :-1] = False  # walls, with a gap at alternate ends
    seed[0, 0] = True
    host = (random.normal(size=n), random.normal(size=(1000, n // 1000)), picture, smooth > 0, random.integers(0, 100, (side, side)), path,
            seed)
    runs = [("Arete", cases(arete.numpy, signal, ndimage, n, host), arete.cuda.synchronize if on_gpu else lambda: None)]
    names = {name.split(",")[0] for name in runs[0][1]}
    if not names.issuperset(given.only or ()):
        parser.error(f"--only: choose from {', '.join(sorted(names))}")
    try:
        if given.cupy:
            import cupy
            from cupyx.scipy import ndimage as other_images, signal as other_signals

            runs.append(("CuPy", cases(cupy, other_signals, other_images, n, host), cupy.cuda.Device().synchronize))
        else:
            from scipy import ndimage as other_images, signal as other_signals

            runs.append(("SciPy", cases(numpy, other_signals, other_images, n, host), lambda: None))
    except ImportError as e:
        print(f"{e}: Arete alone")
    print(f"{'function':28}" + "".join(f"{name + ' ms':>14}" for name, *_ in runs) + f"{'ratio':>10}")
    for name in runs[0][1]:
        if given.only and name.split(",")[0] not in given.only:
            continue
        times = [milliseconds(calls[name], wait, given.seconds) for _, calls, wait in runs]
        ratio = f"{times[1] / times[0]:10.2f}" if len(times) > 1 else ""
        print(f"{name:28}" + "".join(f"{t:14.3f}" for t in times) + ratio, flush=True)


if __name__ == "__main__":
    main()
