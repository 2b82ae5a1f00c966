"""Functions through values at points that lie anywhere, and polynomials through few points."""
from __future__ import annotations

import itertools
import math

from .... import _operators as _t, linalg as _l
from .._arrays import floating, like, tensor, together
from ..spatial.distance import cdist
from ._pieces import coordinates, first_axis, in_place_of, places

__all__ = ["BarycentricInterpolator", "NearestNDInterpolator", "RBFInterpolator", "barycentric_interpolate"]


class BarycentricInterpolator:
    """The polynomial through the values yi at the different places xi, along an axis, by the barycentric formula."""

    def __init__(self, xi, yi, axis=0):
        x = floating(tensor(xi))
        values, self._axis = first_axis(floating(tensor(yi)), axis, x.numel())
        self._y, self._x, self._given = values, x.to(values.device), yi
        if x.unique().numel() < x.numel():
            raise ValueError("Interpolation points xi must be distinct.")
        # Four, the capacity of an interval of length 1, keeps products of many differences from over- and underflow.
        span = (self._x.amax() - self._x.amin()) / 4 if x.numel() > 1 else 1.0
        gaps = (self._x[:, None] - self._x) / span
        gaps.fill_diagonal_(1.0)
        self._weights = 1 / gaps.prod(1)

    def __call__(self, x):
        """The values at x (any shape)."""
        v = places(x, self._x)
        flat = v.reshape(-1, 1)
        gaps = flat - self._x
        hit = gaps == 0
        weights = self._weights / gaps.where(~hit, 1.0)
        values = self._y.reshape(self._y.shape[0], -1)
        result = (weights.to(values.dtype) @ values) / weights.sum(1, True)
        at = hit.to(_t.int64).argmax(1)
        result = values[at].where(hit.any(1, True), result)
        return like(self._given, in_place_of(self._axis, result.reshape((*v.shape, *self._y.shape[1:])), v))


def barycentric_interpolate(xi, yi, x, axis=0):
    """BarycentricInterpolator(xi, yi)(x)."""
    return BarycentricInterpolator(xi, yi, axis)(x)


class NearestNDInterpolator:
    """The value of the nearest of the points x (n, d), for values y (n, ...)."""

    def __init__(self, x, y, rescale=False, tree_options=None):
        if tree_options is not None:
            raise NotImplementedError("NearestNDInterpolator(tree_options=...): all distances are compared, there is no tree")
        self.points, self.values = coordinates(x), tensor(y)
        if self.points.dim() != 2 or self.values.shape[:1] != self.points.shape[:1]:
            raise ValueError("x must be (n, d) and y have n elements")
        self._given = y
        self._middle, self._scale = (self.points.mean(0), self.points.amax(0) - self.points.amin(0)) if rescale else (0.0, 1.0)

    def __call__(self, *args):
        """At points (..., d), or at d arrays of coordinates."""
        at = coordinates(args if len(args) > 1 else args[0], self.points.shape[1])
        own, at = ((v - self._middle) / self._scale for v in together(self.points, at))
        flat = at.reshape(-1, at.shape[-1])
        found = [cdist(part, own).argmin(1) for part in flat.split(max(1, (1 << 22) // own.shape[0]))] if flat.shape[0] else []
        index = _t.cat(found) if found else _t.zeros(0, dtype=_t.int64)
        values = self.values[index.to(self.values.device)]
        values = values.masked_fill(flat.isnan().any(1).reshape(-1, *[1] * (values.dim() - 1)), math.nan) if bool(
            flat.isnan().any()) else values
        return like(self._given, values.reshape((*at.shape[:-1], *self.values.shape[1:])))


_KERNELS = {
    "linear": lambda r: -r,
    "thin_plate_spline": lambda r: (r * r * r.where(r > 0, 1.0).log()),
    "cubic": lambda r: r ** 3,
    "quintic": lambda r: -(r ** 5),
    "multiquadric": lambda r: -(r * r + 1).sqrt(),
    "inverse_multiquadric": lambda r: 1 / (r * r + 1).sqrt(),
    "inverse_quadratic": lambda r: 1 / (r * r + 1),
    "gaussian": lambda r: (-r * r).exp(),
}
_LEAST_DEGREE = {"multiquadric": 0, "linear": 0, "thin_plate_spline": 1, "cubic": 1, "quintic": 2}
_SCALE_FREE = ("linear", "thin_plate_spline", "cubic", "quintic")


class RBFInterpolator:
    """A sum of radial functions around the points y (n, d), and a polynomial, that has the values d (n, ...) there; `smoothing` lets it
    miss them. Of all points at once: `neighbors` is refused."""

    def __init__(self, y, d, neighbors=None, smoothing=0.0, kernel="thin_plate_spline", epsilon=None, degree=None):
        if neighbors is not None:
            raise NotImplementedError("RBFInterpolator(neighbors=...): all points are taken at once")
        points, values = floating(tensor(y)), floating(tensor(d))
        if points.dim() != 2:
            raise ValueError("`y` must be a 2-dimensional array.")
        n = points.shape[0]
        if values.shape[:1] != (n,):
            raise ValueError(f"Expected the first axis of `d` to have length {n}.")
        self._kernel = kernel.lower()
        if self._kernel not in _KERNELS:
            raise ValueError(f"`kernel` must be one of {sorted(_KERNELS)}.")
        if epsilon is None:
            if self._kernel not in _SCALE_FREE:
                raise ValueError(f"`epsilon` must be specified if `kernel` is not one of {sorted(_SCALE_FREE)}.")
            epsilon = 1.0
        least = _LEAST_DEGREE.get(self._kernel, -1)
        degree = max(least, 0) if degree is None else int(degree)
        if degree < -1:
            raise ValueError("`degree` must be at least -1.")
        self._epsilon, self._given = float(epsilon), d
        powers = [p for p in itertools.product(range(degree + 1), repeat=points.shape[1]) if sum(p) <= degree]
        if len(powers) > n:
            raise ValueError(f"At least {len(powers)} data points are required when `degree` is {degree} and the number of dimensions is "
                             f"{points.shape[1]}.")
        self._powers = powers
        self._middle = (points.amax(0) + points.amin(0)) / 2
        half = (points.amax(0) - points.amin(0)) / 2
        self._half = half.where(half != 0, 1.0)
        self._points = points
        whole = points.new_zeros(n + len(powers), n + len(powers))
        whole[:n, :n] = self._radial(points)
        whole[:n, :n].diagonal().add_(tensor(smoothing).to(points) if hasattr(smoothing, "__len__") else float(smoothing))
        terms = self._terms(points)
        whole[:n, n:], whole[n:, :n] = terms, terms.mT
        self._shape = values.shape[1:]
        flat = values.reshape(n, -1)
        right = flat.new_zeros(n + len(powers), flat.shape[1])
        right[:n] = flat
        whole, right = together(whole, right)
        self._weights = _l.solve(whole, right)

    def _radial(self, x):
        scaled = self._epsilon
        return _KERNELS[self._kernel](cdist(x * scaled, self._points * scaled))

    def _terms(self, x):
        moved = (x - self._middle) / self._half
        columns = [_t.stack([moved[:, i] ** p for i, p in enumerate(power)]).prod(0) for power in self._powers]
        return _t.stack(columns, 1) if columns else x.new_zeros(x.shape[0], 0)

    def __call__(self, x):
        """The values at x (m, d): (m, ...)."""
        at = floating(tensor(x)).to(self._points)
        if at.dim() != 2 or at.shape[1] != self._points.shape[1]:
            raise ValueError(f"Expected the second axis of `x` to have length {self._points.shape[1]}.")
        parts = [_t.cat([self._radial(p), self._terms(p)], 1).to(self._weights.dtype) @ self._weights
                 for p in at.split(max(1, (1 << 22) // self._points.shape[0]))]
        result = _t.cat(parts) if parts else self._weights[:0]
        return like(self._given, result.reshape(at.shape[0], *self._shape))
