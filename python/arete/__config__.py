"""How the library was built, as text for reports of errors.

>>> print(arete.__config__.show())
Arete ... built with:
...
"""
from __future__ import annotations

import os

from . import _C, version
from .backends import cpu, mkl, mkldnn, openmp

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Version, libraries, the instructions of the CPU that are used, and CUDA."""
    settings = {"CUDA_VERSION": version.cuda, "USE_CUDA": version.cuda is not None, "USE_MKL": mkl.is_available(),
                "USE_MKLDNN": mkldnn.is_available(), "USE_OPENMP": openmp.is_available(), "USE_ROCM": False, "USE_MPI": False}
    said = ", ".join(f"{name}={('OFF', 'ON')[value] if isinstance(value, bool) else value}" for name, value in settings.items())
    return (f"Arete {version.__version__} built with:\n  - C++ Version: 202002\n  - LAPACK is enabled\n"
            f"  - CPU capability usage: {cpu.get_cpu_capability()}\n  - Build settings: {said}\n")


def parallel_info() -> str:
    """Threads, and variables that say how many.

    >>> print(arete.__config__.parallel_info())
    get_num_threads(): ...
    """
    said = "".join(f"{name}: {os.environ.get(name, '[not set]')}\n" for name in ("ARETE_NUM_THREADS", "OMP_NUM_THREADS"))
    return f"get_num_threads(): {_C.get_num_threads()}\nprocessors: {os.cpu_count()}\n{said}"
