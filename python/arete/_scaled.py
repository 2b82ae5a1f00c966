"""Products of float8 matrices."""
from __future__ import annotations

from typing import Optional

from . import _C
from ._operators import _ops

Tensor = _C.Tensor


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Optional[Tensor] = None,
    scale_result: Optional[Tensor] = None,
    out_dtype=None,
    use_fast_accum: bool = False,
) -> Tensor:
    """(input * scale_a) @ (mat2 * scale_b) + bias of float8 matrices (n, m) and (m, p), in out_dtype (bfloat16 if not
    given). Scales are float32 tensors: one number each, or (n, 1) and (1, p). `scale_result` multiplies a float8 result
    before it is rounded. Sums are always kept as exactly as the GPU can, whatever `use_fast_accum` says.

    >>> x, w = torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(16, 32).to(torch.float8_e4m3fn)
    >>> one = torch.ones(())
    >>> torch._scaled_mm(x, w.t(), one, one, out_dtype=torch.bfloat16).shape
    torch.Size([16, 16])
    """
    if scale_result is None and (out_dtype is None or out_dtype.itemsize > 1):
        return _ops.scaled_mm(input, mat2, scale_a, scale_b, bias=bias, out_dtype=out_dtype)
    if bias is not None:
        bias = bias.float()
    wide = _ops.scaled_mm(input, mat2, scale_a, scale_b, bias=bias, out_dtype=_C.float32)
    if scale_result is not None:
        wide = wide * scale_result
    return wide.to(out_dtype)
