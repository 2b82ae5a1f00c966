"""SciPy's functions for what image filters, signal programs and solvers use."""
import sys as _sys

from ... import cupy as _cupy


def get_array_module(*args):
    """This package if any argument is an array of `cupy` or a tensor, else SciPy.

    >>> import arete.cupy as cp, arete.cupyx.scipy
    >>> arete.cupyx.scipy.get_array_module(cp.ones(2)).__name__
    'arete.cupyx.scipy'
    """
    if _cupy.get_array_module(*args) is _cupy:
        return _sys.modules[__name__]
    import scipy

    return scipy
