"""Splines as sums of B-splines, which are not 0 on few pieces each."""
from __future__ import annotations

import math

from .... import _C, _operators as _t, linalg as _l
from .._arrays import floating, like, tensor, together
from ._banded import solve
from ._basis import basis, derived, evaluate, pieces_of
from ._pieces import PPoly, first_axis, in_place_of, increasing, places, wrapped

__all__ = ["BSpline", "make_interp_spline", "make_lsq_spline", "splantider", "splder"]


class BSpline:
    """sum of c[i] * B[i] over B-splines of degree k with knots t (n + k + 1,), for coefficients of which `axis` has n elements or more.
    Beyond t[k] and t[n] the outer pieces go on, or it is NaN (extrapolate=False) or periodic ("periodic")."""

    def __init__(self, t, c, k, extrapolate=True, axis=0):
        knots, coefficients, k = floating(tensor(t)), floating(tensor(c)), int(k)
        if k < 0:
            raise ValueError("Spline order cannot be negative.")
        if knots.dim() != 1:
            raise ValueError("Knot vector must be one-dimensional.")
        n = knots.numel() - k - 1
        if n < k + 1:
            raise ValueError(f"Need at least {2 * k + 2} knots for degree {k}")
        if not bool((knots.diff() >= 0).all()):
            raise ValueError("Knots must be in a non-decreasing order.")
        if not bool(knots[k] < knots[n]):
            raise ValueError("Need at least two internal knots.")
        if not bool(knots.isfinite().all()):
            raise ValueError("Knots should not have nans or infs.")
        if not coefficients.dim() or not -coefficients.dim() <= axis < coefficients.dim():
            raise ValueError("Coefficients must be at least 1-dimensional, and have the axis.")
        self.axis = axis % coefficients.dim()
        coefficients = coefficients.movedim(self.axis, 0)
        if coefficients.shape[0] < n:
            raise ValueError("Knots, coefficients and degree are inconsistent.")
        self.t, self.c = like(t, knots.to(coefficients.device)), like(c, coefficients)
        self.k, self.extrapolate = k, extrapolate

    @classmethod
    def construct_fast(cls, t, c, k, extrapolate=True, axis=0):
        """The same without checks; the axis of the coefficients is the first one."""
        self = object.__new__(cls)
        self.t, self.c, self.k, self.extrapolate, self.axis = t, c, k, extrapolate, axis
        return self

    @property
    def tck(self):
        """Knots, coefficients and degree."""
        return self.t, self.c, self.k

    @classmethod
    def basis_element(cls, t, extrapolate=True):
        """The one B-spline with these knots; its degree is their number less 2."""
        knots = floating(tensor(t))
        k = knots.numel() - 2
        ends = _t.cat([(knots[0] - 1).expand(k), knots, (knots[-1] + 1).expand(k)])
        c = _t.zeros_like(ends)
        c[k] = 1.0
        return cls.construct_fast(like(t, ends), like(t, c), k, extrapolate)

    @classmethod
    def design_matrix(cls, x, t, k, extrapolate=False):
        """The matrix (len(x), n), of rows compressed, of the values of B-splines at x."""
        from ..sparse import csr_matrix

        knots = floating(tensor(t))
        v = places(x, knots)
        n = knots.numel() - k - 1
        if extrapolate == "periodic":
            v = wrapped(v, knots[k], knots[n])
        elif not extrapolate and not bool(((v >= knots[k]) & (v <= knots[n])).all()):
            raise ValueError("Out of bounds w/ x")
        found = pieces_of(knots, k, v)
        row = basis(knots, k, v, found)
        columns = found[:, None] - k + _t.arange(k + 1, device=found.device)
        starts = _t.arange(v.numel() + 1, device=found.device) * (k + 1)
        return csr_matrix((like(None, row.reshape(-1)), like(None, columns.reshape(-1)), like(None, starts)), shape=(v.numel(), n))

    def _values(self, v, nu=0):
        """At v (m,): (m, ...)."""
        return evaluate(tensor(self.t), tensor(self.c), self.k, v, nu)

    def __call__(self, x, nu=0, extrapolate=None):
        """The values of the derivative of order nu at x (any shape)."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if nu < 0:
            raise ValueError("Order of derivative cannot be negative")
        t = tensor(self.t)
        shape = places(x, t)
        v = shape.reshape(-1)
        low, high = t[self.k], t[t.numel() - self.k - 1]
        if extrapolate == "periodic":
            v, extrapolate = wrapped(v, low, high), True
        result = self._values(v, nu)
        outside = v.isnan() if extrapolate else ~((v >= low) & (v <= high))
        result = result.masked_fill(outside.reshape(-1, *[1] * (result.dim() - 1)), math.nan)
        return like(self.c, in_place_of(self.axis, result.reshape((*shape.shape, *result.shape[1:])), shape))

    def derivative(self, nu=1):
        """The spline of the derivative, of lower degree."""
        if nu < 0:
            return self.antiderivative(-nu)
        if nu > self.k:
            raise ValueError(f"Order of derivative (n = {nu}) must be <= order of spline (k = {self.k})")
        t, c, k = derived(tensor(self.t), tensor(self.c), self.k, nu)
        return self._of(t, c, k, self.extrapolate)

    def antiderivative(self, nu=1):
        """The spline of the integral from the first knot on, of higher degree."""
        if nu < 0:
            return self.derivative(-nu)
        t, c, k = tensor(self.t), tensor(self.c), self.k
        c = c[:t.numel() - k - 1]
        for _ in range(nu):
            width = (t[k + 1:] - t[:-k - 1]).reshape(-1, *[1] * (c.dim() - 1))
            c = (c * width / (k + 1)).cumsum(0)
            c = _t.cat([_t.zeros_like(c[:1]), c])
            t, k = _t.cat([t[:1], t, t[-1:]]), k + 1
        return self._of(t, c, k, False if self.extrapolate == "periodic" else self.extrapolate, c[-1:])

    def _of(self, t, c, k, extrapolate, beyond=0.0):
        # As many coefficients as knots, as SciPy has them of derivatives and integrals.
        c = _t.cat([c, c.new_zeros(t.numel() - c.shape[0], *c.shape[1:]) + beyond])
        return BSpline.construct_fast(like(self.t, t), like(self.c, c), k, extrapolate, self.axis)

    def integrate(self, a, b, extrapolate=None):
        """The integral from a to b."""
        extrapolate = self.extrapolate if extrapolate is None else extrapolate
        if extrapolate == "periodic":
            t = tensor(self.t)
            pieces = PPoly.from_spline(self, extrapolate)
            k, n = self.k, t.numel() - self.k - 1
            inside = PPoly.construct_fast(like(self.c, tensor(pieces.c)[:, k:n]), like(self.t, t[k:n + 1]), extrapolate)
            return inside.integrate(a, b)
        t = tensor(self.t)
        low, high = float(t[self.k]), float(t[t.numel() - self.k - 1])
        if not extrapolate:  # what lies outside counts nothing
            a, b = (min(max(v, low), high) for v in (a, b))
        area = self.antiderivative()._values(t.new_tensor([a, b]))
        return like(self.c, area[1] - area[0])


def splder(tck, n=1):
    """The spline of the derivative of order n: a BSpline, or (knots, coefficients, degree), as it was given."""
    return tck.derivative(n) if isinstance(tck, BSpline) else BSpline(*tck).derivative(n).tck


def splantider(tck, n=1):
    """The spline of the integral, as many times."""
    return tck.antiderivative(n) if isinstance(tck, BSpline) else BSpline(*tck).antiderivative(n).tck


def _conditions(given, shape, like_what):
    """(orders, values (count, *shape)) of the derivatives at one end."""
    if given is None or (isinstance(given, str) and given == "not-a-knot"):
        return [], None
    if isinstance(given, str):
        orders = {"clamped": [1], "natural": [2]}.get(given)
        if orders is None:
            raise ValueError(f"Unknown boundary condition : {given}")
        return orders, like_what.new_zeros(1, *shape)
    orders, values = zip(*given)
    return list(orders), _t.stack([tensor(v).to(like_what.device, like_what.dtype).expand(shape) for v in values])


def _edge(t, k, at, orders, last):
    """Rows (count, k + 1) of derivatives of the outermost B-splines at one end."""
    count = t.numel() - k - 1
    part = t[count - k - 1:] if last else t[:2 * k + 2]
    unit = BSpline.construct_fast(part, _t.eye(k + 1, dtype=t.dtype, device=t.device), k)
    return _t.cat([unit._values(at.reshape(1), nu) for nu in orders])


def make_interp_spline(x, y, k=3, t=None, bc_type=None, axis=0, check_finite=True):
    """The BSpline of degree k through y at x. bc_type for both ends, or one for each: None ("not-a-knot": some of the places are no knots),
    "natural", "clamped", or a list of (order, derivative). `t` has the knots, where they are to be others."""
    v = increasing(x, "Expect x to be a 1-D sorted array_like:", 1)
    values, axis = first_axis(floating(tensor(y)), axis, v.numel())
    if check_finite and not bool(values.isfinite().all()):
        raise ValueError("array must not contain infs or NaNs")
    v = together(v.to(values.device), values.real)[0]
    if isinstance(bc_type, str) and bc_type == "periodic":
        raise NotImplementedError("make_interp_spline(bc_type='periodic'): CubicSpline has it")
    starts, ends = (bc_type, bc_type) if bc_type is None or isinstance(bc_type, str) else bc_type
    rest = values.shape[1:]
    (low, low_values), (high, high_values) = _conditions(starts, rest, values), _conditions(ends, rest, values)
    n = v.numel()
    if k in (0, 1) and t is None:
        if low or high:
            raise ValueError("Too much info for k=0: t and bc_type can only be None." if k == 0 else
                             "Too much info for k=1: bc_type can only be None.")
        knots = _t.cat([v, v[-1:]]) if k == 0 else _t.cat([v[:1], v, v[-1:]])
        return BSpline.construct_fast(like(y, knots), like(y, values), k, True, axis)
    if k < 0:
        raise ValueError("Expect non-negative k.")
    if t is not None:
        knots = together(tensor(t).to(v.device), v)[0]
        if knots.dim() != 1 or not bool((knots.diff() >= 0).all()):
            raise ValueError("Expect t to be a 1-D sorted array_like.")
    else:
        if low or high:
            inner = v[1:-1]
        elif k % 2:
            m = (k + 1) // 2
            inner = v[m:n - m]
        else:
            inner = ((v[1:] + v[:-1]) / 2)[k // 2:n - 1 - k // 2]
        knots = _t.cat([v[:1].expand(k + 1), inner, v[-1:].expand(k + 1)])
    count = knots.numel() - k - 1
    if n < k + 1 and count != n + len(low) + len(high):
        raise ValueError(f"Need at least {k + 1} places for degree {k}")
    if bool(v[0] < knots[k]) or bool(v[-1] > knots[count]):
        raise ValueError("Out of bounds w/ x = the places")
    if count - n != len(low) + len(high):
        raise ValueError(f"The number of derivatives at boundaries does not match: expected {count - n}, got {len(low)}+{len(high)}")
    found = pieces_of(knots, k, v)
    rows, first, right = [basis(knots, k, v, found)], [found - k], [values]
    for orders, given, last in ((low, low_values, False), (high, high_values, True)):
        if not orders:
            continue
        at = _edge(knots, k, knots[count] if last else knots[k], orders, last)
        where = first[0].new_full((len(orders),), count - k - 1 if last else 0)
        for have, new in ((rows, at), (first, where), (right, given)):
            have.insert(len(have) if last else 0, new)
    first, right = _t.cat(first), _t.cat(right)
    # Schoenberg and Whitney: each B-spline has a place of its own, or there is not one solution.
    i = _t.arange(count, device=v.device)
    if count == n and not bool((((knots[i] < v) | (i == 0)) & ((v < knots[i + k + 1]) | (i == count - 1))).all()):
        raise _l.LinAlgError("Collocation matrix is singular.")
    c = solve(first, _t.cat(rows), right)
    return BSpline.construct_fast(like(y, knots), like(y, c), k, True, axis)


def make_lsq_spline(x, y, t, k=3, w=None, axis=0, check_finite=True):
    """The BSpline of degree k with knots t whose (weighted) squared differences from y at x add up to the least: by the normal equations,
    in double precision, which have 2 k + 1 numbers for each B-spline. LinAlgError where a B-spline is 0 at all places."""
    v = floating(tensor(x))
    values, axis = first_axis(floating(tensor(y)), axis, v.numel())
    knots = together(floating(tensor(t)).to(values.device), values.real)[0]
    v = v.to(knots)
    n = knots.numel() - k - 1
    if v.dim() != 1 or not bool((v.diff() >= 0).all()):
        raise ValueError("Expect x to be a 1-D sorted array_like.")
    if check_finite and not bool(values.isfinite().all()):
        raise ValueError("array must not contain infs or NaNs")
    if not k + 1 <= n <= v.numel():
        raise ValueError(f"{v.numel()} places and {knots.numel()} knots for degree {k}: there must be {k + 1} B-splines or more, "
                         "and places for all")
    if bool((v < knots[k]).any()) or bool((v > knots[n]).any()):
        raise ValueError("Out of bounds w/ x")
    found = pieces_of(knots, k, v)
    row, right = basis(knots, k, v, found).to(_C.float64), values.reshape(v.numel(), -1)
    right = right.to(_C.complex128 if right.dtype.is_complex else _C.float64)
    if w is not None:
        weights = tensor(w).to(row)
        if weights.shape != v.shape:
            raise ValueError("Incompatible weights.")
        # SciPy's weigh the differences, before they are squared.
        row, right = row * weights[:, None], right * weights[:, None]
    columns, first = found - k, (_t.arange(n, device=v.device) - k).clamp(min=0)

    def across(values):  # the matrix of B-splines at the places, turned around, times values
        total = values.new_zeros(n, values.shape[1])
        for j in range(k + 1):
            total.index_add_(0, columns + j, row[:, j:j + 1] * values)
        return total

    band = row.new_zeros(n * (2 * k + 1))
    for i in range(k + 1):
        for j in range(k + 1):
            band.index_add_(0, (columns + i) * (2 * k + 1) + columns + j - first[columns + i], row[:, i] * row[:, j])
    band = band.reshape(n, 2 * k + 1)
    c = solve(first, band, across(right))
    # The square of the condition costs digits, which a second solution has, of what the first one leaves.
    c = c + solve(first, band, across(right - sum(row[:, j:j + 1] * c[columns + j] for j in range(k + 1))))
    return BSpline.construct_fast(like(y, knots), like(y, c.to(values.dtype).reshape(n, *values.shape[1:])), k, True, axis)
