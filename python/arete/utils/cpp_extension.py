"""Extensions in C++ for PyTorch: their sources speak of PyTorch's C++, which is not here.

Python's kernels of one's own are arete.kernels, C++ programs use the library itself (docs/build.md), and any extension may take tensors by
DLPack.
"""
from __future__ import annotations

import os
import shutil
from typing import Any

from .._refused import refused as _refused

__all__ = ["BuildExtension", "CUDAExtension", "CUDA_HOME", "CppExtension", "SyclExtension", "include_paths", "is_ninja_available", "load",
           "load_inline",
           "verify_ninja_availability"]

_nvcc = shutil.which("nvcc")
CUDA_HOME = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or (os.path.dirname(os.path.dirname(_nvcc)) if _nvcc else None)
ROCM_HOME = None

globals().update(_refused(__name__,
                          "extensions for PyTorch's C++ cannot be built against Arete; see arete.kernels, or exchange tensors by DLPack",
                          "BuildExtension", "CUDAExtension", "CppExtension", "SyclExtension", "include_paths", "library_paths", "load",
                          "load_inline"))


def is_ninja_available() -> bool:
    """Whether there is a program "ninja"."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """RuntimeError without a program "ninja"."""
    if not is_ninja_available():
        raise RuntimeError("Ninja is required to load C++ extensions (pip install ninja to get it)")


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'arete.utils.cpp_extension' has no attribute {name!r}")
