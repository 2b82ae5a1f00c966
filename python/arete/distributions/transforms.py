"""Invertible functions of tensors with the logarithms of their slopes. `event_dim` dimensions at the end are one
argument."""
from __future__ import annotations

import math
import weakref
from numbers import Number
from typing import List

from .. import _operators, linalg
from .._C import Tensor
from .._operators import Size
from ..nn import functional as F
from . import constraints
from .distribution import Distribution, sum_rightmost
from .utils import tril_matrix_to_vec, vec_to_tril_matrix

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
           "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform", "LowerCholeskyTransform",
           "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
           "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
           "identity_transform"]


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
        self._inv = None
        self._cached_x_y = None, None

    def __getstate__(self):
        return {**self.__dict__, "_inv": None, "_cached_x_y": (None, None)}

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> "Transform":
        """The inverse, whose inverse is this one."""
        inverse = self._inv and self._inv()
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
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
        if self._cache_size and x is self._cached_x_y[0]:
            return self._cached_x_y[1]
        y = self._call(x)
        if self._cache_size:
            self._cached_x_y = x, y
        return y

    def _inv_call(self, y):
        if self._cache_size and y is self._cached_x_y[1]:
            return self._cached_x_y[0]
        x = self._inverse(y)
        if self._cache_size:
            self._cached_x_y = x, y
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


class _OfEvents(_Plain):
    """Transforms of whole vectors or matrices, which neither rise nor fall."""

    sign = property(Transform.sign.fget)

    def _least(self, shape, rank):
        if len(shape) < rank:
            raise ValueError("Too few dimensions on input")
        return Size(shape)

    def forward_shape(self, shape):
        return self._least(shape, self.domain.event_dim)

    def inverse_shape(self, shape):
        return self._least(shape, self.codomain.event_dim)


class SoftmaxTransform(_OfEvents):
    """exp(x) over its sum, which is not bijective: the inverse is the logarithm.

    >>> arete.distributions.SoftmaxTransform()(arete.tensor([0.0, 0.0]))
    tensor([0.5000, 0.5000])
    """

    domain, codomain = constraints.real_vector, constraints.simplex
    bijective = False

    def _call(self, x):
        return x.softmax(-1)

    def _inverse(self, y):
        return y.log()


class StickBreakingTransform(_OfEvents):
    """Vectors of n numbers to simplexes of n + 1: each number says which part is broken off what is left; zeros give
    equal parts.

    >>> t = arete.distributions.StickBreakingTransform()
    >>> t(arete.zeros(3)), t.inv(arete.tensor([0.5, 0.25, 0.25]))
    (tensor([0.2500, 0.2500, 0.2500, 0.2500]), tensor([0.6931, 0.0000]))
    """

    domain, codomain = constraints.real_vector, constraints.simplex

    def _moved(self, x):
        """x so that a sigmoid of 0 would break off as much as the others get."""
        return x - _operators.arange(x.shape[-1], 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x):
        part = SigmoidTransform()(self._moved(x))
        return F.pad(part, (0, 1), value=1.0) * F.pad((1 - part).cumprod(-1), (1, 0), value=1.0)

    def _inverse(self, y):
        broken = y[..., :-1]
        left = (1 - broken.cumsum(-1)).clamp(min=_operators.finfo(y.dtype).tiny)
        return broken.log() - left.log() - self._moved(_operators.zeros_like(broken))

    def log_abs_det_jacobian(self, x, y):
        return (y[..., :-1].log() - F.softplus(self._moved(x))).sum(-1)

    def forward_shape(self, shape):
        shape = super().forward_shape(shape)
        return shape[:-1] + (shape[-1] + 1,)

    def inverse_shape(self, shape):
        shape = super().inverse_shape(shape)
        return shape[:-1] + (shape[-1] - 1,)


class LowerCholeskyTransform(_OfEvents):
    """Square matrices to lower triangular ones: the exponential of the diagonal, what is below it, zeros above.

    >>> arete.distributions.LowerCholeskyTransform()(arete.tensor([[0.0, 5.0], [2.0, 0.0]]))
    tensor([[1., 0.],
            [2., 1.]])
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky
    bijective = False

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_OfEvents):
    """Square matrices to positive definite ones, whose factor is what LowerCholeskyTransform gives.

    >>> arete.distributions.PositiveDefiniteTransform()(arete.zeros(2, 2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite
    bijective = False

    def _call(self, x):
        tril = LowerCholeskyTransform()(x)
        return tril @ tril.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(linalg.cholesky(y))


class CorrCholeskyTransform(_OfEvents):
    """Vectors of n (n - 1) / 2 numbers to the lower factors of correlation matrices of n, whose rows have length 1. The
    tangents of the numbers, row by row, are parts of what a row's earlier elements leave of that length. The
    determinant is of the elements below the diagonal.

    >>> arete.distributions.CorrCholeskyTransform()(arete.tensor([0.5493]))
    tensor([[1.0000, 0.0000],
            [0.5000, 0.8660]])
    """

    domain, codomain = constraints.real_vector, constraints.corr_cholesky

    def _call(self, x):
        eps = _operators.finfo(x.dtype).eps
        parts = vec_to_tril_matrix(x.tanh().clamp(eps - 1, 1 - eps), diag=-1)
        left = F.pad((1 - parts.square()).sqrt().cumprod(-1)[..., :-1], (1, 0), value=1.0)
        return (parts + _operators.eye(parts.shape[-1], dtype=x.dtype, device=x.device)) * left

    def _left(self, y):
        """The square of the length that elements leave to those behind them."""
        return 1 - y.square().cumsum(-1)

    def _inverse(self, y):
        left = F.pad(self._left(y)[..., :-1], (1, 0), value=1.0)
        return (tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()).atanh()

    def log_abs_det_jacobian(self, x, y):
        below = tril_matrix_to_vec(self._left(y), diag=-2).log().sum(-1) / 2
        return below + TanhTransform().log_abs_det_jacobian(x, y).sum(-1)

    def forward_shape(self, shape):
        shape = super().forward_shape(shape)
        n = (1 + math.isqrt(1 + 8 * shape[-1])) // 2
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return shape[:-1] + (n, n)

    def inverse_shape(self, shape):
        shape = super().inverse_shape(shape)
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return shape[:-2] + (shape[-1] * (shape[-1] - 1) // 2,)


class ReshapeTransform(Transform):
    """Events of one shape as those of another with as many elements.

    >>> arete.distributions.ReshapeTransform((4,), (2, 2))(arete.arange(4.0))
    tensor([[0., 1.],
            [2., 3.]])
    """

    bijective = True

    def __init__(self, in_shape, out_shape, cache_size: int = 0):
        super().__init__(cache_size)
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if math.prod(self.in_shape) != math.prod(self.out_shape):
            raise ValueError("in_shape, out_shape have different numbers of elements")

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else ReshapeTransform(self.in_shape, self.out_shape, cache_size)

    def __eq__(self, other):
        return isinstance(other, ReshapeTransform) and (self.in_shape, self.out_shape) == (other.in_shape, other.out_shape)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y):
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(x.shape[:x.dim() - len(self.in_shape)])

    @staticmethod
    def _exchanged(shape, old, new):
        at = len(shape) - len(old)
        if at < 0:
            raise ValueError("Too few dimensions on input")
        if Size(shape[at:]) != old:
            raise ValueError(f"Shape mismatch: expected {old} but got {Size(shape[at:])}")
        return Size(shape[:at]) + new

    def forward_shape(self, shape):
        return self._exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return self._exchanged(shape, self.out_shape, self.in_shape)


class _OfParts(Transform):
    """A transform for each piece of a tensor along one dimension."""

    def __init__(self, tseq, dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size)
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    bijective = property(lambda self: all(t.bijective for t in self.transforms))

    def _call(self, x):
        return self._join([t(piece) for t, piece in zip(self.transforms, self._pieces(x))])

    def _inverse(self, y):
        return self._join([t.inv(piece) for t, piece in zip(self.transforms, self._pieces(y))])

    def _logarithms(self, x, y):
        pieces = zip(self.transforms, self._pieces(x), self._pieces(y))
        return [t.log_abs_det_jacobian(a, b) for t, a, b in pieces]


class CatTransform(_OfParts):
    """Transforms of pieces of the `lengths` (1 each without) along a dimension.

    >>> d = arete.distributions
    >>> d.CatTransform([d.ExpTransform(), d.identity_transform], lengths=[1, 2])(arete.tensor([0.0, 0.0, 2.0]))
    tensor([1., 0., 2.])
    """

    def __init__(self, tseq, dim: int = 0, lengths=None, cache_size: int = 0):
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))
    length = property(lambda self: sum(self.lengths))
    domain = property(lambda self: constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths))
    codomain = property(lambda self: constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths))

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else CatTransform(
            self.transforms, self.dim, self.lengths, cache_size)

    def _pieces(self, x):
        if x.shape[self.dim] != self.length:
            raise AssertionError(f"dimension {self.dim} of {tuple(x.shape)} must have {self.length} elements")
        return x.split(self.lengths, self.dim)

    def _join(self, pieces):
        return _operators.cat(pieces, self.dim)

    def log_abs_det_jacobian(self, x, y):
        each = [sum_rightmost(value, self.event_dim - t.event_dim)
                for t, value in zip(self.transforms, self._logarithms(x, y))]
        at = (self.dim if self.dim < 0 else self.dim - x.dim()) + self.event_dim
        return _operators.cat(each, at) if at < 0 else sum(each)


class StackTransform(_OfParts):
    """One transform for each index of a dimension.

    >>> d = arete.distributions
    >>> d.StackTransform([d.ExpTransform(), d.identity_transform], dim=1)(arete.zeros(2, 2))
    tensor([[1., 0.],
            [1., 0.]])
    """

    domain = property(lambda self: constraints.stack([t.domain for t in self.transforms], self.dim))
    codomain = property(lambda self: constraints.stack([t.codomain for t in self.transforms], self.dim))

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _pieces(self, x):
        if x.shape[self.dim] != len(self.transforms):
            raise AssertionError(f"dimension {self.dim} of {tuple(x.shape)} must have {len(self.transforms)} elements")
        return x.unbind(self.dim)

    def _join(self, pieces):
        return _operators.stack(pieces, self.dim)

    def log_abs_det_jacobian(self, x, y):
        return self._join(self._logarithms(x, y))


class CumulativeDistributionTransform(Transform):
    """The probability of lower values of a distribution; its inverse are the quantiles.

    >>> t = arete.distributions.CumulativeDistributionTransform(arete.distributions.Normal(0.0, 1.0))
    >>> t(arete.tensor(0.0)), t.inv(arete.tensor(0.5))
    (tensor(0.5000), tensor(0.))
    """

    bijective = True
    codomain = constraints.unit_interval
    sign = 1

    def __init__(self, distribution: Distribution, cache_size: int = 0):
        super().__init__(cache_size)
        self.distribution = distribution

    domain = property(lambda self: self.distribution.support)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else CumulativeDistributionTransform(self.distribution, cache_size)

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)
