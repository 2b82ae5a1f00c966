"""Functions of elements."""
from __future__ import annotations

from .. import numpy as _np

fabs, ceil, floor, exp, log, log10, sqrt = _np.fabs, _np.ceil, _np.floor, _np.exp, _np.log, _np.log10, _np.sqrt
sin, cos, tan, asin, acos, atan = _np.sin, _np.cos, _np.tan, _np.arcsin, _np.arccos, _np.arctan
sinh, cosh, tanh, atan2, fmod, frexp, ldexp, modf = (
    _np.sinh, _np.cosh, _np.tanh, _np.arctan2, _np.fmod, _np.frexp, _np.ldexp, _np.modf)
