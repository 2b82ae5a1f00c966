"""Polynomials in pieces: functions of one variable through given values."""
from __future__ import annotations

import math

from .... import _operators as _t
from .._arrays import floating, like, tensor, together
from ._banded import solve
from ._basis import evaluate

__all__ = ["Akima1DInterpolator", "CubicHermiteSpline", "CubicSpline", "PPoly", "PchipInterpolator", "pchip", "pchip_interpolate"]


def places(x, ends):
    """Where a function is asked for: real, in the dtype that it has in common with the function's own places, and where they are."""
    t = floating(tensor(x))
    if t.dtype.is_complex:
        raise TypeError("Cannot cast array data from complex to real places")
    return together(ends, t)[1]


def coordinates(x, d=None):
    """Points (..., d) of an array, or of a tuple of their coordinates; an array of one dimension has one point after the other, of one
    coordinate each where d is not known."""
    if isinstance(x, tuple):
        return _t.stack(_t.broadcast_tensors(*[floating(tensor(v)) for v in x]), -1)
    t, d = floating(tensor(x)), d or 1
    return t.reshape(-1, d) if t.dim() == 1 and t.numel() % d == 0 else t


def in_place_of(axis, result, x):
    """Values (*x.shape, *rest) with the axes of x where `axis` of the given values was."""
    n = x.dim()
    order = list(range(result.dim()))
    return result.permute(order[n:n + axis] + order[:n] + order[n + axis:])


def first_axis(y, axis, n):
    """The values with their axis in front, and that axis from 0 on; ValueError if it has not n elements."""
    if not -y.dim() <= axis < y.dim():
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {y.dim()}")
    axis %= y.dim()
    if y.shape[axis] != n:
        raise ValueError(f"The length of `y` along `axis`={axis} ({y.shape[axis]}) doesn't match the length of `x` ({n})")
    return y.movedim(axis, 0), axis


def increasing(x, name="`x`", least=2):
    """The tensor of places in one dimension; ValueError unless they are finite and grow."""
    t = floating(tensor(x))
    if t.dtype.is_complex:
        raise ValueError(f"{name} must contain real values.")
    if t.dim() != 1 or t.numel() < least:
        raise ValueError(f"{name} must be 1-dimensional with at least {least} elements.")
    if not bool(t.isfinite().all()):
        raise ValueError(f"{name} must contain only finite values.")
    if not bool((t[1:] > t[:-1]).all()):
        raise ValueError(f"{name} must be strictly increasing sequence.")
    return t


def wrapped(v, low, high):
    return low + (v - low).remainder(high - low)


class PPoly:
    """Polynomials in pieces: sum of c[m] * (v - x[i]) ** (k - 1 - m) for v from x[i] to x[i + 1], for coefficients (k, n, ...) and n + 1
    places x in order. Beyond them the first and the last piece go on, or it is NaN (extrapolate=False) or periodic ("periodic")."""

    def __init__(self, c, x, extrapolate=None, axis=0):
        coefficients, ends = floating(tensor(c)), floating(tensor(x))
        if coefficients.dim() < 2 or ends.dim() != 1 or ends.numel() < 2 or coefficients.shape[1] != ends.numel() - 1:
            raise ValueError("c must have at least 2 dimensions, and x one element more than its second")
        if not coefficients.shape[0]:
            raise ValueError("polynomial must be at least of order 0")
        steps = ends.diff()
        if not (bool((steps >= 0).all()) or bool((steps <= 0).all())):
            raise ValueError("`x` must be strictly increasing or decreasing.")
        if not 0 <= axis < coefficients.dim() - 1:
            raise ValueError(f"axis={axis} must be between 0 and {coefficients.dim() - 2}")
        self.c, self.x, self.axis = like(c, coefficients), like(c, ends.to(coefficients.device)), axis
        self.extrapolate = True if extrapolate is None else extrapolate

    @classmethod
    def construct_fast(cls, c, x, extrapolate=None, axis=0):
        """The same without checks."""
        self = object.__new__(cls)
        self.c, self.x, self.axis, self.extrapolate = c, x, axis, True if extrapolate is None else extrapolate
        return self

    def _like(self, c, x=None):
        return PPoly.construct_fast(like(self.c, c), self.x if x is None else like(self.c, x), self.extrapolate, self.axis)

    def __call__(self, x, nu=0, extrapolate=None):
        """The values of the derivative of order nu at x (any shape)."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu < 0:
            raise ValueError("Order of derivative cannot be negative")
        c, ends = tensor(self.c), tensor(self.x)
        v = places(x, ends)
        ends = ends.to(v.dtype)
        shape, v = v, v.reshape(-1)
        falls = bool(ends[0] > ends[-1])
        low, high = (ends[-1], ends[0]) if falls else (ends[0], ends[-1])
        if extrapolate == "periodic":
            v, extrapolate = wrapped(v, low, high), False
        found = _t.searchsorted(-ends if falls else ends, -v if falls else v, right=True) - 1
        found = found.clamp(0, c.shape[1] - 1)
        t = (v - ends[found]).reshape(-1, *[1] * (c.dim() - 2))
        total = None
        for m in range(c.shape[0] - nu):
            power = c.shape[0] - 1 - m
            term = c[m][found] * math.perm(power, nu)
            total = term if total is None else total * t + term
        if total is None:
            total = c.new_zeros(v.numel(), *c.shape[2:])
        outside = v.isnan() if extrapolate else ~((v >= low) & (v <= high))
        total = total.masked_fill(outside.reshape(t.shape), math.nan)
        return like(self.c, in_place_of(self.axis, total.reshape((*shape.shape, *c.shape[2:])), shape))

    def derivative(self, nu=1):
        """The polynomials of the derivative."""
        if nu < 0:
            return self.antiderivative(-nu)
        c = tensor(self.c)
        k = c.shape[0]
        kept = [c[m] * math.perm(k - 1 - m, nu) for m in range(k - nu)]
        return self._like(_t.stack(kept) if kept else c.new_zeros(1, *c.shape[1:]))

    def antiderivative(self, nu=1):
        """The polynomials of the integral, continuous, from the first place on; that of a periodic one is not periodic."""
        if nu <= 0:
            return self.derivative(-nu)
        result = self
        for _ in range(nu):
            result = result._integrated()
        if result.extrapolate == "periodic":
            result.extrapolate = False
        return result

    def _integrated(self):
        c, x = tensor(self.c), tensor(self.x)
        k = c.shape[0]
        kept = [c[m] / (k - m) for m in range(k)]
        steps = x.diff().reshape(-1, *[1] * (c.dim() - 2))
        area = kept[0]
        for term in kept[1:]:
            area = area * steps + term
        area = area * steps
        start = _t.cat([_t.zeros_like(area[:1]), area[:-1].cumsum(0)])
        return self._like(_t.stack([*kept, start]))

    def integrate(self, a, b, extrapolate=None):
        """The integral from a to b."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        area = self.antiderivative()
        x = tensor(self.x)
        if extrapolate == "periodic":
            low, high = float(x[0]), float(x[-1])
            whole, rest = divmod(b - a, high - low) if b >= a else (-v for v in divmod(a - b, high - low))
            period = tensor(area(high, extrapolate=True)) - tensor(area(low, extrapolate=True))
            start = low + (a - low) % (high - low)
            end = start + rest
            turns = math.floor((end - low) / (high - low)) if not low <= end <= high else 0
            end -= turns * (high - low)
            return like(self.c, period * (whole + turns) + tensor(area(end, extrapolate=True)) - tensor(area(start, extrapolate=True)))
        return like(self.c, tensor(area(b, extrapolate=extrapolate)) - tensor(area(a, extrapolate=extrapolate)))

    def extend(self, c, x):
        """Adds pieces behind the last place, or before the first: coefficients (k, n, ...) and n places."""
        more, ends = floating(tensor(c)), floating(tensor(x))
        own, own_ends = tensor(self.c), tensor(self.x)
        if more.dim() != own.dim() or more.shape[2:] != own.shape[2:] or ends.dim() != 1 or ends.numel() != more.shape[1]:
            raise ValueError("Shapes of c and x do not fit")
        if not ends.numel():
            return
        more, own = together(more, own)
        k = max(own.shape[0], more.shape[0])
        own, more = (_t.cat([t.new_zeros(k - t.shape[0], *t.shape[1:]), t]) for t in (own, more))
        rises = bool(own_ends[-1] >= own_ends[0])
        behind = bool(ends[0] >= own_ends[-1]) if rises else bool(ends[0] <= own_ends[-1])
        before = bool(ends[-1] <= own_ends[0]) if rises else bool(ends[-1] >= own_ends[0])
        if not behind and not before:
            raise ValueError("`x` is neither on the left or on the right from `self.x`.")
        self.c = like(self.c, _t.cat([own, more] if behind else [more, own], 1))
        self.x = like(self.x, _t.cat([own_ends, ends] if behind else [ends, own_ends]))

    @classmethod
    def from_spline(cls, tck, extrapolate=None):
        """The polynomials of a BSpline, or of (knots, coefficients, degree)."""
        t, c, k = getattr(tck, "tck", tck)
        knots, coefficients = tensor(t), floating(tensor(c))
        pieces = [evaluate(knots, coefficients, k, knots[:-1], m) / math.factorial(m) for m in range(k, -1, -1)]
        if extrapolate is None:
            extrapolate = getattr(tck, "extrapolate", True)
        return cls.construct_fast(like(c, _t.stack(pieces)), t, extrapolate, getattr(tck, "axis", 0))


def _hermite(x, y, slopes):
    """Coefficients of the cubics with these values and slopes at both ends of each piece; x (n,), y and slopes (n, ...)."""
    h = x.diff().reshape(-1, *[1] * (y.dim() - 1))
    chord = y.diff(dim=0) / h
    bend = (slopes[:-1] + slopes[1:] - 2 * chord) / h
    return _t.stack([bend / h, (chord - slopes[:-1]) / h - bend, slopes[:-1], y[:-1]])


def _finite(y, axis, n):
    """first_axis of values; ValueError unless they are finite."""
    values, axis = first_axis(floating(tensor(y)), axis, n)
    if not bool(values.isfinite().all()):
        raise ValueError("`y` must contain only finite values.")
    return values, axis


class CubicHermiteSpline(PPoly):
    """Cubics between places x that have the values y and slopes dydx there, along an axis."""

    def __init__(self, x, y, dydx, axis=0, extrapolate=None):
        places_ = increasing(x)
        values, axis = _finite(y, axis, places_.numel())
        slopes, _ = first_axis(floating(tensor(dydx)), axis, places_.numel())
        if slopes.shape != values.shape:
            raise ValueError("The shapes of `y` and `dydx` must be identical.")
        self._set(y, places_, values, slopes, axis, extrapolate)

    def _set(self, y, x, values, slopes, axis, extrapolate):
        values, slopes = together(values, slopes)
        self.c, self.x = like(y, _hermite(x.to(values.device), values, slopes)), like(y, x.to(values.device))
        self.axis, self.extrapolate = axis, True if extrapolate is None else extrapolate


class PchipInterpolator(CubicHermiteSpline):
    """Cubics whose slopes let them rise and fall where the values do and nowhere else (Fritsch and Butland, 1984)."""

    def __init__(self, x, y, axis=0, extrapolate=None):
        x = increasing(x)
        values, axis = _finite(y, axis, x.numel())
        if values.dtype.is_complex:
            raise ValueError("`PchipInterpolator` only works with real values for `y`.")
        self._set(y, x, values, _monotone_slopes(x.to(values.device, values.dtype), values), axis, extrapolate)


def _monotone_slopes(x, y):
    h = x.diff().reshape(-1, *[1] * (y.dim() - 1))
    chord = y.diff(dim=0) / h
    if y.shape[0] == 2:
        return _t.cat([chord, chord])
    a, b = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    flat = (chord[1:].sign() != chord[:-1].sign()) | (chord[1:] == 0) | (chord[:-1] == 0)
    mean = (a + b) / (a / chord[:-1].where(~flat, 1.0) + b / chord[1:].where(~flat, 1.0))

    def at_end(h0, h1, c0, c1):
        slope = ((2 * h0 + h1) * c0 - h0 * c1) / (h0 + h1)
        steep = (c0.sign() != c1.sign()) & (slope.abs() > 3 * c0.abs())
        return slope.where(slope.sign() == c0.sign(), 0.0).where(~steep | (slope.sign() != c0.sign()), 3 * c0)

    return _t.cat([at_end(h[:1], h[1:2], chord[:1], chord[1:2]), mean.where(~flat, 0.0),
                   at_end(h[-1:], h[-2:-1], chord[-1:], chord[-2:-1])])


pchip = PchipInterpolator


def pchip_interpolate(xi, yi, x, der=0, axis=0):
    """PchipInterpolator(xi, yi)(x), or the derivatives of the orders in `der`."""
    f = PchipInterpolator(xi, yi, axis)
    return f(x, der) if not hasattr(der, "__iter__") else [f(x, n) for n in der]


class Akima1DInterpolator(CubicHermiteSpline):
    """Cubics with slopes that are means of those around, weighted by how little those change beside (Akima, 1970); "makima" is his method
    with weights that keep flat what is flat."""

    def __init__(self, x, y, axis=0, *, method="akima", extrapolate=None):
        if method not in ("akima", "makima"):
            raise NotImplementedError(f"`method`={method} is unsupported.")
        x = increasing(x)
        y_, axis = _finite(y, axis, x.numel())
        if y_.dtype.is_complex:
            raise ValueError("`Akima1DInterpolator` only works with real values for `y`.")
        h = x.to(y_.device, y_.dtype).diff().reshape(-1, *[1] * (y_.dim() - 1))
        m = y_.diff(dim=0) / h
        if x.numel() == 2:
            slopes = _t.cat([m, m])
        else:
            before = 2 * m[:1] - m[1:2]
            behind = 2 * m[-1:] - m[-2:-1]
            m = _t.cat([2 * before - m[:1], before, m, behind, 2 * behind - m[-1:]])
            change = m.diff(dim=0).abs()
            if method == "makima":
                change = change + (m[1:] + m[:-1]).abs() / 2
            left, right = change[2:], change[:-2]
            total = left + right
            usual = total > 1e-9 * total.amax()
            middle = (m[3:] + m[:-3]) / 2 if method == "akima" else _t.zeros_like(total)
            slopes = ((left * m[1:-2] + right * m[2:-1]) / total.where(usual, 1.0)).where(usual, middle)
        self._set(y, x, y_, slopes, axis, False if extrapolate is None else extrapolate)


class CubicSpline(CubicHermiteSpline):
    """Cubics with continuous second derivatives through the values y at x. bc_type for both ends, or one for each: "not-a-knot" (the first
    two pieces are one cubic), "natural", "clamped", "periodic", or (order 1 or 2, the derivative there)."""

    def __init__(self, x, y, axis=0, bc_type="not-a-knot", extrapolate=None):
        x = increasing(x)
        values, axis = _finite(y, axis, x.numel())
        ends = _boundaries(bc_type, values)
        if ends[0] == "periodic" and not bool(_t._ops.allclose(values[0], values[-1], rtol=1e-15, atol=1e-15)):
            raise ValueError("The first and last `y` point along axis 0 must be identical (within machine precision) when "
                             "bc_type='periodic'.")
        if extrapolate is None and ends[0] == "periodic":
            extrapolate = "periodic"
        slopes = _smooth_slopes(x.to(values.device, values.real.dtype), values, ends)
        self._set(y, x, values, slopes, axis, extrapolate)


def _boundaries(bc_type, y):
    """For each end "not-a-knot", "periodic", or (order, values)."""
    if isinstance(bc_type, str):
        bc_type = (bc_type, bc_type)
    if len(bc_type) != 2:
        raise ValueError("`bc_type` must contain 2 elements to specify start and end conditions.")
    if "periodic" in [b for b in bc_type if isinstance(b, str)] and bc_type[0] != bc_type[1]:
        raise ValueError("'periodic' `bc_type` is defined for both curve ends and cannot be used with other boundary conditions.")
    ends = []
    for b in bc_type:
        if isinstance(b, str):
            if b not in ("not-a-knot", "periodic", "natural", "clamped"):
                raise ValueError(f"bc_type={b} is not allowed.")
            ends.append(b if b in ("not-a-knot", "periodic") else (2 if b == "natural" else 1, _t.zeros_like(y[0])))
            continue
        order, value = b
        if order not in (1, 2):
            raise ValueError("The specified derivative order must be 1 or 2.")
        value = tensor(value).to(y.device)
        if value.shape != y.shape[1:]:
            raise ValueError(f"`deriv_value` shape {tuple(value.shape)} is not the expected one {tuple(y.shape[1:])}.")
        ends.append((order, together(value, y)[0]))
    return ends


def _smooth_slopes(x, y, ends):
    """The slopes that make the second derivative continuous."""
    n = x.numel()
    h = x.diff()
    tall = h.reshape(-1, *[1] * (y.dim() - 1))
    chord = y.diff(dim=0) / tall
    if n == 2 and ends[0] == "periodic":
        return _t.zeros_like(y)
    if n == 2:
        ends = [(1, chord[0]) if e == "not-a-knot" else e for e in ends]
    if n == 3 and all(e == "not-a-knot" for e in ends):  # one parabola
        rows = x.new_tensor([[1, 1, 0], [0, 0, 0], [0, 1, 1]])
        rows[1] = _t.stack([h[1], 2 * (h[0] + h[1]), h[0]])
        right = _t.stack([2 * chord[0], 3 * (h[0] * chord[1] + h[1] * chord[0]), 2 * chord[1]])
        return solve(_t.arange(1, device=x.device).expand(3), rows, right)
    if ends[0] == "periodic":
        return _periodic_slopes(h, tall, chord)
    band = x.new_zeros(n, 3)
    right = y.new_zeros(y.shape)
    band[1:-1] = _t.stack([h[1:], 2 * (h[:-1] + h[1:]), h[:-1]], 1)
    right[1:-1] = 3 * (tall[1:] * chord[:-1] + tall[:-1] * chord[1:])
    # At each end: as seen from there, the nearer unknown first.
    for end, own, row in ((ends[0], 0, (0, 1, 2)), (ends[1], n - 1, (2, 1, 0))):
        h0, h1 = (h[0], h[min(1, n - 2)]) if own == 0 else (h[-1], h[max(n - 3, 0)])
        c0, c1 = (chord[0], chord[min(1, n - 2)]) if own == 0 else (chord[-1], chord[max(n - 3, 0)])
        if end == "not-a-knot":
            d = h0 + h1
            band[own, row[0]], band[own, row[1]] = h1, d
            right[own] = ((h0 + 2 * d) * h1 * c0 + h0 * h0 * c1) / d
        elif end[0] == 1:
            band[own, row[0]] = 1.0
            right[own] = end[1]
        else:
            band[own, row[0]], band[own, row[1]] = 2 * h0, h0
            right[own] = (3 * h0 * c0 - (h0 * h0 * end[1] / 2) * (1 if own == 0 else -1))
    first = (_t.arange(n, device=x.device) - 1).clamp(0, max(n - 3, 0))
    if n == 2:  # the second row's elements from its own end
        band[1] = _t.stack([band[1, 1], band[1, 2], band[1, 0]])
    return solve(first, band, right)


def _periodic_slopes(h, tall, chord):
    """Of n - 1 unknowns, each beside two others in a ring: the ring is cut, and what that changes put right by a second solution."""
    n = h.numel()
    before, last = h.roll(1), tall.roll(1, 0)
    right = 3 * (tall * chord.roll(1, 0) + last * chord)
    lower, diagonal, upper = h, 2 * (h + before), before
    if n <= 3:
        whole = _t._ops.diag(diagonal)
        i = _t.arange(n, device=h.device)
        whole.index_put_((i, (i - 1) % n), lower, accumulate=True)
        whole.index_put_((i, (i + 1) % n), upper, accumulate=True)
        slopes = solve(i * 0, whole, right)
    else:
        # A = T + u v', where u = (-d0, 0, ..., 0, upper[-1]) and v = (1, 0, ..., 0, -lower[0] / d0).
        band = _t.stack([lower, diagonal, upper], 1)
        corner = -diagonal[0]
        band[0, 1] = diagonal[0] - corner
        band[-1, 1] = diagonal[-1] - lower[0] * upper[-1] / corner
        band[0] = _t.stack([band[0, 1], band[0, 2], band[0, 0] * 0])
        band[-1] = _t.stack([band[-1, 0] * 0, band[-1, 0], band[-1, 1]])
        first = (_t.arange(n, device=h.device) - 1).clamp(0, n - 3)
        u = h.new_zeros(n)
        u[0], u[-1] = corner, upper[-1]
        flat = right.reshape(n, -1)
        both = solve(first, band, _t.cat([flat, u[:, None].to(flat.dtype)], 1))
        s, q = both[:, :-1], both[:, -1:]
        ratio = lower[0] / corner
        slopes = (s - q * ((s[:1] + ratio * s[-1:]) / (1 + q[:1] + ratio * q[-1:]))).reshape(right.shape)
    return _t.cat([slopes, slopes[:1]])
