"""Products of vectors and matrices."""
from __future__ import annotations

from .. import _operators as _t

__all__ = [
    "dot", "matmul", "inner", "outer", "vdot", "tensordot", "einsum", "convolve",
]


def dot(a, b):
    """Inner product over a's last axis and b's last but one."""
    if a.dim() == 0 or b.dim() == 0:
        return a * b
    if b.dim() <= 2:
        return _t.matmul(a, b)
    return _t.tensordot(a, b, ([a.dim() - 1], [b.dim() - 2]))


def matmul(x1, x2):
    return _t.matmul(x1, x2)


def inner(a, b):
    return dot(a, b.transpose(-1, -2) if b.dim() > 1 else b)


def outer(a, b):
    return _t.outer(a.reshape(-1), b.reshape(-1))


def vdot(a, b):
    return _t.dot(a.reshape(-1), b.reshape(-1))


def tensordot(a, b, axes=2):
    return _t.tensordot(a, b, axes)


def einsum(subscripts, *operands):
    return _t.einsum(subscripts, *operands)


def convolve(a, v, mode="full"):
    """The discrete convolution of two vectors."""
    n, k = a.shape[0], v.shape[0]
    if k > n:
        a, v, n, k = v, a, k, n
    full_length = _t.conv1d(a.reshape(1, 1, -1), v.flip((0,)).reshape(1, 1, -1), padding=k - 1).reshape(-1)
    if mode == "full":
        return full_length
    if mode == "same":
        return full_length[(k - 1) // 2:(k - 1) // 2 + n]
    return full_length[k - 1:n]
