"""Functions of several variables through values on a grid."""
from __future__ import annotations

import itertools
import math

from .... import _operators as _t
from .._arrays import floating, like, tensor, together
from ._basis import basis, derived, pieces_of
from ._pieces import coordinates
from ._splines import make_interp_spline

__all__ = ["RegularGridInterpolator", "interpn"]

_DEGREES = {"slinear": 1, "cubic": 3, "quintic": 5}


class RegularGridInterpolator:
    """A function of d variables that has the values (n1, ..., nd, ...) at the crossings of a grid, whose lines are at points[0], ...,
    points[d - 1], in rising or falling order. method: "linear", "nearest", or "slinear", "cubic", "quintic": products of splines.
    Outside of the grid it is refused (bounds_error), `fill_value`, or, if that is None, goes on."""

    def __init__(self, points, values, method="linear", bounds_error=True, fill_value=math.nan):
        self._check_method(method)
        v = floating(tensor(values))
        lines = [tensor(p) for p in points]
        if len(lines) > v.dim():
            raise ValueError(f"There are {len(lines)} point arrays, but values has {v.dim()} dimensions")
        real = v.real if v.dtype.is_complex else v
        self._lines, falling = [], []
        for d, line in enumerate(lines):
            line = together(floating(line).to(v.device), real)[0]
            steps = line.diff() if line.dim() == 1 else line
            if line.dim() != 1:
                raise ValueError(f"The points in dimension {d} must be 1-dimensional")
            if not bool((steps > 0).all()):
                if not bool((steps < 0).all()):
                    raise ValueError(f"The points in dimension {d} must be strictly ascending or descending")
                falling.append(d)
                line = line.flip(0)
            if line.numel() != v.shape[d]:
                raise ValueError(f"There are {line.numel()} points and {v.shape[d]} values in dimension {d}")
            self._lines.append(line)
        if fill_value is not None and isinstance(fill_value, complex) and not v.dtype.is_complex:
            raise ValueError("fill_value must be either 'None' or of a type compatible with values")
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self._values = v.flip(falling) if falling else v
        self.grid, self.values = tuple(like(values, line) for line in self._lines), like(values, self._values)
        self._coefficients = {}

    @staticmethod
    def _check_method(method):
        if method not in ("linear", "nearest", *_DEGREES):
            raise NotImplementedError(f"Method {method!r} is not there: linear, nearest, slinear, cubic, quintic")

    def __call__(self, xi, method=None, *, nu=None):
        """The values at xi (..., d), or at a tuple of d arrays: (..., *the rest of the values). nu: orders of derivatives, one for each
        variable, with splines."""
        method = self.method if method is None else method
        self._check_method(method)
        d = len(self._lines)
        at = coordinates(xi, d)
        if not at.dim() or at.shape[-1] != d:
            raise ValueError(f"The requested sample points xi have dimension {at.shape[-1] if at.dim() else 0} but this "
                             f"RegularGridInterpolator has dimension {d}")
        if nu is not None and method not in _DEGREES:
            raise ValueError("Can only compute derivatives for methods of splines")
        if nu is not None and (len(nu) != d or min(nu) < 0):
            raise ValueError(f"nu must have one order of a derivative, 0 or more, for each of {d} variables, not {nu}")
        at = at.to(self._lines[0])
        flat = at.reshape(-1, d)
        outside = _t.zeros_like(flat[:, 0], dtype=_t.bool)
        for k, line in enumerate(self._lines):
            out = (flat[:, k] < line[0]) | (flat[:, k] > line[-1])
            if self.bounds_error and bool(out.any()):
                raise ValueError(f"One of the requested xi is out of bounds in dimension {k}")
            outside = outside | out
        if method == "nearest":
            result = self._nearest(flat)
        elif method == "linear":
            result = self._linear(flat)
        else:
            result = self._spline(flat, _DEGREES[method], [0] * d if nu is None else list(nu))
        rest = (-1, *[1] * (result.dim() - 1))
        if not self.bounds_error and self.fill_value is not None:
            result = result.masked_fill(outside.reshape(rest), self.fill_value)
        result = result.masked_fill(flat.isnan().any(-1).reshape(rest), math.nan)
        return like(self.values, result.reshape((*at.shape[:-1], *result.shape[1:])))

    def _cells(self, flat):
        """For each variable the line before a point, and its share of the way to the next."""
        for k, line in enumerate(self._lines):
            if line.numel() == 1:
                yield _t.zeros_like(flat[:, k], dtype=_t.int64), _t.zeros_like(flat[:, k])
                continue
            i = (_t.searchsorted(line, flat[:, k].contiguous(), right=True) - 1).clamp(0, line.numel() - 2)
            yield i, (flat[:, k] - line[i]) / (line[i + 1] - line[i])

    def _nearest(self, flat):
        return self._values[tuple(i + (share > 0.5) for i, share in self._cells(flat))]

    def _linear(self, flat):
        cells, shape = list(self._cells(flat)), (-1, *[1] * (self._values.dim() - len(self._lines)))
        total = None
        # The 2 ** d corners of each point's cell; an axis of one line has one.
        for corner in itertools.product(*[(0, 1) if line.numel() > 1 else (0,) for line in self._lines]):
            weight = None
            for (_, share), far in zip(cells, corner):
                factor = share if far else 1 - share
                weight = factor if weight is None else weight * factor
            term = self._values[tuple(i + far for (i, _), far in zip(cells, corner))] * weight.reshape(shape)
            total = term if total is None else total + term
        return total

    def _spline(self, flat, k, nu):
        if k not in self._coefficients:
            c, knots = self._values, []
            for d, line in enumerate(self._lines):
                if line.numel() <= k:
                    raise ValueError(f"There are {line.numel()} points in dimension {d}, but method needs at least {k + 1} points per "
                                     "dimension.")
                spline = make_interp_spline(line, c, k, axis=d)
                knots.append(tensor(spline.t))
                c = tensor(spline.c).movedim(0, d)
            self._coefficients[k] = c, knots
        c, knots = self._coefficients[k]
        degrees, places = [], []
        for d, order in enumerate(nu):
            if order > k:
                return c.new_zeros(flat.shape[0], *c.shape[len(nu):])
            t, c, degree = derived(knots[d], c, k, order, d)
            v = flat[:, d].contiguous()
            found = pieces_of(t, degree, v)
            degrees.append(degree)
            places.append((found - degree, basis(t, degree, v, found)))
        shape, total = (-1, *[1] * (c.dim() - len(nu))), None
        for part in itertools.product(*[range(degree + 1) for degree in degrees]):
            weight = None
            for (_, row), r in zip(places, part):
                weight = row[:, r] if weight is None else weight * row[:, r]
            term = c[tuple(first + r for (first, _), r in zip(places, part))] * weight.reshape(shape)
            total = term if total is None else total + term
        return total


def interpn(points, values, xi, method="linear", bounds_error=True, fill_value=math.nan):
    """RegularGridInterpolator(points, values)(xi)."""
    return RegularGridInterpolator(points, values, method, bounds_error, fill_value)(xi)
