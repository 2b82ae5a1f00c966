"""Transforms from all real numbers to what constraints allow: `biject_to` gives bijective ones, for densities,
`transform_to` those that suit optimizers."""
from __future__ import annotations

from numbers import Number

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Functions of constraints by the classes of these.

    >>> arete.distributions.transform_to(arete.distributions.Normal.arg_constraints["scale"])
    ExpTransform()
    """

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Makes a function of a constraint the one for its class; without `factory` as a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        cls = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(cls, constraints.Constraint):
            raise TypeError("Expected constraint to be either a Constraint subclass or instance, "
                            f"but got {constraint}")
        self._registry[cls] = factory
        return factory

    def __call__(self, constraint):
        """A transform whose values satisfy the constraint; NotImplementedError, if none is registered for its class."""
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints") from None
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _is(bound, value):
    return isinstance(bound, Number) and bound == value


def _above(constraint):
    if _is(constraint.lower_bound, 0):
        return transforms.ExpTransform()
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)])


def _below(constraint):
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)])


def _between(constraint):
    low, high = constraint.lower_bound, constraint.upper_bound
    if _is(low, 0) and _is(high, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


for _registry in (biject_to, transform_to):
    _registry.register(constraints.real, lambda constraint: transforms.identity_transform)
    for _cls in (constraints.greater_than, constraints.greater_than_eq):
        _registry.register(_cls, _above)
    _registry.register(constraints.less_than, _below)
    for _cls in (constraints.interval, constraints.half_open_interval):
        _registry.register(_cls, _between)
    _registry.register(constraints.corr_cholesky, lambda constraint: transforms.CorrCholeskyTransform())
    _registry.register(constraints.independent, lambda c, to=_registry: transforms.IndependentTransform(
        to(c.base_constraint), c.reinterpreted_batch_ndims))
    _registry.register(constraints.cat, lambda c, to=_registry: transforms.CatTransform(
        [to(part) for part in c.cseq], c.dim, c.lengths))
    _registry.register(constraints.stack, lambda c, to=_registry: transforms.StackTransform(
        [to(part) for part in c.cseq], c.dim))
biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_constraint, lambda constraint: transforms.PositiveDefiniteTransform())
