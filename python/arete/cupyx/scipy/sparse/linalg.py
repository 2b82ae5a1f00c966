"""Solvers for matrices that are known by their products with vectors."""
from __future__ import annotations

from .... import _C, _operators as _t, linalg as _l, numpy as _np
from ....numpy._types import PROMOTED_NATIVE
from .._arrays import floating, like, tensor, together

__all__ = ["LinearOperator", "aslinearoperator", "cg", "eigsh", "gmres", "norm", "spsolve", "svds"]


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


_SPARE = 20  # directions of a search beside what it looks for: with a few, restarts forget what they learnt


def _start(a, n, v0):
    """A vector to begin with, in the dtype of the operator, and what draws others like it: from a generator of its own."""
    v0 = None if v0 is None else floating(tensor(v0)).reshape(-1)
    if v0 is not None and v0.numel() != n:
        raise ValueError("v0 must have shape (n,)")
    device, dtype = _C.device(_np.get_device()) if v0 is None else v0.device, a.dtype
    if dtype is None:
        dtype = _C.float64 if v0 is None else v0.dtype
    else:
        dtype = dtype if isinstance(dtype, _C.dtype) else _np.empty(0, dtype=dtype)._tensor.dtype
        dtype = dtype if dtype.is_floating_point or dtype.is_complex else _C.float64
    generator = _C.Generator(device).manual_seed(0)

    def draw():
        return (_t.rand(n, dtype=_C.float64, device=device, generator=generator) - 0.5).to(dtype)

    return draw() if v0 is None else v0.to(dtype), draw


_MEASURES = {"LM": lambda values: values.abs(), "LA": lambda values: values, "SA": lambda values: -values}


def _lanczos(product, draw, v, k, size, which, close, limit, found):
    """The k first eigenvalues of `which` beside the vectors `found` (rows), in order of it, and their vectors as rows: Lanczos' method with
    thick restarts (Wu and Simon, 2000), from `v`. `close`: the error that is allowed, from the values. None where `limit` products do not
    suffice."""
    accuracy, n = _t.finfo(v.dtype).eps, v.numel()
    basis = _t.zeros(size, n, dtype=v.dtype, device=v.device)
    inner = _t.zeros(size, size, dtype=v.dtype, device=v.device)  # the matrix in this basis

    def beside(w, rows):
        for _ in range(2):  # the second one takes away what rounding left
            for vectors in (found, rows):
                w = w - (vectors.conj() @ w) @ vectors
        return w / w.norm()

    basis[0], begin, done = beside(v, basis[:0]), 0, 0
    while True:
        for j in range(begin, size):
            w = product(basis[j])
            done += 1
            known = basis[:j + 1]
            for turn in range(2):
                w = w - (found.conj() @ w) @ found
                h = known.conj() @ w
                w = w - h @ known
                inner[:j + 1, j] = h if turn == 0 else inner[:j + 1, j] + h
            inner[j, :j] = inner[:j, j].conj()
            rest = float(w.norm())
            # Within the rounding of a product the space is whole: any vector beside it goes on.
            if rest <= accuracy * n**0.5 * max(float(inner[:j + 1, :j + 1].norm()), 1e-300):
                rest, w = 0.0, None
            if j + 1 < size:
                basis[j + 1] = beside(draw(), known) if w is None else w / rest
        values, vectors = _l.eigh(inner)
        order = _MEASURES[which](values).argsort(descending=True)
        wanted = order[:k]
        if size + len(found) == n or bool((rest * vectors[-1, wanted].abs() <= close(values)[wanted]).all()):
            return values[wanted], vectors[:, wanted].mT @ basis
        if done >= limit:
            return None
        begin = min(k + max((size - k) // 2, 1), size - 1)
        keep = order[:begin]
        basis[:begin] = vectors[:, keep].mT @ basis
        basis[begin] = beside(draw(), basis[:begin]) if w is None else w / rest
        inner.zero_()
        inner[range(begin), range(begin)] = values[keep].to(inner.dtype)


def eigsh(a, k=6, *, which="LM", v0=None, ncv=None, maxiter=None, tol=0, return_eigenvectors=True):
    """The k eigenvalues of a Hermitian matrix that are greatest in magnitude ("LM") or in value ("LA"), or least in value ("SA"), in order,
    and their vectors as columns: Lanczos' method in a space of `ncv` vectors, or k + 20 if that is more. From one vector it sees one of
    equal eigenvalues, so a search from a random vector beside those found says whether there is another, for as long as `maxiter` lets it.
    `tol` is of errors beside the values; 0 stands for the accuracy of the dtype. RuntimeError where `maxiter` products (10 for each row) do
    not suffice for a search of what is there."""
    a = aslinearoperator(a)
    n = a.shape[0]
    if a.shape[0] != a.shape[1]:
        raise ValueError(f"expected a square matrix (shape: {a.shape})")
    if which not in _MEASURES:
        raise ValueError(f"which must be 'LM','LA' or 'SA' (actual: {which})")
    if not 0 < k < n:
        raise ValueError(f"k must be greater than 0 and less than n (actual: {k})")
    if ncv is not None and ncv <= k:
        raise ValueError(f"ncv must be greater than k (actual: {ncv})")
    size = min(n, max(2 * k, k + 32) if ncv is None else max(ncv, k + _SPARE))
    v, draw = _start(a, n, v0)

    def product(x):
        return tensor(a @ like(None, x)).reshape(-1).to(x.dtype)

    accuracy = _t.finfo(v.dtype).eps
    tol, limit = max(tol, accuracy), 10 * n if maxiter is None else maxiter

    greatest = 0.0

    def close(values, exact=True):
        # What rounding of products leaves is beside the greatest value; eigenvalues are as exact as the square of their vectors.
        nonlocal greatest
        greatest = max(greatest, float(values.abs().max()))
        return (tol * values.abs()).clamp(min=(accuracy if exact else accuracy**0.5) * greatest)

    def search(*how):
        found = _lanczos(product, draw, *how)
        if found is None:
            raise RuntimeError(f"eigsh: {limit} products with the matrix did not suffice")
        return found

    values, rows = search(v, k, size, which, close, limit, _t.zeros(0, n, dtype=v.dtype, device=v.device))
    measure, more = _MEASURES[which], size - k
    while size < n:
        most = float(measure(values[-1])) + size * float(close(values).max())

        def roughly(found, most=most):  # what is less than the kth value even with its error is exact enough
            return close(found, False).maximum(most - measure(found))

        beside = _lanczos(product, draw, draw(), 1, more, which, roughly, limit, rows)
        if beside is None or float(measure(beside[0])) <= most:
            break
        value, row = search(beside[1][0], 1, more, which, close, limit, rows)
        values, rows = _t.cat([values, value]), _t.cat([rows, row])
        first = measure(values).argsort(descending=True)[:k]
        values, rows = values[first], rows[first]
    values, order = values.sort()
    return like(None, values) if not return_eigenvectors else (like(None, values), like(None, rows[order].mT.contiguous()))


def svds(a, k=6, *, ncv=None, tol=0, which="LM", maxiter=None, return_singular_vectors=True):
    """The k greatest singular values in order, between the vectors of both sides: u, s, vh, by the eigenvalues of the smaller of the
    products of the matrix with its adjoint. Values below the root of the accuracy beside the greatest one have few digits."""
    if which != "LM":
        raise ValueError("which must be 'LM': the greatest singular values")
    if isinstance(a, LinearOperator):
        if a.rmatvec is None:
            raise ValueError("svds: the operator has no rmatvec")
        forth, back = a.matvec, a.rmatvec
    else:
        turned = a.T.conj() if a.dtype.kind == "c" else a.T
        forth, back = (lambda x: a @ x), (lambda x: turned @ x)
    m, n = a.shape
    tall = m >= n
    first, second = (forth, back) if tall else (back, forth)
    normal = LinearOperator((min(m, n),) * 2, lambda x: second(first(x)), dtype=a.dtype)
    squares, near = eigsh(normal, k, which="LM", ncv=ncv, tol=tol, maxiter=maxiter)
    s = tensor(squares).clamp(min=0).sqrt()
    if not return_singular_vectors:
        return like(None, s)
    near = tensor(near)
    far = _t.stack([tensor(first(like(None, x.contiguous()))) for x in near.unbind(1)], 1)
    # From the greatest value on: of those that are nothing beside it the far vectors are what is left.
    far, r = _l.qr((far / _t.where(s > 0, s, 1.0)).flip([1]))
    signs = _t.sgn(r.diagonal())
    far = (far * _t.where(signs == 0, 1.0, signs)).flip([1])
    u, v = (far, near) if tall else (near, far)
    return like(None, u.contiguous()), like(None, s), like(None, v.mT.conj().contiguous())


def norm(x, ord=None, axis=None):
    """Frobenius' norm, or that of sums of rows or columns (inf, 1)."""
    if axis is not None or ord not in (None, "fro", 1, float("inf")):
        raise NotImplementedError("norm(): ord is 'fro', 1 or inf, of the whole matrix")
    if ord in (None, "fro"):
        return like(None, x._data.abs().square().sum().sqrt())
    return like(None, tensor(abs(x).sum(axis=0 if ord == 1 else 1)).max())
