"""Distributions whose log density is linear in statistics of the sample."""
from __future__ import annotations

from .. import autograd
from .._grad_mode import enable_grad
from .distribution import Distribution, sum_rightmost

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A base of classes with log density <t(x), theta> - A(theta) + k(x): `_natural_params` is the tuple theta,
    `_log_normalizer(*theta)` A and `_mean_carrier_measure` the mean of k. The entropy and the divergence of two
    of one class follow from A and its gradient, the means of the statistics.

    >>> class Waiting(arete.distributions.ExponentialFamily):
    ...     arg_constraints = {}
    ...     _natural_params = (arete.tensor(-2.0),)
    ...     _mean_carrier_measure = 0
    ...     def _log_normalizer(self, theta):
    ...         return -(-theta).log()
    >>> Waiting().entropy(), arete.distributions.Exponential(2.0).entropy()
    (tensor(0.3069), tensor(0.3069))
    """

    @property
    def _natural_params(self) -> tuple:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        raise NotImplementedError

    def _slopes(self):
        """theta, A(theta) and its gradient, with history where the parameters have one."""
        given = self._natural_params
        known = any(p.requires_grad for p in given)
        with enable_grad():
            theta = [p if p.requires_grad else p.detach().requires_grad_() for p in given]
            value = self._log_normalizer(*theta)
            slopes = autograd.grad(value.sum(), theta, create_graph=known)
        return (theta, value, slopes) if known else ([p.detach() for p in given], value.detach(), slopes)

    def entropy(self):
        theta, value, slopes = self._slopes()
        inner = sum(sum_rightmost(t * s, t.dim() - len(self._batch_shape)) for t, s in zip(theta, slopes))
        return value - inner - self._mean_carrier_measure
