"""Splines and other functions through given points, under the names of scipy.interpolate. Coefficients may be complex, and are float64
where they come as whole numbers; places are real."""
from . import _grids, _lines, _pieces, _points, _splines
from ._grids import *  # noqa: F403
from ._lines import *  # noqa: F403
from ._pieces import *  # noqa: F403
from ._points import *  # noqa: F403
from ._splines import *  # noqa: F403

__all__ = [*_grids.__all__, *_lines.__all__, *_pieces.__all__, *_points.__all__, *_splines.__all__]
