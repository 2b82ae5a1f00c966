"""Distributions of loc + scale * z, whose classes say what is known of z."""
from __future__ import annotations

import math

from .. import _operators
from .._operators import Size, finfo
from . import constraints
from .distribution import Distribution

__all__ = ["Cauchy", "Gumbel", "Laplace", "LocationScale", "Normal"]

_EULER = 0.5772156649015329


class LocationScale(Distribution):
    """A distribution of loc + scale * z; `loc` and `scale` broadcast.

    >>> issubclass(arete.distributions.Normal, arete.distributions.location_scale.LocationScale)
    True
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _z_mean, _z_stddev = 0.0, 1.0
    _z_entropy = math.nan

    def __init__(self, loc, scale, validate_args=None):
        self._init(validate_args, loc=loc, scale=scale)

    mean = property(lambda self: self.loc + self._z_mean * self.scale if self._z_mean else self.loc)
    mode = property(lambda self: self.loc)
    stddev = property(lambda self: self._z_stddev * self.scale)
    variance = property(lambda self: self.stddev.square())

    def rsample(self, sample_shape=Size()):
        return self.loc + self.scale * self._z_sample(self.loc.new_empty(self._extended_shape(sample_shape)))

    def _z(self, value):
        return (self._checked(value) - self.loc) / self.scale

    def log_prob(self, value):
        return self._z_log_prob(self._z(value)) - self.scale.log()

    def cdf(self, value):
        return self._z_cdf(self._z(value))

    def icdf(self, value):
        return self.loc + self.scale * self._z_icdf(value)

    def entropy(self):
        return self._z_entropy + self.scale.log()


class Normal(LocationScale):
    """The normal distribution with mean `loc` and standard deviation `scale`, which broadcast.

    >>> d = arete.distributions.Normal(arete.zeros(2), arete.tensor([1.0, 2.0]))
    >>> d.log_prob(arete.zeros(2)), d.cdf(arete.tensor([1.0, 2.0]))
    (tensor([-0.9189, -1.6121]), tensor([0.8413, 0.8413]))
    """

    _z_entropy = 0.5 + 0.5 * math.log(2 * math.pi)

    def _z_sample(self, out):
        return out.normal_()

    def _z_log_prob(self, z):
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi)

    def _z_cdf(self, z):
        return 0.5 * (-z / math.sqrt(2)).erfc()

    def _z_icdf(self, p):
        return math.sqrt(2) * (2 * p - 1).erfinv()


class Laplace(LocationScale):
    """The Laplace distribution with density exp(-|x - loc| / scale) / (2 scale).

    >>> arete.distributions.Laplace(0.0, 1.0).log_prob(arete.tensor([0.0, 2.0]))
    tensor([-0.6931, -2.6931])
    """

    _z_stddev = math.sqrt(2)
    _z_entropy = 1 + math.log(2)

    def _z_sample(self, out):
        return out.exponential_() - _operators.empty_like(out).exponential_()

    def _z_log_prob(self, z):
        return -z.abs() - math.log(2)

    def _z_cdf(self, z):
        return 0.5 - 0.5 * z.sign() * (-z.abs()).expm1()

    def _z_icdf(self, p):
        from_half = p - 0.5
        return -from_half.sign() * (-2 * from_half.abs()).log1p()


class Cauchy(LocationScale):
    """The Cauchy distribution, which has no mean.

    >>> d = arete.distributions.Cauchy(0.0, 1.0)
    >>> d.cdf(arete.tensor(1.0)), d.mean
    (tensor(0.7500), tensor(nan))
    """

    _z_mean, _z_stddev = math.nan, math.inf
    _z_entropy = math.log(4 * math.pi)

    def _z_sample(self, out):
        return out.cauchy_()

    def _z_log_prob(self, z):
        return -math.log(math.pi) - z.square().log1p()

    def _z_cdf(self, z):
        return z.atan() / math.pi + 0.5

    def _z_icdf(self, p):
        return (math.pi * (p - 0.5)).tan()


class Gumbel(LocationScale):
    """The Gumbel distribution, of maxima: its cdf is exp(-exp(-(x - loc) / scale)).

    >>> arete.distributions.Gumbel(1.0, 2.0).mean
    tensor(2.1544)
    """

    _z_mean, _z_stddev = _EULER, math.pi / math.sqrt(6)
    _z_entropy = 1 + _EULER

    def _z_sample(self, out):
        return gumbel_noise(out)

    def _z_log_prob(self, z):
        return -z - (-z).exp()

    def _z_cdf(self, z):
        return (-(-z).exp()).exp()

    def _z_icdf(self, p):
        return -(-p.log()).log()


def gumbel_noise(out):
    """Standard Gumbel numbers in the place of a tensor's.

    >>> arete.distributions.location_scale.gumbel_noise(arete.empty(2, 3)).shape
    arete.Size([2, 3])
    """
    return -out.exponential_().clamp_(min=finfo(out.dtype).tiny).log()
