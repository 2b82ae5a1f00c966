"""The gamma distribution and those that are made of it. Samples are drawn as logarithms, which small concentrations do
not underflow, and have the gradient of implicit reparametrization: d x / d a = -(d P(a, x) / d a) / density(x)."""
from __future__ import annotations

import functools
import math

from .. import _operators, special
from .._grad_mode import no_grad
from .._operators import Size, finfo, where
from ..autograd import Function, once_differentiable
from ..nn import functional as F
from . import constraints
from .distribution import Distribution
from .location_scale import LocationScale

__all__ = ["Beta", "Chi2", "Dirichlet", "Gamma", "StudentT"]


def _draw_log_gamma(a):
    """Logarithms of gamma numbers of rate 1 by Marsaglia and Tsang's method: cubes of shifted normal numbers, of which
    some are drawn again. The rounds end when all elements have theirs, which on a GPU waits for it. For a below 1 it is
    one of a + 1 times a power of a uniform number, 1 / a."""
    small = a < 1
    d = where(small, a + 1, a) - 1 / 3
    c = (9 * d).rsqrt()
    result = _operators.full_like(a, math.nan)
    left = (a > 0) & (a < math.inf)
    while left.any():
        z = _operators.randn_like(d)
        y = c * z  # (1 + y)^3 d is the number, and log1p keeps what is precise of y for large d
        log_v = 3 * y.clamp(min=-1 + finfo(d.dtype).eps).log1p()
        bound = z.square() / 2 + d * (log_v - y * (3 + y * (3 + y)))
        taken = left & (y > -1) & (_operators.rand_like(d).log() < bound)
        result = where(taken, d.log() + log_v, result)
        left = left & ~taken
    return where(small, result - _operators.empty_like(a).exponential_() / a, result)


@functools.cache
def _gauss_legendre(count):
    """Nodes and weights of [0, 1]: roots of a Legendre polynomial by Newton's method."""
    nodes, weights = [], []
    for i in range(count):
        x = math.cos(math.pi * (i + 0.75) / (count + 0.5))
        for _ in range(6):
            before, here = 1.0, x
            for n in range(2, count + 1):
                before, here = here, ((2 * n - 1) * x * here - (n - 1) * before) / n
            slope = count * (x * here - before) / (x * x - 1)
            x -= here / slope
        nodes.append((1 + x) / 2)
        weights.append(1 / ((1 - x * x) * slope * slope))
    return nodes, weights


def _slope_of_log_gamma(a, log_x):
    """d log x / d a of each element, in pieces, since there are some 50 numbers for each in between."""
    pieces = (v.reshape(-1).split(1 << 16) for v in (a, log_x))
    return _operators.cat([_slopes(*both) for both in zip(*pieces)]).reshape(a.shape)


def _slopes(a, log_x):
    """d log x / d a in float64. Below 1 by the power series of P, of which 20 terms are enough. Above by an integral
    over t from 0 of exp(a t - x (exp(t) - 1)) (log x + t - digamma(a)), down for that of P or up for that of 1 - P,
    where this keeps its sign, as far as the exponent is above -cut."""
    a, log_x = a.double().unsqueeze(-1), log_x.double().unsqueeze(-1)
    x, psi, cut = log_x.exp(), a.digamma(), 38.0

    k = _operators.arange(20, dtype=a.dtype, device=a.device)
    terms = (where(k == 0, 1.0, x.clamp(max=1.0)) / (a + k)).cumprod(-1)
    series = (terms * ((a + k + 1).digamma() - log_x)).sum(-1)

    down = log_x < psi
    x = x.clamp(min=1.0)
    gap = a - x
    end_down = 4 * cut / ((2 * gap - cut) + ((2 * gap - cut).square() + 8 * a * cut).sqrt())
    end_up = (gap + (gap.square() + 2 * x * cut).sqrt()) / x
    for _ in range(2):  # far above 1 the exponential ends the integral much earlier than a parabola
        end_up = _operators.minimum(end_up, ((cut + a * end_up) / x).log1p())
    nodes, weights = (_operators.tensor(v, dtype=a.dtype, device=a.device) for v in _gauss_legendre(48))
    end = where(down, -end_down, end_up)
    t = end * nodes
    integral = ((a * t - x * t.expm1()).exp() * (log_x + t - psi) * weights).sum(-1) * end.squeeze(-1)
    return where(log_x.squeeze(-1) < 0, series, integral)


class _LogGamma(Function):
    @staticmethod
    def forward(ctx, a):
        log_x = _draw_log_gamma(a)
        ctx.save_for_backward(a, log_x)
        return log_x

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient * _slope_of_log_gamma(*ctx.saved_tensors).to(gradient.dtype)


class _GammaCdf(Function):
    """P(a, x) with both gradients; the operator has that of x."""

    @staticmethod
    def forward(ctx, a, x):
        ctx.save_for_backward(a, x)
        return special.gammainc(a, x)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        a, x = ctx.saved_tensors
        x = x.clamp(min=finfo(x.dtype).tiny)
        log_x = x.log()
        density = gradient * ((a - 1) * log_x - x - a.lgamma()).exp()
        return -density * x * _slope_of_log_gamma(a, log_x).to(x.dtype), density


def log_gamma_sample(concentration):
    """The logarithm of a gamma number of rate 1 for each element, with a gradient."""
    wide = concentration if concentration.dtype in (_operators.float32, _operators.float64) else concentration.float()
    return _LogGamma.apply(wide)


class Gamma(Distribution):
    """The gamma distribution; `concentration` and `rate` broadcast. Gradients of samples are those of implicit
    reparametrization; they have no second derivative.

    >>> d = arete.distributions.Gamma(arete.tensor([1.0, 3.0]), 2.0)
    >>> d.mean, d.log_prob(arete.ones(2))
    (tensor([0.5000, 1.5000]), tensor([-1.3069, -0.6137]))
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True

    def __init__(self, concentration, rate, validate_args=None):
        self._init(validate_args, concentration=concentration, rate=rate)

    mean = property(lambda self: self.concentration / self.rate)
    mode = property(lambda self: ((self.concentration - 1) / self.rate).clamp(min=0))
    variance = property(lambda self: self.concentration / self.rate.square())

    def rsample(self, sample_shape=Size()):
        a = self.concentration.expand(self._extended_shape(sample_shape))
        x = log_gamma_sample(a).exp() / self.rate
        return x.to(a.dtype).clamp(min=finfo(a.dtype).tiny)

    def log_prob(self, value):
        value = _operators.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        self._checked(value)
        a = self.concentration
        return a * self.rate.log() + (a - 1).xlogy(value) - self.rate * value - a.lgamma()

    def cdf(self, value):
        return _GammaCdf.apply(*_operators.broadcast_tensors(self.concentration, self.rate * self._checked(value)))

    def entropy(self):
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Chi2(Gamma):
    """The sum of the squares of `df` standard normal numbers.

    >>> arete.distributions.Chi2(arete.tensor([1.0, 4.0])).variance
    tensor([2., 8.])
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df, validate_args=None):
        self._init(validate_args, df=df)

    concentration = property(lambda self: self.df / 2)
    rate = property(lambda self: self.df.new_full((), 0.5).expand(self.df.shape))


def _sample_dirichlet(concentration, generator=None):
    """Draws of Dirichlet distributions, without their checks."""
    if generator is not None:
        raise NotImplementedError("_sample_dirichlet(): gamma variables are drawn from the program's generator")
    return Dirichlet(concentration, validate_args=False).sample()


class Dirichlet(Distribution):
    """Probabilities of k classes, [..., k] as `concentration` is.

    >>> d = arete.distributions.Dirichlet(arete.tensor([1.0, 2.0, 3.0]))
    >>> d.mean, d.event_shape
    (tensor([0.1667, 0.3333, 0.5000]), arete.Size([3]))
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration, validate_args=None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args)

    _total = property(lambda self: self.concentration.sum(-1, keepdim=True))
    mean = property(lambda self: self.concentration / self._total)

    @property
    def mode(self):
        above = (self.concentration - 1).clamp(min=0)
        corner = F.one_hot(self.concentration.argmax(-1), self.concentration.shape[-1]).to(above.dtype)
        return where((self.concentration < 1).all(-1, keepdim=True), corner, above / above.sum(-1, keepdim=True))

    @property
    def variance(self):
        mean = self.mean
        return mean * (1 - mean) / (self._total + 1)

    def rsample(self, sample_shape=Size()):
        a = self.concentration.expand(self._extended_shape(sample_shape))
        return log_gamma_sample(a).softmax(-1).to(a.dtype).clamp(min=finfo(a.dtype).tiny)

    def log_prob(self, value):
        a = self.concentration
        return ((a - 1).xlogy(self._checked(value)) - a.lgamma()).sum(-1) + a.sum(-1).lgamma()

    def entropy(self):
        a, total = self.concentration, self.concentration.sum(-1)
        k = a.shape[-1]
        return a.lgamma().sum(-1) - total.lgamma() + (total - k) * total.digamma() - ((a - 1) * a.digamma()).sum(-1)


class Beta(Distribution):
    """Probabilities: the first of the two of a Dirichlet distribution; the concentrations broadcast.

    >>> d = arete.distributions.Beta(arete.tensor([1.0, 2.0]), 2.0)
    >>> d.mean, d.mode
    (tensor([0.3333, 0.5000]), tensor([0.0000, 0.5000]))
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1, concentration0, validate_args=None):
        self._init(validate_args, concentration1=concentration1, concentration0=concentration0)

    @property
    def _dirichlet(self):
        return Dirichlet(_operators.stack([self.concentration1, self.concentration0], -1), validate_args=False)

    mean = property(lambda self: self.concentration1 / (self.concentration1 + self.concentration0))
    mode = property(lambda self: self._dirichlet.mode[..., 0])
    variance = property(lambda self: self._dirichlet.variance[..., 0])

    def rsample(self, sample_shape=Size()):
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value):
        a, b = self.concentration1, self.concentration0
        self._checked(value)
        return (a - 1).xlogy(value) + special.xlog1py(b - 1, -value) + (a + b).lgamma() - a.lgamma() - b.lgamma()

    def entropy(self):
        return self._dirichlet.entropy()


class StudentT(LocationScale):
    """Student's distribution of `df` degrees of freedom, moved to `loc` and stretched by `scale`.

    >>> d = arete.distributions.StudentT(arete.tensor([1.0, 3.0]))
    >>> d.mean, d.variance
    (tensor([nan, 0.]), tensor([nan, 3.]))
    """

    arg_constraints = {"df": constraints.positive, **LocationScale.arg_constraints}

    def __init__(self, df, loc=0.0, scale=1.0, validate_args=None):
        self._init(validate_args, df=df, loc=loc, scale=scale)

    mean = property(lambda self: where(self.df > 1, self.loc, math.nan))

    @property
    def variance(self):
        finite = self.df > 2
        value = self.scale.square() * self.df / where(finite, self.df - 2, 1)
        return where(finite, value, where(self.df > 1, math.inf, math.nan))

    stddev = property(lambda self: self.variance.sqrt())

    def _z_sample(self, out):
        half = self.df.expand(out.shape) / 2
        return out.normal_() * ((half.log() - log_gamma_sample(half)) / 2).exp().to(out.dtype)

    def _z_log_prob(self, z):
        half = self.df / 2
        constant = (half + 0.5).lgamma() - half.lgamma() - 0.5 * (math.pi * self.df).log()
        return constant - (half + 0.5) * (z.square() / self.df).log1p()

    def cdf(self, value):
        """Refused: there is no incomplete beta function."""
        raise NotImplementedError("StudentT has no cdf")

    def icdf(self, value):
        raise NotImplementedError("StudentT has no icdf")

    def entropy(self):
        half = self.df / 2
        beta = half.lgamma() + math.lgamma(0.5) - (half + 0.5).lgamma()
        return (half + 0.5) * ((half + 0.5).digamma() - half.digamma()) + 0.5 * self.df.log() + beta + self.scale.log()


def binomial_sample(count, probs):
    """How many of `count` trials succeed, exactly. Large counts are split where one uniform number in the middle of
    the sorted ones is, a beta number: those on its one side are decided, the others are fewer trials of another
    probability."""
    direct = 32
    with no_grad():
        n, p = (v.double() for v in _operators.broadcast_tensors(count, probs))
        found = _operators.zeros_like(n)
        while n.numel() and n.max() > direct:
            large = n > direct
            middle = where(large, ((n + 1) / 2).floor(), 1)
            rest = where(large, n + 1 - middle, 1)
            y = (_draw_log_gamma(middle) - _draw_log_gamma(rest)).sigmoid()
            below = y <= p
            found = found + where(large & below, middle, 0)
            p = where(large, where(below, (p - y) / (1 - y), p / y), p)
            n = where(large, where(below, n - middle, middle - 1), n)
        trial = _operators.arange(direct, device=n.device)
        uniform = _operators.rand(n.shape + (direct,), dtype=n.dtype, device=n.device)
        hits = (uniform < p.unsqueeze(-1)) & (trial < n.unsqueeze(-1))
        return (found + hits.sum(-1)).to(probs.dtype)
