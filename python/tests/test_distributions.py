"""Distributions beside PyTorch's: densities, moments, entropies, divergences and their gradients; samples by their
statistics."""
import copy
import importlib
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from peer import peer

import arete
import arete.nn
from arete import distributions as ours
from arete.distributions.gamma import _slope_of_log_gamma

torch = peer()
theirs = peer("torch.distributions")

RANDOM = np.random.default_rng(5)


def real(*shape):
    return RANDOM.normal(size=shape)


def positive(*shape):
    return RANDOM.gamma(2.0, size=shape) + 0.2


def unit(*shape):
    return RANDOM.uniform(0.05, 0.95, size=shape)


def simplex(*shape):
    x = RANDOM.gamma(1.5, size=shape) + 0.05
    return x / x.sum(-1, keepdims=True)


def tril(*shape):
    return np.tril(RANDOM.normal(size=shape), -1) + np.eye(shape[-1]) * positive(*shape[:-1], 1)


def matrix(*shape):
    x = RANDOM.normal(size=shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


def normal_mixture(library, logits, loc, scale):
    return library.MixtureSameFamily(library.Categorical(logits=logits), library.Normal(loc, scale))


def vector_mixture(library, logits, loc, scale):
    components = library.Independent(library.Normal(loc, scale), 1)
    return library.MixtureSameFamily(library.Categorical(logits=logits), components)


def squashed(library, loc, scale):
    return library.TransformedDistribution(library.Normal(loc, scale), [library.transforms.TanhTransform()])


def chained(library, loc, scale, shift):
    transforms = [library.transforms.AffineTransform(shift, -2.0), library.transforms.SigmoidTransform(),
                  library.transforms.AffineTransform(1.0, 3.0), library.transforms.SoftplusTransform()]
    return library.TransformedDistribution(library.Uniform(loc, loc + scale), transforms)


def vectors(library, loc, scale):
    inner = library.transforms.IndependentTransform(library.transforms.ExpTransform(), 1)
    outer = library.transforms.AffineTransform(0.5, 2.0)
    return library.TransformedDistribution(library.Normal(loc, scale), [inner, outer])


def called(name, **more):
    return lambda library, *values: getattr(library, name)(*values, **more)


def named(name, *keys):
    return lambda library, *values: getattr(library, name)(**dict(zip(keys, values)))


# name: how it is made, parameters, values (None: of the library's own samples, which PyTorch then gets).
CASES = {
    "Normal": (called("Normal"), [real(3), positive(2, 3)], real(4, 2, 3)),
    "Normal scalar": (called("Normal"), [real(), positive()], real(5)),
    "LogNormal": (called("LogNormal"), [real(3), positive(3)], positive(2, 3)),
    "HalfNormal": (called("HalfNormal"), [positive(2, 3)], positive(2, 3)),
    "Uniform": (called("Uniform"), [real(3), 2.5 + positive(2, 3)], 2.0 + unit(2, 3)),
    "Laplace": (called("Laplace"), [real(3), positive(2, 3)], real(2, 3)),
    "Cauchy": (called("Cauchy"), [real(3), positive(2, 1)], real(2, 3)),
    "Gumbel": (called("Gumbel"), [real(3), positive(2, 1)], real(2, 3)),
    "Exponential": (called("Exponential"), [positive(3)], positive(2, 3)),
    "Gamma": (called("Gamma"), [positive(3), positive(2, 3)], positive(2, 3)),
    "Chi2": (called("Chi2"), [positive(3)], positive(2, 3)),
    "Beta": (called("Beta"), [positive(3), positive(2, 3)], unit(2, 3)),
    "Dirichlet": (called("Dirichlet"), [positive(2, 4)], simplex(3, 2, 4)),
    "StudentT": (called("StudentT"), [positive(3) + 2, real(2, 3), positive(3)], real(2, 3)),
    "Bernoulli probs": (called("Bernoulli"), [unit(3)], np.array([[0.0, 1, 1], [1, 0, 1]])),
    "Bernoulli logits": (named("Bernoulli", "logits"), [real(2, 3)], np.array([0.0, 1, 1])),
    "Geometric": (called("Geometric"), [unit(3)], np.array([[0.0, 1, 5], [2, 9, 1]])),
    "Binomial": (lambda library, p: library.Binomial(7, p), [unit(3)], np.array([[0.0, 1, 5], [2, 7, 1]])),
    "Binomial logits": (lambda library, p: library.Binomial(4, logits=p), [real(3)], np.array([0.0, 4, 2])),
    "Poisson": (called("Poisson"), [positive(3)], np.array([[0.0, 1, 5], [2, 9, 1]])),
    "Categorical probs": (called("Categorical"), [simplex(3, 4)], np.array([[0, 1, 3], [2, 2, 1]])),
    "Categorical logits": (named("Categorical", "logits"), [real(2, 3, 4)], np.array([[0, 1, 3], [2, 2, 1]])),
    "OneHotCategorical": (named("OneHotCategorical", "logits"), [real(2, 4)], np.eye(4)[[[1, 3], [0, 2]]]),
    "Multinomial": (lambda library, p: library.Multinomial(6, p), [simplex(2, 3)], np.array([[1.0, 2, 3], [0, 6, 0]])),
    "MultivariateNormal": (called("MultivariateNormal"), [real(3), matrix(2, 3, 3)], real(5, 2, 3)),
    "MultivariateNormal one matrix": (called("MultivariateNormal"), [real(4, 3), matrix(3, 3)], real(5, 4, 3)),
    "MultivariateNormal precision": (
        named("MultivariateNormal", "loc", "precision_matrix"), [real(2, 3), matrix(3, 3)], real(2, 3)),
    "MultivariateNormal tril": (
        named("MultivariateNormal", "loc", "scale_tril"), [real(3), tril(4, 1, 3, 3)], real(5, 4, 1, 3)),
    "RelaxedBernoulli": (called("RelaxedBernoulli"), [positive(), unit(2, 3)], unit(2, 3)),
    "RelaxedBernoulli logits": (named("RelaxedBernoulli", "temperature", "logits"), [positive(), real(3)], unit(2, 3)),
    "RelaxedOneHotCategorical": (
        named("RelaxedOneHotCategorical", "temperature", "logits"), [positive(), real(2, 4)], simplex(2, 4)),
    "Independent": (
        lambda library, *v: library.Independent(library.Normal(*v), 2), [real(4, 2, 3), positive(3)], real(4, 2, 3)),
    "mixture": (normal_mixture, [real(4), real(2, 4), positive(2, 4)], real(3, 2)),
    "mixture of vectors": (vector_mixture, [real(2, 4), real(2, 4, 3), positive(2, 4, 3)], real(5, 2, 3)),
    "squashed": (squashed, [real(3), positive(3)], 2 * unit(2, 3) - 1),
    "chained": (chained, [real(3), positive(3), real()], None),
    "transformed vectors": (vectors, [real(2, 3), positive(3)], positive(2, 3) + 0.5),
}


def both(name):
    """A distribution of either library with the parameters as leaves."""
    make, parameters, values = CASES[name]
    mine = [arete.tensor(p, dtype=arete.float64, requires_grad=True) for p in parameters]
    other = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in parameters]
    return make(ours, *mine), mine, values, lambda: (make(theirs, *other), other)


def close(a, b, rtol=1e-9, atol=1e-11):
    assert tuple(a.shape) == tuple(b.shape)
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=rtol, atol=atol)


def compare(mine, leaves, other, other_leaves, **tolerance):
    """Values and gradients."""
    close(mine, other, **tolerance)
    assert mine.requires_grad == other.requires_grad
    weights = RANDOM.normal(size=tuple(mine.shape))
    got = arete.autograd.grad((mine * arete.tensor(weights)).sum(), leaves, allow_unused=True, retain_graph=True)
    total = (other * torch.tensor(weights)).sum()
    expected = torch.autograd.grad(total, other_leaves, allow_unused=True, retain_graph=True)
    for slopes, leaf in zip(zip(got, expected), leaves):
        a, b = (np.zeros(tuple(leaf.shape)) if slope is None else slope.numpy() for slope in slopes)
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


def values_of(d, values):
    return d.sample().numpy() if values is None else values


def both_or_neither(mine, other):
    """Results, or None where PyTorch has none and so have we."""
    try:
        expected = other()
    except NotImplementedError:
        with pytest.raises(NotImplementedError):
            mine()
        return None
    return mine(), expected


@pytest.mark.parametrize("name", sorted(CASES))
def test_log_prob(name):
    d, leaves, values, peers = both(name)
    values = values_of(d, values)
    other, other_leaves = peers()
    x, y = arete.tensor(values), torch.tensor(values)
    if values.dtype == np.float64 and d.has_rsample:
        x.requires_grad_()
        y.requires_grad_()
    compare(d.log_prob(x), leaves + [x] * x.requires_grad, other.log_prob(y), other_leaves + [y] * y.requires_grad)
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
    elif what == "mode" or not pair[1].requires_grad:
        close(*pair)
    else:
        compare(pair[0], leaves, pair[1], other_leaves)


@pytest.mark.parametrize("name", sorted(CASES))
def test_cdf(name):
    d, leaves, values, peers = both(name)
    other, other_leaves = peers()
    values = values_of(d, values)
    if name in ("Gamma", "Chi2"):  # which have no gradient for the concentration
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


NO_MOMENTS = """Cauchy, Categorical probs, Categorical logits, RelaxedBernoulli, RelaxedBernoulli logits,
RelaxedOneHotCategorical, squashed, chained, transformed vectors, StudentT, LogNormal"""


@pytest.mark.parametrize("name", sorted(CASES.keys() - set(NO_MOMENTS.replace("\n", " ").split(", "))))
def test_samples_have_the_moments(name):
    arete.manual_seed(3)
    d, _, _, _ = both(name)
    with arete.no_grad():
        x, mean, std = d.sample((20000,)), d.mean, d.stddev
        assert ((x.mean(0) - mean).abs() / std).max() < 5 / math.sqrt(20000)
        assert (x.std(0) / std - 1).abs().max() < 0.12


CONTINUOUS = """Normal LogNormal HalfNormal Uniform Laplace Cauchy Gumbel Exponential Gamma Chi2 mixture chained
squashed""".split()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_samples_have_the_distribution(name):
    """Kolmogorov and Smirnov."""
    arete.manual_seed(4)
    d, _, _, _ = both(name)
    with arete.no_grad():
        p = d.cdf(d.sample((4000,))).reshape(4000, -1).sort(0).values
        steps = (arete.arange(4000, dtype=arete.float64) + 0.5).unsqueeze(-1) / 4000
        assert (p - steps).abs().max() * math.sqrt(4000) < 1.95  # one in a thousand


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


@pytest.mark.parametrize("name", [
    "Normal", "Laplace", "Gumbel", "Exponential", "Uniform", "LogNormal", "HalfNormal", "squashed",
    "MultivariateNormal", "MultivariateNormal precision"])
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


KL_PARAMETERS = {
    "Normal": [real(3), positive(2, 3)], "LogNormal": [real(3), positive(3)], "HalfNormal": [positive(3)],
    "Laplace": [real(3), positive(3)], "Cauchy": [real(3), positive(3)], "Gumbel": [real(3), positive(3)],
    "Exponential": [positive(3)], "Gamma": [positive(3), positive(3)], "Chi2": [positive(3)],
    "Beta": [positive(3), positive(3)], "Dirichlet": [positive(2, 4)], "Bernoulli": [unit(3)], "Geometric": [unit(3)],
    "Poisson": [positive(3)], "Categorical": [simplex(3, 4)], "OneHotCategorical": [simplex(3, 4)],
    "MultivariateNormal": [real(2, 3), matrix(3, 3)], "Uniform": [0.4 * unit(3), 0.5 + 0.5 * unit(3)],
}
KL_TO = {
    "Normal": "Beta Exponential Gamma Gumbel Laplace Uniform Chi2", "Gamma": "Beta Exponential Uniform Normal",
    "Exponential": "Beta Gamma Uniform Normal Laplace Gumbel", "Beta": "Uniform Exponential Normal",
    "Laplace": "Normal", "Uniform": "Beta Gamma Normal", "Gumbel": "Normal Exponential Gamma Uniform",
    "Poisson": "Bernoulli", "Bernoulli": "Poisson",
}
KL_PAIRS = [(name, name) for name in KL_PARAMETERS] + [(p, q) for q, names in KL_TO.items() for p in names.split()]


@pytest.mark.parametrize("p, q", KL_PAIRS)
def test_kl(p, q):
    def made(library, module):
        leaves = [[module.tensor(v[..., ::-1].copy() if flip and "Multi" not in name else v, requires_grad=True)
                   for v in KL_PARAMETERS[name]] for name, flip in ((p, False), (q, True))]
        if q == "Uniform" and p in ("Uniform", "Beta"):  # finite ones
            leaves[1] = [module.tensor(np.full(3, bound), requires_grad=True) for bound in (-0.5, 1.5)]
        left, right = (getattr(library, name)(*values) for name, values in zip((p, q), leaves))
        return library.kl_divergence(left, right), leaves[0] + leaves[1]

    mine, other = made(ours, arete), made(theirs, torch)
    if p == q or np.isfinite(other[0].detach().numpy()).all():
        compare(*mine, *other, atol=1e-9)
    else:
        close(mine[0], other[0])


def test_kl_of_others():
    p, q = ours.Normal(arete.zeros(2, 3), 1.0), ours.Normal(arete.ones(2, 3), 1.0)
    close(ours.kl_divergence(ours.Independent(p, 1), ours.Independent(q, 1)), arete.full((2,), 1.5))
    close(ours.kl_divergence(ours.Binomial(5, arete.tensor([0.3])), ours.Binomial(5, arete.tensor([0.4]))),
          5 * ours.kl_divergence(ours.Bernoulli(arete.tensor([0.3])), ours.Bernoulli(arete.tensor([0.4]))), rtol=1e-5)
    assert ours.kl_divergence(ours.Uniform(0.0, 2.0), ours.Uniform(0.0, 1.0)).item() == math.inf
    even, first = ours.Categorical(arete.tensor([0.5, 0.5])), ours.Categorical(arete.tensor([1.0, 0.0]))
    assert ours.kl_divergence(even, first).item() == math.inf
    assert ours.kl_divergence(first, even).item() == pytest.approx(math.log(2), rel=1e-5)
    with pytest.raises(NotImplementedError, match="No KL"):
        ours.kl_divergence(p, ours.Poisson(1.0))
    with pytest.raises(NotImplementedError):
        ours.kl_divergence(ours.Independent(p, 1), ours.Independent(q, 2))


def test_kl_is_the_mean_over_samples():
    arete.manual_seed(10)
    p, q = ours.Gamma(arete.tensor([0.5, 3.0]), 1.5), ours.Gamma(arete.tensor([1.0, 2.0]), 1.0)
    x = p.sample((40000,))
    close((p.log_prob(x) - q.log_prob(x)).mean(0), ours.kl_divergence(p, q), rtol=0.05)


def test_register_kl():
    class Left(ours.Normal):
        pass

    class Right(ours.Normal):
        pass

    ours.register_kl(Left, ours.Normal)(lambda p, q: "left")
    assert ours.kl_divergence(Left(0.0, 1.0), Right(0.0, 1.0)) == "left"
    ours.register_kl(ours.Normal, Right)(lambda p, q: "right")
    with pytest.warns(RuntimeWarning, match="Ambiguous"):
        assert ours.kl_divergence(Left(0.0, 1.0), Right(0.0, 1.0)) == "left"
    assert ours.kl_divergence(ours.Normal(0.0, 1.0), Right(0.0, 1.0)) == "right"
    with pytest.raises(TypeError):
        ours.register_kl(int, Left)


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


def test_constraints():
    c = ours.constraints
    x = arete.tensor([-1.0, 0.0, 0.5, 1.0, 2.0, math.nan])
    for constraint, expected in [
            (c.real, [1, 1, 1, 1, 1, 0]), (c.positive, [0, 0, 1, 1, 1, 0]), (c.nonnegative, [0, 1, 1, 1, 1, 0]),
            (c.unit_interval, [0, 1, 1, 1, 0, 0]), (c.boolean, [0, 1, 0, 1, 0, 0]),
            (c.nonnegative_integer, [0, 1, 0, 1, 1, 0]), (c.positive_integer, [0, 0, 0, 1, 1, 0]),
            (c.half_open_interval(0, 1), [0, 1, 1, 0, 0, 0]), (c.less_than(1), [1, 1, 1, 0, 0, 0])]:
        assert constraint.check(x).tolist() == [bool(e) for e in expected], constraint
        assert repr(constraint)
    assert c.simplex.check(arete.tensor([[0.5, 0.5], [1.5, -0.5], [0.5, 0.4]])).tolist() == [True, False, False]
    matrices = arete.tensor([[[1.0, 0], [0, 1]], [[1, 2], [2, 1]], [[1, 0.5], [0, 1]]])
    assert c.positive_definite.check(matrices).tolist() == [True, False, False]
    assert not c.positive_definite.check(arete.ones(2, 3))
    matrices = arete.tensor([[[1.0, 0], [5, 1]], [[1, 1], [0, 1]], [[-1, 0], [0, 1]]])
    assert c.lower_cholesky.check(matrices).tolist() == [True, False, False]
    assert c.is_dependent(c.dependent) and not c.is_dependent(c.real)
    with pytest.raises(ValueError):
        c.dependent.check(x)
    with pytest.raises(NotImplementedError, match="event_dim"):
        c.dependent.event_dim
    assert ours.Uniform.support.event_dim == c.dependent(event_dim=0).event_dim == 0


@pytest.mark.parametrize("name, arguments", [
    ("AffineTransform", (1.0, -2.0)), ("ExpTransform", ()), ("SigmoidTransform", ()), ("TanhTransform", ()),
    ("SoftplusTransform", ())])
def test_transforms(name, arguments):
    mine, other = getattr(ours.transforms, name)(*arguments), getattr(theirs.transforms, name)(*arguments)
    values = real(2, 3)
    x, y = arete.tensor(values), torch.tensor(values)
    close(mine(x), other(y))
    close(mine.inv(mine(x)), x)
    close(mine.log_abs_det_jacobian(x, mine(x)), other.log_abs_det_jacobian(y, other(y)))
    close(mine.inv.log_abs_det_jacobian(mine(x), x), other.inv.log_abs_det_jacobian(other(y), y))
    assert (mine.sign, mine.bijective, mine.event_dim) == (other.sign, other.bijective, other.event_dim)
    assert repr(mine.domain) == repr(other.domain) and repr(mine.codomain) == repr(other.codomain)
    assert mine.inv.inv is mine and mine == getattr(ours.transforms, name)(*arguments)
    assert mine != ours.transforms.AbsTransform()
    assert mine.inv == copy.copy(mine).inv
    cached = mine.with_cache()
    assert cached.inv(y := cached(x)) is x and cached(x) is y and mine.with_cache(0) is mine
    assert pickle.loads(pickle.dumps(mine)) == mine


def test_composition():
    t = ours.transforms
    vectors = t.AffineTransform(arete.tensor([1.0, 2.0]), 3.0, event_dim=1)
    mine = t.ComposeTransform([vectors, t.ExpTransform(), t.AffineTransform(0.0, -1.0)])
    x = arete.tensor([[0.1, 0.2]], requires_grad=True)
    assert (mine.domain.event_dim, mine.codomain.event_dim, mine.sign) == (1, 1, -1)
    jacobian = arete.autograd.functional.jacobian(mine, x).reshape(2, 2)
    close(mine.log_abs_det_jacobian(x, mine(x)), arete.linalg.slogdet(jacobian).logabsdet.reshape(1), rtol=1e-5)
    close(mine.inv(mine(x)), x, rtol=1e-5)
    assert mine.forward_shape((3, 1)) == (3, 2)
    assert mine == t.ComposeTransform(mine.parts) and mine != t.identity_transform and t.identity_transform(x) is x
    wider = t.AffineTransform(arete.zeros(3, 2), 1.0, event_dim=1)
    d = ours.TransformedDistribution(ours.Normal(arete.zeros(2), 1.0), wider)
    assert (d.batch_shape, d.event_shape) == ((3,), (2,))
    assert (d.sample((5,)).shape, d.expand((4, 3)).sample().shape) == ((5, 3, 2), (4, 3, 2))


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


def test_straight_through():
    logits = arete.tensor([0.5, 1.0], requires_grad=True)
    x = ours.OneHotCategoricalStraightThrough(logits=logits).rsample((4,))
    assert set(x.round().unique().tolist()) <= {0.0, 1.0}
    x[:, 0].sum().backward()
    p = logits.detach().softmax(-1)
    close(logits.grad, 4 * arete.stack([p[0] * p[1], -p[0] * p[1]]), rtol=1e-5)


def test_subclasses_of_programs():
    class Shifted(ours.Normal):
        """One with arguments of its own."""
        def __init__(self, loc, scale, shift):
            self.shift = shift
            super().__init__(loc + shift, scale)

    wide = Shifted(arete.zeros(2), 1.0, 3.0).expand((4, 2))
    assert (wide.shift, wide.mean.tolist()[0]) == (3.0, [3.0, 3.0])

    class Counts(ours.Multinomial):
        def expand(self, batch_shape, _instance=None):
            new = self._get_checked_instance(Counts, _instance)
            return super().expand(batch_shape, _instance=new)

    wide = Counts(3, arete.ones(2)).expand((4,))
    assert type(wide) is Counts and wide.sample().sum(-1).tolist() == [3.0] * 4

    class Point(ours.Distribution):
        arg_constraints = {}

        def sample(self, sample_shape=arete.Size()):
            return arete.zeros(self._extended_shape(sample_shape))

    assert Point((2,)).sample((3,)).shape == (3, 2) and repr(Point()) == "Point()"
    for ask in (lambda d: d.mean, lambda d: d.entropy(), lambda d: d.log_prob(arete.ones(1)), lambda d: d.rsample(),
                lambda d: d.support):
        with pytest.raises(NotImplementedError):
            ask(Point())


def test_copies():
    for name in ("Normal", "Gamma", "mixture", "squashed", "MultivariateNormal", "RelaxedOneHotCategorical"):
        make, parameters, _ = CASES[name]
        d = make(ours, *(arete.tensor(p) for p in parameters))
        x = d.sample()
        close(copy.deepcopy(d).log_prob(x), d.log_prob(x))
        assert repr(copy.copy(d)) == repr(d)
    d = ours.Normal(arete.zeros(2), 1.0)
    close(pickle.loads(pickle.dumps(d)).mean, d.mean)


def test_seeds():
    def drawn():
        arete.manual_seed(11)
        return [both(name)[0].sample((2,)).tolist() for name in sorted(CASES)]

    assert drawn() == drawn()


def test_addresses():
    for module, name in [("normal", "Normal"), ("categorical", "Categorical"), ("beta", "Beta"),
                         ("kl", "kl_divergence"), ("independent", "Independent"),
                         ("transformed_distribution", "TransformedDistribution"), ("bernoulli", "Bernoulli")]:
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


def test_policy_gradients():
    """The steps of PPO, with discrete and continuous actions: probabilities of better actions grow."""
    arete.manual_seed(12)
    states = arete.randn(256, 3)
    body = arete.nn.Sequential(arete.nn.Linear(3, 16), arete.nn.Tanh())
    choice, mean, log_std = arete.nn.Linear(16, 4), arete.nn.Linear(16, 2), arete.zeros(2, requires_grad=True)
    optimizer = arete.optim.Adam([*body.parameters(), *choice.parameters(), *mean.parameters(), log_std], lr=0.02)

    def policies():
        h = body(states)
        return ours.Categorical(logits=choice(h)), ours.Independent(ours.Normal(mean(h), log_std.exp()), 1)

    def reward(action, move):
        return (action == 2).float() - (move - 1).square().sum(-1)

    rewards = []
    for _ in range(25):
        with arete.no_grad():
            pick, move = policies()
            a, m = pick.sample(), move.sample()
            before = pick.log_prob(a) + move.log_prob(m)
            gains = reward(a, m)
            rewards.append(gains.mean().item())
            gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        for _ in range(4):
            pick, move = policies()
            ratio = (pick.log_prob(a) + move.log_prob(m) - before).exp()
            kept = arete.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains)
            loss = -(kept + 0.001 * (pick.entropy() + move.entropy())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert rewards[-1] > rewards[0] + 1.5


def test_variational_autoencoder():
    arete.manual_seed(13)
    data = (arete.rand(64, 1) < 0.5).float().expand(64, 12) * 0.9 + 0.05
    data = ours.Bernoulli(data).sample()
    encoder, decoder = arete.nn.Linear(12, 4), arete.nn.Linear(2, 12)
    optimizer = arete.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.05)
    losses = []
    for _ in range(60):
        loc, scale = encoder(data).chunk(2, -1)
        posterior = ours.Independent(ours.Normal(loc, arete.nn.functional.softplus(scale)), 1)
        prior = ours.Independent(ours.Normal(arete.zeros_like(loc), 1.0), 1)
        rebuilt = ours.Independent(ours.Bernoulli(logits=decoder(posterior.rsample())), 1)
        loss = (ours.kl_divergence(posterior, prior) - rebuilt.log_prob(data)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 2


def test_squashed_actor():
    """The step of SAC: samples and their densities, with gradients, far outside of where atanh is precise."""
    loc = arete.tensor([0.0, 8.0], requires_grad=True)
    d = ours.TransformedDistribution(ours.Normal(loc, 1.0), [ours.transforms.TanhTransform(cache_size=1)])
    x = d.rsample((100,))
    log_p = ours.Independent(d, 1).log_prob(x)
    assert log_p.shape == (100,) and arete.isfinite(log_p).all()
    (log_p.mean() - x.sum(-1).mean()).backward()
    assert arete.isfinite(loc.grad).all()


def test_line_of_a_fit():
    """Gamma's parameters found again by likelihood, and by samples."""
    arete.manual_seed(14)
    data = ours.Gamma(3.0, 2.0).sample((2000,))
    raw = arete.zeros(2, requires_grad=True)
    optimizer = arete.optim.Adam([raw], lr=0.05)
    for _ in range(200):
        loss = -ours.Gamma(*raw.exp()).log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    np.testing.assert_allclose(raw.exp().tolist(), [3.0, 2.0], rtol=0.12)
