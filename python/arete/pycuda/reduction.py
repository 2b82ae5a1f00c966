"""ReductionKernel with PyCUDA's signature."""
from __future__ import annotations

from .. import numpy as _np
from .._kernels import ReductionKernel as _Reduction
from .._kernels._launch import on_stream
from .elementwise import ElementwiseKernel, arguments_of

__all__ = ["ReductionKernel"]


class ReductionKernel:
    """An expression of arrays at `i`, of which the results are combined: `reduce_expr` combines a and b, from `neutral` on.

        krnl = ReductionKernel(numpy.float32, neutral="0", reduce_expr="a+b", map_expr="x[i]*y[i]", arguments="float *x, float *y")
        krnl(a, b).get()"""

    def __init__(self, dtype_out, neutral, reduce_expr, map_expr=None, arguments=None, name="reduce_kernel", keep=False, options=None,
                 preamble=""):
        kind, c = _np.dtype(dtype_out), None
        c = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long", "int8": "signed char", "int16": "short",
             "uint8": "unsigned char"}.get(kind.name)
        if c is None:
            raise ValueError(f"reductions give no {kind}")
        self.dtype = kind
        arguments = arguments or f"const {c} *in"
        self._first = next(i for i, (t, _) in enumerate(arguments_of(arguments)) if t.endswith("*"))
        self._map = ElementwiseKernel(f"{arguments}, {c} *mapped_", f"mapped_[i] = {map_expr or 'in[i]'}", name + "_map",
                                      options=options, preamble=preamble)
        self._reduce = _Reduction(f"{kind.name} x", f"{kind.name} y", "x", reduce_expr, "y = a", neutral, name, preamble=preamble)

    def __call__(self, *args, stream=None):
        like = args[self._first]
        with on_stream(stream):
            mapped = _np.empty(like.size, self.dtype, device=like.device)
            self._map(*args, mapped, size=like.size)
            return self._reduce(mapped)
