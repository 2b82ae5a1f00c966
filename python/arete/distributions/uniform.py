"""Uniform and exponential distributions."""
from __future__ import annotations

import math

from .. import _operators
from .._operators import Size
from . import constraints
from .distribution import Distribution

__all__ = ["Exponential", "Uniform"]


class Uniform(Distribution):
    """Numbers of [low, high) with the same density; the bounds broadcast.

    >>> d = arete.distributions.Uniform(arete.tensor([0.0, 1.0]), 2.0)
    >>> d.mean, d.log_prob(arete.tensor(1.5))
    (tensor([1.0000, 1.5000]), tensor([-0.6931,  0.0000]))
    """

    has_rsample = True

    def __init__(self, low, high, validate_args=None):
        self._init(validate_args, low=low, high=high)

    @property
    def arg_constraints(self):
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.interval(self.low, self.high)

    mean = property(lambda self: (self.low + self.high) / 2)
    mode = property(lambda self: math.nan * self.high)
    stddev = property(lambda self: (self.high - self.low) / math.sqrt(12))
    variance = property(lambda self: (self.high - self.low).square() / 12)

    def rsample(self, sample_shape=Size()):
        return self.low + (self.high - self.low) * self.low.new_empty(self._extended_shape(sample_shape)).uniform_()

    def log_prob(self, value):
        inside = (self._checked(value) >= self.low) & (value < self.high)
        return _operators.where(inside, 0.0, -math.inf) - (self.high - self.low).log()

    def cdf(self, value):
        return ((self._checked(value) - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value):
        return self.low + (self.high - self.low) * value

    def entropy(self):
        return (self.high - self.low).log()


class Exponential(Distribution):
    """Times between events that happen `rate` times per unit of time.

    >>> d = arete.distributions.Exponential(2.0)
    >>> d.mean, d.cdf(arete.tensor(0.5))
    (tensor(0.5000), tensor(0.6321))
    """

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, rate, validate_args=None):
        self._init(validate_args, rate=rate)

    mean = property(lambda self: self.rate.reciprocal())
    mode = property(lambda self: _operators.zeros_like(self.rate))
    stddev = property(lambda self: self.rate.reciprocal())
    variance = property(lambda self: self.rate.pow(-2))

    def rsample(self, sample_shape=Size()):
        return self.rate.new_empty(self._extended_shape(sample_shape)).exponential_() / self.rate

    def log_prob(self, value):
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value):
        return -(-self.rate * self._checked(value)).expm1()

    def icdf(self, value):
        return -(-value).log1p() / self.rate

    def entropy(self):
        return 1 - self.rate.log()
