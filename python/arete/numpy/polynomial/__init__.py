"""numpy.polynomial: power series, lowest power first, as functions (`polynomial`) and as the class `Polynomial`. Other series (Chebyshev,
Legendre, ...) are not there."""
from . import polynomial
from .polynomial import Polynomial

__all__ = ["Polynomial", "polynomial", "set_default_printstyle"]
_ABSENT = ("Chebyshev", "Legendre", "Hermite", "HermiteE", "Laguerre", "chebyshev", "legendre", "hermite", "hermite_e", "laguerre")


def set_default_printstyle(style):
    """Polynomials are printed in ASCII; 'unicode' is refused."""
    if style not in ("ascii", "unicode"):
        raise ValueError(f"Unsupported format string '{style}'. Valid options are 'ascii' and 'unicode'")
    if style == "unicode":
        raise NotImplementedError("polynomials are printed in ASCII")


def __getattr__(name):
    if name in _ABSENT:
        raise AttributeError(f"arete.numpy.polynomial has no {name}: power series are all there is; NumPy's take arrays by asnumpy()")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
