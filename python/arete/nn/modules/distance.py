"""Distances of pairs of vectors."""

from __future__ import annotations

from ..._C import Tensor
from .. import functional as F
from ._records import layer
from .module import Module

__all__ = ["PairwiseDistance", "CosineSimilarity"]


@layer
class PairwiseDistance(Module):
    """The p-norm of x1 - x2 + eps along the last dimension.

    >>> nn.PairwiseDistance(p=1, eps=0.0)(arete.tensor([[0.0, 0.0]]), arete.tensor([[3.0, 4.0]]))
    tensor([7.])
    """

    __constants__ = ["norm", "eps", "keepdim"]

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


@layer
class CosineSimilarity(Module):
    """x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along `dim`.

    >>> nn.CosineSimilarity()(arete.tensor([[1.0, 0.0]]), arete.tensor([[3.0, 4.0]]))
    tensor([0.6000])
    """


