"""The distribution of correlation matrices of Lewandowski, Kurowicka and Joe, by their lower factors."""
from __future__ import annotations

import math

from .. import _operators
from .._operators import Size, finfo
from ..nn import functional as F
from . import constraints
from .distribution import Distribution
from .gamma import Beta

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower factors [..., dim, dim] of correlation matrices, whose density is the determinant to the power of
    `concentration` - 1; with 1 all correlation matrices are equally likely. Samples have no gradient.

    >>> d = arete.distributions.LKJCholesky(3, 1.5)
    >>> d.sample((2,)).shape, d.log_prob(arete.eye(3))
    (arete.Size([2, 3, 3]), tensor(-1.0269))
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration=1.0, validate_args=None):
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self._init(validate_args, concentration=concentration)
        self._event_shape = Size((dim, dim))

    def sample(self, sample_shape=Size()):
        """Row by row: the squared length left of the diagonal is a beta number, the direction there uniform."""
        like = self.concentration
        before = _operators.arange(1, self.dim, dtype=like.dtype, device=like.device)
        rest = like.detach().unsqueeze(-1) + (self.dim - 1 - before) / 2
        square = Beta(before / 2, rest, validate_args=False).sample(sample_shape)
        noise = like.new_empty(square.shape + (self.dim - 1,)).normal_().tril()
        noise = noise * (square.sqrt() / noise.square().sum(-1).sqrt()).unsqueeze(-1)
        diagonal = (1 - square).clamp(min=finfo(like.dtype).tiny).sqrt()
        return F.pad(noise, (0, 1, 1, 0)) + F.pad(diagonal, (1, 0), value=1.0).diag_embed()

    def log_prob(self, value):
        n = self.dim - 1
        diagonal = self._checked(value).diagonal(dim1=-2, dim2=-1)[..., 1:]
        # 2 (concentration - 1) of the determinant, and what is left of a row's length for its later elements
        powers = _operators.arange(n - 1, -1, -1, dtype=value.dtype, device=value.device)
        powers = powers + 2 * (self.concentration.unsqueeze(-1) - 1)
        a = self.concentration + n / 2
        scale = n * math.log(math.pi) / 2 + (a - 0.5).mvlgamma(n) - n * a.lgamma()
        return (powers * diagonal.log()).sum(-1) - scale
