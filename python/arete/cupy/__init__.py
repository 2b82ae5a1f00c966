"""CuPy's names: `import arete.cupy as cp`. The arrays and functions are those of arete.numpy, and arrays are made on the current GPU where
there is one (`arete.numpy.set_device` says otherwise). Without a GPU the same program runs on the CPU, kernels included."""
# ruff: noqa: F403, F405
from __future__ import annotations

import builtins as _b
import functools as _functools
import importlib as _importlib
import sys as _sys

from .. import compiler as _compiler, cuda as _cuda, numpy as _numpy, version as _version
from .._C import Tensor as _Tensor
from .._kernels import ElementwiseKernel as _ElementwiseKernel, RawKernel, RawModule, ReductionKernel
from ..numpy import *
from ..numpy import __all__ as _names
from . import cuda
from .cuda import get_default_memory_pool, get_default_pinned_memory_pool

if _cuda.is_available():
    _numpy.set_device("cuda")

__version__ = "13.6.0"  # whose names these are
__all__ = [*_names, "fuse", "get_array_module", "get_default_memory_pool", "get_default_pinned_memory_pool", "install",
           "is_available", "show_config"]

is_available = cuda.is_available


class ElementwiseKernel(_ElementwiseKernel):
    __doc__ = _ElementwiseKernel.__doc__
    _array, _device = ndarray, staticmethod(_numpy.get_device)


def asarray(a, dtype=None, order=None, *, blocking=False):
    """An array; of NumPy's a copy, as CuPy's is."""
    if type(a).__module__ == "numpy":
        return _numpy.array(a, dtype=dtype, order=order or "K")
    return _numpy.asarray(a, dtype=dtype, order=order)


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    """A NumPy array: a copy, on the CPU, too."""
    result = _numpy.asnumpy(a, stream, order, out)
    return result if out is not None else result.copy(order="K")


def get_array_module(*args):
    """This module if any argument is one of its arrays or a tensor, else NumPy."""
    import numpy

    return _sys.modules[__name__] if _b.any(isinstance(a, (ndarray, _Tensor)) for a in args) else numpy


def fuse(*args, kernel_name=None):
    """A function of arrays whose elementwise operations run together: `@fuse` or `@fuse()`. With arrays over memory that others see, as
    `asarray` makes of NumPy's, they run one by one. With NumPy's arrays it is the function itself."""
    def decorate(function):
        compiled = {}

        @_functools.wraps(function)
        def call(*arrays):
            places = tuple(isinstance(a, ndarray) for a in arrays)
            if True not in places:
                return function(*arrays)
            if places not in compiled:
                compiled[places] = _over_tensors(function, places)
            run, many = compiled[places]
            results = [ndarray(r) for r in run(*(a._tensor if p else a for a, p in zip(arrays, places)))]
            return tuple(results) if many[0] else results[0]

        return call

    return decorate(args[0]) if args and callable(args[0]) else decorate


def _over_tensors(function, places):
    """The function of the tensors of arrays, compiled, and a list that says whether it gives several."""
    many = [False]

    def run(*tensors):
        results = function(*(ndarray(t) if p else t for t, p in zip(tensors, places)))
        many[0] = isinstance(results, (tuple, list))
        return tuple(r._tensor for r in (results if many[0] else [results]))

    return _compiler.compile(run), many


def install():
    """From here on `import cupy` and `import cupyx`, with all below them, give what is here, in this process.

    >>> import arete.cupy
    >>> arete.cupy.install()
    >>> import cupy, cupyx.scipy.ndimage
    >>> cupy.arange(3).sum()
    array(3)
    """
    own = __name__.removesuffix("cupy")
    parts = ("interpolate", "linalg", "ndimage", "signal", "sparse.linalg", "spatial", "special", "stats")
    for name in ("cupyx", *(f"cupyx.scipy.{n}" for n in parts)):
        _importlib.import_module(own + name)
    for name in list(_sys.modules):
        for package in ("cupy", "cupyx"):
            if name == own + package or name.startswith(f"{own}{package}."):
                _sys.modules[name[len(own):]] = _sys.modules[name]
    for name in ("fft", "linalg", "random", "testing"):
        _sys.modules[f"cupy.{name}"] = getattr(_numpy, name)


def show_config():
    """Prints what arrays are made of."""
    print(f"Arete {_version.__version__}, {cuda.runtime.getDeviceCount()} GPU(s)")


def __getattr__(name):
    return getattr(_numpy, name)


def __dir__():
    return sorted({*globals(), *dir(_numpy)})
