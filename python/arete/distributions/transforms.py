"""Invertible functions of tensors with the logarithms of their slopes. `event_dim` dimensions at the end are one
argument."""
from __future__ import annotations

import math
import weakref
from numbers import Number
from typing import List

from .. import _operators
from .._C import Tensor
from ..nn import functional as F
from . import constraints
from .distribution import sum_rightmost

__all__ = ["AbsTransform", "AffineTransform", "ComposeTransform", "ExpTransform", "IndependentTransform",
           "PowerTransform", "SigmoidTransform", "SoftplusTransform", "TanhTransform", "Transform", "identity_transform"]


class Transform:
    """A function with `inv` and `log_abs_det_jacobian(x, y)`. With `cache_size=1` the inverse of the last result is its
    argument itself, which spares the inverse's rounding.

    >>> t = arete.distributions.TanhTransform(cache_size=1)
    >>> x = arete.tensor([20.0])
    >>> t.inv(t(x))
    tensor([20.])
    """

    bijective = False
    domain = codomain = constraints.real

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inverse_made = None
        self._last = None, None

    def __getstate__(self):
        return {**self.__dict__, "_inverse_made": None, "_last": (None, None)}

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> "Transform":
        """The inverse, whose inverse is this one."""
        inverse = self._inverse_made and self._inverse_made()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inverse_made = weakref.ref(inverse)
        return inverse

    @property
    def sign(self) -> int:
        """1 where the function rises, -1 where it falls."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> "Transform":
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if self._cache_size and x is self._last[0]:
            return self._last[1]
        y = self._call(x)
        if self._cache_size:
            self._last = x, y
        return y

    def _inv_call(self, y):
        if self._cache_size and y is self._last[1]:
            return self._last[0]
        x = self._inverse(y)
        if self._cache_size:
            self._last = x, y
        return x

    def _call(self, x):
        raise NotImplementedError

    def _inverse(self, y):
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx|."""
        raise NotImplementedError

    def forward_shape(self, shape):
        return shape

    def inverse_shape(self, shape):
        return shape

    def __repr__(self):
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    def __init__(self, transform):
        super().__init__(transform._cache_size)
        self._transform = transform

    domain = property(lambda self: self._transform.codomain)
    codomain = property(lambda self: self._transform.domain)
    bijective = property(lambda self: self._transform.bijective)
    sign = property(lambda self: self._transform.sign)
    inv = property(lambda self: self._transform)

    def with_cache(self, cache_size=1):
        return self._transform.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._transform == other._transform

    __hash__ = object.__hash__

    def __call__(self, x):
        return self._transform._inv_call(x)

    def _inv_call(self, y):
        return self._transform(y)

    def log_abs_det_jacobian(self, x, y):
        return -self._transform.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._transform.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._transform.forward_shape(shape)

    def __repr__(self):
        return f"_InverseTransform({self._transform!r})"


class ComposeTransform(Transform):
    """Several transforms, the first of the list first.

    >>> t = arete.distributions.ComposeTransform([
    ...     arete.distributions.AffineTransform(0.0, 2.0), arete.distributions.ExpTransform()])
    >>> t(arete.tensor(0.5)), t.inv(t(arete.tensor(0.5)))
    (tensor(2.7183), tensor(0.5000))
    """

    def __init__(self, parts: List[Transform], cache_size: int = 0):
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    def _end(self, parts, inner, outer):
        """The constraint at one end, with as many event dimensions as the other parts need there."""
        if not parts:
            return constraints.real
        end, rank = outer(parts[-1]), inner(parts[0]).event_dim
        for part in parts:
            rank = outer(part).event_dim + max(rank - inner(part).event_dim, 0)
        return constraints.independent(end, rank - end.event_dim) if rank > end.event_dim else end

    @property
    def domain(self):
        return self._end(self.parts[::-1], lambda part: part.codomain, lambda part: part.domain)

    @property
    def codomain(self):
        return self._end(self.parts, lambda part: part.domain, lambda part: part.codomain)

    @property
    def bijective(self):
        return all(part.bijective for part in self.parts)

    @property
    def sign(self):
        return math.prod(part.sign for part in self.parts)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def _call(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def _inverse(self, y):
        for part in reversed(self.parts):
            y = part.inv(y)
        return y

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return _operators.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total, rank = 0, self.domain.event_dim
        for part, a, b in zip(self.parts, values, values[1:]):
            total = total + sum_rightmost(part.log_abs_det_jacobian(a, b), rank - part.domain.event_dim)
            rank += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self):
        return "ComposeTransform(\n    " + ",\n    ".join(map(repr, self.parts)) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """A transform of elements as one of vectors or larger events: the slopes' logarithms are added up.

    >>> t = arete.distributions.IndependentTransform(arete.distributions.ExpTransform(), 1)
    >>> x = arete.tensor([1.0, 2.0])
    >>> t.log_abs_det_jacobian(x, t(x))
    tensor(3.)
    """

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    def _joined(self, constraint):
        return constraints.independent(constraint, self.reinterpreted_batch_ndims)

    domain = property(lambda self: self._joined(self.base_transform.domain))
    codomain = property(lambda self: self._joined(self.base_transform.codomain))
    bijective = property(lambda self: self.base_transform.bijective)
    sign = property(lambda self: self.base_transform.sign)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else IndependentTransform(
            self.base_transform, self.reinterpreted_batch_ndims, cache_size)

    def _call(self, x):
        if x.dim() < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y):
        if y.dim() < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x, y):
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)

    def __repr__(self):
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class AffineTransform(Transform):
    """loc + scale * x, which broadcast.

    >>> arete.distributions.AffineTransform(1.0, 2.0)(arete.tensor([0.0, 3.0]))
    tensor([1., 7.])
    """

    bijective = True

    def __init__(self, loc, scale, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)

    @property
    def domain(self):
        return constraints.independent(constraints.real, self._event_dim) if self._event_dim else constraints.real

    codomain = domain

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else AffineTransform(
            self.loc, self.scale, self._event_dim, cache_size)

    def __eq__(self, other):
        def same(a, b):
            return a is b or (a == b if isinstance(a, Number) and isinstance(b, Number)
                              else bool((_operators.as_tensor(a) == _operators.as_tensor(b)).all()))

        return isinstance(other, AffineTransform) and same(self.loc, other.loc) and same(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self):
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        scale = self.scale if isinstance(self.scale, Tensor) else x.new_full((), self.scale)
        shape = _operators.broadcast_shapes(x.shape, scale.shape)
        return sum_rightmost(scale.abs().log().expand(shape), self._event_dim)

    def forward_shape(self, shape):
        return _operators.broadcast_shapes(shape, *(v.shape for v in (self.loc, self.scale) if isinstance(v, Tensor)))

    inverse_shape = forward_shape


class _Plain(Transform):
    """Transforms without arguments, which are equal to all of their class."""

    bijective = True
    sign = 1

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Plain):
    """exp(x).

    >>> arete.distributions.ExpTransform()(arete.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """

    codomain = constraints.positive

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """x^exponent of positive numbers, which broadcast.

    >>> t = arete.distributions.PowerTransform(arete.tensor(2.0))
    >>> t(arete.tensor([1.0, 3.0])), t.inv(arete.tensor(9.0))
    (tensor([1., 9.]), tensor(3.))
    """

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent, cache_size: int = 0):
        super().__init__(cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else _operators.tensor(float(exponent))

    sign = property(lambda self: self.exponent.sign())

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size)

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return _operators.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(_Plain):
    """1 / (1 + exp(-x)), kept off 0 and 1.

    >>> arete.distributions.SigmoidTransform().inv(arete.tensor([0.5, 0.8808]))
    tensor([0.0000, 2.0000])
    """

    codomain = constraints.unit_interval

    def _call(self, x):
        limits = _operators.finfo(x.dtype)
        return x.sigmoid().clamp(limits.tiny, 1 - limits.eps)

    def _inverse(self, y):
        limits = _operators.finfo(y.dtype)
        y = y.clamp(limits.tiny, 1 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -F.softplus(-x) - F.softplus(x)


class TanhTransform(_Plain):
    """tanh(x). Far from 0 its inverse is rough: `cache_size=1` spares it.

    >>> t = arete.distributions.TanhTransform()
    >>> t.log_abs_det_jacobian(arete.tensor(10.0), arete.tensor(1.0))  # log(1 - tanh(10)**2)
    tensor(-18.6137)
    """

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2 * (math.log(2) - x - F.softplus(-2 * x))


class SoftplusTransform(_Plain):
    """log(1 + exp(x)).

    >>> arete.distributions.SoftplusTransform()(arete.tensor([0.0, 30.0]))
    tensor([ 0.6931, 30.0000])
    """

    codomain = constraints.positive

    def _call(self, x):
        return F.softplus(x)

    def _inverse(self, y):
        return y + (-(-y).expm1()).log()

    def log_abs_det_jacobian(self, x, y):
        return -F.softplus(-x)


class AbsTransform(_Plain):
    """|x|, which is not bijective: its inverse is the positive argument.

    >>> arete.distributions.AbsTransform()(arete.tensor([-1.0, 2.0]))
    tensor([1., 2.])
    """

    bijective = False
    codomain = constraints.positive
    sign = property(Transform.sign.fget)

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y
