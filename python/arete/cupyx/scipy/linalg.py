"""Factorizations, solvers and matrices of known structure, under the names of scipy.linalg."""
from __future__ import annotations

import math

from ... import _C, _operators as _t, linalg as _l
from ._arrays import floating, like, tensor, together

__all__ = ["block_diag", "circulant", "companion", "dft", "expm", "hadamard", "hankel", "lu", "lu_factor", "lu_solve", "solve_triangular",
           "toeplitz", "tri", "tril", "triu"]


def _finite(*arrays):
    if not all(bool(t.isfinite().all()) for t in arrays):
        raise ValueError("array must not contain infs or NaNs")


# What overwrite_a and overwrite_b allow is not made use of.


def lu_factor(a, overwrite_a=False, check_finite=True):
    """Both factors in one matrix, and the rows (counted from 0) that each row was exchanged with."""
    m = floating(tensor(a))
    if check_finite:
        _finite(m)
    factors, pivots = _l.lu_factor(m)
    return like(a, factors), like(a, pivots - 1)


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """x of a @ x = b, by lu_factor(a); trans=1 of a.T @ x = b, 2 of its conjugate."""
    factors, pivots = (tensor(v) for v in lu_and_piv)
    if trans not in (0, 1, 2):
        raise ValueError("unknown trans")
    factors, right = together(factors, tensor(b))
    if check_finite:
        _finite(right)
    columns = right[..., None] if right.dim() == 1 else right
    pivots = (pivots + 1).to(_C.int32)
    if trans == 0 or trans == 2 or not factors.dtype.is_complex:
        x = _t._ops.linalg_lu_solve(factors, pivots, columns, adjoint=trans != 0)
    else:
        x = _t._ops.linalg_lu_solve(factors, pivots, columns.conj(), adjoint=True).conj()
    return like(b, x[..., 0] if right.dim() == 1 else x)


def lu(a, permute_l=False, overwrite_a=False, check_finite=True):
    """p, l, u with a = p @ l @ u; (p @ l, u) with permute_l."""
    m = floating(tensor(a))
    if check_finite:
        _finite(m)
    p, l, u = _l.lu(m)  # noqa: E741
    return (like(a, p @ l), like(a, u)) if permute_l else (like(a, p), like(a, l), like(a, u))


def solve_triangular(a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, check_finite=False):
    """x of a @ x = b where `a` is triangular; trans 1 or "T" of a.T, 2 or "C" of its conjugate."""
    m, right = together(floating(tensor(a)), tensor(b))
    if check_finite:
        _finite(m, right)
    if trans in (1, "T", 2, "C"):
        m, lower = (m.mT if trans in (1, "T") else m.mH), not lower
    elif trans not in (0, "N"):
        raise ValueError("unknown trans")
    columns = right[..., None] if right.dim() == 1 else right
    x = _l.solve_triangular(m, columns, upper=not lower, unitriangular=unit_diagonal)
    return like(b, x[..., 0] if right.dim() == 1 else x)


def expm(a):
    """The exponential of a matrix."""
    return like(a, _l.matrix_exp(floating(tensor(a))))


def block_diag(*arrs):
    """A matrix with these along its diagonal, and 0 elsewhere."""
    return like(arrs[0] if arrs else None, _t._ops.block_diag([tensor(a) for a in arrs]))


def _indexed(like_what, values, index):
    return like(like_what, values[index])


def toeplitz(c, r=None):
    """A matrix with constant diagonals: its first column, and its first row (the column's conjugate)."""
    column = tensor(c).reshape(-1)
    column, row = together(column, column.conj() if r is None else tensor(r).reshape(-1))
    values = _t.cat([column.flip(0), row[1:]])
    i, j = _t.arange(column.numel(), device=column.device), _t.arange(row.numel(), device=column.device)
    return _indexed(c, values, column.numel() - 1 - i[:, None] + j)


def hankel(c, r=None):
    """A matrix with constant antidiagonals: its first column, and its last row (zeros)."""
    column = tensor(c).reshape(-1)
    column, row = together(column, _t._ops.zeros_like(column) if r is None else tensor(r).reshape(-1))
    values = _t.cat([column, row[1:]])
    i, j = _t.arange(column.numel(), device=column.device), _t.arange(row.numel(), device=column.device)
    return _indexed(c, values, i[:, None] + j)


def circulant(c):
    """A matrix whose columns are `c`, moved on by one each."""
    column = tensor(c).reshape(-1)
    i = _t.arange(column.numel(), device=column.device)
    return _indexed(c, column, (i[:, None] - i) % column.numel())


def companion(a):
    """The matrix whose eigenvalues are the roots of a polynomial, of which the highest coefficient comes first."""
    p = floating(tensor(a))
    if p.dim() != 1 or p.numel() < 2:
        raise ValueError("The length of `a` must be at least 2.")
    n = p.numel() - 1
    m = _t.zeros(n, n, dtype=p.dtype, device=p.device)
    m[0] = -p[1:] / p[0]
    m[1:, :-1] = _t.eye(n - 1, dtype=p.dtype, device=p.device)
    return like(a, m)


def hadamard(n, dtype=int):
    """Hadamard's matrix of a size that is a power of two."""
    if n < 1 or n & (n - 1):
        raise ValueError("n must be an positive integer, and n must be a power of 2")
    from ... import numpy as _np

    m = _t.ones(1, 1, dtype=_np.empty(0, dtype=dtype)._tensor.dtype)
    while m.shape[0] < n:
        m = _t.cat([_t.cat([m, m], 1), _t.cat([m, -m], 1)], 0)
    return like(None, m)


def dft(n, scale=None):
    """The matrix of the discrete Fourier transform; scale "sqrtn" or "n" divides by it."""
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; {scale!r} is not valid.")
    i = _t.arange(n)
    angle = (i[:, None] * i % n).to(_C.float64) * (-2 * math.pi / n)
    m = _t._ops.complex(angle.cos(), angle.sin())
    return like(None, m / {None: 1, "sqrtn": math.sqrt(n), "n": n}[scale])


def tri(N, M=None, k=0, dtype=None):
    """Ones at and below a diagonal."""
    from ... import numpy as _np

    return _np.tri(N, N if M is None else M, k, dtype=float if dtype is None else dtype)


def tril(m, k=0):
    return like(m, tensor(m).tril(k))


def triu(m, k=0):
    return like(m, tensor(m).triu(k))
