"""numpy.linalg: factorizations, solvers, norms and products."""
from __future__ import annotations

import builtins as _b
import collections as _collections
import functools as _functools
import math as _math
import operator as _operator

from .. import _C, _operators as _t, linalg as _linalg
from ..linalg import LinAlgError as _Failed
from ._array import axis_of as _axis_of, axes_of as _axes_of, tensor_of as _tensor_of, result as _result, short_way as _short_way
from ._products import matmul, outer as _outer, pair as _pair, tensordot, vecdot
from ._shapes import diagonal as _diagonal, matrix_transpose, trace as _trace
from ._types import OF_TENSOR as _OF_TENSOR, finfo as _finfo

__all__ = [
    "LinAlgError", "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd",
    "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]


class LinAlgError(ValueError):
    """A matrix for which there is no such result."""


EigResult = _collections.namedtuple("EigResult", "eigenvalues eigenvectors")
EighResult = _collections.namedtuple("EighResult", "eigenvalues eigenvectors")
QRResult = _collections.namedtuple("QRResult", "Q R")
SlogdetResult = _collections.namedtuple("SlogdetResult", "sign logabsdet")
SVDResult = _collections.namedtuple("SVDResult", "U S Vh")


def _matrix(a, square=False):
    """A stack of matrices of floating or complex numbers."""
    t = _tensor_of(a)
    if t.dim() < 2:
        raise LinAlgError(f"{t.dim()}-dimensional array given. Array must be at least two-dimensional")
    if square and t.shape[-1] != t.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return _real(t)


def _real(t):
    if t.element_size() == 2 and t.is_floating_point():
        raise TypeError(f"array type {_OF_TENSOR[t.dtype]} is unsupported in linalg")
    return t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)


def _factorized(name, t, *args):
    """What a function of arete.linalg gives; LinAlgError where it fails."""
    try:
        return getattr(_linalg, name)(t, *args)
    except _Failed as e:
        raise LinAlgError(str(e)) from e


def inv(a):
    """The inverse; LinAlgError for a singular matrix."""
    t = _matrix(a, True)
    try:
        return _result(_linalg.inv(t))
    except _Failed as e:
        raise LinAlgError("Singular matrix") from e


def solve(a, b):
    """The x of a @ x = b; b is a vector only where it has one axis."""
    t, y = (_real(v) for v in _pair(a, b))
    _matrix(_result(t), True)
    if not y.dim():
        raise LinAlgError("0-dimensional array given. Array must be at least one-dimensional")
    vector = y.dim() == 1
    y = y.unsqueeze(-1) if vector else y
    if y.shape[-2] != t.shape[-1]:
        name, core = ("solve1", "(m,m),(m)->(m)") if vector else ("solve", "(m,m),(m,n)->(m,n)")
        raise ValueError(f"{name}: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature {core} "
                         f"(size {y.shape[-2]} is different from {t.shape[-1]})")
    shape = _t.broadcast_shapes(t.shape[:-2], y.shape[:-2])
    t, y = t.expand(*shape, *t.shape[-2:]), y.expand(*shape, *y.shape[-2:])
    try:
        r = _linalg.solve(t, y)
    except _Failed as e:
        raise LinAlgError("Singular matrix") from e
    return _result(r.squeeze(-1) if vector else r)


def cholesky(a, /, *, upper=False):
    """The triangular L with L @ L.T = a, or its transpose; of `a` the triangle of that name is read."""
    t = _matrix(a, True)
    try:
        return _result(_factorized("cholesky", t.mH.contiguous()).mH.contiguous() if upper else _factorized("cholesky", t))
    except LinAlgError as e:
        raise LinAlgError("Matrix is not positive definite") from e


def det(a):
    """The determinant."""
    return _result(_factorized("det", _matrix(a, True)))


def slogdet(a):
    """The sign and the logarithm of the determinant."""
    return SlogdetResult(*[_result(v) for v in _factorized("slogdet", _matrix(a, True))])


def qr(a, mode="reduced"):
    """Q and R, whose product is the matrix: reduced, complete, or R alone with 'r'."""
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"Unrecognized mode '{mode}'" if mode != "raw" else "qr(): mode 'raw' gives LAPACK's form, which there is none of")
    r = _factorized("qr", _matrix(a), mode)
    if mode == "r":
        return _result(r[1] if isinstance(r, tuple) else r)
    return QRResult(_result(r[0]), _result(r[1]))


def svd(a, full_matrices=True, compute_uv=True, hermitian=False):
    """U, S and Vh; `hermitian` says that the matrix is its own transpose, which changes nothing but NumPy's way."""
    t = _matrix(a)
    if not compute_uv:
        return _result(_factorized("svdvals", t))
    return SVDResult(*[_result(v) for v in _factorized("svd", t, full_matrices)])


def svdvals(x, /):
    """The singular values."""
    return svd(x, compute_uv=False)


@_functools.cache
def _gives_real():
    """Whether eigenvalues are real where all of them are: as NumPy before 2.5, where it is installed and so old."""
    try:
        import numpy
    except ImportError:
        return False
    return tuple(_b.int(n) for n in numpy.__version__.split(".")[:2]) < (2, 5)


def _real_if_so(t):
    return t.real.contiguous() if not _b.bool((t.imag != 0).any()) else t


def eig(a):
    """Eigenvalues and eigenvectors; real where all of them are, before NumPy 2.5."""
    t = _matrix(a, True)
    _finite(t)
    w, v = _factorized("eig", t)
    real = _gives_real() and not t.is_complex() and not _b.bool((w.imag != 0).any())
    return EigResult(_result(w.real.contiguous() if real else w), _result(v.real.contiguous() if real else v))


def _finite(t):
    if not _b.bool(_t.isfinite(t).all()):
        raise LinAlgError("Array must not contain infs or NaNs")


def eigvals(a):
    """Eigenvalues; real where all of them are, before NumPy 2.5."""
    t = _matrix(a, True)
    _finite(t)
    w = _factorized("eigvals", t)
    return _result(_real_if_so(w) if _gives_real() and not t.is_complex() else w)


def _triangle(UPLO):
    if UPLO.upper() not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    return UPLO.upper()


def eigh(a, UPLO="L"):
    """Eigenvalues and eigenvectors of a symmetric matrix, of which one triangle is read."""
    return EighResult(*[_result(v) for v in _factorized("eigh", _matrix(a, True), _triangle(UPLO))])


def eigvalsh(a, UPLO="L"):
    """Eigenvalues of a symmetric matrix, of which one triangle is read."""
    return _result(_factorized("eigvalsh", _matrix(a, True), _triangle(UPLO)))


def pinv(a, rcond=None, hermitian=False, *, rtol=None):
    """The pseudo-inverse; singular values up to rcond times the greatest count as zero."""
    if rcond is not None and rtol is not None:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    t = _matrix(a)
    limit = rcond if rcond is not None else rtol if rtol is not None else 1e-15 if rtol is None else None
    if t.numel() == 0:
        return _result(_t.empty(tuple(t.shape[:-2]) + (t.shape[-1], t.shape[-2]), dtype=t.dtype, device=t.device))
    u, s, vh = _factorized("svd", t, False)
    limit = _tensor_of(limit).to(s.dtype).to(s.device)
    keep = s > limit.unsqueeze(-1) * s.amax(-1, True) if limit.dim() else s > limit * s.amax(-1, True)
    s = _t.where(keep, 1 / _t.where(keep, s, 1), 0).to(s.dtype)
    return _result(_t.matmul(vh.mH, s.unsqueeze(-1) * u.mH))


def matrix_rank(A, tol=None, hermitian=False, *, rtol=None):
    """How many singular values are greater than the tolerance."""
    if tol is not None and rtol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    t = _tensor_of(A)
    if t.dim() < 2:
        return _result((t != 0).any().to(_C.int64))
    t = _real(t)
    s = _factorized("svdvals", t)
    if tol is None:
        rtol = _b.max(t.shape[-2:]) * float(_finfo(_OF_TENSOR[s.dtype]).eps) if rtol is None else rtol
        tol = s.amax(-1, True) * _tensor_of(rtol).to(s.dtype).unsqueeze(-1)
    else:
        tol = _tensor_of(tol).to(s.dtype).unsqueeze(-1)
    return _result((s > tol).sum(-1))


def lstsq(a, b, rcond=None):
    """The solution with the least squares, their sums, the rank and the singular values."""
    t, y = (_real(v) for v in _pair(a, b))
    if t.dim() != 2:
        raise LinAlgError(f"{t.dim()}-dimensional array given. Array must be two-dimensional")
    if y.shape[0] != t.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    m, n = t.shape
    rcond = float(_finfo(_OF_TENSOR[t.dtype]).eps) * (_b.max(m, n) if rcond is None else 1) if rcond is None or rcond == -1 else rcond
    vector = y.dim() == 1
    y = y.unsqueeze(1) if vector else y
    u, s, vh = _factorized("svd", t, False)
    keep = s > rcond * (s.amax() if s.numel() else 0)
    rank = int(keep.sum())
    inverse = _t.where(keep, 1 / _t.where(keep, s, 1), 0).to(s.dtype)
    x = _t.matmul(vh.mH, inverse.unsqueeze(1) * _t.matmul(u.mH, y))
    rest = _t.zeros(0, dtype=t.dtype, device=t.device)
    if rank == n and m > n:
        d = y - _t.matmul(t, x)
        rest = (d.abs() ** 2).sum(0)
    return _result(x.squeeze(1) if vector else x), _result(rest), rank, _result(s)


def matrix_power(a, n):
    """The matrix times itself n times, or its inverse."""
    t = _tensor_of(a)
    if t.dim() < 2:
        raise LinAlgError(f"{t.dim()}-dimensional array given. Array must be at least two-dimensional")
    if t.shape[-1] != t.shape[-2]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    try:
        n = _operator.index(n)
    except TypeError:
        raise TypeError("exponent must be an integer") from None
    if n < 0:
        t, n = inv(_result(t))._tensor, -n
    r = None
    while n:
        if n & 1:
            r = t if r is None else matmul(_result(r), _result(t))._tensor
        n >>= 1
        t = matmul(_result(t), _result(t))._tensor if n else t
    return _result(r.clone() if r is t else r) if r is not None else _result(
        _t.eye(t.shape[-1], dtype=t.dtype, device=t.device).expand(t.shape).clone())


def multi_dot(arrays, *, out=None):
    """The product of several matrices, in the order with the fewest operations."""
    from ._array import result_into

    ts = [_tensor_of(a) for a in arrays]
    if len(ts) < 2:
        raise ValueError("Expecting at least two arrays.")
    first, last = ts[0].dim() == 1, ts[-1].dim() == 1
    ts[0] = ts[0].unsqueeze(0) if first else ts[0]
    ts[-1] = ts[-1].unsqueeze(1) if last else ts[-1]
    if _b.any(t.dim() != 2 for t in ts):
        raise LinAlgError("multi_dot takes matrices, and vectors at its ends")
    n = len(ts)
    sizes = [t.shape[0] for t in ts] + [ts[-1].shape[1]]
    cost, cut = [[0] * n for _ in range(n)], {}
    for span in range(1, n):
        for i in range(n - span):
            j = i + span
            cost[i][j], cut[i, j] = _b.min((cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))

    def product(i, j):
        return _result(ts[i]) if i == j else matmul(product(i, cut[i, j]), product(cut[i, j] + 1, j))

    r = product(0, n - 1)._tensor
    r = r.squeeze(0) if first else r
    return result_into(r.squeeze(-1) if last else r, out)


def _vector_norm(t, ord, axes, keepdims):
    if ord in (None, 2):
        return _linalg.vector_norm(t, 2, axes, keepdims)
    a = t.abs()
    if ord == _math.inf:
        return a.amax(axes, keepdims)
    if ord == -_math.inf:
        return a.amin(axes, keepdims)
    if ord == 0:
        return (a != 0).sum(axes, keepdims).to(a.dtype)
    if ord == 1:
        return a.sum(axes, keepdims)
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    return (a**ord).sum(axes, keepdims) ** (1 / ord)


def _matrix_norm(t, ord, axes, keepdims):
    rows, columns = axes
    if rows == columns:
        raise ValueError("Duplicate axes given.")
    if ord in (None, "fro", "f"):
        return _linalg.vector_norm(t, 2, axes, keepdims)
    a = t.abs()
    if ord in (1, -1, _math.inf, -_math.inf):
        first, second = (rows, columns) if ord in (1, -1) else (columns, rows)
        sums = a.sum(first, True)
        r = (_t.amax if ord > 0 else _t.amin)(sums, second, True)
    elif ord in (2, -2, "nuc"):
        s = _factorized("svdvals", t.movedim((rows, columns), (-2, -1)))
        r = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
        for x in sorted(axes):
            r = r.unsqueeze(x)
    else:
        raise ValueError("Invalid norm order for matrices.")
    return r if keepdims else r.reshape([s for i, s in enumerate(r.shape) if i not in axes])


@_short_way
def norm(x, ord=None, axis=None, keepdims=False):
    """The norm of vectors or matrices; of all elements where neither `ord` nor `axis` is given."""
    t = _tensor_of(x)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    if axis is None:
        if ord is None or (ord in ("f", "fro") and t.dim() == 2) or (ord == 2 and t.dim() == 1):
            r = _vector_norm(t.reshape(-1), None, 0, False)
            return _result(r.reshape((1,) * t.dim()) if keepdims else r)
        axes = tuple(range(t.dim()))
    else:
        axes = _axes_of(axis, t.dim())
    if len(axes) == 1:
        return _result(_vector_norm(t, ord, axes, keepdims))
    if len(axes) == 2:
        return _result(_matrix_norm(t, ord, axes, keepdims))
    raise ValueError("Improper number of dimensions to norm.")


def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """The norm of vectors along axes, or of all elements."""
    t = _tensor_of(x)
    t = t if t.is_floating_point() or t.is_complex() else t.to(_C.float64)
    axes = _axes_of(axis, t.dim())
    if not axes:
        return _result(t.abs())
    if not t.numel() and ord not in (_math.inf, -_math.inf):
        return _result(t.abs().sum(axes, keepdims))
    return _result(_vector_norm(t, ord, axes, keepdims))


def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """The norm of matrices in the last two axes."""
    t = _matrix(x)
    return _result(_matrix_norm(t, ord, (t.dim() - 2, t.dim() - 1), keepdims))


def cond(x, p=None):
    """The condition number, in a norm."""
    t = _matrix(x)
    if p in (None, 2, -2):
        s = _factorized("svdvals", t)
        return _result(s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0])
    last = (t.dim() - 2, t.dim() - 1)
    return _result(_matrix_norm(t, p, last, False) * _matrix_norm(inv(_result(t))._tensor, p, last, False))


def tensorinv(a, ind=2):
    """The inverse of an array as a map of its last axes to the first `ind`."""
    t = _real(_tensor_of(a))
    if ind <= 0:
        raise ValueError("Invalid ind argument.")
    first, last = tuple(t.shape[:ind]), tuple(t.shape[ind:])
    return _result(inv(_result(t.reshape(_math.prod(first), -1)))._tensor.reshape(last + first))


def tensorsolve(a, b, axes=None):
    """The x whose product with `a` over all axes of x is b."""
    t, y = _real(_tensor_of(a)), _tensor_of(b)
    if axes is not None:
        moved = [_axis_of(x, t.dim()) for x in axes]
        t = t.permute([i for i in range(t.dim()) if i not in moved] + moved)
    shape = tuple(t.shape[y.dim():])
    if _math.prod(shape) != y.numel():
        raise LinAlgError("Input arrays must satisfy the requirement prod(a.shape[b.ndim:]) == prod(a.shape[:b.ndim])")
    return _result(solve(_result(t.reshape(y.numel(), -1)), _result(y.reshape(-1)))._tensor.reshape(shape))


def cross(x1, x2, /, *, axis=-1):
    """The cross product of vectors of three elements."""
    from ._products import cross as product

    a, b = _tensor_of(x1), _tensor_of(x2)
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors")
    return product(_result(a), _result(b), axis=axis)


def outer(x1, x2, /):
    """Each element of a vector times each of another."""
    a, b = _tensor_of(x1), _tensor_of(x2)
    if a.dim() != 1 or b.dim() != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={a.dim()} and x2.ndim={b.dim()}.")
    return _outer(_result(a), _result(b))


def diagonal(x, /, *, offset=0):
    """The diagonals of matrices in the last two axes."""
    return _diagonal(x, offset, -2, -1)


def trace(x, /, *, offset=0, dtype=None):
    """The sums of the diagonals of matrices in the last two axes."""
    return _trace(x, offset, -2, -1, dtype)
