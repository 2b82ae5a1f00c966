"""PyCUDA's names for memory, kernels of source and arrays: `import arete.pycuda.driver as cuda`, `arete.pycuda.autoinit`,
`arete.pycuda.compiler.SourceModule`, `arete.pycuda.gpuarray`. Without a GPU memory and kernels are the CPU's."""
from __future__ import annotations

import sys as _sys

from . import autoinit, compiler, cumath, curandom, driver, elementwise, gpuarray, reduction, scan, tools

__all__ = ["autoinit", "compiler", "cumath", "curandom", "driver", "elementwise", "gpuarray", "install", "reduction", "scan", "tools"]


def install():
    """From here on `import pycuda.driver` and its like give what is here, in this process.

    >>> import arete.pycuda
    >>> arete.pycuda.install()
    >>> import pycuda.gpuarray
    >>> (2 * pycuda.gpuarray.to_gpu([1., 2.])).get()
    array([2., 4.])
    """
    _sys.modules["pycuda"] = _sys.modules[__name__]
    for name in __all__:
        if name != "install":
            _sys.modules["pycuda." + name] = globals()[name]
