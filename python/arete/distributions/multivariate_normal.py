"""The normal distribution of vectors, and what distributions with a covariance matrix share."""
from __future__ import annotations

import math

from .. import _operators, linalg
from .._operators import Size
from . import constraints
from .distribution import Distribution, lazy_property

__all__ = ["LowRankMultivariateNormal", "MultivariateNormal", "OfMatrix"]


def tril_of_precision(precision):
    """The lower factor of the inverse of a positive definite matrix, without that inverse: the factor of the matrix
    that is reversed in both dimensions gives an upper one, whose inverse is transposed."""
    upper = linalg.cholesky(precision.flip(-2, -1)).flip(-2, -1)
    eye = _operators.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return linalg.solve_triangular(upper, eye.expand(precision.shape), upper=True).mT


class OfMatrix(Distribution):
    """A distribution that is given one of `covariance_matrix`, `precision_matrix` (its inverse) and `scale_tril` (its
    lower factor), each [..., n, n], and computes the others when they are asked for."""

    def _set_matrix(self, matrices, batch):
        """Keeps the one matrix that is not None, and returns the batch shape that it and the other parameter have."""
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (name, matrix), = given
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = _operators.broadcast_shapes(matrix.shape[:-2], batch)
        self.__dict__[name] = matrix.expand(batch + (-1, -1))
        return batch, name, matrix

    def _factorize(self, name, matrix):
        # Of the batch that the matrix was given with; it broadcasts to the others.
        self._unbroadcasted_scale_tril = matrix if name == "scale_tril" else (
            linalg.cholesky(matrix) if name == "covariance_matrix" else tril_of_precision(matrix))

    def _whole(self, matrix):
        return matrix.expand(self._batch_shape + (-1, -1))

    @lazy_property
    def scale_tril(self):
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        return self._whole(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self):
        return self._whole(_operators.cholesky_inverse(self._unbroadcasted_scale_tril))

    @property
    def half_log_det(self):
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


class _Vectors(Distribution):
    """Normal vectors of any covariance: classes say what `half_log_det` is, `_quadratic` (x^T C^-1 x of vectors
    [..., *batch, n]) and `_root`, whose product with its transpose is the covariance."""

    support = constraints.real_vector
    has_rsample = True
    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)

    def log_prob(self, value):
        apart = self._checked(value) - self.loc
        constant = 0.5 * self._event_shape[0] * math.log(2 * math.pi) + self.half_log_det
        return -0.5 * self._quadratic(apart) - constant

    def entropy(self):
        value = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self.half_log_det
        return value.expand(self._batch_shape)


class MultivariateNormal(OfMatrix, _Vectors):
    """Normal vectors: mean `loc` [..., n] and one of `covariance_matrix`, `precision_matrix` (its inverse) and
    `scale_tril` (its lower factor), each [..., n, n].

    >>> d = arete.distributions.MultivariateNormal(arete.zeros(2), arete.tensor([[4.0, 2.0], [2.0, 2.0]]))
    >>> d.scale_tril, d.log_prob(arete.zeros(2))
    (tensor([[2., 0.],
            [1., 1.]]), tensor(-2.5310))
    """

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        batch, name, matrix = self._set_matrix({"covariance_matrix": covariance_matrix, "scale_tril": scale_tril,
                                                "precision_matrix": precision_matrix}, loc.shape[:-1])
        self.loc = loc.expand(batch + (-1,))
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        self._factorize(name, matrix)

    _root = property(lambda self: self._unbroadcasted_scale_tril)
    variance = property(lambda self: self._unbroadcasted_scale_tril.square().sum(-1).expand(self.loc.shape))

    def rsample(self, sample_shape=Size()):
        noise = self.loc.new_empty(self._extended_shape(sample_shape)).normal_()
        return self.loc + (self._unbroadcasted_scale_tril @ noise.unsqueeze(-1)).squeeze(-1)

    def _quadratic(self, apart):
        return squared_distance(self._unbroadcasted_scale_tril, apart)


class LowRankMultivariateNormal(_Vectors):
    """Normal vectors: mean `loc` [..., n], covariance cov_factor cov_factor^T + diag(cov_diag) of `cov_factor`
    [..., n, k] and `cov_diag` [..., n]. Densities and draws take O(n k^2) operations instead of O(n^3).

    >>> d = arete.distributions.LowRankMultivariateNormal(arete.zeros(2), arete.tensor([[1.0], [1.0]]), arete.ones(2))
    >>> d.covariance_matrix, d.log_prob(arete.zeros(2))
    (tensor([[2., 1.],
            [1., 2.]]), tensor(-2.3872))
    """

    arg_constraints = {"loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
                       "cov_diag": constraints.independent(constraints.positive, 1)}

    def __init__(self, loc, cov_factor, cov_diag, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = _operators.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, "
                             f"cov_diag {cov_diag.shape}") from error
        self.loc, self.cov_diag = loc.expand(batch + (-1,)), cov_diag.expand(batch + (-1,))
        self.cov_factor = cov_factor.expand(batch + (-1, -1))
        super().__init__(batch, event, validate_args)
        # Of the batch that they were given with, as the factor of I + W^T D^-1 W, which broadcasts to the others.
        self._factor, self._diag = cov_factor, cov_diag
        self._over_diag = cov_factor / cov_diag.unsqueeze(-1)
        inner = self._over_diag.mT @ cov_factor
        self._unbroadcasted_scale_tril = linalg.cholesky(inner + _operators.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device))

    variance = property(lambda self: (self._factor.square().sum(-1) + self._diag).expand(self.loc.shape))

    _whole = MultivariateNormal._whole

    @lazy_property
    def covariance_matrix(self):
        return self._whole(self._factor @ self._factor.mT + self._diag.diag_embed())

    @lazy_property
    def scale_tril(self):
        return linalg.cholesky(self.covariance_matrix)

    @lazy_property
    def precision_matrix(self):
        part = linalg.solve_triangular(self._unbroadcasted_scale_tril, self._over_diag.mT, upper=False)
        return self._whole(self._diag.reciprocal().diag_embed() - part.mT @ part)

    @property
    def half_log_det(self):
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1) + 0.5 * self._diag.log().sum(-1)

    @property
    def _root(self):
        return _operators.cat([self.cov_factor, self.cov_diag.sqrt().diag_embed()], -1)

    def _quadratic(self, apart):
        inner = (apart.unsqueeze(-2) @ self._over_diag).squeeze(-2)
        return (apart.square() / self._diag).sum(-1) - squared_distance(self._unbroadcasted_scale_tril, inner)

    def rsample(self, sample_shape=Size()):
        shape = self._extended_shape(sample_shape)
        few = self.loc.new_empty(shape[:-1] + (self._factor.shape[-1], 1)).normal_()
        each = self.loc.new_empty(shape).normal_()
        return self.loc + (self._factor @ few).squeeze(-1) + self._diag.sqrt() * each


def squared_distance(tril, apart):
    """|L^-1 x|^2 of vectors [..., n] with factors [..., n, n]; vectors of one factor are solved together."""
    columns = apart.reshape((-1,) + apart.shape[apart.dim() - tril.dim() + 1:]).movedim(0, -1)
    squares = linalg.solve_triangular(tril, columns, upper=False).square().sum(-2)
    return squares.movedim(-1, 0).reshape(apart.shape[:-1])
