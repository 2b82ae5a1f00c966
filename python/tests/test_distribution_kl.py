"""Divergences between distributions beside PyTorch's."""
import math

import numpy as np
import pytest
from distribution_cases import close, compare, matrix, positive, real, simplex, theirs, torch, unit

import arete
from arete import distributions as ours

KL_PARAMETERS = {
    "Normal": [real(3), positive(2, 3)], "LogNormal": [real(3), positive(3)], "HalfNormal": [positive(3)],
    "Laplace": [real(3), positive(3)], "Cauchy": [real(3), positive(3)], "Gumbel": [real(3), positive(3)],
    "Exponential": [positive(3)], "Gamma": [positive(3), positive(3)], "Chi2": [positive(3)],
    "Beta": [positive(3), positive(3)], "Dirichlet": [positive(2, 4)], "Bernoulli": [unit(3)], "Geometric": [unit(3)],
    "Poisson": [positive(3)], "Categorical": [simplex(3, 4)], "OneHotCategorical": [simplex(3, 4)],
    "MultivariateNormal": [real(2, 3), matrix(3, 3)], "LowRankMultivariateNormal": [real(4, 2, 3), real(2, 3, 2), positive(3)],
    "ContinuousBernoulli": [unit(3)], "Pareto": [0.3 * unit(3), 2.5 + positive(3)], "Uniform": [0.4 * unit(3), 0.5 + 0.5 * unit(3)],
}
KL_TO = {
    "Normal": "Beta Exponential Gamma Gumbel Laplace Uniform Chi2 ContinuousBernoulli",
    "Gamma": "Beta Exponential Uniform Normal Pareto", "Laplace": "Normal", "Poisson": "Bernoulli", "Bernoulli": "Poisson",
    "Exponential": "Beta Gamma Uniform Normal Laplace Gumbel ContinuousBernoulli Pareto",
    "Beta": "Uniform Exponential Normal Pareto", "Gumbel": "Normal Exponential Gamma Uniform",
    "Uniform": "Beta Gamma Normal ContinuousBernoulli Pareto",
    "ContinuousBernoulli": "Beta Exponential Gamma Laplace Pareto Uniform",
    "Pareto": "Beta ContinuousBernoulli Exponential Gamma Gumbel Laplace Normal Uniform",
    "LowRankMultivariateNormal": "MultivariateNormal", "MultivariateNormal": "LowRankMultivariateNormal",
}
KL_PAIRS = [(name, name) for name in KL_PARAMETERS] + [(p, q) for q, names in KL_TO.items() for p in names.split()]


@pytest.mark.parametrize("p, q", KL_PAIRS)
def test_kl(p, q):
    def made(library, module):
        leaves = [[module.tensor(v[..., ::-1].copy() if flip and "Multi" not in name else v, requires_grad=True)
                   for v in KL_PARAMETERS[name]] for name, flip in ((p, False), (q, True))]
        if q == "Uniform" and p in ("Uniform", "Beta", "ContinuousBernoulli"):  # finite ones
            leaves[1] = [module.tensor(np.full(3, bound), requires_grad=True) for bound in (-0.5, 1.5)]
        left, right = (getattr(library, name)(*values) for name, values in zip((p, q), leaves))
        return library.kl_divergence(left, right), leaves[0] + leaves[1]

    mine, other = made(ours, arete), made(theirs, torch)
    if p == q or np.isfinite(other[0].detach().numpy()).all():
        compare(*mine, *other, atol=1e-9)
    else:
        close(mine[0], other[0])


def test_all_pairs_are_there():
    names = {(p.__name__, q.__name__) for p, q in theirs.kl._KL_REGISTRY if p.__module__.startswith("torch.")}
    mine = {(p.__name__, q.__name__) for p, q in ours.kl._RULES}
    assert len(names) > 80 and names <= mine


def test_kl_where_one_support_is_not_in_the_other():
    inside, p = ours.ContinuousBernoulli(0.3), ours.Pareto(1.0, 3.0)
    assert ours.kl_divergence(p, ours.Pareto(2.0, 3.0)).isinf() and ours.kl_divergence(inside, p).isinf()
    assert ours.kl_divergence(ours.Uniform(-0.1, 0.5), inside).isinf()
    assert ours.kl_divergence(ours.Pareto(1.0, 0.9), ours.Exponential(1.0)).isinf()
    assert ours.kl_divergence(ours.Pareto(1.0, 1.5), ours.Normal(0.0, 1.0)).isinf()
    assert ours.kl_divergence(ours.Uniform(0.5, 2.0), p).isinf()
    values = (2.0, 3.0), (1.0, 4.0)  # PyTorch's takes no shapes that broadcast
    close(*(library.kl_divergence(library.Pareto(*values[0]), library.Normal(*values[1])) for library in (ours, theirs)),
          rtol=1e-5)
    whole = ours.Uniform(0.0, 1.0)  # the bounds themselves, where PyTorch's is infinite
    close(ours.kl_divergence(inside, whole), -inside.entropy())
    close(ours.kl_divergence(whole, inside), -inside.log_prob(arete.tensor([0.0, 1.0])).mean(), rtol=1e-5)


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
        ours.register_kl(Left(0.0, 1.0), Left)

    class Lazy:  # as funsor's and Pyro's, which are no distributions
        pass

    ours.register_kl(Lazy, ours.Normal)(lambda p, q: "lazy")
    assert ours.kl_divergence(Lazy(), Left(0.0, 1.0)) == "lazy"
