"""Functions of one variable between neighbours."""
from __future__ import annotations

import math

from .... import _operators as _t
from .._arrays import floating, like, tensor
from ._pieces import first_axis, in_place_of, places
from ._splines import make_interp_spline

__all__ = ["interp1d"]


class interp1d:
    """A function of one variable through values y at places x, along an axis. kind: "linear", "nearest" (halves go down), "nearest-up",
    "previous", "next", "zero", "slinear", "quadratic", "cubic", or the degree of a spline. Beyond the places it is `fill_value` (one, or
    one for either side), goes on for "extrapolate", or is refused (bounds_error). At NaN it is NaN, by "nearest", "previous" and "next",
    too, of which SciPy takes the last value."""

    def __init__(self, x, y, kind="linear", axis=-1, copy=True, bounds_error=None, fill_value=math.nan, assume_sorted=False):
        places_, values = floating(tensor(x)), floating(tensor(y))
        if places_.dim() != 1:
            raise ValueError("the x array must have exactly one dimension.")
        if not values.dim():
            raise ValueError("the y array must have at least one dimension.")
        if bool(places_.isnan().any()):
            raise ValueError("the x array must not have NaN.")
        values, self.axis = first_axis(values, axis, places_.numel())
        if not assume_sorted:
            places_, order = places_.sort()
            values = values[order.to(values.device)]
        elif copy:
            places_, values = places_.clone(), values.clone()
        degree = {"zero": 0, "slinear": 1, "quadratic": 2, "cubic": 3}.get(kind, kind) if not isinstance(kind, int) else kind
        if not isinstance(degree, int) and kind not in ("linear", "nearest", "nearest-up", "previous", "next"):
            raise NotImplementedError(f"{kind} is unsupported: Use fitpack routines for other types.")
        self.x, self.y, self._kind, self._like = like(x, places_), like(y, values.movedim(0, self.axis)), kind, y
        self._x, self._y = places_.to(values.device), values
        self._extrapolates = isinstance(fill_value, str) and fill_value == "extrapolate"
        if isinstance(fill_value, str) and not self._extrapolates:
            raise ValueError("fill_value is a number, two, or 'extrapolate'")
        if self._extrapolates and bounds_error:
            raise ValueError("Cannot extrapolate and raise at the same time.")
        self.bounds_error = bounds_error if bounds_error is not None else not self._extrapolates
        self.fill_value = fill_value
        if not self._extrapolates:
            self._fills()
        if places_.numel() < 1 + (degree if isinstance(degree, int) else kind == "linear"):
            raise ValueError("too few places")
        if isinstance(degree, int) and degree:
            self._spline = make_interp_spline(self._x, values, degree)

    def _fills(self):
        """What it is below the places, and above; ValueError unless that is one for all values of a place, or one for each."""
        given, shape = self.fill_value, tuple(self._y.shape[1:]) or (1,)
        fills = [tensor(f) for f in (given if isinstance(given, tuple) and len(given) == 2 else (given, given))]
        for fill in fills:
            if fill.dim() > len(shape) or any(n not in (1, m) for n, m in zip(fill.shape[::-1], shape[::-1])):
                raise ValueError(f"fill_value argument must be able to broadcast up to shape {shape} but had shape {tuple(fill.shape)}")
        return fills

    def __call__(self, x):
        """The values at x (any shape)."""
        v = places(x, self._x)
        xs, n = self._x.to(v.dtype), self._x.numel()
        below, above = v < xs[0], v > xs[-1]
        if self.bounds_error and bool((below | above).any()):
            side = "below" if bool(below.any()) else "above"
            raise ValueError(f"A value in x_new is {side} the interpolation range.")
        flat = v.reshape(-1)
        if hasattr(self, "_spline"):
            result = tensor(self._spline(flat))
        elif self._kind == "linear":
            at = (_t.searchsorted(xs, flat) - 1).clamp(0, n - 2)
            step = (flat - xs[at]).reshape(-1, *[1] * (self._y.dim() - 1))
            slope = self._y.diff(dim=0) / xs.diff().reshape(-1, *[1] * (self._y.dim() - 1))
            result = slope[at] * step + self._y[at]
        elif self._kind in ("nearest", "nearest-up"):
            middle = xs[:-1] + xs.diff() / 2
            result = self._y[_t.searchsorted(middle, flat, right=self._kind == "nearest-up").clamp(0, n - 1)]
        else:  # "previous" and "zero", "next"
            at = _t.searchsorted(xs, flat) if self._kind == "next" else _t.searchsorted(xs, flat, right=True) - 1
            result = self._y[at.clamp(0, n - 1)]
            if self._kind in ("previous", "next"):
                outside = above if self._kind == "next" else below
                result = result.masked_fill(outside.reshape(-1, *[1] * (self._y.dim() - 1)), math.nan)
        shape = (-1, *[1] * (self._y.dim() - 1))
        if not self._extrapolates:
            for outside, fill in zip((below, above), self._fills()):
                result = fill.to(result.device, result.dtype).where(outside.reshape(shape), result)
        result = result.masked_fill(flat.isnan().reshape(shape), math.nan)
        return like(self._like, in_place_of(self.axis, result.reshape((*v.shape, *self._y.shape[1:])), v))
