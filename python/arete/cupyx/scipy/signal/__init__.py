"""Convolutions, filters, their design, spectra and peaks of signals, under the names of scipy.signal."""
from . import _design, _filters, _peaks, _spectra, windows
from ._design import *  # noqa: F403
from ._filters import *  # noqa: F403
from ._peaks import *  # noqa: F403
from ._spectra import *  # noqa: F403
from .windows import get_window

__all__ = [*_design.__all__, *_filters.__all__, *_peaks.__all__, *_spectra.__all__, "get_window", "windows"]
