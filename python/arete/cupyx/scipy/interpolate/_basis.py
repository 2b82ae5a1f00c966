"""B-splines by the recurrence of Cox and de Boor, for tensors."""
from __future__ import annotations

from .... import _operators as _t


def basis(t, k, v, found):
    """Values (m, k + 1) of the B-splines of degree k that are not 0 in the pieces t[found] to t[found + 1], at v (m,): each from two of
    the degree below."""
    values = [_t.ones_like(v)]
    for d in range(1, k + 1):
        total, row = _t.zeros_like(v), []
        for r in range(d):
            right, left = t[found + r + 1], t[found + r + 1 - d]
            width = right - left
            share = (values[r] / width.where(width != 0, 1.0)).where(width != 0, 0.0)
            row.append(total + (right - v) * share)
            total = (v - left) * share
        values = [*row, total]
    return _t.stack(values, 1)


def pieces_of(t, k, v):
    """The piece of each place, of those between t[k] and t[n]."""
    return (_t.searchsorted(t, v, right=True) - 1).clamp(k, t.numel() - k - 2)


def derived(t, c, k, nu, axis=0):
    """Knots, coefficients and degree of the derivative of order nu <= k, which is a spline of lower degree."""
    c = c.narrow(axis, 0, t.numel() - k - 1)
    for _ in range(nu):
        width = (t[k + 1:-1] - t[1:-k - 1]).reshape(-1, *[1] * (c.dim() - axis - 1))
        c = (c.diff(dim=axis) * k / width.where(width != 0, 1.0)).where(width != 0, 0.0)
        t, k = t[1:-1], k - 1
    return t, c, k


def evaluate(t, c, k, v, nu=0):
    """Of the spline's derivative of order nu at v (m,), for coefficients (n, ...): (m, ...)."""
    if nu > k:
        return c.new_zeros(v.numel(), *c.shape[1:])
    t, c, k = derived(t, c, k, nu)
    t = t.to(v.dtype)
    found = pieces_of(t, k, v)
    weights = basis(t, k, v, found)
    total = None
    for r in range(k + 1):
        term = weights[:, r].reshape(-1, *[1] * (c.dim() - 1)) * c[found - k + r]
        total = term if total is None else total + term
    return total
