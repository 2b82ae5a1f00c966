"""ElementwiseKernel with PyCUDA's signature."""
from __future__ import annotations

import re

from .. import numpy as _np
from .._kernels import RawKernel
from .._kernels._launch import on_stream

__all__ = ["ElementwiseKernel"]
_NUMBERS = {"float": "float32", "double": "float64", "int": "int32", "unsigned": "int32", "unsigned int": "int32", "char": "int8",
            "short": "int16", "unsigned char": "uint8", "long": "int64", "long long": "int64", "bool": "bool"}


def arguments_of(text):
    """Pairs of a C type and a name; pointers have a star in their type."""
    r = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(?:const\s+)?(\w[\w\s]*?)\s*(\*?)\s*(?:__restrict__\s+)?(\w+)\s*", part)
        if not found:
            raise ValueError(f"{part.strip()!r} is no argument of a kernel")
        r.append((found[1] + found[2], found[3]))
    return r


class ElementwiseKernel:
    """Statements for each `i`, of arrays and numbers whose C types are said:

        lin_comb = ElementwiseKernel("float a, float *x, float *z", "z[i] = a * x[i]", "linear_combination")
        lin_comb(5, x, z)

    It runs for as many elements as the first array has."""

    def __init__(self, arguments, operation, name="kernel", keep=False, options=(), *, preamble="", loop_prep="", after_loop=""):
        self.arguments, self.name = arguments_of(arguments), name
        if not any(t.endswith("*") for t, _ in self.arguments):
            raise RuntimeError("ElementwiseKernel can only be used with functions that have at least one vector argument")
        listed = ", ".join(f"{t} {n}" for t, n in self.arguments)
        self._kernel = RawKernel(f"""{preamble}
extern "C" __global__ void {name}({listed}, long long n) {{
  {loop_prep};
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)blockDim.x * gridDim.x) {{
#line 1
    {operation};
  }}
  {after_loop};
}}""", name, tuple(options or ()))

    def __call__(self, *args, size=None, stream=None):
        if len(args) != len(self.arguments):
            raise TypeError(f"{self.name} takes {len(self.arguments)} arguments ({len(args)} given)")
        given = []
        for (kind, _), a in zip(self.arguments, args):
            if kind.endswith("*"):
                if not isinstance(a, _np.ndarray):
                    raise TypeError(f"{self.name} takes an array of {kind[:-1]} here, not {type(a).__name__}")
                if not a.flags.forc:
                    raise RuntimeError("elementwise kernel cannot deal with non-contiguous arrays")
                size = a.size if size is None else size
                given.append(a)
            else:
                given.append(_np.dtype(_NUMBERS.get(kind, kind)).type(a))
        with on_stream(stream):
            self._kernel(((size + 255) // 256,), (256,), (*given, size))
