"""Kernels that users write, under CuPy's names, on every device: statements and functions of C."""
from ._elementwise import ElementwiseKernel
from ._launch import checked
from ._python import PythonKernel
from ._raw import RawKernel, RawModule
from ._reduction import ReductionKernel

__all__ = ["ElementwiseKernel", "PythonKernel", "RawKernel", "RawModule", "ReductionKernel", "checked"]
