"""Probability distributions under the names of torch.distributions.

Their parameters broadcast, samples have the shape sample_shape + batch_shape + event_shape. `sample()` has no gradient,
`rsample()` one for the parameters, where `has_rsample` says so. Arguments are checked, which on a GPU waits for it:
`validate_args=False` and `Distribution.set_default_validate_args(False)` spare that."""
import sys as _sys

from . import (categorical, constraint_registry, constraints, distribution, exp_family, gamma, kl, lkj_cholesky,
               location_scale, multivariate_normal, relaxed, tails, transformed_distribution, transforms, uniform,
               unit_interval, utils, von_mises, wishart)
from .categorical import (Bernoulli, Binomial, Categorical, Geometric, Multinomial, NegativeBinomial, OneHotCategorical,
                          OneHotCategoricalStraightThrough, Poisson)
from .constraint_registry import biject_to, transform_to
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .gamma import Beta, Chi2, Dirichlet, Gamma, StudentT
from .kl import kl_divergence, register_kl
from .lkj_cholesky import LKJCholesky
from .location_scale import Cauchy, Gumbel, Laplace, Normal
from .multivariate_normal import LowRankMultivariateNormal, MultivariateNormal
from .relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from .tails import FisherSnedecor, GeneralizedPareto, HalfCauchy, InverseGamma, Pareto, Weibull
from .transformed_distribution import (HalfNormal, Independent, LogisticNormal, LogNormal, MixtureSameFamily,
                                       TransformedDistribution)
from .transforms import (AbsTransform, AffineTransform, CatTransform, ComposeTransform, CorrCholeskyTransform,
                         CumulativeDistributionTransform, ExpTransform, IndependentTransform, LowerCholeskyTransform,
                         PositiveDefiniteTransform, PowerTransform, ReshapeTransform, SigmoidTransform, SoftmaxTransform,
                         SoftplusTransform, StackTransform, StickBreakingTransform, TanhTransform, Transform,
                         identity_transform)
from .uniform import Exponential, Uniform
from .unit_interval import ContinuousBernoulli, Kumaraswamy
from .von_mises import VonMises
from .wishart import Wishart

__all__ = [
    "AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy", "Chi2",
    "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet",
    "Distribution", "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto",
    "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform", "InverseGamma",
    "Kumaraswamy", "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal",
    "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
    "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform",
    "PowerTransform", "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform",
    "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT", "TanhTransform",
    "Transform", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "constraints",
    "identity_transform", "kl_divergence", "register_kl", "transform_to", "transforms"]

# The modules that torch has for single distributions: `from torch.distributions.normal import Normal`.
for _home, _names in ((categorical, "bernoulli binomial geometric multinomial negative_binomial one_hot_categorical "
                                    "poisson"), (gamma, "beta chi2 dirichlet studentT"), (uniform, "exponential"),
                      (tails, "fishersnedecor generalized_pareto half_cauchy inverse_gamma pareto weibull"),
                      (location_scale, "cauchy gumbel laplace normal"), (multivariate_normal, "lowrank_multivariate_normal"),
                      (relaxed, "relaxed_bernoulli relaxed_categorical"),
                      (unit_interval, "continuous_bernoulli kumaraswamy"),
                      (transformed_distribution, "half_normal independent log_normal logistic_normal mixture_same_family")):
    for _name in _names.split():
        globals()[_name] = _sys.modules[f"{__name__}.{_name}"] = _home
