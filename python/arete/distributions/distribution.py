"""What all distributions share: shapes, validation, expansion, and parameters that are computed from others when asked
for."""
from __future__ import annotations

import copy
from numbers import Number
from typing import Optional

from .. import _C, _operators
from .._C import Tensor
from .._grad_mode import enable_grad, no_grad
from .._operators import Size, finfo
from . import constraints

__all__ = ["Distribution"]


class Distribution:
    """Samples have the shape sample_shape + batch_shape + event_shape, their log_prob sample_shape + batch_shape.

    >>> d = arete.distributions.Normal(arete.zeros(2), 1.0)
    >>> d.batch_shape, d.event_shape, d.sample((3,)).shape
    (arete.Size([2]), arete.Size([]), arete.Size([3, 2]))
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__

    def __init__(self, batch_shape=Size(), event_shape=Size(), validate_args: Optional[bool] = None):
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if not self._validate_args:
            return
        try:
            expected = self.arg_constraints
        except NotImplementedError:
            expected = {}
        for name, constraint in expected.items():
            if name in self.__dict__ and not constraints.is_dependent(constraint):
                value = self.__dict__[name]
                refuse(constraint.check(value), value, f"parameter {name}",
                       lambda: f"of distribution {self!r} to satisfy the constraint {constraint!r}")  # noqa: B023 -- called at once

    def _init(self, validate_args, **parameters):
        """__init__ of distributions of numbers: their parameters broadcast."""
        self.__dict__.update(zip(parameters, broadcast_all(*parameters.values())))
        Distribution.__init__(self, self.__dict__[next(iter(parameters))].shape, validate_args=validate_args)

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether arguments are checked where `validate_args` does not say."""
        if value not in (True, False):
            raise ValueError("validate_args is True or False")
        Distribution._validate_args = value

    batch_shape = property(lambda self: self._batch_shape, doc="The shape of independent distributions.")
    event_shape = property(lambda self: self._event_shape, doc="The shape of one sample.")

    @property
    def arg_constraints(self):
        """What the parameters have to satisfy, by their names."""
        raise NotImplementedError

    @property
    def support(self):
        """What samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError

    @property
    def variance(self) -> Tensor:
        raise NotImplementedError

    @property
    def mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def stddev(self) -> Tensor:
        return self.variance.sqrt()

    def expand(self, batch_shape, _instance=None):
        """The same distribution with a larger batch shape; parameters are views, not checked again."""
        new = copy.copy(self) if _instance is None else _instance
        new.__dict__.update({**self.__dict__, **new.__dict__})
        batch_shape = Size(batch_shape)
        for name, constraint in self.arg_constraints.items():
            if name in self.__dict__:
                value = self.__dict__[name]
                new.__dict__[name] = value.expand(batch_shape + value.shape[value.dim() - constraint.event_dim:])
        new._batch_shape, new._event_shape, new._validate_args = batch_shape, self._event_shape, self._validate_args
        return new

    def _get_checked_instance(self, cls, _instance=None):
        return type(self).__new__(type(self)) if _instance is None else _instance

    def sample(self, sample_shape=Size()) -> Tensor:
        """Samples without a gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=Size()) -> Tensor:
        """Samples with gradients for the parameters, where `has_rsample`; NotImplementedError elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} has no differentiable samples")

    def sample_n(self, n: int) -> Tensor:
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density or probability."""
        raise NotImplementedError

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of samples that are at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Tensor) -> Tensor:
        """The inverse of cdf()."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values in a new first dimension; with `expand=False` the batch dimensions have size 1."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        raise NotImplementedError

    def perplexity(self) -> Tensor:
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=Size()) -> Size:
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _enumerated(self, values, expand):
        values = values.reshape((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + self._batch_shape) if expand else values

    def _validate_sample(self, value) -> None:
        """ValueError for what is no tensor, has another event shape, does not broadcast or is outside the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = value.dim() - len(self._event_shape)
        if value.shape[max(start, 0):] != self._event_shape:
            raise ValueError("The right-most size of value must match event_shape: "
                             f"{value.shape} vs {self._event_shape}.")
        expected = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError("Value is not broadcastable with batch_shape+event_shape: "
                                 f"{value.shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            return
        refuse(support.check(value), value, "value argument",
               lambda: f"to be within the support ({support!r}) of the distribution {self!r}")

    def _checked(self, value):
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self):
        found = [(name, self.__dict__[name]) for name in self.arg_constraints if name in self.__dict__]
        shown = (f"{name}: {(v.item() if v.dim() == 0 else v) if _C._all_values(v).numel() == 1 else v.shape}" for name, v in found)
        return f"{type(self).__name__}({', '.join(shown)})"


def refuse(valid, value, what, rule):
    """ValueError, if not all are valid, under vmap those of all elements. `rule()`: which they break."""
    if not _C._all_values(valid).all():
        raise ValueError(f"Expected {what} ({type(value).__name__} of shape {tuple(value.shape)}) {rule()}, "
                         f"but found invalid values:\n{value}")


class lazy_property:
    """An attribute that is computed when it is first asked for, with its history even within no_grad()."""

    def __init__(self, function):
        self.function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance, owner=None):
        if instance is None:
            return self
        with enable_grad():
            value = self.function(instance)
        instance.__dict__[self.function.__name__] = value
        return value


def broadcast_all(*values):
    """Tensors of one shape; numbers take dtype and device of the first tensor, or the default ones."""
    if not all(isinstance(v, (Tensor, Number)) for v in values):
        raise ValueError("Input arguments must all be instances of Number or Tensor")
    first = next((v for v in values if isinstance(v, Tensor)), None)
    dtype = _operators.get_default_dtype() if first is None else first.dtype
    device = None if first is None else first.device
    return _operators.broadcast_tensors(
        *(v if isinstance(v, Tensor) else _operators.tensor(v, dtype=dtype, device=device) for v in values))


def sum_rightmost(value, count: int):
    """The sum over the last `count` dimensions."""
    return value if count == 0 else value.flatten(-count).sum(-1) if value.dim() >= count else value.sum()


def clamp_probs(probs):
    """Probabilities that have a logarithm: at least eps and at most 1 - eps."""
    eps = finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


class ByProbs(Distribution):
    """Distributions that are given `probs` or `logits`, and compute the other one when it is asked for.

    >>> arete.distributions.Bernoulli(logits=arete.tensor([0.0, 1.0])).probs
    tensor([0.5000, 0.7311])
    """

    _classes = False  # whether the last dimension has the probabilities of classes

    def _init_probs(self, probs, logits, validate_args, **others):
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        name, given = ("logits", logits) if probs is None else ("probs", probs)
        if not self._classes:
            return self._init(validate_args, **{name: given}, **others)
        if given.dim() < 1:
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        given = given / given.sum(-1, keepdim=True) if logits is None else given - given.logsumexp(-1, keepdim=True)
        self.__dict__[name] = given
        event = given.shape[-1:] if self._classes == "event" else ()
        Distribution.__init__(self, given.shape[:-1], event, validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        p = clamp_probs(self.probs)
        return p.log() if self._classes else p.log() - (-p).log1p()

    @lazy_property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1) if self._classes else self.logits.sigmoid()

    @property
    def _param(self):
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    param_shape = property(lambda self: self._param.shape)

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)
