"""Samples of distributions by their statistics, and their gradients."""
import math

import numpy as np
import pytest
from distribution_cases import CASES, both, close

import arete
from arete import distributions as ours
from arete.distributions.gamma import _slope_of_log_gamma

NO_MOMENTS = """Cauchy, Categorical probs, Categorical logits, RelaxedBernoulli, RelaxedBernoulli logits,
RelaxedOneHotCategorical, squashed, chained, transformed vectors, StudentT, LogNormal, LogisticNormal, powers, VonMises,
LKJCholesky, LKJCholesky of two"""
# Their fourth moments are large or missing: test_numbers_with_long_tails_have_their_moments takes others.
LONG_TAILS = {"FisherSnedecor", "GeneralizedPareto", "HalfCauchy", "InverseGamma"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - LONG_TAILS - set(NO_MOMENTS.replace("\n", " ").split(", "))))
def test_samples_have_the_moments(name):
    arete.manual_seed(3)
    d, _, _, _ = both(name)
    with arete.no_grad():
        x, mean, std = d.sample((20000,)), d.mean, d.stddev
        assert ((x.mean(0) - mean).abs() / std).max() < 5 / math.sqrt(20000)
        assert (x.std(0) / std - 1).abs().max() < 0.12


CONTINUOUS = """Normal LogNormal HalfNormal Uniform Laplace Cauchy Gumbel Exponential Gamma Chi2 mixture chained
squashed GeneralizedPareto Kumaraswamy ContinuousBernoulli HalfCauchy""".split() + ["ContinuousBernoulli logits"]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_have_the_distribution(name):
    """Kolmogorov and Smirnov."""
    arete.manual_seed(4)
    d, _, _, _ = both(name)
    with arete.no_grad():
        p = d.cdf(d.sample((4000,))).reshape(4000, -1).sort(0).values
        steps = (arete.arange(4000, dtype=arete.float64) + 0.5).unsqueeze(-1) / 4000
        assert (p - steps).abs().max() * math.sqrt(4000) < 1.95  # one in a thousand


@pytest.mark.parametrize("k", [1e-6, 0.3, 4.0, 500.0, 1e9])
def test_angles_have_the_distribution(k):
    arete.manual_seed(4)
    x = ours.VonMises(1.0, arete.tensor(k, dtype=arete.float64)).sample((4000,))
    away = ((x - 1 + math.pi) % (2 * math.pi) - math.pi).sort().values
    assert x.ge(-math.pi).all() and x.lt(math.pi).all()
    width = min(math.pi, 12 / math.sqrt(k))
    grid = arete.linspace(-width, width, 40001, dtype=arete.float64)
    density = ours.VonMises(0.0, arete.tensor(k, dtype=arete.float64)).log_prob(grid).exp()
    below = (density[1:] + density[:-1]).cumsum(0) * (width / 40000)
    p = below[arete.searchsorted(grid[1:].contiguous(), away).clamp(max=39999)]
    steps = (arete.arange(4000, dtype=arete.float64) + 0.5) / 4000
    assert (p - steps).abs().max() * math.sqrt(4000) < 1.95
    assert ours.VonMises(0.0, math.inf, validate_args=False).sample().isnan()


@pytest.mark.parametrize("n, c", [(2, 0.5), (3, 1.0), (5, 3.0)])
def test_correlations_have_the_distribution(n, c):
    """Each is twice a beta number less one."""
    arete.manual_seed(5)
    factor = ours.LKJCholesky(n, arete.tensor(c, dtype=arete.float64)).sample((20000,))
    found = factor @ factor.mT
    close(found.diagonal(dim1=-2, dim2=-1), arete.ones(20000, n, dtype=arete.float64))
    a = c + n / 2 - 1
    for i in range(n):
        for j in range(i):
            assert abs(found[:, i, j].mean().item()) < 0.03
            assert found[:, i, j].var().item() == pytest.approx(1 / (2 * a + 1), rel=0.05)


DISCRETE = {
    "Bernoulli": ours.Bernoulli(0.3), "Geometric": ours.Geometric(0.2), "Poisson": ours.Poisson(6.5),
    "few trials": ours.Binomial(9, 0.3), "many trials": ours.Binomial(300, 0.41), "rare": ours.Binomial(5000, 0.002),
    "frequent": ours.Binomial(1000, 0.993), "never": ours.Binomial(100, 0.0), "always": ours.Binomial(100, 1.0),
    "Categorical": ours.Categorical(arete.tensor([1.0, 0.0, 3.0, 2.0])),
}


@pytest.mark.parametrize("name", sorted(DISCRETE))
def test_counts_have_the_distribution(name):
    """Chi squared."""
    arete.manual_seed(6)
    d, n = DISCRETE[name], 8000
    x = d.sample((n,)).long()
    counts = np.bincount(x.numpy())
    values = arete.arange(len(counts), dtype=arete.int64 if name == "Categorical" else arete.float32)
    expected = n * d.log_prob(values).exp().numpy()
    assert (counts[expected < 1e-3] == 0).all()
    usual = expected >= 5
    statistic = ((counts - expected)[usual] ** 2 / expected[usual]).sum()
    freedom = usual.sum()
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_trials_of_different_counts():
    arete.manual_seed(7)
    d = ours.Binomial(arete.tensor([0, 1, 40, 1000, 100000]), arete.tensor([0.3, 0.5, 0.2, 0.7, 0.01]))
    x = d.sample((4000,))
    assert x[:, 0].eq(0).all() and (x <= d.total_count).all()
    assert ((x.mean(0) - d.mean).abs() <= 5 * d.stddev / math.sqrt(4000)).all()
    assert (x.std(0)[1:] / d.stddev[1:] - 1).abs().max() < 0.06


@pytest.mark.parametrize("a, x", [
    (0.01, 1e-20), (0.01, 0.5), (0.5, 0.99), (0.5, 1.01), (1.5, 1.0), (2.0, 9.0), (30.0, 29.6)])
def test_slope_of_gamma_numbers(a, x):
    """Beside the definition: the quantile of a larger concentration, by differences of the regularized function."""
    arete_a, log_x = arete.tensor([a], dtype=arete.float64), arete.tensor([math.log(x)], dtype=arete.float64)
    slope = _slope_of_log_gamma(arete_a, log_x).item()
    step = 1e-5 * a
    upper, lower = (arete.special.gammainc(arete_a + s, log_x.exp()) for s in (step, -step))
    density = ours.Gamma(arete_a, 1.0).log_prob(log_x.exp()).exp()
    assert slope == pytest.approx((-(upper - lower) / (2 * step) / density / x).item(), rel=1e-5)


@pytest.mark.parametrize("a, x, expected", [  # 40 digits were computed for each
    (0.01, 3.0, 26.760246393644884), (0.5, 20.0, 0.24445858864720416), (1.4, 1.0, 0.943542514814545),
    (30.0, 12.0, 0.05118058296262182), (30.0, 80.0, 0.019722676138131577), (1e4, 9800.0, 0.00010101522014029966),
    (1e6, 1e6, 1.0000001666666832e-06)])
def test_slope_of_gamma_numbers_is_precise(a, x, expected):
    slope = _slope_of_log_gamma(arete.tensor([a], dtype=arete.float64), arete.tensor([x], dtype=arete.float64).log())
    assert slope.item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("make, statistic, exact", [
    (lambda a: ours.Gamma(a, 2.0), lambda x: x, lambda a: a / 2),
    (lambda a: ours.Gamma(a, 2.0), lambda x: x.square(), lambda a: a * (a + 1) / 4),
    (lambda a: ours.Gamma(a, 1.0), lambda x: x.log(), lambda a: a.digamma()),
    (lambda a: ours.Chi2(a), lambda x: x, lambda a: a),
    (lambda a: ours.Beta(a, 1.5), lambda x: x, lambda a: a / (a + 1.5)),
    (lambda a: ours.Beta(a, 1.5), lambda x: x.log(), lambda a: a.digamma() - (a + 1.5).digamma()),
    (lambda a: ours.Dirichlet(arete.stack([a, a + 1, 2 * a], -1)), lambda x: x[..., 2], lambda a: 2 * a / (4 * a + 1)),
    (lambda a: ours.StudentT(a + 3), lambda x: x.abs().log1p(), None),
])
def test_gradients_of_samples(make, statistic, exact):
    """Their mean is the gradient of the mean."""
    arete.manual_seed(8)
    a = arete.tensor([0.2, 0.9, 2.5, 20.0], dtype=arete.float64, requires_grad=True)
    x = statistic(make(a).rsample((20000,)))
    each = arete.autograd.grad(x.sum(), a, retain_graph=True)[0] / 20000
    if exact is None:
        weight = make(a).log_prob((y := make(a).sample((400000,))))  # by the score
        expected = arete.autograd.grad((weight * (statistic(y) - statistic(y).mean(0))).mean(0).sum(), a)[0]
        np.testing.assert_allclose(each.numpy(), expected.numpy(), atol=0.01)
    else:
        expected = arete.autograd.grad(exact(a).sum(), a)[0]
        np.testing.assert_allclose(each.numpy(), expected.numpy(), rtol=0.06)


def test_gradients_of_samples_end():
    a = arete.tensor([2.0], requires_grad=True)
    (slope,) = arete.autograd.grad(ours.Gamma(a, 1.0).rsample().sum() ** 2, a, create_graph=True)
    with pytest.raises(RuntimeError):
        slope.sum().backward()


@pytest.mark.parametrize("name", [
    "Normal", "Laplace", "Gumbel", "Exponential", "Uniform", "LogNormal", "HalfNormal", "squashed",
    "MultivariateNormal", "MultivariateNormal precision", "GeneralizedPareto", "Kumaraswamy", "ContinuousBernoulli",
    "ContinuousBernoulli logits", "LogisticNormal", "Wishart precision"])
def test_gradients_of_samples_are_those_of_their_formula(name):
    d, leaves, _, _ = both(name)
    arete.manual_seed(1)
    x = d.rsample((3,))
    arete.manual_seed(1)
    make, parameters, _ = CASES[name]
    i, step = len(leaves) - 1, 1e-6
    got = arete.autograd.grad(x.sum(), leaves[i])[0]
    moved = []
    for s in (step, -step):
        arete.manual_seed(1)
        shifted = [arete.tensor(p, dtype=arete.float64) for p in parameters]
        shifted[i] = shifted[i] + s * (arete.eye(3, dtype=arete.float64) if "Multi" in name else 1)
        moved.append(make(ours, *shifted).rsample((3,)).sum())
    expected = (moved[0] - moved[1]) / (2 * step)
    mine = got.diagonal(dim1=-2, dim2=-1).sum() if "Multi" in name else got.sum()
    assert mine.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)


def test_small_concentrations_do_not_underflow():
    arete.manual_seed(9)
    x = ours.Dirichlet(arete.full((1000, 3), 1e-3)).sample()
    assert arete.isfinite(x).all() and (x.sum(-1) - 1).abs().max() < 1e-5 and (x > 0).all()
    assert arete.isfinite(ours.Gamma(arete.full((1000,), 1e-4), 1.0).sample().log()).all()
    assert ours.Gamma(arete.tensor([math.nan, -1.0]), 1.0, validate_args=False).sample().isnan().all()
    assert ours.Gamma(arete.ones(4, dtype=arete.bfloat16), 1.0).rsample().dtype == arete.bfloat16


def test_large_concentrations():
    arete.manual_seed(16)
    x = ours.Gamma(arete.full((20000,), 1e7), 1.0).sample().double()
    assert abs(x.mean().item() / 1e7 - 1) < 1e-5 and x.std().item() == pytest.approx(math.sqrt(1e7), rel=0.03)
    assert ours.Gamma(arete.tensor(math.inf), 1.0).sample().isnan()


def test_straight_through():
    logits = arete.tensor([0.5, 1.0], requires_grad=True)
    x = ours.OneHotCategoricalStraightThrough(logits=logits).rsample((4,))
    assert set(x.round().unique().tolist()) <= {0.0, 1.0}
    x[:, 0].sum().backward()
    p = logits.detach().softmax(-1)
    close(logits.grad, 4 * arete.stack([p[0] * p[1], -p[0] * p[1]]), rtol=1e-5)


def test_seeds():
    def drawn():
        arete.manual_seed(11)
        return [both(name)[0].sample((2,)).tolist() for name in sorted(CASES)]

    assert drawn() == drawn()
