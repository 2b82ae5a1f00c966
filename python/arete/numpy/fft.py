"""numpy.fft: arete.fft."""
from __future__ import annotations

from .. import fft as _fft


def __getattr__(name):
    return getattr(_fft, name)
