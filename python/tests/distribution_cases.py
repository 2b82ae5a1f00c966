"""Distributions of both libraries with their parameters, and how their results are compared."""
import numpy as np
import pytest
from peer import peer

import arete
from arete import distributions as ours

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


def correlation(*shape):
    x = np.tril(RANDOM.normal(size=shape), -1) + np.eye(shape[-1])
    return x / np.sqrt((x * x).sum(-1, keepdims=True))


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
    "HalfCauchy": (called("HalfCauchy"), [positive(2, 3)], positive(2, 3)),
    "Pareto": (called("Pareto"), [unit(3), 2.5 + positive(2, 3)], 1.0 + positive(2, 3)),
    "Weibull": (called("Weibull"), [positive(3), 1.1 + positive(2, 3)], positive(2, 3)),
    "InverseGamma": (called("InverseGamma"), [2.5 + positive(3), positive(2, 3)], positive(2, 3)),
    "FisherSnedecor": (called("FisherSnedecor"), [2.5 + positive(3), 4.5 + positive(2, 3)], positive(2, 3)),
    "NegativeBinomial": (lambda library, p: library.NegativeBinomial(7, p), [unit(3)], np.array([[0.0, 1, 5], [2, 7, 1]])),
    "NegativeBinomial logits": (
        lambda library, n, p: library.NegativeBinomial(n, logits=p), [positive(3), real(3)], np.array([0.0, 4, 2])),
    "GeneralizedPareto": (
        called("GeneralizedPareto"), [real(3), positive(3), np.array([[0.3, -0.4, 1e-3], [0.7, -0.9, 1.5]])], None),
    "Kumaraswamy": (called("Kumaraswamy"), [positive(3) + 1, positive(2, 3) + 1], unit(2, 3)),
    "ContinuousBernoulli": (called("ContinuousBernoulli"), [np.array([0.1, 0.45, 0.3, 0.8])], unit(2, 4)),
    "ContinuousBernoulli logits": (named("ContinuousBernoulli", "logits"), [real(2, 3)], unit(2, 3)),
    "LogisticNormal": (called("LogisticNormal"), [real(2, 3), positive(3)], simplex(5, 2, 4)),
    "VonMises": (called("VonMises"), [real(3), positive(2, 3)], real(4, 2, 3)),
    "LKJCholesky": (lambda library, c: library.LKJCholesky(4, c), [positive(3)], correlation(5, 3, 4, 4)),
    "LKJCholesky of two": (lambda library, c: library.LKJCholesky(2, c), [positive()], correlation(5, 2, 2)),
    "LowRankMultivariateNormal": (
        called("LowRankMultivariateNormal"), [real(4), real(2, 4, 2), positive(4)], real(5, 2, 4)),
    "LowRankMultivariateNormal one covariance": (
        called("LowRankMultivariateNormal"), [real(3, 4), real(4, 1), positive(4)], real(5, 3, 4)),
    "Wishart": (called("Wishart"), [3.5 + positive(2), matrix(2, 3, 3)], matrix(5, 2, 3, 3)),
    "Wishart precision": (named("Wishart", "df", "precision_matrix"), [3.5 + positive(2), matrix(3, 3)], matrix(2, 3, 3)),
    "Wishart tril": (named("Wishart", "df", "scale_tril"), [3.5 + positive(), tril(2, 2)], matrix(2, 2)),
    "powers": (lambda library, c, p: library.TransformedDistribution(library.Exponential(c), [library.transforms.PowerTransform(p)]),
               [positive(3), positive(2, 1)], positive(2, 3)),
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
    rough = 10 * tolerance.get("rtol", 0)
    assert mine.requires_grad == other.requires_grad
    weights = RANDOM.normal(size=tuple(mine.shape))
    got = arete.autograd.grad((mine * arete.tensor(weights)).sum(), leaves, allow_unused=True, retain_graph=True)
    total = (other * torch.tensor(weights)).sum()
    expected = torch.autograd.grad(total, other_leaves, allow_unused=True, retain_graph=True)
    for slopes, leaf in zip(zip(got, expected), leaves):
        a, b = (np.zeros(tuple(leaf.shape)) if slope is None else slope.numpy() for slope in slopes)
        np.testing.assert_allclose(a, b, rtol=max(1e-7, rough), atol=max(1e-9, rough))


def precision_of(name):
    """PyTorch's Bessel functions have seven digits."""
    return {"rtol": 1e-6} if name == "VonMises" else {}


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
