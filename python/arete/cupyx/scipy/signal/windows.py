"""Windows: bells of M samples, symmetric or (`sym=False`) one period of it."""
from __future__ import annotations

import math

from .... import _C, _operators as _t
from .... import signal as _s
from .._arrays import like

__all__ = ["bartlett", "blackman", "blackmanharris", "boxcar", "cosine", "exponential", "flattop", "gaussian", "general_cosine",
           "general_hamming", "get_window", "hamming", "hann", "kaiser", "nuttall", "triang", "tukey"]


def _of(name, *names):
    """A window of arete.signal, whose parameters `names` stand before `sym` where they have no names."""
    function, names = getattr(_s.windows, name), (*names, "sym")

    def window(M, *numbers, **options):
        if len(numbers) > len(names):
            raise TypeError(f"{name}() takes M and {', '.join(names)} ({len(numbers) + 1} arguments given)")
        return like(None, function(M, **dict(zip(names, numbers)), **options, dtype=_C.float64))

    window.__name__, window.__doc__ = name, function.__doc__.split("\n\n")[0]
    return window


bartlett, blackman, cosine, hamming, hann, nuttall = map(_of, ("bartlett", "blackman", "cosine", "hamming", "hann", "nuttall"))
kaiser, gaussian, general_cosine, general_hamming = (
    _of(*p) for p in (("kaiser", "beta"), ("gaussian", "std"), ("general_cosine", "a"), ("general_hamming", "alpha")))
exponential = _of("exponential", "center", "tau")


def boxcar(M, sym=True):
    """Ones."""
    return like(None, _t.ones(M, dtype=_C.float64))


def blackmanharris(M, sym=True):
    """Four cosines whose side lobes are 92 dB down."""
    return general_cosine(M, [0.35875, 0.48829, 0.14128, 0.01168], sym=sym)


def flattop(M, sym=True):
    """Five cosines with a flat top of the spectrum, for amplitudes."""
    return general_cosine(M, [0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368], sym=sym)


def triang(M, sym=True):
    """A triangle whose ends are above 0."""
    if M <= 1:
        return boxcar(M)
    n = M if sym else M + 1
    k = _t.arange(1, n + 1, dtype=_C.float64)
    k = _t._ops.minimum(k, n + 1 - k)
    return like(None, ((2 * k - 1) / n if n % 2 == 0 else 2 * k / (n + 1))[:M])


def tukey(M, alpha=0.5, sym=True):
    """Ones between two halves of a cosine, which are `alpha` of the whole."""
    if alpha <= 0 or M <= 1:
        return boxcar(M)
    if alpha >= 1:
        return hann(M, sym=sym)
    last = M - 1 if sym else M
    k = _t.arange(M, dtype=_C.float64)
    k = _t._ops.minimum(k, last - k) / (alpha * last / 2)
    width = math.floor(alpha * last / 2)
    inside = _t._ops.minimum(_t.arange(M), last - _t.arange(M)) > width
    return like(None, _t.where(inside, 1.0, 0.5 * (1 - (math.pi * k).cos())))


def get_window(window, Nx, fftbins=True):
    """The window of a name, or of a name and numbers; a number is kaiser's beta. One period of it, or with `fftbins=False` symmetric."""
    if isinstance(window, (int, float)):
        window = ("kaiser", window)
    name, *numbers = (window,) if isinstance(window, str) else window
    name = {"hanning": "hann", "rect": "boxcar", "rectangular": "boxcar", "box": "boxcar", "ones": "boxcar", "triangle": "triang",
            "bart": "bartlett", "black": "blackman", "hamm": "hamming", "han": "hann", "flat": "flattop", "nutt": "nuttall",
            "blackharr": "blackmanharris", "tuk": "tukey", "gauss": "gaussian", "halfcosine": "cosine"}.get(name, name)
    if name not in __all__ or name == "get_window":
        raise ValueError(f"Unknown window type: {name!r}; there are {', '.join(n for n in __all__ if n != 'get_window')}")
    if name in ("kaiser", "gaussian", "general_cosine", "general_hamming") and not numbers:
        raise ValueError(f"The {name!r} window needs one or more parameters -- pass a tuple.")
    return globals()[name](Nx, *numbers, sym=not fftbins)
