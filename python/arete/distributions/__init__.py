"""Probability distributions under the names of torch.distributions.

Their parameters broadcast, samples have the shape sample_shape + batch_shape + event_shape. `sample()` has no gradient,
`rsample()` one for the parameters, where `has_rsample` says so. Arguments are checked, which on a GPU waits for it:
`validate_args=False` and `Distribution.set_default_validate_args(False)` spare that."""
import sys as _sys

from . import (categorical, constraints, distribution, gamma, kl, location_scale, multivariate_normal, relaxed, tails,
               transformed_distribution, transforms, uniform)
from .categorical import (Bernoulli, Binomial, Categorical, Geometric, Multinomial, NegativeBinomial, OneHotCategorical,
                          OneHotCategoricalStraightThrough, Poisson)
from .distribution import Distribution
from .gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from .kl import kl_divergence, register_kl
from .location_scale import Cauchy, Gumbel, Laplace, Normal
from .multivariate_normal import MultivariateNormal
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .tails import FisherSnedecor, HalfCauchy, InverseGamma, Pareto, Weibull
from .transformed_distribution import HalfNormal, Independent, LogNormal, MixtureSameFamily, TransformedDistribution
from .transforms import (AbsTransform, AffineTransform, ComposeTransform, ExpTransform, IndependentTransform,
                         PowerTransform, SigmoidTransform, SoftplusTransform, TanhTransform, Transform, identity_transform)
from .uniform import Exponential, Uniform

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "Dirichlet", "Distribution", "ExpTransform", "Exponential", "FisherSnedecor",
    "Gamma", "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform", "InverseGamma",
    "Laplace", "LogNormal", "MixtureSameFamily", "Multinomial",
    "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto",
    "Poisson", "PowerTransform",
    "RelaxedBernoulli", "RelaxedOneHotCategorical", "SigmoidTransform", "SoftplusTransform", "StudentT",
    "TanhTransform", "Transform", "TransformedDistribution", "Uniform", "Weibull", "constraints", "identity_transform",
    "kl_divergence", "register_kl", "transforms"]

# The modules that torch has for single distributions: `from torch.distributions.normal import Normal`.
for _home, _names in ((categorical, "bernoulli binomial geometric multinomial negative_binomial one_hot_categorical "
                                    "poisson"), (tails, "fishersnedecor half_cauchy inverse_gamma pareto weibull"),
                      (gamma, "beta chi2 dirichlet studentT"), (location_scale, "cauchy gumbel laplace normal"),
                      (relaxed, "relaxed_bernoulli relaxed_categorical"), (uniform, "exponential"),
                      (transformed_distribution, "half_normal independent log_normal mixture_same_family")):
    for _name in _names.split():
        globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = _home
