"""numpy.fft: arete.fft."""
from __future__ import annotations

import arete as _t


def __getattr__(name):
    return getattr(_t.fft, name)
