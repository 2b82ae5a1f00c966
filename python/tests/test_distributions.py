"""Distributions beside PyTorch's: densities, moments, entropies, supports and their gradients; what is refused."""
import copy
import importlib
import inspect
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from distribution_cases import (CASES, both, both_or_neither, close, compare, matrix, positive, precision_of, theirs, torch,
                                unit, values_of)

import arete
from arete import distributions as ours


@pytest.fixture(autouse=True)
def doubles():
    """PyTorch's GeneralizedPareto compares with a number of the default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", sorted(CASES))
def test_log_prob(name):
    d, leaves, values, peers = both(name)
    values = values_of(d, values)
    other, other_leaves = peers()
    x, y = arete.tensor(values), torch.tensor(values)
    if values.dtype == np.float64 and d.has_rsample:
        x.requires_grad_()
        y.requires_grad_()
    compare(d.log_prob(x), leaves + [x] * x.requires_grad, other.log_prob(y), other_leaves + [y] * y.requires_grad,
            **precision_of(name))
    assert d.log_prob(x).shape == arete.broadcast_shapes(x.shape[:x.dim() - len(d.event_shape)], d.batch_shape)


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("what", ["mean", "variance", "stddev", "mode", "entropy", "perplexity"])
def test_moments(name, what):
    d, leaves, _, peers = both(name)
    other, other_leaves = peers()

    def ask(distribution):
        value = getattr(distribution, what)
        return value() if callable(value) else value

    if (pair := both_or_neither(lambda: ask(d), lambda: ask(other))) is None:
        return
    if name == "Multinomial":  # PyTorch's has the precision of float32
        close(*pair, rtol=1e-7)
    elif (name, what) == ("Kumaraswamy", "mode"):  # PyTorch's is the logarithm of a negative number
        assert pair[1].isnan().any()
    elif what == "mode" or not pair[1].requires_grad:
        close(*pair)
    else:
        compare(pair[0], leaves, pair[1], other_leaves, **precision_of(name))


@pytest.mark.parametrize("name", sorted(CASES))
def test_cdf(name):
    d, leaves, values, peers = both(name)
    other, other_leaves = peers()
    values = values_of(d, values)
    if name in ("Gamma", "Chi2", "InverseGamma"):  # which have no gradient for the concentration
        close(d.cdf(arete.tensor(values)), other.cdf(torch.tensor(values)))
        return
    if name == "RelaxedOneHotCategorical" or (pair := both_or_neither(
            lambda: d.cdf(arete.tensor(values)), lambda: other.cdf(torch.tensor(values)))) is None:
        return
    compare(pair[0], leaves, pair[1], other_leaves)
    p = unit(*pair[0].shape)
    if (pair := both_or_neither(lambda: d.icdf(arete.tensor(p)), lambda: other.icdf(torch.tensor(p)))) is not None:
        compare(pair[0], leaves, pair[1], other_leaves)
        close(d.cdf(pair[0]), arete.tensor(p), rtol=1e-8)


@pytest.mark.parametrize("name", sorted(CASES))
def test_shapes(name):
    d, _, _, peers = both(name)
    other = peers()[0]
    assert tuple(d.batch_shape) == tuple(other.batch_shape) and tuple(d.event_shape) == tuple(other.event_shape)
    assert (d.has_rsample, d.has_enumerate_support) == (other.has_rsample, other.has_enumerate_support)
    assert d.support.event_dim == other.support.event_dim and d.support.is_discrete == other.support.is_discrete
    for shape in ((), (5,), (2, 3)):
        x = d.sample(shape)
        assert x.shape == shape + d.batch_shape + d.event_shape
        assert not x.requires_grad and x.dtype == (arete.int64 if name.startswith("Categorical") else arete.float64)
        assert d.support.check(x).all()
    if d.has_rsample:
        assert d.rsample((2,)).requires_grad and d.rsample((2,)).shape == d.sample((2,)).shape
    else:
        with pytest.raises(NotImplementedError):
            d.rsample()


@pytest.mark.parametrize("name", sorted(CASES))
def test_expand(name):
    d, _, values, _ = both(name)
    values = arete.tensor(values_of(d, values))
    before = d.log_prob(values)
    wide = d.expand((2,) + d.batch_shape)
    assert type(wide) is type(d) and wide.batch_shape == (2,) + d.batch_shape and wide.event_shape == d.event_shape
    assert wide.sample((3,)).shape == (3, 2) + d.batch_shape + d.event_shape
    if values.dim() > (rank := len(d.batch_shape + d.event_shape)):
        values, before = values.unsqueeze(-1 - rank), before.unsqueeze(-1 - len(d.batch_shape))
    shape = values.shape[:-1 - rank] + (2,) + d.batch_shape
    close(wide.log_prob(values), before.expand(shape))
    try:
        assert wide.mean.shape == (2,) + d.batch_shape + d.event_shape
        assert wide.entropy().shape == (2,) + d.batch_shape
    except NotImplementedError:
        pass
    with pytest.raises(RuntimeError):
        d.expand((7,) * (1 + len(d.batch_shape))).expand((2,))


def test_both_slopes_of_gamma_probabilities():
    a = arete.tensor([0.3, 2.0, 7.0, 0.3, 5.0], dtype=arete.float64, requires_grad=True)
    x = arete.tensor([0.01, 1.5, 9.0, 4.0, 0.0], dtype=arete.float64, requires_grad=True)
    got = arete.autograd.grad(ours.Gamma(a, 2.0).cdf(x).sum(), [a, x])
    step = 1e-6
    with arete.no_grad():
        for i, slope in enumerate(got):
            upper, lower = ((a + s * (i == 0), (x + s * (i == 1)).clamp(min=0)) for s in (step, -step))
            difference = ours.Gamma(upper[0], 2.0).cdf(upper[1]) - ours.Gamma(lower[0], 2.0).cdf(lower[1])
            np.testing.assert_allclose(slope.numpy(), (difference / (2 * step)).numpy(), rtol=1e-4, atol=1e-8)


def test_numbers_with_long_tails_have_their_moments():
    arete.manual_seed(3)
    f = lambda v: arete.tensor(v, dtype=arete.float64)  # noqa: E731
    for d in (ours.Pareto(f(1.5), f(6.0)), ours.Weibull(f(2.0), f(1.7)), ours.InverseGamma(f(8.0), f(3.0)),
              ours.FisherSnedecor(f(5.0), f(20.0)), ours.NegativeBinomial(f(4.0), f(0.3))):
        x = d.sample((40000,))
        assert abs(x.mean() - d.mean).item() < 0.05 * d.stddev.item() and abs(x.std() / d.stddev - 1).item() < 0.1, d
    d = ours.HalfCauchy(f(2.0))
    assert abs(d.sample((40000,)).median() - d.icdf(f(0.5))).item() < 0.1
    assert ours.NegativeBinomial(f(0.0), f(0.3)).sample((5,)).tolist() == [0.0] * 5


def test_matrices_of_one_another():
    m, loc = arete.tensor(matrix(2, 3, 3)), arete.zeros(3, dtype=arete.float64)
    d = ours.MultivariateNormal(loc, m)
    for other in (ours.MultivariateNormal(loc, precision_matrix=d.precision_matrix), d.expand((4, 2)),
                  ours.MultivariateNormal(loc, scale_tril=d.scale_tril),
                  ours.MultivariateNormal(loc, m).expand((4, 2))):
        shape = other.batch_shape + (3, 3)
        close(other.covariance_matrix, m.expand(shape))
        close(other.precision_matrix, d.precision_matrix.expand(shape), atol=1e-9)
        close(other.scale_tril, arete.linalg.cholesky(m).expand(shape))
        close(other.variance, m.diagonal(dim1=-2, dim2=-1).expand(shape[:-1]))
    arete.manual_seed(15)
    x = d.sample((20000,))
    close((x.unsqueeze(-1) * x.unsqueeze(-2)).mean(0), m, rtol=0.1, atol=0.1)


def test_continuous_bernoulli_near_a_half():
    t = lambda v: arete.tensor(v, dtype=arete.float64)  # noqa: E731
    p = 0.5 + t([-2e-3, -1e-3 - 1e-9, -1e-3 + 1e-9, -1e-7, 0.0, 1e-9, 5e-4, 1e-3 + 1e-9, 3e-3]).unsqueeze(-1)
    d, x = ours.ContinuousBernoulli(p), t([0.0, 0.2, 0.7, 1.0]).expand(9, 4).clone().requires_grad_()
    other = theirs.ContinuousBernoulli(torch.tensor(p.numpy()))
    for mine, theirs_ in ((d.mean, other.mean), (d.variance, other.variance), (d.entropy(), other.entropy()),
                          (d.log_prob(x), other.log_prob(torch.tensor(x.detach().numpy())))):
        close(mine, theirs_, rtol=1e-7)
    close(arete.autograd.grad(d.cdf(x).sum(), x)[0], d.log_prob(x).exp(), rtol=1e-7)
    close(d.cdf(d.icdf(x)), x)
    far = ours.ContinuousBernoulli(logits=t([-800.0, -40.0, 40.0, 800.0]))
    close(far.mean, t([1 / 800, 0.025, 0.975, 1 - 1 / 800]))
    close(far.cdf(far.icdf(t([0.1, 0.5, 0.5, 0.9]))), t([0.1, 0.5, 0.5, 0.9]))
    assert arete.isfinite(far.log_prob(x[:, :1])).all() and far.variance.gt(0).all()


def test_generalized_pareto_of_special_concentrations():
    t = lambda v: arete.tensor(v, dtype=arete.float64)  # noqa: E731
    c, x, p = t(0.0).requires_grad_(), t([0.1, 2.0]), t([0.1, 0.9])
    exact, near = ours.GeneralizedPareto(0.5, 2.0, c), ours.GeneralizedPareto(0.5, 2.0, c + 1e-6)
    for function in (lambda d: d.log_prob(x + 0.5), lambda d: d.cdf(x + 0.5), lambda d: d.icdf(p)):
        close(function(exact), function(near), rtol=1e-5)
        slopes = [arete.autograd.grad(function(d).sum(), c)[0] for d in (exact, near)]
        close(*slopes, rtol=1e-4)
    close(exact.log_prob(x + 0.5), ours.Exponential(t(0.5)).log_prob(x))
    ended = ours.GeneralizedPareto(1.0, 2.0, t(-1.0))  # uniform
    close(ended.log_prob(t([1.0, 2.0, 3.0])), t([-math.log(2)] * 3))
    assert ended.cdf(t(3.0)) == 1 and ended.support.upper_bound == 3


def test_mode_of_kumaraswamy():
    d = ours.Kumaraswamy(1.5 + arete.tensor(positive(4)), 1.5 + arete.tensor(positive(4)))
    x = d.mode.requires_grad_()
    assert arete.autograd.grad(d.log_prob(x).sum(), x)[0].abs().max() < 1e-9
    assert ours.Kumaraswamy(0.5, 2.0).mode.isnan() and ours.Kumaraswamy(1.0, 1.0).mode.isnan()


def test_bessel_functions_of_von_mises():
    d = ours.VonMises(0.0, arete.tensor([1e-3, 0.5, 20.0, 1e6], dtype=arete.float64))
    angles = arete.linspace(-math.pi, math.pi, 20001, dtype=arete.float64)[:-1].unsqueeze(-1)
    density = d.log_prob(angles).exp() * (2 * math.pi / 20000)
    close(density.sum(0)[:3], arete.ones(3, dtype=arete.float64))
    close(1 - (density * angles.cos()).sum(0)[:3], d.variance[:3])
    assert d.log_prob(arete.zeros(4))[3].item() == pytest.approx(0.5 * math.log(1e6 / (2 * math.pi)), rel=1e-6)


@pytest.mark.parametrize("extra", [0.0, 2.5])
def test_matrices_have_the_density(extra):
    """LKJ's density is that of the elements below the diagonal, over which a sum is 1."""
    edges = arete.linspace(-1, 1, 20001, dtype=arete.float64)
    below = (edges[1:] + edges[:-1]) / 2
    factor = arete.stack([arete.stack([arete.ones_like(below), 0 * below], -1),
                          arete.stack([below, (1 - below * below).sqrt()], -1)], -2)
    d = ours.LKJCholesky(2, arete.tensor(1.0 + extra, dtype=arete.float64))
    assert d.log_prob(factor).exp().mean().item() * 2 == pytest.approx(1.0, abs=1e-3)


def test_exponential_families():
    class Waiting(ours.ExponentialFamily):
        arg_constraints = {"rate": ours.constraints.positive}
        _mean_carrier_measure = 0

        def __init__(self, rate):
            self.rate = rate
            super().__init__(rate.shape)

        _natural_params = property(lambda self: (-self.rate,))

        def _log_normalizer(self, x):
            return -(-x).log()

    a, b = (arete.tensor(positive(3), requires_grad=True) for _ in range(2))
    p, q, like_p, like_q = Waiting(a), Waiting(b), ours.Exponential(a), ours.Exponential(b)
    for mine, expected in ((p.entropy(), like_p.entropy()),
                           (ours.kl_divergence(p, q), ours.kl_divergence(like_p, like_q))):
        close(mine, expected)
        for x, y in zip(*(arete.autograd.grad(v.sum(), [a, b], allow_unused=True) for v in (mine, expected))):
            assert x is y is None or np.allclose(x.numpy(), y.numpy())
    with pytest.raises(NotImplementedError, match="different exponential families"):
        ours.kl_divergence(p, ours.ContinuousBernoulli(0.3))
    with pytest.raises(NotImplementedError):
        ours.ExponentialFamily().entropy()
    close(ours.ExponentialFamily.entropy(d := ours.ContinuousBernoulli(a.sigmoid())), d.entropy())


@pytest.mark.parametrize("make, text", [
    (lambda d, t: d.Normal(t.zeros(2), t.tensor([1.0, -1.0])), "parameter scale .*\\(2,\\).* Normal.* GreaterThan"),
    (lambda d, t: d.Normal(math.nan, 1.0), "parameter loc .* Real"),
    (lambda d, t: d.Normal("a", 1.0), "Input arguments must all be instances of Number"),
    (lambda d, t: d.Normal(0.0, 1.0).log_prob(0.0), "value argument to log_prob must be a Tensor"),
    (lambda d, t: d.Normal(t.zeros(2), 1.0).log_prob(t.zeros(3)), "not broadcastable with batch_shape\\+event_shape"),
    (lambda d, t: d.LogNormal(0.0, -1.0), "parameter scale"),
    (lambda d, t: d.HalfNormal(-1.0), "parameter scale"),
    (lambda d, t: d.HalfNormal(1.0).log_prob(t.tensor(-1.0)), "within the support"),
    (lambda d, t: d.Uniform(1.0, 0.0), "parameter low .* LessThan"),
    (lambda d, t: d.Uniform(0.0, 1.0).log_prob(t.tensor(2.0)), "within the support \\(Interval"),
    (lambda d, t: d.Gamma(1.0, 1.0).log_prob(t.tensor(-1.0)), "within the support \\(GreaterThanEq"),
    (lambda d, t: d.Bernoulli(), "Either `probs` or `logits` must be specified, but not both"),
    (lambda d, t: d.Bernoulli(0.5, 0.5), "Either `probs` or `logits` must be specified, but not both"),
    (lambda d, t: d.Bernoulli(1.5), "parameter probs .* Interval"),
    (lambda d, t: d.Bernoulli(0.5).log_prob(t.tensor(0.5)), "Boolean"),
    (lambda d, t: d.Geometric(t.tensor([0.0])), "to be positive"),
    (lambda d, t: d.Categorical(t.tensor(1.0)), "`probs` parameter must be at least one-dimensional"),
    (lambda d, t: d.Categorical(logits=t.tensor(1.0)), "`logits` parameter must be at least one-dimensional"),
    (lambda d, t: d.Categorical(t.tensor([-1.0, 2.0])), "Simplex"),
    (lambda d, t: d.Categorical(logits=t.zeros(3)).log_prob(t.tensor(3)), "IntegerInterval\\(.*bound=2\\)"),
    (lambda d, t: d.OneHotCategorical(t.ones(2)).log_prob(t.ones(2)), "OneHot"),
    (lambda d, t: d.Binomial(3, t.tensor(0.5)).log_prob(t.tensor(4.0)), "IntegerInterval"),
    (lambda d, t: d.Binomial(-1, t.tensor(0.5)), "parameter total_count"),
    (lambda d, t: d.Multinomial(3, t.ones(2)).log_prob(t.tensor([2.0, 2.0])), "Multinomial"),
    (lambda d, t: d.Poisson(1.0).log_prob(t.tensor(0.5)), "IntegerGreaterThan"),
    (lambda d, t: d.Dirichlet(t.tensor(1.0)), "at least one-dimensional"),
    (lambda d, t: d.Dirichlet(t.ones(3)).log_prob(t.ones(3)), "Simplex"),
    (lambda d, t: d.MultivariateNormal(t.zeros(2), -t.eye(2)), "PositiveDefinite"),
    (lambda d, t: d.MultivariateNormal(t.zeros(2), t.eye(2), t.eye(2)), "Exactly one of"),
    (lambda d, t: d.MultivariateNormal(t.zeros(()), t.eye(2)), "loc must be at least one-dimensional"),
    (lambda d, t: d.MultivariateNormal(t.zeros(2), t.ones(2)), "must be at least two-dimensional"),
    (lambda d, t: d.MultivariateNormal(t.zeros(2), scale_tril=t.ones(2, 2)), "LowerCholesky"),
    (lambda d, t: d.MultivariateNormal(t.zeros(2), t.eye(2)).log_prob(t.zeros(3)), "right-most size of value"),
    (lambda d, t: d.LowRankMultivariateNormal(t.zeros(()), t.ones(2, 1), t.ones(2)), "loc must be at least one-dim"),
    (lambda d, t: d.LowRankMultivariateNormal(t.zeros(2), t.ones(2), t.ones(2)), "cov_factor must be at least two-dim"),
    (lambda d, t: d.LowRankMultivariateNormal(t.zeros(2), t.ones(3, 1), t.ones(2)), "with shape 2 x m"),
    (lambda d, t: d.LowRankMultivariateNormal(t.zeros(2), t.ones(2, 1), t.ones(3)), "cov_diag must be a batch"),
    (lambda d, t: d.LowRankMultivariateNormal(t.zeros(3, 2), t.ones(2, 2, 1), t.ones(2)), "Incompatible batch shapes"),
    (lambda d, t: d.Wishart(1.0, t.eye(3)), "Value of df=.* expected to be greater than ndim - 1 = 2"),
    (lambda d, t: d.Wishart(3.0, t.ones(3)), "must be at least two-dimensional"),
    (lambda d, t: d.Wishart(3.0, -t.eye(2)), "PositiveDefinite"),
    (lambda d, t: d.Wishart(3.0, t.eye(2)).log_prob(-t.eye(2)), "PositiveDefinite"),
    (lambda d, t: d.LKJCholesky(1), "greater than or equal to 2. Found dim=1"),
    (lambda d, t: d.LKJCholesky(2, -1.0), "parameter concentration"),
    (lambda d, t: d.LKJCholesky(2).log_prob(t.ones(2, 2)), "CorrCholesky"),
    (lambda d, t: d.VonMises(0.0, -1.0), "parameter concentration"),
    (lambda d, t: d.Kumaraswamy(-1.0, 1.0), "parameter concentration1"),
    (lambda d, t: d.Kumaraswamy(1.0, 1.0).log_prob(t.tensor(2.0)), "Interval"),
    (lambda d, t: d.ContinuousBernoulli(0.5, 0.5), "Either `probs` or `logits`"),
    (lambda d, t: d.ContinuousBernoulli(2.0, validate_args=True), "parameter probs"),
    (lambda d, t: d.ContinuousBernoulli(0.5).log_prob(t.tensor(-0.5)), "Interval"),
    (lambda d, t: d.LogisticNormal(t.zeros(2), -1.0), "parameter scale"),
    (lambda d, t: d.GeneralizedPareto(0.0, -1.0, 0.0), "parameter scale"),
    (lambda d, t: d.GeneralizedPareto(0.0, 1.0, -1.0).log_prob(t.tensor(1.5)), "Interval"),
    (lambda d, t: d.ReshapeTransform((2, 3), (5,)), "different numbers of elements"),
    (lambda d, t: d.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2)), "Shape mismatch"),
    (lambda d, t: d.CorrCholeskyTransform().forward_shape((4,)), "not a flattened lower-diagonal number"),
    (lambda d, t: d.CorrCholeskyTransform().inverse_shape((2, 3)), "not square"),
    (lambda d, t: d.StickBreakingTransform().forward_shape(()), "Too few dimensions"),
    (lambda d, t: d.utils.vec_to_tril_matrix(t.ones(5)), "cannot be expressed as the lower triangular"),
    (lambda d, t: d.utils.tril_matrix_to_vec(t.ones(2, 2), 2), "is outside"),
    (lambda d, t: d.Independent(d.Normal(t.zeros(2), 1.0), 2), "reinterpreted_batch_ndims"),
    (lambda d, t: d.MixtureSameFamily(d.Categorical(t.ones(4)), d.Normal(t.zeros(3), 1.0)), "\\(4\\) does not equal"),
    (lambda d, t: d.MixtureSameFamily(d.Categorical(t.ones(2, 3)), d.Normal(t.zeros(3, 3), 1.0)), "is not compatible"),
    (lambda d, t: d.MixtureSameFamily(3, d.Normal(t.zeros(3), 1.0)), None),
    (lambda d, t: d.TransformedDistribution(d.Normal(0.0, 1.0), 3), "transforms must be a Transform or list"),
    (lambda d, t: d.transforms.ExpTransform(2), "cache_size must be 0 or 1"),
    (lambda d, t: d.Distribution.set_default_validate_args(3), None),
])
def test_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make(ours, arete)
    with pytest.raises(ValueError, match=text):
        make(theirs, torch)


def test_validation_can_be_left_out():
    assert ours.Normal(0.0, -1.0, validate_args=False).log_prob(arete.tensor(1.0)).isnan()
    assert ours.Categorical(logits=arete.zeros(3), validate_args=False).expand((2,))._validate_args is False
    ours.Distribution.set_default_validate_args(False)
    try:
        ours.Normal(0.0, -1.0)
        ours.HalfNormal(-1.0)
        with pytest.raises(ValueError):
            ours.Normal(0.0, -1.0, validate_args=True)
    finally:
        ours.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        ours.HalfNormal(-1.0)
    with pytest.raises(ValueError, match="parameter cov_diag"):  # PyTorch factorizes before it looks
        ours.LowRankMultivariateNormal(arete.zeros(2), arete.ones(2, 1), -arete.ones(2))


@pytest.mark.parametrize("name, n", [
    ("Bernoulli probs", 2), ("Binomial", 8), ("Categorical probs", 4), ("OneHotCategorical", 4)])
def test_enumerate_support(name, n):
    d, _, _, peers = both(name)
    other = peers()[0]
    for expand in (True, False):
        close(d.enumerate_support(expand), other.enumerate_support(expand))
    close(d.log_prob(d.enumerate_support()).exp().sum(0), arete.ones(d.batch_shape, dtype=arete.float64))
    assert d.enumerate_support().shape[0] == n
    with pytest.raises(NotImplementedError, match="Inhomogeneous"):
        ours.Binomial(arete.tensor([1, 2]), 0.5).enumerate_support()


def test_saturated():
    d, p = ours.Bernoulli(arete.tensor([0.0, 1.0])), arete.tensor([0.0, 1.0])
    assert arete.isfinite(d.log_prob(1 - p)).all() and d.log_prob(p).abs().max() < 1e-6
    d = ours.Categorical(logits=arete.tensor([0.0, -math.inf]))
    assert d.log_prob(arete.tensor([0, 1])).tolist() == [0.0, -math.inf] and d.entropy() == 0
    assert ours.Multinomial(2, logits=arete.tensor([0.0, -math.inf])).log_prob(arete.tensor([2.0, 0.0])) == 0
    assert ours.Geometric(1.0).log_prob(arete.tensor([0.0, 1.0])).tolist() == [0.0, -math.inf]
    assert ours.Uniform(0.0, 1.0).log_prob(arete.tensor([0.0, 1.0])).tolist() == [0.0, -math.inf]
    tail = ours.Normal(0.0, 1.0).cdf(arete.tensor(-9.0, dtype=arete.float64))
    assert tail.item() == pytest.approx(1.1285884059538e-19)


def test_parameters_made_within_no_grad_have_a_gradient():
    logits = arete.zeros(3, requires_grad=True)
    d = ours.Categorical(logits=logits)
    with arete.no_grad():
        d.sample()  # which computes the probabilities
    assert d.probs.requires_grad and d.entropy().requires_grad


def test_copies():
    for name in ("Normal", "Gamma", "mixture", "squashed", "MultivariateNormal", "RelaxedOneHotCategorical"):
        make, parameters, _ = CASES[name]
        d = make(ours, *(arete.tensor(p) for p in parameters))
        x = d.sample()
        close(copy.deepcopy(d).log_prob(x), d.log_prob(x))
        assert repr(copy.copy(d)) == repr(d)
    d = ours.Normal(arete.zeros(2), 1.0)
    close(pickle.loads(pickle.dumps(d)).mean, d.mean)


def test_all_names_are_there():
    assert set(theirs.__all__) <= set(ours.__all__)
    for module in ("transforms", "constraints", "utils"):
        names = [n for n, value in vars(getattr(theirs, module)).items()
                 if not n.startswith("_") and getattr(value, "__module__", theirs.__name__).startswith(theirs.__name__)]
        assert {n for n in names if not inspect.ismodule(getattr(getattr(theirs, module), n))} - set(
            dir(getattr(ours, module))) <= {
                "broadcast_all", "lazy_property", "euler_constant", "R", "T"}, module


def test_addresses():
    for module, name in [("normal", "Normal"), ("categorical", "Categorical"), ("beta", "Beta"),
                         ("kl", "kl_divergence"), ("independent", "Independent"),
                         ("transformed_distribution", "TransformedDistribution"), ("bernoulli", "Bernoulli"),
                         ("wishart", "Wishart"), ("lkj_cholesky", "LKJCholesky"), ("von_mises", "VonMises"),
                         ("lowrank_multivariate_normal", "LowRankMultivariateNormal"), ("kumaraswamy", "Kumaraswamy"),
                         ("continuous_bernoulli", "ContinuousBernoulli"), ("logistic_normal", "LogisticNormal"),
                         ("generalized_pareto", "GeneralizedPareto"), ("constraint_registry", "biject_to")]:
        assert getattr(importlib.import_module(f"arete.distributions.{module}"), name) is getattr(ours, name)
    code = "import sys, arete; assert 'arete.distributions' not in sys.modules; arete.distributions.Normal(0.0, 1.0)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_dtypes(name):
    dtype = getattr(arete, name)
    ones = arete.ones(2, dtype=dtype)
    for d in (ours.Normal(ones, 1.0), ours.Gamma(ones, 1), ours.Laplace(0, ones), ours.Bernoulli(logits=ones),
              ours.Beta(ones, 2.0), ours.Gumbel(ones, 1.0), ours.OneHotCategorical(ones)):
        assert d.sample().dtype == dtype and d.log_prob(d.sample()).dtype == dtype
