"""The programs of examples/gallery give what NumPy gives, and draw it."""
import importlib
import pathlib

import pytest

import arete

GALLERY = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gallery"
LIMITS = {"filters": (48, 1e-4), "mandelbrot": (64, 0.02), "life": (40, 0), "heat": (40, 1e-5), "monte_carlo": (1 << 16, 0.05),
          "nbody": (150, 1e-3), "product": (50, 1e-3), "fft_filter": (64, 1e-5), "kmeans": (500, 1e-3), "histogram": (5000, 0),
          "bandwidth": (4096, 0)}


@pytest.mark.parametrize("name", LIMITS)
def test_program(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(GALLERY))
    size, limit = LIMITS[name]
    assert importlib.import_module(name).main(size, tmp_path) <= limit
    assert arete.vision.io.read_image(str(tmp_path / f"{name}.png")).double().std() > 1


def test_all_programs():
    assert {f.stem for f in GALLERY.glob("*.py")} - {"picture"} == LIMITS.keys()
