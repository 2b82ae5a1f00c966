"""Solvers for matrices that are known by their products with vectors."""
from __future__ import annotations

from .... import _C, _operators as _t, linalg as _l, numpy as _np
from ....numpy._types import PROMOTED_NATIVE
from .._arrays import floating, like, tensor, together

__all__ = ["LinearOperator", "aslinearoperator", "cg", "gmres", "norm", "spsolve"]


class LinearOperator:
    """A matrix by what it makes of a vector, or `matmat` of several as columns."""

    def __init__(self, shape, matvec, rmatvec=None, matmat=None, dtype=None):
        self.shape, self.matvec, self.rmatvec, self.matmat, self.dtype = tuple(shape), matvec, rmatvec, matmat or matvec, dtype

    def __matmul__(self, x):
        return (self.matmat if getattr(x, "ndim", 1) == 2 else self.matvec)(x)

    dot = __matmul__


def aslinearoperator(a):
    return a if isinstance(a, LinearOperator) else LinearOperator(a.shape, lambda x: a @ x, dtype=getattr(a, "dtype", None))


def _system(a, b, x0, m):
    a = aslinearoperator(a)
    right = floating(tensor(b)).reshape(-1)
    if a.shape[0] != a.shape[1] or a.shape[0] != right.numel():
        raise ValueError(f"the matrix of shape {a.shape} and the right side of {right.numel()} do not go together")
    m = None if m is None else aslinearoperator(m)
    for f in (a, m):  # numbers of the kind that all of them have together
        if f is not None:
            dtype = tensor(f @ like(b, _t.zeros_like(right))).dtype if f.dtype is None else (
                f.dtype if isinstance(f.dtype, _C.dtype) else _np.empty(0, dtype=f.dtype)._tensor.dtype)
            right = right.to(PROMOTED_NATIVE[right.dtype, dtype])
    if x0 is not None:
        right, x0 = together(right, tensor(x0))

    def product(x):
        return tensor(a @ like(b, x)).reshape(-1)

    def solved(x):
        return x if m is None else tensor(m @ like(b, x)).reshape(-1)

    x = _t.zeros(right.numel(), dtype=right.dtype, device=right.device) if x0 is None else x0.reshape(-1).clone()
    return product, solved, right, x


def cg(A, b, x0=None, tol=1e-5, maxiter=None, M=None, callback=None, atol=None):
    """x of A @ x = b for a symmetric positive definite A, and 0, or how many steps did not suffice. `M` is near A's inverse."""
    product, solved, right, x = _system(A, b, x0, M)
    limit = max(float(atol or 0.0), tol * float(right.norm()))
    r = right - product(x)
    p = z = solved(r)
    rho = (r.conj() * z).sum()
    steps = 10 * right.numel() if maxiter is None else maxiter
    for _ in range(steps):
        if float(r.norm()) <= limit:
            return like(b, x), 0
        q = product(p)
        alpha = rho / (p.conj() * q).sum()
        x = x + alpha * p
        r = r - alpha * q
        z = solved(r)
        before, rho = rho, (r.conj() * z).sum()
        p = z + rho / before * p
        if callback is not None:
            callback(like(b, x))
    return like(b, x), 0 if float(r.norm()) <= limit else steps


def gmres(A, b, x0=None, tol=1e-5, restart=None, maxiter=None, M=None, callback=None, atol=None, callback_type=None):
    """x of A @ x = b for any square A, and 0, or how many steps did not suffice; after `restart` of them (20) it begins anew."""
    product, solved, right, x = _system(A, b, x0, M)
    limit = max(float(atol or 0.0), tol * float(right.norm()))
    n = right.numel()
    restart, steps, done = min(restart or 20, n), 10 * n if maxiter is None else maxiter, 0
    while True:
        r = right - product(x)
        size = r.norm()
        if callback is not None:
            callback(like(b, x) if callback_type == "x" else float(size))
        if float(size) <= limit:
            return like(b, x), 0
        if done >= steps:
            return like(b, x), done
        basis = [r / size]
        h = _t.zeros(restart + 1, restart, dtype=right.dtype, device=right.device)
        for k in range(restart):
            w = product(solved(basis[k]))
            for j in range(k + 1):
                h[j, k] = (basis[j].conj() * w).sum()
                w = w - h[j, k] * basis[j]
            h[k + 1, k] = w.norm()
            done += 1
            if float(h[k + 1, k].abs()) <= 1e-14 * float(size):
                break
            basis.append(w / h[k + 1, k])
        e = _t.zeros(k + 2, dtype=right.dtype, device=right.device)
        e[0] = size
        y = _least(h[: k + 2, : k + 1], e)
        x = x + solved((_t.stack(basis[: k + 1], 1) @ y[:, None])[:, 0])


def _least(a, b):
    """x with the least |a @ x - b|."""
    if not a.dtype.is_complex:
        return _l.lstsq(a, b[:, None])[0][:, 0]
    parts = _t.cat([_t.cat([a.real, -a.imag], 1), _t.cat([a.imag, a.real], 1)], 0)
    x = _least(parts, _t.cat([b.real, b.imag]))
    return _t._ops.complex(x[: a.shape[1]], x[a.shape[1]:])


def spsolve(A, b):
    """x of A @ x = b by a dense factorization: for matrices whose dense form fits into memory."""
    dense, right = together(tensor(A.toarray()), floating(tensor(b)))
    x = _l.solve(dense, right[:, None] if right.dim() == 1 else right)
    return like(b, x.reshape(right.shape))


def norm(x, ord=None, axis=None):
    """Frobenius' norm, or that of sums of rows or columns (inf, 1)."""
    if axis is not None or ord not in (None, "fro", 1, float("inf")):
        raise NotImplementedError("norm(): ord is 'fro', 1 or inf, of the whole matrix")
    if ord in (None, "fro"):
        return like(None, x._data.abs().square().sum().sqrt())
    return like(None, tensor(abs(x).sum(axis=0 if ord == 1 else 1)).max())
