"""Probability distributions under the names of torch.distributions.

Their parameters broadcast, samples have the shape sample_shape + batch_shape + event_shape. `sample()` has no gradient,
`rsample()` one for the parameters, where `has_rsample` says so. Arguments are checked, which on a GPU waits for it:
`validate_args=False` and `Distribution.set_default_validate_args(False)` spare that."""
import sys as _sys

from . import (categorical, constraints, distribution, gamma, kl, location_scale, multivariate_normal, relaxed,
               transformed_distribution, transforms, uniform)
from .categorical import (Bernoulli, Binomial, Categorical, Geometric, Multinomial, OneHotCategorical,
                          OneHotCategoricalStraightThrough, Poisson)
from .distribution import Distribution
from .gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from .kl import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, Laplace, Normal
from .multivariate_normal import MultivariateNormal
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .transformed_distribution import HalfNormal, Independent, LogNormal, MixtureSameFamily, TransformedDistribution
from .transforms import (AbsTransform, AffineTransform, ComposeTransform, ExpTransform, IndependentTransform,
                         SigmoidTransform, SoftplusTransform, TanhTransform, Transform, identity_transform)
from .uniform import Exponential, Uniform

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential", "Gamma", "Geometric", "Gumbel",
    "HalfNormal", "Independent", "IndependentTransform", "Laplace", "LogNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Poisson",
    "RelaxedBernoulli", "RelaxedOneHotCategorical", "SigmoidTransform", "SoftplusTransform", "StudentT",
    "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "constraints", "identity_transform",
    "kl_divergence", "register_kl", "transforms"]

# The modules that torch has for single distributions: `from torch.distributions.normal import Normal`.
for _home, _names in ((categorical, "bernoulli binomial geometric multinomial one_hot_categorical poisson"),
                      (gamma, "beta chi2 dirichlet studentT"), (location_scale, "cauchy gumbel laplace normal"),
                      (relaxed, "relaxed_bernoulli relaxed_categorical"), (uniform, "exponential"),
                      (transformed_distribution, "half_normal independent log_normal mixture_same_family")):
    for _name in _names.split():
        globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = _home
