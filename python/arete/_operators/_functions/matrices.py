"""Products and factors of matrices."""
from __future__ import annotations

import builtins

from .. import _ops
from ..._C import Tensor
from ._methods import METHODS, also_method, given


@also_method
def adjoint(input: Tensor):
    """The last two dimensions swapped, and complex numbers conjugated.

    >>> arete.adjoint(arete.tensor([[1j, 2]]))
    tensor([[0.-1.j],
            [2.-0.j]])
    """
    return input.mH


@also_method
def tensordot(a: Tensor, b: Tensor, dims=2, out=None):
    """Products summed over pairs of dimensions: the last n and the first n, or two lists.

    >>> arete.tensordot(arete.tensor([[1, 2], [3, 4]]), arete.tensor([10, 1]), dims=1)
    tensor([12, 34])
    >>> arete.tensordot(arete.ones(2, 3, 4), arete.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    arete.Size([2, 5])
    >>> arete.tensordot(arete.ones(2), arete.ones(2), dims=-1)
    Traceback (most recent call last):
    RuntimeError: tensordot expects dims >= 0, but got dims=-1
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        first, second = list(range(a.dim() - dims, a.dim())), list(range(dims))
    else:
        first, second = ([d] if isinstance(d, int) else list(d) for d in dims)
    result = _ops.tensordot(a, b, first, second)
    return given(out, result)


def chain_matmul(*matrices, out=None):
    """The product of matrices, in the order that costs least.

    >>> arete.chain_matmul(arete.ones(2, 3), arete.ones(3, 4), arete.ones(4, 1))
    tensor([[12.],
            [12.]])
    """
    result = _ops.linalg_multi_dot(list(matrices))
    return given(out, result)


def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M=None):
    """U, S, V of A - M to about q singular values, by random projection (Halko, Martinsson and Tropp).

    (..., m, n) -> (..., m, q), (..., q), (..., n, q). `niter` rounds make the basis more exact.

    >>> U, S, V = arete.svd_lowrank(arete.ones(5, 4), q=2)
    >>> U.shape, S.shape, V.shape
    (arete.Size([5, 2]), arete.Size([2]), arete.Size([4, 2]))
    """
    if M is not None:
        A = A - M
    tall = A.size(-2) >= A.size(-1)
    B = A if tall else A.mT
    # An orthonormal basis of most of the range of B; each round of iteration separates the singular values further.
    basis = _ops.linalg_qr(B @ _ops.randn((B.size(-1), q), dtype=B.dtype, device=B.device))[0]
    for _ in range(niter):
        basis = _ops.linalg_qr(B.mT @ basis)[0]
        basis = _ops.linalg_qr(B @ basis)[0]
    U, S, Vh = _ops.linalg_svd(basis.mT @ B, full_matrices=False)
    U, V = basis @ U, Vh.mT
    return (U, S, V) if tall else (V, S, U)


def pca_lowrank(A: Tensor, q=None, center: bool = True, niter: int = 2):
    """U, S, V of the rows of A (less their mean, if `center`) to about q principal components.

    (..., m, n) -> (..., m, q), (..., q), (..., n, q); q is min(6, m, n) by default.

    >>> [t.shape for t in arete.pca_lowrank(arete.randn(5, 4), q=2)]
    [arete.Size([5, 2]), arete.Size([2]), arete.Size([4, 2])]
    >>> arete.pca_lowrank(arete.ones(5, 4), q=5)
    Traceback (most recent call last):
    ValueError: q(=5) must be non-negative integer and not greater than min(m, n)=4
    """
    m, n = A.shape[-2:]
    q = builtins.min(6, m, n) if q is None else q
    if not 0 <= q <= builtins.min(m, n):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={builtins.min(m, n)}")
    return svd_lowrank(A - A.mean(-2, True) if center else A, q, niter)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out=None):
    """Both LU factors in one matrix, and the row exchanges; also an error number for each matrix, if asked for.

    (..., m, n) -> (..., m, n), int32 (..., min(m, n)), whose numbers begin with 1.

    >>> arete.lu(arete.tensor([[0.0, 2.0], [4.0, 8.0]]))
    (tensor([[4., 8.],
            [0., 2.]]), tensor([2, 2], dtype=arete.int32))
    """
    if get_infos:
        result = tuple(_ops.linalg_lu_factor_ex(A, pivot=pivot))
    else:
        result = tuple(_ops.linalg_lu_factor(A, pivot=pivot))
    return given(out, result)


METHODS["lu"] = lu
