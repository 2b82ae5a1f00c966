"""Filters, resampling and measurements of pictures of any number of dimensions, under the names of scipy.ndimage.

`mode` says what lies beyond the border: "reflect" (d c b a | a b c d), "mirror" (d c b | a b c d), "nearest", "wrap" or "constant"
(`cval`).
Arrays of integers are computed with as float64, and results have the dtype of the input unless `output` names another or is an array; what
filters along one axis after the other have in between is in that dtype too where it is of whole numbers, as with SciPy. Complex results
stay complex."""
from . import _filters, _interpolation, _measurements, _morphology
from ._filters import *  # noqa: F403
from ._interpolation import *  # noqa: F403
from ._measurements import *  # noqa: F403
from ._morphology import *  # noqa: F403

__all__ = [*_filters.__all__, *_interpolation.__all__, *_measurements.__all__, *_morphology.__all__]
