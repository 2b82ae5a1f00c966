"""Kernels that users write, under CuPy's names, on every device: statements and functions of C."""
from ._elementwise import ElementwiseKernel
from ._launch import checked
from ._python import PythonKernel
from ._raw import In, InOut, Out, RawKernel, RawModule, SourceModule
from ._reduction import ReductionKernel

__all__ = ["ElementwiseKernel", "In", "InOut", "Out", "PythonKernel", "RawKernel", "RawModule", "ReductionKernel", "SourceModule",
           "checked"]
