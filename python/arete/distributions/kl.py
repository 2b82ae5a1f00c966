"""KL(p || q), the mean of log p - log q over samples of p, in closed form."""
from __future__ import annotations

import math
import warnings
from typing import Callable

from .. import _operators
from .._operators import where
from .categorical import Bernoulli, Binomial, Categorical, Geometric, OneHotCategorical, Poisson
from .distribution import Distribution, sum_rightmost
from .exp_family import ExponentialFamily
from .gamma import Beta, Dirichlet, Gamma
from .location_scale import Cauchy, Gumbel, Laplace, Normal
from .multivariate_normal import LowRankMultivariateNormal, MultivariateNormal
from .tails import Pareto
from .transformed_distribution import HalfNormal, Independent, TransformedDistribution
from .uniform import Exponential, Uniform
from .unit_interval import ContinuousBernoulli

__all__ = ["kl_divergence", "register_kl"]

_RULES = {}
_FOUND = {}
_KL_REGISTRY = _RULES  # as torch names it


def register_kl(type_p: type, type_q: type) -> Callable:
    """Makes a function of two distributions the one that kl_divergence() takes for these classes and those derived
    from them; they need not be distributions.

    >>> class Mine(arete.distributions.Normal):
    ...     pass
    >>> @arete.distributions.register_kl(Mine, Mine)
    ... def _(p, q):
    ...     return arete.zeros(())
    >>> arete.distributions.kl_divergence(Mine(0.0, 1.0), Mine(5.0, 1.0))
    tensor(0.)
    """
    for cls in (type_p, type_q):
        if not isinstance(cls, type):
            raise TypeError(f"Expected type_p and type_q to be classes but got {cls}")

    def register(function):
        _RULES[type_p, type_q] = function
        _FOUND.clear()
        return function

    return register


def _rule(p, q):
    """The function of the nearest classes, seen from p; where the nearest from q is another, there is a warning."""
    if (p, q) not in _FOUND:
        near = {pair: (p.__mro__.index(pair[0]), q.__mro__.index(pair[1])) for pair in _RULES
                if issubclass(p, pair[0]) and issubclass(q, pair[1])}
        left = min(near, key=near.get, default=None)
        right = min(near, key=lambda pair: near[pair][::-1], default=None)
        if left != right and _RULES[left] is not _RULES[right]:
            warnings.warn(f"Ambiguous kl_divergence({p.__name__}, {q.__name__}): register_kl({left[0].__name__}, "
                          f"{right[1].__name__}) would decide", RuntimeWarning, stacklevel=3)
        _FOUND[p, q] = _RULES.get(left)
    return _FOUND[p, q]


def kl_divergence(p: Distribution, q: Distribution):
    """KL(p || q) of the broadcast batch shapes. NotImplementedError where no function is registered.

    >>> Normal = arete.distributions.Normal
    >>> arete.distributions.kl_divergence(Normal(arete.tensor([0.0, 1.0]), 1.0), Normal(0.0, 1.0))
    tensor([0.0000, 0.5000])
    """
    rule = _rule(type(p), type(q))
    if rule is None:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} "
                                  f"and q type {type(q).__name__}")
    return rule(p, q)


def _only_if(finite, value):
    return where(finite, value, math.inf)


def _logit_gap(p, q):
    """p log(p / q) + (1 - p) log((1 - p) / (1 - q)) of success probabilities, also 0 and 1."""
    a, b = p.probs, q.probs
    return a.xlogy(a) - a.xlogy(b) + (1 - a).xlogy(1 - a) - (1 - a).xlogy(1 - b)


@register_kl(Bernoulli, Bernoulli)
def _(p, q):
    return _logit_gap(p, q)


@register_kl(Geometric, Geometric)
def _(p, q):
    return _logit_gap(p, q) / p.probs


@register_kl(Binomial, Binomial)
def _(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    return _only_if(p.total_count <= q.total_count, p.total_count * _logit_gap(p, q))


@register_kl(Poisson, Poisson)
def _(p, q):
    return p.rate.xlogy(p.rate) - p.rate.xlogy(q.rate) - p.rate + q.rate


@register_kl(Categorical, Categorical)
@register_kl(OneHotCategorical, OneHotCategorical)
def _(p, q):
    each = p.probs * (p.logits - q.logits)
    each = where(q.probs == 0, math.inf, each)
    return where(p.probs == 0, 0.0, each).sum(-1)


@register_kl(Uniform, Uniform)
def _(p, q):
    return _only_if((q.low <= p.low) & (q.high >= p.high), (q.high - q.low).log() - (p.high - p.low).log())


@register_kl(Exponential, Exponential)
def _(p, q):
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(Gamma, Gamma)
def _(p, q):
    a, b = p.concentration, q.concentration
    return (b * (p.rate.log() - q.rate.log()) + b.lgamma() - a.lgamma() + (a - b) * a.digamma()
            + a * (q.rate / p.rate - 1))


@register_kl(Dirichlet, Dirichlet)
def _(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    return (total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
            + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1))


@register_kl(Beta, Beta)
def _(p, q):
    return kl_divergence(p._dirichlet, q._dirichlet)


@register_kl(Normal, Normal)
def _(p, q):
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _(p, q):
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _(p, q):
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return ratio * (-apart / p.scale).exp() + apart / q.scale - ratio.log() - 1


@register_kl(Cauchy, Cauchy)
def _(p, q):
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _(p, q):
    ratio, apart = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -ratio.log() + p._z_mean * (ratio - 1) + apart + (ratio + 1).lgamma().sub(apart).exp() - 1


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, MultivariateNormal)
def _(p, q):
    if p.event_shape != q.event_shape:
        raise ValueError("Vectors of different sizes have no KL divergence")
    batch = _operators.broadcast_shapes(p.batch_shape, q.batch_shape)
    columns = p._root.expand(batch + p._root.shape[-2:]).movedim(-1, 0)
    spread = q._quadratic(columns).sum(0)
    apart = q._quadratic((q.loc - p.loc).expand(batch + p.event_shape))
    return q.half_log_det - p.half_log_det + 0.5 * (spread + apart - p.event_shape[0])


@register_kl(Pareto, Pareto)
def _(p, q):
    ratio = q.alpha / p.alpha
    return _only_if(p.scale >= q.scale, q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1)


@register_kl(ExponentialFamily, ExponentialFamily)
def _(p, q):
    if type(p) is not type(q):
        raise NotImplementedError(f"{type(p).__name__} and {type(q).__name__} are different exponential families")
    theta, value, slopes = p._slopes()
    total = q._log_normalizer(*q._natural_params) - value
    for mine, other, slope in zip(theta, q._natural_params, slopes):
        total = total - sum_rightmost((other - mine) * slope, len(q.event_shape))
    return total


@register_kl(Independent, Independent)
def _(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    inner = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(inner, len(p.event_shape) - len(p.base_dist.event_shape))


# Where log q is a polynomial, KL is its mean under p, which the moments give, and p's entropy.

def _to_normal(p, q):
    moment = p.variance + (p.mean - q.loc).square()
    return 0.5 * (2 * math.pi * q.variance).log() + moment / (2 * q.variance) - p.entropy()


def _to_exponential(p, q):
    return q.rate * p.mean - q.rate.log() - p.entropy()


def _to_gamma(mean_log):
    def rule(p, q):
        b = q.concentration
        return b.lgamma() - b * q.rate.log() - (b - 1) * mean_log(p) + q.rate * p.mean - p.entropy()
    return rule


def _log_of_beta(p):
    return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()


def _to_infinity(p, q):
    shape = _operators.broadcast_shapes(p.batch_shape, q.batch_shape)
    return p.mean.new_full(shape, math.inf)


def _where_positive(rule):
    return lambda p, q: _only_if(p.low >= 0, rule(p, q))


def _to_continuous_bernoulli(p, q):
    return q._log_normalizer(q.logits) - q.logits * p.mean - p.entropy()


for _p in (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform):
    register_kl(_p, Normal)(_to_normal)
for _p in (Beta, ContinuousBernoulli, Gamma, Pareto):
    register_kl(_p, Exponential)(_to_exponential)
for _p in (Beta, ContinuousBernoulli):
    register_kl(_p, ContinuousBernoulli)(_to_continuous_bernoulli)
register_kl(Uniform, Exponential)(_where_positive(_to_exponential))
register_kl(Beta, Gamma)(_to_gamma(_log_of_beta))
register_kl(Pareto, Gamma)(_to_gamma(lambda p: p.scale.log() + p.alpha.reciprocal()))
register_kl(Exponential, Gamma)(_to_gamma(lambda p: p.rate.new_full((), -Gumbel._z_mean) - p.rate.log()))
for _p, _q in [(p, q) for p in (Gumbel, Laplace, Normal)
               for q in (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)] + [
        (p, q) for p in (Exponential, Gamma) for q in (Beta, ContinuousBernoulli, Pareto, Uniform)] + [
        (Beta, Pareto), (ContinuousBernoulli, Pareto), (Pareto, Beta), (Pareto, ContinuousBernoulli),
        (Pareto, Uniform), (Poisson, Bernoulli), (Poisson, Binomial)]:
    register_kl(_p, _q)(_to_infinity)


@register_kl(Uniform, ContinuousBernoulli)
def _(p, q):
    return _only_if((p.low >= 0) & (p.high <= 1), _to_continuous_bernoulli(p, q))


@register_kl(ContinuousBernoulli, Uniform)
@register_kl(Beta, Uniform)
def _(p, q):
    return _only_if((q.low <= 0) & (q.high >= 1), (q.high - q.low).log() - p.entropy())


def _mean_log(low, high):
    """The mean of log x between two bounds, which are not negative."""
    return (high.xlogy(high) - low.xlogy(low)) / (high - low) - 1


@register_kl(Uniform, Pareto)
def _(p, q):
    value = ((q.alpha + 1) * _mean_log(p.low.clamp(min=0), p.high) - q.alpha.log() - q.alpha * q.scale.log()
             - p.entropy())
    return _only_if(p.low >= q.scale, value)


register_kl(Uniform, Gamma)(_where_positive(_to_gamma(lambda p: _mean_log(p.low.clamp(min=0), p.high))))


@register_kl(Uniform, Beta)
def _(p, q):
    low, high = p.low.clamp(0, 1), p.high.clamp(0, 1)
    a, b = q.concentration1, q.concentration0
    value = (a.lgamma() + b.lgamma() - (a + b).lgamma() - (a - 1) * _mean_log(low, high)
             - (b - 1) * _mean_log(1 - high, 1 - low) - p.entropy())
    return _only_if((p.low >= 0) & (p.high <= 1), value)


@register_kl(Normal, Laplace)
def _(p, q):
    z = (p.loc - q.loc) / p.scale
    apart = p.scale * (math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp() + z * (z / math.sqrt(2)).erf())
    return (2 * q.scale).log() + apart / q.scale - p.entropy()


def _to_gumbel(mean_exp):
    """log q is -z - exp(-z), whose second mean is p's moment generating function."""
    def rule(p, q):
        return q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * mean_exp(p, q.scale) - p.entropy()
    return rule


register_kl(Normal, Gumbel)(_to_gumbel(lambda p, s: (-p.loc / s + 0.5 * (p.scale / s).square()).exp()))
register_kl(Exponential, Gumbel)(_to_gumbel(lambda p, s: p.rate * s / (p.rate * s + 1)))
register_kl(Gamma, Gumbel)(_to_gumbel(lambda p, s: (p.rate * s / (p.rate * s + 1)).pow(p.concentration)))
register_kl(Uniform, Gumbel)(_to_gumbel(lambda p, s: ((-p.low / s).exp() - (-p.high / s).exp()) * s / (p.high - p.low)))


@register_kl(Bernoulli, Poisson)
def _(p, q):
    return q.rate - p.entropy() - p.probs * q.rate.log()
