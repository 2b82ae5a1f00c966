"""The normal distribution's counterpart for angles."""
from __future__ import annotations

import math

from .. import _operators, special
from .._grad_mode import no_grad
from .._operators import Size, where
from . import constraints
from .distribution import Distribution

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles of [-pi, pi) around `loc`, the closer the larger `concentration` is. Mean and variance are those of
    angles. Samples have no gradient.

    >>> d = arete.distributions.VonMises(0.0, arete.tensor([1.0, 10.0]))
    >>> d.variance, d.log_prob(arete.tensor(0.5))
    (tensor([0.5536, 0.0514]), tensor([-1.1962, -1.0050]))
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc, concentration, validate_args=None):
        self._init(validate_args, loc=loc, concentration=concentration)

    mean = property(lambda self: self.loc)
    mode = property(lambda self: self.loc)
    variance = property(lambda self: 1 - special.i1e(self.concentration) / special.i0e(self.concentration))

    def log_prob(self, value):
        # cos(x) - 1 by the half angle: large concentrations lose no digits where angles are small
        half = ((self._checked(value) - self.loc) / 2).sin().square()
        return -2 * self.concentration * half - special.i0e(self.concentration).log() - math.log(2 * math.pi)

    def sample(self, sample_shape=Size()):
        """Angles of a wrapped Cauchy distribution that is nowhere far below, of which at least 65 % are taken (Best and
        Fisher, 1979). In double precision."""
        with no_grad():
            shape = self._extended_shape(sample_shape)
            k = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k.square()).sqrt()
            below = tau + (2 * tau).sqrt()
            rho = 2 * k / below
            squares = 1 + rho.square()
            angle = k.new_full(shape, math.nan)
            todo = k.isfinite() & (k >= 0)
            while todo.any():
                z = (math.pi * k.new_empty(shape).uniform_()).cos()
                cosine = ((2 * rho + squares * z) / (squares + 2 * rho * z)).clamp(-1, 1)
                c = squares * below / 4 - k * cosine
                chance = k.new_empty(shape).uniform_()
                taken = todo & ((c * (2 - c) > chance) | (c.log() - chance.log() + 1 - c >= 0))
                angle = where(taken, cosine.acos(), angle)
                todo = todo & ~taken
            sign = where(k.new_empty(shape).uniform_() < 0.5, -1.0, 1.0)
            angle = (sign * angle + self.loc.double() + math.pi).remainder(2 * math.pi) - math.pi
            return angle.to(self.loc.dtype)
