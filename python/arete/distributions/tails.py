"""Positive numbers with long tails: powers and quotients of exponential, gamma and Cauchy numbers."""
from __future__ import annotations

import math

from .. import _operators
from .._operators import Size, finfo, where
from . import constraints
from .distribution import Distribution
from .gamma import Gamma

__all__ = ["FisherSnedecor", "GeneralizedPareto", "HalfCauchy", "InverseGamma", "Pareto", "Weibull"]

_EULER = 0.5772156649015329


class HalfCauchy(Distribution):
    """The absolute value of Cauchy numbers around 0.

    >>> d = arete.distributions.HalfCauchy(1.0)
    >>> d.cdf(arete.tensor(1.0)), d.mean
    (tensor(0.5000), tensor(inf))
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale, validate_args=None):
        self._init(validate_args, scale=scale)

    mean = variance = property(lambda self: _operators.full_like(self.scale, math.inf))
    mode = property(lambda self: _operators.zeros_like(self.scale))

    def rsample(self, sample_shape=Size()):
        return self.scale * self.scale.new_empty(self._extended_shape(sample_shape)).cauchy_().abs()

    def log_prob(self, value):
        log_p = math.log(2 / math.pi) - self.scale.log() - (self._checked(value) / self.scale).square().log1p()
        return where(value >= 0, log_p, -math.inf)

    def cdf(self, value):
        return (self._checked(value) / self.scale).atan() * (2 / math.pi)

    def icdf(self, value):
        return self.scale * (value * (math.pi / 2)).tan()

    def entropy(self):
        return (2 * math.pi * self.scale).log()


class Pareto(Distribution):
    """Numbers from `scale` on, of which (scale / x)^alpha are larger than x.

    >>> d = arete.distributions.Pareto(1.0, arete.tensor([2.0, 4.0]))
    >>> d.mean, d.cdf(arete.tensor(2.0))
    (tensor([2.0000, 1.3333]), tensor([0.7500, 0.9375]))
    """

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}
    has_rsample = True

    def __init__(self, scale, alpha, validate_args=None):
        self._init(validate_args, scale=scale, alpha=alpha)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.greater_than_eq(self.scale)

    mode = property(lambda self: self.scale)

    @property
    def mean(self):
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def variance(self):
        a = self.alpha.clamp(min=2)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    def rsample(self, sample_shape=Size()):
        return self.scale * (self.alpha.new_empty(self._extended_shape(sample_shape)).exponential_() / self.alpha).exp()

    def log_prob(self, value):
        return self.alpha.log() + self.alpha * self.scale.log() - (self.alpha + 1) * self._checked(value).log()

    def cdf(self, value):
        return 1 - (self.scale / self._checked(value)).pow(self.alpha)

    def icdf(self, value):
        return self.scale * (1 - value).pow(-1 / self.alpha)

    def entropy(self):
        return (self.scale / self.alpha).log() + 1 + self.alpha.reciprocal()


class GeneralizedPareto(Distribution):
    """What exceeds a high threshold `loc`: exponential numbers for `concentration` 0, longer tails above, and an end at
    loc - scale / concentration below 0.

    >>> d = arete.distributions.GeneralizedPareto(0.0, 1.0, arete.tensor([0.0, 0.5, -1.0]))
    >>> d.mean, d.cdf(arete.tensor(0.5))
    (tensor([1.0000, 2.0000, 0.5000]), tensor([0.3935, 0.3600, 0.5000]))
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc, scale, concentration, validate_args=None):
        self._init(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        c = self.concentration
        return constraints.interval(self.loc, where(c < 0, self.loc - self.scale / c, math.inf))

    mode = property(lambda self: self.loc)

    @property
    def mean(self):
        c = self.concentration
        return where(c < 1, self.loc + self.scale / (1 - where(c < 1, c, 0.0)), math.nan)

    @property
    def variance(self):
        c = self.concentration
        low = where(c < 0.5, c, 0.0)
        return where(c < 0.5, self.scale.square() / ((1 - low).square() * (1 - 2 * low)), math.nan)

    def _of(self, x, function):
        """A function of x and the concentration; for 0 with the slope that a series x + c x^2 / 2 has."""
        zero = self.concentration.abs() <= 1e-8
        return where(zero, x + self.concentration * x.square() / 2, function(x, where(zero, 1.0, self.concentration)))

    def rsample(self, sample_shape=Size()):
        return self.icdf(self.loc.new_empty(self._extended_shape(sample_shape)).uniform_())

    def log_survival_function(self, value):
        """The logarithm of the probability of larger values."""
        z = (self._checked(value) - self.loc) / self.scale
        return self._of(-z, lambda x, c: -(-c * x).log1p() / c)

    def log_prob(self, value):
        above, steeper = self.log_survival_function(value), 1 + self.concentration
        # At a concentration of -1 the density is the same everywhere, also at the end.
        return steeper * where((steeper == 0) & above.isinf(), 0.0, above) - self.scale.log()

    def log_cdf(self, value):
        return (-self.log_survival_function(value).expm1()).log()

    def cdf(self, value):
        return -self.log_survival_function(value).expm1()

    def icdf(self, value):
        return self.loc + self.scale * self._of(-(-value).log1p(), lambda x, c: (c * x).expm1() / c)

    def entropy(self):
        return self.scale.log() + self.concentration + 1


class Weibull(Distribution):
    """Numbers whose power with exponent `concentration`, over `scale`, is exponential: times until something wears out.

    >>> d = arete.distributions.Weibull(2.0, arete.tensor([1.0, 2.0]))
    >>> d.mean, d.cdf(arete.tensor(2.0))
    (tensor([2.0000, 1.7725]), tensor([0.6321, 0.6321]))
    """

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, scale, concentration, validate_args=None):
        self._init(validate_args, scale=scale, concentration=concentration)

    _root = property(lambda self: self.concentration.reciprocal())
    mean = property(lambda self: self.scale * (1 + self._root).lgamma().exp())
    mode = property(lambda self: self.scale * ((self.concentration - 1) / self.concentration).pow(self._root))
    variance = property(
        lambda self: self.scale.square() * ((1 + 2 * self._root).lgamma().exp() - (2 * (1 + self._root).lgamma()).exp()))

    def rsample(self, sample_shape=Size()):
        return self.scale * self.scale.new_empty(self._extended_shape(sample_shape)).exponential_().pow(self._root)

    def log_prob(self, value):
        part = self._checked(value) / self.scale
        return (self.concentration / self.scale).log() + (self.concentration - 1) * part.log() - part.pow(self.concentration)

    def cdf(self, value):
        return -(-(self._checked(value) / self.scale).pow(self.concentration)).expm1()

    def icdf(self, value):
        return self.scale * (-(-value).log1p()).pow(self._root)

    def entropy(self):
        return _EULER * (1 - self._root) + (self.scale * self._root).log() + 1


class InverseGamma(Distribution):
    """The reciprocals of gamma numbers.

    >>> d = arete.distributions.InverseGamma(arete.tensor([2.0, 4.0]), 3.0)
    >>> d.mean, d.mode
    (tensor([3., 1.]), tensor([1.0000, 0.6000]))
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, concentration, rate, validate_args=None):
        self._init(validate_args, concentration=concentration, rate=rate)

    _gamma = property(lambda self: Gamma(self.concentration, self.rate, validate_args=False))
    mode = property(lambda self: self.rate / (self.concentration + 1))

    @property
    def mean(self):
        return where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def variance(self):
        c = self.concentration
        return where(c > 2, self.rate.square() / ((c - 1).square() * (c - 2)), math.inf)

    def rsample(self, sample_shape=Size()):
        return self._gamma.rsample(sample_shape).reciprocal()

    def log_prob(self, value):
        c, value = self.concentration, self._checked(value)
        return c * self.rate.log() - c.lgamma() - (c + 1) * value.log() - self.rate / value

    def cdf(self, value):
        return 1 - self._gamma.cdf(self._checked(value).reciprocal())

    def entropy(self):
        c = self.concentration
        return c + self.rate.log() + c.lgamma() - (1 + c) * c.digamma()


class FisherSnedecor(Distribution):
    """The quotient of two means of squares, of `df1` and of `df2` standard normal numbers.

    >>> d = arete.distributions.FisherSnedecor(3.0, arete.tensor([4.0, 6.0]))
    >>> d.mean, d.log_prob(arete.tensor(1.0))
    (tensor([2.0000, 1.5000]), tensor([-1.0684, -0.9829]))
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1, df2, validate_args=None):
        self._init(validate_args, df1=df1, df2=df2)

    @property
    def mean(self):
        n = where(self.df2 <= 2, math.nan, self.df2)
        return n / (n - 2)

    @property
    def mode(self):
        return where(self.df1 <= 2, math.nan, (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2))

    @property
    def variance(self):
        m, n = self.df1, where(self.df2 <= 4, math.nan, self.df2)
        return 2 * n.square() * (m + n - 2) / (m * (n - 2).square() * (n - 4))

    def rsample(self, sample_shape=Size()):
        upper, lower = (Gamma(n / 2, n / 2, validate_args=False).rsample(sample_shape) for n in (self.df1, self.df2))
        tiny = finfo(lower.dtype).tiny
        return (upper / lower.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value):
        a, b, quotient, value = self.df1 / 2, self.df2 / 2, self.df1 / self.df2, self._checked(value)
        scale = (a + b).lgamma() - a.lgamma() - b.lgamma()
        return scale + a * quotient.log() + (a - 1) * value.log() - (a + b) * (quotient * value).log1p()
