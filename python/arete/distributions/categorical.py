"""Counts, classes and other whole numbers. Their samples have no gradient: rsample() is refused with
NotImplementedError, but for the straight-through one."""
from __future__ import annotations

import math

from .. import _operators, special
from .._C import Tensor
from .._grad_mode import no_grad
from .._operators import Size, finfo, where
from ..nn import functional as F
from . import constraints
from .distribution import ByProbs, Distribution, refuse
from .gamma import Gamma, binomial_sample

__all__ = ["Bernoulli", "Binomial", "Categorical", "Geometric", "Multinomial", "NegativeBinomial", "OneHotCategorical",
           "OneHotCategoricalStraightThrough", "Poisson"]


def _cross_entropy(logits, probs):
    """-p log q - (1 - p) log(1 - q), where q has the logits."""
    return F.binary_cross_entropy_with_logits(*_operators.broadcast_tensors(logits, probs), reduction="none")


class Bernoulli(ByProbs):
    """1 with probability `probs`, else 0.

    >>> d = arete.distributions.Bernoulli(arete.tensor([0.25, 0.5]))
    >>> d.log_prob(arete.ones(2)), d.entropy()
    (tensor([-1.3863, -0.6931]), tensor([0.5623, 0.6931]))
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._init_probs(probs, logits, validate_args)

    mean = property(lambda self: self.probs)
    mode = property(lambda self: where(self.probs == 0.5, math.nan, (self.probs > 0.5).to(self.probs.dtype)))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):
        with no_grad():
            return self.probs.expand(self._extended_shape(sample_shape)).bernoulli()

    def log_prob(self, value):
        return -_cross_entropy(self.logits, self._checked(value).to(self.logits.dtype))

    def entropy(self):
        return _cross_entropy(self.logits, self.probs)

    def enumerate_support(self, expand=True):
        return self._enumerated(_operators.arange(2, dtype=self._param.dtype, device=self._param.device), expand)


class Geometric(ByProbs):
    """How many trials fail before the first that succeeds, each with probability `probs`.

    >>> arete.distributions.Geometric(arete.tensor([0.5, 0.25])).log_prob(arete.tensor(1.0))
    tensor([-1.3863, -1.6740])
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._init_probs(probs, logits, validate_args)
        if self._validate_args and probs is not None:
            refuse(self.probs > 0, self.probs, "parameter probs", lambda: f"of distribution {self!r} to be positive")

    mean = property(lambda self: 1 / self.probs - 1)
    mode = property(lambda self: _operators.zeros_like(self.probs))
    variance = property(lambda self: (1 / self.probs - 1) / self.probs)

    def sample(self, sample_shape=Size()):
        with no_grad():
            waited = self.probs.new_empty(self._extended_shape(sample_shape)).exponential_()
            return (-waited / (-self.probs).log1p()).floor()

    def log_prob(self, value):
        return special.xlog1py(self._checked(value).to(self.probs.dtype), -self.probs) + self.probs.log()

    def entropy(self):
        return _cross_entropy(self.logits, self.probs) / self.probs


class Binomial(ByProbs):
    """How many of `total_count` trials succeed, each with probability `probs`; they broadcast.

    >>> d = arete.distributions.Binomial(3, arete.tensor([0.5, 0.25]))
    >>> d.mean, d.log_prob(arete.tensor([3.0, 0.0])).exp()
    (tensor([1.5000, 0.7500]), tensor([0.1250, 0.4219]))
    """

    arg_constraints = {"total_count": constraints.nonnegative_integer, **Bernoulli.arg_constraints}
    has_enumerate_support = True

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        given = probs if logits is None else logits
        dtype = given.dtype if isinstance(given, Tensor) else _operators.get_default_dtype()
        count = total_count.to(dtype) if isinstance(total_count, Tensor) else total_count
        self._init_probs(probs, logits, validate_args, total_count=count)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    mode = property(lambda self: _operators.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count))
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):
        return binomial_sample(self.total_count, self.probs.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        n, k = self.total_count, self._checked(value)
        ways = (n + 1).lgamma() - (k + 1).lgamma() - (n - k + 1).lgamma()
        return ways + k * self.logits - n * F.softplus(self.logits)

    def _all_counts(self, why):
        most = int(self.total_count.max())
        if not (self.total_count == most).all():
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{why}`.")
        return _operators.arange(1 + most, dtype=self._param.dtype, device=self._param.device)

    def entropy(self):
        log_p = Binomial.log_prob(self, self._checked(self._enumerated(self._all_counts("entropy"), False)))
        return -(log_p.exp() * log_p).sum(0)

    def enumerate_support(self, expand=True):
        return self._enumerated(self._all_counts("enumerate_support"), expand)


class NegativeBinomial(ByProbs):
    """How many trials succeed, each with probability `probs`, before `total_count` have failed; they broadcast.

    >>> d = arete.distributions.NegativeBinomial(3, arete.tensor([0.5, 0.25]))
    >>> d.mean, d.log_prob(arete.tensor([0.0, 1.0])).exp()
    (tensor([3.0000, 1.0000]), tensor([0.1250, 0.3164]))
    """

    arg_constraints = {"total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0),
                       "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, total_count, probs=None, logits=None, validate_args=None):
        given = probs if logits is None else logits
        dtype = given.dtype if isinstance(given, Tensor) else _operators.get_default_dtype()
        count = total_count.to(dtype) if isinstance(total_count, Tensor) else total_count
        self._init_probs(probs, logits, validate_args, total_count=count)

    mean = property(lambda self: self.total_count * self.logits.exp())
    mode = property(lambda self: ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0))
    variance = property(lambda self: self.mean / (-self.logits).sigmoid())

    def sample(self, sample_shape=Size()):
        with no_grad():
            rate = Gamma(self.total_count, (-self.logits).exp(), validate_args=False).sample(sample_shape)
            return _operators.poisson(where(self.total_count == 0, 0.0, rate))

    def log_prob(self, value):
        n, k = self.total_count, self._checked(value)
        ways = (n + k).lgamma() - (k + 1).lgamma() - n.lgamma()
        return where(n + k == 0, 0.0, ways) + n * F.logsigmoid(-self.logits) + k * F.logsigmoid(self.logits)


class Poisson(Distribution):
    """How often something happens that happens `rate` times on average.

    >>> arete.distributions.Poisson(2.0).log_prob(arete.tensor([0.0, 1.0]))
    tensor([-2.0000, -1.3069])
    """

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate, validate_args=None):
        self._init(validate_args, rate=rate)

    mean = property(lambda self: self.rate)
    mode = property(lambda self: self.rate.floor())
    variance = property(lambda self: self.rate)

    def sample(self, sample_shape=Size()):
        with no_grad():
            return _operators.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value):
        value = self._checked(value)
        return _operators.xlogy(value, self.rate) - self.rate - (value + 1).lgamma()


class _Classes(ByProbs):
    """What is shared by distributions whose parameters have one number for each class in the last dimension."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _num_events = property(lambda self: self._param.shape[-1])

    def __init__(self, probs=None, logits=None, validate_args=None):
        self._init_probs(probs, logits, validate_args)

    def _draw(self, sample_shape):
        """Classes, of shape sample_shape + batch_shape."""
        shape = Size(sample_shape) + self._batch_shape
        with no_grad():
            rows = self.probs.reshape(-1, self._num_events)
            count = math.prod(sample_shape)
            return _operators.multinomial(rows, count, True).T.reshape(shape)

    def _log_prob_of(self, classes):
        shape = _operators.broadcast_shapes(classes.shape, self._batch_shape)
        logits = self.logits.expand(shape + (self._num_events,))
        return logits.gather(-1, classes.expand(shape).unsqueeze(-1)).squeeze(-1)

    def entropy(self):
        return -(self.probs * self.logits.clamp(min=finfo(self.logits.dtype).min)).sum(-1)


class Categorical(_Classes):
    """One of the classes 0 to k-1; `probs` [..., k], which are divided by their sum, or `logits` [..., k].

    >>> d = arete.distributions.Categorical(arete.tensor([1.0, 1.0, 2.0]))
    >>> d.probs, d.log_prob(arete.tensor([0, 2])), d.sample((2, 5)).shape
    (tensor([0.2500, 0.2500, 0.5000]), tensor([-1.3863, -0.6931]), arete.Size([2, 5]))
    """

    has_enumerate_support = True
    _classes = "batch"

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self):
        return constraints.integer_interval(0, self._num_events - 1)

    mean = property(lambda self: self._param.new_full(self._batch_shape, math.nan))
    mode = property(lambda self: self.probs.argmax(-1))
    variance = property(lambda self: self._param.new_full(self._batch_shape, math.nan))

    def sample(self, sample_shape=Size()):
        return self._draw(sample_shape)

    def log_prob(self, value):
        return self._log_prob_of(self._checked(value).long())

    def enumerate_support(self, expand=True):
        return self._enumerated(_operators.arange(self._num_events, device=self._param.device), expand)


class OneHotCategorical(_Classes):
    """As Categorical, but samples [..., k] are 1 at the class and 0 elsewhere.

    >>> d = arete.distributions.OneHotCategorical(arete.tensor([1.0, 3.0]))
    >>> d.mean, d.log_prob(arete.tensor([0.0, 1.0]))
    (tensor([0.2500, 0.7500]), tensor(-0.2877))
    """

    support = constraints.one_hot
    has_enumerate_support = True
    _classes = "event"

    mean = property(lambda self: self.probs)
    mode = property(lambda self: self._one_hot(self.probs.argmax(-1)))
    variance = property(lambda self: self.probs * (1 - self.probs))

    def _one_hot(self, classes):
        return F.one_hot(classes, self._num_events).to(self._param.dtype)

    def sample(self, sample_shape=Size()):
        return self._one_hot(self._draw(sample_shape))

    def log_prob(self, value):
        return self._log_prob_of(self._checked(value).argmax(-1))

    def enumerate_support(self, expand=True):
        n = self._num_events
        values = _operators.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.reshape((n,) + (1,) * len(self._batch_shape) + (n,))
        return values.expand((n,) + self._batch_shape + (n,)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose rsample() has the gradient of `probs`.

    >>> p = arete.tensor([0.5, 0.5], requires_grad=True)
    >>> x = arete.distributions.OneHotCategoricalStraightThrough(p).rsample()
    >>> (x * arete.tensor([1.0, 3.0])).sum().backward()
    >>> p.grad
    tensor([-1.,  1.])
    """

    has_rsample = True

    def rsample(self, sample_shape=Size()):
        return self.sample(sample_shape) + (self.probs - self.probs.detach())


class Multinomial(_Classes):
    """How often each of k classes is drawn in `total_count` draws; `probs` or `logits` [..., k].

    >>> d = arete.distributions.Multinomial(4, arete.tensor([1.0, 1.0]))
    >>> d.mean, d.sample().sum(), d.log_prob(arete.tensor([2.0, 2.0])).exp()
    (tensor([2., 2.]), tensor(4.), tensor(0.3750))
    """

    _classes = "event"

    def __init__(self, total_count=1, probs=None, logits=None, validate_args=None):
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        super().__init__(probs, logits, validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self):
        return constraints.multinomial(self.total_count)

    mean = property(lambda self: self.total_count * self.probs)
    variance = property(lambda self: self.total_count * self.probs * (1 - self.probs))

    def sample(self, sample_shape=Size()):
        shape = Size(sample_shape)
        draws = self._draw((self.total_count,) + shape).movedim(0, -1)
        return self._param.new_zeros(self._extended_shape(shape)).scatter_add_(
            -1, draws, _operators.ones_like(draws, dtype=self._param.dtype))

    def log_prob(self, value):
        value = self._checked(value)
        chance = where((value == 0) & (self.logits == -math.inf), 0.0, value * self.logits)
        return (value.sum(-1) + 1).lgamma() + (chance - (value + 1).lgamma()).sum(-1)

    def entropy(self):
        n = self.total_count
        counts = _operators.arange(n + 1, dtype=self._param.dtype, device=self._param.device)
        each = Binomial(n, probs=self.probs.unsqueeze(-1), validate_args=False).log_prob(counts).exp()
        return n * super().entropy() - math.lgamma(n + 1) + (each * (counts + 1).lgamma()).sum((-1, -2))
