"""Numba's names for kernels: `from arete.numba import cuda, float32`. Kernels are translated to CUDA C++ as those of cupyx.jit, and run on
the CPU where there is no GPU; what Numba does for the CPU (`njit`, `prange`) is not here."""
from __future__ import annotations

import sys as _sys

from . import _cuda as cuda, _random, types
from .types import (
    boolean, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, void,
)

__all__ = ["boolean", "cuda", "float16", "float32", "float64", "install", "int16", "int32", "int64", "int8", "types", "uint16", "uint32",
           "uint64", "uint8", "void"]

# Not a file of that name: the package numba-cuda puts a finder into every program that looks at all modules whose names contain
# "numba.cuda", and never ends with one that is not Numba's.
cuda.__name__ = __name__ + ".cuda"
_sys.modules[cuda.__name__] = cuda
_random.__name__ = cuda.__name__ + ".random"
_sys.modules[_random.__name__] = cuda.random = _random


def install():
    """From here on `import numba` and `from numba import cuda` give what is here, in this process.

    >>> import arete.numba
    >>> arete.numba.install()
    >>> from numba import cuda
    >>> cuda.to_device([1, 2, 3]).copy_to_host()
    array([1, 2, 3])
    """
    for name in ("", ".cuda", ".cuda.random", ".types"):
        _sys.modules["numba" + name] = _sys.modules[__name__ + name]
    _sys.modules["numba.cuda.types"] = types


def __getattr__(name):
    if name in ("jit", "njit", "prange", "vectorize", "guvectorize", "stencil", "cfunc"):
        raise AttributeError(f"arete.numba has no {name}: only kernels of numba.cuda are here; arete.compile fuses functions of arrays")
    raise AttributeError(f"module 'arete.numba' has no attribute {name!r}")
