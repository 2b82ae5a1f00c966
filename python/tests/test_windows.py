"""Window functions against NumPy's and their formulas."""
import math

import numpy as np
import pytest

import arete
from arete.signal import windows

NUMPY = {"bartlett": np.bartlett, "blackman": np.blackman, "hamming": np.hamming, "hann": np.hanning}


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8])
@pytest.mark.parametrize("name", sorted(NUMPY))
def test_symmetric_windows_are_numpys(name, length):
    ours = getattr(windows, name)(length, dtype=arete.float64).numpy()
    np.testing.assert_allclose(ours, NUMPY[name](length), atol=1e-14)


@pytest.mark.parametrize("beta", [0.0, 1.5, 12.0, 900.0])
def test_kaiser(beta):
    ours = windows.kaiser(9, beta=beta, dtype=arete.float64).numpy()
    if beta < 100:  # numpy's own quotient overflows
        np.testing.assert_allclose(ours, np.kaiser(9, beta), rtol=1e-6, atol=1e-12)
    assert np.isfinite(ours).all() and ours[4] == 1


@pytest.mark.parametrize("name, options", [("hann", {}), ("cosine", {}), ("nuttall", {}), ("kaiser", {"beta": 3.0}),
                                           ("gaussian", {"std": 2.0}), ("exponential", {"tau": 2.0}),
                                           ("general_hamming", {"alpha": 0.3}), ("general_cosine", {"a": [1.0, 0.25]})])
def test_a_periodic_window_is_a_symmetric_one_without_its_last(name, options):
    function = getattr(windows, name)
    np.testing.assert_allclose(function(6, sym=False, **options).numpy(), function(7, **options).numpy()[:-1], atol=1e-7)


def test_formulas():
    k = np.arange(7)
    x = windows.gaussian(7, std=1.5, dtype=arete.float64).numpy()
    np.testing.assert_allclose(x, np.exp(-(((k - 3) / 1.5) ** 2) / 2))
    x = windows.exponential(6, tau=2.0, center=1.0, sym=False, dtype=arete.float64).numpy()
    np.testing.assert_allclose(x, np.exp(-np.abs(np.arange(6) - 1) / 2))
    x = windows.cosine(7, dtype=arete.float64).numpy()
    np.testing.assert_allclose(x, np.sin(np.pi * (k + 0.5) / 7))
    x = windows.nuttall(7, dtype=arete.float64).numpy()
    assert math.isclose(x[3], 1.0, rel_tol=1e-12) and math.isclose(x[0], 0.0003628, rel_tol=1e-9)


def test_options():
    x = windows.hann(4, dtype=arete.float64, requires_grad=True)
    assert x.dtype is arete.float64 and x.requires_grad
    assert windows.hann(4).dtype is arete.get_default_dtype()


@pytest.mark.parametrize("call", [
    lambda: windows.hann(-1), lambda: windows.hann(4, dtype=arete.int64), lambda: windows.kaiser(4, beta=-1.0),
    lambda: windows.gaussian(4, std=0.0), lambda: windows.exponential(4, tau=0.0),
    lambda: windows.exponential(4, center=1.0), lambda: windows.general_cosine(4, a=[]),
])
def test_errors(call):
    with pytest.raises(ValueError):
        call()


def test_unknown_options_are_errors():
    with pytest.raises(TypeError, match="beta"):
        windows.hann(4, beta=1.0)
