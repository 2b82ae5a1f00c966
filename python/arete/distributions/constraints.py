"""What parameters and samples have to satisfy: `check(value)` is a mask, in which the last `event_dim` dimensions are
reduced."""
from __future__ import annotations

from .. import _operators, linalg

__all__ = ["Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent",
           "dependent_property", "greater_than", "greater_than_eq", "half_open_interval", "independent",
           "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky", "lower_triangular",
           "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
           "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric",
           "unit_interval"]


class Constraint:
    """A set of values; those of events have `event_dim` dimensions.

    >>> arete.distributions.constraints.positive.check(arete.tensor([1.0, 0.0]))
    tensor([ True, False])
    """

    is_discrete = False
    event_dim = 0

    def check(self, value):
        raise NotImplementedError

    def __repr__(self):
        name = type(self).__name__
        name = name.title().replace("_", "") if name.islower() else name.lstrip("_")
        return f"{name}({', '.join(f'{k}={v}' for k, v in vars(self).items())})"


def is_dependent(constraint) -> bool:
    """Whether a constraint is not known before the parameters are, as that of Uniform's samples.

    >>> arete.distributions.constraints.is_dependent(arete.distributions.Uniform.support)
    True
    """
    return isinstance(constraint, (_Dependent, dependent_property))


def _told(name):
    """A property that may not be known."""
    def value(self):
        if self._known[name] is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return self._known[name]

    return property(value)


class _Dependent(Constraint):
    is_discrete, event_dim = _told("is_discrete"), _told("event_dim")

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._known = {"is_discrete": is_discrete, "event_dim": event_dim}

    def __repr__(self):
        return "Dependent()"

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        return _Dependent(is_discrete=is_discrete, event_dim=event_dim)

    def check(self, value):
        raise ValueError("Cannot determine validity of dependent constraint")


class dependent_property(property):
    """A property whose value is a constraint that depends on the parameters.

    >>> class Below(arete.distributions.Distribution):
    ...     @arete.distributions.constraints.dependent_property(is_discrete=False, event_dim=0)
    ...     def support(self):
    ...         return arete.distributions.constraints.less_than(2.0)
    >>> Below().support
    LessThan(upper_bound=2.0)
    """

    is_discrete, event_dim = _told("is_discrete"), _told("event_dim")

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        super().__init__(fn)
        self._known = {"is_discrete": is_discrete, "event_dim": event_dim}

    def __call__(self, fn):
        return dependent_property(fn, **self._known)


class interval(Constraint):
    """lower_bound <= value <= upper_bound; the bounds are numbers, or tensors that broadcast to the value.

    >>> arete.distributions.constraints.interval(0.0, 1.0).check(arete.tensor([1.0, 1.5]))
    tensor([ True, False])
    """

    def __init__(self, lower_bound, upper_bound):
        self.lower_bound, self.upper_bound = lower_bound, upper_bound

    def check(self, value):
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class half_open_interval(interval):
    """lower_bound <= value < upper_bound.

    >>> arete.distributions.constraints.half_open_interval(0.0, 1.0).check(arete.tensor([0.0, 1.0]))
    tensor([ True, False])
    """

    def check(self, value):
        return (value >= self.lower_bound) & (value < self.upper_bound)


class integer_interval(interval):
    """The whole numbers from lower_bound to upper_bound.

    >>> arete.distributions.constraints.integer_interval(0, 3).check(arete.tensor([3.0, 0.5, 4.0]))
    tensor([ True, False, False])
    """

    is_discrete = True

    def check(self, value):
        return super().check(value) & (value % 1 == 0)


class greater_than(Constraint):
    """value > lower_bound.

    >>> arete.distributions.constraints.greater_than(1.0).check(arete.tensor([1.0, 2.0]))
    tensor([False,  True])
    """

    def __init__(self, lower_bound):
        self.lower_bound = lower_bound

    def check(self, value):
        return value > self.lower_bound


class greater_than_eq(greater_than):
    """value >= lower_bound.

    >>> arete.distributions.constraints.greater_than_eq(1.0).check(arete.tensor([1.0, 0.0]))
    tensor([ True, False])
    """

    def check(self, value):
        return value >= self.lower_bound


class _IntegerGreaterThan(greater_than):
    is_discrete = True

    def check(self, value):
        return (value >= self.lower_bound) & (value % 1 == 0)


class less_than(Constraint):
    """value < upper_bound.

    >>> arete.distributions.constraints.less_than(1.0).check(arete.tensor([1.0, 0.0]))
    tensor([False,  True])
    """

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, value):
        return value < self.upper_bound


class _Real(Constraint):
    def check(self, value):
        return value == value  # all but nan


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & (value.sum(-1) == 1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class multinomial(Constraint):
    """Counts, in the last dimension, whose sum is at most upper_bound.

    >>> arete.distributions.constraints.multinomial(3).check(arete.tensor([[1.0, 2.0], [2.0, 2.0]]))
    tensor([ True, False])
    """

    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound):
        self.upper_bound = upper_bound

    def check(self, value):
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value):
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    def check(self, value):
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    def check(self, value):
        tolerance = 10 * value.shape[-1] * _operators.finfo(value.dtype).eps
        return super().check(value) & ((value.square().sum(-1).sqrt() - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value):
        return _operators.full(value.shape[:-2], value.shape[-2] == value.shape[-1], device=value.device)


class _Symmetric(_Square):
    def check(self, value):
        square = super().check(value)
        if value.shape[-1] != value.shape[-2]:
            return square
        return _operators.isclose(value, value.mT, atol=1e-6).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric & (linalg.eigvalsh(value) >= 0).all(-1) if symmetric.all() else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        if value.shape[-1] != value.shape[-2]:
            return symmetric
        return symmetric & (linalg.cholesky_ex(value).info == 0)


class independent(Constraint):
    """A constraint whose last batch dimensions are part of the event: all elements there have to satisfy it.

    >>> arete.distributions.constraints.real_vector.check(arete.tensor([[1.0, 2.0], [0.0, float("nan")]]))
    tensor([ True, False])
    """

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    @property
    def is_discrete(self):
        return self.base_constraint.is_discrete

    @property
    def event_dim(self):
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value):
        valid = self.base_constraint.check(value)
        if valid.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        count = self.reinterpreted_batch_ndims
        return valid.flatten(-count).all(-1) if count else valid

    def __repr__(self):
        return f"IndependentConstraint({self.base_constraint}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Values that every component of a mixture may take.

    >>> c = arete.distributions.constraints
    >>> c.MixtureSameFamilyConstraint(c.interval(0.0, arete.tensor([1.0, 2.0]))).check(arete.tensor(1.5))
    tensor(False)
    """

    def __init__(self, base_constraint):
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value):
        return self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)).all(-1)

    def __repr__(self):
        return f"MixtureSameFamilyConstraint({self.base_constraint})"


class _parts(Constraint):
    """Constraints of the pieces of a value along one dimension."""

    def __init__(self, cseq, dim=0):
        self.cseq, self.dim = list(cseq), dim
        if not all(isinstance(constraint, Constraint) for constraint in self.cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")

    is_discrete = property(lambda self: any(constraint.is_discrete for constraint in self.cseq))
    event_dim = property(lambda self: max(constraint.event_dim for constraint in self.cseq))


class cat(_parts):
    """Pieces of the `lengths` along a dimension, each with a constraint of its own; the masks are joined there.

    >>> c = arete.distributions.constraints
    >>> c.cat([c.positive, c.real], lengths=[1, 2]).check(arete.tensor([-1.0, -1.0, 0.0]))
    tensor([False,  True,  True])
    """

    def __init__(self, cseq, dim=0, lengths=None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value):
        pieces = value.split(self.lengths, self.dim)
        return _operators.cat([c.check(piece) for c, piece in zip(self.cseq, pieces)], self.dim)


class stack(_parts):
    """One constraint for each index of a dimension.

    >>> c = arete.distributions.constraints
    >>> c.stack([c.positive, c.real], dim=-1).check(arete.tensor([[1.0, -1.0], [-1.0, 1.0]]))
    tensor([[ True,  True],
            [False,  True]])
    """

    @property
    def event_dim(self):
        inner = super().event_dim
        return inner + 1 if self.dim + inner < 0 else inner

    def check(self, value):
        if value.shape[self.dim] != len(self.cseq):
            raise AssertionError(f"dimension {self.dim} of {tuple(value.shape)} must have {len(self.cseq)} elements")
        return _operators.stack([c.check(piece) for c, piece in zip(self.cseq, value.unbind(self.dim))], self.dim)


dependent = _Dependent()
boolean, one_hot, real, simplex = _Boolean(), _OneHot(), _Real(), _Simplex()
nonnegative_integer, positive_integer = _IntegerGreaterThan(0), _IntegerGreaterThan(1)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
real_vector = independent(real, 1)
lower_triangular, lower_cholesky, corr_cholesky = _LowerTriangular(), _LowerCholesky(), _CorrCholesky()
square, symmetric = _Square(), _Symmetric()
positive_semidefinite, positive_definite = _PositiveSemidefinite(), _PositiveDefinite()
