"""NumPy over arete's storage: `import arete.numpy as np`. Arrays have a class of their own, `ndarray`, with NumPy's semantics; names
for devices are CuPy's (`asnumpy`, `x.get()`, `x.device`, `cuda`). `set_device("cuda")` chooses where new arrays are made.

`ndarray(tensor)` and `array._tensor` lead from tensors to arrays and back, without a copy."""
# ruff: noqa: F403, F405
import math as _math

from . import (
    _array,
    _creation,
    _histograms,
    _indexing,
    _interchange,
    _joining,
    _mathematics,
    _polynomials,
    _printing,
    _products,
    _reductions,
    _searching,
    _shapes,
    _types,
    _ufuncs,
)
from . import cuda, exceptions, fft, lib, linalg, ma, polynomial, random
from .._kernels import ElementwiseKernel, RawKernel, RawModule, ReductionKernel
from ..cuda import nvtx
from ._array import *
from ._creation import *
from ._histograms import *
from ._info import __array_namespace_info__
from ._interchange import *
from ._joining import *
from ._mathematics import *
from ._polynomials import *
from ._printing import *
from ._products import *
from ._reductions import *
from ._searching import *
from ._shapes import *
from ._types import *
from ._ufuncs import *
from . import _methods, emath  # noqa: F401

pi, e, euler_gamma, inf, nan = _math.pi, _math.e, 0.5772156649015329, _math.inf, _math.nan
little_endian = True
True_, False_ = bool_(True), bool_(False)
__array_api_version__ = "2024.12"
__version__ = "2.4.0"  # whose names these are
__all__ = [
    *(
        name
        for part in (
            _types,
            _array,
            _creation,
            _ufuncs,
            _reductions,
            _shapes,
            _joining,
            _searching,
            _histograms,
            _products,
            _mathematics,
            _polynomials,
            _printing,
            _interchange,
        )
        for name in part.__all__
    ),
    "pi",
    "e",
    "euler_gamma",
    "inf",
    "nan",
    "little_endian",
    "True_",
    "False_",
    "ElementwiseKernel",
    "RawKernel",
    "RawModule",
    "ReductionKernel",
    "cuda",
    "emath",
    "exceptions",
    "fft",
    "linalg",
    "ma",
    "nvtx",
    "polynomial",
    "random",
]


def __getattr__(name):
    return _interchange.host_name(name)


def __dir__():
    return sorted({*globals(), *_interchange.HOST, "testing"})
