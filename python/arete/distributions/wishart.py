"""Wishart's distribution of covariance matrices."""
from __future__ import annotations

import math

from .. import _operators, linalg
from .._C import Tensor
from .._operators import Size, finfo, where
from . import constraints
from .gamma import Chi2
from .multivariate_normal import OfMatrix

__all__ = ["Wishart"]


class Wishart(OfMatrix):
    """Sums of x x^T of `df` normal vectors x of mean 0 and one of `covariance_matrix`, `precision_matrix` (its inverse)
    and `scale_tril` (its lower factor), each [..., n, n]. `df` is a number or [...], larger than n - 1.

    >>> d = arete.distributions.Wishart(4.0, arete.eye(2))
    >>> d.mean, d.variance, d.log_prob(arete.eye(2))
    (tensor([[4., 0.],
            [0., 4.]]), tensor([[8., 4.],
            [4., 8.]]), tensor(-4.2242))
    """

    support = constraints.positive_definite
    has_rsample = True

    def __init__(self, df, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        batch, name, matrix = self._set_matrix(
            {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix, "scale_tril": scale_tril},
            df.shape if isinstance(df, Tensor) else ())
        df = df if isinstance(df, Tensor) else matrix.new_full((), df)
        n = matrix.shape[-1]
        if (df <= n - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {n - 1}.")
        self.df = df.expand(batch)
        super().__init__(batch, matrix.shape[-2:], validate_args)
        self._factorize(name, matrix)

    @property
    def arg_constraints(self):
        return {"covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
                "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self._event_shape[-1] - 1)}

    _df = property(lambda self: self.df[..., None, None])
    mean = property(lambda self: self._df * self.covariance_matrix)

    @property
    def mode(self):
        factor = self._df - self._event_shape[-1] - 1
        return where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self):
        diagonal = self.covariance_matrix.diagonal(dim1=-2, dim2=-1)
        return self._df * (self.covariance_matrix.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape=Size()):
        """Bartlett's: the lower factor of a sample for the unit matrix has independent elements."""
        n = self._event_shape[-1]
        df = self.df.unsqueeze(-1) - _operators.arange(n, dtype=self.df.dtype, device=self.df.device)
        squares = Chi2(df, validate_args=False).rsample(sample_shape)
        noise = self.df.new_empty(self._extended_shape(sample_shape)).normal_().tril(-1)
        root = self._unbroadcasted_scale_tril @ (noise + squares.clamp(min=finfo(squares.dtype).tiny).sqrt().diag_embed())
        return root @ root.mT

    @property
    def _log_scale(self):
        """Half the logarithm of the determinant of twice the covariance."""
        return self._event_shape[-1] * math.log(2) / 2 + self.half_log_det

    def log_prob(self, value):
        n = self._event_shape[-1]
        volume = linalg.slogdet(self._checked(value)).logabsdet
        trace = (self.precision_matrix * value).sum((-2, -1))
        return ((self.df - n - 1) * volume - trace) / 2 - self.df * self._log_scale - (self.df / 2).mvlgamma(n)

    def entropy(self):
        n = self._event_shape[-1]
        slopes = (self.df.unsqueeze(-1) - _operators.arange(n, dtype=self.df.dtype, device=self.df.device)) / 2
        return ((n + 1) * self._log_scale + (self.df / 2).mvlgamma(n)
                - (self.df - n - 1) / 2 * slopes.digamma().sum(-1) + n * self.df / 2)
