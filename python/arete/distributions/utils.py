"""What classes derived from Distribution use: broadcasting, probabilities and their logits, triangles as vectors."""
from __future__ import annotations

import math

from .. import _operators
from .._C import Tensor
from .distribution import broadcast_all, clamp_probs, lazy_property, sum_rightmost as _sum_rightmost  # noqa: F401

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]


def _standard_normal(shape, dtype, device) -> Tensor:
    """Normal numbers of mean 0 and deviation 1."""
    return _operators.randn(shape, dtype=dtype, device=device)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """The probabilities of classes along the last dimension, or of single events."""
    return logits.sigmoid() if is_binary else logits.softmax(-1)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """The logarithms of probabilities, or of their odds; those of 0 and 1 are kept finite.

    >>> arete.distributions.utils.probs_to_logits(arete.tensor([0.5, 0.8808]), is_binary=True)
    tensor([0.0000, 2.0000])
    """
    p = clamp_probs(probs)
    return p.log() - (-p).log1p() if is_binary else p.log()


def _below(n, diag, device):
    return _operators.tril_indices(n, n, diag, device=device)


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements on and below a diagonal of square matrices, row by row.

    >>> arete.distributions.utils.tril_matrix_to_vec(arete.tensor([[1, 2], [3, 4]]))
    tensor([1, 3, 4])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    row, column = _below(n, diag, mat.device)
    return mat[..., row, column]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The square matrices whose elements on and below a diagonal are given, row by row; the others are 0.

    >>> arete.distributions.utils.vec_to_tril_matrix(arete.tensor([1, 3, 4]))
    tensor([[1, 0],
            [3, 4]])
    """
    count = vec.shape[-1]
    # n rows have n (n + 1) / 2 + diag n elements but for |diag| (diag + 1) / 2 which lie outside.
    n = max((math.isqrt((1 + 2 * diag) ** 2 + 4 * abs(diag) * (diag + 1) + 8 * count) - 1 - 2 * diag) // 2, 0)
    row, column = _below(n, diag, vec.device)
    if len(row) != count:
        raise ValueError(f"The size of last dimension is {count} which cannot be expressed as the lower triangular part "
                         "of a square D x D matrix.")
    out = vec.new_zeros(vec.shape[:-1] + (n, n))
    out[..., row, column] = vec
    return out
