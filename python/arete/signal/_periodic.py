"""The window functions that torch has in its own namespace: those of signal.windows, periodic unless said otherwise."""
from __future__ import annotations

from .. import _C
from . import windows as _windows

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def _made(function, window_length, periodic, dtype, options, **shape):
    name = f"{function.__name__}_window"
    dtype = _C.get_default_dtype() if dtype is None else dtype
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype}")
    if window_length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
    wide = dtype if dtype in (_C.float32, _C.float64) else _C.float32
    requires_grad = options.pop("requires_grad", False)
    window = function(window_length, sym=not periodic, dtype=wide, **shape, **options).to(dtype)
    return window.requires_grad_() if requires_grad else window


def hann_window(window_length: int, periodic: bool = True, *, dtype=None, **options):
    """(1 - cos(2 pi k / n)) / 2 at k = 0, 1, ..., one period of it or with `periodic=False` from end to end.

    >>> arete.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _made(_windows.hann, window_length, periodic, dtype, options)


def hamming_window(window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype=None, **options):
    """alpha - beta cos(2 pi k / n); see hann_window().

    >>> arete.hamming_window(4)
    tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return _made(_windows.general_cosine, window_length, periodic, dtype, options, a=[alpha, beta])


def blackman_window(window_length: int, periodic: bool = True, *, dtype=None, **options):
    """0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n); see hann_window().

    >>> arete.blackman_window(4)[1:]
    tensor([0.3400, 1.0000, 0.3400])
    """
    return _made(_windows.blackman, window_length, periodic, dtype, options)


def bartlett_window(window_length: int, periodic: bool = True, *, dtype=None, **options):
    """A triangle; see hann_window().

    >>> arete.bartlett_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _made(_windows.bartlett, window_length, periodic, dtype, options)


def kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype=None, **options):
    """I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta), with the modified Bessel function I0; see hann_window().

    >>> arete.kaiser_window(4, beta=4.0)
    tensor([0.0885, 0.6334, 1.0000, 0.6334])
    """
    return _made(_windows.kaiser, window_length, periodic, dtype, options, beta=beta)
