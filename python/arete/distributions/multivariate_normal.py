"""The normal distribution of vectors."""
from __future__ import annotations

import math

from .. import _operators, linalg
from .._operators import Size
from . import constraints
from .distribution import Distribution, lazy_property

__all__ = ["MultivariateNormal"]


def tril_of_precision(precision):
    """The lower factor of the inverse of a positive definite matrix, without that inverse: the factor of the matrix
    that is reversed in both dimensions gives an upper one, whose inverse is transposed."""
    upper = linalg.cholesky(precision.flip(-2, -1)).flip(-2, -1)
    eye = _operators.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return linalg.solve_triangular(upper, eye.expand(precision.shape), upper=True).mT


class MultivariateNormal(Distribution):
    """Normal vectors: mean `loc` [..., n] and one of `covariance_matrix`, `precision_matrix` (its inverse) and
    `scale_tril` (its lower factor), each [..., n, n].

    >>> d = arete.distributions.MultivariateNormal(arete.zeros(2), arete.tensor([[4.0, 2.0], [2.0, 2.0]]))
    >>> d.scale_tril, d.log_prob(arete.zeros(2))
    (tensor([[2., 0.],
            [1., 1.]]), tensor(-2.5310))
    """

    arg_constraints = {"loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
                       "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky}
    support = constraints.real_vector
    has_rsample = True

    def __init__(self, loc, covariance_matrix=None, precision_matrix=None, scale_tril=None, validate_args=None):
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        matrices = {"covariance_matrix": covariance_matrix, "precision_matrix": precision_matrix,
                    "scale_tril": scale_tril}
        given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
        if len(given) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (name, matrix), = given
        if matrix.dim() < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = _operators.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self.loc = loc.expand(batch + (-1,))
        self.__dict__[name] = matrix.expand(batch + (-1, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args)
        # Of the batch that the matrix was given with; it broadcasts to the others.
        self._tril = matrix if name == "scale_tril" else (
            linalg.cholesky(matrix) if name == "covariance_matrix" else tril_of_precision(matrix))

    def _whole(self, matrix):
        return matrix.expand(self._batch_shape + (-1, -1))

    @lazy_property
    def scale_tril(self):
        return self._whole(self._tril)

    @lazy_property
    def covariance_matrix(self):
        return self._whole(self._tril @ self._tril.mT)

    @lazy_property
    def precision_matrix(self):
        return self._whole(_operators.cholesky_inverse(self._tril))

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: self._tril.square().sum(-1).expand(self.loc.shape))

    def rsample(self, sample_shape=Size()):
        noise = self.loc.new_empty(self._extended_shape(sample_shape)).normal_()
        return self.loc + (self._tril @ noise.unsqueeze(-1)).squeeze(-1)

    def log_prob(self, value):
        apart = self._checked(value) - self.loc
        constant = 0.5 * self._event_shape[0] * math.log(2 * math.pi) + self.half_log_det
        return -0.5 * squared_distance(self._tril, apart) - constant

    @property
    def half_log_det(self):
        return self._tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def entropy(self):
        value = 0.5 * self._event_shape[0] * (1 + math.log(2 * math.pi)) + self.half_log_det
        return value.expand(self._batch_shape)


def squared_distance(tril, apart):
    """|L^-1 x|^2 of vectors [..., n] with factors [..., n, n]; vectors of one factor are solved together."""
    columns = apart.reshape((-1,) + apart.shape[apart.dim() - tril.dim() + 1:]).movedim(0, -1)
    squares = linalg.solve_triangular(tril, columns, upper=False).square().sum(-2)
    return squares.movedim(-1, 0).reshape(apart.shape[:-1])
