"""Numbers between 0 and 1 that are close to classes for low temperatures, with gradients for their probabilities."""
from __future__ import annotations

import math

from .._operators import Size
from ..nn import functional as F
from . import constraints
from .distribution import ByProbs
from .location_scale import gumbel_noise
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform, SigmoidTransform

__all__ = ["ExpRelaxedCategorical", "LogitRelaxedBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical"]


class LogitRelaxedBernoulli(ByProbs):
    """The logits of RelaxedBernoulli.

    >>> d = arete.distributions.relaxed.LogitRelaxedBernoulli(arete.tensor(2.0), arete.tensor([0.5]))
    >>> d.log_prob(arete.zeros(1))
    tensor([-0.6931])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        self.temperature = temperature
        self._init_probs(probs, logits, validate_args)

    def rsample(self, sample_shape=Size()):
        noise = [gumbel_noise(self._param.new_empty(self._extended_shape(sample_shape))) for _ in range(2)]
        return (self.logits + noise[0] - noise[1]) / self.temperature

    def log_prob(self, value):
        apart = self.logits - self._checked(value) * self.temperature
        return _log(self.temperature) + apart - 2 * F.softplus(apart)


class ExpRelaxedCategorical(ByProbs):
    """The logarithms of RelaxedOneHotCategorical's samples.

    >>> d = arete.distributions.relaxed.ExpRelaxedCategorical(arete.tensor(0.5), arete.tensor([0.3, 0.7]))
    >>> d.rsample().logsumexp(-1).abs() < 1e-5
    tensor(True)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True
    _classes = "event"
    __init__ = LogitRelaxedBernoulli.__init__

    def rsample(self, sample_shape=Size()):
        noise = gumbel_noise(self._param.new_empty(self._extended_shape(sample_shape)))
        return ((self.logits + noise) / self.temperature).log_softmax(-1)

    def log_prob(self, value):
        count = self._event_shape[0]
        scores = (self.logits - self._checked(value) * self.temperature).log_softmax(-1)
        return scores.sum(-1) + math.lgamma(count) + (count - 1) * _log(self.temperature)


def _log(temperature):
    return math.log(temperature) if isinstance(temperature, (int, float)) else temperature.log()


class _Relaxed(TransformedDistribution):
    has_rsample = True
    temperature = property(lambda self: self.base_dist.temperature)
    logits = property(lambda self: self.base_dist.logits)
    probs = property(lambda self: self.base_dist.probs)


class RelaxedBernoulli(_Relaxed):
    """Numbers between 0 and 1, the closer to one of them the lower the temperature.

    >>> d = arete.distributions.RelaxedBernoulli(arete.tensor(0.5), arete.tensor([0.3]))
    >>> d.log_prob(arete.tensor([0.2]))
    tensor([-0.2528])
    """

    arg_constraints = LogitRelaxedBernoulli.arg_constraints
    support = constraints.unit_interval

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = LogitRelaxedBernoulli(temperature, probs, logits, validate_args)
        super().__init__(base, SigmoidTransform(), validate_args)


class RelaxedOneHotCategorical(_Relaxed):
    """Points of a simplex [..., k], the closer to a corner the lower the temperature.

    >>> d = arete.distributions.RelaxedOneHotCategorical(arete.tensor(0.5), arete.tensor([0.3, 0.7]))
    >>> d.log_prob(arete.tensor([0.2, 0.8]))
    tensor(-0.2528)
    """

    arg_constraints = ExpRelaxedCategorical.arg_constraints
    support = constraints.simplex

    def __init__(self, temperature, probs=None, logits=None, validate_args=None):
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args)
        super().__init__(base, ExpTransform(), validate_args)
