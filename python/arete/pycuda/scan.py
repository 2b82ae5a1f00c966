"""Scans: of each element what all before it are combined to."""
from __future__ import annotations

from .. import numpy as _np
from .._kernels import ElementwiseKernel as _Elementwise
from .._kernels._launch import on_stream as _on_stream

__all__ = ["ExclusiveScanKernel", "InclusiveScanKernel"]


class InclusiveScanKernel:
    """An associative expression of a and b, to which each element and all before it are combined, in place:

        InclusiveScanKernel(numpy.int32, "a+b")(x)

    Each of as many kernels as the length has bits combines elements that are twice as far apart as in the one before (Hillis and Steele,
    1986)."""

    def __init__(self, dtype, scan_expr, neutral=None, name_prefix="scan", options=(), preamble=""):
        self.dtype, self.neutral = _np.dtype(dtype), neutral
        kind = self.dtype.name
        self._combine = _Elementwise(f"raw {kind} x, int64 far", f"{kind} y", f"""
            {kind} b = x[i];
            if (i >= far) {{
              {kind} a = x[i - far];
              b = {scan_expr};
            }}
            y = b;""", name_prefix, preamble=preamble, options=tuple(options or ()))

    def __call__(self, input_ary, output_ary=None, allocator=None, queue=None):
        if input_ary.dtype != self.dtype or input_ary.ndim != 1:
            raise ValueError(f"a scan of {self.dtype} takes a vector of it, not {input_ary.dtype} of {input_ary.ndim} dimensions")
        output_ary = input_ary if output_ary is None else output_ary
        with _on_stream(queue):
            x, far = self._begun(input_ary), 1
            while far < input_ary.size:
                x, far = self._combine(x, far, _np.empty_like(x)), 2 * far
            output_ary[...] = x
        return output_ary

    def _begun(self, x):
        return x


class ExclusiveScanKernel(InclusiveScanKernel):
    """The same of all before it alone: the first one is `neutral`."""

    def __init__(self, dtype, scan_expr, neutral, name_prefix="scan", options=(), preamble=""):
        super().__init__(dtype, scan_expr, neutral, name_prefix, options, preamble)

    def _begun(self, x):
        r = _np.empty_like(x)
        if x.size:
            r[1:] = x[:-1]
            r[0] = int(self.neutral) if self.dtype.kind in "iu" else float(self.neutral)
        return r
