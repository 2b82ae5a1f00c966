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
