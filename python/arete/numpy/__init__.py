"""NumPy's names over arete's tensors, as CuPy has them: `import arete.numpy as np`.

Functions make and take Tensors; `ndarray` is Tensor. Defaults are NumPy's: floating arrays are float64 unless a dtype is
given, `axis` and `keepdims` name what torch calls dim and keepdim. `set_device("cuda")` chooses where new arrays are
made."""
# ruff: noqa: F403, F405
from . import _creation, _elements, _interchange, _products, _reductions, _searching, _shapes, _types
from . import cuda, fft, linalg, random
from .._kernels import ElementwiseKernel, RawKernel, RawModule, ReductionKernel
from ..cuda import nvtx
from ._creation import *
from ._elements import *
from ._interchange import *
from ._products import *
from ._reductions import *
from ._searching import *
from ._shapes import *
from ._types import *

__all__ = [
    *(name for part in (_types, _creation, _elements, _reductions, _shapes, _searching, _products, _interchange)
      for name in part.__all__),
    "ElementwiseKernel", "RawKernel", "RawModule", "ReductionKernel", "cuda", "fft", "linalg", "nvtx", "random",
]
