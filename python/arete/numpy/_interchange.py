"""To and from NumPy, and files."""
from __future__ import annotations

import builtins as _b
import sys as _sys

from ._creation import array
from ._types import ndarray

__all__ = [
    "asnumpy", "save", "load", "get_array_module",
]


def asnumpy(a, stream=None):
    """A NumPy array (a copy where `a` lives on a GPU)."""
    if isinstance(a, ndarray):
        return a.detach().cpu().numpy()
    import numpy

    return numpy.asarray(a)


def save(file, arr):
    """An .npy file."""
    import numpy

    numpy.save(file, asnumpy(arr))


def load(file):
    """An array from an .npy file, a dict from an .npz file."""
    import numpy

    content = numpy.load(file, allow_pickle=False)
    if hasattr(content, "files"):
        return {k: array(content[k]) for k in content.files}
    return array(content)


def get_array_module(*args):
    """arete.numpy if any argument is a Tensor, else NumPy."""
    if _b.any(isinstance(a, ndarray) for a in args):
        return _sys.modules[__package__]
    import numpy

    return numpy
