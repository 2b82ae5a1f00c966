"""Distributions of other distributions: their transformed samples, several as one, and mixtures."""
from __future__ import annotations

import copy
import math
from typing import List, Union

from .. import _operators
from .._grad_mode import no_grad
from .._operators import Size, where
from . import constraints
from .categorical import Categorical
from .distribution import Distribution, sum_rightmost
from .location_scale import Normal
from .transforms import AbsTransform, ComposeTransform, ExpTransform, StickBreakingTransform, Transform

__all__ = ["HalfNormal", "Independent", "LogNormal", "LogisticNormal", "MixtureSameFamily", "TransformedDistribution"]


class Independent(Distribution):
    """The last `reinterpreted_batch_ndims` batch dimensions of a distribution as dimensions of the event: log_prob()
    is their sum.

    >>> d = arete.distributions.Independent(arete.distributions.Normal(arete.zeros(2, 3), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(arete.zeros(3))
    (arete.Size([2]), arete.Size([3]), tensor([-2.7568, -2.7568]))
    """

    arg_constraints = {}

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args=None):
        count, batch = reinterpreted_batch_ndims, base_distribution.batch_shape
        if count > len(batch):
            raise ValueError("Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                             f"actual {count} vs {len(batch)}")
        self.base_dist, self.reinterpreted_batch_ndims = base_distribution, count
        at = len(batch) - count
        super().__init__(batch[:at], batch[at:] + base_distribution.event_shape, validate_args)

    def expand(self, batch_shape, _instance=None):
        new = copy.copy(self) if _instance is None else _instance
        batch_shape = Size(batch_shape)
        inner = self._event_shape[:self.reinterpreted_batch_ndims]
        new.base_dist, new.reinterpreted_batch_ndims = self.base_dist.expand(batch_shape + inner), len(inner)
        return super().expand(batch_shape, new)

    has_rsample = property(lambda self: self.base_dist.has_rsample)
    has_enumerate_support = property(
        lambda self: self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support)
    mean = property(lambda self: self.base_dist.mean)
    mode = property(lambda self: self.base_dist.mode)
    variance = property(lambda self: self.base_dist.variance)

    @constraints.dependent_property
    def support(self):
        count = self.reinterpreted_batch_ndims
        return constraints.independent(self.base_dist.support, count) if count else self.base_dist.support

    def sample(self, sample_shape=Size()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=Size()):
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self):
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"Independent({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """What transforms make of samples of a distribution; the first transform is applied first.

    >>> base = arete.distributions.Normal(0.0, 1.0)
    >>> d = arete.distributions.TransformedDistribution(base, [arete.distributions.SigmoidTransform()])
    >>> d.log_prob(arete.tensor(0.5)), d.cdf(arete.tensor(0.5))
    (tensor(0.4674), tensor(0.5000))
    """

    arg_constraints = {}

    def __init__(self, base_distribution: Distribution, transforms: Union[Transform, List[Transform]],
                 validate_args=None):
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        if len(shape) < whole.domain.event_dim:
            raise ValueError("base_distribution needs to have shape with size at least "
                             f"{whole.domain.event_dim}, but got {shape}.")
        final = whole.forward_shape(shape)
        first = whole.inverse_shape(final)
        rank = len(base_distribution.event_shape)
        if first != shape:
            base_distribution = base_distribution.expand(first[:len(first) - rank])
        joined = whole.domain.event_dim - rank
        self.base_dist = Independent(base_distribution, joined) if joined > 0 else base_distribution
        at = len(final) - whole.codomain.event_dim - max(-joined, 0)
        super().__init__(final[:at], final[at:], validate_args)

    def expand(self, batch_shape, _instance=None):
        new = copy.copy(self) if _instance is None else _instance
        whole, batch_shape = ComposeTransform(self.transforms), Size(batch_shape)
        first = whole.inverse_shape(batch_shape + self._event_shape)
        new.base_dist = self.base_dist.expand(first[:len(first) - len(self.base_dist.event_shape)])
        new.transforms = self.transforms
        return super().expand(batch_shape, new)

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property
    def support(self):
        if not self.transforms:
            return self.base_dist.support
        end = self.transforms[-1].codomain
        extra = len(self._event_shape) - end.event_dim
        return constraints.independent(end, extra) if extra > 0 else end

    def sample(self, sample_shape=Size()):
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape=Size()):
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x):
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value):
        y, total, rank = self._checked(value), 0.0, len(self._event_shape)
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            rank += transform.domain.event_dim - transform.codomain.event_dim
            total = total - sum_rightmost(transform.log_abs_det_jacobian(x, y), rank - transform.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), rank - len(self.base_dist.event_shape))

    def _below(self, p):
        """A probability of lower values, or the other one, if the transforms fall."""
        sign = math.prod((t.sign for t in self.transforms), start=1)
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value):
        self._checked(value)
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._below(self.base_dist.cdf(value))

    def icdf(self, value):
        return self._forward(self.base_dist.icdf(self._below(value)))

    def __repr__(self):
        return f"{type(self).__name__}()"


class _OfNormal(TransformedDistribution):
    loc = property(lambda self: self.base_dist.loc)
    scale = property(lambda self: self.base_dist.scale)


class LogNormal(_OfNormal):
    """Numbers whose logarithm has the normal distribution of `loc` and `scale`.

    >>> d = arete.distributions.LogNormal(0.0, 1.0)
    >>> d.mean, d.mode, d.log_prob(arete.tensor(1.0))
    (tensor(1.6487), tensor(0.3679), tensor(-0.9189))
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, loc, scale, validate_args=None):
        super().__init__(Normal(loc, scale, validate_args), ExpTransform(), validate_args)

    mean = property(lambda self: (self.loc + self.scale.square() / 2).exp())
    mode = property(lambda self: (self.loc - self.scale.square()).exp())
    variance = property(lambda self: self.scale.square().expm1() * (2 * self.loc + self.scale.square()).exp())

    def entropy(self):
        return self.base_dist.entropy() + self.loc


class HalfNormal(_OfNormal):
    """The absolute value of normal numbers around 0.

    >>> d = arete.distributions.HalfNormal(1.0)
    >>> d.mean, d.cdf(arete.tensor(1.0))
    (tensor(0.7979), tensor(0.6827))
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, scale, validate_args=None):
        super().__init__(Normal(0, scale, validate_args), AbsTransform(), validate_args)

    mean = property(lambda self: self.scale * math.sqrt(2 / math.pi))
    mode = property(lambda self: _operators.zeros_like(self.scale))
    variance = property(lambda self: self.scale.square() * (1 - 2 / math.pi))

    def log_prob(self, value):
        log_p = self.base_dist.log_prob(self._checked(value)) + math.log(2)
        return where(value >= 0, log_p, -math.inf)

    def cdf(self, value):
        return (self._checked(value) / (self.scale * math.sqrt(2))).erf().clamp(min=0)

    def icdf(self, value):
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self):
        return self.base_dist.entropy() - math.log(2)


class LogisticNormal(TransformedDistribution):
    """Simplexes of n + 1 numbers that StickBreakingTransform makes of n normal numbers of `loc` and `scale` [..., n].

    >>> d = arete.distributions.LogisticNormal(arete.zeros(2), arete.ones(2))
    >>> d.event_shape, d.log_prob(arete.ones(3) / 3)
    (arete.Size([3]), tensor(1.4580))
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex
    has_rsample = True
    loc = property(lambda self: self.base_dist.base_dist.loc)
    scale = property(lambda self: self.base_dist.base_dist.scale)

    def __init__(self, loc, scale, validate_args=None):
        base = Normal(loc, scale, validate_args)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args)


class MixtureSameFamily(Distribution):
    """A mixture: the components are the last batch dimension of `component_distribution` [..., k], drawn as the
    classes of `mixture_distribution` [...] are. Samples have no gradient.

    >>> mixture = arete.distributions.Categorical(arete.tensor([1.0, 3.0]))
    >>> d = arete.distributions.MixtureSameFamily(mixture, arete.distributions.Normal(arete.tensor([0.0, 4.0]), 1.0))
    >>> d.mean, d.variance, d.cdf(arete.tensor(2.0))
    (tensor(3.), tensor(4.), tensor(0.2614))
    """

    arg_constraints = {}

    def __init__(self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args=None):
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError("mixture_distribution must be a Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("component_distribution must be a Distribution")
        batch = component_distribution.batch_shape
        for mine, theirs in zip(reversed(mixture_distribution.batch_shape), reversed(batch[:-1])):
            if mine != 1 and theirs != 1 and mine != theirs:
                raise ValueError(f"`mixture_distribution.batch_shape` ({mixture_distribution.batch_shape}) is not "
                                 f"compatible with `component_distribution.batch_shape`({batch[:-1]})")
        count = mixture_distribution._num_events
        if not batch or batch[-1] != count:
            raise ValueError(f"`mixture_distribution component` ({count}) does not equal "
                             f"`component_distribution.batch_shape[-1]` ({batch[-1] if batch else None})")
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    @constraints.dependent_property
    def support(self):
        return constraints.MixtureSameFamilyConstraint(self.component_distribution.support)

    def expand(self, batch_shape, _instance=None):
        new = copy.copy(self) if _instance is None else _instance
        batch_shape, count = Size(batch_shape), self.mixture_distribution._num_events
        new._component_distribution = self.component_distribution.expand(batch_shape + (count,))
        new._mixture_distribution = self.mixture_distribution.expand(batch_shape)
        return super().expand(batch_shape, new)

    def _mean_over_components(self, values):
        """[..., k, *event] to [..., *event]."""
        rank = len(self._event_shape)
        weights = self.mixture_distribution.probs
        return (weights.reshape(weights.shape + (1,) * rank) * values).sum(-1 - rank)

    @property
    def mean(self):
        return self._mean_over_components(self.component_distribution.mean)

    @property
    def variance(self):
        apart = self.component_distribution.mean - self.mean.unsqueeze(-1 - len(self._event_shape))
        return self._mean_over_components(self.component_distribution.variance + apart.square())

    def log_prob(self, value):
        value = self._checked(value).unsqueeze(-1 - len(self._event_shape))
        return (self.component_distribution.log_prob(value) + self.mixture_distribution.logits).logsumexp(-1)

    def cdf(self, value):
        each = self.component_distribution.cdf(self._checked(value).unsqueeze(-1 - len(self._event_shape)))
        return (each * self.mixture_distribution.probs).sum(-1)

    def sample(self, sample_shape=Size()):
        rank, shape = len(self._event_shape), Size(sample_shape) + self._batch_shape
        with no_grad():
            values = self.component_distribution.sample(sample_shape)
            chosen = self.mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            chosen = chosen.reshape(shape + (1,) * (rank + 1)).expand(shape + (1,) + self._event_shape)
            return values.gather(-1 - rank, chosen).squeeze(-1 - rank)

    def __repr__(self):
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
