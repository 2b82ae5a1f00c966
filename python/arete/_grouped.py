"""Products of matrices whose rows, columns or inner dimension lie in groups."""
from __future__ import annotations

from typing import Any, Optional

from . import _C
from ._operators import _ops

Tensor = _C.Tensor


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               out_dtype: Any = None) -> Tensor:
    """A product for each group: experts of a layer, each with the rows that were sent to it. `offs` (int32) has the end of each group in
    the dimension that lies in groups; what is behind the last is zero. It is read by the host, which waits for it on GPUs.

    | `mat_a` | `mat_b` | result |
    |---|---|---|
    | (rows, k), rows in groups | (groups, k, n) | (rows, n) |
    | (groups, m, k) | (k, columns), columns in groups | (m, columns) |
    | (m, k), k in groups | (k, n) | (groups, m, n) |
    | (groups, m, k) | (groups, k, n) | (groups, m, n), without `offs` |

    RuntimeError for other shapes, for operands of different dtypes and for ends that do not ascend or lie outside.

    >>> x, w = arete.tensor([[1.0], [2.0], [3.0]]), arete.tensor([[[10.0]], [[100.0]]])
    >>> arete.nn.functional.grouped_mm(x, w, offs=arete.tensor([1, 3], dtype=arete.int32)).T
    tensor([[ 10., 200., 300.]])
    """
    if not (2 <= mat_a.dim() <= 3 and 2 <= mat_b.dim() <= 3):
        raise RuntimeError(f"grouped_mm(): mat_a and mat_b have to be 2D or 3D, not {mat_a.dim()}D and {mat_b.dim()}D")
    if mat_a.dtype != mat_b.dtype:
        raise RuntimeError(f"grouped_mm(): mat_a is {mat_a.dtype}, mat_b {mat_b.dtype}: both have to be the same")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        raise RuntimeError(f"contraction dimension of mat_a and mat_b must match, but they are {mat_a.shape[-1]} and {mat_b.shape[-2]}")
    if (offs is None) != (mat_a.dim() == 3 and mat_b.dim() == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("grouped_mm(): bias is not there: add it to the rows of each group")
    result = _ops.bmm(mat_a, mat_b) if offs is None else _by_groups(mat_a, mat_b, offs)
    return result if out_dtype is None else result.to(out_dtype)


def _by_groups(a: Tensor, b: Tensor, offs: Tensor) -> Tensor:
    if offs.dim() != 1 or offs.dtype != _C.int32:
        raise RuntimeError(f"Offsets have to be int32 of one dimension, not {offs.dtype} of {offs.dim()}")
    for matrices in (a, b):
        if matrices.dim() == 3 and len(matrices) != len(offs):
            raise RuntimeError(f"matrix batch sizes have to match: there are {len(offs)} offsets for {len(matrices)} matrices")
    length = a.shape[0] if b.dim() == 3 else b.shape[1] if a.dim() == 3 else a.shape[1]
    ends = offs.tolist()
    sizes = [end - begin for begin, end in zip([0, *ends], [*ends, length])]  # the last is what is in no group
    if min(sizes) < 0:
        raise RuntimeError(f"grouped_mm(): the ends of groups must ascend up to {length}, but they are {ends}")
    # All parts by one split: its gradient is one concatenation.
    if b.dim() == 3:
        *parts, rest = a.split(sizes)
        return _ops.cat([*(part @ matrix for part, matrix in zip(parts, b.unbind())), a.new_zeros(len(rest), b.shape[2])])
    *right, rest = b.split(sizes, 1 if a.dim() == 3 else 0)
    if a.dim() == 3:
        return _ops.cat([*(matrix @ part for matrix, part in zip(a.unbind(), right)), a.new_zeros(a.shape[1], rest.shape[1])], 1)
    if not right:
        return a.new_zeros(0, a.shape[0], b.shape[1])
    return _ops.stack([x @ y for x, y in zip(a.split(sizes, 1), right)])
