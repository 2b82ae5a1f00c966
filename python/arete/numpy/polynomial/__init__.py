"""numpy.polynomial: power series, lowest power first, as functions (`polynomial`) and as the class `Polynomial`. Other series (Chebyshev,
Legendre, ...) are not there."""
from . import polynomial
from .polynomial import Polynomial, set_default_printstyle

__all__ = ["Polynomial", "polynomial", "set_default_printstyle"]
_ABSENT = ("Chebyshev", "Legendre", "Hermite", "HermiteE", "Laguerre", "chebyshev", "legendre", "hermite", "hermite_e", "laguerre")


def __getattr__(name):
    if name in _ABSENT:
        raise AttributeError(f"arete.numpy.polynomial has no {name}: power series are all there is; NumPy's take arrays by asnumpy()")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
