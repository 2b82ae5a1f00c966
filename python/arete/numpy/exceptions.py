"""numpy.exceptions: errors and warnings by their NumPy names."""
from ._array import AxisError

__all__ = ["AxisError", "ComplexWarning", "DTypePromotionError", "RankWarning", "TooHardError", "VisibleDeprecationWarning"]


class ComplexWarning(RuntimeWarning):
    """Imaginary parts are lost."""


class RankWarning(RuntimeWarning):
    """A fit of too many coefficients."""


class VisibleDeprecationWarning(UserWarning):
    """What will go."""


class TooHardError(RuntimeError):
    """What would take too long to find out."""


class DTypePromotionError(TypeError):
    """dtypes that do not meet."""
