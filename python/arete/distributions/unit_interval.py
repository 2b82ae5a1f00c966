"""Distributions of numbers between 0 and 1."""
from __future__ import annotations

import math

from .. import _operators
from .._operators import Size, where
from . import constraints
from .distribution import ByProbs, clamp_probs
from .exp_family import ExponentialFamily
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform

__all__ = ["ContinuousBernoulli", "Kumaraswamy"]

_EULER = 0.5772156649015329


class ContinuousBernoulli(ByProbs, ExponentialFamily):
    """Numbers x of [0, 1] whose density is in proportion to probs^x (1 - probs)^(1 - x), of `probs` or their `logits`.
    Where `probs` are within `lims`, series are used, since 1/2 is a removable singularity.

    >>> d = arete.distributions.ContinuousBernoulli(arete.tensor([0.5, 0.9]))
    >>> d.mean, d.cdf(arete.tensor(0.5))
    (tensor([0.5000, 0.6699]), tensor([0.5000, 0.2500]))
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        self._lims = lims
        self._init_probs(probs, logits, validate_args)
        if logits is None:
            self.probs = clamp_probs(self.probs)

    # With t = logits the density is exp(t x - A(t)), A(t) = log((exp(t) - 1) / t), whose slopes are mean and variance.

    _natural_params = property(lambda self: (self.logits,))

    def _split(self, t):
        """Whether t is within the limits, and t or another number there."""
        near = (t > math.log(self._lims[0] / (1 - self._lims[0]))) & (t <= math.log(self._lims[1] / (1 - self._lims[1])))
        return near, where(near, 1.0, t)

    def _log_normalizer(self, t):
        near, far = self._split(t)
        square = t.square()
        size = far.abs()
        return where(near, t / 2 + square / 24 - square.square() / 2880,
                     far.clamp(min=0) + (-(-size).expm1()).log() - size.log())

    @property
    def mean(self):
        t = self.logits
        near, far = self._split(t)
        return where(near, 0.5 + t / 12 - t * t.square() / 720, -1 / (-far).expm1() - 1 / far)

    @property
    def variance(self):
        near, far = self._split(self.logits)
        square, part = self.logits.square(), (-far.abs()).expm1()
        return where(near, 1 / 12 - square / 240 + square.square() / 6048,
                     far.square().reciprocal() - (1 + part) / part.square())

    def rsample(self, sample_shape=Size()):
        return self.icdf(self._param.new_empty(self._extended_shape(sample_shape)).uniform_())

    def log_prob(self, value):
        return self.logits * self._checked(value) - self._log_normalizer(self.logits)

    def entropy(self):
        return self._log_normalizer(self.logits) - self.logits * self.mean

    def _from_falling(self, p, far, near):
        """A function of values and -|t|, made for densities that fall: those that rise are seen from 1."""
        t = self.logits
        small = t.abs() < 1e-5
        size = where(small, 1.0, t.abs())
        found = far(where(t > 0, 1 - p, p), -size)
        return where(small, p + near * t * p * (1 - p) / 2, where(t > 0, 1 - found, found))

    def cdf(self, value):
        return self._from_falling(self._checked(value).clamp(0, 1), lambda x, t: (t * x).expm1() / t.expm1(), -1)

    def icdf(self, value):
        return self._from_falling(value, lambda p, t: (p * t.expm1()).log1p() / t, 1)


class Kumaraswamy(TransformedDistribution):
    """Numbers x of [0, 1] of which (1 - x^concentration1)^concentration0 are larger: nearly a beta distribution, with a
    distribution function in closed form.

    >>> d = arete.distributions.Kumaraswamy(2.0, arete.tensor([1.0, 3.0]))
    >>> d.mean, d.cdf(arete.tensor(0.5))
    (tensor([0.6667, 0.4571]), tensor([0.2500, 0.5781]))
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self._init(validate_args, concentration1=concentration1, concentration0=concentration0)
        zeros = _operators.zeros_like(self.concentration0)
        steps = [PowerTransform(self.concentration0.reciprocal()), AffineTransform(1.0, -1.0),
                 PowerTransform(self.concentration1.reciprocal())]
        super().__init__(Uniform(zeros, zeros + 1, validate_args=False), steps, validate_args)

    def _moment(self, n):
        a, b = self.concentration1, self.concentration0
        return b * ((1 + n / a).lgamma() + b.lgamma() - (1 + n / a + b).lgamma()).exp()

    mean = property(lambda self: self._moment(1))
    variance = property(lambda self: self._moment(2) - self.mean.square())

    @property
    def mode(self):
        a, b = self.concentration1, self.concentration0
        inside = (a >= 1) & (b >= 1) & (a * b > 1)
        return where(inside, ((a - 1) / (a * b - 1)).pow(a.reciprocal()), math.nan)

    def entropy(self):
        a, b = self.concentration1, self.concentration0
        harmonic = (b + 1).digamma() + _EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
